"""The errors that a room answers requests with."""

from __future__ import annotations

from collections.abc import Mapping


class RoomError(Exception):
    """A request that the room refuses.

    Args:
        status: the status of HTTP.
        code: a word for the error; the interface may have its own sentence for it.
        sentence: a whole sentence, for people.
        faults: what is wrong with an answer, by field.
    """

    def __init__(
        self,
        status: int,
        code: str,
        sentence: str,
        faults: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.sentence = sentence
        self.faults = faults


def malformed() -> RoomError:
    """Return the error for a request that no page sends."""
    return RoomError(400, "malformed", "The room did not understand this; reload the page.")


def refused(sentence: str) -> RoomError:
    """Return the error for a button that makes no sense now."""
    return RoomError(409, "refused", sentence)
