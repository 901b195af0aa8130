"""The base of all simulations: turns, tape, replay, fork, resume, interventions, frames."""

from llmsim_lab.runs.ask import Ask, Question
from llmsim_lab.runs.base import Run
from llmsim_lab.runs.registry import find_kind
from llmsim_lab.runs.series import Series
from llmsim_lab.runs.settings import (
    RunConfig,
    RunIntervention,
    StateChange,
    WorldConfig,
)
from llmsim_lab.runs.state import State
from llmsim_lab.runs.turn import RunTurn, WorldTurn, every_chain
from llmsim_lab.runs.verbs import fork, load, replay, rerun, resume, run

__all__ = [
    "Ask",
    "Question",
    "Run",
    "RunConfig",
    "RunIntervention",
    "RunTurn",
    "Series",
    "State",
    "StateChange",
    "WorldConfig",
    "WorldTurn",
    "every_chain",
    "find_kind",
    "fork",
    "load",
    "replay",
    "rerun",
    "resume",
    "run",
]
