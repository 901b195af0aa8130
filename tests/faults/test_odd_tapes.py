"""Tapes that hold what no run wrote, with right sums: readers end in no error of Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import in_words, make_client, recorded
from tape_text import rewrite
from typer.testing import CliRunner

from llmsim_lab.cli._app import app
from llmsim_lab.errors import LabError
from llmsim_lab.lab import Lab, PromptViewer, RateChart
from llmsim_lab.run import load
from llmsim_lab.run.recorded import page
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import Tape

Line = dict[str, Any]


def without_state(line: Line) -> Line:
    return line | {"record": line["record"] | {"state": {}}} if line.get("is") == "turn" else line


def with_odd_column(line: Line) -> Line:
    return line | {"row": {**line["row"], "\ud800": 1.0}} if line.get("is") == "turn" else line


def with_odd_schema(line: Line) -> Line:
    if "schema" not in (line.get("value") or {}):
        return line
    return line | {"value": line["value"] | {"schema": {"properties": [None], "$defs": 3}}}


def with_odd_gap(line: Line) -> Line:
    if line.get("is") != "turn":
        return line
    state = line["record"]["state"] | {"gap_error": 1e308}
    return line | {"record": line["record"] | {"state": state}}


READERS: dict[str, Callable[[Path], object]] = {
    "page": lambda path: page(path, path.with_suffix(".html")),
    "Lab": lambda path: (Lab(path).static_text(), Lab(path).static_html()),
    "PromptViewer": lambda path: PromptViewer(path).static_text(),
    "RateChart": lambda path: RateChart(path).static_text(),
    "load": lambda path: load(path).decisions(),
    "frames": lambda path: (Tape(path).turns_frame(), Tape(path).calls_frame()),
    "ls": lambda path: command("ls", path),
    "show": lambda path: command("show", path),
    "show --turn": lambda path: command("show", path, "--turn", 1),
    "diff": lambda path: command("diff", path, 1, 1),
}


def command(*arguments: object) -> None:
    done = CliRunner().invoke(app, ["tape", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception


@pytest.mark.parametrize("edit", [without_state, with_odd_column, with_odd_schema, with_odd_gap])
@pytest.mark.usefixtures("undrawn")
def test_what_reads_an_odd_tape_shows_it_or_says_why_not(
    edit: Callable[[Line], Line], path: Path
) -> None:
    recorded(Simulation(in_words(), llm_client=make_client(), tape=path), 2)
    rewrite(path, edit)
    for read in READERS.values():
        try:
            read(path)
        except LabError as error:
            assert str(error)  # noqa: PT017 - or it may be shown


def test_a_run_that_its_class_cannot_read_is_shown_as_recorded_and_says_why(path: Path) -> None:
    recorded(Simulation(in_words(), llm_client=make_client(), tape=path), 2)
    rewrite(path, without_state)
    lab = Lab(path)
    [note] = lab.reading.runs[1]["notes"]
    assert note.startswith("Run 1 is shown as it was recorded, since its class, economic, cannot ")
    assert "turn 0: Economy.columns() failed: ValidationError: lags: Input should be" in note
