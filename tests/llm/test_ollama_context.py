"""When OllamaBackend takes a prompt for cut, and when it must not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from fake_ollama._fake_ollama import FakeModel, FakeOllama

from llmsim_lab.errors import BackendError
from llmsim_lab.llm._ollama.backend import OllamaBackend, PromptGauge, countable, texts_read
from llmsim_lab.types import ChatReply, ChatRequest, Message

ENGLISH = (
    "The central bank raised its policy rate by fifty basis points, because inflation expectations "
    "had become unanchored and unemployment remained historically low. Governments communicated "
    "their intentions transparently; international institutions nevertheless recommended caution. "
)
PLAIN = "The bank has set the rate at four and a half, so that food will not cost more by May. "
CODE = """
class Simulation:
    def step(self, actions: list[Action]) -> SimulationState:
        if not actions:
            raise ValueError("no actions")
        return self.engine.run_turn([action for action in actions if action.validated])
"""
JSON = json.dumps(
    {"interest_rate": 4.25, "inflation": 2.0, "history": [{"turn": 1, "rate": 4.0}] * 3}, indent=4
)
CHINESE = "中央银行将政策利率上调五十个基点,因为通货膨胀预期已经失控,而失业率仍处于历史低位。"
GERMAN = (
    "Die Bundesbankpräsidentin erläuterte die Zinsentscheidung und die "
    "Wirtschaftswachstumsprognosen der Sachverständigenkommission ausführlich. "
)
SPACED = "Rate:" + " " * 400 + "4.25\n" + "\n" * 60 + "Inflation:" + "\t" * 200 + "2.0\n"
RULED = "=" * 400 + "\nHeading\n" + "-" * 400 + "\n" + "#" * 80 + "\n" + "." * 1000 + "\n"
ORDINARY = {
    "english": ENGLISH,
    "plain": PLAIN,
    "code": CODE,
    "json": JSON,
    "chinese": CHINESE,
    "german": GERMAN,
    "spaced": SPACED,
    "ruled": RULED,
}
TIGHT = re.compile(
    r"\s{1,64}(?=\s)"  # a run of white space, but for its last
    r"|\s?[^\W\d_\u4e00-\u9fff]{1,12}(?![^\W\d_])"  # a whole word
    r"|\s?[^\W\d_\u4e00-\u9fff]{1,6}"  # a piece of a longer one
    r"|[\u4e00-\u9fff]{1,2}|\s?\d{1,3}|\s?([^\w\s])\1{0,63}|\s|\w"
)


def tightest_count(text: str) -> int:
    """Count tokens as a tokenizer with a huge vocabulary would: hardly any word is cut."""
    return sum(1 for _ in TIGHT.finditer(text))


def ask(text: str, *, num_ctx: int = 4096) -> ChatRequest:
    messages = (Message("user", text),)
    return ChatRequest(model="llama3.2", messages=messages, options={"num_ctx": num_ctx})


def ask_nearly_full(text: str) -> ChatRequest:
    """A prompt that just fits, so that it is not spared the checks for its shortness."""
    return ask(text, num_ctx=tightest_count(text) + 8)


def honest(body: Mapping[str, Any]) -> ChatReply:
    """Report a prompt's tokens at the least a real tokenizer would find."""
    count = sum(tightest_count(message["content"]) for message in body["messages"])
    return ChatReply(text="ok", prompt_tokens=count)


def test_the_tight_tokenizer_is_tighter_than_real_ones() -> None:
    # Real ones take 4 to 5 characters of English a token, and fewer of German.
    assert len(ENGLISH) / tightest_count(ENGLISH) > 5.5
    assert len(GERMAN) / tightest_count(GERMAN) > 5


@pytest.mark.parametrize("first", ORDINARY)
async def test_ordinary_prompts_raise_no_alarm_in_any_order(first: str) -> None:
    with FakeOllama(reply=honest, knows_truncate=False) as server:
        backend = OllamaBackend(host=server.host)
        for text in (ORDINARY[first], *ORDINARY.values(), *ORDINARY.values()):
            reply = await backend.chat(ask_nearly_full(text * 40))
            assert reply.text == "ok"
        await backend.aclose()


@pytest.mark.parametrize(("version", "read"), [("0.32.15", 1026), ("0.24.0", 2048)])
async def test_a_server_that_cuts_without_a_word_is_caught(version: str, read: int) -> None:
    with FakeOllama(version=version, knows_truncate=False) as server:
        backend = OllamaBackend(host=server.host)
        with pytest.raises(BackendError) as caught:
            await backend.chat(ask(ENGLISH * 55, num_ctx=2048))
        await backend.aclose()
    assert caught.value.reason == "context_overflow"
    assert not caught.value.retry
    assert re.sub("least [0-9]+", "least N", str(caught.value)) == (
        "the prompt has at least N tokens, more than num_ctx=2048 can hold (the server has read "
        f"{read} tokens of it and cut the rest without a word); raise LLMConfig.num_ctx, up to "
        "8192, or shorten the prompt"
    )
    assert len(server.requests) == 1


async def test_a_prompt_cut_to_the_trained_length_does_not_ask_to_raise_num_ctx() -> None:
    model = FakeModel(name="llama3.2", context_length=1024)
    with FakeOllama([model], knows_truncate=False) as server:
        backend = OllamaBackend(host=server.host)
        with pytest.raises(BackendError) as caught:
            await backend.chat(ask(ENGLISH * 55, num_ctx=8192))
        await backend.aclose()
    assert re.sub("least [0-9]+", "least N", str(caught.value)) == (
        "the prompt has at least N tokens, more than the 1024 tokens of context that the model was "
        "trained for (the server has read 514 tokens of it and cut the rest without a word); "
        "shorten the prompt, or use a model with a longer context"
    )


