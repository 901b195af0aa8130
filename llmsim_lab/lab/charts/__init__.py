"""Charts of runs: their values, what is drawn of them, the drawing, files and words."""

from __future__ import annotations

__all__: list[str] = []
