"""A run: a state, and a function that makes the next one by asking models.

``Run`` is the base of all simulations. A world of one's own defines ``turn``; the worlds that come
with the package override more. Tape, replay, forks, interventions and frames are the same for all.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, cast, dataclass_transform

from pydantic import ValidationError
from typing_extensions import TypeVar

from llmsim_lab.calls import CallRecord, Status
from llmsim_lab.concurrency import run_sync
from llmsim_lab.errors import BudgetReached, ConfigError, TapeError
from llmsim_lab.llm import LLMClient, LLMConfig, Person, Tape
from llmsim_lab.llm._human import human_client
from llmsim_lab.llm._scope import Budget, CallLog, Purse, recording
from llmsim_lab.logs import log_event
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs import verbs
from llmsim_lab.runs.ask import Ask, prompt_from
from llmsim_lab.runs.faces import run_html
from llmsim_lab.runs.forks import fork_of
from llmsim_lab.runs.frames import decisions_frame, own_numbers, turn_row
from llmsim_lab.runs.garbage import rare_collections
from llmsim_lab.runs.manifest import config_of, make_manifest
from llmsim_lab.runs.parameters import (
    Parameter,
    code_digests,
    config_type_of,
    file_of,
    identity,
    types_of,
)
from llmsim_lab.runs.parts import code_changes, counted, digests_in, prompts_in
from llmsim_lab.runs.progress import progress_line
from llmsim_lab.runs.records import tape_turn
from llmsim_lab.runs.registry import register
from llmsim_lab.runs.series import Series, plain_series
from llmsim_lab.runs.settings import (
    RunConfig,
    RunIntervention,
    StateChange,
    WorldConfig,
    checked,
    idle_seeds,
    say_if_unreached,
)
from llmsim_lab.runs.state import State, check_kept
from llmsim_lab.runs.taping import Recording, Taping
from llmsim_lab.runs.turn import RunTurn, WorldTurn
from llmsim_lab.text import closest, faults
from llmsim_lab.values import FrozenDict, Reply

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run"]

logger = logging.getLogger(__name__)

StateT = TypeVar("StateT", default=Any)
TurnT = TypeVar("TurnT", bound=RunTurn[Any, Any], default=Any)
ConfigT = TypeVar("ConfigT", bound=RunConfig, default=Any)
InterventionT = TypeVar("InterventionT", bound=RunIntervention, default=Any)

_MOST_PROMPTS = 64
_SET_IN_A_STEP = ("turns", "unrecorded", "code_changes", "llm_client")
"""What others may set of a run while it plays a turn."""


def _option(*, default: Any = None, alias: str = "") -> Any:
    """Declare an argument of every run for type checkers, which read it from the class."""
    return default, alias


@dataclass_transform(kw_only_default=True, field_specifiers=(_option,))
class _Parameters:
    """Lets editors and type checkers know a world's annotated fields as its arguments."""


