"""The demonstration: who responds to the economy, and what is said of it."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from builders import played, recorded

from llmsim_lab import data_path
from llmsim_lab.errors import ConfigError, EconomyError
from llmsim_lab.llm import LLMClient, ScriptedBackend, Tape
from llmsim_lab.run import Question, load
from llmsim_lab.simulation import Demonstration, Simulation
from llmsim_lab.simulation.demonstration import (
    INERTIA,
    OIL_TURN,
    PLAYERS,
    RULE,
    World,
    demo_runs,
    effect_in_short,
)
from llmsim_lab.simulation.gate import GATE_MOVES_BP
from llmsim_lab.types import ChatReply

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = load(data_path("tapes/demo.tape.gz"), 1).config
OIL_END = 12


@cache
def drawn() -> Demonstration:
    """Three seeds of a player that draws a move, whatever the economy does; two of an oil shock."""

    def draw(question: Question) -> Any:
        return {"rate_change_bp": question.rng.choice(GATE_MOVES_BP)}

    runs: dict[int, dict[World, Simulation]] = {1: {}, 2: {}, 3: {}}
    for seed, worlds in runs.items():
        for world in ("plain", "mirrored", "oil") if seed < 3 else ("plain", "mirrored"):
            economy = CONFIG.economy.model_copy(update={"mirrored": world == "mirrored"})
            simulation = Simulation(CONFIG, seed=seed, economy=economy, players=draw)
            if world == "oil":
                simulation.intervene(OIL_TURN - 1, {"shock.supply": 4})
            # One that drives the economy off the model's range is shown until then.
            with suppress(EconomyError):
                simulation.run(OIL_END if world == "oil" else CONFIG.turns)
            worlds[world] = simulation
    return Demonstration("the player", runs)


# --- verdicts -------------------------------------------------------------------------------------


def test_rules_pass_in_the_quarters_of_a_model_that_does_not_respond(
    shipped: Demonstration,
) -> None:
    frame = shipped.to_frame()
    assert frame.index.tolist() == [shipped.model, *PLAYERS]
    assert frame["verdict"].tolist() == ["fail", "pass", "pass", "fail", "fail"]
    assert shipped.responds(RULE).in_the_end[0] == pytest.approx(1.5, abs=0.1)
    assert shipped.responds(INERTIA)["inflation"].value == pytest.approx(0.15 * 1.5, abs=0.05)
    assert frame.loc["always +75 bp", "drift"] == "0.75 (0.75 to 0.75)"
    words = f"{shipped.model} does not respond to the economy when asked by letter: a point"
    assert shipped.verdict.startswith(words)
    assert shipped.judged.startswith("148 of 320 quarters are judged: those in which the Taylor")


def test_what_a_player_decided_is_judged_where_no_probabilities_are_known() -> None:
    assert set(drawn().moves["the player"]) == set(GATE_MOVES_BP)


def test_the_rules_beside_a_bank_have_its_target() -> None:
    bank = {"nations": [{"name": "Ann", "inflation_target": 3}], "players": "rule"}
    run = Simulation(start_at="2000Q2", moves_bp=GATE_MOVES_BP, **bank)
    played(run, 8)
    found = Demonstration("the bank", {1: {"plain": run}})
    assert len(found.moves) > 3
    assert found.moves["the bank"].tolist() == found.moves[RULE].tolist()
    assert (found.path("the bank", "plain") == found.path(RULE, "plain")).all(axis=None)


# --- responses ------------------------------------------------------------------------------------


def test_the_response_to_oil_is_the_difference_of_two_runs_with_the_same_shocks() -> None:
    found = drawn()
    inflation = found.responses("no change", "inflation")
    assert inflation.index.tolist() == list(range(OIL_TURN - 1, OIL_END + 1))
    assert (inflation.loc[OIL_TURN - 1] == 0).all()
    # Four points in a quarter are one over four of them, and no player has responded yet.
    assert inflation.loc[OIL_TURN].tolist() == pytest.approx([1.0] * 2)
    assert (found.responses("no change").to_numpy() == 0).all()
    response = found.response(RULE)
    assert (response.value or 0) > 1
    assert (response.low or 0) > 0
    assert f"by {response.value:+.2f} points (95 % interval" in found.headline
    assert found.headline.endswith("under the player (2 seeds).")
    held = found.response("no change")
    assert (held.value, held.low, held.n) == (0, None, 2)


def test_an_unknown_player_or_column_is_named() -> None:
    for asked in (Demonstration.responds, Demonstration.response, Demonstration.responses):
        with pytest.raises(ConfigError, match="'Bob'; there are the player, Taylor rule, "):
            asked(drawn(), "Bob")
    with pytest.raises(KeyError, match="happiness"):
        drawn().path(RULE, "plain", "happiness")


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
    listed = tuple((letter, math.log(0.14)) for letter in "ABCDEFG")
    backend = ScriptedBackend(lambda _: ChatReply(text="A", top_logprobs=listed), name="coin")
    return LLMClient(CONFIG.llm, backend)


def test_a_recording_that_was_broken_off_goes_on_and_is_read(recorder: Any, path: Path) -> None:
    with Tape(path) as tape:
        recorded(Simulation(CONFIG, llm_client=client(), tape=tape), 3)
    with pytest.raises(ConfigError, match="no seed with the runs plain, mirrored, oil"):
        Demonstration.read(path)
    goes_on = client()
    recorder.record(path, 1, goes_on)
    with Tape(path, read_only=True) as tape:
        [(seed, found)] = demo_runs(tape).items()
    assert [found[world].run_id for world in ("plain", "mirrored", "oil")] == [1, 2, 3]
    assert seed == 1
    assert len(goes_on.backend.requests) == 7 * (17 + 9 + 20)
    again = client()
    recorder.record(path, 1, again)
    assert again.backend.requests == []
    with Tape(path) as tape:
        recorded(Simulation(CONFIG, seed=2, llm_client=client(), tape=tape), 2)
    recorder.keep_whole(path)
    shown = Demonstration.read(path)
    assert (shown.model, [*shown.runs]) == ("coin", [1])
    assert shown.runs[1]["plain"].turn_number == 20
    assert shown.runs[1]["oil"].turn_number == OIL_END
    # What counts is the mean of the moves, whatever was drawn.
    assert shown.moves["coin"].tolist() == pytest.approx([0.0] * len(shown.moves))
    assert len(shown.moves) == 21
    told = "coin is undecided when asked by letter: 1 groups of decisions decide nothing"
    assert shown.verdict.startswith(told)
    assert repr(shown) == f"<Demonstration, 1 seed: {shown.verdict}>"
    assert shown.headline.endswith("several runs, not situations) under coin (1 seed).")


def test_readme_says_what_the_recording_says(shipped: Demonstration) -> None:
    page = " ".join((data_path("tapes").parents[1] / "README.md").read_text("utf-8").split())
    # In words, and in the picture's text for those who cannot see it.
    assert page.count(shipped.verdict.removeprefix(shipped.model)) == 2
    # How the two rules respond to a point more of inflation.
    slopes = [f"{shipped.responds(rule)['inflation'].value:.2f}" for rule in (RULE, INERTIA)]
    taylor, inert = slopes
    assert f"For the Taylor rule it is {taylor}, for a rule that closes a seventh" in page
    assert f"of the gap each quarter {inert}." in page
    model = shipped.response()
    assert model.note.startswith("skewed")
    typical = f"typical difference {effect_in_short(model.typical)}"
    assert f"{model.high:+.2f}; {model.note}; {typical}) under {shipped.model}" in shipped.headline
