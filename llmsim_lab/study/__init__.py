"""Studies: many runs arranged so that one number comes out; and which model is fit for what."""

from llmsim_lab.study._checklist import checklist
from llmsim_lab.study._fitness import fitness_card
from llmsim_lab.study._gate import economics_card
from llmsim_lab.study._study import Study

__all__ = ["Study", "checklist", "economics_card", "fitness_card"]
