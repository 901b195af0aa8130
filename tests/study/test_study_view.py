"""What the window and the page of a study are drawn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from study_kit import played, study_of

from llmsim_lab.run.reading import Reading
from llmsim_lab.study import Study, multiverse
from llmsim_lab.study.view import put_study


def drawn(study: Study, numbers: Any = None) -> dict[Any, Any]:
    """Return the parts of a study's view by name."""
    reading = Reading("study")
    put_study(reading, study, numbers or {})
    return {key: value for (_, key), value in reading.parts.items()}


ARMS = [f"factor={factor} · {taste}" for factor in (1, 2) for taste in ("plain", "fancy")]


@pytest.fixture(scope="module")
def two_factors() -> Study:
    vary = {"factor": [1.0, 2.0], "taste": ["plain", "fancy"]}
    outcomes = {"level": "level", "word": lambda run: "yes"}
    return played(study_of(vary=vary, turns=2, outcome=outcomes))


def test_a_design_is_drawn_with_its_runs_in_their_places(two_factors: Study) -> None:
    parts = drawn(two_factors, {(ARMS[0], 1): 5})
    assert parts["design"] == {
        "name": "Water",
        "arms": ARMS,
        "letters": ["A", "B", "C", "D"],
        "units": [0, 1, 2],
        "of": "seed",
        "paired": True,
        "outcomes": ["level", "word"],
    }
    runs = [parts[place] for place in range(12)]
    assert runs == [["done", 2, "", 5 if place == 1 else None] for place in range(12)]
    nothing = drawn(study_of(vary={}))
    assert not {"effects", "of level"} & nothing.keys()
    assert nothing[0] == ["left", 0, "", None]


def test_effects_are_drawn_with_their_numbers_words_and_colours(two_factors: Study) -> None:
    parts = drawn(two_factors)["effects"]
    effects = two_factors.effects()
    names = ["outcome", "contrast", "kind", "value", "low", "high", "level", "p", "p_family"]
    names += ["margin", "verdict", "n", "unit", "generalises_to", "method", "note"]
    for row, effect in zip(parts["rows"], effects, strict=True):
        assert {name: row[name] for name in names} == {
            name: getattr(effect, name) for name in names
        }
        assert row["sentence"] == effect.sentence()
        assert row["typical"] is None
    rows = [(row["arm"], row["look"], row["scale"]) for row in parts["rows"]]
    scales = ["difference in level", "distance between texts of word: 0 if alike"]
    assert rows == [(arm, ARMS.index(arm), scale) for arm in ARMS[1:] for scale in scales]
    # One of level has no p-value: nothing varies with the taste.
    assert (parts["label"], parts["reference"]) == ("", ARMS[0])
    assert parts["family"] == {"size": 5, "outcomes": 2}
    assert "effects" not in drawn(played(study_of(vary={}, seeds=1, turns=1)))


def test_an_outcome_is_drawn_by_unit_by_turn_and_in_each_specification(two_factors: Study) -> None:
    parts = drawn(two_factors)
    assert parts["of word"] == {"fault": "word: no numbers to chart; study.results has all values"}
    charts = parts["of level"]
    rows = two_factors.results.query("outcome == 'level'").astype({"value": float})
    by_unit = rows.pivot_table(index="unit", columns="arm", values="value")[ARMS]
    assert charts["units"] == [pytest.approx(row) for row in by_unit.to_numpy().tolist()]
    by_turn = rows.pivot_table(index="turn", columns="arm", values="value")[ARMS]
    assert charts["turns"] == [pytest.approx([turn, *row]) for turn, *row in by_turn.itertuples()]
    for (arm, band), name in zip(charts["bands"], ARMS[1:], strict=True):
        columns = ["turn", "estimate", "low", "high"]
        expected = two_factors.by_turn("level", name)[columns].to_numpy().tolist()
        assert (arm, band) == (name, expected)
    for curve, factor, other in zip(
        charts["curves"], ("factor", "taste"), ("taste", "factor"), strict=True
    ):
        found = multiverse(two_factors, factor, outcome="level")
        assert found.chance is not None
        assert curve["chance"] == {
            "p": found.chance.p,
            "same_sign": found.chance.same_sign,
            "holds": found.chance.holds,
        }
        names = ["factor", "finding", "choices", "same_sign", "holds"]
        expected = [factor, found.finding, [other], found.same_sign, found.holds]
        assert [curve[name] for name in names] == expected
        assert [row[0] for row in curve["rows"]] == found.frame["estimate"].tolist()
        assert [row[3] for row in curve["rows"]] == found.frame[other].tolist()
    # The taste changes nothing, so that there is no interval.
    assert [row[1:3] for row in charts["curves"][1]["rows"]] == [[None, None]] * 2


def test_some_charts_wait_for_all_runs_or_for_several_turns() -> None:
    vary = {"factor": [1.0, 2.0, 3.0], "taste": ["plain", "fancy"]}
    study = study_of(vary=vary, seeds=2, turns=1)
    study.run(only=[("factor=1 · plain", 1)], progress=False)
    charts = drawn(study)["of level"]
    assert (charts["turns"], charts["bands"], charts["curves"]) == ([], [], [])
    assert charts["units"][0] == [None] * 6
    assert [value is None for value in charts["units"][1]] == [False] + [True] * 5
    played(study)
    charts = drawn(study)["of level"]
    # The other factor has three levels.
    assert [curve["factor"] for curve in charts["curves"]] == ["taste"]
    assert charts["turns"] == []
    many = played(study_of(vary={"factor": list(map(float, range(13)))}, seeds=1, turns=1))
    assert drawn(many)["of level"] == {
        "fault": "level: 13 arms are too many for a chart; study.results has all values"
    }
    broken = played(study_of(outcome={"x": lambda run: 1 / 0}, turns=1))
    assert drawn(broken)["effects"]["rows"] == []
    assert "ZeroDivisionError" in drawn(broken)["effects"]["label"]
    assert "ZeroDivisionError" in drawn(broken)["of x"]["fault"]


def test_what_was_registered_is_drawn(tmp_path: Path) -> None:
    study = study_of(seeds=8, turns=1)
    claims = {"sesoi": {"level": 0.5}, "level": 0.9, "typical": True}
    study.register(tmp_path / "plan.json", **claims)
    parts = drawn(played(study))
    [effect] = study.effects(**claims)
    [row] = parts["effects"]["rows"]
    assert (row["margin"], row["level"], row["kind"]) == (0.5, 0.9, "typical difference")
    assert (row["low"], row["verdict"]) == (effect.low, effect.verdict)
    assert parts["design"]["paired"] is True
    groups = study_of(seeds=8, turns=1)
    groups.register(tmp_path / "groups.json", paired=False)
    parts = drawn(played(groups))
    assert (parts["design"]["paired"], parts["effects"]["rows"][0]["n"]) == (False, 16)
