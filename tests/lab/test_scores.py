"""The leaderboard: people, rule and model in one world, judged by one loss."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, played, recorded

from llmsim_lab import Person, data_path
from llmsim_lab.agents import TaylorRuleAgent
from llmsim_lab.economy import QuadraticLoss
from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.lab import HumanSeat, leaderboard
from llmsim_lab.run import load
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation.scores import world_differs

OIL = {"turn": 3, "set": {"shock.supply": 4}, "note": "oil"}
RULES = ("Taylor rule", "Taylor rule, inertia 0.5")
QUARTERS = tuple(range(-200, 201, 25))


def held(turns: int = 2, *, names: tuple[str, ...] = ("Aland",), **fields: Any) -> Simulation:
    """People who keep the rate where it is, turn after turn."""
    players = dict.fromkeys(names, Person(lambda _: moved_by(0)))
    calm = {"start_at": "1979Q3", "economy": {"shock_scale": 0}, "moves_bp": QUARTERS}
    made = {"nations": names, "players": players, "llm_client": make_client(), "turns": turns}
    return played(Simulation(**calm | made | fields))


def moved_by(move: int) -> dict[str, Any]:
    return {
        "action": "Move the rate",
        "reasoning": "Wait and see.",
        "confidence": 0.5,
        "rate_change_bp": move,
    }


def test_the_rows_are_ordered_by_the_loss_of_the_same_quarters() -> None:
    simulation = held(8, seed=7, interventions=[OIL])
    board = leaderboard(simulation, model=load(data_path("tapes/first_run.tape"), 2))
    frame = board.frame
    assert frame["who"].tolist() == [
        "Taylor rule",
        "Taylor rule, inertia 0.5",
        "language model (qwen2.5-coder-1.5b)",
        "you (Aland)",
        "rate held",
    ]
    assert frame["loss"].iloc[3] == frame["loss"].iloc[4]  # these people held it too
    assert frame["loss"].is_monotonic_increasing
    parts = frame["inflation"] + frame["output_gap"] + 0.5 * frame["rate_change"]
    assert parts.tolist() == pytest.approx(frame["loss"].tolist())
    assert frame["last_rate"].round(2).tolist() == [25, 24.42, 16.5, 9.67, 9.67]


def test_without_a_model_its_row_says_how_to_get_one() -> None:
    board = leaderboard(held())
    last = board.frame.iloc[-1]
    assert (last["who"], math.isnan(last["loss"])) == ("language model", True)
    assert "model=connect('auto')" in last["note"]
    assert "model=load(tape, run)" in repr(board)
    assert "not played" in repr(board)


def test_a_model_that_fails_leaves_a_note_and_no_number() -> None:
    broken = make_client(BackendError("gone", reason="model_not_found"))
    board = leaderboard(held(names=("Aland", "Borduria")), model=broken)
    assert "people (Aland, Borduria)" in board.runs
    last = board.frame.iloc[-1]
    assert "ended at turn 0: agent of Aland in turn 1: model_not_found" in last["note"]
    assert math.isnan(last["loss"])


def test_a_model_without_valid_answers_has_a_note_beside_its_number() -> None:
    board = leaderboard(held(moves_bp=None), model=make_client(lambda _: "no JSON"))
    row = board.frame.set_index("who").loc["language model (auto)"]
    assert row["note"] == "2 of its answers were invalid, and the rate was held"
    assert not math.isnan(row["loss"])


def test_a_rule_among_models_needs_one_too() -> None:
    board = leaderboard(held(nations=["Aland", "Borduria"]))
    notes = dict(zip(board.frame["who"], board.frame["note"], strict=True))
    assert "a model is needed for Borduria" in notes["Taylor rule"]


def test_a_recorded_run_of_another_world_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be compared: its economy is another"):
        leaderboard(held(economy={"shock_scale": 1}), model=load(data_path("tapes/first_run.tape")))


def test_the_loss_aims_at_the_persons_target_unless_told_otherwise() -> None:
    nations = [{"name": "Aland", "inflation_target": 4}]
    simulation = held(nations=nations)
    assert leaderboard(simulation).loss == QuadraticLoss(inflation_target=4)
    gap_only = QuadraticLoss(gap_weight=0, rate_change_weight=0)
    assert "0 · gap²" in repr(leaderboard(simulation, loss=gap_only))


def test_a_run_without_people_has_no_leaderboard() -> None:
    with pytest.raises(ConfigError, match="has no people in it"):
        leaderboard(held(players="rule"))
    with pytest.raises(ConfigError, match="has no people in it"):
        leaderboard(held(players={}))


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
    verdict = (
        r"A loss of [\d.]+ loses to the rule's [\d.]+ \(\+[\d.]+ %\)\. Holding the rate would .*"
    )
    assert re.fullmatch(verdict, board.verdict)
    assert "quarters after it" not in repr(term)


def test_a_class_is_a_table_of_its_tapes_the_best_against_the_rule_first(tmp_path: Path) -> None:
    for name, move, seed in (("Ann", 200, 7), ("Bob", -450, 8)):
        said = moved_by(move) | ({"advice_asked": True} if name == "Bob" else {})
        recorded(
            Simulation(
                start_at="1979Q3",
                seed=seed,
                nations=[name],
                players={name: Person(lambda _, said=said: said)},
                tape=tmp_path / f"{name}.tape",
            ),
            1,
        )
    Simulation(llm_client=make_client(), tape=tmp_path / "c.tape").close()
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
    people = {"Ann": "person"}
    Simulation(nations=["Ann"], players=people, tape=tmp_path / "ann.tape").close()
    [row] = leaderboard(str(tmp_path)).to_dict("records")
    assert (row["name"], row["turns"], math.isnan(row["loss"])) == ("Ann", 0, True)
    assert "play a turn first" in row["note"]


def test_in_the_game_the_rule_beats_a_rate_held_on_nearly_every_seed() -> None:
    seat = HumanSeat.game("Ann")
    config = seat.simulation.config
    seat.close()
    won = 0
    moves = seat.simulation.moves_bp
    held = TaylorRuleAgent(rule=lambda *, previous_rate, **_: previous_rate, moves_bp=moves)
    for seed in range(10):
        losses = []
        for player in ("rule", held):
            run: Any = Simulation(config.model_copy(update={"seed": seed}), players={"Ann": player})
            losses.append(run.measures(config)["loss"](run.run()))
        won += losses[0] < losses[1]
    assert won >= 8


def test_what_was_done_during_the_run_is_done_to_the_others() -> None:
    simulation = held(1)
    simulation.intervene(1, {"inflation": 5})
    simulation.run(1)
    frame = leaderboard(simulation, after=0).runs["Taylor rule"]
    assert frame["inflation"][1] == pytest.approx(5)


@pytest.mark.parametrize(
    ("fields", "difference"),
    [
        ({"economy": {"shock_scale": 0.5}}, "its economy is another"),
        ({"seed": 6}, "its seed of the shocks is another: 6, not 5"),
        ({"engine": {"max_move": 1}}, "its limits of the rate is another"),
        ({"start_at": "1981Q1"}, "its starting state is another"),
        ({"interventions": ()}, "its list of interventions is another: [[], []], not"),
        ({"turns": 1}, "it has 1 turns, and 2 are compared"),
    ],
)
def test_another_world_is_named_as_the_difference(fields: dict[str, Any], difference: str) -> None:
    world: dict[str, Any] = {
        "seed": 5,
        "economy": {"shock_scale": 1.0},
        "interventions": [{"turn": 1, "set": {"shock.supply": 3}}],
    }
    assert difference in world_differs(held(**world), held(**world | fields))
    assert world_differs(held(**world), held(**world)) == ""
