"""What a turn gets from outside: a tool's answer, a file, a clock; recorded like a reply."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from inspect import isawaitable
from typing import Any

from llmsim_lab._util.jsontext import MOST_LEVELS, dumps, encode, is_too_deep, loads_strictly, plain
from llmsim_lab._util.text import brief, clip, whole_text
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.calls.recorded import until_cancelled
from llmsim_lab.llm.scope import scope
from llmsim_lab.tape.recorder import Outside

_MOST_OUTSIDE = 500
"""How much of each question and answer is shown, in characters."""


async def from_outside(
    kind: str,
    key: object,
    work: Callable[[], Awaitable[object]],
    *,
    once: bool = False,
    fallback: object = None,
) -> Any:
    """Do what ``Ask.outside`` does, for the run that is being played, if there is one.

    For code that takes part in a turn but has no ``Ask``, such as an executor of tools.
    """
    # As the tape has the key, since the result is looked up by it.
    key = json_ready(f"the key of {kind}", key)
    recorder = scope().recorder
    outside = recorder.find_outside(kind, key)
    # On a tape ``stopped`` means two things. With seconds: the turn's code waited no longer. With
    # ``once`` and no seconds: the work failed, or its process ended, and it counts as done.
    is_given_up = outside.stopped and (not once or outside.seconds > 0)
    if is_given_up and recorder.is_replay:
        await until_cancelled(f"ask.outside({kind!r}, ...)", outside.seconds)
    if is_given_up and once:
        # The turn is played again, and must not do this again. It is now recorded without seconds,
        # so that a replay of this turn takes the fallback at once.
        recorder.outside(
            kind,
            key,
            nth=outside.nth,
            once=True,
            stopped=True,
        )
    if is_given_up and not once:
        # When the turn is played again, the work is done again.
        outside = Outside(outside.nth)
    if outside.is_done and outside.stopped:
        return fallback
    if outside.is_done:
        return plain(outside.result)  # a copy, since the caller may change it
    record = partial(
        recorder.outside,
        kind,
        key,
        nth=outside.nth,
    )
    if once:
        record = partial(record, once=True)
        # Recorded before the work begins, so that work broken off halfway counts as done.
        record()
    began = time.monotonic()
    try:
        answer: object = work()
        if isawaitable(answer):
            answer = await answer
        # In the form that a replay will return: JSON may change a value.
        result = json_ready(f"what {kind} gave", answer)
    except asyncio.CancelledError:
        record(stopped=True, seconds=time.monotonic() - began)
        raise
    # Not only Exception: the work may have been done even if it was broken off.
    except BaseException:
        if once:
            record(stopped=True)
        raise
    record(result=result)
    return result


def json_ready(subject: str, value: object) -> Any:
    """Return a value as a tape gives it back; half characters in its texts are replaced.

    Args:
        subject: the value in words, for messages.
        value: the value.

    Raises:
        ConfigError: JSON cannot hold it.
    """
    if is_too_deep(value):
        raise ConfigError(
            f"{subject} is nested too deeply for a tape: more than {MOST_LEVELS} lists and dicts "
            "in one another"
        )
    try:
        return loads_strictly(whole_text(encode(value)).encode())
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{subject}, {brief(value, 80)}, is not ready for JSON: {error}"
        ) from error


def outside_in_words(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what came from outside, one line of text each: ``weather "Rome": {"rain":true}``.

    Args:
        lines: the lines of a turn, as ``Tape.outside`` has them. Of equal lines the latest counts.
    """
    # The first line of work that is done once only says that it begins.
    latest: dict[tuple[str, str, object], Mapping[str, Any]] = {}
    for line in lines:
        latest[line["what"], dumps(line["key"]), line.get("nth")] = line
    texts = []
    for (kind, key_as_json, _), line in latest.items():
        # A text reads better without JSON's quotes.
        key = key_as_json
        if isinstance(line["key"], str):
            key = line["key"]
        question = f"{kind} {key}".rstrip()
        answer = dumps(line["result"]) if "result" in line else "stopped before it answered"
        texts.append(f"{clip(question, _MOST_OUTSIDE)}: {clip(answer, _MOST_OUTSIDE)}")
    return texts
