"""A kind of simulation that the package does not know gets everything from the base."""

from __future__ import annotations

import inspect
import json
import sqlite3
from collections.abc import Callable, Iterator
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
    answer,
    counter_client,
    make_counter,
)

from llmsim_lab.errors import ConfigError, LLMFailureException, TapeError, TapeMiss
from llmsim_lab.llm import LLMClient, ScriptedBackend, Tape
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.run import fork, load, replay, rerun, resume
from llmsim_lab.run._registry import class_of_config
from llmsim_lab.tape import verify
from llmsim_lab.types import ChatRequest

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


def without_bob(request: ChatRequest) -> Any:
    assert request.site is not None
    return ConnectionError("gone") if request.site.agent == "Bob" else answer(request)


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


def test_the_frame_of_decisions_has_a_row_each() -> None:
    made = make_counter()
    made.run(1)
    frame = made.decisions()
    assert frame.player.tolist() == ["Ann", "Bob"]
    assert frame.model.tolist() == ["scripted", "scripted"]


def test_a_turn_that_fails_changes_nothing_and_may_be_tried_again() -> None:
    made = make_counter(replies=without_bob)
    with pytest.raises(LLMFailureException):
        made.run(1)
    assert totals(made) == [0]
    made.adders = tuple(Adder(name, counter_client()) for name in ("Ann", "Bob"))
    made.run(1)
    assert totals(made) == [0, 8]


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


def test_a_later_state_is_changed_when_the_run_gets_there() -> None:
    made = make_counter()
    made.intervene(2, value=50)
    made.run(3)
    assert totals(made) == [0, 8, 50, 62]


def test_what_is_planned_can_reach_into_the_turn() -> None:
    made = make_counter()
    made.intervene(1, value=1000, during=True)
    made.run(1)
    assert totals(made) == [0, 1008]


def test_an_intervention_in_the_past_is_an_error() -> None:
    made = make_counter()
    made.run(2)
    with pytest.raises(ConfigError, match="turn 1 has been played"):
        made.intervene(1, value=3)


def test_an_intervention_with_a_wrong_field_names_it() -> None:
    with pytest.raises(ConfigError, match="intervention at turn 4: valu"):
        make_counter().intervene(4, valu=3)


# --- the tape ----------------------------------------------------------------------------------


def test_a_replay_equals_the_run_and_asks_no_model(path: Path) -> None:
    original = load(path)
    again = replay(path)
    assert isinstance(again, CounterSimulation)
    assert again.turns == original.turns
    assert again.to_frame().equals(original.to_frame())
    assert totals(again) == [0, 8, 100, 112]


def test_what_was_loaded_has_its_values_of_their_types(path: Path) -> None:
    turn = load(path).turns[2]
    assert turn.state == Total(100, (8, 18))
    assert turn.added == {"Ann": 5, "Bob": 5}
    assert turn.interventions == (CounterIntervention(turn=2, value=100),)
    assert turn.chains[0].call.request.site.agent == "Ann"


def test_a_replay_with_another_prompt_is_a_miss_that_shows_the_difference(path: Path) -> None:
    adders = [Adder(name, counter_client()) for name in ("Ann", "Eve")]
    with pytest.raises(TapeMiss, match="Eve"):
        replay(path, adders=adders)


def test_a_record_that_was_tampered_with_is_found_out(path: Path) -> None:
    connection = sqlite3.connect(path)
    [text] = connection.execute("SELECT record FROM turns WHERE turn = 1").fetchone()
    record = json.loads(text)
    record["state"]["value"] = 9
    connection.execute("UPDATE turns SET record = ? WHERE turn = 1", (json.dumps(record),))
    connection.commit()
    connection.close()
    with pytest.raises(TapeError, match=r"came out differently.*value was 9 and is 8"):
        replay(path)


def test_a_damaged_record_of_the_kinds_own_is_named(path: Path) -> None:
    connection = sqlite3.connect(path)
    sql = "UPDATE turns SET record = replace(record, '\"added\"', '\"gone\"') WHERE turn = 1"
    connection.execute(sql)
    connection.commit()
    connection.close()
    with pytest.raises(TapeError, match=r"turn 1 on the tape is damaged: added: .*required"):
        load(path)


def test_a_resumed_run_equals_one_never_interrupted(tmp_path: Path) -> None:
    begun = make_counter(tmp_path / "x.tape", interventions=[{"turn": 3, "value": 5}])
    begun.run(2)
    begun.close()
    client = counter_client()
    resumed = resume(tmp_path / "x.tape", llm_client=client)
    resumed.run(2)
    whole = make_counter(interventions=[{"turn": 3, "value": 5}])
    whole.run(4)
    assert totals(resumed) == totals(whole) == [0, 8, 18, 5, 19]
    assert requests(client) == 4


