"""A person's questions in the economy: they ask for a rate, not a move, and words are optional.

``run`` is a ``Simulation``, whose module imports this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from llmsim_lab._util.text import number
from llmsim_lab.agents.agents import rule_proposal
from llmsim_lab.economy import TaylorRule
from llmsim_lab.llm.human import OpenQuestion


def rates_of(run: Any) -> dict[float, dict[str, float]]:
    """Return the rates on offer, percent per year, each with the part of a reply that states it.

    These are the results of the moves on offer. Where actions are in words and no player judges
    them, they are the quarter points that an engine's model would be offered.
    """
    here = run.state.interest_rate
    rates: dict[float, dict[str, float]] = {}
    if run.moves_bp is None:
        has_engine = bool({"engine", "*"} & run.players.keys())
        is_judged = run.llm_client is not None or has_engine
        if not is_judged:
            for rate in run.engine.choices(here):
                rates[rate] = {"proposed_rate": rate}
        return rates
    # The largest first: if several moves end at the same bound, the last and smallest one counts.
    for move in sorted(run.moves_bp, key=abs, reverse=True):
        moved = run.engine.inside(here + move / 100)
        rates[round(moved, 2)] = {"rate_change_bp": move}
    return dict(sorted(rates.items()))


def in_rates(
    run: Any,
    question: OpenQuestion,
) -> OpenQuestion:
    """Return a question in the form that a person gets; the run waits for the same answer.

    If there are rates on offer, the person picks one. The form begins with the current rate and
    says what each rate does. The action in words is optional.
    """
    # A validator or an engine judges actions, and does not set a rate.
    if question.component != "agent":
        return question
    rates = rates_of(run)
    if not rates:
        return question
    schema = question.request.schema or {}
    fields = dict(schema["properties"])
    fields.pop("rate_change_bp", None)
    # The rate already states the action.
    fields["action"] = {**fields["action"], "optional": True}
    here = run.state.interest_rate
    rate_field = {
        "enum": list(rates),
        "says": [policy_words(here, rate) for rate in rates],
        "start": _nearest(here, rates),
    }
    # First, since the rate is the person's decision.
    properties = {"rate": rate_field, **fields}
    shown = {**schema, "properties": properties}
    return replace(
        question,
        request=replace(question.request, schema=shown),
        # The judge of the original reply does not know the field "rate".
        judge=None,
    )


def as_reply(
    run: Any,
    values: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a person's answer in the form that the run takes: a rate becomes the move to it.

    An action that was left empty is filled in from the rate.
    """
    reply = dict(values)
    if "rate" not in reply:
        return reply
    rate = reply.pop("rate")
    if not reply.get("action"):
        reply["action"] = policy_words(run.state.interest_rate, rate)
        reply["left_open"] = ["action"]
    rates = rates_of(run)
    nearest = _nearest(rate, rates)
    return reply | rates[nearest]


def policy_words(here: float, rate: float) -> str:
    """Return a new rate as an action in words."""
    # Rounded, since the error of binary fractions would look like a change.
    change = round(rate - here, 2)
    if not change:
        return f"Hold the rate at {number(rate)} %"
    verb = "Raise" if change > 0 else "Lower"
    return f"{verb} the rate to {number(rate)} %"


def advice_for(run: Any, name: str) -> str:
    """Return what the Taylor rule would do about this quarter, in words."""
    # A validator or an engine has no target, so that the first nation's is used.
    target = run.nations[0].inflation_target
    for nation in run.nations:
        if nation.name == name:
            target = nation.inflation_target
    proposal = rule_proposal(
        TaylorRule(inflation_target=target),
        run.state.global_state,
        run.engine,
        moves_bp=run.moves_bp,
    )
    return f"The Taylor rule: {proposal.action}. {proposal.reasoning}"


def _nearest(
    rate: float,
    rates: Iterable[float],
) -> float:
    return min(rates, key=lambda offered: abs(offered - rate))
