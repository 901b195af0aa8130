"""The decisions of recorded runs as a table, whatever their kind."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from llmsim_lab._util.files import data_path
from llmsim_lab._util.tables import csv_text
from llmsim_lab.run import load, replay


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
    assert len(frame) == sum(len(turn.every_chain) for turn in run.turns) > 0
    assert set(frame.run) == {1}
    assert all(frame[column].notna().any() for column in columns)
    frame.to_parquet(tmp_path / "x.parquet")
    assert len(pd.read_parquet(tmp_path / "x.parquet")) == len(frame)


def test_what_a_user_of_the_network_decided_is_where_it_went() -> None:
    frame = load(data_path("tapes/social.tape"), 1).decisions()
    decided = frame.query("component == 'reasoner' and status == 'ok'").dropna(subset="next_state")
    assert (decided.next_state == decided.moved_to).all()


def test_a_replays_decisions_are_those_recorded() -> None:
    path = data_path("tapes/first_run.tape")
    assert csv_text(replay(path, 1).decisions()) == csv_text(load(path, 1).decisions())
