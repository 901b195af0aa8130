"""What all widgets of the lab share: a static view, work in the background, errors in place."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets as w
from IPython.display import display
from markupsafe import Markup

from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.lab.attempts import follow
from llmsim_lab.lab.worker import Work, Worker
from llmsim_lab.markup import details, join, pre, safe

if TYPE_CHECKING:
    from llmsim_lab.runs._run import Run

__all__ = ["SETTLE_S", "LabWidget", "button", "settled"]

SETTLE_S = 0.05
"""For how long fields must have stayed as they are before a click reads them."""

_VIEW = "application/vnd.jupyter.widget-view+json"

# A widget is shown as two outputs, itself and then its static view: of a single output JupyterLab
# would show the widget only, and in a reopened notebook that its model was not found. The style
# lets one of the two be seen. Behind a live widget it hides the static view. Before a static view
# it hides what stands for a widget that is gone: a panel, or an element of the class
# jupyter-widgets. An output is a jp-OutputArea-child in JupyterLab, Notebook 7, Voila and
# nbconvert's pages, and an output_container in VS Code.
_STYLE = Markup(
    "<style>"
    ":is(.jp-OutputArea-child,.output_container):has(.llmsim-live)"
    "+:is(.jp-OutputArea-child,.output_container):has(.llmsim-static),"
    ".jp-OutputArea-child:has(>.lm-Panel,.jupyter-widgets):not(:has(.llmsim-live))"
    ":has(+.jp-OutputArea-child .llmsim-static)"
    "{display:none}"
    "</style>"
)


async def settled(*fields: w.ValueWidget) -> None:
    """Wait until fields have stayed as they are for a moment; a click awaits it before it reads.

    The kernel may take a click before the changes that came just before it, since it handles the
    messages of one page on several threads.

    Args:
        fields: what is about to be read.
    """
    before: list[object] | None = None
    while before != (now := [field.value for field in fields]):
        before = now
        await asyncio.sleep(SETTLE_S)


def button(label: str, *, tooltip: str, **more: Any) -> w.Button:
    """Return a button with text on it, as wide as the text needs.

    Args:
        label: the text.
        tooltip: what it does, in a sentence.
        more: traits of the button, such as ``button_style``.
    """
    layout = w.Layout(width="auto", flex="0 0 auto", align_self="flex-start")
    return w.Button(description=label, tooltip=tooltip, layout=layout, **more)


class LabWidget(w.VBox):
    """Base of the lab's widgets.

    A widget shows a run and sends it commands; it holds no state of the run's. In a saved notebook,
    where no widget lives, its static view is what is left: the same facts as plain text and HTML,
    as they were when it was displayed.

    Attributes:
        controls: what is disabled while work is under way; set by each widget.
        stoppers: what is disabled while none is.
        status: one line on what is going on, read out by screen readers.
        error: what went wrong, in place.
        retry: does again what failed; shown only then.
        worker: what does the work.
    """

    # Python closes also what was never built to its end, as one with a wrong argument is.
    _built = False
    _deafen: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.controls: Sequence[w.DOMWidget] = ()
        self.stoppers: Sequence[w.DOMWidget] = ()
        self.status = w.HTML()
        self.error = w.HTML()
        self.retry = button("Try again", tooltip="Do again what failed", button_style="primary")
        self.retry.layout.display = "none"
        self.retry.on_click(self._on_retry)
        self._last_work: Work | None = None
        self.worker = Worker(on_begin=self._begin, on_end=self._end)
        super().__init__()
        self.add_class("llmsim-live")
        self._built = True

    # --- what each widget says of itself ------------------------------------------------------

    def face_text(self) -> str:
        """Return what the widget shows, as plain text; the same for the same run."""
        raise NotImplementedError

    def face_html(self) -> Markup:
        """Return what the widget shows, as simple HTML; the same for the same run."""
        return pre(self.face_text())

    def _ipython_display_(self) -> None:
        # Closing a widget puts None in the place of its method.
        outputs = [bundle := type(self)._repr_mimebundle_(self)]
        view = bundle.pop(_VIEW)
        if self.comm is not None:
            static = Markup('<div class="llmsim-static">{}</div>').format(
                Markup(bundle["text/html"])
            )
            # With no second form at all, nbconvert warns that it cannot show the first output.
            outputs = [{_VIEW: view, "text/html": ""}, bundle | {"text/html": str(_STYLE + static)}]
        for output in outputs:
            display(output, raw=True)  # type: ignore[no-untyped-call]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs) or {}
        return bundle | {"text/plain": self.face_text(), "text/html": str(self.face_html())}

    # --- work in the background ---------------------------------------------------------------

    def start(self, work: Work) -> bool:
        """Begin async work in the background; returns False while other work is under way.

        What it raises is shown in place, with a button to try again.
        """
        begun = self.worker.start(work)
        if begun:
            self._last_work = work
        return begun

    async def idle(self) -> None:
        """Wait until what was started by a click has ended: ``await widget.idle()``."""
        await self.worker.idle()

    async def do(self, work: Work) -> None:
        """Do async work and wait for it, as a cell does.

        What it raises is shown in place and raised here. Cancelling the caller, which is what
        interrupting a cell does, cancels the work and waits until it has ended.

        Raises:
            ConfigError: other work of this widget is under way.
        """
        failures: list[BaseException] = []

        async def watched() -> None:
            try:
                await work()
            except BaseException as error:
                failures.append(error)
                raise

        if not self.start(watched):
            raise ConfigError("this widget is at work; await widget.idle() first, or stop it")
        try:
            await self.idle()
        except asyncio.CancelledError:
            self.worker.stop()
            await self.idle()
            raise
        if failures and not isinstance(failures[0], asyncio.CancelledError):
            raise failures[0]

    def _on_retry(self, _: object = None) -> None:
        if self._last_work is not None:
            self.start(self._last_work)

    def _begin(self) -> None:
        self.show_error(None)
        self._set_busy(True)

    def _end(self, error: BaseException | None) -> None:
        # A click on another thread may have begun the next piece of work by now.
        self._set_busy(self.worker.busy)
        if isinstance(error, asyncio.CancelledError):
            self.stopped()
        elif error is not None:
            self.say("It failed; what went wrong stands below.")
            self.show_error(error, retry=True)
        self.ended()

    def stopped(self) -> None:
        """Say that the work was stopped."""
        self.say("Stopped.")

    def ended(self) -> None:
        """Do what is due when work has ended, however it did."""

    def _set_busy(self, busy: bool) -> None:
        for control in self.controls:
            control.disabled = busy
        for control in self.stoppers:
            control.disabled = not busy

    # --- a run that is played elsewhere --------------------------------------------------------

    def follow(self, simulation: Run, grew: Callable[[], object]) -> None:
        """Have something done after each turn that a run plays, until the widget is closed.

        Args:
            simulation: the run; the one followed before is followed no longer.
            grew: what is done, in the thread that plays.
        """
        self.unfollow()
        self._deafen = follow(simulation, grew)

    def unfollow(self) -> None:
        """Follow no run any more."""
        if self._deafen is not None:
            self._deafen()
            self._deafen = None

    def close(self) -> None:
        """Take the widget from the page with all its parts, and stop what it is doing.

        What it showed stays in the notebook as the static view.
        """
        self.unfollow()
        if self._built:
            self.worker.stop()
        parts = []
        if self._built and self.comm is not None:
            # Not every widget has a place for what it could say.
            parts = [self.status, self.error, self.retry, *_parts(self), *_parts(self.retry)]
        super().close()
        for part in parts:
            part.close()

    # --- what is said in place ----------------------------------------------------------------

    def say(self, text: object) -> None:
        """Show one line on what is going on."""
        value = f'<div role="status" aria-live="polite">{safe(text)}</div>'
        if self.status.value != value:
            self.status.value = value

    def show_error(self, error: BaseException | None, *, retry: bool = False) -> None:
        """Show what went wrong, or nothing any more.

        Args:
            error: the exception; None takes an earlier one away.
            retry: whether to offer to try again.
        """
        self.retry.layout.display = "" if error is not None and retry else "none"
        self.error.value = "" if error is None else str(_alert(error))


def _parts(widget: w.Widget) -> Iterator[w.Widget]:
    """Yield what a widget is made of: children, layouts and styles, and theirs."""
    for value in widget.trait_values(sync=True).values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, w.Widget):
                yield part
                yield from _parts(part)


def _alert(error: BaseException) -> Markup:
    what = Markup("<strong>{}</strong>: {}").format(type(error).__name__, safe(error, limit=2_000))
    if not isinstance(error, LabError):
        lines = "".join(traceback.format_exception(error))
        what = join([what, details("Where it happened", pre(lines))])
    return Markup(
        '<div role="alert" style="border-left:4px solid #cf222e;padding:4px 8px">{}</div>'
    ).format(what)
