"""What all widgets of the lab share: a static view, work in the background, errors in place.

A widget lives between two threads. Clicks arrive on whichever thread the kernel reads messages on,
and runs are played on an event loop, at times another one than the widget was built under. So a
handler only posts work to the widget's own loop (``Worker``), one piece at a time; what the widget
itself writes into a box is kept apart from a user's choices (``Choices``); and drawing keeps pace
with a run instead of holding it up (``Pace``).
"""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.html import STATUS_COLOURS, details, join, pre, safe, styled, visible
from llmsim_lab._util.text import clip
from llmsim_lab._util.waiting import background_loop
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.lab._static import Kept
from llmsim_lab.types import Status

if TYPE_CHECKING:
    from llmsim_lab.run._run import Run


Work = Callable[[], Coroutine[Any, Any, object]]


class Worker:
    """Does async work in the background, one piece at a time.

    Args:
        on_begin: called before a piece of work begins, in the caller's thread.
        on_end: called on the loop when it has ended, with what went wrong: None for nothing,
            ``CancelledError`` where it was stopped.
        loop: what it works on; the one under which it is made, or the background's, if not given.

    Attributes:
        latest: the work under way, or, if there is none, what was the last.
    """

    def __init__(
        self,
        *,
        on_begin: Callable[[], None] = lambda: None,
        on_end: Callable[[BaseException | None], None] = lambda _: None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._on_begin = on_begin
        self._on_end = on_end
        try:
            self._loop = loop or asyncio.get_running_loop()
        except RuntimeError:
            self._loop = background_loop()
        self._lock = threading.Lock()
        self.latest: Work | None = None
        self._task: asyncio.Task[object] | None = None
        self._ended: Future[BaseException | None] = Future()
        self._ended.set_result(None)

    @property
    def busy(self) -> bool:
        """True while work is under way."""
        return self._lock.locked()

    def start(self, work: Work) -> Future[BaseException | None] | None:
        """Begin a piece of work; returns None, and does nothing, while another is under way.

        What it returns ends with the work, and has what went wrong.

        Raises:
            ConfigError: the event loop that the widget was built under is gone.
        """
        # Taken without waiting: a second click while work is under way does nothing.
        if not self._lock.acquire(blocking=False):
            return None
        ended = self._ended = Future[BaseException | None]()
        self.latest = work

        def spawn() -> None:
            self._task = self._loop.create_task(work())
            self._task.add_done_callback(self._done)

        try:
            self._on_begin()
            # Only posted: a click's handler may run on a thread without a loop.
            self._loop.call_soon_threadsafe(spawn)
        except BaseException as error:
            self._lock.release()
            ended.set_result(None)
            # A loop that is closed, as asyncio.run's is at its end, takes no more calls.
            if isinstance(error, RuntimeError) and self._loop.is_closed():
                raise ConfigError(
                    "the event loop that this widget was built under is closed; make it again"
                ) from error
            raise
        return ended

    def stop(self) -> None:
        """Cancel the work under way, if any; it ends soon after."""

        def cancel() -> None:
            # The work may have ended between the click and this call.
            if self._task is not None:
                self._task.cancel()

        if self.busy:
            self.call(cancel)

    def call(self, action: Callable[..., object], *args: object) -> None:
        """Schedule a call on the loop, from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(action, *args)

    async def idle(self) -> None:
        """Wait until no work is under way; cancelling the wait does not cancel the work."""
        # Without the shield, cancelling one wait would cancel the future that all others wait for.
        await asyncio.shield(asyncio.wrap_future(self._ended))

    def _done(self, task: asyncio.Task[object]) -> None:
        self._task = None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        # Released before on_end, which may start the next piece; ``ended`` is this piece's own.
        ended = self._ended
        self._lock.release()
        try:
            self._on_end(error)
        finally:
            ended.set_result(error)


SETTLE_S = 0.05
"""How long fields must have stayed unchanged before a click reads them."""


async def settled(*fields: w.ValueWidget) -> None:
    """Wait until fields have stayed unchanged for a moment; a click awaits it before it reads.

    The kernel may take a click before the changes that came just before it, since it handles the
    messages of one page on several threads.

    Args:
        fields: what is about to be read.
    """
    before: list[object] | None = None
    while before != (now := [field.value for field in fields]):
        before = now
        await asyncio.sleep(SETTLE_S)


def button(
    label: str, tooltip: str, act: Callable[[], object] | None = None, **more: Any
) -> w.Button:
    """Return a button with text on it, as wide as the text needs.

    Args:
        label: the text.
        tooltip: what it does, in a sentence.
        act: called on a click.
        more: traits of the button, such as ``button_style``.
    """
    layout = w.Layout(width="auto", flex="0 0 auto", align_self="flex-start")
    made = w.Button(description=label, tooltip=tooltip, layout=layout, **more)
    if act is not None:
        made.on_click(lambda _: act())
    return made


def block(*parts: object) -> Markup:
    """Return parts as one block with lines of a page's height; long words in tables wrap."""
    return styled(join(parts), "line-height:1.4;overflow-wrap:anywhere")


def sideways(content: object, *, name: str, least: str = "0") -> Markup:
    """Return content with a scroll bar of its own where the page is too narrow for it.

    Args:
        content: such as a table or a picture.
        name: what it is, for screen readers; the arrow keys scroll it.
        least: how narrow it may become, in CSS.
    """
    # Words break only where they are longer than a line, so that columns stay readable. Without
    # a width of 0 the content would widen the whole widget.
    inside = styled(content, f"line-height:1.4;overflow-wrap:break-word;min-width:{least}")
    css = "width:0;min-width:100%;overflow-x:auto"
    return styled(inside, css, tabindex=0, role="region", aria_label=name)


def noted(text: object, *, like: Status = "failed", role: str = "alert") -> str:
    """Return something to notice, in place, which screen readers read out.

    Args:
        text: what is said.
        like: the status that it is as good or bad as.
        role: ``status`` where it can wait until the reader pauses.
    """
    css = f"border-left:4px solid {STATUS_COLOURS[like]};padding:4px 8px"
    return str(styled(safe(text, limit=2_000), css, role=role))


class LabWidget(Kept, w.VBox):
    """Base of the widgets made of ipywidgets' boxes and buttons.

    A widget shows a run and sends it commands; it holds no state of the run's. A saved notebook,
    which has no live widgets, shows its static view: the same facts as plain text and HTML, as they
    were when it was displayed.

    Attributes:
        controls: what is disabled while work is under way: what starts it, and what each widget
            sets.
        stoppers: what is disabled while no work is under way.
        messages: the three that follow, which stand below each other.
        status: one line on what is happening, read out by screen readers.
        error: what went wrong, in place.
        retry: repeats what failed; shown only then.
        worker: what does the work.
    """

    # Labels of boxes have as many lines as they need, and texts lines as close as in a page's. The
    # arrow of a list is light on a dark page; ipywidgets' own is dark.
    style = Kept.style + (
        ".llmsim-live .widget-checkbox,.llmsim-live .widget-checkbox .widget-label-basic"
        "{height:auto;max-width:100%;white-space:normal;line-height:1.5}"
        ".llmsim-live .widget-checkbox{min-height:28px;align-items:center}"
        ".llmsim-live .widget-html-content:not(:empty){line-height:1.5;padding:2px 0}"
        "[data-jp-theme-light=false] .llmsim-live .widget-dropdown>select{background-image:url("
        "'data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22 viewBox=%220 0 18 18%22"
        "%3E%3Cpath fill=%22%23ccc%22 d=%22M5 7l4 4 4-4z%22/%3E%3C/svg%3E')}"
    )
    # ``__del__`` calls close also where __init__ raised, as for a wrong argument.
    _built = False

    def __init__(self) -> None:
        self.controls: Sequence[w.DOMWidget] = ()
        self.stoppers: Sequence[w.DOMWidget] = ()
        self.status = w.HTML()
        self.error = w.HTML()
        self.retry = button(
            "Try again",
            "Do again what failed",
            lambda: self.worker.latest and self.start(self.worker.latest),
            button_style="primary",
        )
        self.retry.layout.display = "none"
        self.messages = (self.status, self.error, self.retry)
        self.worker = Worker(on_begin=self._begin, on_end=self._end)
        self._following = ExitStack()
        # Clicks and questions arrive on threads of their own, turns on the loop.
        self._view = threading.RLock()
        self._choices = Choices(self._view, show_error=self.show_fault)
        super().__init__()
        self.add_class("llmsim-live")
        self._built = True

    # --- work in the background ---------------------------------------------------------------

    def start(self, work: Work) -> Future[BaseException | None] | None:
        """Begin async work in the background; returns None while other work is under way.

        What it raises is shown in place, with a button to try again. What it returns is that of
        ``Worker.start``.
        """
        return self.worker.start(work)

    def starter(self, label: str, tooltip: str, work: Work, **more: Any) -> w.Button:
        """Return one of the controls, a button that starts work; arguments as for ``button``."""
        made = button(label, tooltip, lambda: self.start(work), **more)
        self.controls = (*self.controls, made)
        return made

    def stopper(
        self, label: str, tooltip: str, act: Callable[[], object] | None = None
    ) -> w.Button:
        """Return one of the stoppers, a button that cancels the work under way.

        Args:
            label: the text.
            tooltip: what it does, in a sentence.
            act: called on a click instead.
        """
        made = button(label, tooltip, act or self.worker.stop, disabled=True)
        self.stoppers = (*self.stoppers, made)
        return made

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
        # This work's own: when it has ended, a click may begin the next before this task goes on.
        ended = self.start(work)
        if ended is None:
            raise ConfigError("this widget is at work; await widget.idle() first, or stop it")
        try:
            failure = await asyncio.shield(asyncio.wrap_future(ended))
        except asyncio.CancelledError:
            self.worker.stop()
            await self.idle()
            raise
        # Stopped by the button: that is not an error of the cell that waits.
        if failure is not None and not isinstance(failure, asyncio.CancelledError):
            raise failure

    def _begin(self) -> None:
        self.show_error(None)
        self._set_busy(True)

    def _end(self, error: BaseException | None) -> None:
        # Not simply False: a click on another thread may have begun the next piece of work by now.
        self._set_busy(self.worker.busy)
        if isinstance(error, asyncio.CancelledError):
            self.say("Stopped.")
        elif error is not None:
            self.say("It failed; what went wrong stands below.")
            self.show_error(error, retry=True)
        self.ended()

    def ended(self) -> None:
        """Called when work has ended: done, failed or stopped."""

    def _set_busy(self, busy: bool) -> None:
        for control in self.controls:
            control.disabled = busy
        for control in self.stoppers:
            control.disabled = not busy

    # --- a run that is played elsewhere --------------------------------------------------------

    def follow(self, simulation: Run, grew: Callable[[], object]) -> None:
        """Register a callback for each turn that a run plays, until the widget is closed.

        Args:
            simulation: the run.
            grew: called in the thread that plays.
        """
        self._following.callback(simulation.listen(lambda _: grew()))

    def close(self) -> None:
        """Take the widget from the page with all its parts, and stop what it is doing.

        What it showed stays in the notebook as the static view.
        """
        if self._built:
            self._following.close()
            self.worker.stop()
        parts = []
        if self._built and self.comm is not None:
            # Not every widget has these among its children.
            parts = [*self.messages, *_parts(self), *_parts(self.retry)]
        super().close()
        for part in parts:
            part.close()

    # --- messages in place --------------------------------------------------------------------

    def say(self, text: object) -> None:
        """Show one line on what is happening."""
        self.status.value = f'<div role="status" aria-live="polite">{safe(text)}</div>'

    def show_error(self, error: BaseException | None, *, retry: bool = False) -> None:
        """Show what went wrong, or take an earlier error away.

        Args:
            error: the exception; None takes an earlier one away.
            retry: True to offer to try again.
        """
        self.retry.layout.display = "" if error is not None and retry else "none"
        if error is None:
            self.error.value = ""
            return
        what = [styled(type(error).__name__, tag="strong"), ": ", safe(error, limit=2_000)]
        # A LabError says what to do; of anything else the reader needs to know where it came from.
        if not isinstance(error, LabError):
            lines = "".join(traceback.format_exception(error))
            what.append(details("Where it happened", pre(lines)))
        self.error.value = noted(join(what))

    def show_fault(self, error: LabError | None) -> None:
        """Show a wrong choice until the next one; work that failed stays explained."""
        if error is not None or self.retry.layout.display == "none":
            self.show_error(error)


def _parts(widget: w.Widget) -> Iterator[w.Widget]:
    """Yield a widget's children, layouts and styles, and theirs."""
    for value in widget.trait_values(sync=True).values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, w.Widget):
                yield part
                yield from _parts(part)


