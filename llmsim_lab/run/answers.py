"""Reading answers: a reply, its fields, what code returned, a choice from probabilities."""

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
from llmsim_lab._util.text import brief, closest, faults, text_of
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.bounds import fields_of, json_number
from llmsim_lab.llm.choice import Choice, Decide, numeric
from llmsim_lab.run._kept import defined_again, reply_as_json
from llmsim_lab.run.question import AskedQuestion, Question, limits_of
from llmsim_lab.run.replies import as_confidence, as_reasoning
from llmsim_lab.run.turn import Answer
from llmsim_lab.types import CallRecord, Decision, Reply

NOTHING_ELSE = "there was nothing else to choose"
"""The reasoning of the only option."""
_MOST_VALUES = 101
"""The longest list of numbers to choose from. It is a list, since servers enforce listed values
but not the bounds of floats."""


def rule_of(question: AskedQuestion) -> str:
    """Return the rule and its question in words, for messages."""
    batch = question.batch
    if batch.by:
        return f"{batch.place}: the rule of {batch.by}, about {question.player},"
    return f"{batch.place}: the rule of {question.player}"


def fallback_of(question: AskedQuestion) -> str:
    """Return the ``fallback=`` and its question in words, for messages."""
    return f"{question.batch.place}: fallback= of {question.player}"


def answer_by_code(
    decision: Decision,
    question: AskedQuestion,
    reasoning: str = "",
    calls: tuple[CallRecord, ...] = (),
) -> Answer:
    """Return the record of a decision that no call on the tape has by itself.

    Raises:
        ConfigError: a record cannot hold the decision.
    """
    try:
        fields = reply_as_json(decision)
    except ConfigError as error:
        raise ConfigError(f"{rule_of(question)} answered what cannot be kept: {error}") from error
    # From the dict, since iterating over the model itself is slow.
    values = decision.__dict__
    for name, value in values.items():
        if type(value) is Decimal:  # as a number, which a table can add up
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
    """Return an answer of code as a reply of the right class and within its limits.

    Args:
        answer: what the code returned.
        question: the question.
        whose: returns the name of the code, for messages.

    Raises:
        ConfigError: the answer is not such a reply, or not within the limits.
    """
    reply = question.batch.reply
    if isinstance(answer, reply):
        decision: Decision = answer  # it was checked when it was made
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
    """Return the reply that is made from fields, or from the value of its only field."""
    # A class whose notebook cell was run again has the same name, but is another class.
    if isinstance(answer, Decision) and type(answer).__name__ == reply.__name__:
        raise defined_again(reply.__name__, reply.__module__)
    needed = _fields_of_code(reply)
    if answer is None:
        raise ConfigError(f"{whose(question)} returned None; {_right_return(reply)}")
    if isinstance(answer, Mapping):
        known_fields = reply.model_fields  # once: pydantic looks them up anew each time
        for name in answer:
            if name not in known_fields:
                raise ConfigError(
                    f"{whose(question)} answered {name!r}{closest(str(name), known_fields)}, "
                    f"which a {reply.__name__} has no field for; {_right_return(reply)}"
                )
    # If only one field is asked for, its value alone is enough.
    elif len(needed) == 1:
        answer = {needed[0]: answer}
    try:
        return reply.model_validate(answer)
    except ValidationError as error:
        raise ConfigError(
            f"{whose(question)} answered {faults(error)}; {_right_return(reply)}"
        ) from error


@lru_cache(maxsize=1024)
def _fields_of_code(reply: type[Decision]) -> list[str]:
    """Return the fields that code must give: the reply's own, and any without a default."""
    return [
        name
        for name, field in reply.model_fields.items()
        if name not in Reply.model_fields or field.is_required()
    ]


def _right_return(reply: type[Decision]) -> str:
    """Return the statement that code should end with, for messages: ``return Gift(amount=...)``."""
    arguments = ", ".join(f"{name}=..." for name in _fields_of_code(reply))
    return f"return {reply.__name__}({arguments})"


def _check_values(
    decision: Decision,
    whose: Callable[[AskedQuestion], str],
    question: AskedQuestion,
) -> None:
    """Raise ConfigError for values of a reply that a tape cannot hold."""
    # From the dict, since iterating over the model itself is slow.
    for name, value in decision.__dict__.items():
        if type(value) in ALWAYS_FINITE or isinstance(value, CallRecord):  # which is no field
            continue
        if type(value) not in SCALARS and is_too_deep(value):
            raise ConfigError(
                f"{whose(question)} answered {name}= that is nested too deeply for a tape: more "
                f"than {MOST_LEVELS} lists and dicts in one another"
            )
        if not all_finite(value):
            raise ConfigError(
                f"{whose(question)} answered {name}={brief(value, 200)}, which holds a number that "
                "is not finite; JSON, and so a tape, has none: answer another number, or None for "
                "no number"
            )


# --- answers by probabilities --------------------------------------------------------------------


class Options(NamedTuple):
    """The options from which an answer is chosen by probabilities.

    Attributes:
        decide: how the answer is chosen.
        name: the reply's field.
        texts: the field's values, each with its text.
    """

    decide: Decide
    name: str
    texts: dict[object, str]


def options_of(question: AskedQuestion, decide: Decide | None = None) -> Options:
    """Return the options that a model chooses from.

    Args:
        question: the question.
        decide: how the answer is chosen; as the question says if not given.

    Raises:
        ConfigError: the reply's field cannot be chosen by probabilities.
    """
    player = question.player
    reply = question.batch.reply
    decide = decide or question.batch.decide
    if decide is None or decide not in get_args(Decide):
        raise ConfigError(
            f"decide={brief(decide, 40)} of {player} must be one of {', '.join(get_args(Decide))}"
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
    # A question may give words for some of the values, such as "raise by 25 points".
    texts: dict[object, str] = {}
    for value in values:
        texts[value] = words[value] if value in words else text_of(value)
    return Options(decide, name, texts)


def options_to_choose(question: Question) -> Options:
    """Return the possible answers to a question, even if no model is to choose from them.

    Raises:
        ConfigError: the reply's field cannot be chosen by probabilities.
    """
    return options_of(question._asked, question.decide or "sample")


def why_chosen(
    choice: Choice[object],
    options: Options,
    value: object,
) -> str:
    """Return the probability of a chosen value, in words."""
    share = choice.probabilities[value]
    chosen = f"{options.decide}: {options.name} {options.texts[value]} has {share:.1%}"
    if options.decide == "expected":
        chosen += f", nearest to the mean {choice.expectation:.4g}"
    return f"{chosen}; {choice.mass:.1%} of all answers are options"


def _listed_values(limits: object, type_name: object) -> Sequence[object]:
    """Return the values of a field from a list, or from a short range of integers; else none."""
    if isinstance(limits, list):
        return limits
    # Floats within bounds cannot be listed.
    if isinstance(limits, tuple) and type_name == "integer":
        lowest, highest = limits
        whole_numbers = range(int(lowest), int(highest) + 1)
        if len(whole_numbers) <= _MOST_VALUES:
            return whole_numbers
    return ()
