"""Which model is fit for what, what a shock does to a run, and whether history was recalled."""

from llmsim_lab.study._fitness import fitness_card
from llmsim_lab.study._gate import economics_card
from llmsim_lab.study._memory import memorisation
from llmsim_lab.study._response import impulse_response

__all__ = ["economics_card", "fitness_card", "impulse_response", "memorisation"]
