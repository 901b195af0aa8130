"""A world's parameters."""

from __future__ import annotations

import pytest

from llmsim_lab import Ask, Run, State
from llmsim_lab.errors import ConfigError


class Tally(State):
    count: int = 0


class Counter(Run[Tally]):
    async def turn(self, state: Tally, ask: Ask) -> Tally:
        return state.replace(count=state.count + 1)


@pytest.mark.parametrize("name", ["prompts", "given", "llm_client", "players", "config", "tape"])
def test_a_parameter_cannot_be_called_like_an_argument_of_every_run(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"World\.{name}: the name '{name}' is taken"):
        type("World", (Counter,), {"__annotations__": {name: int}, name: 1})
