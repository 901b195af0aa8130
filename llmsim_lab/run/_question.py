"""A question to a player, and what may answer it: a reply, its fields, a choice by probability.

A rule is handed the ``Question``; what it answers is read and checked here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache, partial
from inspect import isawaitable, iscoroutine
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeVar, get_args

from pydantic import ValidationError

from llmsim_lab._util.jsontext import (
    ALWAYS_FINITE,
    MOST_LEVELS,
    SCALARS,
    all_finite,
    is_too_deep,
)
from llmsim_lab._util.text import closest, error_text, faults, text_of
from llmsim_lab.errors import ConfigError, LabError, PromptError
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._choose import Decide, numeric
from llmsim_lab.llm._client import checked_client
from llmsim_lab.llm.bounds import (
    EVERYTHING,
    Allowed,
    Limits,
    allowed_of,
    fields_of,
    json_number,
    own_limits,
)
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._any_run import AnyRun
from llmsim_lab.run._config import OnError, players_seed
from llmsim_lab.run._kept import defined_again, reply_as_json
from llmsim_lab.run._turn import Answer, as_confidence, as_reasoning
from llmsim_lab.types import CallRecord, CallSite, Decision, Number, Rationale, Reply

Source = str | Path | Prompt | Callable[[str], str]
"""A prompt as a question names it; a function of the player's name returns the text itself."""

_MOST_VALUES = 101
"""In a grid of numbers. Servers enforce a list of values, and bounds of floats they do not."""


class Asking(Protocol):
    """What a question uses of the ``Ask`` that puts it."""

    _state: Any

    @property
    def _run(self) -> AnyRun: ...

    def _text(self, batch: Batch, player: str) -> Any:
        """Return what a question says to a player."""
        ...


@dataclass(slots=True)
class Batch:
    """What the questions of one ``each`` have in common, and what is made of it once for all."""

    reply: type[Decision]
    prompt: Source
    by: str
    tag: str
    limits: Limits | Callable[[str], Limits] | None
    decide: Decide | None
    fallback: Any
    on_error: OnError | None
    values: Mapping[str, Any]
    turn: int
    system: str = ""
    name: str = ""
    """What a prompt without slots is called: its kind of question, and its position in the turn."""
    shared: Callable[[], Callable[[Mapping[str, Any]], Any]] = field(init=False)
    """Fills in what all share, and returns what fills in the rest."""
    own: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    """Functions of the name, by the slots of the prompt that they fill."""
    rest: Callable[[Mapping[str, Any]], Any] | None = None
    component: str = field(init=False)
    allowed_to_all: Allowed | None = None
    allowed_by_limits: dict[str, Allowed] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    by_model: ByModel[Decision] | None = None
    """How a model answers by a conversation, where it is not sent the prompt in one call."""
    fault: LabError | None = None
    """What the world's own code raised: an error, whatever a player that met it made of it."""

    @property
    def place(self) -> str:
        """Which question it is, for messages: ``turn 3, Gift (tag 'second')``."""
        tag = f" (tag {self.tag!r})" if self.tag else ""
        return f"turn {self.turn}, {self.reply.__name__}{tag}"

    def of_world(self, name: str, function: Callable[[str], Any], player: str) -> Any:
        """Return what a function that the world gave says for a player.

        Args:
            name: what it was given as, such as ``limits``.
            function: takes the player's name.
            player: the player's name.

        Raises:
            ConfigError: it raised, or is async.
            LabError: it raised this itself.
        """
        try:
            value = function(player)
        except LabError as error:  # which says what is wrong, and may be of a class of its own
            error.add_note(f"{self.place}: the function {name}= raised this for {player}.")
            self.fault = error
            raise
        except Exception as error:
            self.fault = ConfigError(
                f"{self.place}: the function {name}= failed for {player}: {error_text(error)}"
            )
            raise self.fault from error
        if isawaitable(value):
            close_unawaited(value)
            self.fault = ConfigError(
                f"{self.place}: the function {name}= is async, and a question does not wait for "
                f"it; await it before: found = await ..., {name}=lambda name: found[name]"
            )
            raise self.fault
        return value

    def text(self, player: str) -> Any:
        """Return the prompt, filled for a player."""
        # A batch holds no method of its own: it would be kept, and the run with it, until Python
        # looks for garbage, and the run's tape could not be continued by another one.
        if self.rest is None:
            self.rest = self.shared()  # not before, since rules need no text
        return self.rest({slot: self.of_world(slot, it, player) for slot, it in self.own.items()})

    def allowed(self, player: str) -> Allowed:
        """Return what a player may answer; equal limits are worked out once."""
        if not callable(self.limits):
            if self.allowed_to_all is None:
                limits = _with_lists(player, self.limits)
                self.allowed_to_all = self._allowed_by(player, limits)
            return self.allowed_to_all
        limits = _with_lists(player, self.of_world("limits", self.limits, player))
        key = repr(limits)  # as a text, since 1, 1.0 and True are equal
        if key not in self.allowed_by_limits:
            self.allowed_by_limits[key] = self._allowed_by(player, limits)
        return self.allowed_by_limits[key]

    def _allowed_by(self, player: str, limits: Limits) -> Allowed:
        return allowed_of(player, self.reply, limits) if limits else EVERYTHING


