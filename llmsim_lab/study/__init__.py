"""Studies: many runs, or situations asked again, to one number with an interval."""

from typing import TYPE_CHECKING

from llmsim_lab import _util
from llmsim_lab.study._exact import Exact, ExactPlan, exact
from llmsim_lab.study._multiverse import multiverse
from llmsim_lab.study._study import Comparison, Study

if TYPE_CHECKING:
    from llmsim_lab.study._people import PeopleComparison, compare_with_people

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

# The command line is started where numpy is not installed yet.
__getattr__, __dir__ = _util.late_names(
    __name__,
    {"_people": "PeopleComparison compare_with_people"},
)
