"""Beauty contest: whoever is closest to a part of the mean of all guesses wins.

Source: Nagel (1995), "Unraveling in guessing games: an experimental study", American Economic
Review 85, whose factors include 1/2 and 2/3.

Textbook: for a factor below 1 the only equilibrium is 0. Who expects the mean m says factor * m,
who expects all to do so factor**2 * m, and so on. The rule takes ``depth`` such steps from the last
mean, at first 50, the middle: so its mean is 50 * factor**(depth * turn). People begin with few.
"""

from pydantic import Field

from llmsim_lab import Ask, Question, Reply, Run, State


class Guesses(State):
    mean: float = 50.0  # at first of nobody's guesses: the middle
    target: float | None = None  # factor * mean
    guesses: dict[str, float] = {}
    winners: list[str] = []


class Guess(Reply):
    number: float = Field(ge=0, le=100, description="your guess, from 0 to 100")


class BeautyContest(Run[Guesses]):
    group: tuple[str, ...] = Field(("Ann", "Bob", "Cy", "Di"), min_length=1)
    factor: float = Field(0.5, gt=0, lt=1)
    depth: int = Field(1, ge=0)  # of the rule

    async def turn(self, state: Guesses, ask: Ask) -> Guesses:
        replies = await ask.each(
            self.group,
            Guess,
            """{{ run.group | join(", ") }} each guess a number from 0 to 100, without knowing the
            others' guesses. Whoever is closest to {{ run.factor }} times the mean of all guesses
            wins a prize.{% if state.winners %} In the turn before the guesses were
            {{ state.guesses }}, their mean {{ state.mean }}, the number to hit {{ state.target }},
            the winner {{ state.winners | join(" and ") }}.{% endif %}
            You are {{ name }}. What is your guess?""",
        )
        guesses = {name: reply.number for name, reply in replies.items()}
        mean = sum(guesses.values()) / len(guesses)
        target = self.factor * mean
        best = min(abs(guess - target) for guess in guesses.values())
        winners = [name for name, guess in guesses.items() if abs(guess - target) == best]
        return Guesses(mean=mean, target=target, guesses=guesses, winners=winners)

    def told(self, state: Guesses, player: str) -> dict[str, object]:
        return {"you guessed": state.guesses[player], "to hit": state.target, "won": state.winners}

    def payoff(self, player: str) -> int:  # turns won, which a person sees at the end
        return sum(player in turn.state.winners for turn in self.turns[1:])

    def rule(self, question: Question) -> Guess:
        return Guess(number=self.factor**self.depth * question.state.mean)

    def prediction(self) -> dict[str, float]:
        return {"mean": 0, "target": 0}


if __name__ == "__main__":
    run = BeautyContest(players={"*": "rule"})
    print(run.run()[[*run.prediction()]], "prediction:", run.prediction(), sep="\n")
