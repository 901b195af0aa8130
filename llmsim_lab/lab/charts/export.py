"""Charts and their data as files: the same bytes for the same chart, and links to take them."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from markupsafe import Markup

from llmsim_lab.errors import ConfigError
from llmsim_lab.lab.charts.tracks import Ensemble, Track
from llmsim_lab.runs._turn import Series

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["FileKind", "data_frame", "download_link", "figure_bytes", "file_kind", "small_png"]

FileKind = Literal["csv", "pdf", "png", "svg"]

_TYPES: dict[FileKind, str] = {
    "csv": "text/csv;charset=utf-8",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
}
_MOST_BYTES = 4_000_000
"""A link holds the file in the page; browsers and notebooks become slow with more."""


def file_kind(name: str) -> FileKind:
    """Return what a file is by its name's ending.

    Raises:
        ConfigError: it ends in something else.
    """
    ending = name.rpartition(".")[2].lower()
    for kind in get_args(FileKind):
        if ending == kind:
            found: FileKind = kind
            return found
    raise ConfigError(f"{name!r} must end in .png, .svg, .pdf or .csv")


def figure_bytes(figure: Figure, kind: Literal["pdf", "png", "svg"], *, dpi: float = 150) -> bytes:
    """Return a figure as a file, without dates or versions in it; text in SVG and PDF stays text.

    Args:
        figure: the figure.
        kind: what file.
        dpi: dots per inch of a PNG.
    """
    import matplotlib as mpl

    leave_out: dict[str, dict[str, Any]] = {
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
    }
    buffer = io.BytesIO()
    settings: dict[Any, Any] = {
        "svg.hashsalt": "llmsim_lab",
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
    }
    with mpl.rc_context(settings):
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=leave_out[kind])
    return buffer.getvalue()


def small_png(png: bytes) -> bytes:
    """Return a PNG with few colours, about a third of the size, for saved notebooks."""
    from PIL import Image

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.quantize(64, dither=Image.Dither.NONE).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def data_frame(items: Sequence[Track | Ensemble], columns: Sequence[Series]) -> pd.DataFrame:
    """Return the runs' values below each other.

    Columns: ``run``, its name; ``member``, from 1 in an ensemble, else 0; ``turn``; ``period``,
    where the runs are dated; the series; ``interventions``.
    """
    import pandas as pd

    names = ["turn", "period", *(series.column for series in columns), "interventions"]
    rows = []
    for item in items:
        members = item.members if isinstance(item, Ensemble) else [item]
        for place, track in enumerate(members, 1 if isinstance(item, Ensemble) else 0):
            for row in track.rows:
                values = {name: row[name] for name in names if name in row}
                rows.append({"run": item.name, "member": place, **values})
    return pd.DataFrame(rows)


def download_link(content: bytes, *, name: str, kind: FileKind) -> Markup:
    """Return a link that gives the file to whoever clicks on it; nothing is written here.

    Args:
        content: the file.
        name: what it is saved as.
        kind: what it is.

    Raises:
        ConfigError: it is too large to lie in a page.
    """
    if len(content) > _MOST_BYTES:
        raise ConfigError(
            f"{name} has {len(content) / 1e6:.1f} MB, too much for a link (limit "
            f"{_MOST_BYTES / 1e6:.0f} MB); write it with chart.save({name!r})"
        )
    data = base64.b64encode(content).decode("ascii")
    size = max(1, round(len(content) / 1000))
    return Markup('<a download="{}" href="data:{};base64,{}">Download {} ({} kB)</a>').format(
        name, _TYPES[kind], data, name, f"{size:,}"
    )
