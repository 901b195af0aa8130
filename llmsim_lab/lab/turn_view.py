"""How one turn looks in a widget, as HTML and as plain text: state, decisions, interventions.

The text, and the HTML with ``still=True``, hold nothing that differs from one run of the same tape
to the next, such as seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from llmsim_lab.lab.turn_facts import (
    Decisions,
    Fact,
    change_text,
    decisions_of,
    facts_of,
    value_text,
)
from llmsim_lab.markup import badge, details, join, pre, safe, table
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.text import clip, number, printable

if TYPE_CHECKING:
    from llmsim_lab.runs._run import Run
    from llmsim_lab.runs._turn import RunTurn

__all__ = [
    "AGENTS_A_PAGE",
    "cost_text",
    "decisions_html",
    "interventions_html",
    "pages_of",
    "state_html",
    "turn_html",
    "turn_name",
    "turn_text",
]

AGENTS_A_PAGE = 10
_MOST_FACTS = 12
_MOST_FOLDED = 100
_MOST_CHARS = 4_000
_BRIEF = 80


def turn_name(turn: RunTurn) -> str:
    """Return a turn's number and period: ``Turn 3 (1980Q2)``."""
    period = getattr(turn.state, "period", None)
    name = "Initial state" if turn.number == 0 else f"Turn {turn.number}"
    return f"{name} ({printable(str(period))})" if period else name


def cost_text(turn: RunTurn, *, still: bool = False) -> str:
    """Return a turn's model decisions by status, tokens and seconds in words.

    Args:
        turn: the turn.
        still: leave the seconds out.
    """
    counts = [f"{count} {status}" for status, count in turn.statuses.items() if count]
    parts = [f"model decisions: {', '.join(counts)}" if counts else "no model was asked"]
    if turn.tokens:
        parts.append(f"{turn.tokens:,} tokens")
    if turn.number and not still:
        parts.append(f"{turn.seconds:.2f} s")
    return " · ".join(parts)


def state_html(simulation: Run, turn: RunTurn, before: RunTurn | None) -> Markup:
    """Return a turn's state as a table, with the change against the turn before.

    Args:
        simulation: the run.
        turn: the turn.
        before: the one before it, if there is one.
    """
    rows = _rows(facts_of(simulation, turn), facts_of(simulation, before) if before else ())
    main = [row for row in rows if row[0].main] or rows
    parts = [_facts_table(main[:_MOST_FACTS], "State")]
    if more := [row for row in rows if row not in main[:_MOST_FACTS]]:
        parts.append(details(f"{len(more)} more", _facts_table(more[:_MOST_FOLDED], "The rest")))
    return join(parts)


def _rows(now: Sequence[Fact], before: Sequence[Fact]) -> list[tuple[Fact, str]]:
    was = {fact.name: fact.value for fact in before}
    return [
        (fact, change_text(was[fact.name], fact.value) if fact.name in was else "") for fact in now
    ]


def _facts_table(rows: Sequence[tuple[Fact, str]], caption: str) -> Markup:
    cells = [
        (fact.label, _number_cell(value_text(fact.value)), _number_cell(change))
        for fact, change in rows
    ]
    return table(("variable", "value", "change"), cells, caption=caption)


def _number_cell(text: str) -> Markup:
    return Markup('<span style="font-variant-numeric:tabular-nums">{}</span>').format(
        safe(text, limit=200)
    )


def pages_of(turn: RunTurn) -> int:
    """Return how many pages a turn's decisions take."""
    _, agents = decisions_of(turn)
    return max(1, -(-len(agents) // AGENTS_A_PAGE))


def decisions_html(turn: RunTurn, *, page: int = 0) -> Markup:
    """Return a turn's decisions, an agent a row, from left to right as they followed.

    Args:
        turn: the turn.
        page: which ten agents, 0 for the first.
    """
    components, agents = decisions_of(turn)
    if not agents:
        return safe("Nobody has decided anything yet." if turn.number == 0 else "No decisions.")
    shown = agents[page * AGENTS_A_PAGE : (page + 1) * AGENTS_A_PAGE]
    rows = [[who.agent, *(_decision(who, component) for component in components)] for who in shown]
    caption = "Decisions"
    if len(agents) > len(shown):
        first = page * AGENTS_A_PAGE + 1
        caption = f"Decisions of agents {first} to {first + len(shown) - 1} of {len(agents)}"
    return table(("who", *components), rows, caption=caption)


def _decision(who: Decisions, component: str) -> Markup:
    parts = [_chain(chain) for chain in who.chains.get(component, ())]
    # What an agent did stands with the first component, its own.
    if who.proposed and component == next(iter(who.chains), component):
        parts.insert(0, _block(join(map(_brief, who.proposed), between="; ")))
    return join(parts)


def _chain(chain: LLMReasoningChain) -> Markup:
    how = badge(chain.status) if chain.call or chain.status != "ok" else safe("by rule")
    sure = "not asked" if chain.confidence is None else number(chain.confidence)
    head = join([how, f" confidence {sure}"])
    reason = details(clip(chain.reasoning, _BRIEF), pre(chain.reasoning, limit=_MOST_CHARS))
    return join([_block(head), reason])


def _brief(text: str) -> Markup:
    return safe(text, limit=300)


def _block(content: object) -> Markup:
    return Markup("<div>{}</div>").format(safe(content))


def interventions_html(turn: RunTurn) -> Markup:
    """Return what was done from outside, or nothing."""
    if not turn.interventions:
        return Markup()
    done = join((_brief(str(item)) for item in turn.interventions), between="; ")
    return Markup("<p><strong>From outside:</strong> {}</p>").format(done)


def turn_html(simulation: Run, turn: RunTurn, before: RunTurn | None) -> Markup:
    """Return a whole turn as simple HTML without seconds, for where no widget lives."""
    return join(
        [
            Markup("<p><strong>{}</strong> · {}</p>").format(
                turn_name(turn), cost_text(turn, still=True)
            ),
            interventions_html(turn),
            state_html(simulation, turn, before),
            decisions_html(turn),
        ]
    )


def turn_text(simulation: Run, turn: RunTurn, before: RunTurn | None) -> str:
    """Return a turn as a few lines of plain text without seconds."""
    rows = _rows(facts_of(simulation, turn), facts_of(simulation, before) if before else ())
    main = [row for row in rows if row[0].main] or rows
    lines = [f"{turn_name(turn)} · {cost_text(turn, still=True)}"]
    lines += [f"from outside: {clip(printable(str(item)), 200)}" for item in turn.interventions]
    for fact, change in main[:_MOST_FACTS]:
        value = clip(printable(value_text(fact.value)), 60)
        lines.append(f"  {fact.label}: {value}" + (f" ({clip(change, 60)})" if change else ""))
    _, agents = decisions_of(turn)
    for who in agents[:AGENTS_A_PAGE]:
        said = "; ".join(who.proposed) or next(
            (chain.reasoning for chains in who.chains.values() for chain in chains), ""
        )
        lines.append(f"  {printable(who.agent)}: {clip(printable(said, keep=' '), 100)}")
    if len(agents) > AGENTS_A_PAGE:
        lines.append(f"  … and {len(agents) - AGENTS_A_PAGE} more agents")
    return "\n".join(lines)
