"""A turn: what happened in it and where it led, and its rows of the run's frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, get_args

from pydantic import FiniteFloat, TypeAdapter, ValidationError
from typing_extensions import TypeVar

from llmsim_lab._util.html import badge, cell, details, join, pairs, safe, table
from llmsim_lab._util.tables import plain_frame
from llmsim_lab._util.text import whole_text
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm._choose import measures
from llmsim_lab.llm._extract import InvalidReply, reply_fields
from llmsim_lab.run._state import COMMON_COLUMNS, State, columns_in
from llmsim_lab.types import CallRecord, LLMReasoningChain, Reply, Status

if TYPE_CHECKING:
    import pandas as pd

_STATUSES: tuple[Status, ...] = get_args(Status)
_MOST_SERIES = 12
_MOST_CHAINS = 30
"""How many of a turn's decisions its repr shows."""

_BEFORE = ("run", "seed", "period", "turn", "player", "component")
REASONS = ("reasoning", "confidence")
_AFTER = (
    *("status", "interventions", "attempts", "prompt_tokens", "reply_tokens", "tokens", "seconds"),
    "model",
)
_TAKEN = {*_BEFORE, *REASONS, *_AFTER}
_READ: dict[Any, Callable[[Any], Any]] = {
    "integer": TypeAdapter(int).validate_python,
    "number": TypeAdapter(FiniteFloat).validate_python,
    "boolean": TypeAdapter(bool).validate_python,
}
"""What reads a field of a reply, by its type in the schema."""

