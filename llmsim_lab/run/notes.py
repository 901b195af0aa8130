"""What a turn notes of its players' decisions, and how a recording holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from llmsim_lab.run.state import Columns


def _notes_by_decision(recorded: object) -> object:
    """Return notes by player and component; recordings without components have them by player."""
    if isinstance(recorded, Mapping):
        return {(player, ""): columns for player, columns in recorded.items()}
    if not isinstance(recorded, list):
        return recorded
    notes: dict[tuple[object, object], object] = {}
    for note in recorded:
        # Any other keys were not written by this package, and mean that the tape is damaged.
        if not isinstance(note, Mapping) or note.keys() != {"player", "component", "columns"}:
            raise ValueError("a note has a player, a component and columns")
        notes[note["player"], note["component"]] = note["columns"]
    return notes


def _recorded_notes(notes: Mapping[tuple[str, str], Columns]) -> object:
    """Return notes in the form of recordings; see ``_notes_by_decision``."""
    # The older form, so that runs without components are recorded as they always were.
    if not any(component for _, component in notes):
        return {player: columns for (player, _), columns in notes.items()}
    # A list, since a key in JSON has only one part.
    return [
        {"player": player, "component": component, "columns": columns}
        for (player, component), columns in notes.items()
    ]


Notes = Annotated[
    dict[tuple[str, str], Columns],
    BeforeValidator(_notes_by_decision),
    PlainSerializer(_recorded_notes),
]
"""Outcomes of decisions: columns by player and component; no component means the first."""


def notes_by_player(notes: Mapping[tuple[str, str], Columns]) -> dict[tuple[str, str], Columns]:
    """Return notes in the older form, which names no components."""
    merged: dict[tuple[str, str], Columns] = {}
    for (player, _), columns in notes.items():
        merged.setdefault((player, ""), {}).update(columns)
    return merged
