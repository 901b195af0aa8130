"""What a model would choose, with the probability of each option.

Where the backend tells the probabilities of tokens, no answer is drawn. Options are asked for by
letters, one unconstrained token each, once in every rotation of their order: over the rotations
each option stands once at each letter. A letter's own pull is taken to multiply the probability of
what stands there, as a bias added to logits does, and so cancels in the geometric mean (Zheng et
al. 2024, "Large language models are not robust multiple choice selectors", ICLR, with all cyclic
permutations; differs: the pull is measured on the question itself, not carried over from others).

Elsewhere answers are drawn at temperature 1, as many in each rotation, and counted; their intervals
are Wilson's (1927).
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Generic, Literal, TypeVar

from llmsim_lab._util.waiting import gather_all
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm._retry import seed_from
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

_LABEL_FIRST = re.compile(r"[\W_]*([A-Za-z])(?:[\W_]*$|[:.)\n])")


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
            and places' own pull alone.
        interval: for ``samples``, the 95 % interval of each probability; empty otherwise.
        samples: how many answers were drawn; 0 where none had to be.
        calls: the records of the calls.
    """

    probabilities: Mapping[OptionT, float]
    mass: float
    method: Method
    measured: tuple[Mapping[OptionT, float], ...]
    label_pull: Mapping[str, float] = field(default_factory=dict)
    interval: Mapping[OptionT, tuple[float, float]] = field(default_factory=dict)
    samples: int = 0
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
    def position_bias(self) -> float:
        """How far the letters' pull is from none, 0 to 1.

        It is the total variation distance of ``label_pull`` from equal shares: how much of the
        answers would move to other letters.
        """
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


def measures(request: ChatRequest) -> bool:
    """Return True if a request is one of those that a choice is made of."""
    return request.top_logprobs is not None or DRAWN.items() <= dict(request.options).items()


Answer = tuple[ChatReply, CallRecord]
Ask = Callable[[Sequence[Message], Mapping[str, Any], int | None], Coroutine[Any, Any, Answer]]
"""Makes a request: ``await ask(messages, options, top_logprobs)``."""


