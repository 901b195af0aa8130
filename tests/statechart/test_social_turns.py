"""Rounds of the social simulation: who sees what, who does what, what becomes of posts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from social_kit import make_social, picks, social_client, social_values

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Person
from llmsim_lab.run import replay
from llmsim_lab.statechart import AgentState, Post, Reasoner, SocialSimulation
from llmsim_lab.statechart._config import FeedConfig
from llmsim_lab.statechart._state import FeedEntry, SocialState, UserState
from llmsim_lab.statechart._turn import circulate, next_posts

RULE = {"players": "rule"}
TEA = ("tea",)


def post(number: int, author: str = "Press", **more: Any) -> Post:
    values = {"text": f"Story {number}", "topics": TEA, "root": number, **more}
    return Post(id=number, author=author, **values)


def network(*entries: FeedEntry, people: Sequence[UserState], turn: int = 1) -> SocialState:
    last = max((entry.post.id for entry in entries), default=0)
    return SocialState(at=turn, people=tuple(people), feed=entries, next_post=last + 1)


def seen_next(state: SocialState, seed: int = 1, **weights: Any) -> list[Post | None]:
    users = make_social(users=2).config.population
    return next_posts(state, users, FeedConfig(**weights), seed=seed)


# --- the feed ---------------------------------------------------------------------------------


def test_interest_recency_and_popularity_each_decide_when_alone() -> None:
    people = [UserState("User 1"), UserState("User 2")]
    other = FeedEntry(post(1, topics=("football",), turn=1), likes=9)
    match = FeedEntry(post(2, turn=0))
    state = network(match, other, people=people)
    nothing = {"interest": 0, "recency": 0, "popularity": 0, "noise": 0}
    for weight, expected in (("interest", 2), ("recency", 1), ("popularity", 1)):
        chosen = seen_next(state, **{**nothing, weight: 1})
        assert [item.id for item in chosen if item] == [expected, expected]


def test_the_draws_follow_from_seed_and_turn_and_differ_between_users() -> None:
    people = [UserState("User 1"), UserState("User 2")]
    state = network(*(FeedEntry(post(n)) for n in range(1, 30)), people=people)
    only_noise = {"interest": 0, "recency": 0, "popularity": 0, "noise": 1}
    first = seen_next(state, **only_noise)
    assert first == seen_next(state, **only_noise)
    assert first[0] != first[1]
    assert first != seen_next(state, 2, **only_noise)
    assert first != seen_next(state.replace(at=2), **only_noise)


def test_nobody_sees_what_was_seen_or_passed_on_before_or_comes_from_a_banned_user() -> None:
    reshare = post(3, "User 2", kind="reshare", copy_of=1, parent=1, root=1)
    people = [UserState("User 1", seen=(1,)), UserState("User 2", banned=True)]
    state = network(FeedEntry(post(1)), FeedEntry(reshare), people=people)
    assert seen_next(state)[0] is None
    state = network(FeedEntry(post(4, "User 2")), people=people)
    assert seen_next(state)[0] is None


def test_old_posts_leave_the_feed_and_of_too_many_the_least_noticed() -> None:
    config = FeedConfig(max_age=3, max_posts=2, recency=0)
    entries = [FeedEntry(post(1)), FeedEntry(post(2, turn=2), likes=5)]
    entries += [FeedEntry(post(3, turn=2)), FeedEntry(post(4, turn=3))]
    left = circulate(entries[:3], entries[3:], number=3, config=config)
    assert [entry.post.id for entry in left] == [2, 4]


# --- turns ------------------------------------------------------------------------------------


async def test_a_turn_follows_the_chart_from_opening_the_app_to_the_like() -> None:
    simulation = make_social(replies=picks("engaging_like"), users=1)
    seen = []
    for _ in range(4):
        turn = await simulation.step()
        seen.append(simulation.state.people[0].state)
    assert seen == ["scrolling", "evaluating", "engaging_like", "scrolling"]
    moves = [move for turn in simulation.turns for move in turn.state.moves]
    assert [it.trigger for it in moves] == ["opens_app", "sees_post", "decides", "finishes"]
    assert [it.decided_by for it in moves] == ["chart", "chart", "reasoner", "chart"]
    like = simulation.turns[3].state.likes[0]
    assert like.agent == "User 1"
    assert simulation.to_frame()["asked"].tolist() == [0, 0, 0, 1, 0]
    assert [entry.likes for entry in turn.state.feed if entry.post.id == like.post] == [1]


async def test_reshares_carry_the_text_and_replies_hang_in_the_same_cascade() -> None:
    simulation = make_social(replies=picks("engaging_reshare"), users=2)
    await simulation.arun(3)
    made = simulation.turns[3].state.new_posts
    assert {item.kind for item in made} == {"reshare"}
    for item in made:
        source = simulation.posts[item.parent or 0]
        assert (item.text, item.topics, item.copy_of) == (source.text, source.topics, source.id)
        assert item.root == source.id


async def test_time_up_is_a_trigger_before_all_others_and_the_chart_may_set_its_own() -> None:
    person = UserState("User 1", AgentState.SCROLLING, ticks=4)
    rest = UserState("User 2", AgentState.RESTING, ticks=1)
    start = network(FeedEntry(post(1)), people=[person, rest], turn=0)
    simulation = make_social(users=2, state=start, **RULE)
    turn = await simulation.step()
    assert [(m.trigger, m.target, m.decided_by) for m in turn.state.moves] == [
        ("timeout", "resting", "timeout"),
        ("timeout", "idle", "timeout"),
    ]


# --- the reasoner's part ----------------------------------------------------------------------


async def test_fallbacks_are_in_the_frame_and_the_runs_rate() -> None:
    def reply(request: Any) -> str:
        return '{"next_state": "scrolling"}' if "User 1," in request.prompt else "no idea"

    simulation = make_social(replies=reply, users=4)
    assert simulation.fallback_rate is None
    await simulation.arun(3)
    assert simulation.fallback_rate == 0.75
    row = simulation.to_frame().iloc[-1]
    assert (row["asked"], row["ok"], row["fallback"]) == (4, 1, 3)


async def test_questions_of_a_turn_are_what_was_asked_there_and_others_can_be_asked_them() -> None:
    simulation = make_social(users=4)
    await simulation.arun(5)
    for turn in range(1, 6):
        played = simulation.turns[turn]
        questions = simulation.questions(turn)
        asked = [m.agent for m in played.state.moves if m.decided_by == "reasoner"]
        assert [question.agent.name for question in questions] == asked
        client = social_client()
        await Reasoner(client, seed=simulation.seed).decide(questions)
        sent = [request.prompt for request in client.backend.requests]  # type: ignore[attr-defined]
        assert sent == [call.request.prompt for call in played.calls]
    before = simulation.state
    assert [q.turn for q in simulation.questions()] == [6] * len(simulation.questions())
    assert simulation.state is before
    with pytest.raises(ConfigError, match="turn 9 has no questions here; ask for one from 1 to 6"):
        simulation.questions(9)


async def test_a_guard_may_keep_users_from_timing_out() -> None:
    table = {
        "initial": "idle",
        "states": ["idle", "scrolling"],
        "timeouts": {"scrolling": 1},
        "transitions": [
            {"trigger": "opens_app", "source": "idle", "target": "scrolling"},
            {"trigger": "timeout", "source": "scrolling", "target": "idle", "guard": "never"},
            {"trigger": "feed_empty", "source": "scrolling", "target": "idle"},
        ],
    }

    class Town(SocialSimulation):
        guards = {"never": lambda agent, context: False}  # noqa: RUF012

    simulation = Town(**social_values(1, chart=table, seed_posts=[], **RULE))
    await simulation.step()
    assert [m.trigger for m in (await simulation.step()).state.moves] == ["feed_empty"]


# --- who writes -------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "status"), [({"text": "Indeed!"}, "ok"), ("?", "fallback")])
async def test_a_model_may_write_posts_and_a_set_phrase_stands_in_loudly(
    words: Any, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    def reply(request: Any) -> Any:
        moves = "next_state" in request.schema["properties"]
        return {"next_state": "engaging_reply"} if moves else words

    simulation = make_social(replies=reply, users=1, players={})
    with caplog.at_level(logging.WARNING):
        await simulation.arun(3)
    (answer,) = [it for it in simulation.turns[3].answers if it.component == "writer"]
    [made] = simulation.turns[3].state.new_posts
    assert (answer.status, answer.fields) == (status, {"text": made.text})
    assert (made.text == "Indeed!") is (status == "ok")
    assert ('FALLBACK agent="User 1" component=writer' in caplog.text) is (status == "fallback")
    prompt = answer.calls[0].request.prompt
    assert "Story" in prompt
    assert "Write a reply to it." in prompt


# --- from outside -----------------------------------------------------------------------------


async def test_a_banned_user_does_nothing_until_unbanned() -> None:
    simulation = make_social(users=2, **RULE)
    await simulation.arun(2)
    simulation.intervene(2, {"banned": ["User 1"]}, note="spam")
    await simulation.arun(3)
    assert {m.agent for turn in simulation.turns[3:] for m in turn.state.moves} == {"User 2"}
    assert simulation.to_frame()["banned"].tolist() == [0, 0, 1, 1, 1, 1]
    simulation.intervene(5, {"banned": []})
    await simulation.arun(1)
    assert "User 1" in {m.agent for m in simulation.turns[-1].state.moves}


async def test_an_injected_post_is_seen_by_others_not_by_its_author() -> None:
    simulation = make_social(users=2, seed_posts=[], **RULE)
    post = {"author": "User 1", "text": "Hear me", "topics": ["tea"]}
    simulation.intervene(1, {"post": post})
    await simulation.arun(2)
    assert [entry.post.text for entry in simulation.turns[1].state.feed] == ["Hear me"]
    assert {m.agent: m.trigger for m in simulation.turns[2].state.moves} == {
        "User 1": "feed_empty",
        "User 2": "sees_post",
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"banned": ["Nobody"]}, "there is no user 'Nobody' to ban; the users are User 1, User 2"),
        ({"post": {"author": "A", "text": " ", "topics": ["x"]}}, "post.text: it says nothing"),
        ({"idle": 3}, "'idle' is nothing that can be set in a SocialSimulation; it takes banned,"),
    ],
)
def test_what_cannot_be_set_is_an_error_at_once(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_social(**RULE).intervene(1, values)


async def test_a_person_sits_in_any_seat_and_others_stay_what_they_are(tmp_path: Path) -> None:
    asked: list[str] = []

    def say(question: Any) -> dict[str, Any]:
        asked.append(question.request.site.component)
        fields = question.request.schema["properties"]
        return {"next_state": "engaging_reply"} if "next_state" in fields else {"text": "Mine."}

    players = {"User 1": Person(say), "*": "rule"}
    run = make_social(tmp_path / "x.tape", users=3, players=players)
    await run.arun(3)
    assert asked == ["reasoner", "writer"]
    mine = [post.text for post in run.turns[3].state.new_posts if post.author == "User 1"]
    assert mine == ["Mine."]
    assert {call.request.site.agent for call in run.calls if call.request.site} == {"User 1"}
    run.close()
    assert replay(tmp_path / "x.tape").turns == run.turns
