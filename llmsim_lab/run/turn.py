"""A turn: what its players answered, what happened in it, and the state that it led to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from llmsim_lab._util.jsontext import dumps
from llmsim_lab._util.text import error_text, number, printable
from llmsim_lab.errors import ConfigError, LabError, PromptError
from llmsim_lab.llm.choice import measures
from llmsim_lab.prompts.language import written
from llmsim_lab.run.config import StateChange
from llmsim_lab.run.notes import Notes
from llmsim_lab.run.replies import as_confidence, reasoning_in, reply_of
from llmsim_lab.run.state import Columns
from llmsim_lab.types import CallRecord, CallSite, Confidence, Reply, Status


def _in_words(value: object) -> str:
    """Return a value as prompts show it; fractions have two decimals, small ones two digits."""
    if isinstance(value, float) and abs(value) < 0.01:
        return f"{value:.2g}"
    if isinstance(value, float):
        return number(value)
    with suppress(PromptError):  # an answer may be longer than a prompt may be
        return written(value)
    return dumps(value)


def with_outcomes(turn: Turn) -> list[tuple[Answer, Columns]]:
    """Return a turn's decisions, each with the outcome that the turn noted, by column.

    A column stands in one row only: in the row of the decision that the note names by player and
    component, and in the first of them if there are several.
    """
    rows: list[tuple[Answer, Columns]] = [(answer, {}) for answer in turn.answers]
    for (player, component), noted in turn.became.items():
        for answer, columns in rows:
            # A note without a component is about the player's first decision.
            is_meant = component in ("", answer.component)
            if answer.player == player and is_meant:
                columns.update(noted)
                break
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One decision: what a player answered, and how that came about.

    Attributes:
        player: the player who decided; with ``by=``, the player that the question was about.
        component: the role in which the player was asked: ``player``, the name in ``by=``, or the
            tag.
        status: how the answer came about; ``fallback`` if a stand-in answered.
        calls: the call that has the answer, or the calls that measured its probabilities. A rule
            has none.
        reasoning: the reasons, in the player's words; in the program's, if a program decided.
        confidence: 0 to 1; None if the reply has none.
        given: the reply's fields, JSON-ready, if no call has them.
        filled_by: who answered for a person: ``random``, ``rule``, or the model's name. Empty if
            no one had to.
    """

    # Tapes are read strictly: a field that no version has written is damage.
    __pydantic_config__ = ConfigDict(extra="forbid")

    player: str
    component: str = "player"
    status: Status = "ok"
    calls: tuple[CallRecord, ...] = ()
    # These two are ``why`` and ``sure`` on a tape, as in the oldest recordings.
    reasoning: Annotated[str, Field(alias="why")] = ""
    confidence: Annotated[Confidence | None, Field(alias="sure")] = None
    given: Columns = field(default_factory=dict)
    # Left out if it is empty, so that older recordings, which lack it, stay equal.
    filled_by: Annotated[str, Field(exclude_if=lambda name: not name)] = ""

    @property
    def call(self) -> CallRecord | None:
        """The call that has the answer; None if a rule decided, or a draw from probabilities."""
        # If the fields are here, the calls only measured, or failed before a stand-in answered.
        if self.given or not self.calls:
            return None
        return self.calls[-1]

    @property
    def fields(self) -> Columns:
        """The answer by field, without reasoning and confidence."""
        reply = self.given or reply_of(self.call)
        of_every_reply = Reply.model_fields
        return {name: value for name, value in reply.items() if name not in of_every_reply}

    def __str__(self) -> str:
        """Return the answer in words: ``amount 5``, ``share 0.33``."""
        words = ", ".join(f"{name} {_in_words(value)}" for name, value in self.fields.items())
        return printable(words, keep="\n\t")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What happened in a turn, and the state that it led to.

    Attributes:
        number: 1 for the first turn that is played; 0 stands for the initial state.
        state: the state at the turn's end.
        interventions: the changes made from outside.
        seconds: wall time of the turn.
        calls: the model calls of the turn, in the order in which their first answers came.
        by_code: the answers that no call has by itself: those of rules, choices and stand-ins.
        noted: the columns that the turn noted about itself.
        became: the outcomes of decisions, by player and component; see ``Ask.note``.
        story: what the turn noted in words.
        led_to: the turn's result in words.
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
        """The decisions: first those of code, then those of models and people."""
        answers = list(self.by_code)
        # By identity, since equal calls, such as repeats, are different calls.
        told_by_code: set[int] = set()
        for answer in self.by_code:
            told_by_code.update(map(id, answer.calls))
        for call in self.calls:
            if id(call) in told_by_code:
                continue
            # A call that only measured probabilities is not a decision. A failed one is kept, since
            # nothing else tells of the failure.
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
                    reasoning=reasoning_in(reply),
                    confidence=as_confidence(reply.get("confidence")),
                )
            )
        return tuple(answers)

    @property
    def statuses(self) -> Counter[str]:
        """How many of the turn's calls, and failed decisions without calls, had each status."""
        counts: Counter[str] = Counter()
        # An answer of code, such as a stand-in, decides the status of its calls.
        by_call: dict[int, Status] = {}
        for answer in self.by_code:
            if answer.status == "ok":
                continue
            # Only the person's call failed; the call of a model that answered instead is a good
            # one.
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
        """Return the columns of the turn's row in the frame: the state's, and those that it noted.

        Raises:
            ConfigError: the turn noted a column that the state has too, or the state's class failed
                to return its columns.
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
        """Return the turn's story and its result; without either, its columns in one line."""
        if self.led_to:
            return (*self.story, result_in_words(self.led_to))
        if self.story:
            return self.story
        # A world without notes still gets one line a turn.
        columns = [f"{name} {value}" for name, value in self.columns().items()]
        return (result_in_words(", ".join(columns)),)


def result_in_words(figures: str) -> str:
    """Return the line of text that states a turn's result."""
    return f"it led to: {figures}"
