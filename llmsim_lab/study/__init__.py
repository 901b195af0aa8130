"""Which model is fit for what: cards of what it can do, and runs beside players that are known."""

from llmsim_lab.study._demo import Demonstration
from llmsim_lab.study._fitness import fitness_card
from llmsim_lab.study._gate import economics_card

__all__ = ["Demonstration", "economics_card", "fitness_card"]
