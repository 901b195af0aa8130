from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from llmsim_lab.context import apply_deterministic_updates
from llmsim_lab.context._scenario import CrisisScenario
from llmsim_lab.errors import ConfigError

GOOD = """\
title: A drought
time_step_duration: 1 month
variables:
  global_vars:
    rain: {type: percent, label: Rain}
  agent_vars:
    water: {type: number, unit: km³, min: 0}
global_vars: {rain: 20}
agents:
  Uplands:
    role: You farm the hills.
    vars: {water: 3}
  Delta:
    role: You live by the sea.
    objectives: [Keep salt out]
    vars: {water: 1.5}
events:
  - description: The river is low
"""


def write(folder: Path, text: str = GOOD) -> Path:
    path = folder / "drought.yaml"
    path.write_text(dedent(text))
    return path


def test_a_shipped_scenarios_rules_run_without_a_refusal_and_its_prompts_have_units() -> None:
    scenario = CrisisScenario.load("strait")
    modules = scenario.compose()
    engine, builder = scenario.engine(modules), scenario.builder(modules)
    for step in range(1, 200):
        records = apply_deterministic_updates(modules, engine, step)
        assert [record for record in records if record.status != "ok"] == []
    now = engine.get_current_state()
    for agent, own in now["agent_vars"].items():
        prompt = builder.build_prompt(agent, 200, own, now["global_vars"], {}, [])
        assert prompt.system.startswith(f"=== YOUR ROLE ===\n{scenario.agents[agent].role}")
        assert "/100\n" in prompt
        assert "(each step = 3 days)" in prompt


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("title: A drought", "titel: A drought", 1, "titel: unknown key; known here are agents"),
        ("time_step_duration: 1 month\n", "", 1, "time_step_duration: Field required"),
        ("Uplands:", '"Up: lands":', 10, "should match pattern"),
    ],
)
def test_a_fault_of_form_is_named_with_file_and_line(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        CrisisScenario.load(path)
    assert f"{path}, line {line}: " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{rain: 20}", "{rain: 20, snow: 1}", "global_vars.snow: unknown variable; defined are"),
        ("vars: {water: 1.5}", "vars: {water: -1}", "agent_vars.Delta.water: -1 is below"),
    ],
)
def test_an_impossible_start_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError, match=re.escape(message)):
        CrisisScenario.load(write(tmp_path, GOOD.replace(old, new))).engine()


def test_a_variable_that_a_module_defines_too_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("water", "trust_level") + "modules: [trust_dynamics]\n")
    said = "module 'trust_dynamics' defines the variable 'trust_level', which the scenario defines"
    with pytest.raises(ConfigError, match=said):
        CrisisScenario.load(path).engine()
