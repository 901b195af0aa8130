"""A run: a state, and a function that makes the next one by asking models.

``Run`` is the base of all simulations; a world defines ``turn``. Tape, replay, forks, interventions
and frames are the same for all worlds. The class is spread over three modules: ``world.py`` has
what a world defines, ``playing.py`` plays it, and this one handles recorded runs.

Five things can be done with a recorded run: ``replay`` plays it again and asks no model,
``resume`` continues where it stopped, ``rerun`` begins anew with fresh calls, ``fork`` shares its
turns up to one and continues live, ``load`` only shows it. The tape says which class plays the run.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import platform
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, NoReturn, Self, SupportsIndex

from typing_extensions import TypeVar

from llmsim_lab._util.checks import items_of, whole_number
from llmsim_lab._util.jsontext import as_mapping, checked, dumps, loads, plain
from llmsim_lab._util.text import brief, counted, error_text, log_event
from llmsim_lab._util.waiting import in_thread, run_sync
from llmsim_lab.errors import ConfigError, LabError, TapeError
from llmsim_lab.llm import LLMClient, LLMConfig, Tape
from llmsim_lab.llm.client import run_client
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._kept import config_as_json, decoded, encoded
from llmsim_lab.run.config import (
    MOST_REPLICATES,
    StateChange,
    WorldConfig,
    by_name,
    not_among,
)
from llmsim_lab.run.page import write_page
from llmsim_lab.run.plain_prompts import with_edits
from llmsim_lab.run.playing import PlayedWorld, play_turns
from llmsim_lab.run.question import Question
from llmsim_lab.run.reading import ALL_TURNS, Reading, RecordedRun, TurnRange
from llmsim_lab.run.records import (
    Record,
    changed_settings,
    check_manifest,
    clients_of,
    config_of,
    entries_of,
    interventions_of,
    llm_config_of,
    plan_writer,
    planned_after,
    planned_in,
    prompts_of,
    recorded_settings,
    settings_entries,
    tape_turn,
)
from llmsim_lab.run.registry import class_of_manifest, code_digests, is_shipped
from llmsim_lab.run.session import RecordedClient, Recording, Replaying, load_turns
from llmsim_lab.run.turn import Turn
from llmsim_lab.run.world import StateT, define
from llmsim_lab.tape import RunInfo
from llmsim_lab.tape.changes import PATIENCE
from llmsim_lab.tape.lines import Verb
from llmsim_lab.tape.plans import PlanReader
from llmsim_lab.tape.prompts_read import prompts_read
from llmsim_lab.tape.recorder import Rehearsal
from llmsim_lab.types import Attempt

_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)
# Cached: each call reads a file, and a study has a thousand runs.
_version = cache(version)

RunT = TypeVar("RunT", bound="Run")

Tapes = Tape | str | Path
"""A tape, or its file."""
Arguments = Mapping[str, Any]
"""Arguments of a constructor, by keyword."""


class RunOrigin(NamedTuple):
    """How a run came about; see ``Tape.add_run``.

    Attributes:
        verb: the function that made it.
        parent: the number of the run that it came from.
        fork_turn: the last turn that a fork shares with it.
    """

    verb: Verb = "run"
    parent: int | None = None
    fork_turn: int | None = None


ANEW = RunOrigin()
_MOST_RUNS = 1_000
"""On a page or in a window."""
_ROOM_FOR_RUNS = 2**23
"""How many bytes of manifests are made anew to show the runs of a tape, and ..."""
_ROOM_A_BYTE = 2
"""... how many more for each byte of the tape."""


class Run(PlayedWorld[StateT]):
    """The base of all simulations; a world of your own derives from ``Run[ItsState]``.

    The annotated fields of a world are its parameters: they are given by keyword, read from files
    and written on tapes. Its ``async def turn(self, state, ask)`` returns the next state. A world
    may also define ``start`` and ``done``; ``rule(self, question)``, which answers for players
    without a model; and ``prediction``, which returns what theory predicts, for charts.

    The result of a turn must follow from nothing but the turn before, the configuration's seed, the
    interventions and the players' answers. So read no clock, and keep no state outside the turns.
    Then replay, fork and resume work without further code. A turn that fails changes nothing: the
    turns before it stay, and ``step`` may be called again.

    Args:
        config: the configuration; made from the parameters if not given.
        llm_client: the model, if the configuration needs one.
        players: who answers for a player, by name, instead of the model: ``"rule"``, ``"random"``,
            a function of the ``Question``, a person (``Person``), or another client. The name ``*``
            stands for all others. A single value is for all players: ``players="random"``.
        state: the state to start from, instead of ``start()``.
        tape: where to record the run: a tape, or a file, which is made if it is not there.
        prompts: prompts to use instead of the world's own, as a recorded run names them.
        parameters: the world's own, and ``name``, ``seed``, ``turns``, ``interventions``,
            ``rationale``, ``on_error``.

    Attributes:
        kind: the name of the run's class on tapes, such as ``pot:PublicGoods``.
        config_type: the class of its configuration, a pydantic model made from its parameters.
        state_type: the class of its states, which ``Run[ItsState]`` names.
        given: True if a player is something that no tape can hold, such as a function.
        turns: the turns so far, oldest first; the first holds the state that the run started from.

    Raises:
        ConfigError: a parameter is unknown or wrong.
    """

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        define(cls, Run)

    def __init__(
        self,
        config: WorldConfig | None = None,
        *,
        llm_client: LLMClient | None = None,
        players: object = None,
        state: StateT | None = None,
        tape: Tape | str | Path | None = None,
        prompts: Mapping[str, Prompt] | None = None,
        **parameters: Any,
    ) -> None:
        super().__init__(
            config,
            llm_client=llm_client,
            players=players,
            state=state,
            prompts=prompts,
            parameters=parameters,
        )
        # A run made from a recording has none in its configuration: its turns hold them.
        for item in self.config.interventions:
            self.intervene(
                item.turn,
                item.set,
                note=item.note,
            )
        self._set_first = []
        if tape is not None:
            record(self, tape)

    @property
    def code_digests(self) -> dict[str, str]:
        """Digests of the code that the run depends on and that is not this package's, by name."""
        if is_shipped(type(self)):
            return {}
        return code_digests(type(self), Run)

    def fork(
        self,
        turn: int | None = None,
        *,
        prompt: Prompt | Sequence[Prompt] = (),
        intervene: Mapping[str, object] | Iterable[Mapping[str, object]] = (),
        llm_client: LLMClient | None = None,
        to: str | Path | None = None,
    ) -> Self:
        """Return a run that continues from one of this run's turns, with something changed.

        The turns up to that one are this run's and cost nothing; the turns after it are live. On a
        tape the fork is a run of its own, which names the run that it came from. If the tape is
        open for reading only, the fork is not recorded: it lives in memory, and a WARNING and its
        ``repr`` say so.

        Args:
            turn: the turn to continue from; the latest if not given.
            prompt: an edited prompt, or several. Each replaces the prompt that it was edited from,
                or all prompts of its name if it was edited from none.
            intervene: new values in the state of that turn, ``{"coins.Ann": 5}``; or a list of
                interventions, each a dict as ``intervene`` takes it: ``[{"turn": 3, ...}]``.
            llm_client: another model, or the same model with other settings; all its settings
                count. The fork of a replay needs one.
            to: a new file to record on. The runs that the fork comes from are copied to it, and
                keep their numbers.

        Raises:
            ConfigError: there is no such turn, or no part uses a prompt of that name.
        """
        at = self.turn_number
        if turn is not None:
            at = whole_number(
                "turn",
                turn,
                least=0,
                most=at,
            )
        changes = listed_interventions(intervene, at)
        prompts = _listed_prompts(prompt, self.prompts)
        client = live_client(self, llm_client)
        if llm_client is not None and self.llm_client is not None:
            settings = self.llm_client.config
            # The settings at that turn: a resume may have changed them since.
            if self.tape is not None:
                manifest = self.tape.run(self.run_id).manifest
                settings = recorded_settings(manifest, max(1, at)).get("", settings)
            warn_of_settings(settings, llm_client.config, "the fork")
        new = unrecorded_fork(
            self,
            at,
            client,
            prompts,
        )
        for change in changes:
            new.intervene(**change)
        # Checked last: the other arguments would be wrong with a model, too.
        if client is None and self.llm_client is not None and self.config.needs_model:
            raise ConfigError("a fork is played live; give it a model: llm_client=connect('auto')")
        origin = RunOrigin("fork", self.run_id, at)
        if to is None:
            return _beside(self, new, origin)
        if self.tape is None:
            raise ConfigError("to= copies the run's tape, and it has none: give it a tape=")
        tape = self.tape.copy(
            [self.tape.run(self.run_id).id],
            to,
            up_to=at,
        )
        return record(new, tape, origin=origin)

    def counterfactual(
        self,
        players: object,
        *,
        llm_client: LLMClient | None = None,
        tape: Tapes | None = None,
    ) -> Self:
        """Return a run like this one, from its first state on and not yet played, with new players.

        Only the players differ. Parameters, seed and prompts are the same, and all interventions so
        far are made again, whether they were planned or not.

        Args:
            players: as the class takes them. Players that are not named stay; a single value is for
                all.
            llm_client: another model, for the seats that a model has.
            tape: where to record the new run.

        Example:
            ``by_rule = game.counterfactual({"Ann": "rule"})`` seats the rule in Ann's place, under
            the same shocks: ``by_rule.run()``.
        """
        replaced = by_name(players)
        # A single value is for all players, so none of this run's stays.
        kept = self.players if isinstance(players, Mapping) else {}
        # The configuration names players that are words, for the manifest.
        words = {
            name: word
            for name, word in self.config.players.items()
            if name in kept and name not in replaced
        }
        config = self.config.model_copy(update={"players": words})
        changes: list[StateChange] = []
        for turn in self.turns[1:]:
            # Also the interventions that were made while the run was played.
            changes += turn.interventions
        changes += [change for change in self.planned if change.turn > self.turn_number]
        client = live_client(self, llm_client)
        if llm_client is not None and self.llm_client is not None:
            warn_of_settings(self.llm_client.config, llm_client.config, "the counterfactual")
        arguments = {
            **_own_arguments(self),
            "players": {**kept, **replaced},
            "llm_client": client,
            "prompts": self.prompts,
        }
        new = _continued_from(
            type(self),
            config,
            self.turns[:1],
            changes,
            arguments,
        )
        new._given_start = self._given_start
        new._set_first = not_among(
            [*self.turns[0].interventions, *changes],
            new.config.interventions,
        )
        if tape is None:
            return new
        return record(new, tape)

    def _rehearse(
        self,
        player: Callable[[Question], object],
        *,
        within_s: float,
    ) -> None:
        """Begin the next turn on a copy of this run, to see what it asks first.

        Errors of the turn are ignored: they show when it is played.

        Args:
            player: answers everything that the turn asks.
            within_s: how long the turn may take.
        """
        trial = unrecorded_fork(self, self.turn_number, self.llm_client)
        trial.players = {"*": player}
        # In a thread with a loop of its own, since a loop may be running here.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, trial._rehearse_turn(within_s)).result()

    @classmethod
    def replay(
        cls,
        tape: Tapes,
        run: int | None = None,
        *,
        turns: int | None = None,
        **given: object,
    ) -> Self:
        """Play a recorded run again from the tape alone; no model is asked, nothing is written.

        The world's code runs again, the tape answers every call, and every turn is compared with
        the recorded one. The run that is returned equals the original to the last bit.

        On ``Run``, or as ``llmsim_lab.replay``, this plays a run of any class, which the tape
        names; on a class of your own, only a run of that class. The same holds for ``load``,
        ``resume`` and ``rerun``.

        Args:
            tape: the tape, or its file, which is opened for reading only.
            run: the run's number; the latest if not given.
            turns: the last turn to replay; the last recorded if not given.
            given: arguments of the run that no tape can hold, given again: ``players={...}``.

        Raises:
            TapeMiss: a call differs from the recorded ones; the message shows how.
            TapeError: a turn came out differently, or the tape cannot be read.
        """
        replaying = cls.areplay(
            tape,
            run,
            turns=turns,
            **given,
        )
        return run_sync(replaying)

    @classmethod
    async def areplay(
        cls,
        tape: Tapes,
        run: int | None = None,
        *,
        turns: int | None = None,
        **given: object,
    ) -> Self:
        """Do what ``replay`` does, in async code; a browser's Python has no threads to wait in."""
        # Read only, so that looking at runs does not change or lock the file. In a thread, here and
        # below, since a tape may be large and the loop has other work.
        tape = await in_thread(partial(_opened_to_read, tape))
        info = tape.run(run)
        wanted = info.turns if turns is None else turns
        last = whole_number(
            "turns",
            wanted,
            least=0,
            most=info.turns,
        )
        recorded = await in_thread(
            partial(
                _read_recorded,
                tape,
                info,
                cls,
                given,
            )
        )
        replayed = _run_to_replay(recorded)
        turns_of_parent = replayed.turns
        replayed.turns = turns_of_parent[: last + 1]
        replayed._session.turns_of_parent = turns_of_parent[last + 1 :]
        try:
            # Beyond ``done``, since the recorded run may have been stepped by hand after its end.
            await play_turns(
                replayed,
                last - replayed.turn_number,
                beyond_done=True,
            )
        except TapeError as error:
            changes = _code_changes(info, replayed)
            if changes:
                # The likeliest cause; the difference between the turns does not show it.
                words = str(error).removesuffix(".")
                raise type(error)(f"{words}. Note that {changes}") from error
            raise
        return replayed

    @classmethod
    def load(
        cls,
        tape: Tapes,
        run: int | None = None,
        **given: object,
    ) -> Self:
        """Return a recorded run to look at: its turns, frames and decisions; nothing is played.

        Args:
            tape: the tape, or its file, which is opened for reading only.
            run: the run's number; the latest if not given.
            given: as for ``replay``.
        """
        tape = _opened_to_read(tape)
        return recorded_run(
            tape,
            tape.run(run),
            cls,
            arguments=given,
        )

    @classmethod
    def resume(
        cls,
        tape: Tapes,
        run: int | None = None,
        *,
        llm_client: LLMClient | None = None,
        **given: object,
    ) -> Self:
        """Return a run ready to continue after its last whole turn, on the same tape.

        If a turn was broken off, its calls that have answers are not made again. ``run()`` plays as
        many more turns as the configuration says. To play only the rest of the run, call
        ``run(run.config.turns - run.turn_number)``.

        Args:
            tape: the tape, or its file.
            run: the run's number; the latest if not given.
            llm_client: the model, which must be the recorded one. All its settings count. A
                WARNING names those that differ from the recorded settings; the calls of a
                broken turn are then made again.
            given: as for ``replay``.

        Raises:
            ConfigError: a player is another one than was recorded.
            TapeError: another process is writing to the run, or the tape is read-only.
        """
        tape = existing_tape(tape)
        info = tape.run(run)
        resumed = _run_to_play_on(
            tape,
            info,
            cls,
            llm_client,
            given,
        )
        _check_same_players(tape, info, resumed)
        changes = _code_changes(info, resumed)
        if changes:
            _warn(
                "CODE_CHANGED",
                run=info.id,
                reason=(
                    f"{changes}, so the turns to come are played by other code than those before"
                ),
                way_out=f"rerun({str(tape.path)!r}, {info.id}) plays all of it anew",
            )
        # From here on the run writes. An error before this line leaves the tape as it is.
        resumed._session = Recording(tape, info.id)
        _warn_of_resumed(tape, info, resumed)
        return resumed

    @classmethod
    def rerun(
        cls,
        tape: Tapes,
        run: int | None = None,
        *,
        llm_client: LLMClient | None = None,
        to: str | Path | None = None,
        replicate: int | None = None,
        **given: object,
    ) -> Self:
        """Return a new run with a recorded one's configuration and prompts, at its first turn.

        All its calls will be fresh ones: it is another sample of the same run, and stands beside
        that on the tape. The interventions are made again.

        Args:
            tape: the tape, or its file.
            run: the run's number; the latest if not given.
            llm_client: the model; all its settings count.
            to: as for ``fork``.
            replicate: the sample's number, on which its seeds depend. If not given, one more than
                the highest on the tape; in a new file one at random, since no tape knows which
                other files have samples of the run. Give it where a script is to draw the same
                whenever it is run.
            given: as for ``replay``.

        Raises:
            ConfigError: as for ``fork``, or a run on the tape has this replicate.
        """
        tape = existing_tape(tape) if to is None else _opened_to_read(tape)
        info = tape.run(run)
        if replicate is not None:
            whole_number("replicate", replicate, least=0, most=MOST_REPLICATES - 1)
            if replicate in _replicates_on(tape):
                raise ConfigError(
                    f"replicate={replicate} is that of a run on {tape.path}, so the same would be "
                    "drawn again; give another number"
                )
        if to is not None:
            tape = tape.copy([info.id], to)
        recorded = _run_to_play_on(
            tape,
            info,
            cls,
            llm_client,
            given,
        )
        # A counterfactual that replaces no player has all that a rerun needs.
        new = recorded.counterfactual({})
        warn_of_recorded_settings(recorded_settings(info.manifest), new, "the rerun")
        # Else another process or thread could take the same number meanwhile.
        with tape.writing(), tape.journal.lock:
            # A new replicate has new seeds. With the same seeds a server could give the same
            # answers again, which are no second sample.
            if replicate is None and new.config.replicate is not None:
                replicate = max(_replicates_on(tape)) + 1
                if to is not None:
                    # Not the highest: a study adds to it.
                    replicate = secrets.randbelow(MOST_REPLICATES // 2)
            if replicate is not None:
                new.config = new.config.model_copy(update={"replicate": replicate})
            return record(
                new,
                tape,
                origin=RunOrigin("rerun", info.id),
            )

    # --- what is shown of it -----------------------------------------------------------------

    def page(self, path: str | Path) -> Path:
        """Write the run as one HTML page to give to others, and return its path.

        The page loads nothing and opens in any browser. It has the runs with what each fork
        changed, charts, turns, every call with its prompt and reply, decisions and the manifest,
        with search, filters and comparison. For a recorded run it has the whole family: the runs
        that it came from and all that came from those.

        Args:
            path: the file, which ends in ``.html``; an existing file is replaced.

        Raises:
            ConfigError: the file cannot be written.
            TapeError: the tape cannot be read.
        """
        if self.tape is not None:
            return page(
                self.tape,
                path,
                run=self.run_id,
            )
        reading = Reading(self.name)
        reading.add(about(self, 1), self)
        return write_page(path, reading, start=1)

    def manifest(self) -> dict[str, Any]:
        """Return what defines the run, JSON-ready: all that is needed to make the same run again.

        Keys: ``kind``, ``config``, ``seed``, ``prompts`` with their texts and digests, ``code``
        digests, ``model`` with its digest if that is known, and versions. ``prompts_read`` says, in
        words, what part of its prompts' tokens a server had to read anew.
        """
        tape = self.tape
        if tape is None:
            manifest = new_manifest(self)
            attempts: list[Attempt] = []
            for call in self.calls:
                attempts += call.history
        else:
            # A copy, since the caller may change it.
            manifest = plain(tape.run(self.run_id).manifest)
            attempts = [call.attempt for call in tape.calls(self.run_id or 0, forgotten=True)]
        words = str(prompts_read(attempts))
        if words:
            manifest["prompts_read"] = words
        return manifest

    def close(self) -> None:
        """Stop writing to the run's tape, so that others can; the run can still be looked at."""
        self._session.close()

    def __copy__(self) -> NoReturn:
        # It would have the same list of turns: what is played in one would be in the other.
        raise ConfigError(
            f"{self.name} cannot be copied, since both would play the same turns; run.fork() "
            "returns a run that continues from this one's turns"
        )

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> str | tuple[Any, ...]:
        # Called to pickle a run, and for a deep copy.
        if self.tape is None:
            return super().__reduce_ex__(protocol)
        raise ConfigError(
            f"{self.name} is on a tape, so it cannot be pickled or copied: only one writes there. "
            f"Give the tape: load({str(self.tape.path)!r}, {self.run_id}), resume(...), or fork it"
        )

    def __repr__(self) -> str:
        described = f"{type(self).__name__} {self.config.name!r}: turn {self.turn_number}"
        if self.unrecorded:
            return f"<{described}, NOT RECORDED: {self.unrecorded}>"
        return f"<{described}>"


def record(
    run: RunT,
    tape: Tapes,
    entries: Mapping[str, object] | None = None,
    *,
    origin: RunOrigin = ANEW,
) -> RunT:
    """Begin a run on a tape, with its latest turn; returns the run.

    Args:
        run: the run.
        tape: the tape. If the run is a fork, the turns before are on it already.
        entries: see ``new_manifest``.
        origin: how the run came about.
    """
    # Nothing is written yet: an error here leaves no run on the tape, and no new file.
    first = tape_turn(run, run.turns[-1], plan_writer())
    manifest = new_manifest(run, entries)
    tape = tape if isinstance(tape, Tape) else Tape(tape)
    number = tape.add_run(
        manifest,
        name=run.name,
        first=(first.number, first.body),
        texts=first.texts,
        verb=origin.verb,
        parent=origin.parent,
        fork_turn=origin.fork_turn,
    )
    run._session = Recording(tape, number)
    return run


def new_manifest(
    run: Run,
    entries: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """Return what defines a run; the session adds the model when it is first asked.

    Args:
        run: the run.
        entries: entries of a study's runs, which are added, or replace the run's own. One is the
            ``code``: all runs of a study share it, and other processes cannot read the code of a
            class from a notebook.
    """
    entries = entries or {}
    manifest: dict[str, Any] = {
        "kind": run.kind,
        "package": _version("llmsim-lab"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "seed": run.config.seed,
        "config": config_as_json(run.config),
        "prompts": entries_of(run.prompts),
        "code": entries.get("code") or run.code_digests,
        "given": [],
    }
    if run.given:
        manifest["given"] = ["players"]
        manifest["given_players"] = run._given_players
    if run._given_start is not None:
        # Turn 0 has also what is set in it before the first turn.
        manifest["given_state"] = loads(encoded(run._given_start, type(run).state_type))
    manifest |= settings_entries(run)
    # Filled in when the first turn begins: only then is the server asked which model it has.
    manifest["model"] = None
    return {**manifest, **entries}


def about(
    run: Run,
    number: int,
    origin: RunOrigin = ANEW,
) -> RunInfo:
    """Return what a tape would say of a run that is on no tape."""
    # Pages and windows show such runs too, and read all runs in this form.
    return RunInfo(
        id=number,
        name=run.name,
        verb=origin.verb,
        parent=origin.parent,
        fork_turn=origin.fork_turn,
        started="",
        turns=run.turn_number,
        calls=sum(call.attempts for call in run.calls),
        manifest=new_manifest(run),
    )


def anew(
    run: RunT,
    config: WorldConfig,
    client: LLMClient | None,
    players: Mapping[str, object] = MappingProxyType({}),
) -> RunT:
    """Return a run that begins anew with another configuration, recorded on the same tape.

    All else that the run was given stays: its players, its prompts, a start state of its own, and
    what was set in it before the first turn.

    Args:
        run: the run.
        config: the new run's configuration.
        client: the new run's model.
        players: new players; those that are not named stay.
    """
    arguments = {
        **_own_arguments(run),
        "players": {**run.players, **players},
        "llm_client": client,
        "prompts": run.prompts,
    }
    if run._given_start is not None:
        arguments["state"] = run._given_start
    new = type(run)(config, **arguments)
    for change in run._set_first:
        # Older tapes have some that set nothing, for no reason.
        if change.set or change.note:
            new.intervene(change.turn, change.set, note=change.note)
    return _beside(run, new)


def unrecorded_fork(
    run: RunT,
    at: int,
    client: LLMClient | None,
    prompts: Sequence[Prompt] = (),
) -> RunT:
    """Return a run that continues from one of a run's turns, on no tape; see ``Run.fork``."""
    arguments = {
        **_own_arguments(run),
        "players": run.players,
        "llm_client": client,
        "prompts": with_edits(run.prompts, prompts),
    }
    new = _continued_from(
        type(run),
        run.config,
        run.turns[: at + 1],
        # Also those that were made by then: a fork of the fork may play their turns again.
        run.planned,
        arguments,
    )
    new._given_start = run._given_start
    new._set_first = list(run._set_first)
    return new


def imagined(
    run: RunT,
    client: LLMClient | None,
    players: Mapping[str, object],
) -> RunT:
    """Return a copy of a run, for turns that are only imagined.

    The copy is on no tape, and only its players answer: a turn that asks a model by itself, or
    brings something from outside, raises ConfigError.

    Args:
        run: the run.
        client: the copy's model.
        players: the copy's players.
    """
    new = unrecorded_fork(run, run.turn_number, client)
    new.players = players
    new._session.recorder = Rehearsal()
    return new


def _beside(
    run: Run,
    new: RunT,
    origin: RunOrigin = ANEW,
) -> RunT:
    """Record a new run on another run's tape, if that tape may be written to."""
    if run.tape is not None and not run.tape.read_only:
        return record(new, run.tape, origin=origin)
    # The fork of an unrecorded run is unrecorded for the same reason.
    new.unrecorded = run.unrecorded
    if run.tape is not None:
        new.unrecorded = f"the tape {run.tape.path} is open for reading only"
        _warn("FORK_NOT_RECORDED", reason=new.unrecorded)
    return new


def _own_arguments(run: Run) -> dict[str, Any]:
    """Return the values of the arguments that only this run's class takes, as a chat's tools."""
    return {name: getattr(run, name) for name in own_argument_names(type(run))}


def unrecorded_arguments(run: Run) -> dict[str, Any]:
    """Return the arguments of a run that no tape holds, as ``resume`` takes them."""
    arguments = _own_arguments(run)
    if run.given:
        arguments["players"] = {seat: run.players[seat] for seat in run._given_players}
    return arguments


def _replicates_on(tape: Tape) -> set[int]:
    """Return the replicates on a tape: the first, and those that have one after them."""
    replicates = {0}
    for info in tape.runs():
        number = as_mapping(info.manifest.get("config")).get("replicate")
        # A damaged run may have anything there; the last number has none after it.
        if isinstance(number, int) and number < MOST_REPLICATES - 1:
            replicates.add(number)
    return replicates


# --- recorded runs of any class -------------------------------------------------------------------

# On ``Run`` itself these methods play a run of the class that the tape names; see _class_of.
replay = Run.replay
load = Run.load
resume = Run.resume
rerun = Run.rerun


def fork(
    tape: Tapes,
    run: int | None = None,
    *,
    turn: int | None = None,
    prompt: Prompt | Sequence[Prompt] = (),
    intervene: Mapping[str, object] | Iterable[Mapping[str, object]] = (),
    llm_client: LLMClient | None = None,
    to: str | Path | None = None,
    **given: object,
) -> Any:
    """Return a new run that continues from a turn of a recorded one, with something changed.

    The turns up to that one come from the tape. The turns after it are live, and are recorded on
    the same tape.

    Args:
        tape: the tape, or its file.
        run: the run's number; the latest if not given.
        turn: the turn to continue from; the run's last if not given.
        prompt: see ``Run.fork``.
        intervene: see ``Run.fork``.
        llm_client: the model; all its settings count.
        to: see ``Run.fork``.
        given: as for ``replay``.

    Raises:
        ConfigError: there is no such turn, or no part uses a prompt of that name.
    """
    tape = existing_tape(tape) if to is None else _opened_to_read(tape)
    info = tape.run(run)
    # Loaded only to be looked at: it is the fork that continues live, with the given client.
    recorded = recorded_run(
        tape,
        info,
        Run,
        llm_client=llm_client,
        arguments=given,
    )
    new = recorded.fork(
        turn,
        prompt=prompt,
        intervene=intervene,
        to=to,
    )
    # The settings at that turn: a resume may have changed them since.
    settings = recorded_settings(info.manifest, max(1, new.turn_number))
    warn_of_recorded_settings(settings, new, "the fork")
    return new


def page(
    tape: Tapes,
    path: str | Path,
    *,
    run: int | None = None,
) -> Path:
    """Write a tape's runs as one HTML page, as ``Run.page`` does; their classes need not be known.

    Args:
        tape: the tape, or its file, which is opened for reading only.
        path: the file, which ends in ``.html``; an existing file is replaced.
        run: the run to show first, with its family alone: the runs that it came from, and all that
            came from those. All runs if not given.
    """
    tape = _opened_to_read(tape)
    infos = tape.runs()
    start = tape.run(run)  # of an empty tape, this raises
    if run is not None:
        # A family is all runs that go back to the same first one.
        roots: dict[int | None, int] = {}
        for info in infos:
            # Parents come before their forks, so a parent's root is in ``roots`` already.
            roots[info.id] = roots.get(info.parent, info.id)
        infos = [info for info in infos if roots[info.id] == roots[start.id]]
    shown = runs_to_show(infos, start)
    reading = Reading(title_of(tape, shown, infos))
    read_into(reading, tape, shown)
    return write_page(path, reading, start=start.id)


def runs_to_show(infos: Sequence[RunInfo], start: RunInfo) -> Sequence[RunInfo]:
    """Return the runs of a tape that a page or window shows: the first ones, if there are too many.

    Args:
        infos: the runs, parents before their forks.
        start: the run to show first, which is among them with the runs that it came from.
    """
    if len(infos) <= _MOST_RUNS:
        return infos
    parents = {info.id: info.parent for info in infos}
    numbers: set[int] = set()
    number: int | None = start.id
    while number in parents and number not in numbers and len(numbers) < _MOST_RUNS:
        numbers.add(number)
        number = parents[number]
    others = (info.id for info in infos if info.id not in numbers)
    numbers.update(islice(others, _MOST_RUNS - len(numbers)))
    return [info for info in infos if info.id in numbers]


def title_of(
    tape: Tape,
    shown: Sequence[RunInfo],
    infos: Sequence[RunInfo],
) -> str:
    """Return the title above a tape's runs: the file's name, and how many runs are not shown."""
    if len(shown) == len(infos):
        return tape.path.name
    return (
        f"{tape.path.name}: {len(shown):,} of {len(infos):,} runs (run=, or --run, shows another)"
    )


def read_into(
    reading: Reading,
    tape: Tape,
    infos: Sequence[RunInfo],
    *,
    read: Callable[[Tape, RunInfo], Any] | None = None,
) -> None:
    """Add recorded runs to a reading, each with the turns that it played itself.

    The turns before a fork are its parent's, and are read there.

    Args:
        reading: the reading that is added to.
        tape: the tape.
        infos: the runs, parents before their forks.
        read: returns a whole run; ``run_on_tape`` if not given.
    """
    read = read or run_on_tape
    allowance = tape.allowance()
    room = RoomForRuns(tape)
    for info in infos:
        read_this = read
        turns = ALL_TURNS
        if info.fork_turn is not None:
            read_this = partial(run_on_tape, first=info.fork_turn)
            turns = TurnRange(first=info.fork_turn, last=ALL_TURNS.last)
        source = room.read(info, read_this, turns)
        calls = ((call.attempt, call.forgotten) for call in tape.calls(info.id, forgotten=True))
        reading.add(
            info,
            source,
            changes=tape.changes_in(info, allowance),
            calls=calls,
        )


class RoomForRuns:
    """Reads the runs of a tape to show them together, with their classes as long as that is cheap.

    On a tape, runs share their parameters, prompts and players. Each run's class makes them anew,
    so a small file with a thousand runs could take an hour.

    Args:
        tape: the tape.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        # At least this much, so that of small tapes all runs are made.
        self._left = _ROOM_FOR_RUNS + _ROOM_A_BYTE * tape.journal.index.end
        self._is_first = True

    def take(self, info: RunInfo) -> bool:
        """Return True if there is room for a run; there is always room for the first."""
        self._left -= sum(map(info.weight, info.manifest))
        has_room = self._left >= 0 or self._is_first
        self._is_first = False
        return has_room

    def read(
        self,
        info: RunInfo,
        read: Callable[[Tape, RunInfo], Any],
        turns: TurnRange = ALL_TURNS,
    ) -> Any:
        """Return a run, or a ``RecordedRun`` with some of its turns if no room is left for it.

        Args:
            info: the run.
            read: returns it with its class.
            turns: the turns to read without its class.
        """
        if self.take(info):
            return read(self._tape, info)
        return RecordedRun(
            self._tape,
            info,
            turns,
            why=(
                "the parameters of the runs before it are too long to make those of each run anew; "
                f"load({str(self._tape.path)!r}, {info.id}) makes this one"
            ),
        )


def run_on_tape(
    tape: Tape,
    info: RunInfo,
    *,
    first: int | None = None,
    last: int | None = None,
) -> Any:
    """Return a recorded run, or a ``RecordedRun`` if its class is not known or cannot read it.

    Args:
        tape: the tape.
        info: the run.
        first: the first turn to read, with its calls; the first of all if not given.
        last: the last turn to read.
    """
    turns = TurnRange(
        first=ALL_TURNS.first if first is None else first,
        last=ALL_TURNS.last if last is None else last,
    )
    try:
        run = recorded_run(
            tape,
            info,
            Run,
            turns=turns,
        )
    except LabError:
        # The class is not known here, or is another than it was.
        return RecordedRun(tape, info, turns)
    fault = _unreadable(run)
    if fault:
        return RecordedRun(
            tape,
            info,
            turns,
            why=f"its class, {info.manifest['kind']}, cannot read it: {fault}",
        )
    return run


def _unreadable(run: Run) -> str:
    """Return the error that a run's class raises on the recorded turns; empty if it raises none.

    A state may have the right types, and still be one that the class never makes.
    """
    try:
        for turn in run.turns:
            turn.columns()
        for item in (run.series, run.prediction(), run.last_planned):
            # Some of them are computed only when they are looked at.
            repr(item)
    except Exception as error:  # noqa: BLE001 - a class's own code raises anything
        return error_text(error)
    return ""


def recorded_run(
    tape: Tape,
    info: RunInfo,
    called_on: type[RunT],
    *,
    llm_client: LLMClient | None = None,
    arguments: Arguments = MappingProxyType({}),
    turns: TurnRange = ALL_TURNS,
) -> RunT:
    """Return a recorded run to look at.

    Args:
        tape: the tape.
        info: the run.
        called_on: its class, or ``Run``, for the class that the tape names.
        llm_client: the model; if not given, one that stands for the recorded model.
        arguments: arguments of the run that no tape can hold.
        turns: the turns to read.

    Raises:
        TapeError: the tape is damaged, or the run's class is another one, or not known.
        ConfigError: an argument is missing, or the class does not take it.
    """
    recorded = _read_recorded(
        tape,
        info,
        called_on,
        arguments,
        turns,
    )
    run = _restored(
        recorded,
        run_client(llm_client) or _recorded_client(info),
        recorded.records,
    )
    # No turn is played again, so none is compared: the session only names the tape.
    run._session = Replaying(tape, info.id, {})
    return run


def _run_to_replay(recorded: _RecordedLines[RunT]) -> RunT:
    """Return a recorded run at its first turn, or a fork at the turn that it continued from.

    Its session answers the later turns from the tape, and compares them.
    """
    info = recorded.info
    # The turns of a fork up to this one are its parent's. They are not played again.
    fork_turn = info.fork_turn or 0
    run = _restored(
        recorded,
        _recorded_client(info),
        [record for record in recorded.records if record["turn"] <= fork_turn],
    )
    run._session = Replaying(recorded.tape, info.id, recorded.lines)
    return run


def _run_to_play_on(
    tape: Tape,
    info: RunInfo,
    called_on: type[RunT],
    llm_client: LLMClient | None,
    arguments: Arguments,
) -> RunT:
    """Return a recorded run for live calls; it is on no tape yet."""
    recorded = _read_recorded(
        tape,
        info,
        called_on,
        arguments,
    )
    return _restored(recorded, run_client(llm_client), recorded.records)


class _RecordedLines(NamedTuple, Generic[RunT]):
    """A recorded run as it was read: its class, its turns' lines, and the arguments to add."""

    tape: Tape
    info: RunInfo
    cls: type[RunT]
    arguments: dict[str, Any]
    lines: Mapping[int, Record]

    @property
    def records(self) -> list[Record]:
        """The turns' records, first to last."""
        return [line["record"] for line in self.lines.values()]


def _read_recorded(
    tape: Tape,
    info: RunInfo,
    called_on: type[RunT],
    arguments: Arguments,
    turns: TurnRange = ALL_TURNS,
) -> _RecordedLines[RunT]:
    """Check a recorded run and its arguments, and read its turns; see ``recorded_run``."""
    # First, since everything else here reads the manifest.
    check_manifest(info, tape.path)
    cls = _class_of(info, called_on)
    given = {name: value for name, value in arguments.items() if value is not None}
    _check_arguments(
        tape,
        info,
        cls,
        given,
    )
    lines = tape.turn_lines(
        info.id,
        turns.first,
        turns.last,
    )
    return _RecordedLines(
        tape,
        info,
        cls,
        given,
        lines,
    )


def _restored(
    recorded: _RecordedLines[RunT],
    client: LLMClient | None,
    past_records: Sequence[Record],
) -> RunT:
    """Return a run with a recorded one's configuration, prompts, plans, and turns.

    Args:
        recorded: the recorded run.
        client: the new run's model.
        past_records: the turns that the new run has.

    Raises:
        TapeError: there are no such turns.
    """
    info = recorded.info
    past = load_turns(
        recorded.cls,
        recorded.tape,
        info.id,
        past_records,
    )
    if not past:
        raise TapeError(f"run {info.id} on the tape is damaged: it has no turn, not even its first")
    arguments = {
        **recorded.arguments,
        "llm_client": client,
        "prompts": prompts_of(info.manifest),
    }
    records = recorded.records
    plans = PlanReader(recorded.tape.journal)
    run = _continued_from(
        recorded.cls,
        config_of(info, recorded.cls),
        past,
        planned_in(records, plans),
        arguments,
    )
    # The first record is written again with each change until the first turn begins.
    first = records[0]
    run._set_first = not_among(
        interventions_of(first) + planned_after(first, plans),
        run.config.interventions,
    )
    if "given_state" in info.manifest:
        with checked(f"the given_state of run {info.id} on the tape is damaged"):
            given_state = dumps(info.manifest["given_state"]).encode()
            run._given_start = decoded(given_state, recorded.cls.state_type)
    return run


def _class_of(
    info: RunInfo,
    called_on: type[RunT],
) -> type[RunT]:
    """Return the class of a recorded run; ``called_on`` must be it, unless that is ``Run`` itself.

    Raises:
        TapeError: ``called_on`` is another class.
    """
    cls: type[RunT] = called_on
    if called_on is Run:
        cls = class_of_manifest(info.id, info.manifest)
    recorded = info.manifest["kind"]
    # Another class might even be able to read the states, as something else.
    if cls.kind != recorded:
        raise TapeError(
            f"run {info.id} on the tape is one of {recorded}, and {cls.__name__} is {cls.kind}; "
            f"where class or file was renamed, write kind = {recorded!r} in {cls.__name__}"
        )
    return cls


def _check_arguments(
    tape: Tape,
    info: RunInfo,
    cls: type[Run],
    arguments: Arguments,
) -> None:
    """Raise ConfigError for arguments that a recorded run does not take, or that are missing."""
    if "kind" in arguments:
        world = getattr(arguments["kind"], "__name__", cls.__name__)
        raise ConfigError(
            f"kind= is gone: call it on the class, replay as {world}.replay({str(tape.path)!r})"
        )
    allowed = ("players", *own_argument_names(cls))
    unknown = sorted(arguments.keys() - set(allowed))
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)}: a recorded {cls.__name__} takes only {', '.join(allowed)}; for "
            f"other parameters start a new run: {cls.__name__}({unknown[0]}=...)"
        )
    if info.manifest["given"] and "players" not in arguments:
        # On older tapes the manifest does not name them.
        seats = info.manifest.get("given_players", ())
        again = ", ".join(f"{seat!r}: ..." for seat in seats) or "..."
        raise ConfigError(
            f"run {info.id} was given players of its own, which no tape can hold (functions, "
            f"clients); pass the same again: players={{{again}}}"
        )


