"""How votes become one rate."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_action

from llmsim_lab.engines.committee import Committee


def outcome(*rates: float, current: float = 4.0, **rule: Any) -> float:
    """The rate that members A, B, C ... with these votes set."""
    votes = dict(zip("ABCDE", rates, strict=False))
    return Committee(**rule).rate(votes, current=current)


def test_the_median_is_of_two_in_the_middle_the_point_closest_to_the_rate_in_force() -> None:
    assert outcome(4.5, 3.5, 4.25) == 4.25
    assert outcome(4.25, 4.75) == 4.25  # both up: the smaller change
    assert outcome(3.25, 3.5) == 3.5
    assert outcome(3.75, 4.25) == 4.0  # one up, one down: no change, which is between the two
    assert outcome(4.0, 6.0, 4.5, 3.0) == 4.0


def test_a_majority_is_more_than_half_of_the_votes_for_one_rate() -> None:
    assert outcome(4.5, 4.5, 3.0, rule="majority") == 4.5
    assert outcome(4.5, 4.5, 3.0, 3.0, rule="majority") == 4.0
    assert outcome(4.5, 4.25, 4.75, rule="majority") == 4.0


def test_the_chair_prevails_as_far_as_the_tolerance_around_the_median() -> None:
    for vote, rate in ((4.5, 4.5), (4.25, 4.25), (6.0, 4.75), (3.0, 4.25)):
        assert outcome(vote, 4.5, 4.5, 4.5, rule="chair", chair="A", tolerance_bp=25) == rate
    assert outcome(4.5, 5.0, 5.0, rule="chair", chair="Z") == 5.0  # its vote does not count


@pytest.mark.parametrize("rule", [{"rule": "median"}, {"rule": "chair", "chair": "A"}])
def test_without_a_vote_the_rate_stays(rule: Any) -> None:
    assert outcome(**rule) == 4.0


def test_an_action_has_one_size_at_most() -> None:
    with pytest.raises(ValueError, match="give one of them"):
        make_action(rate_change_bp=25, proposed_rate=4.25)
