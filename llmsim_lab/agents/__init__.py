"""Agents: who proposes what, by a language model, a person or a rule."""

from llmsim_lab.agents.base import Agent
from llmsim_lab.agents.econ import EconLLMAgent, NationAgent, NationProfile
from llmsim_lab.agents.human import HumanAgent, RateDecision
from llmsim_lab.agents.llm_agent import LLMAgent
from llmsim_lab.agents.taylor import TaylorRuleAgent

__all__ = [
    "Agent",
    "EconLLMAgent",
    "HumanAgent",
    "LLMAgent",
    "NationAgent",
    "NationProfile",
    "RateDecision",
    "TaylorRuleAgent",
]
