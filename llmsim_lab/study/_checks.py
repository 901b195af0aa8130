"""The checks of a fitness card: what each asks a model, and what it counts.

Each check is a function of an ``Asker`` that returns measures. The questions are everyday ones;
none is about an economy. Shares come with how many were asked and the exact 95 % interval.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice, product
from operator import eq
from statistics import fmean, median, stdev
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

from llmsim_lab._util.text import clip
from llmsim_lab.errors import BackendError, LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._chains import FORGIVEN
from llmsim_lab.types import ChatReply, Decision, Message

DecisionT = TypeVar("DecisionT", bound=Decision)
T = TypeVar("T")

VERSION = 1
"""Cards of another version are measured anew. Raise it with any change of what is asked."""

_TEMPERATURE, _SEED = 0.7, 7
LASTING = ("connection_error", "rate_limited", "model_not_found")
"""Failures after which the next check would fail as well."""
_GROWTH = 1.2
"""How much more twice as many at once must get done to be worth it; as in ``client.limits``."""
_MIN_TIMED_S = 0.002
_BUSY = 1.5
"""Load for each core from which on speeds are not those of the model alone."""

COLUMNS = ("measure", "value", "n", "95 % interval", "note")
"""Of a card's table; see ``Measure.cells``."""
TITLES = {
    "memory_gb": "memory",
    "load_s": "load time",
    "reading": "reading",
    "writing": "writing",
    "prefix_gain": "prefix cache gain",
    "at_once": "best number at once",
    "field": "valid: a field",
    "enum": "valid: one of a list",
    "number": "valid: a number within bounds",
    "nested": "valid: a nested list",
    "long_text": "valid: a long text",
    "logprobs": "probability on the options",
    "letter_pull": "pull of a letter",
    "tools": "right tool, right argument",
    "same_again": "same seed, same answer: again",
    "same_reload": "same seed: after a reload",
    "same_parallel": "same seed: in parallel",
    "order_effect": "order effect",
    "spread": "spread over seeds",
    "obeyed": "obeys an instruction and its reverse",
}
"""What people read, by a measure's name."""
SHORT_FORMS = ("field", "enum", "number", "nested")


class Measure(BaseModel):
    """One line of a card.

    Attributes:
        name: for programs.
        value: what was measured; of a share, 0 to 1; None where it was not measured.
        unit: of the value; ``share`` for shares.
        n: how many answers the value rests on.
        hits: of a share, how many of them.
        note: one sentence on what the value is.
        why_not: why it was not measured.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    name: str
    value: float | None = None
    unit: str = ""
    n: Annotated[int, Field(ge=0)] = 0
    hits: Annotated[int, Field(ge=0)] | None = None
    note: str = ""
    why_not: str = ""

    @model_validator(mode="after")
    def _hits_are_among_all(self) -> Measure:
        if self.hits is not None and self.hits > self.n:
            raise ValueError(f"{self.name}: {self.hits} of {self.n}")
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def title(self) -> str:
        """The name in words."""
        return TITLES.get(self.name, self.name)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of a share."""
        return None if self.hits is None or not self.n else share_interval(self.hits, self.n)

    @property
    def shown(self) -> str:
        """The value in words."""
        if self.value is None:
            return "not measured"
        if self.unit == "share":
            return f"{100 * self.value:.0f} %"
        text = f"{self.value:,.0f}" if abs(self.value) >= 100 else f"{self.value:.3g}"
        return f"{text} {self.unit}".strip()

    @property
    def shown_interval(self) -> str:
        """The interval in words; empty where there is none."""
        if self.interval is None:
            return ""
        low, high = self.interval
        return f"{100 * low:.0f} to {100 * high:.0f} %"

    @property
    def cells(self) -> tuple[object, ...]:
        """A row of the card's table, of which ``COLUMNS`` is the header."""
        why_not = self.why_not or self.note
        return self.title, self.shown, self.n or "", self.shown_interval, why_not


