"""Where commands print, and how: tables of turns, files of results.

Text of a model or of a tape is untrusted: it has no markup and no terminal control codes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from llmsim_lab._util.config import yaml_text
from llmsim_lab._util.files import write_file
from llmsim_lab._util.tables import csv_text
from llmsim_lab._util.text import clip, number, printable
from llmsim_lab.agents._agents import change_in_words
from llmsim_lab.economy import history
from llmsim_lab.errors import ConfigError
from llmsim_lab.run import Run
from llmsim_lab.run._registry import file_of
from llmsim_lab.run._turn import RunTurn, Series
from llmsim_lab.simulation import Simulation

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

console = Console()
errors = Console(stderr=True)

_STATUS_STYLES = {"ok": "green", "repaired": "yellow", "fallback": "yellow", "failed": "red"}
_MOST_COLUMNS = 4
_LONGEST_NAME = 16
"""Characters of a line; longer names go on with the next."""


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


def heading(series: Series) -> str:
    """Return a column's name in the middle of a line."""
    return series.label[:1].lower() + series.label[1:]


def frame_table(frame: pd.DataFrame, series: Sequence[Series]) -> Table:
    """Return a table of a run's frame, a line a turn.

    Args:
        frame: the run's.
        series: the columns that can be charted; those with a short heading are shown, or the first
            few if none has one.
    """
    chosen = [item for item in series if item.short] or series[:_MOST_COLUMNS]
    figures = {item.column: item.short or heading(item) for item in chosen}
    if "period" in frame:
        figures = {"period": "quarter"} | figures
    has_actions = {"accepted", "actions"} <= set(frame)
    table = plain_table(
        *(right(literal(name), min_width=5) for name in ("turn", *figures.values())),
        *(["accepted"] if has_actions else []),
        *("model decisions", "from outside"),
    )
    for row in frame.to_dict("records"):
        counts = [f"{row.get(name)} {name}" for name in _STATUS_STYLES if row.get(name)]
        cells = [_figure(row.get(name)) for name in ("turn", *figures)]
        if has_actions:
            counted = [_figure(row[name]).removesuffix(".00") for name in ("accepted", "actions")]
            cells.append(" of ".join(filter(None, counted)))
        cells += [", ".join(counts), _figure(row.get("interventions"))]
        table.add_row(*map(literal, cells))
    return table


def _figure(value: object) -> str:
    # What a state does not have yet is not a number in the frame.
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def turns_table(simulation: Simulation, *, taped: int | None, since: int) -> Table:
    """Return a table of what was proposed each turn, why, and where it led.

    Args:
        simulation: the run.
        taped: the last turn that comes from a tape; a column then says which do and which are live.
        since: the first turn that is listed.
    """
    # A move is short, and has a column of its own, so that the words beside it cannot hide it.
    moves = simulation.config.moves_bp is not None
    words = "in words" if moves else "what it proposed, and why"
    # One player's name would only take room from its words.
    several = len(simulation.nations) > 1
    table = plain_table(
        Column("quarter" if simulation.state.period else "turn", min_width=6),
        *(right(title, min_width=6) for title in ("rate", "Taylor", "infl.", "unem.")),
        *([Column("who", overflow="fold", max_width=_LONGEST_NAME)] if several else []),
        *([right("move, bp", min_width=8)] if moves else []),
        *([] if taped is None else [Column("from", min_width=4)]),
        Column(words, overflow="ellipsis", no_wrap=True, ratio=1),
    )
    table.expand = True
    for turn, taylor in zip(simulation.turns, simulation.to_frame()["taylor_rate"], strict=True):
        if turn.number < since:
            continue
        economy = turn.state.global_state
        source = () if taped is None else ("tape" if turn.number <= taped else "live",)
        figures: tuple[str, ...] = (
            turn.state.period or str(turn.number),
            f"{economy.interest_rate:.2f}",
            f"{taylor:.2f}",
            f"{economy.inflation:.1f}",
            f"{economy.unemployment:.1f}",
        )
        proposals = [answer for answer in turn.answers if answer.component == "agent"]
        if not proposals:
            blank = ("",) * (several + moves)
            table.add_row(*figures, *blank, *source, "(the start)", style="dim")
        for answer in proposals:
            accepted = turn.became.get(answer.player, {}).get("accepted")
            change = answer.fields.get("rate_change_bp")
            what = clip(answer.fields.get("action", ""), 60)
            if (
                moves
                and answer.reasoning
                and change is not None
                and what == change_in_words(change)
            ):
                what = ""  # the column beside it says that
            said = ": ".join(filter(None, (what, clip(answer.reasoning, 200))))
            proposal = literal(f"{'' if accepted else 'REJECTED: '}{said}")
            style = "" if accepted else "red"
            who = (literal(answer.player),) if several else ()
            size = f"{change:+d}" if change else "" if change is None else "0"
            move = (size,) if moves else ()
            table.add_row(*figures, *who, *move, *source, proposal, style=style)
            figures = ("",) * len(figures)  # once a turn, at its first proposal
    return table


