"""Code in a process of its own, which may use so much of the processor and of memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

__all__ = ["limited", "longest_pause", "said"]

_FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
_RSS_A_MB = 2**20 if sys.platform == "darwin" else 2**10


def limited(code: str, *arguments: object, cpu_s: int = 20, memory_mb: int = 600) -> list[str]:
    """Run code in a process of its own; return the lines that it printed.

    The test fails if it raises, or uses more seconds of the processor or more memory. How long it
    takes on a busy machine does not count.

    Args:
        code: may use ``sys.argv[1:]`` and all of this module.
        arguments: texts for it.
        cpu_s: seconds of the processor.
        memory_mb: at its peak, with all that was imported.
    """
    head = f"import resource, sys\nsys.path[:0] = {_FOLDERS!r}\nfrom limits_kit import *\n"
    head += f"resource.setrlimit(resource.RLIMIT_CPU, ({cpu_s}, {cpu_s}))\n"
    tail = "\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    command = [sys.executable, "-c", head + textwrap.dedent(code) + tail, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    *lines, peak = done.stdout.splitlines()
    assert int(peak) / _RSS_A_MB <= memory_mb, lines
    return lines


def said(work: Any) -> str:
    """Return ``done``, or the error of ours that work ended in, in one line."""
    from llmsim_lab.errors import LabError

    try:
        work()
    except LabError as error:
        return " ".join(f"{type(error).__name__}: {error}".split())
    return "done"


async def longest_pause(work: Coroutine[Any, Any, Any]) -> float:
    """Return for how long some work kept its event loop, at most, in seconds of the processor."""
    longest, latest = 0.0, time.process_time()

    async def beat() -> None:
        nonlocal longest, latest
        while True:
            now = time.process_time()
            longest, latest = max(longest, now - latest), now
            await asyncio.sleep(0)

    heart = asyncio.create_task(beat())
    try:
        await work
    finally:
        heart.cancel()
    return max(longest, time.process_time() - latest)
