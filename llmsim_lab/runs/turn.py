"""What every kind of simulation notes of a turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic

from typing_extensions import TypeVar

from llmsim_lab.calls import CallRecord, Status
from llmsim_lab.llm._extract import InvalidReply, reply_fields
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.runs.faces import turn_html
from llmsim_lab.runs.state import State, columns_in
from llmsim_lab.values import Reply

__all__ = ["Answer", "RunTurn", "WorldTurn", "answer_in_words", "every_chain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a rule answered: the fields of its reply.

    Attributes:
        player: who was asked.
        tag: which of several questions.
        fields: of the reply, by name, JSON-ready.
    """

    player: str
    tag: str
    fields: dict[str, Any]

    def __str__(self) -> str:
        return answer_in_words(self.fields)


def answer_in_words(fields: Mapping[str, Any]) -> str:
    """Return what a player answered, without what every reply has: ``amount 5``."""
    own = {name: value for name, value in fields.items() if name not in Reply.model_fields}
    return ", ".join(f"{name} {value}" for name, value in own.items())


StateT = TypeVar("StateT", default=Any)
InterventionT = TypeVar("InterventionT", default=Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTurn(Generic[StateT, InterventionT]):
    """What happened in a turn and where it led; a kind of simulation may add fields of its own.

    Those are written on tapes by their types; a chain or call in them, which the turn has as well,
    is named there by its place.

    Attributes:
        number: 1 for the first turn played; 0 stands for the initial state.
        state: the state the turn led to.
        interventions: what was done from outside.
        seconds: wall time of the turn.
        calls: every model call of the turn, as the run itself noted it, in the order in which the
            first answers came.
        chains: why each component did what it did.
    """

    number: int
    state: StateT
    interventions: tuple[InterventionT, ...] = ()
    seconds: float = 0.0
    calls: tuple[CallRecord, ...] = field(default=(), repr=False)
    chains: tuple[LLMReasoningChain, ...] = ()

    @property
    def every_chain(self) -> tuple[LLMReasoningChain, ...]:
        """The chains, and for each call that none of them annotates what the call tells."""
        return every_chain(self)

    @property
    def statuses(self) -> Counter[Status]:
        """How the turn's calls came out, and of decisions without a call those that went wrong.

        Where a chain says more of a call, such as ``fallback``, its word counts.
        """
        said = {id(chain.call): chain.status for chain in self.chains if chain.call is not None}
        counts = Counter(said.get(id(call), call.status) for call in self.calls)
        counts.update(
            chain.status for chain in self.chains if chain.call is None and chain.status != "ok"
        )
        return counts

    @property
    def tokens(self) -> int:
        """Prompt and reply tokens of the turn's model calls, as far as reported."""
        return sum(call.tokens for call in self.calls)

    def own_columns(self) -> dict[str, Any]:
        """Return what the turn's row of the frame says of its state: numbers and texts by column.

        Of a ``State`` its numbers, also those in dicts, such as ``coins.Ann``, and the texts that
        are its fields. ``turn``, the counts of model decisions, ``tokens``, ``seconds`` and
        ``interventions`` are there already.
        """
        return columns_in(self.state) if isinstance(self.state, State) else {}

    def in_words(self) -> Sequence[str]:
        """Return what the turn led to, and what was done in it, as lines of text."""
        said = [f"{name} {value}" for name, value in self.own_columns().items()]
        return [f"it led to: {', '.join(said)}"]

    def outcomes(self, chains: Sequence[LLMReasoningChain]) -> Sequence[Mapping[str, Any]]:
        """Return what became of the turn's decisions, one mapping each, for ``decisions()``.

        Its keys become columns; they name what tells whether a decision counted, such as
        ``accepted``. What a rule decided may be said here as well, since it has no reply.

        Args:
            chains: its decisions, as ``every_chain`` gives them.
        """
        return [{} for _ in chains]

    def _repr_html_(self) -> str:
        return str(turn_html(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldTurn(RunTurn[StateT, InterventionT]):
    """A turn of a world that asks its players.

    Attributes:
        answers: what rules answered, each beside its chain.
    """

    answers: tuple[Answer, ...] = ()

    def outcomes(self, chains: Sequence[LLMReasoningChain]) -> Sequence[Mapping[str, Any]]:
        """Return what rules answered, besides the fields that every reply has."""
        answers = iter(self.answers)
        return [{} if chain.call else _own_fields_of(next(answers, None)) for chain in chains]


def _own_fields_of(answer: Answer | None) -> dict[str, Any]:
    if answer is None:
        return {}
    return {name: value for name, value in answer.fields.items() if name not in Reply.model_fields}


def every_chain(turn: RunTurn) -> tuple[LLMReasoningChain, ...]:
    """Return a turn's chains, and for each call that none of them annotates what the call tells.

    So a simulation that hands over no chain shows all that it asked, like any other.
    """
    annotated = {id(chain.call) for chain in turn.chains}
    bare = (_chain_of_call(call, turn.number) for call in turn.calls if id(call) not in annotated)
    return (*turn.chains, *bare)


def _chain_of_call(call: CallRecord, turn: int) -> LLMReasoningChain:
    site, reply = call.request.site, call.reply
    said: dict[str, Any] = {}
    with suppress(InvalidReply):
        said = reply_fields(reply.text) if reply else {}
    reasoning, confidence = said.get("reasoning"), said.get("confidence")
    known = isinstance(confidence, int | float) and 0 <= confidence <= 1
    known = known and not isinstance(confidence, bool)
    return LLMReasoningChain(
        component=site.component if site else "call",
        agent=(site.agent if site else None) or "",
        turn=turn,
        reasoning=reasoning if isinstance(reasoning, str) else "",
        confidence=confidence if known else None,
        status=call.status,
        call=call,
    )