def _with_lists(player: str, limits: Any) -> Limits:
    """Return limits by field, with lists in place of ranges and of numpy's and pandas' values.

    Raises:
        ConfigError: they are not by field.
    """
    if not limits:
        return {}
    if not isinstance(limits, Mapping):
        way_out = "by field, (lowest, highest) or a list: limits={'amount': (0, 5)}"
        what = f"limits of {player} are {limits!r:.80}"
        raise ConfigError(f"{what}; write what is allowed {way_out}")
    as_lists = dict(limits)
    for name, values in limits.items():
        if isinstance(values, range):
            as_lists[name] = list(values)
        elif hasattr(values, "tolist"):
            as_lists[name] = values.tolist()
    return as_lists


class Question:
    """What a rule is asked.

    Attributes:
        player: the one that is asked; with ``by=`` the one that the question is about.
    """

    __slots__ = ("_allowed", "_ask", "_batch", "_decision", "_number", "_rng", "player")

    def __init__(self, ask: Asking, batch: Batch, player: str, number: int) -> None:
        self._ask = ask
        self._batch = batch
        self.player = player
        self._number = number
        self._allowed = EVERYTHING if batch.limits is None else batch.allowed(player)
        self._decision: Decision | None = None
        self._rng: Random | None = None

    @property
    def reply(self) -> type[Decision]:
        """The class of the answer."""
        return self._batch.reply

    @property
    def state(self) -> Any:
        """The state before the turn, as players read it."""
        return self._ask._state

    @property
    def run(self) -> Any:
        """The world's parameters, as ``question.run.factor``."""
        return self._ask._run.config

    @property
    def turn(self) -> int:
        """The number of the turn that is being played."""
        return self._batch.turn

    @property
    def tag(self) -> str:
        """Which of several questions of the turn, where the world says."""
        return self._batch.tag

    @property
    def by(self) -> str:
        """Who answers, where that is not the player."""
        return self._batch.by

    @property
    def values(self) -> Mapping[str, Any]:
        """What the prompt was given besides; of functions of the name, what they return."""
        values = dict(self._batch.values)
        for name, value in values.items():
            if callable(value):
                values[name] = self._batch.of_world(name, value, self.player)
        return values

    @property
    def limits(self) -> Mapping[str, tuple[Number, Number] | list[Any]]:
        """What is allowed, by field: ``(lowest, highest)``, or a list of values.

        The question's, or else the field's own.
        """
        chosen = {name: list(values) for name, values in self._allowed.choices.items()}
        return {**own_limits(self._batch.reply), **self._allowed.ranges, **chosen}

    @property
    def rng(self) -> Random:
        """Random numbers of this player's own, the same in a replay.

        They follow from the run's seed and replicate: another sample has others.

        Raises:
            ConfigError: another task asks the player as well, so that they have no order.
        """
        if self._rng is None:
            self._rng = self._random("rule")
        return self._rng

    def _random(self, what: str) -> Random:
        if not self._number:
            what = f"{self.player} is asked by two tasks and answers by chance"
            way_out = "tell the questions apart: ask(..., tag='second')"
            raise ConfigError(f"{what}: a replay may ask in another order; {way_out}")
        kind = self._batch.tag or self._batch.by
        name = f"{self.player}, {kind}" if kind else self.player
        if self._number > 1:
            name = f"{name}, question {self._number}"
        seed = players_seed(self._ask._run.config)
        return Random(f"{seed}/{self._batch.turn}/{what} of {name}")

    @property
    def prompt(self) -> str:
        """The question as a model would be sent it."""
        batch = self._batch
        try:
            text = self._ask._text(batch, self.player)
        except PromptError as error:
            batch.fault = PromptError(f"{batch.place}, to {self.player}: {error}")
            raise batch.fault from error
        if not isinstance(text, str):
            batch.fault = ConfigError(
                f"{batch.place}: the prompt to {self.player} is {text!r:.60}; a function of the "
                "name returns the text: self.prompt(...).render(...)"
            )
            raise batch.fault
        return text

    async def put_to(self, client: LLMClient, prompt: str = "") -> Any:
        """Ask a model, as the run asks its own; for a player who prepares the prompt first.

        Args:
            client: the model.
            prompt: the whole prompt, instead of the question's own.

        Raises:
            ConfigError: it is not a client.
            LLMFailureException: the model failed to answer.
        """
        checked_client(client, "client", ("call_with_retry",))
        return await self._sent(client, prompt or self.prompt)

    def _sent(self, client: LLMClient, prompt: str) -> Coroutine[Any, Any, Any]:
        allowed = self._allowed
        ask: Callable[..., Coroutine[Any, Any, Any]] = client.call_with_retry
        if self._rationale != "before":
            ask = partial(ask, rationale=self._rationale)  # no client around another need know it
        return ask(
            prompt=prompt,
            response_model=self._batch.reply,
            choices=allowed.choices or None,
            limits=allowed.ranges or None,
            check=allowed.complaint,
            site=self.site,
        )

    @property
    def _rationale(self) -> Rationale:
        """Where the answer has its reasoning; other classes than ``Reply`` have their own form."""
        rationale: Rationale = self._ask._run.config.rationale
        return rationale if issubclass(self._batch.reply, Reply) else "before"

    @property
    def site(self) -> CallSite:
        """Where in the run it is asked."""
        return CallSite(component=self._batch.component, agent=self.player, turn=self._batch.turn)


