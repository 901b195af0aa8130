"""Saying how a request that is not on a tape differs from the nearest one that is."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable

from llmsim_lab._util.text import clip
from llmsim_lab.prompts._prompt import word_diff
from llmsim_lab.tape._lines import settings_of
from llmsim_lab.types import Attempt, ChatRequest

_MAX_DIFF = 2_000


def explain_miss(request: ChatRequest, recorded: Iterable[Attempt], *, run: int) -> str:
    """Return a message about a request that is not on the tape: its differences to the nearest.

    Args:
        request: what was asked for.
        recorded: what the run recorded in that turn.
        run: the run's number, for the message.
    """
    site = request.site
    where = (
        f"{site.component} of {site.agent}, turn {site.turn}, attempt {request.attempt}"
        if site
        else "a call outside a turn"
    )
    nearest = _nearest(request, list(recorded))
    if nearest is None:
        return (
            f"run {run} has no recorded call for {where}: nothing of that turn is on the tape; "
            "replay only as many turns as were recorded, or fork the run to continue"
        )
    return (
        f"run {run} has no recorded call for {where}. From the nearest recorded one, "
        f"{_differences(nearest, request)}\n"
        "A replay takes the prompts, the configuration and the code of the recording; "
        "to continue with other ones, fork the run."
    )


def _nearest(request: ChatRequest, recorded: list[Attempt]) -> ChatRequest | None:
    if not recorded:
        return None
    site = request.site

    def likeness(attempt: Attempt) -> tuple[bool, bool, bool, float]:
        other = attempt.request
        its = other.site
        same_component = bool(site and its and site.component == its.component)
        same_agent = bool(site and its and site.agent == its.agent)
        # The quick one: the exact ratio takes seconds for long prompts.
        ratio = difflib.SequenceMatcher(
            a=other.prompt.split(), b=request.prompt.split(), autojunk=False
        ).quick_ratio()
        return same_component, same_agent, other.attempt == request.attempt, ratio

    return max(recorded, key=likeness).request


def _differences(old: ChatRequest, new: ChatRequest) -> str:
    faults = []
    if old.site != new.site:
        faults.append(f"the place differs: recorded {old.site}, asked {new.site}")
    before, after = (settings_of(request) for request in (old, new))
    for name in before | after:
        if name == "system":  # which is a part of the prompt
            continue
        was, now = (json.dumps(value.get(name)) for value in (before, after))
        if was != now:  # as JSON, where 20 and 20.0 differ
            was, now = clip(was, 200), clip(now, 200)
            faults.append(f"{name} differs: recorded {was}, asked {now}")
    if old.messages != new.messages:
        diff = word_diff(old.prompt, new.prompt)
        faults.append(f"the prompt differs:\n{_around_changes(diff)}")
    if not faults:
        faults.append("nothing differs: it was asked once more than was recorded")
    return "; ".join(faults)


def _around_changes(diff: str) -> str:
    """Return the lines of a word diff that changed, each with the one before and after."""
    lines = diff.splitlines()
    changed = {n for n, line in enumerate(lines) if "[-" in line or "{+" in line}
    kept = [line for n, line in enumerate(lines) if {n - 1, n, n + 1} & changed]
    text = "\n".join(kept)
    return text if len(text) <= _MAX_DIFF else text[:_MAX_DIFF] + " …"
