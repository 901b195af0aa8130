"""What is not a run, a figure, a table, a margin or a design is an error that names it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from people_kit import OFFERS, classic, on_offer

from llmsim_lab import Run
from llmsim_lab.errors import ConfigError
from llmsim_lab.people import Population, PublishedFigure, load_people, published
from llmsim_lab.run import Memory
from llmsim_lab.run.memory import MemoryEntry
from llmsim_lab.simulation.people import (
    PeopleCard,
    Recall,
    enough_groups,
    people_designs,
    plan_designs,
    play_design,
    recall_study,
    recorded_designs,
)
from llmsim_lab.study import compare_with_people

NAN = float("nan")
TABLE = pd.DataFrame({"region": ["n", "s", "s"], "age": [30, 40, 50]})


def halves(figures: Any = None) -> Run:
    class Halves(classic("splitting")):
        def people(self) -> Any:
            return super().people() if figures is None else figures

    run: Run = Halves(players={"*": lambda question: on_offer(question, 0.5)})
    run.run()
    return run


def figure(**changes: Any) -> PublishedFigure:
    fields = {"study": "own", "condition": "c", "source": "", "place": "", "n": 3, "mean": 0.5}
    return PublishedFigure(**{**fields, **changes})


@pytest.mark.parametrize(
    ("played", "message"),
    [
        (3, "3 cannot be compared with people; compare_with_people takes a study, a run"),
        (None, "None cannot be compared"),
        (b"x", "b'x' cannot be compared"),
        ([classic("splitting")], "cannot be compared"),
        (TABLE, "'region' cannot be compared"),
        ("\ud800", r"played='\\ud800' is not a file's name"),
        ([], r"\[\] has no run that was played"),
    ],
)
def test_what_is_no_run_cannot_be_compared(played: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compare_with_people(played)


def test_a_list_with_something_else_beside_a_run_cannot_be_compared() -> None:
    with pytest.raises(ConfigError, match="3 cannot be compared"):
        compare_with_people([halves(), 3])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"share@x": OFFERS}, r"people\(\) of Halves names 'share@x'; what follows @ is a turn's"),
        ({"share@0": OFFERS}, "'share@0'; what follows @"),
        ({"share@": OFFERS}, "'share@'; what follows @"),
        ({"share": 3}, r"has 3 for 'share'; it is what people did: published\("),
        ({3: OFFERS}, "has 3 for a measure; it is a text"),
        ([OFFERS], r"returned \[PublishedFigure.*; return a figure by the column"),
        ({"player": OFFERS}, "'player' of its decisions is not a column of numbers: it has 'A'"),
        ({"gift": OFFERS}, "no column 'gift'; they have"),
    ],
)
def test_a_worlds_people_are_figures_by_column_and_turn(figures: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compare_with_people(halves(figures))


@pytest.mark.parametrize("margin", ["0.1", NAN, -1, None, {"share": 0.1}, 10**400])
def test_a_margin_is_a_number_above_0(margin: Any) -> None:
    with pytest.raises(ConfigError, match="margin="):
        compare_with_people(halves(), margin=margin)
    with pytest.raises(ConfigError, match="margin="):
        enough_groups(margin)


def test_a_margin_in_percent_is_more_than_shares_can_differ() -> None:
    for call in (lambda: compare_with_people(halves(), margin=15), lambda: enough_groups(15)):
        with pytest.raises(ConfigError, match=r"margin=15 is more than shares.*margin=0\.15"):
            call()
    dollars = figure(n=2, mean=2.5, sd=1.0)
    assert "inside 1.5" in str(compare_with_people(halves({"share": dollars}), margin=1.5))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": "3"}, "n='3' must be a whole number"),
        ({"mean": NAN}, "mean=nan must be"),
        ({"sd": -1}, "sd=-1 must be"),
        ({"sd": 0.1, "n": 1}, "n=1 must be at least 2"),
        ({"count": 4}, "count=4 must be a finite number, 0 to 3"),
        ({"count": 3}, "count=3 of n=3 people is not the share mean=0.5"),
        ({"values": [0.1, 0.9]}, "values=.* must be a tuple"),
        ({"values": (0.1, 0.9)}, "n=3, and there are 2 values"),
        ({"values": (0.1, 0.5, 0.9)}, "sd=None, and those of the values are 0.5 and 0.4"),
        ({"values": (0.1, "b", 0.9)}, "a person's value='b' must be"),
        ({"source": None}, "source=None must be a text"),
    ],
)
def test_numbers_of_a_figure_fit_together(changes: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        figure(**changes)


def asked(**changes: Any) -> PublishedFigure:
    wanted = {"condition": "dictator $5", "measure": "offer_usd"}
    return published("forsythe_1994", **{**wanted, **changes})


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["\ud800", "b", "c"], "with half a character"),
        ([b"x", b"y", b"z"], "the column 'a' has b'x'; a cell is a text, a number"),
        ([{1}, {2}, {3}], r"has \{1\}"),
        ([[1], [2], [3]], r"has \[1\]"),
        ([float("inf"), 1, 2], "a value of a=inf"),
        ([10**5000, 1, 2], "a value of a=<a number of 5,001 digits> must be a finite number"),
    ],
)
def test_a_cell_is_a_text_a_number_or_a_date(cells: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Population.from_table(pd.DataFrame({"a": pd.Series(cells, dtype=object)}))
    days = Population.from_table(pd.DataFrame({"day": [date(2026, 1, 2)]}))
    assert days.row("P1") == {"day": "2026-01-02"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"A": {"age": 10**5000}}, "rows has a number of more than 4,300 digits"),
        ({"A": {10**5000: 1}}, "rows"),
        (range(10**100), "has more than 50,000 items"),
        ({"A": {"x" * 3_000_000: 1, "y z": 1}}, "a column 'y z' cannot be|a column 'xxx"),
    ],
)
def test_rows_that_no_tape_holds_are_an_error_in_a_sentence(rows: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Population(rows=rows).model_dump_json()
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("column", [0, None, ("a", "b"), "not", "True", "a b", "turn", "\ud800"])
def test_a_column_is_called_what_a_prompt_can_use(column: Any) -> None:
    frame = pd.DataFrame([[1], [2]], columns=pd.Index([column], dtype=object))
    with pytest.raises(ConfigError, match="cannot be a prompt's slot"):
        Population.from_table(frame)


def test_a_number_and_its_text_share_the_margin_of_their_common_text() -> None:
    people = pd.DataFrame({"code": pd.Series([1, "1", 2], dtype=object)})
    raked = Population.from_table(people, n=10).raked({"code": {1: 0.1, "1": 0.2, 2: 0.7}})
    assert raked.wanted["code"] == pytest.approx({"1": 0.3, "2": 0.7})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": "Ann"}, "names='Ann' must be a list of texts"),
        ({"names": range(10**12)}, "has more than 100,000 names"),
        ({"weights": range(10**12)}, "weights are 1,000,000,000,000 numbers for 3 rows"),
        ({"names": {"Ann", "Bo"}}, "must be a list of texts"),
        ({"names": [1, 2, 3]}, "names has 1, and a player's name is a text"),
        ({"n": 10**30}, "1 to 100,000"),
        ({"weights": 3}, "weights=3 must be a column's name, or a list"),
        ({"weights": pd.Series([1, 2, 3], index=[2, 1, 0])}, "a Series with another index than"),
        ({"weights": ["1", "2", "3"]}, "a weight='1' must be a finite number, and it is a text"),
        ({"words": "people.md"}, "words are 'people.md', a file's name"),
        ({"words": "{{ age"}, "line 1: unexpected end of template"),
        ({"words": "{{ gae }}"}, r"words use {{ gae }} \(did you mean 'age'\?\), and the columns"),
        ({"words": "{{ age.x.y }}"}, "has no item 'x'"),
    ],
)
def test_a_draw_is_checked_when_it_is_made(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Population.from_table(TABLE, **options)


@pytest.mark.parametrize(
    ("margins", "message"),
    [
        ({3: {"n": 1}}, "the table has no column 3"),
        (
            {"region": [0.5, 0.5]},
            r"the margin of region is \[0.5, 0.5\]; give each value its share",
        ),
        ({"region": {"n": -0.5, "s": 1.5}}, "the share of region='n'=-0.5 must be .* 0 to 1"),
        ({"region": {"n": ".5", "s": 0.5}}, "the share of region='n'='.5' must be"),
        ({"region": {("n",): 0.5, "s": 0.5}}, r"the column 'region' has \('n',\)"),
        ({"region": {"\ud800": 0.5, "s": 0.5}}, "with half a character"),
        ({"region": {b"n": 0.5, "s": 0.5}}, "the column 'region' has b'n'"),
    ],
)
def test_margins_are_shares_of_values(margins: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Population.from_table(TABLE).raked(margins)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MemoryEntry(turn="1", text="x"), "turn='1' must be a whole number"),
        (lambda: MemoryEntry(turn=1, text=b"x"), "what is remembered is a text, and this is b'x'"),
        (lambda: MemoryEntry(turn=1, text="x", tokens=-1), "tokens=-1 must be"),
        (lambda: Memory().within(5, count=3), "count=3 must be a function"),
        (lambda: Memory().add(1, "x").within(5, count=str), r"count\(text\)='x' must be a whole"),
    ],
)
def test_what_is_remembered_is_checked_where_it_is_written(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        call()
    entries = (MemoryEntry(turn=3, text="late"), MemoryEntry(turn=1, text="early"))
    assert [str(entry) for entry in Memory(entries=entries).recent(2)] == ["early", "late"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_people(None), "study=None must be a text"),  # type: ignore[arg-type]
        (lambda: asked(condition=3), "condition=3 must be a text"),
        (lambda: asked(divide_by=0), "divide_by=0 must be above 0"),
        (lambda: asked(period="1"), "period='1' must be a whole number"),
        (lambda: asked(n=-1), "n=-1 must be"),
        (lambda: people_designs(3), "there is no design 3"),
        (lambda: people_designs(["framing"], groups=None), "groups=None must be"),
        (lambda: people_designs(["framing"], folder=3), "folder=3 must be a path"),
        (lambda: plan_designs(["framing"], players="rule"), "players='rule': leave it out"),
        (lambda: plan_designs(groups_of_many=5_001), "must be a whole number, 1 to 5,000"),
        (lambda: recall_study("chess"), "there is no design 'chess'"),
        (lambda: Recall(descriptions={"chess": "64 fields"}), "there is no design 'chess'"),
        (lambda: play_design(3), "3 is not a design"),
        (lambda: play_design([halves(), 3]), "is not a design; play those of people_designs"),
        (lambda: recorded_designs(None), "folder=None must be a path"),
        (lambda: PeopleCard.of({}, player="x"), "must be designs by name"),
        (lambda: PeopleCard.of({"splitting": [halves()]}, player=3), "player=3 must be a text"),
        (
            lambda: PeopleCard.of({"splitting": [halves()]}, player="x", recall=halves()),
            "must be the run of a played recall_study",
        ),
        (
            lambda: PeopleCard.of({"splitting": [halves()]}, player="x").page(3),
            "path=3 must be a path",
        ),
    ],
)
def test_figures_and_cards_are_asked_for_by_what_there_is(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        call()


def test_a_folder_that_is_a_file_cannot_be_played_into(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("")
    with pytest.raises(ConfigError, match=r"cannot make the folder .*notes.txt/disjunction"):
        people_designs(["disjunction"], folder=file, players="rule")
