"""Run the task server: ``python -m llmsim_lab.assistant.tasks``."""

from __future__ import annotations

from llmsim_lab.assistant.tasks.cli import main

__all__: list[str] = []

if __name__ == "__main__":  # pragma: no branch - nobody imports it
    raise SystemExit(main())
