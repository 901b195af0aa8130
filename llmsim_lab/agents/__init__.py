"""Agents: a language model, a person or a rule that proposes policy."""

from llmsim_lab.agents._agents import (
    Agent,
    EconLLMAgent,
    LLMAgent,
    NationAgent,
    TaylorRuleAgent,
)
from llmsim_lab.agents._human import HumanAgent

__all__ = [
    "Agent",
    "EconLLMAgent",
    "HumanAgent",
    "LLMAgent",
    "NationAgent",
    "TaylorRuleAgent",
]
