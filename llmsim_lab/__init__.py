"""Simulations whose agents are language models, in a notebook, on your own machine.

Importing this package does nothing else: no network, no files, no logging set-up. Its names are
imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmsim_lab import _util

if TYPE_CHECKING:
    from llmsim_lab._util.files import data_path
    from llmsim_lab.agents import NationAgent, TaylorRuleAgent
    from llmsim_lab.economy import initial_state, load_us_macro
    from llmsim_lab.lab.figures import rate_figure
    from llmsim_lab.llm import Budget, LLMClient, LLMConfig, Person, ScriptedBackend, Tape, connect
    from llmsim_lab.prompts import Prompt
    from llmsim_lab.run import Ask, Question, Run, State, fork, load, replay, rerun, resume
    from llmsim_lab.simulation import Simulation, SimulationConfig
    from llmsim_lab.types import Reply

__all__ = [
    "Ask",
    "Budget",
    "LLMClient",
    "LLMConfig",
    "NationAgent",
    "Person",
    "Prompt",
    "Question",
    "Reply",
    "Run",
    "ScriptedBackend",
    "Simulation",
    "SimulationConfig",
    "State",
    "Tape",
    "TaylorRuleAgent",
    "connect",
    "data_path",
    "fork",
    "initial_state",
    "load",
    "load_us_macro",
    "rate_figure",
    "replay",
    "rerun",
    "resume",
]

__getattr__, __dir__ = _util.late_names(
    __name__,
    {
        "_util.files": "data_path",
        "agents": "NationAgent TaylorRuleAgent",
        "economy": "initial_state load_us_macro",
        "lab.figures": "rate_figure",
        "llm": "Budget LLMClient LLMConfig Person ScriptedBackend Tape connect",
        "prompts": "Prompt",
        "run": "Ask Question Run State fork load replay rerun resume",
        "simulation": "Simulation SimulationConfig",
        "types": "Reply",
    },
)
