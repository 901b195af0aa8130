"""The economic gate for a player by itself: ``economics_card``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from llmsim_lab._util.waiting import run_sync
from llmsim_lab.agents import TaylorRuleAgent
from llmsim_lab.economy import TaylorRule
from llmsim_lab.economy._macro import Rule
from llmsim_lab.llm import LLMClient, connect
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation._gate import GATE_MOVES_BP, EconomicsCard, Told
from llmsim_lab.simulation._simulation import Nation


def economics_card(
    player: LLMClient | str | TaylorRule | Rule = "auto",
    *,
    told: Told = "economist",
    seed: int | None = None,
    again: bool = False,
    folder: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> EconomicsCard:
    """Return whether a player responds to the economy: a kept card, completed where need be.

    It is ``Simulation.responds`` of a run with the gate's moves and the shipped prompt; so judge
    what a run takes as ``players=`` by that.

    Args:
        player: a client; what ``connect`` takes; a Taylor rule; or any function that takes
            ``inflation``, ``output_gap`` and ``previous_rate`` by name, percent, and returns a
            rate. Only a model's card is kept.
        told: ``economist`` asks with the briefing that agents of a ``SimulationConfig`` get,
            ``thin`` with four indicators.
        seed: see ``Simulation.responds``; so are the others.
        again: measure anew what is kept.
        folder: where cards are kept; ``$LLMSIM_CARDS``, else the user's cache.
        progress: called before each question with how far it is and what time is left.

    Raises:
        ConfigError: there is no such model, or the folder cannot be written to.
        LLMFailureException: the server does not answer; what was measured until then is kept.
    """
    how: Any = {"seed": seed, "again": again, "folder": folder, "progress": progress}
    if isinstance(player, str):
        client = connect(player, quiet=True, timeout_s=300)
        try:
            return economics_card(client, told=told, **how)
        finally:
            run_sync(client.aclose())
    who: Any = player
    if not isinstance(who, LLMClient):
        name = getattr(who, "__name__", repr(who))
        who = TaylorRuleAgent(name, rule=who, moves_bp=GATE_MOVES_BP)
    nation = Nation(name="a large economy")
    moves: Any = {"moves_bp": GATE_MOVES_BP, "briefing": told, "decide": "sample"}
    return Simulation(nations=(nation,), players={"*": who}, **moves).responds(**how)
