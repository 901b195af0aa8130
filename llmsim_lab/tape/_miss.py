"""Saying how a request that is not on a tape differs from the nearest one that is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from llmsim_lab._util.jsontext import differing
from llmsim_lab._util.text import clip, few
from llmsim_lab.prompts.prompt import word_diff
from llmsim_lab.tape.lines import settings_of
from llmsim_lab.types import Attempt, CallSite, ChatRequest

_MAX_DIFF, _MOST = 2_000, 6


def explain_miss(request: ChatRequest, recorded: Iterable[Attempt], *, run: int) -> str:
    """Return a message about a request that is not on the tape: its differences to the nearest.

    Args:
        request: what was asked for.
        recorded: what the run recorded in that turn.
        run: the run's number, for the message.
    """
    site = request.site
    where = "a call outside a turn"
    if site:
        where = f"{site.component} of {site.agent}, turn {site.turn}, attempt {request.attempt}"
    missing = f"run {run} has no recorded call for {where}"
    nearest = max(recorded, key=lambda one: _likeness(one.request, request), default=None)
    if nearest is None:
        return f"{missing}: nothing of that turn is on the tape; fork the run to continue"
    return (
        f"{missing}. From the nearest recorded one, {_differences(nearest.request, request)}\n"
        "A replay takes the prompts, the configuration and the code of the recording; "
        "to continue with other ones, fork the run."
    )


def _likeness(old: ChatRequest, new: ChatRequest) -> tuple[bool, bool, bool, float]:
    its, site = old.site or CallSite(component=""), new.site or CallSite(component="")
    # The quick one: the exact ratio takes seconds for long prompts.
    words = old.prompt.split(), new.prompt.split()
    ratio = difflib.SequenceMatcher(None, *words, autojunk=False).quick_ratio()
    same = site.component == its.component, site.agent == its.agent, old.attempt == new.attempt
    return *same, ratio


def _differences(old: ChatRequest, new: ChatRequest) -> str:
    faults = []
    if old.site != new.site:
        faults.append(f"the place differs: recorded {old.site}, asked {new.site}")
    words = "{} differs: recorded {}, asked {}".format
    found = differing(settings_of(old), settings_of(new), missing="null")
    faults += few([words(*[clip(it, 200) for it in one]) for one in found], _MOST)
    if old.messages != new.messages:
        shown = word_diff(old.prompt, new.prompt, around=80)
        more = " …" if len(shown) > _MAX_DIFF else ""
        faults.append(f"the prompt differs:\n{shown[:_MAX_DIFF]}{more}")
    return "; ".join(faults or ["nothing differs: it was asked once more than was recorded"])
