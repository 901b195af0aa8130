"""The demonstration: who answers the economy, and what is said of it."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab._util.files import data_path
from llmsim_lab.economy import TaylorRule
from llmsim_lab.errors import ConfigError, EconomyError
from llmsim_lab.llm import LLMClient, ScriptedBackend, Tape
from llmsim_lab.run import Question
from llmsim_lab.simulation import Simulation, lint
from llmsim_lab.study import Demonstration
from llmsim_lab.study._demo import (
    DEMO_MOVES_BP,
    OIL,
    OIL_END,
    OIL_TURN,
    PLAYERS,
    RULE,
    Player,
    World,
    demo_config,
    demo_runs,
)
from llmsim_lab.types import ChatReply


def change(question: Question) -> int:
    """Return the change on offer that is nearest to what the rule asks for."""
    state = question.state
    levels = {"inflation": state.inflation, "output_gap": state.output_gap}
    asked = TaylorRule().rate(**levels, previous_rate=state.interest_rate) - state.interest_rate
    return min(DEMO_MOVES_BP, key=lambda move: abs(move / 100 - asked))


def chance(question: Question) -> Any:
    """Draw a move, whatever the economy does."""
    return {"rate_change_bp": question.rng.choice(DEMO_MOVES_BP)}


def backwards(question: Question) -> Any:
    """Take the smaller step, in the direction that the rule does not ask for."""
    asked = change(question)
    return {"rate_change_bp": -75 if asked > 0 else 75 if asked else 0}


def timid(question: Question) -> Any:
    """Follow the rule in every third quarter, and otherwise do nothing."""
    return {"rate_change_bp": 0 if question.turn % 3 else change(question)}


def shown(player: Player, seeds: int = 3) -> Demonstration:
    runs: dict[int, dict[World, Simulation]] = {}
    for seed in range(1, seeds + 1):
        runs[seed] = {}
        for world in ("plain", "mirrored", "oil"):
            config = demo_config(seed=seed, mirrored=world == "mirrored")
            simulation = Simulation(config, players=player)
            if world == "oil":
                simulation.intervene(**OIL)
            # Whoever drives the economy off the model's range is shown until then.
            with suppress(EconomyError):
                simulation.run(OIL_END if world == "oil" else config.turns)
            runs[seed][world] = simulation
    return Demonstration.of("the player", runs)


@cache
def of_the_rule() -> Demonstration:
    return shown(PLAYERS[RULE])


# --- verdicts -------------------------------------------------------------------------------------


def test_a_taylor_rule_answers_the_economy() -> None:
    answer = of_the_rule().answer()
    assert (answer.raised_low, answer.raised_high) == (answer.low, 0)
    assert answer.low >= 10
    assert answer.high >= 10
    assert of_the_rule().verdict == (
        f"the player raises the rate in {answer.low} of {answer.low} quarters in which it is "
        f"clearly too low for the economy and in 0 of {answer.high} in which it is clearly too "
        "high: it answers the economy."
    )


@pytest.mark.parametrize(
    ("player", "verdict"),
    [
        (chance, "it does not answer the economy"),
        (PLAYERS["no change"], "it does not answer the economy"),
        (PLAYERS["always +75 bp"], "it does not answer the economy"),
        (backwards, "it does the opposite of what the economy asks for"),
        (timid, "it answers the economy too little"),
    ],
    ids=["chance", "no change", "always", "backwards", "timid"],
)
def test_who_does_not_look_at_the_economy_or_not_enough_is_said_not_to_answer_it(
    player: Player, verdict: str
) -> None:
    assert shown(player, seeds=4).answer().verdict == verdict


def test_the_reason_has_the_chances_and_the_interval_of_their_difference() -> None:
    assert of_the_rule().answer().reason == (
        "Its chance of a rise is 100% where the rate is too low and 0% where it is too high "
        "(difference over 3 seeds +100.0 points, 95 % interval +100.0 to +100.0; to answer the "
        "economy takes 60 or more, such as 80% and 20%)."
    )


def test_one_seed_decides_nothing() -> None:
    found = shown(PLAYERS[RULE], seeds=1)
    assert found.verdict.endswith(": one seed does not decide whether it answers the economy.")
    assert repr(found).startswith("<Demonstration of the player, 1 seed: one seed does not decide")


def test_a_wide_interval_decides_nothing() -> None:
    """The rule in one seed, nothing in the others."""

    def mixed(question: Question) -> Any:
        return {"rate_change_bp": change(question) if question.run.seed == 1 else 0}

    assert shown(mixed, seeds=2).answer().verdict == (
        "2 seeds do not decide whether it answers the economy"
    )


def test_a_frame_has_a_row_a_player() -> None:
    frame = of_the_rule().to_frame()
    assert frame.index.tolist() == ["the player", *PLAYERS]
    counts = "raises, rate too low"
    assert frame.loc["the player", counts] == frame.loc[RULE, counts]
    assert frame.loc["no change", counts].startswith("0 of ")
    assert frame.loc["always +75 bp", "verdict"] == "it does not answer the economy"


# --- responses ------------------------------------------------------------------------------------


def test_the_response_to_oil_is_the_difference_of_two_runs_with_the_same_shocks() -> None:
    found = of_the_rule()
    inflation = found.responses("no change", "inflation")
    assert inflation.index.tolist() == list(range(OIL_TURN - 1, OIL_END + 1))
    assert (inflation.loc[OIL_TURN - 1] == 0).all()
    # Four points in a quarter are one over four of them, and nobody has answered yet.
    assert inflation.loc[OIL_TURN].tolist() == pytest.approx([1.0] * 3)
    assert (found.responses("no change").to_numpy() == 0).all()
    response = found.response(RULE)
    assert response.mean > 1
    assert response.interval is not None
    assert response.interval[0] > 0
    assert f"by {response.mean:+.2f} points (95 % interval" in found.headline
    assert found.headline.endswith("under the player (3 seeds).")
    assert str(found.response("no change")) == "no change: +0.00 points"


def test_an_unknown_player_or_column_is_named_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'nobody'.*there are interest_rate, .* always"):
        of_the_rule().path("nobody", "plain")
    with pytest.raises(ConfigError, match="no happiness of 'Taylor rule'"):
        of_the_rule().path(RULE, "plain", "happiness")


# --- recording ------------------------------------------------------------------------------------


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the recording script; it records only when run."""
    monkeypatch.syspath_prepend(data_path("tapes"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield importlib.import_module("record_demo")
    for name in set(sys.modules) - before:
        if name.startswith("record_"):
            del sys.modules[name]


def client() -> LLMClient:
    listed = tuple((letter, math.log(0.19)) for letter in "ABCDE")
    backend = ScriptedBackend(lambda _: ChatReply(text="A", top_logprobs=listed), name="coin")
    return LLMClient(demo_config().llm, backend)


def test_a_recording_that_was_broken_off_goes_on_and_is_read(recorder: Any, tmp_path: Path) -> None:
    path = tmp_path / "demo.tape"
    with Tape(path) as tape:
        broken = Simulation(demo_config(), llm_client=client(), tape=tape)
        broken.run(3)
        broken.close()
    goes_on = client()
    recorder.record(path, 1, goes_on)
    assert demo_runs(path) == {1: {"plain": 1, "mirrored": 2, "oil": 3}}
    assert len(goes_on.backend.requests) == 5 * (17 + 9 + 20)
    again = client()
    recorder.record(path, 1, again)
    assert again.backend.requests == []
    with Tape(path) as tape:
        half = Simulation(demo_config(seed=2), llm_client=client(), tape=tape)
        half.run(2)
        half.close()
    recorder.keep_whole(path)
    assert list(demo_runs(path)) == [1]
    found = Demonstration.read(path)
    assert found.model == "coin"
    assert found.runs[1]["plain"].turn_number == 20
    assert found.runs[1]["oil"].turn_number == OIL_END
    # A player that cannot tell the worlds apart draws the same moves in all of them.
    moves = found.paths.query("player == 'coin'").pivot_table(
        index="turn", columns="world", values="move_bp"
    )
    assert (moves["plain"] == moves["mirrored"]).all()
    # Two of five moves are rises, whatever was drawn.
    chances = found.paths.query("player == 'coin'")["chance"].dropna()
    assert chances.tolist() == pytest.approx([0.4] * len(chances))
    assert found.answer().interval is None


def test_readme_says_what_the_recording_says(shipped: Demonstration) -> None:
    found = shipped
    page = " ".join((data_path("tapes").parents[1] / "README.md").read_text("utf-8").split())
    # In words, and in the picture's text for those who cannot see it.
    assert page.count(found.verdict.removeprefix(f"{found.model} raises")) == 2
    low, high = found.response(found.model).interval
    rule, model = (found.response(player).mean for player in (RULE, found.model))
    effect = f"the model's by {model:+.2f} (95 % interval {low:+.2f} to {high:+.2f})"
    assert f"rate by {rule:+.2f} points, and {effect}" in page


def test_a_tape_without_a_whole_seed_is_named(tmp_path: Path) -> None:
    with Tape(tmp_path / "empty.tape"):
        pass
    with pytest.raises(ConfigError, match="no seed with the runs plain, mirrored, oil"):
        Demonstration.read(tmp_path / "empty.tape")


def test_nothing_is_wrong_with_the_set_up_but_that_a_slump_is_close_to_the_lower_bound() -> None:
    assert lint(demo_config()) == []
    [finding] = lint(demo_config(mirrored=True))
    assert "of the quarters are at a bound of the rate" in str(finding)
