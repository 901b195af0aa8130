"""A world that asks for one value, for tests of what a reply's field takes."""

from __future__ import annotations

from typing import Any

from llmsim_lab import Ask, Reply, Run, State

__all__ = ["Town", "asked", "text"]


class Town(State):
    said: str = ""


def asked(annotation: Any, **more: Any) -> type[Run[Town]]:
    """A world whose turn asks Ann for a value of this type, and notes it as Python writes it."""
    reply: type[Reply] = type(
        "Said", (Reply,), {"__annotations__": {"value": annotation}, "__module__": __name__}
    )

    class Market(Run[Town]):
        async def turn(self, state: Town, ask: Ask) -> Town:
            answer: Any = await ask("Ann", reply, "Well?", **more)
            return state.replace(said=repr(answer.value))

    return Market


def text(value: str) -> str:
    """A reply with this value, written in JSON."""
    return f'{{"reasoning": "r", "value": {value}, "confidence": 1}}'
