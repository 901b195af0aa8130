"""Seeds that can change nothing are pointed out where two of them come together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import answer, make_client, make_config

from llmsim_lab.lab import RateChart
from llmsim_lab.llm import LLMClient
from llmsim_lab.run import rerun
from llmsim_lab.simulation import Simulation, SimulationConfig

SHOCKS = {"shock_scale": 1}
CALM = {"shock_scale": 0}
NO_SHOCKS = "cannot differ: economy.shock_scale is 0 (above 0 there are random shocks)"


def by_rule(**values: Any) -> Simulation:
    return Simulation(make_config(**values))


def with_model(model_seed: int | None, **values: Any) -> tuple[SimulationConfig, LLMClient]:
    client = make_client(answer, seed=model_seed)
    return SimulationConfig.model_validate(
        {"nations": ["Aland"], "economy": CALM, **values}
    ), client


def test_runs_on_a_tape_that_differ_in_idle_seeds_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tape = tmp_path / "x.tape"
    Simulation(make_config(seed=1), tape=tape).close()
    assert caplog.text == ""
    Simulation(make_config(seed=2, name="again"), tape=tape).close()
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        'SEEDS_CHANGE_NOTHING run=again same_as="run 1 of x.tape" '
        f'reason="runs that differ only in their seeds (1, 2) {NO_SHOCKS}"'
    )


def test_a_model_with_a_fixed_seed_gives_its_answers_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in (1, 2):
        config, client = with_model(7, seed=seed)
        Simulation(config, llm_client=client, tape=tmp_path / "x.tape").close()
    assert f"{NO_SHOCKS}, and llm.seed=7 gives the model's answers again" in caplog.text


@pytest.mark.parametrize(
    "pair",
    [
        ({"seed": 1}, {"seed": 1}),
        ({"seed": 1}, {"seed": 2, "turns": 3}),
        ({"seed": 1, "economy": SHOCKS}, {"seed": 2, "economy": SHOCKS}),
    ],
    ids=["the same seed", "another configuration", "shocks"],
)
def test_seeds_that_matter_or_do_not_differ_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pair: tuple[dict[str, Any], ...]
) -> None:
    for values in pair:
        Simulation(make_config(**values), tape=tmp_path / "x.tape").close()
    assert caplog.text == ""


def test_a_model_that_draws_anew_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in (1, 2):
        config, client = with_model(None, seed=seed)
        Simulation(config, llm_client=client, tape=tmp_path / "x.tape").close()
    assert caplog.text == ""


def test_an_ensemble_that_cannot_spread_says_so_under_the_chart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs = [by_rule(seed=seed, turns=2) for seed in range(6)]
    for run in runs:
        run.run()
    chart = RateChart(runs)
    assert f"ensemble: runs that differ only in their seeds (0, 1, 2, 3, 4, …) {NO_SHOCKS}." in (
        chart.static_text()
    )
    assert caplog.text.count("SEEDS_CHANGE_NOTHING") == 1


def test_a_rerun_with_a_fixed_model_seed_is_no_further_sample(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in (None, 7):
        config, client = with_model(seed, turns=1)
        tape = tmp_path / f"{seed}.tape"
        Simulation(config, llm_client=client, tape=tape).close()
        rerun(tape, llm_client=client).close()
    [record] = caplog.records
    assert record.getMessage().startswith('RERUN_MAY_REPEAT run=1 reason="llm.seed=7 was recorded')
