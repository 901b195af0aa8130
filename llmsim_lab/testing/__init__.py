"""For tests of your own agents: scripted replies, and a fake Ollama on loopback."""

from llmsim_lab.llm._scripted import ScriptedBackend
from llmsim_lab.testing._fake_ollama import FakeModel, FakeOllama, Fault

__all__ = ["FakeModel", "FakeOllama", "Fault", "ScriptedBackend"]
