"""A figure as a picture for the screen, again and again while a run goes on, at little cost.

A figure is laid out once, and its legend painted once; the rest is drawn anew each time.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

__all__ = ["Screen"]

_DPI = 96


class Screen:
    """Makes pictures of a figure.

    Args:
        figure: with a layout engine of its own; it is given one again when it is to be laid out
            anew.
    """

    def __init__(self, figure: Figure) -> None:
        self._figure = figure
        self._reserved: list[int] = []
        self._legend: tuple[slice, slice, NDArray[np.uint8]] | None = None

    def png(self) -> bytes:
        """Return the figure as it is as a PNG file."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from PIL import Image

        self._figure.set_dpi(_DPI)
        canvas = FigureCanvasAgg(self._figure)
        if self._is_loose():
            self._reserved = []
            self._lay_out()
        pixels = self._paint(canvas)
        if self._outgrown():
            self._figure.set_layout_engine("constrained")
            self._lay_out()
            pixels = self._paint(canvas)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, format="png", compress_level=2)
        return buffer.getvalue()

    def _is_loose(self) -> bool:
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        return isinstance(self._figure.get_layout_engine(), ConstrainedLayoutEngine)

    def _lay_out(self) -> None:
        self._figure.draw_without_rendering()
        self._figure.set_layout_engine("none")
        self._legend = None

    def _outgrown(self) -> bool:
        """Say whether numbers on an axis have become longer than when the figure was laid out."""
        longest = [
            max((len(tick.label1.get_text()) for tick in axes.yaxis.get_major_ticks()), default=0)
            for axes in self._figure.axes
        ]
        reserved = self._reserved or longest
        self._reserved = [max(pair) for pair in zip(longest, reserved, strict=True)]
        return self._reserved != reserved

    def _paint(self, canvas: FigureCanvasAgg) -> NDArray[np.uint8]:
        import numpy as np

        [legend] = self._figure.legends
        legend.set_visible(self._legend is None)
        try:
            canvas.draw()  # type: ignore[no-untyped-call]
        finally:
            legend.set_visible(True)
        buffer = canvas.buffer_rgba()  # type: ignore[no-untyped-call]
        pixels: NDArray[np.uint8] = np.array(buffer)[:, :, :3]
        if self._legend is None:
            rows, columns = _place(legend, len(pixels))
            self._legend = rows, columns, pixels[rows, columns].copy()
        else:
            rows, columns, painted = self._legend
            pixels[rows, columns] = painted
        return pixels


def _place(legend: Any, height: int) -> tuple[slice, slice]:
    """Return the pixels that a legend takes, its frame's line included."""
    box = legend.get_window_extent()
    rows = slice(max(0, height - int(box.y1) - 3), max(0, height - int(box.y0) + 3))
    return rows, slice(max(0, int(box.x0) - 3), int(box.x1) + 4)
