"""Python's garbage collector while a turn is played.

It looks through all young objects each time some hundreds more are alive than before, and now and
then through all there are. A turn keeps nearly all that it makes, so that this finds nothing and
takes the longer the more a run has kept.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["rare_collections"]

_RARELY = (50_000, 100, 100)
"""Thresholds as ``gc.set_threshold`` takes them: some tens of megabytes of garbage may pile up."""

_held = threading.Lock()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Have garbage collected less often inside, and once at the end, of the young objects only.

    The thresholds are then what they were. Where another turn holds them already, where they are
    higher, or where there is no collection, this does nothing. What others set meanwhile stays.
    """
    before = gc.get_threshold()
    usual = gc.isenabled() and 0 < before[0] < _RARELY[0]
    if not usual or not _held.acquire(blocking=False):
        yield
        return
    gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        if gc.get_threshold() == _RARELY:
            # Else all that the turn made would be due at once, and now and then a full pass.
            gc.collect(0)
            gc.set_threshold(*before)
        _held.release()
