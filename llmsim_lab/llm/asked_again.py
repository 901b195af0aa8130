"""Recorded calls asked again: are the replies on a tape those of the model that it names?

The sums of a tape can be computed again after an edit, so that they prove nothing. What a model
answers to a prompt, with its settings and its seed, can be asked of the same weights by anybody. A
seed is not on a tape, since it follows from the run's own, the turn, and who asks.

Where a server computes the same numbers again, the words are the same: so it is with an embedded
model that was recorded with ``repeatable=True``. A prompt cache or another processor changes the
numbers a little, and then most replies differ from some word on. Of the embedded models such a
reply is judged at that word: could the sampler have drawn it there?
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.jsontext import as_mapping, checked
from llmsim_lab._util.text import clip, counted
from llmsim_lab._util.waiting import in_thread
from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm.calls.faults import second_seed
from llmsim_lab.llm.client import LLMClient
from llmsim_lab.llm.embedded.backend import EmbeddedBackend, is_file
from llmsim_lab.llm.openai import Token, TracedToken
from llmsim_lab.llm.scope import CallLog
from llmsim_lab.tape import RecordedCall, RunInfo, Tape
from llmsim_lab.tape.recorder import BY_PLAIN_CODE
from llmsim_lab.types import HUMAN, ChatReply, ChatRequest

CHOICE_REACH = 0.1
"""By how much the probability of an answer may differ where a choice is measured."""
_NOISE = 0.4
"""By how much the logarithms of two tokens' probabilities may differ with a prompt cache: twice
what was seen of the likely tokens of ``smollm2-135m``."""
_MIN_P = 0.05
"""llama.cpp's sampler draws no token that is less likely than this share of the likeliest."""
_TOP_K = 40
"""And none but the likeliest so many, of those that a grammar allows."""
_TOP_P = 0.95
"""And none beyond those that together are so likely."""
_PLAIN_OPTIONS = {"temperature", "seed", "num_ctx", "num_predict", "cache_prompt"}
"""With others the sampler draws in another way than by these three."""
_TIE = 0.2
"""Tokens whose probabilities have logarithms as near as that may change places with a prompt cache:
three times the difference of the likely ones of ``smollm2-135m`` (root mean square)."""
_DRAW_REACH = 0.1
"""How far apart two tokens may lie on which one random number falls, ties left out. Of 115 replies
that a prompt cache changed all lay at 0, of those by a script a third above; see ``_distance``."""
_LARGEST_WINDOW = 32_768
"""Tokens of a context window that a tape can have a server load; more takes a client's num_ctx."""
_LIKELY = 100
"""How many tokens are looked at for the recorded one."""
_TEXT_IN_JSON = re.compile(r'"(?:[^"\\]|\\.)*(?:"|$)', re.DOTALL)
_SHOWN = 30

CANNOT_SHOW = (
    "It does not show that a run was not repeated until its replies pleased, nor when it was "
    "recorded: publish the seed before a run, and the sha256 soon after it."
)

Verdict: TypeAlias = Literal["equal", "within reach", "not this model's", "differs", "unanswered"]
"""Of a reply: ``differs`` says that its backend cannot show why."""


