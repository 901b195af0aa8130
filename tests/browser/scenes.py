"""What the notebooks of the browser tests import: models that wait or fail when told."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Sequence
from random import Random
from typing import Any

from assistant_kit import MemoryTasks, call
from builders import answer, in_words, make_client, policy, rate_update

from llmsim_lab import LLMConfig, Simulation, data_path
from llmsim_lab.assistant import (
    LLMAgentEngine,
    LLMMessage,
    LLMResponse,
    ToolDeclaration,
    load_constitution,
)
from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm import LLMClient
from llmsim_lab.study import Study
from llmsim_lab.types import ChatReply, ChatRequest

__all__ = ["HOSTILE", "Assistant", "Givers", "Model", "make_run"]

BOLD = "Raise the interest rate as far as it goes"
HOSTILE = "<script>document.title = 'hacked'</script><img src=x onerror='hacked'><b>bold</b>"


class Switches:
    """What a test turns while a notebook is open.

    Attributes:
        waiting: while true, no answer comes.
        broken: while true, every request fails.
        asked: how many requests came.
    """

    def __init__(self) -> None:
        self.waiting = False
        self.broken = False
        self.asked = 0

    def set(self, **switches: float) -> str:
        """Turn switches, as an expression."""
        vars(self).update(switches)
        return "done"

    async def heard(self) -> None:
        """Count a request, and hold it up while that is wanted."""
        self.asked += 1
        while self.waiting:  # noqa: ASYNC110 - a switch for any thread
            await asyncio.sleep(0.01)


class Model(Switches):
    """Answers a run's requests as ``builders.answer`` does; a bold advisor gets a higher rate.

    An advisor is bold whose prompt says so. While it is broken, every request is refused.
    """

    async def __call__(self, request: ChatRequest) -> Any:
        await self.heard()
        if self.broken:
            raise ConnectionError("the model is gone")
        return _bolder(request) or answer(request)

    def client(self) -> LLMClient:
        return make_client(self)


def _bolder(request: ChatRequest) -> Any:
    assert request.site is not None
    component = request.site.component
    if component == "agent" and "bold" in request.prompt:
        return policy(BOLD)
    if component == "engine" and BOLD in request.prompt:
        assert request.schema is not None
        return rate_update(max(request.schema["properties"]["new_interest_rate"]["enum"]))
    return None


def make_run(model: Model, *names: str, **config: Any) -> Simulation:
    """Two nations from 1979Q3, unless told otherwise."""
    nations = names or ("Aland", "Borduria")
    config = {"name": "scripted", "seed": 7, "start_at": "1979Q3"} | config
    return Simulation(in_words(nations=nations, **config), llm_client=model.client())


class Assistant(Switches):
    """Reads tasks out of messages by their first word: Add, Delete, or anything else.

    Attributes:
        tools: the tasks, in memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tools = MemoryTasks(ann=["Buy milk", "Call mum"])

    def engine(self) -> LLMAgentEngine:
        return LLMAgentEngine(self, self.tools, load_constitution())

    @property
    def tasks(self) -> list[str]:
        """Ann's tasks."""
        return list(self.tools.tasks["ann"].values())

    async def generate(
        self,
        messages: Sequence[LLMMessage],
        tools: Sequence[ToolDeclaration],
        temperature: float = 0.0,
        max_tokens: int = 1024,
    ) -> LLMResponse:
        await self.heard()
        if self.broken:
            raise ConfigError("the model's address is not set; give connect() a host")
        if messages[-1].role == "tool":
            return LLMResponse("I have added it.")
        said = next(one.content for one in reversed(messages) if one.role == "user")
        verb, _, rest = said.partition(" ")
        if verb == "Add":
            return LLMResponse(function_calls=[call("add_task", title=rest)])
        if verb == "Delete":
            return LLMResponse(function_calls=[call("delete_task", task_id=1)])
        return LLMResponse(f"You wrote: {said}")


class Givers(Switches):
    """Plays public goods by a script that reads its prompt; some of its answers fail.

    Attributes:
        share: of the answers that fail while it is broken.
    """

    def __init__(self) -> None:
        super().__init__()
        self.share = 0.003

    def study(self, tape: str | None = None, **settings: Any) -> Study:
        """Return a study of three personas, on a new tape where one is named."""
        sys.path.append(str(data_path("templates")))
        world = importlib.import_module("public_goods").PublicGoods
        client = LLMClient(LLMConfig(model="givers", retry_wait_s=0), self)
        given: dict[str, Any] = {"seeds": 20, "turns": 8, "outcome": ["given", "given@last"]}
        return Study(world, {"prompt": PERSONAS}, llm_client=client, tape=tape, **given | settings)

    async def chat(self, request: ChatRequest) -> ChatReply:
        await self.heard()
        luck = Random(f"{request.options['seed']} {request.prompt}")
        if self.broken and luck.random() < self.share:
            raise BackendError("the model's server is out of memory", reason="server_error")
        coins = luck.gauss(9, 3) + 4 * ("always shared" in request.prompt)
        amount = min(20, max(0, round(coins - 2 * ("poor" in request.prompt))))
        return ChatReply(text=f'{{"reasoning": "Fair.", "amount": {amount}, "confidence": 0.6}}')


PERSONAS = {
    "nobody": None,
    "thrifty": lambda prompt: "You were poor as a child. " + prompt,
    "generous": lambda prompt: "Your family have always shared. " + prompt,
}
