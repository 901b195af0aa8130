"""The runs of a window, by their numbers: simulations, runs on tapes, rows of frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from llmsim_lab._util.checks import whole_number
from llmsim_lab.run import Run
from llmsim_lab.run.reading import RecordedRun, RowState
from llmsim_lab.run.series import Series
from llmsim_lab.run.turn import Turn

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRun:
    """A run that is known only by the rows of its frame.

    Attributes:
        turns: the turns, one for each row.
        tape: None.
        run_id: None.
        series: empty.
    """

    turns: Sequence[Turn]
    tape: None = None
    run_id: None = None
    series: Sequence[Series] = ()

    @classmethod
    def of(cls, frame: pd.DataFrame) -> FrameRun:
        """Return a run made from a frame's rows."""
        rows: list[Any] = frame.to_dict("records")
        return cls(turns=[Turn(number=int(row["turn"]), state=RowState({}, row)) for row in rows])

    @property
    def last_planned(self) -> int:
        """The last turn's number."""
        return self.turns[-1].number

    def prediction(self) -> Mapping[str, float]:
        """Return nothing, since only a class knows what theory predicts."""
        return {}


ShownRun: TypeAlias = Run | RecordedRun | FrameRun


class RunsShown(MutableMapping[int, ShownRun]):
    """Runs by their numbers; a run on a tape is read when it is first asked for.

    Attributes:
        read: the runs that were read, or were never on a tape.
    """

    def __init__(self) -> None:
        self.read: dict[int, ShownRun] = {}
        self._recorded: dict[int, Callable[[], ShownRun]] = {}

    def record(
        self,
        number: int,
        read: Callable[[], ShownRun],
    ) -> None:
        """Add a run on a tape, with a function that reads it."""
        self._recorded[number] = read

    def __getitem__(self, number: int) -> ShownRun:
        if number not in self.read and number in self._recorded:
            self.read[number] = self._recorded[number]()
        return self.read[number]

    def __setitem__(self, number: int, run: ShownRun) -> None:
        self.read[number] = run

    def __delitem__(self, number: int) -> None:
        self._recorded.pop(number, None)
        self.read.pop(number, None)

    def __iter__(self) -> Iterator[int]:
        # Runs on a tape come first, in its order, whether they were read or not.
        return iter({**self._recorded, **self.read})

    def __len__(self) -> int:
        return len({**self._recorded, **self.read})

    def __contains__(self, number: object) -> bool:
        return number in self._recorded or number in self.read


def turn_of(run: ShownRun, number: int) -> Turn:
    """Return a turn of a run by its number.

    Raises:
        ConfigError: the run has no such turn.
    """
    first = run.turns[0].number  # not 0 if a frame lacks the initial state
    whole_number(
        "turn",
        number,
        least=first,
        most=run.turns[-1].number,
    )
    return run.turns[number - first]
