"""What a run does with a tape: leave its turns there, or hold itself to those recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any, Protocol

from llmsim_lab.calls import Attempt
from llmsim_lab.errors import TapeError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm._scope import Recorder
from llmsim_lab.llm.tape._recorder import LiveRecorder, ReplayRecorder
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs.garbage import rare_collections
from llmsim_lab.runs.manifest import entries_of, model_differs, with_model
from llmsim_lab.runs.records import (
    AnyKind,
    AnyTurn,
    Planned,
    changed_values,
    decode_turn,
    interventions_of,
    record_of,
    row_text,
    tape_turn,
)

__all__ = ["Recording", "Replaying", "Taping", "load_turns"]


class Taping(Protocol):
    """A run's tie to a tape."""

    tape: Tape
    run: int

    @property
    def recorder(self) -> Recorder:
        """What answers and keeps the run's calls."""
        ...

    async def before_turn(
        self, client: LLMClient | None, players: Mapping[str, LLMClient] = MappingProxyType({})
    ) -> None:
        """Do what is due before a turn is played."""

    def planned(self, turn: int, planned: Sequence[Any]) -> Sequence[Any]:
        """Return what is to be done from outside at a turn."""

    def done(self, turn: AnyTurn, planned: Planned) -> Any:
        """Take a whole turn; returns it as it stands on the tape."""

    def uses(self, prompts: Mapping[str, Prompt]) -> None:
        """Take note of the prompts that the run was found to use."""

    def changed(self, turn: AnyTurn, planned: Planned) -> None:
        """Take note that the latest turn, or what is planned, was changed from outside."""

    def failed(self, error: BaseException) -> None:
        """Take note that the turn failed, and why."""

    def ended(self, outcome: str) -> None:
        """Take note of how the run ended, for now."""

    def close(self) -> None:
        """Let others write to the run."""


class Recording:
    """Writes a run's calls and turns as they come.

    Args:
        kind: the simulation's class.
        tape: the tape.
        run: the run, already on it with the turn it starts from.
    """

    def __init__(self, kind: AnyKind, tape: Tape, run: int) -> None:
        self.tape = tape
        self.run = run
        self._kind = kind
        self._recorder = LiveRecorder(tape, run)
        self._begun = False
        self._refused = False

    @property
    def recorder(self) -> LiveRecorder:
        """What keeps the run's calls."""
        return self._recorder

    async def before_turn(
        self, client: LLMClient | None, players: Mapping[str, LLMClient] = MappingProxyType({})
    ) -> None:
        """Write down, once, which model answers; a resumed run must have the same.

        Raises:
            TapeError: another model answers than the one recorded.
        """
        if self._begun:
            return
        if client is not None:
            await self._check_model(client)
        for name, their in players.items():
            await self._check_player(name, their)
        if self.tape.run(self.run).outcome is not None:
            self.tape.end_run(self.run, None)
        self._begun = True

    async def _check_model(self, client: LLMClient) -> None:
        info = await client.model_info()
        manifest = self.tape.run(self.run).manifest
        if difference := model_differs(manifest, info):
            self._refused = True
            raise TapeError(
                f"run {self.run} was begun with another model: {difference}. Connect to that one "
                "to go on, or fork the run to go on with this one"
            )
        if manifest["model"] is None:
            self.tape.update_manifest(self.run, with_model(manifest, info))

    async def _check_player(self, name: str, client: LLMClient) -> None:
        """Do the same for the model of a player who has one of its own."""
        info = await client.model_info()
        manifest = self.tape.run(self.run).manifest
        known = manifest.get("players", {})
        if difference := model_differs({"model": known.get(name)}, info):
            self._refused = True
            raise TapeError(
                f"run {self.run} was begun with another model for {name}: {difference}. Give it "
                f"that one to go on, players={{{name!r}: ...}}, or fork the run"
            )
        if name not in known:
            there = {**manifest, "players": {**known, name: asdict(info)}}
            self.tape.update_manifest(self.run, there)

    def planned(self, turn: int, planned: Sequence[Any]) -> Sequence[Any]:
        """Return what is planned."""
        del turn
        return planned

    def done(self, turn: AnyTurn, planned: Planned) -> Any:
        """Write the turn, whole or not at all."""
        self._recorder.commit_turn(*tape_turn(self._kind, turn, planned))
        _leave_calls(turn, self.tape)
        return turn

    def uses(self, prompts: Mapping[str, Prompt]) -> None:
        """Write the prompts into the run's manifest, where they are not there yet."""
        manifest = self.tape.run(self.run).manifest
        if prompts.keys() - manifest["prompts"].keys():
            self.tape.update_manifest(self.run, {**manifest, "prompts": entries_of(prompts)})

    def changed(self, turn: AnyTurn, planned: Planned) -> None:
        """Write the latest turn again."""
        self._recorder.replace_turn(*tape_turn(self._kind, turn, planned))

    def failed(self, error: BaseException) -> None:
        """Keep what was answered for the next try."""
        self._recorder.restart_turn(error)

    def ended(self, outcome: str) -> None:
        """Write the outcome; that of a run which the wrong model was kept from stays."""
        self._recorder.settle()
        if not self._refused:
            self.tape.end_run(self.run, outcome)

    def close(self) -> None:
        """Let others write to the run."""
        self._recorder.close()


