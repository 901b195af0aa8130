"""Whether a user's reply to "Shall I …?" is a yes, a no, or neither.

Rules for English, without a model: whoever confirms a deletion must not depend on one. What is
neither surely a yes nor surely a no counts as neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

__all__ = ["DELETING", "Answer", "yes_or_no"]

Answer = Literal["yes", "no", "unclear"]

_MAX_CHARS = 500
"""Who writes more than this says more than yes or no."""

_YES_WORDS = (
    "yes y yeah yea yep yup sure ok okay k confirm confirmed correct affirmative absolutely "
    "definitely certainly indeed alright"
)
_NO_WORDS = "no nope nah n not never dont don't cancel stop abort keep leave forget"
_FILLER_WORDS = (
    "please pls plz thanks thank you it that this the and then now just oh ah well fine number"
)
_YES = frozenset(_YES_WORDS.split())
_NO = frozenset(_NO_WORDS.split())
_FILLERS = frozenset(_FILLER_WORDS.split())
_DELETING_WORDS = "delete remove erase clear purge wipe destroy discard trash drop"
DELETING = frozenset(_DELETING_WORDS.split())
"""The verbs for taking something away for good."""
_DOUBTFUL_WORDS = (
    "no nope nah n not never dont don't cancel stop abort keep leave forget wait hold hang "
    "pause skip ignore undo refuse maybe perhaps actually sorry rather instead mind joking "
    "kidding unless except without if but or when once after before until till at in on by from "
    "later soon today tomorrow tonight monday tuesday wednesday thursday friday saturday sunday "
    "first second last next previous all any both each every everything everyone none nothing "
    "other others another more rest same too also only mine ones them these those one two three "
    "four five six seven eight nine ten"
)
_DOUBTFUL = frozenset(_DOUBTFUL_WORDS.split())
"""What turns a title into a no, a when or a how many, as soon as the user says it."""
_SAYABLE = ("delete", "remove", "erase")
_DELETION = (*_SAYABLE, "deletion", "removal")
_AMBIGUOUS = frozenset(["drop", *_NO])  # "drop it" may mean: leave it
_HEAD_WORDS = 3
"""Where a tool's name has its verb: ``delete task 3``, ``task delete 3``."""

_SIGNS = {
    "👍👌✅✔☑✓🆗": " yes ",
    "👎❌✖✗✘🚫⛔🛑": " no ",
    "\u00b4\u2018\u2019`": "'",
    "\ufe0f🏻🏼🏽🏾🏿": "",
}
_SPELLED = str.maketrans({sign: word for signs, word in _SIGNS.items() for sign in signs})
_QUESTION_MARKS = re.compile("[?\uff1f\u061f\u037e\u2047\u2048\u203d]")
_ODD = re.compile("[^\\w\\s.,!;:'\"“”()*#\u2013\u2014\u2026-]")
"""What a yes does not hold: signs that may turn it round, and marks nobody sees."""
_WORD = re.compile(r"\w+(?:'\w+)*")
_QUOTED = re.compile(r"\"([^\"\n]*)\"|“([^“”\n]*)”|(?<!\w)'([^'\n]*)'(?!\w)")

_YES_PHRASES = re.compile(
    r"\b(?:go ahead|go for it|go on|do (?:it|so|that)|proceed|of course|please do|by all means"
    r"|i(?:'m| am) sure|sure thing|i confirm|i agree|sounds good|all right|you (?:can|may)"
    r"|that(?:'s| is) (?:right|correct))\b"
)
_FILLER_PHRASES = re.compile(
    r"\bi (?:do|am)\b|\b(?:this|that|the) one\b"
    r"|\bi(?:'d like| (?:would like|want))(?: you)? to\b(?: do\b)?"
)
_LEAD = re.compile(
    r"\A(?:(?:please|pls|actually|oh|ah|hm+|um+|uh+|er+|well|wait|hold on|sorry"
    r"|on second thoughts?)\b[\s,.!\u2026-]*)*"
)
_NO_BUT = (
    "(?!\\.?\\s*\\d|[ -](?:problem|worries|doubt|need|objections?|matter|idea|clue|one|more|kidding"
    "|brainer|less)\\b)"  # "No. 3" and "no problem" are no no
)
_PLAIN_NO = re.compile(
    rf"(?:no\b{_NO_BUT}|nope\b|nah\b|n(?=[\s.!]*$)|not (?:now|yet|really|today|this|that)\b"
    r"|(?:absolutely|definitely|certainly|of course|surely|better) not?\b"
    r"|i(?:'d| would) rather not\b|rather not\b)"
)
_NOT = r"(?:i )?(?:do not|don'?t|never)(?: ever| you dare| want(?: you)? to)*"
_COMMAND = re.compile(
    r"never ?mind\b|leave (?:it|that|this)(?: alone)?\b|forget (?:about )?(?:it|that|this)\b"
    r"|i(?:'ve| have)? changed my mind\b|i (?:do not|don'?t) want (?:it|that|this)\b"
    r"|(cancel|stop|abort|keep)\b"
)