def _check_same_players(
    tape: Tape,
    info: RunInfo,
    resumed: Run,
) -> None:
    """Raise ConfigError if a resumed run has other players: no replay could repeat its turns."""
    manifest = info.manifest
    recorded = config_of(info, type(resumed)).players
    given_then = manifest.get("given_players", [])
    if manifest["given"] and not given_then:  # an older tape, which does not name them
        return
    now = resumed.config.players
    given_now = resumed._given_players
    for seat in {**recorded, **now, **dict.fromkeys([*given_then, *given_now])}:
        is_given_then = seat in given_then
        if recorded.get(seat) == now.get(seat) and is_given_then == (seat in given_now):
            continue
        then = "none was recorded"
        way_out = "leave it out"
        if is_given_then:
            then = "a function or client was recorded"
            way_out = "give the same again"
        elif seat in recorded:
            then = f"{recorded[seat]!r} was recorded"
        raise ConfigError(
            f"run {info.id} on {tape.path} keeps its players, and players= has another one for "
            f"{seat!r}, where {then}; {way_out}, or fork the run: fork({str(tape.path)!r}, "
            f"{info.id}, players={{{seat!r}: ...}})"
        )


def _recorded_client(info: RunInfo) -> LLMClient | None:
    """Return a client that stands for the recorded model; None if the run had no model."""
    settings = llm_config_of(info.manifest)
    if settings is None:
        return None
    return RecordedClient(settings)


