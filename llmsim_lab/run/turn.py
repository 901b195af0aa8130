"""A turn: what happened in it and where it led, and its rows of the run's frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    PlainSerializer,
    TypeAdapter,
)

from llmsim_lab._util.jsontext import Schema, as_mapping, dumps
from llmsim_lab._util.schemas import alternatives, not_null, resolved
from llmsim_lab._util.tables import plain_frame
from llmsim_lab._util.text import clip, error_text, number, whole_text
from llmsim_lab.errors import ConfigError, LabError, PromptError
from llmsim_lab.llm.choice import measures
from llmsim_lab.llm.extract import InvalidReply, reply_fields
from llmsim_lab.prompts.language import written
from llmsim_lab.run.config import StateChange
from llmsim_lab.run.state import COMMON_COLUMNS
from llmsim_lab.types import CallRecord, CallSite, Confidence, Reply, Status

if TYPE_CHECKING:
    import pandas as pd

_STATUSES: tuple[Status, ...] = get_args(Status)
MOST_SERIES = 12

# A frame of decisions has these before the reply's own columns, and those after them.
_COLUMNS_BEFORE = ("run", "seed", "period", "turn", "player", "component")
REASONS = ("reasoning", "confidence")
_ANSWER_COLUMNS = ("player", "component", *REASONS, "status")
_COST_COLUMNS = ("attempts", "prompt_tokens", "reply_tokens", "tokens")
_COLUMNS_AFTER = ("status", "interventions", *_COST_COLUMNS, "seconds", "model")
DECISION_COLUMNS = frozenset({*_COLUMNS_BEFORE, *REASONS, *_COLUMNS_AFTER})
"""Columns of every frame of decisions."""
_READERS: dict[str, Callable[[object], object]] = {
    "integer": TypeAdapter(int).validate_python,
    "number": TypeAdapter(FiniteFloat).validate_python,
    "boolean": TypeAdapter(bool).validate_python,
}
"""What reads a field of a reply, by its type in the schema."""

Columns = dict[str, Any]
"""Values by the columns of a frame that have them, or by the fields of a reply; JSON-ready."""

_MOST_OUTSIDE = 500
"""How much of what came from outside is shown, characters."""


def _in_words(value: object) -> str:
    """Return a value as prompts show it; a fraction with two decimals, or two digits if small."""
    if isinstance(value, float) and abs(value) < 0.01:
        return f"{value:.2g}"
    if isinstance(value, float):
        return number(value)
    with suppress(PromptError):  # an answer may be longer than any prompt
        return written(value)
    return dumps(value)


def outside_in_words(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what came from outside, a line of text each: ``weather "Rome": {"rain":true}``.

    Args:
        lines: a turn's, as ``Tape.outside`` has them; of two of the same the later one counts.
    """
    # The first line of what is done once says only that it begins.
    latest: dict[tuple[str, str, object], Mapping[str, Any]] = {}
    for line in lines:
        latest[line["what"], dumps(line["key"]), line.get("nth")] = line
    texts = []
    for (kind, key_as_json, _), line in latest.items():
        # A key that is a text reads better without JSON's quotes.
        key = key_as_json
        if isinstance(line["key"], str):
            key = line["key"]
        question = f"{kind} {key}".rstrip()
        answer = dumps(line["result"]) if "result" in line else "stopped before it answered"
        texts.append(f"{clip(question, _MOST_OUTSIDE)}: {clip(answer, _MOST_OUTSIDE)}")
    return texts


def _notes_by_decision(recorded: object) -> object:
    """Return notes by player and component; recordings have those that name none by player."""
    if isinstance(recorded, Mapping):
        return {(player, ""): columns for player, columns in recorded.items()}
    if not isinstance(recorded, list):
        return recorded
    notes: dict[tuple[object, object], object] = {}
    for note in recorded:
        # Exactly these, as everywhere on a tape: what else there is was not written by this
        # package.
        if not isinstance(note, Mapping) or note.keys() != {"player", "component", "columns"}:
            raise ValueError("a note has a player, a component and columns")
        notes[note["player"], note["component"]] = note["columns"]
    return notes


def _recorded_notes(notes: Mapping[tuple[str, str], Columns]) -> object:
    """Return notes as a recording has them; see ``_notes_by_decision``."""
    # As before there were components: such recordings stay equal.
    if not any(component for _, component in notes):
        return {player: columns for (player, _), columns in notes.items()}
    # A list, since JSON has no keys of two parts.
    return [
        {"player": player, "component": component, "columns": columns}
        for (player, component), columns in notes.items()
    ]


