"""Studies: many runs, or situations asked again, to one number with an interval."""

from llmsim_lab.study._exact import Exact, ExactPlan, exact
from llmsim_lab.study._multiverse import multiverse
from llmsim_lab.study._people import PeopleComparison, compare_with_people
from llmsim_lab.study._study import Comparison, Study

__all__ = [
    "Comparison",
    "Exact",
    "ExactPlan",
    "PeopleComparison",
    "Study",
    "compare_with_people",
    "exact",
    "multiverse",
]
