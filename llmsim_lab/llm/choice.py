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
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from llmsim_lab._util.text import brief, text_of
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.errors import BackendError, ConfigError, LLMFailureException
from llmsim_lab.llm._seeds import seed_from
from llmsim_lab.llm.calls.faults import failure_of
from llmsim_lab.types import CallRecord, ChatReply, ChatRequest, Message

OptionT = TypeVar("OptionT", bound=Hashable)
KeyT = TypeVar("KeyT", bound=Hashable)

Decide = Literal["sample", "mode", "expected"]
"""What becomes of probabilities: a draw, the likeliest, or the one nearest to the expectation."""

LABELS = "ABCDEFGHJKLMNOPQRSTU"
"""Without I, which begins sentences; as many as an Ollama server lists alternatives."""
WANTED = 100
"""Alternatives asked for; a backend that has fewer gives those."""
_LEAST = 1e-12
"""What a letter that is not listed has at least, so that it has a logarithm."""

MEASURED: Mapping[str, float] = {"temperature": 0.0, "num_predict": 1}
"""Options of a request for probabilities, which are those before temperature."""
DRAWN: Mapping[str, float] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repeat_penalty": 1.0,
}
"""Options of a request for a sample from the same probabilities."""

# A capital or a small letter, but "a"; then nothing more, or what ends a label: ``B)``, ``B.``.
_LABEL_FIRST = re.compile(r"[\W_]*([A-Zb-z])(?:[\W_]*$|[:.)\n])")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Choice(Generic[OptionT]):
    """What a model would choose among options.

    Attributes:
        probabilities: of each option, given that the answer is one of the options; they add up to
            1. Times ``mass`` they are shares of all answers.
        mass: how much of the model's answers are options at all, 0 to 1; the rest is something
            else, such as a refusal or a sentence. With little mass the probabilities say little.
        method: ``logprobs`` of letters, or ``samples``.
        label_pull: by letter, how the answers would fall if all options were equally good, letters'
            and places' own pull alone.
        misfit: for ``logprobs``, how badly one pull a letter explains the orders of the options, 0
            to 1: the share of answers, in the mean over the orders, that stands at other letters
            than ``probabilities`` times ``label_pull`` would have it (k² shares of k options are
            explained by 2k-1 numbers). With much of it the letters' pull depends on what stands
            there, and does not cancel. None for ``samples``.
        interval: for ``samples``, the 95 % interval of each probability; empty otherwise.
        samples: how many answers were drawn; 0 where none had to be.
        calls: the records of the calls.
    """

    probabilities: Mapping[OptionT, float]
    mass: float
    method: Literal["logprobs", "samples"]
    label_pull: Mapping[str, float] = field(default_factory=dict)
    misfit: float | None = None
    interval: Mapping[OptionT, tuple[float, float]] = field(default_factory=dict)
    samples: int = 0
    calls: tuple[CallRecord, ...] = field(
        default=(),
        compare=False,
    )

    @property
    def mode(self) -> OptionT:
        """The likeliest option; of equally likely ones the first."""
        return max(self.probabilities, key=self.probabilities.__getitem__)

    @property
    def expectation(self) -> float:
        """The mean of options that are numbers.

        Raises:
            ConfigError: they are not numbers.
        """
        if not numeric(list(self.probabilities)):
            raise ConfigError("only numbers have an expectation; see .mode and .probabilities")
        return math.fsum(float(o) * p for o, p in self.probabilities.items())  # type: ignore[arg-type]

    @property
    def position_bias(self) -> float:
        """How far the letters' pull is from none, 0 to 1.

        It is the total variation distance of ``label_pull`` from equal shares: how much of the
        answers would move to other letters.
        """
        even = dict.fromkeys(self.label_pull, 1 / len(self.label_pull))
        return _distance(self.label_pull, even)

    def draw(self, rng: random.Random) -> OptionT:
        """Return an option drawn with its probability; uses one number of the generator."""
        options, weights = zip(*self.probabilities.items(), strict=True)
        # Whatever comes out, what is drawn later stays as it was.
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
        mean = self.expectation  # which raises an error where the options are no numbers
        chances = self.probabilities

        def distance(option: OptionT) -> tuple[float, float]:
            return abs(float(option) - mean), -chances[option]  # type: ignore[arg-type]

        return min(chances, key=distance)

    def __repr__(self) -> str:
        chances = ", ".join(f"{option!r}: {p:.3f}" for option, p in self.probabilities.items())
        method: str = self.method
        if self.samples:
            method += f", {self.samples} samples"
        return f"<Choice {{{chances}}}, mass {self.mass:.3f}, by {method}>"


def measures(request: ChatRequest) -> bool:
    """Return True if a request is one of those that a choice is made of."""
    # Both kinds: for probabilities, and for a sample where there are none.
    if request.top_logprobs is not None:
        return True
    return DRAWN.items() <= dict(request.options).items()


ReplyAndCall = tuple[ChatReply, CallRecord]
Ask = Callable[
    [Sequence[Message], Mapping[str, float], int | None],
    Coroutine[Any, Any, ReplyAndCall],
]
"""Makes a request: ``await ask(messages, options, top_logprobs)``."""


