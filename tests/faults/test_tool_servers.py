"""Tool servers with a fault each: what a model is shown of it, and what stays behind."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import odd_tool_server
import odd_tool_site
import pytest
from faults_kit import Attack, Case, Plan, serving

from llmsim_lab.assistant import FunctionCall, MCPToolExecutor
from llmsim_lab.assistant._toolbox import Toolbox

pytestmark = pytest.mark.process

ENDS = {
    "silence": "TIMEOUT",
    "errors without end": "TIMEOUT",
    "no result": "INVALID_RESULT",
    "a child that stays": "",
    "2,400 steps of progress": "",
    "a table as text": "",
    "a picture": "",
    # On a busy machine time may be up before it has sent too much.
    "a gigabyte in one line": "SERVER_DIED|TIMEOUT",
    "a line without end": "SERVER_DIED|TIMEOUT",
    "progress without end": "SERVER_DIED|TIMEOUT",
    "no JSON without end": "SERVER_DIED|TIMEOUT",
    "answers to nobody without end": "SERVER_DIED|TIMEOUT",
}
"""The code of a call's result, where it is known, as a pattern."""
ARGUMENTS: list[dict[str, object]] = [
    {},
    {"x": "a" * 40 + "b"},
    {"x": [{"k": number} for number in range(3_000)]},
    {"x": 1e308},
]
METHODS = ["tools/call", "tools/list", "initialize", "GET"]
"""What a site answers with its fault; the last asks for what it says by itself."""


def servers(plan: Plan) -> Iterator[Case]:
    logging.disable(logging.CRITICAL)
    for name, _ in plan.chosen(odd_tool_server.FAULTS, 6, 14):
        yield Case(name, {"use": partial(use, fault=name)}, wall_s=120)


async def use(_: Path, *, fault: str) -> None:
    patience_s = 3
    if odd_tool_server.FAULTS[fault].starts:
        patience_s = 60  # since a busy machine takes its time
    command = [sys.executable, odd_tool_server.__file__, fault]
    async with MCPToolExecutor(command, start_timeout_s=patience_s) as tools:
        box = await Toolbox.of(tools, timeout_s=5)
        for values in ARGUMENTS * 10:  # as a model may call a tool for one message
            await box.checked(FunctionCall("f", values))
        result = await box.run("f", {}, "ann")
        if fault in ENDS:
            assert re.fullmatch(ENDS[fault], result.error_code or ""), result


def sites(plan: Plan) -> Iterator[Case]:
    logging.disable(logging.CRITICAL)
    source = plan.source
    for name, _ in plan.chosen(odd_tool_site.FAULTS, 2, 5):
        methods = METHODS
        if plan.size != "long":
            methods = [source.choice(METHODS)]
        steps = {method: partial(use_site, fault=name, at=method) for method in methods}
        yield Case(name, steps)


async def use_site(_: Path, *, fault: str, at: str) -> None:
    with serving(partial(odd_tool_site.answer_with, fault, at)) as port:
        async with MCPToolExecutor(f"http://127.0.0.1:{port}/mcp", start_timeout_s=3) as tools:
            box = await Toolbox.of(tools, timeout_s=2)
            for _call in range(2):
                await box.run("f", {}, "ann")


def test_a_tool_servers_answer_over_http_is_a_result(attack: Attack) -> None:
    attack("servers: tools over HTTP", sites)


def test_a_tool_servers_fault_is_a_result_and_nothing_of_it_stays(attack: Attack) -> None:
    attack("servers: tools", servers)
