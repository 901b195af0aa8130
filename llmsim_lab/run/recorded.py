"""A run: a state, and a function that makes the next one by asking models.

``Run`` is the base of all simulations; a world defines ``turn``. Tape, replay, forks, interventions
and frames are the same for all. It is three modules: the world, playing it, and here recorded runs.

What can be done with a recorded run of any class, each with one meaning: ``replay`` asks no model,
``resume`` continues where a run stopped, ``rerun`` begins anew with fresh calls, ``fork`` shares a
run's turns up to one and continues live, ``load`` only shows it. Which class plays the run, the
tape says.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from typing_extensions import TypeVar

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.jsontext import as_mapping, plain
from llmsim_lab._util.text import counted, error_text, log_event
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import ConfigError, LabError, TapeError
from llmsim_lab.llm import LLMClient, LLMConfig, Tape
from llmsim_lab.llm.client import run_client
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._kept import config_as_json
from llmsim_lab.run.config import StateChange, WorldConfig, by_name
from llmsim_lab.run.page import write_page
from llmsim_lab.run.plain_prompts import with_edits
from llmsim_lab.run.playing import PlayedWorld, play_turns
from llmsim_lab.run.question import Question
from llmsim_lab.run.reading import ALL_TURNS, Reading, RecordedRun, TurnRange
from llmsim_lab.run.records import (
    changed_settings,
    check_manifest,
    clients_of,
    config_of,
    entries_of,
    llm_config_of,
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
from llmsim_lab.tape.prompts_read import prompts_read
from llmsim_lab.tape.recorder import Rehearsal
from llmsim_lab.types import Attempt

_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)
# Cached, since it reads a file, and a study has a thousand runs.
_version = cache(version)

RunT = TypeVar("RunT", bound="Run")

Tapes = Tape | str | Path
"""A tape, or its file."""
Arguments = Mapping[str, Any]
"""What a constructor takes by keyword."""


class RunOrigin(NamedTuple):
    """How a run came about; see ``Tape.add_run``.

    Attributes:
        verb: what made it.
        parent: the number of the run that it came from.
        fork_turn: the last turn that a fork shares with it.
    """

    verb: Verb = "run"
    parent: int | None = None
    fork_turn: int | None = None


ANEW = RunOrigin()


class Run(PlayedWorld[StateT]):
    """The base of all simulations; a world of one's own derives from ``Run[ItsState]``.

    Its annotated fields are parameters, which are given by keyword, read from files and written on
    tapes; its ``async def turn(self, state, ask)`` returns the next state. ``start`` and ``done``
    may be defined as well, ``rule(self, question)``, which answers for players without a model, and
    ``prediction``, what theory says, for charts.

    What a turn leads to must follow from the turn before, the configuration's seed, what is done
    from outside and the model's answers, and from nothing else: so write no clock, and no state of
    your own that is not in the turns. Then replay, fork and resume come by themselves. A turn that
    fails changes nothing: the turns before it stay, and ``step`` may be called again.

    Args:
        config: what to run; made of the parameters if not given.
        llm_client: the model, where the configuration calls for one.
        players: who answers for a player, by name, instead of the model: ``"rule"``, ``"random"``,
            a function of the ``Question``, a person (``Person``), another client; ``*``
            stands for all others, and so does one alone: ``players="random"``.
        state: the state to start from, instead of ``start()``.
        tape: where to record the run: a tape, or a file that becomes or is one.
        prompts: prompts instead of the world's own, as a recorded run names them.
        parameters: the world's own, and ``name``, ``seed``, ``turns``, ``interventions``,
            ``rationale``, ``on_error``.

    Attributes:
        kind: the name of its class on tapes, such as ``pot:PublicGoods``.
        config_type: of its configuration, a pydantic model made of its parameters.
        state_type: of its states, which the class names: ``Run[ItsState]``.
        given: whether a player is something that no tape can hold, such as a function.
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
        # Here, and not where the tape is: a recorded run has its interventions in its turns.
        for item in self.config.interventions:
            self.intervene(
                item.turn,
                item.set,
                note=item.note,
            )
        if tape is not None:
            record(self, tape)

    @property
    def code_digests(self) -> dict[str, str]:
        """Digests of code that is not the package's and that the run depends on, by name."""
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

        The turns up to there are this run's, at no cost; those after are live. On a tape the fork
        is a run of its own that knows where it came from. Where the tape is open for reading only
        the fork lives in memory and is not recorded; a WARNING and its ``repr`` say so.

        Args:
            turn: the turn to continue from; the latest if not given.
            prompt: an edited prompt, or several; each takes the place of the one that it was edited
                from, else of those of its name.
            intervene: new values in the state of that turn, ``{"coins.Ann": 5}``; or a list of
                interventions, each a dict as ``intervene`` takes it: ``[{"turn": 3, ...}]``.
            llm_client: another model, or the same with other settings: all of them count; a
                replay's fork needs one.
            to: a new file to record on; what the fork comes from is copied to it, with its numbers.

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
            # Those of that turn, which a resume may have changed since.
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
        # After the rest, which is wrong with a model as well.
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
        """Return this run from its first state on, not yet played, with other players in it.

        Parameters, seed and prompts are the same, and what was set from outside so far is set
        again, whether it was planned or not: what differs is who decides.

        Args:
            players: as the class takes them, beside those that the run has; one alone is for all.
            llm_client: another model, for the seats that a model has.
            tape: where to record it.

        Example:
            ``by_rule = game.counterfactual({"Ann": "rule"})`` seats the rule in Ann's place, under
            the same shocks: ``by_rule.run()``.
        """
        replaced = by_name(players)
        # One alone is for all: nobody of this run's stays then.
        kept = self.players if isinstance(players, Mapping) else {}
        # Words in the configuration, for the manifest; the players themselves are below.
        words = {
            name: word
            for name, word in self.config.players.items()
            if name in kept and name not in replaced
        }
        config = self.config.model_copy(update={"players": words})
        changes: list[StateChange] = []
        for turn in self.turns[1:]:
            # What came in while the run was played was planned by nobody, and is set again too.
            changes += turn.interventions
        changes += [change for change in self.planned if change.turn > self.turn_number]
        if llm_client is not None and self.llm_client is not None:
            warn_of_settings(self.llm_client.config, llm_client.config, "the counterfactual")
        arguments = {
            **_own_arguments(self),
            "players": {**kept, **replaced},
            "llm_client": live_client(self, llm_client),
            "prompts": self.prompts,
        }
        new = _continued_from(
            type(self),
            config,
            self.turns[:1],
            changes,
            arguments,
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
        """Begin the next turn on trial, to see what it asks first; this run is not touched.

        A turn that cannot be played says so when it is played.

        Args:
            player: answers everything that the turn asks.
            within_s: how long the turn may take.
        """
        trial = unrecorded_fork(self, self.turn_number, self.llm_client)
        trial.players = {"*": player}
        # A loop and a thread for itself, since this may be called on any loop.
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

        The code runs as it did; every call is answered from the tape, and every turn is compared
        with the recorded one. What is returned equals the original run to the last bit.

        Called on ``Run``, or as ``llmsim_lab.replay``, it plays a run of any class, whose name the
        tape has; on a class of one's own, a run of that class. So do the three below.

        Args:
            tape: the tape, or its file, which is opened for reading only.
            run: the run's number; the latest if not given.
            turns: the last turn to replay; the last recorded if not given.
            given: what the run was given that no tape can hold, the same again: ``players={...}``.

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
        # Read only: looking at runs must not change or lock the file.
        tape = _opened_to_read(tape)
        info = tape.run(run)
        wanted = info.turns if turns is None else turns
        last = whole_number(
            "turns",
            wanted,
            least=0,
            most=info.turns,
        )
        # A fork's turns up to there are its parent's, which another run played: not again.
        replayed = recorded_run(
            tape,
            info,
            cls,
            arguments=given,
            replay_from=info.fork_turn or 0,
        )
        turns_of_parent = replayed.turns
        replayed.turns = turns_of_parent[: last + 1]
        replayed._session.turns_of_parent = turns_of_parent[last + 1 :]
        try:
            # Whatever ``done`` says: the recorded run may have been stepped on by hand.
            await play_turns(
                replayed,
                last - replayed.turn_number,
                beyond_done=True,
            )
        except TapeError as error:
            changes = _code_changes(info, replayed)
            if changes:
                # The likeliest cause, which the difference itself does not show.
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

        Calls that the broken turn had been answered are not made again. ``run()`` plays as many
        more turns as the configuration says; ``run(run.config.turns - run.turn_number)`` plays what
        is left.

        Args:
            tape: the tape, or its file.
            run: the run's number; the latest if not given.
            llm_client: the model, which must be the recorded one. Its settings count, all of them;
                a WARNING says which are not the recorded ones. What the broken turn had been
                answered with others is asked again.
            given: as for ``replay``.

        Raises:
            TapeError: another process is writing to the run, or the tape is read-only.
        """
        tape = existing_tape(tape)
        info = tape.run(run)
        resumed = recorded_run(
            tape,
            info,
            cls,
            llm_client=llm_client,
            arguments=given,
            is_live=True,
        )
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
        # Only now, since from here on the run writes: what is raised before leaves the tape as it
        # is.
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
        **given: object,
    ) -> Self:
        """Return a new run with a recorded one's configuration and prompts, at its first turn.

        All calls will be fresh ones: another sample of the same run, beside it on the tape. What
        was set from outside is set again.

        Args:
            tape: the tape, or its file.
            run: the run's number; the latest if not given.
            llm_client: the model; its settings count, all of them.
            to: as for ``fork``.
            given: as for ``replay``.
        """
        tape = existing_tape(tape) if to is None else _opened_to_read(tape)
        info = tape.run(run)
        if to is not None:
            tape = tape.copy([info.id], to)
        recorded = recorded_run(
            tape,
            info,
            cls,
            llm_client=llm_client,
            arguments=given,
            is_live=True,
        )
        # A counterfactual in which nobody is replaced: from the first state on, with the same
        # players and what was set from outside.
        new = recorded.counterfactual({})
        warn_of_recorded_settings(recorded_settings(info.manifest), new, "the rerun")
        if new.config.replicate is not None:
            # Else a server that keeps to its seeds would give the same answers: not a sample.
            configs = [other.manifest["config"] for other in tape.runs()]
            used = max(config.get("replicate") or 0 for config in configs)
            new.config = new.config.model_copy(update={"replicate": used + 1})
        return record(
            new,
            tape,
            origin=RunOrigin("rerun", info.id),
        )

    # --- what is shown of it -----------------------------------------------------------------

    def page(self, path: str | Path) -> Path:
        """Write the run as one HTML page for others, and return its path.

        The page loads nothing, and is read in any browser: the runs with what each fork changed,
        charts, turns, every call with its prompt and reply, decisions, the manifest; with search,
        filters and comparison. Of a recorded run it has the whole family: the runs that it came
        from and all that came from those.

        Args:
            path: the file, which ends in ``.html``; one that is there is replaced.

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
        """Return what defines the run, JSON-ready: what it takes to make the same one again.

        Keys: ``kind``, ``config``, ``seed``, ``prompts`` with their texts and digests, ``code``
        digests, ``model`` with its digest where it is known, and versions. One more says what came
        of it: ``prompts_read``, how much of its prompts' tokens a server read anew, in words.
        """
        tape = self.tape
        if tape is None:
            manifest = new_manifest(self)
            attempts: list[Attempt] = []
            for call in self.calls:
                attempts += call.history
        else:
            # A copy: the tape's own may not be changed.
            manifest = plain(tape.run(self.run_id).manifest)
            attempts = [call.attempt for call in tape.calls(self.run_id or 0, forgotten=True)]
        words = str(prompts_read(attempts))
        if words:
            manifest["prompts_read"] = words
        return manifest

    def close(self) -> None:
        """Let others write to this run on its tape; the run can still be looked at."""
        self._session.close()

    def __repr__(self) -> str:
        described = f"{type(self).__name__} {self.config.name!r}: turn {self.turn_number}"
        if self.unrecorded:
            return f"<{described}, NOT RECORDED: {self.unrecorded}>"
        return f"<{described}>"


def record(
    run: RunT,
    tape: Tapes,
    known: Mapping[str, object] | None = None,
    *,
    origin: RunOrigin = ANEW,
) -> RunT:
    """Begin a run on a tape, with its latest turn; returns the run.

    Args:
        run: the run.
        tape: the tape, which has the turns before where the run is a fork.
        known: parts of the manifest that are known already, or that a study adds: its runs share
            the code, and where a class came from a notebook only the notebook knows it.
        origin: how it came about.
    """
    # Before anything is written: what raises here leaves no run on the tape, and no new file.
    first = tape_turn(run, run.turns[-1])
    manifest = new_manifest(run, known)
    tape = tape if isinstance(tape, Tape) else Tape(tape)
    number = tape.add_run(
        manifest,
        name=run.name,
        first=first,
        verb=origin.verb,
        parent=origin.parent,
        fork_turn=origin.fork_turn,
    )
    run._session = Recording(tape, number)
    return run


def new_manifest(
    run: Run,
    known: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """Return what defines a run; which model answers is added when it is first asked."""
    shared = known or {}
    manifest: dict[str, Any] = {
        "kind": run.kind,
        "package": _version("llmsim-lab"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "seed": run.config.seed,
        "config": config_as_json(run.config),
        "prompts": entries_of(run.prompts),
        "code": shared.get("code") or run.code_digests,
        "given": [],
    }
    if run.given:
        manifest["given"] = ["players"]
        manifest["given_players"] = run._given_players
    manifest |= settings_entries(run)
    # Filled in when the first turn begins: a server says which model it has when it is asked.
    manifest["model"] = None
    return {**manifest, **shared}


def about(
    run: Run,
    number: int,
    origin: RunOrigin = ANEW,
) -> RunInfo:
    """Return what a tape would say of a run, if it were on one."""
    # Pages and windows show runs on no tape too, and read one form alone.
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
    run: Run,
    config: WorldConfig,
    client: LLMClient | None,
) -> Run:
    """Return a run that begins anew with another configuration, recorded on the same tape."""
    arguments = {**_own_arguments(run), "players": run.players}
    new = type(run)(
        config,
        llm_client=client,
        prompts=run.prompts,
        **arguments,
    )
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
    # What was done up to there is in the turns themselves.
    planned = [change for change in run.planned if change.turn > at]
    return _continued_from(
        type(run),
        run.config,
        run.turns[: at + 1],
        planned,
        arguments,
    )


def imagined(
    run: RunT,
    client: LLMClient | None,
    players: Mapping[str, object],
) -> RunT:
    """Return a run like another's, for turns that are only thought of: its players alone answer.

    It is on no tape. Where a turn asks a model by itself, or brings something from outside, it
    raises ConfigError.
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
    """Begin a run on another's tape, as ``record`` does, where that may be written to."""
    if run.tape is not None and not run.tape.read_only:
        return record(new, run.tape, origin=origin)
    # A fork of a run that is not recorded is not recorded for the same reason.
    new.unrecorded = run.unrecorded
    if run.tape is not None:
        new.unrecorded = f"the tape {run.tape.path} is open for reading only"
        _warn("FORK_NOT_RECORDED", reason=new.unrecorded)
    return new


def _own_arguments(run: Run) -> dict[str, Any]:
    """Return what a run like this one is given by its class's own arguments, as a chat's tools."""
    return {name: getattr(run, name) for name in own_argument_names(type(run))}


# --- recorded runs of any class -------------------------------------------------------------------

# Of ``Run`` itself these play a run of whichever class the tape names; see _class_of.
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

    The turns up to there come from the tape; those after are live and recorded beside them.

    Args:
        tape: the tape, or its file.
        run: the run's number; the latest if not given.
        turn: the turn to continue from; the run's last if not given.
        prompt: see ``Run.fork``.
        intervene: see ``Run.fork``.
        llm_client: the model; its settings count, all of them.
        to: a new file to record on; what the new run comes from is copied to it, with its numbers.
        given: as for ``replay``.

    Raises:
        ConfigError: there is no such turn, or no part uses a prompt of that name.
    """
    tape = existing_tape(tape) if to is None else _opened_to_read(tape)
    info = tape.run(run)
    # To look at: its own fork is what goes on live, with the client that is given.
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
    # Those of the turn that it continues, which a resume may have changed since.
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
        path: the file, which ends in ``.html``; one that is there is replaced.
        run: only this run, those that it came from, and all that came from those; it is shown
            first. All runs if not given.
    """
    tape = _opened_to_read(tape)
    infos = tape.runs()
    start = tape.run(run)  # before the runs are asked for, for what it says of an empty tape
    if run is not None:
        # The family of a run is all runs that go back to the same first one.
        roots: dict[int | None, int] = {}
        for info in infos:
            # Runs come after their parents, so that a parent's root is known here.
            roots[info.id] = roots.get(info.parent, info.id)
        infos = [info for info in infos if roots[info.id] == roots[start.id]]
    reading = Reading(tape.path.name)
    read_into(reading, tape, infos)
    return write_page(path, reading, start=start.id)


def read_into(
    reading: Reading,
    tape: Tape,
    infos: Sequence[RunInfo],
) -> None:
    """Add recorded runs to a reading: of each what it played itself, since the rest is another's.

    Args:
        reading: the log.
        tape: the tape.
        infos: the runs, each after those that it came from.
    """
    allowance = tape.allowance()
    for info in infos:
        source = run_on_tape(
            tape,
            info,
            first=info.fork_turn,
        )
        calls = ((call.attempt, call.forgotten) for call in tape.calls(info.id, forgotten=True))
        reading.add(
            info,
            source,
            changes=tape.changes(info.id, allowance),
            calls=calls,
        )


def run_on_tape(
    tape: Tape,
    info: RunInfo,
    *,
    first: int | None = None,
    last: int | None = None,
) -> Any:
    """Return a recorded run; what every tape tells of it where its class is not known.

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
            why=fault,
        )
    return run


def _unreadable(run: Run) -> str:
    """Return why a run's class fails on what is recorded, in words; empty if it does not.

    A state may be of the right types and still not be one that the class has.
    """
    try:
        for turn in run.turns:
            turn.columns()
        for item in (run.series, run.prediction(), run.last_planned):
            # Some are computed when they are looked at.
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
    is_live: bool = False,
    replay_from: int | None = None,
    turns: TurnRange = ALL_TURNS,
) -> RunT:
    """Return a run with a recorded one's configuration, prompts, settings and turns.

    Args:
        tape: the tape.
        info: the run.
        called_on: its class, or ``Run``, for the class that the tape names.
        llm_client: the model; if none is given, one that stands for the recorded model.
        arguments: what the run was given that no tape can hold.
        is_live: whether live calls are to come; the run is on no tape yet then. Any other run is
            only to be looked at, or to be played again.
        replay_from: the last turn that is not to be played again; all are only looked at if not
            given.
        turns: which to read.

    Raises:
        TapeError: the tape is damaged, or its class is another one, or not known.
        ConfigError: an argument is missing, or not one of the class's.
    """
    # First, since all that follows reads it.
    check_manifest(info, tape.path)
    cls = _class_of(info, called_on)
    settings = {name: value for name, value in arguments.items() if value is not None}
    _check_arguments(
        tape,
        info,
        cls,
        settings,
    )
    lines = tape.turn_lines(
        info.id,
        turns.first,
        turns.last,
    )
    records = [line["record"] for line in lines.values()]
    # What is played again is not loaded: it comes out of playing.
    past_records = records
    if replay_from is not None:
        past_records = [record for record in records if record["turn"] <= replay_from]
    past = load_turns(
        cls,
        tape,
        info.id,
        past_records,
    )
    if not past:
        raise TapeError(f"run {info.id} on the tape is damaged: it has no turn, not even its first")
    settings["llm_client"] = _client_for(
        info,
        llm_client,
        is_live=is_live,
    )
    settings["prompts"] = prompts_of(info.manifest)
    run = _continued_from(
        cls,
        config_of(info, cls),
        past,
        planned_in(records),
        settings,
    )
    if not is_live:
        # Where no turn is played again there is none to compare, only a tape to name.
        played_again = {} if replay_from is None else lines
        run._session = Replaying(tape, info.id, played_again)
    return run


def _class_of(
    info: RunInfo,
    called_on: type[RunT],
) -> type[RunT]:
    """Return the class of a recorded run, which is ``called_on`` where that is not ``Run`` itself.

    Raises:
        TapeError: it is another one.
    """
    cls: type[RunT] = called_on
    if called_on is Run:
        cls = class_of_manifest(info.id, info.manifest)
    recorded = info.manifest["kind"]
    # Another class would read the states as its own, and might even succeed.
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
    """Raise ConfigError for what a recorded run cannot be given, or has to be given again."""
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
        # Tapes from before manifests named them have none.
        seats = info.manifest.get("given_players", ())
        again = ", ".join(f"{seat!r}: ..." for seat in seats) or "..."
        raise ConfigError(
            f"run {info.id} was given players of its own, which no tape can hold (functions, "
            f"clients); pass the same again: players={{{again}}}"
        )


def _client_for(
    info: RunInfo,
    given: LLMClient | None,
    *,
    is_live: bool,
) -> LLMClient | None:
    """Return the given client, whose settings count.

    Where none is given, one that stands for the recorded model, unless live calls are to come.
    """
    client = run_client(given)
    if client is not None or is_live:
        return client
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
    """Return a run with turns that were played, and of what no configuration holds; on no tape."""
    # Interventions are not planned anew by the class's __init__: the turns' records say which were
    # planned, and which came in while the run was played.
    unplanned = config.model_copy(update={"interventions": ()})
    run = cls(
        unplanned,
        state=turns[-1].state,
        **arguments,
    )
    # The run's own configuration, which names the players that were given; with the interventions
    # again, as a manifest has them.
    run.config = run.config.model_copy(update={"interventions": config.interventions})
    run.turns = list(turns)
    run.planned = planned
    return run


def own_argument_names(cls: type[Run]) -> list[str]:
    """Return the names of what a class's constructor takes and no other does: a chat's tools."""
    # By their names, since a class stores each in an attribute of that name; see _own_arguments.
    common = inspect.signature(Run.__init__).parameters
    return [name for name in inspect.signature(cls.__init__).parameters if name not in common]


def _code_changes(info: RunInfo, run: Run) -> str:
    """Return what of a run's own code is not as it was recorded; empty where nothing is."""
    # Of a damaged manifest this may be anything.
    then = as_mapping(info.manifest.get("code"))
    now = run.code_digests
    changed = [name for name in now if then.get(name, now[name]) != now[name]]
    if not changed:
        return ""
    return f"{run.kind} has changed since it was recorded: its {', '.join(changed)}"


def _opened_to_read(tape: Tapes) -> Tape:
    return tape if isinstance(tape, Tape) else Tape(tape, read_only=True)


def existing_tape(tape: Tapes) -> Tape:
    """Return a tape to write on; one that is not there is an error, not a new one.

    Raises:
        TapeError: there is no such file.
    """
    if isinstance(tape, Tape):
        return tape
    # Opened to read first: else a tape would be made at a misspelt name.
    existing = Tape(tape, read_only=True)
    return Tape(existing.path)


def live_client(run: Run, given: LLMClient | None) -> LLMClient | None:
    """Return the given client, or else the run's; a recorded run's answers nothing that is new."""
    client = run_client(given) or run.llm_client
    if isinstance(client, RecordedClient):
        return None
    return client


def _listed_prompts(
    prompts: Any,
    known: Mapping[str, Prompt],
) -> list[Prompt]:
    """Return several edited prompts as a list.

    Args:
        prompts: what was given.
        known: the run's prompts, by their places.
    """
    edited = list(prompts) if isinstance(prompts, Iterable) else [prompts]
    # A text in place of a prompt would not say which prompt it edits.
    if not all(isinstance(prompt, Prompt) for prompt in edited):
        raise ConfigError(
            f"prompt={prompts!r:.60} is not an edited prompt; edit one of the run's: "
            f"run.prompts[...].edit('...'), of {', '.join(known)}"
        )
    return edited


def listed_interventions(
    intervene: Any,
    turn: int,
) -> list[Mapping[str, Any]]:
    """Return interventions as a list.

    Args:
        intervene: a list of them, or new values by name in the state that the fork begins at.
        turn: the one that the fork begins at.
    """
    if isinstance(intervene, Mapping) and not intervene:
        return []
    if isinstance(intervene, Mapping):
        return [{"turn": turn, "set": intervene}]
    items = list(intervene) if isinstance(intervene, Iterable) else [intervene]
    if not all(isinstance(item, Mapping) for item in items):
        raise ConfigError(
            f"intervene={items!r:.120} must be new values by name, {{'coins.Ann': 5}}, or a list "
            "of interventions, each a dict: intervene=[{'turn': 3, 'set': {...}}]"
        )
    return items


def warn_of_settings(
    before: LLMConfig,
    after: LLMConfig,
    run: str,
    seat: str = "",
) -> None:
    """Warn where a run is played with other settings than the one that it comes from.

    Args:
        before: the recorded ones.
        after: those of the client that it was given.
        run: what is played, in words, such as ``the fork``.
        seat: whose client it is; empty for the run's own model.
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
    """Do what ``warn_of_settings`` does for each client of a run.

    Args:
        recorded: the run's recorded settings, by seat.
        run: the run.
        words: what is played.
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
    """Warn where a resumed run has other settings, and of answers that it cannot use then."""
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
    """Return True where other settings than the recorded ones may change an answer."""
    clients = clients_of(run)
    for seat, settings in recorded.items():
        # How long is waited changes no answer.
        if seat in clients and changed_settings(settings, clients[seat].config, leave_out=PATIENCE):
            return True
    return False
