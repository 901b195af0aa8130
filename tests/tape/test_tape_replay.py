"""A replay equals the original run to the last bit, and asks nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import in_words, make_client, policy
from journal_kit import run_program
from tape_kit import asked, make_recorded

from llmsim_lab.agents import Agent
from llmsim_lab.errors import TapeError
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import Action, PolicyDecision, SimulationState
from llmsim_lab.run import load, replay, resume
from llmsim_lab.simulation import Simulation
from llmsim_lab.types import CallSite


def test_rules_models_their_faults_shocks_and_interventions_replay_to_the_last_bit(
    tmp_path: Path,
) -> None:
    simulation = make_recorded(tmp_path / "x.tape", turns=6, faulty=True)
    assert {"ok", "repaired"} <= set(simulation.statuses) <= {"ok", "repaired", "fallback"}
    assert simulation.tape is not None
    faults = {call.attempt.reason for call in simulation.tape.calls(1)}
    assert faults == {None, "timeout", "connection_error", "invalid_response"}
    assert {answer.call is None for answer in simulation.turns[1].answers} == {True, False}
    assert [len(turn.interventions) for turn in simulation.turns][:5] == [0, 0, 2, 0, 0]
    before = len(asked(simulation))
    replayed = replay(tmp_path / "x.tape")
    assert replayed.turns == simulation.turns == load(tmp_path / "x.tape").turns
    for same in ("state", "calls", "statuses"):
        assert getattr(replayed, same) == getattr(simulation, same)
    for frame in ("to_frame", "decisions"):
        frames = [getattr(run, frame)() for run in (replayed, simulation)]
        pd.testing.assert_frame_equal(*frames, check_exact=True)
    assert (asked(replayed), len(asked(simulation))) == ([], before)


@pytest.mark.process
def test_a_replay_in_another_process_gives_the_same(tmp_path: Path) -> None:
    simulation = make_recorded(tmp_path / "x.tape", turns=3, faulty=True)
    code = """
        from llmsim_lab.run import replay
        run = replay(sys.argv[1])
        print(run.to_frame().to_csv(), run.decisions().to_csv())
        print([turn.state.model_dump_json() for turn in run.turns])
    """
    states = [turn.state.model_dump_json() for turn in simulation.turns]
    frames = f"{simulation.to_frame().to_csv()} {simulation.decisions().to_csv()}"
    assert run_program(code, tmp_path / "x.tape") == f"{frames}\n{states}\n"


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


@pytest.mark.parametrize("site", [None, CallSite(component="mine", agent="me", turn=0)])
def test_agents_that_do_not_say_where_they_call_from_replay_and_resume(
    tmp_path: Path, site: CallSite | None
) -> None:
    numbers = iter(range(10_000))
    client = make_client(lambda request: policy(f"Raise the tax rate by {next(numbers)}"))

    def seats(client: LLMClient) -> dict[str, Any]:
        return {name: Careless(name, client, site=site) for name in "AB"} | {"engine": "rule"}

    config = in_words(nations=("A", "B"), validator="none")
    simulation = Simulation(
        config, players=seats(client), llm_client=client, tape=tmp_path / "x.tape"
    )
    simulation.run(2)
    simulation.close()
    simulation = resume(tmp_path / "x.tape", llm_client=client, players=seats(client))
    simulation.run(2)
    answers = [it for turn in simulation.turns for it in turn.answers if it.player in ("A", "B")]
    actions = [it.fields["action"] for it in answers if it.component == "agent"]
    assert len(set(actions)) == len(actions) == 8
    never = make_client(TapeError("called"))
    assert replay(tmp_path / "x.tape", players=seats(never)).turns == simulation.turns