def numeric(options: Sequence[object]) -> bool:
    """Return True if all options are numbers."""
    return all(
        isinstance(option, int | float) and not isinstance(option, bool) for option in options
    )


def options_of(options: Sequence[OptionT] | Mapping[OptionT, str]) -> dict[OptionT, str]:
    """Return what can be chosen, each with the text that the model sees.

    Args:
        options: as a user names them, as a list or with their texts.

    Raises:
        ConfigError: they are not two or more values that can be told apart, in an order, or more
            than there are letters.
    """
    values: list[OptionT] = []
    texts: list[object] = []
    if isinstance(options, Mapping):
        values = list(options)
        texts = list(options.values())
    # A text is a sequence too, of its letters; a set has no order, and letters need one.
    elif isinstance(options, Sequence) and not isinstance(options, str):
        values = list(options)
        texts = [text_of(value) for value in values]
    shown = [text.strip() for text in texts if isinstance(text, str)]
    if not _can_be_told_apart(values, shown):
        raise ConfigError(
            f"options={brief(options, 200)} must be a list of two or more texts, finite numbers or "
            "enums that differ, such as ['raise', 'hold'], or a mapping of them to their texts"
        )
    if len(values) > len(LABELS):
        raise ConfigError(
            f"{len(values)} options, and letters for {len(LABELS)}: offer fewer, or ask in groups"
        )
    return dict(zip(values, shown, strict=True))


def _can_be_told_apart(
    values: Sequence[object],
    texts: Sequence[str],
) -> bool:
    """Return True if two or more options differ, each with a text of its own."""
    if len(values) < 2 or len(texts) < len(values) or not all(texts):
        return False
    if not all(isinstance(value, Hashable) for value in values):
        return False
    # NaN differs from itself, and no tape can hold it or an infinity.
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        return False
    return len(values) == len(set(values)) == len(set(texts))


class Order(NamedTuple, Generic[OptionT]):
    """A question with its options in one order, and what each letter means in it."""

    question: str
    meaning: Mapping[str, OptionT]


def orders_of(options: Mapping[OptionT, str]) -> list[Order[OptionT]]:
    """Return the questions, one for each rotation of the options."""
    values = list(options)
    labels = LABELS[: len(values)]
    named = f"{', '.join(labels[:-1])} or {labels[-1]}"
    instruction = f"Answer with one letter and nothing else: {named}."
    orders = []
    for start in range(len(values)):
        # In the rotations each option stands once at each letter, so that its pull cancels.
        rotated = values[start:] + values[:start]
        meaning = dict(zip(labels, rotated, strict=True))
        lines = [f"{label}: {options[value]}" for label, value in meaning.items()]
        shown = "\n".join(lines)
        orders.append(Order(f"{shown}\n\n{instruction}", meaning))
    return orders


async def choice_by(
    ask: Ask,
    before: Sequence[Message],
    options: Mapping[OptionT, str],
    *,
    samples: int,
    seed: int | None,
) -> Choice[OptionT]:
    """Return the choice by letters, or from samples if the backend gives no probabilities.

    Args:
        ask: makes a request.
        before: the conversation before the question, which goes into its last message.
        options: what can be chosen.
        samples: how many answers to draw at least, as many in each order of the options.
        seed: from which each drawn answer's seed follows; None leaves drawing to the server.

    Raises:
        LLMFailureException: no answer was an option.
    """
    *earlier, last = before
    conversations = []
    for order in orders_of(options):
        message = replace(last, content=f"{last.content}\n\n{order.question}")
        conversations.append([*earlier, message])
    # The first one alone: where there are no probabilities, the others need not be asked.
    answers = [await ask(conversations[0], MEASURED, WANTED)]
    first_reply, _ = answers[0]
    if first_reply.top_logprobs:
        remaining = [ask(messages, MEASURED, WANTED) for messages in conversations[1:]]
        answers += await gather_all(remaining)
    # One order without them would leave the options at unequal letters.
    if all(reply.top_logprobs for reply, _ in answers):
        return by_letters(options, answers)
    # Rounded up, so that each option stands as often at each letter.
    of_each_order = math.ceil(samples / len(conversations))
    work: list[Coroutine[Any, Any, ReplyAndCall]] = []
    for messages in conversations:
        for _ in range(of_each_order):
            settings = {**DRAWN, "num_predict": 1}
            if seed is not None:
                # Its own for each: the same seed would draw the same answer each time.
                settings["seed"] = seed_from(f"sample {len(work)} of a choice, seed {seed}")
            work.append(ask(messages, settings, None))
    choice = _by_samples(options, await gather_all(work))
    measuring = tuple(call for _, call in answers)
    return replace(choice, calls=(*measuring, *choice.calls))


