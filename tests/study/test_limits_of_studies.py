"""The limits of what a study is asked: the last value is taken, the next one is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from study_kit import Water, played

from llmsim_lab.errors import ConfigError
from llmsim_lab.study import Study

ARMS = {"factor": [1, 2]}


def water(**more: Any) -> Study:
    return Study(Water, ARMS, **{"seeds": 2, "turns": 1, "outcome": "level@last", **more})


@pytest.fixture(scope="module")
def study() -> Study:
    return played(water(players="rule"))


LIMITS: list[tuple[Callable[[Study, Any], Any], list[Any], list[Any]]] = [
    (lambda _, seeds: water(players="rule", seeds=seeds), [1, [7]], [0, 100_001, []]),
    (lambda study, level: study.effects(level=level), [0.5, 0.9999], [0.49, 1]),
    (
        lambda study, level: study.by_turn("level", "factor=2", level=level),
        [0.5, 0.9999],
        [0.49, 1],
    ),
    (lambda study, margin: study.effects(sesoi=margin), [0, 0.5], [-0.1]),
    (lambda study, parallel: study.run(parallel=parallel), [1], [0]),
]


@pytest.mark.parametrize(("ask", "taken", "refused"), LIMITS)
def test_a_study_takes_a_limit_and_nothing_beyond(
    study: Study, ask: Callable[[Study, Any], Any], taken: list[Any], refused: list[Any]
) -> None:
    for value in taken:
        ask(study, value)
    for value in refused:
        with pytest.raises(ConfigError, match=r"must be|at most|seeds"):
            ask(study, value)
