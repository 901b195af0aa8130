"""Ollama: its models, its protocol, and what goes wrong with it."""

from llmsim_lab.llm.ollama.backend import OllamaBackend
from llmsim_lab.llm.ollama.models import InstalledModel, OllamaProbe, probe
from llmsim_lab.llm.ollama.wire import parse_host

__all__ = ["InstalledModel", "OllamaBackend", "OllamaProbe", "parse_host", "probe"]