def _continued_from(
    cls: type[RunT],
    config: WorldConfig,
    turns: Sequence[Turn],
    planned: Sequence[StateChange],
    arguments: Arguments,
) -> RunT:
    """Return a run that has turns already; it is on no tape.

    Args:
        cls: its class.
        config: its configuration.
        turns: its turns.
        planned: its interventions to come.
        arguments: the constructor's other arguments.
    """
    # Without interventions, so that the class's __init__ does not plan them again: the turns'
    # records say which were planned, and which were made while the run was played.
    unplanned = config.model_copy(update={"interventions": ()})
    run = cls(
        unplanned,
        state=turns[-1].state,
        **arguments,
    )
    # The class's __init__ has put the players' names into the configuration. The interventions are
    # put back, since a manifest has them.
    run.config = run.config.model_copy(update={"interventions": config.interventions})
    run.turns = list(turns)
    run._planned = tuple(planned)
    # That state is where it goes on, not where it began.
    run._given_start = None
    return run


def own_argument_names(cls: type[Run]) -> list[str]:
    """Return the names of the arguments that only this class's constructor takes."""
    # A class stores each in an attribute of the same name; see _own_arguments.
    common = inspect.signature(Run.__init__).parameters
    return [name for name in inspect.signature(cls.__init__).parameters if name not in common]


