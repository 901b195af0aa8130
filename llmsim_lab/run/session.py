"""Sessions: what connects a run with its tape. One kind records the run, another replays it.

Also here: loading turns from a tape.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

from llmsim_lab._util.jsontext import JSONObject, loads
from llmsim_lab.errors import TapeError
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.run._any_run import AnyRun
from llmsim_lab.run.config import StateChange
from llmsim_lab.run.notes import notes_by_player
from llmsim_lab.run.records import (
    Record,
    changed_values,
    clients_of,
    decode_turn,
    entries_of,
    interventions_of,
    plan_writer,
    record_of,
    recorded_settings,
    row_on_tape,
    settings_entries,
    tape_turn,
)
from llmsim_lab.run.registry import RunClass
from llmsim_lab.run.turn import Answer, Turn, result_in_words
from llmsim_lab.tape.recorder import LiveRecorder, Recorder, ReplayRecorder


class RecordedClient(LLMClient):
    """Stands for a recorded run's model, with the settings that the run had at each turn.

    The client stays the same from turn to turn, since a world may have passed it to its own parts.

    Args:
        config: the settings at the first turn that is replayed.
    """

    def __init__(self, config: LLMConfig) -> None:
        super().__init__(config, ScriptedBackend(TapeError("a replay makes no call")))

    def ask_as(self, config: LLMConfig) -> None:
        """Use these settings from now on."""
        self._set(config)


class Session:
    """The session of a run that is on no tape; ``Recording`` and ``Replaying`` derive from it.

    Attributes:
        tape: the run's tape.
        number: the run's number on the tape.
        recorder: keeps the run's calls, and answers those that are on the tape.
        is_replay: True if the tape answers all calls.
        turns_of_parent: in the replay of a fork, the next turns that its parent played.
        done_outside: what an unfinished turn of a run on no tape did outside and must not repeat.
    """

    tape: Tape | None = None
    number: int | None = None
    recorder: Recorder | None = None
    is_replay = False
    turns_of_parent: Sequence[Turn] = ()
    done_outside: Mapping[Any, Any] = MappingProxyType({})

    def seated(self, seat: str, player: Any) -> Any:
        """Return who answers for a seat; in a replay, with the recorded settings."""
        return player

    def playing(self) -> AbstractContextManager[None]:
        """Return a context that holds the tape while the run plays."""
        return nullcontext()

    async def begin_turn(self, run: AnyRun, turn: int) -> Sequence[StateChange]:
        """Begin a turn; returns the interventions to make at its end."""
        return [item for item in run.planned if item.turn == turn]

    def finish_turn(
        self,
        run: AnyRun,
        turn: Turn,
        state: bytes,
    ) -> Turn:
        """Record or compare a whole turn; returns the turn as the tape has it.

        Args:
            run: the run.
            turn: the turn.
            state: the turn's state as JSON.
        """
        return turn

    def keep_change(self, run: AnyRun) -> None:
        """Record that an intervention changed the latest turn, or was planned."""

    def fail_turn(self, error: BaseException) -> None:
        """Record that the turn failed, and why."""

    def end_run(self, outcome: str) -> None:
        """Record how playing the run ended, for now."""

    def close(self) -> None:
        """Stop writing to the run, so that others can."""


class Recording(Session):
    """Writes a run's calls and turns as they come.

    Args:
        tape: the tape.
        number: the run's number. The run is on the tape already, with the turn it starts from.
    """

    tape: Tape
    number: int
    recorder: LiveRecorder

    def __init__(self, tape: Tape, number: int) -> None:
        self.tape = tape
        self.number = number
        self.recorder = LiveRecorder(tape, number)
        self._checked_clients: dict[str, LLMClient] | None = None
        """The clients whose models were compared with those on the tape."""
        self._is_marked_ended = True
        """True if the tape says that the run is not being played."""
        self._wrong_model = False
        """True if a model is not the recorded one; then nothing is played."""
        self._prompts_on_tape: int | None = None
        """How many prompts the tape has; None before the first turn."""
        self._settings: dict[str, LLMConfig] = {}
        self._plan = plan_writer()

    def playing(self) -> AbstractContextManager[None]:
        """Return a context that holds the tape while the run plays."""
        return self.recorder.writing()

    def fail_turn(self, error: BaseException) -> None:
        """Begin the turn again on the tape; the next try finds the answers of this one."""
        self.recorder.restart_turn(error)

    def close(self) -> None:
        """Stop writing to the run, so that others can."""
        self.recorder.close()

    async def begin_turn(self, run: AnyRun, turn: int) -> Sequence[StateChange]:
        """Begin a turn on the tape; returns the interventions to make at its end.

        Raises:
            TapeError: a model is not the recorded one, the run was closed, or the tape has the turn
                already.
        """
        clients = clients_of(run)
        # Again for a client that was set later.
        if clients != self._checked_clients:
            self._checked_clients = None
            await self._check_models(clients)
            self._checked_clients = clients
        self._note_settings(run, turn)
        # Written now, so that the tape of a process that is killed shows a run under way.
        if self._is_marked_ended:
            self.recorder.end(None)
            self._is_marked_ended = False
        self.recorder.begin_turn(turn)
        return await super().begin_turn(run, turn)

    async def _check_models(self, clients: Mapping[str, LLMClient]) -> None:
        """Compare the models with the recorded ones, and record those that are not on the tape."""
        self._wrong_model = False
        models: dict[str, JSONObject] = {}
        for name, client in clients.items():
            info = await client.model_info()
            models[name] = asdict(info)
        # Read after the wait, since another task may have changed the manifest meanwhile.
        manifest = self.tape.run(self.number).manifest
        models_of_players = dict(manifest.get("players", {}))
        unknown: JSONObject = {}
        for name, model in models.items():
            recorded = models_of_players.get(name) if name else manifest["model"]
            if recorded is not None:
                # With another model, half of a resumed run would come from each.
                self._check_model(name, model, recorded)
            # Not on the tape yet: only now was the server asked which model it has.
            elif name:
                models_of_players[name] = model
                unknown["players"] = models_of_players
            else:
                unknown["model"] = model
        # One line for all models: two hundred clients would write two hundred lines, each with all
        # models so far.
        if unknown:
            self.recorder.describe(unknown)

    def _check_model(
        self,
        player: str,
        model: Mapping[str, object],
        recorded: Mapping[str, object],
    ) -> None:
        """Raise TapeError if a model is not the recorded one."""
        for key in ("backend", "name", "digest"):
            then = recorded.get(key)
            now = model[key]
            if then != now:
                self._wrong_model = True
                of_player = f" for {player}" if player else ""
                argument = f"players={{{player!r}: ...}}" if player else "llm_client=..."
                raise TapeError(
                    f"run {self.number} was begun with another model{of_player}: its {key} is "
                    f"{now!r}, the recorded one's is {then!r}. Give that one to continue, "
                    f"{argument}, or fork the run to continue with this one"
                )

    def _note_settings(self, run: AnyRun, turn: int) -> None:
        """Record the clients' settings if they are not those of the turn before."""
        settings = {seat: client.config for seat, client in clients_of(run).items()}
        # First, to spare reading the tape: the settings are the same in nearly every turn.
        if settings == self._settings:
            return
        self._settings = settings
        manifest = self.tape.run(self.number).manifest
        entries = settings_entries(run)
        recorded = recorded_settings(manifest)
        if recorded == recorded_settings(entries):
            return
        earlier = list(manifest.get("settings_before", ()))
        last_turn = turn - 1
        # No replay needs settings with which no turn was finished.
        if not earlier or earlier[-1]["last_turn"] < last_turn:
            settings_before = {
                name: manifest[name] for name in ("llm", "seats") if name in manifest
            }
            earlier.append({"last_turn": last_turn, **settings_before})
        # Empty seats replace those of the turns before, which would stay in the manifest.
        self.recorder.describe({"seats": {}, **entries, "settings_before": earlier})

    def finish_turn(
        self,
        run: AnyRun,
        turn: Turn,
        state: bytes,
    ) -> Turn:
        """Write the turn, whole or not at all, and any prompts that it used for the first time."""
        prompts = run.prompts
        # Prompts are added and never removed, so an equal number means equal prompts.
        if len(prompts) != self._prompts_on_tape:
            on_tape = self.tape.run(self.number).manifest["prompts"]
            if prompts.keys() - on_tape.keys():
                self.recorder.describe({"prompts": entries_of(prompts)})
            self._prompts_on_tape = len(prompts)
        line = tape_turn(run, turn, self._plan, state)
        self.recorder.commit_turn(*line)
        return turn

    def keep_change(self, run: AnyRun) -> None:
        """Write the latest turn again."""
        line = tape_turn(run, run.turns[-1], self._plan)
        self.recorder.replace_turn(*line)

    def end_run(self, outcome: str) -> None:
        """Write the outcome."""
        self._is_marked_ended = True
        # With a wrong model nothing was played, so the recorded outcome is still true.
        if not self._wrong_model:
            self.recorder.end(outcome)


