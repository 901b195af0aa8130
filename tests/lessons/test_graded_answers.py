"""Answers that check themselves, and a key that does not show them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmsim_lab.errors import ConfigError
from llmsim_lab.lessons import answers, grade_answer
from llmsim_lab.lessons.answers import LessonQuestion, key_of

QUESTIONS = {
    "1": {
        "answer": 7 / 12,
        "tolerance": 0.01,
        "nearly": {0.5: "that is the first turn"},
        "hint": "look at the last turn",
        "why": "seven of twelve",
    },
    "2": {"answer": "Tit for tat", "nearly": {"always C": "it is kind, and too kind"}},
    "3": {"answer": ["Ann", "Bob", "Cy"]},
    "4": {"answer": 12},
}


@pytest.fixture(scope="module", autouse=True)
def _cheap() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "COST", 2)
        yield


@pytest.fixture(scope="module")
def key() -> str:
    questions = [LessonQuestion(name=name, **values) for name, values in QUESTIONS.items()]
    return key_of(questions).model_dump_json()


@pytest.fixture
def graded(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "lesson.key").write_text(key)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(answers, "recorded", [])
    return lambda question, answer: str(grade_answer(question, answer))


@pytest.mark.parametrize(
    ("question", "answer", "said"),
    [
        (1, 0.5833, "1: right. seven of twelve"),
        (1, np.float64(0.5733334), "1: right. seven of twelve"),
        (1, 0.5, "1: nearly. that is the first turn"),
        (1, 0.62, "1: nearly. close; check how you rounded"),
        (1, 58.3, "1: nearly. is it a share or a percentage?"),
        (1, -0.583, "1: nearly. check the sign"),
        (1, 3, "1: not yet. look at the last turn"),
        (1, 10**310, "1: not yet. the answer is beyond 1e+200"),
        (1, 1e308, "1: not yet. the answer is beyond 1e+200"),
        (1, float("nan"), "1: not yet. the answer is a number, not NaN"),
        (2, "\ud800", "2: not yet. the answer has half a character (a surrogate)"),
        (3, list(range(5_000)), "3: not yet. the answer has 5,000 members; at most 100 count"),
        (3, list(range(100)), "3: not yet."),
        (1, "a half", "1: not yet. the answer is a number"),
        (
            2,
            "\ufdfa" * 10_001,
            "2: not yet. the answer has 10,001 characters; at most 10,000 count",
        ),
        (2, " tit-for-tat.", "2: right."),
        (2, "Always C", "2: nearly. it is kind, and too kind"),
        (3, {"Cy", "Bob", "ann"}, "3: right."),
        (3, ["Ann", "Di"], "3: nearly. 1 of your 2 belong to it; something is wrong or missing"),
        (3, ["Di"], "3: not yet."),
        (3, ["A nn", "b-o-b", "CY"], "3: right."),
        (2, "TIT_FORTAT", "2: right."),
        (4, 12.0, "4: right."),
        (4, 13, "4: not yet."),
    ],
)
def test_an_answer_is_right_nearly_or_gets_a_hint(
    question: int, answer: object, said: str, graded: Any
) -> None:
    assert graded(question, answer) == said


@pytest.mark.parametrize(
    ("right", "same", "other"),
    [
        ("overconfident", (" OVER confident", "over-confident", "over_confident"), "confident"),
        ("1.5 points", ("1.5points", "1,5 Points!"), "15 points"),
        ("हिन्दी", (" हिन्दी।",), "हन्द"),
        ("cafe\u0301", ("Café",), "cafe"),
        ([-1, 1.5], ({1.5, -1.0}, ["-1", "1.5"]), [1, 15]),
    ],
)
def test_words_are_compared_by_their_letters_and_digits(
    right: object, same: tuple[object, ...], other: object
) -> None:
    key = key_of([LessonQuestion(name="1", answer=right)])
    assert {key.grade(1, answer).verdict for answer in same} == {"right"}
    assert key.grade(1, other).verdict == "wrong"


def test_the_key_shows_no_answer_and_not_why_one_is_nearly_right(key: str) -> None:
    readable = ("0.58", "7/12", "for tat", "Ann", "seven", "first turn", "too kind", "rounded")
    assert [text for text in readable if text.casefold() in key.casefold()] == []
    assert "look at the last turn" in key


def test_keys_of_the_same_questions_differ_and_steps_begin_alike_whatever_the_sign() -> None:
    one, other = (
        key_of([LessonQuestion(name="1", answer=answer, tolerance=1)]).questions["1"].right[0]
        for answer in (40.5, -39.5)
    )
    assert one.check != other.check
    assert one.offset == pytest.approx(other.offset, abs=1e-6)


def test_a_number_that_is_not_whole_needs_a_tolerance() -> None:
    with pytest.raises(ConfigError, match=r"0\.25 and no tolerance; say how near is right"):
        key_of([LessonQuestion(name="1", answer=0.25)])
    with pytest.raises(ConfigError, match=r"question 1 has the answer nan.*of another kind"):
        key_of([LessonQuestion(name="1", answer=float("nan"), tolerance=1)])


def test_an_answer_has_as_many_members_and_near_ones_as_can_be_tried() -> None:
    members = [f"member {number}" for number in range(100)]
    nearly = {f"nearly {number}": "" for number in range(50)}
    key = key_of(
        [
            LessonQuestion(name="set", answer=members),
            LessonQuestion(name="words", answer="yes", nearly=nearly),
        ]
    )
    assert key.grade("set", members[:60]).verdict == "nearly"
    assert key.grade("words", "nearly 49").verdict == "nearly"
    with pytest.raises(ConfigError, match="an answer of 101 members; a set has at most 100"):
        key_of([LessonQuestion(name="set", answer=[*members, "one more"])])
    with pytest.raises(ConfigError, match="nearly: Dictionary should have at most 50 items"):
        LessonQuestion(name="words", answer="yes", nearly={**nearly, "one more": ""})


MADE_UP = [
    ("width", -1),
    ("width", float("nan")),
    ("text", "not hexadecimal"),
    ("text", "00" * 2**22),
    ("check", [1]),
]


def written(key: str, part: str, value: object, folder: Path) -> Path:
    content = json.loads(key)
    content["questions"]["1"]["right"][0][part] = value
    path = folder / "made_up.key"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(("part", "value"), MADE_UP)
def test_a_made_up_key_is_named(part: str, value: object, key: str, tmp_path: Path) -> None:
    made_up = written(key, part, value, tmp_path)
    with pytest.raises(ConfigError, match=r"made_up\.key is not the key of a lesson"):
        grade_answer(1, 0.5833, key=made_up)


@pytest.mark.parametrize(("part", "value"), [("width", 1e-320), ("offset", 1e308)])
def test_nothing_is_right_by_steps_in_which_no_number_lies(
    part: str, value: object, key: str, tmp_path: Path
) -> None:
    made_up = written(key, part, value, tmp_path)
    assert grade_answer(1, 0.5833, key=made_up).verdict == "nearly"


def test_what_is_missing_is_said(graded: Any) -> None:
    with pytest.raises(ConfigError, match="there is no question 9; there are 1, 2, 3, 4"):
        graded(9, 3)
    Path("lesson.key").rename("lesson.txt")
    with pytest.raises(ConfigError, match=r"there are 0 keys in .*key='lesson\.key'"):
        graded(1, 3)
    Path("lesson.ipynb").write_text('{"cells": [], "metadata": {}}')
    with pytest.raises(ConfigError, match=r"lesson\.ipynb is not the key.*\.key, which[^']*$"):
        grade_answer(1, 3, key="lesson.ipynb")
