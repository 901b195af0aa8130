"""Splitting: one player divides something between two; in one of the games the other may refuse.

Source: Forsythe, Horowitz, Savin & Sefton (1994), "Fairness in simple bargaining experiments",
Games and Economic Behavior 6. As there: pairs who never meet, one round, 5 or 10 dollars. The
instructions are in words of our own. ``twin`` has the same structure with another story, another
stake and other names, which no paper has.

Textbook (subgame perfection): a dictator gives nothing. Of an ultimatum any offer above 0 is
accepted, so the smallest is made.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from llmsim_lab import Ask, Question, Reply, Run, State
from llmsim_lab.people import PublishedFigure, published

RULES = """Two people, A and B, sit in different rooms. They do not know each other, will not meet,
and will not learn each other's names. They are given {{ whole }} dollars together. A decides how
many of them B gets; A keeps the rest. {% if run.game == "dictator" %}B has no say: both are
paid as A decides.{% else %}B learns of the offer and accepts or refuses it. If B accepts, both are
paid so. If B refuses, neither gets anything.{% endif %} This happens once."""

TWIN_RULES = """A gardener moves away and leaves {{ whole }} seedlings to two others, Kim
and Lou, whose gardens lie in different towns. They have never heard of each other and never will
again. Kim decides how many seedlings Lou gets; Kim plants the rest. {% if run.game == "dictator" %}
Nobody asks Lou, and the seedlings are sent as Kim decides.{% else %}Lou is told the number and says
yes or no. If Lou says yes, they are sent so. If Lou says no, all of them are thrown away.
{% endif %}There is no second time."""


def plain(amount: float) -> float:
    """Return 5 for 5.0, as a prompt should say it."""
    return int(amount) if amount == int(amount) else amount


class Split(State):
    share: float | None = None  # offered, of the stake
    accepted: bool | None = None


class Offer(Reply):
    amount: float = Field(ge=0, description="what the other gets")


class Answer(Reply):
    accept: bool


class Splitting(Run[Split]):
    defaults = {"turns": 1}
    people_played = {"turns": [1], "stake": [5, 10]}
    game: Literal["dictator", "ultimatum"] = "dictator"
    stake: float = Field(5, gt=0)  # dollars; the twin has eight seedlings for each
    twin: bool = False
    decide: Literal["sample"] | None = None  # "sample": by the probabilities of the options

    @property
    def steps(self) -> int:  # of an offer: a quarter of 5 dollars, or half a dollar
        return 10 if self.decide else 20

    async def turn(self, state: Split, ask: Ask) -> Split:
        first, second = ("Kim", "Lou") if self.twin else ("A", "B")
        rules = TWIN_RULES if self.twin else RULES
        whole = plain(8 * self.stake if self.twin else self.stake)
        offer = await ask(
            first,
            Offer,
            "You are {{ name }}. How much does the other get?",
            system=rules,
            limits={"amount": [whole * step / self.steps for step in range(self.steps + 1)]},
            decide=self.decide,
            whole=whole,
        )
        share = offer.amount / whole
        ask.note(first, share=share)
        # Of probabilities the offers alone are asked for: it is they that people's stand beside.
        if self.game == "dictator" or self.decide:
            return Split(share=share)
        answer = await ask(
            second,
            Answer,
            "You would get {{ offer }}. You are {{ name }}. Do you accept?",
            system=rules,
            offer=plain(offer.amount),
            whole=whole,
        )
        return Split(share=share, accepted=answer.accept)

    def told(self, state: Split, player: str) -> dict[str, object]:
        if state.share is None:
            return {}
        outcome = {} if state.accepted is None else {"accepted": state.accepted}
        return {"offered, of all": state.share, **outcome}

    def rule(self, question: Question) -> Offer | Answer:
        if question.player in ("B", "Lou"):
            return Answer(accept=question.values["offer"] > 0)
        smallest = question.limits["amount"][1]
        return Offer(amount=0 if self.game == "dictator" else smallest)

    def prediction(self) -> dict[str, float]:
        return {"share": 0 if self.game == "dictator" else 1 / self.steps}

    def people(self) -> Mapping[str, PublishedFigure]:
        if self.played_otherwise():
            return {}
        offers = published(
            "forsythe_1994",
            condition=f"{self.game} ${self.stake:g}",
            measure="offer_usd",
            divide_by=self.stake,
        )
        return {"share": offers}


if __name__ == "__main__":
    run = Splitting(players={"*": "rule"})
    print(run.run()[["turn", "share"]], "people:", run.people()["share"].mean, sep="\n")
