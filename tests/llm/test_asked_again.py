"""Recorded calls asked again: a true tape, an edited one, and one of another model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest
from tape_text import changed_manifest, rewrite

from llmsim_lab import Ask, LLMClient, LLMConfig, Person, Reply, Run, ScriptedBackend, State, Tape
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.asked_again import Audit, ask_again, recorded_model
from llmsim_lab.llm.embedded.backend import EmbeddedBackend
from llmsim_lab.llm.openai import Token, TracedToken
from llmsim_lab.run import fork, rerun
from llmsim_lab.tape import verify
from llmsim_lab.types import ChatReply, ChatRequest, Message, ModelInfo


class Told(State):
    numbers: tuple[int, ...] = ()


class Number(Reply):
    number: int


class Talk(Run[Told]):
    """Two players name numbers, and one chooses a colour; the other's first reply is no JSON."""

    async def turn(self, state: Told, ask: Ask) -> Told:
        said = await ask.each(["Ann", "Bob"], Number, "So far {{ state.numbers }}. A number?")
        await ask("Cy", Colour, "A colour?", decide="sample")
        return Told(numbers=(*state.numbers, said["Ann"].number, said["Bob"].number))


class Colour(Reply):
    colour: Literal["red", "blue"]


def draws(request: ChatRequest) -> ChatReply:
    """Answer as a model does: by what is asked, and by the seed."""
    if request.top_logprobs:
        likely = (("A", math.log(0.7)), ("B", math.log(0.3)))
        return ChatReply(text="A", top_logprobs=likely)
    assert request.site is not None
    if request.site.agent == "Bob" and request.attempt == 1:
        return ChatReply(text=f"I like {request.options['seed']}.")
    number = (request.options["seed"] + len(request.prompt)) % 1000
    return ChatReply(text=f'{{"number": {number}, "reasoning": "So.", "confidence": 1}}')


def client_of(answer: Callable[[ChatRequest], ChatReply] = draws) -> LLMClient:
    return LLMClient(LLMConfig(model="scripted", retry_wait_s=0), ScriptedBackend(answer))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A tape with a run of two turns, a fork of it, and a rerun."""
    path = tmp_path / "talk.tape"
    run = Talk(llm_client=client_of(), tape=path, seed=7)
    run.run(2, progress=False)
    run.close()
    for other in (
        fork(path, 1, turn=1, llm_client=client_of()),
        rerun(path, 1, llm_client=client_of()),
    ):
        other.run(1, progress=False)
        other.close()
    return path


def audit(path: Path, client: LLMClient | None = None, **settings: Any) -> Audit:
    with Tape(path, read_only=True) as tape:
        return asyncio.run(ask_again(tape, client or client_of(), **settings))


def test_each_reply_of_a_true_tape_is_given_again(path: Path) -> None:
    shown = audit(path, number=20, seed=1)
    assert shown.ok
    assert shown.eligible == 20  # of four turns: three replies with a seed, and a choice's two
    assert str(shown) == "20 of 20: at most 14 % of the replies are not scripted's, 95 %"


def test_the_seed_that_is_told_draws_the_same_calls(path: Path) -> None:
    first = audit(path, number=5)
    again = audit(path, number=5, seed=first.seed)
    assert [asked.call.id for asked in first.answers] == [asked.call.id for asked in again.answers]


def edited(path: Path, edit: Callable[[dict[str, Any]], None], number: int) -> None:
    """Change a call's reply, and compute the sums again."""

    def changed(line: dict[str, Any]) -> dict[str, Any]:
        if line.get("no") == number:
            edit(line["reply"])
        return line

    rewrite(path, changed)
    assert verify(path) == []


def test_an_edited_reply_is_named_though_its_sums_are_right(path: Path) -> None:
    def edit(reply: dict[str, Any]) -> None:
        reply["text"] = reply["text"].replace('"number": ', '"number": 9')

    edited(path, edit, 1)
    shown = audit(path, number=20)
    assert not shown.ok
    [asked] = [asked for asked in shown.answers if asked.verdict != "equal"]
    assert asked.call.id == 1
    assert "recorded '9" in str(asked)
    assert "19 of 20 replies are equal; 1 are not, and this server cannot show" in str(shown)


def test_an_edited_probability_of_a_choice_is_named(path: Path) -> None:
    with Tape(path, read_only=True) as tape:
        [number, _] = [call.id for call in tape.calls(1, turn=1) if call.attempt.reply.top_logprobs]

    def edit(reply: dict[str, Any]) -> None:
        reply["top_logprobs"] = [["A", math.log(0.9)], ["B", math.log(0.1)]]

    edited(path, edit, number)
    shown = audit(path, number=20)
    assert f"95 %): call {number}; they were edited" in str(shown)
    [asked] = [asked for asked in shown.answers if asked.verdict != "equal"]
    assert "probability of 'A' recorded as 0.900, and now 0.700" in str(asked)


