"""What is planned in a run, as its turns' lines say it.

A run may plan thousands of interventions, and each turn's line says what is planned after it. So a
line has only the last few itself, and names the others by the digests of texts, which lines share.
A text holds a power of two of them. Where one more intervention makes two texts of one size, these
become one text, as digits carry: however long a plan grows, each intervention is written a few
times, and a line names a few texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from llmsim_lab._util.jsontext import as_mapping, dumps, loads
from llmsim_lab.tape._journal import Journal, text_digest

Record = Mapping[str, Any]
"""A turn's record, JSON; untrusted."""
_FEWEST = 16
"""Interventions in a text."""

Entry = Any
"""What a record says of a plan: an intervention, or the digest of a text of some. Untrusted."""


class _Planned(Protocol):
    @property
    def turn(self) -> int: ...


class _PlanText(NamedTuple):
    """A text of interventions, and the latest turn that one is for."""

    planned: Sequence[_Planned]
    digest: str
    text: str
    last_turn: int


class _Divided(NamedTuple):
    """A plan, and how it is divided into texts and what no text has."""

    planned: Sequence[_Planned]
    texts: list[_PlanText]
    rest: Sequence[_Planned]


class PlanOfLine(NamedTuple):
    """What a turn's line says is planned.

    Attributes:
        texts: the texts that the line names, by their digests.
        rest: the interventions that the line has itself.
    """

    texts: dict[str, str]
    rest: Sequence[Any]


NOTHING_PLANNED = PlanOfLine({}, ())


class PlanWriter:
    """Says for each line of a run what is planned.

    Args:
        as_json: returns interventions ready for JSON.
    """

    def __init__(self, as_json: Callable[[Sequence[Any]], object]) -> None:
        self._as_json = as_json
        self._latest = _Divided((), [], ())

    def at(self, planned: Sequence[_Planned], turn: int) -> PlanOfLine:
        """Return what the line of a turn says.

        Args:
            planned: the run's plan. What is for that turn and those before is left out.
            turn: the turn's number.
        """
        if not planned:
            return NOTHING_PLANNED
        # In most turns the plan is the one of the turn before.
        if planned is not self._latest.planned:
            # Kept as a whole, since Ctrl-C may come between any two lines.
            self._latest = self._divided(planned)
        texts = {part.digest: part.text for part in self._latest.texts if part.last_turn > turn}
        rest = [change for change in self._latest.rest if change.turn > turn]
        rest.sort(key=lambda change: change.turn)
        return PlanOfLine(texts, rest)

    def _divided(self, planned: Sequence[_Planned]) -> _Divided:
        """Divide a plan into texts, of which those of the latest one are kept."""
        known = {len(part.planned): part for part in self._latest.texts}
        texts: list[_PlanText] = []
        start = 0
        size = 1 << len(planned).bit_length()
        while size >= _FEWEST:
            part = planned[start : start + size]
            if len(part) == size:
                text = known.get(size)
                if text is None or text.planned != part:
                    text = self._text_of(part)
                texts.append(text)
                start += size
            size //= 2
        return _Divided(planned, texts, planned[start:])

    def _text_of(self, part: Sequence[_Planned]) -> _PlanText:
        text = dumps(self._as_json(part))
        return _PlanText(
            planned=part,
            digest=text_digest(text.encode()).decode(),
            text=text,
            last_turn=max(change.turn for change in part),
        )


def texts_named_in(entries: Iterable[Entry]) -> list[str]:
    """Return the digests of the texts that a record names.

    Raises:
        ValueError: it names one twice, which no run does: a short line could plan millions.
    """
    digests = [entry for entry in entries if isinstance(entry, str)]
    if len(set(digests)) < len(digests):
        raise ValueError("it names a text of what is planned twice")
    return digests


def planned_in_text(text: str) -> list[Any]:
    """Return the interventions of a text, as JSON has them.

    Raises:
        ValueError: it is no list.
    """
    planned = loads(text)
    if not isinstance(planned, list):
        raise ValueError("a text of what is planned is not a list")
    return planned


class PlanReader:
    """Reads what the records of a tape say is planned, each text once.

    What it returns is untrusted: it was not looked at further than its turn.

    Args:
        journal: the tape's file.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._by_turn: dict[str, Mapping[Any, list[Any]]] = {}

    def for_turn(self, record: Record, turn: int) -> Iterator[Any]:
        """Yield what a record says is planned for a turn.

        Raises:
            TapeError: a text is not on the tape.
            ValueError: what is planned cannot be read.
            TypeError: likewise.
        """
        entries = record["planned"]
        for digest in texts_named_in(entries):
            yield from self._text(digest).get(turn, ())
        for entry in entries:
            if as_mapping(entry).get("turn") == turn:
                yield entry

    def after(self, record: Record) -> Iterator[Any]:
        """Yield what a record says is planned for later turns.

        Raises:
            TapeError: a text is not on the tape.
            ValueError: what is planned cannot be read.
            TypeError: likewise.
        """
        entries = record["planned"]
        for digest in texts_named_in(entries):
            for turn, planned in self._text(digest).items():
                if turn > record["turn"]:
                    yield from planned
        for entry in entries:
            if not isinstance(entry, str):
                yield entry

    def _text(self, digest: str) -> Mapping[Any, list[Any]]:
        """Return the interventions of a text, by their turns."""
        # Kept here, since the journal keeps no more than fits: each turn's line names some.
        if digest not in self._by_turn:
            by_turn: dict[Any, list[Any]] = {}
            for planned in planned_in_text(self._journal.text(digest, str)):
                by_turn.setdefault(planned["turn"], []).append(planned)
            self._by_turn[digest] = by_turn
        return self._by_turn[digest]
