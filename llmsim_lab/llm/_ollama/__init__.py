"""Ollama: the backend, the protocol on the wire, and what its errors mean."""
