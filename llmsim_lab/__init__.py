"""Simulations whose agents are language models, in a notebook, on your own machine.

Importing this package does nothing else: no network, no files, no logging set-up.
"""

from llmsim_lab.agents import NationAgent, TaylorRuleAgent
from llmsim_lab.economy import initial_state, load_us_macro
from llmsim_lab.lab import rate_figure
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, connect
from llmsim_lab.prompts import Prompt
from llmsim_lab.simulation import Simulation, SimulationConfig

__all__ = [
    "LLMClient",
    "LLMConfig",
    "NationAgent",
    "Prompt",
    "ScriptedBackend",
    "Simulation",
    "SimulationConfig",
    "TaylorRuleAgent",
    "connect",
    "initial_state",
    "load_us_macro",
    "rate_figure",
]
