from __future__ import annotations

import pytest
from crisis_kit import make_scenario

from llmsim_lab.context import apply_deterministic_updates
from llmsim_lab.context.scenario import CrisisScenario
from llmsim_lab.errors import ConfigError


def test_a_shipped_scenarios_rules_run_without_a_refusal_and_its_prompts_have_units() -> None:
    scenario = CrisisScenario.load("strait")
    modules = scenario.compose()
    engine, builder = scenario.engine(modules), scenario.builder(modules)
    for step in range(1, 120):
        records = apply_deterministic_updates(modules, engine, step)
        assert [record for record in records if record.status != "ok"] == []
    now = engine.get_current_state()
    for agent, own in now["agent_vars"].items():
        prompt = builder.build_prompt(agent, 120, own, now["global_vars"], {}, [])
        assert prompt.system.startswith(f"=== YOUR ROLE ===\n{scenario.agents[agent].role}")
        assert f"Objectives:\n- {scenario.agents[agent].objectives[0]}\n" in prompt.system
        assert "/100\n" in prompt
        assert "(each step = 3 days)" in prompt


def test_a_value_without_a_definition_is_an_error_in_a_scenario() -> None:
    with pytest.raises(ConfigError, match=r"global_vars\.snow: unknown variable; there are water"):
        make_scenario(global_vars={"water": 20, "snow": 1}).engine()


def test_a_variable_that_a_module_defines_too_is_an_error() -> None:
    twice = {"agent_vars": {"trust_level": {"type": "percent", "default": 1}}}
    scenario = make_scenario(variables=twice, modules=["trust_dynamics"])
    said = "module 'trust_dynamics' defines the variable 'trust_level', which the scenario defines"
    with pytest.raises(ConfigError, match=said):
        scenario.engine()
