"""The social simulation: a statechart fixes the legal moves, a reasoner chooses among them.

``SocialSimulation`` is a world with parameters, given by keyword or in a YAML file; the run's
methods return frames and cascades. The other names are the reasoner's and the chart's, for use
without a run.
"""

from llmsim_lab.statechart._agent import Post, SocialAgent
from llmsim_lab.statechart._chart import STATE_DESCRIPTIONS, AgentState, Statechart, Transition
from llmsim_lab.statechart._simulation import SocialSimulation
from llmsim_lab.statechart.reasoner import Reasoner, build_reasoner_prompt, parse_reasoner_response

__all__ = [
    "STATE_DESCRIPTIONS",
    "AgentState",
    "Post",
    "Reasoner",
    "SocialAgent",
    "SocialSimulation",
    "Statechart",
    "Transition",
    "build_reasoner_prompt",
    "parse_reasoner_response",
]
