"""What people look at in a notebook: charts and widgets.

Each loads when it is first asked for, so that importing the package loads neither ipywidgets nor
matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmsim_lab.lab.agent_story import AgentStory
    from llmsim_lab.lab.assistant_chat import AssistantChat
    from llmsim_lab.lab.context_xray import ContextXRay
    from llmsim_lab.lab.figures import rate_figure
    from llmsim_lab.lab.human_seat import HumanSeat
    from llmsim_lab.lab.inspector import ReasoningInspector
    from llmsim_lab.lab.nested import enable_nested_asyncio
    from llmsim_lab.lab.prompt_comparer import PromptComparer
    from llmsim_lab.lab.prompt_viewer import PromptViewer
    from llmsim_lab.lab.rate_chart import RateChart
    from llmsim_lab.lab.run_tree import RunTree
    from llmsim_lab.lab.scores import Leaderboard, leaderboard
    from llmsim_lab.lab.social_board import SocialBoard
    from llmsim_lab.lab.social_figures import cascade_figure, state_figure, transition_figure
    from llmsim_lab.lab.stepper import TurnStepper

__all__ = [
    "AgentStory",
    "AssistantChat",
    "ContextXRay",
    "HumanSeat",
    "Leaderboard",
    "PromptComparer",
    "PromptViewer",
    "RateChart",
    "ReasoningInspector",
    "RunTree",
    "SocialBoard",
    "TurnStepper",
    "cascade_figure",
    "enable_nested_asyncio",
    "leaderboard",
    "rate_figure",
    "state_figure",
    "transition_figure",
]

_HOME = {
    "AgentStory": "agent_story",
    "AssistantChat": "assistant_chat",
    "ContextXRay": "context_xray",
    "HumanSeat": "human_seat",
    "Leaderboard": "scores",
    "PromptComparer": "prompt_comparer",
    "PromptViewer": "prompt_viewer",
    "RateChart": "rate_chart",
    "ReasoningInspector": "inspector",
    "RunTree": "run_tree",
    "SocialBoard": "social_board",
    "TurnStepper": "stepper",
    "cascade_figure": "social_figures",
    "enable_nested_asyncio": "nested",
    "leaderboard": "scores",
    "rate_figure": "figures",
    "state_figure": "social_figures",
    "transition_figure": "social_figures",
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
