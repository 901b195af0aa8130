"""Agents: a language model, a person or a rule that proposes policy."""

from llmsim_lab.agents.agents import Agent, EconLLMAgent, LLMAgent, NationAgent, TaylorRuleAgent

__all__ = ["Agent", "EconLLMAgent", "LLMAgent", "NationAgent", "TaylorRuleAgent"]
