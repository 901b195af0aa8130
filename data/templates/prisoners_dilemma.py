"""Prisoner's dilemma, again and again: two players each cooperate or defect, without talking.

Source: Axelrod (1980), "Effective choice in the prisoner's dilemma", Journal of Conflict Resolution
24, whose points these are; there programs played it in a round robin.

Textbook: whatever the other does, defecting earns more in a turn, and so both defect in each turn
of a game whose end is known. Both would earn more if both cooperated. Many people do, and programs
that return what they get won Axelrod's tournament.
"""

from typing import Literal

from pydantic import Field

from llmsim_lab import Ask, Question, Reply, Run, State

RULES = """Ann and Bob play a game of many turns. In each turn both choose C (cooperate) or D
(defect) at the same time. Both C: {{ run.both_cooperate }} points each. Both D:
{{ run.both_defect }} each. If one chooses D and the other C, D earns {{ run.defects_alone }} and
C earns {{ run.cooperates_alone }}. You want to earn as many points as you can in all turns."""

PEOPLE = """{% if past %} In the last turn you chose {{ past[-1][0] }} and the other
{{ past[-1][1] }}.{% endif %} C (cooperate) or D (defect)?"""


class Dilemma(State):
    cooperating: float | None = None  # share of the two
    moves: dict[str, str] = {}
    earned: dict[str, int] = {}  # in this turn
    past: dict[str, str] = {"Ann": "", "Bob": ""}  # all moves, oldest first: "CCD"


class Move(Reply):
    move: Literal["C", "D"]


class PrisonersDilemma(Run[Dilemma]):
    both_cooperate: int = 3
    both_defect: int = 1
    defects_alone: int = 5
    cooperates_alone: int = 0
    remembers: int = Field(50, ge=0)  # turns of which players are told

    async def turn(self, state: Dilemma, ask: Ask) -> Dilemma:
        first = max(0, len(state.past["Ann"]) - self.remembers)
        seen = {name: list(moves[first:]) for name, moves in state.past.items()}
        past = {
            "Ann": list(zip(seen["Ann"], seen["Bob"], strict=True)),
            "Bob": list(zip(seen["Bob"], seen["Ann"], strict=True)),
        }
        replies = await ask.each(
            ("Ann", "Bob"),
            Move,
            """{% if past %}Ann's moves so far: {{ moves["Ann"] }}. Bob's: {{ moves["Bob"] }}.
            {% endif %}You are {{ name }}.{% if past %} In the last turn you chose
            {{ past[-1][0] }} and the other {{ past[-1][1] }}.{% endif %} C or D?""",
            system=RULES,
            for_people=RULES + PEOPLE,
            moves={name: " ".join(moves) for name, moves in seen.items()},
            past=lambda name: past[name],
        )
        ann, bob = replies["Ann"].move, replies["Bob"].move
        earned = {"Ann": self.points(ann, bob), "Bob": self.points(bob, ann)}
        return Dilemma(
            cooperating=(ann, bob).count("C") / 2,
            moves={"Ann": ann, "Bob": bob},
            earned=earned,
            past={"Ann": state.past["Ann"] + ann, "Bob": state.past["Bob"] + bob},
        )

    def points(self, own: str, other: str) -> int:
        if own == other:
            return self.both_cooperate if own == "C" else self.both_defect
        return self.defects_alone if own == "D" else self.cooperates_alone

    def told(self, state: Dilemma, player: str) -> dict[str, object]:
        [other] = {"Ann", "Bob"} - {player}
        return {"the other chose": state.moves[other], "you earned": state.earned[player]}

    def payoff(self, player: str) -> int:  # what a person sees at the end
        return sum(turn.state.earned[player] for turn in self.turns[1:])

    def rule(self, question: Question) -> Move:
        return Move(move="D")

    def prediction(self) -> dict[str, float]:
        return {"cooperating": 0, "earned.Ann": self.both_defect, "earned.Bob": self.both_defect}


if __name__ == "__main__":
    run = PrisonersDilemma(players={"*": "rule"})
    print(run.run()[[*run.prediction()]], "prediction:", run.prediction(), sep="\n")
