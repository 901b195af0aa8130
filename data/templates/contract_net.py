"""Contract net: a manager announces tasks, contractors bid, and the surest bidder gets the task.

Source: Smith (1980), "The contract net protocol: high-level communication and control in a
distributed problem solver", IEEE Transactions on Computers C-29: announcement, bids, award.

Three conditions: each contractor has a skill of its own (``baseline``), all can do anything
(``homogeneous``), or one always bids and says that it is sure (``overconfident``).

Prediction: who has the skill is sure and all others do not bid, so that each task goes to the right
contractor. Where all say the same the award is by chance; and one who is always surest gets all
tasks, and is right in the third that are its own.
"""

from typing import Literal

from pydantic import Field

from llmsim_lab import Ask, Question, Reply, Run, State

TASKS = {
    "add 17 and 25": "math",
    "write a haiku about rain": "writer",
    "fix an off-by-one loop": "coder",
    "compute 12 percent of 250": "math",
    "shorten a letter": "writer",
    "write a unit test": "coder",
}

RULES = """A manager announces a task. Contractors bid if they can do it, and say in percent how
sure they are that they can. The task goes to the bidder who is surest. A contractor who gets a task
that is not within its skill does it badly."""


class Net(State):
    share_right: float | None = None  # of the tasks so far
    right: int = 0
    messages: int = 0  # announcements, bids and awards
    went_to: str = ""
    bids: dict[str, int] = {}  # in this turn, of those who bid


class Bid(Reply):
    bid: bool
    sure: int = Field(ge=0, le=100, description="percent")


class ContractNet(Run[Net]):
    defaults = {"turns": len(TASKS)}
    contractors: tuple[str, ...] = ("math", "writer", "coder")
    condition: Literal["baseline", "homogeneous", "overconfident"] = "baseline"

    async def turn(self, state: Net, ask: Ask) -> Net:
        task = list(TASKS)[(ask.turn - 1) % len(TASKS)]
        replies = await ask.each(
            self.contractors,
            Bid,
            """The task: {{ task }}. You are the contractor {{ name }}, and your skill is
            {{ skill }}.{{ boast }} Do you bid, and how sure are you?""",
            system=RULES,
            task=task,
            skill=lambda name: "anything" if self.condition == "homogeneous" else name,
            boast=lambda name: " You always bid, and are at least 90 sure." * self.boasts(name),
        )
        bids = {name: reply.sure for name, reply in replies.items() if reply.bid}
        # Ties are broken by chance: the first in a list would win them all.
        best = max(bids, key=lambda name: (bids[name], ask.rng.random())) if bids else ""
        right = state.right + (best == TASKS[task])
        return Net(
            share_right=right / ask.turn,
            right=right,
            messages=state.messages + len(self.contractors) + len(bids) + bool(best),
            went_to=best,
            bids=bids,
        )

    def boasts(self, name: str) -> bool:
        return self.condition == "overconfident" and name == self.contractors[-1]

    def told(self, state: Net, player: str) -> dict[str, object]:
        return {"the task went to": state.went_to or "nobody"}

    def rule(self, question: Question) -> Bid:
        if self.boasts(question.player):
            return Bid(bid=True, sure=95)
        is_able = question.values["skill"] in ("anything", TASKS[question.values["task"]])
        return Bid(bid=is_able, sure=80 if is_able else 0)

    def prediction(self) -> dict[str, float]:
        return {"share_right": 1 if self.condition == "baseline" else 1 / len(self.contractors)}


if __name__ == "__main__":
    run = ContractNet(players={"*": "rule"})
    print(run.run()[[*run.prediction()]], "prediction:", run.prediction(), sep="\n")