def _code_changes(info: RunInfo, run: Run) -> str:
    """Return which code of a run has changed since it was recorded, in words; empty for none."""
    # A damaged manifest may hold anything here.
    then = as_mapping(info.manifest.get("code"))
    now = run.code_digests
    changed = [name for name in now if then.get(name, now[name]) != now[name]]
    if not changed:
        return ""
    return f"{run.kind} has changed since it was recorded: its {', '.join(changed)}"


def _opened_to_read(tape: Tapes) -> Tape:
    return tape if isinstance(tape, Tape) else Tape(tape, read_only=True)


def existing_tape(tape: Tapes) -> Tape:
    """Return a tape to write on, which has to exist.

    Raises:
        TapeError: there is no such file.
    """
    if isinstance(tape, Tape):
        return tape
    # Opened for reading first: to write would make a new tape at a misspelt name.
    existing = Tape(tape, read_only=True)
    return Tape(existing.path)


def live_client(run: Run, given: LLMClient | None) -> LLMClient | None:
    """Return the given client, or the run's; None if that only stands for a recorded model."""
    client = run_client(given) or run.llm_client
    if isinstance(client, RecordedClient):
        return None
    return client


def _listed_prompts(
    prompts: Any,
    run_prompts: Mapping[str, Prompt],
) -> list[Prompt]:
    """Return one or several edited prompts as a list.

    Args:
        prompts: the argument ``prompt=``.
        run_prompts: the run's prompts, by their places.
    """
    edited = [prompts]
    if isinstance(prompts, Iterable) and not isinstance(prompts, str):
        # An iterator may have no end.
        edited = items_of("prompt", prompts, object, "an edited prompt, or a list of them")
    # A plain text would not say which prompt it replaces.
    if not all(isinstance(prompt, Prompt) for prompt in edited):
        raise ConfigError(
            f"prompt={brief(prompts)} is not an edited prompt; edit one of the run's: "
            f"run.prompts[...].edit('...'), of {', '.join(run_prompts)}"
        )
    return edited


