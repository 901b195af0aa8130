"""A run's session with a tape: one that records the run, or one that replays it.

Also here: loading turns from a tape.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
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

    It is one client from turn to turn, since a world may have handed it on to parts of its own.

    Args:
        config: the settings of the first turn that is played again.
    """

    def __init__(self, config: LLMConfig) -> None:
        super().__init__(config, ScriptedBackend(TapeError("a replay makes no call")))

    def ask_as(self, config: LLMConfig) -> None:
        """Ask with these settings from now on."""
        self._set(config)


class Session:
    """What a run tells its tape, and asks it; this one is of a run that is on none.

    ``Recording`` writes the run, ``Replaying`` compares it.

    Attributes:
        tape: the tape.
        number: the run's number on it.
        recorder: what answers and keeps the run's calls.
        is_replay: whether all calls are answered from the tape.
        turns_of_parent: the turns that come next, where another run played them: a replayed fork's
            parent.
        done_outside: what the unfinished turn of a run on no tape did outside and may not do twice.
    """

    tape: Tape | None = None
    number: int | None = None
    recorder: Recorder | None = None
    is_replay = False
    turns_of_parent: Sequence[Turn] = ()
    done_outside: Mapping[Any, Any] = MappingProxyType({})

    def seated(self, seat: str, player: Any) -> Any:
        """Return who answers for a seat; in a replay with the settings that were recorded."""
        return player

    def playing(self) -> AbstractContextManager[None]:
        """Return what holds the tape while the run plays."""
        return nullcontext()

    async def begin_turn(
        self,
        run: AnyRun,
        turn: int,
    ) -> Sequence[StateChange]:
        """Begin a turn; returns what is to be done from outside at its end."""
        return [item for item in run.planned if item.turn == turn]

    def finish_turn(
        self,
        run: AnyRun,
        turn: Turn,
        state: bytes,
    ) -> Turn:
        """Record or compare a whole turn; returns it as it stands on the tape.

        Args:
            run: the run.
            turn: the turn.
            state: the turn's state as JSON.
        """
        return turn

    def keep_change(self, run: AnyRun) -> None:
        """Record that the latest turn, or what is planned, was changed from outside."""

    def fail_turn(self, error: BaseException) -> None:
        """Record that the turn failed, and why."""

    def end_run(self, outcome: str) -> None:
        """Record how the run ended, for now."""

    def close(self) -> None:
        """Let others write to the run."""