_MOST_LABEL_CHARS = 160


class Choices:
    """Tells a user's choices from values that the widget sets.

    Args:
        lock: held while a choice is handled, since choices arrive on threads of their own.
        show_error: called with what went wrong, or with None where nothing did.
    """

    def __init__(
        self,
        lock: threading.RLock | None = None,
        *,
        show_error: Callable[[LabError | None], object] = lambda _: None,
    ) -> None:
        self._lock = lock or threading.RLock()
        self._show_error = show_error
        # By thread: while one fills a box, the user's choice may arrive on another.
        self._here = threading.local()

    def on_choice(self, box: Any, react: Callable[[], object]) -> Any:
        """Register ``react`` as a callback for the user's changes of a box, and return the box."""

        def changed(_: object) -> None:
            if not self.filling:
                self.attempt(react)

        box.observe(changed, names="value")
        return box

    def button(self, label: str, tooltip: str, react: Callable[[], object]) -> w.Button:
        """Return a button that calls ``react``, whose errors are shown."""
        return button(label, tooltip, lambda: self.attempt(react))

    def attempt(self, react: Callable[[], object]) -> None:
        """Do what was chosen, and show what was wrong with it, if anything."""
        # Held throughout, since two choices handled at once would mix what is shown.
        with self._lock:
            self._show_error(None)
            try:
                react()
            except LabError as error:
                self._show_error(error)

    @property
    def filling(self) -> bool:
        """True in the thread that sets values just now."""
        return getattr(self._here, "filling", False)

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Set values inside that are no choices of the user's."""
        before, self._here.filling = self.filling, True
        try:
            yield
        finally:
            self._here.filling = before

    def set(self, box: w.DOMWidget, value: object) -> None:
        """Set a box's value."""
        with self.quietly():
            box.value = value

    def options(
        self, box: w.Dropdown, choices: Sequence[tuple[str, Any]], value: object = None
    ) -> None:
        """Set what a list offers, and its choice: the value where it is offered, else the first.

        Args:
            box: the list.
            choices: what is shown and what it stands for.
            value: what is to be chosen.
        """
        shown = tuple(
            (clip(visible(label), _MOST_LABEL_CHARS) or "(nameless)", choice)
            for label, choice in choices
        )
        values = [choice for _, choice in shown]
        with self.quietly():
            # Setting the same options again would reset the choice, and send it all to the page.
            if shown != tuple(box.options):
                box.options = shown
            if shown:
                box.value = value if value in values else values[0]


