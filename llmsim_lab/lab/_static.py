"""What a saved notebook keeps of a widget: plain text and simple HTML, the same for the same run.

Of a window it is made of a ``Reading``, as what browsers show is, and holds nothing that differs
from one replay to the next, such as seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from IPython.display import DisplayHandle, display
from markupsafe import Markup

from llmsim_lab._util.html import STATUS_COLOURS, badge, details, join, pre, safe, styled, table
from llmsim_lab._util.text import clip, few, number, printable
from llmsim_lab.run._reading import Reading
from llmsim_lab.tape._changes import indented

_MOST_FACTS = 12
_MOST_DECISIONS = 10
_MOST_RUNS = 40
_VIEW = "application/vnd.jupyter.widget-view+json"


class Kept:
    """A widget that is shown as two outputs: itself, and its static view, of which one is seen.

    Of a single output JupyterLab would show the widget only, and in a reopened notebook that its
    model was not found. An output is a jp-OutputArea-child in JupyterLab, Notebook 7 and
    nbconvert's pages, and an output_container in VS Code. Behind a live widget the style hides the
    static view; before a static view it hides what is left of a widget that is gone: a panel, or an
    element of the class jupyter-widgets. On a dark page a figure is dark, too: light and dark
    change places, and hues stay.
    """

    style: ClassVar[str] = (
        ":is(.jp-OutputArea-child,.output_container):has(.llmsim-live)"
        "+:is(.jp-OutputArea-child,.output_container):has(.llmsim-static),"
        ".jp-OutputArea-child:has(>.lm-Panel,.jupyter-widgets):not(:has(.llmsim-live))"
        ":has(+.jp-OutputArea-child .llmsim-static){display:none}"
        "[data-jp-theme-light=false] .llmsim-figure{filter:invert(.9) hue-rotate(180deg)}"
    )
    comm: Any
    _kept: DisplayHandle | None = None

    def static_text(self) -> str:
        """Return what the widget shows, as plain text; the same for the same run."""
        raise NotImplementedError

    def static_html(self) -> Markup:
        """Return what the widget shows, as simple HTML; the same for the same run."""
        return pre(self.static_text())

    def _ipython_display_(self) -> None:
        if view := self._live_data().get(_VIEW):
            # The live output's HTML is empty, so that a page without widgets shows the facts once;
            # with no second form at all, nbconvert would warn that it cannot show that output.
            display({_VIEW: view, "text/html": ""}, raw=True)  # type: ignore[no-untyped-call]
        self._kept = display(self._static_data(), raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return self._live_data() | self._static_data()

    def _live_data(self) -> dict[str, Any]:
        if self.comm is None:  # closed
            return {}
        made: Any = super()._repr_mimebundle_()  # type: ignore[misc]
        return made[0] if isinstance(made, tuple) else made or {}

    def _static_data(self) -> dict[str, Any]:
        html = self.static_html()
        if self.comm is not None:
            kept = styled(html, **{"class": "llmsim-static"})
            html = Markup(f"<style>{self.style}</style>") + kept
        return {"text/plain": self.static_text(), "text/html": str(html)}

    def keep(self) -> None:
        """Write the static view into the notebook anew, where the widget was displayed last."""
        if self._kept is not None and self.comm is not None:
            self._kept.update(self._static_data(), raw=True)  # type: ignore[no-untyped-call]


def tree_lines(reading: Reading) -> list[str]:
    """Return the runs as a tree, a line each, with what each changed."""
    lines = []
    for run in list(reading.runs.values()):
        origin = run["verb"] if run["fork"] is None else f"{run['verb']} at turn {run['fork']}"
        words = [run["name"], origin, "; ".join(run["changes"]), run["model"] or "no model"]
        line = clip(printable(" · ".join(filter(None, words))), 160)
        lines.append((run["id"], run["parent"], line))
    return few(indented(lines), _MOST_RUNS)


def turn_name(reading: Reading, run: int, n: int) -> str:
    """Return a turn's number and period: ``Turn 3 (1980Q2)``."""
    name, row = f"Turn {n}" if n else "Start", _row(reading, run, n)
    return f"{name} ({printable(str(row['period']))})" if row.get("period") else name


def _row(reading: Reading, run: int, n: int) -> dict[str, Any]:
    """Return a turn's values by column; nothing where there is no such turn."""
    if (turn := reading.turn(run, n)) is None:
        return {}
    # Of the run that played it, since each has its own order of columns.
    return dict(zip(reading.runs[turn["run"]]["columns"], turn["row"], strict=False))


