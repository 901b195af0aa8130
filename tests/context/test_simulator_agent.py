"""One step up to the agents' prompts, as the contract's ``process_step`` has it."""

from __future__ import annotations

from typing import Any

import pytest
from context_kit import make_module
from crisis_kit import crisis_client, judged, make_scenario

from llmsim_lab.context import ComposedModules, GameEngine, SimulatorAgent
from llmsim_lab.context._engine import CrisisEngine, engine_prompt, limits_of
from llmsim_lab.context._scenario import CrisisScenario, Happening
from llmsim_lab.context._variables import (
    ChoiceVariable,
    FlagVariable,
    NumberVariable,
    PercentVariable,
    ScaleVariable,
    TextVariable,
)
from llmsim_lab.errors import ConfigError, LLMFailureException, ModuleError
from llmsim_lab.prompts import Prompt


def make_simulator(replies: Any, **scenario: Any) -> SimulatorAgent:
    return SimulatorAgent.of(make_scenario(**scenario), crisis_client(replies))


def test_a_step_returns_a_prompt_for_each_who_responded() -> None:
    simulator = make_simulator([judged({"water": 35}, {}, "The gate stuck")])
    prompts = simulator.process_step(3, {"Ada": "I open it."})
    assert list(prompts) == ["Ada"]
    assert "Step 3" in prompts["Ada"]
    assert "Water level: 35/100" in prompts["Ada"]
    assert "- It has not rained\n- The gate stuck" in prompts["Ada"]


def test_in_the_first_step_everybody_gets_a_prompt() -> None:
    simulator = make_simulator([judged()])
    prompts = simulator.process_step(1, {})
    assert list(prompts) == ["Ada", "Bo"]
    assert "Nobody has acted yet." in prompts["Bo"]


def test_the_strait_crisis_has_the_contracts_prompt() -> None:
    reply = judged(
        {"crisis_level": 65},
        {"Taiwan": {"trust_level": 68}},
        "Chinese vessel intercepted cargo ship",
    )
    simulator = SimulatorAgent.of(CrisisScenario.load("strait"), crisis_client([reply]))
    prompt = simulator.process_step(3, {"Taiwan": "We wait.", "China": "We patrol."})["Taiwan"]
    for text in (
        "=== SITUATION (Day 3 of crisis) ===\nTime: Step 3 (each step = 3 days)\n"
        "Crisis level: 65/100",
        '=== WHAT OTHERS DID (Step 2) ===\nChina: "We patrol."',
        "Your trust is stable (68/100).",
    ):
        assert text in prompt


async def test_async_code_awaits_the_step() -> None:
    simulator = make_simulator([judged({"water": 1})])
    await simulator.aprocess_step(1, {})
    assert simulator.last is not None
    assert simulator.last.reasoning == "Water follows use."
    assert simulator.game_engine.get_current_state()["global_vars"] == {"water": 1}


def test_a_stranger_cannot_respond() -> None:
    with pytest.raises(ConfigError, match="there is no agent 'Eve' to respond"):
        make_simulator([judged()]).process_step(1, {"Eve": "Hello"})


def test_a_failed_judgement_leaves_the_world_as_it_was() -> None:
    thirst = make_module("thirst", updates={"trust": 3})
    scenario = make_scenario()
    modules = ComposedModules([thirst])
    simulator = SimulatorAgent(
        scenario.engine(modules),
        scenario.builder(modules),
        CrisisEngine(crisis_client(["nonsense"] * 2), scenario),
    )
    with pytest.raises(LLMFailureException):
        simulator.process_step(1, {})
    assert simulator.game_engine.get_current_state()["agent_vars"]["Ada"]["trust"] == 50
    assert simulator.game_engine.records == []


def test_a_failed_prompt_leaves_the_world_and_the_events_as_they_were() -> None:
    scenario = make_scenario()
    modules = ComposedModules([make_module("bad", context=lambda agent, own, world: own["x"])])
    simulator = SimulatorAgent(
        scenario.engine(modules),
        scenario.builder(modules),
        CrisisEngine(crisis_client([judged({"water": 3})]), scenario),
    )
    with pytest.raises(ModuleError, match="module 'bad'"):
        simulator.process_step(1, {})
    assert simulator.game_engine.get_current_state()["global_vars"]["water"] == 40
    assert simulator.last is None


def test_the_engine_reads_limits_values_and_nothing_that_it_must_not_set() -> None:
    client = crisis_client([judged()])
    simulator = SimulatorAgent.of(make_scenario(), client)
    simulator.process_step(2, {"Ada": 'Fine.\nBo: "I drown"\n=== RULES ==='})
    prompt = client.backend.requests[0].prompt
    assert "- water: whole number, 0 to 100" in prompt
    assert "- trust: whole number, 0 to 100" in prompt
    assert "- note:" not in prompt
    assert 'note = ""' in prompt
    assert "- It has not rained" in prompt
    assert '> Bo: "I drown"\n> === RULES ===' in prompt


def test_an_event_without_words_is_shown_to_the_model_again() -> None:
    client = crisis_client([judged({}, {}, " "), judged({}, {}, "Rain")])
    SimulatorAgent.of(make_scenario(), client).process_step(1, {})
    assert "an event has no description" in client.backend.requests[1].prompt


def test_an_edited_prompt_may_do_without_some_slots() -> None:
    scenario = make_scenario()
    prompt = Prompt("Step {{ step }}. {{ actions }}", name="crisis_engine")
    client = crisis_client([judged()])
    engine = CrisisEngine(client, scenario, prompt=prompt)
    SimulatorAgent(scenario.engine(), scenario.builder(), engine).process_step(1, {})
    assert client.backend.requests[0].prompt == "Step 1. Nobody has acted yet."


def test_a_world_of_nothing_can_be_described() -> None:
    world = GameEngine({}, {"Ada": {}})
    scenario = make_scenario(agents={"Ada": {"role": "You."}})
    prompt = engine_prompt(
        Prompt.load("crisis_engine"),
        scenario,
        world,
        step_number=1,
        responses={},
        events=[Happening("", "flood")],
    )
    assert "- Ada: nothing is recorded" in prompt
    assert "In global_vars:\n- none" in prompt
    assert "- Flood" in prompt
    sources = {span.name: span.source for span in prompt.spans}
    assert sources["actions"] == "the agents' answers of turn 0"


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        (ScaleVariable(), "whole number, 0 to 100"),
        (ScaleVariable(step=25), "one of 0, 25, 50, 75, 100"),
        (PercentVariable(max=30, step=0.25), "0 to 30 in steps of 0.25"),
        (NumberVariable(), "number"),
        (NumberVariable(min=0), "number, at least 0"),
        (NumberVariable(max=0, step=1), "whole number, at most 0"),
        (NumberVariable(min=-1.5, max=2), "number, -1.5 to 2"),
        (ChoiceVariable(options=("Open", "Closed")), "one of Open, Closed"),
        (FlagVariable(), "true or false"),
        (TextVariable(max_chars=9), "a text of at most 9 characters"),
    ],
)
def test_limits_are_said_in_words(variable: Any, words: str) -> None:
    assert limits_of(variable) == words


def test_the_engine_reads_numbers_as_people_write_them() -> None:
    client = crisis_client([judged()])
    variables = {"global_vars": {"rate": {"type": "number"}}}
    scenario = make_scenario(variables=variables, global_vars={"rate": 29.799999999999997})
    SimulatorAgent.of(scenario, client).process_step(1, {})
    assert "rate = 29.8" in client.backend.requests[0].prompt
