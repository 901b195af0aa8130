"""What ``llmsim-lab doctor MODEL`` asks a model: some thirty short calls, a line for each ability.

The questions are everyday ones; none is about an economy, which the economic gate asks about. They
are too few for a percentage: they show what works and what does not.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from llmsim_lab._util.text import clip
from llmsim_lab.assistant._adapter import OllamaAdapter
from llmsim_lab.assistant._types import LLMMessage, ToolDeclaration
from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._chains import FORGIVEN, LASTING
from llmsim_lab.types import Decision, Message

_SEED, _TEMPERATURE = 7, 0.7
"""Fixed, so that models compare."""


class Ability(NamedTuple):
    """What one check found.

    Attributes:
        check: what was asked for.
        result: what came of it, in words.
        ok: whether all was as asked for; None where it is only a figure.
        note: what to keep in mind, or why there is no figure.
    """

    check: str
    result: str
    ok: bool | None = None
    note: str = ""


async def findings(
    client: LLMClient,
    progress: Callable[[str], object] = lambda _: None,
    *,
    only: Container[str] = (),
) -> list[Ability]:
    """Return what a model can do, as asked here and now.

    Args:
        client: whose context, time limit and further options hold.
        progress: called with the name of each check as it begins.
        only: the checks to make; all if not given.

    Raises:
        LLMFailureException: no model answers.
    """
    # Without waits, since an invalid answer is a finding here.
    client = _with(client, temperature=_TEMPERATURE, max_text_chars=400, retry_wait_s=(0.0, 0.0))
    found: list[Ability] = []
    for name, check in _CHECKS.items():
        if only and name not in only:
            continue
        progress(name)
        try:
            result, ok, note = await check(client)
        except LLMFailureException as failure:
            if failure.reason in LASTING or not found:
                raise
            result, ok, note = "failed", False, clip(str(failure), 200)
        found.append(Ability(name, result, ok, note))
    return found


def _with(client: LLMClient, **changes: Any) -> LLMClient:
    return client.with_config(client.config.model_copy(update=changes))


async def _form(
    client: LLMClient, prompt: str, form: type[Decision], *, seed: int, **more: Any
) -> tuple[Any, str]:
    """Ask for a structured answer; return it, and its status or why there is none."""
    asked = _with(client, seed=seed, max_tokens=min(200, client.config.num_ctx // 2))
    try:
        decision = await asked.call_with_retry(prompt=prompt, response_model=form, **more)
    except LLMFailureException as failure:
        if failure.reason not in FORGIVEN:
            raise
        return None, failure.reason
    return decision, decision.call.status if decision.call else "ok"


# --- does it answer, and how fast ----------------------------------------------------------------

_Result = tuple[str, bool | None, str]


async def _answers(client: LLMClient) -> _Result:
    began = time.perf_counter()
    options = {"num_predict": 8, "seed": _SEED, "temperature": _TEMPERATURE}
    reply, _ = await client.converse([Message("user", "Say hello.")], options=options)
    loading = f", {reply.load_seconds:.1f} s of it to load" if reply.load_seconds else ""
    return "yes", True, f"after {time.perf_counter() - began:.1f} s{loading}"


async def _speed(client: LLMClient) -> _Result:
    prompt = [Message("user", "Count from 1 upwards, one number a line, and do not stop.")]
    for tokens in (1, 64):  # after the first the prompt is in the server's cache
        options = {"num_predict": tokens, "seed": _SEED, "temperature": _TEMPERATURE}
        reply, call = await client.converse(prompt, options=options)
    if not reply.reply_tokens or reply.reply_tokens < 8 or not call.seconds:
        return "not measured", None, "the server counts no tokens, or the model wrote too little"
    return f"{reply.reply_tokens / call.seconds:.0f}", None, "of the answer"


async def _context(client: LLMClient) -> _Result:
    trained = (await client.model_info()).context_length
    note = f"trained for {trained:,}" if trained else ""
    return f"{client.config.num_ctx:,} tokens", None, note


# --- does it keep a form -------------------------------------------------------------------------


class _Colour(Decision):
    colour: Literal["red", "green", "blue", "yellow"]


class _Length(Decision):
    metres: Annotated[float, Field(ge=0.5, le=4.5)]


class _Item(BaseModel):
    thing: Annotated[str, Field(min_length=1, max_length=30)]
    pieces: Annotated[int, Field(ge=1, le=9)]


class _Shopping(Decision):
    items: Annotated[list[_Item], Field(min_length=2, max_length=3)]


_SUBJECTS = ("a picnic", "a boat", "a lighthouse", "a school day")
_FORMS: dict[str, tuple[type[Decision], str]] = {
    "one of a list": (_Colour, '"colour": red, green, blue or yellow. What suits {}?'),
    "number in bounds": (_Length, '"metres", from 0.5 to 4.5. How long is a flag for {}?'),
    "a nested list": (
        _Shopping,
        '"items": two or three objects, each with "thing", a short text, and "pieces", 1 to 9. '
        "What would you buy for {}?",
    ),
}


def _keeps(form: type[Decision], words: str) -> Callable[[LLMClient], Any]:
    async def check(client: LLMClient) -> _Result:
        statuses: Counter[str] = Counter()
        for seed, subject in enumerate(_SUBJECTS, 1):
            prompt = f"Answer in JSON with the field {words.format(subject)}"
            statuses[(await _form(client, prompt, form, seed=seed))[1]] += 1
        others = ", ".join(f"{n} {status}" for status, n in statuses.items() if status != "ok")
        right = statuses["ok"]
        return f"{right} of {len(_SUBJECTS)}", right == len(_SUBJECTS), others

    return check


# --- does it obey --------------------------------------------------------------------------------

PAIRS = (
    ("a thermostat", "Make the room warmer.", "Make the room colder.", ("up", "down", "keep")),
    ("a doorman", "Let the guest in.", "Keep the guest out.", ("open", "shut", "wait")),
    ("a driver", "Go faster.", "Go slower.", ("accelerate", "brake", "hold speed")),
    ("a lamp", "It should be bright.", "It should be dark.", ("on", "off", "blink")),
    ("a member", "Support the proposal.", "Oppose the proposal.", ("yes", "no", "abstain")),
    ("a lift", "Go to the roof.", "Go to the cellar.", ("rise", "sink", "stay")),
)
"""Who is asked, an instruction and its reverse, the options that obey them, and a third one."""


class _Act(Decision):
    action: str


async def _obeys(client: LLMClient) -> _Result:
    both = first = second = 0
    for seed, (who, *instructions, options) in enumerate(PAIRS):
        # The same order for both, so that taking always the first of a list obeys one of them.
        rotated = options[seed % 3 :] + options[: seed % 3]
        obeyed = []
        for instruction, wanted in zip(instructions, options, strict=False):
            prompt = (
                f"You are {who}. Instruction: {instruction} What do you do? Answer in JSON "
                f'with the field "action", one of: {", ".join(rotated)}.'
            )
            said, _ = await _form(client, prompt, _Act, seed=seed, choices={"action": rotated})
            obeyed.append(said is not None and said.action == wanted)
        first, second, both = first + obeyed[0], second + obeyed[1], both + all(obeyed)
    note = f"both; each alone {first} and {second}"
    return f"{both} of {len(PAIRS)}", both == len(PAIRS), note


# --- what else it can do -------------------------------------------------------------------------


async def _logprobs(client: LLMClient) -> _Result:
    none = "no", False, "choices are drawn instead"
    if not getattr(client.backend, "max_top_logprobs", 0):
        return none
    choice = await client.choose("Pick one.", ("apple", "pear", "plum"), samples=1, seed=_SEED)
    if choice.method != "logprobs":
        return none
    return "yes", True, f"{100 * choice.mass:.0f} % on the options of a choice"


def _tool(name: str, about: str, argument: str, its_type: str) -> ToolDeclaration:
    schema = {"type": "object", "properties": {argument: {"type": its_type}}}
    return ToolDeclaration(name, about, schema | {"required": [argument]})


_TOOLS = (
    _tool("set_timer", "Start a kitchen timer.", "minutes", "integer"),
    _tool("greet", "Greet a person by name.", "name", "string"),
)
_WANTED = (
    ("Set a timer for 3 minutes.", "set_timer", "minutes", "3"),
    ("Please greet Ann.", "greet", "name", "ann"),
    ("Set a timer for 12 minutes.", "set_timer", "minutes", "12"),
    ("Please greet Bob.", "greet", "name", "bob"),
)


async def _tools(client: LLMClient) -> _Result:
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
    return f"{right} of {len(_WANTED)}", right == len(_WANTED), note


_CHECKS: dict[str, Callable[[LLMClient], Any]] = {
    "answers": _answers,
    **{f"valid JSON: {name}": _keeps(*form) for name, form in _FORMS.items()},
    "obeys and obeys the reverse": _obeys,
    "log-probabilities": _logprobs,
    "tools": _tools,
    "tokens a second": _speed,
    "context": _context,
}
