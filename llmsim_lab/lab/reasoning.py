"""The chain of decisions behind a turn: what each component decided for an agent, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from llmsim_lab.lab.prompt_html import parsed_fields
from llmsim_lab.lab.texts import block, prose, word_diff
from llmsim_lab.lab.turn_facts import decisions_of
from llmsim_lab.markup import badge, details, join, safe
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.text import number

if TYPE_CHECKING:
    from llmsim_lab.runs._turn import RunTurn

__all__ = [
    "COLUMNS",
    "Filter",
    "Step",
    "chain_html",
    "changes_of",
    "rows_of",
    "step_row",
    "steps_of",
]

COLUMNS = (
    *("turn", "component", "agent", "status", "confidence", "decided", "reasoning", "model"),
    *("attempts", "prompt_tokens", "reply_tokens", "seconds"),
)
"""Of a frame of steps."""

_SAID_ELSEWHERE = ("reasoning", "confidence")
_MOST_CHARS = 4_000
_MOST_COMPARED_CHARS = 1_000
_FOLDED_FROM = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One link of the chain.

    Attributes:
        chain: the decision's reasoning.
        decided: what was decided, in words; empty where a rule's record does not say.
    """

    chain: LLMReasoningChain
    decided: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which steps are wanted; what is empty lets all pass.

    Attributes:
        agent: its name.
        component: its name.
        status: of the decision.
        text: in what was decided or why, upper and lower case alike.
    """

    agent: str = ""
    component: str = ""
    status: str = ""
    text: str = ""

    def __bool__(self) -> bool:
        return any((self.agent, self.component, self.status, self.text))

    def fits(self, step: Step) -> bool:
        """Say whether a step passes."""
        return (
            self.has_place_for(step)
            and self.status in ("", step.chain.status)
            and self.text.lower() in f"{step.decided}\n{step.chain.reasoning}".lower()
        )

    def has_place_for(self, step: Step) -> bool:
        """Say whether a step is of the agent and the component wanted."""
        chain = step.chain
        return self.agent in ("", chain.agent) and self.component in ("", chain.component)


def steps_of(turn: RunTurn) -> dict[str, list[Step]]:
    """Return a turn's steps by agent, in the order in which they followed."""
    _, agents = decisions_of(turn)
    found: dict[str, list[Step]] = {}
    for who in agents:
        chains = [chain for its in who.chains.values() for chain in its]
        # What a rule proposed is not in its chain, but with the turn's actions or answers.
        proposed = who.proposed
        if len(proposed) != len(chains):
            proposed = ("; ".join(proposed), *[""] * len(chains))
        found[who.agent] = [
            Step(chain=chain, decided=_decided(chain) or said)
            for chain, said in zip(chains, proposed, strict=False)
        ]
    return found


def _decided(chain: LLMReasoningChain) -> str:
    reply = chain.call.reply if chain.call else None
    if reply is None:
        return ""
    fields = parsed_fields(reply)
    if isinstance(fields, str):
        return ""
    said = {name: value for name, value in fields.items() if name not in _SAID_ELSEWHERE}
    return "\n".join(f"{name}: {_plain(value)}" for name, value in said.items())


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def rows_of(steps: dict[str, list[Step]], wanted: Filter) -> dict[str, list[Step]]:
    """Return the agents of whom a step passes, each with the steps that have a place."""
    return {
        agent: [step for step in its if wanted.has_place_for(step)]
        for agent, its in steps.items()
        if any(wanted.fits(step) for step in its)
    }


def step_row(step: Step) -> tuple[Any, ...]:
    """Return a step as a row of a frame; ``COLUMNS`` has the names."""
    chain, call = step.chain, step.chain.call
    return (
        chain.turn,
        chain.component,
        chain.agent,
        chain.status,
        chain.confidence,
        step.decided,
        chain.reasoning,
        call.request.model if call else None,
        call.attempts if call else 0,
        call.prompt_tokens if call else 0,
        call.reply_tokens if call else 0,
        call.seconds if call else 0.0,
    )


