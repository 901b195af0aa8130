"""What the window and the page of a study are drawn from."""

from __future__ import annotations

from typing import Any

from study_kit import Water

from llmsim_lab.run.reading import Reading
from llmsim_lab.study import Study
from llmsim_lab.study.view import put_study


def drawn(study: Study) -> dict[Any, Any]:
    """Return the parts of a study's view by name."""
    reading = Reading("study")
    put_study(reading, study, {})
    return {key: value for (_, key), value in reading.parts.items()}


def test_each_arm_but_the_reference_has_a_band_of_what_it_differs_by() -> None:
    vary = {"factor": [1.0, 1.5, 2.0]}
    study = Study(Water, vary=vary, seeds=3, turns=2, outcome="level", players="rule")
    charts = drawn(study.run())["of level"]
    assert [arm for arm, _ in charts["bands"]] == ["factor=1.5", "factor=2"]
    [first, last] = charts["bands"][1][1]
    assert (first[0], last[0]) == (1, 2)
    low, high = last[2:]
    assert low < last[1] < high
