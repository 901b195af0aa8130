"""Widgets and charts of the social simulation, and the general widgets on it."""

from __future__ import annotations

import base64
import re
from html import unescape
from pathlib import Path
from typing import Any

import ipywidgets as w
import pytest
from social_kit import make_social, picks
from viewer_kit import HOSTILE, played, turn_over

from llmsim_lab._util.files import data_path
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import (
    AgentStory,
    PromptViewer,
    RateChart,
    ReasoningInspector,
    RunTree,
    SocialBoard,
    TurnStepper,
)
from llmsim_lab.lab.charts._export import figure_html
from llmsim_lab.lab.figures import cascade_figure, state_figure, transition_figure
from llmsim_lab.statechart import Post, SocialSimulation
from llmsim_lab.statechart._analysis import Cascade

RULE = {"reasoner": {"kind": "rule"}}


@pytest.fixture
def run() -> SocialSimulation:
    """Six users, eight turns, a model that gives reasons."""
    made = make_social(reasoner={"kind": "llm", "rationale": True})
    made.run(8)
    return made


def hostile() -> SocialSimulation:
    """A network where names, posts and reasons try to be markup."""

    def reply(request: Any) -> dict[str, str]:
        return {"rationale": HOSTILE[:3000], "next_state": "engaging_reply"}

    made = make_social(
        replies=reply,
        agents=[
            {"name": f"<img src=x onerror=alert({n})>", "interests": ["tea"], "activity": 1.0}
            for n in range(2)
        ],
        posts=[{"author": "</style><b>", "text": HOSTILE[:4000], "topics": ["tea"]}],
        reasoner={"kind": "llm", "rationale": True},
        name="<script>$x$</script>",
    )
    made.run(4)
    return made


# --- the board ----------------------------------------------------------------------------------


def test_the_board_shows_the_latest_round_and_goes_back_and_forth(run: SocialSimulation) -> None:
    board = SocialBoard(run)
    assert "turn 8: 6 users" in board.heading.value
    assert "idle: 6 " not in board.static_text()
    board.previous_button.click()
    assert "turn 7" in board.heading.value
    board.show(0)
    assert "idle: 6 " in board.static_text()
    board.previous_button.click()
    assert board.turn_box.value == 0
    board.next_button.click()
    board.latest_button.click()
    board.next_button.click()
    assert "turn 8" in board.heading.value
    board.turn_box.value = 3
    assert "turn 3" in board.heading.value
    with pytest.raises(ConfigError, match="the run has no turn 9; it has turns 0 to 8"):
        board.show(9)


async def test_the_board_follows_a_run_that_others_play() -> None:
    made = make_social(users=3, **RULE)
    latest, early = SocialBoard(made), SocialBoard(made)
    before = latest.picture.value
    await made.step()
    early.show(0)
    await turn_over()
    assert "turn 1:" in latest.heading.value
    assert "turn 0:" in early.heading.value
    assert early.turn_box.max == 1
    assert latest.picture.value != before
    latest.close()
    assert len(made._listeners) == 1
    early.close()
    assert not made._listeners


def test_the_boards_picture_is_drawn_once_a_round_not_once_a_look(run: SocialSimulation) -> None:
    board = SocialBoard(run)
    before = board.picture.value
    board.picture.value = "untouched"
    board.show(2)
    assert board.picture.value == "untouched"
    board._drawn = None
    board.show(2)
    assert board.picture.value == before


def test_the_boards_static_view_is_the_same_for_the_same_run(run: SocialSimulation) -> None:
    board, again = SocialBoard(run), SocialBoard(run)
    assert board.static_text() == again.static_text()
    assert board.static_html() == again.static_html()
    counts = {k.value: v for k, v in run.state_distribution().items()}
    for name, count in counts.items():
        assert f"  {name}: {count} (" in board.static_text()
    assert "Chart of states" in board.static_html()


def test_only_social_simulations_are_shown() -> None:
    with pytest.raises(ConfigError, match="SocialBoard shows social simulations; this one is of"):
        SocialBoard(played())


def words(html: object) -> str:
    return " ".join(unescape(re.sub("<[^>]+>", " ", str(html))).split())


