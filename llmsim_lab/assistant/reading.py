"""What a model's plain text means: a question to the user, a refusal, a claim; and what is shown.

Rules for English, without a model. What they find in other languages is that a text ends in a
question mark, and nothing else. Their time grows with the text's length and no faster.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from llmsim_lab.assistant.text_calls import without_calls
from llmsim_lab.text import printable

__all__ = [
    "asks_to_confirm",
    "asks_user",
    "claims_change",
    "declines",
    "for_user",
    "in_words",
]

_QUOTED = re.compile(
    r"\"[^\"\n]*\"|“[^“”\n]*”|«[^«»\n]*»|`[^`\n]*`|(?<!\w)'[^'\n]*(?:'\w[^'\n]*){0,3}'(?!\w)"
)
_LISTED = re.compile(r"^[ \t]*(?:[-*•]|\d+[.)])[ \t].*$", re.MULTILINE)
_SENTENCE_END = re.compile("(?<=[.!?\u2026\uff1f\u061f])\\s+|\\n+")
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")  # the wide and the Arabic one, too
_CLOSING = " \t\"'”\u2019»)]>~!."

_OFFER = re.compile(
    r"how (?:can|may|could|else can) i (?:help|assist|be of)"
    r"|what (?:can|may|else can) i (?:do|help)"
    r"|\b(?:anything|something|what) (?:else|more)\b|\bany other\b|\bwhat(?:'s| is) next\b"
    r"|how are you"
    r"|\b(?:can|may|could) i (?:help|assist)|\bi can (?:help|assist)"
    r"|(?:would|do) you (?:like|need|want) (?:any |some |more |my |me to )*(?:help|assist)"
    r"|help you with (?:today|anything)|what would you like (?:me )?to do|how'?s it going"
)
_MORE = re.compile(
    r"\b(?:would you like|do you want|(?:shall|should|may|can|could) i|want me to|need me to"
    r"|like me to|are you ready|is there any|ready to)\b|^\W*(?:want|need|care) (?:to|any)\b"
)
"""An offer to do more, to be answered by yes or no."""
_WHICH = re.compile(
    r"(?:^|[,:;] )(?:and |so |but |ok |for |to |on |at )?"
    r"(?:which|what|when|where|who|whom|whose|how many|how much)\b"
)
_MEANT = re.compile(r"\bwhich\b(?!.*\bwould you like\b)|\byou (?:mean|referring)\b", re.DOTALL)
_CHOICE = re.compile(r"\bor\b")
_VAGUE = re.compile(r"\b(?:any|anything|another|more|something|else)\b")
_MISSING = re.compile(
    r"\bno such\b|\b(?:can't|cannot|can not|couldn't|could not|didn't|did not|don't|do not)"
    r" (?:find|see)\b|\b(?:not found|not on (?:your|the) list)\b"
    r"|\b(?:doesn't|does not) (?:exist|seem to)\b|\bno (?:task|item|match|entry|result)\b"
    r"|\b(?:no|any) (?:tasks|items) (?:called|named|with|about|like|matching|for|that)\b"
)
_ASKING = re.compile(r"\b(?:please|could you|can you|would you|kindly)\b")
_FOR_WHAT = re.compile(
    r"\b(?:tell me|specify|clarify|provide|give me|share|choose|confirm|rephrase"
    r"|let me know(?!\W*$| if| should)|say)\b"
)
_NEED = re.compile(
    r"\blet me know (?:which|what|who|when|whether)\b|\bi(?:'d| would)? need (?:to know|more)\b"
)
_CONFIRM = re.compile(
    r"\bplease confirm\b(?! (?:which|what|who|when|where|how))|\bare you sure\b"
    r"|\bconfirm (?:that you|by|with)\b|\b(?:say|type|reply|answer) yes\b"
    r"|(?:^|, )(?:do you (?:really )?want (?:me )?to|would you like me to|shall i|should i)"
    r" (?:delete|remove|erase)\b(?! (?:any|anything|something|some|one|another|more)\b)"
)
_REFUSAL = re.compile(
    r"\bi(?:'m| am| can|'m only| am only)? ?(?:just |only ){1,3}(?:able to |here to |designed to )?"
    r"(?:help|assist|handle|answer|manage|do)\b"
    r"|\b(?:can(?:'t|not| not)|won't|unable to|not able to|not allowed to) (?:\w+ )?"
    r"(?:help|assist|discuss|do (?:that|this|it)|provide|answer|share|comply)\b"
    r"|\bi (?:don't|do not) (?:do|handle|cover|deal with|discuss)\b"
    r"|\b(?:outside|beyond) (?:of )?(?:my|what i)\b|\bi (?:must|have to) decline\b"
    r"|\bnot something i can\b|\boff[- ]topic\b"
)
_CONDITION = re.compile(r"\b(?:without|until|unless)\b")

_STATES = "completed|marked|ticked|checked off|crossed off"
_DEEDS = (
    "added|created|deleted|removed|updated|changed|renamed|erased|cleared|wiped|saved|scheduled"
)
_DONE = rf"(?:{_DEEDS}|{_STATES})\b"
_QUICKLY = r"(?: (?:have|now|just|already|also|successfully|gone ahead and|went ahead and)){0,4}"
_SO = r"(?: (?:now|just|already|also|successfully)){0,3}"
_OWN = re.compile(
    rf"\b(?:i|we|i've|we've){_QUICKLY} (?:{_DEEDS}|{_STATES}|checked|crossed)\b"
    rf"|\b(?:i|we|i've|we've){_QUICKLY} put\b[^\n]{{0,60}}? on (?:your|the|my)\b"
    rf"|\bsuccessfully {_DONE}|\b{_DONE}(?: \w+){{0,4}} successfully\b"
)
"""What the model says it did itself."""
_BEGUN = r"^\W*(?:(?:done|ok|okay|sure|great|all right|alright|yes|just|now|already)\W+){0,3}"
_THING = r"(?:(?:the |your )?(?:tasks?|items?|reminders?|notes?)\W+(?:(?:\d+|and)\W+){0,20})?"
_NO_LABEL = r"\b(?! (?:tasks|items|ones)\b| ?(?:tasks? ?|items? ?)?:|.*:$)"
_REPORT = re.compile(
    rf"{_BEGUN}{_THING}(?:(?:now|just|successfully) ){{0,2}}(?:{_DEEDS}){_NO_LABEL}"
)
_STATE_REPORT = re.compile(
    rf"{_BEGUN}{_THING}(?:(?:now|just|successfully) ){{0,2}}(?:{_STATES}){_NO_LABEL}"
    r"|^\W*(?:all )?done\W*$"
)
_STATE = re.compile(
    rf"\b(?:you|you've){_QUICKLY} {_DONE}"
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
_DENIED = re.compile(r"^\W*(?:no|none|nothing|neither)\b")
_CASE = re.compile(r"^\W*(?:once|if|when|whenever|unless|until)\b")

_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT = re.compile(r"\A.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
"""Thinking whose beginning stood in the model's own template."""
_BETWEEN = r"(?:\\?_|[-./:])?"  # Markdown may have it as \_
_ARGUMENTS = r"(?:\((?:[^()\n]|\([^()\n]{0,100}\)){0,300}\))?"
_CODES = ("INVALID_PARAMETERS", "INVALID_RESULT", "SERVER_DIED", "TOOL_ERROR", "TOOL_NOT_FOUND")


