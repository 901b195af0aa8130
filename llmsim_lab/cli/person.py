"""A person's turn on the command line: the prompt is shown, then each field is asked for."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from llmsim_lab.cli.output import console
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import OpenQuestion
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation.counterfactual import people_in
from llmsim_lab.text import number, printable

__all__ = ["seat_people"]

_one_at_a_time = threading.Lock()


def seat_people(simulation: object) -> None:
    """Let people of a run, if it has any, be asked on the terminal."""
    people = people_in(simulation) if isinstance(simulation, Simulation) else []
    for agent in people:
        agent.person.ask = _ask


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
    choices = question.fields[name].get("enum")
    offer = f" ({', '.join(map(number, choices))})" if choices else ""
    while True:
        _show(f"{name.replace('_', ' ')}{offer}:")
        try:
            said = input("> ").strip()
        except EOFError:
            raise ConfigError(
                f"nobody answers for {question.agent}: standard input has ended; play on a "
                "terminal, or in a notebook with HumanSeat(simulation)"
            ) from None
        value = _number_in(said) if choices else said
        fault = question.faults({name: value}).get(name)
        if fault is None:
            return value
        _show(f"That {fault}.")


def _number_in(said: str) -> float | str:
    try:
        return float(said.replace(",", ".").removesuffix("%"))
    except ValueError:
        return said


def _show(text: str) -> None:
    console.print(printable(text, keep="\n"), markup=False, highlight=False, soft_wrap=True)
