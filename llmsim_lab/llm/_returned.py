"""What backends return, with every field of its type, as a tape holds it and gives it back.

A backend of one's own may have numbers of numpy's, None for what it does not know, or a list for a
tuple: these are converted. What cannot be converted is an error that names the field, before it is
recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from llmsim_lab._util.checks import real_number, whole_number
from llmsim_lab._util.jsontext import MOST_LEVELS, JSONObject, dumps, is_too_deep, loads, plain
from llmsim_lab._util.text import brief, whole_text
from llmsim_lab.errors import BackendError, ConfigError, FailureReason
from llmsim_lab.types import ChatReply, ModelInfo, ToolCall

# Above it readers of JSON such as jq and JavaScript round.
_MOST_TOKENS = 2**53
# As a tape's lines have it at most: thirty years.
_MOST_SECONDS = 1e9

_MOST_PROBABILITY = 1.05
"""Of a token's alternatives together: servers round each."""


def returned_reply(reply: object, who: str) -> ChatReply:
    """Return a backend's reply with every field of its type.

    Args:
        reply: what its ``chat`` returned.
        who: the backend's class.

    Raises:
        ConfigError: it is not a reply.
        BackendError: a field is not what it must be; the message names it.
    """
    if type(reply) is ChatReply and _is_plain(reply):
        return reply
    if not isinstance(reply, ChatReply):
        raise ConfigError(
            f"{who}.chat returned {type(reply).__name__}; it must return ChatReply(text=...)"
        )
    try:
        return ChatReply(
            text=_text("text", reply.text),
            thinking=_text("thinking", reply.thinking, unsaid=""),
            tool_calls=_tool_calls(reply.tool_calls),
            done_reason=_text("done_reason", reply.done_reason, unsaid="stop"),
            prompt_tokens=_tokens("prompt_tokens", reply.prompt_tokens),
            reply_tokens=_tokens("reply_tokens", reply.reply_tokens),
            cached_tokens=_tokens("cached_tokens", reply.cached_tokens),
            seconds=_seconds("seconds", reply.seconds),
            load_seconds=_seconds("load_seconds", reply.load_seconds),
            top_logprobs=_alternatives(reply.top_logprobs, who),
        )
    except ConfigError as error:
        raise BackendError(
            f"{who}.chat returned a ChatReply that no tape can hold: {error}",
            reason="server_error",
        ) from error


def returned_fault(fault: BackendError, who: str) -> BackendError:
    """Return the failure that a backend raised, with every field of its type.

    Args:
        fault: what its ``chat`` raised.
        who: the backend's class.
    """
    reason: FailureReason = "server_error"
    # A backend of a user's own may make up reasons, which no tape and no message knows.
    if fault.reason in get_args(FailureReason):
        reason = fault.reason
    status_code = fault.status_code
    # A tape's lines have no others.
    if not (isinstance(status_code, int) and 100 <= status_code <= 999):
        status_code = None
    wait_s = fault.retry_after_s
    if not (isinstance(wait_s, int | float) and 0 <= wait_s <= _MOST_SECONDS):
        wait_s = None
    # A reply that was cut comes with its fault, and is kept on the tape.
    reply = fault.reply
    if reply is not None:
        reply = returned_reply(reply, who)
    sound = BackendError(
        str(fault),
        reason=reason,
        status_code=status_code,
        retry=bool(fault.retry),
        rejected=fault.rejected,
        retry_after_s=None if wait_s is None else float(wait_s),
        reply=reply,
    )
    # The same one where nothing had to be converted: it may be of a class of its own.
    return fault if _is_same(fault, sound) else sound


def _is_same(fault: BackendError, sound: BackendError) -> bool:
    """Return True if a fault has the sound one's values, of their types."""
    return (
        type(fault.message) is str
        and type(fault.retry) is bool
        and fault.reason == sound.reason
        and fault.status_code == sound.status_code
        and fault.retry_after_s == sound.retry_after_s
        and fault.reply is sound.reply
    )


def returned_info(info: object, who: str) -> ModelInfo:
    """Return which model a backend says that it asks, with every field of its type.

    Args:
        info: what its ``model_info`` returned.
        who: the backend's class.

    Raises:
        ConfigError: it is not a ``ModelInfo``.
        BackendError: a field is not a text; the message names it.
    """
    if not isinstance(info, ModelInfo):
        raise ConfigError(
            f"{who}.model_info returned {type(info).__name__}; it must return "
            "ModelInfo(name=..., backend=...)"
        )
    try:
        return ModelInfo(
            name=whole_text(_text("name", info.name)),
            backend=whole_text(_text("backend", info.backend)),
            digest=_text_if_any("digest", info.digest),
            version=_text_if_any("version", info.version),
        )
    except ConfigError as error:
        raise BackendError(
            f"{who}.model_info returned a ModelInfo that no tape can hold: {error}",
            reason="server_error",
        ) from error


def _text_if_any(name: str, value: object) -> str | None:
    """Return a text that a tape can hold; None for None."""
    if value is None:
        return None
    return whole_text(_text(name, value))


