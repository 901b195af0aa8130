"""A fake Ollama on loopback."""

from fake_ollama._fake_ollama import FakeModel, FakeOllama, Fault

__all__ = ["FakeModel", "FakeOllama", "Fault"]
