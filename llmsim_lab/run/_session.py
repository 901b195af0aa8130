"""A run's session with a tape: one that records the run, or one that replays it.

Also here: loading turns from a tape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from typing import Any

from llmsim_lab._util.jsontext import dumps
from llmsim_lab.errors import TapeError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm._scope import Recorder
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._records import (
    Planned,
    changed_values,
    decode_turn,
    entries_of,
    interventions_of,
    model_differs,
    record_of,
    tape_turn,
)
from llmsim_lab.run._registry import RunClass
from llmsim_lab.run._turn import Turn, turn_row
from llmsim_lab.tape._recorder import LiveRecorder, ReplayRecorder
from llmsim_lab.types import Attempt


class Session:
    """What a run tells its tape, and asks it; a replay, where nothing is written, keeps most of it.

    Args:
        cls: the run's class.
        tape: the tape.
        run: the run's number on it.
        recorder: what answers and keeps the run's calls.

    Attributes:
        is_replay: whether all calls are answered from the tape.
    """

    is_replay = False

    def __init__(self, cls: RunClass, tape: Tape, run: int, recorder: Recorder) -> None:
        self.tape = tape
        self.run = run
        self.recorder = recorder
        self._cls = cls

    def playing(self) -> AbstractContextManager[None]:
        """Return what holds the tape while the run plays."""
        return nullcontext()

    async def before_turn(self, client: LLMClient | None, players: Mapping[str, LLMClient]) -> None:
        """Prepare for a turn in which these models answer."""

    def planned(self, turn: int, planned: Sequence[Any]) -> Sequence[Any]:
        """Return what is to be done from outside at a turn, given what the run has planned."""
        del turn
        return planned

    def done(self, turn: Turn, planned: Planned) -> Any:
        """Record or compare a whole turn; returns it as it stands on the tape."""
        raise NotImplementedError

    def uses(self, prompts: Mapping[str, Prompt]) -> None:
        """Record the prompts that the run was found to use."""

    def changed(self, turn: Turn, planned: Planned) -> None:
        """Record that the latest turn, or what is planned, was changed from outside."""
        raise NotImplementedError

    def failed(self, error: BaseException) -> None:
        """Record that the turn failed, and why."""

    def ended(self, outcome: str) -> None:
        """Record how the run ended, for now."""

    def close(self) -> None:
        """Let others write to the run."""


class Recording(Session):
    """Writes a run's calls and turns as they come.

    Args:
        cls: the run's class.
        tape: the tape.
        run: the run, already on it with the turn it starts from.
    """

    recorder: LiveRecorder

    def __init__(self, cls: RunClass, tape: Tape, run: int) -> None:
        super().__init__(cls, tape, run, LiveRecorder(tape, run))
        self._begun = False
        self._ended = True
        self._wrong_model = False

    def playing(self) -> AbstractContextManager[None]:
        """Return what keeps other processes from writing to the tape."""
        return self.recorder.writing()

    async def before_turn(self, client: LLMClient | None, players: Mapping[str, LLMClient]) -> None:
        """Write down, once, which models answer; a resumed run must have the same.

        Raises:
            TapeError: another model answers than the one recorded.
        """
        if not self._begun:
            await self._check_models(client, players)
            self._begun = True
        # The run is under way again; if this process is killed its tape has to show that.
        if self._ended:
            with self.recorder.writing():
                self.tape.end_run(self.run, None)
            self._ended = False

    async def _check_models(
        self, client: LLMClient | None, players: Mapping[str, LLMClient]
    ) -> None:
        for name, model in [(None, client), *players.items()]:
            if model is None:
                continue
            info = await model.model_info()
            # Read after the wait: another task may have changed the manifest meanwhile.
            manifest = self.tape.run(self.run).manifest
            others = manifest.get("players", {})
            recorded = manifest["model"] if name is None else others.get(name)
            if difference := model_differs(recorded, info):
                self._wrong_model = True
                whose, wanted = "", "Connect to that one"
                if name is not None:
                    whose, wanted = f" for {name}", f"Give it that one, players={{{name!r}: ...}},"
                raise TapeError(
                    f"run {self.run} was begun with another model{whose}: {difference}. {wanted} "
                    "to continue, or fork the run to continue with this one"
                )
            if recorded is None:
                mine = asdict(info)
                added = {"model": mine} if name is None else {"players": {**others, name: mine}}
                with self.recorder.writing():
                    self.tape.update_manifest(self.run, {**manifest, **added})

    def planned(self, turn: int, planned: Sequence[Any]) -> Sequence[Any]:
        """Begin the turn on the tape; returns what the run has planned.

        Raises:
            TapeError: the run was closed, or the tape has the turn already.
        """
        self.recorder.begin_turn(turn)
        return planned

    def done(self, turn: Turn, planned: Planned) -> Any:
        """Write the turn, whole or not at all."""
        # Written first: some of the turn's calls may be nowhere but in memory until then.
        self.recorder.commit_turn(*tape_turn(self._cls, turn, planned))
        return turn

    def uses(self, prompts: Mapping[str, Prompt]) -> None:
        """Write the prompts into the run's manifest, where they are not there yet."""
        manifest = self.tape.run(self.run).manifest
        if prompts.keys() - manifest["prompts"].keys():
            with self.recorder.writing():
                self.tape.update_manifest(self.run, {**manifest, "prompts": entries_of(prompts)})

    def changed(self, turn: Turn, planned: Planned) -> None:
        """Write the latest turn again."""
        self.recorder.replace_turn(*tape_turn(self._cls, turn, planned))

    def failed(self, error: BaseException) -> None:
        """Keep what was answered for the next try."""
        self.recorder.restart_turn(error)

    def ended(self, outcome: str) -> None:
        """Write the outcome."""
        self._ended = True
        # With the wrong model nothing was played, so what is recorded of the outcome stays true.
        if not self._wrong_model:
            with self.recorder.writing():
                self.tape.end_run(self.run, outcome)

    def close(self) -> None:
        """Let others write to the run."""
        self.recorder.close()


