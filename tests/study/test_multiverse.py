"""A finding in each specification: the share in which it holds."""

from __future__ import annotations

from typing import Any

import pytest

from llmsim_lab import Ask, Run, State
from llmsim_lab.errors import ConfigError
from llmsim_lab.study import Study, multiverse


class Score(State):
    score: float = 0.0


class Asked(Run[Score]):
    """The finding is there with one wording, absent with the next, and reversed with the last."""

    poor: bool = False
    wording: str = "a"
    order: str = "x"

    async def turn(self, state: Score, ask: Ask) -> Score:
        size = {"a": -2.0, "b": -1.0, "c": 1.0}[self.wording] * self.poor
        luck = ask.rng_for("luck").gauss(0, 1) + 0.1 * ask.rng_for(f"own {self.poor}").gauss(0, 1)
        return Score(score=size + luck)


def finding_of(world: Any, vary: Any, *, seeds: int = 4) -> Any:
    study = Study(world, vary, seeds=seeds, turns=1, outcome="score@last", players="random")
    return multiverse(study.run(progress=False), "poor")


@pytest.fixture(scope="module")
def study() -> Study:
    vary = {"poor": {"no": False, "yes": True}, "wording": list("abc"), "order": list("xy")}
    study = Study(Asked, vary, seeds=4, turns=1, outcome="score@last", players="random")
    return study.run(progress=False)


def test_a_finding_has_an_effect_in_each_specification_and_a_share_in_which_it_holds(
    study: Study,
) -> None:
    found = multiverse(study, "poor")
    assert found.frame["wording"].tolist() == ["a", "a", "b", "b", "c", "c"]
    assert found.frame["estimate"].is_monotonic_increasing
    assert set(found.frame["n"]) == {4}
    assert found.frame["estimate"].tolist() == pytest.approx([-2, -2, -1, -1, 1, 1], abs=0.3)
    assert (found.same_sign, found.holds) == pytest.approx((4 / 6, 4 / 6))
    assert str(found) == (
        "yes \N{MINUS SIGN} no, score@last: holds in 67% of 6 specifications (by chance alone 8%), "
        "has the same sign in 67% (by chance alone 79%); joint p = .125 of the median "
        "(8 flips of whole runs)"
    )
    assert str(found) in found.figure().alt  # type: ignore[attr-defined]


def test_a_finding_that_is_turned_round_holds_as_often_and_one_seed_has_no_joint_test() -> None:
    vary = {"poor": {"yes": True, "no": False}, "wording": list("abc")}
    found = finding_of(Asked, vary)
    assert found.frame["estimate"].tolist() == pytest.approx([-1, 1, 2], abs=0.3)
    assert (found.same_sign, found.holds) == pytest.approx((2 / 3, 2 / 3))
    assert str(finding_of(Asked, vary, seeds=1)) == (
        "no \N{MINUS SIGN} yes, score@last: holds in 0% of 3 specifications, has the same sign in "
        "67%; no joint test, which takes pairs of runs"
    )


def test_a_finding_compares_two_levels_of_a_factor_of_the_study(study: Study) -> None:
    with pytest.raises(ConfigError, match="study=3 must be a Study that was played"):
        multiverse(3, "poor")
    with pytest.raises(ConfigError, match=r"there is no factor 'por'.*'poor'"):
        multiverse(study, "por")
    with pytest.raises(ConfigError, match="there is no outcome 'coins'"):
        multiverse(study, "poor", outcome="coins")
    with pytest.raises(ConfigError, match="wording has 3 levels, and a finding compares two"):
        multiverse(study, "wording")


class Probable(Asked):
    p: float = 1.0
    n: int = 3


def test_factors_called_p_and_n_stand_beside_the_p_value_and_the_number_of_runs() -> None:
    vary = {"poor": {"no": False, "yes": True}, "p": [1.0, 2.0], "n": [3, 4]}
    found = finding_of(Probable, vary)
    assert found.choices == ["factor p", "factor n"]
    assert set(found.frame["factor p"]) == {"1", "2"}
    assert set(found.frame["n"]) == {4}


def test_a_finding_of_nothing_is_said_to_be_nothing() -> None:
    class Same(Asked):
        async def turn(self, state: Score, ask: Ask) -> Score:
            return Score(score=float(self.seed))

    vary = {"poor": {"no": False, "yes": True}, "wording": ["a", "b"]}
    study = Study(Same, vary, seeds=3, turns=1, outcome="score@last", players="random")
    found = multiverse(study.run(progress=False), "poor")
    assert str(found).endswith("score@last: exactly 0 in all 2 specifications")