def test_people_and_replies_without_a_seed_are_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "free.tape"

    def answer(request: ChatRequest) -> ChatReply:
        request.options = {**request.options, "seed": 5}
        return draws(request)

    seats = {"Ann": Person(ask=lambda _: {"number": 1})}
    run = Talk(llm_client=client_of(answer), players=seats, tape=path, replicate=None)
    run.run(1, progress=False)
    run.close()
    shown = audit(path)
    assert shown.eligible == 2  # of the choice, of which nothing is drawn
    assert shown.left_out == {"to people": 1, "whose seed the server chose": 2}


def test_a_tape_without_a_models_call_says_that_there_is_nothing_to_ask(tmp_path: Path) -> None:
    rules = Talk(players="random", tape=tmp_path / "rules.tape")
    rules.run(1, progress=False)
    rules.close()
    with Tape(tmp_path / "rules.tape", read_only=True) as tape:
        with pytest.raises(ConfigError, match=r"nothing to ask again: .* it has no call"):
            recorded_model(tape)
        with pytest.raises(ConfigError, match="no reply that can be asked again: it has no call"):
            asyncio.run(ask_again(tape, client_of()))


def test_a_model_in_a_seat_of_its_own_is_the_one_that_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "seats.tape"
    run = Talk(players={"*": client_of()}, tape=path)
    run.run(1, progress=False)
    run.close()
    seats = {"*": {"name": "scripted", "backend": "embedded", "digest": "e" * 64}}
    changed_manifest(path, 1, players=seats)
    with Tape(path, read_only=True) as tape:
        assert recorded_model(tape) == "embedded:scripted"
    other = LLMClient(LLMConfig(model="scripted"), Small({"A": 1.0}))
    [note] = audit(path, other, number=1).notes
    assert note.startswith("the tape names the weights eeeeeeeeeeee")


def test_a_tape_of_a_script_says_that_a_model_has_to_be_named(path: Path) -> None:
    with (
        Tape(path, read_only=True) as tape,
        pytest.raises(ConfigError, match=r"are from 'scripted' \(scripted\).*--model"),
    ):
        recorded_model(tape)


@pytest.mark.parametrize(
    ("backend", "name", "way_out"),
    [
        ("openai", "gpt-5", "costs? money.*--model openai:gpt-5"),
        ("embedded", "evil.gguf", "if you trust that file.*--model embedded:evil.gguf"),
        ("embedded", "/dev/zero", "if you trust that file.*--model embedded:/dev/zero"),
    ],
)
def test_a_tape_chooses_neither_a_file_of_weights_nor_a_server_that_costs_money(
    path: Path, backend: str, name: str, way_out: str
) -> None:
    for number in (1, 2, 3):
        changed_manifest(path, number, model={"backend": backend, "name": name})
    with Tape(path, read_only=True) as tape, pytest.raises(ConfigError, match=way_out):
        recorded_model(tape)


def test_a_tape_decides_neither_how_much_is_loaded_nor_how_long_is_waited(path: Path) -> None:
    asked: list[ChatRequest] = []
    windows = iter([10**9, 4096])

    async def silent(request: ChatRequest) -> ChatReply:
        asked.append(request)
        await asyncio.sleep(60)
        raise AssertionError

    def greedy(line: dict[str, Any]) -> dict[str, Any]:
        settings = line.get("value")
        if isinstance(settings, dict) and "schema" in settings:
            settings |= {"keep_alive": -1, "timeout_s": 1e9}
            settings["options"]["num_ctx"] = next(windows)
        return line

    rewrite(path, greedy)
    config = LLMConfig(model="scripted", timeout_s=5, total_timeout_s=0.01)
    shown = audit(path, LLMClient(config, ScriptedBackend(silent)), number=2)
    assert {answer.verdict for answer in shown.answers} == {"unanswered"}
    assert "no reply within 0.01 s" in str(shown.answers[0])
    assert {(request.keep_alive, request.timeout_s) for request in asked} == {(None, 5)}
    assert "with a window of more than 32,768 tokens" in shown.left_out


