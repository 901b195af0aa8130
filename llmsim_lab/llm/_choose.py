"""What a model would choose, with the probability of each option.

Where the backend tells the probabilities of tokens, no answer is drawn. Options are asked for by
letters, one unconstrained token each, once in every rotation of their order: over the rotations
each option stands once at each letter. A letter's own pull is taken to multiply the probability of
what stands there, as a bias added to logits does, and so cancels in the geometric mean (Zheng et
al. 2024, "Large language models are not robust multiple choice selectors", ICLR, with all cyclic
permutations; differs: the pull is measured on the question itself, not carried over from others).

Elsewhere answers are drawn at temperature 1, as many in each rotation, and counted; their intervals
are Wilson's (1927). More numbers than there are letters are drawn as such, in digits.

This module computes. Requests are made by ``LLMClient``; which ones follows from the arguments and
the replies alone, so that a replay makes the same ones.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections import Counter
from collections.abc import (
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args

from llmsim_lab._util.html import join, pairs, table
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.errors import ConfigError
from llmsim_lab.types import CallRecord, ChatReply, ChatRequest, Message

OptionT = TypeVar("OptionT", bound=Hashable)

Method = Literal["logprobs", "samples"]
Decide = Literal["sample", "mode", "expected"]
"""What becomes of probabilities: a draw, the likeliest, or the one nearest to the expectation."""

LABELS = "ABCDEFGHJKLMNOPQRSTU"
"""Without I, which begins sentences; as many as an Ollama server lists alternatives."""
WANTED = 100
"""Alternatives asked for; a backend that has fewer gives those."""
_LEAST = 1e-12
"""What a letter that is not listed has at least, so that it has a logarithm."""
_LONGEST_NUMBER_TOKENS = 12

MEASURED: Mapping[str, Any] = {"temperature": 0.0, "num_predict": 1}
"""Options of a request for probabilities, which are those before temperature."""
DRAWN: Mapping[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repeat_penalty": 1.0,
}
"""Options of a request for a sample from the same probabilities."""

_THINK = "Think it through in a few sentences. Do not choose yet."
_AROUND = " \t\r\n*_`'\"()[]{}<>:.,"
_LABEL_FIRST = re.compile(r"\W*([A-Za-z])(?:\W*$|[:.)\n])")
_PLAIN_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NUMBER = re.compile(r"\s*([+\-\u2212]?\d+(?:\.\d+)?)(?![\d,]*\d)")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Choice(Generic[OptionT]):
    """What a model would choose among options.

    Attributes:
        probabilities: of each option, given that the answer is one of the options; they add up to
            1. Times ``mass`` they are shares of all answers.
        mass: how much of the model's answers are options at all, 0 to 1; the rest is something
            else, such as a refusal or a sentence. With little mass the probabilities say little.
        method: ``logprobs`` of letters, or ``samples``.
        measured: for each order in which the options were shown, each one's share of all answers,
            as it came; what is missing to 1 is off the options.
        label_pull: by letter, how the answers would fall if all options were equally good, letters'
            and places' own pull alone; empty where no letters were asked for.
        interval: for ``samples``, the 95 % interval of each probability; empty otherwise.
        samples: how many answers were drawn; 0 where none had to be.
        reasoning: what the model wrote before it chose, where it was asked to.
        calls: the records of the calls.
    """

    probabilities: Mapping[OptionT, float]
    mass: float
    method: Method
    measured: tuple[Mapping[OptionT, float], ...]
    label_pull: Mapping[str, float] = field(default_factory=dict)
    interval: Mapping[OptionT, tuple[float, float]] = field(default_factory=dict)
    samples: int = 0
    reasoning: str = ""
    calls: tuple[CallRecord, ...] = field(default=(), compare=False)

    @property
    def mode(self) -> OptionT:
        """The likeliest option; of equally likely ones the first."""
        return max(self.probabilities, key=self.probabilities.__getitem__)

    @property
    def entropy(self) -> float:
        """How undecided the choice is, bits: 0 for certain, log2 of their number for all equal."""
        return -sum(p * math.log2(p) for p in self.probabilities.values() if p > 0)

    @property
    def expectation(self) -> float:
        """The mean of options that are numbers.

        Raises:
            ConfigError: they are not numbers.
        """
        if not numeric(list(self.probabilities)):
            raise ConfigError(
                "only numbers have an expectation; these options have .mode and .probabilities"
            )
        return math.fsum(float(o) * p for o, p in self.probabilities.items())  # type: ignore[arg-type]

    @property
    def position_bias(self) -> float | None:
        """How far the letters' pull is from none, 0 to 1; None where no letters were asked for.

        It is the total variation distance of ``label_pull`` from equal shares: how much of the
        answers would move to other letters.
        """
        if not self.label_pull:
            return None
        even = 1 / len(self.label_pull)
        return sum(abs(pull - even) for pull in self.label_pull.values()) / 2

    def draw(self, rng: random.Random) -> OptionT:
        """Return an option drawn with its probability; uses one number of the generator."""
        options, weights = zip(*self.probabilities.items(), strict=True)
        drawn: OptionT = rng.choices(options, weights)[0]
        return drawn

    def decided(self, how: Decide, rng: random.Random) -> OptionT:
        """Return the option that is taken: a draw, the mode, or the one nearest to the expectation.

        Of two options as near, the likelier one is taken. Only a draw uses the generator.
        """
        if how == "mode":
            return self.mode
        if how == "sample":
            return self.draw(rng)
        mean, chances = self.expectation, self.probabilities
        return min(chances, key=lambda one: (abs(float(one) - mean), -chances[one]))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        chances = ", ".join(f"{option!r}: {p:.3f}" for option, p in self.probabilities.items())
        drawn = f", {self.samples} samples" if self.samples else ""
        return f"<Choice {{{chances}}}, mass {self.mass:.3f}, by {self.method}{drawn}>"

    def _repr_html_(self) -> str:
        columns = {
            "option": list(map(text_of, self.probabilities)),
            "probability": [f"{p:.1%}" for p in self.probabilities.values()],
        }
        if self.interval:
            bounds = map(self.interval.__getitem__, self.probabilities)
            columns["95 % interval"] = [f"{low:.1%} to {high:.1%}" for low, high in bounds]
        rows = list(zip(*columns.values(), strict=True))
        bias = self.position_bias
        facts: list[tuple[object, object]] = [
            ("answers that are options", f"{self.mass:.1%}"),
            ("entropy", f"{self.entropy:.2f} bits"),
            ("method", f"{self.samples} samples" if self.samples else self.method),
        ]
        if bias is not None:
            facts.append(("position bias", f"{bias:.1%}"))
        return str(join([table(list(columns), rows), pairs(facts)]))


def measures(request: ChatRequest) -> bool:
    """Return True if a request is one of those that a choice is made of, but for its reasoning."""
    return request.top_logprobs is not None or DRAWN.items() <= dict(request.options).items()


Ask = Callable[
    [Sequence[Message], Mapping[str, Any], int | None],
    Coroutine[Any, Any, tuple[ChatReply, CallRecord]],
]
"""Makes a request: ``await ask(messages, options, top_logprobs)``."""


class NoOptionError(Exception):
    """No answer was an option; has the calls that were made."""

    def __init__(self, what: str, calls: Sequence[CallRecord]) -> None:
        super().__init__(what)
        self.calls = tuple(calls)


class NoLogprobsError(Exception):
    """The backend gave no probabilities; has the calls that were made."""

    def __init__(self, calls: Sequence[CallRecord]) -> None:
        super().__init__("no probabilities")
        self.calls = tuple(calls)


def text_of(option: object) -> str:
    """Return an option as models and readers see it: 25 for 25.0, an enum's value."""
    if isinstance(option, Enum):
        option = option.value
    return f"{option:.12g}" if isinstance(option, float) else str(option)


