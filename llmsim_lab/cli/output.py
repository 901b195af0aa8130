"""What commands have in common: consoles, tables of turns, and files of results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from llmsim_lab.errors import ConfigError
from llmsim_lab.simulation import Simulation, Turn
from llmsim_lab.text import clip, number

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["console", "errors", "open_folder", "summary", "turns_table", "write_results"]

console = Console()
errors = Console(stderr=True)

_STATUS_STYLES = {"ok": "green", "repaired": "yellow", "fallback": "yellow", "failed": "red"}


def open_folder(path: Path) -> Path:
    """Make a folder for results.

    Raises:
        ConfigError: it cannot be made or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".write-test"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"cannot write to the folder {path}: {error}; choose another --out"
        ) from (error)
    return path


def turns_table(simulation: Simulation) -> Table:
    """Return a table of what was proposed each turn, why, and where it led."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("quarter" if simulation.state.period else "turn", no_wrap=True)
    for heading in ("rate", "Taylor", "inflation", "unempl."):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("who", no_wrap=True)
    table.add_column("what it proposed, and why", overflow="ellipsis", no_wrap=True, ratio=1)
    asked = simulation.to_frame()["taylor_rate"]
    for turn, taylor in zip(simulation.turns, asked, strict=True):
        _add_turn(table, turn, float(taylor))
    return table


def _add_turn(table: Table, turn: Turn, taylor: float) -> None:
    economy = turn.state.global_state
    figures = (
        turn.state.period or str(turn.number),
        f"{economy.interest_rate:.2f}",
        f"{taylor:.2f}",
        f"{economy.inflation:.1f}",
        f"{economy.unemployment:.1f}",
    )
    if not turn.actions:
        table.add_row(*figures, "", "(the data the run starts from)", style="dim")
    for action in turn.actions:
        verdict = "" if action.validated else "REJECTED: "
        why = action.policy_decision.reasoning if action.policy_decision else ""
        said = f"{verdict}{clip(action.action_string, 70)}: {clip(why, 160)}"
        style = "" if action.validated else "red"
        table.add_row(*figures, _escape(clip(action.agent_name, 16)), _escape(said), style=style)
        figures = ("",) * len(figures)


def _escape(text: str) -> str:
    """Keep a model's text from being read as markup or as terminal control codes."""
    return "".join(c for c in text if c.isprintable()).replace("[", "\\[")


def summary(simulation: Simulation) -> str:
    """Return one line: calls by status, tokens, seconds."""
    frame = simulation.to_frame()
    calls = int(frame["calls"].sum())
    seconds = frame["seconds"].sum()
    if not calls:
        return f"no model was called; {seconds:.1f} s"
    shares = ", ".join(
        f"[{_STATUS_STYLES[status]}]{status} {share:.0%}[/]"
        for status, share in simulation.statuses.items()
    )
    tokens = int(frame["tokens"].sum())
    return f"{calls} model calls: {shares}; {tokens:,} tokens; {number(seconds)} s"


def write_results(
    simulation: Simulation, out: Path, extra: Mapping[str, pd.DataFrame]
) -> list[Path]:
    """Write a run's frames and configuration; returns the files' paths."""
    import yaml

    frames = {"turns": simulation.to_frame(), "decisions": simulation.chains_frame(), **extra}
    paths = []
    for name, frame in frames.items():
        path = out / f"{name}.csv"
        frame.to_csv(path, index=False)
        paths.append(path)
    path = out / "config.yaml"
    config = simulation.config.model_dump(mode="json", by_alias=True)
    path.write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return [*paths, path]
