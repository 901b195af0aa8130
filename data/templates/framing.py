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
    problem: str
    first: str
    second: str
    twin: tuple[str, str, str]  # likewise


PAIRS: dict[str, tuple[Version, Version]] = {
    "lives": (
        Version(
            measure="safe_of_saved",
            condition="lives saved",
            of_table="takes_the_certain",
            problem="An unusual disease is expected to kill 600 people. There are two programmes "
            "against it. Which do you prefer?",
            first="200 people are saved",
            second="with a chance of one third all 600 are saved, with two thirds nobody is saved",
            twin=(
                "A storm is expected to sink 90 fishing boats. There are two plans against it. "
                "Which do you prefer?",
                "30 boats are saved",
                "with a chance of one third all 90 are saved, with two thirds none is saved",
            ),
        ),
        Version(
            measure="safe_of_lost",
            condition="lives lost",
            of_table="takes_the_certain",
            problem="An unusual disease is expected to kill 600 people. There are two programmes "
            "against it. Which do you prefer?",
            first="400 people die",
            second="with a chance of one third nobody dies, with two thirds all 600 die",
            twin=(
                "A storm is expected to sink 90 fishing boats. There are two plans against it. "
                "Which do you prefer?",
                "60 boats sink",
                "with a chance of one third none sinks, with two thirds all 90 sink",
            ),
        ),
    ),
    "seat": (
        Version(
            measure="buys_after_money",
            condition="money lost",
            of_table="buys",
            problem="You want to see a play that costs 10 dollars. At the door of the theatre you "
            "notice that you have lost a 10-dollar bill. What do you do?",
            first="pay 10 dollars for the play all the same",
            second="not see the play",
            twin=(
                "You want to take a boat trip that costs 24 francs. At the pier you notice that "
                "you have lost 24 francs. What do you do?",
                "pay 24 francs for the trip all the same",
                "not take the trip",
            ),
        ),
        Version(
            measure="buys_after_ticket",
            condition="ticket lost",
            of_table="buys",
            problem="You want to see a play and have bought a ticket for 10 dollars. At the door "
            "of the theatre you notice that you have lost it, and nobody can find your seat. What "
            "do you do?",
            first="pay 10 dollars for another ticket",
            second="not see the play",
            twin=(
                "You want to take a boat trip and have bought a pass for 24 francs. At the pier "
                "you notice that you have lost it, and nobody can replace it. What do you do?",
                "pay 24 francs for another pass",
                "not take the trip",
            ),
        ),
    ),
    "bargain": (
        Version(
            measure="goes_for_small",
            condition="off a small price",
            of_table="goes",
            problem="You are about to buy a jacket for 125 dollars and a calculator for 15 "
            "dollars. The salesman says that the calculator is on sale for 10 dollars in their "
            "other branch, 20 minutes away by car. What do you do?",
            first="drive to the other branch",
            second="buy it here",
            twin=(
                "You are about to buy a tent for 310 francs and a lamp for 40 francs. The shop "
                "says that the lamp costs 27 francs in their other shop, 25 minutes away by tram. "
                "What do you do?",
                "go to the other shop",
                "buy it here",
            ),
        ),
        Version(
            measure="goes_for_large",
            condition="off a large price",
            of_table="goes",
            problem="You are about to buy a jacket for 15 dollars and a calculator for 125 "
            "dollars. The salesman says that the calculator is on sale for 120 dollars in their "
            "other branch, 20 minutes away by car. What do you do?",
            first="drive to the other branch",
            second="buy it here",
            twin=(
                "You are about to buy a tent for 40 francs and a lamp for 310 francs. The shop "
                "says that the lamp costs 297 francs in their other shop, 25 minutes away by tram. "
                "What do you do?",
                "go to the other shop",
                "buy it here",
            ),
        ),
    ),
}


class Shares(State):
    chosen: dict[str, int] = {}  # by version, 1 if the first option was


class Choice(Reply):
    option: Literal["first", "second"]


class Framing(Run[Shares]):
    defaults = {"turns": 1}
    people_played = {"turns": [1]}
    pair: Literal["lives", "seat", "bargain"] = "lives"
    twin: bool = False
    decide: Literal["sample"] | None = None  # "sample": by the probabilities of the options

    async def turn(self, state: Shares, ask: Ask) -> Shares:
        chosen = {}
        for number, version in enumerate(PAIRS[self.pair], start=1):
            problem, first, second = version.problem, version.first, version.second
            if self.twin:
                problem, first, second = version.twin
            reply = await ask(
                f"Person {number}",
                Choice,
                # Probabilities are asked for with the options' own texts.
                problem if self.decide else f"{problem} First: {first}. Second: {second}.",
                limits={"option": {"first": first, "second": second}} if self.decide else None,
                decide=self.decide,
                tag=version.measure,
            )
            chosen[version.measure] = int(reply.option == "first")
            ask.note(f"Person {number}", **{version.measure: chosen[version.measure]})
        return Shares(chosen=chosen)

    def rule(self, question: Question) -> Choice:
        # The same in both versions; which, the textbook does not say.
        return Choice(option="first")

    def people(self) -> Mapping[str, PublishedFigure]:
        if self.played_otherwise():
            return {}
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
