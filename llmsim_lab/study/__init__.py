"""Which model is fit for what: a card of measured shares, speeds and habits."""

from llmsim_lab.study._fitness import FitnessCard, fitness_card

__all__ = ["FitnessCard", "fitness_card"]
