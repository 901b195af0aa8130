"""Tapes for the tests of the tape tools, and ways to damage them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from builders import answer, in_words, make_client

from llmsim_lab.llm import Tape
from llmsim_lab.simulation import Simulation

__all__ = ["record", "spoil"]

HOSTILE = "\x1b[2Jnote\u202e [bold]<b>&"
"""Clears a terminal, turns the line around, and tries both kinds of markup."""


def record(path: Path, *, name: str = "economy", replies: Any = answer) -> Path:
    """Record run 1, three turns; run 2, its fork at turn 1; run 3, a fork of that one; close."""
    config = in_words(name=name, nations=("Aland", "Borduria"), turns=3, start="1979Q3")
    with Tape(path) as tape:
        first = Simulation(config, llm_client=make_client(replies), tape=tape)
        first.run()
        prompt = first.agents[0].prompt
        second = first.fork(1, prompt=prompt.replace("ONE", "exactly one"))
        second.run(3)
        third = second.fork(intervene=[{"turn": 5, "shock": {"supply": 2}, "note": "oil"}])
        third.run(1)
        for simulation in (first, second, third):
            simulation.close()
    return path


def spoil(path: Path, *statements: str, values: tuple[Any, ...] = ()) -> None:
    """Change a tape's file directly, without checking foreign keys."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA foreign_keys = OFF")
    for statement in statements:
        connection.execute(statement, values)
    connection.commit()
    connection.close()