Notes = Annotated[
    dict[tuple[str, str], Columns],
    BeforeValidator(_notes_by_decision),
    PlainSerializer(_recorded_notes),
]
"""What became of decisions: columns by player and component; without one, of the first."""


def notes_by_player(notes: Mapping[tuple[str, str], Columns]) -> dict[tuple[str, str], Columns]:
    """Return notes as they were recorded before they named components."""
    merged: dict[tuple[str, str], Columns] = {}
    for (player, _), columns in notes.items():
        merged.setdefault((player, ""), {}).update(columns)
    return merged


def with_outcomes(turn: Turn) -> list[tuple[Answer, Columns]]:
    """Return a turn's decisions, each with what became of it, by column.

    A column stands on one row: that of the decision which the note names by player and component,
    of several the first.
    """
    rows: list[tuple[Answer, Columns]] = [(answer, {}) for answer in turn.answers]
    for (player, component), noted in turn.became.items():
        for answer, columns in rows:
            # A note without a component is of whatever the player decided first.
            is_meant = component in ("", answer.component)
            if answer.player == player and is_meant:
                columns.update(noted)
                break
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One decision: what a player answered, and how that came about.

    Attributes:
        player: the one that decided; with ``by=`` the one that the question was about.
        component: as what it was asked: ``player``, the name in ``by=``, or the tag.
        status: how it came about; ``fallback`` where something stands in for it.
        calls: the call that gave it, or those that measured what it was taken from; none of a rule.
        reasoning: why, in the player's words; or in the program's, where it decided.
        confidence: 0 to 1; None where nothing was said of it.
        given: the reply's fields where no call has them, JSON-ready.
        filled_by: who answered for a person: ``random``, ``rule``, or the model's name; empty where
            nobody had to.
    """

    # Read strictly from tapes: a field that no version has is damage.
    __pydantic_config__ = ConfigDict(extra="forbid")

    player: str
    component: str = "player"
    status: Status = "ok"
    calls: tuple[CallRecord, ...] = ()
    # On a tape these two are ``why`` and ``sure``: recorded runs are read, and written alike.
    reasoning: Annotated[str, Field(alias="why")] = ""
    confidence: Annotated[Confidence | None, Field(alias="sure")] = None
    given: Columns = field(default_factory=dict)
    # Left out where it is empty: recordings from before it stay equal.
    filled_by: Annotated[str, Field(exclude_if=lambda name: not name)] = ""

    @property
    def call(self) -> CallRecord | None:
        """The call that gave the answer; None where a rule or probabilities decided."""
        # With fields of its own the calls only measured, or failed before something stood in.
        if self.given or not self.calls:
            return None
        return self.calls[-1]

    @property
    def fields(self) -> Columns:
        """What was answered, by field, without reasoning and confidence."""
        reply = self.given or reply_of(self.call)
        of_every_reply = Reply.model_fields
        return {name: value for name, value in reply.items() if name not in of_every_reply}

    def __str__(self) -> str:
        """Return what was answered: ``amount 5``, ``share 0.33``."""
        return ", ".join(f"{name} {_in_words(value)}" for name, value in self.fields.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What happened in a turn and where it led.

    Attributes:
        number: 1 for the first turn played; 0 stands for the initial state.
        state: the state the turn led to.
        interventions: what was done from outside.
        seconds: wall time of the turn.
        calls: every model call of the turn, in the order in which the first answers came.
        by_code: the answers that no call says by itself: of rules, choices, and what stands in.
        noted: columns that it noted of itself.
        became: what it noted of decisions, by player and component; see ``Ask.note``.
        story: what it noted in words.
        led_to: the figures that it noted as its result, in words.
    """

    number: int
    state: Any
    interventions: tuple[StateChange, ...] = ()
    seconds: float = field(default=0.0, repr=False)  # a saved notebook's outputs are compared
    calls: tuple[CallRecord, ...] = field(
        default=(),
        repr=False,
    )
    by_code: tuple[Answer, ...] = ()
    noted: Columns = field(default_factory=dict)
    became: Notes = field(default_factory=dict)
    story: tuple[str, ...] = ()
    led_to: str = ""

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The decisions: first those of code, then those that models and people gave."""
        answers = list(self.by_code)
        # By identity: equal calls, as of repeats, are different ones.
        told_by_code: set[int] = set()
        for answer in self.by_code:
            told_by_code.update(map(id, answer.calls))
        for call in self.calls:
            if id(call) in told_by_code:
                continue
            # A call that only measured what a choice is made of is no decision; one that failed is
            # kept, since nothing else says of it.
            if call.status == "ok" and measures(call.request):
                continue
            site = call.request.site or CallSite(component="call")
            reply = reply_of(call)
            answers.append(
                Answer(
                    player=site.agent or "",
                    component=site.component,
                    status=call.status,
                    calls=(call,),
                    reasoning=as_reasoning(reply.get("reasoning")),
                    confidence=as_confidence(reply.get("confidence")),
                )
            )
        return tuple(answers)

    @property
    def statuses(self) -> Counter[str]:
        """How the turn's calls came out, and of decisions without a call those that went wrong."""
        counts: Counter[str] = Counter()
        # An answer of code, such as a stand-in, has the last word on its call.
        by_call: dict[int, Status] = {}
        for answer in self.by_code:
            if answer.status == "ok":
                continue
            # Of a model that answered for a person the call was as good as any other.
            calls = answer.calls[:1] if answer.filled_by else answer.calls
            for call in calls:
                by_call[id(call)] = answer.status
            if not answer.calls:
                counts[answer.status] += 1
        for call in self.calls:
            counts[by_call.get(id(call), call.status)] += 1
        return counts

    @property
    def tokens(self) -> int:
        """Prompt and reply tokens of the turn's model calls, as far as reported."""
        return sum(call.tokens for call in self.calls)

    def columns(self) -> Columns:
        """Return what the turn's row of the frame says: of the state, and what was noted.

        Raises:
            ConfigError: the turn noted a column that the state has too, or the state's class failed
                to say what its columns are.
        """
        try:
            columns: Columns = self.state.columns()
        except LabError:
            raise
        except Exception as error:
            raise ConfigError(
                f"turn {self.number}: {type(self.state).__name__}.columns() failed: "
                f"{error_text(error)}"
            ) from error
        taken = columns.keys() & self.noted.keys()
        if taken:
            raise ConfigError(
                f"ask.note({min(taken)}=...): the state has a column of that name already; note it "
                "under another name"
            )
        return {**columns, **self.noted}

    def in_words(self) -> Sequence[str]:
        """Return the turn's story and what it led to; by default, its columns in one line."""
        if self.led_to:
            return (*self.story, result_in_words(self.led_to))
        if self.story:
            return self.story
        # A world that notes nothing still has a line a turn.
        columns = [f"{name} {value}" for name, value in self.columns().items()]
        return (result_in_words(", ".join(columns)),)


