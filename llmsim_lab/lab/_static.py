"""What a saved notebook keeps of a window: plain text and simple HTML, the same for the same run.

It holds nothing that differs between two replays, such as seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from llmsim_lab._util.html import STATUS_COLOURS, badge, details, join, pre, safe, styled, table
from llmsim_lab._util.text import clip, counted, few, number, printable
from llmsim_lab.lab._charted_runs import is_number
from llmsim_lab.lab._shown_runs import ShownRun
from llmsim_lab.llm.scope import caller
from llmsim_lab.run.charts import charts_of, field_in_words, lines_of_chart, series_of
from llmsim_lab.run.reading import Reading, spoken
from llmsim_lab.run.series import Series, plain_series
from llmsim_lab.run.turn import Turn, with_outcomes
from llmsim_lab.tape.changes import indented
from llmsim_lab.types import CallRecord

# The new part of a prompt in the words of a change, whose end may be cut off.
_ADDED = re.compile(r"\{\+ ?(.*?)(?: ?\+\}|$)")
_MOST_FACTS = 12
_WORTH_SAYING = {*STATUS_COLOURS} - {"ok"}
"""Statuses that are shown: the answer is not simply the player's own."""
_MOST_DECISIONS = 10
_REASON = "opacity:.75;margin-top:2px"
_MOST_INTERVENTIONS = 40
_MOST_MESSAGES = 1_000
_MOST_RUNS = 40
_MOST_RUNS_IN_TEXT = 8


def tree_lines(reading: Reading) -> list[str]:
    """Return the runs as a tree, one line each, with their changes."""
    lines: list[tuple[int, int | None, str]] = []
    for run in list(reading.runs.values()):  # a copy, since another thread may add a run
        origin = run["verb"]
        if run["fork"] is not None:
            origin += f" at turn {run['fork']}"
        changes = "; ".join(run["changes"])
        model = run["model"] or "no model"
        # A run without changes has no text for them.
        words = filter(None, [run["name"], origin, changes, model])
        line = clip(printable(" · ".join(words)), 160)
        lines.append((run["id"], run["parent"], line))
    return few(indented(lines), _MOST_RUNS)


def run_words(reading: Reading, number: int) -> str:
    """Return a run's number and name, or what it changed in its parent."""
    run = reading.runs[number]
    parent = reading.runs.get(run["parent"])
    if parent is None:
        name = run["name"]
        if len(reading.runs) > 1:
            name = f"{number} {name}"
        return clip(printable(name), 60)
    # There is room for sixty letters, so a changed prompt is shown by its new words.
    changes = [_without_old_words(words) for words in run["changes"]]
    if not changes and run["model"] != parent["model"]:
        changes.append(run["model"] or "no model")
    changes = changes or [f"of run {run['parent']}"]
    return clip(printable(f"{number} {run['verb']}, {'; '.join(changes)}"), 60)


def _without_old_words(change: str) -> str:
    """Return a change in words; for a prompt, only the words that are new in it."""
    prompt, _, edits = change.partition(": ")
    if not prompt.startswith("prompt "):
        return change
    new_words = _ADDED.findall(edits)
    return f"{prompt}: “{' … '.join(new_words)}”" if new_words else change


def family(reading: Reading, number: int) -> list[int]:
    """Return the numbers of a run's family: the runs it came from, and all that came from those."""
    oldest = number
    # Parents have smaller numbers; but on a damaged tape a run may be its own parent.
    while (reading.runs[oldest]["parent"] or oldest) < oldest:
        if reading.runs[oldest]["parent"] not in reading.runs:
            break
        oldest = reading.runs[oldest]["parent"]
    members = {oldest}
    for run in reading.runs.values():  # parents come before their forks
        if run["parent"] in members:
            members.add(run["id"])
    return [each for each in reading.runs if each in members]


def runs_text(reading: Reading) -> list[str]:
    """Return the number of runs, and the first of them; nothing if there is only one."""
    if len(reading.runs) < 2:
        return []
    return [f"{len(reading.runs)} runs", *few(tree_lines(reading), _MOST_RUNS_IN_TEXT)]


def runs_html(reading: Reading) -> list[Markup]:
    """Return the runs as a tree to unfold; nothing if there is only one."""
    if len(reading.runs) < 2:
        return []
    tree = "\n".join(tree_lines(reading))
    return [details(f"{len(reading.runs)} runs", pre(tree))]