StateT = TypeVar("StateT", default=Any)
InterventionT = TypeVar("InterventionT", default=Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTurn(Generic[StateT, InterventionT]):
    """What happened in a turn and where it led; a class of runs may derive its own from it.

    Fields that it adds are written on tapes by their types. A chain or call in them, which the turn
    has as well, is named there by its place.

    Attributes:
        number: 1 for the first turn played; 0 stands for the initial state.
        state: the state the turn led to.
        interventions: what was done from outside.
        seconds: wall time of the turn.
        calls: every model call of the turn, as the run itself recorded it, in the order in which
            the first answers came.
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
        """The chains, and one made of each call that none of them annotates."""
        return every_chain(self)

    @property
    def statuses(self) -> Counter[Status]:
        """How the turn's calls came out, and of decisions without a call those that went wrong.

        Where a chain has another status than its call, such as ``fallback``, the chain's counts.
        """
        by_call = {id(chain.call): chain.status for chain in self.chains}
        counts = Counter(by_call.get(id(call), call.status) for call in self.calls)
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
        columns = [f"{name} {value}" for name, value in self.own_columns().items()]
        return [f"it led to: {', '.join(columns)}"]

    def outcomes(self, chains: Sequence[LLMReasoningChain]) -> Sequence[Mapping[str, Any]]:
        """Return what became of the turn's decisions, one mapping each, for ``decisions()``.

        Its keys become columns; they name what tells whether a decision counted, such as
        ``accepted``. What a rule decided may be said here as well, since it has no reply.

        Args:
            chains: its decisions, in the order of ``every_chain``.
        """
        return [{} for _ in chains]

    def _repr_html_(self) -> str:
        """Return why, from outside and at what cost it happened; the state is folded."""
        facts: list[tuple[object, object]] = [("tokens", self.tokens)]
        facts += [("from outside", str(item)) for item in self.interventions]
        chains = decided(self)
        parts: list[object] = [pairs(facts, caption=f"{type(self).__name__} {self.number}")]
        if chains:
            header = ("component", "agent", "status", "confidence", "reasoning")
            decisions = (
                (
                    chain.component,
                    chain.agent,
                    badge(chain.status),
                    cell(chain.confidence),
                    safe(chain.reasoning, limit=500),
                )
                for chain in chains[:_MOST_CHAINS]
            )
            parts.append(table(header, decisions))
        if len(chains) > _MOST_CHAINS:
            parts.append(safe(f"… and {len(chains) - _MOST_CHAINS} more decisions"))
        return str(join([*parts, details("state", cell(self.state))]))


def every_chain(turn: RunTurn) -> tuple[LLMReasoningChain, ...]:
    """Return a turn's chains, and one made of each call that none of them annotates.

    So a run that makes no chains of its own shows all that it asked, like any other. A function,
    since widgets also show turns that only look like a ``RunTurn``.
    """
    # By identity: two equal calls of a turn are two calls.
    annotated = {id(chain.call) for chain in turn.chains}
    bare = [_chain_of(call, turn.number) for call in turn.calls if id(call) not in annotated]
    return (*turn.chains, *bare)


def decided(turn: RunTurn) -> tuple[LLMReasoningChain, ...]:
    """Return a turn's chains without those of calls that only measured what a choice is made of.

    The decision that was taken from them has a chain of its own; calls that failed are kept.
    """
    return tuple(
        chain
        for chain in every_chain(turn)
        if chain.call is None or chain.status != "ok" or not measures(chain.call.request)
    )


def calls_behind(turn: RunTurn) -> list[tuple[CallRecord, ...]]:
    """Return the calls that each decision of ``decided`` was taken from; none for a rule's.

    A choice has no call of its own: it was taken from those that measured its options.
    """
    measured: dict[tuple[str, str], list[CallRecord]] = {}
    for call in turn.calls:
        site = call.request.site
        if site and call.status == "ok" and measures(call.request):
            measured.setdefault((site.component, site.agent or ""), []).append(call)
    return [
        (chain.call,)
        if chain.call
        # Of several choices of one player the first has them: no call counts twice.
        else tuple(measured.pop((chain.component, chain.agent), ()))
        for chain in decided(turn)
    ]


def _chain_of(call: CallRecord, turn: int) -> LLMReasoningChain:
    site, answer = call.request.site, reply_of(call)
    # As the model wrote them: no reply's class has checked these.
    reasoning, confidence = answer.get("reasoning"), answer.get("confidence")
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        confidence = None
    return LLMReasoningChain(
        component=site.component if site else "call",
        agent=(site.agent if site else None) or "",
        turn=turn,
        reasoning=reasoning if isinstance(reasoning, str) else "",
        confidence=confidence if confidence is not None and 0 <= confidence <= 1 else None,
        status=call.status,
        call=call,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleAnswer:
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
    """Return what a player answered, without what every reply has: ``amount 5``, ``share 0.33``."""
    return ", ".join(f"{name} {_in_words(value)}" for name, value in own_fields(fields).items())


def _in_words(value: Any) -> Any:
    """Return a value whose fractions, as deep as they are, are as short as numbers in prompts."""
    if isinstance(value, float) and isfinite(value):
        # One so small that nothing would be left of it keeps two digits.
        short = round(value, 2) or float(f"{value:.2g}")
        return int(short) if short.is_integer() else short
    if isinstance(value, Mapping):
        return {name: _in_words(item) for name, item in value.items()}
    return [_in_words(item) for item in value] if isinstance(value, list | tuple) else value


def own_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in Reply.model_fields}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldTurn(RunTurn[StateT, InterventionT]):
    """A turn of a world that asks its players.

    Attributes:
        answers: what rules answered, each beside its chain.
    """

    answers: tuple[RuleAnswer, ...] = ()

    def outcomes(self, chains: Sequence[LLMReasoningChain]) -> Sequence[Mapping[str, Any]]:
        """Return what rules answered, besides the fields that every reply has."""
        answers = iter(self.answers)  # in the order of the chains without a call
        found = (None if chain.call else next(answers, None) for chain in chains)
        return [own_fields(answer.fields) if answer else {} for answer in found]


# --- a run's frames ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A column of numbers in ``to_frame()`` that can be charted.

    Attributes:
        column: its name in the frame.
        label: for the axis, without the unit.
        unit: such as ``% per year``; empty for plain counts.
        short: its heading in tables of text, which have little room; empty leaves it out of them.
        low: the least that it can be; None where nothing bounds it.
        high: the most.
    """

    column: str
    label: str
    unit: str = ""
    short: str = ""
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


def plain_series(names: Iterable[str], state_type: Any = None) -> Sequence[Series]:
    """Return columns under their own names, each once, the first dozen of them.

    Args:
        names: the columns'.
        state_type: where the columns' bounds are looked up: the fields' ``ge`` and ``le``.
    """
    fields = getattr(state_type, "model_fields", {})
    found = []
    for name in list(dict.fromkeys(names))[:_MOST_SERIES]:
        low = high = None
        for item in fields[name].metadata if name in fields else ():
            low, high = getattr(item, "ge", low), getattr(item, "le", high)
        found.append(Series(column=name, label=name, low=low, high=high))
    return found


def own_numbers(row: Mapping[str, Any]) -> list[str]:
    """Return the columns of a frame's row that hold numbers and that not every run has."""
    return [
        name
        for name, value in row.items()
        if name not in COMMON_COLUMNS and isinstance(value, int | float)
    ]


def turn_row(turn: RunTurn, own: dict[str, Any]) -> dict[str, Any]:
    """Return a turn's row of a run's frame; see ``Run.to_frame``.

    Args:
        turn: the turn.
        own: what the run's class has to say of it, by column.

    Raises:
        ConfigError: one of those has the name of a column that every frame has.
    """
    if taken := COMMON_COLUMNS & own.keys():
        raise ConfigError(
            f"own_columns has {', '.join(sorted(taken))}, which every run's frame has already; "
            "give that column another name"
        )
    statuses = turn.statuses
    return {
        "turn": turn.number,
        **own,
        "calls": len(turn.calls),
        **{name: statuses.get(name, 0) for name in _STATUSES},
        "tokens": turn.tokens,
        "seconds": turn.seconds,
        "interventions": _interventions_in_words(turn),
    }


def _interventions_in_words(turn: RunTurn) -> str:
    return whole_text("; ".join(str(intervention) for intervention in turn.interventions))


def decisions_frame(
    turns: Sequence[RunTurn],
    *,
    run: int | None,
    seed: int,
    own_columns: Callable[[Any], Mapping[str, Any]],
    outcomes: Callable[[Any, Sequence[LLMReasoningChain]], Sequence[Mapping[str, Any]]],
) -> pd.DataFrame:
    """Return one row a decision; see ``Run.decisions``, whose methods the last two are."""
    decisions: list[dict[str, Any]] = []
    # Dicts used as ordered sets: columns stand in the order in which they first came.
    reply_columns: dict[str, None] = {}
    outcome_columns: dict[str, None] = {}
    for turn in turns:
        chains = decided(turn)
        if not chains:
            continue
        shared = {
            "run": run,
            "seed": seed,
            "period": own_columns(turn).get("period"),
            "turn": turn.number,
            "interventions": _interventions_in_words(turn),
        }
        became = outcomes(turn, chains)
        for chain, calls, outcome in zip(chains, calls_behind(turn), became, strict=True):
            taken = _TAKEN | outcome.keys()
            fields: dict[str, Any] = {}
            for name, value in reply_of(chain.call).items():
                if name not in REASONS:
                    # More than once for ``tokens``, since ``reply_tokens`` is taken as well.
                    while name in taken or name in fields:
                        name = f"reply_{name}"
                    fields[name] = value
            reply_columns |= dict.fromkeys(fields)
            outcome_columns |= dict.fromkeys(outcome)
            decisions.append({**fields, **outcome, **shared, **decision_columns(chain, calls)})
    between = dict.fromkeys([*reply_columns, *REASONS, *outcome_columns])
    dated = any("period" in own_columns(turn) for turn in turns)
    before = [name for name in _BEFORE if dated or name != "period"]
    return plain_frame(decisions, (*before, *between, *_AFTER))


def reply_of(call: CallRecord | None) -> dict[str, Any]:
    """Return what the model answered, by field; nothing where it was not an object."""
    if call is None or call.reply is None:
        return {}
    schema = call.request.schema or {}
    asked = schema.get("properties") or {}
    with suppress(InvalidReply):
        fields = reply_fields(call.reply.text)
        return {name: _as_asked(it, asked.get(name), schema) for name, it in fields.items()}
    return {}


def _as_asked(value: Any, field: Any, schema: Mapping[str, Any]) -> Any:
    """Return a number or truth value that was written as another type, as the world got it."""
    # Otherwise one such answer would make its column one of texts, whose sum is a long text.
    if not isinstance(value, bool | int | float | str):
        return value
    kinds = [kind for kind in _types_in(field, schema) if kind != "null"]
    read = _READ.get(kinds[0]) if len(kinds) == 1 else None
    if read is None or (kinds == ["number"] and type(value) is int):
        return value
    with suppress(ValidationError):
        return read(value)
    return value


def _types_in(field: Any, schema: Mapping[str, Any]) -> list[str]:
    """Return the types that a field of a schema may have; none where it does not say."""
    # Anybody's schema: JSON allows True for one, and a list of types.
    if not isinstance(field, Mapping):
        return []
    if "$ref" in field:
        field = schema.get("$defs", {}).get(str(field["$ref"]).rpartition("/")[2], {})
    found: list[str] = []
    for part in field.get("anyOf", [field]):
        kind = part.get("type", "any") if isinstance(part, Mapping) else "any"
        found += [kind] if isinstance(kind, str) else kind
    return found


def decision_columns(chain: LLMReasoningChain, calls: Sequence[CallRecord]) -> dict[str, Any]:
    """Return what every decision's row of a frame has; the calls are those it was taken from."""
    return {
        "player": chain.agent,
        "component": chain.component,
        "reasoning": chain.reasoning,
        "confidence": chain.confidence,
        "status": chain.status,
        "attempts": sum(call.attempts for call in calls),
        "prompt_tokens": sum(call.prompt_tokens for call in calls),
        "reply_tokens": sum(call.reply_tokens for call in calls),
        "tokens": sum(call.tokens for call in calls),
        "seconds": sum((call.seconds for call in calls), 0.0),
        "model": calls[0].request.model if calls else None,
    }
