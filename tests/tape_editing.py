"""A recorded family of runs, and edits of a tape's lines after which their sums fit again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

from builders import answer, in_words, make_client

from llmsim_lab.llm import Tape
from llmsim_lab.simulation import Simulation

__all__ = ["edit_tape", "record_family"]


def record_family(path: Path, *, name: str = "economy") -> Path:
    """Record run 1, three turns; run 2, its fork at turn 1; run 3, a fork of that one; close."""
    config = in_words(name=name, nations=("Aland", "Borduria"), turns=3, start="1979Q3")
    first = Simulation(config, llm_client=make_client(answer), tape=Tape(path))
    first.run()
    prompt = first.agents[0].prompt  # type: ignore[attr-defined]
    second = first.fork(1, prompt=prompt.replace("ONE", "exactly one"))
    second.run(3)
    third = second.fork(intervene=[{"turn": 5, "shock": {"supply": 2}, "note": "oil"}])
    third.run(1)
    for simulation in (first, second, third):
        simulation.close()
    return path


def edit_tape(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a tape as somebody would who computes its sums again.

    Args:
        path: the tape.
        change: gets each line of a run, and may change it; it is left out if this returns False.
    """
    sums: dict[int, int] = {}
    kept = []
    for raw in path.read_bytes().splitlines(keepends=True):
        line = json.loads(raw)
        if "run" not in line:
            kept.append(raw)
            continue
        del line["sum"]
        if change(line) is False:
            continue
        text = json.dumps(line, separators=(",", ":"), ensure_ascii=False)[:-1].encode()
        own = sums[line["run"]] = crc32(text, sums.get(line["run"], line["run"]))
        kept.append(b'%b,"sum":"%08x"}\n' % (text, own))
    path.write_bytes(b"".join(kept))
