"""What people look at in a notebook: charts and widgets.

Each loads when it is first asked for, so that importing the package loads neither ipywidgets nor
matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmsim_lab.lab.figures import rate_figure
    from llmsim_lab.lab.human_seat import HumanSeat
    from llmsim_lab.lab.inspector import ReasoningInspector
    from llmsim_lab.lab.prompt_comparer import PromptComparer
    from llmsim_lab.lab.prompt_viewer import PromptViewer
    from llmsim_lab.lab.rate_chart import RateChart
    from llmsim_lab.lab.run_tree import RunTree
    from llmsim_lab.lab.scores import Leaderboard, leaderboard
    from llmsim_lab.lab.stepper import TurnStepper

__all__ = [
    "HumanSeat",
    "Leaderboard",
    "PromptComparer",
    "PromptViewer",
    "RateChart",
    "ReasoningInspector",
    "RunTree",
    "TurnStepper",
    "leaderboard",
    "rate_figure",
]

_HOME = {
    "HumanSeat": "human_seat",
    "Leaderboard": "scores",
    "PromptComparer": "prompt_comparer",
    "PromptViewer": "prompt_viewer",
    "RateChart": "rate_chart",
    "ReasoningInspector": "inspector",
    "RunTree": "run_tree",
    "TurnStepper": "stepper",
    "leaderboard": "scores",
    "rate_figure": "figures",
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
