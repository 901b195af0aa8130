"""Where commands print, and how: tables of turns, files of results.

Text of a model or of a tape is untrusted: it has no markup and no terminal control codes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from llmsim_lab._util.config import yaml_text
from llmsim_lab._util.drawing import figure_bytes
from llmsim_lab._util.files import write_file
from llmsim_lab._util.tables import csv_text
from llmsim_lab._util.text import clip, few, number, printable
from llmsim_lab.economy import history
from llmsim_lab.errors import ConfigError
from llmsim_lab.run import Run
from llmsim_lab.run._registry import file_of, is_shipped
from llmsim_lab.run._turn import Series, Turn, told_of
from llmsim_lab.simulation import Simulation
from llmsim_lab.types import Status

if TYPE_CHECKING:
    import pandas as pd

console = Console()
errors = Console(stderr=True)

_MOST_COLUMNS = 4
_MOST_DECISIONS = 40
_LONGEST_DECISION = 240


def literal(text: object) -> Text:
    """Return a model's or a tape's text for a table: no markup, no terminal control codes."""
    return Text(printable(str(text)))


def say(text: object, *, style: str = "", to: Console = console) -> None:
    """Print text as it is, lines kept: no markup, no terminal control codes."""
    plain = printable(str(text), keep="\n\t")
    # Rich would also turn :names: into emoji, and break long lines, which are often paths to copy.
    to.print(plain, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)


def plain_table(*columns: str | Column) -> Table:
    """Return an empty table without lines.

    Args:
        columns: its columns, or the headings of those whose long texts go on several lines.
    """
    folded = (Column(it, overflow="fold") if isinstance(it, str) else it for it in columns)
    return Table(*folded, box=None, pad_edge=False, header_style="bold")


def right(title: str | Text, **more: Any) -> Column:
    """Return a column of numbers."""
    return Column(title, justify="right", **more)


def open_folder(path: Path) -> Path:
    """Make a folder for results.

    Raises:
        ConfigError: it cannot be made or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Written to now: a folder that cannot be would otherwise show only after a long run.
        probe = path / ".write-test"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"cannot write to the folder {path}: {error}; choose another --out"
        ) from error
    return path


def frame_table(frame: pd.DataFrame, series: Sequence[Series]) -> Table:
    """Return a table of a run's frame, a line a turn.

    Args:
        frame: the run's.
        series: the columns that can be charted; those with a short heading are shown, or the first
            few if none has one.
    """
    chosen = [item for item in series if item.short] or series[:_MOST_COLUMNS]
    figures = {item.column: item.short or item.label for item in chosen}
    if "period" in frame:
        figures = {"period": "quarter"} | figures
    table = plain_table(
        *(right(literal(name), min_width=5) for name in ("turn", *figures.values())),
        *("model decisions", "from outside"),
    )
    for row in frame.to_dict("records"):
        counts = [f"{row.get(name)} {name}" for name in get_args(Status) if row.get(name)]
        cells = [_figure(row.get(name)) for name in ("turn", *figures)]
        cells += [", ".join(counts), _figure(row.get("interventions"))]
        table.add_row(*map(literal, cells))
    return table


def _figure(value: object) -> str:
    # What a state does not have yet is not a number in the frame.
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _say_decisions(turns: Sequence[Turn]) -> None:
    """Print what was decided in some turns, and why."""
    said = []
    for turn in turns:
        for answer, became in told_of(turn):
            who = f"{turn.number} {answer.player or answer.component}"
            rejected = "REJECTED: " if became.get("accepted") is False else ""
            why = "; ".join(filter(None, (str(answer), answer.reasoning)))
            said.append(clip(f"{who}: {rejected}{why}", _LONGEST_DECISION))
    if said:
        say("What was decided in each turn, and why:", style="bold")
        for line in few(said, _MOST_DECISIONS):
            say(line)
        console.print()


def summary(turns: Sequence[Turn]) -> str:
    """Return one line on some turns: calls by status, tokens, seconds."""
    seconds = sum(turn.seconds for turn in turns)
    calls = sum(len(turn.calls) for turn in turns)
    statuses = sum((Counter(turn.statuses) for turn in turns), Counter())
    shares = ", ".join(f"{it} {count / statuses.total():.0%}" for it, count in statuses.items())
    if not calls:
        went_wrong = f" ({shares})" if shares else ""
        return f"no model was called{went_wrong}; {seconds:.1f} s"
    tokens = sum(turn.tokens for turn in turns)
    return f"{calls} model calls: {shares}; {tokens:,} tokens; {number(seconds)} s"


def report(simulation: Run, out: Path, *, taped: int | None = None, since: int = 0) -> None:
    """Print a run's table, decisions and summary; write its frames and configuration.

    An economic run's rates are charted.

    Args:
        simulation: the run.
        out: the folder for the files.
        taped: the last turn that comes from a tape, where some do.
        since: the first turn that is listed.
    """
    frame = simulation.to_frame()
    console.print(frame_table(frame[frame["turn"] >= since], simulation.series))
    console.print()
    _say_decisions([turn for turn in simulation.turns if turn.number > since])
    _print_summary(simulation, taped)
    paths = _write_tables(simulation, out)
    if isinstance(simulation, Simulation):
        paths.insert(0, _write_chart(simulation, out))
    say(f"Written: {', '.join(map(str, paths))}")


def _print_summary(simulation: Run, taped: int | None) -> None:
    if taped is None:
        console.print(summary(simulation.turns))
    else:
        recorded = [turn for turn in simulation.turns if turn.number <= taped]
        console.print(f"on the tape: {summary(recorded)}")
        if live := simulation.turns[len(recorded) :]:
            console.print(f"live: {summary(live)}")
    for at in sorted(at for at in simulation.planned if at > simulation.turn_number):
        for item in simulation.planned[at]:
            say(f"not reached: the intervention planned for {item}", style="yellow")


def _write_chart(simulation: Simulation, out: Path) -> Path:
    # Here, since it loads all worlds, a quarter of a second, and most commands draw nothing.
    from llmsim_lab.lab.figures import rate_figure

    name, first = simulation.config.name, simulation.turns[0].state.period
    figure = rate_figure(
        {name: simulation.to_frame()},
        history=history(first, len(simulation.turns)) if first else None,
        rule_of=name,
    )
    return write_file(out / "rates.png", figure_bytes(figure, "png", dpi=120))


def _write_tables(simulation: Run, out: Path) -> list[Path]:
    frames = {"turns": simulation.to_frame(), "decisions": simulation.decisions()}
    texts = {f"{name}.csv": csv_text(frame) for name, frame in frames.items()}
    # An economic run's file needs none; one's own world is named on the command line, not by data.
    unsaid = ":" in simulation.kind or simulation.kind == Simulation.kind
    kind = {} if unsaid else {"kind": simulation.kind}
    config = kind | simulation.config.model_dump(mode="json", by_alias=True)
    texts["config.yaml"] = yaml_text(config)
    return [write_file(out / name, text.encode()) for name, text in texts.items()]


def end(simulation: Run, wanted: int, failure: BaseException | None) -> None:
    """Raise what ended a run early, after saying how far it got."""
    if failure is not None:
        errors.print(
            f"The run ended early: {simulation.turn_number} of {wanted} turns were played and "
            "written.",
            style="red",
        )
        if simulation.tape is not None:
            at = f"{simulation.tape.path} --run {simulation.run_id}"
            cls = type(simulation)
            if not is_shipped(cls) and (file := file_of(cls)) is not None:
                at += f" --import {file}"
            say(f"'llmsim-lab resume {at}' continues it.", style="red", to=errors)
        raise failure