class AskedAgain(NamedTuple):
    """A recorded call, and what became of it when it was asked again."""

    call: RecordedCall
    verdict: Verdict
    detail: str = ""

    def __str__(self) -> str:
        site = self.call.attempt.request.site
        place = f"call {self.call.id} of run {self.call.run}"
        if site is not None and site.turn is not None:
            place += f", turn {site.turn}"
        if site is not None and site.agent:
            place += f", {site.agent}"
        return f"{place}: {self.verdict}{self.detail and f': {self.detail}'}"


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What asking some of a tape's calls again has shown.

    Attributes:
        model: which one was asked.
        seed: from which the calls were drawn.
        answers: the calls, with what became of each.
        eligible: how many could have been drawn.
        left_out: how many could not, by the reason.
        notes: what is known before anything is asked, such as other weights.
    """

    model: str
    seed: int
    answers: Sequence[AskedAgain]
    eligible: int
    left_out: Mapping[str, int]
    notes: Sequence[str]

    def count(self, *verdicts: Verdict) -> int:
        """Return how many calls were judged so."""
        return sum(answer.verdict in verdicts for answer in self.answers)

    @property
    def ok(self) -> bool:
        """Whether each reply is shown to be the model's."""
        all_equal = self.count("equal") == len(self.answers)
        return all_equal and not self.notes

    def __str__(self) -> str:
        """The verdict, as a sentence."""
        number = len(self.answers)
        equal = self.count("equal")
        wrong = [answer for answer in self.answers if answer.verdict == "not this model's"]
        if equal == number:
            # Of a share p nothing is found with probability (1 - p)^n.
            most = 1 - 0.05 ** (1 / number)
            return (
                f"{number} of {number}: at most {100 * most:.0f} % of the replies are not "
                f"{self.model}'s, 95 %"
            )
        near = self.count("within reach")
        is_repeatable = all(_is_repeatable(answer) for answer in self.answers)
        if is_repeatable and 2 * equal < number and near:
            return (
                f"{equal} of {number} replies are equal, though the tape says that it was recorded "
                f"with repeatable=True, so that {self.model} says the same words again: another "
                "model, other weights or another quantisation wrote the others, or a processor of "
                "another kind computed them; ask again on one like the recording's"
            )
        if wrong:
            from scipy.stats import binomtest  # here, since it takes long to import

            test = binomtest(len(wrong), number)
            interval = test.proportion_ci(0.95, method="exact")
            numbers = ", ".join(str(answer.call.id) for answer in wrong)
            cause = "they were edited, or another model wrote them"
            if 2 * len(wrong) >= number:
                cause = "another model, other weights or another quantisation wrote them"
            share = f"{100 * interval.low:.0f} to {100 * interval.high:.0f} %"
            return (
                f"{len(wrong)} of {number} replies are not {self.model}'s (of all {share}, with "
                f"95 %): call {numbers}; {cause}"
            )
        if near:
            return (
                f"{equal} of {number} replies are equal, and {near} differ from a word on that "
                f"{self.model} could have drawn too: recorded with a prompt cache or elsewhere, "
                "its own replies do, and so may another model's; a tape recorded with "
                "repeatable=True can be verified"
            )
        return (
            f"{equal} of {number} replies are equal; {number - equal} are not, and this server "
            "cannot show whether another model wrote them, or it does not repeat itself: "
            "'llmsim-lab doctor' says how often it does"
        )


async def ask_again(
    tape: Tape,
    client: LLMClient,
    *,
    number: int = 20,
    seed: int | None = None,
    progress: Callable[[str], object] = lambda _: None,
) -> Audit:
    """Return what asking some of a tape's calls again shows of its replies.

    Args:
        tape: which is left as it is.
        client: the model that is asked, with the settings of the recording.
        number: how many calls are drawn; all if there are fewer.
        seed: from which they are drawn; one that nobody could foresee if not given.
        progress: is given each call as it begins, in words.

    Raises:
        ConfigError: no reply on the tape can be asked again.
    """
    number = whole_number("ask", number, least=1)
    if seed is None:
        # Not foreseen: a forger who knew which calls are drawn would leave those as they are.
        seed = random.SystemRandom().randrange(10**6)
    # In a thread, since a tape may be large and the loop has other work.
    pool = await in_thread(
        partial(
            _Pool,
            tape,
            client.config.model,
            largest_window=max(_LARGEST_WINDOW, client.config.num_ctx),
        )
    )
    if not pool.seeds:
        reasons = [f"{count:,} {reason}" for reason, count in pool.left_out.items()]
        raise ConfigError(
            f"{tape.path} has no reply that can be asked again: "
            f"{', '.join(reasons) or 'it has no call'}"
        )
    numbers = sorted(pool.seeds)
    # Sorted both times: the draw does not depend on a dict's order, and a tape is read forwards.
    drawn = sorted(random.Random(seed).sample(numbers, min(number, len(numbers))))
    info = await client.model_info()
    answers = []
    # One after the other: requests that are answered together have other last digits.
    for place, call_number in enumerate(drawn, 1):
        progress(f"call {call_number}, {place} of {len(drawn)}")
        call = tape.call(call_number)
        answers.append(await _asked_again(client, call, pool.seeds[call_number]))
    return Audit(
        model=client.config.model,
        seed=seed,
        answers=_with_exact_ones(answers),
        eligible=len(numbers),
        left_out=pool.left_out,
        notes=_other_weights(pool.digests, info.digest, info.name),
    )


