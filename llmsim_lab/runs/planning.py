"""Whether what is planned from outside will be reached, and saying so where it will not."""

from __future__ import annotations

import logging

from llmsim_lab.logs import log_event
from llmsim_lab.runs.settings import RunIntervention

__all__ = ["last_turn", "say_if_unreached"]

logger = logging.getLogger(__name__)


def last_turn(*, first: int, now: int, turns: int) -> int | None:
    """Return the turn that a run goes to by itself, or None where it is stepped by hand.

    Args:
        first: the number of the turn it began from.
        now: its latest turn.
        turns: the configuration's; 0 sets no end.
    """
    if not turns:
        return None
    # Who plays beyond the configuration's turns plays as many again, as ``run()`` does.
    return first + turns if now < first + turns else now + turns


def say_if_unreached(intervention: RunIntervention, *, run: str, last: int | None) -> None:
    """Log a WARNING where an intervention stands after the last turn, so that it never happens.

    It is not refused: a run may be played on beyond its configuration's turns.

    Args:
        intervention: what was planned.
        run: the run's name.
        last: the last turn, if there is one.
    """
    if last is None or intervention.turn <= last:
        return
    log_event(
        logger,
        logging.WARNING,
        "INTERVENTION_AFTER_LAST_TURN",
        run=run,
        planned=intervention,
        last_turn=last,
        way_out=f"it never happens unless the run goes on beyond turn {last}: name a turn up to "
        f"{last}, raise the configuration's turns, or play on with run(...) or step()",
    )
