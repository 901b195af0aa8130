"""What a class of runs gets by default, and the errors that it makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from builders import make_simulation
from counter_kit import (
    CounterConfig,
    CounterIntervention,
    CounterSimulation,
    CounterTurn,
    Total,
    counter_client,
    make_counter,
)

from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.run import Run
from llmsim_lab.run._config import RunConfig
from llmsim_lab.run._records import changed_values, check_manifest, tape_turn
from llmsim_lab.run._run import belongs_to, check_used, copied
from llmsim_lab.run._turn import RunTurn
from llmsim_lab.tape._lines import RunInfo


@pytest.mark.parametrize("make", [make_counter, make_simulation])
def test_the_series_are_columns_of_numbers_of_the_frame(make: Any) -> None:
    made = make()
    frame = made.run(1)
    assert len(made.series) >= 2
    assert {item.column for item in made.series} <= set(frame.select_dtypes("number").columns)


def test_a_series_is_named_with_its_unit() -> None:
    total, added = make_counter().series
    assert (str(total), str(added)) == ("Total (points)", "Added")


def test_a_turn_in_words_has_the_kinds_columns() -> None:
    assert CounterSimulation.in_words(CounterTurn(number=1, state=Total(3))) == [
        "it led to: total 3, added 0"
    ]


def test_a_kind_whose_configuration_names_no_series_has_none() -> None:
    config: Any = RunConfig()
    assert list(CounterSimulation.series_of(config)) == []


def test_an_intervention_that_does_nothing_says_so() -> None:
    made = make_counter()
    item = CounterIntervention(turn=1, value=1)
    assert Run._intervened(made, Total(), []) == Total()
    with pytest.raises(NotImplementedError, match="CounterIntervention does not say what it does"):
        Run._intervened(made, Total(), [item])


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash(CounterTurn):
    def own_columns(self) -> dict[str, Any]:
        return {"seconds": 1.0, "total": self.state.value}


def test_a_column_that_every_frame_has_is_an_error() -> None:
    made = CounterSimulation(CounterConfig(), llm_client=counter_client())
    made.turns[0] = Clash(number=0, state=Total())
    with pytest.raises(ConfigError, match="own_columns has seconds, which every run's frame has"):
        made.to_frame()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clashing(RunTurn[int, Any]):
    planned: int = 0


def test_a_field_that_a_record_has_for_something_else_is_an_error() -> None:
    class Clash(CounterSimulation):
        turn_type: Any = Clashing

    with pytest.raises(ConfigError, match=r"Clashing\.planned: a turn's record has something else"):
        tape_turn(Clash, Clashing(number=0, state=0), {})


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, ""),
        ({"a": 1}, {"a": 2}, "a was 1 and is 2"),
        ({"a": 1}, {"b": 2}, "a was 1 and is not there; b was not there and is 2"),
        ({"a": {"b": 1, "c": [2]}}, {"a": {"b": 1, "c": [3]}}, "a.c was [2] and is [3]"),
        ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}, {"b": 3}]}, "a.1.b was 2 and is 3"),
        (
            dict.fromkeys("abcd", 1),
            dict.fromkeys("abcd", 2),
            "a was 1 and is 2; b was 1 and is 2; c was 1 and is 2",
        ),
    ],
)
def test_changed_values_are_named(before: Any, after: Any, message: str) -> None:
    assert changed_values(before, after) == message


def info_with(manifest: dict[str, Any]) -> RunInfo:
    facts = dict.fromkeys(("parent", "fork_turn", "ended", "outcome", "process"))
    return RunInfo(
        id=2, name="x", verb="run", started="", turns=0, calls=0, manifest=manifest, **facts
    )


def test_of_a_manifests_faults_three_are_named() -> None:
    with pytest.raises(TapeError) as caught:
        check_manifest(info_with({"prompts": {}, "given": []}), ())
    assert str(caught.value) == (
        "run 2 on the tape is damaged: its manifest: kind: Field required; its manifest: package: "
        "Field required; its manifest: config: Field required"
    )


def test_a_prompts_place_is_in_its_part() -> None:
    assert belongs_to("engine", ["engine"])
    assert belongs_to("agent:Aland", ["agents"])
    assert not belongs_to("agent:Aland", ["engine"])
    assert not belongs_to("agent", ["agents"])


def test_a_copy_keeps_its_model_where_no_other_is_given() -> None:
    made = make_counter()
    [ann, _] = copied(made.parts, None, {})["adders"]
    assert ann is not made.adders[0]
    assert ann.llm_client is made.llm_client


def test_prompts_outside_of_parts_reach_a_fork_through_the_constructor() -> None:
    class Loose(CounterSimulation):
        part_names = ()

        def __init__(self, config: CounterConfig, **known: Any) -> None:
            super().__init__(config, **known)
            self.got = known.get("prompts", {})

        @property
        def prompts(self) -> Any:
            return {"adder:Ann": self.adders[0].prompt}

    made = Loose(CounterConfig(), llm_client=counter_client())
    edited = made.prompts["adder:Ann"].edit("X.\n\n## User\n{{ name }} sees {{ total }}\n")
    new = made.fork(prompt=edited)
    assert new.got == {"adder:Ann": edited}
    assert new.adders[0].prompt == edited


def test_prompts_that_no_part_uses_are_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError) as caught:
        check_used({"b", "a"}, ["y", "x", "y"])
    assert str(caught.value) == (
        "no part of the run uses a prompt named a, b; its prompts are: x, y"
    )