def recorded_model(tape: Tape) -> str:
    """Return what ``connect`` calls the model that most of a tape's replies are from.

    A tape may be anybody's, so that it chooses neither a file that is loaded as weights nor a
    server that costs money.

    Raises:
        ConfigError: no model was asked, or the user has to name the file, the server or the model.
    """
    infos = tape.runs()
    counts: Counter[tuple[str, str]] = Counter()
    for info in infos:
        for model in _models_of(info):
            backend = str(model.get("backend"))
            name = str(model.get("name"))
            counts[backend, name] += info.calls
    if not counts.total():
        calls = sum(info.calls for info in infos)
        reason = f"all of its {counted(calls, 'call')} are to people" if calls else "it has no call"
        raise ConfigError(f"there is nothing to ask again: {tape.path} names no model, {reason}")
    [((backend, name), _)] = counts.most_common(1)
    if backend not in ("ollama", "embedded", "openai"):
        raise ConfigError(
            f"the replies of {tape.path} are from {name!r} ({backend}), which cannot be asked "
            "again; say which model to ask: --model ollama:NAME"
        )
    if backend == "openai":
        raise ConfigError(
            f"the replies of {tape.path} are from {name!r} on a server of OpenAI's protocol, which "
            f"may cost money, and whose address is not on the tape; if you want it asked: --model "
            f"{shlex.quote(f'openai:{name}')}, with --host for another server than OpenAI's own"
        )
    if is_file(name):
        raise ConfigError(
            f"the replies of {tape.path} are from the file {name!r}; if you trust that file on "
            f"this machine: --model {shlex.quote(f'embedded:{name}')}"
        )
    return f"{backend}:{name}"


def _models_of(info: RunInfo) -> list[Mapping[str, object]]:
    """Return the models that a run names: its own, and those in seats of their own."""
    seats = as_mapping(info.manifest.get("players"))
    models = []
    for named in (info.manifest.get("model"), *seats.values()):
        model = as_mapping(named)
        if model and model.get("backend") != HUMAN:
            models.append(model)
    return models


def _other_weights(
    digests: set[str],
    digest: str | None,
    name: str,
) -> list[str]:
    """Return in words that a tape names other weights than those that are asked."""
    if digest is None or not digests or digest in digests:
        return []
    named = ", ".join(sorted(recorded[:12] for recorded in digests))
    return [
        f"the tape names the weights {named}; those of {name} here are {digest[:12]}: other "
        "weights, or another quantisation"
    ]


# --- which calls, with which seeds ----------------------------------------------------------------


class _Pool:
    """The calls of a tape that can be asked again.

    Attributes:
        seeds: by the call's number, of the server's sampler; None where nothing is drawn.
        left_out: how many calls cannot be asked again, by the reason.
        digests: of the weights that the runs of these calls name.
    """

    def __init__(
        self,
        tape: Tape,
        model: str,
        *,
        largest_window: int,
    ) -> None:
        self._largest_window = largest_window
        self.seeds: dict[int, int | None] = {}
        self.left_out: Counter[str] = Counter()
        self.digests: set[str] = set()
        infos = tape.runs()
        calls = {info.id: tape.calls(info.id) for info in infos}
        names: Counter[str] = Counter()
        for of_run in calls.values():
            names.update(call.attempt.request.model for call in of_run)
        names.pop(HUMAN, None)
        # A tape of several models: those of the one that is asked, else of the one asked most.
        self._model = model
        if model not in names and names:
            [(self._model, _)] = names.most_common(1)
        for info in infos:
            with checked(f"run {info.id} on the tape {tape.path} cannot be asked again"):
                self._add(info, calls[info.id])

    def _add(self, info: RunInfo, calls: Sequence[RecordedCall]) -> None:
        """Add the calls that a run made itself."""
        named_digests = {
            str(model["digest"])
            for model in _models_of(info)
            if model.get("digest") and model.get("name") == self._model
        }
        seeds = sampling_seeds(info, calls)
        for call in calls:
            request = call.attempt.request
            window = request.options.get("num_ctx", 0)
            reason = ""
            # An invalid reply is one of the model's too; one that was broken off has no end.
            if call.attempt.reply is None or call.attempt.reason not in (None, "invalid_response"):
                reason = "without a whole reply"
            elif request.model == HUMAN:
                reason = "to people"
            elif request.model != self._model:
                reason = "to other models"
            elif seeds[call.id] is None and request.options.get("temperature") != 0:
                reason = "whose seed the server chose"
            # Memory for it is taken at once: a tape of somebody else's must not take all there is.
            elif not isinstance(window, int) or window > self._largest_window:
                reason = f"with a window of more than {self._largest_window:,} tokens"
            if reason:
                self.left_out[reason] += 1
                continue
            self.seeds[call.id] = seeds[call.id]
            self.digests |= named_digests


