"""Whether a model's plain text asks the user for something, for a yes, or refuses.

Rules for English, without a model. What they find in other languages is that a text ends in a
question mark, and nothing else. Their time grows with the text's length and no faster. What a
wrong guess costs stands with each function: before a rule gets another alternative, it should be
worth that.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from llmsim_lab.assistant.sentences import is_question, own_words, plain, sentences
from llmsim_lab.assistant.yes_no import DELETING

__all__ = ["asks_to_confirm", "asks_user", "declines"]

_LISTED = re.compile(r"^[ \t]*(?:[-*•]|\d+[.)])[ \t].*$", re.MULTILINE)

_OFFER = re.compile(
    r"\b(?:can|may) i (?:help|assist)|\bi can (?:help|assist)|\bwhat can i do\b|\bhow are you\b"
    r"|\b(?:anything|something|what) (?:else|more)\b|\bwhat(?:'s| is) next\b"
    r"|\b(?:would|do) you (?:like|need|want) (?:any |me to )?(?:help|assist)"
    r"|\bwhat would you like (?:me )?to do\b"
)
_MORE = re.compile(r"\b(?:would you like|(?:shall|should|can) i|want (?:me )?to)\b")
"""An offer to do more, to be answered by yes or no."""
_WHICH = re.compile(r"(?:^|[,:;] )(?:which|what|when|where|who|how)\b")
_MEANT = re.compile(r"\bwhich\b(?!.*\bwould you like\b)|\byou mean\b", re.DOTALL)
_CHOICE = re.compile(r"\bor\b")
_VAGUE = re.compile(r"\b(?:any|another|more)\b")
_MISSING = re.compile(
    r"(?:n't|not) (?:find|found|see|exist|on (?:your|the) list)\b|\bno (?:such|task|item)\b"
    r"|\b(?:no|any) tasks (?:called|named|about|with|for)\b"
)
_ASKING = re.compile(r"\b(?:please|could you|can you)\b")
_FOR_WHAT = re.compile(
    r"\b(?:tell me|specify|clarify|provide|give me|choose|confirm|rephrase|say"
    r"|let me know(?!\W*$| if))\b"
)
_NEED = re.compile(r"\blet me know (?:which|what|when)\b|\bi need (?:to know|more)\b")

_QUOTED_YES = re.compile(r"[\"'“`*]{1,3}yes[\"'”`*]{1,3}")
_INSISTS = re.compile(
    r"\bplease confirm\b(?! (?:which|what))|\bare you sure\b|\bconfirm that you\b"
    r"|\b(?:say|type|typing|reply|replying|answer)(?: with)? yes\b"
)
_OFFERS_TO = r"(?:^|, )(?:do you (?:really )?want (?:me )?to|would you like me to|shall i|should i)"
_NO_CERTAIN_ONE = r"\b(?! (?:any|some|one|another|more)\b)"
_BARE_WORDS = (
    "a and answer ahead before by can confirm continue do go i if it just me no of or please "
    "proceed reply say so that the this to type typing want with wish would like yes you your"
)
_BARE = frozenset(_BARE_WORDS.split())
"""What a sentence is made of that asks for a yes and does not say to what."""

_REFUSAL = re.compile(
    r"\bi(?:'m| am| can)? only (?:able to |here to )?(?:help|assist|handle|answer|manage)\b"
    r"|\b(?:can't|cannot|won't|unable to|not able to) (?:\w+ )?"
    r"(?:help|assist|discuss|provide|answer|comply|do (?:that|this))\b"
    r"|\bi (?:don't|do not) (?:do|handle)\b|\b(?:outside|beyond) (?:of )?(?:my|what i)\b"
    r"|\bi must decline\b|\bnot something i can\b|\boff[- ]topic\b"
)
_CONDITION = re.compile(r"\b(?:without|until|unless)\b")


def _requests(sentence: str) -> bool:
    asking = _ASKING.search(sentence)
    return _NEED.search(sentence) is not None or (
        asking is not None and _FOR_WHAT.search(sentence, asking.end()) is not None
    )


def asks_user(text: str, *, after_work: bool = False) -> bool:
    """Say whether a text asks the user for something that it takes to go on.

    An offer of help asks for nothing, and neither do questions quoted or listed. A wrong guess
    shows the same text under the other kind of decision, and runs nothing.

    Args:
        text: what the model wrote.
        after_work: whether tools have done their work, so that "Shall I ...?" offers to do more;
            it still asks where it gives a choice, where it asks whether to delete something, and
            where what was wanted has not been found.
    """
    own = _LISTED.sub(" ", own_words(text)).replace("*", "")
    missing = False
    for sentence in sentences(own):
        questions = is_question(sentence)
        missing = missing or (not questions and _MISSING.search(sentence) is not None)
        if not (questions or _requests(sentence)) or _OFFER.search(sentence):
            continue
        if after_work and _MORE.search(sentence) and not missing and not _needed(sentence):
            continue
        return True
    return False


def _needed(question: str) -> bool:
    """Say whether a question that is put like an offer must be answered all the same."""
    if _WHICH.search(question) or _INSISTS.search(question):
        return True
    if _offer_of(DELETING).search(question):
        return True
    return _CHOICE.search(question) is not None and _VAGUE.search(question) is None


def asks_to_confirm(text: str, verbs: Collection[str]) -> bool:
    """Say whether a text asks the user to confirm one of some actions, as the engine itself does.

    A sentence that asks for a yes and names no action at all counts, too: "Are you sure?"; one
    that names another action does not. A wrong yes costs a model call, and that the user is not
    asked what the model would have asked; a wrong no, that the user is asked twice.

    Args:
        text: what the model wrote.
        verbs: of the actions that are confirmed, such as "delete"; where one of them deletes,
            any other word for that will do.
    """
    doing = {verb.lower() for verb in verbs}
    doing |= DELETING if doing & DELETING else set()
    named, offer = re.compile(_any_form_of(doing)), _offer_of(doing)
    own = _LISTED.sub(" ", own_words(_QUOTED_YES.sub("yes", plain(text)))).replace("*", "")
    for sentence in sentences(own):
        if offer.search(sentence):
            return True
        if _INSISTS.search(sentence) and (named.search(sentence) or _is_bare(sentence)):
            return True
    return False


def _any_form_of(verbs: Collection[str]) -> str:
    """Return a pattern for verbs in any form: *delete*, *deleting*, *deletion*, *removal*."""
    stems = "|".join(sorted(re.escape(verb.removesuffix("e")) for verb in verbs if verb))
    return rf"\b(?:{stems})(?:e?[sd]?|ing|ion|al)\b" if stems else r"(?!)"


def _offer_of(verbs: Collection[str]) -> re.Pattern[str]:
    """Return a pattern for a question whether to do just that, to something certain."""
    exact = "|".join(map(re.escape, sorted(filter(None, verbs)))) or r"(?!)"
    return re.compile(rf"{_OFFERS_TO} (?:{exact}){_NO_CERTAIN_ONE}")


def _is_bare(sentence: str) -> bool:
    return _BARE.issuperset(re.findall(r"\w+", _INSISTS.sub(" ", sentence)))


def declines(text: str) -> bool:
    """Say whether a text refuses what the user asked for.

    Who names what is missing, or asks which one is meant, does not. A wrong guess shows the same
    text under the other kind of decision, and runs nothing.
    """
    said = list(sentences(own_words(text)))
    if any(is_question(sentence) and _MEANT.search(sentence) for sentence in said):
        return False
    return any(_REFUSAL.search(each) and not _CONDITION.search(each) for each in said)
