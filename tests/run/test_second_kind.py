"""A kind of simulation that the package does not know gets everything from the base."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from counter_kit import (
    Adder,
    Addition,
    CounterConfig,
    CounterIntervention,
    CounterSimulation,
    Total,
    counter_client,
    make_counter,
)
from tape_text import rewrite

from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient, ScriptedBackend
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.run import fork, load, replay, rerun, resume

TURNS = 3


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A tape with one finished run in which the total was set at turn 2."""
    made = make_counter(tmp_path / "x.tape", interventions=[{"turn": 2, "value": 100}])
    made.run(TURNS)
    made.close()
    return tmp_path / "x.tape"


def requests(client: LLMClient) -> int:
    assert isinstance(client.backend, ScriptedBackend)
    return len(client.backend.requests)


def totals(simulation: Any) -> list[int]:
    return [turn.state.value for turn in simulation.turns]


# --- playing -----------------------------------------------------------------------------------


def test_turns_hold_states_chains_and_the_kinds_own_fields() -> None:
    made = make_counter()
    made.run(2)
    last = made.turns[-1]
    assert (made.turn_number, made.state) == (2, Total(18, (8, 18)))
    assert last.added == {"Ann": 5, "Bob": 5}
    assert [chain.agent for chain in made.chains] == ["Ann", "Bob", "Ann", "Bob"]
    assert made.statuses == {"ok": 1.0}


def test_the_frame_has_the_kinds_columns_between_those_of_every_run() -> None:
    frame = make_counter().run(1)
    assert frame.columns.tolist() == [
        *("turn", "total", "added", "calls", "ok", "repaired", "fallback", "failed"),
        *("tokens", "seconds", "interventions"),
    ]
    assert frame.total.tolist() == [0, 8]


def test_a_turn_with_another_number_than_the_next_is_an_error() -> None:
    class Skipping(CounterSimulation):
        async def _play(self, before: Any, planned: Any) -> Any:
            turn = await super()._play(before, planned)
            return type(turn)(number=turn.number + 1, state=turn.state)

    made = Skipping(CounterConfig(), llm_client=counter_client())
    with pytest.raises(ConfigError, match="Skipping played turn 2 after turn 0; what comes next"):
        made.run(1)


# --- what is done from outside -----------------------------------------------------------------


def test_the_latest_state_is_changed_at_once() -> None:
    made = make_counter()
    assert made.intervene(0, value=7) == CounterIntervention(turn=0, value=7)
    assert made.state.value == 7
    assert made.to_frame().interventions[0] == "turn 0: value=7"


def test_what_is_planned_can_reach_into_the_turn() -> None:
    made = make_counter()
    made.intervene(1, value=1000, during=True)
    made.run(1)
    assert totals(made) == [0, 1008]


def test_an_intervention_with_a_wrong_field_names_it() -> None:
    with pytest.raises(ConfigError, match="intervention at turn 4: valu"):
        make_counter().intervene(4, valu=3)


# --- the tape ----------------------------------------------------------------------------------


def test_what_was_loaded_has_its_values_of_their_types(path: Path) -> None:
    turn = load(path).turns[2]
    assert turn.state == Total(100, (8, 18))
    assert turn.added == {"Ann": 5, "Bob": 5}
    assert turn.interventions == (CounterIntervention(turn=2, value=100),)
    assert turn.chains[0].call.request.site.agent == "Ann"


def test_a_damaged_record_of_the_kinds_own_is_named(path: Path) -> None:
    def edit(line: dict[str, Any]) -> dict[str, Any]:
        if "record" in line and line["turn"] == 1:
            line["record"]["gone"] = line["record"].pop("added")
        return line

    rewrite(path, edit)
    with pytest.raises(TapeError, match=r"turn 1 on the tape is damaged: added: .*required"):
        load(path)


def test_a_fork_with_another_state_goes_on_from_there(path: Path) -> None:
    new = fork(path, turn=1, state=Total(500), llm_client=counter_client())
    assert totals(new) == [0, 500]
    with pytest.raises(ConfigError, match="is not a Total, which a state of CounterSimulation is"):
        fork(path, turn=1, state=500, llm_client=counter_client())


