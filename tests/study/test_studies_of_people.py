"""Studies whose players are people: what is compared with what, and what was filled in."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from study_kit import Basin, Water, Wish, instant_client, played, study_of, timeless

from llmsim_lab import Ask, Person, Question
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import OpenQuestion
from llmsim_lab.run.people import people_of
from llmsim_lab.study import Study, multiverse
from llmsim_lab.study.estimates import effects

MINUS = "\N{MINUS SIGN}"
NOT_PAIRED = "groups of people share nothing, so runs are not paired by seed"


class Spring(Water):
    async def turn(self, state: Basin, ask: Ask) -> Basin:
        question = "You are {{ name }}. The basin holds {{ state.level }}. How much?"
        wishes = await ask.each(state.shares, Wish, question)
        luck = 3 * ask.rng_for("rain").random()
        return state.replace(level=self.factor + luck + sum(w.amount for w in wishes.values()))


def amount_of(name: str, level: float) -> int:
    return round(level) % 4 + (1 if name == "Ann" else 2)


def answer(question: OpenQuestion) -> Wish:
    """Answer as a person who reads the prompt."""
    level = float(question.request.prompt.split("holds ")[1].split(". How")[0])
    return Wish(amount=amount_of(question.agent, level))


def by_function(question: Question) -> Wish:
    return Wish(amount=amount_of(question.player, float(f"{question.state.level:.2f}")))


def spring(vary: Any = None, **settings: Any) -> Study:
    given = {"seeds": 4, "turns": 3, "llm_client": None, "players": Person(ask=answer), **settings}
    return study_of(Spring, vary, **given)


async def never(question: OpenQuestion) -> Wish:
    await asyncio.sleep(3600)
    raise AssertionError


ABSENT = Person(ask=never, timeout_s=0.01, stand_in="rule")


class Room:
    """Answers for the people of a study's runs as they are asked, or says that they have left."""

    def __init__(self, study: Study, absent: list[tuple[str, int]]) -> None:
        self.study = study
        self.absent = absent
        self.groups: set[tuple[str, object]] = set()
        study.listen(self.welcome)

    def welcome(self) -> None:
        for group, run in self.study.playing.items():
            if group not in self.groups:
                self.groups.add(group)
                for person in people_of(run):
                    person.listen(partial(self.settle, group, person))

    def settle(self, group: tuple[str, int], person: Person) -> None:
        for question in person.questions:
            if group in self.absent:
                person.give_up(question, "they have left")
            else:
                person.answer(question, answer(question))


def test_a_room_plays_groups_by_name_and_absent_people_are_filled_in(tmp_path: Path) -> None:
    settings = {"players": {"*": "person, else random"}, "seeds": 3, "tape": tmp_path}
    study = spring(**settings)
    groups = [("factor=1", 0), ("factor=1", 1), ("factor=2", 0), ("factor=2", 1)]
    room = Room(study, absent=[("factor=2", 1)])
    study.run(only=groups, parallel=len(groups), progress=False)
    assert room.groups == set(groups)
    assert [group.filled for group in study.groups()] == [0, 0, 0, 6]
    assert study.simulation("factor=2", 1).decisions()["model"].unique().tolist() == ["random"]
    again = spring(**settings)
    assert again.effects().label.startswith("4 of 6 runs so far")
    assert again.effects().label.endswith("1 of 4 groups had no people, and are left out")
    assert again.effects()[0].note.endswith(
        "groups without people, left out: 0 of 2 in factor=1, 1 of 2 in factor=2"
    )


def test_a_study_by_people_has_the_frame_of_the_same_answers_by_functions() -> None:
    of_people = played(spring())
    of_functions = played(spring(players={"*": by_function}))
    names = ["arm", "factor", "unit", "turn", "level", "shares.Ann", "shares.Bob"]
    pd.testing.assert_frame_equal(timeless(of_people)[names], timeless(of_functions)[names])
    pd.testing.assert_frame_equal(of_people.results, of_functions.results)


def test_groups_of_people_are_not_paired_and_the_table_says_so() -> None:
    study = played(spring())
    [effect] = study.effects()
    assert study.effects().label == NOT_PAIRED
    assert (effect.method, effect.n) == ("Welch's t over 4 and 4 runs", 8)
    [as_asked] = effects(study.results, paired=False)
    assert (effect.low, effect.high, effect.p) == (as_asked.low, as_asked.high, as_asked.p)
    assert set(study.by_turn("level")["n"]) == {8}
    assert study.chart("level").axes[1].get_title(loc="left").startswith("dot: a run")
    assert "mean of 8 runs" in study.chart("level", "factor=2").axes[0].get_title(loc="left")


def test_the_same_people_in_both_arms_are_paired_when_the_user_says_so() -> None:
    study = played(spring())
    [effect] = study.effects(paired=True)
    assert (effect.method, effect.n) == ("paired t over run means", 4)
    assert study.effects(paired=True).label == ""
    with pytest.raises(ConfigError, match="people play these; leave it out, or say paired=True"):
        study.effects(typical=True)


