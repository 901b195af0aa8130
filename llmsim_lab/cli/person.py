"""A person's turn on the command line: the prompt is shown, then each field is asked for."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from llmsim_lab.cli.output import console
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import OpenQuestion
from llmsim_lab.llm._human import schema_words
from llmsim_lab.runs import Run
from llmsim_lab.text import printable

__all__ = ["seat_people"]

_one_at_a_time = threading.Lock()


def seat_people(simulation: Run) -> None:
    """Let people of a run, if it has any, be asked on the terminal, but for those asked already."""
    for person in simulation.people:
        person.ask = person.ask or _ask


def _ask(question: OpenQuestion) -> Mapping[str, Any]:
    """Show the question and ask for each field until it is right.

    Raises:
        ConfigError: there is nobody at the keyboard.
    """
    with _one_at_a_time:
        _show(f"\nTurn {question.turn}: {question.agent} is asked.")
        if question.complaint:
            _show(f"Not accepted: {question.complaint} This is the second try, and the last.")
        else:
            _show("\n" + question.request.prompt + "\n")
        return {name: _field(question, name) for name in question.fields}


def _field(question: OpenQuestion, name: str) -> Any:
    schema = question.fields[name]
    about = f", {schema['description']}" if "description" in schema else ""
    words = schema_words(schema)
    offer = f" ({words})" if words else ""
    while True:
        _show(f"{name.replace('_', ' ')}{about}{offer}:")
        try:
            said = input("> ").strip()
        except EOFError:
            raise ConfigError(
                f"nobody answers for {question.agent}: standard input has ended; play on a "
                "terminal, or in a notebook with HumanSeat(simulation)"
            ) from None
        value = question.value(name, said)
        fault = question.faults({name: value}).get(name)
        if fault is None:
            return value
        _show(f"That {fault}.")


def _show(text: str) -> None:
    console.print(printable(text, keep="\n"), markup=False, highlight=False, soft_wrap=True)
