"""Asking people on the terminal: each field of an answer in turn, until it is right."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any

from llmsim_lab._util.text import printable
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm._human import OpenQuestion, schema_words
from llmsim_lab.llm._scope import caller

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
    offer = f" ({words})" if (words := schema_words(schema)) else ""
    empty = "" if question.faults({name: None}).get(name) else "; empty for none"
    while True:
        _say(f"{name.replace('_', ' ')}{about}{offer}{empty}:")
        try:
            answer = input("> ").strip()
        except EOFError:
            who = caller(question.request.site)
            raise ConfigError(
                f"no one answers for {who}: standard input has ended; play on a terminal, or with "
                "HumanSeat"
            ) from None
        value = question.value(name, answer)
        fault = question.faults({name: value}).get(name)
        if fault is None:
            return value
        _say(f"That {fault}.")
