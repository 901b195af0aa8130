"""The decisions of recorded runs as a table, whatever their kind."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import make_client, played

from llmsim_lab import Ask, Reply, Run, State, data_path
from llmsim_lab.run import load
from llmsim_lab.run.replies import reply_of
from llmsim_lab.types import Attempt, CallRecord, ChatReply, ChatRequest


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("first_run", {"action", "is_valid", "new_interest_rate", "accepted", "new_rate"}),
        ("social", {"next_state", "moved_to"}),
        ("crisis", {"state_updates", "events", "changes", "refused"}),
    ],
)
def test_a_loaded_run_has_its_decisions(name: str, columns: set[str], tmp_path: Path) -> None:
    run = load(data_path(f"tapes/{name}.tape"), 1)
    frame = run.decisions()
    assert columns <= set(frame.columns)
    assert len(frame) == sum(len(turn.answers) for turn in run.turns) > 0
    assert set(frame.run) == {1}
    assert all(frame[column].notna().any() for column in columns)
    for noted in columns & {"accepted", "new_rate", "moved_to"}:  # recorded by player alone
        assert not frame.dropna(subset=[noted]).duplicated(["turn", "player"]).any()
    frame.to_parquet(tmp_path / "x.parquet")
    assert len(pd.read_parquet(tmp_path / "x.parquet")) == len(frame)


class Support(Reply):
    support: int
    share: float = 0.0
    tokens: int = 0
    said: str = ""


class Poll(State):
    polls: int = 0


class Voters(Run[Poll]):
    async def turn(self, state: Poll, ask: Ask) -> Poll:
        await ask.each(["Ann", "Bob", "Cy", "Di"], Support, "You are {{ name }}. Your support?")
        return state


def asked_of(world: type[Run], *replies: dict[str, Any]) -> tuple[Run, pd.DataFrame]:
    said = [{"reasoning": "r", "confidence": 1, **reply} for reply in replies]
    run = played(world(llm_client=make_client(said)), 1)
    return run, run.decisions()


def voters(*replies: dict[str, Any]) -> pd.DataFrame:
    return asked_of(Voters, *replies)[1]


def test_a_number_that_a_model_wrote_as_a_text_is_a_number_in_the_table() -> None:
    rest = {"tokens": 1, "said": "3"}
    frame = voters(
        {"support": "3", "share": "0.5", **rest},
        {"support": 3.0, "share": 1, **rest},
        {"support": 4, "share": 0.25, **rest},
        {"support": "5.0", "share": "2", **rest},
    )
    assert sorted(frame.support.tolist()) == [3, 3, 4, 5]
    assert frame.support.dtype == "int64"
    assert (frame.support.sum(), frame["share"].sum()) == (15, 3.75)
    assert frame.said.tolist() == ["3"] * 4  # a text that is asked for stays one


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


class Order(Reply):
    count: int | None
    size: Size
    express: bool


class Shop(Run[Poll]):
    async def turn(self, state: Poll, ask: Ask) -> Poll:
        replies = await ask.each(["Ann", "Bob", "Cy", "Di"], Order, "You are {{ name }}. Order.")
        return state.replace(polls=sum(reply.count or 0 for reply in replies.values()))


def test_optional_numbers_enums_and_truth_values_are_what_the_world_got() -> None:
    run, frame = asked_of(
        Shop,
        {"count": "1000", "size": "1", "express": "yes"},
        {"count": None, "size": 2, "express": True},
        {"count": 1, "size": 2.0, "express": 0},
        {"count": 3.0, "size": 1, "express": "false"},
    )
    assert frame["count"].sum() == run.state.polls == 1_004
    assert [str(frame[name].dtype) for name in ("count", "size", "express")] == [
        "Int64",
        "int64",
        "bool",
    ]
    assert frame.express.sum() == 2


@pytest.mark.parametrize(
    ("kind", "value"),
    [({"type": ["integer", "null"]}, 3), (True, "3"), ({}, "3"), ({"$ref": "#/lost"}, "3")],
)
def test_a_schema_of_anybodys_does_no_harm(kind: Any, value: Any) -> None:
    schema = {"type": "object", "properties": {"n": kind}}
    request = ChatRequest(model="m", messages=(), schema=schema)
    attempt = Attempt(request=request, reply=ChatReply(text='{"n": "3"}'), seconds=0)
    call = CallRecord(history=(attempt,), status="ok")
    assert reply_of(call) == {"n": value}


def test_a_field_of_a_reply_takes_no_column_of_the_tables_own() -> None:
    frame = voters(*[{"support": 1, "share": 0, "tokens": 88, "said": ""}] * 4)
    assert frame.reply_reply_tokens.tolist() == [88] * 4
    assert frame.reply_tokens.tolist() == [0] * 4
    assert frame.columns.is_unique