def numeric(options: Sequence[object]) -> bool:
    """Return True if all options are numbers."""
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in options)


@dataclass(frozen=True, slots=True)
class Options(Generic[OptionT]):
    """What can be chosen, each with the text that the model sees.

    Raises:
        ConfigError: there are fewer than two, two look the same, a number is not finite, or they
            are not a list or a mapping of values that can be told apart.
    """

    values: tuple[OptionT, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, options: Sequence[OptionT] | Mapping[OptionT, str]) -> Options[OptionT]:
        """Return the options that a user names, as a list or with their texts."""
        if isinstance(options, str):
            raise ConfigError(f"options={options!r} is one text; give a list: ['raise', 'hold']")
        if isinstance(options, Set) or not isinstance(options, Iterable):
            why = "has no order" if isinstance(options, Set) else "is no list"
            raise ConfigError(f"options={options!r:.80} {why}; give a list: ['raise', 'hold']")
        values = tuple(options)
        named = list(options.values() if isinstance(options, Mapping) else map(text_of, values))
        if not all(isinstance(text, str) for text in named):
            raise ConfigError(f"options={options!r:.200}: what they are mapped to must be texts")
        if not all(isinstance(value, Hashable) for value in values):
            raise ConfigError(
                f"options={list(values)!r:.200} must be texts, numbers or enums; for other values "
                "give their texts, and take the value by the text that is chosen"
            )
        texts = tuple(text.strip() for text in named)
        if len(values) < 2:
            raise ConfigError(f"options={list(values)!r}: a choice needs two options or more")
        if any(isinstance(one, float) and not math.isfinite(one) for one in values):
            raise ConfigError(f"options={list(values)!r}: every number must be finite")
        twice = [text for text, count in Counter(texts).items() if count > 1 or not text]
        if twice or len(set(values)) < len(values):
            raise ConfigError(
                f"options={list(values)!r}: each must differ from the others and have a text"
            )
        return cls(values, texts)

    @property
    def in_digits(self) -> bool:
        """Whether the model writes them as they stand: numbers, more than there are letters."""
        many = len(self.values) > len(LABELS)
        return many and numeric(self.values) and all(map(_PLAIN_NUMBER.fullmatch, self.texts))

    def check(self, method: Method | None) -> None:
        """Raise ConfigError if there is no such method, or these cannot be asked for by it."""
        if method is not None and method not in get_args(Method):
            raise ConfigError(
                f"method={method!r:.40} must be one of {', '.join(get_args(Method))}, or None"
            )
        if method == "logprobs" or not self.in_digits:
            self.check_letters()

    def check_letters(self) -> None:
        """Raise ConfigError if there are more options than letters."""
        if len(self.values) > len(LABELS):
            raise ConfigError(
                f"{len(self.values)} options, and letters for {len(LABELS)}: ask in groups, first "
                "for the group and then within it, or give numbers, which are drawn as such"
            )


