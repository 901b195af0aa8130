"""What an author defines: a world's parameters, its state, its turn, and who answers in it.

``BaseWorld`` has the parts of a run that a user's class fills in. ``run/playing.py`` adds how a
world is played, and ``run/recorded.py`` adds tapes, which makes it ``Run``.
"""

from __future__ import annotations

import inspect
import logging
import os
import threading
from collections import UserList
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, cast, get_args

from pydantic import ValidationError
from typing_extensions import TypeVar

from llmsim_lab._util.checks import items_of
from llmsim_lab._util.config import YamlFile
from llmsim_lab._util.frozen import FrozenDict
from llmsim_lab._util.text import brief, closest, faults, log_as_asked, log_event
from llmsim_lab._util.waiting import Listeners
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient, LLMConfig, Person, Tape
from llmsim_lab.llm.client import run_client
from llmsim_lab.llm.human import OpenQuestion, human_client
from llmsim_lab.llm.scope import CallLog, Purse, scope
from llmsim_lab.people import PublishedFigure
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._any_run import Warnings
from llmsim_lab.run._ask import Ask
from llmsim_lab.run._kept import kept_config, kept_state
from llmsim_lab.run._personas import with_personas
from llmsim_lab.run._run_prompts import PromptsInUse
from llmsim_lab.run.charts import charted_columns
from llmsim_lab.run.config import (
    Parameter,
    PlayerWord,
    StateChange,
    WorldConfig,
    by_name,
    config_type_of,
    not_among,
    stand_in_of,
    state_type_of,
    word_of_person,
)
from llmsim_lab.run.frames import decisions_frame, turn_row
from llmsim_lab.run.records import changed_settings
from llmsim_lab.run.registry import identity, register
from llmsim_lab.run.series import MOST_SERIES, Series
from llmsim_lab.run.session import Recording, Session
from llmsim_lab.run.state import State, changed_at, values_in
from llmsim_lab.run.turn import Turn
from llmsim_lab.types import CallRecord

if TYPE_CHECKING:
    import pandas as pd

_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)

StateT = TypeVar("StateT", default=Any)

_SET_FROM_OUTSIDE = ("turns", "planned", "unrecorded", "llm_client")
"""Attributes that may be set while a turn is played: the package sets them, and no turn does."""

run_lock = threading.RLock()
"""Held while a run's turn begins or ends, and while the run is changed from outside.

Otherwise a thread could change the state that another thread's turn has just read. It is held while
a turn is written to its tape, never while an answer is waited for. One lock is enough for all runs;
a run with one of its own could not be pickled.
"""


def _free_the_lock() -> None:
    """Free the lock in a forked process, which lacks the thread that may have held it."""
    run_lock._at_fork_reinit()  # type: ignore[attr-defined]  # as Python's own modules do


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_the_lock)


