"""The base of all simulations: turns, tape, replay, fork, resume, interventions, frames."""

from llmsim_lab.runs.base import Run
from llmsim_lab.runs.protocol import SimulationLike, TurnLike
from llmsim_lab.runs.registry import find_kind
from llmsim_lab.runs.series import Series
from llmsim_lab.runs.settings import ConfigLike, RunConfig, RunIntervention
from llmsim_lab.runs.turn import RunTurn, TurnBase, every_chain
from llmsim_lab.runs.verbs import AnyRun, fork, load, replay, rerun, resume, run

__all__ = [
    "AnyRun",
    "ConfigLike",
    "Run",
    "RunConfig",
    "RunIntervention",
    "RunTurn",
    "Series",
    "SimulationLike",
    "TurnBase",
    "TurnLike",
    "every_chain",
    "find_kind",
    "fork",
    "load",
    "replay",
    "rerun",
    "resume",
    "run",
]