def label_of(
    text: str,
    labels: Mapping[str, object],
) -> str | None:
    """Return the letter that a token or an answer clearly means, else None.

    White space and punctuation around it do not matter, nor lower case, except for "a", which
    begins sentences.
    """
    letter = _LABEL_FIRST.match(text)
    if letter is None:
        return None
    label = letter[1].upper()
    return label if label in labels else None


def by_letters(
    options: Mapping[OptionT, str],
    answers: Sequence[ReplyAndCall],
) -> Choice[OptionT]:
    """Return the choice from the probabilities of letters, in the order of the questions.

    Raises:
        LLMFailureException: no letter was among the alternatives.
    """
    by_option = defaultdict[OptionT, list[float]](list)
    by_label = defaultdict[str, list[float]](list)
    masses = []
    measured: list[Mapping[str, float]] = []
    orders = orders_of(options)
    for order, (reply, _) in zip(orders, answers, strict=True):
        labels = order.meaning
        shares = dict.fromkeys(labels, 0.0)
        listed = []
        for token, logarithm in reply.top_logprobs:
            share = math.exp(logarithm)
            listed.append(share)
            label = label_of(token, labels)
            # A letter has several tokens: with a blank before it, in lower case, with a colon.
            if label is not None:
                shares[label] += share
        masses.append(math.fsum(shares.values()))
        # A letter that is not listed is at most as likely as the last one listed, and as what is
        # left.
        # Several may be missing from the list; they share what is left.
        absent = sum(share == 0 for share in shares.values())
        room = max(0.0, 1 - sum(listed)) / max(1, absent)
        least = max(_LEAST, min([room, *listed]))
        listed_shares = {label: share or least for label, share in shares.items()}
        measured.append(listed_shares)
        for label, option in labels.items():
            log = math.log(listed_shares[label])
            by_label[label].append(log)
            by_option[option].append(log)
    calls = tuple(call for _, call in answers)
    if not any(masses):
        raise _no_option("no letter of an option is among the likeliest answers", calls)
    # The logarithm of a share is the option's own plus the letter's pull. Over the rotations each
    # option meets each letter once, so that the mean over them holds all letters' pull alike.
    probabilities = _means(by_option)
    label_pull = _means(by_label)
    distances = []
    for order, shares_of_order in zip(orders, measured, strict=True):
        explained = {}
        for label, option in order.meaning.items():
            explained[label] = probabilities[option] * label_pull[label]
        # As shares of the letters alone: how much of all answers are letters is ``mass``.
        found = _shares(shares_of_order)
        distances.append(_distance(found, _shares(explained)))
    return Choice(
        probabilities=probabilities,
        mass=min(fmean(masses), 1.0),  # probabilities are rounded, and may add up to more
        method="logprobs",
        label_pull=label_pull,
        misfit=fmean(distances),
        calls=calls,
    )


def _means(logarithms: Mapping[KeyT, Sequence[float]]) -> dict[KeyT, float]:
    """Return geometric means of probabilities, scaled to add up to 1."""
    means = {key: fmean(values) for key, values in logarithms.items()}
    highest = max(means.values())
    # Relative to the highest, since all of them may be too small for a float.
    weights = {key: math.exp(mean - highest) for key, mean in means.items()}
    return _shares(weights)


def _shares(weights: Mapping[KeyT, float]) -> dict[KeyT, float]:
    """Return weights scaled to add up to 1."""
    whole = math.fsum(weights.values())
    return {key: weight / whole for key, weight in weights.items()}


def _distance(
    shares: Mapping[str, float],
    others: Mapping[str, float],
) -> float:
    """Return the total variation distance: how much of one would have to move to be the other."""
    return sum(abs(share - others[label]) for label, share in shares.items()) / 2


def _by_samples(
    options: Mapping[OptionT, str],
    answers: Sequence[ReplyAndCall],
) -> Choice[OptionT]:
    """Return the choice from drawn answers, as many to each question, in the questions' order.

    Raises:
        LLMFailureException: no answer was an option.
    """
    orders = orders_of(options)
    of_each_order = len(answers) // len(orders)
    counts: Counter[OptionT] = Counter()
    pulls: Counter[str] = Counter()
    for number, (reply, _) in enumerate(answers):
        labels = orders[number // of_each_order].meaning
        label = label_of(reply.text, labels)
        if label is not None:
            counts[labels[label]] += 1
            pulls[label] += 1
    calls = tuple(call for _, call in answers)
    valid = counts.total()
    if not valid:
        raise _no_option(f"none of {len(answers)} answers is an option", calls)
    return Choice(
        probabilities={option: counts[option] / valid for option in options},
        mass=valid / len(answers),
        method="samples",
        label_pull={label: pulls[label] / valid for label in orders[0].meaning},
        interval={option: wilson(counts[option], valid) for option in options},
        samples=len(answers),
        calls=calls,
    )


def _no_option(reason: str, calls: Sequence[CallRecord]) -> LLMFailureException:
    """Return the failure of answers of which none is an option."""
    fault = BackendError(
        f"{reason}; say in the prompt what is to be chosen, or use another model",
        reason="invalid_response",
    )
    return failure_of(
        fault,
        calls[-1],
        calls[-1].request,
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