def share_interval(right: float, units: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of units, each of which may be right in part.

    Clopper and Pearson (1934), "The use of confidence or fiducial limits illustrated in the case of
    the binomial", Biometrika 26, as quantiles of beta distributions. Differs from the source:
    ``right`` need not be whole, as in Korn and Graubard (1998), "Confidence intervals for
    proportions with small expected number of positive counts estimated from survey data", Survey
    Methodology 24. Of all variables from 0 to 1 with one mean those of 0 or 1 vary most, so that
    the interval is, if anything, too wide.
    """
    from scipy.stats import beta  # here, since it takes long to import

    low = beta.ppf(0.025, right, units - right + 1) if right > 0 else 0.0
    high = beta.ppf(0.975, right + 1, units - right) if right < units else 1.0
    return float(low), float(high)


def share(name: str, hits: int, n: int, note: str = "") -> Measure:
    """Return the measure of a share."""
    return Measure(name=name, value=hits / n, unit="share", n=n, hits=hits, note=note)


def missing(name: str, why: str) -> Measure:
    """Return the measure of what was not measured."""
    return Measure(name=name, why_not=why)


def typical(
    name: str, values: Sequence[float], unit: str, *, note: str = "", why_not: str
) -> Measure:
    """Return the measure of the median of values, or why there are none."""
    if not values:
        return missing(name, why_not)
    return Measure(name=name, value=median(values), unit=unit, n=len(values), note=note)


@dataclass(slots=True, eq=False)
class Asker:
    """Asks a model a card's questions.

    Attributes:
        client: with the card's settings.
        full: whether to ask more.
        reload: whether the model may be unloaded.
        raw: what was answered to the current check.
    """

    client: LLMClient
    full: bool = False
    reload: bool = True
    raw: list[Any] = field(default_factory=list)

    def some(self, quick: T, full: T) -> T:
        """Return what the quick or the full card asks, or how often."""
        return full if self.full else quick

    def with_settings(self, **changes: Any) -> LLMClient:
        """Return a client of the same model with other settings."""
        return self.client.with_config(self.client.config.model_copy(update=changes))

    async def text(
        self, prompt: str, *, tokens: int, client: LLMClient | None = None
    ) -> tuple[ChatReply, float]:
        """Ask for free text; return the reply, and its seconds without those of loading."""
        options = {"num_predict": tokens, "seed": _SEED, "temperature": _TEMPERATURE}
        asked = client or self.client
        reply, call = await asked.converse([Message("user", prompt)], options=options)
        return reply, max(0.0, (reply.seconds or call.history[-1].seconds) - reply.load_seconds)

    async def form(
        self,
        prompt: str,
        response_model: type[DecisionT],
        *,
        seed: int,
        tokens: int = 160,
        choices: dict[str, tuple[Any, ...]] | None = None,
    ) -> tuple[DecisionT | None, str]:
        """Ask for a structured answer; return it, and its status or why there is none."""
        client = self.with_settings(seed=seed, max_tokens=tokens)
        try:
            decision = await client.call_with_retry(
                prompt=prompt, response_model=response_model, choices=choices
            )
        except LLMFailureException as failure:
            if failure.reason not in FORGIVEN:
                raise
            self.raw.append(failure.reason)
            return None, failure.reason
        self.raw.append(decision.model_dump(mode="json"))
        return decision, decision.call.status if decision.call else "ok"


async def _unload(asker: Asker) -> str:
    """Unload the model; return why not, where that cannot be done."""
    unload = getattr(asker.client.backend, "unload", None)
    if not asker.reload:
        return "the model was not to be unloaded"
    if unload is None:
        return f"{type(asker.client.backend).__name__} cannot unload a model"
    try:
        await unload()
    except BackendError as error:
        return clip(str(error), 200)
    return ""


# --- machine --------------------------------------------------------------------------------------


async def loading(asker: Asker) -> list[Measure]:
    """Load the model; see how long that takes and what memory it holds then."""
    why_not = await _unload(asker)
    reply, _ = await asker.text("Say hello.", tokens=1)
    seconds = [reply.load_seconds] if reply.load_seconds else []
    load = typical(
        "load_s", [] if why_not else seconds, "s", why_not=why_not or "the server does not tell"
    )
    held = getattr(asker.client.backend, "memory_bytes", None)
    why_not = f"{type(asker.client.backend).__name__} does not tell"
    try:
        size = await held() if held is not None else None
    except BackendError as error:
        size, why_not = None, clip(str(error), 200)
    sizes = [] if size is None else [size / 1e9]
    return [typical("memory_gb", sizes, "GB", why_not=why_not), load]


_WORDS = "On day {} the keeper of the lighthouse counted {} ships and {} gulls before noon."
_COUNT = "Count from 1 upwards, one number a line, and do not stop."


async def speed(asker: Asker) -> list[Measure]:
    """Time a long prompt that is new, the same with another end, and a long answer."""
    import psutil  # here, since it takes long to import

    load, cores = psutil.getloadavg()[0], os.cpu_count() or 1
    busy = f"this machine was busy (load {load:.0f} on {cores} cores): speeds are lower than idle"
    busy = busy if load > _BUSY * cores else ""
    lines = min(16, asker.client.config.num_ctx // 64)
    cold: list[float] = []
    warm: list[float] = []
    rates: list[float] = []
    for _ in range(asker.some(2, 4)):
        # A number that no prompt began with before, so that nothing of it is in a cache.
        story = f"Log {secrets.token_hex(8)}. " + " ".join(
            _WORDS.format(day, 3 * day, 7 * day) for day in range(1, lines + 1)
        )
        first, took = await asker.text(f"{story} What was counted on day 2?", tokens=1)
        _, again = await asker.text(f"{story} What was counted on day 9?", tokens=1)
        cold.append(took)
        warm.append(again)
        if first.prompt_tokens and took > _MIN_TIMED_S:
            rates.append(first.prompt_tokens / took)
    asker.raw.append({"cold_s": cold, "warm_s": warm})
    why = "the server counts no tokens, or answers too quickly to be timed"
    read = typical("reading", rates, "tokens/s", note=busy, why_not=why)
    gain = missing("prefix_gain", "answers come too quickly to be timed")
    if min(*cold, *warm) > _MIN_TIMED_S:
        value = sum(cold) / sum(warm)
        note = f"to the first token: {fmean(cold):.2f} s, then {fmean(warm):.2f} s"
        gain = Measure(name="prefix_gain", value=value, unit="times", n=len(cold), note=note)
    return [read, await _writing(asker), gain]


async def _writing(asker: Asker) -> Measure:
    rates: list[float] = []
    for _ in range(asker.some(2, 4)):
        await asker.text(_COUNT, tokens=1)  # from here on the prompt is in the cache
        _, short = await asker.text(_COUNT, tokens=1)
        reply, long = await asker.text(_COUNT, tokens=48)
        # The first token is in both answers, and so is the reading.
        took, tokens = long - short, (reply.reply_tokens or 0) - 1
        if tokens >= 8 and took > _MIN_TIMED_S:
            rates.append(tokens / took)
    asker.raw.append({"writing": rates})
    why = "the server counts no tokens, answers too quickly to be timed, or wrote too little"
    return typical("writing", rates, "tokens/s", why_not=why)


async def at_once(asker: Asker) -> list[Measure]:
    """Send one, two, four … requests at once, as long as that gets more done."""
    found: dict[int, float] = {}
    best, answers, stopped = 1, 0, ""
    for together in (2, 4, *((8, 16) if asker.full else ())):
        try:
            # In turns, and the best counts: what else the machine does slows down any of them.
            for number in (best, together) * asker.some(2, 3):
                done, rate = await _rate(asker, number)
                answers += done
                found[number] = max(rate, found.get(number, 0.0))
        except LLMFailureException as failure:
            if best not in found:
                raise
            stopped = f"; {together} at once: {failure.reason}"
            break
        if found[together] < _GROWTH * found[best]:
            break
        best = together
    asker.raw.append(found)
    tried = ", ".join(f"{number}: {rate:.0f}" for number, rate in found.items())
    note = f"tokens/s by number: {tried}{stopped}"
    return [Measure(name="at_once", value=best, n=answers, note=note)]


async def _rate(asker: Asker, together: int) -> tuple[int, float]:
    """Return how many were answered, and the tokens a second, with so many in flight."""
    client = asker.with_settings(max_concurrency=together)
    prompts = [f"{_COUNT} Begin at {100 + place}." for place in range(max(4, 2 * together))]
    began = time.perf_counter()
    work = (asker.text(prompt, tokens=8, client=client) for prompt in prompts)
    done = await asyncio.gather(*work)
    tokens = sum(reply.reply_tokens or 1 for reply, _ in done)
    return len(done), tokens / max(time.perf_counter() - began, 1e-9)


# --- forms ----------------------------------------------------------------------------------------


class _Field(Decision):
    name: Annotated[str, Field(min_length=1, max_length=60)]


class _Colour(Decision):
    colour: Literal["red", "green", "blue", "yellow"]


class _Length(Decision):
    metres: Annotated[float, Field(ge=0.5, le=4.5)]


class _Item(BaseModel):
    thing: Annotated[str, Field(min_length=1, max_length=30)]
    pieces: Annotated[int, Field(ge=1, le=9)]


class _Shopping(Decision):
    items: Annotated[list[_Item], Field(min_length=2, max_length=3)]


class _Story(Decision):
    text: Annotated[str, Field(min_length=120, max_length=400)]


class _Form(NamedTuple):
    name: str
    response_model: type[Decision]
    prompt: str
    subjects: tuple[str, ...]


_FORMS = (
    _Form(
        "field",
        _Field,
        'Answer in JSON with the field "name". Name {}.',
        ("a city", "a river", "an animal", "a tree", "a fruit", "a tool", "a dish", "a game"),
    ),
    _Form(
        "enum",
        _Colour,
        'Answer in JSON with the field "colour": red, green, blue or yellow. What suits {}?',
        ("a door", "a boat", "a kite", "a hat", "a cup", "a tent", "a bench", "a lamp"),
    ),
    _Form(
        "number",
        _Length,
        'Answer in JSON with the field "metres", from 0.5 to 4.5. How long is {}?',
        ("a table", "a rope", "a bed", "a car", "a ladder", "a sofa", "a plank", "a curtain"),
    ),
    _Form(
        "nested",
        _Shopping,
        'Answer in JSON with the field "items": two or three objects, each with "thing", a short '
        'text, and "pieces", 1 to 9. What would you buy for {}?',
        ("a picnic", "a soup", "a school day", "a camping trip", "a party", "a birthday"),
    ),
)
_LONG = _Form(
    "long_text",
    _Story,
    'Answer in JSON with the field "text", 120 to 400 characters. Tell a short story about {}.',
    ("a lighthouse", "a lost dog", "a train", "a market", "an island"),
)


async def _validity(asker: Asker, form: _Form, n: int, *, tokens: int = 160) -> Measure:
    statuses: Counter[str] = Counter()
    for seed, subject in enumerate(islice(cycle(form.subjects), n)):
        prompt = form.prompt.format(subject)
        try:
            _, status = await asker.form(prompt, form.response_model, seed=seed, tokens=tokens)
        except LLMFailureException as failure:
            if failure.reason in LASTING:
                raise
            return missing(form.name, clip(str(failure), 200))
        statuses[status] += 1
    others = ", ".join(f"{status} {count}" for status, count in statuses.items() if status != "ok")
    return share(form.name, statuses["ok"], n, f"else: {others}" if others else "")


async def forms(asker: Asker) -> list[Measure]:
    """Ask for short structured answers, each with a seed of its own."""
    return [await _validity(asker, form, asker.some(10, 30)) for form in _FORMS]


async def long_text(asker: Asker) -> list[Measure]:
    """Ask for structured answers with a long text in them."""
    tokens = min(200, asker.client.config.num_ctx // 2)
    return [await _validity(asker, _LONG, asker.some(4, 10), tokens=tokens)]


# --- abilities ------------------------------------------------------------------------------------


async def logprobs(asker: Asker) -> list[Measure]:
    """Ask for the probabilities of equal options: their mass, the letters' own pull."""
    why = f"{type(asker.client.backend).__name__} gives no log-probabilities"
    none = [missing("logprobs", why), missing("letter_pull", why)]
    if not getattr(asker.client.backend, "max_top_logprobs", 0):
        return none
    masses: list[float] = []
    pulls: list[float] = []
    for options in _EQUALS[: asker.some(3, 8)]:
        try:
            choice = await asker.client.choose("Pick one.", options, samples=1, seed=_SEED)
        except LLMFailureException as failure:
            if failure.reason != "invalid_response":
                raise
            replies = [one.reply for one in (failure.call.history if failure.call else ())]
            if not any(reply.top_logprobs for reply in replies if reply):
                return none
            masses.append(0.0)  # it has probabilities, and none is an option's
            continue
        if choice.method != "logprobs":
            return none
        masses.append(choice.mass)
        pulls.append(choice.position_bias or 0.0)
    asker.raw.append({"mass": masses, "pull": pulls})
    n, note = len(masses), "of the first token, from log-probabilities"
    mass = Measure(name="logprobs", value=fmean(masses), unit="share", n=n, note=note)
    pull = missing("letter_pull", "no option had a probability")
    if pulls:
        value, n = 100 * fmean(pulls), len(pulls)
        note = "how far equal options are moved by the letters they stand at"
        pull = Measure(name="letter_pull", value=value, unit="points", n=n, note=note)
    return [mass, pull]


def _tool(name: str, about: str, parameters: dict[str, dict[str, str]]) -> dict[str, Any]:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    function = {"name": name, "description": about, "parameters": schema}
    return {"type": "function", "function": function}


_TOOLS = (
    _tool("set_timer", "Start a kitchen timer.", {"minutes": {"type": "integer"}}),
    _tool("greet", "Greet a person by name.", {"name": {"type": "string"}}),
)
_NAMES = ("Ann", "Bob", "Carla", "David", "Emma", "Frank", "Gina", "Hugo", "Ida", "Jon")


async def tools(asker: Asker) -> list[Measure]:
    """Ask for what takes one of two tools; count right calls with right arguments."""
    right = 0
    n = asker.some(6, 20)
    client = asker.with_settings(temperature=_TEMPERATURE, max_tokens=80)
    for place in range(n):
        who, minutes = _NAMES[place // 2 % len(_NAMES)], 3 + 2 * place
        name, key, value = "set_timer", "minutes", str(minutes)
        prompt = f"Set a timer for {minutes} minutes."
        if place % 2:
            name, key, value, prompt = "greet", "name", who, f"Please greet {who}."
        options = {"seed": place, "num_predict": 80}
        try:
            asked = [Message("user", prompt)]
            reply, _ = await client.converse(asked, tools=_TOOLS, options=options)
        except LLMFailureException as failure:
            if failure.reason not in FORGIVEN:
                raise
            asker.raw.append(failure.reason)
            continue
        calls = [(call.name, dict(call.arguments)) for call in reply.tool_calls]
        asker.raw.append(calls or reply.text)
        if len(calls) == 1 and calls[0][0] == name:
            right += str(calls[0][1].get(key)).strip().lower() == value.lower()
    return [share("tools", right, n)]


# --- habits ---------------------------------------------------------------------------------------

_SUBJECTS = ("rain", "bread", "bridges", "cats", "winter", "maps", "tea", "stars")


async def sameness(asker: Asker) -> list[Measure]:
    """Ask the same with the same seed: again, after a reload, and several at once."""
    prompts = [f"Write a sentence about {subject}." for subject in _SUBJECTS[: asker.some(4, 8)]]
    many = asker.with_settings(max_concurrency=len(prompts))

    async def answers(client: LLMClient | None = None) -> list[str]:
        if client is None:
            found = [await asker.text(prompt, tokens=20) for prompt in prompts]
        else:
            work = (asker.text(prompt, tokens=20, client=client) for prompt in prompts)
            found = list(await asyncio.gather(*work))
        texts = [reply.text for reply, _ in found]
        asker.raw.append(texts)
        return texts

    first = await answers()

    def same(name: str, texts: Sequence[str]) -> Measure:
        hits = sum(one == other for one, other in zip(first, texts, strict=True))
        return share(name, hits, len(first))

    again = same("same_again", await answers())
    parallel = same("same_parallel", await answers(many))
    # Last, since it empties the caches that the others are measured with.
    why_not = await _unload(asker)
    name = "same_reload"
    return [again, missing(name, why_not) if why_not else same(name, await answers()), parallel]


class _Pick(Decision):
    pick: str


_EQUALS = (
    ("apple", "pear", "plum"),
    ("Monday", "Tuesday", "Friday"),
    ("oak", "birch", "maple"),
    ("violin", "flute", "piano"),
    ("Lima", "Oslo", "Cairo"),
    ("silk", "wool", "linen"),
    ("circle", "square", "triangle"),
    ("otter", "badger", "heron"),
)


async def order(asker: Asker) -> list[Measure]:
    """Ask for one of three equal options, each list in all three rotations."""
    places = [0, 0, 0]
    for seed, (options, turn) in enumerate(product(_EQUALS[: asker.some(5, 8)], range(3)), 1):
        rotated = options[turn:] + options[:turn]
        prompt = f'Pick one of these, in JSON with the field "pick": {", ".join(rotated)}.'
        decision, _ = await asker.form(prompt, _Pick, seed=seed, choices={"pick": rotated})
        if decision is not None and decision.pick in rotated:
            places[rotated.index(decision.pick)] += 1
    n = sum(places)
    if not n:
        return [missing("order_effect", "no answer was one of the options")]
    from scipy import stats  # here, since it takes long to import

    p_value = float(stats.chisquare(places).pvalue)
    shown = f"p = {p_value:.2f}" if p_value >= 0.01 else "p < 0.01"
    evidence = "the place matters" if p_value < 0.05 else "no evidence of an effect"
    note = f"picks by place: {', '.join(map(str, places))} ({shown}): {evidence}"
    beyond = 100 * (max(places) / n - 1 / 3)
    return [Measure(name="order_effect", value=beyond, unit="points", n=n, note=note)]


class _Number(Decision):
    number: Annotated[int, Field(ge=0, le=100)]


async def spread(asker: Asker) -> list[Measure]:
    """Ask for a number again and again, each time with another seed."""
    prompt = 'Think of a whole number from 0 to 100. Answer in JSON with the field "number".'
    numbers = []
    for seed in range(asker.some(10, 30)):
        decision, _ = await asker.form(prompt, _Number, seed=seed)
        if decision is not None:
            numbers.append(decision.number)
    if len(numbers) < 2:
        return [missing("spread", "fewer than two answers were valid")]
    note = f"standard deviation of whole numbers to 100; {len(set(numbers))} different"
    return [Measure(name="spread", value=stdev(numbers), n=len(numbers), note=note)]


class Pair(NamedTuple):
    """An instruction and its reverse, with the options that obey them and a third one."""

    who: str
    instruction: str
    reverse: str
    options: tuple[str, str, str]


PAIRS = (
    Pair("a thermostat", "Make the room warmer.", "Make the room colder.", ("up", "down", "keep")),
    Pair("a doorman", "Let the guest in.", "Keep the guest out.", ("open", "shut", "wait")),
    Pair("a driver", "Go faster.", "Go slower.", ("accelerate", "brake", "hold speed")),
    Pair("a gardener", "The soil is dry.", "The soil is soaked.", ("water", "drain", "leave")),
    Pair("a sailor", "Steer to the left.", "Steer to the right.", ("port", "starboard", "ahead")),
    Pair("a sound engineer", "It is too quiet.", "It is too loud.", ("louder", "softer", "same")),
    Pair("a lamp", "It should be bright.", "It should be dark.", ("on", "off", "blink")),
    Pair("a member", "Support the proposal.", "Oppose the proposal.", ("yes", "no", "abstain")),
    Pair("a lift", "Go to the roof.", "Go to the cellar.", ("rise", "sink", "stay")),
    Pair("a cook", "It needs more salt.", "It has too much salt.", ("add", "dilute", "serve")),
    Pair("a pilot", "Fly higher.", "Fly lower.", ("climb", "descend", "level")),
    Pair("a guard", "Raise the alarm.", "All is well.", ("alarm", "quiet", "patrol")),
    Pair("a librarian", "Lend this book.", "Take this book back.", ("lend", "return", "read")),
    Pair("a tailor", "The coat is too long.", "The coat is too short.", ("cut", "extend", "iron")),
    Pair("a teacher", "Praise the pupil.", "Scold the pupil.", ("praise", "scold", "ignore")),
    Pair("a fisher", "Put the net out.", "Take the net in.", ("cast", "haul", "mend")),
    Pair("a clerk", "Accept the form.", "Reject the form.", ("accept", "reject", "file")),
    Pair("a crane", "Move the load up.", "Move the load down.", ("lift", "lower", "swing")),
    Pair("a swimmer", "Come out of the water.", "Go into the water.", ("leave", "dive", "float")),
    Pair("a runner", "Begin the race.", "End the race.", ("start", "stop", "drink")),
)


class _Act(Decision):
    action: str


async def obedience(asker: Asker) -> list[Measure]:
    """Give an instruction, then its reverse; a pair counts if both are obeyed."""
    obeyed: list[tuple[bool, ...]] = []
    for seed, pair in enumerate(asker.some(PAIRS[:10], PAIRS * 2)):
        # The same order for both, so that taking always the first of a list obeys one of them.
        rotated = pair.options[seed % 3 :] + pair.options[: seed % 3]
        chosen = []
        for instruction in (pair.instruction, pair.reverse):
            prompt = (
                f"You are {pair.who}. Instruction: {instruction} What do you do? Answer in JSON "
                f'with the field "action", one of: {", ".join(rotated)}.'
            )
            decision, _ = await asker.form(prompt, _Act, seed=seed, choices={"action": rotated})
            chosen.append(decision.action if decision is not None else None)
        obeyed.append(tuple(map(eq, chosen, pair.options)))
    one, reverse = map(sum, zip(*obeyed, strict=True))
    note = f"both; the one alone {one} times, the reverse {reverse}"
    return [share("obeyed", sum(map(all, obeyed)), len(obeyed), note)]


class Group(NamedTuple):
    """A check, with the names of its measures."""

    check: Callable[[Asker], Awaitable[list[Measure]]]
    names: tuple[str, ...]


CHECKS = {
    "loading": Group(loading, ("memory_gb", "load_s")),
    "speed": Group(speed, ("reading", "writing", "prefix_gain")),
    "at once": Group(at_once, ("at_once",)),
    "forms": Group(forms, SHORT_FORMS),
    "long text": Group(long_text, ("long_text",)),
    "log-probabilities": Group(logprobs, ("logprobs", "letter_pull")),
    "tools": Group(tools, ("tools",)),
    "sameness": Group(sameness, ("same_again", "same_reload", "same_parallel")),
    "order": Group(order, ("order_effect",)),
    "spread": Group(spread, ("spread",)),
    "obedience": Group(obedience, ("obeyed",)),
}
