"""Runs with people in them: configured, recorded, replayed, resumed, forked, and done over."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from builders import answer, make_client, requests_of

from llmsim_lab.agents import NationAgent, TaylorRuleAgent
from llmsim_lab.agents._human import HumanAgent
from llmsim_lab.economy import TaylorRule
from llmsim_lab.engines import EconomicEngine
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm._human import OpenQuestion
from llmsim_lab.models import GlobalState
from llmsim_lab.run import fork, load, replay, resume
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.simulation._counterfactual import people_in, with_seats, world_differs
from llmsim_lab.validators import AlwaysValid, EconLLMValidator


def config_with(*nations: dict[str, Any], **fields: Any) -> SimulationConfig:
    fields.setdefault("nations", nations or ({"name": "Aland", "kind": "human"},))
    fields.setdefault("validator", {"kind": "always_valid"})
    return SimulationConfig(start="1979Q3", **fields)


def half_a_point_up(question: OpenQuestion) -> dict[str, Any]:
    offered = question.fields["proposed_rate"]["enum"]
    now = sum(offered) / len(offered)
    return {
        "action": f"Raise the rate in turn {question.turn}",
        "reasoning": "Inflation is high.",
        "confidence": 0.7,
        "proposed_rate": next(rate for rate in offered if rate > now + 0.3),
    }


def peopled(simulation: Simulation) -> Simulation:
    """Let all people of a run raise the rate, turn after turn."""
    for person in people_in(simulation):
        person.person.ask = half_a_point_up
    return simulation


def played(turns: int = 3, *, client: LLMClient | None = None, **fields: Any) -> Simulation:
    simulation = peopled(Simulation(config_with(**fields), llm_client=client))
    simulation.run(turns)
    return simulation


# Configuration


def test_a_run_of_people_and_rules_needs_no_model() -> None:
    config = config_with({"name": "Aland", "kind": "human"}, {"name": "Borduria", "kind": "taylor"})
    assert not config.needs_model
    simulation = peopled(Simulation(config))
    assert len(simulation.run(2)) == 3
    assert isinstance(simulation.agents[0], HumanAgent)


def test_a_person_who_names_no_rate_needs_the_engines_model() -> None:
    config = config_with({"name": "Aland", "kind": "human", "names_rate": False})
    assert config.needs_model
    with pytest.raises(ConfigError, match=r"the engine, for nation 'Aland' .* needs a model"):
        Simulation(config)


def test_the_engines_model_makes_a_rate_of_a_persons_words() -> None:
    client = make_client()
    config = config_with({"name": "Aland", "kind": "human", "names_rate": False})
    simulation = Simulation(config, llm_client=client)
    [agent] = people_in(simulation)
    agent.person.ask = lambda _: {
        "action": "Raise the rate a little",
        "reasoning": "So far, so good.",
        "confidence": 0.5,
    }
    simulation.run(1)
    [request] = requests_of(client)
    assert "Raise the rate a little" in request.prompt


def test_a_yaml_file_can_name_a_person(tmp_path: Path) -> None:
    path = tmp_path / "chair.yaml"
    path.write_text(
        "start: 1979Q3\nnations:\n  - name: Aland\n    kind: human\n    mandate: jobs\n"
        "    inflation_target: 3\n    timeout_s: 60\nvalidator:\n  kind: always_valid\n"
    )
    [agent] = people_in(Simulation(SimulationConfig.from_yaml(path)))
    assert (agent.profile.mandate, agent.profile.inflation_target) == ("jobs", 3)
    assert agent.llm_client.config.timeout_s == 60


@pytest.mark.parametrize("kind", ["llm", "taylor"])
def test_settings_for_people_are_errors_elsewhere(kind: str) -> None:
    with pytest.raises(ConfigError, match="names_rate, timeout_s would have no effect"):
        config_with({"name": "Aland", "kind": kind, "names_rate": False, "timeout_s": 5})


# The tape


def test_the_record_says_who_is_a_person(tmp_path: Path) -> None:
    path = tmp_path / "human.tape"
    nations = ({"name": "Aland", "kind": "human"}, {"name": "Borduria"})
    simulation = Simulation(config_with(*nations), llm_client=make_client(), tape=path)
    peopled(simulation).run(2)
    simulation.close()
    tape = Tape(path, read_only=True)
    manifest = tape.run().manifest
    kinds = {nation["name"]: nation["kind"] for nation in manifest["config"]["nations"]}
    assert kinds == {"Aland": "human", "Borduria": "llm"}
    assert manifest["model"]["backend"] == "scripted"
    frame = load(tape).decisions().query("component == 'agent'")
    models = dict(zip(frame["player"], frame["model"], strict=True))
    assert models == {"Aland": "human", "Borduria": "auto"}


def test_a_replay_does_not_need_the_person(tmp_path: Path) -> None:
    path = tmp_path / "human.tape"
    simulation = peopled(Simulation(config_with(), tape=path))
    simulation.run(3)
    simulation.close()
    again = replay(path)
    assert again.turns == simulation.turns
    assert again.to_frame().equals(simulation.to_frame())


async def test_a_replay_that_has_come_to_its_end_asks_nobody(tmp_path: Path) -> None:
    path = tmp_path / "human.tape"
    simulation = peopled(Simulation(config_with(), tape=path))
    await simulation.arun(1)
    simulation.close()
    again = load(path)
    with pytest.raises(TapeError):
        await again.step()
    assert people_in(again)[0].question is None


async def test_what_was_answered_before_a_stop_is_not_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "human.tape"
    nations = ({"name": "Aland", "kind": "human"}, {"name": "Borduria", "kind": "human"})
    simulation = Simulation(config_with(*nations), llm_client=make_client(), tape=path)
    first, second = people_in(simulation)
    task = asyncio.create_task(simulation.step())
    await first.person.asked()
    first.answer("Raise the rate", reasoning="Prices.", confidence=0.5, rate=10.67)
    await second.person.asked()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    simulation.close()

    again = resume(path, llm_client=make_client())
    first, second = people_in(again)
    task = asyncio.create_task(again.step())
    await second.person.asked()
    assert first.question is None
    second.answer("Hold the rate", reasoning="Jobs.", confidence=0.5, rate=10.42)
    turn = await task
    assert [action.rate_change_bp for action in turn.actions] == [100, 75]
    again.close()


def test_another_model_in_the_run_leaves_the_person_alone(tmp_path: Path) -> None:
    path = tmp_path / "human.tape"
    nations = ({"name": "Aland", "kind": "human"}, {"name": "Borduria"})
    simulation = Simulation(config_with(*nations), llm_client=make_client(), tape=path)
    peopled(simulation).run(2)
    simulation.close()
    other = make_client(answer, model="another")
    branch = fork(path, turn=1, llm_client=other)
    assert isinstance(branch.agents[0], HumanAgent)
    peopled(branch).run(1)
    assert {request.site.agent for request in requests_of(other, "agent") if request.site} == {
        "Borduria"
    }
    branch.close()


# Somebody else in the seat


def test_a_rule_takes_every_persons_seat_in_the_same_world() -> None:
    fields: dict[str, Any] = {
        "seed": 5,
        "economy": {"shock_scale": 1.0},
        "interventions": [{"turn": 2, "shock": {"supply": 3}}],
    }
    simulation = played(3, **fields)
    ruled = with_seats(simulation, "taylor")
    assert world_differs(simulation, ruled) == "it has 0 turns, and 3 are compared"
    ruled.run()
    assert ruled.turn_number == 3
    assert world_differs(simulation, ruled) == ""
    direct = Simulation(config_with({"name": "Rule", "kind": "taylor"}, **fields)).run(3)
    assert ruled.to_frame()["interest_rate"].equals(direct["interest_rate"])
    assert ruled.to_frame()["inflation"].equals(direct["inflation"])


async def test_people_have_the_moves_of_their_configuration() -> None:
    """History moved by 446 basis points once; a named rate reached two points."""
    simulation = Simulation(config_with(moves_bp=(-300, 0, 25, 450), turns=1))
    [agent] = people_in(simulation)
    task = asyncio.create_task(simulation.step())
    question = await agent.person.asked()
    assert question.fields["proposed_rate"]["enum"] == [6.67, 9.67, 9.92, 14.17]
    agent.answer("Raise the rate", reasoning="Prices.", confidence=0.5, rate=14.17)
    turn = await task
    [action] = turn.actions
    assert (action.rate_change_bp, action.proposed_rate) == (450, None)
    assert turn.state.global_state.interest_rate == pytest.approx(9.673333 + 4.5)
    row = simulation.decisions().iloc[0]
    assert (row["wanted_bp"], row["applied_bp"]) == (450, 450)


def test_a_model_in_a_persons_seat_is_asked_for_the_same_moves_as_others() -> None:
    simulation = played(1, moves_bp=(-50, 0, 50))
    seated = with_seats(simulation, "llm", llm_client=make_client())
    [agent] = seated.agents
    assert isinstance(agent, NationAgent)
    assert (agent.moves_bp, agent.prompt.name) == ((-50, 0, 50), "agent_briefing")
    in_words = with_seats(played(1, moves_bp=None), "llm", llm_client=make_client())
    assert in_words.agents[0].prompt.name == "agent_policy"  # type: ignore[attr-defined]
    assert in_words.agents[0].moves_bp is None  # type: ignore[attr-defined]


def test_what_was_done_during_the_run_is_done_again() -> None:
    simulation = played(1)
    simulation.intervene(1, set={"inflation": 5})
    simulation.intervene(2, shock={"supply": -2})
    simulation.run(1)
    ruled = with_seats(simulation, "taylor")
    frame = ruled.run()
    assert frame["inflation"][1] == pytest.approx(5)
    assert world_differs(simulation, ruled) == ""


def test_the_rule_aims_at_the_nations_target() -> None:
    simulation = played(1, nations=({"name": "Aland", "kind": "human", "inflation_target": 4},))
    [agent] = with_seats(simulation, "taylor").agents
    assert isinstance(agent, TaylorRuleAgent)
    assert agent.rule == TaylorRule(inflation_target=4)


def test_a_model_takes_the_seat_with_the_persons_profile() -> None:
    client = make_client()
    simulation = played(2, nations=({"name": "Aland", "kind": "human", "mandate": "jobs"},))
    modelled = with_seats(simulation, "llm", llm_client=client)
    modelled.run()
    assert isinstance(modelled.agents[0], NationAgent)
    assert [r.site.turn for r in requests_of(client, "agent") if r.site] == [1, 2]
    assert "Mandate: jobs." in requests_of(client, "agent")[0].prompt
    assert simulation.turn_number == 2


def test_a_given_validator_and_engine_go_along_with_the_new_model() -> None:
    old, new = make_client(), make_client()
    parts: dict[str, Any] = {
        "validator": EconLLMValidator(old),
        "engine": EconomicEngine(None, old),
    }
    agents = [HumanAgent("Aland", ask=half_a_point_up)]
    simulation = Simulation(config_with(), llm_client=old, agents=agents, **parts)
    simulation.run(1)
    before = len(requests_of(old))
    with_seats(simulation, "llm", llm_client=new).run()
    assert len(requests_of(old)) == before
    assert len(requests_of(new, "validator")) == 1
    assert len(requests_of(new, "engine")) == 1


def test_rules_alone_need_nobody_to_check_them() -> None:
    simulation = played(1, client=make_client(), validator={"kind": "llm"})
    ruled = with_seats(simulation, "taylor")
    assert isinstance(ruled.validator, AlwaysValid)


def test_a_run_without_people_has_no_seat_to_take() -> None:
    simulation = Simulation(config_with({"name": "Rule", "kind": "taylor"}))
    with pytest.raises(ConfigError, match="has no people in it; make a nation kind: human"):
        with_seats(simulation, "taylor")


def test_a_model_elsewhere_in_the_run_must_be_given() -> None:
    nations = ({"name": "Aland", "kind": "human"}, {"name": "Borduria"})
    simulation = played(1, client=make_client(), nations=nations)
    with pytest.raises(ConfigError, match="this run needs a model"):
        with_seats(simulation, "taylor")
    assert with_seats(simulation, "taylor", llm_client=make_client()).run(1) is not None


def test_no_model_cannot_take_a_seat() -> None:
    with pytest.raises(ConfigError, match="the seat of 'Aland' needs a model"):
        with_seats(played(1), "llm")


@pytest.mark.parametrize(
    ("fields", "difference"),
    [
        ({"economy": {"shock_scale": 0.5}}, "its economy is another"),
        ({"seed": 6}, "its seed of the shocks is another: 6, not 5"),
        ({"engine": {"max_move": 1}}, "its limits of the rate is another"),
        ({"interventions": ()}, "at turn 2 is another: nothing, not turn 2: supply shock"),
    ],
)
def test_another_world_is_named_as_the_difference(fields: dict[str, Any], difference: str) -> None:
    world: dict[str, Any] = {
        "seed": 5,
        "economy": {"shock_scale": 1.0},
        "interventions": [{"turn": 2, "shock": {"supply": 3}}],
    }
    assert difference in world_differs(played(2, **world), played(2, **world | fields))


def test_another_start_is_named_as_the_difference() -> None:
    other = Simulation(config_with(), state=None)
    moved = other.fork(0, state=GlobalState())
    assert "its starting state is another" in world_differs(other, moved)
