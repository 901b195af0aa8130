"""What every benchmark's command line does: measure, write JSON, show the main figures."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console, RenderableType

__all__ = ["command"]

PlanT = TypeVar("PlanT")


def command(
    arguments: Sequence[str] | None,
    *,
    doc: str | None,
    out: str,
    measure: Callable[[PlanT], dict[str, Any]],
    quick: PlanT,
    full: PlanT,
    table: Callable[[dict[str, Any]], RenderableType],
) -> None:
    """Measure, write the figures as JSON and show the main ones.

    Args:
        arguments: the command line's; those of this process if not given.
        doc: the benchmark's docstring, whose first line describes it.
        out: the name of the JSON file unless ``--out`` says another.
        measure: does it.
        quick: what ``--quick`` measures: does it work at all?
        full: what is measured else.
        table: makes of the figures what is shown.
    """
    parser = argparse.ArgumentParser(description=(doc or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=Path(out), help="the JSON file")
    parser.add_argument("--quick", action="store_true", help="tiny runs: does it work at all?")
    options = parser.parse_args(arguments)
    figures = measure(quick if options.quick else full)
    options.out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    console = Console()
    console.print(table(figures))
    console.print(f"All figures: {options.out}")
