"""What programs and servers of tools tell each other beside arguments and results, in MCP's meta.

Other programs and servers need not know these keys: they pass over what they do not know.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["ERROR_KEY", "USER_KEY", "ErrorCode"]

USER_KEY = "llmsim-lab/user_id"
"""In a request: whom it is made for. Models write arguments, never metadata."""

ERROR_KEY = "llmsim-lab/error_code"
"""In a failed call's result: what kind of failure it is, an ``ErrorCode``."""

ErrorCode = Literal["INVALID_PARAMETERS", "NOT_FOUND", "TOOL_ERROR"]
"""Wrong arguments; something that they name is not there; anything else that the tool says."""