class BaseWorld(Generic[StateT]):
    """The part of a run that its author defines, and its turns so far; see ``Run``."""

    kind: ClassVar[str] = ""
    config_type: ClassVar[type[WorldConfig]] = WorldConfig
    state_type: ClassVar[Any] = State
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Other defaults of the parameters that every run has: ``{"turns": 6}``."""
    gone: ClassVar[Mapping[str, str]] = {}
    """Parameters that the world no longer has, each with a sentence that says what to write."""
    charts: ClassVar[Sequence[str | Series]] = ()
    """What to chart, in this order and nothing else: ``["believers", "coins"]``; all if empty."""
    people_played: ClassVar[Mapping[str, Collection[object]]] = {}
    """The values of parameters that the people of ``people()`` played with, ``{"stake": [5, 10]}``.
    A run with another value has no figures of people, and comparisons name the value."""
    name = Parameter("name", "run")
    seed = Parameter("seed", 0)
    players: Mapping[str, Any]
    """Who answers, by seat. On a tape they stay as they are: see ``counterfactual``."""
    # A class attribute, which a run has a value of its own for only while it is played.
    _driver: object = None
    """A token of the code that plays the run now; see ``sole_driver`` and ``llm/scope.py``."""

    def __init__(
        self,
        config: WorldConfig | None,
        *,
        llm_client: LLMClient | None,
        players: object,
        state: StateT | None,
        prompts: Mapping[str, Prompt] | None,
        parameters: Mapping[str, object],
    ) -> None:
        self._prompts = PromptsInUse(type(self), {} if prompts is None else prompts)
        self._warnings = Warnings()
        # A dict and not a set, so that messages name the seats in the order of the questions.
        self._asked_seats: dict[str, None] = {}
        self._session = Session()
        self._listeners = Listeners()
        # True while a turn is played: no second turn may begin, and no attribute may be set.
        self._stepping = False
        self._set_first: list[StateChange] = []
        """What was set before the first turn, besides the configuration's interventions."""
        self._purse: Purse | None = None
        self._target_turn = 0
        # The calls of the turn that is being played. After a failed turn they stay, since the
        # command line says what the turn cost.
        self._log: CallLog | None = None
        self.unrecorded = ""
        """Why the run is not recorded although it should be; empty otherwise."""
        self._planned: tuple[StateChange, ...] = ()
        players = {} if players is None else by_name(players)
        # As a tape would give them back, so that a replay has equal parameters to the last bit.
        configured = _configured(
            type(self),
            config,
            parameters,
            players,
        )
        self.config: Any = kept_config(configured, type(self).__name__)
        # Sets up the log before anything can warn.
        log_as_asked()
        self.llm_client = run_client(llm_client)
        # A run with a given state continues another run. Its settings are compared elsewhere, with
        # those of the other run.
        if state is None and self.llm_client is not None:
            _warn_of_unused_settings(self.config, self.llm_client)
        # Players given now replace the configuration's words.
        self.players = self._seat_players({**self.config.players, **players})
        # Before start(), which may use the attributes that ready() sets.
        self.ready()
        start = checked_state(
            self,
            self.start() if state is None else state,
            "starts from",
        )
        self.turns: list[Turn] = [Turn(number=0, state=start)]
        self._given_start = None if state is None else start

    def __setattr__(self, name: str, value: Any) -> None:
        # With an underscore the author says that no turn depends on the attribute: ready() sets
        # such attributes.
        if name.startswith("_"):
            super().__setattr__(name, value)
            return
        # So that no other thread begins a turn between the check and the new value.
        with run_lock:
            self._set_public(name, value)

    def _set_public(self, name: str, value: Any) -> None:
        self._check_settable(name, value)
        _check_value(self, name, value)
        # In __init__ they are seated already.
        if name == "players" and name in self.__dict__:
            players = by_name(value)
            words = _words_for_players(type(self), players)
            value = self._seat_players(players)
            # The manifest takes the players' words from the configuration.
            self.config = self.config.model_copy(update={"players": words})
        if name == "config":
            # Attribute access finds these before the class's Parameter, which is slower.
            for field in type(value).model_fields:
                if is_parameter(type(self), field):
                    self.__dict__[field] = getattr(value, field)
        super().__setattr__(name, value)

    def _check_settable(self, name: str, value: object) -> None:
        """Raise ConfigError for an attribute that may never be set, or not during a turn."""
        cls = type(self)
        if is_parameter(cls, name):
            raise ConfigError(
                f"{name} is a parameter, which a run keeps to its end; make another run: "
                f"{cls.__name__}({name}={brief(value, 40)})"
            )
        is_recorded = isinstance(self.__dict__.get("_session"), Recording)
        if is_recorded and name in ("players", "config"):
            # The manifest is written already, and a replay would take them from there.
            raise ConfigError(
                f"{name} is set, and a run on a tape keeps its players and parameters; make "
                f"another: run.counterfactual(players), or {cls.__name__}(...)"
            )
        # From the dict, since in __init__ there is no such attribute yet.
        if not self.__dict__.get("_stepping") or name in _SET_FROM_OUTSIDE:
            return
        if self._driver is not scope().driver:
            raise ConfigError(
                f"{name} is set while a turn of {cls.__name__} is played; wait until it has ended"
            )
        # What a turn remembers outside the state is lost in a resume.
        raise ConfigError(
            f"{cls.__name__}.turn sets self.{name}, which is on no tape, so that a resumed run "
            f"would lack it; make it a field of the state: return state.replace({name}=...)"
        )

    def _seat_players(self, players: Mapping[str, object]) -> Mapping[str, Any]:
        """Return players as a run asks them, and note those that no tape holds."""
        seated = _seated(self, players)
        # The manifest names these seats, so that a replay can say which players it needs again.
        self._given_players = seated.unrecorded
        return FrozenDict(seated.players)

    @classmethod
    def _parameters_in(cls, file: YamlFile) -> Mapping[str, Any]:
        """Return the parameters that a file has; by default its keys, without ``kind``."""
        return file.values

    def seat(
        self,
        name: str,
        *,
        by: str = "",
        tag: str = "",
    ) -> Any:
        """Return who answers a question: a client, a rule, or ``"random"``.

        This is the player in the seat of that name; else in the seat of that kind of question; else
        in the seat ``*``; else the model.

        Args:
            name: the player that the question names.
            by: who answers instead of the player, if not the player itself.
            tag: the kind of question.

        Raises:
            ConfigError: no one answers the question.
        """
        answerer = by or name
        self._asked_seats[answerer] = None
        # The seat of the tag is used only if the player has no seat of its own.
        if tag and answerer not in self.players:
            self._asked_seats[tag] = None
        return self._player_for(answerer, tag)

    def _player_for(self, name: str, tag: str) -> Any:
        """Return who answers, as ``seat`` does, without noting that the seat was asked."""
        players = self.players
        # The narrowest seat counts: the player's own, then the kind of question, then all others.
        if name in players:
            seat = name
        elif tag in players:
            seat = tag
        else:
            seat = "*"
        player = players.get(seat, "model")
        if player == "rule":
            return getattr(self, "rule")  # noqa: B009 - a world need not have one
        if player != "model":
            # In a replay, the player has the settings that were recorded for this turn.
            return self._session.seated(seat, player)
        if self.llm_client is None:
            raise self._no_one_for(name)
        return self.llm_client

    def _no_one_for(self, name: str) -> ConfigError:
        cls = type(self).__name__
        seats = ""
        if self.players:
            seats = (
                f" (there are players for {', '.join(self.players)}){closest(name, self.players)}"
            )
        return ConfigError(
            f"no one answers for {name}{seats}: give the run a model, "
            f"{cls}(llm_client=connect('auto')), or other players: {cls}(players={{'*': 'random'}})"
        )

    def prompt(self, source: str | Prompt) -> Prompt:
        """Return a prompt to fill in code, or the edited prompt that a fork put in its place.

        Args:
            source: a prompt, or the name of a prompt of this package.

        Raises:
            PromptError: there is no prompt of that name.
        """
        if isinstance(source, str):
            return self._prompts.shipped(source)
        return cast("Prompt", self._prompts.named(source, None).prompt)

    # --- what a class may do differently -----------------------------------------------------

    @classmethod
    def measures(cls, config: Any) -> Mapping[str, Callable[[pd.DataFrame], float]]:
        """Return functions by name that each sum up a run's frame in a number; by default none.

        A study's outcomes may name them, such as ``loss`` for economic runs.
        """
        return {}

    async def turn(self, state: StateT, ask: Ask) -> StateT:
        """Return the next state; every world defines this.

        A turn may ask players and draw from ``ask.rng``. Everything else must follow from the state
        and the parameters.

        Args:
            state: the state before the turn.
            ask: asks players: ``await ask("Ann", Gift, "...")``, ``await ask.each(...)``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no async def turn(self, state, ask)")

    def ready(self) -> None:
        """Set attributes that begin with ``_`` to values that follow from the parameters alone.

        Called before ``start``; by default it does nothing.
        """

    def changed(
        self,
        state: StateT,
        values: Mapping[str, Any],
    ) -> StateT:
        """Return a state with an intervention's values in it, such as ``{"coins.Ann": 5}``.

        By default each value goes where its name says. A world may override this to accept other
        names, or to change more of the state, and call this method for the remaining values.

        Args:
            state: the state.
            values: the new values, by name.

        Raises:
            ConfigError: there is no such name, or a value does not fit.
        """
        for name, value in values.items():
            field = name.partition(".")[0]
            # A field of the state may have the same name as a parameter.
            if field in self.state_type.model_fields:
                continue
            is_value = name in values_in(cast("State", state))
            of_every_run = field in WorldConfig.model_fields and not is_value
            if of_every_run or is_parameter(type(self), field):
                cls = type(self).__name__
                raise ConfigError(
                    f"{name} is a parameter of {cls}, which a run keeps to its end; make another "
                    f"run, {cls}({field}={brief(value, 40)}), or llmsim-lab run ... --set "
                    f"{name}=..., or let start() copy it into the state"
                )
        return cast("StateT", changed_at(cast("State", state), values))

    def start(self) -> StateT:
        """Return the state to start from; by default each field has its default.

        Raises:
            ConfigError: a field has no default.
        """
        try:
            return cast("StateT", self.state_type())
        except ValidationError as error:
            state_name = self.state_type.__name__
            raise ConfigError(
                f"{type(self).__name__} does not know its first state: {faults(error)}; give each "
                f"field of {state_name} a default, or define def start(self) -> {state_name}"
            ) from error

    def _as_read(self, state: StateT) -> StateT:
        """Return a state as players and prompts read it; a world may hide a part of it."""
        return state

    def _doubts(self) -> Sequence[Mapping[str, str]]:
        """Return the fields of the WARNINGs to log before the first turn; by default none."""
        return ()

    def told(
        self,
        state: StateT,
        player: str,
    ) -> Mapping[str, Any]:
        """Return what a player may know of a state, by name and JSON-ready; by default nothing.

        Windows and rooms show it to the person in that seat, such as what the player earned.
        """
        return {}

    def _as_put(self, question: OpenQuestion) -> OpenQuestion:
        """Return a question as it is put to a person; see ``run/seating.py``."""
        return question

    def _as_reply(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a person's answer to a question of ``_as_put`` as the run takes answers."""
        return dict(values)

    def done(self, state: StateT) -> bool:
        """Return True if the run is over before its last turn."""
        return False

    def prediction(self) -> Mapping[str, float]:
        """Return the numbers that theory predicts for these parameters, by column of the frame.

        Charts show these columns first, with the prediction as a dashed line.
        """
        return {}

    def people(self) -> Mapping[str, PublishedFigure]:
        """Return figures of people from the published study that has this design, by measure.

        A measure is a column of ``decisions()``, or ``"column@turn"`` for one turn. Charts and
        ``compare_with_people`` show the figures beside the run. Return nothing if
        ``played_otherwise()`` names a parameter with another value.

        This is of the design alone. Charts and pages show nothing beside edited prompts and
        interventions, and a comparison counts such runs, whatever this returns.
        """
        return {}

    def played_otherwise(self, turns: int | None = None) -> list[str]:
        """Return how the run differs from what people played, in words for each parameter.

        Args:
            turns: how many are played; if not given, as many as planned, or more if more were.

        Raises:
            ConfigError: ``people_played`` names what is no parameter, or no values.
        """
        differences = []
        if self._has_start_of_its_own():
            differences.append("a start state of its own")
        people_played: object = type(self).people_played
        if not isinstance(people_played, Mapping):  # authors write it
            raise ConfigError(
                f"people_played of {type(self).__name__} is {brief(people_played)}; write the "
                "values that people played with, by parameter: {'stake': [5, 10]}"
            )
        for name, played in people_played.items():
            if name not in self.config_type.model_fields:
                raise ConfigError(
                    f"people_played of {type(self).__name__} names {name!r}, which is no "
                    f"parameter{closest(name, self.config_type.model_fields)}"
                )
            # A text would be taken for its letters.
            is_listed = isinstance(played, Collection) and not isinstance(played, str | bytes)
            if not is_listed or len(played) == 0:
                raise ConfigError(
                    f"people_played of {type(self).__name__} has {brief(played)} for {name}; list "
                    f"the values that people played with: {{{name!r}: [5, 10]}}"
                )
            value = getattr(self.config, name)
            if name == "turns":
                value = max(value, self.turns[-1].number) if turns is None else turns
            # One by one, since a set cannot be asked for a list.
            if not any(value == one for one in played):
                differences.append(f"{name}={value}, and people played {_values_in_words(played)}")
        return differences

    def _has_start_of_its_own(self) -> bool:
        """Return whether the run starts elsewhere than its class does by itself."""
        try:
            usual = checked_state(self, self.start(), "starts from")
        except ConfigError:  # the class knows no first state, so each run is given one
            return False
        return bool(self.turns[0].state != usual)

    @property
    def prompts(self) -> dict[str, Prompt]:
        """The prompts in use, by their places; a world's own prompts are here once they were asked.

        A prompt without slots is named after its kind of question: ``gift``, or the question's tag.
        The second such question to a player in a turn is ``gift@2``. Its text is the first text
        that was asked.

        ``run.prompts |= {place: prompt}`` replaces a prompt in a run that is on no tape yet, and in
        a replay. In other runs, use ``fork(prompt=)``.
        """
        return dict(self._prompts.by_place)

    @prompts.setter
    def prompts(self, prompts: Mapping[str, Prompt]) -> None:
        if isinstance(self._session, Recording):  # a replay would take its prompts from the tape
            raise ConfigError("a run on a tape keeps its prompts; fork it: run.fork(prompt=...)")
        self._prompts.put(prompts)

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
    def planned(self) -> Sequence[StateChange]:
        """The planned interventions, those made already included.

        ``run.planned = [...]`` puts others in their place, on the tape too. What is new in it must
        be for a turn to come, and fit the latest state, as with ``intervene``.
        """
        return self._planned

    @planned.setter
    def planned(self, planned: Sequence[StateChange]) -> None:
        changes = items_of("planned", planned, StateChange, "an intervention, or a list of them")
        for change in not_among(changes, self._planned):
            self._check_planned(change)
        self._change(self.turns[-1], changes)
        if self.turn_number == 0:
            set_at_start = [change for change in self._set_first if change.turn == 0]
            self._set_first = set_at_start + not_among(
                self._planned,
                self.config.interventions,
            )

    def _check_planned(self, change: StateChange) -> None:
        """Raise ConfigError for an intervention whose turn has begun, or that cannot be set."""
        first_open = self.turn_number + 1
        if self._stepping:
            # The turn that is being played read its planned interventions when it began.
            first_open += 1
        if change.turn < first_open:
            raise ConfigError(
                f"planned has an intervention at turn {change.turn}, which has been played or is "
                f"being played (the run is at turn {self.turn_number}); plan it for turn "
                f"{first_open} or later"
            )
        # Tried on the latest state, so that a wrong name or value raises now.
        state = self.changed(self.state, change.set)
        checked_state(self, state, "changed returned")

    def _change(self, latest: Turn, planned: Sequence[StateChange]) -> None:
        """Put a changed turn in the place of the latest one, and others in that of the plans."""
        latest_index = len(self.turns) - 1
        latest_before = self.turns[latest_index]
        planned_before = self._planned
        try:
            self.turns[latest_index] = latest
            self._planned = tuple(planned)
            # Recorded now, since the process may end before the next turn.
            self._session.keep_change(self)
        except BaseException as error:
            # Undone, so that the run and its tape agree. Ctrl-C may come after the change was
            # written, so after every error but the tape's own it is undone on the tape too.
            self.turns[latest_index] = latest_before
            self._planned = planned_before
            if not isinstance(error, TapeError):
                self._session.keep_change(self)
            raise

    @property
    def calls(self) -> list[CallRecord]:
        """All model calls so far, oldest first, of all clients."""
        calls: list[CallRecord] = []
        for turn in self.turns:
            calls += turn.calls
        return calls

    def to_frame(self) -> pd.DataFrame:
        """Return the run as a frame with one row a turn, the initial state first.

        Columns: ``turn``; the columns of the state, and those that the turn noted; ``calls``, the
        number of model calls; ``ok``, ``repaired``, ``fallback`` and ``failed``, how many of them
        came out so; ``tokens``; ``seconds``; ``interventions``, in words.
        """
        # Imported here: it takes half a second, and a run can be played without it.
        import pandas as pd

        return pd.DataFrame(map(turn_row, self.turns))

    def decisions(self) -> pd.DataFrame:
        """Return the run's decisions as a frame with one row each, with answer and outcome.

        Columns: ``run``, the run's number on the tape; ``seed``; ``period``, if turns have one;
        ``turn``; ``player``; ``component``; the fields of the replies, each under its own name, or
        as ``reply_NAME`` if that is taken; ``reasoning``; ``confidence``; the outcomes that the
        turn noted; ``status``; ``interventions`` of the turn, in words; ``attempts``;
        ``prompt_tokens``, ``reply_tokens`` and their sum ``tokens``; ``seconds``; ``model``.

        For a rule's decision, attempts, tokens and seconds are 0, and there is no model. Of the
        decisions that ``decide=`` took from one measurement of probabilities, the first has the
        attempts, tokens and seconds of the calls that measured them.
        """
        frame = decisions_frame(
            self.turns,
            run=self.run_id,
            seed=self.config.seed,
        )
        return with_personas(frame, self.config)

    @property
    def series(self) -> Sequence[Series]:
        """The columns of ``to_frame()`` that can be charted, single numbers first."""
        return charted_columns(self).series()[:MOST_SERIES]

    @property
    def last_planned(self) -> int:
        """The turn that the run is to reach, by its configuration or by the argument of ``run``.

        The latest turn, if the run is over early or was played beyond that.
        """
        if self.done(self.state):
            return self.turn_number
        configured: int = self.config.turns
        # run(3) may stop before the configured end, or continue after it.
        return max(self.turn_number, self._target_turn, configured)

    @property
    def given(self) -> bool:
        """True if a player is something that no tape can hold, such as a function."""
        return bool(self._given_players)

    @property
    def tape(self) -> Tape | None:
        """The tape that the run is recorded on or replayed from, if any."""
        return self._session.tape

    @property
    def run_id(self) -> int | None:
        """The run's number on its tape."""
        return self._session.number