def _is_plain(reply: ChatReply) -> bool:
    """Return True for a reply as most are, with nothing to convert; quicker than to find out."""
    for tokens in (reply.prompt_tokens, reply.reply_tokens, reply.cached_tokens):
        if tokens is not None and not (type(tokens) is int and 0 <= tokens <= _MOST_TOKENS):
            return False
    return (
        # By the types themselves: True is an int, and numpy's float64 a float.
        type(reply.text) is type(reply.thinking) is type(reply.done_reason) is str
        and type(reply.seconds) is type(reply.load_seconds) is float
        and 0.0 <= reply.seconds <= _MOST_SECONDS
        and 0.0 <= reply.load_seconds <= _MOST_SECONDS
        and reply.tool_calls == ()
        and reply.top_logprobs == ()
    )


def _text(
    name: str,
    value: object,
    *,
    unsaid: str | None = None,
) -> str:
    """Return a field that is a text.

    Args:
        name: the field's, for messages.
        value: what it holds.
        unsaid: what stands for None, where a backend need not know it.

    Raises:
        ConfigError: it is something else.
    """
    if type(value) is str:
        return value
    if value is None and unsaid is not None:
        return unsaid
    if isinstance(value, str):
        # Past the subclass: an enumeration's own ``str`` is its member's name.
        return str.__str__(value)
    _not_huge(name, value)
    raise ConfigError(f"{name}={brief(value)} must be a text (str)")


def _tokens(name: str, value: object) -> int | None:
    """Return a field that counts tokens."""
    if value is None:
        return None
    # As numpy or a server's JSON has it: 12.0.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    _not_huge(name, value)
    return whole_number(
        name,
        value,
        least=0,
        most=_MOST_TOKENS,
    )


def _seconds(name: str, value: object) -> float:
    """Return a field that is a time."""
    if value is None:
        return 0.0
    _not_huge(name, value)
    return real_number(
        name,
        value,
        least=0,
        most=_MOST_SECONDS,
    )


def _not_huge(name: str, value: object) -> None:
    """Raise ConfigError for a number that no message could show."""
    # It is neither a float nor, of more than 4,300 digits, a text.
    if isinstance(value, int) and value.bit_length() > 64:
        raise ConfigError(f"{name} is a whole number of {value.bit_length():,} bits")


def _tool_calls(calls: object) -> tuple[ToolCall, ...]:
    """Return the calls of tools that a reply asks for."""
    # Almost all replies: asked first.
    if calls is None or calls == ():
        return ()
    if not isinstance(calls, list | tuple) or not all(isinstance(call, ToolCall) for call in calls):
        raise ConfigError(f"tool_calls={brief(calls)} must be a tuple of ToolCall")
    sound_calls = []
    for call in calls:
        number = None if call.id is None else _text("tool_calls.id", call.id)
        sound_call = ToolCall(
            name=_text("tool_calls.name", call.name),
            arguments=_arguments(call.arguments),
            id=number,
        )
        sound_calls.append(sound_call)
    return tuple(sound_calls)


def _arguments(values: object) -> JSONObject:
    """Return a call's arguments as a tape gives them back."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"tool_calls.arguments={brief(values)} must be a mapping of names")
    if is_too_deep(values):
        raise ConfigError(
            f"tool_calls.arguments={brief(values)} must be values of JSON: they are nested more "
            f"than {MOST_LEVELS} deep"
        )
    try:
        # Written and read, so that a tool gets in the run what it gets in a replay.
        arguments: JSONObject = loads(dumps(plain(values)))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"tool_calls.arguments={brief(values)} must be values of JSON: {error}"
        ) from error
    return arguments


def _alternatives(
    pairs: object,
    who: str,
) -> tuple[tuple[str, float], ...]:
    """Return tokens with their log-probabilities, the likeliest first, without impossible ones.

    Args:
        pairs: of token and natural log-probability, as the server says.
        who: the server, for messages.

    Raises:
        BackendError: a token is not a text, a number is not the logarithm of a probability, or the
            probabilities add up to more than 1.
    """
    if pairs is None or pairs == ():
        return ()
    alternatives: list[tuple[str, float] | None] = [None]
    if isinstance(pairs, Sequence):
        alternatives = [_alternative(pair) for pair in pairs]
    sound = [alternative for alternative in alternatives if alternative is not None]
    # What is no logarithm mostly shows by its sum: percents, or probabilities themselves.
    total = math.fsum(math.exp(logarithm) for _, logarithm in sound)
    if len(sound) < len(alternatives) or total > _MOST_PROBABILITY:
        raise BackendError(
            f"{who} sent {brief(pairs, 200)} where tokens and the logarithms of their "
            "probabilities should be",
            reason="server_error",
            status_code=200,
            retry=True,
        )
    # A server lists what a grammar forbids with minus infinity, which JSON cannot hold.
    possible = [(token, min(value, 0.0)) for token, value in sound if value > -math.inf]
    # The likeliest first: servers have them in some order, and replays compare replies.
    likeliest_first = sorted(possible, key=lambda alternative: -alternative[1])
    return tuple(likeliest_first)


def _alternative(pair: object) -> tuple[str, float] | None:
    """Return a token and its log-probability; None if it is something else."""
    if not isinstance(pair, Iterable) or isinstance(pair, str):
        return None
    parts = list(pair)
    if len(parts) != 2:
        return None
    token, value = parts
    if not isinstance(token, str) or isinstance(value, bool):
        return None
    try:
        logarithm = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    # A little above 0 is rounding; what is not a number compares False.
    if not logarithm < 1e-3:
        return None
    return str.__str__(token), logarithm
