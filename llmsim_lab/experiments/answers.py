"""What the variants decided: which way the rate went, and the commonest answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["agreement", "common_answers", "direction", "directions"]

_TOLERANCE = 0.005
"""Percentage points: less is no move, since rates are on a grid of hundredths."""


def direction(move: float) -> str | None:
    """Return which way a rate went: ``raise``, ``hold`` or ``lower``; None where it is NaN."""
    if move != move:
        return None
    if abs(move) < _TOLERANCE:
        return "hold"
    return "raise" if move > 0 else "lower"


def directions(frame: pd.DataFrame, variants: Sequence[str]) -> pd.DataFrame:
    """Return each variant's shares of moves: ``raise``, ``hold``, ``lower``; ``used``, ``failed``.

    One row a variant. Shares are of the samples used; failed ones are counted beside them.
    """
    import pandas as pd

    moves = _moves(frame)
    rows = []
    for variant in variants:
        own = [move for (name, _, _), move in moves.items() if name == variant]
        known = [move for move in own if move is not None]
        counts = Counter(known)
        shares = {
            name: counts[name] / len(known) if known else float("nan")
            for name in ("raise", "hold", "lower")
        }
        failed = _failed(frame, variant)
        rows.append({"variant": variant, **shares, "used": len(known), "failed": failed})
    return pd.DataFrame(rows)


def agreement(frame: pd.DataFrame, variants: Sequence[str]) -> pd.DataFrame:
    """Return how often two samples at the same turn go the same way, and say the same.

    One row a comparison. Each variant is held against the first twice: over the pairs of one seed,
    and over the pairs of different seeds, which are unequal samples of a turn. Each is also held
    against itself, over all pairs of its samples at a turn, which have different seeds: the floor.
    Only rows of different seeds compare with it: less agreement than that is what a prompt can have
    caused. A shared seed makes samples alike, whatever the prompts.

    Columns: ``of``; ``seeds``, ``same`` or ``different``; ``same_direction`` and ``same_answer``
    (shares); ``pairs`` and, as not all samples come off, ``failed``.
    """
    import pandas as pd

    moves, texts = _moves(frame), _texts(frame)
    there: dict[tuple[str, int], list[Place]] = {}
    for place in texts:
        there.setdefault(place[:2], []).append(place)
    turns = dict.fromkeys(turn for _, turn in there)
    rows = []
    for variant in variants[1:]:
        both = [
            pair
            for turn in turns
            for pair in product(there.get((variants[0], turn), []), there.get((variant, turn), []))
        ]
        of = f"{variants[0]} and {variant}"
        same = [(a, b) for a, b in both if a[2] == b[2]]
        other = [(a, b) for a, b in both if a[2] != b[2]]
        rows.append({"of": of, "seeds": "same", **_shares(same, moves, texts)})
        rows.append({"of": of, "seeds": "different", **_shares(other, moves, texts)})
    for variant in variants:
        pairs = [p for turn in turns for p in combinations(there.get((variant, turn), []), 2)]
        of = f"{variant} and itself"
        rows.append({"of": of, "seeds": "different", **_shares(pairs, moves, texts)})
    return pd.DataFrame(rows)


Place = tuple[str, int, int]


def _shares(
    pairs: Sequence[tuple[Place, Place]],
    moves: dict[Place, str | None],
    texts: dict[Place, str | None],
) -> dict[str, float | int]:
    def share(said: dict[Place, str | None]) -> float:
        known = [
            (said[a], said[b]) for a, b in pairs if said[a] is not None and said[b] is not None
        ]
        return sum(a == b for a, b in known) / len(known) if known else float("nan")

    whole = sum(texts[a] is not None and texts[b] is not None for a, b in pairs)
    return {
        "same_direction": share(moves),
        "same_answer": share(texts),
        "pairs": whole,
        "failed": len(pairs) - whole,
    }


def common_answers(frame: pd.DataFrame, *, most: int = 5) -> pd.DataFrame:
    """Return each variant's commonest decisions: ``variant``, ``decision``, ``count``, ``share``.

    Answers that differ only in spaces or in capital letters are one. Shares are of the decisions
    that the variant gave; the rows of those that failed have the decision ``(failed)``.

    Args:
        frame: the results.
        most: of each variant.
    """
    import pandas as pd

    rows = []
    for variant in dict.fromkeys(frame["variant"]):
        own = frame[frame["variant"] == variant]
        counts = Counter(_plain(text) for text in own["decision"] if text)
        total = counts.total()
        rows += [
            {"variant": variant, "decision": text, "count": count, "share": count / total}
            for text, count in counts.most_common(most)
        ]
        if silent := len(own) - total:
            failed = {"decision": "(failed)", "count": silent, "share": float("nan")}
            rows.append({"variant": variant, **failed})
    return pd.DataFrame(rows, columns=["variant", "decision", "count", "share"])


def _plain(text: str) -> str:
    return " ".join(text.split()).lower()


def _moves(frame: pd.DataFrame) -> dict[Place, str | None]:
    keys = zip(frame["variant"], frame["turn"], frame["sample"], strict=True)
    return {key: direction(move) for key, move in zip(keys, frame["move"], strict=True)}


def _texts(frame: pd.DataFrame) -> dict[Place, str | None]:
    """Return what was decided in each sample, all agents together; None where one failed."""
    said: dict[Place, str | None] = {}
    keys = zip(frame["variant"], frame["turn"], frame["sample"], strict=True)
    for key, text in zip(keys, frame["decision"], strict=True):
        before = said.get(key, "")
        said[key] = f"{before}\n{_plain(text)}" if text and before is not None else None
    return said


def _failed(frame: pd.DataFrame, variant: str) -> int:
    own = frame[(frame["variant"] == variant) & ~frame["completed"].astype(bool)]
    return len(own[["turn", "sample"]].drop_duplicates())