def test_models_stay_paired() -> None:
    study = played(study_of())
    assert study.arms_of_people == []
    assert study.effects()[0].method == "paired t over run means"


def test_groups_that_do_not_play_count_nowhere() -> None:
    study = spring()
    study.run(only=[("factor=1", 0), ("factor=1", 1), ("factor=2", 0)], progress=False)
    assert [run.status for run in study.progress()] == ["done", "done", "left", "left", "done"] + [
        "left"
    ] * 3
    [effect] = study.effects()
    assert (effect.n, effect.note) == (3, "an arm has one run: an interval takes two in each")
    played(study)
    assert study.effects()[0].n == 8
    with pytest.raises(ConfigError, match="only: there is no run of arm 'factor=3' with seed 0"):
        study.run(only=[("factor=3", 0)])


def of_players(levels: dict[str, Any], **settings: Any) -> Study:
    return study_of(Spring, {"players": levels}, **{"llm_client": None, "turns": 3, **settings})


CLASS = Person(ask=answer)


@pytest.mark.usefixtures("undrawn")
def test_decisions_that_were_filled_in_are_counted_in_the_table_and_the_report(
    tmp_path: Path,
) -> None:
    study = played(of_players({"class": CLASS, "half": {"Ann": ABSENT, "Bob": CLASS}}))
    filled = "9 of 36 decisions of people were filled in"
    assert study.effects().label == f"{NOT_PAIRED}; {filled}"
    note = "decisions of people that were filled in: 0 of 18 in class, 9 of 18 in half"
    assert note in study.effects()[0].note
    assert filled in study.report(tmp_path / "study.html").read_text()


def test_a_group_without_people_is_left_out_and_named() -> None:
    gone = played(of_players({"class": CLASS, "gone": ABSENT}))
    left_out = "3 of 6 groups had no people, and are left out"
    assert str(gone.effects()) == f"{NOT_PAIRED}; {left_out}\nnothing to compare"
    assert [group.is_without_people for group in gone.groups()] == [False] * 3 + [True] * 3
    assert set(gone.results["arm"]) == {"class", "gone"}
    with pytest.raises(ConfigError, match="arm 'gone' has no run with 'level' yet"):
        gone.by_turn("level")


def test_a_class_and_a_model_stand_in_one_table() -> None:
    players = {"class": CLASS, "model": "model"}
    vary = {"factor": [1.0, 2.0], "players": players}
    study = study_of(Spring, vary, turns=3, llm_client=instant_client())
    everybody = ["everybody else"]
    seats = {"factor=1 · class": everybody, "factor=2 · class": everybody}
    assert study.seats_of_people == seats
    study.run(only=[(arm, unit) for arm in study.arms_of_people for unit in (0, 1)], progress=False)
    played(study)
    factor, beside, interaction = study.effects("level ~ factor * players")
    assert beside.contrast == f"players=model {MINUS} players=class"
    assert (beside.n, beside.method) == (12, "Welch's t over 3 and 3 and 3 and 3 runs")
    assert factor.low is not None
    assert interaction.low is not None
    assert multiverse(study, "players").chance is None


@pytest.mark.usefixtures("undrawn")
def test_a_registration_says_how_runs_are_compared(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    registered = spring().register(file)
    assert not registered.claims.paired
    assert registered.claims.family.endswith("of runs that are not paired")
    study = played(spring())
    study.register(file)
    assert study.registered_effects()[0].n == 8
    assert study.registered_effects().label == NOT_PAIRED
    assert NOT_PAIRED in study.report(tmp_path / "study.html").read_text()
    with pytest.raises(ConfigError, match="registered other claims"):
        study.register(file, paired=True)
    models = played(study_of())
    models.register(tmp_path / "typical.json", typical=True)
    assert models.registered_effects()[0].kind == "typical difference"


def test_people_cannot_be_asked_in_other_processes() -> None:
    with ThreadPoolExecutor() as pool, pytest.raises(ConfigError, match="no person can answer"):
        spring().run(executor=pool)


def test_the_same_design_is_played_by_further_groups(tmp_path: Path) -> None:
    first = spring(tape=tmp_path / "first")
    more = first.replace(seeds=[4, 5], tape=tmp_path / "more")
    assert (more.units, list(more.arms), more.outcome) == ([4, 5], list(first.arms), first.outcome)
    asked = first.replace(players="person")
    assert asked.arms_of_people == list(first.arms)
    # Whoever is not named keeps the seat.
    both = asked.replace(players={"nobody": "random"})
    assert both.seats_of_people == asked.seats_of_people
    with pytest.raises(ConfigError, match="cannot replace what is varied"):
        of_players({"class": CLASS}).replace(players="random")