def _configured(
    cls: type[BaseWorld],
    config: WorldConfig | None,
    parameters: Mapping[str, object],
    players: Mapping[str, object],
) -> WorldConfig:
    """Return a configuration made from parameters, or a given one with the parameters in it."""
    _check_parameters(cls, parameters)
    words = _words_for_players(cls, players)
    values: dict[str, Any] = dict(parameters)
    if config is not None:
        if not isinstance(config, cls.config_type):
            raise ConfigError(
                f"config={brief(config)} is not a {cls.config_type.__name__}; give parameters by "
                f"keyword: {cls.__name__}(seed=1, players={{'*': ...}})"
            )
        if not parameters and not words:
            return config
        # The values themselves and not model_copy, so that they are checked with the new ones.
        configured = {name: getattr(config, name) for name in cls.config_type.model_fields}
        values = {**configured, **parameters}
    if words:
        # Words given now count more than those of the configuration.
        values["players"] = {**values.get("players", {}), **words}
    return cls.config_type(**values)


def _words_for_players(cls: type[BaseWorld], players: Mapping[str, object]) -> dict[str, str]:
    """Return the players that a configuration can name by a word; ``_seated`` has the others.

    Raises:
        ConfigError: a word is not a player.
    """
    words: dict[str, str] = {}
    for name, player in players.items():
        if isinstance(player, Person):
            # The word also says who answers if the person does not.
            words[name] = word_of_person(player.stand_in)
        elif isinstance(player, str):
            if player not in get_args(PlayerWord):
                # Shown as the user wrote it: a single value is for all players.
                argument = brief(player) if name == "*" else f"{{{brief(name)}: {brief(player)}}}"
                raise ConfigError(
                    f"{cls.__name__}: players={argument} is not a "
                    f"player{closest(player, get_args(PlayerWord))}; a word is one of "
                    f"{', '.join(map(repr, get_args(PlayerWord)))}"
                )
            words[name] = player
    return words