class NoOptionError(Exception):
    """No answer was an option; has the calls that were made."""

    def __init__(self, what: str, calls: Sequence[CallRecord]) -> None:
        super().__init__(what)
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
        ConfigError: they are not two or more values that can be told apart, in an order, or more
            than there are letters.
    """

    values: tuple[OptionT, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, options: Sequence[OptionT] | Mapping[OptionT, str]) -> Options[OptionT]:
        """Return the options that a user names, as a list or with their texts."""
        has_order = isinstance(options, Mapping | Sequence) and not isinstance(options, str)
        values = tuple(options) if has_order else ()
        named = options.values() if isinstance(options, Mapping) else map(text_of, values)
        texts = tuple(text.strip() if isinstance(text, str) else "" for text in named)
        if (
            len(values) < 2
            or not all(isinstance(value, Hashable) for value in values)
            or any(isinstance(value, float) and not math.isfinite(value) for value in values)
            or not all(texts)
            or not len(values) == len(set(values)) == len(set(texts))
        ):
            raise ConfigError(
                f"options={options!r:.200} must be a list of two or more texts, finite numbers or "
                "enums that differ, such as ['raise', 'hold'], or a mapping of them to their texts"
            )
        if len(values) > len(LABELS):
            raise ConfigError(
                f"{len(values)} options, and letters for {len(LABELS)}: ask in groups, first for "
                "the group and then within it, or offer fewer"
            )
        return cls(values, texts)

    def orders(self) -> list[tuple[str, dict[str, OptionT]]]:
        """Return the questions, one for each rotation, with what each letter means in them."""
        both = list(zip(self.values, self.texts, strict=True))
        found = []
        for start in range(len(both)):
            shown = dict(zip(LABELS, both[start:] + both[:start], strict=False))
            lines = "\n".join(f"{label}: {text}" for label, (_, text) in shown.items())
            *first, last = shown
            how = f"Answer with one letter and nothing else: {', '.join(first)} or {last}."
            means = {label: value for label, (value, _) in shown.items()}
            found.append((f"{lines}\n\n{how}", means))
        return found


async def choice_by(
    method: Method,
    ask: Ask,
    before: Sequence[Message],
    options: Options[OptionT],
    *,
    samples: int,
    seed: int | None,
) -> Choice[OptionT]:
    """Return the choice by a method, or from samples if the backend gives no probabilities.

    Args:
        method: to be tried.
        ask: makes a request.
        before: the conversation before the question.
        options: what can be chosen.
        samples: how many answers to draw at least, as many in each order of the options.
        seed: from which each drawn answer's seed follows; None leaves drawing to the server.

    Raises:
        NoOptionError: no answer was an option.
    """
    answers = list[Answer]()
    conversations = [asked(before, question) for question, _ in options.orders()]
    if method == "logprobs":
        # The first one alone: where there are no probabilities, the others need not be asked.
        answers = [await ask(conversations[0], MEASURED, WANTED)]
        if answers[0][0].top_logprobs:
            answers += await gather_all([ask(one, MEASURED, WANTED) for one in conversations[1:]])
        if all(reply.top_logprobs for reply, _ in answers):
            return by_letters(options, answers)
    each = math.ceil(samples / len(conversations))
    drawn = await gather_all(
        [
            ask(conversation, _drawing(seed, place), None)
            for place, conversation in enumerate(c for c in conversations for _ in range(each))
        ]
    )
    found = by_samples(options, drawn)
    return replace(found, calls=(*(call for _, call in answers), *found.calls))


def _drawing(seed: int | None, place: int) -> dict[str, Any]:
    """Return the options of one drawn answer."""
    options = {**DRAWN, "num_predict": 1}
    if seed is not None:
        options["seed"] = seed_from(f"sample {place} of a choice, seed {seed}")
    return options


# --- letters --------------------------------------------------------------------------------------


def label_of(text: str, labels: Mapping[str, object]) -> str | None:
    """Return the letter that a token or an answer clearly means, else None.

    White space and punctuation around it do not matter, nor lower case, except for "a", which
    begins sentences.
    """
    found = _LABEL_FIRST.match(text)
    bare = found[1] if found else ""
    if bare in labels:
        return bare
    return bare.upper() if bare != "a" and bare.upper() in labels else None


def by_letters(options: Options[OptionT], answers: Sequence[Answer]) -> Choice[OptionT]:
    """Return the choice from the probabilities of letters, in the order of the questions.

    Raises:
        NoOptionError: no letter was among the alternatives.
    """
    by_option: dict[OptionT, list[float]] = {value: [] for value in options.values}
    by_label: dict[str, list[float]] = {label: [] for label in LABELS[: len(options.values)]}
    measured = []
    for (_, labels), (reply, _) in zip(options.orders(), answers, strict=True):
        shares = dict.fromkeys(labels, 0.0)
        listed = [math.exp(value) for _, value in reply.top_logprobs]
        for (token, _), share in zip(reply.top_logprobs, listed, strict=True):
            if (label := label_of(token, labels)) is not None:
                shares[label] += share
        # A letter that is not listed is at most as likely as the last one listed, and as what is
        # left.
        absent = sum(share == 0 for share in shares.values())
        room = max(0.0, 1 - sum(listed)) / max(1, absent)
        least = max(_LEAST, min([room, *listed]))
        measured.append({option: shares[label] for label, option in labels.items()})
        for label, option in labels.items():
            by_label[label].append(math.log(shares[label] or least))
            by_option[option].append(by_label[label][-1])
    calls = tuple(call for _, call in answers)
    mass = math.fsum(share for shares in measured for share in shares.values()) / len(measured)
    if mass <= 0:
        raise NoOptionError("no letter of an option is among the likeliest answers", calls)
    return Choice(
        probabilities=_means(by_option),
        mass=min(mass, 1.0),
        method="logprobs",
        measured=tuple(measured),
        label_pull=_means(by_label),
        calls=calls,
    )


def _means(logs: Mapping[Any, Sequence[float]]) -> dict[Any, float]:
    """Return geometric means of probabilities, scaled to add up to 1."""
    means = {key: math.fsum(values) / len(values) for key, values in logs.items()}
    highest = max(means.values())
    # Relative to the highest, since all of them may be too small for a float.
    weights = {key: math.exp(mean - highest) for key, mean in means.items()}
    whole = math.fsum(weights.values())
    return {key: weight / whole for key, weight in weights.items()}


# --- samples --------------------------------------------------------------------------------------


def by_samples(options: Options[OptionT], answers: Sequence[Answer]) -> Choice[OptionT]:
    """Return the choice from drawn answers, as many to each question, in the questions' order.

    Raises:
        NoOptionError: no answer was an option.
    """
    orders = [labels for _, labels in options.orders()]
    each = len(answers) // len(orders)
    counts: Counter[OptionT] = Counter()
    pulls: Counter[str] = Counter()
    measured = [dict.fromkeys(options.values, 0.0) for _ in orders]
    for place, (reply, _) in enumerate(answers):
        labels = orders[place // each]
        label = label_of(reply.text, labels)
        if label is not None:
            option = labels[label]
            counts[option] += 1
            pulls[label] += 1
            measured[place // each][option] += 1 / each
    calls, valid = tuple(call for _, call in answers), counts.total()
    if not valid:
        raise NoOptionError(f"none of {len(answers)} answers is an option", calls)
    return Choice(
        probabilities={option: counts[option] / valid for option in options.values},
        mass=valid / len(answers),
        method="samples",
        measured=tuple(measured),
        label_pull={label: pulls[label] / valid for label in orders[0]},
        interval={option: wilson(counts[option], valid) for option in options.values},
        samples=len(answers),
        calls=calls,
    )


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


def asked(before: Sequence[Message], question: str) -> list[Message]:
    """Return a conversation with a question at its end, in the last message if that is a user's."""
    *earlier, last = before
    if last.role == "user":
        return [*earlier, Message("user", f"{last.content}\n\n{question}")]
    return [*before, Message("user", question)]
