"""Turns of the social simulation: who sees what, who does what, what becomes of posts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import played, recorded
from social_kit import make_social, picks

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Person
from llmsim_lab.run import replay
from llmsim_lab.statechart import AgentState, Post
from llmsim_lab.statechart.state import FeedEntry, SocialState, UserState

USERS = tuple(UserState(name, AgentState.SCROLLING) for name in ("User 1", "User 2"))
NOTHING = {"interest": 0, "recency": 0, "popularity": 0, "noise": 0}


def post(number: int, author: str = "Press", **more: Any) -> Post:
    values = {"text": f"Story {number}", "topics": ("tea",), "root": number, **more}
    return Post(id=number, author=author, **values)


def network(*entries: FeedEntry, people: tuple[UserState, ...] = USERS, at: int = 1) -> SocialState:
    return SocialState(at=at, people=people, feed=entries, next_post=99)


def seen_next(state: SocialState, seed: int = 1, **weights: Any) -> list[int | None]:
    """Return the post that each user comes to see in the next turn."""
    run = make_social(users=2, state=state, seed=seed, feed=weights, players="rule")
    after = played(run, 1).state.people
    return [
        next(iter(set(later.seen) - set(person.seen)), None)
        for person, later in zip(state.people, after, strict=True)
    ]


# --- the feed ---------------------------------------------------------------------------------


def about(number: int, *topics: str, turn: int = 4) -> Post:
    return post(number, topics=topics, turn=turn)


@pytest.mark.parametrize(
    ("first", "second", "weights", "varied", "even"),
    [
        # With a half-life of 2 turns, a post that is 2 turns old has half the recency.
        (
            FeedEntry(about(1, "war")),
            FeedEntry(about(2, "tea", turn=2)),
            "recency",
            "interest",
            0.5,
        ),
        (FeedEntry(about(1, "tea", turn=2)), FeedEntry(about(2)), "interest", "recency", 2.0),
        # Half of its topics are of interest.
        (FeedEntry(about(1, "tea", "war", turn=2)), FeedEntry(about(2)), "interest", "recency", 1),
        # log(2) / log(4) is a half: three marks of any kind beside one.
        (
            FeedEntry(about(1, "war"), likes=1, replies=1, reshares=1),
            FeedEntry(about(2, "tea"), replies=1),
            "popularity",
            "interest",
            0.5,
        ),
        # The most popular post gains the weight of popularity, whatever its likes.
        *(
            (
                FeedEntry(about(1, "war"), likes=likes),
                FeedEntry(about(2, "tea")),
                "popularity",
                "interest",
                1,
            )
            for likes in (1, 1000)
        ),
    ],
)
def test_what_recency_interest_and_popularity_are_worth_against_each_other(
    first: FeedEntry, second: FeedEntry, weights: str, varied: str, even: float
) -> None:
    state = network(first, second, at=4)
    for factor, seen in ((0.95, 1), (1.05, 2)):
        feed = {**NOTHING, "half_life": 2, weights: 1, varied: even * factor}
        assert seen_next(state, **feed) == [seen, seen]


def test_the_draws_follow_from_seed_and_turn_and_differ_between_users() -> None:
    state = network(*(FeedEntry(post(n)) for n in range(1, 30)))
    noise = {**NOTHING, "noise": 1}
    first = seen_next(state, **noise)
    assert first == seen_next(state, **noise)
    assert first[0] != first[1]
    assert first not in (seen_next(state, 2, **noise), seen_next(state.replace(at=2), **noise))


def test_nobody_sees_what_was_seen_or_passed_on_before_or_comes_from_a_banned_user() -> None:
    reshare = post(3, "User 2", kind="reshare", copy_of=1, parent=1, root=1)
    people = (USERS[0].having_seen([1]), USERS[1].with_ban(True))
    state = network(FeedEntry(post(1)), FeedEntry(reshare), people=people)
    assert seen_next(state)[0] is None
    assert seen_next(network(FeedEntry(post(4, "User 2")), people=people))[0] is None


def test_old_posts_leave_the_feed_and_of_too_many_the_least_noticed() -> None:
    old = FeedEntry(post(1), likes=9)
    young = [FeedEntry(post(number, turn=2), likes=likes) for number, likes in ((2, 5), (3, 0))]
    state = network(old, *young, FeedEntry(post(4, turn=2)), at=2)
    run = make_social(users=2, state=state, feed={"max_age": 3, "max_posts": 2, "recency": 0})
    assert [entry.post.id for entry in played(run, 1).state.feed] == [2, 4]


def test_draws_follow_from_the_seed_alone_so_that_recorded_runs_replay_in_any_version() -> None:
    quiet = [{"name": f"User {n}", "interests": ["tea"], "activity": 0.5} for n in range(1, 9)]
    simulation = played(make_social(users=8, population=quiet, players="rule"), 2)
    moves = [[(it.agent[-1], it.post) for it in turn.state.moves] for turn in simulation.turns]
    assert moves[1] == [("3", None), ("4", None), ("7", None)]
    assert moves[2] == [("2", None), ("3", 4), ("4", 3), ("6", None), ("7", 1)]


def test_what_one_user_does_moves_no_draw_of_the_others() -> None:
    free, banned = (make_social(users=6, players="rule") for _ in range(2))
    banned.intervene(0, {"banned": "User 1"})
    for simulation in (free, banned):
        simulation.run(3)
    free_moves = [move for turn in free.turns for move in turn.state.moves]
    others = [move for turn in banned.turns for move in turn.state.moves]
    assert others == [move for move in free_moves if move.agent != "User 1"]


# --- turns ------------------------------------------------------------------------------------


def test_a_turn_follows_the_chart_from_opening_the_app_to_the_like() -> None:
    simulation = played(make_social(replies=picks("engaging_like"), users=1), 4)
    moves = [move for turn in simulation.turns for move in turn.state.moves]
    assert [(it.trigger, it.target.value, it.decided_by) for it in moves] == [
        ("opens_app", "scrolling", "chart"),
        ("sees_post", "evaluating", "chart"),
        ("decides", "engaging_like", "reasoner"),
        ("finishes", "scrolling", "chart"),
    ]
    [like] = simulation.turns[3].state.likes
    assert simulation.to_frame()["asked"].tolist() == [0, 0, 0, 1, 0]
    liked = [entry.likes for entry in simulation.state.feed if entry.post.id == like.post]
    assert (like.agent, liked) == ("User 1", [1])


def test_reshares_carry_the_text_and_stay_in_the_same_cascade() -> None:
    simulation = played(make_social(replies=picks("engaging_reshare"), users=2), 3)
    made = simulation.turns[3].state.new_posts
    assert [item.kind for item in made] == ["reshare", "reshare"]
    for item in made:
        source = simulation.posts[item.parent or 0]
        assert (item.text, item.topics, item.copy_of) == (source.text, source.topics, source.id)
        assert item.root == source.id


def test_an_answer_to_an_answer_stays_in_the_cascade_that_it_began_with() -> None:
    answer = post(5, "Press", kind="reply", parent=2, root=2)
    person = UserState("User 1", AgentState.EVALUATING, post=5)
    start = network(FeedEntry(answer), people=(person,), at=0)
    simulation = played(make_social(replies=picks("engaging_reply"), users=1, state=start), 1)
    [made] = simulation.state.new_posts
    assert (made.kind, made.parent, made.root) == ("reply", 5, 2)
    [entry] = [entry for entry in simulation.state.feed if entry.post.id == 5]
    assert (entry.likes, entry.replies, entry.reshares) == (0, 1, 0)


def test_a_post_that_nothing_led_to_is_about_one_of_its_authors_interests() -> None:
    people = tuple(UserState(f"User {n}", AgentState.COMPOSING) for n in range(1, 9))
    start = network(FeedEntry(post(1, topics=("war",))), people=people, at=0)
    simulation = played(make_social(users=8, state=start, players="rule"), 1)
    made = simulation.state.new_posts
    assert {post.topics for post in made} == {("tea",), ("chess",)}
    assert {move.post for move in simulation.state.moves} == {None}
    assert [(post.id, post.root, post.kind) for post in made] == [
        (number, number, "original") for number in range(99, 107)
    ]


def test_time_up_is_a_trigger_before_all_others_and_the_chart_may_set_its_own() -> None:
    person = UserState("User 1", AgentState.SCROLLING, ticks=4)
    rest = UserState("User 2", AgentState.RESTING, ticks=1)
    start = network(FeedEntry(post(1)), people=(person, rest), at=0)
    simulation = played(make_social(users=2, state=start, players="rule"), 1)
    assert [(m.trigger, m.target, m.decided_by) for m in simulation.state.moves] == [
        ("timeout", "resting", "timeout"),
        ("timeout", "idle", "timeout"),
    ]


def test_ticks_count_turns_in_a_state_begin_anew_with_a_move_and_stand_still_under_a_ban() -> None:
    lazy = [{"name": name, "interests": ["tea"], "activity": 0} for name in ("Ann", "Bob")]
    people = (UserState("Ann", ticks=3), UserState("Bob", AgentState.SCROLLING, ticks=1))
    start = network(FeedEntry(post(1)), people=people, at=0)
    simulation = make_social(users=2, population=lazy, state=start, players="rule")
    simulation.intervene(2, {"banned": ["Ann"]})
    simulation.run(5)
    ticks = [[person.ticks for person in turn.state.people] for turn in simulation.turns]
    assert ticks == [[3, 1], [4, 0], [5, 0], [5, 0], [5, 0], [5, 1]]


def test_fallbacks_are_in_the_frame_and_in_the_runs_statuses() -> None:
    def reply(request: Any) -> str:
        return '{"next_state": "scrolling"}' if "User 1," in request.prompt else "no idea"

    simulation = played(make_social(replies=reply, users=4), 3)
    row = simulation.to_frame().iloc[-1]
    assert (row["asked"], row["ok"], row["fallback"]) == (4, 1, 3)


# --- who writes, who sits where ---------------------------------------------------------------


@pytest.mark.parametrize(("words", "status"), [({"text": "Indeed!"}, "ok"), ("?", "fallback")])
def test_a_model_may_write_posts_and_a_set_phrase_stands_in_loudly(
    words: Any, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    def reply(request: Any) -> Any:
        moves = "next_state" in request.schema["properties"]
        return {"next_state": "engaging_reply"} if moves else words

    simulation = played(make_social(replies=reply, users=1, players={}), 3)
    [answer] = [it for it in simulation.turns[3].answers if it.component == "writer"]
    [made] = simulation.state.new_posts
    assert (answer.status, answer.fields) == (status, {"text": made.text})
    assert (made.text == "Indeed!") is (status == "ok")
    assert ('FALLBACK agent="User 1" component=writer' in caplog.text) is (status == "fallback")
    prompt = answer.calls[0].request.prompt
    assert "Story" in prompt
    assert "Write a reply to it." in prompt


def test_a_person_sits_in_any_seat_and_others_stay_what_they_are(path: Path) -> None:
    asked: list[str] = []

    def say(question: Any) -> dict[str, Any]:
        asked.append(question.request.site.component)
        fields = question.request.schema["properties"]
        return {"next_state": "engaging_reply"} if "next_state" in fields else {"text": "Mine."}

    players = {"User 1": Person(say), "*": "rule"}
    run = recorded(make_social(path, users=3, players=players), 3)
    assert asked == ["reasoner", "writer"]
    assert [it.text for it in run.state.new_posts if it.author == "User 1"] == ["Mine."]
    assert {call.request.site.agent for call in run.calls if call.request.site} == {"User 1"}
    assert replay(path).turns == run.turns


# --- from outside -----------------------------------------------------------------------------


def test_a_banned_user_does_nothing_until_unbanned() -> None:
    simulation = make_social(users=2, players="rule")
    simulation.intervene(0, {"banned": "User 1"})
    simulation.intervene(3, {"banned": []})
    simulation.run(4)
    movers = [{move.agent for move in turn.state.moves} for turn in simulation.turns[1:]]
    assert movers == [{"User 2"}] * 3 + [{"User 1", "User 2"}]
    assert simulation.to_frame()["banned"].tolist() == [1, 1, 1, 0, 0]


def test_an_injected_post_is_seen_by_others_not_by_its_author() -> None:
    simulation = make_social(users=2, seed_posts=[], players="rule")
    simulation.intervene(1, {"post": {"author": "User 1", "text": "Hear me", "topics": ["tea"]}})
    simulation.run(2)
    assert {m.agent: m.trigger for m in simulation.state.moves} == {
        "User 1": "feed_empty",
        "User 2": "sees_post",
    }


def test_a_post_that_a_user_looks_at_stays_at_hand_when_an_injected_one_takes_its_place() -> None:
    reader = UserState("User 1", AgentState.EVALUATING, post=7)
    state = network(FeedEntry(post(7)), people=(reader, USERS[1]))
    simulation = make_social(users=2, state=state, feed={"max_posts": 1}, players="rule")
    simulation.intervene(0, {"post": {"author": "Press", "text": "New", "topics": ["war"]}})
    assert simulation.state.feed[0].post.text == "New"
    [move] = [move for move in played(simulation, 1).state.moves if move.agent == "User 1"]
    assert (move.trigger, move.post) == ("decides", 7)


def test_a_reshare_of_a_post_that_had_left_the_feeds_is_not_shown_to_its_author() -> None:
    author = UserState("User 2", AgentState.RESTING, seen=(7,))
    state = network(FeedEntry(post(7, "User 2", turn=1)), people=(USERS[0], author))
    reshares = picks("engaging_reshare")
    run = make_social(users=2, state=state, feed={"max_age": 1}, replies=reshares)
    after = played(run, 2).state
    assert [(entry.post.id, entry.post.content) for entry in after.feed] == [(99, 7)]
    assert after.people[1].seen == (7,)


LOST = UserState("User 1", AgentState.EVALUATING, post=7)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            network(people=USERS[:1]),
            "the state has 1 user, .*user 2 is None in the state, 'User 2'",
        ),
        (network(people=USERS[::-1]), "user 1 is 'User 2' in the state, 'User 1' in population"),
        (network(people=(LOST, USERS[1])), "state of 'User 1' is about post 7, which is neither"),
        (network(FeedEntry(post(99))), "post 99 is in the state, and next_post=99 would give"),
        (network(FeedEntry(post(7, turn=9))), "post 7 of the state is of turn 9, and the state"),
        (network(FeedEntry(post(7, turn=-1))), "post 7 of the state is of turn -1, and the state"),
    ],
)
def test_a_state_that_no_network_of_these_users_can_have_is_an_error(
    state: SocialState, message: str
) -> None:
    simulation = make_social(users=2, state=state, players="rule")
    with pytest.raises(ConfigError, match=message):
        simulation.run(1)
    with pytest.raises(ConfigError, match=message):
        simulation.intervene(0, {"post": {"author": "Press", "text": "New", "topics": ["war"]}})


def test_users_in_a_state_that_the_chart_lacks_are_an_error() -> None:
    chart = {
        "initial": "idle",
        "states": ["idle", "resting"],
        "transitions": [{"trigger": "opens_app", "source": "idle", "target": "resting"}],
    }
    with pytest.raises(ConfigError, match="'User 1' is scrolling in the state, which the chart"):
        make_social(users=2, state=network(), chart=chart, players="rule").run(1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"banned": ["Nobody"]}, "there is no user 'Nobody'; there are User 1, User 2"),
        ({"banned": 5}, "there is no user 5; there are User 1"),
        (
            {"post": {"author": "A", "text": " ", "topics": ["x"]}},
            "PostConfig: text: it says nothing",
        ),
        ({"post": 5}, "PostConfig: author: Field required; text: .*string"),
        ({"idle": 3}, "'idle' is nothing that can be set in a SocialSimulation; it takes banned,"),
    ],
)
def test_what_cannot_be_set_is_an_error_at_once(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_social(players="rule").intervene(1, values)
