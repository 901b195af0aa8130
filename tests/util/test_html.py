"""What untrusted text becomes in HTML: itself, and nothing that acts."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from builders import make_action

from llmsim_lab._util.frozen import FrozenDict
from llmsim_lab._util.html import details, join, pairs, pre, safe, table
from llmsim_lab.models import AgentState, PolicyDecision, SimulationState

HOSTILE = [
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    "</style><style>body{display:none}</style>",
    "</pre></td></table><h1>out",
    '" onmouseover="alert(1)',
    "<!-- <a href='javascript:alert(1)'>x</a>",
]


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


@pytest.mark.parametrize("text", HOSTILE)
def test_untrusted_markup_stays_text_in_every_shape(text: str) -> None:
    shapes = {
        "pre": pre(text),
        "table": table([text], [[text]], caption=text),
        "pairs": pairs([(text, text)], caption=text),
        "details": details(text, text),
        "join": join([text, text], between=text),
    }
    for name, html in shapes.items():
        found = Tags(str(html))
        ours = {"pre", "table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary"}
        assert set(found.tags) <= ours, name
        assert set(found.attributes) <= {"style", "dir", "scope"}, name


def test_hidden_characters_are_written_out() -> None:
    assert str(safe("\x1b[31mred")) == "␛[31mred"
    assert str(safe("abc\u202egnp.exe")) == "abc⟨U+202E⟩gnp.exe"
    assert str(safe("a\u200bb\x85")) == "a⟨U+200B⟩b⟨U+0085⟩"
    assert str(safe("line\r\nnext\ttab")) == "line\nnext\ttab"


def test_letters_of_any_script_and_joined_emoji_stay_as_they_are() -> None:
    text = "Zinssätze 利率 سعر الفائدة ब्याज 👩\u200d💻"
    assert str(safe(text)) == text


def test_a_very_long_text_is_cut_and_says_so() -> None:
    html = safe("<" * 100_000)
    assert len(html) < 90_000
    assert html.endswith("<em>… 80,000 more characters</em>")


BAD = "<script>alert(1)</script>\x1b[31m\u202e<img src=x onerror=alert(1)></style>" + "x" * 100_000


@pytest.mark.parametrize(
    "value",
    [
        make_action(BAD, name=BAD[:60]),
        PolicyDecision(action=BAD, reasoning=BAD, confidence=0.5),
        SimulationState(agents=FrozenDict({"a": AgentState(name=BAD)})),
    ],
    ids=["action", "decision", "state"],
)
def test_what_a_model_says_is_shown_and_does_nothing(value: object) -> None:
    html = value._repr_html_()  # type: ignore[attr-defined]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert not re.search(r"<(script|img|/style)", html)
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert len(html) < 200_000
