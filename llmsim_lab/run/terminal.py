"""Asking people on the terminal, one field of an answer after another, until it is right."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from llmsim_lab._util.text import is_open, printable
from llmsim_lab._util.waiting import LOOP_THREAD
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Person
from llmsim_lab.llm.fields import field_fault, field_words
from llmsim_lab.llm.human import DAY_S, AnswerError, OpenQuestion
from llmsim_lab.llm.scope import caller
from llmsim_lab.run._any_run import AnyRun
from llmsim_lab.run.charts import name_in_words
from llmsim_lab.run.records import clients_of
from llmsim_lab.run.seating import SeatQuestion, put

_terminal = threading.Lock()
"""Held while a person is asked: several threads may ask, and there is only one terminal."""


def ask_on_terminal(
    question: OpenQuestion,
    run: AnyRun | None = None,
) -> Mapping[str, Any]:
    """Show a question, and ask for each field until the whole answer is right.

    Args:
        question: the question that waits for an answer.
        run: the run that asks, which may put the question to people differently.

    Raises:
        ConfigError: no one is at the keyboard.
    """
    seated = put(run, question)
    with _terminal:
        _say(f"\nTurn {question.turn} · {caller(question.request.site)}\n\n{seated.text}\n")
        values = {name: _field(seated, name) for name in seated.form.fields}
        while True:
            try:
                return seated.taken(values)
            except AnswerError as error:
                for name, fault in error.by_field.items():
                    _say(f"Not accepted: {f'{name} {fault}'.strip()}.")
                # Only wrong fields are asked again; all of them, if the answer as a whole is wrong.
                wrong = seated.form.fields.keys() & error.by_field.keys()
                for name in wrong or seated.form.fields:
                    values[name] = _field(seated, name)


def _say(text: str) -> None:
    plain = printable(text, keep="\n\t")
    sys.stdout.write(f"{plain}\n")
    sys.stdout.flush()


def _field(asked: SeatQuestion, name: str) -> Any:
    """Ask for one field until its value is right."""
    form = asked.form
    schema = form.fields[name]
    about = ""
    if "description" in schema:
        about = f", {schema['description']}"
    words = field_words(schema)
    offer = f" ({words})" if words else ""
    empty = "; empty for none" if schema.get("optional") else ""
    while True:
        _say(f"{name_in_words(name)}{about}{offer}{empty}:")
        try:
            answer = input("> ").strip()
        except EOFError:
            raise ConfigError(
                f"no one answers for {caller(form.request.site)}: standard input has ended; "
                "play on a terminal, or with HumanSeat"
            ) from None
        value = form.value(name, answer)
        fault = field_fault(value, schema)
        if not fault:
            return value
        _say(f"That {fault}.")


def ask_people_here(run: AnyRun) -> None:
    """Ask the people of a run on the terminal, if no other code can ask them.

    That is the case in a plain script, which does nothing else while the run is played. In a
    notebook, and wherever another thread or task may answer, this does nothing.

    Raises:
        ConfigError: no other code can ask them, and there is no terminal.
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
    # Without a console, as under pythonw, there is no standard input.
    if is_open(sys.stdin) and sys.stdin.isatty():
        for person in unasked.values():
            person.ask = partial(ask_on_terminal, run=run)
        return
    for seat, person in unasked.items():
        # A person with a time limit does not keep the run waiting for ever.
        if person.timeout_s >= DAY_S:
            cls = type(run).__name__
            raise ConfigError(
                f"players[{seat!r}] of {cls} is a person, and no one can answer here: play on a "
                f"terminal, in a notebook with HumanSeat(run), or say who answers: "
                f"{cls}(players={{{seat!r}: Person(ask=function)}})"
            )


def _is_plain_script() -> bool:
    """Return True if nothing but the run is under way, so that only the terminal can answer."""
    # Not imported here: if IPython is not loaded, there is no kernel.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if hasattr(shell, "kernel"):
        return False
    # Any other thread may be a server whose guests answer, such as a room's.
    threads = [thread for thread in threading.enumerate() if thread.name != LOOP_THREAD]
    if threads != [threading.main_thread()]:
        return False
    # ``run_sync`` plays runs on a loop of its own, while the main thread waits.
    return threading.current_thread().name == LOOP_THREAD or _tasks_here() <= 1


def _tasks_here() -> int:
    """Return how many tasks run on this thread's loop."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # no loop runs here
        return 0