class Run(_Parameters, Generic[StateT, TurnT, ConfigT, InterventionT]):
    """The base of all simulations; a world of one's own derives from ``Run[ItsState]``.

    Its annotated fields are parameters, which are given by keyword, read from files and written on
    tapes; its ``async def turn(self, state, ask)`` returns the next state. ``start`` and ``done``
    may be defined as well, ``rule(self, question)``, which answers for players without a model, and
    ``prediction``, what theory says, for charts.

    What a turn leads to must follow from the turn before, the configuration's seed, what is done
    from outside and the model's answers, and from nothing else: so write no clock, and no state of
    your own that is not in the turns. Then replay, fork and resume come by themselves. A turn that
    fails changes nothing: the turns before it stay, and ``step`` may be called again.

    A class that needs more than ``turn`` overrides what has a default here. A constructor of its
    own takes ``config``, and by keyword ``llm_client``, ``state`` (to start from), ``tape``,
    ``prompts`` and its ``part_names``; it sets its parts, then calls this one. One that takes
    something else overrides ``rebuilt``.

    Args:
        config: what to run; made of the parameters if not given.
        llm_client: the model, where the configuration calls for one.
        players: who answers for a player, by name, instead of the model: ``"rule"``, ``"random"``,
            a function of the ``Question``, a person (``Person``), another client; ``*``
            stands for all others.
        state: the state to start from, instead of ``start()``.
        tape: where to record the run: a tape, or a file that becomes or is one.
        prompts: prompts instead of the world's own, as a recorded run names them.
        first: the turn to start from, where a class makes it itself.
        given: which parts the user gave instead of those the configuration describes.
        parameters: the world's own, and ``name``, ``seed``, ``turns``, ``interventions``.

    Attributes:
        kind: its name on tapes, such as ``pot:PublicGoods``.
        config_type: of its configuration, a pydantic model such as a ``RunConfig``; its ``series``
            are the columns to chart.
        state_type: of its states: a pydantic model, a dataclass, or what else pydantic can write
            as JSON and read back to an equal value.
        turn_type: of its turns, a ``RunTurn`` with whatever fields it adds; those too are written
            by pydantic. It says what is shown of a turn: ``own_columns``, ``in_words``,
            ``outcomes``.
        intervention_type: of what may be done from outside. These four are the ones that the class
            names, ``Run[State, Turn, Config, Intervention]``, as far as it does.
        part_names: the constructor's arguments by which a user may give parts of his own, such as
            ``agents`` or ``engine``; each is also the attribute that holds that part, or those
            parts. A part's ``llm_client`` and ``prompt`` are what a fork changes; where its
            ``digests`` of code, by name, are not the recorded ones, the run does not go on.
        repeats_interventions: whether a rerun does again also what was done from outside while the
            run was played, and not only what was planned when it began.
        turns: the turns so far, oldest first; the first holds the state that the run started from.

    Raises:
        ConfigError: a parameter is unknown or wrong.
    """

    _client_: LLMClient | None = _option(default=None, alias="llm_client")
    _players_: Mapping[str, Any] | None = _option(default=None, alias="players")
    _state_: Any = _option(default=None, alias="state")
    _tape_: Tape | str | Path | None = _option(default=None, alias="tape")
    _name_: str = _option(default="", alias="name")
    _seed_: int = _option(default=0, alias="seed")
    _turns_: int = _option(default=8, alias="turns")
    _interventions_: Sequence[Any] = _option(default=(), alias="interventions")

    kind: ClassVar[str] = ""
    config_type: ClassVar[type[Any]] = WorldConfig
    state_type: ClassVar[Any] = State
    turn_type: ClassVar[type[Any]] = WorldTurn
    intervention_type: ClassVar[type[RunIntervention]] = StateChange
    part_names: ClassVar[tuple[str, ...]] = ("players",)
    repeats_interventions: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__
        for name, named in types_of(cls, Run).items():
            if name not in own:
                setattr(cls, name, named)
        if cls._is_own() and not cls.__parameters__:  # type: ignore[attr-defined]
            _check_world(cls)
            if "config_type" not in own:
                cls.config_type = config_type_of(cls, Run)
            if "kind" not in own:
                cls.kind = identity(cls)
        if "kind" in cls.__dict__:
            register(cls.kind, cls)

    @classmethod
    def _is_own(cls) -> bool:
        """Return True for a world that defines ``turn``, and leaves the rest to this class."""
        return cls.turn is not Run.turn

    def __init__(
        self,
        config: ConfigT | None = None,
        *,
        llm_client: LLMClient | None = None,
        players: Mapping[str, Any] | None = None,
        state: StateT | None = None,
        tape: Tape | str | Path | None = None,
        prompts: Mapping[str, Prompt] | None = None,
        first: TurnT | None = None,
        given: Iterable[str] = (),
        **parameters: Any,
    ) -> None:
        self._prompts: dict[str, Prompt] = dict(prompts or {}) if first is None else {}
        self._sources: dict[Any, Prompt | str] = {}
        self._asked: set[str] = set()
        self.players: Mapping[str, Any] = FrozenDict()
        if first is None:
            config = self._configured(config, parameters, players or {})
        assert config is not None
        self.config = config
        self.llm_client = llm_client
        if first is None:
            given = self._seat(players or {})
            start = self.start() if state is None else state
            first = self.turn_type(number=0, state=self._checked_start(start))
        self.turns: list[TurnT] = [first]
        self.given = frozenset(given)
        self.unrecorded = ""
        """Why a run that one would expect to be recorded is not; empty if it is as asked."""
        self.code_changes = ""
        """How the parts' code differs from what the run was recorded with; empty if it does not."""
        self._listeners: list[Callable[[TurnT], object]] = []
        self._planned: dict[int, list[InterventionT]] = {}
        self._stepping = False
        self._purse: Purse | None = None
        self._taping: Taping | None = None
        for intervention in config.interventions:
            self._plan(intervention)
            say_if_unreached(intervention, run=config.name, reaches=self.run_reaches)
        if tape is not None:
            self._record(tape if isinstance(tape, Tape) else Tape(tape))

    def __setattr__(self, name: str, value: Any) -> None:
        if (
            self.__dict__.get("_stepping")
            and name not in _SET_IN_A_STEP
            and not name.startswith("_")
            and self._is_own()
            and not isinstance(getattr(type(self), name, None), Parameter)
        ):
            raise ConfigError(
                f"{type(self).__name__}.turn sets self.{name}, which is on no tape, so that a "
                "resumed run would lack it; make it a field of the state: "
                f"return state.replace({name}=...)"
            )
        super().__setattr__(name, value)

    @classmethod
    def _configured(
        cls, config: Any, parameters: Mapping[str, Any], players: Mapping[str, Any]
    ) -> ConfigT:
        """Return the configuration that parameters make, or a given one with them."""
        fields = cls.config_type.model_fields
        for name in parameters:
            if name not in fields:
                raise ConfigError(
                    f"{cls.__name__} has no parameter {name!r}{closest(name, fields)}; it takes "
                    f"{', '.join(name for name in fields if name != 'llm')}, and llm_client, tape, "
                    "state"
                )
        words = {name: who for name, who in players.items() if isinstance(who, str)}
        words |= {name: "person" for name, who in players.items() if isinstance(who, Person)}
        values = dict(parameters)
        if config is not None:
            if not isinstance(config, cls.config_type):
                raise ConfigError(
                    f"config={config!r:.60} is not a {cls.config_type.__name__}; give parameters "
                    f"by keyword: {cls.__name__}({', '.join(list(cls._own_parameters())[:1])}=...)"
                )
            if not values and not words:
                return cast("ConfigT", config)
            values = {name: getattr(config, name) for name in fields} | values
        if words:
            values["players"] = {**values.get("players", {}), **words}
        made: ConfigT = cls.config_type(**values)
        return made

    @classmethod
    def _own_parameters(cls) -> Mapping[str, Any]:
        known = WorldConfig.model_fields
        return {
            name: info for name, info in cls.config_type.model_fields.items() if name not in known
        }

    def _seat(self, players: Mapping[str, Any]) -> list[str]:
        """Note who answers for whom; returns ``["players"]`` if a tape cannot hold some of it."""
        words = getattr(self.config, "players", {})
        seated: dict[str, Any] = {}
        given = False
        for name, who in {**words, **players}.items():
            if isinstance(who, str):
                seated[name] = human_client() if who == "person" else who
            elif isinstance(who, Person):
                seated[name] = human_client(person=who)
            elif isinstance(who, LLMClient):
                seated[name] = who
                given = given or not isinstance(who.backend, Person)
            elif hasattr(who, "chat"):
                config = self.llm_client.config if self.llm_client else LLMConfig()
                seated[name], given = LLMClient(config, who), True
            elif callable(who):
                seated[name], given = who, True
            else:
                raise ConfigError(
                    f"players[{name!r}] is {who!r:.60}; a player is 'model', 'rule', 'random', a "
                    "function of the question, a Person() or a client"
                )
        rule = getattr(self, "rule", None)
        if "rule" in seated.values() and rule is None:
            raise ConfigError(
                f"{type(self).__name__} has no rule; define def rule(self, question) -> "
                "YourReply(...) in it, or let chance answer: 'random'"
            )
        self.players = FrozenDict(seated)
        return ["players"] if given else []

    def _checked_start(self, state: Any) -> StateT:
        if isinstance(state, self.state_type):
            if self._is_own():
                check_kept(state, self.state_type)
            own: StateT = state
            return own
        raise ConfigError(
            f"{type(self).__name__} starts from {state!r:.60}; its state is a "
            f"{self.state_type.__name__}: def start(self) -> {self.state_type.__name__} returns one"
        )

    def player(self, name: str) -> Any:
        """Return who answers for a player: a client, a rule, or ``"random"``.

        Raises:
            ConfigError: nobody does.
        """
        self._asked.add(name)
        who = self.players.get(name, self.players.get("*", "model"))
        if who == "rule":
            return getattr(self, "rule")  # noqa: B009 - a world need not have one
        if who != "model":
            return who
        if self.llm_client is None:
            cls = type(self).__name__
            others = f" (there are players for {', '.join(self.players)})" if self.players else ""
            raise ConfigError(
                f"nobody answers for {name}{others}: give the run a model, {cls}(llm_client="
                f"connect('auto')), or other players: {cls}(players={{'*': 'random'}})"
            )
        return self.llm_client

    def prompt_for(self, source: str | Path | Prompt, reply: type[Reply]) -> Prompt | str:
        """Return the prompt that a question names, or the one that a fork put in its place.

        Args:
            source: a text, a file that ends in ``.md``, or a prompt.
            reply: what is asked for; a text's prompt is called after it.

        Raises:
            PromptError: the file cannot be read, or a template is wrong.
            ConfigError: there are too many different ones.
        """
        try:
            return self._sources[source, reply]
        except (KeyError, TypeError):
            pass
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", reply.__name__).lower()
        path = file_of(type(self))
        prompt = prompt_from(source, name, path.parent if path else None)
        if isinstance(prompt, str):
            return prompt
        place = f"{prompt.name}#{prompt.digest[:8]}"
        if place not in self._prompts:
            if len(self._prompts) >= _MOST_PROMPTS:
                raise ConfigError(
                    f"{type(self).__name__} asks with more than {_MOST_PROMPTS} different prompts: "
                    "a template is put together anew each time. Give what changes a slot: "
                    "ask(..., '... {{ offer }} ...', offer=offer)"
                )
            self._prompts[place] = prompt
        self._sources[source, reply] = self._prompts[place]
        return self._prompts[place]

    def _record(self, tape: Tape) -> None:
        """Begin a run on a tape."""
        kind = type(self)
        first = tape_turn(kind, self.turns[0], self._planned)
        self._say_if_seeds_are_idle(tape)
        run = tape.add_run(make_manifest(self), name=self.config.name, first=first)
        self._taping = Recording(kind, tape, run)

    def _say_if_seeds_are_idle(self, tape: Tape) -> None:
        """Log a WARNING where the tape has a run that this one cannot but repeat."""
        config = self.config
        if self.given or not getattr(config, "seed_idle", ""):
            return
        client = self.llm_client.config.model_dump(mode="json") if self.llm_client else None
        for info in tape.runs():
            there = info.manifest
            if there.get("kind") != self.kind or there.get("given") or there.get("llm") != client:
                continue
            try:
                both = [config_of(info), config]
            except TapeError:
                continue  # of a version that cannot be read: nothing is known of it
            if why := idle_seeds(both, model_seed=client["seed"] if client else None):
                log_event(
                    logger,
                    logging.WARNING,
                    "SEEDS_CHANGE_NOTHING",
                    run=config.name,
                    same_as=f"run {info.id} of {tape.path.name}",
                    reason=why,
                )
                return

    # --- what a class may do differently ------------------------------------------------------

    @classmethod
    def own_columns(cls, turn: TurnT) -> dict[str, Any]:
        """Return what a turn's row of the frame says of its state: what the turn itself says."""
        return turn.own_columns()

    @classmethod
    def series_of(cls, config: ConfigT) -> Sequence[Series]:
        """Return the columns that can be charted, the most telling first.

        They are the configuration's ``series``; of a world of one's own none, which means all the
        numbers that there are.
        """
        return () if cls._is_own() else getattr(config, "series", ())

    @classmethod
    def in_words(cls, turn: TurnT) -> Sequence[str]:
        """Return a turn's story as lines of text: what the turn itself says."""
        return turn.in_words()

    def outcomes(
        self, turn: TurnT, chains: Sequence[LLMReasoningChain]
    ) -> Sequence[Mapping[str, Any]]:
        """Return what became of a turn's decisions, one mapping each: what the turn itself says."""
        return turn.outcomes(chains)

    # --- playing -----------------------------------------------------------------------------

    async def turn(self, state: StateT, ask: Ask) -> StateT:
        """Return the state that comes next: what a world of one's own defines.

        It may ask models, and draw from ``ask.rng``; all else must follow from the state and the
        parameters.

        Args:
            state: the state before the turn.
            ask: asks players: ``await ask("Ann", Gift, "...")``, ``await ask.each(...)``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no async def turn(self, state, ask)")

    def start(self) -> StateT:
        """Return the state to start from; by default each field of the state has its own default.

        Raises:
            ConfigError: a field has none.
        """
        try:
            start: StateT = self.state_type()
        except ValidationError as error:
            raise ConfigError(
                f"{type(self).__name__} does not know its first state: {faults(error)}; give each "
                f"field of {self.state_type.__name__} a default, or define def start(self) -> "
                f"{self.state_type.__name__} in {type(self).__name__}"
            ) from error
        return start

    def done(self, state: StateT) -> bool:
        """Return True if the run is over before its last turn."""
        del state
        return False

    def prediction(self) -> Mapping[str, float]:
        """Return what theory says of the parameters: a number for some columns of the frame.

        Charts draw each as a dashed line beside the run, and show these columns first.
        """
        return {}

    async def _play(self, before: TurnT, planned: Sequence[InterventionT]) -> TurnT:
        """Play one turn and return it: its number (``before.number + 1``), state and chains.

        Set what the parts remember from ``before`` first: the last try may have failed halfway.

        Args:
            before: the turn before.
            planned: what is done from outside at this turn, for what has to happen during it;
                what ``_intervened`` does to the state comes after.
        """
        del planned
        ask = Ask(self, before.state, before.number + 1)
        try:
            after = await self.turn(before.state, ask)
        except Exception as error:
            if whom := ask.forgotten():
                raise _not_awaited(self, whom) from error
            raise
        if whom := ask.forgotten():
            raise _not_awaited(self, whom)
        state = self._checked_state(after)
        chains, answers = ask.close()
        made: TurnT = self.turn_type(
            number=before.number + 1, state=state, chains=chains, answers=answers
        )
        return made

    def _checked_state(self, state: Any) -> StateT:
        """Return what a turn led to.

        Raises:
            ConfigError: it is not a state of this run.
        """
        name, wanted = type(self).__name__, self.state_type.__name__
        if isinstance(state, self.state_type):
            if self._is_own():
                check_kept(state, self.state_type)
            own: StateT = state
            return own
        if state is None:
            raise ConfigError(
                f"{name}.turn returned None; end it with the next state: return state.replace(...)"
            )
        if type(state).__name__ == wanted:
            raise ConfigError(
                f"{name}.turn returned a {wanted}, but not the class {wanted} that {name} was made "
                f"with: {wanted} was defined again since. Define {name} again as well (run its "
                "cell), and make a new run of it"
            )
        raise ConfigError(
            f"{name}.turn returned {state!r:.60}; it must return a {wanted}: return "
            "state.replace(...)"
        )

    def _intervened(self, state: StateT, interventions: Sequence[InterventionT]) -> StateT:
        """Return the state with what is done from outside.

        Raises:
            ConfigError: it cannot be done.
        """
        for item in interventions:
            state = item.applied(state, self)
        return state

    def _check_possible(self, intervention: InterventionT) -> None:
        """Raise ConfigError for what this run has no place for, as doing it now shows.

        That it is not too late is checked elsewhere.
        """
        intervention.check(self)
        self._intervened(self.turns[-1].state, [intervention])

    def _arrived(self, turn: TurnT) -> None:
        """Take note of a whole turn, before it is written."""

    def _recount(self) -> None:
        """Let what the parts count be that of the whole turns: after a failed turn, and a fork."""

    def _about(self) -> str:
        """Return what ``repr`` says after the turn's number, beginning with a separator.

        By default it says how many parts there are, such as ``, 3 agents``.
        """
        return counted(self.parts)

    def state_at(self, turn: TurnT, state: Any) -> StateT:
        """Return another state in a turn's place, for a fork.

        Raises:
            ConfigError: it is none.
        """
        del turn
        if isinstance(self.state_type, type) and not isinstance(state, self.state_type):
            raise ConfigError(
                f"state={state!r:.80} is no {self.state_type.__name__}, which a state of "
                f"{type(self).__name__} is"
            )
        own: StateT = state
        return own

    @classmethod
    def rebuilt(
        cls,
        config: ConfigT,
        *,
        llm_client: LLMClient | None,
        state: StateT,
        prompts: Mapping[str, Prompt],
        parts: Mapping[str, Any],
    ) -> Self:
        """Return a run made of recorded things; it gets its turns afterwards.

        Args:
            config: the recorded one, without interventions.
            llm_client: the model, if there is one.
            state: the one to go on from.
            prompts: the recorded ones by their places, for parts that are not given.
            parts: given ones, by ``part_names``.
        """
        make: Callable[..., Self] = cls
        return make(config, llm_client=llm_client, state=state, prompts=prompts, **parts)

    @property
    def parts(self) -> dict[str, Any]:
        """What plays the run, by ``part_names``."""
        return {name: getattr(self, name) for name in self.part_names}

    @property
    def prompts(self) -> dict[str, Prompt]:
        """The prompts in use, by the part that uses each, such as ``engine`` or ``agent:Ann``.

        Those of a world's own ``turn`` are known once they were asked.
        """
        return {**prompts_in(self.parts), **self._prompts}

    @property
    def code_digests(self) -> dict[str, str]:
        """Digests of code that is not the package's and that the run depends on, by name."""
        found = code_digests(type(self), Run) if self._is_own() else {}
        for digests in digests_in(self.parts).values():
            found |= digests
        return found

    # --- what a run has been through -----------------------------------------------------------

    @property
    def state(self) -> StateT:
        """The latest state."""
        state: StateT = self.turns[-1].state
        return state

    @property
    def turn_number(self) -> int:
        """The latest turn's number; 0 before the first step."""
        number: int = self.turns[-1].number
        return number

    @property
    def seed(self) -> int:
        """Of everything random but the model; see ``ask.rng``."""
        return self.config.seed

    @property
    def name(self) -> str:
        """The run's name, for charts and records."""
        return self.config.name

    @property
    def chains(self) -> list[LLMReasoningChain]:
        """Every decision so far and why, oldest first."""
        return [chain for turn in self.turns for chain in turn.chains]

    @property
    def calls(self) -> list[CallRecord]:
        """Every model call so far, oldest first, whoever made it."""
        return [call for turn in self.turns for call in turn.calls]

    @property
    def statuses(self) -> Mapping[Status, float]:
        """Share of the model decisions so far by status; empty if no model was asked."""
        counts: Counter[Status] = sum((turn.statuses for turn in self.turns), Counter())
        total = counts.total()
        return {status: count / total for status, count in counts.items()}

    def listen(self, heard: Callable[[TurnT], object]) -> Callable[[], None]:
        """Have a function called with each turn played from now on, whoever plays it.

        Args:
            heard: called on the loop that the turn was played on, when the turn is kept; what it
                raises goes to whoever plays.

        Returns:
            What ends it; harmless if called again.
        """
        self._listeners.append(heard)

        def stop() -> None:
            self._listeners = [other for other in self._listeners if other is not heard]

        return stop

    def _tell(self, turn: TurnT) -> None:
        for heard in tuple(self._listeners):
            heard(turn)

    def to_frame(self) -> pd.DataFrame:
        """Return the run as a frame, one row a turn, the initial state first.

        Columns: ``turn``; the kind's own, see its ``own_columns``; ``calls``, ``ok``,
        ``repaired``, ``fallback``, ``failed``, model decisions by status; ``tokens``; ``seconds``;
        ``interventions``, in words.
        """
        import pandas as pd

        rows: list[dict[str, Any]] = [turn_row(turn, self.own_columns(turn)) for turn in self.turns]
        return pd.DataFrame(rows)

    # --- playing it ------------------------------------------------------------------------------

    @property
    def series(self) -> Sequence[Series]:
        """The columns of ``to_frame()`` that can be charted, the most telling first."""
        if declared := self.series_of(self.config):
            return declared
        return plain_series(
            name for turn in self.turns for name in own_numbers(self.own_columns(turn))
        )

    @property
    def planned(self) -> Mapping[int, Sequence[InterventionT]]:
        """What was or is to be done from outside, by turn."""
        return self._planned

    @property
    def run_reaches(self) -> int | None:
        """The turn at which ``run()`` without a number, called now, would end.

        That is the configuration's ``turns`` after the latest one, however many were played. None
        where the configuration has 0 turns: such a run is stepped by hand.
        """
        return self.turn_number + self.config.turns if self.config.turns else None

    @property
    def tape(self) -> Tape | None:
        """The tape that the run is recorded on or replayed from, if any."""
        return self._taping.tape if self._taping else None

    @property
    def run_id(self) -> int | None:
        """The run's number on its tape."""
        return self._taping.run if self._taping else None

    def take_over(
        self, turns: Sequence[TurnT], planned: Sequence[InterventionT], taping: Taping | None
    ) -> Self:
        """Go on with another run's turns, what was planned for later ones, and a tape."""
        self.turns = list(turns)
        self._planned = {}
        for intervention in planned:
            self._planned.setdefault(intervention.turn, []).append(intervention)
        self._taping = taping
        self._recount()
        self._compare_code()
        return self

    def _compare_code(self) -> None:
        """Note how the parts' code differs from what the run was recorded with, and log it."""
        self.code_changes = ""
        whose = self._coded_parts
        if self._taping is None or not whose:
            return
        recorded = self._taping.tape.run(self._taping.run).manifest.get("code") or {}
        self.code_changes = code_changes(whose, recorded, self.code_digests)
        if self.code_changes:
            event = f"{whose.upper()}_DIFFER"
            log_event(logger, logging.WARNING, event, run=self.run_id, what=self.code_changes)

    @property
    def _coded_parts(self) -> str:
        return "_and_".join(digests_in(self.parts))

    def note_unrecorded(self, reason: str) -> Self:
        """Note why this run is not recorded, for its ``repr``; empty if there is nothing to say."""
        self.unrecorded = reason
        return self

    def intervene(
        self, turn: int, values: Mapping[str, Any] | None = None, **more: Any
    ) -> InterventionT:
        """Change the state of a turn from outside, now or when the run gets there.

        One planned for a turn after ``run_reaches`` is kept, and a WARNING says that ``run()``
        does not get there.

        Args:
            turn: the number of the state that is changed: the latest one, or one to come.
            values: new values by name, ``{"coins.Ann": 5}``; the same as ``set=``.
            more: what is done, as the class's ``intervention_type`` takes it: ``note="a tax"``.

        Raises:
            ConfigError: the turn has passed or is being played, or a name or value is wrong.
        """
        if values is not None:
            more["set"] = values
        return self.add_intervention(checked(type(self).intervention_type, {"turn": turn, **more}))

    def add_intervention(self, intervention: Any) -> InterventionT:
        """Do what ``intervene`` does with an intervention that was made before."""
        if self._stepping and intervention.turn <= self.turn_number + 1:
            raise ConfigError(
                f"turn {intervention.turn} cannot be changed while turn {self.turn_number + 1} is "
                "being played; wait until it is done, or intervene at turn "
                f"{self.turn_number + 2} or later"
            )
        turns, planned = list(self.turns), {at: list(its) for at, its in self._planned.items()}
        self._plan(intervention)
        if self._taping is not None:
            try:
                self._taping.changed(self.turns[-1], self._planned)
            except TapeError:
                self.turns, self._planned = turns, planned
                raise
        say_if_unreached(intervention, run=self.config.name, reaches=self.run_reaches)
        added: InterventionT = intervention
        return added

    def _plan(self, intervention: InterventionT) -> None:
        at, now = intervention.turn, self.turn_number
        if at < now:
            raise ConfigError(
                f"turn {at} has been played (the run is at turn {now}); intervene at turn {now} or "
                "later, or start a new run"
            )
        self._check_possible(intervention)
        if at == now:
            latest = self.turns[-1]
            self.turns[-1] = replace(
                latest,
                state=self._intervened(latest.state, [intervention]),
                interventions=(*latest.interventions, intervention),
            )
        else:
            self._planned.setdefault(at, []).append(intervention)

    async def step(self, *, progress: bool = True) -> TurnT:
        """Play one turn and return its record.

        Args:
            progress: whether a line says what is waited for, if it takes long; see ``arun``.

        Raises:
            LLMFailureException: a model call failed; the run is where it was before.
            TapeError: the run cannot go on with the parts' code that is there now, or came out
                differently from its recording.
            ConfigError: a step is already under way.
        """
        if self.code_changes and isinstance(self._taping, Recording):
            raise TapeError(
                f"run {self.run_id} cannot go on: {self.code_changes}. Bring back those "
                f"{self._coded_parts}, or fork the run to go on with these"
            )
        if self._stepping:
            raise ConfigError("a step of this run is under way; wait for it before the next")
        self._stepping = True
        try:
            async with progress_line(
                "turn", number=self.turn_number + 1, last=None, shown=progress
            ):
                with rare_collections():
                    turn = await self._step()
        except BaseException as error:
            self._recount()
            if self._taping is not None:
                self._taping.failed(error)
            raise
        finally:
            self._stepping = False
        self._tell(turn)
        return turn

    def _clients(self) -> list[LLMClient]:
        """Return the clients that this run's parts ask with."""
        parts = [
            part
            for its in self.parts.values()
            for part in (its if isinstance(its, Sequence) else [its])
        ]
        found = [self.llm_client, *(getattr(part, "llm_client", None) for part in parts)]
        found += self.players.values()
        return list({id(one): one for one in found if isinstance(one, LLMClient)}.values())

    @property
    def people(self) -> list[Person]:
        """The people who are asked in this run, whoever's place they take."""
        return [it.backend for it in self._clients() if isinstance(it.backend, Person)]

    async def _step(self) -> TurnT:
        before = self.turns[-1]
        planned: Sequence[InterventionT] = self._planned.get(before.number + 1, [])
        if self._taping is not None:
            others = {name: who for name, who in self.players.items() if isinstance(who, LLMClient)}
            await self._taping.before_turn(self.llm_client, others)
            planned = self._taping.planned(before.number + 1, planned)
        began, known_prompts = time.perf_counter(), len(self._prompts)
        log = CallLog(self.config.name, before.number + 1, self._purse)
        recorder = self._taping.recorder if self._taping else None
        with ExitStack() as playing, recording(recorder, log):
            for client in self._clients():
                playing.enter_context(client.playing(log))
            turn = await self._play(before, planned)
            calls = log.close()
        if self._purse is not None and self._purse.refusal is not None:
            raise self._purse.refusal
        if turn.number != before.number + 1:
            raise ConfigError(
                f"{type(self).__name__} played turn {turn.number} after turn {before.number}; what "
                f"comes next is turn {before.number + 1}"
            )
        turn = replace(
            turn,
            state=self._intervened(turn.state, planned),
            interventions=tuple(planned),
            seconds=time.perf_counter() - began,
            calls=calls,
        )
        self._arrived(turn)
        if self._taping is not None:
            if len(self._prompts) > known_prompts:
                self._taping.uses(self.prompts)
            turn = self._taping.done(turn, self._planned)
        self.turns.append(turn)
        return turn

    async def arun(
        self,
        turns: int | None = None,
        *,
        on_turn: Callable[[TurnT], object] | None = None,
        budget: Budget | None = None,
        progress: bool = True,
    ) -> pd.DataFrame:
        """Play turns and return the whole run as a frame, as ``to_frame`` does.

        While it takes long, a line on the terminal or under the cell says what is waited for and
        how much time is left; it is gone in the end. Where nobody looks there is none.

        Args:
            turns: how many more; the configuration's number if not given.
            on_turn: called with each turn's record as it is done; may be async.
            budget: what may be spent on calls. When it is, the run stops at its last whole turn
                and a WARNING says so; ``resume`` goes on from there, and makes no call again that
                was answered.
            progress: False for no such line; so does ``LLMSIM_PROGRESS=0`` in the environment.

        Raises:
            ConfigError: a negative number of turns.
            LLMFailureException: a model call failed; the turns before it are kept.
        """
        self._purse = Purse(budget) if budget is not None else None
        try:
            await self.play_on(turns, on_turn=on_turn, progress=progress)
        finally:
            self._purse = None
        return self.to_frame()

    async def play_on(
        self,
        turns: int | None = None,
        *,
        on_turn: Callable[[TurnT], object] | None = None,
        progress: bool = True,
        beyond_done: bool = False,
    ) -> None:
        """Do what ``arun`` does without making a frame, which needs pandas.

        ``beyond_done`` plays as many turns as it is told, whatever ``done`` says: a run may have
        been stepped on by hand.
        """
        try:
            count, before = self._how_many(turns), self.turn_number
            async with progress_line(
                "turn", number=before + 1, last=before + count, shown=progress
            ) as advance:
                for _ in range(count):
                    if not beyond_done and self.done(self.state):
                        break
                    if self._purse is not None:
                        self._purse.check()
                    turn = await self.step()
                    advance()
                    heard = on_turn(turn) if on_turn is not None else None
                    if isawaitable(heard):
                        await heard
                    await asyncio.sleep(0)
        except BudgetReached as error:
            self._ended(f"stopped: {error}")
            log_event(
                logger,
                logging.WARNING,
                "BUDGET_REACHED",
                run=self.config.name,
                turn=self.turn_number,
                reason=error,
            )
            return
        except Exception as error:
            self._ended(f"failed: {error}")
            raise
        except BaseException:
            self._ended("interrupted")
            raise
        self._ended("done")
        self._say_who_was_never_asked()

    def _say_who_was_never_asked(self) -> None:
        """Log a WARNING for players who were given and not asked, as where a name is misspelt."""
        never = [name for name in self.players if name != "*" and name not in self._asked]
        if never and self._asked and isinstance(self._taping, Recording | None):
            log_event(
                logger,
                logging.WARNING,
                "PLAYER_NEVER_ASKED",
                run=self.config.name,
                player=never[0],
                reason=f"no question of this run named it{closest(never[0], self._asked)}",
            )

    def _ended(self, outcome: str) -> None:
        """Note the outcome on the tape; an earlier failure weighs more than one to note it."""
        if self._taping is not None:
            with suppress(TapeError) if outcome != "done" else nullcontext():
                self._taping.ended(outcome)

    def run(
        self,
        turns: int | None = None,
        *,
        on_turn: Callable[[TurnT], object] | None = None,
        budget: Budget | None = None,
        progress: bool = True,
    ) -> pd.DataFrame:
        """Do what ``arun`` does from plain code: in a script, or in a notebook cell."""
        self._how_many(turns)
        return run_sync(self.arun(turns, on_turn=on_turn, budget=budget, progress=progress))

    def _how_many(self, turns: int | None) -> int:
        number = self.config.turns if turns is None else turns
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ConfigError(f"turns={number!r} must be a whole number, 0 or more")
        return number

    def fork(
        self,
        turn: int | None = None,
        *,
        prompt: Prompt | Sequence[Prompt] = (),
        state: Any = None,
        intervene: Iterable[Mapping[str, Any]] = (),
        llm_client: LLMClient | None = None,
    ) -> Self:
        """Return a run that goes on from one of this run's turns, with something changed.

        The turns up to there are this run's, at no cost; those after are live. On a tape the fork
        is a run of its own that knows where it came from. Where the tape is open for reading only
        the fork lives in memory and is not recorded; a WARNING and its ``repr`` say so.

        Args:
            turn: the turn to go on from; the latest if not given.
            prompt: an edited prompt, or several; each takes the place of those of its name.
            state: the state instead of that turn's.
            intervene: interventions as dicts, as ``intervene`` takes them: ``{"turn": 3, ...}``.
            llm_client: another model; a replay's fork needs one.

        Raises:
            ConfigError: there is no such turn, or no part uses a prompt of that name.
        """
        return fork_of(
            self, turn, prompt=prompt, state=state, intervene=intervene, llm_client=llm_client
        )

    @classmethod
    def replay(
        cls,
        tape: Tape | str | Path,
        run: int | None = None,
        *,
        turns: int | None = None,
        **parts: Any,
    ) -> Self:
        """Play a recorded run of this class again from its tape alone; no model is asked.

        The code runs as it did; every call is answered from the tape, and every turn is compared
        with the recorded one.

        Args:
            tape: the tape, or its file, which is opened for reading only.
            run: the run's number; the latest if not given.
            turns: the last turn to replay; the last recorded if not given.
            parts: those that the run was given by its user, the same again.

        Raises:
            TapeMiss: a call differs from the recorded ones; the message shows how.
            TapeError: a turn came out differently, or the tape cannot be read.
        """
        played: Self = verbs.replay(tape, run, turns=turns, kind=cls, **parts)
        return played

    @classmethod
    def load(cls, tape: Tape | str | Path, run: int | None = None, **parts: Any) -> Self:
        """Return a recorded run of this class to look at, without playing anything.

        Args:
            tape: the tape, or its file, which is opened for reading only.
            run: the run's number; the latest if not given.
            parts: those that the run was given by its user, the same again.
        """
        found: Self = verbs.load(tape, run, kind=cls, **parts)
        return found

    @classmethod
    def resume(
        cls,
        tape: Tape | str | Path,
        run: int | None = None,
        *,
        llm_client: LLMClient | None = None,
        **parts: Any,
    ) -> Self:
        """Return a recorded run of this class, ready to go on after its last whole turn.

        Calls that the broken turn had been answered are not made again.

        Args:
            tape: the tape, or its file.
            run: the run's number; the latest if not given.
            llm_client: the model; it must be the recorded one.
            parts: those that the run was given by its user, the same again.

        Raises:
            TapeError: another process is writing to the run, or the tape is read-only.
        """
        found: Self = verbs.resume(tape, run, llm_client=llm_client, kind=cls, **parts)
        return found

    @classmethod
    def rerun(
        cls,
        tape: Tape | str | Path,
        run: int | None = None,
        *,
        llm_client: LLMClient | None = None,
        **parts: Any,
    ) -> Self:
        """Return a new run with a recorded one's configuration, at its first turn.

        Args:
            tape: the tape, or its file.
            run: the run's number; the latest if not given.
            llm_client: the model.
            parts: those that the run was given by its user, the same again.
        """
        found: Self = verbs.rerun(tape, run, llm_client=llm_client, kind=cls, **parts)
        return found

    def decisions(self) -> pd.DataFrame:
        """Return the run's decisions as a frame, one row each: what was said, what became of it.

        Columns: ``run``, its number on the tape; ``seed``; ``period``; ``turn``; ``player``;
        ``component``; the fields of the replies, each under its own name, or as ``reply_NAME``
        where that is taken; ``reasoning``; ``confidence``; what the kind says became of it, see
        ``outcomes``; ``status``; ``interventions`` of the turn, in words; ``attempts``;
        ``prompt_tokens``, ``reply_tokens`` and ``tokens``, both together; ``seconds``; ``model``.

        Where a rule decided, ``attempts``, tokens and seconds are 0 and there is no model.
        """
        return decisions_frame(self)

    def manifest(self) -> dict[str, Any]:
        """Return what defines the run, JSON-ready: what it takes to make the same one again.

        Keys: ``kind``, ``config``, ``seed``, ``prompts`` with their texts and digests, ``code``
        digests, ``model`` with its digest where it is known, versions, the git revision; and of
        the run itself ``name``, ``turns``, ``calls``, ``tokens``, ``statuses``, ``outcome``,
        ``tape`` and ``run``, where it is recorded.
        """
        tape, run = self.tape, self.run_id
        info = tape.run(run) if tape is not None and run is not None else None
        return {
            **(make_manifest(self) if info is None else info.manifest),
            "name": self.config.name,
            "turns": self.turn_number,
            "calls": len(self.calls),
            "tokens": sum(call.tokens for call in self.calls),
            "statuses": dict(self.statuses),
            "outcome": info.outcome if info else None,
            "tape": str(tape.path) if tape is not None else None,
            "run": run,
        }

    def close(self) -> None:
        """Let others write to this run on its tape; the run can still be looked at."""
        if self._taping is not None:
            self._taping.close()

    def __repr__(self) -> str:
        lost = f", NOT RECORDED: {self.unrecorded}" if self.unrecorded else ""
        changed = f", {self._coded_parts.upper()} DIFFER" if self.code_changes else ""
        about = f"turn {self.turn_number}{self._about()}{changed}{lost}"
        return f"<{type(self).__name__} {self.config.name!r}: {about}>"

    def _repr_html_(self) -> str:
        return str(run_html(self))


def _not_awaited(run: Run, whom: str) -> ConfigError:
    return ConfigError(
        f"{type(run).__name__}.turn asked {whom} and did not wait for the answer; write await "
        "before it: gift = await ask(...), gifts = await ask.each(...)"
    )


def _check_world(cls: type[Run]) -> None:
    """Raise ConfigError for a world whose ``turn`` or state cannot be one."""
    if not inspect.iscoroutinefunction(cls.turn):
        raise ConfigError(
            f"{cls.__name__}.turn is a plain function, which cannot wait for answers; write async "
            "def turn(self, state, ask)"
        )
    for name in ("start", "done"):
        if inspect.iscoroutinefunction(getattr(cls, name)):
            raise ConfigError(
                f"{cls.__name__}.{name} is async, and nobody waits for it; write def {name}(self"
                f"{', state' if name == 'done' else ''})"
            )
    state = cls.state_type
    if not (isinstance(state, type) and issubclass(state, State)) or state is State:
        named = getattr(state, "__name__", state)
        raise ConfigError(
            f"{cls.__name__} has the state {named}; derive a class from State, class Pot(State), "
            f"and name it: class {cls.__name__}(Run[Pot])"
        )
