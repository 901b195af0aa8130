"""What stands in each of two prompts, and what a token budget made different beside the purpose.

Leaving one part out of a prompt makes room: under a budget another may come in, or be cut less.
Then the two prompts differ in more than what was to be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from llmsim_lab.prompts import RenderedPrompt
from llmsim_lab.settings import Settings
from llmsim_lab.spans import Cut

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Piece", "Pieces", "arms_frame", "budget_note", "pieces_of"]


class Piece(Settings):
    """A section of a prompt, or one that was cut from it.

    Attributes:
        name: of the section.
        source: who contributes it, such as ``module trust_dynamics``.
        there: whether it stands in the prompt, whole or shortened.
        cut: why it was left out or shortened; empty where it is whole.
        tokens: how many it takes, or would have taken if it was left out; None if not known.
    """

    name: str
    source: str = ""
    there: bool = True
    cut: str = ""
    tokens: int | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.source})" if self.source else self.name


Pieces = tuple[Piece, ...]


def pieces_of(prompt: RenderedPrompt) -> Pieces:
    """Return a prompt's sections in their order, then those that were left out."""
    known = prompt.provenance
    shortened: list[Cut] = [cut for cut in known.cuts if cut.shortened]
    pieces = []
    for span in known.spans:
        cut = next((c for c in shortened if (c.name, c.source) == (span.name, span.source)), None)
        if cut is not None:
            shortened.remove(cut)
        reason = cut.reason if cut else ""
        pieces.append(Piece(name=span.name, source=span.source, cut=reason, tokens=span.tokens))
    # One that was shortened and then left out all the same is here once, as left out.
    pieces += [
        Piece(name=cut.name, source=cut.source, there=False, cut=cut.reason, tokens=cut.tokens)
        for cut in known.cuts
        if not cut.shortened
    ]
    return tuple(pieces)


def arms_frame(arms: Mapping[str, Pieces]) -> pd.DataFrame:
    """Return one row a prompt and section.

    Columns: ``prompt``, ``section``, ``source``, ``there``, ``cut``, ``tokens``; see ``Piece``.
    """
    import pandas as pd

    rows = [
        (prompt, piece.name, piece.source, piece.there, piece.cut, piece.tokens)
        for prompt, pieces in arms.items()
        for piece in pieces
    ]
    return pd.DataFrame(rows, columns=["prompt", "section", "source", "there", "cut", "tokens"])


def budget_note(arms: Mapping[str, Pieces], *, but: Iterable[str]) -> str:
    """Say how two prompts differ beside what was meant to differ; empty if in nothing.

    Args:
        arms: two prompts' sections by the prompts' names, the reference first.
        but: the sources that were meant to differ.
    """
    if len(arms) != 2:
        return ""
    (one, before), (other, after) = arms.items()
    meant = set(but)
    came_in, left_out, otherwise = _changes(
        [piece for piece in before if piece.source not in meant],
        [piece for piece in after if piece.source not in meant],
    )
    said = []
    if came_in:
        said.append(f"came in: {', '.join(came_in)}")
    if left_out:
        said.append(f"left out: {', '.join(left_out)}")
    if otherwise:
        said.append(f"otherwise cut: {', '.join(otherwise)}")
    lines = []
    if said:
        lines.append(
            f"Mind the token budget: in {other}, {'; '.join(said)}. So the prompts differ in more "
            "than what was silenced, and the change cannot be put down to that alone."
        )
        lines.append(f"Cut for want of tokens in {one}: {_cut(before)}; in {other}: {_cut(after)}.")
    if unheard := [piece for piece in before if piece.source in meant and piece.cut]:
        names = ", ".join(f"{piece}: {piece.cut}" for piece in unheard)
        lines.append(f"In {one} the budget had cut what was to be silenced: {names}.")
    return " ".join(lines)


def _changes(
    before: Sequence[Piece], after: Sequence[Piece]
) -> tuple[list[str], list[str], list[str]]:
    """Return which sections came in, were left out, and are there in both but cut otherwise."""
    here, there = _numbered(before), _numbered(after)
    came_in = [str(p) for key, p in there.items() if key not in here]
    left_out = [str(p) for key, p in here.items() if key not in there]
    otherwise = [str(p) for key, p in here.items() if key in there and p.cut != there[key].cut]
    return came_in, left_out, otherwise


def _numbered(pieces: Iterable[Piece]) -> dict[tuple[str, str, int], Piece]:
    """Return the sections that are there; those of one name and source are told apart by place."""
    found: dict[tuple[str, str, int], Piece] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for piece in pieces:
        if piece.there:
            name = (piece.name, piece.source)
            found[(*name, seen[name])] = piece
            seen[name] += 1
    return found


def _cut(pieces: Iterable[Piece]) -> str:
    return "; ".join(f"{piece}, {piece.cut}" for piece in pieces if piece.cut) or "nothing"