class Small(EmbeddedBackend):
    """An embedded model that writes four letters, by numbers that follow from its seed."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self.name = "small"
        self.shares = shares

    async def chat(self, request: ChatRequest, *, on_text: object = None) -> ChatReply:
        traced = await self.traced(request)
        return ChatReply(text="".join(token.content.decode() for token, _ in traced))

    async def traced(self, request: ChatRequest) -> list[TracedToken]:
        likely = [Token(letter.encode(), share) for letter, share in self.shares.items()]
        chance = Random(request.options["seed"])
        drawn = chance.choices(likely, [token.probability for token in likely], k=4)
        return [TracedToken(token, tuple(likely)) for token in drawn]

    async def model_info(self) -> ModelInfo:
        return ModelInfo(name="small", backend="embedded", digest="d" * 64)


class Letters(Run[Told]):
    """Asks for letters, forty times."""

    async def turn(self, state: Told, ask: Ask) -> Told:
        client = self.llm_client
        assert client is not None
        for _ in range(40):
            await client.converse([Message("user", "Letters?")])
        return state


def small(*, repeatable: bool = False, **shares: float) -> LLMClient:
    return LLMClient(LLMConfig(model="small", repeatable=repeatable), Small(shares))


def letters(folder: Path, *, repeatable: bool = False) -> Path:
    path = folder / "letters.tape"
    client = small(repeatable=repeatable, A=0.5, B=0.3, C=0.2)
    run = Letters(llm_client=client, tape=path)
    run.run(1, progress=False)
    run.close()
    return path


OTHER_DIGITS = {"A": 0.42, "B": 0.33, "C": 0.25}


def test_a_reply_that_differs_by_a_likely_word_is_within_reach(tmp_path: Path) -> None:
    shown = audit(letters(tmp_path), small(**OTHER_DIGITS), number=40)
    near = shown.count("within reach")
    assert near > 10
    assert str(shown).startswith(
        f"{40 - near} of 40 replies are equal, and {near} differ from a word on that small could "
        "have drawn too: recorded with a prompt cache or elsewhere, its own replies do"
    )


def test_a_likely_word_that_the_seed_does_not_draw_is_not_the_models(tmp_path: Path) -> None:
    path = letters(tmp_path)
    number = next(
        answer.call.id
        for answer in audit(path, small(**OTHER_DIGITS), number=40).answers
        if answer.verdict == "equal" and answer.call.attempt.reply.text[0] == "A"
    )
    edited(path, lambda reply: reply.update(text="C" + reply["text"][1:]), number)
    shown = audit(path, small(**OTHER_DIGITS), number=40)
    [wrong] = [answer for answer in shown.answers if answer.verdict == "not this model's"]
    assert wrong.call.id == number
    assert "0.32 away from what its seed draws" in wrong.detail


def test_a_word_that_the_model_would_never_draw_is_not_its_own(tmp_path: Path) -> None:
    path = letters(tmp_path)
    edited(path, lambda reply: reply.update(text="DA"), 3)
    shown = audit(path, small(**OTHER_DIGITS), number=40)
    assert str(shown).startswith(
        "1 of 40 replies are not small's (of all 0 to 13 %, with 95 %): call 3;"
    )
    assert "none of its likely words" in str(shown.answers[2])
    rare = audit(path, small(A=0.01, B=0.98, C=0.01), number=40)
    assert str(rare).endswith("another model, other weights or another quantisation wrote them")


def test_of_a_repeatable_recording_a_likely_word_is_named_too_if_the_rest_is_equal(
    tmp_path: Path,
) -> None:
    path = letters(tmp_path, repeatable=True)
    with Tape(path, read_only=True) as tape:
        text = tape.call(7).attempt.reply.text
    other = {"A": "B", "B": "C", "C": "A"}[text[3]]
    edited(path, lambda reply: reply.update(text=text[:3] + other), 7)
    shown = audit(path, small(A=0.5, B=0.3, C=0.2), number=40)
    assert "1 of 40 replies are not small's" in str(shown)
    assert [answer.call.id for answer in shown.answers if answer.verdict != "equal"] == [7]
    # On a machine of another kind most differ, as for another model: the verdict says both.
    elsewhere = audit(path, small(**OTHER_DIGITS), number=40)
    assert not elsewhere.count("not this model's")
    assert "though the tape says that it was recorded with repeatable=True" in str(elsewhere)


def test_blanks_between_fields_are_not_an_embedded_models(path: Path) -> None:
    other = LLMClient(LLMConfig(model="scripted"), Small({"A": 1.0}))
    shown = audit(path, other, number=20)
    with_schema = [answer for answer in shown.answers if answer.call.attempt.request.schema]
    assert len(with_schema) == 12
    assert {answer.verdict for answer in with_schema} == {"not this model's"}
    assert all("no blank between fields" in answer.detail for answer in with_schema)


def test_other_weights_than_those_that_the_tape_names_are_named(tmp_path: Path) -> None:
    path = letters(tmp_path)
    changed_manifest(path, 1, model={"name": "small", "backend": "embedded", "digest": "e" * 64})
    shown = audit(path, small(A=0.5, B=0.3, C=0.2), number=2)
    assert shown.notes == [
        "the tape names the weights eeeeeeeeeeee; those of small here are dddddddddddd: other "
        "weights, or another quantisation"
    ]
    assert not shown.ok
