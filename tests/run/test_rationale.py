"""Where players give their reasoning: before their decision, after it, or not at all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, requests_of
from ollama_rules import schema_fault
from pydantic import Field
from worlds import Gift, PublicGoods

from llmsim_lab import LLMClient, Reply, fork, resume
from llmsim_lab.errors import ConfigError
from llmsim_lab.simulation import Simulation
from llmsim_lab.study import Study
from llmsim_lab.types import ChatRequest

SAID = {"reasoning": "Because.", "amount": 3, "confidence": 0.5}
PLACES: dict[Any, list[str]] = {
    "before": ["reasoning", "amount", "confidence"],
    "after": ["amount", "reasoning", "confidence"],
    False: ["amount", "confidence"],
}


def asked_for(request: ChatRequest) -> dict[str, Any]:
    """Return what a model that keeps to its schema answers."""
    assert request.schema is not None
    return {name: SAID[name] for name in request.schema["properties"]}


def client_of() -> LLMClient:
    return make_client(asked_for, tell_form=True)


@pytest.mark.parametrize("rationale", PLACES)
def test_reasoning_stands_where_the_run_says_also_in_words_forks_and_replays(
    tmp_path: Path, rationale: Any
) -> None:
    path = tmp_path / "pot.tape"
    players: dict[str, Any] = {"Cy": lambda question: 5, "Di": "random", "*": "model"}
    run = PublicGoods(
        rationale=rationale, players=players, llm_client=client_of(), tape=path, turns=2
    )
    run.run()
    again = PublicGoods.replay(path, players={"Cy": lambda question: 5})
    assert again.turns == run.turns
    forked = fork(path, turn=1, llm_client=(client := client_of()), players={"Cy": "random"})
    forked.run(1)
    forked.close()
    resumed = resume(path, llm_client=(other := client_of()), players={"Cy": "random"})
    resumed.run(1)
    resumed.close()
    assert len(requests_of(other)) == 2
    recorded = [call.request for call in run.calls]
    for request in [*recorded, *requests_of(client), *requests_of(other)]:
        assert request.schema is not None
        assert [*request.schema["properties"]] == request.schema["required"] == PLACES[rationale]
        assert re.findall(r'^- "(\w+)"', request.prompt, re.MULTILINE) == PLACES[rationale]
    said = run.decisions().set_index("player")["reasoning"]
    assert {*said["Ann"]} == {"Because." if rationale else ""}
    assert {*said["Cy"]} == {""}


def test_rationale_is_a_factor_of_a_study() -> None:
    client = make_client(asked_for)
    study = Study(
        PublicGoods,
        vary={"rationale": [*PLACES]},
        seeds=1,
        turns=1,
        outcome="coins.Ann",
        llm_client=client,
    )
    study.run()
    schemas = [request.schema or {} for request in requests_of(client)]
    assert {tuple(schema["properties"]) for schema in schemas} == {*map(tuple, PLACES.values())}
    assert {*study.results["rationale"]} == {"before", "after", False}


class Argued(Gift):
    reasoning: str = Field(description="why, step by step", max_length=2000)


def test_a_world_may_ask_for_more_reasoning_and_the_smaller_limit_counts() -> None:
    for longest, limit in ((None, 2000), (90, 90)):
        request = make_client(max_text_chars=longest).request_of("Why?", Argued)
        assert request.schema is not None
        field = request.schema["properties"]["reasoning"]
        assert field == {"description": "why, step by step", "maxLength": limit, "type": "string"}


@pytest.mark.parametrize(
    ("text", "limit", "is_one"),
    [
        ("The pot grows 1.6 times in the U.S. as well.", 300, True),
        ("Because.", 90, True),
        ("Geben ist gut!", 90, True),
        ("因为会增长。", 90, True),
        ("It grows. I give.", 300, False),
        ("It grows", 300, False),
        ("It said “yes”\nand more.", 300, False),
        ("a" * 88 + ".", 90, True),
        ("a" * 90 + ".", 90, False),
    ],
)
def test_a_model_is_held_to_one_sentence_of_three_times_a_short_ones_length(
    text: str, limit: int, is_one: bool
) -> None:
    request = make_client(max_text_chars=limit).request_of("Why?", Gift)
    assert request.schema is not None
    field = request.schema["properties"]["reasoning"]
    assert (field["description"], field["maxLength"]) == ("why, in one short sentence", limit)
    assert (re.search(field["pattern"], text) is not None) is is_one
    assert schema_fault(request.schema) is None


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: PublicGoods(rationale="never"),
            "'never' is not one of 'before' .*, 'after' and False",
        ),
        (
            lambda: Simulation(rationale=False, players="random", nations=["Ann"]).run(1),
            "rationale=False does not reach .*Decision, which Ann is asked for",
        ),
        (
            lambda: make_client().request_of("Why?", Argued, rationale=False),
            "Argued.reasoning has no default, so rationale=False cannot leave it out",
        ),
    ],
)
def test_a_place_that_there_is_not_is_an_error_that_says_what_to_write(
    make: Any, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        make()


class Sub(Reply):
    """A reply with replies inside."""

    parts: list[Sub]


class Named(Reply):
    """A reply whose reasoning has another name in JSON, and may be null."""

    reasoning: str | None = Field(None, validation_alias="why")
    parts: list[int]


@pytest.mark.parametrize("kind", [Sub, Named])
async def test_reasoning_that_is_not_asked_for_may_be_left_out_of_replies_of_any_form(
    kind: Any,
) -> None:
    client = make_client({"parts": [], "confidence": 0.5})
    reply = await client.call_with_retry(prompt="Go", response_model=kind, rationale=False)
    assert (reply.reasoning or "", reply.parts) == ("", [])


async def test_reasoning_of_another_name_is_moved_and_named_where_it_is_cut() -> None:
    client = make_client({"parts": [], "why": "a" * 40, "confidence": 0.5}, max_text_chars=40)
    reply = await client.call_with_retry(prompt="Go", response_model=Named, rationale="after")
    [request] = requests_of(client)
    assert request.schema is not None
    assert [*request.schema["properties"]] == ["parts", "why", "confidence"]
    assert reply.call.history[-1].cut == ("why",)