async def choice_by(
    method: Method,
    ask: Ask,
    before: Sequence[Message],
    options: Options[OptionT],
    *,
    samples: int,
    seed: int | None,
    lacks: Callable[[], None],
) -> Choice[OptionT]:
    """Return the choice by a method, or from samples if the backend gives no probabilities.

    Args:
        method: to be tried.
        ask: makes a request.
        before: the conversation before the question.
        options: what can be chosen.
        samples: how many answers to draw, if it comes to that.
        seed: of these.
        lacks: called if there are no probabilities.

    Raises:
        NoOptionError: no answer was an option.
    """
    calls = tuple[CallRecord, ...]()
    if method != "samples":
        try:
            return await by_letters(ask, before, options)
        except NoLogprobsError as lack:
            calls = lack.calls
            lacks()
    found = await by_samples(ask, before, options, count=samples, seed=seed)
    return replace(found, calls=(*calls, *found.calls))


# --- letters --------------------------------------------------------------------------------------


Order: TypeAlias = tuple[str, dict[str, OptionT]]
"""One way to ask: the last part of the prompt, and the option that each letter stands for."""


def lettered(options: Options[OptionT]) -> list[Order[OptionT]]:
    """Return the question with letters in each rotation of the options, the given order first."""
    options.check_letters()
    both = list(zip(options.values, options.texts, strict=True))
    orders = []
    for start in range(len(both)):
        shown = both[start:] + both[:start]
        labels = {label: value for label, (value, _) in zip(LABELS, shown, strict=False)}
        lines = "\n".join(
            f"{label}: {text}" for label, (_, text) in zip(labels, shown, strict=True)
        )
        *first, last = labels
        question = (
            f"{lines}\n\nAnswer with one letter and nothing else: {', '.join(first)} or {last}."
        )
        orders.append((question, labels))
    return orders


