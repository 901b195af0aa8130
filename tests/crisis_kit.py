"""Small builders for the tests of the crisis simulation."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llmsim_lab.context import BehaviorModule, ComposedModules, CrisisSimulation
from llmsim_lab.context.scenario import CrisisScenario
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.types import ChatRequest


def make_scenario(**fields: Any) -> CrisisScenario:
    """Return a scenario of two neighbours and a river, by default without modules."""
    return CrisisScenario.model_validate(
        {
            "title": "The river",
            "time_step_duration": "1 week",
            "variables": {
                "global_vars": {"water": {"type": "scale", "label": "Water level"}},
                "agent_vars": {
                    "trust": {"type": "percent", "default": 50},
                    "note": {"type": "text", "default": "", "engine_may_set": False},
                },
            },
            "global_vars": {"water": 40},
            "agents": {"Ada": {"role": "You farm upstream."}, "Bo": {"role": "You farm below."}},
            "events": [{"description": "It has not rained"}],
            **fields,
        }
    )


def judged(
    world: dict[str, Any] | None = None, own: dict[str, Any] | None = None, *events: str
) -> dict[str, Any]:
    """Return an answer of the engine's model."""
    return {
        "state_updates": {"global_vars": world or {}, "agent_vars": own or {}},
        "events": [{"type": "event", "description": text} for text in events],
        "reasoning": "Water follows use.",
    }


def said(actions: str = "We open the gate", **parts: str) -> dict[str, str]:
    """Return an answer of an agent's model."""
    return {"assessment": "It is dry.", "actions": actions, "communications": "", **parts}


def answer(request: ChatRequest) -> Any:
    """Answer what each call asks: the water falls by one each turn, and agents name the turn."""
    assert request.site is not None
    turn = request.site.turn or 0
    if request.site.component == "engine":
        return judged({"water": 40 - turn}, {}, f"Gates were moved in week {turn}")
    return said(f"{request.site.agent} opens gate {turn}")


def crisis_client(replies: Any = answer, **config: Any) -> LLMClient:
    """Return a client that answers from a script."""
    settings = LLMConfig(model="scripted", retry_wait_s=0, **config)
    return LLMClient(settings, ScriptedBackend(replies))


def requests_to(simulation: CrisisSimulation, player: str) -> list[ChatRequest]:
    """Return what the simulation's script was asked in a player's name."""
    assert simulation.llm_client is not None
    backend = simulation.llm_client.backend
    assert isinstance(backend, ScriptedBackend)
    return [it for it in backend.requests if it.site and it.site.agent == player]


def schema_of(simulation: CrisisSimulation, component: str) -> Any:
    """Return the schema of what a component of the simulation was asked first."""
    assert simulation.llm_client is not None
    backend = simulation.llm_client.backend
    assert isinstance(backend, ScriptedBackend)
    asked = [it.schema for it in backend.requests if it.site and it.site.component == component]
    return asked[0]


def make_crisis(
    tape: Tape | str | Path | None = None,
    *,
    replies: Any = answer,
    scenario: CrisisScenario | str | None = None,
    modules: Iterable[BehaviorModule] = (),
    client: LLMClient | None = None,
    **parameters: Any,
) -> CrisisSimulation:
    """Return a crisis on scripted replies, by default the river."""
    cls = with_modules(*modules) if modules else CrisisSimulation
    return cls(
        scenario=scenario or make_scenario(),
        llm_client=client or crisis_client(replies),
        tape=tape,
        **parameters,
    )


def with_modules(*modules: BehaviorModule) -> type[CrisisSimulation]:
    """Return a class of one's own, with these modules."""

    class Modular(CrisisSimulation):
        def compose(self) -> ComposedModules:
            return ComposedModules(modules)

    return Modular
