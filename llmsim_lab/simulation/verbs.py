"""What can be done with a recorded run: replay it, resume it, run it again, fork it.

The verbs of all simulations, see ``llmsim_lab.runs.verbs``, for those who know that their tape is
an economic one; a run of another kind comes as its own class here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, cast

from llmsim_lab.runs import verbs
from llmsim_lab.runs.verbs import AnyRun
from llmsim_lab.simulation.simulation import Simulation

__all__ = ["fork", "load", "replay", "rerun", "resume", "run"]

P = ParamSpec("P")


def _economic(verb: Callable[P, AnyRun]) -> Callable[P, Simulation]:
    """Return the very same verb; only a type checker sees a difference."""
    return cast("Callable[P, Simulation]", verb)


run = _economic(verbs.run)
replay = _economic(verbs.replay)
load = _economic(verbs.load)
resume = _economic(verbs.resume)
rerun = _economic(verbs.rerun)
fork = _economic(verbs.fork)