def test_the_board_shows_the_feed_who_reacted_the_network_and_a_cascade() -> None:
    board = SocialBoard(data_path("tapes/social.tape"), run=2)
    feed, network, tree = (words(part.value) for part in (board.feed, board.network, board.tree))
    assert "replies by Bruno Okafor, Carmen Ruiz, Ines Carvalho; reshared by Liam Byrne" in feed
    assert feed.index("turn 6") < feed.index("turn 3") < feed.index("turn 0")
    assert "Bruno Okafor Noor Haddad 1" in network
    first, second, *_ = re.findall(r"margin-left:(\d+)px", board.tree.value)
    assert (first, second) == ("0", "16")
    assert "↩ Ines Carvalho replied to Bruno Okafor · turn 6" in tree
    label, root = board.cascade_box.options[1]
    board.cascade_box.value = root
    assert label.startswith(words(board.tree.value).split("● ")[1].split(" · ")[0])
    for said in (words(board.static_html()), board.static_text()):
        assert "harbour town, turn 6" in said
    assert "Who reacts to whom" in board.static_html()
    assert "who reacted to times" in words(board.static_html())


def test_the_board_of_an_earlier_turn_has_only_what_was_known_then() -> None:
    board = SocialBoard(data_path("tapes/social.tape"), run=2)
    board.show(2)
    assert "Nobody has reacted to anybody yet." in board.network.value
    assert "no reactions yet" in board.feed.value
    assert "turn 3" not in board.feed.value + board.tree.value


# --- the story ----------------------------------------------------------------------------------


def test_a_story_has_every_move_with_the_reasoners_answer_and_the_post(
    run: SocialSimulation,
) -> None:
    story = AgentStory(run, agent="User 2")
    history = run.agents[1].state_history
    assert story.body.value.count("→") == len(history)
    decided = [entry for entry in history if entry.decided_by == "reasoner"]
    assert decided
    assert story.body.value.count("because of") == 2 * len(decided)  # summary and whole
    assert "Press: Story" in story.body.value
    assert "chart: one way only" in story.body.value
    assert "sees_post" in story.chart.value
    assert "tea, chess" in story.heading.value


def test_a_story_is_a_timeline_in_plain_words() -> None:
    story = AgentStory(data_path("tapes/social.tape"), run=2, agent="Bruno Okafor")
    said = words(story.body.value)
    for turn, what in ((1, "opened the app"), (2, "stopped at a post"), (3, "replied")):
        assert f"{turn} {what} " in said
    assert "“This. Exactly this.”" in said
    assert words(story.static_html()).count("“This. Exactly this.”") == 1


def test_another_user_is_chosen_from_the_list(run: SocialSimulation) -> None:
    story = AgentStory(run)
    assert "User 1" in story.heading.value
    story.agent_box.value = "User 5"
    assert "User 5" in story.heading.value
    assert story.static_text().startswith("Story of User 5, up to turn 8")
    with pytest.raises(ConfigError, match="there is no user 'Eve'"):
        story.show("Eve")
    with pytest.raises(ConfigError, match="page 2 is not there; User 5 has 1"):
        story.show("User 5", page=2)


def test_a_long_story_comes_in_pages_the_latest_first() -> None:
    made = make_social(users=1, posts=[], **RULE)
    assert AgentStory(made).page_box.layout.display == "none"
    made.run(45)
    story = AgentStory(made)
    assert (story.page_box.max, story.page_box.layout.display) == (3, "")
    assert story.body.value.count("→") == 20
    assert ">45<" in story.body.value
    story.page_box.value = 3
    assert story.body.value.count("→") == 5
    assert ">1<" in story.body.value


async def test_a_story_continues_as_the_run_does() -> None:
    made = make_social(users=2, **RULE)
    story = AgentStory(made)
    assert "Nothing has happened yet" in story.body.value
    assert "nothing has happened yet" in story.static_text()
    await made.step()
    await turn_over()
    assert "idle → scrolling" in re.sub("<[^>]*>", "", story.body.value)


def test_rules_and_timeouts_and_bans_are_named() -> None:
    made = make_social(users=3, **RULE, seed=4)
    made.run(40)
    made.intervene(40, ban=["User 1"])
    stories = AgentStory(made)
    assert "; banned" in stories.heading.value
    seen = ""
    for name in ("User 1", "User 2", "User 3"):
        for page in (1, 2):
            stories.show(name, page=page)
            seen += stories.body.value
    assert ">rule<" in seen
    assert "chart: time was up" in seen


def test_a_fallback_is_coloured_and_explained() -> None:
    made = make_social(replies=picks("nonsense"), users=1)
    made.run(3)
    story = AgentStory(made)
    assert ">fallback</span>" in story.body.value
    assert "the first option" in story.body.value


