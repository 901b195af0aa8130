"""Python functions as tools: what the model is told of them, and what their faults become."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from llmsim_lab.assistant import DeclaresTools, FunctionTools, ToolDeclaration, ToolExecutor
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


def broken() -> None:
    """Break."""
    raise RuntimeError("a bug")


def test_it_is_an_executor_that_declares_its_tools() -> None:
    tools = FunctionTools(series, slow)
    assert isinstance(tools, ToolExecutor)
    assert isinstance(tools, DeclaresTools)
    assert tools.get_available_tools() == ["series", "slow"]
    assert tools.get_tool_declarations(["series", "unknown"]) == [
        ToolDeclaration(
            "series",
            "Look up a series' latest figures.",
            {
                "type": "object",
                "properties": {
                    "name": {"enum": ["cpi", "gdp"], "type": "string"},
                    "last": {"type": "integer"},
                },
                "required": ["name"],
                "additionalProperties": False,
            },
        )
    ]


def test_what_needs_a_yes_is_declared_so() -> None:
    [tool] = FunctionTools(slow, destructive=["slow"]).get_tool_declarations(["slow"])
    assert tool.destructive is True


async def test_values_come_back_ready_for_json() -> None:
    result = await FunctionTools(series).execute("series", {"name": "cpi", "last": 2}, "ann")
    assert result.success
    assert result.data == [{"day": "2026-01-01", "value": 2.0}] * 2


async def test_an_async_function_is_awaited() -> None:
    assert (await FunctionTools(slow).execute("slow", {"text": "x"}, "ann")).data == "x"


@pytest.mark.parametrize(
    ("name", "parameters", "user", "error", "code"),
    [
        ("other", {}, "ann", "there is no tool 'other'", "TOOL_NOT_FOUND"),
        ("series", {"name": "oil"}, "ann", "name: ", "INVALID_PARAMETERS"),
        ("series", {"name": "cpi", "user_id": "x"}, "ann", "user_id", "INVALID_PARAMETERS"),
        ("series", {"name": "cpi"}, "bob", "bob may not see this", "TOOL_ERROR"),
    ],
)
async def test_faults_are_results(
    name: str, parameters: dict[str, Any], user: str, error: str, code: str
) -> None:
    result = await FunctionTools(series).execute(name, parameters, user)
    assert not result.success
    assert result.error_code == code
    assert error in (result.error or "")


async def test_a_bug_in_a_tool_is_raised_for_the_engine_to_see() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        await FunctionTools(broken).execute("broken", {}, "ann")


def _without_docstring(x: int) -> int:
    return x


def _untyped(x) -> None:  # type: ignore[no-untyped-def]
    """Do something."""


def _many(*xs: int) -> None:
    """Do something."""


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ([_without_docstring], "needs a docstring"),
        ([_untyped], "parameter 'x' of the tool '_untyped' needs a type"),
        ([_many], "has no name of its own"),
        ([lambda: 1], "has no name that a tool could have"),
        ([slow, slow], "two tools have the name 'slow'"),
    ],
)
def test_functions_that_make_no_tool_are_refused(functions: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FunctionTools(*functions)


def test_a_tool_that_needs_a_yes_must_be_there() -> None:
    with pytest.raises(ConfigError, match="destructive names no tool: fast"):
        FunctionTools(slow, destructive=["fast"])
