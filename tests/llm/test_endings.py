"""Where a reply ends that is read while it is written; what is legitimate must never be cut."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab._util.files import data_path
from llmsim_lab.errors import BackendError
from llmsim_lab.llm import Tape
from llmsim_lab.llm._endings import Endings, Telling
from llmsim_lab.types import ChatReply, ChatRequest, Message

SIZES = (1, 3, 64, 100_000)
"""Of the pieces a text comes in."""


def read(text: str, *, size: int = 3, **settings: Any) -> tuple[str | None, str]:
    """Return why a text was stopped, or None, and how much of it had come."""
    ends = Endings(**{"schema": False, **settings})
    for at in range(0, len(text), size):
        if ends(text[at : at + size]):
            return ends.reason, text[: at + size]
    return None, text


# The closing brace


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "text",
    [
        '{"a": "}", "b": {"c": [1, 2]}}',
        '{"a": "say \\"}\\" and \\\\"}',
        '[{"a": 1}, {"a": 2}]',
        '\n  {"a": "{[("}\n\n',
        '```json\n{"a": 1}',
        '<think>{"a": 0} or {"a": 1}?</think>\n{"a": 1}',
        '<think>Hm.</think>```\n{"a": 1}',
    ],
)
def test_json_that_ends_by_itself_is_not_stopped(text: str, size: int) -> None:
    assert read(text, size=size, schema=True) == (None, text)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "text",
    [
        '{"a": "}", "b": {"c": [1, 2]}}',
        '{"a": "say \\"}\\" and \\\\"}',
        '[{"a": 1}, {"a": 2}]',
        '```json\n{"a": 1}',
        '<think>{"a": 0}</think>\n{"a": 1}',
    ],
)
@pytest.mark.parametrize("further", ["\n```\nThis is my answer.", ' {"a": 7}', "\n \n" * 9])
def test_what_follows_the_closing_brace_ends_the_reply(text: str, further: str, size: int) -> None:
    ends = Endings(schema=True)
    whole, come = text + further, ""
    while not ends(whole[len(come) : len(come) + size]):
        come = whole[: len(come) + size]
    come = whole[: len(come) + size]
    reply = ends.ended(ChatReply(text=come, done_reason="aborted", reply_tokens=7))
    assert ends.reason == "closed"
    assert (reply.text, reply.done_reason, reply.reply_tokens) == (text, "stop", 7)


@pytest.mark.parametrize("size", SIZES)
def test_json_is_found_after_long_thoughts_that_have_json_fences_and_tags(size: int) -> None:
    drafts = "".join(f'\n<think>```\n{{"draft": {number}}}\n```' for number in range(1_000))
    text = f'<thinking>{drafts}</think>\n```json\n{{"a": 1}}'
    reason, come = read(f"{text} {{}}", size=size, schema=True)
    assert reason == "closed"
    assert come.startswith(text)


def test_nothing_is_read_for_long_after_the_closing_brace() -> None:
    assert read('{"a": 1}. And so on, and on.', schema=True) == ("closed", '{"a": 1}.')


@pytest.mark.parametrize(
    "text",
    [
        'First {"a": 0}, then better {"a": 1}.',
        "Yes: [1] and [2].",
        "<b>{}</b> {}.",
        "`{}` {}",
    ],
)
def test_a_reply_that_begins_in_prose_may_hold_drafts(text: str) -> None:
    assert read(text, size=1, schema=True) == (None, text)


def test_without_a_schema_a_brace_ends_nothing() -> None:
    assert read("{x} is a set, {y} another.") == (None, "{x} is a set, {y} another.")


def test_a_call_of_a_tool_may_be_followed_by_another() -> None:
    tools = ({"type": "function", "function": {"name": "ls"}},)
    asked = ChatRequest(model="m", messages=(Message("user", "?"),), schema={}, tools=tools)
    assert not Endings.of(asked)('{"name": "ls"} {"name": "ls"}')


# Loops


ZEROS = ", ".join(["0"] * 100)
ITEM = '{"who": "Ann", "action": "ignore", "post": null}'
LEGITIMATE = {
    "a rule": "Results\n" + "-" * 120 + "\n" + "=" * 120,
    "the head of a wide table": "|" + " Year |" * 20 + "\n|" + " --- |" * 20 + "\n",
    "equal rows": "| Hold | 0.00 | none |\n" * 9,
    "a list of zeros": f"The shocks are [{ZEROS}].",
    "a verse": "Row, row, row your boat, gently down the stream.\n" * 6,
    "indented code": "        return x\n\n" + " " * 60 + "pass\n",
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", sorted(LEGITIMATE))
def test_repetition_that_people_ask_for_is_left_alone(name: str, size: int) -> None:
    assert read(LEGITIMATE[name], size=size) == (None, LEGITIMATE[name])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "text",
    [
        f'{{"shocks": [{ZEROS}]}}',
        f"[{', '.join([ITEM] * 30)}]",
        json.dumps([{"a": [0.0] * 20}] * 12, indent=8),
        json.dumps({"text": "ha " * 133}),  # the longest text that the usual schema allows
    ],
)
def test_equal_items_of_json_are_left_alone(text: str, size: int) -> None:
    assert read(text, size=size, schema=True) == (None, text)


@pytest.mark.parametrize("size", [1, 3, 64])
@pytest.mark.parametrize(
    "unit",
    [
        "ha ",
        "The committee should wait and see what the next numbers say before it acts. ",
        "| Hold | 0.00 | none |\n",
        "-",
        "\n\n \t",
        "no\n",
    ],
)
def test_a_model_in_a_loop_is_stopped(unit: str, size: int) -> None:
    text = "I think that " + unit * 1000
    reason, come = read(text, size=size)
    assert reason == "loop"
    assert len(come) < 13 + max(320, 10 * len(unit)) + 64 + size


def test_a_hundred_equal_items_of_a_list_are_not_a_loop() -> None:
    for item in ("0.0, ", f"{ITEM}, ", '"hold", '):
        assert read(f'{{"a": [{item * 100}', schema=True)[0] is None


def test_loops_within_json_are_stopped_too() -> None:
    assert read('{"a": "' + "ha " * 999, schema=True)[0] == "loop"
    assert read('{"a": [' + "1, " * 999, schema=True)[0] == "loop"
    assert read(f'{{"a": [{ITEM * 199}', schema=True)[0] == "loop"
    assert read('{"a": 1,' + "\n \n\t" * 999, schema=True)[0] == "loop"


@pytest.mark.parametrize("schema", [False, True])
def test_a_loop_in_the_thinking_is_stopped(schema: bool) -> None:
    assert read("<think>Wait. " + "Or is it? " * 99, schema=schema)[0] == "loop"


def test_the_fault_says_what_was_repeated_and_keeps_the_text() -> None:
    ends, text = Endings(schema=False), "I say " + "ha " * 300
    assert ends(text)
    with pytest.raises(BackendError) as caught:
        ends.ended(ChatReply(text=text, reply_tokens=300))
    assert str(caught.value) == (
        "the client stopped the model because it repeated 'ha' 300 times, at the end of "
        "'I say ha'; change the prompt, raise the temperature, or use another model"
    )
    assert (caught.value.reason, caught.value.retry) == ("generation_stopped", True)
    assert caught.value.reply == ChatReply(text=text, reply_tokens=300, done_reason="aborted")


def test_no_reply_on_the_tapes_that_come_with_the_package_is_stopped() -> None:
    texts = set[str]()
    for path in sorted(Path(data_path("tapes")).glob("*.tape")):
        with Tape(path, read_only=True) as tape:
            texts |= set(tape.calls_frame()["reply"].dropna())
    assert len(texts) > 50
    for text in texts:
        for schema in (True, False):
            assert read(text, size=4, schema=schema, max_tokens=512) == (None, text)


# Length


def test_a_server_that_ignores_the_token_limit_is_stopped() -> None:
    text = " ".join(map(str, range(1000)))
    reason, come = read(text, max_tokens=50)
    assert reason == "length"
    assert 50 * 8 + 256 < len(come) < 50 * 8 + 256 + 80
    ends = Endings(schema=False, max_tokens=50)
    assert ends(text)
    assert ends.ended(ChatReply(text=text)).done_reason == "length"


@pytest.mark.parametrize("limit", [None, 500, 3000])
def test_long_replies_within_the_limit_are_left_alone(limit: int | None) -> None:
    text = " ".join(map(str, range(1000)))
    assert read(text, max_tokens=limit) == (None, text)


@pytest.mark.parametrize(("option", "stops"), [(50, True), (-1, False), (None, False)])
def test_the_limit_is_that_of_the_request(option: int | None, stops: bool) -> None:
    asked = ChatRequest(
        model="m", messages=(Message("user", "?"),), options={"num_predict": option}
    )
    assert Endings.of(asked)(" ".join(map(str, range(1000)))) is stops


# Replies that come as a whole


@pytest.mark.parametrize(
    "reply",
    [
        ChatReply(text='{"a": 1}\n', prompt_tokens=3, reply_tokens=9),
        ChatReply(text='{"a": 1} And more.'),
        ChatReply(text='{"a": 1}', thinking="{Hm} {hm}"),
        ChatReply(text='{"a": 1} And more.', thinking="Hm."),
        ChatReply(text="Drafts: {} {}"),
        ChatReply(text=""),
    ],
)
def test_a_whole_reply_is_what_it_were_if_it_had_been_streamed(reply: ChatReply) -> None:
    streamed = Endings(schema=True)
    tell = Telling(streamed)
    text = ""
    stopped = reply.thinking and tell("", reply.thinking)
    for letter in reply.text:
        text += letter
        if stopped := tell(letter):
            break
    came = ChatReply(
        text=text,
        thinking=reply.thinking,
        prompt_tokens=reply.prompt_tokens,
        reply_tokens=reply.reply_tokens,
    )
    assert streamed.ended(came) == Endings(schema=True).whole(reply)
    assert bool(stopped) == ("And more" in reply.text)


@pytest.mark.parametrize("thinking", ["", "Hm. " * 5])
@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ('{"a": [' + "0, " * 115 + "1]}", True),  # repeated often enough between two looks only
        ("ab" * 165 + " ".join(map(str, range(99))), False),
        (" ".join(map(str, range(999))), False),  # too long
        ('{"a": 1} And more.', True),
    ],
)
def test_in_which_pieces_a_reply_comes_does_not_matter(
    text: str, schema: bool, thinking: str
) -> None:
    def ended(size: int | None) -> ChatReply | str:
        ends = Endings(schema=schema, max_tokens=200)
        reply = ChatReply(text=text, thinking=thinking)
        try:
            if size is None:
                return ends.whole(reply)
            tell = Telling(ends)
            if thinking:
                tell("", thinking)
            come = 0
            while come < len(text):
                come += size
                if tell(text[come - size : come]):
                    break
            return ends.ended(replace(reply, text=text[:come]))
        except BackendError as fault:
            return fault.reason

    assert [ended(size) for size in (1, 5, 17, 64, 100_000)] == [ended(None)] * 5


@pytest.mark.parametrize("field", ["text", "thinking"])
def test_a_whole_reply_that_repeats_itself_is_the_same_fault(field: str) -> None:
    reply = ChatReply(**{"text": "", field: "ha " * 999})
    with pytest.raises(BackendError, match="because it repeated 'ha'") as caught:
        Endings(schema=False).whole(reply)
    assert caught.value.reply is not None
    assert len(getattr(caught.value.reply, field)) < 450


# What is passed on


def test_separate_thinking_is_passed_on_between_tags() -> None:
    told: list[str] = []
    tell = Telling(lambda piece: bool(told.append(piece)))
    for text, thinking in [("", "H"), ("", "m."), ("", ""), ("So", ""), ("!", "")]:
        assert tell(text, thinking) is False
    assert "".join(told) == "<think>Hm.</think>So!"
    assert tell.pieces == len(told) == 4
