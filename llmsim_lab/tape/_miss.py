"""Saying how a request that is not on a tape differs from the nearest one that is."""

from __future__ import annotations

import difflib
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
    nearest = max(
        recorded,
        key=lambda one: _likeness(one.request, request),
        default=None,
    )
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
    words_in_common: float


def _likeness(old: ChatRequest, new: ChatRequest) -> _Likeness:
    old_site = old.site or CallSite(component="")
    new_site = new.site or CallSite(component="")
    words = difflib.SequenceMatcher(
        None,
        old.prompt.split(),
        new.prompt.split(),
        # Else frequent words, which are most of a prompt, would not count from 200 words on.
        autojunk=False,
    )
    return _Likeness(
        same_component=new_site.component == old_site.component,
        same_agent=new_site.agent == old_site.agent,
        same_attempt=old.attempt == new.attempt,
        # The quick one: the exact ratio takes seconds for long prompts.
        words_in_common=words.quick_ratio(),
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
