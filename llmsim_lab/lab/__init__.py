"""What people look at in a notebook: widgets, and the score of a run with people in it.

``llmsim_lab.lab.figures`` has figures without a widget, ``llmsim_lab.lab.nested`` the patch that
lets a cell call ``asyncio.run``. Each name is imported when it is first used, so that importing
the package loads neither anywidget nor matplotlib.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmsim_lab import _util

if TYPE_CHECKING:
    from llmsim_lab.lab._assistant_chat import AssistantChat
    from llmsim_lab.lab._human_seat import HumanSeat, leaderboard
    from llmsim_lab.lab._lab import Lab
    from llmsim_lab.lab._presets import PromptViewer, RateChart, RunTree, TurnStepper
    from llmsim_lab.lab._prompt_comparer import PromptComparer
    from llmsim_lab.lab._study_board import StudyBoard

__all__ = [
    "AssistantChat",
    "HumanSeat",
    "Lab",
    "PromptComparer",
    "PromptViewer",
    "RateChart",
    "RunTree",
    "StudyBoard",
    "TurnStepper",
    "leaderboard",
]

__getattr__, __dir__ = _util.late_names(
    __name__,
    {
        "_assistant_chat": "AssistantChat",
        "_human_seat": "HumanSeat leaderboard",
        "_lab": "Lab",
        "_presets": "PromptViewer RateChart RunTree TurnStepper",
        "_prompt_comparer": "PromptComparer",
        "_study_board": "StudyBoard",
    },
)