def _facts(reading: Reading, run: int, n: int) -> Iterator[tuple[str, str, str]]:
    """Yield the values to show of a turn: name with unit, value, change since the turn before."""
    now, was = _row(reading, run, n), _row(reading, run, n - 1)
    series = [item for item in reading.runs[run]["series"] if item["column"] in now]
    plain = [{"column": name, "label": name.replace("_", " "), "unit": ""} for name in now]
    for item in (series or plain)[:_MOST_FACTS]:
        value, before = now[item["column"]], was.get(item["column"])
        label = f"{item['label']} ({item['unit']})" if item["unit"] else item["label"]
        yield printable(label), _value(value), _change(before, value)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return number(value)
    return "none" if value is None else clip(printable(str(value)), 60)


def _change(before: Any, now: Any) -> str:
    numeric = all(isinstance(it, int | float) and not isinstance(it, bool) for it in (before, now))
    if not numeric or round(now - before, 4) == 0:
        return ""
    return f"{'+' if now > before else '-'}{number(abs(now - before))}"


def _decided(reading: Reading, turn: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the first decisions of a turn: who, how it was made, what, and why."""
    for made in turn["decisions"][:_MOST_DECISIONS]:
        fields = made["answer"] or made["became"]
        words = printable(", ".join(f"{name} {_value(it)}" for name, it in fields.items()))
        how = made["status"] if made["calls"] else "by rule"
        yield made["player"] or made["component"], how, clip(words, 120), reading.text(made["why"])


def turn_text(reading: Reading, run: int, n: int) -> str:
    """Return a turn as a few lines of plain text."""
    lines = [turn_name(reading, run, n)]
    for label, value, change in _facts(reading, run, n):
        lines.append(f"  {label}: {value}" + (f" ({change})" if change else ""))
    if (turn := reading.turn(run, n)) is not None:
        lines += [f"from outside: {clip(printable(words), 200)}" for words in turn["done"]]
        for who, _, words, why in _decided(reading, turn):
            lines.append(f"  {printable(who)}: {clip(words or printable(why, keep=' '), 100)}")
        if (left := len(turn["decisions"]) - _MOST_DECISIONS) > 0:
            lines.append(f"  and {left} more decisions")
    return "\n".join(lines)


def turn_html(reading: Reading, run: int, n: int) -> Markup:
    """Return a turn as simple HTML: its state, what was done from outside, its decisions."""
    heading = styled(styled(turn_name(reading, run, n), tag="strong"), tag="p")
    parts = [heading, table(("variable", "value", "change"), list(_facts(reading, run, n)))]
    if (turn := reading.turn(run, n)) is not None:
        parts += [styled(safe(f"From outside: {words}", limit=300)) for words in turn["done"]]
        rows: list[Any] = []
        for who, how, words, why in _decided(reading, turn):
            status = badge(how) if how in STATUS_COLOURS else how
            rows.append((who, status, words, styled(clip(why, 300), tag="span", dir="auto")))
        if rows:
            parts.append(table(("who", "status", "answer", "why"), rows, caption="Decisions"))
    return join(parts)


def call_html(reading: Reading, call: dict[str, Any]) -> Markup:
    """Return a call's prompt and reply as simple HTML."""
    *said, (_, reply) = _spoken(reading, call)
    parts = [styled(styled(role, tag="strong")) + pre(text) for role, text in said]
    who = " · ".join(filter(None, (call.get("player", ""), call.get("component", ""))))
    head = styled(f"Turn {call.get('n', '?')} · {who}", tag="p")
    return join([head, details("The prompt", join(parts), open=True), pre(reply)])


def call_text(reading: Reading, call: dict[str, Any]) -> str:
    """Return a call's prompt and reply as plain text."""
    return clip("\n".join(f"[{role}]\n{text}" for role, text in _spoken(reading, call)), 4_000)


def _spoken(reading: Reading, call: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a call's messages and, last, its reply or what went wrong, each with its role."""
    tried = call["tries"][-1]
    reply = reading.text(tried["reply"]) if "reply" in tried else tried.get("fault", "no reply")
    return [*((role, reading.text(text)) for role, text in tried["messages"]), ("reply", reply)]


def chosen(reading: Reading, run: int, n: int) -> Sequence[dict[str, Any]]:
    """Return the calls of a turn, or the last that the run made."""
    turn = reading.turn(run, n)
    its = [reading.calls[k] for k in turn["calls"]] if turn else []
    return its or [call for call in reading.calls.values() if call["run"] == run][-1:]
