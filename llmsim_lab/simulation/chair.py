"""A person in the economy: asked for a rate instead of a move, and free to leave words open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llmsim_lab._util.text import number
from llmsim_lab.agents.agents import rule_proposal
from llmsim_lab.economy import TaylorRule
from llmsim_lab.llm.human import OpenQuestion
from llmsim_lab.simulation.world import Simulation

_LEFT_OPEN: Mapping[str, Any] = {"reasoning": "No reason given.", "confidence": 0.5}
"""What stands for what a person leaves open."""


def rates_of(run: Simulation) -> dict[float, dict[str, Any]]:
    """Return the rates on offer, percent per year, each with the part of a reply that states it.

    They are those that the moves on offer lead to. Where actions are in words and the run has
    no player to judge them, they are the quarter points that an engine's model would be offered.
    """
    here, limits = run.state.interest_rate, run.engine
    if run.moves_bp is None:
        judged = run.llm_client is not None or {"engine", "*"} & run.players.keys()
        return {} if judged else {it: {"proposed_rate": it} for it in limits.choices(here)}
    # Of moves that end at the same bound the smallest one counts.
    moves = sorted(run.moves_bp, key=abs, reverse=True)
    rates = {round(limits.inside(here + it / 100), 2): {"rate_change_bp": it} for it in moves}
    return dict(sorted(rates.items()))


def in_rates(run: Simulation, question: OpenQuestion) -> OpenQuestion:
    """Return a question as it is put to a person; the same answer is waited for.

    Where there are rates on offer, one of them is asked for, which begins where the rate is, and
    says what it does; what may be left open is marked.
    """
    rates, here = rates_of(run) if question.component == "agent" else {}, run.state.interest_rate
    schema = question.request.schema or {}
    fields = {**schema["properties"]}
    for name in fields.keys() & {*_LEFT_OPEN, *(("action",) if rates else ())}:
        fields[name] = {**fields[name], "optional": True}
    if rates:
        fields.pop("rate_change_bp", None)
        says, start = [policy_words(here, it) for it in rates], _nearest(here, rates)
        fields = {"rate": {"enum": [*rates], "says": says, "start": start}, **fields}
    shown = {**schema, "properties": fields}
    return replace(question, request=replace(question.request, schema=shown))


def as_reply(run: Simulation, values: Mapping[str, Any], asked: OpenQuestion) -> dict[str, Any]:
    """Return what a person filled in as the run takes it.

    A rate becomes what leads to it, and what was left open is filled in, as the reply says.
    """
    reply, here = {**values}, run.state.interest_rate
    words = {"action": policy_words(here, reply["rate"])} if "rate" in reply else {}
    fillers = {**words, **_LEFT_OPEN}
    left = [it for it in fillers if it in asked.fields and reply.get(it) in (None, "")]
    reply |= {it: fillers[it] for it in left} | ({"left_open": left} if left else {})
    if "rate" in reply:
        rates = rates_of(run)
        reply |= rates[_nearest(reply.pop("rate"), rates)]
    return reply


def policy_words(here: float, rate: float) -> str:
    """Return a new rate as an action in words."""
    by = round(rate - here, 2)
    verb = "Raise" if by > 0 else "Lower"
    return f"{verb} the rate to {number(rate)} %" if by else f"Hold the rate at {number(rate)} %"


def advice_for(run: Simulation, name: str) -> str:
    """Return what the Taylor rule would do about this quarter, in words."""
    rule = TaylorRule(inflation_target=run._nations.get(name, run.nations[0]).inflation_target)
    told = rule_proposal(rule, run.state.global_state, run.engine, moves_bp=run.moves_bp)
    return f"The Taylor rule: {told['action']}. {told['reasoning']}"


def _nearest(rate: float, rates: Mapping[float, Any]) -> float:
    return min(rates, key=lambda it: abs(it - rate))
