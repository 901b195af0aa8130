"""What a prompt comparison is set up with besides the prompts: turns, samples, the plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from llmsim_lab.errors import ConfigError
from llmsim_lab.experiments import PromptExperiment
from llmsim_lab.experiments._bench import Sample
from llmsim_lab.text import clip

__all__ = ["done_text", "draft_schedule", "read_turns", "spread", "turns_text"]

_PART = re.compile(r"(\d{1,9})(?:\s*-\s*(\d{1,9}))?")


def read_turns(text: str, there: Sequence[int]) -> list[int]:
    """Return the turns that a text names, such as ``1, 3, 5-8``.

    Args:
        text: numbers and ranges with commas or spaces between them; ``all`` for all.
        there: the turns to choose from.

    Raises:
        ConfigError: it is not understood, or a turn is not there.
    """
    if text.strip().lower() == "all":
        return list(there)
    found: dict[int, None] = {}
    known = set(there)
    for part in re.split(r"[,;\s]+", re.sub(r"\s*-\s*", "-", text.strip())):
        match = _PART.fullmatch(part)
        if match is None:
            raise ConfigError(f"turns {text!r:.60}: write numbers and ranges, as in 1, 3, 5-8")
        first, last = int(match[1]), int(match[2] or match[1])
        named = [turn for turn in there if first <= turn <= last]
        if not named or first not in known or last not in known:
            raise ConfigError(
                f"turns {text!r:.60}: the run asked this component in the turns "
                f"{turns_text(there)}, not in {part}"
            )
        found |= dict.fromkeys(named)
    return list(found)


def turns_text(turns: Sequence[int]) -> str:
    """Write turns short: ``1-3, 7``."""
    parts: list[list[int]] = []
    for turn in turns:
        if parts and turn == parts[-1][-1] + 1:
            parts[-1].append(turn)
        else:
            parts.append([turn])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def spread(turns: Sequence[int], most: int) -> list[int]:
    """Return some of the turns, evenly spread from the first to the last."""
    if len(turns) <= most:
        return list(turns)
    step = (len(turns) - 1) / (most - 1)
    return [turns[round(place * step)] for place in range(most)]


def draft_schedule(*, variants: int, turns: Sequence[int], samples: int) -> Iterator[Sample]:
    """Yield samples as an experiment would play them, for an estimate of what they cost."""
    for turn in turns:
        for number in range(1, variants * samples + 1):
            yield Sample(number=number, variant="", turn=turn, sample=number, seed=0)


def done_text(experiment: PromptExperiment) -> str:
    """Say of an experiment that is all played what can be done next, and what failed in it.

    Failed samples are not offered by themselves: only those that came off the second time would
    come in, which is no fair sample of either variant.
    """
    frame = experiment.frame
    failed = frame.loc[~frame["completed"].astype(bool)]
    count, total = (
        len(failed.drop_duplicates(["variant", "turn", "sample"])),
        len(experiment.played),
    )
    said = f"all samples are played; change a variant, the turns or the samples for {_MORE}"
    if not count:
        return said
    how_many = f"all {total} failed" if count == total else f"{count} of {total} failed"
    why = clip(str(failed["detail"].iloc[0]), 200)
    return f"{said}. {how_many.capitalize()}, the first with: {why}. {_AFTER_FAILURES}"


_MORE = "more, or play all of it anew with other seeds"
_AFTER_FAILURES = (
    "Failures count as results. Once their cause is mended, play all anew: playing only those that "
    "failed again would favour whatever came off."
)
