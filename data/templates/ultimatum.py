"""Ultimatum: one player offers to share some coins; if the other refuses, both get nothing.

Source: Güth, Schmittberger & Schwarze (1982), "An experimental analysis of ultimatum bargaining",
Journal of Economic Behavior and Organization 3.

Textbook (subgame perfection): accepting any offer above 0 earns more than refusing it, so the
smallest, 1 coin, is made and accepted (or 0, to who accepts that too). People offer far more.
"""

from llmsim_lab import Ask, Question, Reply, Run, State

RULES = """Ann may share {{ run.coins }} coins with Bob, whom she never meets. If he accepts her
offer, he gets it and she keeps the rest. If he refuses, neither gets anything. You want to earn as
much as you can."""  # for both, and in all turns


class Deal(State):
    offer: int | None = None
    earned: dict[str, int] = {}  # in this turn


class Offer(Reply):
    amount: int


class Answer(Reply):
    accept: bool


class Ultimatum(Run[Deal]):
    coins: int = 10

    async def turn(self, state: Deal, ask: Ask) -> Deal:
        offer = await ask(
            "Ann",
            Offer,
            "You are Ann. How many coins do you offer?",
            system=RULES,
            limits={"amount": (0, self.coins)},
        )
        answer = await ask(
            "Bob",
            Answer,
            "Ann offers you {{ offer }} coins. You are Bob. Do you accept?",
            system=RULES,
            offer=offer.amount,
        )
        ann, bob = (self.coins - offer.amount, offer.amount) if answer.accept else (0, 0)
        return Deal(offer=offer.amount, earned={"Ann": ann, "Bob": bob})

    def told(self, state: Deal, player: str) -> dict[str, int]:
        return {"you earned": state.earned[player]}

    def payoff(self, player: str) -> int:  # what a person sees at the end
        return sum(turn.state.earned[player] for turn in self.turns[1:])

    def rule(self, question: Question) -> Offer | Answer:
        offer = question.values.get("offer")
        return Offer(amount=1) if offer is None else Answer(accept=offer > 0)

    def prediction(self) -> dict[str, float]:
        return {"offer": 1, "earned.Ann": self.coins - 1, "earned.Bob": 1}


if __name__ == "__main__":
    run = Ultimatum(players={"*": "rule"})
    print(run.run()[[*run.prediction()]], "prediction:", run.prediction(), sep="\n")
