"""The leaderboard: people, rule and model in one world, judged by one loss."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from builders import in_words, make_client

from llmsim_lab._util.files import data_path
from llmsim_lab.economy import QuadraticLoss
from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.lab import HumanSeat, leaderboard
from llmsim_lab.run import load
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.simulation._counterfactual import _Held, people_in, rule_for

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
        "rate held",
    ]
    assert frame["loss"].iloc[2] == frame["loss"].iloc[3]  # these people held it too
    assert frame["loss"].is_monotonic_increasing
    parts = frame["inflation"] + frame["output_gap"] + 0.5 * frame["rate_change"]
    assert parts.tolist() == pytest.approx(frame["loss"].tolist())
    assert frame["last_rate"].round(2).tolist() == [25, 16.5, 9.67, 9.67]


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
    assert len(board.runs["language model (tiny)"]) == 3 + 12


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
    assert labels == ["you (Aland)", "Taylor rule", "rate held", "history (T-bill)"]


def test_an_undated_run_has_no_history() -> None:
    simulation = held(0, start=None)
    people_in(simulation)[0].person.ask = lambda _: hold_at(4.0)
    simulation.run(1)
    labels = [line.get_label() for line in leaderboard(simulation).figure.axes[0].get_lines()]
    assert labels == ["you (Aland)", "Taylor rule", "rate held"]


def test_the_quarters_after_the_term_count_and_are_the_rules() -> None:
    simulation = held(8, seed=7, interventions=[OIL])
    board, term = leaderboard(simulation), leaderboard(simulation, after=0)
    frame = board.runs["you (Aland)"]
    assert frame["turn"].tolist() == list(range(8 + 12 + 1))
    assert frame["interest_rate"].iloc[9] > frame["interest_rate"].iloc[8]  # the successor's
    mine, alone = (one.frame.set_index("who").loc["you (Aland)"] for one in (board, term))
    assert mine["term"] == alone["term"] == alone["loss"]
    assert mine["loss"] > mine["term"]  # what was left to the successor
    assert "12 quarters after it" in repr(board)
    assert "quarters after it" not in repr(term)


def test_the_verdict_compares_with_the_rule_and_with_a_rate_held() -> None:
    verdict = leaderboard(held(8, seed=7)).verdict
    assert re.fullmatch(
        r"A loss of [\d.]+ loses to the rule's [\d.]+ \(\+[\d.]+ %\)\. "
        r"Holding the rate would have cost [\d.]+\.",
        verdict,
    )


def test_a_class_is_a_table_of_its_tapes_the_best_against_the_rule_first(tmp_path: Path) -> None:
    for name, rate, seed in (("Ann", 11.67, 7), ("Bob", 5.17, 8)):
        config = {"start": "1979Q3", "validator": {"kind": "always_valid"}, "seed": seed}
        nations = [{"name": name, "kind": "human"}]
        simulation = Simulation(
            SimulationConfig(turns=1, nations=nations, **config), tape=tmp_path / f"{name}.tape"
        )
        [person] = people_in(simulation)
        said = hold_at(rate) | ({"advice_asked": True} if name == "Bob" else {})
        person.person.ask = lambda _, said=said: said
        simulation.run()
        simulation.close()
    Simulation(
        SimulationConfig(**config), llm_client=make_client(), tape=tmp_path / "c.tape"
    ).close()
    (tmp_path / "damaged.tape").write_text("not a tape")
    frame = leaderboard(tmp_path)
    assert frame["name"].tolist()[:2] == ["Ann", "Bob"]
    assert frame["seed"].tolist()[:2] == [7, 8]
    assert frame["turns"].tolist()[:2] == [1, 1]
    assert frame["advice_asked"].tolist()[:2] == [0, 1]
    assert frame["against_rule_pct"].iloc[0] < frame["against_rule_pct"].iloc[1]
    assert frame["date"].iloc[0].startswith("20")
    assert frame["tape"].tolist() == ["Ann.tape", "Bob.tape", "damaged.tape"]
    assert "tape" in frame["note"].iloc[2]
    with pytest.raises(ConfigError, match="there are no tapes in"):
        leaderboard(tmp_path / "nobody")


def test_a_class_has_a_row_without_a_loss_for_a_game_that_was_not_begun(tmp_path: Path) -> None:
    config = SimulationConfig(
        nations=[{"name": "Ann", "kind": "human"}], validator={"kind": "always_valid"}
    )
    Simulation(config, tape=tmp_path / "ann.tape").close()
    [row] = leaderboard(str(tmp_path)).to_dict("records")
    assert (row["name"], row["turns"], math.isnan(row["loss"])) == ("Ann", 0, True)
    assert "play a turn first" in row["note"]


def test_in_the_game_the_rule_beats_a_rate_held_on_nearly_every_seed() -> None:
    seat = HumanSeat.game("Ann")
    config = seat.simulation.config
    [person] = people_in(seat.simulation)
    seat.close()
    won = 0
    for seed in range(20):
        losses = []
        for hold in (False, True):
            rule = rule_for(person)
            agent = _Held(rule) if hold else rule
            frame = Simulation(config.with_values(seed=seed), agents=[agent]).run()
            parts = ("inflation", "output_gap", "interest_rate")
            losses.append(
                QuadraticLoss().of(**{name: frame[name].tolist() for name in parts}).total
            )
        won += losses[0] < losses[1]
    assert won >= 16
