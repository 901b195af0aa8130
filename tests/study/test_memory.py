"""Whether a player recalls history: who is flagged, and what each way of asking shows."""

from __future__ import annotations

import asyncio
import importlib
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import make_client, make_config, requests_of

from llmsim_lab.agents import Agent
from llmsim_lab.economy import TaylorRule, load_us_macro
from llmsim_lab.economy._data import quarters_before
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.study import memorisation
from llmsim_lab.study._memory import WAYS, questions, recorded_recalls, twin_of, twin_path
from llmsim_lab.tape import verify
from llmsim_lab.types import ChatRequest


@pytest.fixture(scope="module")
def players() -> Iterator[Any]:
    """The benchmark, whose scripted players recall what they are said to."""
    folder = str(Path(__file__).resolve().parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    yield importlib.import_module("memorisation")
    sys.path.remove(folder)


def asks(client: LLMClient, **more: Any) -> list[str]:
    """Ask a client at two starts, one after the other; returns the prompts."""
    memorisation(client, starts=["1979Q3", "1991Q1"], parallel=1, **more)
    return [request.prompt for request in requests_of(client)]


def holds(request: ChatRequest) -> dict[str, Any]:
    return {
        "reasoning": "As always.",
        "rate_change_bp": 0,
        "action": "Hold the interest rate",
        "confidence": 1.0,
    }


# --- who is flagged -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_player_who_recalls_dates_or_figures_is_flagged(players: Any, seed: int) -> None:
    for recalls in (players.recalls_dates, players.recalls_figures):
        assert memorisation(players.scripted(recalls), seed=seed).flagged


def test_rules_are_hardly_ever_flagged() -> None:
    for rule in (TaylorRule(), TaylorRule(inertia=0.8)):
        flags = [memorisation(rule, seed=seed).flagged for seed in range(20)]
        assert sum(flags) <= 2


def test_a_rule_does_the_same_whatever_the_names_and_dates() -> None:
    memory = memorisation(TaylorRule(), seed=3)
    moves = memory.to_frame().pivot(index="start", columns="way", values="move_bp")
    for way in ("masked", "renamed", "shifted"):
        np.testing.assert_array_equal(moves["named"], moves[way])
        effect = next(one for one in memory.effects if one.contrast.endswith(way))
        assert (effect.estimate, effect.low, effect.high, effect.p) == (0, 0, 0, 1)


def test_who_recalls_figures_is_given_away_by_the_twin_alone(players: Any) -> None:
    memory = memorisation(players.scripted(players.recalls_figures), seed=1)
    estimates = {one.contrast.split()[-1]: one.estimate for one in memory.effects}
    assert estimates["masked"] == estimates["renamed"] == estimates["shifted"] == 0
    assert estimates["twin"] > 40


def test_recall_is_how_much_nearer_a_move_is_to_its_own_next_move_than_to_the_others() -> None:
    frame = memorisation(lambda **_: 6.0, starts=["1979Q3", "1991Q1", "2001Q4"]).to_frame()
    named = frame.query("way == 'named'").reset_index()
    away = [abs(named["move_bp"][0] - done) for done in named["next_move_bp"]]
    assert named["recall_bp"][0] == pytest.approx((away[1] + away[2]) / 2 - away[0])


# --- what is asked --------------------------------------------------------------------------------


def test_each_start_is_asked_about_in_five_ways() -> None:
    prompts = asks(make_client(holds))
    assert len(prompts) == 2 * len(WAYS)
    named, masked, renamed, shifted, twin = prompts[:5]
    assert "the central bank of United States" in named
    assert "the central bank of a large economy" in masked
    assert "the central bank of Canada" in renamed
    dated = [re.findall(r"(?m)^(\d{4}Q\d|now) \|", prompt)[-1] for prompt in prompts[:5]]
    assert dated == ["1979Q3", "now", "1979Q3", "1986Q3", "1979Q3"]
    assert re.search(r"\d{4}Q\d|United States", masked) is None
    assert "1979" not in shifted
    assert "the central bank of United States" in twin
    figures = [prompt.partition("Now:")[2] for prompt in prompts[:5]]
    assert len(set(figures[:4])) == 1
    assert figures[4] != figures[0]


def test_all_ways_of_asking_about_a_start_share_their_sampling_seed() -> None:
    client = make_client(holds)
    asks(client, seed=4)
    seeds = [request.options["seed"] for request in requests_of(client)]
    assert len(set(seeds[:5])) == len(set(seeds[5:])) == 1
    assert seeds[0] != seeds[5]


def test_the_twin_has_historys_moments() -> None:
    columns = ["gdp_growth", "inflation_qoq_annualised", "unemployment", "interest_rate"]
    data = load_us_macro()[columns].dropna().to_numpy()
    path = twin_path(60_000, rng=random.Random(7))
    moments = []
    for series in (data, path):
        away = series - series.mean(axis=0)
        moments.append(
            [series.mean(axis=0), *(away[n:].T @ away[: len(away) - n] / len(away) for n in (0, 1))]
        )
    for of_data, of_twin in zip(*moments, strict=True):
        np.testing.assert_allclose(of_twin, of_data, atol=0.35)


def test_a_twin_has_its_own_figures_and_next_move_under_the_starts_date() -> None:
    quarters, move = twin_of("1979Q3", seed=0)
    assert quarters[-1].period == "1979Q3"
    real = quarters_before("1979Q4")[-1]
    assert (quarters[-1].inflation, quarters[-1].interest_rate) != (
        real.inflation,
        real.interest_rate,
    )
    assert twin_of("1979Q3", seed=0) == (quarters, move)
    assert twin_of("1979Q3", seed=1)[1] != move
    asked = {one.way: one for one in questions("1979Q3", place=0, seed=0)}
    assert asked["twin"].next_move == move
    assert asked["named"].next_move == pytest.approx(217, abs=1)


def test_a_run_is_asked_as_its_own_nation_is() -> None:
    config = SimulationConfig(
        nations=[{"name": "Aland", "inflation_target": 3.0}],
        validator={"kind": "always_valid"},
        moves_bp=[-50, 0, 50],
    )
    client = make_client(holds)
    for subject, more in ((Simulation(config, llm_client=client), {}), (config, {"x": client})):
        memorisation(subject, starts=2, llm_client=more.get("x"))
    prompts = [request.prompt for request in requests_of(client)]
    assert len(prompts) == 20
    assert all("-50, 0, +50" in one and "Inflation target: 3%" in one for one in prompts)
    rule = Simulation(make_config())
    assert not memorisation(rule, seed=1).flagged


# --- on a tape ------------------------------------------------------------------------------------


def test_what_a_tape_has_is_not_asked_again_and_gives_the_same(tmp_path: Path) -> None:
    tape, client = tmp_path / "m.tape", make_client(holds)
    first = memorisation(client, starts=3, tape=tape)
    assert len(requests_of(client)) == 15
    again = memorisation(make_client(ConnectionError("gone")), starts=3, tape=tape)
    assert again.to_frame().equals(first.to_frame())
    assert str(again) == str(first)
    with Tape(tape, read_only=True) as recorded:
        assert verify(recorded) == []
        assert [info.calls for info in recorded.runs()] == [5, 5, 5]


def test_starts_without_all_answers_are_asked_about_again(tmp_path: Path) -> None:
    def dies_after(count: int) -> Iterator[Any]:
        yield from [holds] * count
        while True:
            yield ConnectionError("gone")

    tape = tmp_path / "m.tape"
    cut = memorisation(make_client(dies_after(7)), starts=3, parallel=1, tape=tape)
    assert cut.notes[0].startswith("8 questions had no answer")
    client = make_client(holds)
    whole = memorisation(client, starts=3, tape=tape)
    assert len(requests_of(client)) == 8
    assert whole.notes == ()
    assert whole.to_frame().equals(memorisation(make_client(holds), starts=3).to_frame())


def test_a_tape_holds_one_of_a_name(tmp_path: Path) -> None:
    tape = tmp_path / "m.tape"
    memorisation(TaylorRule(), starts=2, tape=tape)
    with pytest.raises(ConfigError, match="its asked is"):
        memorisation(TaylorRule(inertia=0.5), starts=2, tape=tape)
    memorisation(TaylorRule(inertia=0.5), starts=2, tape=tape, name="inertia")
    assert len(list(recorded_recalls(Tape(tape, read_only=True)))) == 2


def test_another_function_or_temperature_is_not_answered_from_the_tape(tmp_path: Path) -> None:
    def rule(step: float) -> Any:
        return lambda inflation, output_gap, previous_rate: previous_rate + step

    tape = tmp_path / "m.tape"
    memorisation(rule(1), starts=2, tape=tape)
    again = memorisation(rule(1), starts=2, tape=tape).to_frame()
    assert set(again["move_bp"].round(6)) == {100}
    with pytest.raises(ConfigError, match="holds the study 'memorisation' with another design"):
        memorisation(rule(2), starts=2, tape=tape)
    memorisation(make_client(holds), starts=2, tape=tape, name="model")
    with pytest.raises(ConfigError, match="with another design: its asked is"):
        memorisation(make_client(holds, temperature=0.1), starts=2, tape=tape, name="model")


async def test_it_is_not_played_twice_at_once() -> None:
    memory = memorisation(make_client(holds), starts=2, play=False)
    first = asyncio.create_task(memory.arun())
    await asyncio.sleep(0)
    with pytest.raises(ConfigError, match="is being played"):
        await memory.arun()
    await first


# --- what is shown, and misuse --------------------------------------------------------------------


def test_it_says_what_it_found_in_words(players: Any) -> None:
    memory = memorisation(players.scripted(players.recalls_dates))
    assert "named \N{MINUS SIGN} masked: +" in str(memory)
    assert "beyond chance" in str(memory)
    assert repr(memory) == "<Memorisation: flagged, 20 starts>"
    html = memory._repr_html_()
    assert "another country, with dates" in html
    assert "Recall of what was done next, 20 starts" in html
    assert "No evidence" in memorisation(TaylorRule(), seed=1).verdict


async def test_it_can_be_awaited() -> None:
    memory = memorisation(TaylorRule(), play=False)
    assert "nobody was asked yet" in str(memory)
    with pytest.raises(ConfigError, match=r"await memory\.arun\(\)"):
        memory.to_frame()
    assert await memory.arun() is memory
    assert len(memory.to_frame()) == 100


def test_questions_without_an_answer_are_left_out_and_counted() -> None:
    def fails_when_masked(request: ChatRequest) -> Any:
        masked = "a large economy" in request.prompt
        return ConnectionError("gone") if masked else holds(request)

    memory = memorisation(make_client(fails_when_masked))
    assert memory.notes[0].startswith("20 questions had no answer")
    assert memory.effects[0].estimate is None
    assert memory.effects[1].estimate == 0
    with pytest.raises(LLMFailureException):
        memorisation(make_client(ConnectionError("gone")), starts=2)


class Silent(Agent):
    async def decide_action(self, state: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("subject", "more", "message"),
    [
        (3, {}, "is not a simulation"),
        (TaylorRule(), {"starts": 1}, "starts=1"),
        (TaylorRule(), {"starts": ["1979Q3"]}, "two or more different quarters"),
        (TaylorRule(), {"starts": ["1979Q3", "1955Q1"]}, "from 1965Q1 to 2009Q2"),
        (Simulation(make_config(), agents=[Silent("Ann")]), {}, "nobody decides by a model"),
        (TaylorRule, {}, "is not a simulation, a configuration"),
        (lambda **_: "high", {}, "the rule's rate='high'"),
    ],
)
def test_misuse_says_what_would_work(subject: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        memorisation(subject, **more)