def label_of(text: str, labels: Mapping[str, object]) -> str | None:
    """Return the letter that a token or an answer clearly means, else None.

    White space and punctuation around it do not matter, nor lower case, except for "a", which
    begins sentences.
    """
    bare = text.strip(_AROUND)
    if len(bare) != 1:
        found = _LABEL_FIRST.match(text)
        bare = found[1] if found else ""
    if bare in labels:
        return bare
    return bare.upper() if bare != "a" and bare.upper() in labels else None


def shares_of(
    reply: ChatReply, labels: Mapping[str, OptionT]
) -> tuple[dict[OptionT, float], dict[str, float]]:
    """Return each option's share as it came, and each letter's logarithm, none of them infinite."""
    found = dict.fromkeys(labels, 0.0)
    for token, value in reply.top_logprobs:
        label = label_of(token, labels)
        if label is not None:
            found[label] += math.exp(value)
    # A letter that is not listed is at most as likely as the last one listed, and as what is left.
    absent = sum(share == 0 for share in found.values())
    listed = [math.exp(value) for _, value in reply.top_logprobs]
    room = max(0.0, 1 - sum(listed)) / max(1, absent)
    least = max(_LEAST, min([room, *listed]))
    logs = {label: math.log(share or least) for label, share in found.items()}
    return {option: found[label] for label, option in labels.items()}, logs


def softmax(logs: Mapping[Any, Sequence[float]]) -> dict[Any, float]:
    """Return geometric means of probabilities, scaled to add up to 1."""
    means = {key: math.fsum(values) / len(values) for key, values in logs.items()}
    highest = max(means.values())
    # Relative to the highest, since all of them may be too small for a float.
    weights = {key: math.exp(mean - highest) for key, mean in means.items()}
    whole = math.fsum(weights.values())
    return {key: weight / whole for key, weight in weights.items()}


async def by_letters(
    ask: Ask, before: Sequence[Message], options: Options[OptionT]
) -> Choice[OptionT]:
    """Return the choice from the probabilities of letters.

    Raises:
        NoLogprobsError: the backend gave none.
        NoOptionError: no letter was among the alternatives.
    """
    orders = lettered(options)
    conversations = [asked(before, question) for question, _ in orders]
    # The first one alone: where there are no probabilities, the others need not be asked.
    answers = [await ask(conversations[0], MEASURED, WANTED)]
    if answers[0][0].top_logprobs:
        answers += await gather_all([ask(one, MEASURED, WANTED) for one in conversations[1:]])
    calls = tuple(call for _, call in answers)
    if not all(reply.top_logprobs for reply, _ in answers):
        raise NoLogprobsError(calls)
    by_option: dict[OptionT, list[float]] = {value: [] for value in options.values}
    by_label: dict[str, list[float]] = {label: [] for label in orders[0][1]}
    measured = []
    for (_, labels), (reply, _) in zip(orders, answers, strict=True):
        shares, logs = shares_of(reply, labels)
        measured.append(shares)
        for label, option in labels.items():
            by_option[option].append(logs[label])
            by_label[label].append(logs[label])
    mass = math.fsum(share for shares in measured for share in shares.values()) / len(measured)
    if mass <= 0:
        raise NoOptionError("no letter of an option is among the likeliest answers", calls)
    return Choice(
        probabilities=softmax(by_option),
        mass=min(mass, 1.0),
        method="logprobs",
        measured=tuple(measured),
        label_pull=softmax(by_label),
        calls=calls,
    )