def _own(text: str) -> str:
    """Return a text in plain small letters, without what it quotes."""
    plain = text.replace("\u2019", "'").replace("\u2018", "'").lower()
    return _QUOTED.sub(" ", plain)


def _sentences(own: str) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(own):
        yield " ".join(sentence.split())


def _is_question(sentence: str) -> bool:
    return sentence.rstrip(_CLOSING).endswith(_QUESTION_MARKS)


def _requests(sentence: str) -> bool:
    asking = _ASKING.search(sentence)
    return _NEED.search(sentence) is not None or (
        asking is not None and _FOR_WHAT.search(sentence, asking.end()) is not None
    )


def asks_user(text: str, *, after_work: bool = False) -> bool:
    """Say whether a text asks the user for something that it takes to go on.

    An offer of help asks for nothing, and neither do questions quoted or listed.

    Args:
        text: what the model wrote.
        after_work: whether tools have done their work, so that "Shall I ...?" offers to do more;
            it still asks where it gives a choice, where it asks whether to delete something, and
            where what was wanted has not been found.
    """
    own = _LISTED.sub(" ", _own(text)).replace("*", "")
    missing = False
    for sentence in _sentences(own):
        is_question = _is_question(sentence)
        missing = missing or (not is_question and _MISSING.search(sentence) is not None)
        if not (is_question or _requests(sentence)) or _OFFER.search(sentence):
            continue
        if after_work and _MORE.search(sentence) and not missing and not _needed(sentence):
            continue
        return True
    return False