class Replaying:
    """Answers from the tape and holds every turn against the recorded one.

    Args:
        kind: the simulation's class.
        tape: the tape.
        run: the run.
        records: of its turns, the last one among them.
    """

    def __init__(
        self, kind: AnyKind, tape: Tape, run: int, records: Sequence[Mapping[str, Any]]
    ) -> None:
        self.tape = tape
        self.run = run
        self._kind = kind
        self._recorder = ReplayRecorder(tape, run)
        self._records = {record["turn"]: record for record in records}
        self._rows = tape.frame_rows(run)
        self._last = max(self._records)

    @property
    def recorder(self) -> ReplayRecorder:
        """What answers from the tape."""
        return self._recorder

    async def before_turn(
        self, client: LLMClient | None, players: Mapping[str, LLMClient] = MappingProxyType({})
    ) -> None:
        """Nothing: no model is asked."""

    def planned(self, turn: int, planned: Sequence[Any]) -> Sequence[Any]:
        """Return what was done from outside at the recorded turn."""
        record = self._records.get(turn)
        if record is None:
            raise TapeError(
                f"run {self.run} ends at turn {self._last}; turn {turn} was not recorded. "
                "Resume or fork the run to go on: resume(tape, run, llm_client=connect('auto')) or "
                "simulation.fork(llm_client=connect('auto')), which is 'Fork here' in a stepper"
            )
        del planned
        self._recorder.begin_turn(turn)
        return interventions_of(self._kind, record, "interventions")

    def done(self, turn: AnyTurn, planned: Planned) -> Any:
        """Return the turn as recorded, with the time it took then.

        Raises:
            TapeError: the turn came out differently, which only other code can cause.
        """
        del planned
        recorded = decode_turn(self._kind, self._records[turn.number], self._recorder.attempt)
        now = replace(turn, seconds=recorded.seconds)
        row = json.loads(row_text(self._kind, now))
        if recorded != now or row != (there := self._rows[turn.number]):
            where = changed_values(record_of(self._kind, recorded), record_of(self._kind, now))
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
        del self._records[turn.number], self._rows[turn.number]
        _leave_calls(recorded, self.tape)
        return recorded

    def uses(self, prompts: Mapping[str, Prompt]) -> None:
        """Nothing: they are recorded."""

    def changed(self, turn: AnyTurn, planned: Planned) -> None:
        """Refuse: a replay is what it was."""
        raise TapeError(
            "a replay cannot be changed; fork it: simulation.fork(turn=..., intervene=...)"
        )

    def failed(self, error: BaseException) -> None:
        """Nothing to keep."""

    def ended(self, outcome: str) -> None:
        """Nothing to note."""

    def close(self) -> None:
        """Nothing to let go of."""


@rare_collections()
def load_turns(
    kind: AnyKind, tape: Tape, run: int, records: Sequence[Mapping[str, Any]]
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
        part = next((part for part, last in line if record["turn"] <= last), run)
        known = {call.id: call.attempt for call in tape.calls(part, turn=record["turn"])}
        turn = decode_turn(kind, record, _Attempts(tape, known))
        _leave_calls(turn, tape)
        turns.append(turn)
    return turns


def _leave_calls(turn: AnyTurn, tape: Tape) -> None:
    """Leave a turn's calls on the tape; who asks for one has it read."""
    read = tape.attempt
    for call in turn.calls:
        call.leave_on_tape(read)
    for chain in turn.chains:
        if chain.call is not None:  # it may be one of an earlier turn
            chain.call.leave_on_tape(read)


class _Attempts:
    """A turn's attempts by number; one that belongs to another turn is looked up by itself."""

    def __init__(self, tape: Tape, known: Mapping[int, Attempt]) -> None:
        self._tape = tape
        self._known = known

    def __call__(self, number: int) -> Attempt:
        known = self._known.get(number)
        return known if known is not None else self._tape.call(number).attempt
