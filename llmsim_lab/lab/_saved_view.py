"""What a notebook keeps of a window: a picture and a short text below the live view.

Whoever opens the file without its kernel sees them: in JupyterLab, on GitHub, as a page that
nbconvert made. The picture is a PNG output of its own, since pages that take scripts and styles
out of HTML, as they do for a notebook from somebody else, still show it. Where the window lives, a
style hides both.
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
"""For so many times as long as an update took there is none: it may take a second of the kernel."""
# An output is a jp-OutputArea-child in JupyterLab, Notebook 7 and nbconvert's pages, and an
# output_container in VS Code.
_OUTPUT = ":is(.jp-OutputArea-child,.output_container)"
_LIVE = f"{_OUTPUT}:has(.llmsim-live)"
_BEFORE_TEXT = f"{_OUTPUT}:has(+{_OUTPUT} .llmsim-static)"  # no :has may stand in another
# What is left of a widget that is gone: a panel, or an element of the class jupyter-widgets.
_GONE = ".jp-OutputArea-child:has(>.lm-Panel,.jupyter-widgets):not(:has(.llmsim-live))"
_STYLE = (
    # Behind a live window: the picture, which comes first, and the text.
    f"{_LIVE}+{_BEFORE_TEXT},{_LIVE}+{_OUTPUT}+{_OUTPUT}:has(.llmsim-static),"
    f"{_GONE}:has(+{_OUTPUT}+{_OUTPUT} .llmsim-static)"
    "{display:none}"
    # On a dark page a figure is dark, too: light and dark change places, hues stay.
    f"[data-jp-theme-light=false] :is({_BEFORE_TEXT} img,.llmsim-figure)"
    "{filter:invert(.9) hue-rotate(180deg)}"
)


class Window(Protocol):
    """A window, as far as a notebook keeps it."""

    comm: object
    """None once it is closed."""

    @property
    def model_id(self) -> str:
        """The number of its live view."""
        ...

    @property
    def revision(self) -> object:
        """What its static view depends on."""
        ...

    def static_picture(self) -> Figure | None:
        """Return what is shown as a figure."""
        ...

    def static_html(self) -> Markup:
        """Return what is shown as simple HTML."""
        ...

    def static_text(self) -> str:
        """Return what is shown as plain text."""
        ...


class SavedView:
    """Displays a window's picture and text, and keeps them as the window is.

    Args:
        window: the window.

    Attributes:
        rests_until: when it may be written anew, by ``time.monotonic()``.
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

        Of a single output JupyterLab would show the window only, and in a reopened notebook that
        its model was not found.
        """
        self._revision = self._window.revision
        if self._window.comm is not None:
            view = {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self._window.model_id,
            }
            # The live output's HTML is empty, so that a page without widgets shows the facts once;
            # with no second form at all, nbconvert would warn that it cannot show that output.
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
        """Write picture and text into the notebook anew, unless they are as they were."""
        # One thread after the other: a picture that takes long must not replace a newer one.
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
        """Stop following the window; what was written stays."""
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
    """Return a figure as an output and its metadata.

    Without a figure the output is empty: it holds the place of one that may come with a turn.
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
    # JupyterLab 4.6 leaves out a picture's text, so the HTML below has it as well.
    alt = getattr(figure, "alt", "")
    return {"image/png": base64.b64encode(png).decode()}, {"image/png": {"alt": alt}}