def labelled(kind: type[w.ValueWidget], label: str, *, width: str, **more: Any) -> Any:
    """Return a box with its label before it, no wider than the page.

    Args:
        kind: the box.
        label: what stands before it.
        width: of label and box together.
        more: traits of the box.
    """
    layout = w.Layout(width=width, max_width="calc(100% - 4px)")
    style = {"description_width": "initial"}
    return kind(description=label, style=style, layout=layout, **more)


def number_box(label: str, *, value: int, least: int, most: int) -> w.BoundedIntText:
    """Return a box for a whole number.

    Args:
        label: what stands before it.
        value: at first.
        least: the smallest number it takes.
        most: the largest.
    """
    limits = {"min": least, "max": most}
    return labelled(w.BoundedIntText, label, width="12em", value=value, **limits)


def dropdown(
    label: str, *, width: str = "20em", options: Sequence[tuple[str, Any]] = (("", 0),)
) -> w.Dropdown:
    """Return a list to choose from.

    Args:
        label: what stands before it.
        width: of label and list together.
        options: what is shown and what it stands for; one nameless entry until others are known.
    """
    return labelled(w.Dropdown, label, width=width, options=options)


def row(*parts: w.Widget, gap: str = "4px") -> w.HBox:
    """Return widgets beside each other, on further lines where the page is narrow.

    Args:
        parts: the widgets.
        gap: between them, as CSS has it.
    """
    layout = w.Layout(flex_flow="row wrap", align_items="flex-start", grid_gap=gap)
    return w.HBox(parts, layout=layout)