class Recording(Session):
    """Writes a run's calls and turns as they come.

    Args:
        tape: the tape.
        number: of the run, already on it with the turn it starts from.
    """

    tape: Tape
    number: int
    recorder: LiveRecorder

    def __init__(self, tape: Tape, number: int) -> None:
        self.tape = tape
        self.number = number
        self.recorder = LiveRecorder(tape, number)
        self._models_are_known = False
        """Whether the models that answer were compared with those of the tape."""
        self._is_marked_ended = True
        """Whether the tape says that the run is not under way."""
        self._wrong_model = False
        """Whether another model answers than the recorded one: then nothing is played."""
        self._prompts_on_tape = -1
        """How many prompts the tape has; -1 before the first turn."""
        self._settings: dict[str, LLMConfig] = {}

    def playing(self) -> AbstractContextManager[None]:
        """Return what holds the tape while the run plays."""
        return self.recorder.writing()

    def fail_turn(self, error: BaseException) -> None:
        """Begin the turn again on the tape; what was answered is kept for the next try."""
        self.recorder.restart_turn(error)

    def close(self) -> None:
        """Let others write to the run."""
        self.recorder.close()

    async def begin_turn(
        self,
        run: AnyRun,
        turn: int,
    ) -> Sequence[StateChange]:
        """Begin a turn on the tape; returns what the run has planned.

        Raises:
            TapeError: another model answers than the one recorded, the run was closed, or the tape
                has the turn already.
        """
        if not self._models_are_known:
            await self._check_models(run)
            self._models_are_known = True
        self._note_settings(run, turn)
        # The run is under way again; if this process is killed its tape has to show that.
        if self._is_marked_ended:
            self.recorder.end(None)
            self._is_marked_ended = False
        self.recorder.begin_turn(turn)
        return [item for item in run.planned if item.turn == turn]

    async def _check_models(self, run: AnyRun) -> None:
        """Write down which models answer; a resumed run must have the same."""
        models: dict[str, JSONObject] = {}
        for name, client in clients_of(run).items():
            info = await client.model_info()
            models[name] = asdict(info)
        # Read after the wait: another task may have changed the manifest meanwhile.
        manifest = self.tape.run(self.number).manifest
        models_of_players = dict(manifest.get("players", {}))
        unknown: JSONObject = {}
        for name, model in models.items():
            recorded = models_of_players.get(name) if name else manifest["model"]
            if recorded is not None:
                # A resumed run with another model would be half of each.
                self._check_model(name, model, recorded)
            # Known only now: a server says which model it has when it is asked.
            elif name:
                models_of_players[name] = model
                unknown["players"] = models_of_players
            else:
                unknown["model"] = model
        # Once for all: a class of two hundred would write as many lines, each with all before it.
        if unknown:
            self.recorder.describe(unknown)

    def _check_model(
        self,
        player: str,
        model: Mapping[str, object],
        recorded: Mapping[str, object],
    ) -> None:
        """Raise TapeError for another model than the recorded one."""
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
        """Write down the settings of the clients, where they are not those of the turn before."""
        settings = {seat: client.config for seat, client in clients_of(run).items()}
        # Compared before anything is read from the tape: they are the same in nearly every turn.
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
        # Settings that no turn was finished with are needed by no replay.
        if not earlier or earlier[-1]["last_turn"] < last_turn:
            settings_before = {
                name: manifest[name] for name in ("llm", "seats") if name in manifest
            }
            earlier.append({"last_turn": last_turn, **settings_before})
        # Without seats in the entries those of the turns before would stay in the manifest.
        self.recorder.describe({"seats": {}, **entries, "settings_before": earlier})

    def finish_turn(
        self,
        run: AnyRun,
        turn: Turn,
        state: bytes,
    ) -> Turn:
        """Write the turn, whole or not at all, and the prompts that it was the first to use."""
        prompts = run.prompts
        # Prompts are only ever added.
        if len(prompts) != self._prompts_on_tape:
            on_tape = self.tape.run(self.number).manifest["prompts"]
            if prompts.keys() - on_tape.keys():
                self.recorder.describe({"prompts": entries_of(prompts)})
            self._prompts_on_tape = len(prompts)
        # Written first: some of the turn's calls may be nowhere but in memory until then.
        number, line = tape_turn(run, turn, state)
        self.recorder.commit_turn(number, line)
        return turn

    def keep_change(self, run: AnyRun) -> None:
        """Write the latest turn again."""
        number, line = tape_turn(run, run.turns[-1])
        self.recorder.replace_turn(number, line)

    def end_run(self, outcome: str) -> None:
        """Write the outcome."""
        self._is_marked_ended = True
        # With another model nothing was played, so what is recorded of the outcome stays true.
        if not self._wrong_model:
            self.recorder.end(outcome)


