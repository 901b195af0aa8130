"""What a kind of simulation supplies: its types, its parts, how a turn is played and written.

What a tape needs belongs to the class, so that a tape can be read without playing anything.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm.tape.codec import dumps
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs.codec import adapter_of, changed_values, own_fields, to_json
from llmsim_lab.runs.parts import prompts_in
from llmsim_lab.runs.series import Series
from llmsim_lab.runs.settings import ConfigLike, RunIntervention
from llmsim_lab.runs.turn import TurnBase

__all__ = ["ConfigT", "InterventionT", "Kind", "StateT", "TurnT"]

StateT = TypeVar("StateT")
TurnT = TypeVar("TurnT", bound=TurnBase[Any, Any])
ConfigT = TypeVar("ConfigT", bound=ConfigLike)
InterventionT = TypeVar("InterventionT", bound=RunIntervention)


class Kind(ABC, Generic[StateT, TurnT, ConfigT, InterventionT]):
    """All that one kind of simulation does differently from another; see ``Run``.

    Attributes:
        kind: its name on tapes, such as ``economic``.
        config_type: of its configuration, a pydantic model such as a ``RunConfig``.
        state_type: of its states: a pydantic model, a dataclass, or what else pydantic can write
            as JSON and read back to an equal value.
        turn_type: of its turns, a ``RunTurn`` with whatever fields it adds; those too are written
            by pydantic.
        intervention_type: of what may be done from outside.
        part_names: the constructor's arguments by which a user may give parts of his own, such as
            ``agents`` or ``engine``; each is also the attribute that holds that part, or those
            parts. A part's ``llm_client`` and ``prompt`` are what a fork changes.
    """

    kind: ClassVar[str] = ""
    config_type: ClassVar[type[Any]]
    state_type: ClassVar[Any]
    turn_type: ClassVar[type[Any]]
    intervention_type: ClassVar[type[RunIntervention]]
    part_names: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @abstractmethod
    def own_columns(cls, turn: TurnT) -> dict[str, Any]:
        """Return what a turn's row of the frame says of this kind: numbers and texts by column.

        ``turn``, the counts of model decisions, ``tokens``, ``seconds`` and ``interventions`` are
        there already.
        """

    @classmethod
    def series_of(cls, config: ConfigT) -> Sequence[Series]:
        """Return the columns that can be charted, the most telling first."""
        del config
        return ()

    @classmethod
    def in_words(cls, turn: TurnT) -> Sequence[str]:
        """Return what a turn led to, and what was done in it, as lines of text."""
        said = [f"{name} {value}" for name, value in cls.own_columns(turn).items()]
        return [f"it led to: {', '.join(said)}"]

    def outcomes(
        self, turn: TurnT, chains: Sequence[LLMReasoningChain]
    ) -> Sequence[Mapping[str, Any]]:
        """Return what became of a turn's decisions, one mapping each, for ``decisions()``.

        Its keys become columns; a kind names what tells whether a decision counted, such as
        ``accepted``. What a rule decided may be said here as well, since it has no reply.

        Args:
            turn: one of this run's.
            chains: its decisions, as ``every_chain`` gives them.
        """
        del turn
        return [{} for _ in chains]

    # --- playing -----------------------------------------------------------------------------

    @abstractmethod
    async def _play(self, before: TurnT, planned: Sequence[InterventionT]) -> TurnT:
        """Play one turn and return it: its number (``before.number + 1``), state and chains.

        Set what the parts remember from ``before`` first: the last try may have failed halfway.

        Args:
            before: the turn before.
            planned: what is done from outside at this turn, for what has to happen during it;
                what ``_intervened`` does to the state comes after.
        """

    def _intervened(self, state: StateT, interventions: Sequence[InterventionT]) -> StateT:
        """Return the state with what is done from outside."""
        if interventions:
            raise NotImplementedError(f"{type(self).__name__} knows no interventions")
        return state

    def _check_possible(self, intervention: InterventionT) -> None:
        """Refuse, with a ConfigError, what this run has no place for; being late is seen to."""

    def _arrived(self, turn: TurnT) -> None:
        """Take note of a whole turn, before it is written."""

    def _recount(self) -> None:
        """Let what the parts count be that of the whole turns: after a failed turn, and a fork."""

    def _about(self) -> str:
        """Return what ``repr`` says after the turn's number, beginning with a separator."""
        return ""

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
    def without_chains(cls, turn: TurnT) -> TurnT:
        """Return a turn as the first of a run: without another run's chains and calls."""
        if not turn.chains and not turn.calls:
            return turn
        bare: TurnT = replace(cast("Any", turn), chains=(), calls=())
        return bare

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
        """The prompts in use, by the part that uses each, such as ``agent:NAME`` or ``engine``."""
        return prompts_in(self.parts)

    @property
    def code_digests(self) -> dict[str, str]:
        """Digests of code that is not the package's and that the run depends on, by name."""
        return {}

    # --- on the tape -------------------------------------------------------------------------

    @classmethod
    def encode_state(cls, turn: TurnT) -> str:
        """Return a turn's state as JSON."""
        return dumps(to_json(adapter_of(cls.state_type), turn.state))

    @classmethod
    def encode_own(cls, turn: TurnT) -> dict[str, Any]:
        """Return what a turn holds besides its state, number, chains and interventions, for JSON.

        ``actions`` is where what the agents did belongs; it is a list in every record.
        """
        return {
            name: to_json(adapter, getattr(turn, name))
            for name, adapter in cls._own_fields().items()
        }

    @classmethod
    def decode_turn(
        cls,
        record: Mapping[str, Any],
        chains: tuple[LLMReasoningChain, ...],
        common: Mapping[str, Any],
    ) -> TurnT:
        """Return the turn that a record holds.

        Args:
            record: what ``encode_state`` (as ``state``) and ``encode_own`` wrote.
            chains: the turn's.
            common: its ``number``, ``interventions`` and ``seconds``.
        """
        own = {
            name: adapter.validate_python(record[name])
            for name, adapter in cls._own_fields().items()
        }
        state = adapter_of(cls.state_type).validate_python(record["state"])
        turn: TurnT = cls.turn_type(state=state, chains=chains, **common, **own)
        return turn

    @classmethod
    def _own_fields(cls) -> dict[str, Any]:
        turn_type: Any = cls.turn_type
        return own_fields(turn_type)

    @classmethod
    def difference(cls, recorded: TurnT, now: TurnT) -> str:
        """Say where a replayed turn's state departs from the recorded one; empty if nowhere."""
        before, after = (json.loads(cls.encode_state(turn)) for turn in (recorded, now))
        return changed_values(before, after)