# --- samples --------------------------------------------------------------------------------------


async def by_samples(
    ask: Ask,
    before: Sequence[Message],
    options: Options[OptionT],
    *,
    count: int,
    seed: int | None,
) -> Choice[OptionT]:
    """Return the choice from at least so many drawn answers, as many in each order of the options.

    Each answer's seed follows from the one given; None leaves drawing to the server.

    Raises:
        NoOptionError: no answer was an option.
    """
    orders = [(digits_question(options), {})] if options.in_digits else lettered(options)
    most = _LONGEST_NUMBER_TOKENS if options.in_digits else 1
    each = math.ceil(count / len(orders))
    answers = await gather_all(
        [
            ask(asked(before, question), _drawing(seed, number * each + place, most), None)
            for number, (question, _) in enumerate(orders)
            for place in range(each)
        ]
    )
    calls = tuple(call for _, call in answers)
    counts: Counter[OptionT] = Counter()
    pulls: Counter[str] = Counter()
    measured = [dict.fromkeys(options.values, 0.0) for _ in orders]
    for place, (reply, _) in enumerate(answers):
        labels = orders[place // each][1]
        label = label_of(reply.text, labels)
        option = _number_in(reply.text, options) if options.in_digits else labels.get(label or "")
        if option is not None:
            counts[option] += 1
            # The letter at which the option stood in this order.
            pulls.update(label for label, one in labels.items() if one == option)
            measured[place // each][option] += 1 / each
    valid = counts.total()
    if not valid:
        raise NoOptionError(f"none of {len(answers)} answers is an option", calls)
    return Choice(
        probabilities={option: counts[option] / valid for option in options.values},
        mass=valid / len(answers),
        method="samples",
        measured=tuple(measured),
        label_pull={label: pulls[label] / valid for label in orders[0][1]},
        interval={option: wilson(counts[option], valid) for option in options.values},
        samples=len(answers),
        calls=calls,
    )


def digits_question(options: Options[Any]) -> str:
    """Return the question for a number."""
    return (
        f"Possible answers: {', '.join(options.texts)}.\n\n"
        "Answer with one of these numbers, in digits, and nothing else."
    )


def _number_in(text: str, options: Options[OptionT]) -> OptionT | None:
    if found := _NUMBER.match(text):
        value = Decimal(found[1].replace("\u2212", "-"))
        for option, written in zip(options.values, options.texts, strict=True):
            if value == Decimal(written):
                return option
    return None


def _drawing(seed: int | None, place: int, most: int) -> dict[str, Any]:
    """Return the options of one drawn answer."""
    options = {**DRAWN, "num_predict": most}
    if seed is not None:
        digest = hashlib.sha256(f"sample {place} of a choice, seed {seed}".encode()).digest()
        options["seed"] = int.from_bytes(digest[:4], "big") >> 1
    return options


def wilson(count: int, whole: int) -> tuple[float, float]:
    """Return Wilson's (1927) 95 % interval of a share, without a correction.

    A choice's counts come from several orders of the options, of which each may have a share of
    its own. Their sum varies less than one binomial count does (Hoeffding 1956), so the interval
    is, if anything, too wide.
    """
    from scipy.stats import binomtest  # here, since it takes long to import

    interval = binomtest(count, whole).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)


# --- the conversation -----------------------------------------------------------------------------


def thinking_first(before: Sequence[Message], options: Options[Any]) -> list[Message]:
    """Return the conversation that asks for reasoning before a choice."""
    listed = "\n".join(f"- {text}" for text in options.texts)
    return asked(before, f"The options are:\n{listed}\n\n{_THINK}")


def asked(before: Sequence[Message], question: str) -> list[Message]:
    """Return a conversation with a question at its end, in the last message if that is a user's."""
    *earlier, last = before
    if last.role == "user":
        return [*earlier, Message("user", f"{last.content}\n\n{question}")]
    return [*before, Message("user", question)]