def latest_call(run: ShownRun, turn: Turn) -> list[CallRecord]:
    """Return the first call of a turn; without one, the latest before. An empty list if none."""
    if turn.calls:
        return [turn.calls[0]]
    for earlier in reversed(run.turns):
        if earlier.calls:
            return [earlier.calls[-1]]
    return []


def turn_name(turn: Turn) -> str:
    """Return a turn's number and period: ``Turn 3 (1980Q2)``."""
    name = f"Turn {turn.number}" if turn.number else "Start"
    period = turn.columns().get("period")
    if not period:
        return name
    return f"{name} ({printable(str(period))})"


class _Fact(NamedTuple):
    """A value of a turn: its name with unit, and its change since the turn before."""

    name: str
    value: str
    change: str


class _Decided(NamedTuple):
    """A decision: the player, the status, the answer, and the reasons."""

    player: str
    status: str
    words: str
    reasoning: str


def _facts(run: ShownRun, turn: Turn) -> Iterator[_Fact]:
    """Yield the values of a turn to show."""
    columns = turn.columns()
    columns_before: Mapping[str, object] = {}
    for earlier in run.turns:
        if earlier.number == turn.number - 1:
            columns_before = earlier.columns()
    # Without a series in this turn, its columns are shown under their own names.
    shown: Sequence[Series] = [item for item in series_of(run) if item.column in columns]
    if not shown:
        shown = plain_series(columns)
    for series in shown[:_MOST_FACTS]:
        value = columns[series.column]
        change = _change(columns_before.get(series.column), value)
        yield _Fact(
            printable(str(series)),
            _value(value),
            change,
        )


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    if value is None:
        return "none"
    return clip(printable(str(value)), 60)


def _change(before: object, now: object) -> str:
    if not is_number(before) or not is_number(now):
        return ""
    change = now - before
    if round(change, 4) == 0:
        return ""
    sign = "+" if change > 0 else "-"
    return sign + number(abs(change))


def _decisions(turn: Turn) -> Iterator[_Decided]:
    """Yield a turn's first decisions; an engine's answer about a player follows the player's."""
    players: set[str] = set()
    for answer, became in with_outcomes(turn)[:_MOST_DECISIONS]:
        name = answer.player
        if not name or name in players:
            name = answer.component
        players.add(answer.player)
        yield _Decided(
            player=name,
            status=answer.status if answer.calls else "no model",
            words=decision_words(answer.fields or became, 120),
            reasoning=answer.reasoning,
        )


def decision_words(fields: Mapping[str, object], most: int) -> str:
    """Return an answer's fields in words, shortened to so many characters."""
    parts = [_field_words(name, value) for name, value in fields.items()]
    words = ", ".join(parts)
    return clip(printable(words), most)


def _field_words(name: str, value: object) -> str:
    """Return a field in words, as the window does: ``is not valid``, ``new rate 13.5``."""
    if name == "action":
        return _value(value)
    return field_in_words(name, value, _value(value))


def turn_text(run: ShownRun, turn: Turn) -> str:
    """Return a turn as a few lines of plain text."""
    lines = [turn_name(turn)]
    for fact in _facts(run, turn):
        line = f"  {fact.name}: {fact.value}"
        if fact.change:
            line += f" ({fact.change})"
        lines.append(line)
    for intervention in turn.interventions[:_MOST_INTERVENTIONS]:
        # A note may hold anything, also line ends.
        words = printable(str(intervention))
        lines.append(f"from outside: {clip(words, 200)}")
    for decided in _decisions(turn):
        words = decided.words or printable(decided.reasoning, keep=" ")
        lines.append(f"  {printable(decided.player)}: {clip(words, 100)}")
    lines += [f"  {words}" for words in _left_out(turn)]
    return "\n".join(lines)


def _left_out(turn: Turn) -> list[str]:
    """Return how many decisions and interventions are not shown, in words."""
    counts = {
        "decision": len(turn.answers) - _MOST_DECISIONS,
        "intervention": len(turn.interventions) - _MOST_INTERVENTIONS,
    }
    return [f"and {counted(count, f'more {name}')}" for name, count in counts.items() if count > 0]


