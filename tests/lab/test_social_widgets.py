"""Charts of the social simulation, and the general widgets on it."""

from __future__ import annotations

import base64
import re
from collections import Counter
from typing import Any

import pytest
from page_kit import HOSTILE
from social_kit import make_social

from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import PromptViewer, TurnStepper
from llmsim_lab.lab._picture import figure_html
from llmsim_lab.lab.figures import cascade_figure, state_figure
from llmsim_lab.statechart import Post, SocialSimulation
from llmsim_lab.statechart._state import FeedEntry


@pytest.fixture
def run() -> SocialSimulation:
    """Six users, eight turns, a model that gives reasons."""
    made = make_social(rationale=True)
    made.run(8)
    return made


def hostile() -> SocialSimulation:
    """A network where names, posts and reasons try to be markup."""

    def reply(request: Any) -> dict[str, str]:
        return {"rationale": HOSTILE[:3000], "next_state": "engaging_reply"}

    made = make_social(
        replies=reply,
        population=[
            {"name": f"<img src=x onerror=alert({n})>", "interests": ["tea"], "activity": 1.0}
            for n in range(2)
        ],
        seed_posts=[{"author": "</style><b>", "text": HOSTILE[:4000], "topics": ["tea"]}],
        rationale=True,
        name="<script>$x$</script>",
    )
    made.run(4)
    return made


async def test_hostile_texts_are_escaped_everywhere() -> None:
    made = hostile()
    for widget in (TurnStepper(made), PromptViewer(made)):
        html = str(widget.static_html())
        assert "<script>" not in html
        assert "<img src=x" not in html
        assert "</style>" not in html
        assert "\x1b" not in html + widget.static_text()
        assert "\u202e" not in html + widget.static_text()
    for figure in (
        state_figure(made.turns, title=HOSTILE[:200]),
        cascade_figure(made, 1),
    ):
        html = str(figure_html(figure))
        assert html.count("<") == 1
        assert "\u202e" not in html


# --- the general widgets --------------------------------------------------------------------------


# --- charts ---------------------------------------------------------------------------------------


def test_the_charts_say_in_words_what_they_show(run: SocialSimulation) -> None:
    counts = Counter(person.state.value for person in run.state.people)
    alt = repr(state_figure(run.turns))
    for name, count in counts.items():
        assert f"{name.replace('_', ' ')} {count}" in alt
    ticks = state_figure(run.turns[:3]).axes[0].get_xticks()
    assert all(tick == round(tick) for tick in ticks)


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


def town(posts: list[Post], feed: list[FeedEntry]) -> SocialSimulation:
    """A run that began with these posts."""
    made = make_social(users=60)
    state = made.state.replace(new_posts=tuple(posts), feed=tuple(feed), next_post=99)
    return make_social(users=60, state=state)


def test_a_cascades_tree_names_its_authors_up_to_a_size_and_puts_parents_amid_children() -> None:
    posts = [Post(id=1, author="Ada", text="Hi", root=1)]
    posts += [
        Post(id=n, author=f"User {n}", text="x", kind="reply", parent=1, root=1)
        for n in range(2, 60)
    ]
    small, large = town(posts[:4], [FeedEntry(posts[0], likes=2)]), town(posts, [])
    axes = cascade_figure(small, 3).axes[0]
    assert [text.get_text() for text in axes.texts] == ["Ada", "User 2", "User 3", "User 4"]
    assert list(cascade_figure(large, 1).axes[0].texts) == []
    assert repr(cascade_figure(small, 1)) == (
        "Tree of a cascade: Ada: Hi. 4 posts, depth 1, breadth 3, 2 likes."
    )
    assert cascade_figure(small, 1, title="Mine").axes[0].get_title(loc="left") == "Mine"
    with pytest.raises(ConfigError, match="no post 77"):
        cascade_figure(small, 77)
