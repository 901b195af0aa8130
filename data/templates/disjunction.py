"""Disjunction: a prisoner's dilemma in which the other's move is known, or is not.

Source: Shafir & Tversky (1992), "Thinking through uncertainty: nonconsequential reasoning and
choice", Cognitive Psychology 24. As there, each person decides three times: the other is known to
compete, known to cooperate, and not known, with the same points. Differs: there the three stood
apart among forty games. The instructions are in words of our own. ``twin`` has the same structure
with another story and other points, which no paper has.

Textbook: competing earns more, whatever the other does; so it does where that is not known.
"""

from collections.abc import Mapping
from typing import Literal

from llmsim_lab import Ask, Question, Reply, Run, State
from llmsim_lab.people import PublishedFigure, published

RULES = """You and somebody whom you do not know each choose to cooperate or to compete. If both
cooperate, each gets 75 points. If both compete, each gets 30. If one competes and the other
cooperates, the one who competes gets 85 and the other 25. Points are worth money."""

TWIN_RULES = """Your ferry line and another one, which you know nothing of, each choose the slow or
the fast timetable. If both are slow, each earns 150 crowns. If both are fast, each earns 60. If one
is fast and the other slow, the fast one earns 170 and the slow one 50."""

KNOWN = {
    "if_competes": "You learn that the other has chosen to compete.",
    "if_cooperates": "You learn that the other has chosen to cooperate.",
    "if_unknown": "You do not know what the other chooses.",
}
TWIN_KNOWN = {
    "if_competes": "You learn that the other line has chosen the fast timetable.",
    "if_cooperates": "You learn that the other line has chosen the slow timetable.",
    "if_unknown": "You do not know what the other line chooses.",
}
CONDITIONS = {
    "if_competes": "the other competes",
    "if_cooperates": "the other cooperates",
    "if_unknown": "not known",
}


class Moves(State):
    cooperates: dict[str, int] = {}


class Move(Reply):
    choice: Literal["cooperate", "compete"]


class TwinMove(Reply):
    choice: Literal["slow", "fast"]


class Disjunction(Run[Moves]):
    defaults = {"turns": 1}
    people_played = {"turns": [1]}
    twin: bool = False
    decide: Literal["sample"] | None = None  # "sample": by the probabilities of the options

    async def turn(self, state: Moves, ask: Ask) -> Moves:
        cooperates = {}
        for tag, known in (TWIN_KNOWN if self.twin else KNOWN).items():
            reply: Move | TwinMove = await ask(
                "Line 1" if self.twin else "Person 1",
                TwinMove if self.twin else Move,
                "{{ known }} What do you choose?",
                system=TWIN_RULES if self.twin else RULES,
                tag=tag,
                decide=self.decide,
                known=known,
            )
            cooperates[tag] = int(reply.choice in ("cooperate", "slow"))
            ask.note(
                "Line 1" if self.twin else "Person 1",
                component=tag,
                **{f"cooperates_{tag}": cooperates[tag]},
            )
        return Moves(cooperates=cooperates)

    def rule(self, question: Question) -> Move | TwinMove:
        return TwinMove(choice="fast") if self.twin else Move(choice="compete")

    def prediction(self) -> dict[str, float]:
        return {f"cooperates.{tag}": 0 for tag in CONDITIONS}

    def people(self) -> Mapping[str, PublishedFigure]:
        if self.played_otherwise():
            return {}
        return {
            f"cooperates_{tag}": published(
                "shafir_1992",
                condition=condition,
                measure="cooperates",
                n=80,
                note="80 people with some six decisions each: they count as 80",
            )
            for tag, condition in CONDITIONS.items()
        }


if __name__ == "__main__":
    run = Disjunction(players={"*": "rule"})
    print(run.run().filter(like="cooperates"))
    print("people:", {name: figure.mean for name, figure in run.people().items()})
