"""What a saved notebook keeps of a window: plain text and simple HTML, the same for the same run.

It holds nothing that differs from one replay to the next, such as seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from llmsim_lab._util.html import STATUS_COLOURS, badge, details, join, pre, safe, styled, table
from llmsim_lab._util.text import clip, few, number, printable
from llmsim_lab.lab._picture import is_number
from llmsim_lab.llm.scope import caller
from llmsim_lab.run._reading import Reading, spoken
from llmsim_lab.run._turn import Turn, plain_series, with_outcomes
from llmsim_lab.tape.changes import indented
from llmsim_lab.types import CallRecord

_MOST_FACTS = 12
_MOST_DECISIONS = 10
_MOST_RUNS = 40


def tree_lines(reading: Reading) -> list[str]:
    """Return the runs as a tree, a line each, with what each changed."""
    lines = []
    for run in list(reading.runs.values()):
        origin = run["verb"] if run["fork"] is None else f"{run['verb']} at turn {run['fork']}"
        words = [run["name"], origin, "; ".join(run["changes"]), run["model"] or "no model"]
        line = clip(printable(" · ".join(filter(None, words))), 160)
        lines.append((run["id"], run["parent"], line))
    return few(indented(lines), _MOST_RUNS)


def turn_name(turn: Turn) -> str:
    """Return a turn's number and period: ``Turn 3 (1980Q2)``."""
    name, period = f"Turn {turn.number}" if turn.number else "Start", turn.columns().get("period")
    return f"{name} ({printable(str(period))})" if period else name


def _facts(run: Any, turn: Turn) -> Iterator[tuple[str, str, str]]:
    """Yield the values to show of a turn: name with unit, value, change since the turn before."""
    now = turn.columns()
    before = (it.columns() for it in run.turns if it.number == turn.number - 1)
    was: dict[str, Any] = next(before, {})
    series = [item for item in run.series if item.column in now] or plain_series(now)
    for item in series[:_MOST_FACTS]:
        value = now[item.column]
        yield printable(str(item)), _value(value), _change(was.get(item.column), value)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return number(value)
    return "none" if value is None else clip(printable(str(value)), 60)


def _change(before: Any, now: Any) -> str:
    if not (is_number(before) and is_number(now)) or round(now - before, 4) == 0:
        return ""
    return f"{'+' if now > before else '-'}{number(abs(now - before))}"


def _decided(turn: Turn) -> Iterator[tuple[str, str, str, str]]:
    """Yield the first decisions of a turn: who, how it was made, what, and why."""
    for answer, became in with_outcomes(turn)[:_MOST_DECISIONS]:
        fields = answer.fields or became
        words = printable(", ".join(f"{name} {_value(it)}" for name, it in fields.items()))
        how = answer.status if answer.calls else "no model"
        yield answer.player or answer.component, how, clip(words, 120), answer.reasoning


def turn_text(run: Any, turn: Turn) -> str:
    """Return a turn as a few lines of plain text."""
    lines = [turn_name(turn)]
    for label, value, change in _facts(run, turn):
        lines.append(f"  {label}: {value}" + (f" ({change})" if change else ""))
    lines += [f"from outside: {clip(printable(str(it)), 200)}" for it in turn.interventions]
    for who, _, words, why in _decided(turn):
        lines.append(f"  {printable(who)}: {clip(words or printable(why, keep=' '), 100)}")
    if (left := len(turn.answers) - _MOST_DECISIONS) > 0:
        lines.append(f"  and {left} more decisions")
    return "\n".join(lines)


def turn_html(run: Any, turn: Turn) -> Markup:
    """Return a turn as simple HTML: its state, what was done from outside, its decisions."""
    heading = styled(styled(turn_name(turn), tag="strong"), tag="p")
    parts = [heading, table(("variable", "value", "change"), list(_facts(run, turn)))]
    parts += [styled(safe(f"From outside: {it}", limit=300)) for it in turn.interventions]
    rows: list[Any] = []
    for who, how, words, why in _decided(turn):
        status = badge(how) if how in STATUS_COLOURS else how
        rows.append((who, status, words, styled(clip(why, 300), tag="span", dir="auto")))
    if rows:
        parts.append(table(("who", "status", "answer", "why"), rows, caption="Decisions"))
    return join(parts)


def call_html(call: CallRecord) -> Markup:
    """Return a call's prompt and reply as simple HTML."""
    *said, (_, reply) = _spoken(call)
    parts = [styled(styled(role, tag="strong")) + pre(text) for role, text in said]
    site = call.request.site
    head = styled(f"Turn {site.turn if site else '?'} · {caller(site)}", tag="p")
    return join([head, details("The prompt", join(parts), open=True), pre(reply)])


def call_text(call: CallRecord) -> str:
    """Return a call's prompt and reply as plain text."""
    return clip("\n".join(f"[{role}]\n{text}" for role, text in _spoken(call)), 4_000)


def _spoken(call: CallRecord) -> list[tuple[str, str]]:
    """Return a call's messages and, last, its reply or what went wrong, each with its role."""
    fault = call.history[-1].reason or "no reply"
    reply = fault if call.reply is None else call.reply.text
    return [*map(spoken, call.request.messages), ("reply", reply)]
