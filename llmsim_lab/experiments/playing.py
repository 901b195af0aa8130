"""Play an experiment's samples one after the other, record them, and say how far it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable

from llmsim_lab.experiments.bench import Sample
from llmsim_lab.experiments.plan import Progress
from llmsim_lab.experiments.rows import came_off
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm.scope import Recorder
from llmsim_lab.runs._session import Recording
from llmsim_lab.simulation import Turn

__all__ = ["Play", "Played", "play_all"]

Play = Callable[[Sample, Recorder | None], Awaitable[Turn]]
"""Plays one sample, with what records its calls."""
Played = tuple[Sample, Turn]


async def play_all(
    schedule: Sequence[Sample],
    played: list[Played],
    *,
    play: Play,
    client: LLMClient,
    taping: Recording | None,
    on_progress: Callable[[Progress], object] | None,
    advance: Callable[[], object],
) -> None:
    """Play what is left of a schedule, and note on the tape how that ended.

    Args:
        schedule: every sample in the order of playing.
        played: those that were played, from the first; each further one is added when it is whole.
        play: plays one.
        client: the model; a tape holds it against the one recorded.
        taping: what records the samples; it is closed in the end.
        on_progress: called after each sample; may be async.
        advance: likewise, without being told how far it is.
    """
    outcome = "interrupted"
    try:
        if taping is not None:
            await taping.before_turn(client)
        for sample in schedule[len(played) :]:
            turn = await _whole(sample, play, taping)
            played.append((sample, turn))
            advance()
            if on_progress is not None:
                heard = on_progress(_progress(played, len(schedule)))
                if isawaitable(heard):
                    await heard
        outcome = "done"
    except Exception as error:
        outcome = f"failed: {error}"
        raise
    finally:
        if taping is not None:
            try:
                taping.ended(outcome)
            finally:
                taping.close()


async def _whole(sample: Sample, play: Play, taping: Recording | None) -> Turn:
    """Return a sample as it stands on the tape, if there is one."""
    if taping is None:
        return await play(sample, None)
    try:
        turn = await play(sample, taping.recorder)
    except BaseException as error:
        taping.failed(error)
        raise
    recorded: Turn = taping.done(turn, {})
    return recorded


def _progress(played: Sequence[Played], total: int) -> Progress:
    sample, turn = played[-1]
    return Progress(
        done=len(played),
        total=total,
        failed=sum(not came_off(*result) for result in played),
        latest=sample,
        seconds=turn.seconds,
    )
