"""Engines: what accepted actions do to the world."""

from llmsim_lab.engines.base import Engine
from llmsim_lab.engines.econ import EconLLMEngine, EconomicEngine
from llmsim_lab.engines.llm_engine import EngineConfig, LLMEngine

__all__ = ["EconLLMEngine", "EconomicEngine", "Engine", "EngineConfig", "LLMEngine"]
