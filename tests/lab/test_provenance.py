"""Where a recorded prompt's parts came from: by building it again, else by its template."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import answer, make_client, make_simulation, policy
from viewer_kit import bumpy, played, taped

from llmsim_lab.agents import EconLLMAgent, LLMAgent
from llmsim_lab.lab.attempts import Attempts, Seen
from llmsim_lab.lab.provenance import Tracer
from llmsim_lab.models import PolicyDecision, SimulationState
from llmsim_lab.prompts import Prompt, Provenance
from llmsim_lab.simulation import Simulation, SimulationConfig, load
from llmsim_lab.simulation.rebuild import rebuilt_prompt

TAPES = Path(__file__).parents[2] / "data" / "tapes"


def trace(simulation: Any, turn: int, component: str, agent: str = "Aland") -> list[Provenance]:
    """Of each attempt of a component in a turn."""
    attempts = Attempts(simulation)
    tracer = Tracer(attempts)
    wanted = (component, agent)
    return [tracer.of(s) for s in attempts.of(turn) if (s.component, s.agent) == wanted]


def sources(found: Provenance) -> dict[str, str]:
    return {span.name: span.source for span in found.spans}


# Built again


@pytest.mark.parametrize(("tape", "run"), [("first_run", 1), ("first_run", 3), ("two_nations", 1)])
def test_every_prompt_of_the_recorded_runs_can_be_built_again(tape: str, run: int) -> None:
    attempts = Attempts(load(TAPES / f"{tape}.tape", run))
    tracer = Tracer(attempts)
    found = [
        tracer.of(seen)
        for number in range(attempts.first, attempts.last + 1)
        for seen in attempts.of(number)
    ]
    assert len(found) >= 24
    assert {one.how for one in found} == {"rebuilt"}
    assert all(span.source for one in found for span in one.spans)


def test_sources_name_the_state_and_its_turn() -> None:
    simulation = played()
    [agent] = trace(simulation, 2, "agent")
    assert sources(agent)["inflation"] == "state.global_state.inflation, turn 1"
    assert sources(agent)["profile"] == "Aland's profile"
    [validator] = trace(simulation, 2, "validator")
    assert sources(validator)["action"] == "the action that Aland proposes"
    [engine] = trace(simulation, 2, "engine", "Borduria")
    assert sources(engine)["action_string"] == "the accepted action of Borduria"
    assert str(engine).startswith("the prompt was built again from the recorded state")


def test_the_engines_second_prompt_sees_what_the_first_action_did() -> None:
    simulation = played(turns=1)
    first, second = (
        rebuilt_prompt(simulation, 1, "engine", name) for name in ("Aland", "Borduria")
    )
    assert first is not None
    assert second is not None
    assert "Interest Rate: 4%" in first
    assert "Interest Rate: 4.25%" in second


def test_an_action_that_names_its_rate_is_applied_again_as_well() -> None:
    simulation = played(names=({"name": "Rule", "kind": "taylor"}, "Aland"), turns=2)
    [engine] = trace(simulation, 2, "engine")
    assert engine.how == "rebuilt"


def test_both_attempts_of_a_repaired_call_have_the_spans(tmp_path: Path) -> None:
    first, second = trace(bumpy(tmp_path / "x.tape"), 1, "agent", "Borduria")
    assert first.how == "rebuilt"
    assert second == first


def test_lost_calls_are_built_again_too(tmp_path: Path) -> None:
    found = trace(bumpy(tmp_path / "x.tape"), 2, "engine")
    assert [one.how for one in found] == ["rebuilt"] * 3


def test_building_again_leaves_the_run_as_it_is() -> None:
    simulation = played()
    before = simulation.engine.current_state
    rebuilt_prompt(simulation, 1, "engine", "Borduria")
    assert simulation.engine.current_state is before


def test_a_forks_first_turns_are_built_with_its_parents_prompts(tmp_path: Path) -> None:
    parent = taped(tmp_path / "x.tape")
    edited = Prompt.load("agent_policy").replace("for a nation", "for one nation")
    fork = parent.fork(turn=1, prompt=edited, llm_client=make_client())
    fork.run(1)
    assert [trace(fork, turn, "agent")[0].how for turn in (1, 2)] == ["rebuilt"] * 2


# Not built again


def test_without_its_tape_a_forks_first_turns_have_no_known_spans() -> None:
    edited = Prompt.load("agent_policy").replace("for a nation", "for one nation")
    fork = played().fork(turn=1, prompt=edited, llm_client=make_client())
    [found] = trace(fork, 1, "agent")
    assert found.how == "unknown"
    assert found.why.startswith("built again, the prompt comes out differently; the system message")


def test_where_a_part_changed_the_template_is_looked_for() -> None:
    simulation = played()
    simulation.validator.permissive = False
    [found] = trace(simulation, 1, "validator")
    assert (found.how, sources(found)["action"]) == ("matched", "")
    assert found.why == "built again, the prompt comes out differently"


class Plain(LLMAgent):
    """Writes its prompt without a template."""

    fails = False

    def _construct_prompt(self, state: SimulationState) -> str:
        if self.fails:
            raise ZeroDivisionError("no such thing")
        return f"Inflation is {state.global_state.inflation}. What now?"

    def _validate_decision(self, decision: PolicyDecision) -> bool:
        return True


def with_agent(kind: type[LLMAgent]) -> Simulation:
    client = make_client()
    simulation = Simulation(SimulationConfig(), llm_client=client, agents=[kind("Aland", client)])
    simulation.run(1)
    return simulation


def test_a_prompt_without_a_template_has_no_spans() -> None:
    [found] = trace(with_agent(Plain), 1, "agent")
    assert (found.how, found.spans) == ("rebuilt", ())
    assert str(found).endswith("(it was written without a template)")


def test_a_part_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = with_agent(Plain)
    monkeypatch.setattr(Plain, "fails", True)
    [found] = trace(simulation, 1, "agent")
    assert found.how == "unknown"
    assert found.why == "building it again failed: ZeroDivisionError: no such thing"


class Forgetful(EconLLMAgent):
    """Renders its template with something that is in no state."""

    count = 0

    def _profile(self) -> str:
        type(self).count += 1
        return f"Call {self.count}."


def test_a_prompt_that_does_not_follow_from_the_state_is_matched() -> None:
    [found] = trace(with_agent(Forgetful), 1, "agent")
    assert found.how == "matched"
    assert "profile" in sources(found)


def test_a_rules_decision_has_no_prompt() -> None:
    simulation = played(names=({"name": "Aland", "kind": "taylor"}, "Borduria"))
    [found] = trace(simulation, 1, "agent")
    assert (found.how, found.why) == ("unknown", "no prompt was recorded")


class Other:
    """A run of a kind that cannot build its prompts again."""

    def __init__(self, simulation: Simulation) -> None:
        self.turns, self.tape, self.run_id = simulation.turns, None, None
        self.engine = simulation.engine


def test_a_kind_that_cannot_build_prompts_is_matched_by_its_parts_templates() -> None:
    other = Other(played())
    [engine] = trace(other, 1, "engine")
    assert engine.how == "matched"
    assert engine.why == "this kind of simulation cannot build its prompts again"
    [agent] = trace(other, 1, "agent")
    assert agent.how == "unknown"


def test_what_is_in_no_turn_cannot_be_built_again() -> None:
    simulation = make_simulation()
    for component in ("agent", "validator", "engine", "judge"):
        assert rebuilt_prompt(simulation, 9, component, "Aland") is None
    assert rebuilt_prompt(simulation, 1, "agent", "Nobody") is None
    assert rebuilt_prompt(simulation, 1, "engine", "Aland") is None
    simulation.run(1)
    assert rebuilt_prompt(simulation, 1, "judge", "Aland") is None
    assert rebuilt_prompt(simulation, 1, "engine", "Nobody") is None


def test_an_action_of_whose_reply_nothing_is_known_ends_the_search() -> None:
    simulation = played(turns=1)
    turn = simulation.turns[1]
    chains = tuple(chain for chain in turn.chains if chain.component != "engine")
    simulation.turns[1] = replace(turn, chains=chains)
    assert rebuilt_prompt(simulation, 1, "engine", "Aland") is not None
    assert rebuilt_prompt(simulation, 1, "engine", "Borduria") is None


def test_a_rejected_action_has_no_prompt_of_the_engine() -> None:
    def reply(request: Any) -> Any:
        if request.site.component == "agent":
            return policy("Sing a song")
        return answer(request)

    simulation = played(reply, names=("Aland",), turns=1)
    assert not simulation.turns[1].actions[0].validated
    assert rebuilt_prompt(simulation, 1, "engine", "Aland") is None


def test_a_prefix_whose_run_cannot_be_loaded_is_told_by_the_fork_alone(tmp_path: Path) -> None:
    client = make_client()
    agents = [EconLLMAgent("Aland", client)]
    parent = Simulation(
        SimulationConfig(), llm_client=client, agents=agents, tape=tmp_path / "x.tape"
    )
    parent.run(2)
    edited = Prompt.load("agent_policy").replace("for a nation", "for one nation")
    fork = parent.fork(turn=1, prompt=edited)
    asyncio.run(fork.step())
    [found] = trace(fork, 1, "agent")
    assert found.how == "unknown"


def test_a_seen_rule_is_named_so() -> None:
    seen = Seen(turn=1, component="agent", agent="A", attempt=None, chain=None)
    assert seen.name == "by rule, no model asked"
