"""A replay equals the original run to the last bit, and asks nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import in_words, make_client, policy, verdict
from tape_kit import HashBackend, asked, hash_client, make_recorded, steady_config

from llmsim_lab.agents import Agent, EconLLMAgent
from llmsim_lab.engines import EconLLMEngine
from llmsim_lab.errors import ConfigError, LLMFailureException, TapeError
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import (
    Action,
    GlobalState,
    LLMReasoningChain,
    PolicyDecision,
    SimulationState,
)
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import fork, load, replay, rerun, resume
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.types import CallSite, ChatRequest
from llmsim_lab.validators import AlwaysValid

HERE = Path(__file__).parent


def assert_replays(simulation: Simulation, **parts: Any) -> Simulation:
    """Replay a recorded run and hold everything a user sees against the original."""
    tape = simulation.tape
    assert tape is not None
    replayed: Simulation = replay(tape.path, simulation.run_id, **parts)
    assert replayed.turns == simulation.turns == load(tape.path, simulation.run_id, **parts).turns
    assert replayed.state == simulation.state
    assert replayed.chains == simulation.chains
    assert [chain.call for chain in replayed.chains] == [c.call for c in simulation.chains]
    assert [str(chain) for chain in replayed.chains] == [str(c) for c in simulation.chains]
    assert [t.actions for t in replayed.turns] == [t.actions for t in simulation.turns]
    assert replayed.statuses == simulation.statuses
    assert replayed.validator.get_stats() == simulation.validator.get_stats()
    for frame in ("to_frame", "decisions"):
        pd.testing.assert_frame_equal(
            getattr(replayed, frame)(), getattr(simulation, frame)(), check_exact=True
        )
    if replayed.llm_client is not None:
        assert asked(replayed) == []
    return replayed


def test_rules_models_their_faults_shocks_and_interventions_replay_to_the_last_bit(
    tmp_path: Path,
) -> None:
    simulation = make_recorded(tmp_path / "x.tape", turns=6, faulty=True)
    assert {"ok", "repaired"} <= set(simulation.statuses) <= {"ok", "repaired", "fallback"}
    assert simulation.tape is not None
    faults = {call.attempt.reason for call in simulation.tape.calls(1)}
    assert faults == {None, "timeout", "connection_error", "invalid_response"}
    assert {action.proposed_rate is None for action in simulation.turns[1].actions} == {True, False}
    assert [len(turn.interventions) for turn in simulation.turns][:5] == [0, 0, 1, 1, 0]
    before = len(asked(simulation))
    assert_replays(simulation)
    assert len(asked(simulation)) == before


def test_a_run_without_a_model_replays(tmp_path: Path) -> None:
    config = SimulationConfig.model_validate(
        {
            "nations": [{"name": "Rule", "kind": "taylor"}],
            "validator": {"kind": "always_valid"},
            "economy": {"shock_scale": 1},
            "seed": 4,
        }
    )
    simulation = Simulation(config, tape=tmp_path / "x.tape")
    simulation.run(8)
    assert_replays(simulation)


def test_interventions_made_while_a_run_was_under_way_replay(tmp_path: Path) -> None:
    simulation = make_recorded(tmp_path / "x.tape", turns=0, interventions=[])
    simulation.intervene(0, set={"interest_rate": 7.25}, note="a new start")
    simulation.run(1)
    simulation.intervene(1, set={"unemployment": 9.1})
    simulation.intervene(1, set={"inflation": 3.3}, note="and again")
    simulation.intervene(3, shock={"demand": -2.5}, set={"total_economic_value": 500})
    simulation.run(3)
    assert [len(turn.interventions) for turn in simulation.turns] == [1, 2, 0, 1, 0]
    replayed = assert_replays(simulation)
    assert replayed.turns[1].state.global_state.unemployment == 9.1


def test_decisions_off_the_subject_replay_as_failed(tmp_path: Path) -> None:
    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.agent == "Singer" and request.site.component == "agent":
            return policy("Sing a song")
        return policy("Raise the tax rate") if request.site.component == "agent" else verdict(False)

    simulation = Simulation(
        in_words(nations=("Singer", "Other")),
        llm_client=make_client(reply),
        tape=tmp_path / "x.tape",
    )
    simulation.run(2)
    actions = simulation.turns[1].actions
    assert [(a.status, a.validated) for a in actions] == [("failed", False), ("ok", False)]
    replayed = assert_replays(simulation)
    call = replayed.turns[1].chains[0].call
    assert call is not None
    assert (call.status, call.attempts) == ("failed", 2)


def test_a_part_of_a_run_replays(tmp_path: Path) -> None:
    simulation = make_recorded(tmp_path / "x.tape", turns=4)
    assert replay(tmp_path / "x.tape", turns=2).turns == simulation.turns[:3]
    assert replay(tmp_path / "x.tape", turns=0).turns == simulation.turns[:1]


@pytest.mark.parametrize("turns", [-1, 5])
def test_more_turns_than_were_recorded_cannot_be_replayed(tmp_path: Path, turns: int) -> None:
    make_recorded(tmp_path / "x.tape", turns=4)
    with pytest.raises(ConfigError, match=f"turns={turns}: run 1 can be replayed up to turn 0 to"):
        replay(tmp_path / "x.tape", turns=turns)


# --- forks, reruns, resumed runs ---------------------------------------------------------------


def test_forks_and_forks_of_forks_replay(tmp_path: Path) -> None:
    root = make_recorded(tmp_path / "x.tape", turns=4)
    prompt = root.agents[0].prompt  # type: ignore[attr-defined]
    first = root.fork(2, prompt=prompt.edit(prompt.text + "\nBe bold."))
    first.run(3)
    second = first.fork(
        3,
        state=GlobalState(inflation=12.0),
        intervene=[{"turn": 3, "set": {"unemployment": 8}}, {"turn": 4, "shock": {"demand": 1}}],
    )
    second.run(2)
    third = second.fork(1)
    third.run(1)
    for simulation in (root, first, second, third):
        assert_replays(simulation)
    assert root.turns[:3] == first.turns[:3]
    assert second.turns[3].state.global_state.inflation == 12.0
    assert second.turns[3].state.global_state.unemployment == 8.0


def test_a_fork_stays_as_it_was_whatever_its_parent_does_later(tmp_path: Path) -> None:
    root = make_recorded(tmp_path / "x.tape", turns=2)
    branch = root.fork()
    branch.run(1)
    root.intervene(2, set={"inflation": 1.0})
    root.run(2)
    assert branch.turns[2] != root.turns[2]
    assert_replays(branch)
    assert_replays(root)


def test_a_rerun_is_a_sample_of_its_own_and_replays(tmp_path: Path) -> None:
    numbers = iter(range(10_000))

    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        number = next(numbers)
        if request.site.component == "agent":
            return policy(f"Raise the tax rate by {number}")
        return verdict(False, reasoning=f"No. {number}")

    config = in_words(nations=("A", "B"))
    first = Simulation(config, llm_client=make_client(reply), tape=tmp_path / "x.tape")
    first.run(2)
    second = rerun(first.tape, llm_client=first.llm_client)  # type: ignore[arg-type]
    second.run(2)
    texts = [
        [c.reasoning for c in run.chains if c.component == "validator"] for run in (first, second)
    ]
    assert not set(texts[0]) & set(texts[1])
    assert_replays(first)
    assert_replays(second)


def test_a_rerun_of_a_changed_run_begins_where_that_began(tmp_path: Path) -> None:
    # This model gives the same answers where no seed says otherwise.
    root = make_recorded(tmp_path / "x.tape", turns=0, interventions=[], replicate=None)
    root.intervene(0, set={"inflation": 8.0})
    root.intervene(2, shock={"supply": 1.0})
    root.run(3)
    again = rerun(tmp_path / "x.tape", 1, llm_client=hash_client())
    again.run(3)
    assert [t.state.global_state for t in again.turns] == [t.state.global_state for t in root.turns]
    assert_replays(again)


# --- parts of one's own ------------------------------------------------------------------------


class Careless(Agent):
    """An agent that calls the model without saying from where."""

    def __init__(self, name: str, client: LLMClient, *, site: CallSite | None = None) -> None:
        super().__init__(name)
        self.llm_client = client
        self.site = site

    async def decide_action(self, state: SimulationState) -> Action:
        decision = await self.llm_client.call_with_retry(
            prompt="Always the same question about tax.",
            response_model=PolicyDecision,
            site=self.site,
        )
        return Action(agent_name=self.name, action_string=decision.action, policy_decision=decision)


class CarelessEngine(EconLLMEngine):
    """An engine that asks nobody."""

    async def run_turn(self, validated_actions: Any) -> SimulationState:
        state = self.current_state
        rate = state.global_state.interest_rate + 0.1 * len(validated_actions)
        economy = state.global_state.model_copy(update={"interest_rate": rate})
        chain = LLMReasoningChain(
            component="engine",
            agent="all",
            turn=state.turn + 1,
            reasoning="By hand.",
        )
        return state.model_copy(
            update={"turn": state.turn + 1, "global_state": economy, "reasoning_chains": (chain,)}
        )


def counting_client() -> LLMClient:
    """A client that never answers alike."""
    numbers = iter(range(10_000))
    return make_client(lambda request: policy(f"Raise the tax rate by {next(numbers)}"))


@pytest.mark.parametrize(
    "site",
    [None, CallSite(component="agent"), CallSite(component="mine", agent="me", turn=0)],
    ids=["none", "no turn", "always turn 0"],
)
def test_agents_that_do_not_say_where_they_call_from_replay_and_resume(
    tmp_path: Path, site: CallSite | None
) -> None:
    client = counting_client()

    def parts() -> dict[str, Any]:
        return {
            "agents": [Careless("A", client, site=site), Careless("B", client, site=site)],
            "validator": AlwaysValid(),
            "engine": CarelessEngine(),
        }

    simulation = Simulation(in_words(), llm_client=client, tape=tmp_path / "x.tape", **parts())
    simulation.run(2)
    simulation.close()
    simulation = resume(tmp_path / "x.tape", llm_client=client, **parts())
    simulation.run(2)
    said = [action.action_string for turn in simulation.turns for action in turn.actions]
    assert len(set(said)) == 8
    replayed = replay(
        tmp_path / "x.tape",
        **{
            **parts(),
            "agents": [Careless(n, make_client(TapeError("called")), site=site) for n in "AB"],
        },
    )
    assert replayed.turns == simulation.turns


def test_a_replay_wants_the_parts_that_the_run_was_given(tmp_path: Path) -> None:
    simulation = Simulation(
        in_words(),
        llm_client=counting_client(),
        agents=[Careless("A", counting_client())],
        engine=CarelessEngine(),
        validator=AlwaysValid(),
        tape=tmp_path / "x.tape",
    )
    simulation.run(1)
    with pytest.raises(ConfigError, match=r"was given agents, engine, validator.*agents=\.\.\."):
        replay(tmp_path / "x.tape")
    with pytest.raises(ConfigError, match="was given engine"):
        replay(tmp_path / "x.tape", agents=simulation.agents, validator=AlwaysValid())


def test_an_agent_that_makes_a_default_of_a_failed_call_replays(tmp_path: Path) -> None:
    class Steadfast(EconLLMAgent):
        async def decide_action(self, state: SimulationState) -> Action:
            try:
                return await super().decide_action(state)
            except LLMFailureException as failure:
                chain = LLMReasoningChain(
                    component="agent",
                    agent=self.name,
                    turn=state.turn + 1,
                    reasoning=failure.reason,
                    status="fallback",
                )
                return Action(
                    agent_name=self.name,
                    action_string="Hold the interest rate",
                    proposed_rate=state.global_state.interest_rate,
                    status="fallback",
                    chain=chain,
                )

    def parts(client: LLMClient) -> dict[str, Any]:
        return {"agents": [Steadfast("A", client)]}

    client = make_client(TimeoutError())
    config = SimulationConfig.model_validate({"validator": {"kind": "always_valid"}})
    simulation = Simulation(config, llm_client=client, tape=tmp_path / "x.tape", **parts(client))
    simulation.run(2)
    never = make_client(TapeError("called"))
    assert_replays(simulation, **parts(never))


def test_an_initial_state_with_another_runs_chains_begins_without_them(tmp_path: Path) -> None:
    other = make_recorded(tmp_path / "other.tape", turns=2)
    simulation = Simulation(
        steady_config(interventions=[]),
        llm_client=hash_client(),
        state=other.state,
        tape=tmp_path / "x.tape",
    )
    simulation.run(1)
    assert simulation.turns[0].chains == ()
    assert_replays(simulation)


# --- other processes, other orders -------------------------------------------------------------


@pytest.mark.process
def test_a_replay_in_another_process_gives_the_same(
    tmp_path: Path, under_two_hash_seeds: Callable[..., list[str]]
) -> None:
    simulation = make_recorded(tmp_path / "x.tape", turns=3, faulty=True)
    code = (
        "import sys\n"
        "from llmsim_lab.run import replay\n"
        "run = replay(sys.argv[1])\n"
        "print(run.to_frame().to_csv(), run.decisions().to_csv())\n"
        "print([turn.state.model_dump_json(exclude={'reasoning_chains'}) for turn in run.turns])\n"
    )
    printed = under_two_hash_seeds(code, tmp_path / "x.tape")
    states = [t.state.model_dump_json(exclude={"reasoning_chains"}) for t in simulation.turns]
    expected = f"{simulation.to_frame().to_csv()} {simulation.decisions().to_csv()}\n{states}\n"
    assert printed == [expected, expected]


def test_the_order_in_which_answers_come_changes_nothing(tmp_path: Path) -> None:
    names = [f"Nation {number}" for number in range(12)]
    config = steady_config(nations=names)
    client = hash_client(HashBackend(delay_s=0.01, faulty=True), max_concurrency=8)
    simulation = Simulation(config, llm_client=client, tape=tmp_path / "x.tape")
    simulation.run(3)
    assert simulation.tape is not None
    sites = [call.attempt.request.site for call in simulation.tape.calls(1, turn=1)]
    order = [site.agent for site in sites if site and site.component == "agent"]
    assert order != sorted(order, key=lambda name: names.index(str(name)))
    assert_replays(simulation)


def test_the_prompts_come_from_the_recording_not_from_todays_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine.md"
    shipped = Prompt.load("agent_policy").text
    mine.write_text(f"## User\n\n{shipped.split('## User')[1].strip()}\nBe {{{{ profile }}}}\n")
    config = steady_config(nations=[{"name": "Aland", "prompt": str(mine)}, "Borduria"])
    simulation = Simulation(config, llm_client=hash_client(), tape=tmp_path / "x.tape")
    simulation.run(2)
    mine.unlink()
    shipped_load = Prompt.load

    def changed(name: Any) -> Prompt:
        prompt = shipped_load(name)
        return prompt.edit(prompt.text + "\nAnd be quick.")

    monkeypatch.setattr(Prompt, "load", changed)
    replayed = assert_replays(simulation)
    assert "And be quick" not in replayed.chains[0].prompt
    branch = fork(tmp_path / "x.tape", llm_client=hash_client())
    branch.run(1)
    assert "And be quick" not in branch.chains[-1].prompt
