"""What plain text means: a yes or a no, a question to the user, a refusal.

Rules for English, without a model: whoever confirms a deletion must not depend on one. What is
neither surely a yes nor surely a no counts as neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from llmsim_lab.text import printable

__all__ = [
    "Answer",
    "asks_to_confirm",
    "asks_user",
    "claims_change",
    "declines",
    "for_user",
    "in_words",
    "yes_or_no",
]

Answer = Literal["yes", "no", "unclear"]

_YES_WORDS = "yes y yeah yep yup sure ok okay confirm confirmed absolutely"
_NO_WORDS = "no n nope nah cancel stop abort never don't dont not keep"
_FILLER_WORDS = "please thanks thank you it that this the now one task delete remove"
_YES = frozenset(_YES_WORDS.split())
_NO = frozenset(_NO_WORDS.split())
_FILLERS = frozenset(_FILLER_WORDS.split())
_YES_PHRASES = re.compile(
    r"\b(?:go ahead|do (?:it|so|that)|go on|of course|proceed|please do|i(?:'m| am) sure|i confirm"
    r"|(?:delete|remove) (?:it|this|that))\b"
)
_NO_NOT = (["no", "problem"], ["no", "worries"])
_WORD = re.compile(r"[\w']+")

_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|«[^»\n]*»|`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)")
_LISTED = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s.*$", re.MULTILINE)
_SENTENCE_END = re.compile("(?<=[.!?\u2026\uff1f\u061f])\\s+|\\n+")
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")  # the wide and the Arabic one, too
_OFFER = re.compile(
    r"how (?:can|may|could|else can) i (?:help|assist|be of)"
    r"|what (?:can|may|else can) i (?:do|help)"
    r"|(?:anything|something|what) else|how are you|(?:can|may|could) i (?:help|assist)"
    r"|(?:would|do) you (?:like|need|want) (?:any |some |more |my |me to )*(?:help|assist)"
    r"|help you with (?:today|anything)|what would you like (?:me )?to do|how'?s it going"
)
_MORE = re.compile(
    r"^(?!.*\bor\b).*\b(?:would you like|do you want|shall i|should i|want me to|may i|can i)\b",
    re.DOTALL,
)
"""An offer to do more; where it gives a choice, it may be what is needed for what was wanted."""
_REQUEST = re.compile(
    r"\b(?:please|could you|can you|would you|kindly)\b[^.!?]*\b(?:tell me|specify|clarify|provide"
    r"|give me|share|choose|confirm|rephrase|let me know|say)\b"
    r"|\blet me know (?:which|what|who|when|whether)\b|\bi(?:'d| would)? need (?:to know|more)\b"
)
_CONFIRM = re.compile(
    r"\bplease confirm\b(?! (?:which|what|who|when|where|how))|\bare you sure\b"
    r"|\bconfirm (?:that you|by|with)\b|\b(?:say|type|reply|answer) yes\b"
    r"|(?:^|[.!?,]\s+)(?:do you (?:really )?want (?:me )?to|shall i|should i)"
    r" (?:delete|remove|erase)\b",
    re.MULTILINE,
)
_REFUSAL = re.compile(
    r"\bi(?:'m| am| can|'m only| am only)?\s*(?:just |only )+(?:able to |here to |designed to )?"
    r"(?:help|assist|handle|answer|manage|do)\b"
    r"|\b(?:can(?:'t|not| not)|won't|unable to|not able to|not allowed to)\s+(?:\w+\s+)?"
    r"(?:help|assist|discuss|do that|provide|answer|share|comply)\b"
    r"|\b(?:outside|beyond) (?:of )?(?:my|what i)\b|\bi (?:must|have to) decline\b"
    r"|\bnot something i can\b"
)
_DONE = (
    r"(?:added|created|deleted|removed|updated|changed|renamed|completed|marked|ticked"
    r"|checked off)\b"
)
_CLAIM = re.compile(
    r"\b(?:i|you|we|has|have|was|were|is|are|i've|you've|we've)"
    rf"(?: (?:have|has|been|now|just|already|successfully))* {_DONE}"
)
_OWN_CLAIM = re.compile(
    rf"\b(?:i|we|i've|we've)(?: (?:have|now|just|already|successfully))* {_DONE}"
    rf"|\bsuccessfully {_DONE}"
)
_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT = re.compile(r"\A.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
"""Thinking whose beginning stood in the model's own template."""


