"""Small builders for tests: states, actions, decisions, clients that answer from a script."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import runpy
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

from llmsim_lab._util.config import YamlFile
from llmsim_lab.agents.agents import RateDecision
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.models import (
    Action,
    AgentState,
    GlobalState,
    PolicyDecision,
    SimulationState,
    StateUpdateDecision,
    ValidationDecision,
    ValidationResult,
)
from llmsim_lab.run import Run
from llmsim_lab.run.registry import class_and_config
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.types import ChatRequest

__all__ = [
    "answer",
    "eight_lines",
    "in_words",
    "make_action",
    "make_client",
    "make_config",
    "make_simulation",
    "make_state",
    "played",
]
__all__ += ["policy", "rate_update", "recorded", "requests_of", "second_by_second", "until"]
__all__ += ["verdict"]


AnyRun = TypeVar("AnyRun", bound=Run[Any])


def make_state(turn: int = 0, *, names: tuple[str, ...] = ("Aland",), **economy: Any) -> Any:
    """Return a state with these agents and these levels of the economy."""
    return SimulationState(
        turn=turn,
        agents={name: AgentState(name=name) for name in names},
        global_state=GlobalState(**economy),
    )


def make_action(text: str = "Raise taxes", *, name: str = "Aland", **fields: Any) -> Action:
    """Return an action, by default one that a validator accepted."""
    fields.setdefault("validated", True)
    fields.setdefault("validation_result", ValidationResult(is_valid=fields["validated"]))
    return Action(agent_name=name, action_string=text, **fields)


def policy(
    action: str = "Raise the interest rate by 0.25",
    *,
    reasoning: str = "Inflation is high.",
    confidence: float = 0.8,
) -> PolicyDecision:
    """Return an answer of an agent's model."""
    return PolicyDecision(action=action, reasoning=reasoning, confidence=confidence)


def verdict(
    is_valid: bool = True, *, reasoning: str = "It is economic.", confidence: float = 0.9
) -> ValidationDecision:
    """Return an answer of a validator's model."""
    return ValidationDecision(is_valid=is_valid, reasoning=reasoning, confidence=confidence)


def rate_update(
    rate: float, *, reasoning: str = "A higher rate cools demand.", confidence: float = 0.7
) -> StateUpdateDecision:
    """Return an answer of an engine's model."""
    return StateUpdateDecision(new_interest_rate=rate, reasoning=reasoning, confidence=confidence)


def answer(request: ChatRequest) -> Any:
    """Answer any request of a run sensibly: raise the rate by the smallest step offered."""
    assert request.site is not None
    if request.site.component == "agent":
        said = policy(reasoning=f"{request.site.agent} sees turn {request.site.turn}.")
        assert request.schema is not None
        if "rate_change_bp" in request.schema["properties"]:
            return RateDecision(**dict(said), rate_change_bp=25)
        return said
    if request.site.component == "validator":
        return verdict()
    assert request.schema is not None
    offered = request.schema["properties"]["new_interest_rate"]["enum"]
    middle = sum(offered) / len(offered)
    return rate_update(min(rate for rate in offered if rate > middle))


def make_client(replies: Any = answer, *, delay_s: float = 0.0, **config: Any) -> LLMClient:
    """Return a client that retries without waiting; its backend has the requests it saw."""
    config.setdefault("retry_wait_s", 0)
    return LLMClient(LLMConfig(**config), ScriptedBackend(replies, delay_s=delay_s))


def requests_of(client: LLMClient, component: str | None = None) -> list[ChatRequest]:
    """Return what a scripted client was asked, by one component or by all."""
    backend = client.backend
    assert isinstance(backend, ScriptedBackend)
    return [
        request
        for request in backend.requests
        if component is None or (request.site is not None and request.site.component == component)
    ]


def make_config(**fields: Any) -> SimulationConfig:
    """Return a configuration of Taylor rules without shocks, which by default needs no model."""
    fields.setdefault("nations", ["Aland"])
    fields.setdefault("players", "rule")
    fields.setdefault("economy", {"shock_scale": 0})
    return SimulationConfig(**fields)


def in_words(**fields: Any) -> SimulationConfig:
    """Return a configuration as the contracts have it.

    Agents put their actions into words, the engine's model judges each, one after the other. There
    are no shocks.
    """
    calm = {"moves_bp": None, "committee": "sequential", "economy": {"shock_scale": 0}}
    return SimulationConfig(**{**calm, **fields})


def make_simulation(
    replies: Any = answer, *, names: tuple[str, ...] = ("Aland", "Borduria"), **config: Any
) -> Simulation:
    """Return a run, of ``in_words``, of nations whose model answers from a script."""
    return Simulation(in_words(nations=names, **config), llm_client=make_client(replies))


def config_in(path: Path, kind: str = "") -> Any:
    """Return the configuration in a file, as ``llmsim-lab run`` reads it."""
    return class_and_config(YamlFile.read(path), kind=kind)[1]


def played(run: AnyRun, turns: int | None = None) -> AnyRun:
    """Play a run: so many turns, or all that are left."""
    run.run(turns, progress=False)
    return run


def recorded(run: AnyRun, turns: int | None = None) -> AnyRun:
    """Play a run and close its tape."""
    played(run, turns).close()
    return run


def second_by_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one second pass between two readings of the clock, so that durations are known."""
    looks = itertools.count(1_000_000.0)
    monkeypatch.setattr(time, "perf_counter", lambda: next(looks))


def eight_lines(connected: str) -> str:
    """Return the README's eight lines, with another client than ``connect("auto")``."""
    readme = Path(__file__).parents[1] / "README.md"
    section = readme.read_text(encoding="utf-8").partition("## Eight lines")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    assert 'connect("auto")' in code
    return code.replace('connect("auto")', connected)


def loaded(path: Path) -> ModuleType:
    """Return a script that is on no path, as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def benchmark(name: str) -> dict[str, Any]:
    """Return the names of a benchmark, a script: its folder is on the path while it is loaded."""
    folder = Path(__file__).parents[1] / "benchmarks"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        return runpy.run_path(str(folder / f"{name}.py"))


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds that can only be polled."""
    for _ in range(6_000):
        if holds():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it never came to that")
