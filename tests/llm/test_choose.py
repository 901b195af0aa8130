"""Choices: what a request for probabilities is, and what a model's choice is measured as."""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, played, requests_of
from fake_ollama import FakeOllama
from fake_ollama._fake_ollama import TokenReply

from llmsim_lab import Ask, Run, State
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import ChatReply, ChatRequest, LLMClient, LLMConfig, ScriptedBackend, connect
from llmsim_lab.llm.choice import Choice, label_of

WANTS = {"raise": 0.5, "hold": 0.3, "lower": 0.2}


def test_a_choice_of_an_ollama_model_is_measured() -> None:
    def answer(body: dict[str, Any]) -> TokenReply:
        labels = re.findall(r"^([A-Z]): (.+)$", body["messages"][-1]["content"], re.MULTILINE)
        chances = {letter: 0.7 * WANTS[text] for letter, text in labels}
        return FakeOllama.tokens([{t: math.log(p) for t, p in {**chances, "The": 0.3}.items()}])

    with FakeOllama(["tiny"], reply=answer) as fake:
        choice = choose(connect("ollama:tiny", host=fake.host))
    assert choice.probabilities == pytest.approx(WANTS)
    assert choice.mass == pytest.approx(0.7)
    assert [request.body["top_logprobs"] for request in fake.requests] == [20] * 3


# --- letters: a model whose answers are known --------------------------------------------------

PULL = {"A": 3.0, "B": 1.0, "C": 0.5}


def shown(request: ChatRequest) -> dict[str, str]:
    """Return what stands at each letter in a question."""
    return dict(re.findall(r"^([A-Z]): (.+)$", request.messages[-1].content, re.MULTILINE))


def known(
    wants: Mapping[str, float] = WANTS, *, pull: Mapping[str, float] | None = None, off: float = 0.3
) -> Callable[[ChatRequest], ChatReply]:
    """Return a model with these preferences, pull of letters and share of other answers."""

    def answer(request: ChatRequest) -> ChatReply:
        labels = shown(request)
        weights = {it: wants[text] * (pull or {}).get(it, 1.0) for it, text in labels.items()}
        whole = sum(weights.values())
        chances = {it: (1 - off) * weight / whole for it, weight in weights.items()}
        listed = [*chances.items(), ("The", off * 0.6), ("I", off * 0.4)]
        top = tuple((token, math.log(p)) for token, p in listed if p)
        rng = random.Random(f"{request.options.get('seed')}/{request.prompt}")
        drawn = rng.choices([token for token, _ in listed], [p for _, p in listed])[0]
        return ChatReply(text=drawn, top_logprobs=top if request.top_logprobs else ())

    return answer


def choose(client: LLMClient, options: Any = tuple(WANTS), **more: Any) -> Choice[Any]:
    return asyncio.run(client.choose("Inflation is 6 percent. What now?", options, **more))


def test_probabilities_are_those_of_the_options_and_the_mass_says_how_much_falls_on_them() -> None:
    choice = choose(make_client(known()))
    assert choice.method == "logprobs"
    assert choice.probabilities == pytest.approx(WANTS, abs=1e-12)
    assert choice.mass == pytest.approx(0.7, abs=1e-12)
    assert choice.position_bias == pytest.approx(0.0, abs=1e-12)
    assert (choice.mode, choice.interval, choice.samples) == ("raise", {}, 0)


def test_a_letters_own_pull_cancels_exactly_and_is_reported() -> None:
    choice = choose(make_client(known(pull=PULL)))
    assert choice.probabilities == pytest.approx(WANTS, abs=1e-12)
    assert choice.label_pull == pytest.approx({"A": 3 / 4.5, "B": 1 / 4.5, "C": 0.5 / 4.5})
    assert choice.position_bias == pytest.approx(3 / 4.5 - 1 / 3)
    assert choice.misfit == pytest.approx(0, abs=1e-12)
    shares = "{'raise': 0.500, 'hold': 0.300, 'lower': 0.200}"
    assert repr(choice) == f"<Choice {shares}, mass 0.700, by logprobs>"


def test_a_pull_that_depends_on_what_stands_there_is_reported_as_a_misfit() -> None:
    def answer(request: ChatRequest) -> ChatReply:
        # The letter A pulls for one option alone: 4/6 in that order, 1/3 each in the others.
        labels = shown(request)
        weights = {it: 4 if (it, text) == ("A", "hold") else 1 for it, text in labels.items()}
        top = tuple((it, math.log(one / sum(weights.values()))) for it, one in weights.items())
        return ChatReply(text="A", top_logprobs=top)

    choice = choose(make_client(answer))
    # The fit in logs: 4 ** (5/9) for A with hold, 4 ** (2/9) for A or hold alone, 4 ** (-1/9) else.
    both, one, none = (4 ** (it / 9) for it in (5, 2, -1))
    alone = abs(4 / 6 - both / (both + 2 * none))
    apart = abs(1 / 3 - none / (2 * one + none))
    assert choice.misfit == pytest.approx((alone + 2 * apart) / 3)


