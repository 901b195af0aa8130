"""Settings of a run that other modules make: a study, a gate, a chart of alternatives.

Attributes without ``_`` belong to a world's author, so the package's own begin with one. Other
modules set those through these functions only.
"""

from __future__ import annotations

from collections.abc import Sequence

from llmsim_lab.llm.scope import Purse
from llmsim_lab.run._run_prompts import Edits
from llmsim_lab.run.playing import PlayedWorld
from llmsim_lab.run.session import Session
from llmsim_lab.types import CallRecord


def leave_out_warnings(run: PlayedWorld, *, left_out: bool = True) -> None:
    """Stop a run's warnings, if an earlier run has logged the same ones."""
    run._warnings.are_left_out = left_out


def pay_from(run: PlayedWorld, purse: Purse | None) -> None:
    """Pay for a run's calls from a purse that other runs share; None for no limit."""
    run._purse = purse


def edit_prompts(run: PlayedWorld, edits: Edits) -> None:
    """Edit each prompt of a run when it is first asked."""
    run._prompts.edit = edits


def edits_of(run: PlayedWorld) -> Edits | None:
    """Return the edits of ``edit_prompts``; None if the run's prompts are not edited."""
    return run._prompts.edit


def ask_anew(run: PlayedWorld) -> None:
    """Make a recorded run ask its players, and take it off its tape."""
    run._session = Session()


def plays_a_turn(run: PlayedWorld) -> bool:
    """Return True while a turn of the run is played, here or by another task or thread."""
    return run._stepping


def calls_of_failed_turn(run: PlayedWorld) -> Sequence[CallRecord]:
    """Return the calls of the latest failed turn: they were paid for, but are in no turn."""
    if run._log is None:
        return ()
    return run._log.calls


def note_end(run: PlayedWorld, outcome: str) -> None:
    """Note on a run's tape how the run ended, if the run did not get as far itself."""
    run._session.end_run(outcome)
