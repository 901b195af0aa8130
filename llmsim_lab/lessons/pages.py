"""Pages of tournaments and hand-ins: tables, and the window with recorded runs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

from llmsim_lab._util.html import table
from llmsim_lab.llm import Tape
from llmsim_lab.run.reading import Reading
from llmsim_lab.run.recorded import RoomForRuns, run_on_tape

if TYPE_CHECKING:
    import pandas as pd

_LONGEST_STEM = 200
"""In bytes: a name has at most 255, and an ending is added to it."""


def table_of(frame: pd.DataFrame, caption: str) -> Markup:
    """Return a frame as a table."""
    tuples = frame.itertuples(index=False)
    rows = [list(map(_cell, row)) for row in tuples]
    return table(
        list(frame.columns),
        rows,
        caption=caption,
    )


def _cell(value: object) -> object:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.2f}"
    return value


def shown_name(name: str) -> str:
    """Return a file's name as UTF-8 can hold it; names from old zip files may be in Latin-1."""
    # Escaped, so that two names stay two.
    return name.encode(errors="backslashreplace").decode()


def file_stem(name: str) -> str:
    """Return what a file of a name begins with: the name, unless that leaves no room for more."""
    as_bytes = name.encode()
    if len(as_bytes) <= _LONGEST_STEM:
        return name
    digest = hashlib.sha256(as_bytes).hexdigest()
    return f"{name[:40]}-{digest[:12]}"


def link_to(name: str) -> Markup:
    """Return a paragraph with a link to the page of a name in the folder ``pages``."""
    return Markup('<p><a href="pages/{}.html">{}</a></p>').format(quote(file_stem(name)), name)


def reading_of(
    title: str,
    tapes: Mapping[str, Path],
) -> Reading | None:
    """Return the runs of several tapes as one log for the window; None if there are none.

    Args:
        title: of the window.
        tapes: files by what their runs are called.
    """
    reading = Reading(title)
    number = 0
    for name, path in tapes.items():
        with Tape(path, read_only=True) as tape:
            room = RoomForRuns(tape)
            for info in tape.runs():
                number += 1
                # Runs of several tapes have one numbering here, and no parents.
                shown = replace(
                    info,
                    id=number,
                    name=name,
                    parent=None,
                    fork_turn=None,
                )
                # With those of turns that failed, as the window of a tape has them.
                all_calls = tape.calls(info.id, forgotten=True)
                calls = [(call.attempt, call.forgotten) for call in all_calls]
                reading.add(
                    shown,
                    room.read(info, run_on_tape),
                    calls=calls,
                )
    return reading if number else None