class Replaying(Session):
    """Answers from the tape and compares every turn with the recorded one.

    Args:
        tape: the tape.
        number: the run's number.
        lines: the lines of the turns that are played again, by the turn's number.
    """

    tape: Tape
    number: int
    recorder: ReplayRecorder
    is_replay = True

    def __init__(
        self,
        tape: Tape,
        number: int,
        lines: Mapping[int, Record],
    ) -> None:
        self.tape = tape
        self.number = number
        self._lines = dict(lines)
        self.recorder = ReplayRecorder(tape, number)
        self._manifest = tape.run(number).manifest
        self._settings: dict[str, LLMConfig] = {}
        self._seated: dict[str, Any] = {}

    def seated(self, seat: str, player: Any) -> Any:
        """Return a player whose client has the recorded settings, whatever its own are now."""
        settings = self._settings.get(seat)
        # Some players hold their client, as a validator does.
        client = getattr(player, "llm_client", player)
        # There are no settings for a rule, or for a seat that the recorded run did not have.
        if settings is None or not hasattr(client, "with_config"):
            return player
        if seat not in self._seated:
            # A twin, so that the caller's client keeps its own settings.
            twin = client.with_config(settings)
            if client is player:
                self._seated[seat] = twin
            else:
                self._seated[seat] = copy.copy(player)
                self._seated[seat].llm_client = twin
        return self._seated[seat]

    def _take_settings(
        self,
        run: AnyRun,
        settings: dict[str, LLMConfig],
    ) -> None:
        """Use these settings from now on."""
        if settings == self._settings:
            return
        self._settings = settings
        # The twins have the settings of the turns before.
        self._seated.clear()
        if isinstance(run.llm_client, RecordedClient) and "" in settings:
            run.llm_client.ask_as(settings[""])

    async def begin_turn(self, run: AnyRun, turn: int) -> Sequence[StateChange]:
        """Begin a turn; returns the interventions of the recorded turn."""
        # A replay may be stepped by hand past its last recorded turn.
        if turn not in self._lines:
            raise TapeError(
                f"run {self.number} ends at turn {self.tape.run(self.number).turns}; turn {turn} "
                f"was not recorded. To continue: resume({str(self.tape.path)!r}, {self.number}, "
                "llm_client=connect('auto')) or run.fork(llm_client=connect('auto'))"
            )
        self.recorder.begin_turn(turn)
        # In most runs the settings never change.
        if not self._settings or "settings_before" in self._manifest:
            self._take_settings(run, recorded_settings(self._manifest, turn))
        # From the record and not from the plan: some were made while the run was played.
        return interventions_of(self._lines[turn]["record"])

    def finish_turn(
        self,
        run: AnyRun,
        turn: Turn,
        state: bytes,
    ) -> Turn:
        """Return the recorded turn, if the turn played now is equal to it.

        Raises:
            TapeError: the turns differ.
        """
        cls = type(run)
        line = self._lines[turn.number]
        recorded = decode_turn(cls, line["record"], self.recorder.attempt)
        # Another machine or Python may differ in two things, which are taken from the record: the
        # time that the turn took, and the words of an error.
        now = replace(
            turn,
            seconds=recorded.seconds,
            by_code=_with_words_of(recorded, turn),
        )
        now = _with_notes_of(recorded, now)
        # Only the recorded columns are compared: newer code may add columns.
        recorded_row = line["row"]
        columns = row_on_tape(cls, now)
        row = {name: value for name, value in columns.items() if name in recorded_row}
        # Compared as JSON too, since objects of a user's class may never be equal.
        is_same_state = recorded.state == now.state or loads(state) == line["record"]["state"]
        is_same_turn = recorded == replace(now, state=recorded.state)
        if not is_same_state or not is_same_turn or row != recorded_row:
            record_then = {**record_of(cls, recorded), "row": recorded_row}
            record_now = {**record_of(cls, now), "row": row}
            changes = changed_values(record_then, record_now)
            raise TapeError(
                f"turn {turn.number} of run {self.number} came out differently from its "
                f"recording: {changes or 'in something that its record does not show'}. Its calls "
                "were answered alike, so it is other code than it was recorded with (by llmsim-lab "
                f"{self.tape.run(self.number).manifest['package']}), or chance or a clock, which a "
                "turn may only draw on through the run's seed, as with ask.rng"
            )
        # Deleted, since the turn has the same content: a long replay would hold all of it twice.
        del self._lines[turn.number]
        return recorded

    def keep_change(self, run: AnyRun) -> None:
        """Raise TapeError: a replay cannot be changed."""
        raise TapeError(
            "a replay cannot be changed; fork it: simulation.fork(turn=..., intervene=...)"
        )


