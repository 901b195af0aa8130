"""A replicate, a sample and a wording are new draws of the players under the same shocks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pytest
from builders import recorded
from study_kit import played

from llmsim_lab import Ask, LLMClient, LLMConfig, Question, Reply, Run, ScriptedBackend, State
from llmsim_lab.llm import ChatReply
from llmsim_lab.run import replay
from llmsim_lab.statechart import SocialSimulation
from llmsim_lab.study import Study

FAIR = (("A", math.log(0.5)), ("B", math.log(0.5)))


class Vote(Reply):
    side: Literal["raise", "hold"]


class Board(State):
    raised: int = 0
    shock: float = 0.0


class Council(Run[Board]):
    """One member votes, in a world with shocks."""

    async def turn(self, state: Board, ask: Ask) -> Board:
        vote = await ask("Ann", Vote, "You are {{ name }}.", decide="sample")
        return Board(raised=int(vote.side == "raise"), shock=ask.rng.random())

    def rule(self, question: Question) -> Vote:
        return Vote(side=question.rng.choice(["raise", "hold"]))


async def later(question: Question) -> Any:
    return Council.rule(Council(players="rule"), question)


def coin() -> LLMClient:
    """A model that chooses either side with the same probability."""
    backend = ScriptedBackend(lambda _: ChatReply(text="A", top_logprobs=FAIR))
    return LLMClient(LLMConfig(model="coin"), backend)


PLAYERS: dict[str, Any] = {
    "a choice": coin,
    "chance": lambda: "random",
    "a rule": lambda: "rule",
    "a function": lambda: later,
}
AS_BEFORE = "10110100"
"""What each votes in eight turns of seed 0, since before replicates drew anew."""
by_each_player = pytest.mark.parametrize("who", PLAYERS)


def councils(vary: Any, who: str, **more: Any) -> pd.DataFrame:
    study = Study(
        Council,
        vary,
        seeds=1,
        turns=8,
        outcome=["raised", "shock"],
        players=PLAYERS[who](),
        **more,
    )
    return played(study).results


def drawn(table: pd.DataFrame, by: str) -> list[tuple[str, str]]:
    """Return by replicate, sample or wording what was voted, and which shocks there were."""
    found = []
    for _, rows in table.groupby(by, sort=False):
        votes = rows.loc[rows["outcome"] == "raised", "value"].astype(int)
        shocks = rows.loc[rows["outcome"] == "shock", "value"]
        found.append(("".join(map(str, votes)), str(shocks.tolist())))
    return found


@by_each_player
def test_a_replicate_draws_anew_and_the_first_as_it_did(who: str) -> None:
    first, second = drawn(councils({"replicate": [0, 1]}, who), "arm")
    assert first[0] == AS_BEFORE
    assert second[0] != first[0]
    assert second[1] == first[1]


@by_each_player
def test_each_wording_draws_anew_and_arms_share_what_it_draws(who: str) -> None:
    texts = [f"Vote, {{{{ name }}}}. {number}" for number in range(3)]
    table = councils({"prompt": {"these": texts, "those": texts[::-1]}}, who)
    votes, shocks = zip(*drawn(table[table["arm"] == "these"], "wording"), strict=True)
    assert len(set(votes)) == 3
    assert len(set(shocks)) == 1
    assert votes == tuple(vote for vote, _ in drawn(table[table["arm"] == "those"], "wording"))


@by_each_player
def test_each_sample_of_a_situation_draws_anew(who: str, path: Path) -> None:
    run = recorded(Council(players=PLAYERS[who](), tape=path, turns=8))
    study = Study.again(
        run,
        {},
        samples=3,
        outcome=["raised", "shock"],
        players=PLAYERS[who](),
    )
    votes, shocks = zip(*drawn(played(study).results, "replicate"), strict=True)
    assert len(set(votes)) == 3
    assert len(set(shocks)) == 1


@by_each_player
def test_a_rerun_draws_anew_and_replays(who: str, path: Path) -> None:
    players = PLAYERS[who]()
    recorded(Council(players=players, tape=path, turns=8))
    recorded(Council.rerun(path, 1, players=players))
    first, second = (replay(path, number, players=players) for number in (1, 2))
    votes = ["".join(str(turn.state.raised) for turn in run.turns[1:]) for run in (first, second)]
    assert votes[0] == AS_BEFORE
    assert votes[1] != votes[0]


def test_users_of_a_social_network_draw_anew_when_the_rule_answers() -> None:
    runs = [SocialSimulation(players="rule", replicate=number) for number in (0, 0, 1)]
    frames = [run.run(6, progress=False).drop(columns="seconds") for run in runs]
    assert frames[0].equals(frames[1])
    assert not frames[0].equals(frames[2])


def test_an_arm_compared_with_itself_has_p_values_all_over() -> None:
    found = []
    for number in range(10):
        study = Study(
            Council,
            {"replicate": [0, 1]},
            seeds=range(5 * number, 5 * number + 5),
            turns=2,
            outcome="raised",
            llm_client=coin(),
        )
        [effect] = played(study).effects()
        found.append(effect.p)
    assert min(found) < 0.2
    assert 0.3 < sum(found) / len(found) < 0.7
