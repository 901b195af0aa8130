"""What keeps decisions safe: failures as values, and a yes that is one and counts once."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from llmsim_lab.assistant.errors import InvalidResponseError, LLMError, RateLimitError
from llmsim_lab.assistant.protocols import ToolExecutor
from llmsim_lab.assistant.types import PendingAction, ToolResult
from llmsim_lab.errors import ConfigError, LLMFailureException, TapeError
from llmsim_lab.logs import log_event

__all__ = [
    "as_llm_error",
    "not_by_itself",
    "result_text",
    "run_tool",
    "settle",
    "told_of_too_many",
    "yes_or_no",
]

logger = logging.getLogger(__name__)

_FULL_QUEUE = "maximum pending requests"
"""How an Ollama server says, with status 503, that its queue is full."""

_WORDS: dict[str, Literal["yes", "no"]] = {
    **dict.fromkeys(("yes", "ok", "okay", "confirm"), "yes"),
    **dict.fromkeys(("no", "cancel", "stop"), "no"),
    **dict.fromkeys(("ja", "bestätigen", "oui", "confirmer"), "yes"),
    **dict.fromkeys(("nein", "abbrechen", "non", "annuler"), "no"),
    **dict.fromkeys(("是", "是的", "好", "好的", "确认"), "yes"),
    **dict.fromkeys(("不", "不是", "不要", "否", "取消"), "no"),
}
_AROUND = " \t\r\n.,!'\"*\u3002\uff01\uff0c\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"
_settled: set[str] = set()
_settling = threading.Lock()


def yes_or_no(message: str) -> Literal["yes", "no"] | None:
    """Return the answer to "Shall I …?" that a message is, or None if it is neither.

    An answer is one of a few words in English, German, French or Chinese and nothing else, but for
    letters' case and the marks around it. A question mark makes it none.
    """
    return _WORDS.get(message.strip(_AROUND).casefold())


def settle(pending: PendingAction) -> bool:
    """Return True the first time that a pending action is answered in this process, on any thread.

    Whoever answers it, and however often: only the first answer counts.
    """
    with _settling:
        is_first = pending.call_id not in _settled
        _settled.add(pending.call_id)
    return is_first


def as_llm_error(error: Exception) -> LLMError:
    """Return what went wrong while a model was asked.

    Raises:
        TapeError: the error is one: a replay that lacks a call must not go on.
        ConfigError: the error is one: the program is set up wrong.
    """
    if isinstance(error, TapeError | ConfigError):
        raise error
    if isinstance(error, LLMError):
        return error
    fault: LLMError
    if isinstance(error, LLMFailureException):
        if error.reason == "rate_limited" or _FULL_QUEUE in error.detail:
            wait = getattr(error.__cause__, "retry_after_s", None)
            fault = RateLimitError(str(error), retry_after=wait)
        elif error.reason == "invalid_response":
            fault = InvalidResponseError(str(error))
        else:
            fault = LLMError(str(error), error.reason.upper())
    elif isinstance(error, TimeoutError):
        fault = LLMError(f"no answer in time: {error}".rstrip(": "), "TIMEOUT")
    else:
        logger.error("assistant_failure", exc_info=error)
        fault = LLMError(f"{type(error).__name__}: {error}", "UNEXPECTED")
    fault.__cause__ = error
    return fault


async def run_tool(
    executor: ToolExecutor, name: str, parameters: dict[str, Any], user_id: str, *, timeout_s: float
) -> ToolResult:
    """Run a tool; whatever goes wrong is a result.

    Args:
        executor: runs it.
        name: the tool.
        parameters: its arguments, checked.
        user_id: who it acts for.
        timeout_s: longest wait, seconds.

    Raises:
        TapeError: a replay lacks the call.
    """
    try:
        with not_by_itself(f"the tool {name!r}"):
            async with asyncio.timeout(timeout_s):
                result: Any = executor.execute(name, parameters, user_id)
                if inspect.isawaitable(result):
                    result = await result
    except TapeError:
        raise
    except LLMError as error:
        return _failure(name, error.message, error.code)
    except TimeoutError:
        return _failure(name, f"it gave no answer within {timeout_s:g} s", "TIMEOUT")
    except Exception as error:
        logger.warning("tool_failure", exc_info=error)
        return _failure(name, f"it failed: {type(error).__name__}", "TOOL_ERROR")
    if not isinstance(result, ToolResult):
        return _failure(name, f"it returned {type(result).__name__}", "INVALID_RESULT")
    return result


@contextmanager
def not_by_itself(who: str) -> Iterator[None]:
    """Make a failure of a cancellation that nobody asked for: someone raised it of its own.

    Raises:
        RuntimeError: in its place.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError(f"{who} cancelled itself") from error


def _failure(name: str, what: str, code: str) -> ToolResult:
    log_event(logger, logging.WARNING, "tool_failure", tool=name, code=code, detail=what)
    return ToolResult(success=False, error=what, error_code=code)


def told_of_too_many(most: int) -> str:
    """Return what the model is told of a call that is one too many."""
    return f"error TOO_MANY_CALLS: only the first {most} calls of an answer are made"


def result_text(result: ToolResult, *, max_chars: int) -> str:
    """Return a result as the model reads it; says so where it was cut.

    Args:
        result: the result.
        max_chars: longest text, characters, the remark on what is missing left out.
    """
    if result.success:
        try:
            text = json.dumps(result.data, ensure_ascii=False, default=str)
        except (TypeError, ValueError, RecursionError):  # keys that are no names, or cycles
            text = repr(result.data)
    else:
        text = f"error {result.error_code or ''}: {result.error or 'it does not say what'}"
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}\n(cut here: {len(text):,} characters, of which {max_chars:,} shown)"
