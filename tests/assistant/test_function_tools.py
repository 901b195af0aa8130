"""Python functions as tools: what the model is told of them, and what their faults become."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from assistant_kit import call, decide
from pydantic import BaseModel, Field

from llmsim_lab.assistant import FunctionTools, ToolExecutor
from llmsim_lab.errors import ConfigError, LabError


class Figure(BaseModel):
    day: date
    value: float


def series(name: Literal["cpi", "gdp"], user_id: str, last: int = 1) -> list[Figure]:
    """Look up a series' latest figures."""
    if user_id == "bob":
        raise LabError("bob may not see this")
    return [Figure(day=date(2026, 1, 1), value=last)] * last


async def slow(text: str) -> str:
    """Repeat a text."""
    return text


def unready() -> object:
    """Return what is not JSON."""
    return object()


def test_it_is_an_executor_that_declares_its_tools_and_returns_values_ready_for_json() -> None:
    tools = FunctionTools(series, slow)
    assert isinstance(tools, ToolExecutor)
    assert tools.get_available_tools() == ["series", "slow"]
    assert repr(tools) == "FunctionTools(series, slow)"
    [told] = tools.get_tool_declarations(["series", "unknown"])
    assert (told.name, told.description) == ("series", "Look up a series' latest figures.")
    name = {"enum": ["cpi", "gdp"], "type": "string"}
    properties = {"name": name, "last": {"default": 1, "type": "integer"}}
    rest = {"type": "object", "required": ["name"], "additionalProperties": False}
    assert told.parameters == {"properties": properties, **rest}
    result = asyncio.run(tools.execute("series", {"name": "cpi", "last": 2}, "ann"))
    assert result.success
    assert result.data == [{"day": "2026-01-01", "value": 2.0}] * 2


@pytest.mark.parametrize(
    ("name", "parameters", "user", "error", "code"),
    [
        ("other", {}, "ann", "there is no tool 'other'", "TOOL_NOT_FOUND"),
        ("series", {"name": "cpi", "first": 1}, "ann", "first: ", "INVALID_PARAMETERS"),
        ("series", {"name": "cpi", "user_id": "x"}, "bob", "bob may not see this", "TOOL_ERROR"),
        ("unready", {}, "ann", "Unable to serialize unknown type", "TOOL_ERROR"),
    ],
)
async def test_faults_are_results(
    name: str, parameters: dict[str, Any], user: str, error: str, code: str
) -> None:
    result = await FunctionTools(series, unready).execute(name, parameters, user)
    assert (result.success, result.error_code) == (False, code)
    assert error in (result.error or "")


async def test_a_tool_that_comes_to_the_end_of_its_data_raises_and_leaves_nobody_waiting() -> None:
    left: Iterator[str] = iter(())

    def line() -> str:
        """Return the next line."""
        return next(left)

    with pytest.raises(RuntimeError, match="the function raised StopIteration"):
        await FunctionTools(line).execute("line", {}, "ann")


async def test_a_tool_that_hangs_holds_up_neither_the_loop_nor_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    may_end, ended = threading.Event(), threading.Event()

    def hang() -> None:
        """Hang."""
        may_end.wait()
        ended.set()

    tools = FunctionTools(hang)
    decision = await decide("Go", call("hang"), "Too long.", tools=tools, timeout_seconds=0.05)
    [made] = decision.tool_calls or []
    assert made.result is not None
    assert made.result.error == "it gave no answer within 0.05 s; it may have been done anyway"
    assert "an assistant's timeout_seconds gives its tools longer" in caplog.text
    may_end.set()
    assert await asyncio.to_thread(ended.wait, 10)


def _without_docstring(x: int) -> int:
    return x


def _unknown_type(x: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Do something."""


def _callback(x: Callable[[], None]) -> None:
    """Do something."""


def _bad_limit(x: Annotated[str, Field(pattern="[")]) -> None:
    """Do something."""


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ([_unknown_type], "cannot come from JSON: .*Nowhere"),
        ([_callback], "cannot come from JSON"),
        ([_bad_limit], "cannot come from JSON"),
        ([_without_docstring], "needs a docstring"),
        ([lambda: 1], "needs a docstring"),
        ([slow, slow], "two tools have the name 'slow'"),
        ([slow], "destructive names no tool: gone"),
    ],
)
def test_functions_that_make_no_tool_are_refused(functions: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FunctionTools(*functions, destructive=["gone"])