# --- as HTML ---------------------------------------------------------------------------------

_ROW = '<div style="display:flex;flex-wrap:wrap;gap:8px;margin-bottom:10px">{}</div>'
_CARD = (
    '<div style="flex:1 1 16em;min-width:0;padding:4px 8px;'
    'border:1px solid var(--jp-border-color1, #999);border-radius:3px">{}</div>'
)
_TITLE = '<div style="font-weight:600">{}</div>'


def chain_html(
    agent: str,
    steps: list[Step],
    *,
    wanted: Filter,
    before: list[Step] | None = None,
    seconds: bool = False,
) -> Markup:
    """Return an agent's steps side by side, on further lines where the page is narrow.

    Args:
        agent: its name.
        steps: its steps.
        wanted: marks those that pass, where something is filtered.
        before: its steps of the turn before, to show what changed; None to leave that out.
        seconds: whether to say how long the calls took.
    """
    cards = []
    for place, step in enumerate(steps):
        found = bool(wanted.status or wanted.text) and wanted.fits(step)
        arrow = "→ " if place else ""
        title = f"{arrow}{step.chain.component}{' (found)' if found else ''}"
        parts = [Markup(_TITLE).format(title), _facts(step.chain, seconds=seconds), _said(step)]
        if before is not None:
            parts.append(_changes(step, before))
        cards.append(Markup(_CARD).format(join(parts)))
    heading = Markup(_TITLE).format(safe(agent, limit=200))
    return block(heading, Markup(_ROW).format(join(cards)))


def _facts(chain: LLMReasoningChain, *, seconds: bool) -> Markup:
    call = chain.call
    by_model = call is not None or chain.status != "ok"
    parts: list[object] = [badge(chain.status) if by_model else "by rule"]
    parts.append(f"confidence {_confidence(chain)}")
    if call is not None:
        parts.append(f"{call.prompt_tokens:,} + {call.reply_tokens:,} tokens")
        if call.attempts > 1:
            parts.append(f"{call.attempts} attempts")
        if seconds:
            parts.append(f"{call.seconds:.2f} s")
    return Markup("<div>{}</div>").format(join(parts, between=" · "))


def _confidence(chain: LLMReasoningChain) -> str:
    return "not asked" if chain.confidence is None else number(chain.confidence)


def _said(step: Step) -> Markup:
    parts = []
    if step.decided:
        decided = prose(step.decided, limit=_MOST_CHARS)
        parts.append(Markup('<div style="font-weight:600">{}</div>').format(decided))
    reasoning = step.chain.reasoning
    shown = prose(reasoning, limit=_MOST_CHARS)
    if len(reasoning) > _FOLDED_FROM:
        shown = details(f"reasoning, {len(reasoning):,} characters", shown)
    return join([*parts, shown])


def changes_of(step: Step, before: list[Step]) -> Iterator[tuple[str, str, str]]:
    """Yield what differs from the same component's step of the turn before: name, then, now.

    Args:
        step: the step.
        before: the agent's steps of the turn before.
    """
    then = next((one for one in before if one.chain.component == step.chain.component), None)
    if then is None:
        yield "step", "", "there was none in the turn before"
        return
    values = (
        ("confidence", _confidence(then.chain), _confidence(step.chain)),
        ("status", then.chain.status, step.chain.status),
        ("decided", then.decided, step.decided),
        ("reasoning", then.chain.reasoning, step.chain.reasoning),
    )
    yield from ((name, was, now) for name, was, now in values if was != now)


def _changes(step: Step, before: list[Step]) -> Markup:
    changes = [
        Markup("<div>{}: {}</div>").format(name, f"{was} → {now}" if was else now)
        if name in ("confidence", "status", "step")
        else join([f"{name}:", word_diff(was, now, limit=_MOST_COMPARED_CHARS)])
        for name, was, now in changes_of(step, before)
    ]
    return join([Markup("<div><em>Changes</em></div>"), *(changes or [safe("none")])])