def listed_interventions(
    intervene: Any,
    turn: int,
) -> list[Mapping[str, Any]]:
    """Return interventions as a list.

    Args:
        intervene: a list of interventions, or new values by name in the state of ``turn``.
        turn: the turn that the fork begins at.
    """
    if isinstance(intervene, Mapping) and not intervene:
        return []
    if isinstance(intervene, Mapping):
        return [{"turn": turn, "set": intervene}]
    items = [intervene]
    if isinstance(intervene, Iterable) and not isinstance(intervene, str):
        # An iterator may have no end.
        items = items_of("intervene", intervene, object, "a list of interventions")
    if not all(isinstance(item, Mapping) for item in items):
        raise ConfigError(
            f"intervene={brief(items, 120)} must be new values by name, {{'coins.Ann': 5}}, or a "
            "list of interventions, each a dict: intervene=[{'turn': 3, 'set': {...}}]"
        )
    for item in items:
        unknown = item.keys() - {"turn", "values", "set", "note"}
        if unknown or "turn" not in item:
            raise ConfigError(
                f"intervene={brief(item, 120)} must have the keys turn and set, and may have note: "
                "intervene=[{'turn': 3, 'set': {'coins.Ann': 5}}]"
            )
    return items


def warn_of_settings(
    before: LLMConfig,
    after: LLMConfig,
    run: str,
    seat: str = "",
) -> None:
    """Warn if a run's settings differ from those of the run that it comes from.

    Args:
        before: the recorded settings.
        after: the settings of the client that the new run was given.
        run: the new run, in words, such as ``the fork``.
        seat: the seat of the client; empty for the run's own model.
    """
    changed = changed_settings(before, after)
    if changed:
        of_seat = f" for {seat}" if seat else ""
        words = f"{run} is played with the given client's settings{of_seat}: {changed}"
        _warn(
            "SETTINGS_CHANGED",
            words=words,
            run=run,
            seat=seat or None,
            changed=changed,
        )


