"""Runs: a state, and a function that makes the next one by asking models; tape, replay, forks.

Derive a world of your own from ``Run[ItsState]``, its state from ``State``. The functions play a
recorded run of any class again, show it, or continue it; ``Run`` has them as methods too. A class
with a constructor of its own may derive its configuration from ``RunConfig``, and its turns from
``RunTurn``.
"""

from llmsim_lab.run._ask import Ask, Question
from llmsim_lab.run._config import RunConfig
from llmsim_lab.run._run import Run, fork, load, replay, rerun, resume
from llmsim_lab.run._state import State
from llmsim_lab.run._turn import RunTurn

__all__ = [
    "Ask",
    "Question",
    "Run",
    "RunConfig",
    "RunTurn",
    "State",
    "fork",
    "load",
    "replay",
    "rerun",
    "resume",
]
