"""Engines: they apply accepted actions to the world."""

from llmsim_lab.engines.engines import EconLLMEngine, EconomicEngine, Engine, LLMEngine

__all__ = ["EconLLMEngine", "EconomicEngine", "Engine", "LLMEngine"]
