"""The crisis world: what agents read, the world that they act on, and the simulation.

Code builds each agent's prompt from the state, the events and what the others did; modules add
sections and rules. A model judges what the agents' actions lead to, and models play the agents.
"""

from llmsim_lab.context._builder import AgentContextBuilder
from llmsim_lab.context._crisis import CrisisSimulation
from llmsim_lab.context._engine import EngineOutput, SimulatorAgent
from llmsim_lab.context._modules import BehaviorModule, ComposedModules, ModuleLoader
from llmsim_lab.context._world import GameEngine, apply_deterministic_updates

__all__ = [
    "AgentContextBuilder",
    "BehaviorModule",
    "ComposedModules",
    "CrisisSimulation",
    "EngineOutput",
    "GameEngine",
    "ModuleLoader",
    "SimulatorAgent",
    "apply_deterministic_updates",
]
