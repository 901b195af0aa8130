"""The decision log is a file of JSON lines, and survives a crash."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from assistant_kit import ScriptedAdapter, context, engine

from llmsim_lab.assistant import DecisionLog, LLMAgentEngine
from llmsim_lab.errors import ConfigError, DataError


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def test_lines_written_at_once_are_all_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    made = engine("Fine.", log=DecisionLog(path))

    async def several(start: int) -> None:
        messages = [context(f"m{start + number}" + "x" * 10_000) for number in range(5)]
        await asyncio.gather(*(made.process_message(message) for message in messages))

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, several(n)) for n in (0, 5)))
    decided = [row for row in rows(path) if row["decision_type"] == "RESPOND_ONLY"]
    assert sorted(row["message"].rstrip("x") for row in decided) == sorted(
        f"m{number}" for number in range(10)
    )


async def test_rows_are_for_people_to_read_and_what_cannot_be_written_is_a_data_error(
    tmp_path: Path,
) -> None:
    log = DecisionLog(tmp_path / "log.jsonl")
    await log.write_decision_log(message="half \ud83d")
    await log.write_tool_invocation_log(tool_name="Mäh")
    decision, tool = rows(log.path)
    assert (decision["row"], decision["message"]) == ("decision", "half \ud83d")
    assert (tool["row"], decision["time"] <= tool["time"]) == ("tool", True)
    assert "Mäh" in log.path.read_text(encoding="utf-8")
    with pytest.raises(DataError, match="cannot write to the decision log"):
        await DecisionLog(tmp_path).write_decision_log(message="Hi")


def test_a_log_that_writes_no_tools_is_told_both_methods() -> None:
    half: Any = SimpleNamespace(write_decision_log=print)
    with pytest.raises(ConfigError, match="write_decision_log and write_tool_invocation_log"):
        LLMAgentEngine(ScriptedAdapter(), None, "Be kind.", decision_log=half)
