"""A window whose messages to the browser are kept, and what a browser would know of them."""

from __future__ import annotations

import gzip
import json
from typing import Any

from llmsim_lab.lab import Lab
from llmsim_lab.run.reading import Reading

__all__ = ["Browser", "opened", "same_reading"]


class Browser:
    """What the front end would be sent by a window, and sends to it.

    Args:
        lab: the window.

    Attributes:
        heard: the messages, unpacked.
        sizes: of each in bytes, as it was sent.
        records: the log, as far as it came without a gap.
    """

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.heard: list[dict[str, Any]] = []
        self.sizes: list[int] = []
        self.records: list[Any] = []
        lab.send = self._take
        self.send("since", at=0)

    def _take(self, message: Any, buffers: Any = None) -> None:
        whole = json.loads(gzip.decompress(buffers[0])) if buffers else message
        self.sizes.append(len(buffers[0]) if buffers else len(json.dumps(message)))
        self.heard.append(whole)
        if "records" in whole:
            assert whole["at"] <= len(self.records), "a gap"
            self.records[whole["at"] :] = whole["records"]

    def send(self, do: str, **values: Any) -> None:
        """Send a command, as the front end does."""
        self.lab._receive(None, {"do": do, **values}, [])

    def latest(self, name: str) -> Any:
        """Return what was last said under a name."""
        return next(it[name] for it in reversed(self.heard) if name in it)

    def field(self, *place: str) -> dict[str, Any]:
        """Return a field of the form that was sent last."""
        fields = (field for part in self.latest("form")["parts"] for field in part["fields"])
        return next(field for field in fields if field["place"] == [*place])

    @property
    def turns(self) -> list[tuple[int, int]]:
        """The runs and numbers of the turns that are known."""
        return [(it["turn"]["run"], it["turn"]["n"]) for it in self.records if "turn" in it]


def opened(run: Any) -> tuple[Lab, Browser]:
    """Return a window of a run, and what its browser is sent."""
    lab = Lab(run)
    return lab, Browser(lab)


def same_reading(one: Reading, other: list[Any]) -> bool:
    """Return True if a browser knows all that a reading holds."""
    return json.loads(json.dumps(one.records)) == other
