"""A text's own words are told from what it quotes, and taken apart into sentences."""

from __future__ import annotations

import pytest

from llmsim_lab.assistant.sentences import is_question, own_words, sentences


@pytest.mark.parametrize(
    "text",
    [
        'I "add it" now',
        "I “add it” now",
        "I «add it» now",
        "I `add it` now",
        "I 'add it' now",
        "I 'don't add it' now",
    ],
)
def test_what_is_quoted_is_not_the_writers_own(text: str) -> None:
    assert own_words(text).split() == ["i", "now"]


def test_apostrophes_quote_nothing() -> None:
    assert own_words("I don\u2019t touch Bob's list") == "i don't touch bob's list"


def test_sentences_end_at_marks_and_lines() -> None:
    text = "a  b.c d! e?\nf\n\ng \u2026 h"
    assert list(sentences(text)) == ["a b.c d!", "e?", "f", "g \u2026", "h"]


@pytest.mark.parametrize(
    ("sentence", "asks"), [("so?", True), ('so?" ', True), ("so?!", True), ("so? no", False)]
)
def test_a_question_ends_in_its_mark(sentence: str, asks: bool) -> None:
    assert is_question(sentence) is asks
