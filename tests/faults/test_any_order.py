"""Steps, forks, interventions, kills, cancels, resumes and prunes in any order change no run."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faults_kit import Attack, Case, Plan
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tape_kit import HashBackend, hash_client
from worlds import Pot

from llmsim_lab import Ask, Prompt, Reply, Run
from llmsim_lab.llm import LLMClient, Person
from llmsim_lab.tape import Tape, verify
from llmsim_lab.types import ChatRequest

pytestmark = pytest.mark.process

PROMPT = Prompt("You, {{ name }}, have {{ coins }} coins. Give?", name="gift")


class Gift(Reply):
    amount: int


class Game(Run[Pot]):
    """Two give, chance adds, and some of it is noted."""

    factor: float = 1.5

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        gifts = await ask.each(
            ("Ann", "Bob"),
            Gift,
            PROMPT,
            coins=lambda name: round(state.coins[name], 2),
            limits=lambda name: {"amount": (0, max(1, int(state.coins[name])))},
            fallback={"amount": 0},
        )
        luck = ask.rng.random()
        ask.note("Ann", got=gifts["Ann"].amount)
        ask.note(luck=luck, text="so it was")
        given = {name: gift.amount for name, gift in gifts.items()}
        left = {name: state.coins[name] - amount + luck for name, amount in given.items()}
        return state.replace(coins={**state.coins, **left}, given=given)

    def rule(self, question: Any) -> Gift:
        return Gift(amount=question.rng.randint(0, 1))


class Hook:
    """Does something before one of the next answers, once.

    Attributes:
        left: how many answers are left until then; None for never.
        strike: what is done.
    """

    def __init__(self) -> None:
        self.left: int | None = None
        self.strike: Callable[[], object] = kill_this_process

    def __call__(self, _: ChatRequest) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left == 0:
            self.strike()


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def client(hook: Hook | None = None) -> LLMClient:
    return hash_client(HashBackend(faulty=True, before_answer=hook, answer=answer))


def answer(_: ChatRequest, number: int) -> dict[str, Any]:
    return {"reasoning": f"Because of {number % 1000}.", "amount": number % 2, "confidence": 0.5}


def person() -> Person:
    return Person(ask=lambda _: {"amount": 1})


PLAYERS: dict[str, Any] = {"model": None, "rule": "rule", "random": "random", "person": person}


@dataclass
class Pair:
    """A run on the tape, and the same one in memory, to which nothing ever happens."""

    real: Game
    twin: Game

    @property
    def number(self) -> int:
        assert self.real.run_id is not None
        return self.real.run_id


class AnyOrder(RuleBasedStateMachine):
    """Does the same to both runs of each pair, and to the one on the tape what must not matter."""

    @initialize(number=st.integers(0, 99), bob=st.sampled_from(sorted(PLAYERS)))
    def begin(self, number: int, bob: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "x.tape"
        self.bob = PLAYERS[bob]
        self.hook = Hook()
        parts: Any = {"seed": number, "turns": 3}
        real = Game(llm_client=client(self.hook), tape=self.path, **self.people(), **parts)
        self.pairs = [Pair(real, Game(llm_client=client(), **self.people(), **parts))]
        self.step(0, 1)

    def people(self) -> dict[str, Any]:
        bob = self.bob() if callable(self.bob) else self.bob
        return {} if bob is None else {"players": {"Bob": bob}}

    def pair(self, place: int) -> Pair:
        return self.pairs[place % len(self.pairs)]

    def close_all(self) -> None:
        for pair in self.pairs:
            pair.real.close()

    def open_all(self) -> None:
        for pair in self.pairs:
            number, hook = pair.number, self.hook
            # A resumed run has the other players from its tape.
            people = self.people() if callable(self.bob) else {}
            pair.real = Game.resume(self.path, number, llm_client=client(hook), **people)

    def catch_up(self, pair: Pair) -> None:
        missing = pair.twin.turn_number - pair.real.turn_number
        pair.real.run(missing, progress=False)

    places = st.integers(0, 9)

    @rule(place=places, turns=st.integers(1, 2))
    def step(self, place: int, turns: int) -> None:
        pair = self.pair(place)
        for run in (pair.real, pair.twin):
            run.run(turns, progress=False)

    @rule(place=places, later=st.integers(0, 2), coins=st.integers(1, 9))
    def intervene(self, place: int, later: int, coins: int) -> None:
        pair = self.pair(place)
        for run in (pair.real, pair.twin):
            run.intervene(run.turn_number + later, {"coins.Ann": coins}, note="so be it")

    @rule(
        place=places,
        back=st.integers(0, 3),
        coins=st.none() | st.integers(1, 9),
        edit=st.booleans(),
        loaded=st.booleans(),
    )
    def fork(self, place: int, back: int, coins: int | None, edit: bool, loaded: bool) -> None:
        pair = self.pair(place)
        real = pair.real
        if loaded:
            people = self.people() if callable(self.bob) else {}
            real = Game.load(Tape(self.path), pair.number, **people)
        turn = max(0, pair.twin.turn_number - back)
        changes: Any = {} if coins is None else {"intervene": {"coins.Ann": coins}}
        if edit and pair.twin.prompts:
            [prompt] = pair.twin.prompts.values()
            changes["prompt"] = [prompt.edit(f"{prompt.user} Now.")]
        if len(self.pairs) < 5:
            real = real.fork(turn, llm_client=client(self.hook), **changes)
            self.pairs.append(Pair(real, pair.twin.fork(turn, **changes)))

    @rule(place=places)
    def resume(self, place: int) -> None:
        self.close_all()
        self.open_all()

    @rule(place=places, turns=st.integers(1, 2), answers=st.integers(1, 6))
    def kill(self, place: int, turns: int, answers: int) -> None:
        """Kill the process that plays a run, at one of its answers."""
        pair = self.pair(place)
        self.close_all()
        child = os.fork()
        if child == 0:
            try:
                self.open_all()
                self.hook.left = answers
                pair.real.run(turns, progress=False)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        self.open_all()
        pair.twin.run(turns, progress=False)
        self.catch_up(pair)

    @rule(place=places, turns=st.integers(1, 2), answers=st.integers(1, 6))
    def cancel(self, place: int, turns: int, answers: int) -> None:
        pair = self.pair(place)

        async def cancelled() -> None:
            task = asyncio.ensure_future(pair.real.arun(turns, progress=False))
            self.hook.strike = task.cancel
            self.hook.left = answers
            with suppress(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        self.hook.left = None
        self.hook.strike = kill_this_process
        pair.twin.run(turns, progress=False)
        self.catch_up(pair)

    @rule(place=places)
    def prune(self, place: int) -> None:
        """Remove a run, with all that came from it."""
        if len(self.pairs) < 2:
            return
        pair = self.pairs[1 + place % (len(self.pairs) - 1)]
        self.close_all()
        with Tape(self.path) as tape:
            numbers = {pair.number}
            for info in tape.runs():
                if info.parent in numbers:
                    numbers.add(info.id)
            tape.prune(sorted(numbers))
            left = {info.id for info in tape.runs()}
        self.pairs = [pair for pair in self.pairs if pair.number in left]
        self.open_all()

    def teardown(self) -> None:
        if not hasattr(self, "pairs"):
            return
        self.close_all()
        assert [str(finding) for finding in verify(self.path)] == []
        for pair in self.pairs:
            loaded = Game.load(self.path, pair.number)
            replayed = Game.replay(self.path, pair.number)
            expected = [content(turn) for turn in pair.twin.turns]
            assert [content(turn) for turn in loaded.turns] == expected
            assert [content(turn) for turn in replayed.turns] == expected
        self.folder.cleanup()


def content(turn: Any) -> tuple[Any, ...]:
    """Return what a turn led to, without the seconds it took."""
    answers = sorted(
        (one.player, str(one.status), one.fields, [call.history[-1].reply for call in one.calls])
        for one in turn.answers
    )
    return turn.number, turn.state, turn.noted, turn.story, turn.interventions, answers


def play(number: int, examples: int, _: Path) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=12,
        deadline=None,
        database=None,
        # A failing order is told as it was drawn: to shorten it takes minutes.
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(AnyOrder), settings=chosen)


def orders(plan: Plan) -> Iterator[Case]:
    """Yield sequences, ten at a time."""
    for number in range(plan.times(1)):
        begun = plan.seed * 1000 + number
        yield Case(
            f"from {begun}",
            {"play": partial(play, begun, 10)},
            cpu_s=120,
            may_raise=False,
            wall_s=600,
        )


def test_whatever_happens_to_a_run_it_is_the_one_that_nothing_happened_to(attack: Attack) -> None:
    attack("any order", orders)
