"""Lessons that check themselves: answers, hand-ins, tournaments."""

from typing import TYPE_CHECKING

from llmsim_lab import _util

if TYPE_CHECKING:
    from llmsim_lab.lessons.answers import grade_answer
    from llmsim_lab.lessons.grading import grade
    from llmsim_lab.lessons.limits import ProcessLimits
    from llmsim_lab.lessons.notebooks import make_lesson
    from llmsim_lab.lessons.round_robin import Standings, tournament

__all__ = ["ProcessLimits", "Standings", "grade", "grade_answer", "make_lesson", "tournament"]

# A student's notebook needs grade_answer alone.
__getattr__, __dir__ = _util.late_names(
    __name__,
    {
        "answers": "grade_answer",
        "grading": "grade",
        "limits": "ProcessLimits",
        "notebooks": "make_lesson",
        "round_robin": "Standings tournament",
    },
)
