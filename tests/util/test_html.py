"""What untrusted text becomes in HTML: itself, and nothing that acts."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from llmsim_lab._util.html import (
    SERIES_COLOURS,
    STATUS_COLOURS,
    badge,
    details,
    join,
    pairs,
    pre,
    safe,
    table,
)

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


@pytest.mark.parametrize("status", STATUS_COLOURS)
def test_a_status_label_can_be_read_and_names_the_status(status: str) -> None:
    assert contrast(rgb("#fff"), rgb(STATUS_COLOURS[status])) >= 4.5
    assert f">{status}</span>" in badge(status)  # type: ignore[arg-type]


# The tokens


PAGES = (255, 255, 255), (33, 33, 33)
"""JupyterLab's, light and dark; a dark page is a little lighter than its outputs."""


def luminance(colour: tuple[float, ...]) -> float:
    parts = [part / 255 for part in colour[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: tuple[float, ...], two: tuple[float, ...]) -> float:
    """The ratio that WCAG 2 defines."""
    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def rgb(colour: str) -> tuple[float, ...]:
    digits = colour.removeprefix("#")
    digits = "".join(2 * d for d in digits) if len(digits) == 3 else digits
    return tuple(int(digits[at : at + 2], 16) for at in (0, 2, 4))


@pytest.mark.parametrize("page", PAGES)
def test_bars_and_marks_stand_out_from_the_page(page: tuple[float, ...]) -> None:
    for bar in SERIES_COLOURS[:2]:
        assert contrast(rgb(bar), page) >= 3
