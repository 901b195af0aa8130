"""What people look at in a notebook: widgets, and the score of a run with people in it.

``llmsim_lab.lab.figures`` has figures without a widget, ``llmsim_lab.lab.nested`` the patch that
lets a cell call ``asyncio.run``. Each name is imported when it is first used, so that importing
the package loads neither ipywidgets nor matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmsim_lab.lab._assistant_chat import AssistantChat
    from llmsim_lab.lab._context_xray import ContextXRay
    from llmsim_lab.lab._human_seat import HumanSeat
    from llmsim_lab.lab._inspector import ReasoningInspector
    from llmsim_lab.lab._lab import Lab
    from llmsim_lab.lab._prompt_comparer import PromptComparer
    from llmsim_lab.lab._prompt_viewer import PromptViewer
    from llmsim_lab.lab._rate_chart import RateChart
    from llmsim_lab.lab._run_tree import RunTree
    from llmsim_lab.lab._scores import leaderboard
    from llmsim_lab.lab._social import AgentStory, SocialBoard
    from llmsim_lab.lab._stepper import TurnStepper
    from llmsim_lab.lab._study_board import StudyBoard

__all__ = [
    "AgentStory",
    "AssistantChat",
    "ContextXRay",
    "HumanSeat",
    "Lab",
    "PromptComparer",
    "PromptViewer",
    "RateChart",
    "ReasoningInspector",
    "RunTree",
    "SocialBoard",
    "StudyBoard",
    "TurnStepper",
    "leaderboard",
]

_HOME = {
    "AgentStory": "_social",
    "AssistantChat": "_assistant_chat",
    "ContextXRay": "_context_xray",
    "HumanSeat": "_human_seat",
    "Lab": "_lab",
    "PromptComparer": "_prompt_comparer",
    "PromptViewer": "_prompt_viewer",
    "RateChart": "_rate_chart",
    "ReasoningInspector": "_inspector",
    "RunTree": "_run_tree",
    "SocialBoard": "_social",
    "StudyBoard": "_study_board",
    "TurnStepper": "_stepper",
    "leaderboard": "_scores",
}
"""The module that each name lives in."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
