"""A replay that leaves its recording says how, and what to do; nothing is asked or written."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import in_words, make_client
from tape_kit import asked, bytes_in, hash_client, make_recorded
from tape_text import rewrite

from llmsim_lab.agents import NationAgent
from llmsim_lab.errors import TapeError, TapeMiss
from llmsim_lab.models import Action, SimulationState
from llmsim_lab.run import replay
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import verify
from llmsim_lab.tape._miss import explain_miss
from llmsim_lab.types import Attempt, CallSite, ChatRequest, Message

LINES = ["first line", "second line", "third line", "fourth line", "fifth line"]


def said(*lines: str) -> tuple[Message, ...]:
    return (Message("user", "\n".join(lines)),)


def of(agent: str, *lines: str, **more: Any) -> ChatRequest:
    site = CallSite(component="agent", agent=agent, turn=1)
    return ChatRequest(model="m", messages=said(*lines), site=site, **more)


REQUEST = of("Ann", *LINES, options={"temperature": 0.7}, schema={"type": "object"})
WAY_OUT = (
    "A replay takes the prompts, the configuration and the code of the recording; to continue with "
    "other ones, fork the run."
)


def told(request: ChatRequest, *recorded: ChatRequest) -> str:
    attempts = [Attempt(request=one, reply=None, seconds=0.0) for one in recorded]
    return explain_miss(request, attempts, run=3)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (
            {"messages": said(*LINES[:2], "third sentence", *LINES[3:])},
            "the prompt differs:\n"
            + "\n".join(LINES).replace("line\nfo", "[-line-]{+sentence+}\nfo"),
        ),
        (
            {"messages": said(*LINES, *["and more"] * 3)},
            "the prompt differs:\n" + "\n".join(LINES) + "{+" + "\nand more" * 3 + "+}",
        ),
        ({"options": {"temperature": 0.5}}, "options.temperature differs: recorded 0.7, asked 0.5"),
        (
            {"options": {"temperature": 0.7, "top_k": 3}},
            "options.top_k differs: recorded null, asked 3",
        ),
        ({"model": "llama"}, 'model differs: recorded "m", asked "llama"'),
        ({"schema": {"type": "array"}}, 'schema.type differs: recorded "object", asked "array"'),
        ({}, "nothing differs: it was asked once more than was recorded"),
    ],
)
def test_what_differs_is_named_with_both_values_and_the_way_out(
    changes: dict[str, Any], what: str
) -> None:
    place = "run 3 has no recorded call for agent of Ann, turn 1, attempt 1"
    assert told(replace(REQUEST, **changes), REQUEST) == (
        f"{place}. From the nearest recorded one, {what}\n{WAY_OUT}"
    )


def test_of_a_long_line_what_is_around_a_change_is_shown() -> None:
    words = [f"word{n}" for n in range(1200)]
    said = told(of("Ann", " ".join([*words[:-1], "last"])), of("Ann", " ".join(words)))
    assert re.search(r"differs:\nword0 .*\n…\n\w+( word\d+){7} \[-word1199-\]\{\+last\+\}\n", said)


def test_the_nearest_call_is_one_of_the_same_agent() -> None:
    recorded = of("Borduria", "Prices rise fast."), of("Aland", "All is calm now.")
    assert "calm" in told(of("Aland", "Prices rise slowly."), *recorded)
    elsewhere = told(of("Elbonia", "All is calm now."), *recorded)
    assert "the place differs: recorded CallSite(component='agent', agent='Aland'" in elsewhere
    assert "agent='Elbonia'" in elsewhere
    assert told(replace(REQUEST, site=None)).startswith(
        "run 3 has no recorded call for a call outside a turn: nothing of that turn is on the tape"
    )


def test_one_call_more_than_was_recorded_ends_a_replay_that_asks_and_writes_nothing(
    tmp_path: Path,
) -> None:
    class Twice(NationAgent):
        async def decide_action(self, state: SimulationState) -> Action:
            await super().decide_action(state)
            return await super().decide_action(state)

    def played(agent: NationAgent) -> dict[str, Any]:
        return {"players": {"Aland": agent, "engine": "rule"}}

    path, client = tmp_path / "x.tape", hash_client()
    config = in_words(nations=["Aland"], validator="none")
    agent = NationAgent("Aland", client)
    run = Simulation(config, llm_client=client, tape=path, **played(agent))
    run.run(2)
    run.close()
    before = bytes_in(tmp_path)
    never = make_client(TapeError("a call was made"), model="hash")
    with pytest.raises(TapeMiss, match="nothing differs: it was asked once more than was recorded"):
        replay(path, **played(Twice("Aland", never)))
    assert (bytes_in(tmp_path), asked(Simulation(config, llm_client=never))) == (before, [])


def test_of_a_turn_of_many_calls_fifty_of_the_same_agent_are_compared() -> None:
    others = [of("Ann", "something else entirely", str(number)) for number in range(49)]
    assert "[-something" not in told(of("Ann", "a third line"), *others, of("Ann", "a line"))
    too_late = [*others, others[0], of("Ann", "a third")]
    assert "[-something" in told(of("Ann", "a third line"), *too_late)


def test_a_turn_more_than_was_recorded_is_refused_with_the_way_out(path: Path) -> None:
    make_recorded(path, turns=2)
    replayed = replay(path)
    with pytest.raises(TapeError, match=r"ends at turn 2; turn 3 was not recorded.*fork"):
        replayed.run(1)
    assert replayed.turn_number == 2


@pytest.mark.parametrize(
    ("part", "name", "complaint"),
    [
        ("noted", "accepted", r"turn 2 of run 1 came out .* noted\.accepted was 9 and is "),
        ("row", "inflation", r"recording: row\.inflation was 9 and is "),
    ],
)
def test_a_turn_that_was_tampered_with_is_found_out_by_a_replay(
    path: Path, part: str, name: str, complaint: str
) -> None:
    def change(line: dict[str, Any]) -> dict[str, Any]:
        if line.get("is") == "turn" and line["turn"] == 2:
            {"row": line["row"], "noted": line["record"]["noted"]}[part][name] = 9
        return line

    make_recorded(path, turns=2).close()
    rewrite(path, change)
    assert verify(path) == []  # its sums fit
    with pytest.raises(TapeError, match=complaint):
        replay(path)
