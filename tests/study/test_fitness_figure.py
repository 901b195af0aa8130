"""The picture of fitness cards."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest

from llmsim_lab.errors import ConfigError
from llmsim_lab.lab.figures import fitness_figure
from llmsim_lab.study._checks import SHORT_FORMS, Measure, missing, share
from llmsim_lab.study._fitness import Check, FitnessCard


def make_card(model: str = "tiny", *, obeyed: int = 9) -> FitnessCard:
    measures = (
        Measure(name="memory_gb", value=1.5, unit="GB", n=1),
        Measure(name="reading", value=300, unit="tokens/s", n=2),
        *(share(name, 10, 10) for name in SHORT_FORMS),
        missing("same_reload", "it cannot be unloaded"),
        share("obeyed", obeyed, 10),
    )
    return FitnessCard(
        model=model,
        backend="own",
        context_used=4096,
        measured_at=datetime(2026, 11, 22, tzinfo=UTC),
        checks={"all": Check(measures=measures, seconds=3.0)},
    )


def svg_of(*cards: FitnessCard) -> str:
    file = io.StringIO()
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none"}):
        fitness_figure(*cards).savefig(file, format="svg")
    return file.getvalue()


def test_shares_are_drawn_with_their_counts_and_other_numbers_stand_beside() -> None:
    drawn = svg_of(make_card())
    for text in (
        "10/10",
        "9/10",
        "1.5 GB",
        "300 tokens/s (n = 2)",
        "valid: a nested list",
        "4,096",
    ):
        assert text in drawn
    assert "tiny: Fit for trying the tool; undecided for structured decisions" in drawn


def test_several_cards_are_told_apart_by_name_and_shape() -> None:
    drawn = svg_of(make_card("good"), make_card("cost $x$", obeyed=0))
    assert "good: Fit for trying the tool" in drawn
    assert "cost $x$: Fit for plumbing and tests only" in drawn
    assert "0/10" in drawn


def test_the_picture_says_in_words_what_it_shows() -> None:
    alt = fitness_figure(make_card()).alt  # type: ignore[attr-defined]
    assert "obeys an instruction and its reverse: 90 % (n = 10, 55 to 100 %)" in alt
    assert "same seed: after a reload: not measured: it cannot be unloaded" in alt


@pytest.mark.parametrize("count", [0, 5])
def test_a_picture_of_no_card_or_too_many_is_an_error(count: int) -> None:
    with pytest.raises(ConfigError, match=f"{count} cards; a picture holds 1 to 4"):
        fitness_figure(*[make_card()] * count)
