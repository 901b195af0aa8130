"""Ultimatum: one player offers to share some coins; if the other refuses, both get nothing.

Source: Güth, Schmittberger & Schwarze (1982), "An experimental analysis of ultimatum bargaining",
Journal of Economic Behavior and Organization 3.

Textbook (subgame perfection): accepting any offer above 0 earns more than refusing it, so the
smallest, 1 coin, is made and accepted (or 0, to who accepts that too). People offer far more.
"""

from llmsim_lab import Ask, Question, Reply, Run, State


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
            """You are Ann and may share {{ run.coins }} coins with Bob, whom you never meet. If he
            accepts your offer, he gets it and you keep the rest. If he refuses, neither of you
            gets anything. You want to earn as much as you can. How many coins do you offer?""",
            limits={"amount": (0, self.coins)},
        )
        answer = await ask(
            "Bob",
            Answer,
            """You are Bob. Ann, whom you never meet, may share {{ run.coins }} coins with you and
            offers you {{ offer }}. If you accept, you get these and she keeps the rest. If you
            refuse, neither of you gets anything. You want to earn as much as you can. Do you
            accept?""",
            offer=offer.amount,
        )
        ann, bob = (self.coins - offer.amount, offer.amount) if answer.accept else (0, 0)
        return Deal(offer=offer.amount, earned={"Ann": ann, "Bob": bob})

    def rule(self, question: Question) -> Offer | Answer:
        offer = question.values.get("offer")
        return Offer(amount=1) if offer is None else Answer(accept=offer > 0)

    def prediction(self) -> dict[str, float]:
        return {"offer": 1, "earned.Ann": self.coins - 1, "earned.Bob": 1}


if __name__ == "__main__":
    run = Ultimatum(players={"*": "rule"})
    print(run.run()[[*run.prediction()]], "prediction:", run.prediction(), sep="\n")
