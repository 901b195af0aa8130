"""The comparison of what a server reads with what it would have to read."""

from __future__ import annotations

from pathlib import Path

from builders import benchmark

TAPES = Path(__file__).parents[2] / "data" / "tapes"


def test_it_says_of_a_tape_which_share_is_read_anew() -> None:
    line = benchmark("prefix_cache")["shares_of"](TAPES / "first_run.tape")
    assert "54 requests" in line
    assert "one slot 0.99, each kind held 0.37, at best 0.36" in line
