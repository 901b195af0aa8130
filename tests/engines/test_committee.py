"""How votes become one rate."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_action

from llmsim_lab.engines._committee import Committee


def outcome(*rates: float, current: float = 4.0, **rule: Any) -> float:
    """The rate that members A, B, C ... with these votes set."""
    votes = dict(zip("ABCDE", rates, strict=False))
    return Committee(**rule).rate(votes, current=current)


# The rules


def test_the_median_of_an_odd_number_is_the_vote_in_the_middle() -> None:
    assert outcome(4.5, 3.5, 4.25) == 4.25


@pytest.mark.parametrize(
    ("votes", "rate"),
    [
        ((4.25, 4.75), 4.25),  # both up: the smaller change
        ((3.25, 3.5), 3.5),  # both down: likewise
        ((3.75, 4.25), 4.0),  # one up, one down: no change, which is between the two
        ((4.0, 6.0, 4.5, 3.0), 4.0),
    ],
)
def test_of_an_even_number_the_point_closest_to_the_rate_in_force_counts(
    votes: tuple[float, ...], rate: float
) -> None:
    assert outcome(*votes) == rate


def test_a_majority_is_more_than_half_of_the_votes_for_one_rate() -> None:
    assert outcome(4.5, 4.5, 3.0, rule="majority") == 4.5
    assert outcome(4.5, 4.5, 3.0, 3.0, rule="majority") == 4.0
    assert outcome(4.5, 4.25, 4.75, rule="majority") == 4.0


@pytest.mark.parametrize(
    ("chairs_vote", "rate"), [(4.5, 4.5), (4.25, 4.25), (6.0, 4.75), (3.0, 4.25), (4.75, 4.75)]
)
def test_the_chair_prevails_as_far_as_the_tolerance_around_the_median(
    chairs_vote: float, rate: float
) -> None:
    others = (4.5, 4.5, 4.5)
    assert outcome(chairs_vote, *others, rule="chair", chair="A", tolerance_bp=25) == rate


def test_without_the_chairs_vote_the_median_decides() -> None:
    assert outcome(4.5, 5.0, 5.0, rule="chair", chair="Z") == 5.0


RULES = [{"rule": "median"}, {"rule": "majority"}, {"rule": "chair", "chair": "A"}]


@pytest.mark.parametrize("rule", RULES)
def test_without_a_vote_the_rate_stays(rule: Any) -> None:
    assert outcome(**rule) == 4.0


def test_an_action_has_one_size_at_most() -> None:
    with pytest.raises(ValueError, match="give one of them"):
        make_action(rate_change_bp=25, proposed_rate=4.25)
