"""How votes become one rate."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_action

from llmsim_lab.engines.committee import Committee
from llmsim_lab.engines.engines import minutes


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
    assert outcome(4.5, rule="majority") == 4.5
    assert outcome(4.5, 3.0, rule="majority") == 4.0
    assert outcome(3.0, 3.0, 3.0, 4.5, 4.5, rule="majority") == 3.0
    # Rounding makes one rate of 0.1 + 0.2 and 0.3, and the least of them is set.
    assert outcome(0.1 + 0.2, 0.3, 1.0, rule="majority") == 0.3
    assert outcome(0.300001, 0.300002, 1.0, rule="majority") == 4.0


def test_the_chair_prevails_as_far_as_the_tolerance_around_the_median() -> None:
    for vote, rate in ((4.5, 4.5), (4.25, 4.25), (6.0, 4.75), (3.0, 4.25)):
        assert outcome(vote, 4.5, 4.5, 4.5, rule="chair", chair="A", tolerance_bp=25) == rate
    assert outcome(4.5, 5.0, 5.0, rule="chair", chair="Z") == 5.0  # its vote does not count
    for tolerance, rate in ((0, 4.5), (50, 5.0), (100, 5.5), (200, 6.0)):
        chair = {"rule": "chair", "chair": "A", "tolerance_bp": tolerance}
        assert outcome(6.0, 4.5, 4.5, 4.5, **chair) == rate


@pytest.mark.parametrize("rule", [{"rule": "median"}, {"rule": "chair", "chair": "A"}])
def test_without_a_vote_the_rate_stays(rule: Any) -> None:
    assert outcome(**rule) == 4.0


def test_an_action_has_one_size_at_most() -> None:
    with pytest.raises(ValueError, match="give one of them"):
        make_action(rate_change_bp=25, proposed_rate=4.25)


def test_minutes_name_each_vote_and_who_dissents_from_the_outcome() -> None:
    votes = {"Cy": 4.25, "Ann": 4.25, "Bob": 3.5, "Dee": 4.25 + 1e-12}
    assert minutes(Committee(), votes, 4.25, current=4.0) == (
        "Votes: Ann 4.25% (+25 bp), Bob 3.5% (-50 bp), Cy 4.25% (+25 bp), Dee 4.25% (+25 bp). By "
        "the rule median: 4.25% (+25 bp); dissent: Bob."
    )
    assert minutes(Committee(), {"Ann": 4.0}, 4.0, current=4.0) == (
        "Votes: Ann 4% (+0 bp). By the rule median: 4% (+0 bp); no dissent."
    )
    words = "No vote counts, so the rate stays at 3.25%."
    assert minutes(Committee(), {}, 3.25, current=3.25) == words
