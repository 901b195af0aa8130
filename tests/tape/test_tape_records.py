"""What a turn's record holds, and how strictly it is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from counter_kit import (
    CounterConfig,
    CounterIntervention,
    CounterSimulation,
    CounterTurn,
    counter_client,
    make_counter,
)
from pydantic import BeforeValidator, TypeAdapter
from tape_text import rewrite

from llmsim_lab.errors import TapeError
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.run import load, replay
from llmsim_lab.run._records import record_of, tape_turn
from llmsim_lab.types import Places


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepingTurn(CounterTurn):
    kept: LLMReasoningChain | None = None
    pair: Annotated[tuple[int, int], BeforeValidator(lambda value: value)] = (1, 2)


class Keeping(CounterSimulation):
    """Its turns hold a chain of the turn before."""

    kind = "keeping"
    turn_type = KeepingTurn

    async def _play(
        self, before: CounterTurn, planned: Sequence[CounterIntervention]
    ) -> KeepingTurn:
        played = await super()._play(before, planned)
        values = {field.name: getattr(played, field.name) for field in fields(played)}
        return KeepingTurn(**values, kept=before.chains[0] if before.chains else None)


@pytest.fixture
def keeping(tmp_path: Path) -> Keeping:
    parts: dict[str, Any] = {"config": CounterConfig(), "llm_client": counter_client()}
    made = Keeping(**parts, tape=tmp_path / "x.tape")
    made.run(2)
    made.close()
    return made


def test_what_refers_to_a_call_says_its_place(keeping: Keeping) -> None:
    record = record_of(Keeping, keeping.turns[1])
    assert [chain["call"] for chain in record["chains"]] == [*range(len(record["calls"]))] != []
    assert "messages" not in json.dumps(record)


def test_chains_are_written_as_pydantic_would_write_them(keeping: Keeping) -> None:
    turn = keeping.turns[1]
    chains = [*turn.chains, LLMReasoningChain(component="a", agent="NaN", turn=1, reasoning="Inf")]
    turn = replace(turn, chains=tuple(chains))
    by_pydantic = TypeAdapter(list[LLMReasoningChain]).dump_python(
        chains, mode="json", context=Places(turn.calls)
    )
    assert record_of(Keeping, turn)["chains"] == by_pydantic
    assert json.loads(tape_turn(Keeping, turn, {})[1])["chains"] == by_pydantic


@pytest.mark.usefixtures("keeping")
def test_a_loaded_turn_has_each_call_once(tmp_path: Path) -> None:
    turn = load(tmp_path / "x.tape").turns[1]
    assert [id(chain.call) for chain in turn.chains] == [*map(id, turn.calls)] != []


def test_a_chain_of_another_turn_is_written_with_its_calls_numbers(
    keeping: Keeping, tmp_path: Path
) -> None:
    record = record_of(Keeping, keeping.turns[2])
    assert record["kept"]["call"] == ["ok", keeping.calls[0].numbers]
    assert load(tmp_path / "x.tape").turns == keeping.turns
    assert replay(tmp_path / "x.tape").turns == keeping.turns


def test_a_list_behind_a_validator_of_ones_own_is_read_as_the_tuple_that_it_was(
    keeping: Keeping, tmp_path: Path
) -> None:
    loaded: list[Any] = load(tmp_path / "x.tape").turns
    assert loaded[1].pair == (1, 2)
    assert loaded == keeping.turns


def test_a_chain_whose_call_was_never_recorded_cannot_be_written(keeping: Keeping) -> None:
    other = make_counter()
    other.run(1)
    turn = KeepingTurn(number=3, state=keeping.state, kept=other.chains[0])
    with pytest.raises(TapeError, match=r"cannot be written: .* was not recorded"):
        record_of(Keeping, turn)


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(record: Any) -> None:
        for name in path[:-1]:
            record = record[name]
        record[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (put("state", "value", value="8"), "state.value: Input should be a valid integer"),
        (put("state", "value", value=8.0), "state.value: Input should be a valid integer"),
        (put("state", "history", value=None), "state.history: "),
        (put("seconds", value="1"), "seconds: Input should be a valid number"),
        (put("more", value=1), ".*more: Extra inputs are not permitted"),
        (put("kept", value=7), "kept: .*no chain at place 7 of 2"),
        (put("kept", value=-1), "kept: .*no chain at place -1 of 2"),
        (put("chains", 0, "turn", value="1"), "0.turn: Input should be a valid integer"),
        (put("chains", 0, "call", value=9), "0.call: 9 does not name a call"),
        (put("pair", value=["1", 2]), "pair"),
    ],
)
@pytest.mark.usefixtures("keeping")
def test_a_record_is_read_strictly_by_its_types(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], fault: str
) -> None:
    def edit(line: dict[str, Any]) -> dict[str, Any]:
        if line.get("is") == "turn" and line["turn"] == 1:
            change(line["record"])
        return line

    rewrite(tmp_path / "x.tape", edit)
    with pytest.raises(TapeError, match=f"turn 1 on the tape is damaged: {fault}"):
        load(tmp_path / "x.tape")
