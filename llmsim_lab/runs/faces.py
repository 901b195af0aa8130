"""How runs and turns look where a notebook's cell ends in one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from llmsim_lab.faces import cell
from llmsim_lab.markup import badge, details, join, pairs, safe, table

if TYPE_CHECKING:
    from llmsim_lab.models import LLMReasoningChain
    from llmsim_lab.runs.base import Run
    from llmsim_lab.runs.turn import RunTurn

__all__ = ["run_html", "turn_html"]

_LATEST = 5
_MOST_CHAINS = 30
_MOST_COLUMNS = 8


def run_html(run: Run) -> Markup:
    """Return a run's name, place and latest turns; the same for the same run."""
    info = run.tape.path.name if run.tape is not None else "none"
    where = f"{info}, run {run.run_id}" if run.run_id is not None else info
    facts: list[tuple[object, object]] = [
        ("turn", run.turn_number),
        ("tape", f"not recorded: {run.unrecorded}" if run.unrecorded else where),
        ("decisions", _shares(run.statuses)),
    ]
    facts += [("planned", words) for words in _to_come(run)]
    return join(
        [
            pairs(facts, caption=f"{type(run).__name__} {run.config.name!r}"),
            _latest(run),
        ]
    )


def _to_come(run: Run) -> Iterable[str]:
    end = run.run_reaches
    for at in sorted(at for at in run.planned if at > run.turn_number):
        for item in run.planned[at]:
            beyond = end is not None and at > end
            yield f"{item}{f' (run() would end at turn {end})' if beyond else ''}"


def _shares(statuses: Mapping[Any, float]) -> Markup:
    if not statuses:
        return safe("no model was asked")
    parts = [
        Markup("{} {}").format(badge(status), f"{share:.0%}") for status, share in statuses.items()
    ]
    return join(parts, between=" ")


def _latest(run: Run) -> Markup:
    columns = [series.column for series in run.series if series.short][:_MOST_COLUMNS]
    turns = run.turns[-_LATEST:]
    rows = []
    for turn in turns:
        own = run.own_columns(turn)
        numbers = [cell(own.get(column)) for column in columns]
        rows.append([turn.number, *numbers, "; ".join(map(str, turn.interventions))])
    header = ["turn", *(name.replace("_", " ") for name in columns), "interventions"]
    title = "the latest turns" if len(run.turns) > len(turns) else "its turns"
    return table(header, rows, caption=title)


def turn_html(turn: RunTurn[Any, Any]) -> Markup:
    """Return what happened in a turn: why, from outside, at what cost; its state is folded."""
    facts: list[tuple[object, object]] = [("tokens", turn.tokens)]
    facts += [("from outside", str(item)) for item in turn.interventions]
    chains = turn.every_chain
    shown = chains[:_MOST_CHAINS]
    parts: list[object] = [pairs(facts, caption=f"{type(turn).__name__} {turn.number}")]
    if shown:
        parts.append(_chains_table(shown))
    if left := len(chains) - len(shown):
        parts.append(safe(f"… and {left} more decisions"))
    return join([*parts, details("state", cell(turn.state))])


def _chains_table(chains: Sequence[LLMReasoningChain]) -> Markup:
    header = ("component", "agent", "status", "confidence", "reasoning")
    rows: Iterable[Sequence[object]] = (
        (
            chain.component,
            chain.agent,
            badge(chain.status),
            cell(chain.confidence),
            safe(chain.reasoning, limit=500),
        )
        for chain in chains
    )
    return table(header, rows)