def _check_parameters(cls: type[BaseWorld], parameters: Mapping[str, object]) -> None:
    """Raise ConfigError for a parameter that the world does not have."""
    fields = cls.config_type.model_fields
    for name in parameters:
        # Names in ``gone`` are left to the pydantic model, whose error says what to write instead.
        if name not in fields and name not in cls.config_type.gone:
            of_world = [field for field in fields if field not in WorldConfig.model_fields]
            raise ConfigError(
                f"{cls.__name__} has no parameter {name!r}{closest(name, fields)}; it takes "
                f"{', '.join([*of_world, *WorldConfig.model_fields])}, and state, players, tape "
                "and llm_client"
            )


class _Seated(NamedTuple):
    """Who answers for whom.

    Attributes:
        players: the players, by their seats.
        unrecorded: the seats whose players a tape cannot hold.
    """

    players: dict[str, Any]
    unrecorded: list[str]


def _seated(run: BaseWorld, players: Mapping[str, object]) -> _Seated:
    """Return who answers for whom, in the form in which a run asks them."""
    seated: dict[str, Any] = {}
    unrecorded: list[str] = []
    for name, player in players.items():
        seat = _as_player(run, name, player)
        seated[name] = seat
        # The manifest holds words, and the tape holds people's answers.
        is_person = isinstance(getattr(seat, "backend", None), Person)
        if not isinstance(player, str) and not is_person:
            unrecorded.append(name)
    # Checked now and not at the first question, which may come hours later.
    stand_ins = {
        client.backend.stand_in
        for client in seated.values()
        if isinstance(getattr(client, "backend", None), Person)
    }
    if "model" in stand_ins and run.llm_client is None:
        raise ConfigError(
            f"a model is to answer where a person of {type(run).__name__} does not, and the run "
            "has none: llm_client=connect('auto'), or let chance answer: 'person, else random'"
        )
    has_rules = "rule" in seated.values() or "rule" in stand_ins
    if has_rules and getattr(run, "rule", None) is None:
        raise ConfigError(
            f"{type(run).__name__} has no rule; define def rule(self, question) -> YourReply(...) "
            "in it, or let chance answer: 'random'"
        )
    return _Seated(seated, unrecorded)


