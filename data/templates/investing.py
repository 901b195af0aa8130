"""Investing: what one player sends is tripled, and the other may send some of it back.

Source: Berg, Dickhaut & McCabe (1995), "Trust, reciprocity, and social history", Games and Economic
Behavior 10, without social history: 10 dollars for each of two people who never meet, whole
dollars, tripled, one round. The instructions are in words of our own. ``twin`` has the same
structure with another story, another stake and other names, which no paper has.

Textbook (subgame perfection): nothing comes back, so nothing is sent.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from llmsim_lab import Ask, Question, Reply, Run, State
from llmsim_lab.people import PublishedFigure, published

RULES = """Two people, A and B, sit in different rooms, do not know each other and will not meet.
Each has been given 10 dollars. A decides how many of A's dollars, from 0 to 10, go to B. On the way
they are tripled. B then decides how many of the tripled dollars go back to A. Both keep what they
have then. This happens once."""

TWIN_RULES = """Two beekeepers, Noa and Pim, live in different countries, do not know each other and
will not meet. Each has 40 jars of honey. Noa decides how many of Noa's jars, from 0 to 40, go to
Pim's market, where each is exchanged for three. Pim then decides how many of these go back to Noa.
Both keep what they have then. There is no second time."""

STEPS = 10  # whole dollars; the twin's jars go by fours


class Trust(State):
    sent: float | None = None  # of what one has
    returned: float | None = None  # likewise


class Amount(Reply):
    amount: int = Field(ge=0)


class Investing(Run[Trust]):
    defaults = {"turns": 1}
    people_played = {"turns": [1]}
    twin: bool = False
    decide: Literal["sample"] | None = None  # "sample": by the probabilities of the options

    async def turn(self, state: Trust, ask: Ask) -> Trust:
        first, second = ("Noa", "Pim") if self.twin else ("A", "B")
        rules = TWIN_RULES if self.twin else RULES
        owned = 40 if self.twin else 10
        gift = await ask(
            first,
            Amount,
            "You are {{ name }}. How many do you send?",
            system=rules,
            limits={"amount": [owned * step // STEPS for step in range(STEPS + 1)]},
            decide=self.decide,
        )
        sent = gift.amount
        tripled = 3 * sent
        back = 0
        if sent:
            answer = await ask(
                second,
                Amount,
                "{{ tripled }} have come. You are {{ name }}. How many do you send back?",
                system=rules,
                limits={"amount": self._may_return(tripled)},
                decide=self.decide,
                tripled=tripled,
            )
            back = answer.amount
        ask.note(
            first,
            sent=sent / owned,
            sends_nothing=int(sent == 0),
            sends_all=int(sent == owned),
            returned=back / owned,
        )
        return Trust(sent=sent / owned, returned=back / owned)

    def _may_return(self, tripled: int) -> list[int] | tuple[int, int]:
        if self.decide is None:
            return 0, tripled
        # A probability is asked for each amount: nothing, what was sent, twice as much, or all.
        return [tripled * step // 3 for step in range(4)]

    def told(self, state: Trust, player: str) -> dict[str, float]:
        if state.sent is None or state.returned is None:
            return {}
        return {"sent, of all": state.sent, "returned, of all": state.returned}

    def rule(self, question: Question) -> Amount:
        return Amount(amount=0)

    def prediction(self) -> dict[str, float]:
        return {"sent": 0, "returned": 0}

    def people(self) -> Mapping[str, PublishedFigure]:
        if self.played_otherwise():
            return {}
        figures = {}
        for name in ("sent", "returned"):
            figures[name] = published(
                "berg_1995", condition="no history", measure=f"{name}_usd", divide_by=10
            )
        for name in ("sends_nothing", "sends_all"):
            figures[name] = published("berg_1995", condition="no history", measure=name)
        return figures


if __name__ == "__main__":
    run = Investing(players={"*": "rule"})
    print(run.run()[["turn", "sent", "returned"]])
    print("people:", {name: figure.mean for name, figure in run.people().items()})
