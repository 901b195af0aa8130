"""Asking people on the terminal: each field of an answer in turn, until it is right."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping
from typing import Any

from llmsim_lab._util.text import printable
from llmsim_lab._util.waiting import LOOP_THREAD
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Person
from llmsim_lab.llm.fields import field_words
from llmsim_lab.llm.human import DAY_S, OpenQuestion
from llmsim_lab.llm.scope import caller
from llmsim_lab.run._any_run import AnyRun
from llmsim_lab.run._records import clients_of

_terminal = threading.Lock()
"""Held while a person is asked: several are asked at once, each in a thread, on one terminal."""


def ask_on_terminal(question: OpenQuestion) -> Mapping[str, Any]:
    """Show the question and ask for each field until it is right.

    Raises:
        ConfigError: no one is at the keyboard.
    """
    with _terminal:
        _say(f"\nTurn {question.turn} · {caller(question.request.site)}")
        if question.complaint:
            _say(f"Not accepted: {question.complaint} This is the second and last try.")
        else:
            _say(f"\n{question.request.prompt}\n")
        return {name: _field(question, name) for name in question.fields}


def _say(text: str) -> None:
    plain = printable(text, keep="\n\t")
    sys.stdout.write(f"{plain}\n")
    sys.stdout.flush()


def _field(question: OpenQuestion, name: str) -> Any:
    schema = question.fields[name]
    about = f", {schema['description']}" if "description" in schema else ""
    words = field_words(schema)
    offer = f" ({words})" if words else ""
    is_needed = question.faults({name: None}).get(name)
    empty = "" if is_needed else "; empty for none"
    while True:
        _say(f"{name.replace('_', ' ')}{about}{offer}{empty}:")
        try:
            answer = input("> ").strip()
        except EOFError:
            raise ConfigError(
                f"no one answers for {caller(question.request.site)}: standard input has ended; "
                "play on a terminal, or with HumanSeat"
            ) from None
        value = question.value(name, answer)
        fault = question.faults({name: value}).get(name)
        if fault is None:
            return value
        _say(f"That {fault}.")


def ask_people_here(run: AnyRun) -> None:
    """Have the people of a run asked on the terminal, where nothing else can ask them.

    So it is in a plain script, which does nothing else while the run is played. In a notebook, and
    where another thread or task may answer, they are left alone.

    Raises:
        ConfigError: nothing can ask them, and there is no terminal.
    """
    unasked = {
        seat: client.backend
        for seat, client in clients_of(run).items()
        if isinstance(client.backend, Person)
        and client.backend.ask is None
        and not client.backend.has_listeners
    }
    if not unasked or not _is_plain_script():
        return
    if sys.stdin is not None and sys.stdin.isatty():
        for person in unasked.values():
            person.ask = ask_on_terminal
        return
    for seat, person in unasked.items():
        # One with a limit is not waited for without end.
        if person.timeout_s >= DAY_S:
            cls = type(run).__name__
            raise ConfigError(
                f"players[{seat!r}] of {cls} is a person, and no one can answer here: play on a "
                f"terminal, in a notebook with HumanSeat(run), or say who answers: "
                f"{cls}(players={{{seat!r}: Person(ask=function)}})"
            )


def _is_plain_script() -> bool:
    """Return True where nothing but a run is under way, so that only the terminal can answer."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if hasattr(shell, "kernel"):
        return False
    others = [thread for thread in threading.enumerate() if thread.name != LOOP_THREAD]
    if others != [threading.main_thread()]:
        return False
    # While runs are played on the loop of ``run_sync`` the main thread waits for them.
    return threading.current_thread().name == LOOP_THREAD or _tasks_here() <= 1


def _tasks_here() -> int:
    """Return how many tasks there are beside each other on this thread."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # no loop runs here
        return 0