def result_in_words(figures: str) -> str:
    """Return the line of text that says what a turn led to."""
    return f"it led to: {figures}"


# --- a run's frames ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A column of numbers in ``to_frame()`` that can be charted.

    Of a state's field it says what stands beside its numbers, and needs no column:
    ``coins: Annotated[dict[str, float], Series(unit="coins")]``.

    Attributes:
        column: its name in the frame; in a class's ``charts`` also a dict's, for all its keys.
        label: for the axis, without the unit; the column's name if not given.
        unit: such as ``% per year``; empty for plain counts.
        short: its heading in tables of text, which have little room; empty leaves it out of them.
        low: the least that it can be; None where nothing bounds it.
        high: the most.
    """

    column: str = ""
    label: str = ""
    unit: str = ""
    short: str = ""
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


def plain_series(names: Iterable[str]) -> Sequence[Series]:
    """Return columns under their own names, each once, the first dozen of them."""
    each_once = list(dict.fromkeys(names))
    return [Series(column=name, label=name) for name in each_once[:MOST_SERIES]]


def own_numbers(row: Mapping[str, Any]) -> list[str]:
    """Return the columns of a frame's row that hold numbers and that not every run has."""
    return [
        name
        for name, value in row.items()
        if name not in COMMON_COLUMNS and isinstance(value, int | float)
    ]


def turn_row(turn: Turn) -> Columns:
    """Return a turn's row of a run's frame; see ``Run.to_frame``.

    Raises:
        ConfigError: the state has a column of a name that every frame has.
    """
    columns = turn.columns()
    # A state may add columns of its own, whose names no class could check when it was made.
    taken = COMMON_COLUMNS & columns.keys()
    if taken:
        raise ConfigError(
            f"the state has the column {min(taken)}, which every run's frame has already; give it "
            "another name"
        )
    return {
        "turn": turn.number,
        **columns,
        "calls": len(turn.calls),
        **dict.fromkeys(_STATUSES, 0),
        **turn.statuses,
        "tokens": turn.tokens,
        "seconds": turn.seconds,
        "interventions": _interventions_in_words(turn),
    }


