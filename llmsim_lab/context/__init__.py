"""What agents get to read, the world they act on, and the simulation that lets them act.

Code assembles each agent's prompt from the state, the events and what the others did; modules add
sections and rules. A model judges what the agents' actions lead to, and models play the agents.
"""

from llmsim_lab.context.briefing import Briefing
from llmsim_lab.context.budget import estimate_tokens
from llmsim_lab.context.builder import AgentContextBuilder
from llmsim_lab.context.composed import ComposedModules
from llmsim_lab.context.crisis import CrisisSimulation
from llmsim_lab.context.crisis_config import CrisisConfig
from llmsim_lab.context.crisis_engine import CrisisEngine, RuleCrisisEngine
from llmsim_lab.context.crisis_state import (
    CrisisAction,
    CrisisIntervention,
    CrisisState,
    CrisisTurn,
    Happening,
)
from llmsim_lab.context.engine_output import EngineOutput, engine_output_for, engine_output_schema
from llmsim_lab.context.game_engine import GameEngine, UpdateRecord
from llmsim_lab.context.loader import SHIPPED_MODULES, ModuleLoader
from llmsim_lab.context.modules import BehaviorModule
from llmsim_lab.context.players import LLMCrisisAgent, RuleCrisisAgent, ScriptedCrisisAgent
from llmsim_lab.context.reply import AgentReply, reply_model
from llmsim_lab.context.scenario import CrisisScenario
from llmsim_lab.context.simulator_agent import SimulatorAgent
from llmsim_lab.context.table import Variables
from llmsim_lab.context.updates import apply_deterministic_updates

__all__ = [
    "SHIPPED_MODULES",
    "AgentContextBuilder",
    "AgentReply",
    "BehaviorModule",
    "Briefing",
    "ComposedModules",
    "CrisisAction",
    "CrisisConfig",
    "CrisisEngine",
    "CrisisIntervention",
    "CrisisScenario",
    "CrisisSimulation",
    "CrisisState",
    "CrisisTurn",
    "EngineOutput",
    "GameEngine",
    "Happening",
    "LLMCrisisAgent",
    "ModuleLoader",
    "RuleCrisisAgent",
    "RuleCrisisEngine",
    "ScriptedCrisisAgent",
    "SimulatorAgent",
    "UpdateRecord",
    "Variables",
    "apply_deterministic_updates",
    "engine_output_for",
    "engine_output_schema",
    "estimate_tokens",
    "reply_model",
]