def test_a_part_that_the_kind_does_not_have_is_an_error(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine: the parts .* kind 'counter' are adders"):
        replay(path, engine=object())


def zoe(client: LLMClient) -> list[Adder]:
    return [Adder("Zoe", client)]


def named(name: str, client: LLMClient) -> list[Adder]:
    return [Adder(name, client)]


class Team(list[Adder]):
    """Adders made by their class."""

    def __init__(self, client: LLMClient) -> None:
        super().__init__(zoe(client))


class Maker:
    """Makes adders by a method, and as an object that can be called."""

    def make(self, client: LLMClient) -> list[Adder]:
        return zoe(client)

    __call__ = make


@pytest.fixture
def zoes(tmp_path: Path) -> CounterSimulation:
    """A recorded run whose adder its user gave, at its third turn."""
    client = counter_client()
    made = CounterSimulation(
        llm_client=client, adders=[Adder("Zoe", client)], tape=tmp_path / "z.tape"
    )
    made.run(TURNS)
    made.close()
    return made


MAKERS = [
    pytest.param(zoe, id="function"),
    pytest.param(partial(named, "Zoe"), id="partial"),
    pytest.param(Maker().make, id="method"),
    pytest.param(Maker(), id="object"),
    pytest.param(Team, id="class"),
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("operation", [replay, load])
def test_a_part_may_be_made_by_anything_that_can_be_called(
    operation: Callable[..., Any], make: Any, zoes: CounterSimulation, tmp_path: Path
) -> None:
    assert operation(tmp_path / "z.tape", adders=make).turns == zoes.turns


@pytest.mark.parametrize("operation", [resume, rerun, fork])
def test_what_makes_a_part_is_called_with_the_verbs_own_model(
    operation: Callable[..., Any], zoes: CounterSimulation, tmp_path: Path
) -> None:
    client = counter_client()
    made = operation(tmp_path / "z.tape", llm_client=client, adders=partial(named, "Zoe"))
    made.run(1)
    made.close()
    assert requests(client) == 1
    assert made.chains[-1].agent == "Zoe"


class Quiet:
    """One who adds nothing and asks nobody."""

    name = "Zoe"

    async def decide(self, total: Total, turn: int) -> tuple[Addition, LLMReasoningChain]:
        chain = LLMReasoningChain(component="adder", agent="Zoe", turn=turn, reasoning="a rule")
        return Addition(add=0, reasoning="a rule", confidence=1), chain


def test_what_makes_a_part_is_given_none_in_a_run_without_a_model(tmp_path: Path) -> None:
    made = CounterSimulation(adders=[Quiet()], tape=tmp_path / "x.tape")  # type: ignore[list-item]
    made.run(1)
    made.close()
    given = []

    def make(client: LLMClient | None) -> list[Quiet]:
        given.append(client)
        return [Quiet()]

    assert replay(tmp_path / "x.tape", adders=make).turns == made.turns
    assert given == [None]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: [Quiet()],
            r"cannot be called with the client alone: too many positional arguments",
        ),
        (named, r"cannot be called with the client alone: missing a required argument: 'client'"),
        (lambda client: None, r"returned None where a part is wanted"),
    ],
)
def test_what_cannot_make_a_part_is_an_error_with_both_forms(
    make: Any, why: str, zoes: CounterSimulation, tmp_path: Path
) -> None:
    both = r"give the part itself, adders=\.\.\., or .* adders=lambda client: \.\.\."
    with pytest.raises(ConfigError, match=rf"adders=<function .*> {why}; {both}"):
        replay(tmp_path / "z.tape", adders=make)


def test_what_makes_a_part_need_not_say_what_it_takes(
    zoes: CounterSimulation, tmp_path: Path
) -> None:
    held = partial(getattr, SimpleNamespace(adders=zoe(counter_client())), "adders")
    with pytest.raises(ValueError, match="no signature found"):
        inspect.signature(held)
    assert replay(tmp_path / "z.tape", adders=held).turns == zoes.turns
