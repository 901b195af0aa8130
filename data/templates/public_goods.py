"""Public goods: what each player gives to a pot is multiplied and shared by all.

Source: Isaac & Walker (1988), "Group size effects in public goods provision: the voluntary
contributions mechanism", Quarterly Journal of Economics 103; survey: Ledyard (1995), "Public goods:
a survey of experimental research", in Kagel & Roth (eds.), Handbook of Experimental Economics.

Textbook: a coin given earns its giver factor / n coins in a group of n. Below 1 it is best to give
nothing, whatever the others do, though all together earn most where everything is given. People
give about half at first, and less with repetition (Ledyard).
"""

from pydantic import Field

from llmsim_lab import Ask, Question, Reply, Run, State


class Pot(State):
    given: float | None = None  # mean gift, coins
    gifts: dict[str, int] = {}
    earned: dict[str, float] = {}  # in this turn, coins


class Gift(Reply):
    amount: int = Field(ge=0, description="coins for the pot")


class PublicGoods(Run[Pot]):
    group: tuple[str, ...] = Field(("Ann", "Bob", "Cy", "Di"), min_length=1)
    coins: int = Field(20, ge=1)  # for each player, new ones in each turn
    factor: float = Field(1.6, gt=0)

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        gifts = await ask.each(
            self.group,
            Gift,
            """{{ run.group | join(", ") }} each have {{ run.coins }} coins and decide how many of
            them go into a common pot. The pot is multiplied by {{ run.factor }} and shared equally
            among all, whoever gave; what you do not give is yours. You want to earn as much as you
            can.{% if state.gifts %} In the turn before you gave {{ state.gifts }}.{% endif %}
            You are {{ name }}. How many coins do you give?""",
            for_people="""You have {{ run.coins }} coins, and so has everybody in your group.
            What you all put into the pot is multiplied by {{ run.factor }} and shared equally.
            What you keep is yours. How many coins do you give?""",
            limits={"amount": (0, self.coins)},
        )
        given = {name: gift.amount for name, gift in gifts.items()}
        mean = sum(given.values()) / len(given)
        earned = {name: self.coins - coins + self.factor * mean for name, coins in given.items()}
        return Pot(given=mean, gifts=given, earned=earned)

    def told(self, state: Pot, player: str) -> dict[str, float]:
        return {"you earned": state.earned[player], "given on average": state.given or 0}

    def payoff(self, player: str) -> float:  # what a person sees at the end
        return sum(turn.state.earned[player] for turn in self.turns[1:])

    def rule(self, question: Question) -> Gift:
        return Gift(amount=int(self.prediction()["given"]))

    def prediction(self) -> dict[str, float]:
        return {"given": 0 if self.factor < len(self.group) else self.coins}


if __name__ == "__main__":
    run = PublicGoods(players={"*": "rule"})
    print(run.run()[[*run.prediction()]], "prediction:", run.prediction(), sep="\n")
