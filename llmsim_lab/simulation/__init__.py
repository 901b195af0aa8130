"""The economic simulation: its configuration, its turns, its history as data frames."""

from llmsim_lab.runs import fork, load, replay, rerun, resume
from llmsim_lab.runs._run import run
from llmsim_lab.simulation.config import (
    EconomyConfig,
    NationConfig,
    SimulationConfig,
    ValidatorConfig,
)
from llmsim_lab.simulation.interventions import Intervention
from llmsim_lab.simulation.simulation import Simulation
from llmsim_lab.simulation.turn import Turn

__all__ = [
    "EconomyConfig",
    "Intervention",
    "NationConfig",
    "Simulation",
    "SimulationConfig",
    "Turn",
    "ValidatorConfig",
    "fork",
    "load",
    "replay",
    "rerun",
    "resume",
    "run",
]
