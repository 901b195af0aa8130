"""What all figures share: their class, the colours of curves, and texts as matplotlib draws them.

Made without pyplot, so that nothing global changes; matplotlib is imported when first needed.
"""

from __future__ import annotations

import base64
import io
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup

from llmsim_lab._util.html import visible
from llmsim_lab._util.text import clip, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Kind = Literal["pdf", "png", "svg"]
STYLES: tuple[Literal["-", "--", "-.", ":"], ...] = ("-", "--", "-.", ":")
"""Of lines, so that colour is not all that tells them apart."""


BEHIND = {
    "facecolor": "white",
    "edgecolor": "none",
    "alpha": 0.8,
    "pad": 0.5,
}
"""What is behind words in a chart, so that they are read above lines."""


@cache
def _chart_class() -> Any:
    from matplotlib.figure import Figure

    class Chart(Figure):
        """A matplotlib figure that notebooks show, with its content in words."""

        alt = ""
        small = False

        def _repr_png_(self) -> tuple[bytes, dict[str, str]]:
            if self.small:
                png = small_png(
                    figure_bytes(
                        self,
                        "png",
                        dpi=80,
                    )
                )
            else:
                png = figure_bytes(self, "png", dpi=96)
            # nbconvert's classic pages take the image's text from the second; JupyterLab 4.6
            # does not.
            return png, {"alt": self.alt}

        def __repr__(self) -> str:
            if self.small:
                return self.alt
            return super().__repr__()

    return Chart


def load_matplotlib() -> None:
    """Import it now, while a person waits anyway, so that the first figure holds up no click."""
    _chart_class()


def new_figure(
    across: float,
    down: float,
    *,
    small: bool = False,
) -> Figure:
    """Return an empty figure, white on dark pages too, whose parts make room for each other.

    Notebooks show it although pyplot does not know it.

    Args:
        across: its width, inches.
        down: its height, inches.
        small: True for a small file in a notebook, and its content in words where that is text.
    """
    figure: Figure = _chart_class()(
        figsize=(across, down),
        layout="constrained",
        facecolor="white",
    )
    figure.small = small  # type: ignore[attr-defined]
    return figure


def figure_bytes(
    figure: Figure,
    kind: _Kind,
    *,
    dpi: float = 150,
) -> bytes:
    """Return a figure as a file, without dates or versions in it; text in SVG and PDF stays text.

    Args:
        figure: the figure.
        kind: what file.
        dpi: dots per inch of a PNG.
    """
    import matplotlib as mpl

    dates_and_versions = {
        "pdf": ("CreationDate", "Creator", "Producer"),
        "png": ("Software",),
        "svg": ("Date", "Creator"),
    }
    # Written as None they are left out, so that a figure drawn again has the same bytes.
    without = dict.fromkeys(dates_and_versions[kind])
    # The same ids in an SVG each time; and text stays text, to be found and edited.
    settings: Any = {
        "svg.hashsalt": "llmsim_lab",
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
    }
    buffer = io.BytesIO()
    with mpl.rc_context(settings):
        figure.savefig(
            buffer,
            format=kind,
            dpi=dpi,
            metadata=without,
        )
    return buffer.getvalue()


def small_png(png: bytes) -> bytes:
    """Return a PNG with few colours, about a third of the size, for saved notebooks."""
    from PIL import Image

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        # Without dithering, since its noise would make the file larger again.
        few_colours = picture.quantize(64, dither=Image.Dither.NONE)
        few_colours.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def figure_html(figure: Figure, *, dpi: float = 80) -> Markup:
    """Return a figure as a small image with its ``alt`` text, for a notebook or a page."""
    picture = small_png(figure_bytes(figure, "png", dpi=dpi))
    png = base64.b64encode(picture).decode()
    # White below and around, so that it reads on a dark page.
    style = "max-width:100%;background:#fff;padding:6px;box-sizing:border-box"
    look = Markup('<img alt="{}" src="data:image/png;base64,{}" style="{}" class="llmsim-figure">')
    return look.format(
        getattr(figure, "alt", ""),
        png,
        style,
    )


def told(figure: Figure, words: str) -> Figure:
    """Return the figure with its content in words, for screen readers."""
    figure.alt = visible(words)  # type: ignore[attr-defined]
    return figure


def plain_axes(
    axes: Axes,
    lines: Literal["x", "y"] | None = None,
) -> None:
    """Take away the frame at the top and on the right.

    Args:
        axes: the axes.
        lines: the axis whose values have lines behind what is drawn.
    """
    axes.spines[["top", "right"]].set_visible(False)
    if lines:
        axes.grid(axis=lines, color="#DDDDDD")
        axes.set_axisbelow(True)


def drawable(text: str, length: int = 40) -> str:
    """Return an untrusted text that matplotlib draws as it is, not as a formula.

    Args:
        text: such as a run's name.
        length: the most characters; a longer one is cut with an ellipsis.
    """
    # A pair of dollars is a formula, and a backslash before one would undo its escape.
    return clip(printable(text), length).replace("\\", "\N{SET MINUS}").replace("$", r"\$")
