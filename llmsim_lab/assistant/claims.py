"""Whether a model's plain text claims that something was changed.

Rules for English, without a model; no other language is found to claim anything. Their time grows
with the text's length and no faster.

What a wrong guess costs: where a claim is seen that is none, the model is asked once more and, if
it stays by its words, they are shown with a remark that nothing was changed. Where a claim is
missed, the user is told of a deed that was none. Neither runs a tool, so that a rule is worth its
place only for what models often write.
"""

from __future__ import annotations

import re

from llmsim_lab.assistant.sentences import is_question, own_words, sentences

__all__ = ["claims_change"]

_STATES = "completed|marked|ticked|checked off|crossed off"
_DEEDS = "added|created|deleted|removed|updated|changed|renamed|erased|cleared|saved|scheduled"
_DONE = rf"(?:{_DEEDS}|{_STATES})\b"
_SO = r"(?: (?:now|just|already|also)){0,3}"
_OWN = re.compile(
    rf"\b(?:i|i've)(?: have)?{_SO}(?: (?:gone|went) ahead and)? (?:{_DONE}"
    r"|(?:checked|crossed)\b[^\n]{0,60}? off\b|put\b[^\n]{0,60}? on (?:your|the)\b)"
    rf"|\bsuccessfully {_DONE}|\b{_DONE}(?: \w+){{0,4}} successfully\b"
)
"""What the model says it did itself."""
_BEGUN = r"^\W*(?:(?:done|ok|okay|sure|great|yes|now)\W+){0,3}"
_THING = r"(?:(?:the |your )?tasks?\W+(?:(?:\d+|and)\W+){0,20})?(?:just )?"
_NO_LABEL = r"\b(?! tasks\b|:|.*:$| (?:no|none|nothing)\b)"
_REPORT = re.compile(rf"{_BEGUN}{_THING}(?:{_DEEDS}){_NO_LABEL}")
_STATE_REPORT = re.compile(rf"{_BEGUN}{_THING}(?:{_STATES}){_NO_LABEL}|^\W*(?:all )?done\W*$")
_STATE = re.compile(
    rf"\byou(?:'ve| have)?{_SO} {_DONE}"
    rf"|\b(?:was|were|is|are|(?:has|have){_SO} been){_SO} {_DONE}"
    r"|\b(?:is|are) now (?:complete|done|finished|on (?:your|the) list)\b"
    r"|\b(?:is|are) (?:now )?(?:gone|off (?:your|the) list)\b"
    r"|\b(?:is|it's) on (?:your|the) list now\b"
)
"""What is so now, be it by the model or not."""
_CLAUSE_BEGINS = frozenset(["and", "but", "so", "now", "then", "okay", "great", "done", "sure"])
_WITHIN_WORDS = (
    "which when once if until unless after before whether no nothing none never neither not"
)
_RELATIVE_WORDS = "that who what how where as i you we they"
_WITHIN = frozenset(_WITHIN_WORDS.split())
_RELATIVE = frozenset(_RELATIVE_WORDS.split())
_GENERIC = frozenset(["a", "an", "each", "every", "any"])
_OF_NOTHING = re.compile(r" (?:no|none|nothing)\b")
_LONG_SINCE = re.compile(r" (?:on \w+day|yesterday|last \w+|\w+ \w+ ago)\b")
_CASE = re.compile(r"^\W*(?:once|if|when)\b")


def claims_change(text: str, *, looked: bool = False) -> bool:
    """Say whether a text claims that something was added, changed or removed.

    What it tells of tasks in general, or can do, is no claim: "the tasks you have added".

    Args:
        text: what the model wrote.
        looked: whether it was shown how things are, so that "task 2 is completed" may tell just
            that; what the model says it did itself is a claim even so.
    """
    for sentence in sentences(own_words(text)):
        if is_question(sentence):
            continue
        if _REPORT.search(sentence) or _is_claimed(sentence, _OWN):
            return True
        if looked or _CASE.search(sentence):
            continue
        if _STATE_REPORT.search(sentence) or _is_claimed(sentence, _STATE):
            return True
    return False


def _is_claimed(sentence: str, claim: re.Pattern[str]) -> bool:
    """Say whether a claim in a sentence stands by itself, not in a clause about something else."""
    for match in claim.finditer(sentence):
        if _OF_NOTHING.match(sentence, match.end()):
            continue
        if match[0].startswith(("was ", "were ")) and _LONG_SINCE.match(sentence, match.end()):
            continue
        before = sentence[max(0, match.start() - 60) : match.start()].split()[-3:]
        last = before[-1] if before else ""
        if match[0].startswith("you"):
            stands = not last or last in _CLAUSE_BEGINS or not last[-1].isalnum()
        elif match[0].startswith(("is ", "are ")) and before == ["tasks"]:
            stands = False
        else:
            general = _GENERIC if match[0].startswith(("is ", "are ")) else frozenset()
            stands = last not in _RELATIVE and general.isdisjoint(before)
        if stands and _WITHIN.isdisjoint(before):
            return True
    return False