def _needed(question: str) -> bool:
    """Say whether a question that is put like an offer must be answered all the same."""
    if _WHICH.search(question) or _CONFIRM.search(question):
        return True
    return _CHOICE.search(question) is not None and _VAGUE.search(question) is None


def asks_to_confirm(text: str) -> bool:
    """Say whether a text asks the user to confirm something, which the engine does itself."""
    return any(_CONFIRM.search(sentence) for sentence in _sentences(_own(text)))


def declines(text: str) -> bool:
    """Say whether a text refuses what the user asked for.

    Who names what is missing, or asks which one is meant, does not.
    """
    sentences = list(_sentences(_own(text)))
    if any(_is_question(sentence) and _MEANT.search(sentence) for sentence in sentences):
        return False
    return any(_REFUSAL.search(said) and not _CONDITION.search(said) for said in sentences)


def claims_change(text: str, *, looked: bool = False) -> bool:
    """Say whether a text claims that something was added, changed or removed.

    What it tells of tasks in general, or can do, is no claim: "the tasks you have added".

    Args:
        text: what the model wrote.
        looked: whether it was shown how things are, so that "task 2 is completed" may tell just
            that; what the model says it did itself is a claim even so.
    """
    for sentence in _sentences(_own(text)):
        if _is_question(sentence) or _DENIED.search(sentence):
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


def in_words(tool_name: str) -> str:
    """Return a tool's name as words: ``delete_task`` and ``deleteTask`` as ``delete task``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_\-./:]+", " ", tool_name)
    return " ".join(spaced.lower().split())


def for_user(text: str, tool_names: Iterable[str]) -> str:
    """Return a model's text fit to be shown: no thinking, tool calls and names, control codes.

    A name within a quotation that says more than the name is the user's own word and stays.
    """
    names = list(tool_names)
    own = _THOUGHT.sub("", _THINKING.sub("", text))
    shown = printable(without_calls(own, names) if names else own, keep="\n\t").strip()
    internal = {_squeezed(name): in_words(name) for name in (*names, *_CODES)}
    quoted = [match.span() for match in _QUOTED.finditer(shown) if match[0][0] != "`"]

    def reworded(match: re.Match[str]) -> str:
        place = bisect_right(quoted, (match.start(), len(shown))) - 1
        if place >= 0 and match.end() < quoted[place][1]:
            start, end = quoted[place]
            if _squeezed(shown[start:end]) != _squeezed(match[0]):
                return match[0]
        return internal[_squeezed(match[1])]

    longest_first = sorted(internal.values(), key=len, reverse=True)
    spelled = "|".join(_BETWEEN.join(map(re.escape, w.split())) for w in longest_first if " " in w)
    return re.sub(
        rf"`?(?<!\w)({spelled})(?!\w){_ARGUMENTS}`?", reworded, shown, flags=re.IGNORECASE
    )


def _squeezed(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()