def flex(grow: int, basis: str) -> w.Layout:
    """Return the layout of a part that shares a row with others.

    Args:
        grow: of how many parts of the room that is left it takes one.
        basis: how narrow it may become before it has a line of its own, as CSS has it.
    """
    return w.Layout(flex=f"{grow} 1 {basis}", min_width="0", max_width="100%")


@dataclass(eq=False)
class Pace:
    """Draws soon, once for all the requests made in the meantime.

    It draws on the loop that asks, which is the one the run is played on: the notebook's own is
    blocked while a cell runs. The last request is always followed by a drawing, unless that loop is
    closed first.

    Attributes:
        draw: draws; it shows its errors itself.
        elsewhere: calls a function on a loop, where the caller is on none.
        least_s: the least time between two drawings, seconds.
        rest: for so many times as long as a drawing took, the run has the loop to itself.
    """

    draw: Callable[[], object]
    elsewhere: Callable[[Callable[[], object]], object]
    _: KW_ONLY
    least_s: float = 0.25
    rest: float = 3.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: asyncio.AbstractEventLoop | None = None
    _next: float = 0.0

    def ask(self) -> None:
        """Request a drawing."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.elsewhere(self.ask)
            return
        with self._lock:
            # A loop that was closed early, as a script's is, never drew; so ask again on this one.
            if self._waiting is not None and not self._waiting.is_closed():
                return
            self._waiting = loop
        loop.call_later(max(0.0, self._next - time.monotonic()), self._now)

    def _now(self) -> None:
        with self._lock:
            self._waiting = None
        began = time.monotonic()
        try:
            self.draw()
        finally:
            ended = time.monotonic()
            self._next = ended + max(self.least_s, self.rest * (ended - began))
