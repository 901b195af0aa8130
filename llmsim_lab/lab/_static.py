"""What a saved notebook keeps of a window: plain text and simple HTML, the same for the same run.

It is made of a ``Reading``, as what browsers show is, and holds nothing that differs from one
replay to the next, such as seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from llmsim_lab._util.html import badge, details, join, pre, safe, styled, table
from llmsim_lab._util.text import clip, number, printable
from llmsim_lab.run._reading import Reading

_MOST_FACTS = 12
_MOST_DECISIONS = 10
_MOST_RUNS = 40


def tree_lines(reading: Reading) -> list[str]:
    """Return the runs as a tree, a line each, with what each changed."""
    lines = []
    for run in list(reading.runs.values())[:_MOST_RUNS]:
        depth, at = 0, run
        while (parent := reading.runs.get(at["parent"])) is not None:
            depth, at = depth + 1, parent
        origin = run["verb"] if run["fork"] is None else f"{run['verb']} at turn {run['fork']}"
        words = [run["name"], origin, "; ".join(run["changes"]), run["model"] or "no model"]
        line = clip(printable(" · ".join(filter(None, words))), 160)
        lines.append(f"{'   ' * depth}{run['id']} {line}")
    left = len(reading.runs) - len(lines)
    return [*lines, *([f"and {left} more runs"] if left else [])]


def turn_name(reading: Reading, run: int, n: int) -> str:
    """Return a turn's number and period: ``Turn 3 (1980Q2)``."""
    columns, turn = reading.runs[run]["columns"], reading.turn(run, n)
    name = f"Turn {n}" if n else "Start"
    row = dict(zip(columns, turn["row"], strict=False)) if turn else {}
    return f"{name} ({printable(str(row['period']))})" if row.get("period") else name


def _facts(reading: Reading, run: int, n: int) -> Iterator[tuple[str, str, str]]:
    """Yield the values to show of a turn: name with unit, value, change since the turn before."""
    known = reading.runs[run]
    now, was = (
        dict(zip(known["columns"], turn["row"], strict=False)) if turn else {}
        for turn in (reading.turn(run, n), reading.turn(run, n - 1))
    )
    series = [item for item in known["series"] if item["column"] in now]
    plain = [{"column": name, "label": name.replace("_", " "), "unit": ""} for name in now]
    for item in (series or plain)[:_MOST_FACTS]:
        value, before = now[item["column"]], was.get(item["column"])
        label = f"{item['label']} ({item['unit']})" if item["unit"] else item["label"]
        yield label, _value(value), _change(before, value)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return number(value)
    return "none" if value is None else clip(printable(str(value)), 60)


def _change(before: Any, now: Any) -> str:
    numeric = all(isinstance(it, int | float) and not isinstance(it, bool) for it in (before, now))
    if not numeric or round(now - before, 4) == 0:
        return ""
    return f"{'+' if now > before else '-'}{number(abs(now - before))}"


def _decided(made: dict[str, Any]) -> str:
    """Return what a player decided, in words."""
    fields = made["answer"] or made["became"]
    return clip(printable(", ".join(f"{name} {_value(it)}" for name, it in fields.items())), 120)


def turn_text(reading: Reading, run: int, n: int) -> str:
    """Return a turn as a few lines of plain text."""
    turn = reading.turn(run, n)
    lines = [turn_name(reading, run, n)]
    for label, value, change in _facts(reading, run, n):
        lines.append(f"  {label}: {value}" + (f" ({change})" if change else ""))
    if turn is not None:
        lines += [f"from outside: {clip(printable(words), 200)}" for words in turn["done"]]
        made = turn["decisions"]
        for one in made[:_MOST_DECISIONS]:
            words = _decided(one) or printable(reading.text(one["why"]), keep=" ")
            who = one["player"] or one["component"]
            lines.append(f"  {printable(who)}: {clip(words, 100)}")
        if len(made) > _MOST_DECISIONS:
            lines.append(f"  and {len(made) - _MOST_DECISIONS} more decisions")
    return "\n".join(lines)


def turn_html(reading: Reading, run: int, n: int) -> Markup:
    """Return a turn as simple HTML: its state, what was done from outside, its decisions."""
    turn = reading.turn(run, n)
    heading = styled(styled(turn_name(reading, run, n), tag="strong"), tag="p")
    parts = [heading, table(("variable", "value", "change"), list(_facts(reading, run, n)))]
    if turn is not None:
        parts += [styled(safe(f"From outside: {words}", limit=300)) for words in turn["done"]]
        rows = [
            (
                safe(one["player"] or one["component"]),
                badge(one["status"]) if one["calls"] else "by rule",
                safe(_decided(one)),
                styled(clip(reading.text(one["why"]), 300), tag="span", dir="auto"),
            )
            for one in turn["decisions"][:_MOST_DECISIONS]
        ]
        if rows:
            parts.append(table(("who", "status", "answer", "why"), rows, caption="Decisions"))
    return join(parts)


def call_html(reading: Reading, call: dict[str, Any]) -> Markup:
    """Return a call's prompt and reply as simple HTML."""
    tried = call["tries"][-1]
    who = " · ".join(filter(None, (call.get("player", ""), call.get("component", ""))))
    said = [
        styled(styled(role, tag="strong")) + pre(reading.text(text))
        for role, text in tried["messages"]
    ]
    reply = reading.text(tried["reply"]) if "reply" in tried else tried.get("fault", "no reply")
    head = styled(f"Turn {call.get('n', '?')} · {who}", tag="p")
    return join([head, details("The prompt", join(said), open=True), pre(reply)])


def call_text(reading: Reading, call: dict[str, Any]) -> str:
    """Return a call's prompt and reply as plain text."""
    tried = call["tries"][-1]
    reply = reading.text(tried["reply"]) if "reply" in tried else tried.get("fault", "no reply")
    said = [f"[{role}]\n{reading.text(text)}" for role, text in tried["messages"]]
    return clip("\n".join(printable(it, keep="\n\t") for it in (*said, "[reply]", reply)), 4_000)


def chosen(reading: Reading, run: int, n: int) -> Sequence[dict[str, Any]]:
    """Return the calls of a turn, or the last that the run made."""
    turn = reading.turn(run, n)
    its = [reading.calls[k] for k in turn["calls"]] if turn else []
    return its or [call for call in reading.calls.values() if call["run"] == run][-1:]
