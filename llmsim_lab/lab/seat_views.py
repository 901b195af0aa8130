"""What a seat shows, as HTML and text: the state, the prompt, the answers given."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from markupsafe import Markup

from llmsim_lab.agents import HumanAgent
from llmsim_lab.llm.human import OpenQuestion
from llmsim_lab.markup import badge, details, join, pairs, pre, safe, table
from llmsim_lab.models import Action, SimulationState
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
    simulation: Simulation,
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
        return f"{played}. Score shows how you did."
    return f"{turn} of {planned} turns are played. Step starts turn {turn + 1}."


def title(simulation: Simulation, agents: Mapping[str, HumanAgent]) -> str:
    """Return who sits at a seat, where the run is, and whether it waits for them."""
    state = simulation.state
    where = f" ({state.period})" if state.period else ""
    asked = [name for name, agent in agents.items() if agent.question is not None]
    waits = f", waits for {', '.join(asked)}" if asked else ""
    rate = f"{state.global_state.interest_rate:.2f}%"
    names = clip(", ".join(agents), 200)
    return f"Seat of {names}: turn {simulation.turn_number}{where}, rate {rate}{waits}"


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


def prompt_html(question: OpenQuestion) -> Markup:
    """Return what a model would be sent, message by message, folded."""
    parts = [
        Markup("<p><strong>{}</strong></p>{}").format(
            safe(f"{_ROLES.get(message.role, message.role)} ({message.role} message)"),
            pre(message.content),
        )
        for message in question.request.messages
    ]
    return details("The prompt: what a model in your seat would be sent", join(parts))


def _answers(simulation: Simulation, names: Collection[str]) -> Iterator[tuple[int, float, Action]]:
    for turn in simulation.turns[-_LATEST:]:
        for action in turn.actions:
            if action.agent_name in names:
                yield turn.number, turn.state.global_state.interest_rate, action


def answers_text(simulation: Simulation, names: Collection[str]) -> list[str]:
    """Return the latest answers, a line each."""
    lines = [
        f"turn {turn}: {action.agent_name} ({action.status}): {clip(action.action_string, 100)}; "
        f"rate {rate:.2f}%"
        for turn, rate, action in _answers(simulation, names)
    ]
    return lines or ["no answer yet"]


def answers_html(simulation: Simulation, names: Collection[str]) -> Markup:
    """Return the latest answers as a table."""
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
    if not rows:
        return Markup("<p>No answer yet.</p>")
    header = ("turn", "who", "action", "asks for", "reasoning", "confidence", "status", "rate")
    return table(header, rows, caption=f"The answers of the latest {_LATEST} turns")
