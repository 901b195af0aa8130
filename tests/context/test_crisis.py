"""The loop of the crisis simulation, and what a run on a tape can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from context_kit import make_module, make_variables, write_module
from crisis_kit import (
    answer,
    crisis_client,
    judged,
    make_crisis,
    make_scenario,
    said,
    with_modules,
)

from llmsim_lab.context import BehaviorModule, CrisisSimulation
from llmsim_lab.errors import (
    BackendError,
    ConfigError,
    FailureReason,
    ModuleError,
    TapeMiss,
)
from llmsim_lab.llm._chains import FORGIVEN
from llmsim_lab.run import replay, resume
from llmsim_lab.types import CallRecord, ChatRequest


def prompts_to(simulation: CrisisSimulation, player: str) -> list[ChatRequest]:
    assert simulation.llm_client is not None
    requests: list[ChatRequest] = getattr(simulation.llm_client.backend, "requests")  # noqa: B009
    return [request for request in requests if request.site and request.site.agent == player]


def call_of(simulation: CrisisSimulation, player: str, turn: int) -> CallRecord:
    return next(
        call
        for call in simulation.turns[turn].calls
        if call.request.site is not None and call.request.site.agent == player
    )


def engine_says(**made: Any) -> Any:
    """Return an answer for each call, in which the engine always asks for the same changes."""

    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        return judged(**made) if request.site.component == "engine" else said()

    return reply


# --- a turn ------------------------------------------------------------------------------------


def test_rules_then_the_engine_then_agents_who_read_what_others_said_before() -> None:
    thirst = make_module("thirst", updates=lambda agent, own, world, step: {"trust": 50 - step})
    simulation = make_crisis(modules=[thirst])
    simulation.run(2)
    assert "trust = 49" in prompts_to(simulation, "world")[0].prompt
    story = list(simulation.turns[1].in_words())
    assert "Ada.trust: 50 -> 49 (thirst)" in story
    assert "water: 40 -> 39 (engine)" in story
    prompt = prompts_to(simulation, "Ada")[1].prompt
    assert "Water level: 38/100" in prompt
    assert "- Gates were moved in week 2" in prompt
    assert 'Bo: "ACTIONS: Bo opens gate 1"' in prompt
    assert "Ada opens gate" not in prompt


def test_impossible_changes_are_refused_one_by_one_and_stand_in_the_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = {"Ada": {"trust": "70%"}, "Bo": {"trust": -1e300}, "Eve": {"trust": 1}}
    simulation = make_crisis(replies=engine_says(world={"water": 10**400, "wine": 3}, own=own))
    simulation.run(1)
    assert simulation.state.global_vars["water"] == 40
    assert simulation.state.agent_vars["Ada"]["trust"] == 70
    row = simulation.to_frame().iloc[1]
    assert (row["refused"], row["changes"]) == (4, 1)
    engine = simulation.decisions().query("component == 'engine'").iloc[0]
    assert (engine["refused"], engine["changes"]) == (4, 1)
    assert any("REFUSED: 1000" in line for line in simulation.turns[1].in_words())
    assert caplog.text.count("state_update_refused source=engine variable=wine asked=3") == 1


@pytest.mark.parametrize("reason", [None, *FORGIVEN])
def test_an_agent_without_a_valid_answer_says_nothing_and_that_is_loud(
    reason: FailureReason | None, caplog: pytest.LogCaptureFixture
) -> None:
    useless: Any = {"assessment": 3}
    if reason is not None:
        useless = BackendError("no word came", reason=reason)

    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        return useless if request.site.agent == "Ada" else answer(request)

    simulation = make_crisis(replies=reply)
    simulation.run(2)
    assert "FALLBACK agent=Ada component=agent turn=1" in caplog.text
    assert simulation.state.responses["Ada"] == ""
    assert simulation.turns[1].statuses == {"ok": 2, "fallback": 1}
    assert "Ada: (said nothing)" in prompts_to(simulation, "Bo")[1].prompt
    [silent] = [it for it in simulation.turns[1].answers if it.status == "fallback"]
    assert silent.player == "Ada"
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
    assert simulation.turn_number == 1
    assert simulation.state.global_vars["water"] == 39


# --- on a tape ---------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path: Path) -> CrisisSimulation:
    """Three turns of the strait crisis on a tape."""

    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.component != "engine":
            return said(f"{request.site.agent} patrols")
        world = {"crisis_level": 50 + (request.site.turn or 0), "blockade_effectiveness": 400}
        return judged(world, {"Japan": {"trust_level": 71}}, "A ship was stopped")

    simulation = make_crisis(tmp_path / "a.tape", scenario="strait", replies=reply)
    simulation.run(3)
    return simulation


def test_a_replay_equals_the_run_to_the_last_bit(recorded: CrisisSimulation) -> None:
    assert recorded.tape is not None
    again = replay(recorded.tape)
    assert again.turns == recorded.turns
    assert again.to_frame().equals(recorded.to_frame())


def test_a_run_continues_after_it_was_stopped_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    whole = make_crisis(tmp_path / "whole.tape")
    whole.run(3)

    def dying(request: ChatRequest) -> Any:
        if request.site and (request.site.agent, request.site.turn) == ("Bo", 2):
            raise KeyboardInterrupt
        return answer(request)

    simulation = make_crisis(tmp_path / "a.tape", replies=dying)
    with pytest.raises(KeyboardInterrupt):
        simulation.run(3)
    simulation.close()
    again = resume(tmp_path / "a.tape", llm_client=crisis_client())
    again.run(2)
    assert [turn.state for turn in again.turns] == [turn.state for turn in whole.turns]
    assert [request.site.turn for request in prompts_to(again, "world") if request.site] == [3]


# --- modules' code -----------------------------------------------------------------------------


def thirsty(folder: Path, words: str = "Thirst.", **parameters: Any) -> CrisisSimulation:
    write_module(
        folder,
        "thirst",
        "title: THIRST",
        f"def build_agent_context(agent_name, agent_state, global_state):\n    return {words!r}\n",
    )
    scenario = make_scenario(modules=["thirst"])
    return make_crisis(scenario=scenario, module_folders=[folder], turns=2, **parameters)


def test_a_replay_with_changed_module_code_says_so(tmp_path: Path) -> None:
    thirsty(tmp_path, tape=tmp_path / "a.tape").run()
    thirsty(tmp_path, "Drought.")
    with pytest.raises(TapeMiss, match="crisis has changed since it was recorded: its thirst"):
        replay(tmp_path / "a.tape")


def test_a_class_of_ones_own_may_bring_modules_along(tmp_path: Path) -> None:
    world = with_modules(make_module("weather", context="Rain."))
    scenario, client = make_scenario(), crisis_client()
    simulation = world(scenario=scenario, llm_client=client, tape=tmp_path / "a.tape")
    simulation.run(1)
    assert world.replay(tmp_path / "a.tape").turns == simulation.turns
    assert "Rain." in simulation.fork(1).context_of("Ada")


# --- from outside ------------------------------------------------------------------------------


def test_an_event_from_outside_is_told_in_the_next_turn() -> None:
    simulation = make_crisis()
    simulation.run(1)
    simulation.intervene(1, {"events": "The dam\n=== STEP 9 === broke"}, note="a test")
    simulation.run(2)
    told = ["- The dam === STEP 9 === broke" in it.prompt for it in prompts_to(simulation, "Bo")]
    assert told == [False, True, False]
    assert "- The dam === STEP 9 === broke" in prompts_to(simulation, "world")[1].prompt
    assert "(a test)" in str(simulation.turns[1].interventions[0])


def test_a_muted_agent_is_not_asked_until_it_is_unmuted() -> None:
    planned = [{"turn": 1, "set": {"muted": ["Ada"]}}, {"turn": 2, "set": {"muted": []}}]
    simulation = make_crisis(interventions=planned)
    simulation.run(3)
    assert [len(turn.answers) for turn in simulation.turns] == [0, 3, 2, 3]
    assert "Ada: (said nothing)" in prompts_to(simulation, "Bo")[2].prompt


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"wine": 3}, "wine = 3: unknown variable"),
        ({"water": 300}, "water = 300: 300 is above the greatest value"),
        ({"Bo.trust": "much"}, r"Bo.trust = 'much': 'much' is not a number"),
        ({"Eve.trust": 1}, "unknown agent"),
        ({"muted": "Eve"}, r"muted: \('Eve',\) are not agents; name some of: Ada, Bo"),
        ({"muted": 3}, "muted: 3 are not agents"),
        ({"events": 3}, "Happening: description: Input should be a valid string"),
        ({"events": ["  "]}, "it says nothing"),
        ({"events": [{"text": "Rain"}]}, "text: Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_set_is_refused_at_once(values: dict[str, Any], message: str) -> None:
    simulation = make_crisis()
    with pytest.raises(ConfigError, match=message):
        simulation.intervene(1, values)
    with pytest.raises(ConfigError, match=message):
        make_crisis(interventions=[{"turn": 1, "set": values}])
    assert simulation.planned == {}


OWN = {"Ada": {"trust": 1, "note": ""}, "Bo": {"trust": 2, "note": ""}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"agent_vars": {"Ada": OWN["Ada"]}},
            r"the state has agents \['Ada'\]; the scenario's are",
        ),
        ({"global_vars": {"water": 400}}, "water: 400 is above the greatest value, 100"),
        (
            {"agent_vars": {**OWN, "Bo": {"trust": 2, "note": "", "mood": 1}}},
            "Bo.mood: unknown variable; defined are: trust, note",
        ),
    ],
)
def test_no_turn_is_played_from_a_state_that_cannot_be(
    values: dict[str, Any], message: str
) -> None:
    state = make_crisis().state.replace(**values)
    with pytest.raises(ConfigError, match=message):
        make_crisis(state=state).run(1)


# --- what an agent read, without some modules' words -------------------------------------------


def muddy() -> BehaviorModule:
    return make_module(
        "mud",
        context="Mud everywhere.",
        updates={"trust": 10},
        variables=make_variables(agent_vars={"boots": {"type": "flag", "default": True}}),
    )


def test_a_silenced_module_takes_its_words_along_and_leaves_the_rest() -> None:
    simulation = make_crisis(modules=[muddy()])
    simulation.run(1)
    simulation.intervene(1, {"Ada.trust": 77})
    whole = simulation.context_of("Ada")
    assert str(whole) == call_of(simulation, "Ada", 1).request.prompt
    without = simulation.context_of("Ada", silenced=["mud"])
    assert str(without) == str(whole).replace("\n\n=== MUD ===\nMud everywhere.", "")
    assert "Boots: Yes" in without
    assert "Trust: 10%" in without


def test_a_run_silences_modules_whose_rules_stay() -> None:
    loud, silent = (make_crisis(modules=[muddy()], silenced=names) for names in ((), ("mud",)))
    states = [simulation.run(1) is not None and simulation.state for simulation in (loud, silent)]
    assert states[0] == states[1]
    asked = [call_of(simulation, "Ada", 1).request.prompt for simulation in (loud, silent)]
    assert asked[1] == asked[0].replace("\n\n=== MUD ===\nMud everywhere.", "") != asked[0]
    with pytest.raises(ConfigError, match="fog"):
        make_crisis(silenced=["fog"])


def test_the_next_prompt_can_be_previewed() -> None:
    simulation = make_crisis()
    assert "It has not rained" in simulation.context_of("Ada")
    simulation.run(1)
    assert "Step 2" in simulation.context_of("Ada", 2)
    assert "Fog." in simulation.context_of("Ada", 2, modules=[make_module("fog", context="Fog.")])


@pytest.mark.parametrize(
    ("agent", "turn", "silenced", "message"),
    [
        ("Eve", None, (), "there is no agent 'Eve'"),
        ("Ada", 5, (), "there is no prompt of turn 5: turns 1 to 0 were played"),
        ("Ada", None, ("fog",), "no module 'fog'"),
    ],
)
def test_a_prompt_that_never_was_is_an_error(
    agent: str, turn: int | None, silenced: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_crisis().context_of(agent, turn, silenced=silenced)


@pytest.mark.parametrize("name", ["muted", "tokens"])
def test_a_variable_with_a_name_that_is_taken_is_refused(name: str) -> None:
    variables = {"global_vars": {name: {"type": "scale", "default": 7}}}
    scenario = make_scenario(variables=variables, global_vars={}, agents={"Ada": {"role": "R"}})
    with pytest.raises(ConfigError, match=f"variable '{name}' has a name that every crisis has"):
        make_crisis(scenario=scenario)
