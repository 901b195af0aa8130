"""A person in the economy: asked for a rate instead of a move, and free to leave words open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from llmsim_lab._util.text import number
from llmsim_lab.agents.agents import rule_proposal
from llmsim_lab.economy import TaylorRule
from llmsim_lab.llm.human import OpenQuestion
from llmsim_lab.simulation.world import Simulation

_LEFT_OPEN: Mapping[str, object] = {"reasoning": "No reason given.", "confidence": 0.5}
"""What stands for what a person leaves open."""


def rates_of(run: Simulation) -> dict[float, dict[str, float]]:
    """Return the rates on offer, percent per year, each with the part of a reply that states it.

    They are those that the moves on offer lead to. Where actions are in words and the run has
    no player to judge them, they are the quarter points that an engine's model would be offered.
    """
    here = run.state.interest_rate
    if run.moves_bp is None:
        is_judged = run.llm_client is not None or {"engine", "*"} & run.players.keys()
        if is_judged:
            return {}
        return {rate: {"proposed_rate": rate} for rate in run.engine.choices(here)}
    rates: dict[float, dict[str, float]] = {}
    # The largest first, so that of moves that end at the same bound the smallest one counts.
    for move in sorted(run.moves_bp, key=abs, reverse=True):
        rate = round(run.engine.inside(here + move / 100), 2)
        rates[rate] = {"rate_change_bp": move}
    return dict(sorted(rates.items()))


def in_rates(run: Simulation, question: OpenQuestion) -> OpenQuestion:
    """Return a question as it is put to a person; the same answer is waited for.

    Where there are rates on offer, one of them is asked for, which begins where the rate is, and
    says what it does; what may be left open is marked.
    """
    schema = question.request.schema or {}
    fields = {**schema["properties"]}
    optional = {*_LEFT_OPEN}
    rates: Mapping[float, object] = {}
    if question.component == "agent":
        rates = rates_of(run)
    if rates:
        optional.add("action")  # the rate says it
        fields.pop("rate_change_bp", None)
        here = run.state.interest_rate
        rate_field = {
            "enum": [*rates],
            "says": [policy_words(here, rate) for rate in rates],
            "start": _nearest(here, rates),
        }
        fields = {"rate": rate_field, **fields}
    for name in fields.keys() & optional:
        fields[name] = {**fields[name], "optional": True}
    shown = {**schema, "properties": fields}
    return replace(question, request=replace(question.request, schema=shown))


def as_reply(run: Simulation, values: Mapping[str, Any], asked: OpenQuestion) -> dict[str, Any]:
    """Return what a person filled in as the run takes it.

    A rate becomes what leads to it, and what was left open is filled in, as the reply says.
    """
    reply = {**values}
    fillers = {**_LEFT_OPEN}
    if "rate" in reply:
        fillers = {"action": policy_words(run.state.interest_rate, reply["rate"]), **fillers}
    left_open = [name for name in fillers if name in asked.fields and reply.get(name) in (None, "")]
    for name in left_open:
        reply[name] = fillers[name]
    if left_open:
        reply["left_open"] = left_open
    if "rate" in reply:
        rates = rates_of(run)
        reply |= rates[_nearest(reply.pop("rate"), rates)]
    return reply


def policy_words(here: float, rate: float) -> str:
    """Return a new rate as an action in words."""
    change = round(rate - here, 2)
    if not change:
        return f"Hold the rate at {number(rate)} %"
    verb = "Raise" if change > 0 else "Lower"
    return f"{verb} the rate to {number(rate)} %"


def advice_for(run: Simulation, name: str) -> str:
    """Return what the Taylor rule would do about this quarter, in words."""
    targets = {nation.name: nation.inflation_target for nation in run.nations}
    rule = TaylorRule(inflation_target=targets.get(name, run.nations[0].inflation_target))
    economy = run.state.global_state
    proposal = rule_proposal(rule, economy, run.engine, moves_bp=run.moves_bp)
    return f"The Taylor rule: {proposal.action}. {proposal.reasoning}"


def _nearest(rate: float, rates: Iterable[float]) -> float:
    return min(rates, key=lambda offered: abs(offered - rate))
