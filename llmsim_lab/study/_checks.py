"""What ``llmsim-lab doctor MODEL`` asks a model: some forty short calls, a line for each ability.

The questions are everyday ones; none is about an economy, which the economic gate asks about
(``_gate``). They are too few for a percentage: they show what works and what does not.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from operator import eq
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, Field

from llmsim_lab._util.text import clip
from llmsim_lab.assistant._adapter import OllamaAdapter
from llmsim_lab.assistant._types import LLMMessage, ToolDeclaration
from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._chains import FORGIVEN, LASTING
from llmsim_lab.types import ChatReply, Decision, Message, ModelInfo

DecisionT = TypeVar("DecisionT", bound=Decision)

_SEED = 7
_LEAST_TOKENS, _LEAST_S = 8, 0.002
"""What a speed is measured from at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one check found.

    Attributes:
        check: what was asked for.
        result: what came of it, in words.
        ok: whether all was as asked for; None where it is only a figure.
        value: the figure, or how many answers were right.
        asked: how many questions were asked, where they are counted.
        note: what to keep in mind, or why there is no figure.
    """

    check: str
    result: str
    ok: bool | None = None
    value: float | None = None
    asked: int | None = None
    note: str = ""


def _share(check: str, right: int, asked: int, note: str = "") -> CheckResult:
    result, ok = f"{right} of {asked}", right == asked
    return CheckResult(check=check, result=result, ok=ok, value=right, asked=asked, note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck:
    """What the checks found of one model."""

    model: ModelInfo
    findings: tuple[CheckResult, ...]

    @property
    def heading(self) -> str:
        """Which model this is."""
        info = self.model
        server = f"{info.backend} {info.version}" if info.version else info.backend
        digest = f"digest {info.digest[:12]}" if info.digest else "no digest is known"
        return f"{info.name} ({server}, {digest})"

    def to_json(self) -> str:
        """Return the model and all findings."""
        of = {name: getattr(self.model, name) for name in ("backend", "version", "digest")}
        checks = [asdict(one) for one in self.findings]
        return json.dumps({"model": self.model.name, **of, "checks": checks}, indent=2)


async def check_model(client: LLMClient, progress: Callable[[str], object]) -> ModelCheck:
    """Return what a model can do, as asked here and now.

    Args:
        client: whose context, time limit and further options hold.
        progress: called with the name of each check as it begins.

    Raises:
        LLMFailureException: no model answers.
    """
    # Fixed, so that models compare; without waits, since an invalid answer is a finding here.
    client = _with(client, temperature=0.7, max_text_chars=400, retry_wait_s=(0.0, 0.0))
    found: list[CheckResult] = []
    for name, check in _CHECKS.items():
        progress(name)
        try:
            found.append(await check(client))
        except LLMFailureException as failure:
            if failure.reason in LASTING or not found:
                raise
            why = clip(str(failure), 200)
            found.append(CheckResult(check=name, result="failed", ok=False, note=why))
    return ModelCheck(model=await client.model_info(), findings=tuple(found))


def _with(client: LLMClient, **changes: Any) -> LLMClient:
    return client.with_config(client.config.model_copy(update=changes))


async def _text(client: LLMClient, prompt: str, *, tokens: int) -> tuple[ChatReply, float]:
    """Ask for free text; return the reply, and its seconds without those of loading."""
    options = {"num_predict": tokens, "seed": _SEED, "temperature": 0.7}
    reply, call = await client.converse([Message("user", prompt)], options=options)
    return reply, max(0.0, (reply.seconds or call.history[-1].seconds) - reply.load_seconds)


async def _form(
    client: LLMClient,
    prompt: str,
    response_model: type[DecisionT],
    *,
    seed: int,
    choices: dict[str, tuple[Any, ...]] | None = None,
) -> tuple[DecisionT | None, str]:
    """Ask for a structured answer; return it, and its status or why there is none."""
    asked = _with(client, seed=seed, max_tokens=min(200, client.config.num_ctx // 2))
    try:
        decision = await asked.call_with_retry(
            prompt=prompt, response_model=response_model, choices=choices
        )
    except LLMFailureException as failure:
        if failure.reason not in FORGIVEN:
            raise
        return None, failure.reason
    return decision, decision.call.status if decision.call else "ok"


# --- does it answer, and how fast ----------------------------------------------------------------


async def _answers(client: LLMClient) -> CheckResult:
    began = time.perf_counter()
    reply, _ = await _text(client, "Say hello.", tokens=8)
    took = f"after {time.perf_counter() - began:.1f} s"
    took += f", {reply.load_seconds:.1f} s of it to load" if reply.load_seconds else ""
    return CheckResult(check="answers", result="yes", ok=True, note=took)


async def _speed(client: LLMClient) -> CheckResult:
    count = "Count from 1 upwards, one number a line, and do not stop."
    await _text(client, count, tokens=1)  # from here on the prompt is in the cache
    _, short = await _text(client, count, tokens=1)
    reply, long = await _text(client, count, tokens=64)
    # The first token is in both answers, and so is the reading.
    took, tokens = long - short, (reply.reply_tokens or 0) - 1
    if tokens < _LEAST_TOKENS or took < _LEAST_S:
        why = "the server counts no tokens, answers too quickly to be timed, or wrote too little"
        return CheckResult(check="tokens a second", result="not measured", note=why)
    rate = tokens / took
    return CheckResult(
        check="tokens a second", result=f"{rate:.0f}", value=rate, note="of the answer"
    )


async def _context(client: LLMClient) -> CheckResult:
    used, trained = client.config.num_ctx, (await client.model_info()).context_length
    note = f"trained for {trained:,}" if trained else ""
    return CheckResult(check="context", result=f"{used:,} tokens", value=used, note=note)


# --- does it keep a form -------------------------------------------------------------------------


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


class _Shape(NamedTuple):
    response_model: type[Decision]
    prompt: str
    subjects: tuple[str, ...]


_SHAPES = {
    "valid JSON: a field": _Shape(
        _Field,
        'Answer in JSON with the field "name". Name {}.',
        ("a city", "a river", "an animal", "a tree"),
    ),
    "valid JSON: one of a list": _Shape(
        _Colour,
        'Answer in JSON with the field "colour": red, green, blue or yellow. What suits {}?',
        ("a door", "a boat", "a kite", "a hat"),
    ),
    "valid JSON: number in bounds": _Shape(
        _Length,
        'Answer in JSON with the field "metres", from 0.5 to 4.5. How long is {}?',
        ("a table", "a rope", "a bed", "a car"),
    ),
    "valid JSON: a nested list": _Shape(
        _Shopping,
        'Answer in JSON with the field "items": two or three objects, each with "thing", a short '
        'text, and "pieces", 1 to 9. What would you buy for {}?',
        ("a picnic", "a soup", "a school day", "a party"),
    ),
    "valid JSON: a long text": _Shape(
        _Story,
        'Answer in JSON with the field "text", 120 to 400 characters. Tell a short story about {}.',
        ("a lighthouse", "a lost dog", "a train", "a market"),
    ),
}


def _valid(check: str, shape: _Shape) -> Callable[[LLMClient], Awaitable[CheckResult]]:
    async def asked(client: LLMClient) -> CheckResult:
        statuses: Counter[str] = Counter()
        for seed, subject in enumerate(shape.subjects, 1):
            prompt = shape.prompt.format(subject)
            statuses[(await _form(client, prompt, shape.response_model, seed=seed))[1]] += 1
        others = (f"{n} {status}" for status, n in statuses.items() if status != "ok")
        return _share(check, statuses["ok"], len(shape.subjects), ", ".join(others))

    return asked


# --- does it obey --------------------------------------------------------------------------------


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
    Pair("a lamp", "It should be bright.", "It should be dark.", ("on", "off", "blink")),
    Pair("a member", "Support the proposal.", "Oppose the proposal.", ("yes", "no", "abstain")),
    Pair("a lift", "Go to the roof.", "Go to the cellar.", ("rise", "sink", "stay")),
)


class _Act(Decision):
    action: str


async def _obeys(client: LLMClient) -> CheckResult:
    obeyed: list[tuple[bool, ...]] = []
    for seed, pair in enumerate(PAIRS):
        # The same order for both, so that taking always the first of a list obeys one of them.
        rotated = pair.options[seed % 3 :] + pair.options[: seed % 3]
        chosen = []
        for instruction in (pair.instruction, pair.reverse):
            prompt = (
                f"You are {pair.who}. Instruction: {instruction} What do you do? Answer in JSON "
                f'with the field "action", one of: {", ".join(rotated)}.'
            )
            decision, _ = await _form(client, prompt, _Act, seed=seed, choices={"action": rotated})
            chosen.append(decision.action if decision is not None else None)
        obeyed.append(tuple(map(eq, chosen, pair.options)))
    one, reverse = map(sum, zip(*obeyed, strict=True))
    note = f"both; each alone {one} and {reverse}"
    return _share("obeys and obeys the reverse", sum(map(all, obeyed)), len(PAIRS), note)


# --- what else it can do -------------------------------------------------------------------------


async def _logprobs(client: LLMClient) -> CheckResult:
    check, mass, method = "log-probabilities", 0.0, ""
    none = CheckResult(check=check, result="no", ok=False, note="choices are drawn instead")
    if not getattr(client.backend, "max_top_logprobs", 0):
        return none
    try:
        choice = await client.choose("Pick one.", ("apple", "pear", "plum"), samples=1, seed=_SEED)
        mass, method = choice.mass, choice.method
    except LLMFailureException as failure:
        if failure.reason != "invalid_response":
            raise
        replies = [one.reply for one in (failure.call.history if failure.call else ())]
        # It may have probabilities, of which none is an option's.
        method = "logprobs" if any(it.top_logprobs for it in replies if it) else ""
    if method != "logprobs":
        return none
    note = f"{100 * mass:.0f} % on the options of a choice"
    return CheckResult(check=check, result="yes", ok=True, value=mass, note=note)


def _tool(name: str, about: str, parameters: dict[str, dict[str, str]]) -> ToolDeclaration:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return ToolDeclaration(name, about, schema)


_TOOLS = (
    _tool("set_timer", "Start a kitchen timer.", {"minutes": {"type": "integer"}}),
    _tool("greet", "Greet a person by name.", {"name": {"type": "string"}}),
)
_WANTED = (
    ("Set a timer for 3 minutes.", "set_timer", "minutes", "3"),
    ("Please greet Ann.", "greet", "name", "ann"),
    ("Set a timer for 12 minutes.", "set_timer", "minutes", "12"),
    ("Please greet Bob.", "greet", "name", "bob"),
)


async def _tools(client: LLMClient) -> CheckResult:
    right = called = 0
    # Which asks by a schema where the model cannot call tools.
    adapter = OllamaAdapter(_with(client, max_tokens=80))
    for seed, (prompt, name, key, value) in enumerate(_WANTED):
        options = {"seed": seed, "num_predict": 80}
        try:
            reply = await adapter.ask([LLMMessage("user", prompt)], _TOOLS, options=options)
        except LLMFailureException as failure:
            if failure.reason not in FORGIVEN:
                raise
            continue
        calls = reply.function_calls or ()
        called += bool(calls)
        if len(calls) == 1 and calls[0].name == name and isinstance(calls[0].arguments, Mapping):
            right += str(calls[0].arguments.get(key)).strip().lower() == value
    note = f"right tool, right argument; {called} called"
    return _share("tools", right, len(_WANTED), note)


_CHECKS: dict[str, Callable[[LLMClient], Awaitable[CheckResult]]] = {
    "answers": _answers,
    **{name: _valid(name, shape) for name, shape in _SHAPES.items()},
    "obeys and obeys the reverse": _obeys,
    "log-probabilities": _logprobs,
    "tools": _tools,
    "tokens a second": _speed,
    "context": _context,
}
