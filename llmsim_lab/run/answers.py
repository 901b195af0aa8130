"""What answers a question: a reply, its fields, what code returned, a choice by probability."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple, get_args

from pydantic import ValidationError

from llmsim_lab._util.jsontext import (
    ALWAYS_FINITE,
    MOST_LEVELS,
    SCALARS,
    all_finite,
    is_too_deep,
)
from llmsim_lab._util.text import closest, faults, text_of
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.bounds import fields_of, json_number
from llmsim_lab.llm.choice import Choice, Decide, numeric
from llmsim_lab.run._kept import defined_again, reply_as_json
from llmsim_lab.run.question import AskedQuestion, Question, limits_of
from llmsim_lab.run.replies import as_confidence, as_reasoning
from llmsim_lab.run.turn import Answer
from llmsim_lab.types import CallRecord, Decision, Reply

NOTHING_ELSE = "there was nothing else to choose"
"""Why the only option is taken."""
_MOST_VALUES = 101
"""In a grid of numbers. Servers enforce a list of values, and bounds of floats they do not."""


def rule_of(question: AskedQuestion) -> str:
    """Return whose rule is asked what, for messages."""
    batch = question.batch
    if batch.by:
        return f"{batch.place}: the rule of {batch.by}, about {question.player},"
    return f"{batch.place}: the rule of {question.player}"


def fallback_of(question: AskedQuestion) -> str:
    """Return for whom which question names a stand-in, for messages."""
    return f"{question.batch.place}: fallback= of {question.player}"


def answer_by_code(
    decision: Decision,
    question: AskedQuestion,
    reasoning: str = "",
    calls: tuple[CallRecord, ...] = (),
) -> Answer:
    """Return the record of a decision that no call says by itself.

    Raises:
        ConfigError: a record cannot hold it.
    """
    try:
        fields = reply_as_json(decision)
    except ConfigError as error:
        raise ConfigError(f"{rule_of(question)} answered what cannot be kept: {error}") from error
    # The dict's items: those of the model itself take long.
    values = decision.__dict__
    for name, value in values.items():
        if type(value) is Decimal:  # as a number, which a table adds up
            fields[name] = json_number(value)
    return Answer(
        player=question.player,
        component=question.batch.component,
        calls=calls,
        reasoning=reasoning or as_reasoning(getattr(decision, "reasoning", "")),
        confidence=as_confidence(getattr(decision, "confidence", None)),
        given=fields,
    )


def as_reply(
    answer: object,
    question: AskedQuestion,
    whose: Callable[[AskedQuestion], str],
) -> Decision:
    """Return an answer that code gave as the reply that was asked for, within its limits.

    Args:
        answer: what the code gave.
        question: what it was asked.
        whose: names the code in a message.

    Raises:
        ConfigError: it is not such a reply, or not within the limits.
    """
    reply = question.batch.reply
    if isinstance(answer, reply):
        decision: Decision = answer  # which was checked when it was made
    else:
        decision = _read(answer, reply, whose, question)
    if not ALWAYS_FINITE.issuperset(map(type, decision.__dict__.values())):
        _check_values(decision, whose, question)
    complaint = question.allowed.complaint(decision)
    if complaint:
        raise ConfigError(
            f"{whose(question)} answered {reply.__name__}, {complaint}; question.limits has "
            "what is allowed"
        )
    return decision


def _read(
    answer: object,
    reply: type[Decision],
    whose: Callable[[AskedQuestion], str],
    question: AskedQuestion,
) -> Decision:
    """Return the reply that fields, or the value of its one field, make."""
    # A class of a cell that was run again has the same name and is another class.
    if isinstance(answer, Decision) and type(answer).__name__ == reply.__name__:
        raise defined_again(reply.__name__, reply.__module__)
    needed = _fields_of_code(reply)
    if answer is None:
        raise ConfigError(f"{whose(question)} returned None; {_right_return(reply)}")
    # A number alone will do where only one is asked for.
    if not isinstance(answer, Mapping) and len(needed) == 1:
        answer = {needed[0]: answer}
    if isinstance(answer, Mapping):
        for name in answer:
            if name not in reply.model_fields:
                raise ConfigError(
                    f"{whose(question)} answered {name!r}{closest(str(name), reply.model_fields)}, "
                    f"which a {reply.__name__} has no field for; {_right_return(reply)}"
                )
    try:
        return reply.model_validate(answer)
    except ValidationError as error:
        raise ConfigError(
            f"{whose(question)} answered {faults(error)}; {_right_return(reply)}"
        ) from error


@lru_cache(maxsize=1024)
def _fields_of_code(reply: type[Decision]) -> list[str]:
    """Return the fields that code has to give of a reply: its own, and those without a default."""
    return [
        name
        for name, field in reply.model_fields.items()
        if name not in Reply.model_fields or field.is_required()
    ]


def _right_return(reply: type[Decision]) -> str:
    """Return what code is to return, for messages: ``return Gift(amount=...)``."""
    arguments = ", ".join(f"{name}=..." for name in _fields_of_code(reply))
    return f"return {reply.__name__}({arguments})"


def _check_values(
    decision: Decision,
    whose: Callable[[AskedQuestion], str],
    question: AskedQuestion,
) -> None:
    """Raise ConfigError for values of a reply that no tape could hold."""
    for name, value in decision:
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


class Options(NamedTuple):
    """What a model chooses from where its answer is drawn from probabilities.

    Attributes:
        decide: how the answer is taken from them.
        name: the reply's field.
        texts: its values, each with its text.
    """

    decide: Decide
    name: str
    texts: dict[object, str]


def options_of(question: AskedQuestion, decide: Decide | None = None) -> Options:
    """Return what a model chooses from.

    Args:
        question: what is asked.
        decide: how the answer is taken, where that is not as the question says.

    Raises:
        ConfigError: the reply's field cannot be decided by probabilities.
    """
    player = question.player
    reply = question.batch.reply
    decide = decide or question.batch.decide
    if decide is None or decide not in get_args(Decide):
        raise ConfigError(
            f"decide={decide!r:.40} of {player} must be one of {', '.join(get_args(Decide))}"
        )
    fields = [name for name in reply.model_fields if name not in Reply.model_fields]
    if len(fields) != 1:
        raise ConfigError(
            f"decide needs one thing to choose, and {reply.__name__} of {player} has "
            f"{', '.join(fields) or 'nothing'}; ask for each by itself"
        )
    [name] = fields
    schema = fields_of(reply)[name]
    if schema.get("type") == "boolean":
        return Options(decide, name, {True: "yes", False: "no"})
    values = _listed_values(limits_of(question).get(name), schema.get("type"))
    if not values or (decide == "expected" and not numeric(values)):
        needed = "numbers" if values else f"the values, at most {_MOST_VALUES}"
        raise ConfigError(
            f"decide={decide!r} needs {needed}, of {reply.__name__}.{name} for {player}: annotate "
            "it as Literal or an enum, give bounds of whole numbers, or the values: ask(..., "
            f"limits={{{name!r}: [0, 0.25, 0.5]}})"
        )
    words = question.allowed.wording.get(name, {})
    # A question may name some of them in words, "raise by 25 points", and leave the rest.
    texts: dict[object, str] = {}
    for value in values:
        texts[value] = words[value] if value in words else text_of(value)
    return Options(decide, name, texts)


def options_to_choose(question: Question) -> Options:
    """Return what a question can be answered with, also where no model is to choose from it.

    Raises:
        ConfigError: the reply's field cannot be decided by probabilities.
    """
    return options_of(question._asked, question.decide or "sample")


def why_chosen(
    choice: Choice[object],
    options: Options,
    value: object,
) -> str:
    """Return the probabilities that a value was taken from, in words."""
    share = choice.probabilities[value]
    chosen = f"{options.decide}: {options.name} {options.texts[value]} has {share:.1%}"
    if options.decide == "expected":
        chosen += f", nearest to the mean {choice.expectation:.4g}"
    return f"{chosen}; {choice.mass:.1%} of all answers are options"


def _listed_values(limits: object, type_name: object) -> Sequence[object]:
    """Return the values of a field, from a list or few enough whole numbers; else none."""
    if isinstance(limits, list):
        return limits
    # A range of floats has no last value to list.
    if isinstance(limits, tuple) and type_name == "integer":
        lowest, highest = limits
        whole_numbers = range(int(lowest), int(highest) + 1)
        if len(whole_numbers) <= _MOST_VALUES:
            return whole_numbers
    return ()