ReplyT = TypeVar("ReplyT", bound=Decision)
ByModel = Callable[[Question, LLMClient], Awaitable[ReplyT]]
"""How a model answers by a conversation: of the question, and of the client in the seat."""


def rule_of(question: Question) -> str:
    """Return whose rule is asked what, for messages."""
    by, player, place = question.by, question.player, question._batch.place
    if by:
        return f"{place}: the rule of {by}, about {player},"
    return f"{place}: the rule of {player}"


def fallback_of(question: Question) -> str:
    """Return for whom which question names a stand-in, for messages."""
    return f"{question._batch.place}: fallback= of {question.player}"


def close_unawaited(awaitable: object) -> None:
    """Close a coroutine that will not be awaited, of which Python would warn."""
    if iscoroutine(awaitable):
        awaitable.close()


def answer_by_code(
    decision: Decision, question: Question, reasoning: str = "", calls: tuple[CallRecord, ...] = ()
) -> Answer:
    """Return the record of a decision that no call says by itself.

    Raises:
        ConfigError: a record cannot hold it.
    """
    try:
        given = _given(decision)
    except ConfigError as error:
        raise ConfigError(f"{rule_of(question)} answered what cannot be kept: {error}") from error
    return Answer(
        player=question.player,
        component=question._batch.component,
        calls=calls,
        reasoning=reasoning or as_reasoning(getattr(decision, "reasoning", "")),
        confidence=as_confidence(getattr(decision, "confidence", None)),
        given=given,
    )


def _given(decision: Decision) -> dict[str, Any]:
    """Return a decision's fields as JSON has them; a Decimal as a number, which a table adds up.

    Raises:
        ConfigError: JSON cannot hold one.
    """
    given = reply_as_json(decision)
    values = decision.__dict__  # of the model itself it takes long
    if Decimal in map(type, values.values()):
        given |= {name: json_number(it) for name, it in values.items() if type(it) is Decimal}
    return given