def turn_html(run: ShownRun, turn: Turn) -> Markup:
    """Return a turn as simple HTML: its state, its interventions, its decisions."""
    heading = styled(turn_name(turn), tag="strong")
    parts = [styled(heading, tag="p")]
    by_player = _columns_by_player(run, turn)
    in_dicts: set[str] = set()
    for columns in by_player.values():
        in_dicts.update(columns.values())
    # The columns of dicts are in a table of their own.
    facts = [fact for fact in _facts(run, turn) if fact.name not in in_dicts]
    if facts:
        parts.append(table(("variable", "value", "change"), facts))
    if by_player:
        parts.append(_player_table(turn, by_player))
    for intervention in turn.interventions[:_MOST_INTERVENTIONS]:
        words = safe(f"From outside: {intervention}", limit=300)
        parts.append(styled(words))
    decisions = list(_decisions(turn))
    if decisions:
        parts.append(_decision_table(decisions))
    parts += [styled(words, tag="p") for words in _left_out(turn)]
    return join(parts)


def _columns_by_player(
    run: ShownRun,
    turn: Turn,
) -> dict[str, dict[str, str]]:
    """Return the columns of dicts of numbers: by the dict's label, then by key."""
    columns = turn.columns()
    by_label: dict[str, dict[str, str]] = {}
    for chart in charts_of(run):
        if "*" not in chart.column:
            continue
        # A state may have a dict for each column: a table has room for some.
        if len(by_label) == _MOST_FACTS:
            break
        of_chart = lines_of_chart(chart, columns)
        if of_chart:
            by_label[chart.label] = of_chart
    return by_label


def _player_table(
    turn: Turn,
    by_label: Mapping[str, Mapping[str, str]],
) -> Markup:
    """Return dicts of numbers as a table with a row for each key and a column for each dict."""
    columns = turn.columns()
    keys: dict[str, None] = {}
    for of_label in by_label.values():
        keys |= dict.fromkeys(of_label)
    rows: list[list[str]] = []
    for key in [*keys][:_MOST_FACTS]:
        row = [printable(key)]
        for of_label in by_label.values():
            # A key that this dict lacks has an empty cell.
            column = of_label.get(key, "")
            row.append(_value(columns.get(column, "")))
        rows.append(row)
    heads = ["", *map(printable, by_label)]
    parts = [table(heads, rows)]
    if len(keys) > _MOST_FACTS:
        parts.append(safe(f"and {len(keys) - _MOST_FACTS} more"))
    return join(parts)


def _decision_table(decisions: Sequence[_Decided]) -> Markup:
    """Return decisions as a table, with a column for the status only if one is worth showing."""
    has_status = any(decided.status in _WORTH_SAYING for decided in decisions)
    heads = ["who", "answer"]
    if has_status:
        heads.insert(1, "status")
    rows = []
    for decided in decisions:
        answer = [styled(decided.words)]
        if decided.reasoning:
            # Below the answer, since a telephone has no room for a column of sentences.
            answer.append(
                styled(
                    clip(decided.reasoning, 300),
                    _REASON,
                    dir="auto",
                )
            )
        cells: list[object] = [decided.player, join(answer)]
        if has_status:
            status = ""
            if decided.status in _WORTH_SAYING:
                status = badge(decided.status)
            cells.insert(1, status)
        rows.append(cells)
    return table(heads, rows, caption="Decisions")


def call_html(call: CallRecord) -> Markup:
    """Return a call's prompt and reply as simple HTML."""
    *messages, (_, reply) = _spoken(call)
    parts: list[Markup] = []
    for role, text in messages[:_MOST_MESSAGES]:
        speaker = styled(role, tag="strong")
        parts.append(styled(speaker) + pre(text))
    if len(messages) > _MOST_MESSAGES:
        parts.append(styled(f"and {len(messages) - _MOST_MESSAGES:,} more messages", tag="p"))
    site = call.request.site
    turn = site.turn if site else "?"
    head = styled(f"Turn {turn} · {caller(site)}", tag="p")
    prompt = details("The prompt", join(parts), open=True)
    return join([head, prompt, pre(reply)])


def call_text(call: CallRecord) -> str:
    """Return a call's prompt and reply as plain text."""
    parts = [f"[{role}]\n{text}" for role, text in _spoken(call)]
    return clip("\n".join(parts), 4_000)


def _spoken(call: CallRecord) -> list[tuple[str, str]]:
    """Return a call's messages, each with its role; last comes the reply, or what went wrong."""
    messages = list(map(spoken, call.request.messages))
    if call.reply is not None:
        return [*messages, ("reply", call.reply.text)]
    # What went wrong with the last attempt.
    fault = call.history[-1].reason or "no reply"
    return [*messages, ("reply", fault)]
