"""Framing: two people decide the same thing, told in two ways.

Source: Tversky & Kahneman (1981), "The framing of decisions and the psychology of choice", Science
211: lives (problems 1 and 2), a seat in the theatre (8 and 9), a bargain (10). As there, a person
reads one version, and the safe option or "yes" stands first. The problems are in words of our own.
``twin`` has the same structure with another story and other numbers, which no paper has.

Textbook: the versions have the same consequences, so the answers are the same.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from llmsim_lab import Ask, Question, Reply, Run, State
from llmsim_lab.people import PublishedFigure, published


class Version(NamedTuple):
    measure: str  # how many choose the first option
    condition: str  # in the table of the paper's figures
    of_table: str  # the measure there
    text: str
    twin: str


PAIRS: dict[str, tuple[Version, Version]] = {
    "lives": (
        Version(
            "safe_of_saved",
            "lives saved",
            "takes_the_certain",
            """An unusual disease is expected to kill 600 people. There are two programmes against
            it. First: 200 people are saved. Second: with a chance of one third all 600 are saved,
            with two thirds nobody is saved. Which do you prefer?""",
            """A storm is expected to sink 90 fishing boats. There are two plans. First: 30 boats
            are saved. Second: with a chance of one third all 90 are saved, with two thirds none is
            saved. Which do you prefer?""",
        ),
        Version(
            "safe_of_lost",
            "lives lost",
            "takes_the_certain",
            """An unusual disease is expected to kill 600 people. There are two programmes against
            it. First: 400 people die. Second: with a chance of one third nobody dies, with two
            thirds all 600 die. Which do you prefer?""",
            """A storm is expected to sink 90 fishing boats. There are two plans. First: 60 boats
            sink. Second: with a chance of one third none sinks, with two thirds all 90 sink. Which
            do you prefer?""",
        ),
    ),
    "seat": (
        Version(
            "buys_after_money",
            "money lost",
            "buys",
            """You want to see a play that costs 10 dollars. At the door of the theatre you notice
            that you have lost a 10-dollar bill. First: you pay 10 dollars for the play all the
            same. Second: you do not.""",
            """You want to take a boat trip that costs 24 francs. At the pier you notice that you
            have lost 24 francs. First: you pay 24 francs for the trip all the same. Second: you do
            not.""",
        ),
        Version(
            "buys_after_ticket",
            "ticket lost",
            "buys",
            """You want to see a play and have bought a ticket for 10 dollars. At the door of the
            theatre you notice that you have lost it, and nobody can find your seat. First: you pay
            10 dollars for another ticket. Second: you do not.""",
            """You want to take a boat trip and have bought a pass for 24 francs. At the pier you
            notice that you have lost it, and nobody can replace it. First: you pay 24 francs for
            another pass. Second: you do not.""",
        ),
    ),
    "bargain": (
        Version(
            "goes_for_small",
            "off a small price",
            "goes",
            """You are about to buy a jacket for 125 dollars and a calculator for 15 dollars. The
            salesman says that the calculator is on sale for 10 dollars in their other branch, 20
            minutes away by car. First: you drive there. Second: you do not.""",
            """You are about to buy a tent for 310 francs and a lamp for 40 francs. The shop says
            that the lamp costs 27 francs in their other shop, 25 minutes away by tram. First: you
            go there. Second: you do not.""",
        ),
        Version(
            "goes_for_large",
            "off a large price",
            "goes",
            """You are about to buy a jacket for 15 dollars and a calculator for 125 dollars. The
            salesman says that the calculator is on sale for 120 dollars in their other branch, 20
            minutes away by car. First: you drive there. Second: you do not.""",
            """You are about to buy a tent for 40 francs and a lamp for 310 francs. The shop says
            that the lamp costs 297 francs in their other shop, 25 minutes away by tram. First: you
            go there. Second: you do not.""",
        ),
    ),
}


class Shares(State):
    chosen: dict[str, int] = {}  # by version, 1 if the first option was


class Choice(Reply):
    option: Literal["first", "second"]


class Framing(Run[Shares]):
    defaults = {"turns": 1}
    pair: Literal["lives", "seat", "bargain"] = "lives"
    twin: bool = False

    async def turn(self, state: Shares, ask: Ask) -> Shares:
        chosen = {}
        for number, version in enumerate(PAIRS[self.pair], start=1):
            reply = await ask(
                f"Person {number}",
                Choice,
                version.twin if self.twin else version.text,
                tag=version.measure,
            )
            chosen[version.measure] = int(reply.option == "first")
            ask.note(f"Person {number}", **{version.measure: chosen[version.measure]})
        return Shares(chosen=chosen)

    def rule(self, question: Question) -> Choice:
        # The same in both versions; which, the textbook does not say.
        return Choice(option="first")

    def people(self) -> Mapping[str, PublishedFigure]:
        return {
            version.measure: published(
                "tversky_1981", condition=version.condition, measure=version.of_table
            )
            for version in PAIRS[self.pair]
        }


if __name__ == "__main__":
    run = Framing(players={"*": "random"})
    print(run.run().filter(like="chosen"))
    print("people:", {name: figure.mean for name, figure in run.people().items()})
