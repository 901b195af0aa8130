"""A very small simulation with its own turns and config: a model says what to add to a number."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmsim_lab._util.waiting import gather_all
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.llm._chains import chain_of
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Run
from llmsim_lab.run._config import RunConfig, RunIntervention
from llmsim_lab.run._turn import RunTurn, Series
from llmsim_lab.types import CallSite, ChatRequest, Decision

__all__ = [
    "Adder",
    "Addition",
    "CounterConfig",
    "CounterIntervention",
    "CounterSimulation",
    "CounterTurn",
    "Total",
    "answer",
    "counter_client",
    "make_counter",
]

logger = logging.getLogger(__name__)

PROMPT = Prompt.parse(
    "Asks for a number.\n\n## System\nYou are {{ name }}.\n\n## User\nThe total is {{ total }}.\n",
    name="adder",
)


class Addition(Decision):
    """The model's answer."""

    add: int
    reasoning: str
    confidence: float = 1.0


@dataclass(frozen=True)
class Total:
    """The state."""

    value: int = 0
    history: tuple[int, ...] = ()


class CounterIntervention(RunIntervention):
    """A value to set the total to."""

    value: int
    during: bool = False


class CounterConfig(RunConfig):
    name: str = "counter"
    adders: tuple[str, ...] = ("Ann", "Bob")
    interventions: tuple[CounterIntervention, ...] = ()

    @property
    def series(self) -> Sequence[Series]:
        """The columns of numbers."""
        return (
            Series(column="total", label="Total", unit="points", short="total"),
            Series(column="added", label="Added", short="plus"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterTurn(RunTurn[Total, CounterIntervention]):
    """A turn, with what each adder added."""

    added: dict[str, int] | None = None

    def own_columns(self) -> dict[str, Any]:
        """Return the total and what was added."""
        return {"total": self.state.value, "added": sum((self.added or {}).values())}


class Adder:
    """Asks a model how much to add."""

    def __init__(self, name: str, llm_client: LLMClient, prompt: Prompt = PROMPT) -> None:
        self.name = name
        self.llm_client = llm_client
        self.prompt = prompt

    async def decide(self, total: Total, turn: int) -> tuple[Addition, Any]:
        site = CallSite(component="adder", agent=self.name, turn=turn)
        text = self.prompt.render(name=self.name, total=total.value)
        said = await self.llm_client.call_with_retry(
            prompt=text, response_model=Addition, site=site
        )
        return said, chain_of(said, site, logger=logger)


class CounterSimulation(Run[Total, CounterTurn, CounterConfig, CounterIntervention]):
    """Adds what the adders say to the total, turn by turn."""

    kind = "counter"
    part_names = ("adders",)

    def __init__(
        self,
        config: CounterConfig | None = None,
        *,
        llm_client: LLMClient | None = None,
        adders: Sequence[Adder] | None = None,
        state: Total | None = None,
        tape: Tape | str | Path | None = None,
        prompts: Mapping[str, Prompt] | None = None,
    ) -> None:
        config = config or CounterConfig()
        prompts = prompts or {}
        given = ["adders"] if adders is not None else []
        if adders is None:
            assert llm_client is not None
            adders = [
                Adder(name, llm_client, prompts.get(f"adder:{name}", PROMPT))
                for name in config.adders
            ]
        self.adders = tuple(adders)
        first = self.turn_type(number=0, state=state or Total())
        super().__init__(config, first=first, llm_client=llm_client, given=given, tape=tape)

    async def _play(
        self, before: CounterTurn, planned: Sequence[CounterIntervention]
    ) -> CounterTurn:
        start = Total(next((item.value for item in planned if item.during), before.state.value))
        number = before.number + 1
        said = await gather_all([adder.decide(start, number) for adder in self.adders])
        added = {adder.name: it.add for adder, (it, _) in zip(self.adders, said, strict=True)}
        value = start.value + sum(added.values())
        return CounterTurn(
            number=number,
            state=Total(value, (*before.state.history, value)),
            chains=tuple(chain for _, chain in said),
            added=added,
        )

    def _intervened(self, state: Total, interventions: Sequence[CounterIntervention]) -> Total:
        for item in interventions:
            if not item.during:
                state = Total(item.value, state.history)
        return state


def answer(request: ChatRequest) -> Any:
    """Add a number that follows from the request: the length of the adder's name, plus the turn."""
    assert request.site is not None
    return {
        "add": len(request.site.agent or "") + (request.site.turn or 0),
        "reasoning": f"{request.site.agent} saw: {request.prompt[-20:]}",
        "confidence": 0.5,
    }


def counter_client(replies: Any = answer) -> LLMClient:
    return LLMClient(LLMConfig(model="scripted", retry_wait_s=0), ScriptedBackend(replies))


def make_counter(
    tape: Tape | str | Path | None = None, *, replies: Any = answer, **config: Any
) -> CounterSimulation:
    return CounterSimulation(CounterConfig(**config), llm_client=counter_client(replies), tape=tape)