def _with_words_of(recorded: Turn, turn: Turn) -> tuple[Answer, ...]:
    """Return a turn's answers of code; stand-ins have the recorded words for why they stand in.

    The words are those of an error. Another version of Python may write them differently, and they
    may hold addresses in memory.
    """
    answers = list(turn.by_code)
    for index, (then, now) in enumerate(zip(recorded.by_code, answers, strict=False)):
        # If a call failed, the words come from the tape anyway.
        if then.status == now.status == "fallback" and not now.calls:
            answers[index] = replace(now, reasoning=then.reasoning)
    return tuple(answers)


def _with_notes_of(recorded: Turn, turn: Turn) -> Turn:
    """Return a turn with its notes in the form that its recording has.

    Older recordings have notes by player alone, without a component, and have the turn's result
    as a line of the story.
    """
    if not any(component for _, component in recorded.became):
        turn = replace(turn, became=notes_by_player(turn.became))
    line = result_in_words(turn.led_to)
    if turn.led_to and not recorded.led_to and line in recorded.story:
        without_line = tuple(text for text in recorded.story if text != line)
        if turn.story == without_line:
            turn = replace(
                turn,
                story=recorded.story,
                led_to="",
            )
    return turn


def load_turns(
    cls: RunClass,
    tape: Tape,
    run: int,
    records: Iterable[Record],
) -> list[Turn]:
    """Return a run's turns with their calls, made from the records of ``Tape.turn_lines``."""
    recorder = ReplayRecorder(tape, run)
    turns: list[Turn] = []
    named: set[int] = set()
    for record in records:
        # A lost line would shift all turns after it.
        if turns and record["turn"] != turns[-1].number + 1:
            raise TapeError(
                f"run {run} on the tape {tape.path} is damaged: turn {record['turn']} follows turn "
                f"{turns[-1].number}; `llmsim-lab tape verify` says what else is wrong"
            )
        for _, numbers in record["calls"]:
            # Else a thousand turns could each name the same thousand calls, in a small file.
            if not named.isdisjoint(numbers):
                number = min(named.intersection(numbers))
                raise TapeError(
                    f"run {run} on the tape {tape.path} is damaged: turn {record['turn']} names "
                    f"call {number}, which is one of an earlier turn"
                )
            named.update(numbers)
        recorder.begin_turn(record["turn"])
        turns.append(decode_turn(cls, record, recorder.attempt))
    return turns
