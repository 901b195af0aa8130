"""Saying how a request that is not on a tape differs from the nearest one that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from llmsim_lab._util.jsontext import differing
from llmsim_lab._util.text import clip, few
from llmsim_lab.prompts.prompt import word_diff
from llmsim_lab.tape.lines import settings_of
from llmsim_lab.types import Attempt, CallSite, ChatRequest

_MAX_DIFF = 2_000
"""Of a changed prompt, in characters."""
_MOST = 6
"""Settings that are named; of the others how many there are."""
_MOST_COMPARED = 50
"""Recorded requests whose words are compared."""
_LONGEST_COMPARED = 100_000
"""Of their prompts, in characters."""


def explain_miss(
    request: ChatRequest,
    recorded: Iterable[Attempt],
    *,
    run: int,
) -> str:
    """Return a message about a request that is not on the tape: its differences to the nearest.

    Args:
        request: what was asked for.
        recorded: what the run recorded in that turn.
        run: the run's number, for the message.
    """
    nearest = _nearest(request, recorded)
    # Without any call there is nothing to compare: the run was broken off, or asked nothing here.
    if nearest is None:
        return (
            f"run {run} has no recorded call for {_place_of(request)}: "
            "nothing of that turn is on the tape; fork the run to continue"
        )
    return (
        f"run {run} has no recorded call for {_place_of(request)}. "
        f"From the nearest recorded one, {_differences(nearest.request, request)}\n"
        "A replay takes the prompts, the configuration and the code of the recording; "
        "to continue with other ones, fork the run."
    )


def _place_of(request: ChatRequest) -> str:
    site = request.site
    if site is None:
        return "a call outside a turn"
    return f"{site.component} of {site.agent}, turn {site.turn}, attempt {request.attempt}"


class _Likeness(NamedTuple):
    """How like two requests are; the first that differs counts most."""

    same_component: bool
    same_agent: bool
    same_attempt: bool


def _nearest(request: ChatRequest, recorded: Iterable[Attempt]) -> Attempt | None:
    """Return the recorded request that is most like another one; None if there is none."""
    by_likeness: dict[_Likeness, list[Attempt]] = {}
    for attempt in recorded:
        likeness = _likeness(attempt.request, request)
        by_likeness.setdefault(likeness, []).append(attempt)
    if not by_likeness:
        return None
    words = _words_of(request)

    def share_in_common(attempt: Attempt) -> float:
        recorded_words = _words_of(attempt.request)
        size = words.total() + recorded_words.total()
        return (words & recorded_words).total() / max(size, 1)

    # Some of them: a turn may have thousands, and prompts of megabytes.
    likeliest = by_likeness[max(by_likeness)]
    return max(likeliest[:_MOST_COMPARED], key=share_in_common)


def _words_of(request: ChatRequest) -> Counter[str]:
    return Counter(request.prompt[:_LONGEST_COMPARED].split())


def _likeness(old: ChatRequest, new: ChatRequest) -> _Likeness:
    old_site = old.site or CallSite(component="")
    new_site = new.site or CallSite(component="")
    return _Likeness(
        same_component=new_site.component == old_site.component,
        same_agent=new_site.agent == old_site.agent,
        same_attempt=old.attempt == new.attempt,
    )


def _differences(old: ChatRequest, new: ChatRequest) -> str:
    texts = []
    if old.site != new.site:
        texts.append(f"the place differs: recorded {old.site}, asked {new.site}")
    settings = [
        f"{clip(name, 200)} differs: recorded {clip(was, 200)}, asked {clip(now, 200)}"
        for name, was, now in differing(settings_of(old), settings_of(new), missing="null")
    ]
    texts += few(settings, _MOST)
    if old.messages != new.messages:
        diff = word_diff(
            old.prompt,
            new.prompt,
            around=80,
        )
        if len(diff) > _MAX_DIFF:
            diff = f"{diff[:_MAX_DIFF]} …"
        texts.append(f"the prompt differs:\n{diff}")
    if not texts:
        return "nothing differs: it was asked once more than was recorded"
    return "; ".join(texts)
