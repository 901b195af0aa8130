"""What a notebook keeps of a window: a picture and a short text below the live view.

People who open the file without its kernel see them: in JupyterLab, on GitHub, or in a page made by
nbconvert. The picture is an output of its own, a PNG. So it is also shown where scripts and styles
are removed from HTML, as in a notebook that is not trusted. Where the window is live, a style hides
both.
"""

from __future__ import annotations

import base64
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from IPython import get_ipython
from IPython.display import DisplayHandle, display

from llmsim_lab._util.drawing import figure_bytes, small_png
from llmsim_lab._util.html import styled

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

_VIEW = "application/vnd.jupyter.widget-view+json"
_DOTS_PER_INCH = 84
_REST = 9
"""After an update, none follows for this many times as long as it took: it may take seconds."""
# The element of an output: jp-OutputArea-child in JupyterLab, Notebook 7 and nbconvert's pages,
# output_container in VS Code.
_OUTPUT = ":is(.jp-OutputArea-child,.output_container)"
_LIVE = f"{_OUTPUT}:has(.llmsim-live)"
_BEFORE_TEXT = f"{_OUTPUT}:has(+{_OUTPUT} .llmsim-static)"  # :has cannot be nested
# What is left of a widget that is gone: a panel, or an element of the class jupyter-widgets.
_GONE = ".jp-OutputArea-child:has(>.lm-Panel,.jupyter-widgets):not(:has(.llmsim-live))"
_STYLE = (
    # Behind a live window come the picture and then the text.
    f"{_LIVE}+{_BEFORE_TEXT},{_LIVE}+{_OUTPUT}+{_OUTPUT}:has(.llmsim-static),"
    f"{_GONE}:has(+{_OUTPUT}+{_OUTPUT} .llmsim-static)"
    "{display:none}"
    # On a dark page figures become dark, too: light and dark are swapped, hues stay.
    f"[data-jp-theme-light=false] :is({_BEFORE_TEXT} img,.llmsim-figure)"
    "{filter:invert(.9) hue-rotate(180deg)}"
)


class Window(Protocol):
    """The parts of a window that a notebook's view of it needs."""

    comm: object
    """None once the window is closed."""

    @property
    def model_id(self) -> str:
        """The number of the window's live view."""
        ...

    @property
    def revision(self) -> object:
        """What the static view depends on."""
        ...

    def static_picture(self) -> Figure | None:
        """Return the window's content as a figure."""
        ...

    def static_html(self) -> Markup:
        """Return the window's content as simple HTML."""
        ...

    def static_text(self) -> str:
        """Return the window's content as plain text."""
        ...


class SavedView:
    """Displays a window's picture and text, and updates them with the window.

    Args:
        window: the window.

    Attributes:
        rests_until: when they may be written again, by ``time.monotonic()``.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._revision: object = None
        self._picture: DisplayHandle | None = None
        self._text: DisplayHandle | None = None
        self._lock = threading.Lock()
        self.rests_until = 0.0

    def display(self) -> None:
        """Display three outputs: the window, and its picture and text, which it hides.

        With a single output, JupyterLab would show the window only, and in a reopened notebook an
        error that the window's model was not found.
        """
        self._revision = self._window.revision
        if self._window.comm is not None:
            view = {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self._window.model_id,
            }
            # The live output's HTML is empty, so that a page without widgets shows the facts only
            # once. Without any HTML, nbconvert would warn that it cannot show the output.
            display({_VIEW: view, "text/html": ""}, raw=True)  # type: ignore[no-untyped-call]
        picture, metadata = _picture_data(self._window.static_picture())
        self._picture = display(
            picture,
            raw=True,
            metadata=metadata,
            display_id=True,
        )  # type: ignore[no-untyped-call]
        self._text = display(
            self._text_data(),
            raw=True,
            display_id=True,
        )  # type: ignore[no-untyped-call]
        shell = get_ipython()
        if shell is not None:
            # A notebook that is executed as a whole keeps nothing that comes after its last cell.
            shell.events.register("post_execute", self.update)

    def update(self) -> None:
        """Write picture and text into the notebook, unless they have not changed."""
        # One thread after another: an old picture that takes long must not replace a newer one.
        with self._lock:
            self._update()

    def _update(self) -> None:
        if self._picture is None or self._text is None or self._window.comm is None:
            return
        if self._revision == self._window.revision:
            return
        self._revision = self._window.revision
        began = time.monotonic()
        picture, metadata = _picture_data(self._window.static_picture())
        self._picture.update(
            picture,
            raw=True,
            metadata=metadata,
        )  # type: ignore[no-untyped-call]
        self._text.update(self._text_data(), raw=True)  # type: ignore[no-untyped-call]
        ended = time.monotonic()
        self.rests_until = ended + _REST * (ended - began)

    def close(self) -> None:
        """Stop following the window; the last picture and text stay."""
        shell = get_ipython()
        if self._text is not None and shell is not None:
            with suppress(ValueError):  # closed before
                shell.events.unregister("post_execute", self.update)

    def _text_data(self) -> dict[str, str]:
        html = styled(self._window.static_html(), **{"class": "llmsim-static"})
        return {
            "text/plain": self._window.static_text(),
            "text/html": f"<style>{_STYLE}</style>{html}",
        }


def _picture_data(figure: Figure | None) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return a figure as an output, and the output's metadata.

    Without a figure the output is empty, and keeps the place for a picture that a turn may bring.
    """
    if figure is None:
        return {"text/html": ""}, {}
    png = small_png(
        figure_bytes(
            figure,
            "png",
            dpi=_DOTS_PER_INCH,
        )
    )
    # JupyterLab 4.6 leaves out the text of a picture, so the HTML below has it as well.
    alt = getattr(figure, "alt", "")
    data = {"image/png": base64.b64encode(png).decode()}
    metadata = {"image/png": {"alt": alt}}
    return data, metadata
