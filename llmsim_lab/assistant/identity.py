"""How a program tells a server of tools whom a request is made for."""

from __future__ import annotations

__all__ = ["USER_KEY"]

USER_KEY = "llmsim-lab/user_id"
"""The key in an MCP request's metadata. Models write arguments, never metadata."""
