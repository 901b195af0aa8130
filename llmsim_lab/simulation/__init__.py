"""The economic simulation: its configuration, its turns, its history as data frames."""

from llmsim_lab.simulation._simulation import Simulation, SimulationConfig

__all__ = ["Simulation", "SimulationConfig"]
