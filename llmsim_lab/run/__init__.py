"""Runs: a state, and a function that makes the next one by asking models; tape, replay, forks.

Derive a world of your own from ``Run[ItsState]``, its state from ``State``. The functions play a
recorded run of any class again, show it, or continue it; ``Run`` has them as methods too.
"""

from llmsim_lab.run._ask import Ask
from llmsim_lab.run.config import StateChange, WorldConfig
from llmsim_lab.run.memory import Memory, MemoryEntry
from llmsim_lab.run.question import Question
from llmsim_lab.run.recorded import Run, fork, load, replay, rerun, resume
from llmsim_lab.run.series import Series
from llmsim_lab.run.state import State
from llmsim_lab.run.turn import Answer, Turn

__all__ = [
    "Answer",
    "Ask",
    "Memory",
    "MemoryEntry",
    "Question",
    "Run",
    "Series",
    "State",
    "StateChange",
    "Turn",
    "WorldConfig",
    "fork",
    "load",
    "replay",
    "rerun",
    "resume",
]
