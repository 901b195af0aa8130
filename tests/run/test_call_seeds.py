"""Each call's sampling seed: from the run's seed, its place and replicate, never from the arm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import in_words, make_client, recorded, requests_of
from pydantic import Field

from llmsim_lab import Ask, Reply, Run, State
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.simulation import Simulation
from llmsim_lab.types import ChatRequest


class Bid(Reply):
    amount: int = Field(ge=0, le=9)


class Purse(State):
    total: int = 0


class Auction(Run[Purse]):
    """Three players bid; the first is asked twice."""

    wording: str = "How much?"

    async def turn(self, state: Purse, ask: Ask) -> Purse:
        bids = await ask.each(["Ann", "Bob"], Bid, "{{ run.wording }} {{ name }}")
        more = await ask("Ann", Bid, "{{ run.wording }} Again, {{ player }}?", player="Ann")
        return state.replace(total=sum(bid.amount for bid in bids.values()) + more.amount)


ANSWER = {"reasoning": "So.", "amount": 3, "confidence": 0.5}


def seeds_of(client: LLMClient) -> list[Any]:
    return [request.options.get("seed") for request in requests_of(client)]


def seeds(turns: int = 2, *, reply: Any = ANSWER, llm: Any = None, **parameters: Any) -> list[Any]:
    """The sampling seeds that a run's calls are made with."""
    client = make_client(reply, **(llm or {}))
    Auction(llm_client=client, **parameters).run(turns)
    return seeds_of(client)


def test_every_call_has_a_seed_of_its_own_and_the_next_run_the_same_ones() -> None:
    drawn = seeds()
    assert len(set(drawn)) == len(drawn) == 6
    assert all(0 <= seed < 2**31 for seed in drawn)
    assert seeds() == drawn


def test_they_follow_from_the_runs_seed_and_the_replicate() -> None:
    runs = [seeds(), seeds(seed=1), seeds(replicate=1), seeds(seed=1, replicate=1)]
    assert len({seed for drawn in runs for seed in drawn}) == 4 * 6
    assert seeds(replicate=None) == [None] * 6  # the server draws


def test_arms_draw_the_same_numbers_whatever_is_asked_and_of_whom() -> None:
    assert seeds(wording="Your bid?", name="arm B", llm={"model": "other"}) == seeds()


def test_an_answer_of_no_use_is_asked_for_with_another_seed_and_a_lost_one_with_the_same() -> None:
    plain = seeds(1)
    invalid, lost = seeds(1, reply=first_fails("nonsense")), seeds(1, reply=first_fails(None))
    assert len(invalid) == len(lost) == 4
    assert lost.count(plain[0]) == 2
    assert len(set(invalid)) == 4
    assert set(plain) < set(invalid)


def first_fails(fault: str | None) -> Any:
    """A model whose first answer to Ann is nonsense, or lost."""
    asked: list[ChatRequest] = []

    def reply(request: ChatRequest) -> Any:
        asked.append(request)
        if len(asked) == 1:
            return fault or ConnectionError("refused")
        return ANSWER

    return reply


def test_a_turn_that_is_played_again_asks_with_the_same_seeds() -> None:
    client = make_client([ANSWER, ANSWER, *[ConnectionError("gone")] * 2, *[ANSWER] * 3])
    run = Auction(llm_client=client)
    with pytest.raises(Exception, match="connection_error"):
        run.run(1)
    run.run(1)
    assert seeds_of(client)[-3:] == seeds(1)


def test_each_rerun_is_another_replicate(path: Path) -> None:
    recorded(Auction(llm_client=make_client(ANSWER), tape=path), 1)
    drawn = [*seeds(1)]
    # Files that know nothing of one another, too.
    for to in (None, None, path.with_name("new.tape"), path.with_name("other.tape")):
        client = make_client(ANSWER)
        recorded(Auction.rerun(path, 1, llm_client=client, to=to), 1)
        drawn += seeds_of(client)
    assert len(set(drawn)) == 15
    with pytest.raises(ConfigError, match=r"replicate=2 is that of a run on .*; give another"):
        Auction.rerun(path, 1, to=path.with_name("third.tape"), replicate=2)
    chosen = Auction.rerun(path, 1, to=path.with_name("third.tape"), replicate=7)
    assert chosen.config.replicate == 7
    with Tape(path, read_only=True) as tape:
        assert [info.manifest["config"]["replicate"] for info in tape.runs()] == [0, 1, 2]


def test_the_last_replicate_is_followed_by_one_that_can_be_loaded(path: Path) -> None:
    recorded(Auction(llm_client=make_client(ANSWER), tape=path, replicate=2**31 - 1), 1)
    recorded(Auction.rerun(path, llm_client=make_client(ANSWER)), 1)
    assert Auction.load(path).config.replicate == 1


def test_the_contracts_agents_and_engines_draw_so_too() -> None:
    client = make_client()
    Simulation(in_words(nations=["Aland", "Borduria"]), llm_client=client).run(1)
    drawn = seeds_of(client)
    assert len(set(drawn)) == len(drawn) == 6
