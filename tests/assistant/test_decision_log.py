"""The decision log is a file of JSON lines, and survives a crash."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from assistant_kit import call, context, engine

from llmsim_lab.assistant import DecisionLog
from llmsim_lab.errors import DataError


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def test_a_message_leaves_its_decision_and_its_tools(tmp_path: Path) -> None:
    made = engine(call("add_task", title="Mäh"), "Added.", log=DecisionLog(tmp_path / "log.jsonl"))
    await made.process_message(context("Add Mäh"))
    pending, tool, decided = rows(tmp_path / "log.jsonl")
    assert [row["row"] for row in (pending, tool, decided)] == ["decision", "tool", "decision"]
    assert {row["decision_id"] for row in (pending, tool)} == {decided["decision_id"]}
    assert (pending["decision_type"], decided["decision_type"]) == ("PENDING", "INVOKE_TOOL")
    assert (decided["user_id"], decided["message"]) == ("ann", "Add Mäh")
    assert pending["time"] <= tool["time"] <= decided["time"]
    assert "Mäh" in (tmp_path / "log.jsonl").read_text(encoding="utf-8"), "for people to read"


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


async def test_half_a_character_is_its_escape_and_what_cannot_be_written_a_data_error(
    tmp_path: Path,
) -> None:
    log = DecisionLog(tmp_path / "log.jsonl")
    await log.write_decision_log(message="half \ud83d")
    assert [row["message"] for row in rows(log.path)] == ["half \ud83d"]
    with pytest.raises(DataError, match="cannot write to the decision log"):
        await DecisionLog(tmp_path).write_decision_log(message="Hi")
