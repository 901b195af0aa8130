"""What a term costs, and what it leaves to a successor: by the formula, in words, for a class."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from builders import played

from llmsim_lab import Person
from llmsim_lab.economy import RudebuschSvensson, TaylorRule
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation.scores import Losses


def people_who_move(*moves: int, advice: bool = False, **fields: Any) -> Simulation:
    """Return a run of Ann, who makes these moves, from the third quarter of 1979."""
    left = iter(moves)
    said = {"action": "Move the rate", "reasoning": "So.", "confidence": 0.5}
    if advice:
        said["advice_asked"] = True
    values = {
        "nations": ["Ann"],
        "players": {"Ann": Person(lambda _: {**said, "rate_change_bp": next(left)})},
        "turns": len(moves),
        "start_at": "1979Q3",
        "economy": {"shock_scale": 0},
        "moves_bp": (-200, 0, 100, 200),
        **fields,
    }
    return played(Simulation(**values))


def parts_of(frame: pd.DataFrame) -> dict[str, float]:
    """Return the mean squares of a frame's quarters after its first."""
    moves = frame["interest_rate"].diff()[1:]
    parts = {
        "inflation": float(((frame["inflation"][1:] - 2) ** 2).mean()),
        "output_gap": float((frame["output_gap"][1:] ** 2).mean()),
        "rate_change": float((moves**2).mean()),
    }
    return {"loss": parts["inflation"] + parts["output_gap"] + 0.5 * parts["rate_change"], **parts}


@pytest.mark.parametrize("is_mirrored", [False, True])
def test_a_row_is_of_the_term_and_of_quarters_without_shocks_under_the_rule(
    is_mirrored: bool,
) -> None:
    economy = {"mirrored": is_mirrored, "shock_scale": 1}
    run = people_who_move(100, 0, start_at="1973Q1", economy=economy)
    board = Losses(run, None, None, after=3)
    frame = board.runs["you (Ann)"]
    assert frame.index.tolist() == frame["turn"].tolist() == [0, 1, 2, 3, 4, 5]
    term = frame[:3]
    row = board.frame.set_index("who").loc["you (Ann)"]
    assert row[["loss", "inflation", "output_gap", "rate_change"]].to_dict() == pytest.approx(
        parts_of(frame)
    )
    assert row["term"] == pytest.approx(parts_of(term)["loss"])
    assert row["last_rate"] == frame["interest_rate"][2]
    # The first quarter of the successor: as near to the rule's rate as two points go, no shock.
    before = run.turns[2].state.global_state
    wanted = TaylorRule().rate(
        inflation=before.inflation,
        output_gap=before.output_gap,
        previous_rate=before.interest_rate,
    )
    rate = frame["interest_rate"][3]
    reach = min(max(wanted, before.interest_rate - 2), before.interest_rate + 2, 25)
    assert rate == pytest.approx(max(reach, 0), abs=0.25)
    after = RudebuschSvensson().advance(before, interest_rate=rate)
    assert frame["inflation"][3] == pytest.approx(after.inflation)
    assert frame["output_gap"][3] == pytest.approx(after.output_gap)


# In one quarter nothing answers the rate, so that only its change costs: the rule moves by 200.
@pytest.mark.parametrize(("move", "verb"), [(0, "beats"), (200, "equals"), (-300, "loses to")])
def test_a_verdict_compares_the_people_with_the_rule_and_with_a_rate_held(
    move: int, verb: str
) -> None:
    board = Losses(people_who_move(move, moves_bp=(-300, 0, 200)), None, None, after=0)
    losses = board.frame.set_index("who")["loss"]
    mine = losses["you (Ann)"]
    rule = losses["Taylor rule"]
    assert board.verdict == (
        f"A loss of {mine:.1f} {verb} the rule's {rule:.1f} ({100 * (mine / rule - 1):+.1f} %). "
        f"Holding the rate would have cost {losses['rate held']:.1f}."
    )
    assert mine - losses["rate held"] == pytest.approx(0.5 * (move / 100) ** 2)
