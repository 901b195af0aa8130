"""The social simulation: a statechart fixes the legal moves, a reasoner chooses among them."""

from llmsim_lab.statechart.agent import (
    SocialAgent,
    StateTransition,
    agents_in_state,
    state_distribution,
)
from llmsim_lab.statechart.analysis import (
    agent_frame,
    moves_frame,
    post_frame,
    state_frame,
    transition_matrix,
)
from llmsim_lab.statechart.cascades import Cascade, cascade_frame, cascade_of, cascades
from llmsim_lab.statechart.chart import Statechart, Transition
from llmsim_lab.statechart.chart_file import ChartTable, load_chart
from llmsim_lab.statechart.choices import Choice, Chooser, Question
from llmsim_lab.statechart.config import (
    FeedConfig,
    ReasonerConfig,
    SocialConfig,
    SocialIntervention,
    WriterConfig,
)
from llmsim_lab.statechart.guards import register_guard
from llmsim_lab.statechart.population import population, seed_posts
from llmsim_lab.statechart.position import (
    PositionBias,
    ask_rotated,
    position_bias,
    rotations,
)
from llmsim_lab.statechart.posts import Post
from llmsim_lab.statechart.profiles import PostConfig, ProfileConfig
from llmsim_lab.statechart.reasoner import Reasoner
from llmsim_lab.statechart.reasoner_prompt import build_reasoner_prompt, parse_reasoner_response
from llmsim_lab.statechart.rules import RuleReasoner
from llmsim_lab.statechart.simulation import SocialSimulation
from llmsim_lab.statechart.state import SocialState, SocialTurn
from llmsim_lab.statechart.states import STATE_DESCRIPTIONS, AgentState

__all__ = [
    "STATE_DESCRIPTIONS",
    "AgentState",
    "Cascade",
    "ChartTable",
    "Choice",
    "Chooser",
    "FeedConfig",
    "PositionBias",
    "Post",
    "PostConfig",
    "ProfileConfig",
    "Question",
    "Reasoner",
    "ReasonerConfig",
    "RuleReasoner",
    "SocialAgent",
    "SocialConfig",
    "SocialIntervention",
    "SocialSimulation",
    "SocialState",
    "SocialTurn",
    "StateTransition",
    "Statechart",
    "Transition",
    "WriterConfig",
    "agent_frame",
    "agents_in_state",
    "ask_rotated",
    "build_reasoner_prompt",
    "cascade_frame",
    "cascade_of",
    "cascades",
    "load_chart",
    "moves_frame",
    "parse_reasoner_response",
    "population",
    "position_bias",
    "post_frame",
    "register_guard",
    "rotations",
    "seed_posts",
    "state_distribution",
    "state_frame",
    "transition_matrix",
]
