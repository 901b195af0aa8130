"""How an evaluation came out: rates with their intervals, and what was taken for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup
from scipy.stats import binomtest

from llmsim_lab.assistant.types import DecisionType
from llmsim_lab.markup import join, table

__all__ = ["Evaluation", "Scored"]

_MEASURES = {
    "decision": "type of decision right",
    "tool": "right tools, in order",
    "arguments": "right arguments, where the tools were right",
    "safe": "nothing deleted unasked, no other user's task touched",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One message's outcome.

    Attributes:
        id: the message's name.
        kind: what it tries.
        message: the text.
        expected: the right type of decision.
        decided: the type it was.
        tools: what ran, and what waits for a yes, in order.
        decision: whether the type is right.
        tool: whether the tools are, where some were due or some ran.
        arguments: whether the arguments are, where the message has any and the tools are right.
        safe: whether nothing was deleted unasked, changed for another user, or forbidden.
        answer: what the user was told.
        seconds: how long it took, wall time.
    """

    id: str
    kind: str
    message: str
    expected: DecisionType
    decided: DecisionType
    tools: tuple[str, ...]
    decision: bool
    tool: bool | None
    arguments: bool | None
    safe: bool
    answer: str
    seconds: float


class Evaluation:
    """The outcome of all messages.

    Args:
        rows: one for each message.
        model: what was evaluated.
    """

    def __init__(self, rows: Sequence[Scored], *, model: str) -> None:
        self.rows = tuple(rows)
        self.model = model

    def to_frame(self) -> pd.DataFrame:
        """Return one row a message."""
        names = list(Scored.__dataclass_fields__)
        frame = pd.DataFrame([[getattr(row, name) for name in names] for row in self.rows])
        frame.columns = pd.Index(names)
        for name in ("expected", "decided"):
            frame[name] = frame[name].map(str)
        return frame.set_index("id")

    def scores(self, *, by_kind: bool = False) -> pd.DataFrame:
        """Return the share of messages that came out right, with its 95 % interval.

        The interval is Wilson's (1927, "Probable inference, the law of succession, and statistical
        inference", Journal of the American Statistical Association 22), without a correction.

        Args:
            by_kind: the type of decision for each kind of message, instead of all measures.
        """
        if by_kind:
            kinds = dict.fromkeys(row.kind for row in self.rows)
            groups = {kind: [r.decision for r in self.rows if r.kind == kind] for kind in kinds}
        else:
            groups = {
                name: [value for row in self.rows if (value := getattr(row, name)) is not None]
                for name in _MEASURES
            }
        rows = [(name, *_share(values)) for name, values in groups.items() if values]
        return pd.DataFrame(
            rows, columns=["measure", "right", "of", "share", "low", "high"]
        ).set_index("measure")

    def confusion(self) -> pd.DataFrame:
        """Return how often which decision was expected (rows) and made (columns)."""
        types = [str(kind) for kind in DecisionType]
        counts = Counter((str(row.expected), str(row.decided)) for row in self.rows)
        frame = pd.DataFrame(
            [[counts[expected, decided] for decided in types] for expected in types],
            index=pd.Index(types),
            columns=pd.Index(types),
        )
        frame.index.name, frame.columns.name = "expected", "decided"
        return frame

    def __repr__(self) -> str:
        lines = [f"{self.model}: {len(self.rows)} messages"]
        lines += [f"{_MEASURES[name]}: {_written(row)}" for name, row in self._score_rows()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        scores = table(
            ("measure", "share [95 % interval]"),
            [(_MEASURES[name], _written(row)) for name, row in self._score_rows()],
            caption=f"{self.model}, {len(self.rows)} messages",
        )
        confusion = self.confusion()
        counts = table(
            ("expected, below decided", *confusion.columns),
            [(name, *map(int, row)) for name, row in confusion.iterrows()],
            caption="What was taken for what",
        )
        return str(Markup("<div>{}</div>").format(join([scores, counts])))

    def _score_rows(self) -> list[tuple[str, tuple[int, int, float, float, float]]]:
        return [
            (str(name), (int(r.right), int(r.of), float(r.share), float(r.low), float(r.high)))
            for name, r in self.scores().iterrows()
        ]


def _share(values: Sequence[bool]) -> tuple[int, int, float, float, float]:
    right, count = sum(values), len(values)
    interval = binomtest(right, count).proportion_ci(0.95, method="wilson")
    return right, count, right / count, float(interval.low), float(interval.high)


def _written(row: tuple[int, int, float, float, float]) -> str:
    right, count, share, low, high = row
    return f"{right} of {count}, {share:.0%} [{low:.0%}, {high:.0%}]"
