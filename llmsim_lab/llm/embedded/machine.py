"""What this machine can take: memory, processor cores, instruction set."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from llmsim_lab.errors import ConfigError, ModelFileError

__all__ = ["available_memory_bytes", "check_memory", "check_processor", "usable_cores"]

_CGROUP = Path("/sys/fs/cgroup")
_PROCESSORS = Path("/proc/cpuinfo")


def available_memory_bytes(*, cgroup: Path = _CGROUP) -> int:
    """Return how much memory a new process can have; a container's own limit counts."""
    import psutil

    free = int(psutil.virtual_memory().available)
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used))
    return free


def check_memory(needed_bytes: int, *, model: str, free_bytes: int | None = None) -> None:
    """Refuse a model that does not fit.

    Raises:
        ModelFileError: less memory is free than the model needs.
    """
    free = available_memory_bytes() if free_bytes is None else free_bytes
    if needed_bytes > free:
        raise ModelFileError(
            f"{model} needs about {needed_bytes / 1e9:.1f} GB of memory but "
            f"{free / 1e9:.1f} GB is free; close other programs, lower num_ctx, or take a "
            "smaller model ('llmsim-lab model ls')"
        )


def usable_cores(*, cgroup: Path = _CGROUP) -> int:
    """Return how many cores this process may use: physical ones, within the limits set for it."""
    import psutil

    counts = [psutil.cpu_count(logical=False), os.cpu_count()]
    if hasattr(os, "sched_getaffinity"):
        counts.append(len(os.sched_getaffinity(0)))
    try:
        quota, _, period = (cgroup / "cpu.max").read_text().partition(" ")
        counts.append(int(quota) // int(period))
    except (OSError, ValueError):
        counts.append(None)  # no limit there, or no such file
    return max(1, min(count for count in counts if count is not None))


def check_processor(*, processors: Path = _PROCESSORS, machine: str | None = None) -> None:
    """Refuse an x86 processor on which the runtime would crash, where that can be told.

    Raises:
        ConfigError: it has no AVX2.
    """
    if (machine or platform.machine()).lower() not in ("x86_64", "amd64"):
        return
    if not sys.platform.startswith("linux") or not processors.exists():
        return
    text = processors.read_text(errors="replace")
    flags = next((line for line in text.splitlines() if line.startswith("flags")), None)
    if flags is not None and "avx2" not in flags.split():
        raise ConfigError(
            "the embedded model's runtime needs a processor with AVX2, and this one has none; "
            "run Ollama, here or on another machine, and connect('ollama', host=...)"
        )


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # "max", or no such file