def test_calls_that_a_broken_turn_had_paid_for_are_not_made_again(tmp_path: Path) -> None:
    begun = make_counter(tmp_path / "x.tape", replies=without_bob)
    with pytest.raises(LLMFailureException):
        begun.run(1)
    begun.close()
    client = counter_client()
    resume(tmp_path / "x.tape", llm_client=client).run(1)
    assert requests(client) == 1


def test_a_rerun_begins_anew_beside_the_first(path: Path) -> None:
    client = counter_client(lambda _: {"add": 1, "reasoning": "Less."})
    new = rerun(path, llm_client=client)
    new.run(2)
    assert (new.run_id, totals(new)) == (2, [0, 2, 100])


def test_a_fork_shares_the_turns_before_it_and_changes_what_it_is_told(path: Path) -> None:
    client = counter_client()
    new = fork(path, turn=1, intervene=[{"turn": 1, "value": -8}], llm_client=client)
    new.run(1)
    assert totals(new) == [0, -8, 100]
    assert requests(client) == 2
    assert new.tape is not None
    assert new.tape.run(2).fork_turn == 1
    new.close()
    assert replay(path, 2).turns == new.turns


def test_a_fork_with_an_edited_prompt_asks_with_it(path: Path) -> None:
    recorded = load(path)
    edited = recorded.prompts["adder:Ann"].edit(
        "Asks.\n\n## System\nYou are {{ name }}.\n\n## User\nNow {{ total }}, be bold.\n"
    )
    client = counter_client()
    new = fork(path, turn=2, prompt=edited, llm_client=client)
    new.run(1)
    assert all("be bold" in chain.prompt for chain in new.turns[-1].chains)
    new.close()
    assert replay(path, 2).turns == new.turns


def test_a_fork_with_another_state_goes_on_from_there(path: Path) -> None:
    new = fork(path, turn=1, state=Total(500), llm_client=counter_client())
    assert totals(new) == [0, 500]
    with pytest.raises(ConfigError, match="is not a Total, which a state of CounterSimulation is"):
        fork(path, turn=1, state=500, llm_client=counter_client())


def test_a_fork_with_a_prompt_that_nobody_uses_is_an_error(path: Path) -> None:
    other = load(path).prompts["adder:Ann"].parse("X.\n\n## User\nx\n", name="nobody")
    with pytest.raises(ConfigError, match="uses a prompt named nobody; its prompts are: adder"):
        fork(path, prompt=other, llm_client=counter_client())


def test_parts_of_the_users_own_must_be_given_again(tmp_path: Path) -> None:
    client = counter_client()
    made = CounterSimulation(
        llm_client=client, adders=[Adder("Zoe", client)], tape=tmp_path / "x.tape"
    )
    made.run(1)
    made.close()
    with pytest.raises(ConfigError, match=r"pass the same again: adders=\.\.\."):
        replay(tmp_path / "x.tape")
    again = replay(tmp_path / "x.tape", adders=[Adder("Zoe", counter_client())])
    assert again.turns == made.turns


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


def test_a_configuration_finds_the_class_that_plays_and_records_it(tmp_path: Path) -> None:
    config = CounterConfig(turns=2)
    cls = class_of_config(config)
    made = cls(config, tape=tmp_path / "x.tape", llm_client=counter_client())
    made.run()
    assert isinstance(made, CounterSimulation)
    assert load(tmp_path / "x.tape").turn_number == made.turn_number == 2


def test_a_fork_keeps_what_the_recorded_run_had_planned(path: Path) -> None:
    client = counter_client()
    for made in (fork(path, turn=1, llm_client=client), load(path).fork(1, llm_client=client)):
        made.run(1)
        assert totals(made) == [0, 8, 100]


# --- what reads tapes --------------------------------------------------------------------------


@pytest.fixture
def tape(path: Path) -> Iterator[Tape]:
    new = fork(path, turn=1, intervene=[{"turn": 2, "value": 0}], llm_client=counter_client())
    new.run(2)
    new.close()
    with Tape(path, read_only=True) as tape:
        yield tape


def test_the_tape_knows_the_runs_and_their_forks(tape: Tape) -> None:
    assert tape.tree().lines[1:] == (
        "1 counter · run · turn 2: value 100 · turns 1 to 3 · done · scripted",
        "└─ 2 counter · fork at turn 1 · turn 2: value 0 · turns 2 to 3 · done · scripted",
    )


def test_the_tapes_frame_is_the_runs_own(tape: Tape) -> None:
    assert tape.turns_frame(2).equals(load(tape, 2).to_frame())


def test_two_runs_are_compared_by_the_kinds_columns(tape: Tape) -> None:
    assert tape.compare(1, 2)["total", "difference"].tolist() == [0, 0, -100, -100]


def test_the_tape_is_sound(tape: Tape) -> None:
    assert verify(tape) == []


def test_runs_come_through_json_lines(tape: Tape, tmp_path: Path) -> None:
    [lines] = tape.export(tmp_path / "x.jsonl")
    with Tape(tmp_path / "y.tape") as other:
        other.import_jsonl(lines)
        assert replay(other, 2).turns == load(tape, 2).turns