def _plain(text: str) -> str:
    return text.replace("\u2019", "'").replace("\u2018", "'").lower()


def yes_or_no(text: str) -> Answer:
    """Say whether a user's reply to "Shall I …?" is a yes, a no, or neither.

    A yes says nothing else than yes: "yes, and all the others" is not one. A no begins as one and
    says yes nowhere.
    """
    plain = _plain(text)
    words = _WORD.findall(plain)
    if not words or "?" in plain:
        return "unclear"
    rest = _WORD.findall(_YES_PHRASES.sub(" ", plain))
    if (len(rest) < len(words) or _YES & set(rest)) and set(rest) <= _YES | _FILLERS:
        return "yes"
    begins_as_no = words[0] in _NO or words[:2] == ["do", "not"]
    if begins_as_no and not _YES & set(words) and words[:2] not in _NO_NOT:
        return "no"
    return "unclear"


def asks_user(text: str, *, after_work: bool = False) -> bool:
    """Say whether a text asks the user for something that it takes to go on.

    An offer of help asks for nothing, and neither do questions quoted or listed.

    Args:
        text: what the model wrote.
        after_work: whether something was done, so that "Shall I ...?" offers to do more.
    """
    own = _LISTED.sub(" ", _QUOTED.sub(" ", _plain(text)))
    for sentence in _SENTENCE_END.split(own):
        if _OFFER.search(sentence) or (after_work and _MORE.search(sentence)):
            continue
        if sentence.rstrip().endswith(_QUESTION_MARKS) or _REQUEST.search(sentence):
            return True
    return False


def asks_to_confirm(text: str) -> bool:
    """Say whether a text asks the user to confirm something, which the engine does itself."""
    return _CONFIRM.search(_QUOTED.sub(" ", _plain(text))) is not None


def declines(text: str) -> bool:
    """Say whether a text refuses what the user asked for."""
    return _REFUSAL.search(_QUOTED.sub(" ", _plain(text))) is not None


def claims_change(text: str, *, looked: bool = False) -> bool:
    """Say whether a text claims that something was added, changed or removed.

    Args:
        text: what the model wrote.
        looked: whether it was shown how things are, so that "task 2 is completed" may tell just
            that; what the model says it did itself is a claim even so.
    """
    claim = _OWN_CLAIM if looked else _CLAIM
    own = _QUOTED.sub(" ", _plain(text))
    return any(
        claim.search(sentence) is not None
        for sentence in _SENTENCE_END.split(own)
        if not sentence.rstrip().endswith(_QUESTION_MARKS)
    )


def in_words(tool_name: str) -> str:
    """Return a tool's name as words: ``delete_task`` and ``deleteTask`` as ``delete task``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_\-./:]+", " ", tool_name)
    return " ".join(spaced.lower().split())


def for_user(text: str, tool_names: Iterable[str]) -> str:
    """Return a model's text fit to be shown: no thinking, no tool names, no control codes."""
    own = _THOUGHT.sub("", _THINKING.sub("", text))
    shown = printable(own, keep="\n\t").strip()
    for name in tool_names:
        words = in_words(name)
        if words != name:
            spelled = re.escape(name).replace("_", r"\\?_")  # Markdown may have it as \_
            pattern = rf"`?(?<!\w){spelled}(?!\w)(?:\(\))?`?"
            shown = re.sub(pattern, words, shown, flags=re.IGNORECASE)
    return shown
