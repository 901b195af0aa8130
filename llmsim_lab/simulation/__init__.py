"""The economic simulation: its configuration, its turns, its history as data frames."""

from llmsim_lab.simulation._config import Intervention, SimulationConfig
from llmsim_lab.simulation._counterfactual import with_seats
from llmsim_lab.simulation._simulation import Simulation, Turn

__all__ = ["Intervention", "Simulation", "SimulationConfig", "Turn", "with_seats"]
