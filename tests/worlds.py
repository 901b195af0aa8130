"""The public goods game of ``docs/worlds.md``, for tests of worlds that users write."""

from __future__ import annotations

from pydantic import Field

from llmsim_lab import Ask, Reply, Run, State


class Pot(State):
    coins: dict[str, float] = dict.fromkeys(["Ann", "Bob", "Cy", "Di"], 20.0)
    given: dict[str, int] = {}


class Gift(Reply):
    amount: int = Field(ge=0, le=20, description="coins for the pot")


class PublicGoods(Run[Pot]):
    """Four players fill a pot that is multiplied and shared."""

    factor: float = 1.6

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        gifts = await ask.each(
            state.coins,
            Gift,
            """You are {{ name }} and have {{ state.coins[name] }} coins.
            Last gifts: {{ state.given or "none yet" }}. The pot grows {{ run.factor }}-fold and is
            shared. What do you give?""",
            limits=lambda name: {"amount": (0, state.coins[name])},
        )
        share = self.factor * sum(g.amount for g in gifts.values()) / len(gifts)
        return state.replace(
            coins={n: c - gifts[n].amount + share for n, c in state.coins.items()},
            given={n: g.amount for n, g in gifts.items()},
        )
