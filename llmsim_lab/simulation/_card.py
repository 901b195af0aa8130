"""``economics_card``: the economic gate for a player without a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmsim_lab.agents import TaylorRuleAgent
from llmsim_lab.economy.macro import Rule, TaylorRule
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm.client import run_client
from llmsim_lab.simulation.gate import GATE_MOVES_BP, EconomicsCard, Told
from llmsim_lab.simulation.world import Simulation


def economics_card(
    player: LLMClient | Rule,
    *,
    told: Told = "economist",
    inflation_target: float | None = None,
    seed: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> EconomicsCard:
    """Return a card on whether a player responds to the economy: a kept one, completed if needed.

    This is ``Simulation.responds`` for a run with the gate's moves and the shipped prompt. To judge
    the ``players=`` of your own run, call ``responds`` on that run.

    Args:
        player: a client; a Taylor rule; or any function that takes ``inflation``, ``output_gap``
            and ``previous_rate`` by name, percent, and returns a rate. Only a model's card is kept.
        told: ``economist`` asks with the briefing that agents of a ``SimulationConfig`` get,
            ``thin`` with four indicators.
        inflation_target: the player's, percent, which a model is told; if not given, that of a
            Taylor rule, and 2 for others.
        seed: see ``Simulation.responds``.
        progress: called before each question with how far the card is; without it a progress line
            is shown, as for a run.

    Raises:
        LLMFailureException: the server does not answer; answers measured until then are kept.
    """
    # Not a real name, about which a model knows things.
    nation: dict[str, Any] = {"name": "a large economy"}
    if inflation_target is None and isinstance(player, TaylorRule):
        inflation_target = player.inflation_target
    if inflation_target is not None:
        nation["inflation_target"] = inflation_target
    run = Simulation(
        nations=[nation],
        players={"*": _in_a_seat(player)},
        moves_bp=GATE_MOVES_BP,
        briefing=told,
        # A model is asked for probabilities: one such call tells more than ten draws.
        decide="sample",
    )
    return run.responds(seed=seed, progress=progress)


def _in_a_seat(player: LLMClient | Rule) -> LLMClient | TaylorRuleAgent | None:
    """Return a player as a run takes it; a rule proposes the move on offer closest to its rate."""
    if hasattr(player, "call_with_retry"):
        return run_client(player, "player")
    name = getattr(player, "__name__", repr(player))
    return TaylorRuleAgent(name, rule=player, moves_bp=GATE_MOVES_BP)