async def test_a_prompt_only_just_too_long_is_caught_once_the_model_is_known() -> None:
    with FakeOllama(knows_truncate=False) as server:
        backend = OllamaBackend(host=server.host)
        whole = await backend.chat(ask(PLAIN * 92, num_ctx=2048))
        assert 1900 < (whole.prompt_tokens or 0) < 2048
        with pytest.raises(BackendError, match="has read 1026 tokens") as caught:
            await backend.chat(ask(PLAIN * 95, num_ctx=2048))
        await backend.aclose()
    assert caught.value.reason == "context_overflow"


async def test_old_messages_dropped_without_a_word_are_caught() -> None:
    history = (Message("user", ENGLISH * 60), Message("user", "What now?"))
    request = replace(ask("", num_ctx=2048), messages=history)
    with FakeOllama(knows_truncate=False) as server:
        backend = OllamaBackend(host=server.host)
        with pytest.raises(BackendError, match="cut the rest without a word"):
            await backend.chat(request)
        await backend.aclose()


async def test_a_short_prompt_cannot_have_been_cut() -> None:
    odd = ChatReply(text="ok", prompt_tokens=3)
    with FakeOllama(reply=odd, knows_truncate=False) as server:
        backend = OllamaBackend(host=server.host)
        assert (await backend.chat(ask(ENGLISH * 4))).text == "ok"
        await backend.aclose()


async def test_a_prompt_that_cannot_fit_is_not_sent() -> None:
    with FakeOllama() as server:
        backend = OllamaBackend(host=server.host)
        with pytest.raises(BackendError, match=r"at least \d{4} tokens.*num_ctx=512") as caught:
            await backend.chat(ask(ENGLISH * 100, num_ctx=512))
        await backend.aclose()
    assert caught.value.reason == "context_overflow"
    assert server.requests == []


async def test_a_reply_that_just_fills_the_window_is_not_an_overflow() -> None:
    request = replace(ask("Count to a thousand."), options={"num_ctx": 64, "num_predict": 52})
    with FakeOllama(reply="one two " * 250) as server:
        backend = OllamaBackend(host=server.host)
        reply = await backend.chat(request)
        await backend.aclose()
    assert reply.done_reason == "length"
    assert (reply.prompt_tokens or 0) + (reply.reply_tokens or 0) == 64


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_goes_past_the_window_is_an_error_with_both_counts(
    stream: bool,
) -> None:
    with FakeOllama(reply="one two " * 250) as server:
        backend = OllamaBackend(host=server.host, stream=stream)
        with pytest.raises(BackendError) as caught:
            await backend.chat(ask("Count to a thousand.", num_ctx=64))
        await backend.aclose()
    assert str(caught.value) == (
        "the answer met the end of the context: 12 tokens of prompt and 502 of answer are more "
        "than num_ctx=64, so the server dropped the start of the prompt while the model wrote on; "
        "raise LLMConfig.num_ctx, shorten the prompt, or ask for less"
    )
    assert caught.value.reason == "context_overflow"
    assert caught.value.reply.text == "one two " * 250


async def test_an_answer_past_what_the_model_was_trained_for_is_not_told_to_raise_num_ctx() -> None:
    model = FakeModel(name="llama3.2", context_length=1024)
    with FakeOllama([model], reply="one two " * 600) as server:
        backend = OllamaBackend(host=server.host)
        with pytest.raises(BackendError) as caught:
            await backend.chat(ask("Count to a thousand.", num_ctx=8192))
        await backend.aclose()
    assert str(caught.value) == (
        "the answer met the end of the context: 12 tokens of prompt and 1202 of answer are more "
        "than the 1024 tokens of context that the model was trained for, so the server dropped the "
        "start of the prompt while the model wrote on; shorten the prompt, or ask for less"
    )


async def test_an_answer_without_token_counts_is_taken_as_it_is() -> None:
    silent = ChatReply(text="ok", prompt_tokens=0, reply_tokens=0)
    with FakeOllama(reply=silent) as server:
        backend = OllamaBackend(host=server.host)
        reply = await backend.chat(ask(ENGLISH))
        await backend.aclose()
    assert (reply.text, reply.prompt_tokens, reply.reply_tokens) == ("ok", None, None)


def test_tool_results_and_earlier_thoughts_do_not_count() -> None:
    messages = [
        Message("user", "Why?"),
        Message("assistant", "<think>Let me\nsee.</think>Because."),
        Message("tool", "42", tool_name="answer"),
    ]
    assert texts_read(messages) == ["Why?", "Because."]


def test_runs_count_as_one_character() -> None:
    assert countable("a" + " " * 100 + "b" + "=" * 100) == 4
    assert countable("aaa bbb 中中中") == 11


def test_a_gauge_learns_only_from_prompts_that_say_something() -> None:
    gauge = PromptGauge()
    first = gauge.chars_per_token
    gauge.learn(["x y"] * 5, tokens=10)
    assert gauge.chars_per_token == first
    gauge.learn([ENGLISH * 10], tokens=len(ENGLISH) * 10 // 6)
    assert 6 * 1.25 < gauge.chars_per_token < first
    seen = gauge.chars_per_token
    gauge.learn([CHINESE * 10], tokens=300)
    assert gauge.chars_per_token == seen
