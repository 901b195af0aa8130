"""What a page is told in place of what it asked for."""

from __future__ import annotations

from collections.abc import Mapping


class RoomError(Exception):
    """A request that is not answered.

    Args:
        status: of HTTP.
        code: a word for it, by which the interface's sentences may have another wording.
        sentence: for people, whole.
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


def refused(sentence: str) -> RoomError:
    """Return the fault of a button that makes no sense now."""
    return RoomError(409, "refused", sentence)
