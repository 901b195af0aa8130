"""How numbers and lines are written."""

from __future__ import annotations

import pytest

from llmsim_lab._util.text import clip, number, printable


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (2.0, "2"),
        (9.673333, "9.67"),
        (0.125, "0.12"),
        (-0.004, "0"),
        (-1.5, "-1.5"),
    ],
)
def test_a_number_has_two_decimals_at_most_and_none_idle(value: float, written: str) -> None:
    assert number(value) == written


def test_a_text_that_does_not_fit_ends_in_an_ellipsis_and_fits() -> None:
    assert clip("Cut the taxes", 8) == "Cut the…"
    assert len(clip("x" * 100, 20)) == 20


def test_what_a_terminal_would_obey_is_taken_out_of_a_text() -> None:
    assert printable("a\x1b[2Jb\u202ec\r\nd\ud800") == "a[2Jbcd"
    assert printable("é\n\tb\x07", keep="\n\t") == "é\n\tb"
    assert printable("10\u00a0000\u202f€\u3000\u2028!") == "10 000 €  !"