def sampling_seeds(
    info: RunInfo,
    calls: Sequence[RecordedCall],
) -> dict[int, int | None]:
    """Return the seeds that a run gave its calls, by their numbers; None where it gave none.

    Args:
        info: the run.
        calls: all that it made itself, in their order.
    """
    config = as_mapping(info.manifest.get("config"))
    replicate = config.get("replicate", 0)
    seed = info.manifest.get("seed")
    sampling = None
    if seed is not None and replicate is not None:
        sampling = (seed, replicate)
    logs: dict[int | None, CallLog] = {}
    seeds: dict[int, int | None] = {}
    for call in calls:
        request = call.attempt.request
        turn = request.site.turn if request.site else None
        # A configured seed goes before the run's, as when it was recorded.
        own_seed = request.options.get("seed")
        if own_seed is not None:
            seeds[call.id] = own_seed
        elif call.attempt.first is not None:
            # Of the same call: its first reply was of no use, and so is its seed.
            first_seed = seeds.get(call.attempt.first)
            seeds[call.id] = None
            if first_seed is not None:
                seeds[call.id] = second_seed(first_seed)
        else:
            # It counts equal questions, whose seeds differ by which of them it is.
            if turn not in logs:
                logs[turn] = CallLog(
                    info.name,
                    turn or 0,
                    None,
                    sampling=sampling,
                )
            # A world's own call had no site when its seed was drawn: the tape gave it one.
            if request.site is not None and request.site.component == BY_PLAIN_CODE:
                request = replace(request, site=None)
            seeds[call.id] = logs[turn].begin(request)
    return seeds


# --- judging --------------------------------------------------------------------------------------


async def _asked_again(
    client: LLMClient,
    call: RecordedCall,
    seed: int | None,
) -> AskedAgain:
    """Ask a call again, and judge the recorded reply."""
    request = _request_again(client, call.attempt.request, seed)
    recorded = call.attempt.reply
    assert recorded is not None  # as the pool has it
    backend = client.backend
    longest_s = client.config.total_timeout_s or client.config.first_wait_s
    try:
        # A backend alone waits for ever.
        async with asyncio.timeout(longest_s):
            reply = await backend.chat(request)
        if request.top_logprobs is not None and recorded.top_logprobs:
            return _judged_choice(call, recorded, reply)
        if _words(reply) == _words(recorded):
            return AskedAgain(call, "equal")
        if not isinstance(backend, EmbeddedBackend):
            return AskedAgain(
                call,
                "differs",
                _difference(recorded.text, reply.text),
            )
        # The grammar of embedded models leaves none; a script's JSON mostly has some.
        if request.schema and re.search(r"\s", _TEXT_IN_JSON.sub("", recorded.text)):
            detail = _difference(recorded.text, reply.text)
            return AskedAgain(
                call,
                "not this model's",
                f"{detail}; it writes no blank between fields",
            )
        return await _judged_tokens(backend, request, call, recorded)
    except BackendError as error:
        return AskedAgain(call, "unanswered", clip(str(error), 200))
    except TimeoutError:
        return AskedAgain(call, "unanswered", f"no reply within {longest_s:g} s")


def _request_again(
    client: LLMClient,
    request: ChatRequest,
    seed: int | None,
) -> ChatRequest:
    """Return a recorded request as it is sent again."""
    options = dict(request.options)
    if seed is not None:
        options["seed"] = seed
    if isinstance(client.backend, EmbeddedBackend):
        # What it read before would change the last digits.
        options["cache_prompt"] = False
    likely = request.top_logprobs
    if likely is not None:
        likely = min(likely, client.backend.max_top_logprobs) or None
    return replace(
        request,
        model=client.config.model,
        options=options,
        top_logprobs=likely,
        # How long a model stays loaded is not for a tape to say.
        keep_alive=client.config.keep_alive,
        timeout_s=client.config.timeout_s,
    )