def _interventions_in_words(turn: Turn) -> str:
    return whole_text("; ".join(map(str, turn.interventions)))


def decisions_frame(
    turns: Sequence[Turn],
    *,
    run: int | None,
    seed: int,
) -> pd.DataFrame:
    """Return one row a decision of a run; see ``Run.decisions``."""
    decisions: list[Columns] = []
    # Dicts used as ordered sets: columns stand in the order in which they first came.
    reply_columns: dict[str, None] = {}
    outcome_columns: dict[str, None] = {}
    has_periods = False
    for turn in turns:
        columns = turn.columns()
        has_periods = has_periods or "period" in columns
        shared = {
            "run": run,
            "seed": seed,
            "period": columns.get("period"),
            "turn": turn.number,
            "interventions": _interventions_in_words(turn),
        }
        for answer, outcome in with_outcomes(turn):
            fields = _reply_columns(answer, outcome)
            reply_columns |= dict.fromkeys(fields)
            outcome_columns |= dict.fromkeys(outcome)
            # Later ones count: what every frame has is taken by no reply and no note.
            decisions.append({**fields, **outcome, **shared, **_decision_columns(answer)})
    before = [name for name in _COLUMNS_BEFORE if has_periods or name != "period"]
    between = dict.fromkeys([*reply_columns, *REASONS, *outcome_columns])
    return plain_frame(decisions, (*before, *between, *_COLUMNS_AFTER))


def _reply_columns(answer: Answer, outcome: Columns) -> Columns:
    """Return the fields of a reply, each under a name that no other column has."""
    taken = DECISION_COLUMNS | outcome.keys()
    columns: Columns = {}
    for field_name, value in answer.fields.items():
        name = field_name
        # More than once for ``tokens``, since ``reply_tokens`` is taken as well.
        while name in taken or name in columns:
            name = f"reply_{name}"
        columns[name] = value
    return columns


def _decision_columns(answer: Answer) -> Columns:
    """Return what every decision's row has; its cost is that of the calls behind it."""
    calls = answer.calls
    columns: Columns = {name: getattr(answer, name) for name in _ANSWER_COLUMNS}
    # Of several calls, as a choice has them, the first one's: all ask one model.
    model = calls[0].request.model if calls else None
    columns["model"] = answer.filled_by or model
    for name in _COST_COLUMNS:
        columns[name] = sum(getattr(call, name) for call in calls)
    # A start of 0.0 keeps the column one of floats.
    columns["seconds"] = sum((call.seconds for call in calls), 0.0)
    return columns


def reply_of(call: CallRecord | None) -> Columns:
    """Return what the model answered, by field; nothing where it was not an object."""
    if call is None or call.reply is None:
        return {}
    schema = call.request.schema or {}
    parts = as_mapping(schema.get("properties"))  # a tape may hold anything there
    # An invalid reply is on the tape as well, and has no fields to show.
    with suppress(InvalidReply):
        reply: Columns = {}
        for name, value in reply_fields(call.reply.text).items():
            reply[name] = _as_asked(value, parts.get(name), schema)
        return reply
    return {}


def as_reasoning(value: object) -> str:
    """Return why, as a reply says; empty where it says nothing, or something that is no text."""
    return value if isinstance(value, str) else ""


def as_confidence(value: object) -> float | None:
    """Return how sure a reply is, 0 to 1; None where it says nothing, or something else."""
    # As the model wrote it, or a class of one's own has it: nothing has checked this.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= 1:
        return None
    return value


def _as_asked(
    value: object,
    part: object,
    schema: Schema,
) -> object:
    """Return a number or truth value that was written as another type, as the world got it.

    Args:
        value: what the model wrote.
        part: the field's schema; anything, on a damaged tape.
        schema: the reply's.
    """
    # Otherwise one such answer would make its column one of texts, whose sum is a long text.
    field_type = _sole_type(part, schema)
    is_whole_number = field_type == "number" and type(value) is int
    if field_type not in _READERS or is_whole_number:
        return value
    try:
        return _READERS[field_type](value)
    except ValueError:
        # An invalid reply, which stays as the model wrote it.
        return value


def _sole_type(part: object, schema: Schema) -> str:
    """Return the type of a field, null left out; empty where it is not one type."""
    # A damaged schema says nothing.
    with suppress(
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ):
        whole_part = resolved(part, schema)
        [typed] = not_null(alternatives(whole_part, schema)) or [whole_part]
        return str(typed["type"])
    return ""