def warn_of_recorded_settings(
    recorded: Mapping[str, LLMConfig],
    run: Run,
    words: str,
) -> None:
    """Call ``warn_of_settings`` for each client of a run.

    Args:
        recorded: the recorded settings, by seat.
        run: the new run.
        words: the new run, in words.
    """
    for seat, client in clients_of(run).items():
        if seat in recorded:
            warn_of_settings(
                recorded[seat],
                client.config,
                words,
                seat,
            )


def _warn_of_resumed(
    tape: Tape,
    info: RunInfo,
    run: Run,
) -> None:
    """Warn if a resumed run has other settings, and if it has to make calls again for that."""
    recorded = recorded_settings(info.manifest)
    warn_of_recorded_settings(recorded, run, f"run {info.id} of {tape.path}")
    turn = info.turns + 1
    answers = len(tape.calls(info.id, turn=turn))
    if answers and _asks_otherwise(recorded, run):
        words = (
            f"turn {turn} was begun with the recorded settings ({counted(answers, 'answer')}) and "
            "is asked anew"
        )
        _warn(
            "ASKED_ANEW",
            words=words,
            run=info.id,
            turn=turn,
            answers=answers,
        )


def _asks_otherwise(recorded: Mapping[str, LLMConfig], run: Run) -> bool:
    """Return True if settings that may change an answer differ from the recorded ones."""
    clients = clients_of(run)
    for seat, settings in recorded.items():
        # The patience of a client, such as its timeout, changes no answer.
        if seat in clients and changed_settings(settings, clients[seat].config, leave_out=PATIENCE):
            return True
    return False
