"""Contributing: what each of four players gives is multiplied and shared by all, ten times.

Source of the design: Engel & Kurschilgen (2020) and Diedrich et al. (2016), whose decisions
Hausladen, Engel & Schubert (arXiv 2601.08803) pool: ten rounds, 20 tokens in each. Four players and
a return of 0.4 for each were not verified for each of their sessions. The instructions are in words
of our own. ``twin`` has the same structure with another story, other numbers and other names.

Textbook: a token given returns less than it costs, so nothing is given, in every round.
"""

from collections.abc import Mapping
from statistics import fmean

from pydantic import Field

from llmsim_lab import Ask, Question, Reply, Run, State
from llmsim_lab.people import PublishedFigure, published

RULES = """Four players have 20 tokens each in every one of {{ turns }} rounds. Each decides how
many of them go into a common project; the others' decisions are not known yet. A token that is kept
is worth 1 to its owner. A token in the project is worth {{ run.returned }} to each of the four,
whoever gave it. After each round all are told what each gave."""

TWIN_RULES = """Four farmers have 50 litres of water each on every one of {{ turns }} days. Each
decides how many of them go into a canal that waters all four fields; the others' decisions are not
known yet. A litre on one's own field grows 1 kilo. A litre in the canal grows {{ run.returned }}
kilos on each of the four fields, whoever gave it. After each day all are told what each gave."""

SEEN = """{% for gifts in seen %}Before: {{ gifts }}.
{% endfor %}You are {{ name }}. How many of your 20 tokens go into the project?"""

TWIN_SEEN = """{% for gifts in seen %}Before: {{ gifts }}.
{% endfor %}You are {{ name }}. How many of your 50 litres go into the canal?"""

FOR_PEOPLE = """You have 20 tokens in this round, and so has everybody in your group of four. Each
token that you all put into the project brings {{ run.returned }} to each of you. What you keep is
yours. How many of your tokens go into the project?"""


class Pot(State):
    share: float | None = None  # mean gift, of what each has
    earned: dict[str, float] = {}  # in the round, tokens or kilos
    seen: list[dict[str, int]] = []


class Gift(Reply):
    amount: int = Field(ge=0, description="into what all share")


class Contributing(Run[Pot]):
    defaults = {"turns": 10}
    people_played = {"turns": [10], "returned": [0.4]}
    returned: float = Field(0.4, gt=0)  # of a token, to each
    twin: bool = False

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        names = ["Eli", "Fay", "Gil", "Hana"] if self.twin else ["A", "B", "C", "D"]
        owned = 50 if self.twin else 20
        replies = await ask.each(
            names,
            Gift,
            TWIN_SEEN if self.twin else SEEN,
            system=TWIN_RULES if self.twin else RULES,
            for_people="" if self.twin else FOR_PEOPLE,
            limits={"amount": (0, owned)},
            seen=state.seen,
        )
        gifts = {name: reply.amount for name, reply in replies.items()}
        for name, gift in gifts.items():
            ask.note(
                name,
                share=gift / owned,
                gives_nothing=int(gift == 0),
                gives_all=int(gift == owned),
            )
        pot = self.returned * sum(gifts.values())
        return Pot(
            share=fmean(gifts.values()) / owned,
            earned={name: owned - gift + pot for name, gift in gifts.items()},
            seen=[*state.seen, gifts],
        )

    def told(self, state: Pot, player: str) -> dict[str, float]:
        return {"earned": round(state.earned[player], 2)} if state.earned else {}

    def payoff(self, player: str) -> float:  # what a person sees at the end
        return round(sum(turn.state.earned[player] for turn in self.turns[1:]), 2)

    def rule(self, question: Question) -> Gift:
        return Gift(amount=question.limits["amount"][self.returned >= 1])

    def prediction(self) -> dict[str, float]:
        if self.returned == 1:  # what is given costs nothing, and any gift is as good
            return {}
        return {"share": 0 if self.returned < 1 else 1}

    def people(self) -> Mapping[str, PublishedFigure]:
        if self.played_otherwise():
            return {}
        figures = {}
        for turn in range(1, 11):
            figures[f"share@{turn}"] = self._figure("share", turn)
        for turn in (1, 10):
            figures[f"gives_nothing@{turn}"] = self._figure("gives nothing", turn)
            figures[f"gives_all@{turn}"] = self._figure("gives all", turn)
        return figures

    def _figure(self, measure: str, turn: int) -> PublishedFigure:
        return published(
            "public_goods",
            condition="10 rounds, 20 tokens",
            measure=measure,
            period=turn,
            note="two studies' people together; the return in each session was not verified",
        )


if __name__ == "__main__":
    run = Contributing(players={"*": "rule"})
    print(run.run()[["turn", "share"]])
    print("people:", [run.people()[f"share@{turn}"].mean for turn in range(1, 11)])
