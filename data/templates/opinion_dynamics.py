"""Opinions on a network: everybody hears some others, and forms an opinion anew.

Source: DeGroot (1974), "Reaching a consensus", Journal of the American Statistical Association 69.

Textbook: the rule takes the mean of the own opinion and those heard. Where all are linked, if only
through others, they come to one opinion: the mean of the first ones, weighted by the stationary
distribution of that averaging. Here links go both ways, so that somebody's weight is 1 + links,
over the sum of these: who has more links counts for more.
"""

from pydantic import Field

from llmsim_lab import Ask, Question, Reply, Run, State


class Minds(State):
    opinions: dict[str, float]


class Opinion(Reply):
    percent: float = Field(ge=0, le=100, description="of the town's money, for parks")


class OpinionDynamics(Run[Minds]):
    opening: dict[str, float] = {"Ann": 90.0, "Bob": 70.0, "Cy": 40.0, "Di": 20.0, "Ed": 10.0}
    links: list[tuple[str, str]] = [("Ann", "Bob"), ("Ann", "Cy"), ("Ann", "Di"), ("Di", "Ed")]

    def start(self) -> Minds:
        return Minds(opinions=self.opening)

    def heard(self, name: str) -> list[str]:
        return [b if a == name else a for a, b in self.links if name in (a, b)]

    async def turn(self, state: Minds, ask: Ask) -> Minds:
        replies = await ask.each(
            state.opinions,
            Opinion,
            """How much of the town's money should go to parks, in percent? You talked with others,
            each with good reasons.{% for other, percent in heard | items %}
            {{ other }} thinks {{ percent | round(1) }}.{% endfor %}
            You are {{ name }} and thought {{ state.opinions[name] | round(1) }} until now. What do
            you think now?""",
            heard=lambda name: {other: state.opinions[other] for other in self.heard(name)},
        )
        return Minds(opinions={name: reply.percent for name, reply in replies.items()})

    def rule(self, question: Question) -> Opinion:
        views = [question.state.opinions[question.player], *question.values["heard"].values()]
        return Opinion(percent=sum(views) / len(views))

    def prediction(self) -> dict[str, float]:
        weights = {name: 1 + len(self.heard(name)) for name in self.opening}
        consensus = sum(weights[name] * self.opening[name] for name in weights)
        return {f"opinions.{name}": consensus / sum(weights.values()) for name in weights}


if __name__ == "__main__":
    run = OpinionDynamics(players={"*": "rule"})
    print(run.run(20)[[*run.prediction()]], "prediction:", run.prediction(), sep="\n")