async def test_hostile_texts_are_escaped_everywhere() -> None:
    made = hostile()
    widgets = [SocialBoard(made), AgentStory(made), TurnStepper(made), PromptViewer(made)]
    widgets += [ReasoningInspector(made)]
    for widget in widgets:
        html = str(widget.static_html()) + " ".join(
            part.value for part in vars(widget).values() if isinstance(part, w.HTML)
        )
        assert "<script>" not in html
        assert "<img src=x" not in html
        assert "</style>" not in html
        assert "\x1b" not in html + widget.static_text()
        assert "\u202e" not in html + widget.static_text()
    assert "&lt;img src=x onerror=alert(0)&gt;" in widgets[1].heading.value
    for figure in (
        state_figure(made.turns, title=HOSTILE[:200]),
        transition_figure(made.turns, title=HOSTILE[:200]),
        cascade_figure(made.cascades()[0]),
    ):
        html = str(figure_html(figure))
        assert html.count("<") == 1
        assert "\u202e" not in html


# --- the general widgets --------------------------------------------------------------------------


async def test_the_stepper_plays_rounds_and_forks_with_an_injected_post() -> None:
    made = make_social(users=3)
    stepper = TurnStepper(made)
    for _ in range(3):
        stepper.step_button.click()
        await stepper.idle()
    assert made.turn_number == 3
    assert "reasoner" in stepper.static_html()
    assert "Likes" in stepper.static_text()


async def test_every_prompt_and_every_reason_of_a_round_is_found(run: SocialSimulation) -> None:
    viewer, inspector = PromptViewer(run), ReasoningInspector(run)
    viewer.show(turn=3)
    inspector.show(turn=3)
    asked = [move.agent for move in run.turns[3].moves if move.decided_by == "reasoner"]
    assert asked
    assert "received the &#34;decides&#34; event" in str(viewer.static_html()) or (
        "decides" in viewer.static_text()
    )
    for name in asked:
        assert name in inspector.static_text()
    assert "because of" in inspector.static_text()


async def test_the_tree_of_runs_and_the_chart_know_social_runs(tmp_path: Path) -> None:
    made = make_social(tmp_path / "x.tape")
    made.run(4)
    other = made.fork(2, intervene=[{"turn": 2, "ban": ["User 1"]}])
    other.run(2)
    tree = RunTree(tmp_path / "x.tape")
    assert "social" in tree.static_text()
    assert "2 social · fork at turn 2" in tree.static_text()
    chart = RateChart(made)
    assert "Likes" in chart.static_text()
    made.close()
    other.close()


# --- charts ---------------------------------------------------------------------------------------


def test_the_charts_say_in_words_what_they_show(run: SocialSimulation) -> None:
    counts = {k.value: v for k, v in run.state_distribution().items() if v}
    alt = repr(state_figure(run.turns))
    for name, count in counts.items():
        assert f"{name.replace('_', ' ')} {count}" in alt
    ticks = state_figure(run.turns[:3]).axes[0].get_xticks()
    assert all(tick == round(tick) for tick in ticks)
    assert "idle to scrolling 100%" in repr(transition_figure(run.turns))
    assert "No moves" in repr(transition_figure(run.turns[:1]))


def test_a_chart_is_the_same_bytes_each_time_and_has_an_image_and_a_text(
    run: SocialSimulation,
) -> None:
    one, two = state_figure(run.turns), state_figure(run.turns)
    assert figure_html(one) == figure_html(two)
    assert re.match(r'<img alt="What users are doing: ', figure_html(one))
    png, told = one._repr_png_()  # type: ignore[attr-defined]
    assert png.startswith(b"\x89PNG")
    assert told == {"alt": repr(one)}
    wide = float(one.get_figwidth())
    shown = base64.b64decode(figure_html(one).split("base64,")[1].split('"')[0])
    assert int.from_bytes(shown[16:20]) == round(80 * wide)  # where a PNG has its width


def test_a_cascades_tree_names_its_authors_up_to_a_size_and_puts_parents_amid_children() -> None:
    posts = [Post(id=1, author="Ada", text="Hi", root=1)]
    posts += [
        Post(id=n, author=f"User {n}", text="x", kind="reply", parent=1, root=1)
        for n in range(2, 60)
    ]
    small, large = Cascade(tuple(posts[:4]), likes=2), Cascade(tuple(posts))
    axes = cascade_figure(small).axes[0]
    assert [text.get_text() for text in axes.texts] == ["Ada", "User 2", "User 3", "User 4"]
    assert list(cascade_figure(large).axes[0].texts) == []
    assert repr(cascade_figure(small)) == (
        "Tree of a cascade: Ada: Hi. 4 posts, depth 1, breadth 3, 2 likes."
    )
    assert cascade_figure(small, title="Mine").axes[0].get_title(loc="left") == "Mine"
