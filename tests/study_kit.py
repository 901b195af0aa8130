"""A small world for tests of studies, and models that answer from what they are asked alone."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from llmsim_lab import Ask, LLMClient, LLMConfig, Question, Reply, Run, State, Tape
from llmsim_lab.study import Study
from llmsim_lab.tape import verify
from llmsim_lab.types import ChatReply, ChatRequest

KILL = "STUDY_KIT_KILL"
"""An environment variable: a file that says that no process was killed yet."""


class Basin(State):
    level: float = 10.0
    shares: dict[str, float] = dict.fromkeys(["Ann", "Bob"], 5.0)


class Wish(Reply):
    amount: int


class Water(Run[Basin]):
    """Two neighbours draw from a basin that fills with a factor and with luck."""

    factor: float = 1.5
    taste: str = "plain"

    async def turn(self, state: Basin, ask: Ask) -> Basin:
        wishes = await ask.each(
            state.shares,
            Wish,
            "You are {{ name }}, {{ run.taste }}. The basin holds {{ state.level }}. How much?",
        )
        luck = ask.rng_for("rain").random()
        shares = {name: float(wish.amount) for name, wish in wishes.items()}
        level = 5 + self.factor * luck + 0.1 * sum(shares.values())
        return state.replace(level=level, shares=shares)

    def rule(self, question: Question) -> Wish:
        return Wish(amount=3 if question.player == "Ann" else 4)


class Weather:
    dry = True


class Drought(Water):
    """Has no third turn with a large factor, while the weather is dry."""

    async def turn(self, state: Basin, ask: Ask) -> Basin:
        if Weather.dry and self.factor > 1 and ask.turn == 3:
            raise RuntimeError("the basin is dry")
        return await super().turn(state, ask)


def kind(text: str) -> str:
    """Edit a prompt."""
    return f"{text} Be kind."


def greedy(question: Question) -> Wish:
    """Decide as a player."""
    return Wish(amount=9)


class Instant:
    """Answers with the sampling seed's remainder, so that answers follow from seed and place."""

    def __init__(self, *, pause_s: float = 0.0) -> None:
        self.requests: list[ChatRequest] = []
        self.at_once = self.most_at_once = 0
        self.pause_s = pause_s

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.pause_s)
        self.at_once -= 1
        amount = (request.options.get("seed") or 0) % 11
        return ChatReply(text=f'{{"reasoning": "so", "amount": {amount}, "confidence": 0.5}}')


def instant_client(*, pause_s: float = 0.0, **settings: object) -> LLMClient:
    config = LLMConfig(model="instant", retry_wait_s=0, max_concurrency=64, **settings)
    return LLMClient(config, Instant(pause_s=pause_s))


def study_of(world: Any = Water, vary: Any = None, **more: Any) -> Study:
    settings = {"seeds": 3, "turns": 4, "outcome": "level", "llm_client": instant_client(), **more}
    return Study(world, {"factor": [1.0, 2.0]} if vary is None else vary, **settings)


def played(study: Study, **more: Any) -> Study:
    return study.run(progress=False, **more)


def asked(study: Study) -> list[ChatRequest]:
    """What the client of a study was asked."""
    return study._setup.files.player.models.given.backend.requests  # type: ignore[no-any-return]


def timeless(it: Study | Run[Any]) -> Any:
    """The frame of a study or a run, without how long its calls took."""
    return it.to_frame().drop(columns="seconds")


def die_once() -> None:
    """Kill this process if none was killed yet: there is a file until then."""
    with suppress(FileNotFoundError, KeyError):
        Path(os.environ[KILL]).unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class Deadly(Instant):
    """Kills the process that asks it, once, at its seventh question."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        if len(self.requests) == 6:
            die_once()
        return await super().chat(request)


def deadly_client() -> LLMClient:
    return LLMClient(LLMConfig(model="instant", retry_wait_s=0, max_concurrency=64), Deadly())


def check_folder(path: Path, tapes: int) -> None:
    """Check that a folder has so many whole tapes of one run each, and nothing else."""
    files = list(path.glob("[!.]*"))
    assert len(files) == tapes
    for file in files:
        with Tape(file, read_only=True) as tape:
            assert verify(tape) == []
            assert [info.outcome for info in tape.runs()] == ["done"]