def _as_player(
    run: BaseWorld,
    name: str,
    player: Any,
) -> Any:
    """Return a player in the form in which a run asks it: a word, a function, or a client.

    Raises:
        ConfigError: it is not a player.
    """
    if isinstance(player, str):
        stand_in = stand_in_of(player)
        if stand_in is None:
            return player
        player = Person(stand_in=stand_in)
    if isinstance(player, Person):
        return human_client(player)
    # A class has the methods of its objects too, but it cannot be asked: see the error below.
    if not isinstance(player, type):
        if hasattr(player, "chat"):  # a backend
            config = LLMConfig()
            if run.llm_client is not None:
                config = run.llm_client.config
            player = LLMClient(config, player)
        if hasattr(player, "call_with_retry"):
            # Raises if the client lacks something that a run needs.
            run_client(player, f"players[{brief(name)}]")
            return player
        if callable(player):
            return player
    raise ConfigError(
        f"players[{brief(name)}] is {brief(player)}; a player is 'model', 'rule', 'random', a "
        "function of the question, a Person() or a client"
    )


def _warn_of_unused_settings(config: WorldConfig, client: LLMClient) -> None:
    """Warn if the settings in a configuration are not those of the client that was given."""
    if "llm" not in config.model_fields_set:
        return
    # Only settings that were written down: a default contradicts nothing.
    wanted = {name: getattr(config.llm, name) for name in config.llm.model_fields_set}
    changed = changed_settings(client.config.model_copy(update=wanted), client.config)
    if changed:
        words = (
            f"llm= does not count beside llm_client=, whose own settings do: {changed}. A client "
            "with these: connect(..., config=run.config.llm)"
        )
        _warn("SETTINGS_NOT_USED", words=words, changed=changed)


