"""A pot of twenty lines: what four players give is multiplied and shared."""

from pydantic import Field

from llmsim_lab import Ask, Reply, Run, State


class Pot(State):
    coins: dict[str, float] = dict.fromkeys(["Ann", "Bob", "Cy", "Di"], 20.0)


class Gift(Reply):
    amount: int = Field(ge=0, le=20, description="coins for the pot")


class PublicGoods(Run[Pot]):
    factor: float = 1.6

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        gifts = await ask.each(
            state.coins,
            Gift,
            """The pot grows {{ run.factor }}-fold and is shared.
            You are {{ name }} and have {{ state.coins[name] }} coins. What do you give?""",
            limits=lambda name: {"amount": (0, state.coins[name])},
        )
        share = self.factor * sum(gift.amount for gift in gifts.values()) / len(gifts)
        return state.replace(
            coins={name: had - gifts[name].amount + share for name, had in state.coins.items()}
        )
