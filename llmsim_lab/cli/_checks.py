"""What ``llmsim-lab doctor MODEL`` asks a model: some thirty short calls, a line for each ability.

The questions are everyday ones; none is about an economy, which the economic gate asks about. They
are too few for a percentage: they show what works and what does not.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from itertools import starmap
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from llmsim_lab._util.text import clip, duration, estimate_prompt_tokens, roughly
from llmsim_lab.assistant import FunctionCall, LLMMessage, OllamaAdapter, ToolDeclaration
from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm.calls.faults import lacks_form
from llmsim_lab.llm.chains import FORGIVEN, LASTING
from llmsim_lab.simulation import Simulation
from llmsim_lab.study.cost import Count
from llmsim_lab.tape.prompts_read import prompts_read
from llmsim_lab.types import Decision, Message

_SEED = 7
"""Fixed, as the temperature is, so that models compare."""
_TEMPERATURE = 0.7


class Ability(NamedTuple):
    """What one check found.

    Attributes:
        check: what was asked for.
        result: what came of it, in words.
        ok: whether all was as asked for.
        note: what to keep in mind, or why it failed.
    """

    check: str
    result: str
    ok: bool
    note: str = ""


async def findings(
    client: LLMClient,
    progress: Callable[[str], object] = lambda _: None,
    *,
    first: int = 100,
) -> list[Ability]:
    """Return what a model can do, as asked here and now.

    Args:
        client: whose context, time limit and further options hold.
        progress: called with the name of each check as it begins.
        first: how many of the checks to make.

    Raises:
        LLMFailureException: no model answers.
    """
    # Without waits, since an invalid answer is a finding here.
    client = _with_settings(
        client,
        temperature=_TEMPERATURE,
        max_text_chars=400,
        retry_wait_s=(0.0, 0.0),
    )
    abilities: list[Ability] = []
    speed = _Speed()
    checks = {
        "answers": speed.answers,
        "tokens read a second": speed.reads,
        **_CHECKS,
    }
    for name, check in [*checks.items()][:first]:
        progress(name)
        try:
            result, ok, note = await check(client)
        except LLMFailureException as failure:
            # Without a first answer there is no model to speak of.
            if failure.reason in LASTING or not abilities:
                raise
            note = clip(str(failure), 200)
            abilities.append(
                Ability(
                    name,
                    "failed",
                    ok=False,
                    note=note,
                )
            )
        else:
            abilities.append(Ability(name, result, ok, note))
    return abilities


def _with_settings(client: LLMClient, **changes: Any) -> LLMClient:
    return client.with_config(client.config.model_copy(update=changes))


_Result = tuple[str, bool, str]


# --- how fast it is -------------------------------------------------------------------------------

_WORDS = (
    *("apple", "river", "window", "seven", "green", "mountain", "letter", "cloud", "bread"),
    *("yellow", "music", "garden", "winter", "paper", "silver", "market", "bridge", "lemon"),
)
_FEWEST_WORDS = 40
_MOST_WORDS = 200
_WORDS_FOR_A_TOKEN_A_SECOND = 30
"""A slow model is given fewer: it mostly reads more than twice as fast as it writes."""
_SLOW = 10.0
"""Tokens a second: faster ones are told without decimals."""


class _Speed:
    """How fast a model reads and writes.

    Attributes:
        writes: tokens a second; None where it is not known.
    """

    def __init__(self) -> None:
        self.writes: float | None = None

    async def answers(self, client: LLMClient) -> _Result:
        """Let the model write, and say how long it took."""
        prompt = [Message("user", "Count from 1 upwards, one number a line, and do not stop.")]
        options = {
            "num_predict": 32,
            "seed": _SEED,
            "temperature": _TEMPERATURE,
        }
        reply, call = await client.converse(prompt, options=options)
        note = f"after {call.seconds:.1f} s"
        if reply.load_seconds:
            note += f", {reply.load_seconds:.1f} s of it to load"
        # Reading twenty tokens takes next to nothing beside writing 32.
        writing_s = call.seconds - reply.load_seconds
        if reply.reply_tokens and writing_s > 0:
            self.writes = reply.reply_tokens / writing_s
            note += f", {_rate(self.writes)} tokens a second"
        return "yes", True, note

    async def reads(self, client: LLMClient) -> _Result:
        """Let the model read a prompt that no server has in its cache, and write one token."""
        fitting = _WORDS_FOR_A_TOKEN_A_SECOND * (self.writes or math.inf)
        number = round(max(_FEWEST_WORDS, min(_MOST_WORDS, fitting)))
        # Not by a seed, whose words the server may have in its cache from the last time.
        chance = random.SystemRandom()
        words = " ".join(chance.choice(_WORDS) for _ in range(number))
        prompt = [Message("user", f"{words}\n\nWhich word came first?")]
        options = {
            "num_predict": 1,
            "seed": _SEED,
            "temperature": _TEMPERATURE,
        }
        reply, call = await client.converse(prompt, options=options)
        if reply.prompt_tokens is None:
            return "not known", True, "the server does not count tokens"
        # The chat template's beginning may be in the cache all the same.
        tokens = reply.prompt_tokens - (reply.cached_tokens or 0)
        reading_s = call.seconds - reply.load_seconds
        if tokens <= 0 or reading_s <= 0:
            return "not known", True, "the server tells no time or no tokens for it"
        reads = tokens / reading_s
        note = f"with a new prompt of {tokens:,} tokens"
        if self.writes is not None:
            note += f"; {await _turn_of_economy(client, reads, self.writes)}"
        return _rate(reads), True, note


def _rate(tokens_per_s: float) -> str:
    if tokens_per_s < _SLOW:
        return f"{tokens_per_s:.1f}"
    return f"{tokens_per_s:,.0f}"


async def _turn_of_economy(
    client: LLMClient,
    reads: float,
    writes: float,
) -> str:
    """Return how long a choice among the economy's moves takes, and how that is computed.

    Args:
        client: of which only the abilities matter: it is asked nothing.
        reads: tokens a second.
        writes: tokens a second.
    """
    # Chance answers in the model's place, so that this takes milliseconds.
    count = Count()
    await count.play(Simulation(decide="sample", llm_client=client))
    # Of what a server that keeps one prompt reads anew, the share; of all prompts, the tokens.
    read = prompts_read(count.attempts)
    tokens = sum(estimate_prompt_tokens(attempt.request.prompt) for attempt in count.attempts)
    anew = tokens * read.one_slot / read.characters
    seconds = anew / reads + count.calls / writes
    return (
        f"so a turn of the economy with decide='sample' takes about {duration(seconds)}: "
        f"{count.calls} calls, which write a token each and read about {roughly(anew):,} anew"
    )


# --- does it keep a form -------------------------------------------------------------------------


async def _tally(answers: Iterable[Awaitable[str]]) -> Counter[str]:
    """Count what came of questions that are asked one after another; also of those that failed."""
    outcomes: Counter[str] = Counter()
    for answer in answers:
        try:
            outcomes[await answer] += 1
        except LLMFailureException as failure:
            # A server that went away says nothing of the model.
            if failure.reason not in FORGIVEN:
                raise
            outcomes[failure.reason] += 1
    return outcomes


class _Colour(Decision):
    colour: Literal["red", "green", "blue", "yellow"]


class _Length(Decision):
    metres: Annotated[float, Field(ge=0.5, le=4.5)]


async def _untold(client: LLMClient) -> _Result:
    """Ask without a word about JSON; the second attempt tells the form where none came."""
    tokens = min(200, client.config.num_ctx // 2)
    seeded = _with_settings(
        client,
        seed=_SEED,
        max_tokens=tokens,
    )
    question = "What suits a picnic: red, green, blue or yellow?"
    decision = await seeded.call_with_retry(prompt=question, response_model=_Colour)
    if decision.call is not None and lacks_form(decision.call.history[0]):
        return "when told", True, "the server does not hold it to a schema: use tell_form=True"
    return "yes", True, "gives JSON without being told the form in words"


_SUBJECTS = ("a picnic", "a boat", "a lighthouse", "a school day")


def _keeps(
    form: type[Decision],
    words: str,
) -> Callable[[LLMClient], Any]:
    async def check(client: LLMClient) -> _Result:
        tokens = min(200, client.config.num_ctx // 2)

        async def ask(seed: int, subject: str) -> str:
            seeded = _with_settings(
                client,
                seed=seed,
                max_tokens=tokens,
            )
            prompt = f"Answer in JSON with the field {words.format(subject)}"
            decision = await seeded.call_with_retry(prompt=prompt, response_model=form)
            return decision.call.status if decision.call else "ok"

        # Several subjects and seeds: one question alone says little of a model.
        statuses = await _tally(starmap(ask, enumerate(_SUBJECTS, 1)))
        right = statuses.pop("ok", 0)
        # What was repaired is valid in the end, and still not what a model should need.
        note = ", ".join(f"{count} {status}" for status, count in statuses.items())
        return f"{right} of {len(_SUBJECTS)}", right == len(_SUBJECTS), note

    return check


# --- does it repeat itself ------------------------------------------------------------------------

_TOPICS = ("a boat", "a picnic", "a lighthouse", "a school", "rain", "a train", "bread", "the moon")


async def _repeats(client: LLMClient) -> _Result:
    """Ask questions twice with the same seed: read whole, and then from what a server kept."""
    equal = await _equal_replies(client)
    note = ""
    if equal < len(_TOPICS) and not client.config.repeatable:
        careful = _with_settings(
            client,
            repeatable=True,
            max_concurrency=None,
        )
        equal_then = await _equal_replies(careful)
        note = f"{equal_then} of {len(_TOPICS)} with repeatable=True"
    answer = "yes" if equal == len(_TOPICS) else "no"
    return f"{answer}, {equal} of {len(_TOPICS)}", True, note


async def _equal_replies(client: LLMClient) -> int:
    """Return how many of the questions get the same words again."""
    # As above: the first of the two has to be read whole.
    chance = random.SystemRandom()
    options = {
        "num_predict": 40,
        "seed": _SEED,
        "temperature": _TEMPERATURE,
    }
    equal = 0
    for topic in _TOPICS:
        words = " ".join(chance.choice(_WORDS) for _ in range(_FEWEST_WORDS))
        prompt = [Message("user", f"{words}\n\nWrite two sentences about {topic}.")]
        # The second time the server has the prompt in its cache, which may change the last digits.
        first, _ = await client.converse(prompt, options=options)
        second, _ = await client.converse(prompt, options=options)
        equal += first.text == second.text
    return equal


# --- what else it can do -------------------------------------------------------------------------


async def _logprobs(client: LLMClient) -> _Result:
    # One sample, so that a backend without probabilities is asked as little as may be.
    choice = await client.choose(
        "Pick one.",
        ("apple", "pear", "plum"),
        samples=1,
        seed=_SEED,
    )
    if choice.method == "logprobs":
        share = f"{100 * choice.mass:.0f} %"
        return "yes", True, f"{share} of its answers were one of the letters offered"
    return "no", False, "choices are drawn instead"


def _tool(
    name: str,
    about: str,
    argument: str,
    its_type: str,
) -> ToolDeclaration:
    schema = {"type": "object", "properties": {argument: {"type": its_type}}}
    return ToolDeclaration(name, about, schema | {"required": [argument]})


_TOOLS = (
    _tool(
        "set_timer",
        "Start a kitchen timer.",
        "minutes",
        "integer",
    ),
    _tool("greet", "Greet a person by name.", "name", "string"),
)
_WANTED = {
    "Set a timer for 3 minutes.": FunctionCall("set_timer", {"minutes": 3}),
    "Please greet Ann.": FunctionCall("greet", {"name": "Ann"}),
    "Set a timer for 12 minutes.": FunctionCall("set_timer", {"minutes": 12}),
    "Please greet Bob.": FunctionCall("greet", {"name": "Bob"}),
}


async def _tools(client: LLMClient) -> _Result:
    # Which asks by a schema where the model cannot call tools.
    adapter = OllamaAdapter(_with_settings(client, max_tokens=80))

    async def ask(seed: int, prompt: str) -> str:
        options = {"seed": seed, "num_predict": 80}
        reply = await adapter.ask(
            [LLMMessage("user", prompt)],
            _TOOLS,
            options=options,
        )
        calls = [FunctionCall(call.name, call.arguments) for call in reply.function_calls or ()]
        # Exactly one: a second call would do what was not asked for.
        return "ok" if calls == [_WANTED[prompt]] else "another call"

    right = (await _tally(starmap(ask, enumerate(_WANTED))))["ok"]
    return f"{right} of {len(_WANTED)}", right == len(_WANTED), "right tool, right argument"


_CHECKS: dict[str, Callable[[LLMClient], Any]] = {
    "valid JSON: one of a list": _keeps(
        _Colour, '"colour": red, green, blue or yellow. What suits {}?'
    ),
    "valid JSON: form not told": _untold,
    "valid JSON: number in bounds": _keeps(
        _Length, '"metres", from 0.5 to 4.5. How long is a flag for {}?'
    ),
    "log-probabilities": _logprobs,
    "tools": _tools,
    "same seed, same words": _repeats,
}