def _check_value(run: BaseWorld, name: str, value: Any) -> None:
    """Raise ConfigError for a value that an attribute of every run cannot have."""
    cls = type(run)
    if name == "llm_client":
        run_client(value)
    elif name == "config" and not isinstance(value, cls.config_type):
        raise ConfigError(
            f"config={brief(value)} is not a {cls.config_type.__name__}; make another run: "
            f"{cls.__name__}(...)"
        )
    elif name == "turns" and not _is_list_of(Turn, value, least=1):
        raise ConfigError(
            f"turns={brief(value)} are not a run's turns; to continue from an earlier one: "
            "run.fork(turn)"
        )
    elif name == "planned" and not _is_list_of(StateChange, value):
        raise ConfigError(
            f"planned={brief(value)} are not interventions; plan one by run.intervene(3, "
            "{'coins.Ann': 5})"
        )


def _is_list_of(kind: type, value: object, *, least: int = 0) -> bool:
    if isinstance(value, UserList):  # an exact law's, which notes what is read of it
        return True
    if not isinstance(value, list | tuple) or len(value) < least:
        return False
    return all(isinstance(item, kind) for item in value)


def checked_state(
    run: BaseWorld[StateT],
    state: object,
    verb: str = "turn returned",
) -> StateT:
    """Return a state as a tape would give it back.

    Args:
        run: the run.
        state: the state that a turn returned, or that the run starts from.
        verb: where the state comes from, for messages.

    Raises:
        ConfigError: it is not a state of this run, or a tape would lose a part of it.
    """
    state = own_state(run, state, verb)
    # The first state is checked before the run has any turn.
    calls = run.turns[-1].calls if hasattr(run, "turns") else ()
    return cast("StateT", kept_state(state, run.state_type, calls).state)