def summary(turns: Sequence[RunTurn]) -> str:
    """Return one line on some turns: calls by status, tokens, seconds."""
    seconds = sum(turn.seconds for turn in turns)
    calls = sum(len(turn.calls) for turn in turns)
    statuses = sum((Counter(turn.statuses) for turn in turns), Counter())
    shares = ", ".join(
        f"[{_STATUS_STYLES[status]}]{status} {count / statuses.total():.0%}[/]"
        for status, count in statuses.items()
    )
    if not calls:
        went_wrong = f" ({shares})" if shares else ""
        return f"no model was called{went_wrong}; {seconds:.1f} s"
    tokens = sum(turn.tokens for turn in turns)
    return f"{calls} model calls: {shares}; {tokens:,} tokens; {number(seconds)} s"


def report(
    simulation: Run,
    out: Path,
    *,
    shadow: Simulation | None = None,
    taped: int | None = None,
    since: int = 0,
) -> None:
    """Print a run's table and summary; write its frames and configuration.

    An economic run's table has the actions as well, and its rates are charted.

    Args:
        simulation: the run.
        out: the folder for the files.
        shadow: another run of the same economy, to chart beside it.
        taped: the last turn that comes from a tape, where some do.
        since: the first turn of an economic run's table.
    """
    economic = simulation if isinstance(simulation, Simulation) else None
    if economic is not None:
        console.print(turns_table(economic, taped=taped, since=since))
        console.print()
        console.print(
            "'Taylor' is what the rule (Taylor 1993) asks for on that row's data; a proposal sets "
            "the rate of its own row, on the data of the row before.",
            style="dim",
        )
    else:
        console.print(frame_table(simulation.to_frame(), simulation.series))
        console.print()
    _print_summary(simulation, taped)
    paths = _write_tables(simulation, shadow, out)
    if economic is not None:
        paths.insert(0, _write_chart(economic, shadow, out))
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


def _write_chart(simulation: Simulation, shadow: Simulation | None, out: Path) -> Path:
    # Here, since it loads all worlds, a quarter of a second, and most commands draw nothing.
    from llmsim_lab.lab.figures import rate_figure

    name = _chart_name(simulation)
    frames = {name: simulation.to_frame()}
    if shadow is not None:
        frames[_chart_name(shadow)] = shadow.to_frame()
    first = simulation.turns[0].state.period
    figure = rate_figure(
        frames,
        history=history(first, len(simulation.turns)) if first else None,
        rule_of=name,
        title=f"Policy rate from {first}" if first else "Policy rate",
    )
    return write_figure(out / "rates.png", figure, dpi=120)


def write_figure(path: Path, figure: Figure, *, dpi: int) -> Path:
    """Write a figure as its file's ending says, and return the path.

    Raises:
        ConfigError: it cannot be written, or the ending is not one of a picture.
    """
    picture = BytesIO()
    try:
        figure.savefig(picture, dpi=dpi, format=path.suffix[1:] or "png")
    except ValueError as error:
        raise ConfigError(f"cannot draw {path}: {error}") from error
    return write_file(path, picture.getvalue())


def _chart_name(simulation: Simulation) -> str:
    return clip(printable(simulation.config.name), 60)


def _write_tables(simulation: Run, shadow: Simulation | None, out: Path) -> list[Path]:
    frames = {"turns": simulation.to_frame(), "decisions": simulation.decisions()}
    if shadow is not None:
        frames["shadow"] = shadow.to_frame()
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
            shipped = type(simulation).__module__.startswith("llmsim_lab.")
            if not shipped and (file := file_of(type(simulation))) is not None:
                at += f" --import {file}"
            say(f"'llmsim-lab resume {at}' continues it.", style="red", to=errors)
        raise failure
