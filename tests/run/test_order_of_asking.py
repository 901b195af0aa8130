"""Requests that wait together go out in the order of their texts; nothing else depends on it."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle, groupby
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, policy, recorded, requests_of
from pydantic import Field

from llmsim_lab import Ask, Reply, Run, State, Tape, replay
from llmsim_lab.llm import LLMClient
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Question
from llmsim_lab.simulation import Simulation
from llmsim_lab.study import Study
from llmsim_lab.types import ChatReply, ChatRequest

NAMES = ["Zoe", "Ann", "Mia", "Bob", "Eve"]
RULES = "All give coins to a pot, which is doubled and shared."


class Gift(Reply):
    amount: int = Field(ge=0, le=3)


class Pot(State):
    gifts: dict[str, int] = dict.fromkeys([])


Asked = Awaitable[dict[str, Gift]]


class Game(Run[Pot]):
    """Each turn asks all players once, in one of many ways."""

    def asks(self, ask: Ask, names: Sequence[str]) -> Asked:
        return ask.each(names, Gift, f"{RULES} You are {{{{ name }}}}.")

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        gifts = await self.asks(ask, NAMES)
        return Pot(gifts={name: gift.amount for name, gift in gifts.items()})


def gives(request: ChatRequest) -> Any:
    """Answer by the player's name, and by chances where these are asked for."""
    [name] = re.findall(r"You are (\w+)", request.prompt)
    letters = re.findall(r"^([A-Z]): (\d)$", request.prompt, re.MULTILINE)
    if letters:
        chances = tuple((letter, math.log(0.1 + 0.1 * int(coins))) for letter, coins in letters)
        return ChatReply(text="A", top_logprobs=chances if request.top_logprobs else ())
    return {"amount": len(name + request.prompt) % 4, "reasoning": "So.", "confidence": 0.5}


async def gathered(ask: Ask, names: Sequence[str]) -> dict[str, Gift]:
    gifts = await asyncio.gather(*(ask(name, Gift, f"{RULES} You are {name}.") for name in names))
    return dict(zip(names, gifts, strict=True))


WAYS: dict[str, Callable[[Ask, Sequence[str]], Asked]] = {
    "a template": lambda ask, names: ask.each(names, Gift, f"{RULES} You are {{{{ name }}}}."),
    "a function": lambda ask, names: ask.each(names, Gift, lambda it: f"{RULES} You are {it}."),
    "a system part": lambda ask, names: ask.each(
        names, Gift, Prompt("## System\nYou are {{ name }}.\n## User\nGive.", name="gift")
    ),
    "single questions at once": gathered,
}


def played(asks: Callable[[Ask, Sequence[str]], Asked], **settings: Any) -> tuple[Any, LLMClient]:
    class Once(Game):
        def asks(self, ask: Ask, names: Sequence[str]) -> Asked:
            return asks(ask, names)

    players = settings.pop("players", {})
    client = make_client(gives, **settings)
    run = Once(llm_client=client, players=players)
    run.run(2)
    return run, client


def texts_of(client: LLMClient) -> list[str]:
    return [request.prompt for request in requests_of(client)]


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize("way", WAYS)
def test_players_who_are_asked_at_once_are_asked_in_the_order_of_their_texts(
    way: str, at_once: int
) -> None:
    run, client = played(WAYS[way], max_concurrency=at_once)
    texts = texts_of(client)
    assert texts == 2 * sorted(texts[: len(NAMES)])
    assert [*run.state.gifts] == NAMES
    other, _ = played(lambda ask, names: WAYS[way](ask, names[::-1]), max_concurrency=5 - at_once)
    assert other.state.gifts == run.state.gifts
    assert seeds_by_name(other) == seeds_by_name(run)


def seeds_by_name(run: Any) -> Any:
    requests = requests_of(run.llm_client)
    return sorted((it.site.turn, it.site.agent, it.options["seed"]) for it in requests)


def test_players_who_ask_a_model_themselves_are_asked_in_that_order_too() -> None:
    model = make_client(gives, max_concurrency=1)

    async def thinks(question: Question) -> Any:
        return await question.put_to(model, f"Think first. {question.prompt}")

    played(WAYS["a template"], players={"*": thinks})
    texts = texts_of(model)
    assert texts == 2 * sorted(texts[: len(NAMES)])


def test_a_tape_whose_calls_came_in_another_order_is_replayed(tmp_path: Path) -> None:
    async def last_first(request: ChatRequest) -> Any:
        [name] = re.findall(r"You are (\w+)", request.prompt)
        await asyncio.sleep((ord("Z") - ord(name[0])) / 1000)
        return gives(request)

    path = tmp_path / "game.tape"
    client = make_client(last_first, max_concurrency=len(NAMES))
    run = recorded(Game(llm_client=client, tape=path), 2)
    agents = [call.attempt.request.site.agent for call in Tape(path).calls(1)]  # type: ignore[union-attr]
    assert agents != [request.site.agent for request in requests_of(client)]  # type: ignore[union-attr]
    assert replay(path, 1).to_frame().equals(run.to_frame())


# --- several requests for one question ------------------------------------------------------------


def blocks(texts: Sequence[str]) -> int:
    """How often another text than the one before is asked."""
    return len([*groupby(texts)])


@pytest.mark.parametrize("by", ["probabilities", "draws"])
def test_orders_and_draws_of_a_players_choice_follow_each_other(by: str) -> None:
    def reply(request: ChatRequest) -> ChatReply:
        asked: ChatReply = gives(request)
        return asked if by == "probabilities" else ChatReply(text=asked.text)

    class Chances(Game):
        def asks(self, ask: Ask, names: Sequence[str]) -> Asked:
            return ask.each(names, Gift, f"{RULES} You are {{{{ name }}}}.", decide="sample")

    client = make_client(reply, max_concurrency=1)
    Chances(llm_client=client).run(1)
    players = [re.findall(r"You are (\w+)", text)[0] for text in texts_of(client)]
    assert len(players) == len(NAMES) * (4 if by == "probabilities" else 101)
    assert players == sorted(players)


@pytest.mark.parametrize(("parallel", "at_once"), [(None, 1), (3, 1), (1, 1), (None, 2)])
def test_samples_of_a_situation_follow_each_other(
    tmp_path: Path, parallel: int | None, at_once: int
) -> None:
    tape = tmp_path / "game.tape"
    recorded(Game(llm_client=make_client(gives), tape=tape), 3)
    client = make_client(gives, max_concurrency=at_once)
    vary = {"prompt": {"as it is": None, "short": {"gift": "Give. You are {{ name }}."}}}
    study = Study.again(tape, vary, samples=4, turns=[1], llm_client=client, outcome="amount")
    study.run(parallel=parallel, progress=False)
    assert study.counts == {"done": 2}
    assert study.results["replicate"].tolist() == [1, 2, 3, 4] * 2
    texts = texts_of(client)
    together = 2 * len(NAMES) if parallel is None else 2 * len(NAMES) * 4
    assert len(texts) == 2 * len(NAMES) * 4
    assert blocks(texts) <= together


def test_draws_of_a_question_of_the_gate_follow_each_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLMSIM_CARDS", str(tmp_path))
    moves = cycle([0, 25])
    client = make_client(lambda _: {"rate_change_bp": next(moves), **policy().model_dump()})
    run = Simulation(llm_client=client, decide=None, moves_bp=(-25, 0, 25))
    run.responds(seed=1)
    texts = texts_of(client)
    assert len(texts) == 10 * len(set(texts))
    assert blocks(texts) == len(set(texts))
