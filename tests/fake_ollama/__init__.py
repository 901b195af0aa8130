"""A fake Ollama on loopback."""

from fake_ollama._fake_ollama import FakeModel, FakeOllama, Fault
from fake_ollama._throttle import Throttle

__all__ = ["FakeModel", "FakeOllama", "Fault", "Throttle"]