def test_each_option_stands_once_at_each_letter_and_one_unconstrained_token_is_asked_for() -> None:
    client = make_client(known())
    choice = choose(client)
    requests = requests_of(client)
    assert [list(shown(one).values()) for one in requests] == [
        ["raise", "hold", "lower"],
        ["hold", "lower", "raise"],
        ["lower", "raise", "hold"],
    ]
    assert {(one.schema, one.options["num_predict"]) for one in requests} == {(None, 1)}
    assert [call.attempts for call in choice.calls] == [1, 1, 1]


@pytest.mark.parametrize(
    ("token", "label"),
    [
        *((it, "B") for it in ("B", " B", "b", "B.", "(B", "**B", " b)", "B: hold", "B) hold")),
        *((it, None) for it in ("a", "But", "", "D", "B hold", "hold", "BA")),
        ("A", "A"),
    ],
)
def test_only_what_clearly_means_a_letter_counts(token: str, label: str | None) -> None:
    assert label_of(token, dict.fromkeys("ABC")) == label


@pytest.mark.parametrize(
    "options",
    [
        *(["raise"], ["raise", "raise "], ["raise", ""], "raise", [1.0, math.nan], [1, 1.0]),
        *({"raise", "hold"}, None, [["raise"], ["hold"]], {"raise": 1, "hold": 2}),
    ],
)
def test_options_that_cannot_be_told_apart_are_shown_with_the_right_form(options: Any) -> None:
    with pytest.raises(ConfigError, match=r"must be a list of two .* such as \['raise', 'hold'\]"):
        choose(make_client(known()), options)


def test_what_cannot_be_asked_costs_no_call() -> None:
    client = make_client(known())
    with pytest.raises(ConfigError, match="21 options"):
        choose(client, [f"option {n}" for n in range(21)])
    with pytest.raises(ConfigError, match="samples=0 must be a whole number from 1 on"):
        choose(client, samples=0)
    assert requests_of(client) == []


@pytest.mark.parametrize(
    "listed",
    [
        *((("A", odds), ("B", -1.0)) for odds in (math.nan, math.inf, 5000.0)),
        *([(None, -1.0), ("B", -1.0)], [("A", -0.1), ("A", -0.1)]),
    ],
)
def test_a_backends_impossible_probabilities_are_a_failure_of_the_backend(listed: Any) -> None:
    client = make_client(ChatReply(text="A", top_logprobs=listed))
    with pytest.raises(LLMFailureException, match="ScriptedBackend sent") as caught:
        choose(client)
    assert caught.value.reason == "server_error"


def test_no_option_among_the_answers_is_a_failure() -> None:
    other = ChatReply(text="The", top_logprobs=(("The", -0.1), ("I", -2.4)))
    with pytest.raises(LLMFailureException, match="no letter of an option") as caught:
        choose(make_client(other))
    assert caught.value.reason == "invalid_response"


# --- samples -----------------------------------------------------------------------------------


class Mute(ScriptedBackend):
    """A backend without probabilities."""

    max_top_logprobs = 0


def test_without_probabilities_answers_are_drawn_in_each_order() -> None:
    client = LLMClient(LLMConfig(model="scripted", seed=3), backend=Mute(known()))
    choice = choose(client, samples=900)
    assert (choice.method, choice.samples) == ("samples", 900)
    assert choice.mass == pytest.approx(0.7, abs=0.05)
    assert all(low < WANTS[option] < high for option, (low, high) in choice.interval.items())
    assert choice.position_bias == pytest.approx(0.0, abs=0.08)
    assert choice.misfit is None
    first, *drawn = requests_of(client)[:901]
    assert first.top_logprobs is None
    assert len({one.options["seed"] for one in drawn}) == 900
    assert {one.options["temperature"] for one in drawn} == {1.0}


def test_intervals_of_samples_are_wilsons() -> None:
    choice = choose(make_client("B"), ["x", "y"], samples=10)
    assert choice.probabilities == {"x": 0.5, "y": 0.5}
    assert choice.interval["x"] == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert choice.label_pull == {"A": 0.0, "B": 1.0}


# --- on a tape ---------------------------------------------------------------------------------


class Mood(State):
    said: str = ""
    mass: float = 0.0


class Board(Run[Mood]):
    """Asks once a turn what is to be done."""

    async def turn(self, state: Mood, ask: Ask) -> Mood:
        assert self.llm_client is not None
        choice = await self.llm_client.choose(f"Turn {ask.turn}.", list(WANTS), samples=6)
        return Mood(said=repr(choice), mass=choice.mass)


@pytest.mark.parametrize(
    ("backend", "method"), [(ScriptedBackend, "logprobs"), (Mute, "samples, 6 samples")]
)
def test_a_choice_is_replayed_from_its_tape(
    path: Path, backend: type[ScriptedBackend], method: str
) -> None:
    client = LLMClient(LLMConfig(model="scripted", seed=1), backend=backend(known(pull=PULL)))
    live = played(Board(llm_client=client, tape=path), 2)
    assert live.state.said.endswith(f"by {method}>")
    again = Board.replay(path)
    assert again.state == live.state
    kept = [call.request for turn in again.turns for call in turn.calls]
    assert kept[0].top_logprobs == 100
