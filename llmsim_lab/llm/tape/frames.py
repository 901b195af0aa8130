"""A tape's runs as tidy data frames."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from llmsim_lab.errors import TapeError
from llmsim_lab.llm.tape.codec import RecordedCall

if TYPE_CHECKING:
    import pandas as pd

    from llmsim_lab.llm.tape.tape import Tape

__all__ = ["calls_frame", "compare", "turns_frame"]

_CALL_COLUMNS = (
    "id",
    "turn",
    "component",
    "agent",
    "replicate",
    "attempt",
    "model",
    "prompt",
    "reply",
    "fault",
    "done_reason",
    "prompt_tokens",
    "reply_tokens",
    "seconds",
    "forgotten",
)


def turns_frame(rows: Iterable[Any]) -> pd.DataFrame:
    """Return turns' rows, as the tape holds them, as a frame.

    Raises:
        TapeError: one is no row; the tape is damaged.
    """
    import pandas as pd

    rows = list(rows)
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise TapeError(f"the row of turn {place} on the tape is damaged: it is no object")
    return pd.DataFrame(rows)


def calls_frame(calls: Iterable[RecordedCall]) -> pd.DataFrame:
    """Return recorded requests as a frame; see ``Tape.calls_frame`` for the columns."""
    import pandas as pd

    return pd.DataFrame([_call_row(call) for call in calls], columns=list(_CALL_COLUMNS))


def _call_row(call: RecordedCall) -> tuple[Any, ...]:
    attempt = call.attempt
    request, reply, site = attempt.request, attempt.reply, attempt.request.site
    return (
        call.id,
        site.turn if site else None,
        site.component if site else None,
        site.agent if site else None,
        site.replicate if site else 0,
        request.attempt,
        request.model,
        _whole(request.prompt),
        _whole(reply.text) if reply else None,
        _whole(attempt.detail) if attempt.reason else None,
        reply.done_reason if reply else None,
        reply.prompt_tokens if reply else None,
        reply.reply_tokens if reply else None,
        attempt.seconds,
        call.forgotten,
    )


def _whole(text: str) -> str:
    """Put a question mark for half a character: no column of Arrow's can hold one."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def compare(tape: Tape, run_a: int, run_b: int) -> pd.DataFrame:
    """Return how two runs' trajectories differ, by turn; see ``Tape.compare``."""
    import pandas as pd

    frames = [tape.turns_frame(run) for run in (run_a, run_b)]
    numeric = [_numeric(frame) for frame in frames]
    shared = [name for name in numeric[0] if name in numeric[1]]
    if not shared:
        had = " and ".join(
            f"run {run} has {', '.join(map(str, names)) or 'none'}"
            for run, names in zip((run_a, run_b), numeric, strict=True)
        )
        raise TapeError(
            f"runs {run_a} and {run_b} cannot be compared: they share no column of numbers ({had})"
        )
    a, b = (frame.set_index("turn")[shared] for frame in frames)
    turns = a.index.intersection(b.index)
    if turns.empty:
        raise TapeError(f"runs {run_a} and {run_b} cannot be compared: they share no turn")
    a, b = a.loc[turns], b.loc[turns]
    parts = {"a": a, "b": b, "difference": b - a}
    columns = [(name, part) for name in shared for part in parts]
    joined = pd.concat(parts, axis=1).swaplevel(axis=1)
    return joined[columns].rename_axis(columns=["variable", "of"])


def _numeric(frame: pd.DataFrame) -> list[str]:
    """Return the columns of numbers, if there are turns to compare them by."""
    if "turn" not in frame or not frame["turn"].is_unique:
        return []
    return [str(name) for name in frame.select_dtypes("number").columns if name != "turn"]