def yes_or_no(text: str, *, about: str = "") -> Answer:
    """Say whether a user's reply to "Shall I …?" is a yes, a no, or neither.

    A yes says nothing else than yes: "yes, and all the others" is not one. A no begins as one and
    says yes nowhere: "don't worry, go ahead" is neither.

    Args:
        text: the reply.
        about: what the user was asked, such as ``delete task 3 (“Buy milk”)``. A yes may name it,
            so "yes, delete task 3" is a yes here and "yes, delete task 4" is not. Where it is
            not given, the question is taken to be one of deleting some task. What stands in
            quotation marks may come from strangers: only as a whole, beside the verb or in
            quotation marks, does a yes name it, and never where one of its words would be a no or
            a condition in the user's mouth (“Stop”, “all”, “tomorrow”).
    """
    plain = _plain(text)
    if len(text) > _MAX_CHARS or _QUESTION_MARKS.search(plain):
        return "unclear"
    action = _Action(about)
    if action.is_refused_by(plain):
        return "no"
    return "yes" if action.is_confirmed_by(plain) else "unclear"


def _plain(text: str) -> str:
    plain = text.translate(_SPELLED).lower().strip()
    return re.sub(r"\byes+\b", "yes", re.sub(r"\bno+\b", "no", plain))


class _Action:
    """What the user was asked, by the words that a reply may use for it."""

    def __init__(self, about: str) -> None:
        about = _plain(about) or "delete task"
        outside = _QUOTED.sub(" ", about)
        kind = re.split(r"[^\w\s]|\b\d", outside, maxsplit=1)[0]
        words = _WORD.findall(outside) or [""]
        deleting = next(filter(DELETING.__contains__, words[:_HEAD_WORDS]), None)
        self.verb = deleting or words[0]
        self.small_words = {self.verb, *(_DELETION if deleting else ())}
        self.namings = [naming for naming in self._namings(outside, kind) if naming]
        self.titles = list(self._title_namings(about, kind))
        verbs = "|".join(map(re.escape, sorted({self.verb, *(_SAYABLE if deleting else ())})))
        # "delete task 3" says yes to just that; of other verbs one cannot tell that they are one
        self._verbs = re.compile(rf"\b(?:{verbs})\b" if verbs else r"(?!)")
        doing = rf"\b(?:{verbs})" + (r"\b" if deleting else r" (?:it|this|that)\b")
        self._doing = re.compile(r"(?!)" if self.verb in {"", *_AMBIGUOUS} else doing)
        self._negated = re.compile(
            rf"\b{_NOT}(?=\s*(?:[,.!;]|please|$)| (?:do|touch|{verbs})\b)"
            rf"(?: (?:do|touch|{verbs})\b(?: (?:it|this|that|so)\b)?)?"
        )

    def _namings(self, outside: str, kind: str) -> Iterable[list[str]]:
        """Yield the ways to name the thing without its title: as a whole, by kind, by number."""
        yield self._content(outside)
        yield self._content(kind)
        numbers = re.findall(r"\d+", outside)
        if len(numbers) == 1 and ":" not in outside:
            yield numbers

    def _title_namings(self, about: str, kind: str) -> Iterable[list[str]]:
        """Yield the ways to name the thing by its title, unless that may mean something else."""
        titles = [next(filter(None, found), "") for found in _QUOTED.findall(about)]
        of_kind = set(self._content(kind))
        telling = [w for w in self._content(" ".join(titles)) if w not in of_kind and w.isalpha()]
        if not telling or not _DOUBTFUL.isdisjoint(_WORD.findall(" ".join(titles))):
            return
        yield self._content(about)
        if len(titles) == 1:
            yield self._content(titles[0])
            yield self._content(f"{kind} {titles[0]}")

    def _content(self, text: str) -> list[str]:
        """Return the words that say what is meant: not the yes, the verb and the small words."""
        empty = _YES | _FILLERS | self.small_words
        return [word for word in _WORD.findall(text) if word not in empty]

    def _names_it(self, text: str) -> bool:
        content = self._content(text)
        if not content or content in self.namings:
            return True
        if content not in self.titles:
            return False
        quoted = any(self._content(" ".join(found)) for found in _QUOTED.findall(text))
        return quoted or (len(content) > 1 and self._verbs.search(text) is not None)

    def _agrees(self, text: str) -> bool:
        """Say whether there is a yes in a text, whatever else there is."""
        words = set(_WORD.findall(text))
        return bool(words & _YES) or any(
            pattern.search(text) is not None for pattern in (_YES_PHRASES, self._doing)
        )

    def is_confirmed_by(self, plain: str) -> bool:
        if _ODD.search(plain) or plain.strip(" .!") in self.small_words:
            return False  # "delete" alone may be the beginning of something
        rest = _FILLER_PHRASES.sub(" ", _YES_PHRASES.sub(" ", plain))
        return self._agrees(plain) and self._names_it(rest)

    def is_refused_by(self, plain: str) -> bool:
        begun = _LEAD.sub("", plain, count=1)
        if refusal := self._negated.match(begun) or _PLAIN_NO.match(begun):
            return not self._agrees(self._negated.sub(" ", begun[refusal.end() :]))
        command = _COMMAND.match(begun)
        if command is None or command[1] == self.verb:
            return False
        rest = " ".join(word for word in _WORD.findall(begun[command.end() :]) if word not in _NO)
        return not self._agrees(rest) and self._names_it(rest)
