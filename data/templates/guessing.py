"""Guessing: whoever is closest to a factor times the mean of all numbers wins a prize.

Source: Nagel (1995), "Unraveling in guessing games: an experimental study", American Economic
Review 85. As there: 16 players (15 to 18 in the paper), four periods, numbers from 0 to 100, the
factors 1/2, 2/3 and 4/3, a prize of 20 marks, and after each period all numbers, their mean, the
number to hit and the winner. The instructions are in words of our own. ``twin`` has the same
structure with another story, another range and other names, which no paper has.

Textbook: for a factor below 1 the only equilibrium is 0; above 1 all choose 100, or all choose 0.
The rule takes one step of reasoning from the last mean, at first from the middle.
"""

from collections.abc import Mapping
from statistics import fmean

from pydantic import Field

from llmsim_lab import Ask, Question, Reply, Run, State
from llmsim_lab.people import PublishedFigure, published

RULES = """{{ players }} people each choose a number from 0 to 100, without talking to each other.
Whoever is closest to {{ factor }} times the mean of all numbers wins 20 marks; of several, they
share it. The others win nothing. The same people play four periods. After each, all are told the
numbers, their mean, {{ factor }} times the mean, and who won."""

TWIN_RULES = """{{ players }} bakeries each name a price from 0 to 250 cents for the same loaf,
without talking to each other. The school orders where the price is closest to {{ factor }} times
the mean of all prices; of several, it orders a part from each. The others sell it nothing. The same
bakeries name prices in four weeks. After each, all are told the prices, their mean, {{ factor }}
times the mean, and who sold."""

SEEN = """{% for period in seen %}Before: {{ period.numbers | join(", ") }}; their mean
{{ period.mean | round(2) }}, the number to hit {{ period.target | round(2) }}, won by
{{ period.winners | join(" and ") }}.
{% endfor %}You are {{ name }}. What is your number?"""

FACTORS = {1 / 2: "1/2", 2 / 3: "2/3", 4 / 3: "4/3"}
SESSIONS = {"1/2": (1, 2, 3), "2/3": (4, 5, 6, 7)}  # Table 1 has none of 4/3


class Period(State):
    numbers: list[float]
    mean: float
    target: float
    winners: list[str]


class Guesses(State):
    guess: float | None = None  # the mean, as a share of the highest number
    seen: list[Period] = []


class Number(Reply):
    number: float


class Guessing(Run[Guesses]):
    defaults = {"turns": 4}
    # Fewer periods are a game of four that is broken off, as its rules say.
    people_played = {
        "turns": range(1, 5),
        "players_in_group": range(15, 19),
        "factor": list(FACTORS),
    }
    players_in_group: int = Field(16, ge=2, le=1000)
    factor: float = Field(2 / 3, gt=0)
    twin: bool = False

    def group(self) -> list[str]:
        word = "Bakery" if self.twin else "Player"
        return [f"{word} {number}" for number in range(1, self.players_in_group + 1)]

    async def turn(self, state: Guesses, ask: Ask) -> Guesses:
        highest = 250 if self.twin else 100
        replies = await ask.each(
            self.group(),
            Number,
            SEEN,
            system=TWIN_RULES if self.twin else RULES,
            limits={"number": (0, highest)},
            players=self.players_in_group,
            factor=FACTORS.get(self.factor, f"{self.factor:g}"),
            seen=state.seen,
        )
        numbers = {name: reply.number for name, reply in replies.items()}
        for name, number in numbers.items():
            ask.note(name, guess=number / highest)
        mean = fmean(numbers.values())
        target = self.factor * mean
        best = min(abs(number - target) for number in numbers.values())
        period = Period(
            numbers=sorted(round(number, 2) for number in numbers.values()),
            mean=mean,
            target=target,
            winners=[name for name, number in numbers.items() if abs(number - target) == best],
        )
        return Guesses(guess=mean / highest, seen=[*state.seen, period])

    def told(self, state: Guesses, player: str) -> dict[str, object]:
        if not state.seen:
            return {}
        last = state.seen[-1]
        return {"number to hit": round(last.target, 2), "won": player in last.winners}

    def payoff(self, player: str) -> int:  # periods won, which a person sees at the end
        return sum(player in turn.state.seen[-1].winners for turn in self.turns[1:])

    def rule(self, question: Question) -> Number:
        highest = question.limits["number"][1]
        seen = question.state.seen
        last = seen[-1].mean if seen else highest / 2
        return Number(number=min(highest, self.factor * last))

    def prediction(self) -> dict[str, float]:
        if self.factor == 1:  # whatever all choose alike
            return {}
        return {"guess": 0 if self.factor < 1 else 1}

    def people(self) -> Mapping[str, PublishedFigure]:
        if self.played_otherwise():
            return {}
        factor = FACTORS[self.factor]
        figures = {
            "guess@1": published(
                "nagel_1995",
                condition=f"factor {factor}",
                measure="guess",
                period=1,
                divide_by=100,
            )
        }
        for period in (2, 3, 4):
            sessions = [
                published(
                    "nagel_1995",
                    condition=f"factor {factor}, session {session}",
                    measure="guess",
                    period=period,
                    divide_by=100,
                )
                for session in SESSIONS.get(factor, ())
            ]
            if sessions:
                figures[f"guess@{period}"] = PublishedFigure(
                    study="nagel_1995",
                    condition=f"factor {factor}",
                    source=sessions[0].source,
                    place=sessions[0].place,
                    n=figures["guess@1"].n,
                    mean=fmean(session.mean for session in sessions),
                    note=f"the mean of {len(sessions)} sessions' means",
                )
        return figures


if __name__ == "__main__":
    run = Guessing(players={"*": "rule"})
    print(run.run()[["turn", "guess"]])
    print("people:", {name: figure.mean for name, figure in run.people().items()})
