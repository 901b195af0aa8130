"""What charts of runs are made of: runs' values, what is drawn of them, drawing, export, faces."""

from __future__ import annotations

__all__: list[str] = []
