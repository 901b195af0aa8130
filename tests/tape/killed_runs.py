"""Runs that are killed again and again, for ``test_tape_crashes``; a process of its own.

``kill_all(FOLDER)`` forks for each world a child that begins or resumes the run and kills it after
a random time, so many times over, then lets one child finish. The model writes a line to
``paid.log``, down to the disk, for each answer, before it gives it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import crisis_kit
import social_kit
from tape_kit import HashBackend, hash_client, identity, steady_config
from worlds import PublicGoods

from llmsim_lab.assistant import Chat, FunctionTools
from llmsim_lab.context import CrisisSimulation
from llmsim_lab.llm import Tape
from llmsim_lab.simulation import Simulation
from llmsim_lab.statechart import SocialSimulation
from llmsim_lab.tape.recorder import Entry, LiveRecorder
from llmsim_lab.types import Attempt, ChatReply, ChatRequest, ToolCall

LONGEST_LIFE_S = 0.25
NATIONS = ["Aland", "Borduria", "Cimmeria", "Syldavia"]


def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} means {len(word)}"


def chat_answer(request: ChatRequest, _: int) -> ChatReply:
    """Look something up, and say so: by what was said, not by the turn, which only a tape knows."""
    number = crc32("".join(message.content for message in request.messages).encode())
    if request.messages[-1].role == "tool":
        return ChatReply(text=f"It is {number % 1000}.")
    wanted = ToolCall(name="look_up", arguments={"word": f"w{number % 1000}"})
    return ChatReply(text="", tool_calls=(wanted,))


@dataclass(frozen=True, kw_only=True)
class World:
    """A run to kill.

    Attributes:
        cls: its class.
        turns: how many it plays.
        parts: what it is made of, but for its model and its tape.
        answer: the model's; the economy's if not given.
        faulty: whether some first answers fail.
        delay_s: the longest delay of an answer.
        again: the parts that a resumed run needs again.
        kills: how many times it is killed.
    """

    cls: Any
    turns: int
    parts: Callable[[], dict[str, Any]]
    answer: Callable[[ChatRequest, int], Any] | None = None
    faulty: bool = True
    delay_s: float = 0.05
    again: Callable[[], dict[str, Any]] = dict
    kills: int = 4

    def backend(self, **options: Any) -> HashBackend:
        return HashBackend(answer=self.answer, faulty=self.faulty, **options)

    def uninterrupted(self) -> Any:
        """The same run, on the same model, without a tape and without trouble."""
        run = self.cls(**self.parts(), llm_client=hash_client(self.backend()))
        run.run(self.turns)
        return run


WORLDS = {
    "economy": World(
        cls=Simulation,
        turns=12,
        parts=lambda: {"config": steady_config(nations=NATIONS, turns=12)},
        delay_s=0.006,
        kills=8,
    ),
    "crisis": World(
        cls=CrisisSimulation,
        turns=10,
        parts=lambda: {"scenario": crisis_kit.make_scenario()},
        answer=lambda request, _: crisis_kit.answer(request),
    ),
    "social": World(
        cls=SocialSimulation,
        turns=12,
        parts=lambda: social_kit.social_values(4, turns=12, players={}),
        answer=lambda request, _: social_kit.any_option(request),
    ),
    "own": World(
        cls=PublicGoods,
        turns=10,
        parts=dict,
        answer=lambda _, number: {"reasoning": "r", "amount": number % 4, "confidence": 1},
    ),
    "chat": World(
        cls=Chat,
        turns=12,
        parts=lambda: {
            "user_id": "ann",
            "constitution": "Help.",
            "interventions": [{"turn": n, "set": {"inbox": f"Word {n}?"}} for n in range(12)],
            "tools": FunctionTools(look_up),
        },
        answer=chat_answer,
        faulty=False,  # what a failed request leaves of a conversation is another matter
        again=lambda: {"tools": FunctionTools(look_up)},
    ),
}


def play(folder: Path, world: World, life: int) -> None:
    """Begin the run, or continue it, and play it to its end."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    log, safe = (os.open(folder / name, flags) for name in ("paid.log", "handed_on.log"))

    def pay(request: ChatRequest) -> None:
        os.write(log, f"{life} {identity(request)}\n".encode())
        os.fsync(log)

    keep = LiveRecorder.keep

    def keep_and_say(recorder: LiveRecorder, entry: Entry, attempt: Attempt) -> None:
        keep(recorder, entry, attempt)
        if attempt.request.model == "hash":  # not what a tool returned
            os.write(safe, f"{life} {identity(attempt.request)}\n".encode())
            os.fsync(safe)

    LiveRecorder.keep = keep_and_say  # type: ignore[method-assign]
    backend = world.backend(delay_s=world.delay_s, before_answer=pay)
    client = hash_client(backend, max_concurrency=2)
    tape = Tape(folder / "killed.tape")
    run = (
        world.cls.resume(tape, llm_client=client, **world.again())
        if len(tape)
        else world.cls(**world.parts(), llm_client=client, tape=tape)
    )
    run.run(world.turns - run.turn_number)
    run.close()


def _wait_for_answers(log: Path, child: int, count: int) -> None:
    """Wait until a log has grown by so many lines, or the child has ended."""
    log.touch()
    wanted = log.read_bytes().count(b"\n") + count
    while log.read_bytes().count(b"\n") < wanted:
        # WNOWAIT leaves the child to be waited for.
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.001)


def kill_all(folder: Path) -> None:
    """Kill each world's run so many times, then let it finish."""
    for name, world in WORLDS.items():
        (folder / name).mkdir()
        # What is imported and compiled here, the children need not.
        world.cls(**world.parts(), llm_client=hash_client(world.backend())).run(1)
        (folder / name / "killed").write_text(str(_kill(folder / name, world)))


def _kill(folder: Path, world: World) -> int:
    """Kill a run, and let it finish; returns how often it was killed."""
    delays, killed = random.Random(1), 0
    for life in range(10_000):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                play(folder, world, life)
                status = 0
            finally:
                if status:
                    traceback.print_exc()
                sys.stderr.flush()
                os._exit(status)
        if killed < world.kills:
            # Every other life is long enough to be answered, however slow the machine.
            if life % 2:
                _wait_for_answers(folder / "paid.log", child, delays.randint(1, 3))
                time.sleep(delays.uniform(0.0, 0.02))
            else:
                time.sleep(delays.uniform(0.0, LONGEST_LIFE_S))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            break
        killed += 1
    if status:
        sys.exit(f"life {life} ended with status {status}")
    return killed
