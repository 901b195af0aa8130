"""A replay that leaves its recording says how, and what to do; nothing is asked or written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import in_words, make_client
from tape_kit import asked, bytes_in, hash_client, make_recorded
from tape_text import rewrite

from llmsim_lab.agents import NationAgent
from llmsim_lab.errors import TapeError, TapeMiss
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import Action, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import replay
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape._miss import explain_miss
from llmsim_lab.types import Attempt, CallSite, ChatRequest, Message

CONFIG = in_words(nations=["Aland"], validator="none")


def seats(agent: NationAgent) -> dict[str, Any]:
    return {"players": {"Aland": agent, "engine": "rule"}}


def record(path: Path, **llm: Any) -> None:
    """A finished run of one agent that was given, on a tape at rest."""
    client = hash_client(**llm)
    simulation = Simulation(
        CONFIG, llm_client=client, tape=path, **seats(NationAgent("Aland", client))
    )
    simulation.run(2)
    simulation.close()
    assert simulation.tape is not None
    simulation.tape.close()


def never(**llm: Any) -> LLMClient:
    return make_client(TapeError("a call was made"), **{"model": "hash"} | llm)


def missed(path: Path, agent: NationAgent) -> str:
    """What a replay with another agent says."""
    before = bytes_in(path.parent)
    with pytest.raises(TapeMiss) as caught:
        replay(path, **seats(agent))
    assert bytes_in(path.parent)[path.name] == before[path.name]
    assert asked(Simulation(CONFIG, llm_client=agent.llm_client)) == []
    return str(caught.value)


def agent(name: str = "Aland", **llm: Any) -> NationAgent:
    return NationAgent(name, never(**llm))


def other_prompt() -> NationAgent:
    prompt = Prompt.load("agent_policy").replace("most pressing", "least urgent")
    return NationAgent("Aland", never(), prompt=prompt)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (other_prompt(), ["the [-most-]{+least+} [-pressing-]{+urgent+} economic issue"]),
        (agent(temperature=0.1), ["options differs: recorded {", '"temperature": 0.7']),
        (agent(options={"top_k": 3}), ["options differs: recorded {", '"top_k": 3']),
        (agent(model="llama"), ['model differs: recorded "hash", asked "llama"']),
        (agent(max_text_chars=50), ["schema differs: recorded {"]),
        (agent("Elbonia"), ["the place differs: recorded", "'Aland'", "'Elbonia'"]),
    ],
    ids=["prompt", "option", "own option", "model", "form", "agent"],
)
def test_what_differs_is_named_with_both_values_and_the_way_out(
    tmp_path: Path, other: NationAgent, words: list[str]
) -> None:
    record(tmp_path / "x.tape")
    message = missed(tmp_path / "x.tape", other)
    assert "run 1 has no recorded call for agent of " in message
    assert [word for word in words if word not in message] == []
    assert ("the prompt differs" in message) == ("urgent" in message or "Elbonia" in message)
    assert "Analyze the current economic state" not in message
    assert "to continue with other ones, fork the run" in message


def test_a_changed_line_is_shown_with_the_ones_around_it() -> None:
    lines = [f"{word} line" for word in ("first", "second", "third", "fourth", "fifth")]
    recorded, asked = (
        ChatRequest(model="m", messages=(Message("user", "\n".join(said)),))
        for said in (lines, [*lines[:2], "third sentence", *lines[3:]])
    )
    message = explain_miss(asked, [Attempt(request=recorded, reply=None, seconds=0.0)], run=3)
    assert message == (
        "run 3 has no recorded call for a call outside a turn. From the nearest recorded one, "
        "the prompt differs:\nsecond line\nthird [-line-]{+sentence+}\nfourth line\n"
        "A replay takes the prompts, the configuration and the code of the recording; "
        "to continue with other ones, fork the run."
    )


def test_one_call_more_than_was_recorded_is_told_from_a_changed_one(tmp_path: Path) -> None:
    class Twice(NationAgent):
        async def decide_action(self, state: SimulationState) -> Action:
            await super().decide_action(state)
            return await super().decide_action(state)

    record(tmp_path / "x.tape")
    message = missed(tmp_path / "x.tape", Twice("Aland", never()))
    assert "nothing differs: it was asked once more than was recorded" in message


def test_a_turn_more_than_was_recorded_is_refused_with_the_way_out(tmp_path: Path) -> None:
    make_recorded(tmp_path / "x.tape", turns=2)
    replayed = replay(tmp_path / "x.tape")
    with pytest.raises(TapeError, match=r"ends at turn 2; turn 3 was not recorded.*fork"):
        replayed.run(1)
    assert replayed.turn_number == 2


@pytest.mark.parametrize(
    ("part", "name", "complaint"),
    [
        ("noted", "accepted", r"turn 2 of run 1 came out .* noted\.accepted was 9 and is "),
        ("row", "inflation", r"in its row of the frame, inflation was 9 and is "),
    ],
)
def test_a_turn_that_was_tampered_with_is_found_out_by_a_replay(
    tmp_path: Path, part: str, name: str, complaint: str
) -> None:
    def change(line: dict[str, Any]) -> dict[str, Any]:
        if line.get("is") == "turn" and line["turn"] == 2:
            {"row": line["row"], "noted": line["record"]["noted"]}[part][name] = 9
        return line

    make_recorded(tmp_path / "x.tape", turns=2).close()
    rewrite(tmp_path / "x.tape", change)
    with pytest.raises(TapeError, match=complaint):
        replay(tmp_path / "x.tape")


def test_the_nearest_call_is_one_of_the_same_agent() -> None:
    def of(agent: str, prompt: str) -> ChatRequest:
        site = CallSite(component="agent", agent=agent, turn=1)
        return ChatRequest(model="m", messages=(Message("user", prompt),), site=site)

    recorded = [
        Attempt(request=of(agent, prompt), reply=None, seconds=0)
        for agent, prompt in (("Borduria", "Prices rise fast."), ("Aland", "All is calm now."))
    ]
    told = explain_miss(of("Aland", "Prices rise slowly."), recorded, run=1)
    assert "the place differs" not in told
    assert "calm" in told