def own_state(
    run: BaseWorld[StateT],
    state: object,
    verb: str = "turn returned",
) -> StateT:
    """Return a state, if it is of the class that this run's states have.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(state, run.state_type):
        return cast("StateT", state)
    world = type(run).__name__
    wanted = run.state_type.__name__
    if type(state).__name__ == wanted:  # as after a second run of its notebook cell
        raise ConfigError(
            f"{world} {verb} {brief(state)}; {wanted} was defined again since {world} was made. "
            f"Define {world} again as well (run its cell, or import it again), and make a new run "
            "of it"
        )
    raise ConfigError(
        f"{world} {verb} {brief(state)}; it must be a {wanted}: return state.replace(...)"
    )


def _values_in_words(values: Collection[object]) -> str:
    """Return values as a sentence names them: ``2, 5 or 10``, ``15 to 18``."""
    # Other ranges leave values out, so they are named one by one.
    if isinstance(values, range) and len(values) > 1 and values.step == 1:
        return f"{values[0]} to {values[-1]}"
    *first, last = map(str, values)
    return f"{', '.join(first)} or {last}" if first else last


def is_parameter(cls: type[BaseWorld], name: str) -> bool:
    """Return True for the name of a parameter, unless a subclass replaced the parameter."""
    # From the classes' dicts, since getattr would call the Parameter and return its default.
    for base in cls.__mro__:
        if name in base.__dict__:
            return isinstance(base.__dict__[name], Parameter)
    return False


def _check_world(cls: type[BaseWorld]) -> None:
    """Raise ConfigError if a world's ``turn`` is not async, or its state is not a ``State``."""
    # Else the first step would fail with one of Python's own messages.
    if not inspect.iscoroutinefunction(cls.turn):
        raise ConfigError(
            f"{cls.__name__}.turn is a plain function, which cannot wait for answers; write async "
            "def turn(self, state, ask)"
        )
    state = cls.state_type
    # Nothing could change in State itself, which has no fields.
    is_state = isinstance(state, type) and issubclass(state, State)
    if not is_state or state is State:
        raise ConfigError(
            f"{cls.__name__} has the state {getattr(state, '__name__', state)}; derive class "
            f"Pot(State), and name it: class {cls.__name__}(Run[Pot])"
        )


def define(cls: type[BaseWorld], base: type[BaseWorld]) -> None:
    """Complete a world's class that was just made: its state, configuration and name on tapes.

    Args:
        cls: the class.
        base: ``Run``, whose names no parameter may have.

    Raises:
        ConfigError: a parameter, the turn or the state is not what a world needs.
    """
    if "state_type" not in cls.__dict__:
        named_state = state_type_of(cls, base)
        if named_state is not None:
            cls.state_type = named_state
    if "config_type" not in cls.__dict__:
        cls.config_type = config_type_of(cls, base)
    # A class with an open type parameter is a base of worlds, and has no state yet.
    if cls.turn is not base.turn and not cls.__parameters__:  # type: ignore[attr-defined]
        _check_world(cls)
        if "kind" not in cls.__dict__:
            cls.kind = identity(cls)
    if "kind" in cls.__dict__:
        register(cls.kind, cls)
