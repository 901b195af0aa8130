"""Populations: whole rows, margins, and personas in prompts, tables, tapes and studies."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from crisis_kit import make_scenario
from pydantic import Field

from llmsim_lab import (
    Ask,
    LLMClient,
    LLMConfig,
    Reply,
    Run,
    ScriptedBackend,
    Simulation,
    State,
    replay,
)
from llmsim_lab.context import CrisisSimulation
from llmsim_lab.errors import ConfigError
from llmsim_lab.people import Population
from llmsim_lab.run.chance import chance_reply
from llmsim_lab.study import Study
from llmsim_lab.types import ChatReply, ChatRequest

NAMES = ["Ann", "Bob", "Cy"]


class Town(State):
    votes: dict[str, int] = Field(default_factory=dict)


class Vote(Reply):
    parks: int


class Poll(Run[Town]):
    wording: str = "The town has 100 coins. You are {{ name }}. How many for parks?"

    async def turn(self, state: Town, ask: Ask) -> Town:
        votes = await ask.each(NAMES, Vote, self.config.wording, limits={"parks": (0, 100)})
        judged = await ask.each(
            NAMES, Vote, "Is {{ name }} fair?", by="judge", tag="judge", limits={"parks": (0, 1)}
        )
        assert len(judged) == 3
        return Town(votes={name: vote.parks for name, vote in votes.items()})


def table(rows: int = 400) -> pd.DataFrame:
    """People whose region goes with their age, as it does not in the margins alone."""
    rng = np.random.default_rng(5)
    region = rng.choice(["north", "south"], rows, p=[0.3, 0.7])
    age = np.where(region == "north", rng.integers(60, 80, rows), rng.integers(20, 40, rows))
    return pd.DataFrame({"region": region, "age": age, "weight": rng.random(rows)})


def traits(rows: int = 400) -> pd.DataFrame:
    return table(rows).drop(columns="weight")


def three(**options: Any) -> Population:
    frame = pd.DataFrame({"age": [30, 40, 50], "region": ["north", "south", "south"]})
    return Population.from_table(frame, names=NAMES, **options)


def asked(run: Run) -> dict[str, str]:
    """Play a turn with a script and return what each player was sent."""
    prompts: dict[str, str] = {}
    for call in run.calls:
        if call.request.site.component == "player":
            prompts[str(call.request.site.agent)] = call.request.prompt
    return prompts


def scripted() -> LLMClient:
    reply = {"reasoning": "", "parks": 1, "confidence": 1}
    return LLMClient(LLMConfig(model="script"), ScriptedBackend(lambda request: reply))


# --- drawing --------------------------------------------------------------------------------------


def test_rows_are_drawn_whole_and_as_often_as_their_weight_says() -> None:
    population = Population.from_table(table(), n=200, weights="weight", seed=3)
    frame = population.to_frame()
    assert list(frame.columns) == ["region", "age"]
    assert (frame[frame["region"] == "north"]["age"] >= 60).all()
    assert (frame[frame["region"] == "south"]["age"] < 40).all()
    people = table()
    wanted = people["weight"][people["region"] == "north"].sum() / people["weight"].sum()
    assert (frame["region"] == "north").mean() == pytest.approx(wanted, abs=0.05)
    with pytest.raises(ConfigError, match="weights='weight' to draw rows by it"):
        Population.from_table(table(), n=200)
    with pytest.raises(ConfigError, match="weights='weight' to draw rows by it"):
        Population.from_table(people, n=200, weights=list(people["weight"]))
    again = Population.from_table(table(), n=200, weights="weight", seed=3)
    other = Population.from_table(table(), n=200, weights="weight", seed=4)
    assert again == population != other


def test_without_a_number_everybody_of_the_table_plays_once() -> None:
    population = Population.from_table(traits(7))
    assert population.names == ("P1", "P2", "P3", "P4", "P5", "P6", "P7")
    assert sorted(population.to_frame()["age"]) == sorted(table(7)["age"])


def test_a_raked_population_has_the_margins_wanted_and_says_how_far_it_misses() -> None:
    frame = traits().assign(sex=["f", "m"] * 200)
    margins = {"region": {"north": 0.5, "south": 0.5}, "sex": {"f": 0.6, "m": 0.4}}
    raked = Population.from_table(frame, n=100, seed=1).raked(margins)
    assert raked.largest_miss <= 0.02
    measured = raked.margins().set_index(["column", "value"])["players"]
    assert measured["region", "north"] == 0.5
    assert measured["sex", "f"] == pytest.approx(0.6, abs=0.02)
    few = Population.from_table(frame, n=3, seed=1).raked(margins)
    assert few.largest_miss > 0.06  # of three players no half can be from the north
    assert Population.from_table(frame, n=3).largest_miss is None


@pytest.mark.parametrize(
    ("margins", "message"),
    [
        ({"place": {"north": 1}}, "no column 'place'"),
        ({"region": {"north": 0.3, "south": 0.3}}, "0.6 together"),
        ({"region": {"north": 1}}, "does not say how many are 'south'; give"),
        (
            {"region": {"north": 0.5, "sooth": 0.5}},
            "how many are 'south', and nobody of the table is 'sooth'; give",
        ),
        ({"region": {"north": 0.3, "south": 0.6, "west": 0.1}}, "the table has nobody of them"),
        (
            {"region": {"north": 0.5, "south": 0.5}, "old": {True: 0.2, False: 0.8}},
            r"no weights of these 400 rows have all margins at once.*missed by 0\.\d",
        ),
        ({}, "needs margins"),
    ],
)
def test_margins_that_cannot_be_are_errors(margins: Any, message: str) -> None:
    frame = traits().assign(old=lambda people: people["age"] >= 60)
    with pytest.raises(ConfigError, match=message):
        Population.from_table(frame, n=10).raked(margins)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "aeg"}, r"'aeg' is not a column.*age"),
        ({"weights": [1, 2]}, "2 numbers for 400 rows"),
        ({"n": 2, "names": NAMES}, "n=2 players need one each"),
        ({"weights": "region"}, "a weight='south' must be a finite number"),
        ({"seed": -1}, "seed=-1"),
        ({"n": 1.5}, "n=1.5 must be a whole number"),
        ({"n": 0}, "n=0 must be a whole number"),
    ],
)
def test_a_wrong_draw_is_an_error(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Population.from_table(traits(), **options)
    with pytest.raises(ConfigError, match="'turn' cannot be a prompt's slot"):
        Population.from_table(pd.DataFrame({"turn": [1]}))
    with pytest.raises(ConfigError, match="nobody can be drawn"):
        Population.from_table(traits().head(0))


@pytest.mark.parametrize(
    ("column", "shares", "texts"),
    [
        ([1.0, 2.0], {1: 0.25, 2: 0.75}, ["1.0", "2.0"]),
        (["n", True], {"n": 0.25, True: 0.75}, ["n", "True"]),
    ],
)
def test_a_margin_counts_a_value_however_it_is_written(
    column: list[Any], shares: Any, texts: list[str]
) -> None:
    raked = Population.from_table(pd.DataFrame({"x": column}), n=8).raked({"x": shares})
    assert list(raked.margins()["value"]) == texts
    assert list(raked.margins()["players"]) == [0.25, 0.75]
    assert raked.largest_miss == 0


def test_what_is_no_table_and_a_column_twice_are_errors() -> None:
    twice = pd.DataFrame([[1, 2]], columns=["age", "age"])
    with pytest.raises(ConfigError, match="the column 'age' twice"):
        Population.from_table(twice)
    with pytest.raises(ConfigError, match="a dict is no table"):
        Population.from_table({"age": [1]})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the rows have no column"):
        Population.from_table(pd.DataFrame({"weight": [1, 2]}), weights="weight")
    with pytest.raises(ConfigError, match="the share of region='north'=nan must be"):
        Population.from_table(traits(), n=3).raked({"region": {"north": float("nan")}})


# --- in a run -------------------------------------------------------------------------------------


def test_a_prompt_that_uses_no_column_ends_with_the_row_in_words() -> None:
    population = three()
    run = Poll(population=population, llm_client=scripted())
    run.run(1)
    for name, prompt in asked(run).items():
        row = population.row(name)
        ending = f"\n\nAbout you: age {row['age']}, region {row['region']}."
        assert prompt == f"The town has 100 coins. You are {name}. How many for parks?{ending}"
    judged = [call for call in run.calls if call.request.site.component == "judge"]
    assert not any("About you" in str(call.request.messages) for call in judged)


def test_columns_are_slots_and_the_words_are_ones_own() -> None:
    run = Poll(
        wording="You are {{ age }} and from the {{ persona.region }}. Parks?",
        population=three(),
        llm_client=scripted(),
    )
    run.run(1)
    ages = {
        f"You are {row['age']} and from the {row['region']}. Parks?"
        for row in three().rows.values()
    }
    assert set(asked(run).values()) == ages
    run = Poll(
        wording="Parks?",
        population=three(words="A voter of {{ age }}."),
        llm_client=scripted(),
    )
    run.run(1)
    assert "Parks?\n\nA voter of 30." in asked(run).values()


def test_without_a_population_the_persona_is_empty_and_the_prompt_as_it_was() -> None:
    wording = "{% if persona %}You are {{ persona.age }}. {% endif %}Parks?"
    plain = Poll(wording=wording, llm_client=scripted())
    plain.run(1)
    assert set(asked(plain).values()) == {"Parks?"}
    assert "population" not in plain.manifest()["config"]


def test_rows_are_columns_of_decisions_and_on_the_tape(tmp_path: Path) -> None:
    path = tmp_path / "poll.tape"
    population = three()
    run = Poll(population=population, llm_client=scripted(), tape=path)
    run.run(1)
    run.close()
    again = replay(path)
    assert again.config.population == population.on_tape()
    decisions = again.decisions().query("component == 'player'").set_index("player")
    assert decisions["age"].to_dict() == {name: population.row(name)["age"] for name in NAMES}
    longer = Poll.resume(path, llm_client=scripted())
    longer.run(1)
    assert "About you" in asked(longer)["Ann"]
    longer.close()
    with pytest.raises(ConfigError, match="came from a tape or a file"):
        again.config.population.raked({"age": {30: 1}})


@pytest.mark.parametrize(
    "players",
    [None, "random", {"*": lambda question: 1}, {"Ann": "random", "Bob": "random", "*": "model"}],
)
def test_a_player_without_a_row_is_named_whoever_plays(players: Any) -> None:
    frame = pd.DataFrame({"age": [30]})
    run = Poll(
        population=Population.from_table(frame, names=["Ann"]),
        players=players,
        llm_client=scripted(),
    )
    with pytest.raises(ConfigError, match=r"no row for 'Bob'.*names="):
        run.run(1)


def test_a_study_of_people_who_do_not_play_has_no_effect() -> None:
    town = Population.from_table(traits(7))
    study = Study(
        Poll,
        {"population": {"none": None, "town": town}},
        seeds=2,
        turns=1,
        outcome="votes.Ann",
        players={"*": "random", "judge": "random"},
    )
    study.run(progress=False)
    assert study.counts["failed"] == 2
    assert {"no row for 'Ann'" in run.error for run in study.progress() if run.error} == {True}


def test_a_missing_value_is_an_error_and_a_table_without_it_has_whole_numbers() -> None:
    frame = pd.DataFrame({"age": [33, None, 47], "share": [0.5, 0.25, 0.5]}, index=[7, 8, 9])
    with pytest.raises(
        ConfigError, match=r"no value of 'age' in 1 row, first in row 8.*dropna.*fillna"
    ):
        Population.from_table(frame)
    for whole in (
        frame.dropna(subset=["age"]).convert_dtypes(),
        frame.fillna({"age": 47}).convert_dtypes(),
        pd.DataFrame({"age": [33, 47], "share": [0.5, 0.5]}),
    ):
        rows = Population.from_table(whole).rows.values()
        assert {f"age {row['age']}" for row in rows} == {"age 33", "age 47"}


def test_no_persona_is_the_reference_of_a_study(tmp_path: Path) -> None:
    def answer(request: Any) -> dict[str, object]:
        parks = 70 if "About you" in request.prompt else 40
        if "fair" in request.prompt:
            parks = 1
        return {"reasoning": "", "parks": parks, "confidence": 1}

    study = Study(
        Poll,
        {"population": {"no persona": None, "the town": three()}},
        seeds=2,
        turns=1,
        outcome="votes.Ann",
        llm_client=LLMClient(LLMConfig(model="script"), ScriptedBackend(answer)),
        tape=tmp_path / "study",
    )
    study.run(progress=False)
    assert study.reference == "no persona"
    [effect] = study.effects()
    assert effect.value == 30
    assert study.counts["done"] == 4
    assert (
        Study(
            Poll,
            {"population": {"no persona": None, "the town": three()}},
            seeds=2,
            turns=1,
            outcome="votes.Ann",
            tape=tmp_path / "study",
        ).counts["left"]
        == 0
    )


def test_a_prompt_that_code_writes_ends_with_the_words_too() -> None:
    class Coded(Poll):
        async def turn(self, state: Town, ask: Ask) -> Town:
            await ask("Ann", Vote, lambda name: f"Parks, {name}? {{really}}")
            return state

    run = Coded(population=three(), llm_client=scripted())
    run.run(1)
    assert asked(run)["Ann"].startswith("Parks, Ann? {really}\n\nAbout you: age ")


def any_reply(request: ChatRequest) -> ChatReply:
    return chance_reply(request, Random(0))


@pytest.mark.parametrize("world", ["economy", "crisis"])
def test_a_prompt_that_a_shipped_world_fills_ends_with_the_words_too(
    world: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.tape"
    frame = pd.DataFrame({"age": [30, 60]})
    settings: dict[str, Any] = {
        "llm_client": LLMClient(LLMConfig(model="script"), ScriptedBackend(any_reply)),
        "tape": path,
    }
    if world == "economy":
        people = Population.from_table(frame, names=["Ann", "Bo"])
        run: Run = Simulation(nations=["Ann", "Bo"], population=people, **settings)
    else:
        people = Population.from_table(frame, names=["Ada", "Bo"])
        run = CrisisSimulation(scenario=make_scenario(), population=people, **settings)
    run.run(1)
    first, *_ = people.names
    [call] = [call for call in run.calls if call.request.site.agent == first]
    message = call.request.messages[-1].content
    assert message.endswith("\n\nAbout you: age 30.")
    words = call.request.provenance.spans[-1]
    assert (words.name, words.source) == ("persona_words", f"population, {first}")
    assert message[words.start : words.end] == "About you: age 30."
    assert run.decisions().query("player == @first")["age"].tolist() == [30]
    run.close()
    assert replay(path).state == run.state
