"""The economic simulation: its turns, its gate for models, its demonstration."""

from llmsim_lab.simulation._card import economics_card
from llmsim_lab.simulation.demonstration import Demonstration
from llmsim_lab.simulation.world import Simulation, SimulationConfig

__all__ = ["Demonstration", "Simulation", "SimulationConfig", "economics_card"]
