"""The loop of the crisis simulation, and what a run on a tape can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import played, recorded
from context_kit import make_module, make_variables, write_module
from crisis_kit import (
    answer,
    crisis_client,
    judged,
    make_crisis,
    make_scenario,
    requests_to,
    said,
    with_modules,
)

from llmsim_lab.context import CrisisSimulation
from llmsim_lab.errors import BackendError, ConfigError, FailureReason, ModuleError, TapeMiss
from llmsim_lab.llm.chains import FORGIVEN
from llmsim_lab.run import replay


def prompts_to(simulation: CrisisSimulation, player: str) -> list[str]:
    return [request.prompt for request in requests_to(simulation, player)]


# --- a turn ------------------------------------------------------------------------------------


def test_rules_then_the_engine_then_agents_who_read_what_others_said_before() -> None:
    thirst = make_module("thirst", updates=lambda agent, own, world, step: {"trust": 50 - step})
    simulation = played(make_crisis(modules=[thirst]), 2)
    assert "trust = 49" in prompts_to(simulation, "world")[0]
    story = list(simulation.turns[1].in_words())
    assert "Ada.trust: 50 -> 49 (thirst)" in story
    assert "water: 40 -> 39 (engine)" in story
    prompt = prompts_to(simulation, "Ada")[1]
    assert "Water level: 38/100" in prompt
    assert "- Gates were moved in week 2" in prompt
    assert 'Bo: "ACTIONS: Bo opens gate 1"' in prompt
    assert "Ada opens gate" not in prompt


def test_the_engine_reads_events_that_agents_know_already_and_agents_read_only_new_ones() -> None:
    simulation = make_crisis()
    simulation.intervene(1, {"events": "The dam broke"})
    simulation.run(2)
    first, second = prompts_to(simulation, "world")
    assert "- It has not rained" in first
    for event in ("It has not rained", "Gates were moved in week 1", "The dam broke"):
        assert f"- {event}" in second
    read = prompts_to(simulation, "Ada")[1]
    assert "- The dam broke\n- Gates were moved in week 2" in read
    assert "week 1" not in read
    assert "It has not rained" not in read


def test_impossible_changes_are_refused_one_by_one_and_stand_in_the_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = {"Ada": {"trust": 70}, "Bo": {"trust": -1e300}, "Eve": {"trust": 1}}
    updates = judged({"water": 10**400, "wine": 3}, own)
    simulation = make_crisis(
        replies=lambda request: updates if request.site.component == "engine" else said()
    )
    simulation.run(1)
    assert simulation.state.global_vars["water"] == 40
    assert simulation.state.agent_vars["Ada"]["trust"] == 70
    row = simulation.to_frame().iloc[1]
    assert (row["refused"], row["changes"]) == (4, 1)
    engine = simulation.decisions().query("component == 'engine'").iloc[0]
    assert (engine["refused"], engine["changes"]) == (4, 1)
    assert any("REFUSED: 1000" in line for line in simulation.turns[1].in_words())
    assert caplog.text.count("state_update_refused source=engine variable=wine asked=3") == 1


def test_a_change_to_the_value_that_was_there_is_none() -> None:
    same = judged({"water": 40}, {"Ada": {"trust": 50}})
    simulation = make_crisis(
        replies=lambda request: same if request.site.component == "engine" else said()
    )
    simulation.run(1)
    row = simulation.to_frame().iloc[1]
    assert (row["refused"], row["changes"]) == (0, 0)
    assert not any("->" in line for line in simulation.turns[1].in_words())


@pytest.mark.parametrize("reason", [None, *FORGIVEN])
def test_an_agent_without_a_valid_answer_says_nothing_and_that_is_loud(
    reason: FailureReason | None, caplog: pytest.LogCaptureFixture
) -> None:
    useless = BackendError("no word came", reason=reason) if reason else {"assessment": 3}
    simulation = make_crisis(
        replies=lambda request: useless if request.site.agent == "Ada" else answer(request)
    )
    simulation.run(2)
    assert "FALLBACK agent=Ada component=agent turn=1" in caplog.text
    assert simulation.state.responses["Ada"] == ""
    assert simulation.turns[1].statuses == {"ok": 2, "fallback": 1}
    assert "Ada: (said nothing)" in prompts_to(simulation, "Bo")[1]
    [silent] = [it for it in simulation.turns[1].answers if it.status == "fallback"]
    assert silent.reasoning.startswith("stands in: ")
    assert silent.calls


def test_a_module_that_fails_stops_the_turn_with_its_name_and_the_agent() -> None:
    def fail(agent: str, own: Any, world: Any) -> str:
        if agent == "Bo" and world["water"] < 39:
            raise KeyError("fish")
        return "All is well."

    simulation = make_crisis(modules=[make_module("fishing", context=fail)])
    with pytest.raises(ModuleError, match="module 'fishing', build_agent_context, agent 'Bo'"):
        simulation.run(3)
    assert (simulation.turn_number, simulation.state.global_vars["water"]) == (1, 39)


# --- on a tape ---------------------------------------------------------------------------------


def test_a_replay_with_changed_module_code_says_so(tmp_path: Path) -> None:
    code = "def build_agent_context(agent_name, agent_state, global_state):\n    return 'Thirst.'\n"
    write_module(tmp_path, "thirst", "title: THIRST", code)
    parameters = {"scenario": make_scenario(modules=["thirst"]), "module_folders": [tmp_path]}
    recorded(make_crisis(tmp_path / "a.tape", **parameters), 1)
    write_module(tmp_path, "thirst", "title: THIRST", code.replace("Thirst", "Drought"))
    with pytest.raises(TapeMiss, match="crisis has changed since it was recorded: its thirst"):
        replay(tmp_path / "a.tape")


def test_a_class_of_ones_own_may_bring_modules_along(tmp_path: Path) -> None:
    world = with_modules(make_module("weather", context="Rain."))
    simulation = world(scenario=make_scenario(), llm_client=crisis_client(), tape=tmp_path / "a")
    assert "It has not rained" in simulation.context_of("Ada")
    assert "Time: Step 1 (each step = 1 week)" in simulation.context_of("Ada")
    simulation.run(1)
    simulation.close()
    again = world.replay(tmp_path / "a")
    assert again.turns == simulation.turns
    for part in ("Time: Step 2 (each", "Rain.", 'Bo: "ACTIONS: Bo opens gate 1"'):
        assert part in again.context_of("Ada")


# --- from outside ------------------------------------------------------------------------------


def test_an_event_from_outside_is_told_in_the_next_turn() -> None:
    simulation = make_crisis()
    simulation.intervene(1, {"events": "The dam\n=== STEP 9 === broke"})
    simulation.run(3)
    told = ["- The dam === STEP 9 === broke" in prompt for prompt in prompts_to(simulation, "Bo")]
    assert told == [False, True, False]
    assert "- The dam === STEP 9 === broke" in prompts_to(simulation, "world")[1]


def test_a_muted_agent_is_not_asked_until_it_is_unmuted() -> None:
    planned = [{"turn": 1, "set": {"muted": ["Ada"]}}, {"turn": 2, "set": {"muted": []}}]
    simulation = played(make_crisis(interventions=planned), 3)
    assert [len(turn.answers) for turn in simulation.turns] == [0, 3, 2, 3]
    assert "Ada: (said nothing)" in prompts_to(simulation, "Bo")[2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"wine": 3}, "wine = 3: unknown variable"),
        ({"water": 300}, "water = 300: 300 is above the greatest value"),
        ({"Eve.trust": 1}, "unknown agent"),
        ({"muted": "Eve"}, "there is no agent 'Eve'; there are Ada, Bo"),
        ({"muted": 3}, "there is no agent 3; there are"),
        ({"events": 3}, "Happening: description: Input should be a valid string"),
        ({"events": ["  "]}, "it says nothing"),
        ({"events": [{"text": "Rain"}]}, "text: Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_set_is_refused_at_once(values: dict[str, Any], message: str) -> None:
    simulation = make_crisis()
    with pytest.raises(ConfigError, match=message):
        simulation.intervene(1, values)
    assert simulation.planned == ()


ADA = {"trust": 1, "note": ""}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"agent_vars": {"Ada": ADA}}, r"the state has agents \['Ada'\]; the scenario's are"),
        ({"global_vars": {"water": 400}}, "water: 400 is above the greatest value, 100"),
        ({"agent_vars": {"Ada": ADA, "Bo": {**ADA, "mood": 1}}}, "Bo.mood: unknown variable"),
    ],
)
def test_no_turn_is_played_from_a_state_that_cannot_be(
    values: dict[str, Any], message: str
) -> None:
    state = make_crisis().state.replace(**values)
    with pytest.raises(ConfigError, match=message):
        make_crisis(state=state).run(1)


def test_a_run_silences_modules_whose_rules_and_variables_stay() -> None:
    boots = make_variables(agent_vars={"boots": {"type": "flag", "default": True}})
    mud = make_module("mud", context="Mud.", updates={"trust": 10}, variables=boots)
    loud, silent = (make_crisis(modules=[mud], silenced=names) for names in ((), ("mud",)))
    loud.run(1)
    silent.run(1)
    assert loud.state == silent.state
    [one], [other] = prompts_to(loud, "Ada"), prompts_to(silent, "Ada")
    assert other == one.replace("\n\n=== MUD ===\nMud.", "") != one
    assert "Boots: Yes" in other
    assert "Trust: 10%" in other
    with pytest.raises(ConfigError, match="no module 'fog'"):
        make_crisis(silenced=["fog"])


@pytest.mark.parametrize("name", ["muted", "tokens"])
def test_a_variable_with_a_name_that_is_taken_is_refused(name: str) -> None:
    variables = {"global_vars": {name: {"type": "scale", "default": 7}}}
    scenario = make_scenario(variables=variables, global_vars={}, agents={"Ada": {"role": "R"}})
    with pytest.raises(ConfigError, match=f"variable '{name}' has a name that every crisis has"):
        make_crisis(scenario=scenario)
