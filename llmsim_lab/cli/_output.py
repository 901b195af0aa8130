"""Where commands print, and how: tables of turns, files of results.

Text of a model or of a tape is untrusted: it has no markup and no terminal control codes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, get_args

from rich.console import Console

from llmsim_lab._util.config import yaml_text
from llmsim_lab._util.files import as_path, is_there
from llmsim_lab._util.results import Results
from llmsim_lab._util.tables import csv_text
from llmsim_lab._util.text import clip, counted, few, number, printable
from llmsim_lab.errors import ConfigError
from llmsim_lab.run import Run
from llmsim_lab.run.charts import series_of
from llmsim_lab.run.guided import calls_of_failed_turn
from llmsim_lab.run.series import Series
from llmsim_lab.run.turn import Answer, Turn, with_outcomes
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape.prompts_read import prompts_read
from llmsim_lab.types import Attempt, CallRecord, Status

if TYPE_CHECKING:
    import pandas as pd


def _console(*, stderr: bool) -> Console:
    terminal = Console(stderr=stderr)
    # COLUMNS=0, of a terminal that does not know its width, would show nothing, errors included.
    if terminal.width < 1:
        terminal.width = 80
    return terminal


console = _console(stderr=False)
errors = _console(stderr=True)

_LONG = 100_000
"""Of a text that is printed without a style, in characters."""
_MOST_COLUMNS = 4
_MOST_DECISIONS = 40
_LONGEST_DECISION = 240
_CONFIG = "config.yaml"
_RESULTS = (_CONFIG, "turns.csv", "decisions.csv")
_WRITTEN = "# Written by llmsim-lab, as .made-from says; the next run replaces it.\n"


def say(
    text: object,
    *,
    style: str = "",
    to: Console = console,
) -> None:
    """Print text as it is, lines kept: no markup, no terminal control codes."""
    plain = printable(str(text), keep="\n\t")
    # Of a text of megabytes rich cuts each line off from all the others: it is written as it is.
    if len(plain) > _LONG:
        to.file.write(f"{plain}\n")
        to.file.flush()
        return
    # Rich would also turn :names: into emoji, and break long lines, which are often paths to copy.
    to.print(
        plain,
        style=style,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=True,
    )


def open_folder(path: Path, option: str = "--out") -> Path:
    """Make a folder for results.

    Args:
        path: the folder.
        option: what it was given by.

    Raises:
        ConfigError: it cannot be made or written to.
    """
    path = as_path(option, path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Written to now: a folder that cannot be would otherwise show only after a long run.
        TemporaryFile(dir=path).close()
    except OSError as error:
        raise ConfigError(
            f"cannot write to the folder {path}: {error.strerror or error}; choose another {option}"
        ) from error
    return path


def open_results(
    folder: Path,
    kind: str,
    *names: str,
    source: Path | None = None,
    option: str = "--out",
) -> Results:
    """Make a folder for results, in which they replace nothing but results of the same source.

    Args:
        folder: the folder.
        kind: what the results are.
        names: of the results.
        source: what they are of.
        option: what the folder was given by.

    Raises:
        ConfigError: it cannot be made or written to, or has something else of such a name.
    """
    open_folder(folder, option)
    results = Results(
        folder=folder,
        kind=kind,
        source=source,
        option=option,
    )
    results.check(*names)
    return results


def open_run_results(folder: Path, played: Path | None = None) -> Results:
    """Make a folder for the results of a run, which replace those of another run alone.

    Args:
        folder: the folder.
        played: the file that describes the run, if one does.

    Raises:
        ConfigError: as ``open_results``, or the file is a result itself, which would be replaced.
    """
    config = folder / _CONFIG
    if played is not None and is_there(config) and is_there(played) and config.samefile(played):
        raise ConfigError(
            f"{config} describes this run, and its results would replace it; choose another --out"
        )
    return open_results(folder, "run", *_RESULTS)


def say_turns(frame: pd.DataFrame, series: Sequence[Series]) -> None:
    """Print a run's frame, a line a turn.

    Args:
        frame: the run's.
        series: the columns that can be charted; those with a short heading are shown, or the first
            few if none has one.
    """
    # A terminal is eighty characters wide.
    chosen: Sequence[Series] = [item for item in series if item.short]
    if not chosen:
        chosen = series[:_MOST_COLUMNS]
    headings = {"turn": "turn", "period": "quarter"}
    headings |= {item.column: item.short or item.label for item in chosen}
    # A run of rules alone has no calls, and needs no columns of zeros.
    statuses = [name for name in get_args(Status) if name in frame and frame[name].any()]
    headings |= {name: f"model {name}" for name in statuses}
    headings["interventions"] = "from outside"
    # A world may have no quarters.
    columns = [name for name in headings if name in frame]
    shown = frame[columns].rename(columns=headings)
    # What a state does not have yet is not a number in the frame.
    say(
        shown.to_string(
            index=False,
            float_format="{:.2f}".format,
            na_rep="",
        )
    )


def decision_in_words(answer: Answer) -> str:
    """Return what was answered, and why."""
    return "; ".join(filter(None, (str(answer), answer.reasoning)))


def _say_decisions(turns: Sequence[Turn]) -> None:
    """Print what was decided in some turns, and why."""
    lines = []
    for turn in turns:
        for answer, outcome in with_outcomes(turn):
            words = decision_in_words(answer)
            # What the crisis world notes of an action that its validator turned down.
            if outcome.get("accepted") is False:
                words = f"REJECTED: {words}"
            player = answer.player or answer.component
            lines.append(clip(f"{turn.number} {player}: {words}", _LONGEST_DECISION))
    if lines:
        say("What was decided in each turn, and why:", style="bold")
        say("\n".join(few(lines, _MOST_DECISIONS)) + "\n")


def _summary(
    turns: Sequence[Turn],
    unfinished: Sequence[CallRecord],
    failed_s: float,
) -> str:
    """Return one line on some turns: calls by status, tokens, seconds.

    Args:
        turns: those that were played.
        unfinished: the calls of one after them that failed.
        failed_s: how long that one took, seconds.
    """
    # A second attempt is one call's: what is counted are questions, not requests.
    seconds = sum(turn.seconds for turn in turns) + failed_s
    calls = sum(len(turn.calls) for turn in turns)
    statuses = sum((Counter(turn.statuses) for turn in turns), Counter())
    total = statuses.total()
    shares = ", ".join(f"{status} {count / total:.0%}" for status, count in statuses.items())
    tokens = sum(turn.tokens for turn in turns)
    parts = []
    if calls:
        parts.append(f"{calls} model calls: {shares}; {tokens:,} tokens")
    requests: list[Attempt] = []
    for call in unfinished:
        requests += call.history
    if requests:
        # These were paid for, and a resume takes them from the tape.
        answered = sum(attempt.reply is not None for attempt in requests)
        failed = counted(len(requests), "request")
        parts.append(f"{failed} in the turn that failed, {answered or 'none'} answered")
    words = "; ".join(parts) or "no model was called"
    return f"{words}; {number(seconds)} s"


def report(
    simulation: Run,
    results: Results,
    *,
    since: int = 0,
    failed_s: float = 0,
) -> None:
    """Print a run's table, decisions and summary; write its frames and configuration.

    Args:
        simulation: the run.
        results: the folder for the files.
        since: the first turn that is listed; those after it are summed up.
        failed_s: how long the turn took in which the run ended early, seconds.
    """
    frame = simulation.to_frame()
    try:
        _say_run(
            simulation,
            frame,
            since,
            failed_s,
        )
    finally:
        # Also where nobody reads what is printed, as in: llmsim-lab run ... | head
        paths = _write_run(simulation, frame, results)
    say(f"Written: {', '.join(map(str, paths))}")


def _say_run(
    simulation: Run,
    frame: pd.DataFrame,
    since: int,
    failed_s: float,
) -> None:
    """Print a run's table, decisions and summary; see ``report``."""
    # With the turn that the new ones follow on, to compare them with.
    say_turns(frame[frame["turn"] >= since], series_of(simulation))
    say("")
    turns = [turn for turn in simulation.turns if turn.number > since]
    _say_decisions(turns)
    say(_summary(turns, calls_of_failed_turn(simulation), failed_s))
    attempts: list[Attempt] = []
    for turn in turns:
        for call in turn.calls:
            attempts += call.history
    words = str(prompts_read(attempts))
    if words:
        say(f"{words}.")
        say("What would do: for a server that remembers every prompt of this run.")
    for item in simulation.planned:
        if item.turn > simulation.turn_number:
            say(f"not reached: the intervention planned for {item}", style="yellow")


def _write_run(
    simulation: Run,
    frame: pd.DataFrame,
    results: Results,
) -> list[Path]:
    """Write a run's frames and configuration; return the paths."""
    values: dict[str, object] = {}
    # A file that names no kind is an economic run's; a world of one's own is named on the command
    # line, since data must not make code run.
    is_own = ":" in simulation.kind
    if not is_own and simulation.kind != Simulation.kind:
        values["kind"] = simulation.kind
    values |= simulation.config.model_dump(mode="json", by_alias=True)
    texts = {
        _CONFIG: _WRITTEN + yaml_text(values),
        "turns.csv": csv_text(frame),
        "decisions.csv": csv_text(simulation.decisions()),
    }
    return [results.write(name, text.encode()) for name, text in texts.items()]
