from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from context_kit import write_module

from llmsim_lab.context import ModuleLoader, apply_deterministic_updates
from llmsim_lab.context._scenario import CrisisScenario
from llmsim_lab.errors import ConfigError

SHIPPED = ["bank_run", "strait"]

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


def prompts(scenario: CrisisScenario, **options: Any) -> list[Any]:
    builder, state = scenario.builder(**options), scenario.engine().get_current_state()
    events = [event.model_dump() for event in scenario.events]
    return [
        builder.build_prompt(agent, 1, own, state["global_vars"], {}, events)
        for agent, own in state["agent_vars"].items()
    ]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_scenario_gives_every_agent_a_prompt_with_units(name: str) -> None:
    scenario = CrisisScenario.load(name)
    for agent, prompt in zip(scenario.agents, prompts(scenario), strict=True):
        assert prompt.system.startswith(f"=== YOUR ROLE ===\n{scenario.agents[agent].role}")
        assert "/100\n" in prompt
        assert f"(each step = {scenario.time_step_duration})" in prompt
        assert f"- {scenario.events[0].description}" in prompt


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_scenarios_rules_run_without_a_refusal(name: str) -> None:
    scenario = CrisisScenario.load(name)
    modules = scenario.compose()
    engine = scenario.engine(modules)
    engine.apply_state_updates({"global_vars": {"market_fear": 80}})
    engine.records.clear()
    for step in range(1, 200):
        apply_deterministic_updates(modules, engine, step)
    assert [record for record in engine.records if record.status != "ok"] == []


def test_the_two_shipped_scenarios_share_no_module_and_no_variable() -> None:
    strait, banks = (CrisisScenario.load(name).engine() for name in ("strait", "bank_run"))
    for kind in ("global_vars", "agent_vars"):
        one, other = (set(getattr(engine.variables, kind)) for engine in (strait, banks))
        assert one
        assert not one & other


def test_a_scenario_of_ones_own_is_read_by_path(tmp_path: Path) -> None:
    first, second = prompts(CrisisScenario.load(write(tmp_path)))
    assert "Rain: 20%" in first
    assert "Water: 3 km³" in first
    assert "You live by the sea.\n\nObjectives:\n- Keep salt out" in second.system


def test_awareness_is_the_scenarios_choice(tmp_path: Path) -> None:
    scenario = CrisisScenario.load(write(tmp_path, GOOD + "simulator_awareness: true\n"))
    assert "This is a simulation, in which you play Uplands." in prompts(scenario)[0]


def test_options_reach_the_builder(tmp_path: Path) -> None:
    scenario = CrisisScenario.load(write(tmp_path))
    builder = scenario.builder(stable_first=True)
    assert builder.stable_first is True
    assert builder.agent_order == ("Uplands", "Delta")


def test_modules_of_ones_own_come_from_the_folder_that_the_caller_names(tmp_path: Path) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    write_module(folder, "canals", "sections:\n  - text: 'It rains {{ rain }}.'\n")
    scenario = CrisisScenario.load(write(tmp_path, GOOD + "modules: [canals]\n"))
    modules = scenario.compose(ModuleLoader(folder))
    prompt = scenario.builder(modules).build_prompt("Delta", 1, {}, {"rain": 5}, {}, [])
    assert "=== CANALS ===\nIt rains 5%." in prompt


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("title: A drought", "titel: A drought", 1, "titel: unknown key; known here are agents"),
        ("time_step_duration: 1 month\n", "", 1, "time_step_duration: Field required"),
        ("    role: You farm the hills.\n", "", 10, "agents.Uplands.role: Field required"),
        ("role: You live", "rule: You live", 13, "agents.Delta.role: Field required"),
        ("- description: The river", "- text: The river", 18, "events.0.description: Field requir"),
        ("Uplands:", '"Up: lands":', 10, "should match pattern"),
        ("{type: percent, label: Rain}", "{type: percent, labl: R}", 5, "labl: unknown key; known"),
        ("- description: The river is low", "- description: ''", 18, "it says nothing"),
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
    ("old", "new", "line", "message"),
    [
        ("{rain: 20}", "{rain: 120}", 8, "global_vars.rain: 120 is above the greatest value"),
        ("{rain: 20}", "{rain: wet}", 8, "global_vars.rain: 'wet' is not a number"),
        ("{rain: 20}", "{rain: 20, snow: 1}", 8, "global_vars.snow: unknown variable; defined are"),
        ("{rain: 20}", "{}", 8, "global_vars: no value for 'rain', which has no default"),
        ("vars: {water: 1.5}", "vars: {water: -1}", 16, "agents.Delta.vars.water: -1 is below"),
        ("    vars: {water: 3}\n", "", 10, "agents.Uplands.vars: no value for 'water'"),
    ],
)
def test_an_impossible_start_is_named_with_file_and_line(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        CrisisScenario.load(path).compose()
    assert f"{path}, line {line}: {message}" in str(caught.value)


def test_a_variable_that_a_module_defines_too_is_refused_with_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("water", "trust_level") + "modules: [trust_dynamics]\n")
    with pytest.raises(ConfigError) as caught:
        CrisisScenario.load(path).compose()
    assert "trust_dynamics.yaml, line 6" in str(caught.value)
    assert f"'trust_level', which the scenario ({path}, line 7) defines already" in str(
        caught.value
    )


def test_a_scenario_made_by_hand_names_its_faults_without_a_file() -> None:
    scenario = CrisisScenario(
        title="x", time_step_duration="1 day", global_vars={"a": 1}, agents={"Ada": {"role": "x"}}
    )
    with pytest.raises(ConfigError, match=r"^global_vars\.a: unknown variable; defined are: none"):
        scenario.compose()


def test_a_module_named_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "modules: [agents_base, agents_base]\n")
    with pytest.raises(ConfigError, match="'agents_base' is named twice"):
        CrisisScenario.load(path)


def test_a_scenario_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"no scenario 'no_such' ships .* are: bank_run, strait"):
        CrisisScenario.load("no_such")


def test_a_scenario_cannot_name_a_folder_of_modules(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "modules: [../evil]\n")
    with pytest.raises(ConfigError, match=r"'\.\./evil' is not a plain name"):
        CrisisScenario.load(path).compose()
