"""Studies: many runs, or situations asked again, to one number; and which model is fit for what."""

from llmsim_lab.study._demo import Demonstration
from llmsim_lab.study._gate import economics_card
from llmsim_lab.study._multiverse import multiverse
from llmsim_lab.study._study import Comparison, Study

__all__ = ["Comparison", "Demonstration", "Study", "economics_card", "multiverse"]
