"""What others set of a run that they play: a study, a gate, a chart of what could have been.

A world's attributes without ``_`` are its author's, so that what the package keeps of a run begins
with one. Others set it through these functions, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence

from llmsim_lab.llm.scope import Purse
from llmsim_lab.run._run_prompts import Edits
from llmsim_lab.run.playing import PlayedWorld
from llmsim_lab.run.session import Session
from llmsim_lab.types import CallRecord


def leave_out_warnings(run: PlayedWorld, *, left_out: bool = True) -> None:
    """Have a run warn of nothing, where an earlier one has warned of the same thing."""
    run._warnings.are_left_out = left_out


def pay_from(run: PlayedWorld, purse: Purse | None) -> None:
    """Have a run's calls paid from a purse that other runs share; None for no limit."""
    run._purse = purse


def edit_prompts(run: PlayedWorld, edits: Edits) -> None:
    """Have each prompt of a run edited when it is first asked with."""
    run._prompts.edit = edits


def edits_of(run: PlayedWorld) -> Edits | None:
    """Return what ``edit_prompts`` set; None where prompts are asked with as they are."""
    return run._prompts.edit


def ask_anew(run: PlayedWorld) -> None:
    """Have a recorded run ask its players, and be on no tape yet."""
    run._session = Session()


def plays_a_turn(run: PlayedWorld) -> bool:
    """Return True while a turn of a run is played, here or by another task or thread."""
    return run._stepping


def calls_of_failed_turn(run: PlayedWorld) -> Sequence[CallRecord]:
    """Return the calls of the turn that failed last; they were paid for, and no turn has them."""
    if run._log is None:
        return ()
    return run._log.calls


def note_end(run: PlayedWorld, outcome: str) -> None:
    """Note on a run's tape how it ended, where it did not get as far as noting that itself."""
    run._session.end_run(outcome)
