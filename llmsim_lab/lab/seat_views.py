"""What a seat shows, as HTML and text: the state, the prompt, the answers given."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from markupsafe import Markup

from llmsim_lab.agents import HumanAgent
from llmsim_lab.lab.seat_layout import Player
from llmsim_lab.lab.turn_facts import decisions_of
from llmsim_lab.llm._human import OpenQuestion
from llmsim_lab.markup import badge, details, join, pairs, pre, safe, table
from llmsim_lab.models import Action, LLMReasoningChain, SimulationState
from llmsim_lab.runs import Run
from llmsim_lab.simulation import Simulation
from llmsim_lab.text import clip, number

__all__ = ["answers_html", "answers_text", "news", "prompt_html", "state_html", "title"]

_LATEST = 8
"""Turns whose answers are shown."""

_INDICATORS = (
    ("GDP growth", "gdp_growth", "% at an annual rate"),
    ("Inflation", "inflation", "% over four quarters"),
    ("Unemployment", "unemployment", "%"),
    ("Interest rate", "interest_rate", "% per year"),
)
"""What the shipped prompt names, and no more: a person knows what a model knows."""

_ROLES = {"system": "Who you are", "user": "What you are asked", "assistant": "Your first answer"}


_CELL_WAITS = (
    " A cell waits for this turn, and clicks may not be heard until it ends: interrupt it, and "
    "start the turn with Step."
)


def news(
    simulation: Run,
    waiting: Sequence[str],
    *,
    mine: bool,
    playing: bool,
    elsewhere: bool,
) -> str:
    """Return one line on what is going on, and what to do about it.

    Args:
        simulation: the run.
        waiting: the people whose answers the turn waits for.
        mine: whether the person shown is among them.
        playing: whether a seat's turn is under way.
        elsewhere: whether the turn is played on another event loop, as by ``run()`` in a cell.
    """
    turn, planned = simulation.turn_number, simulation.config.turns
    if waiting:
        here = "It is your turn to answer. " if mine else ""
        hint = _CELL_WAITS if elsewhere else ""
        return f"{here}Turn {turn + 1} waits for: {', '.join(waiting)}.{hint}"
    if playing:
        return f"Turn {turn + 1} is being played."
    if turn >= planned > 0:
        played = "The one turn is played" if planned == 1 else f"All {planned} turns are played"
        score = " Score shows how you did." if isinstance(simulation, Simulation) else ""
        return f"{played}.{score}"
    return f"{turn} of {planned} turns are played. Step starts turn {turn + 1}."


def title(simulation: Run, agents: Mapping[str, HumanAgent | Player]) -> str:
    """Return who sits at a seat, where the run is, and whether it waits for them."""
    where = rate = ""
    if isinstance(simulation, Simulation):
        state = simulation.state
        where = f" ({state.period})" if state.period else ""
        rate = f", rate {state.global_state.interest_rate:.2f}%"
    asked = [name for name, agent in agents.items() if agent.question is not None]
    waits = f", waits for {', '.join(asked)}" if asked else ""
    names = clip(", ".join(agents), 200)
    return f"Seat of {names}: turn {simulation.turn_number}{where}{rate}{waits}"


def state_html(name: str, state: SimulationState) -> Markup:
    """Return the indicators as a table.

    Args:
        name: whose seat it is.
        state: what the person decides on.
    """
    economy = state.global_state
    where = f"{state.period}, turn {state.turn}" if state.period else f"turn {state.turn}"
    rows = [
        (label, f"{number(getattr(economy, field))} {unit}") for label, field, unit in _INDICATORS
    ]
    return pairs(rows, caption=f"{name}: the economy in {where}")


def prompt_html(question: OpenQuestion, *, open: bool = False) -> Markup:  # noqa: A002
    """Return what a model would be sent, message by message, folded unless ``open``."""
    parts = [
        Markup("<p><strong>{}</strong></p>{}").format(
            safe(f"{_ROLES.get(message.role, message.role)} ({message.role} message)"),
            pre(message.content),
        )
        for message in question.request.messages
    ]
    return details("The prompt: what a model in your seat would be sent", join(parts), open=open)


def _answers(simulation: Simulation, names: Collection[str]) -> Iterator[tuple[int, float, Action]]:
    for turn in simulation.turns[-_LATEST:]:
        for action in turn.actions:
            if action.agent_name in names:
                yield turn.number, turn.state.global_state.interest_rate, action


def _said(
    simulation: Run, names: Collection[str]
) -> Iterator[tuple[int, str, str, LLMReasoningChain]]:
    """Yield turn, player, answer and its chain of a world of one's own, of the latest turns."""
    for turn in simulation.turns[-_LATEST:]:
        for who in decisions_of(turn)[1]:
            asked = [chain for its in who.chains.values() for chain in its]
            for words, chain in zip(who.proposed, asked, strict=True):
                by_person = chain.call is not None and chain.call.request.model == "human"
                if by_person and (who.agent in names or not names):
                    yield turn.number, who.agent, words, chain


def answers_text(simulation: Run, names: Collection[str]) -> list[str]:
    """Return the latest answers, a line each."""
    if not isinstance(simulation, Simulation):
        said = [
            f"turn {turn}: {who} ({chain.status}): {clip(words, 100)}"
            for turn, who, words, chain in _said(simulation, names)
        ]
        return said or ["no answer yet"]
    lines = [
        f"turn {turn}: {action.agent_name} ({action.status}): {clip(action.action_string, 100)}; "
        f"rate {rate:.2f}%"
        for turn, rate, action in _answers(simulation, names)
    ]
    return lines or ["no answer yet"]


def answers_html(simulation: Run, names: Collection[str]) -> Markup:
    """Return the latest answers as a table."""
    if not isinstance(simulation, Simulation):
        return _table(
            ("turn", "who", "answer", "reasoning", "confidence", "status"),
            [
                (
                    turn,
                    who,
                    words,
                    chain.reasoning,
                    "" if chain.confidence is None else f"{chain.confidence:g}",
                    badge(chain.status),
                )
                for turn, who, words, chain in _said(simulation, names)
            ],
        )
    rows = [
        (
            turn,
            action.agent_name,
            action.action_string,
            "" if action.proposed_rate is None else f"{number(action.proposed_rate)} %",
            action.policy_decision.reasoning if action.policy_decision else "",
            f"{action.policy_decision.confidence:g}" if action.policy_decision else "",
            badge(action.status),
            f"{rate:.2f} %",
        )
        for turn, rate, action in _answers(simulation, names)
    ]
    return _table(
        ("turn", "who", "action", "asks for", "reasoning", "confidence", "status", "rate"), rows
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    if not rows:
        return Markup("<p>No answer yet.</p>")
    return table(header, rows, caption=f"The answers of the latest {_LATEST} turns")
