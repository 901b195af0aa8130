"""The leaderboard: people, rule and model in one world, judged by one loss."""

from __future__ import annotations

import math
from typing import Any

import pytest
from builders import in_words, make_client

from llmsim_lab._util.files import data_path
from llmsim_lab.economy import QuadraticLoss
from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.lab import leaderboard
from llmsim_lab.run import load
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation._counterfactual import people_in

OIL = {"turn": 4, "shock": {"supply": 4}, "note": "oil"}


def held(turns: int = 2, *, names: tuple[str, ...] = ("Aland",), **fields: Any) -> Simulation:
    """People who keep the rate where it is, turn after turn."""
    fields.setdefault("start", "1979Q3")
    fields.setdefault("validator", {"kind": "always_valid"})
    fields.setdefault("nations", [{"name": name, "kind": "human"} for name in names])
    simulation = Simulation(in_words(turns=turns, **fields), llm_client=make_client())
    for person in people_in(simulation):
        person.person.ask = lambda _: hold_at(9.673333)
    simulation.run()
    return simulation


def hold_at(rate: float) -> dict[str, Any]:
    return {
        "action": "Hold the rate",
        "reasoning": "Wait and see.",
        "confidence": 0.5,
        "proposed_rate": rate,
    }


def test_the_rows_are_ordered_by_the_loss_of_the_same_quarters() -> None:
    simulation = held(8, seed=7, interventions=[OIL])
    board = leaderboard(simulation, model=load(data_path("tapes/first_run.tape"), 2))
    frame = board.frame
    assert frame["who"].tolist() == [
        "Taylor rule",
        "language model (qwen2.5-coder-1.5b)",
        "you (Aland)",
    ]
    assert frame["loss"].is_monotonic_increasing
    parts = frame["inflation"] + frame["output_gap"] + 0.5 * frame["rate_change"]
    assert parts.tolist() == pytest.approx(frame["loss"].tolist())
    assert frame["last_rate"].round(2).tolist() == [25, 16.5, 9.67]


def test_without_a_model_its_row_says_how_to_get_one() -> None:
    board = leaderboard(held())
    last = board.frame.iloc[-1]
    assert (last["who"], math.isnan(last["loss"])) == ("language model", True)
    assert "model=connect('auto')" in last["note"]
    assert "model=load(tape, run)" in repr(board)
    assert "<td" in board._repr_html_()
    assert "not played" in board._repr_html_()


def test_a_client_plays_the_same_quarters() -> None:
    board = leaderboard(held(), model=make_client(model="tiny"))
    assert "language model (tiny)" in board.runs
    assert len(board.runs["language model (tiny)"]) == 3


def test_a_model_that_fails_leaves_a_note_and_no_number() -> None:
    broken = make_client(BackendError("gone", reason="model_not_found"))
    board = leaderboard(held(), model=broken)
    last = board.frame.iloc[-1]
    assert "ended at turn 0: agent: model_not_found" in last["note"]
    assert math.isnan(last["loss"])


def test_a_rule_among_models_needs_one_too() -> None:
    nations = [{"name": "Aland", "kind": "human"}, {"name": "Borduria"}]
    board = leaderboard(held(nations=nations))
    notes = dict(zip(board.frame["who"], board.frame["note"], strict=True))
    assert "this run needs a model" in notes["Taylor rule"]


def test_a_recorded_run_of_another_world_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be compared: its economy is another"):
        leaderboard(held(economy={"shock_scale": 1}), model=data_path("tapes/first_run.tape"))


def test_the_loss_aims_at_the_persons_target_unless_told_otherwise() -> None:
    nations = [{"name": "Aland", "kind": "human", "inflation_target": 4}]
    simulation = held(nations=nations)
    assert leaderboard(simulation).loss == QuadraticLoss(inflation_target=4)
    gap_only = QuadraticLoss(gap_weight=0, rate_change_weight=0)
    assert "0 · gap²" in repr(leaderboard(simulation, loss=gap_only))


def test_several_people_are_judged_together() -> None:
    board = leaderboard(held(names=("Aland", "Borduria")))
    assert "people (Aland, Borduria)" in board.runs


def test_a_run_without_people_has_no_leaderboard() -> None:
    with pytest.raises(ConfigError, match="has no people in it"):
        leaderboard(held(nations=[{"name": "Rule", "kind": "taylor"}]))


def test_a_run_of_models_only_has_none_either() -> None:
    with pytest.raises(ConfigError, match="has no people in it"):
        leaderboard(held(nations=[{"name": "Model"}]))


def test_the_chart_shows_every_run_and_history_where_there_is_one() -> None:
    figure = leaderboard(held()).figure
    labels = [line.get_label() for line in figure.axes[0].get_lines()]
    assert labels == ["you (Aland)", "Taylor rule", "history (T-bill)"]


def test_an_undated_run_has_no_history() -> None:
    simulation = held(0, start=None)
    people_in(simulation)[0].person.ask = lambda _: hold_at(4.0)
    simulation.run(1)
    labels = [line.get_label() for line in leaderboard(simulation).figure.axes[0].get_lines()]
    assert labels == ["you (Aland)", "Taylor rule"]