class Replaying(Session):
    """Answers from the tape and compares every turn with the recorded one.

    Args:
        tape: the tape.
        number: of the run.
        lines: those of its turns that are to be played again, by number.
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
        """Return a player whose client asks as it was recorded, whatever its settings are now."""
        settings = self._settings.get(seat)
        # A contract's class such as a validator holds its client.
        client = getattr(player, "llm_client", player)
        # A rule has no settings, nor had a seat that the recorded run did not have.
        if settings is None or not hasattr(client, "with_config"):
            return player
        if seat not in self._seated:
            # A twin, since the client is the caller's and goes on with its own settings.
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
        """Ask with these settings from now on."""
        if settings == self._settings:
            return
        self._settings = settings
        # The twins ask with the settings of the turns before.
        self._seated.clear()
        if isinstance(run.llm_client, RecordedClient) and "" in settings:
            run.llm_client.ask_as(settings[""])

    async def begin_turn(
        self,
        run: AnyRun,
        turn: int,
    ) -> Sequence[StateChange]:
        """Return what was done from outside at the recorded turn."""
        # A replay may be stepped on by hand, past the end.
        if turn not in self._lines:
            raise TapeError(
                f"run {self.number} ends at turn {self.tape.run(self.number).turns}; turn {turn} "
                f"was not recorded. To continue: resume({str(self.tape.path)!r}, {self.number}, "
                "llm_client=connect('auto')) or run.fork(llm_client=connect('auto'))"
            )
        self.recorder.begin_turn(turn)
        # Most runs have one set of settings from end to end.
        if not self._settings or "settings_before" in self._manifest:
            self._take_settings(run, recorded_settings(self._manifest, turn))
        # From the record, not from the plan: some came in while the run was played.
        return interventions_of(self._lines[turn]["record"], "interventions")

    def finish_turn(
        self,
        run: AnyRun,
        turn: Turn,
        state: bytes,
    ) -> Turn:
        """Return the turn as recorded, with the time it took then.

        Raises:
            TapeError: the turn came out differently, which only other code can cause.
        """
        cls = type(run)
        line = self._lines[turn.number]
        recorded = decode_turn(cls, line["record"], self.recorder.attempt)
        # What another machine or Python may say otherwise is taken from the record: how long it
        # took, and the words of an error.
        now = replace(
            turn,
            seconds=recorded.seconds,
            by_code=_with_words_of(recorded, turn),
        )
        now = _with_notes_of(recorded, now)
        # Columns that the recording lacks are a newer version's or code's; its own are what counts.
        recorded_row = line["row"]
        columns = row_on_tape(cls, now)
        row = {name: value for name, value in columns.items() if name in recorded_row}
        # As JSON too: an object of a class of one's own may equal no other.
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
        # The turn itself has all of it now: a long replay would hold everything twice.
        del self._lines[turn.number]
        return recorded

    def keep_change(self, run: AnyRun) -> None:
        """Raise TapeError: a replay is what it was."""
        raise TapeError(
            "a replay cannot be changed; fork it: simulation.fork(turn=..., intervene=...)"
        )


def _with_words_of(recorded: Turn, turn: Turn) -> tuple[Answer, ...]:
    """Return a turn's answers of code, those that stand in with why they did when recorded.

    The words are those of an error, which another Python writes otherwise, as do other addresses.
    """
    answers = list(turn.by_code)
    for place, (then, now) in enumerate(zip(recorded.by_code, answers, strict=False)):
        # Without a call: with one, the words are the call's, and recorded.
        if then.status == now.status == "fallback" and not now.calls:
            answers[place] = replace(now, reasoning=then.reasoning)
    return tuple(answers)


def _with_notes_of(recorded: Turn, turn: Turn) -> Turn:
    """Return a turn with its notes in the form of its recording.

    Recordings from before notes named components have them by player, and what a turn led to is a
    line of their story.
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
    records: Sequence[Record],
) -> list[Turn]:
    """Return a run's turns as ``Tape.turn_records`` has them, first to last, with their calls."""
    recorder = ReplayRecorder(tape, run)
    turns: list[Turn] = []
    for record in records:
        # A line that is lost would otherwise shift all turns after it.
        if turns and record["turn"] != turns[-1].number + 1:
            raise TapeError(
                f"run {run} on the tape {tape.path} is damaged: turn {record['turn']} follows turn "
                f"{turns[-1].number}; `llmsim-lab tape verify` says what else is wrong"
            )
        recorder.begin_turn(record["turn"])
        turns.append(decode_turn(cls, record, recorder.attempt))
    return turns
