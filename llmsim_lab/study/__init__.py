"""Recorded runs to effects with intervals; which model is fit for what; what a shock does."""

from llmsim_lab.study._ablation import Ablation
from llmsim_lab.study._comparison import Comparison
from llmsim_lab.study._fitness import fitness_card
from llmsim_lab.study._gate import economics_card
from llmsim_lab.study._memory import memorisation
from llmsim_lab.study._response import impulse_response

__all__ = [
    "Ablation",
    "Comparison",
    "economics_card",
    "fitness_card",
    "impulse_response",
    "memorisation",
]
