"""From recorded runs to effects with intervals, and which model is fit for what."""

from llmsim_lab.study._ablation import Ablation
from llmsim_lab.study._comparison import Comparison
from llmsim_lab.study._fitness import fitness_card
from llmsim_lab.study._gate import economics_card

__all__ = ["Ablation", "Comparison", "economics_card", "fitness_card"]