def _words(reply: ChatReply) -> tuple[object, ...]:
    """Return what a model wrote."""
    # A server numbers tool calls anew each time, so that their ids would always differ.
    calls = [(call.name, dict(call.arguments)) for call in reply.tool_calls]
    return reply.text, reply.thinking, calls


def _difference(recorded: str, written: str) -> str:
    """Return where two texts begin to differ, in words."""
    start = 0
    for mine, other in zip(recorded, written, strict=False):
        if mine != other:
            break
        start += 1
    from_there = recorded[start : start + _SHOWN]
    here = written[start : start + _SHOWN]
    return f"recorded {from_there!r} from character {start + 1} on, and now {here!r}"


def _judged_choice(
    call: RecordedCall,
    recorded: ChatReply,
    reply: ChatReply,
) -> AskedAgain:
    """Judge the probabilities of an answer's first token."""
    # Not their logarithms: those of what is hardly ever said differ much, and mean nothing.
    then = {token: math.exp(logarithm) for token, logarithm in recorded.top_logprobs}
    now = {token: math.exp(logarithm) for token, logarithm in reply.top_logprobs}
    if then == now:
        return AskedAgain(call, "equal")
    # What the other list lacks is at most as likely as the last that it has, and mostly less.
    distances = {token: abs(share - now.get(token, 0.0)) for token, share in then.items()}
    furthest = max(distances, key=distances.__getitem__)
    detail = (
        f"probability of {furthest!r} recorded as {then[furthest]:.3f}, and now "
        f"{now.get(furthest, 0.0):.3f}"
    )
    if distances[furthest] > CHOICE_REACH:
        return AskedAgain(call, "not this model's", detail)
    return AskedAgain(call, "within reach", detail)


async def _judged_tokens(
    backend: EmbeddedBackend,
    request: ChatRequest,
    call: RecordedCall,
    recorded: ChatReply,
) -> AskedAgain:
    """Judge a reply that differs, at its first token that does."""
    wanted = recorded.text.encode()
    traced = await backend.traced(replace(request, top_logprobs=_LIKELY))
    text = b"".join(token.content for token, _ in traced)
    detail = _difference(recorded.text, text.decode(errors="replace"))
    difference = _first_difference(traced, wanted)
    if difference is None:
        return AskedAgain(call, "not this model's", f"{detail}, which is none of its likely words")
    written = difference.written
    likeliest = difference.fitting[0]
    detail += f" (probability {likeliest.probability:.2g}, and {written.probability:.2g})"
    # At temperature 0 the sampler takes the likeliest. Otherwise it leaves out what is less likely,
    # before the temperature: llama.cpp's order is top_k, typical_p, top_p, min_p, temperature.
    temperature = _option(request, "temperature", 1.0, most=5.0)
    least_share = 1.0
    if temperature > 0:
        least_share = _option(request, "min_p", _MIN_P, most=1.0)
    least = written.probability * least_share * math.exp(-_NOISE)
    if likeliest.probability < least:
        return AskedAgain(call, "not this model's", detail)
    if temperature > 0 and not request.options.keys() - _PLAIN_OPTIONS:
        distance = _distance(difference, temperature)
        if distance > _DRAW_REACH:
            detail += f"; {distance:.2f} away from what its seed draws"
            return AskedAgain(call, "not this model's", detail)
    return AskedAgain(call, "within reach", detail)


def _option(
    request: ChatRequest,
    name: str,
    default: float,
    *,
    most: float,
) -> float:
    """Return an option, from 0 to the most that it can be; the default where it is no number."""
    value = request.options.get(name)
    if not isinstance(value, int | float) or math.isnan(value):
        return default
    return min(max(value, 0.0), most)


def _with_exact_ones(answers: Sequence[AskedAgain]) -> list[AskedAgain]:
    """Return answers, of which none is within reach where the numbers are the same as recorded.

    Recorded without a prompt cache, a reply differs only where another processor computes. Then
    most differ; where most are equal, the numbers are the same, and a reply that differs is not the
    model's.
    """
    # A tape may have both kinds, as where a run was resumed with other settings.
    repeatable = [answer for answer in answers if _is_repeatable(answer)]
    equal = [answer for answer in repeatable if answer.verdict == "equal"]
    if 2 * len(equal) < len(repeatable):
        return list(answers)
    judged = []
    for answer in answers:
        if answer.verdict == "within reach" and _is_repeatable(answer):
            answer = answer._replace(verdict="not this model's")
        judged.append(answer)
    return judged


