"""A turn: what its players answered, what happened in it, and the state that it led to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from llmsim_lab._util.jsontext import dumps
from llmsim_lab._util.text import error_text, number
from llmsim_lab.errors import ConfigError, LabError, PromptError
from llmsim_lab.llm.choice import measures
from llmsim_lab.prompts.language import written
from llmsim_lab.run.config import StateChange
from llmsim_lab.run.notes import Notes
from llmsim_lab.run.replies import as_confidence, as_reasoning, reply_of
from llmsim_lab.run.state import Columns
from llmsim_lab.types import CallRecord, CallSite, Confidence, Reply, Status


def _in_words(value: object) -> str:
    """Return a value as prompts show it; a fraction with two decimals, or two digits if small."""
    if isinstance(value, float) and abs(value) < 0.01:
        return f"{value:.2g}"
    if isinstance(value, float):
        return number(value)
    with suppress(PromptError):  # an answer may be longer than any prompt
        return written(value)
    return dumps(value)


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