class Replaying(Session):
    """Answers from the tape and compares every turn with the recorded one.

    Args:
        cls: the run's class.
        tape: the tape.
        run: the run.
        lines: those of its turns that are to be played again, by number.
    """

    recorder: ReplayRecorder
    is_replay = True

    def __init__(
        self, cls: RunClass, tape: Tape, run: int, lines: Mapping[int, Mapping[str, Any]]
    ) -> None:
        super().__init__(cls, tape, run, ReplayRecorder(tape, run))
        self._lines = dict(lines)

    def planned(self, turn: int, planned: Sequence[Any]) -> Sequence[Any]:
        """Return what was done from outside at the recorded turn."""
        if turn not in self._lines:
            raise TapeError(
                f"run {self.run} ends at turn {self.tape.last_turn(self.run)}; turn {turn} was not "
                "recorded. Resume or fork the run to continue: resume(tape, run, "
                "llm_client=connect('auto')) or run.fork(llm_client=connect('auto'))"
            )
        del planned
        self.recorder.begin_turn(turn)
        return interventions_of(self._lines[turn]["record"], "interventions")

    def done(self, turn: Turn, planned: Planned) -> Any:
        """Return the turn as recorded, with the time it took then.

        Raises:
            TapeError: the turn came out differently, which only other code can cause.
        """
        del planned
        line = self._lines[turn.number]
        recorded, there = decode_turn(self._cls, line["record"], self.recorder.attempt), line["row"]
        now = replace(turn, seconds=recorded.seconds)
        # Through JSON, as the recorded row went: tuples become lists, and keys texts.
        row = json.loads(dumps(turn_row(now)))
        if recorded != now or row != there:
            where = changed_values(record_of(self._cls, recorded), record_of(self._cls, now))
            if recorded == now:
                where = f"in its row of the frame, {changed_values(there, row)}"
            where = where or "in something that its record does not show"
            raise TapeError(
                f"turn {turn.number} of run {self.run} came out differently from its recording: "
                f"{where}. The same calls were answered alike, so something else decided: other "
                "code than it was recorded with (by llmsim-lab "
                f"{self.tape.run(self.run).manifest['package']}), or chance or a clock, which a "
                "turn may only draw on through the run's seed, as with ask.rng"
            )
        # The turn itself has all of it now: a long replay would hold everything twice.
        del self._lines[turn.number]
        return recorded

    def changed(self, turn: Turn, planned: Planned) -> None:
        """Raise TapeError: a replay is what it was."""
        raise TapeError(
            "a replay cannot be changed; fork it: simulation.fork(turn=..., intervene=...)"
        )


def load_turns(
    cls: RunClass, tape: Tape, run: int, records: Sequence[Mapping[str, Any]]
) -> list[Any]:
    """Return a run's turns as ``Tape.turn_records`` has them, first to last, with their calls."""
    line = tape.line(run)
    turns: list[Any] = []
    for record in records:
        if turns and record["turn"] != turns[-1].number + 1:
            raise TapeError(
                f"run {run} on the tape {tape.path} is damaged: turn {record['turn']} follows turn "
                f"{turns[-1].number}; `llmsim-lab tape verify` says what else is wrong"
            )
        # A fork's first turns, and their calls, are its parent's.
        part = next((part for part, last in line if record["turn"] <= last), run)
        known = {call.id: call.attempt for call in tape.calls(part, turn=record["turn"])}

        def attempt(number: int, known: Mapping[int, Attempt] = known) -> Attempt:
            """Return an attempt of this turn; that of another turn is looked up by itself."""
            found = known.get(number)
            return found if found is not None else tape.call(number).attempt

        turn = decode_turn(cls, record, attempt)
        turns.append(turn)
    return turns