def _is_repeatable(answer: AskedAgain) -> bool:
    """Return True if a call was recorded without a prompt cache."""
    return answer.call.attempt.request.options.get("cache_prompt") is False


class _Difference(NamedTuple):
    """Where a text begins to differ from a reply.

    Attributes:
        written: the reply's token.
        fitting: those that the text may have there, the likeliest first.
        likely: all that are listed, likewise.
    """

    written: Token
    fitting: Sequence[Token]
    likely: Sequence[Token]


def _first_difference(traced: Sequence[TracedToken], wanted: bytes) -> _Difference | None:
    """Return where a text begins to differ from a reply; None if it has no likely token there.

    Where a grammar chose among unlikely tokens, the text's may be one that is not listed: then the
    rarest that is listed stands for it.
    """
    # Bytes, since a token may end within a letter.
    starts = [0]
    for token, _ in traced:
        # A token without bytes ends the reply.
        if not token.content or not wanted.startswith(token.content, starts[-1]):
            break
        starts.append(starts[-1] + len(token.content))
    differs_at = starts[-1]
    last = len(starts) - 1
    # The token before it too: " in" and " 1" may begin with a token of a blank in one of them.
    for place in (last, last - 1):
        if place < 0:
            break
        if place == len(traced):  # the text goes on where the reply has ended
            continue
        written, listed = traced[place]
        likely = sorted(listed, key=lambda token: token.probability, reverse=True)
        start = starts[place]
        fitting = [token for token in likely if _goes_on(wanted, token.content, start, differs_at)]
        if fitting:
            return _Difference(written, fitting, likely)
        if likely and written not in _drawn_from(likely):
            # The grammar left none of those, as between two fields, where ':"' may also be written
            # as ':' and '"'.
            return _Difference(written, likely[-1:], likely)
    return None


def _drawn_from(likely: Sequence[Token]) -> list[Token]:
    """Return the tokens that the sampler draws from, where no grammar leaves it others."""
    top = likely[:_TOP_K]
    whole = math.fsum(token.probability for token in top)
    drawn_from: list[Token] = []
    mass = 0.0
    for token in top:
        if mass >= _TOP_P * whole or token.probability < _MIN_P * top[0].probability:
            break
        drawn_from.append(token)
        mass += token.probability
    return drawn_from


def _distance(difference: _Difference, temperature: float) -> float:
    """Return how far apart the tokens of a text and of a reply lie for the sampler, 0 to 1.

    It lays its tokens side by side, the likeliest first, each as wide as it is likely, and takes
    the one on which its random number falls. That number follows from the seed. So where the
    widths differ a little, another token is drawn that lies beside the first, however likely
    others are. 0 if one of the two was left to the sampler by the grammar.
    """
    drawn_from = _drawn_from(difference.likely)
    # The temperature is what comes last, after some tokens were left out.
    widths = [token.probability ** (1 / temperature) for token in drawn_from]
    whole = math.fsum(widths)
    distances = []
    for token in difference.fitting:
        if token not in drawn_from or difference.written not in drawn_from:
            return 0.0
        ends = [token, difference.written]
        first, second = sorted(drawn_from.index(end) for end in ends)
        between = 0.0
        for place in range(first + 1, second):
            # One that is about as likely as an end may have had its place before.
            if not any(_are_tied(drawn_from[place], end) for end in ends):
                between += widths[place]
        distances.append(between / whole)
    return min(distances)


def _are_tied(first: Token, second: Token) -> bool:
    return abs(math.log(first.probability / second.probability)) <= _TIE


def _goes_on(
    wanted: bytes,
    content: bytes,
    start: int,
    differs_at: int,
) -> bool:
    """Return True if a token at a place of a text leads past where a reply differs from it."""
    if start == len(wanted):  # the text ends there, as a token without bytes says
        return not content
    end = start + len(content)
    return end > differs_at and wanted.startswith(content, start)