def as_reply(answer: object, question: Question, whose: Callable[[Question], str]) -> Decision:
    """Return an answer that code gave as the reply that was asked for, within its limits.

    Args:
        answer: what the code gave.
        question: what it was asked.
        whose: names the code in a message.

    Raises:
        ConfigError: it is not such a reply, or not within the limits.
    """
    reply = question.reply
    if not isinstance(answer, reply):
        if isinstance(answer, Decision) and type(answer).__name__ == reply.__name__:
            raise defined_again(reply.__name__, reply.__module__)
        fields = reply.model_fields
        needed, form = _needed_of(reply)
        if answer is None:
            raise ConfigError(f"{whose(question)} returned None; {form}")
        if not isinstance(answer, Mapping) and len(needed) == 1:
            answer = {needed[0]: answer}  # a number alone will do where only one is asked for
        if isinstance(answer, Mapping) and (unknown := [it for it in answer if it not in fields]):
            raise ConfigError(
                f"{whose(question)} answered {unknown[0]!r}{closest(str(unknown[0]), fields)}, "
                f"which a {reply.__name__} has no field for; {form}"
            )
        try:
            answer = reply.model_validate(answer)
        except ValidationError as error:
            raise ConfigError(f"{whose(question)} answered {faults(error)}; {form}") from error
    if not ALWAYS_FINITE.issuperset(map(type, answer.__dict__.values())):
        _check_values(answer, question, whose)
    if complaint := question._allowed.complaint(answer):
        raise ConfigError(
            f"{whose(question)} answered {reply.__name__}, {complaint}; question.limits has what "
            "is allowed"
        )
    return answer


@lru_cache(maxsize=1024)
def _needed_of(reply: type[Decision]) -> tuple[list[str], str]:
    """Return the fields that code has to give of a reply, and how it gives them, in words."""
    fields = reply.model_fields
    needed = [it for it in fields if it not in Reply.model_fields or fields[it].is_required()]
    given = ", ".join(f"{name}=..." for name in needed)
    return needed, f"return {reply.__name__}({given})"


def _check_values(answer: Decision, question: Question, whose: Callable[[Question], str]) -> None:
    """Raise ConfigError for values of a reply that no tape could hold."""
    for name, value in answer:
        if type(value) not in SCALARS and is_too_deep(value):
            raise ConfigError(
                f"{whose(question)} answered {name}= that is nested too deeply for a tape: more "
                f"than {MOST_LEVELS} lists and dicts in one another"
            )
        if type(value) not in ALWAYS_FINITE and not all_finite(value):
            raise ConfigError(
                f"{whose(question)} answered {name}={value!r:.200}, which holds a number that is "
                "not finite; JSON, and so a tape, has none: answer another number, or None for no "
                "number"
            )


# --- answers by probabilities --------------------------------------------------------------------


def options_of(question: Question) -> tuple[str, dict[Any, str]]:
    """Return the field that is decided by probabilities, and its values, each with its text.

    Raises:
        ConfigError: that cannot be done.
    """
    how: Any = question._batch.decide
    player, reply = question.player, question._batch.reply
    if how not in get_args(Decide):
        known = ", ".join(get_args(Decide))
        raise ConfigError(f"decide={how!r:.40} of {player} must be one of {known}")
    fields = [name for name in reply.model_fields if name not in Reply.model_fields]
    if len(fields) != 1:
        has = f"{reply.__name__} of {player} has {', '.join(fields) or 'nothing'}"
        raise ConfigError(f"decide needs one thing to choose, and {has}; ask for each by itself")
    [name] = fields
    schema, its = fields_of(reply)[name], question.limits.get(name, [])
    if schema.get("type") == "boolean":
        return name, {True: "yes", False: "no"}
    values: Sequence[Any] = its if isinstance(its, list) else ()
    if isinstance(its, tuple) and schema.get("type") == "integer":
        whole_numbers = range(int(its[0]), int(its[1]) + 1)
        values = whole_numbers if len(whole_numbers) <= _MOST_VALUES else ()
    if not values or (how == "expected" and not numeric(values)):
        needed = "numbers" if values else f"the values, at most {_MOST_VALUES}"
        what = f"decide={how!r} needs {needed}, of {reply.__name__}.{name} for {player}"
        way_out = "annotate it as Literal or an enum, give bounds of whole numbers, or the values"
        raise ConfigError(f"{what}: {way_out}: ask(..., limits={{{name!r}: [0, 0.25, 0.5]}})")
    words = question._allowed.wording.get(name, {})
    return name, {value: words[value] if value in words else text_of(value) for value in values}
