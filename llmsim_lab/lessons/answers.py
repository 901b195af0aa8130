"""Answers that check themselves: right, nearly, or a hint, from a key that does not show them.

A key has no answer in it, but digests of what counts as one: of a number the step of a grid in
which it lies, of words and choices their plain form, of a set its members. Why an answer is nearly
right is written with a pad that only that answer gives. Each try takes some hundredths of a second
(scrypt). Who sets out to can still try all choices, or all numbers in a range: the key keeps
answers from being read, not from being found.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from llmsim_lab._util.checks import plain_number, plain_numbers
from llmsim_lab._util.config import Settings
from llmsim_lab._util.files import as_path, bounded_bytes
from llmsim_lab._util.html import safe
from llmsim_lab._util.text import brief, clip, listed, whole_text
from llmsim_lab.errors import ConfigError

Verdict = Literal["right", "nearly", "wrong"]
Kind = Literal["number", "words", "set"]
Number = int | float

recorded: list[tuple[str, Any]] = []
"""What ``grade_answer`` was given in this process: who grades a notebook reads it."""
is_recording = False
"""Whether there is no key yet, because it is made of these very answers."""

COST = 2**13
"""Of scrypt: a try takes about 25 ms."""
_CLOSE = 10
"""Tolerances away from the answer, which are still nearly right."""
_MOST_MEMBERS = 100
"""Of a set: each member takes a try of scrypt, and a hand-in's list may be as long as it likes."""
_MOST_NEARLY = 50
"""Of a question, each with a try too. A key has four more: a sign, percentages, a wider step."""
_MOST_LETTERS = 10_000
"""Of an answer in words: one character may stand for 18."""
_MOST_BYTES = 2**22
"""Of a key's file."""
_LARGEST = 1e200
"""Of numbers: so that a step of the finest grid still has a number."""
_MOST_DIGITS = 12
"""Of numbers, by which they are compared."""
_ROUNDING = 1e-9
"""Of a tolerance: its ends count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """What ``grade_answer`` found.

    Attributes:
        question: its name.
        verdict: ``right``, ``nearly`` or ``wrong``.
        text: why it is nearly right, or a hint.
    """

    question: str
    verdict: Verdict
    text: str = ""

    def __str__(self) -> str:
        # Never "wrong": it may be tried again.
        words = "not yet" if self.verdict == "wrong" else self.verdict
        return f"{self.question}: {words}. {self.text}".rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(safe(str(self)))


class KnownAnswer(Settings):
    """An answer by its digest.

    Attributes:
        width: of the steps of the grid in which a number lies; 0 for the number itself.
        offset: where a step begins.
        check: tells whether an answer is this one.
        text: what is said then, in a form that only this answer makes readable.
    """

    width: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    offset: Annotated[float, Field(allow_inf_nan=False)] = 0
    check: str
    text: Annotated[str, Field(pattern="^(?:[0-9a-f]{2})*$")] = ""


class KeyQuestion(Settings):
    """What a key has of a question.

    Attributes:
        kind: of the answer.
        points: what it is worth.
        hint: what is said of any other answer.
        right: what is right.
        nearly: answers that are known to be nearly right.
        members: of a set.
    """

    kind: Kind
    points: Annotated[float, Field(allow_inf_nan=False)] = 1
    hint: str = ""
    right: Annotated[list[KnownAnswer], Field(max_length=1)]
    nearly: Annotated[list[KnownAnswer], Field(max_length=_MOST_NEARLY + 4)] = Field(
        default_factory=list
    )
    members: Annotated[list[KnownAnswer], Field(max_length=_MOST_MEMBERS)] = Field(
        default_factory=list
    )


class LessonQuestion(Settings):
    """A question as its teacher writes it.

    Attributes:
        name: ``grade_answer`` is called with it.
        answer: what is right: a number, a text, or a list that is a set.
        tolerance: of a number; needed for one that is not whole.
        nearly: why an answer is nearly right, by the answer.
        hint: what is said of any other answer; not secret.
        why: what is said of the right one.
        points: what it is worth.
    """

    name: str
    answer: Any = None
    tolerance: Annotated[float, Field(ge=0)] = 0
    nearly: Annotated[dict[Any, str], Field(max_length=_MOST_NEARLY)] = Field(default_factory=dict)
    hint: str = ""
    why: str = ""
    points: Annotated[float, Field(ge=0)] = 1


class AnswerKey(Settings):
    """The questions of a lesson, without their answers.

    Attributes:
        salt: makes digests of each key others.
        questions: by name.
    """

    salt: str
    questions: dict[str, KeyQuestion]

    @classmethod
    def read(cls, path: str | Path) -> AnswerKey:
        """Read a key's file.

        Raises:
            ConfigError: it is not there, or is not a key.
        """
        path = as_path("key", path)
        if not path.exists():
            raise ConfigError(f"there is no file {path}")
        try:
            content = json.loads(bounded_bytes(path, _MOST_BYTES).decode())
            return cls(**content)
        except (OSError, ValueError, TypeError, RecursionError) as error:
            # Not why: it would be in the words of JSON and of fields that no user wrote.
            raise ConfigError(
                f"{path} is not the key of a lesson, or was changed; name the file that ends in "
                ".key, which llmsim-lab lesson wrote: out/teacher/lesson.key"
            ) from error

    def grade(self, question: str | int, answer: object) -> Graded:
        """Return whether an answer is right.

        Raises:
            ConfigError: there is no such question.
        """
        name = _name_of(question)
        if name not in self.questions:
            raise ConfigError(
                f"there is no question {clip(whole_text(name), 60)}; there are "
                f"{listed([*self.questions])}"
            )
        key_question = self.questions[name]
        try:
            _form(key_question.kind, answer)
        except TypeError as error:
            return Graded(
                question=name,
                verdict="wrong",
                text=str(error),
            )
        # Right first: an answer may be within what is nearly right, too.
        entries: list[tuple[Verdict, KnownAnswer]] = []
        entries += [("right", entry) for entry in key_question.right]
        entries += [("nearly", entry) for entry in key_question.nearly]
        for verdict, entry in entries:
            text = self._text_if_equal(name, key_question.kind, entry, answer)
            if text is not None:
                return Graded(
                    question=name,
                    verdict=verdict,
                    text=text,
                )
        if key_question.kind == "set":
            items = list(plain_numbers(answer))
            right_items = self._members_in(name, key_question, items)
            # From half on; with less a list is more wrong than nearly right.
            if items and 2 * len(right_items) >= len(items):
                text = (
                    f"{len(right_items)} of your {len(items)} belong to it; something is wrong or "
                    "missing"
                )
                return Graded(
                    question=name,
                    verdict="nearly",
                    text=text,
                )
        return Graded(
            question=name,
            verdict="wrong",
            text=key_question.hint,
        )

    def _members_in(
        self,
        name: str,
        key_question: KeyQuestion,
        items: list[object],
    ) -> list[object]:
        """Return which items belong to a set; none if most of them cannot."""
        checks = {member.check for member in key_question.members}
        # Each takes a try, and a hand-in may have many more than there are members.
        if len(items) > 2 * len(checks):
            return []
        return [
            item
            for item in items
            if _check(_secret(f"{self.salt} {name}", "words", item, 0.0, 0.0)) in checks
        ]

    def _text_if_equal(
        self,
        name: str,
        kind: Kind,
        entry: KnownAnswer,
        answer: object,
    ) -> str | None:
        """Return what is said of a known answer; None if the answer is another one."""
        try:
            secret = _secret(
                f"{self.salt} {name}",
                kind,
                answer,
                entry.width,
                entry.offset,
            )
        except TypeError:  # steps in which no number lies, which no lesson's key has
            return None
        if _check(secret) != entry.check:
            return None
        padded = bytes.fromhex(entry.text)
        return _padded(padded, secret).decode(errors="replace")


def key_of(questions: Iterable[LessonQuestion]) -> AnswerKey:
    """Make the key of a lesson.

    Raises:
        ConfigError: a question has no answer, or a number no tolerance.
    """
    # New for each key: two keys of one lesson do not show which answers they share.
    salt = secrets.token_hex(16)
    in_key = {}
    for question in questions:
        try:
            in_key[question.name] = _in_key(salt, question)
        except (TypeError, ValueError, ArithmeticError) as error:
            if isinstance(error, ConfigError):
                raise
            # An answer that is NaN, or a nearly right one that is of another kind.
            raise ConfigError(
                f"question {question.name} has the answer {brief(question.answer)}, and what is "
                f"nearly right is {brief(list(question.nearly), 80)}; one is of another kind: "
                f"{error}"
            ) from error
    return AnswerKey(salt=salt, questions=in_key)


def _in_key(salt: str, question: LessonQuestion) -> KeyQuestion:
    kind = _kind_of(question)

    def entry_of(
        answer: object,
        text: str,
        tolerance: float = question.tolerance,
        kind: Kind = kind,
    ) -> KnownAnswer:
        width = 2 * tolerance * (1 + _ROUNDING)
        offset = 0.0
        if width:
            # Of where it begins only what the grid needs: the rest would be the answer.
            offset = (float(answer) - width / 2) % width  # type: ignore[arg-type]
        secret = _secret(f"{salt} {question.name}", kind, answer, width, offset)
        return KnownAnswer(
            width=width,
            offset=offset,
            check=_check(secret),
            text=_padded(text.encode(), secret).hex(),
        )

    answer = question.answer
    nearly = [entry_of(value, reason) for value, reason in question.nearly.items()]
    members: list[KnownAnswer] = []
    # Of zero a sign and a percentage are zero too.
    if kind == "number" and answer:
        tolerance = question.tolerance
        percent = "is it a share or a percentage?"
        nearly += [
            entry_of(-answer, "check the sign"),
            entry_of(100 * answer, percent, 100 * tolerance),
            entry_of(answer / 100, percent, tolerance / 100),
        ]
    if kind == "number" and question.tolerance:
        close = "close; check how you rounded"
        nearly.append(entry_of(answer, close, _CLOSE * question.tolerance))
    if kind == "set":
        members = [entry_of(item, "", 0, "words") for item in answer]
    return KeyQuestion(
        kind=kind,
        points=question.points,
        hint=question.hint,
        right=[entry_of(answer, question.why)],
        nearly=nearly,
        members=members,
    )


def _kind_of(question: LessonQuestion) -> Kind:
    answer = question.answer
    if answer is None:
        raise ConfigError(
            f"question {question.name} has no answer: give it one, answer: 3, or call "
            f"grade_answer({question.name}, ...) in the teacher's notebook"
        )
    if isinstance(answer, list):
        if len(answer) > _MOST_MEMBERS:
            raise ConfigError(
                f"question {question.name} has an answer of {len(answer):,} members; a set has at "
                f"most {_MOST_MEMBERS}: ask for fewer"
            )
        return "set"
    if isinstance(answer, bool | str):
        return "words"
    if not question.tolerance and answer != round(answer):
        # One that follows from the answer would tell how large it is.
        raise ConfigError(
            f"question {question.name} has the answer {answer:g} and no tolerance; say how near "
            "is right: tolerance: 0.01"
        )
    return "number"


def _form(
    kind: Kind,
    answer: object,
    width: float = 0,
    offset: float = 0,
) -> str:
    """Return the text that stands for all answers that count as the same.

    Raises:
        TypeError: it is no answer of that kind.
    """
    if kind == "set":
        items = plain_numbers(answer)
        if not isinstance(items, list | set | tuple | frozenset):
            raise TypeError("the answer is a list or a set")
        if len(items) > _MOST_MEMBERS:
            raise TypeError(f"the answer has {len(items):,} members; at most {_MOST_MEMBERS} count")
        forms = {_form("words", item) for item in items}
        return "|".join(sorted(forms))
    if kind == "words":
        value = plain_number(answer)
        # A member of a set: without its signs -1 would be 1.
        if isinstance(value, Number) and not isinstance(value, bool):
            return _number_text(value)
        return _plain_text(str(value))
    number = plain_number(answer)
    # True is a number to Python, and no answer to "how many".
    if isinstance(number, bool) or not isinstance(number, Number):
        raise TypeError("the answer is a number")
    text = _number_text(number)
    if not width:
        return text
    step = (number - offset) / width
    if not math.isfinite(step):
        raise TypeError(f"the answer is too large for steps of {width:g}")
    return str(math.floor(step))


def _number_text(number: Number) -> str:
    if abs(number) > _LARGEST:
        raise TypeError(f"the answer is beyond {_LARGEST:g}")
    if math.isnan(number):
        raise TypeError("the answer is a number, not NaN")
    return f"{number:.{_MOST_DIGITS}g}"


def _plain_text(answer: str) -> str:
    """Return the letters and digits of a text, without case."""
    if len(answer) > _MOST_LETTERS:
        raise TypeError(
            f"the answer has {len(answer):,} characters; at most {_MOST_LETTERS:,} count"
        )
    # One form for letters that can be written in two ways, such as those with accents.
    text = unicodedata.normalize("NFKC", answer).casefold().strip()
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TypeError("the answer has half a character (a surrogate)") from error
    # "-1.5" is the number -1.5; what is longer than a number's digits is a text, such as an id.
    if len(text) <= _MOST_DIGITS and re.fullmatch(r"-?\d+(\.\d+)?", text):
        return _number_text(float(text))
    # What stands between two digits is a part of the number: 1.5 is not 15, and 1/3 not 13.
    text_with_gaps = re.sub(r"(?<=\d)[\W_]+(?=\d)", " ", text)
    # Marks as well as letters: in Hindi or Thai they are the vowels.
    kept = [
        character
        for character in text_with_gaps
        if character == " " or unicodedata.category(character)[0] in "LMN"
    ]
    letters = "".join(kept)
    plain_text = re.sub(r"(?<!\d) +| +(?!\d)", "", letters)
    # An answer of signs alone, such as "<", stands for itself.
    return plain_text or text


def _secret(
    salt: str,
    kind: Kind,
    answer: object,
    width: float,
    offset: float,
) -> bytes:
    # The grid is in it: one step's number in two grids would be one pad for two texts.
    # A key's file may be anybody's, and have half characters.
    whole_salt = f"{salt} {width!r} {offset!r}".encode(errors="surrogatepass")
    form = _form(kind, answer, width, offset)
    # Slow on purpose: a student can try all whole numbers up to a thousand, but waits for it.
    return hashlib.scrypt(
        form.encode(),
        salt=whole_salt,
        n=COST,
        r=8,
        p=1,
        dklen=32,
    )


def _check(secret: bytes) -> str:
    # Of the secret and not the secret itself, with which the text could be read.
    digest = hashlib.sha256(b"check" + secret).hexdigest()
    return digest[:24]


def _padded(text: bytes, secret: bytes) -> bytes:
    """Return a text with a pad, or without it again."""
    # As long as the text, and used once: each entry has a secret of its own.
    pad = hashlib.shake_256(b"text" + secret).digest(len(text))
    pairs = zip(text, pad, strict=True)
    return bytes(byte ^ pad_byte for byte, pad_byte in pairs)


def _name_of(question: object) -> str:
    """Return a question's name, which may be given as a number."""
    return question if isinstance(question, str) else brief(question)


def grade_answer(
    question: str | int,
    answer: object,
    *,
    key: str | Path | None = None,
) -> Graded:
    """Return whether an answer is right, nearly right and why, or a hint.

    Args:
        question: its name.
        answer: a number, a text, or a list or set.
        key: the lesson's key; the only file that ends in ``.key`` in this folder if not given.

    Raises:
        ConfigError: there is no key, or no such question.
    """
    if answer is ...:  # as the student's version has it
        return Graded(question=_name_of(question), verdict="wrong", text="There is no answer yet.")
    answer = plain_numbers(plain_number(answer))
    # Also where there is no key: who grades the notebook compares with a key of their own.
    recorded.append((_name_of(question), answer))
    if is_recording:
        return Graded(
            question=_name_of(question),
            verdict="right",
            text="It is what the key is made of.",
        )
    if key is None:
        keys = sorted(Path().glob("*.key"))
        if len(keys) != 1:
            raise ConfigError(
                f"there are {len(keys)} keys in {Path().resolve()}; put the one of this lesson "
                "beside its notebook, or name it: grade_answer(1, 3, key='lesson.key')"
            )
        [key] = keys
    return AnswerKey.read(key).grade(question, answer)
