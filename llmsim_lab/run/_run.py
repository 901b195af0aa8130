"""A run: a state, and a function that makes the next one by asking models.

``Run`` is the base of all simulations; a world defines ``turn``. Tape, replay, forks, interventions
and frames are the same for all.

What can be done with a recorded run of any class, each with one meaning: ``replay`` asks no model,
``resume`` continues where a run stopped, ``rerun`` begins anew with fresh calls, ``fork`` shares a
run's turns up to one and continues live, ``load`` only shows it. Which class plays the run, the
tape says.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, cast, get_args

from pydantic import ValidationError
from typing_extensions import TypeVar

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.config import YamlFile
from llmsim_lab._util.frozen import FrozenDict
from llmsim_lab._util.jsontext import as_mapping, plain
from llmsim_lab._util.text import closest, counted, error_text, faults, log_as_asked, log_event
from llmsim_lab._util.waiting import Listeners, explain, run_sync
from llmsim_lab.errors import BudgetReached, ConfigError, LabError, LLMFailureException, TapeError
from llmsim_lab.llm import LLMClient, LLMConfig, Person, Tape
from llmsim_lab.llm._client import run_client
from llmsim_lab.llm._human import human_client
from llmsim_lab.llm._scope import Budget, CallLog, Purse, scope, scoped
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._ask import Ask, prompt_for
from llmsim_lab.run._config import (
    Parameter,
    PlayerWord,
    StateChange,
    WorldConfig,
    by_name,
    config_type_of,
    state_type_of,
)
from llmsim_lab.run._kept import config_as_json, kept_config, kept_state
from llmsim_lab.run._page import write_page
from llmsim_lab.run._plain_prompts import PLAIN, with_edits
from llmsim_lab.run._progress import progress_line
from llmsim_lab.run._reading import Reading, RecordedRun
from llmsim_lab.run._records import (
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
from llmsim_lab.run._registry import (
    class_of_manifest,
    code_digests,
    identity,
    is_shipped,
    register,
)
from llmsim_lab.run._session import (
    RecordedClient,
    Recording,
    Replaying,
    Session,
    load_turns,
)
from llmsim_lab.run._state import State, changed_at, values_in
from llmsim_lab.run._terminal import ask_people_here
from llmsim_lab.run._turn import (
    Series,
    Turn,
    decisions_frame,
    own_numbers,
    plain_series,
    turn_row,
)
from llmsim_lab.tape import RunInfo
from llmsim_lab.tape._changes import PATIENCE
from llmsim_lab.tape._prompts_read import prompts_read
from llmsim_lab.tape._recorder import Known, Unrecorded
from llmsim_lab.types import CallRecord

if TYPE_CHECKING:
    import pandas as pd

_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)
_version = cache(version)  # which reads a file, and a study has a thousand runs

StateT = TypeVar("StateT", default=Any)
RunT = TypeVar("RunT", bound="Run")

Tapes = Tape | str | Path
AnyRun = Any
"""A run of any class."""
Given = Mapping[str, Any]
"""What a constructor takes by keyword."""

_SET_IN_A_TURN = ("turns", "planned", "unrecorded", "llm_client")
"""What others may set of a run while it plays a turn."""


class Run(Generic[StateT]):
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

    kind: ClassVar[str] = ""
    config_type: ClassVar[type[Any]] = WorldConfig
    state_type: ClassVar[Any] = State
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Other defaults of the parameters that every run has: ``{"turns": 6}``."""
    gone: ClassVar[Mapping[str, str]] = {}
    """What to write in place of parameters that there were: sentences by their names."""
    name = Parameter("name", "run")
    seed = Parameter("seed", 0)
    _player: object = None
    """Set on a run while it is played."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "state_type" not in cls.__dict__ and (named := state_type_of(cls, Run)) is not None:
            cls.state_type = named
        if "config_type" not in cls.__dict__:
            cls.config_type = config_type_of(cls, Run)
        # With its parameter left open it is a base of worlds, which knows no state yet.
        if cls.turn is not Run.turn and not cls.__parameters__:  # type: ignore[attr-defined]
            _check_world(cls)
            if "kind" not in cls.__dict__:
                cls.kind = identity(cls)
        if "kind" in cls.__dict__:
            register(cls.kind, cls)

    def __init__(
        self,
        config: Any = None,
        *,
        llm_client: LLMClient | None = None,
        players: Any = None,
        state: StateT | None = None,
        tape: Tape | str | Path | None = None,
        prompts: Mapping[str, Prompt] | None = None,
        **parameters: Any,
    ) -> None:
        self._prompts: dict[str, Prompt] = dict(prompts or {})
        self._sources: dict[Any, tuple[Prompt | str, bool]] = {}
        self._edit: Any = None  # a study's, of what is first asked
        self._text_edits = any(f"{PLAIN}:" in place for place in self._prompts)
        self._varied: set[str] = set()  # places of prompts whose edit stands in for several texts
        self._seats: dict[str, None] = {}
        self._quiet = False  # in a study, which has warned of the same thing in an earlier run
        self._session = Session()
        self._listeners = Listeners()
        self._stepping = False  # while a turn is played: no second one, and no change under it
        self._purse: Purse | None = None
        self._told_to_reach = 0
        self._compared: set[tuple[object, ...]] = set()  # questions whose prompts were compared
        self._order_told = False  # whether their order was warned of
        self._log: CallLog | None = None  # of the turn that is played, or that failed
        self._stood_in = Counter[str]()  # how often a stand-in answered, by who did not
        self.unrecorded = ""
        """Why a run that one would expect to be recorded is not; empty if it is as asked."""
        self.planned: Sequence[StateChange] = ()
        """What was or is to be done from outside, as far as it was planned."""
        players = {} if players is None else by_name(players)
        configured = _configured(type(self), config, parameters, players)
        self.config: Any = kept_config(configured, type(self).__name__)
        log_as_asked()
        self.llm_client = run_client(llm_client)
        if state is None and self.llm_client is not None:  # else it comes from another run
            _tell_unused(self.config, self.llm_client)
        seated, self._given_players = _seated(self, players)
        self.given = bool(self._given_players)
        self.players: Mapping[str, Any] = FrozenDict(seated)
        self.ready()
        start = checked_state(self, self.start() if state is None else state, "starts from")
        self.turns: list[Turn] = [Turn(number=0, state=start)]
        for item in self.config.interventions:
            self.intervene(item.turn, item.set, note=item.note)
        if tape is not None:
            record(self, tape)

    def __setattr__(self, name: str, value: Any) -> None:
        if name[:1] != "_" and _is_parameter(type(self), name):
            way_out = f"make another run: {type(self).__name__}({name}={value!r:.40})"
            raise ConfigError(f"{name} is a parameter, which a run keeps to its end; {way_out}")
        # A turn that remembers something outside the state would come out otherwise in a resume.
        if self.__dict__.get("_stepping") and name not in _SET_IN_A_TURN and name[:1] != "_":
            if self._player is not scope().player:
                raise ConfigError(
                    f"{name} is set while a turn of {type(self).__name__} is played; wait until it "
                    "has ended"
                )
            what = f"{type(self).__name__}.turn sets self.{name}, which is on no tape"
            way_out = f"make it a field of the state: return state.replace({name}=...)"
            raise ConfigError(f"{what}, so that a resumed run would lack it; {way_out}")
        if name == "config":
            own = [it for it in type(value).model_fields if _is_parameter(type(self), it)]
            self.__dict__.update({it: getattr(value, it) for it in own})
        super().__setattr__(name, value)

    @classmethod
    def _parameters_in(cls, file: YamlFile) -> Mapping[str, Any]:
        """Return the parameters that a file means; by default its keys, ``kind`` left out."""
        return file.values

    def seat(self, name: str, *, by: str = "", tag: str = "") -> Any:
        """Return who answers a question: a client, a rule, or ``"random"``.

        Who has a seat of that name; else of that kind of question; else of ``*``; else the model.

        Args:
            name: the player that the question names.
            by: who answers in its place, if not the player itself.
            tag: what kind of question it is.

        Raises:
            ConfigError: there is no player for it.
        """
        name, players = by or name, self.players
        self._seats[name] = None
        if tag and name not in players:
            self._seats[tag] = None
        if name in players:
            seat = name
        elif tag in players:
            seat = tag
        else:
            seat = "*"
        who = players.get(seat, "model")
        if who == "rule":
            return getattr(self, "rule")  # noqa: B009 - a world need not have one
        if who != "model":
            return self._session.seated(seat, who)
        if self.llm_client is None:
            cls = type(self).__name__
            seats = f" (there are players for {', '.join(players)})" if players else ""
            raise ConfigError(
                f"no one answers for {name}{seats}{closest(name, players)}: give the run a model, "
                f"{cls}(llm_client=connect('auto')), or other players: "
                f"{cls}(players={{'*': 'random'}})"
            )
        return self.llm_client

    def prompt(self, source: str | Prompt) -> Prompt:
        """Return a prompt for a text that code builds, or the one that a fork put in its place.

        Args:
            source: a prompt, or the name of one that comes with the package.

        Raises:
            PromptError: there is no prompt of that name.
        """
        if isinstance(source, str) and (source, "", None, "") not in self._sources:
            # A recorded run keeps the prompts that it had, whatever the package's files say today.
            kept = [it for place, it in self._prompts.items() if place.partition("#")[0] == source]
            found = (kept[0], False) if kept else prompt_for(self, Prompt.load(source), None)
            self._sources[source, "", None, ""] = found
        return cast("Prompt", prompt_for(self, source, None)[0])

    # --- what a class may do differently -----------------------------------------------------

    @classmethod
    def measures(cls, config: Any) -> Mapping[str, Callable[[pd.DataFrame], float]]:
        """Return what sums up a whole run in a number, by name: a function of its frame each.

        A study takes them by name as its outcomes, such as ``loss`` of economic runs. None by
        default.
        """
        return {}

    async def turn(self, state: StateT, ask: Ask) -> StateT:
        """Return the state that comes next: what a world of one's own defines.

        It may ask models, and draw from ``ask.rng``; all else must follow from the state and the
        parameters.

        Args:
            state: the state before the turn.
            ask: asks players: ``await ask("Ann", Gift, "...")``, ``await ask.each(...)``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no async def turn(self, state, ask)")

    def ready(self) -> None:
        """Make what follows from the parameters alone, in attributes that begin with ``_``.

        It is called before ``start``; by default it does nothing.
        """

    def changed(self, state: StateT, values: Mapping[str, Any]) -> StateT:
        """Return a state with values that are set from outside, such as ``{"coins.Ann": 5}``.

        By default each sets what its name names. A world where more follows from it, or that knows
        other names, says so here, and hands the rest on to this method.

        Args:
            state: the state.
            values: by name.

        Raises:
            ConfigError: there is no such name, or a value is not one for it.
        """
        for name, value in values.items():
            first = name.partition(".")[0]
            is_value = name in values_in(cast("State", state))
            of_every_run = first in WorldConfig.model_fields and not is_value
            of_this_world = _is_parameter(type(self), first)
            if first not in self.state_type.model_fields and (of_every_run or of_this_world):
                cls = type(self).__name__
                raise ConfigError(
                    f"{name} is a parameter of {cls}, which a run keeps to its end; make another "
                    f"run, {cls}({first}={value!r:.40}), or llmsim-lab run ... --set {name}=..., "
                    "or let start() copy it into the state"
                )
        return cast("StateT", changed_at(cast("State", state), values))

    def start(self) -> StateT:
        """Return the state to start from; by default each field of the state has its own default.

        Raises:
            ConfigError: a field has none.
        """
        try:
            return cast("StateT", self.state_type())
        except ValidationError as error:
            its = self.state_type.__name__
            what = f"{type(self).__name__} does not know its first state: {faults(error)}"
            way_out = f"give each field of {its} a default, or define def start(self) -> {its}"
            raise ConfigError(f"{what}; {way_out}") from error

    def _as_read(self, state: StateT) -> StateT:
        """Return a state as players and prompts read it; a world may hide some of it."""
        return state

    def _doubts(self) -> Sequence[Mapping[str, str]]:
        """Return what a WARNING says before the first turn is played, by field; by default none."""
        return ()

    def done(self, state: StateT) -> bool:
        """Return True if the run is over before its last turn."""
        return False

    def prediction(self) -> Mapping[str, float]:
        """Return what theory says of the parameters: a number for some columns of the frame.

        Charts draw each as a dashed line beside the run, and show these columns first.
        """
        return {}

    @property
    def prompts(self) -> dict[str, Prompt]:
        """The prompts in use, by their places; a world's own are known once they were asked.

        One without slots is called after its kind of question, ``gift`` or the question's tag, and
        the second such question to a player in a turn ``gift@2``; its text is the first that was
        asked.

        ``run.prompts |= {place: prompt}`` asks with another one, in a run that is on no tape yet,
        or a replay; otherwise ``fork(prompt=)`` does.
        """
        return dict(self._prompts)

    @prompts.setter
    def prompts(self, prompts: Mapping[str, Prompt]) -> None:
        if isinstance(self._session, Recording):  # a replay would ask with those on the tape
            raise ConfigError("a run on a tape keeps its prompts; fork it: run.fork(prompt=...)")
        self._prompts = dict(prompts)
        self._text_edits = any(f"{PLAIN}:" in place for place in self._prompts)
        self._sources.clear()

    @property
    def code_digests(self) -> dict[str, str]:
        """Digests of code that is not the package's and that the run depends on, by name."""
        return {} if is_shipped(type(self)) else code_digests(type(self), Run)

    # --- what a run has been through ---------------------------------------------------------

    @property
    def state(self) -> StateT:
        """The latest state."""
        return cast("StateT", self.turns[-1].state)

    @property
    def turn_number(self) -> int:
        """The latest turn's number; 0 before the first one is played."""
        return self.turns[-1].number

    @property
    def calls(self) -> list[CallRecord]:
        """Every model call so far, oldest first, by any client."""
        return [call for turn in self.turns for call in turn.calls]

    def listen(self, callback: Callable[[Turn], object]) -> Callable[[], object]:
        """Register a callback for each turn played from now on, by a step or a run.

        Args:
            callback: called with the turn, on the loop that it was played on, when it is kept; what
                it raises, the step raises.

        Returns:
            A function that removes the callback; harmless if called again.
        """
        return self._listeners.add(callback)

    def to_frame(self) -> pd.DataFrame:
        """Return the run as a frame, one row a turn, the initial state first.

        Columns: ``turn``; those of the state, and what the turn noted; ``calls``, the model calls;
        ``ok``, ``repaired``, ``fallback``, ``failed``, how they came out; ``tokens``; ``seconds``;
        ``interventions``, in words.
        """
        import pandas as pd

        return pd.DataFrame(map(turn_row, self.turns))

    @property
    def series(self) -> Sequence[Series]:
        """The columns of ``to_frame()`` that can be charted, the most telling first."""
        return plain_series(name for turn in self.turns for name in own_numbers(turn.columns()))

    @property
    def last_planned(self) -> int:
        """The turn that the run is to reach, by its configuration or as ``run`` was told.

        It is the latest turn where more were played, or where the run is over before.
        """
        if self.done(self.state):
            return self.turn_number
        configured: int = self.config.turns
        return max(self.turn_number, self._told_to_reach, configured)

    @property
    def tape(self) -> Tape | None:
        """The tape that the run is recorded on or replayed from, if any."""
        return self._session.tape

    @property
    def run_id(self) -> int | None:
        """The run's number on its tape."""
        return self._session.number

    # --- what is done from outside -----------------------------------------------------------

    def intervene(
        self, turn: int, values: Mapping[str, Any] | None = None, **more: Any
    ) -> StateChange:
        """Change the state of a turn from outside, now or when the run gets there.

        One planned for a turn that ``run()`` does not get to is kept, with a WARNING.

        Args:
            turn: the number of the state that is changed: the latest one, or one to come.
            values: new values by name, ``{"coins.Ann": 5}``; the same as ``set=``.
            more: ``note="a tax"``, why, for the record.

        Raises:
            ConfigError: the turn has passed or is being played, or a name or value is wrong.
        """
        item = StateChange(turn=turn, **more, **({} if values is None else {"set": values}))
        now, latest, planned = self.turn_number, self.turns[-1], self.planned
        place = len(self.turns) - 1
        first = now + 2 if self._stepping else now
        if item.turn < first:
            what = f"turn {item.turn} has been played or is being played (the run is at turn {now})"
            raise ConfigError(f"{what}; intervene at turn {first} or later")
        # Done to the latest state on trial: what this run has no place for raises now.
        state = checked_state(self, self.changed(latest.state, item.set), "changed returned")
        if item.turn == now:
            done = (*latest.interventions, item)
            self.turns[place] = replace(latest, state=state, interventions=done)
        else:
            self.planned = [*planned, item]
        try:
            self._session.changed(self)
        except BaseException as error:
            # Undone, so that the run stays what its tape says. Ctrl-C may be noticed when the tape
            # has it: then it is undone there as well.
            self.turns[place] = latest
            self.planned = planned
            if not isinstance(error, TapeError):
                self._session.changed(self)
            raise
        end = now + self.config.turns
        if self.config.turns and item.turn >= end:  # with 0 turns it is stepped by hand
            reason = f"run() called now ends at turn {end}; what is set acts on the way to the next"
            _warn("INTERVENTION_NOT_REACHED", planned=item, reason=reason)
        return item

    # --- playing -----------------------------------------------------------------------------

    async def step(self) -> Turn:
        """Play one turn and return its record.

        Raises:
            LLMFailureException: a model call failed; the run is where it was before.
            TapeError: the turn came out differently from its recording.
            ConfigError: a turn is being played already.
        """
        is_part = self._player is not None and self._player is scope().player
        with nullcontext() if is_part else sole_player(self):
            return await self._step()

    async def _step(self) -> Turn:
        if self._stepping:  # by a turn's own code
            raise ConfigError("a step of this run is under way; wait for it before the next")
        self._stepping = True
        try:
            with self._session.playing():
                turn = await _next_turn(self)
        except BaseException as error:  # also a cancellation: what was answered is kept either way
            self._session.failed(error)
            if isinstance(error, LLMFailureException | asyncio.CancelledError):
                explain(error, _what_now(self))
            elif isinstance(error, Exception) and not self._session.is_replay:
                error.add_note(_what_now(self))
            raise
        finally:
            self._stepping = False
        if self._listeners:
            self._listeners(turn)
        return turn

    async def arun(
        self, turns: int | None = None, *, budget: Budget | None = None, progress: bool = True
    ) -> pd.DataFrame:
        """Play turns and return the whole run as a frame, as ``to_frame`` does.

        While it takes long, a line on the terminal or under the cell says what is waited for and
        how much time is left; it is gone in the end. In files and pipes there is none.

        Args:
            turns: how many more; the configuration's number if not given.
            budget: what may be spent on calls. When it is, the run stops at its last whole turn
                and a WARNING says so; ``resume`` continues from there, and makes no call again
                that was answered.
            progress: False for no such line; so does ``LLMSIM_PROGRESS=0`` in the environment.

        Raises:
            ConfigError: a negative number of turns; or the run is being played already, which then
                continues as if nothing had happened.
            LLMFailureException: a model call failed; the turns before it are kept.
        """
        with sole_player(self):
            self._purse = Purse(budget) if budget is not None else None
            try:
                await _play(self, turns, progress=progress)
            finally:
                self._purse = None
        return self.to_frame()

    def run(
        self, turns: int | None = None, *, budget: Budget | None = None, progress: bool = True
    ) -> pd.DataFrame:
        """Do what ``arun`` does from plain code: in a script, or in a notebook cell.

        In a plain script people are asked on the terminal.
        """
        ask_people_here(self)
        try:
            return run_sync(self.arun(turns, budget=budget, progress=progress))
        except KeyboardInterrupt as error:
            explain(error, _what_now(self))
            raise

    # --- forks, and recorded runs of this class ----------------------------------------------

    def fork(
        self,
        turn: int | None = None,
        *,
        prompt: Prompt | Sequence[Prompt] = (),
        intervene: Mapping[str, Any] | Iterable[Mapping[str, Any]] = (),
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
        latest = self.turn_number
        at = latest if turn is None else whole_number("turn", turn, least=0, most=latest)
        from_outside = _listed(intervene, at)
        prompts = list(prompt) if isinstance(prompt, Iterable) else [prompt]
        if not all(isinstance(item, Prompt) for item in prompts):
            way_out = f"run.prompts[...].edit('...'), of {', '.join(self.prompts)}"
            what = f"prompt={prompt!r:.60} is not an edited prompt"
            raise ConfigError(f"{what}; edit one of the run's: {way_out}")
        client = _live_client(self, llm_client)
        if llm_client is not None and self.llm_client is not None:
            before = self.llm_client.config
            if self.tape is not None:  # those of that turn, which a resume may have changed since
                manifest = self.tape.run(self.run_id).manifest
                before = recorded_settings(manifest, max(1, at)).get("", before)
            tell_settings(before, llm_client.config, "the fork")
        new = unrecorded_fork(self, at, client, prompts)
        for values in from_outside:
            new.intervene(**values)
        # After the rest, which is wrong with a model as well.
        if client is None and self.llm_client is not None and self.config.needs_model:
            raise ConfigError("a fork is played live; give it a model: llm_client=connect('auto')")
        origin: dict[str, Any] = {"verb": "fork", "parent": self.run_id, "fork_turn": at}
        if to is None:
            return _beside(self, new, **origin)
        if self.tape is None:
            raise ConfigError("to= copies the run's tape, and it has none: give it a tape=")
        tape = self.tape.copy([self.tape.run(self.run_id).id], to, up_to=at)
        return record(new, tape, **origin)

    def counterfactual(
        self, players: Any, *, llm_client: LLMClient | None = None, tape: Tapes | None = None
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
        others = by_name(players)
        kept = self.players if others is players else {}
        said = self.config.players.items()
        words = {it: word for it, word in said if it in kept and it not in others}
        config = self.config.model_copy(update={"players": words})
        given = {**_others_given(self), "players": {**kept, **others}}
        done = [item for turn in self.turns[1:] for item in turn.interventions]
        planned = [*done, *(it for it in self.planned if it.turn > self.turn_number)]
        if llm_client is not None and self.llm_client is not None:
            tell_settings(self.llm_client.config, llm_client.config, "the counterfactual")
        given |= {"llm_client": _live_client(self, llm_client), "prompts": self.prompts}
        new: Self = _made(type(self), config, self.turns[:1], planned, given)
        return new if tape is None else record(new, tape)

    @classmethod
    def replay(
        cls, tape: Tapes, run: int | None = None, *, turns: int | None = None, **given: Any
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
        tape = _reading(tape)
        info = tape.run(run)
        wanted = info.turns if turns is None else turns
        last = whole_number("turns", wanted, least=0, most=info.turns)
        simulation: Self = _load(tape, info, None, given, cls, up_to=info.fork_turn or 0)
        session: Session = simulation._session
        # A fork's turns up to there are its parent's, which another run played: not again.
        known = simulation.turns
        simulation.turns, session.shared = known[: last + 1], known[last + 1 :]
        try:
            # Whatever ``done`` says: the recorded run may have been stepped on by hand.
            run_sync(play_turns(simulation, last - simulation.turn_number, beyond_done=True))
        except TapeError as error:
            if changed := _code_changes(info, simulation):
                raise type(error)(f"{error}. Note that {changed}") from error
            raise
        return simulation

    @classmethod
    def load(cls, tape: Tapes, run: int | None = None, **given: Any) -> Self:
        """Return a recorded run to look at: its turns, frames and decisions; nothing is played.

        Args:
            tape: the tape, or its file, which is opened for reading only.
            run: the run's number; the latest if not given.
            given: as for ``replay``.
        """
        tape = _reading(tape)
        return cast("Self", _load(tape, tape.run(run), None, given, cls))

    @classmethod
    def resume(
        cls,
        tape: Tapes,
        run: int | None = None,
        *,
        llm_client: LLMClient | None = None,
        **given: Any,
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
        simulation: Self = _load(tape, info, llm_client, given, cls, live=True)
        if changed := _code_changes(info, simulation):
            reason = f"{changed}, so the turns to come are played by other code than those before"
            way_out = f"rerun({str(tape.path)!r}, {info.id}) plays all of it anew"
            _warn("CODE_CHANGED", run=info.id, reason=reason, way_out=way_out)
        simulation._session = Recording(tape, info.id)
        _tell_resumed(tape, info, simulation)
        return simulation

    @classmethod
    def rerun(
        cls,
        tape: Tapes,
        run: int | None = None,
        *,
        llm_client: LLMClient | None = None,
        to: str | Path | None = None,
        **given: Any,
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
        tape = existing_tape(tape) if to is None else _reading(tape)
        info = tape.run(run)
        if to is not None:
            tape = tape.copy([info.id], to)
        simulation = _load(tape, info, llm_client, given, cls, live=True).counterfactual({})
        tell_recorded(recorded_settings(info.manifest), simulation, "the rerun")
        if simulation.config.replicate is not None:
            # Else a server that keeps to its seeds would give the same answers: not a sample.
            used = max(other.manifest["config"].get("replicate") or 0 for other in tape.runs())
            simulation.config = simulation.config.model_copy(update={"replicate": used + 1})
        return cast("Self", record(simulation, tape, verb="rerun", parent=info.id))

    # --- what is shown of it -----------------------------------------------------------------

    def decisions(self) -> pd.DataFrame:
        """Return the run's decisions as a frame, one row each: what was said, what became of it.

        Columns: ``run``, its number on the tape; ``seed``; ``period``, where turns have one;
        ``turn``; ``player``; ``component``; the fields of the replies, each under its own name, or
        as ``reply_NAME`` where that is taken; ``reasoning``; ``confidence``; what the turn noted
        became of it; ``status``; ``interventions`` of the turn, in words;
        ``attempts``; ``prompt_tokens``, ``reply_tokens`` and ``tokens``, both together;
        ``seconds``; ``model``.

        Where a rule decided, ``attempts``, tokens and seconds are 0 and there is no model. So it is
        where ``decide=`` took an answer from its probabilities: the calls that measured them have
        no rows, and are in ``calls``.
        """
        return decisions_frame(self, run=self.run_id, seed=self.config.seed)

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
            return page(self.tape, path, run=self.run_id)
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
            attempts = [*chain.from_iterable(call.history for call in self.calls)]
        else:
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
        lost = f", NOT RECORDED: {self.unrecorded}" if self.unrecorded else ""
        return f"<{type(self).__name__} {self.config.name!r}: turn {self.turn_number}{lost}>"


def _configured(
    cls: type[Run], config: Any, parameters: Mapping[str, Any], players: Mapping[str, Any]
) -> Any:
    """Return the configuration that parameters make, or a given one with them."""
    # Of the players a configuration holds what a file can say; ``_seated`` has the rest.
    words = {name: who for name, who in players.items() if isinstance(who, str)}
    words |= {name: "person" for name, who in players.items() if isinstance(who, Person)}
    for name, word in words.items():
        if word not in get_args(PlayerWord):
            said = f"players={word!r}" if name == "*" else f"players={{{name!r}: {word!r}}}"
            known = get_args(PlayerWord)
            raise ConfigError(
                f"{cls.__name__}: {said} is not a player{closest(word, known)}; a word is one of "
                f"{', '.join(known)}"
            )
    values = dict(parameters)
    fields = cls.config_type.model_fields
    unknown = [name for name in values if name not in {*fields, *cls.config_type.gone}]
    if unknown:
        own = [name for name in fields if name not in WorldConfig.model_fields]
        raise ConfigError(
            f"{cls.__name__} has no parameter {unknown[0]!r}{closest(unknown[0], fields)}; it "
            f"takes {', '.join([*own, *WorldConfig.model_fields])}, and state, players, tape and "
            "llm_client"
        )
    if config is not None:
        if not isinstance(config, cls.config_type):
            what = f"config={config!r:.60} is not a {cls.config_type.__name__}"
            form = f"{cls.__name__}(seed=1, players={{'*': ...}})"
            raise ConfigError(f"{what}; give parameters by keyword: {form}")
        if not values and not words:
            return config
        values = {name: getattr(config, name) for name in cls.config_type.model_fields} | values
    if words:
        values["players"] = {**values.get("players", {}), **words}
    return cls.config_type(**values)


def _seated(run: Run, players: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return who answers for whom, and the seats of those that a tape cannot hold."""
    seated: dict[str, Any] = {}
    given: list[str] = []
    for name, who in {**run.config.players, **players}.items():
        who = Person() if who == "person" else who
        if hasattr(who, "chat") and not isinstance(who, Person | type):
            who = LLMClient(run.llm_client.config if run.llm_client else LLMConfig(), who)
        seated[name] = human_client(who) if isinstance(who, Person) else who
        is_client = hasattr(seated[name], "call_with_retry") and not isinstance(who, type)
        if is_client:
            run_client(seated[name], f"players[{name!r}]")
        answers = isinstance(who, str) or callable(who) or is_client
        if not answers or isinstance(who, type):
            known = "'model', 'rule', 'random', a function of the question, a Person() or a client"
            raise ConfigError(f"players[{name!r}] is {who!r:.60}; a player is {known}")
        backend = getattr(seated[name], "backend", None)
        # A person's answers are all on the tape.
        if not (isinstance(who, str) or isinstance(backend, Person)):
            given.append(name)
    if "rule" in seated.values() and getattr(run, "rule", None) is None:
        way_out = "define def rule(self, question) -> YourReply(...) in it, or let chance answer"
        raise ConfigError(f"{type(run).__name__} has no rule; {way_out}: 'random'")
    return seated, given


def record(run: RunT, tape: Tapes, known: Mapping[str, Any] | None = None, **origin: Any) -> RunT:
    """Begin a run on a tape, with its latest turn; returns the run.

    Args:
        run: the run.
        tape: the tape, which has the turns before where the run is a fork.
        known: parts of the manifest that are known already, or that a study adds: its runs share
            the code, and where a class came from a notebook only the notebook knows it.
        origin: where it came from, as ``Tape.add_run`` takes it: ``verb``, ``parent`` and, for a
            fork, ``fork_turn``.
    """
    # Before anything is written: what raises here leaves no run on the tape.
    first, manifest = tape_turn(run, run.turns[-1]), new_manifest(run, known)
    tape = tape if isinstance(tape, Tape) else Tape(tape)
    number = tape.add_run(manifest, name=run.name, first=first, **origin)
    run._session = Recording(tape, number)
    return run


def new_manifest(run: Run, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what defines a run; which model answers is added when it is first asked."""
    known = known or {}
    return {
        "kind": run.kind,
        "package": _version("llmsim-lab"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "seed": run.config.seed,
        "config": config_as_json(run.config),
        "prompts": entries_of(run.prompts),
        "code": known.get("code") or run.code_digests,
        "given": ["players"] if run.given else [],
        **({"given_players": run._given_players} if run.given else {}),
        **settings_entries(run),
        "model": None,
        **known,
    }


def about(run: Run, number: int, **more: Any) -> RunInfo:
    """Return what a tape would say of a run, if it were on one.

    Args:
        run: the run.
        number: of the run.
        more: other fields of it.
    """
    facts: dict[str, Any] = {"id": number, "name": run.name, "verb": "run", "started": ""}
    facts |= {"turns": run.turn_number, "calls": sum(call.attempts for call in run.calls)}
    return RunInfo(**{**facts, "manifest": new_manifest(run), **more})


def checked_state(run: Run[StateT], state: Any, verb: str = "turn returned") -> StateT:
    """Return what a turn led to, or what a run starts from, as a tape gives it back.

    Raises:
        ConfigError: it is not a state of this run, or a tape would lose something of it.
    """
    calls = run.turns[-1].calls if hasattr(run, "turns") else ()
    state = _own_state(run, state, verb)
    return cast("StateT", kept_state(state, run.state_type, calls).state)


def _own_state(run: Run[StateT], state: Any, verb: str = "turn returned") -> StateT:
    """Return a state if it is one of this run.

    Raises:
        ConfigError: it is not.
    """
    name, wanted = type(run).__name__, run.state_type.__name__
    if isinstance(state, run.state_type):
        return cast("StateT", state)
    way_out = f"it must be a {wanted}: return state.replace(...)"
    if type(state).__name__ == wanted:  # as after a second run of its notebook cell
        way_out = f"{wanted} was defined again since {name} was made. Define {name} again as well"
        way_out += " (run its cell, or import it again), and make a new run of it"
    raise ConfigError(f"{name} {verb} {state!r:.60}; {way_out}")


def anew(run: Run, config: Any, client: LLMClient | None) -> Run:
    """Return a run that begins anew with another configuration, recorded on the same tape."""
    new = type(run)(config, llm_client=client, prompts=run.prompts, **_others_given(run))
    return _beside(run, new)


def unrecorded_fork(
    run: RunT, at: int, client: LLMClient | None, prompts: Sequence[Prompt] = ()
) -> RunT:
    """Return a run that continues from one of a run's turns, on no tape; see ``Run.fork``."""
    edited = with_edits(run.prompts, prompts)
    given = {**_others_given(run), "llm_client": client, "prompts": edited}
    planned = [item for item in run.planned if item.turn > at]
    return cast("RunT", _made(type(run), run.config, run.turns[: at + 1], planned, given))


def _beside(run: Run, new: RunT, **origin: Any) -> RunT:
    """Begin a run on another's tape, as ``record`` does, where that may be written to."""
    if run.tape is not None and not run.tape.read_only:
        return record(new, run.tape, **origin)
    new.unrecorded = run.unrecorded
    if run.tape is not None:
        new.unrecorded = f"the tape {run.tape.path} is open for reading only"
        _warn("FORK_NOT_RECORDED", reason=new.unrecorded)
    return new


async def _next_turn(run: Run) -> Turn:
    """Play one turn, and keep it."""
    before, session = run.turns[-1], run._session
    number = before.number + 1
    if session.shared:
        turn, *session.shared = session.shared
        run.turns.append(turn)
        return turn
    planned = await session.begin(run, number)
    if len(run.turns) == 1 and _is_live(run):
        for doubt in run._doubts():
            _warn("LINT", **doubt)
    began, replicate = time.perf_counter(), run.config.replicate
    sampling = None if replicate is None else (run.seed, replicate)
    run._log = log = CallLog(run.name, number, run._purse, sampling=sampling)
    ask = Ask(run, run._as_read(before.state), number)
    # A contract's class such as Agent.decide_action(state) is handed no run: its client finds
    # this turn's log and recorder in the context variable that ``scoped`` sets.
    session.memory = kept = {**session.memory}  # for the next try, should this one fail
    recorder = session.recorder
    if recorder is None:
        recorder = Unrecorded(Known(answers=kept))
    with scoped(recorder=recorder, log=log):
        try:
            after = await run.turn(before.state, ask)
        except Exception:
            ask.check_awaited()  # what was not waited for is often what the turn failed on
            raise
        parts = ask.close()
        after = _own_state(run, after)
        calls = log.close()
    # An agent may have caught the failed call and decided without an answer.
    if run._purse is not None and run._purse.refusal is not None:
        raise run._purse.refusal
    for item in planned:
        after = _own_state(run, run.changed(after, item.set), "changed returned")
    on_tape = session.tape is not None
    kept_after = kept_state(after, run.state_type, calls, on_tape=on_tape)
    parts |= {"interventions": tuple(planned), "seconds": time.perf_counter() - began}
    turn = Turn(number=number, state=kept_after.state, calls=calls, **parts)
    if turn.became and not session.is_replay:
        _check_noted(turn)
    turn = session.done(run, turn, kept_after.json)
    session.memory = {}
    run.turns.append(turn)
    run._log = None
    run._stood_in += ask._stood_in
    return turn


def _check_noted(turn: Turn) -> None:
    """Raise ConfigError for a note on a player without a decision: no frame would have it."""
    # Not by ``answers``, which take long to make.
    players = {it.player for it in turn.by_code}
    players |= {it.request.site.agent or "" for it in turn.calls if it.request.site}
    if lost := [it for it, noted in turn.became.items() if noted and it not in players]:
        what = f"ask.note({lost[0]!r}, ...): turn {turn.number} has no decision of {lost[0]}"
        raise ConfigError(f"{what} (by= decides about a player); note it without a name")


def _is_live(run: Run) -> bool:
    """Whether what there is to warn of is news: not in a replay, nor in a study's next run."""
    return not run._quiet and not run._session.is_replay


@contextmanager
def sole_player(run: Run) -> Iterator[None]:
    """Be what plays a run; steps inside are part of it.

    Raises:
        ConfigError: the run is being played already, here or by another task or thread; what plays
            it does not notice.
    """
    player = object()
    # Looked up and set at once: of two threads one gets it.
    if vars(run).setdefault("_player", player) is not player:
        raise ConfigError(
            f"{run.name} is being played already, by another run(), arun(), step() or window; wait "
            "until that has ended, or stop it"
        )
    try:
        with scoped(player=player):
            yield
    finally:
        del vars(run)["_player"]


async def play_turns(
    run: Run, turns: int | None = None, *, progress: bool = True, beyond_done: bool = False
) -> None:
    """Do what ``Run.arun`` does without making a frame, which needs pandas.

    ``beyond_done`` plays as many turns as it is told, whatever ``done`` says: a run may have been
    stepped on by hand.
    """
    with sole_player(run):
        await _play(run, turns, progress=progress, beyond_done=beyond_done)


async def _play(run: Run, turns: int | None, *, progress: bool, beyond_done: bool = False) -> None:
    wanted = run.config.turns if turns is None else turns
    count, before = whole_number("turns", wanted, least=0), run.turn_number
    with run._session.playing():
        run._told_to_reach = last = before + count
        outcome = "interrupted"  # also by Ctrl-C, or the task was cancelled
        try:
            line = progress_line("turn", number=before + 1, last=last, enabled=progress)
            async with line as advance:
                while run.turn_number < last and (beyond_done or not run.done(run.state)):
                    if run._purse is not None:
                        run._purse.check()
                    turn = await run.step()
                    advance(sum(len(call.history) for call in turn.calls))
                    # Where nothing waits, as for rules: let others run too.
                    await asyncio.sleep(0)
            outcome = "done"
        except BudgetReached as error:
            outcome = f"stopped: {error}"
            _warn("BUDGET_REACHED", run=run.name, turn=run.turn_number, reason=error)
        except Exception as error:
            outcome = f"failed: {error_text(error)}"
            raise
        finally:
            # After a failure that failure is what has to be raised, not another of the tape's.
            with nullcontext() if outcome == "done" else suppress(TapeError):
                run._session.ended(outcome)
    if run._stood_in and _is_live(run):
        times = ", ".join(f"{who} {count}" for who, count in run._stood_in.most_common())
        words = f"Run {run.name!r}: answers that are stand-ins: {times}; decisions() says why."
        _warn("STAND_INS", words=words, run=run.name, turn=run.turn_number, players=times)
    run._stood_in.clear()
    # As where a name is misspelt; a budget may have stopped the run before.
    never = [name for name in run.players if name != "*" and name not in run._seats]
    if outcome == "done" and never and run._seats and _is_live(run):
        reason = f"no question of this run named it{closest(never[0], run._seats)}"
        _warn("PLAYER_NEVER_ASKED", run=run.config.name, player=never[0], reason=reason)


def _what_now(run: Run) -> str:
    """Return which turn a run that was stopped is at, and how it continues."""
    at, left = run.turn_number, max(1, run._told_to_reach - run.turn_number)
    later = ""
    if run.tape is not None and not run._session.is_replay:
        later = f"; in another session, resume({str(run.tape.path)!r}, {run.run_id}, ...) does"
    kept = f"Turn {at + 1} was not finished: the run is kept up to turn {at}"
    return f"{kept}, and .run({left}) continues it{later}."


def _others_given(run: Run) -> dict[str, Any]:
    """Return what a run like this one has to be given again, which no configuration holds."""
    return {name: getattr(run, name) for name in [*own_arguments(type(run)), "players"]}


def _is_parameter(cls: type[Run], name: str) -> bool:
    """Return True of a parameter that no subclass has put something else in the place of."""
    return isinstance(inspect.getattr_static(cls, name, None), Parameter)


def _check_world(cls: type[Run]) -> None:
    """Raise ConfigError for a world whose ``turn`` or state cannot be one."""
    if not inspect.iscoroutinefunction(cls.turn):
        what = f"{cls.__name__}.turn is a plain function, which cannot wait for answers"
        raise ConfigError(f"{what}; write async def turn(self, state, ask)")
    state = cls.state_type
    if not (isinstance(state, type) and issubclass(state, State)) or state is State:
        named = getattr(state, "__name__", state)
        way_out = f"derive class Pot(State), and name it: class {cls.__name__}(Run[Pot])"
        raise ConfigError(f"{cls.__name__} has the state {named}; {way_out}")


# --- recorded runs of any class -------------------------------------------------------------------

_any: Any = Run  # of which class a tape's run is, no type checker knows
replay, load, resume, rerun = _any.replay, _any.load, _any.resume, _any.rerun


def fork(
    tape: Tapes,
    run: int | None = None,
    *,
    turn: int | None = None,
    prompt: Prompt | Sequence[Prompt] = (),
    intervene: Mapping[str, Any] | Iterable[Mapping[str, Any]] = (),
    llm_client: LLMClient | None = None,
    to: str | Path | None = None,
    **given: Any,
) -> AnyRun:
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
    tape = existing_tape(tape) if to is None else _reading(tape)
    info = tape.run(run)
    recorded = _load(tape, info, llm_client, given)
    new = recorded.fork(turn, prompt=prompt, intervene=intervene, to=to)
    # Those of the turn that it continues, which a resume may have changed since.
    settings = recorded_settings(info.manifest, max(1, new.turn_number))
    tell_recorded(settings, new, "the fork")
    return new


def page(tape: Tapes, path: str | Path, *, run: int | None = None) -> Path:
    """Write a tape's runs as one HTML page, as ``Run.page`` does; their classes need not be known.

    Args:
        tape: the tape, or its file, which is opened for reading only.
        path: the file, which ends in ``.html``; one that is there is replaced.
        run: only this run, those that it came from, and all that came from those; it is shown
            first. All runs if not given.
    """
    tape = _reading(tape)
    infos = tape.runs()
    start = tape.run(run)  # before the runs are asked for, for what it says of an empty tape
    if run is not None:
        roots: dict[int | None, int] = {}
        for info in infos:
            roots[info.id] = roots.get(info.parent, info.id)
        infos = [info for info in infos if roots[info.id] == roots[start.id]]
    reading = Reading(tape.path.name)
    read_into(reading, tape, infos)
    return write_page(path, reading, start=start.id)


def read_into(reading: Reading, tape: Tape, infos: Sequence[RunInfo]) -> None:
    """Add recorded runs to a reading: of each what it played itself, since the rest is another's.

    Args:
        reading: the log.
        tape: the tape.
        infos: the runs, each after those that it came from.
    """
    allowance = tape.allowance()
    for info in infos:
        first = -math.inf if info.fork_turn is None else info.fork_turn
        source = run_on_tape(tape, info, first)
        calls = ((call.attempt, call.forgotten) for call in tape.calls(info.id, forgotten=True))
        reading.add(info, source, changes=tape.changes(info.id, allowance), calls=calls)


def run_on_tape(tape: Tape, info: RunInfo, *turns: float) -> AnyRun:
    """Return a recorded run; what every tape tells of it where its class is not known.

    Args:
        tape: the tape.
        info: the run.
        turns: the first and the last turn to read, with their calls; all if not given.
    """
    try:
        run = _load(tape, info, None, {}, Run, *turns)
    except LabError:
        return RecordedRun(tape, info, *turns)
    why = _unreadable(run)
    return RecordedRun(tape, info, *turns, why=why) if why else run


def _unreadable(run: Run) -> str:
    """Return why a run's class fails on what is recorded, in words; empty if it does not.

    A state may be of the right types and still not be one that the class has.
    """
    try:
        for turn in run.turns:
            turn.columns()
        for item in (run.series, run.prediction(), run.last_planned):
            repr(item)
    except Exception as error:  # noqa: BLE001 - a class's own code raises anything
        return error_text(error)
    return ""


def _client_for(info: RunInfo, given: LLMClient | None, *, live: bool) -> LLMClient | None:
    """Return the given client, whose settings count.

    Where none is given, one that stands for the recorded model, unless live calls are to come.
    """
    client = run_client(given)
    if client is not None or live:
        return client
    recorded = llm_config_of(info.manifest)
    return RecordedClient(recorded) if recorded else None


def _tell_unused(config: WorldConfig, client: LLMClient) -> None:
    """Warn of settings that a configuration says and the client that was given does not have."""
    said = config.llm.model_fields_set if "llm" in config.model_fields_set else set[str]()
    values = {name: getattr(config.llm, name) for name in said}
    changed = changed_settings(client.config.model_copy(update=values), client.config)
    if changed:
        words = (
            f"llm= does not count beside llm_client=, whose own settings do: {changed}. A client "
            "with these: connect(..., config=run.config.llm)"
        )
        _warn("SETTINGS_NOT_USED", words=words, changed=changed)


def tell_settings(before: LLMConfig, after: LLMConfig, run: str, seat: str = "") -> None:
    """Warn where a run is played with other settings than the one that it comes from.

    Args:
        before: the recorded ones.
        after: those of the client that it was given.
        run: what is played, in words, such as ``the fork``.
        seat: whose client it is; empty for the run's own model.
    """
    if changed := changed_settings(before, after):
        whose = f" for {seat}" if seat else ""
        words = f"{run} is played with the given client's settings{whose}: {changed}"
        _warn("SETTINGS_CHANGED", words=words, run=run, seat=seat or None, changed=changed)


def tell_recorded(recorded: Mapping[str, LLMConfig], run: Run, words: str) -> None:
    """Do what ``tell_settings`` does for all clients of a run, whose recorded settings these are.

    Args:
        recorded: by seat.
        run: the run.
        words: what is played.
    """
    for seat, client in clients_of(run).items():
        if seat in recorded:
            tell_settings(recorded[seat], client.config, words, seat)


def _tell_resumed(tape: Tape, info: RunInfo, run: Run) -> None:
    """Warn where a resumed run has other settings, and of answers that it cannot use then."""
    recorded = recorded_settings(info.manifest)
    tell_recorded(recorded, run, f"run {info.id} of {tape.path}")
    turn = info.turns + 1
    answered = tape.calls(info.id, turn=turn)
    clients = clients_of(run)
    asks_otherwise = any(
        seat in clients and changed_settings(settings, clients[seat].config, leave_out=PATIENCE)
        for seat, settings in recorded.items()
    )
    if answered and asks_otherwise:
        answers = counted(len(answered), "answer")
        words = f"turn {turn} was begun with the recorded settings ({answers}) and is asked anew"
        _warn("ASKED_ANEW", words=words, run=info.id, turn=turn, answers=len(answered))


def _load(
    tape: Tape,
    info: RunInfo,
    llm_client: LLMClient | None,
    others: Given,
    kind: type[Run] = Run,
    *read: float,
    live: bool = False,
    up_to: float = math.inf,
) -> AnyRun:
    """Return a run with a recorded one's configuration, prompts, settings and turns.

    A ``live`` one is on no tape yet; any other is only to be looked at, or, from the turn ``up_to``
    on, to be played again.
    """
    check_manifest(info, tape.path)
    recorded = info.manifest["kind"]
    cls: type[Run] = class_of_manifest(info.id, info.manifest) if kind is Run else kind
    if cls.kind != recorded:
        what = f"run {info.id} on the tape is one of {recorded}, and {cls.__name__} is {cls.kind}"
        way_out = f"where class or file was renamed, write kind = {recorded!r} in {cls.__name__}"
        raise TapeError(f"{what}; {way_out}")
    given = {name: it for name, it in others.items() if it is not None}
    taken = ("players", *own_arguments(cls))
    if "kind" in given:
        world = getattr(given["kind"], "__name__", cls.__name__)
        raise ConfigError(
            f"kind= is gone: call it on the class, replay as {world}.replay({str(tape.path)!r})"
        )
    if unknown := sorted(given.keys() - set(taken)):
        raise ConfigError(
            f"{', '.join(unknown)}: a recorded {cls.__name__} takes only {', '.join(taken)}; for "
            f"other parameters start a new run: {cls.__name__}({unknown[0]}=...)"
        )
    if info.manifest["given"] and "players" not in given:
        seats = info.manifest.get("given_players", ())
        again = ", ".join(f"{seat!r}: ..." for seat in seats) or "..."
        raise ConfigError(
            f"run {info.id} was given players of its own, which no tape can hold (functions, "
            f"clients); pass the same again: players={{{again}}}"
        )
    lines = tape.turn_lines(info.id, *read)
    records = [line["record"] for line in lines.values()]
    turns = load_turns(cls, tape, info.id, [it for it in records if it["turn"] <= up_to])
    if not turns:
        raise TapeError(f"run {info.id} on the tape is damaged: it has no turn, not even its first")
    given |= {"llm_client": _client_for(info, llm_client, live=live)}
    given |= {"prompts": prompts_of(info.manifest)}
    simulation = _made(cls, config_of(info, cls), turns, planned_in(records), given)
    if not live:
        # Where no turn is played again there is none to compare, only a tape to name.
        simulation._session = Replaying(tape, info.id, lines if up_to < math.inf else {})
    return simulation


def own_arguments(cls: type[Run]) -> list[str]:
    """Return what a class's constructor takes that no other run does, such as a chat's tools."""
    common = inspect.signature(Run.__init__).parameters
    return [name for name in inspect.signature(cls.__init__).parameters if name not in common]


def _made(
    cls: type[Run], config: Any, turns: list[Turn], planned: Sequence[StateChange], given: Given
) -> AnyRun:
    """Return a run with turns that were played, and of what no configuration holds; on no tape."""
    # Interventions are not planned anew: the turns' records say which were, and which came in.
    made = cls(config.model_copy(update={"interventions": ()}), state=turns[-1].state, **given)
    # With the interventions again, as a manifest has them; with the players that were given.
    made.config = made.config.model_copy(update={"interventions": config.interventions})
    made.turns, made.planned = list(turns), planned
    return made


def _code_changes(info: RunInfo, simulation: AnyRun) -> str:
    """Return what of a run's own code is not as it was recorded; empty where nothing is."""
    then, now = as_mapping(info.manifest.get("code")), simulation.code_digests
    changed = [name for name in now if then.get(name, now[name]) != now[name]]
    what = f"{simulation.kind} has changed since it was recorded: its {', '.join(changed)}"
    return what if changed else ""


def _reading(tape: Tapes) -> Tape:
    return tape if isinstance(tape, Tape) else Tape(tape, read_only=True)


def existing_tape(tape: Tapes) -> Tape:
    """Return a tape to write on; one that is not there is an error, not a new one.

    Raises:
        TapeError: there is no such file.
    """
    # Else a tape would be made at a misspelt name, only to be found without a run.
    return tape if isinstance(tape, Tape) else Tape(Tape(tape, read_only=True).path)


def _live_client(run: Run, given: Any) -> LLMClient | None:
    """Return the given client, or else the run's; a recorded run's answers nothing that is new."""
    client = run_client(given) or run.llm_client
    return None if client is not None and isinstance(client, RecordedClient) else client


def _listed(intervene: Any, turn: int) -> list[Mapping[str, Any]]:
    """Return interventions as a list.

    Args:
        intervene: a list of them, or new values by name in the state that the fork begins at.
        turn: the one that the fork begins at.
    """
    if isinstance(intervene, Mapping):
        return [{"turn": turn, "set": intervene}] if intervene else []
    items = list(intervene) if isinstance(intervene, Iterable) else [intervene]
    if not all(isinstance(item, Mapping) for item in items):
        forms = "new values by name, {'coins.Ann': 5}, or a list of interventions, each a dict"
        way_out = "intervene=[{'turn': 3, 'set': {...}}]"
        raise ConfigError(f"intervene={items!r:.120} must be {forms}: {way_out}")
    return items
