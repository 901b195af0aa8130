"""Small builders for the tests of the context package."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

from crisis_kit import make_scenario

from llmsim_lab.context import AgentContextBuilder, BehaviorModule, ComposedModules
from llmsim_lab.prompts import RenderedPrompt


def make_variables(**kinds: dict[str, dict[str, Any]]) -> Any:
    """Return definitions as in YAML: ``make_variables(agent_vars={"gold": {"type": "text"}})``."""
    return make_scenario(variables=kinds).variables


def make_module(
    name: str = "weather", context: Any = None, updates: Any = None, **fields: Any
) -> BehaviorModule:
    """Return a module, given its code's functions or what they should return."""
    code = {"build_agent_context": context, "compute_state_updates": updates}
    own = {key: it if callable(it) else _returning(it) for key, it in code.items() if it}
    return BehaviorModule(name=name, code=SimpleNamespace(**own) if own else None, **fields)


def _returning(value: Any) -> Any:
    return lambda *_: value


def build(
    *modules: BehaviorModule,
    agent: str = "Ada",
    step: int = 3,
    own: dict[str, Any] | None = None,
    world: dict[str, Any] | None = None,
    said: dict[str, str] | None = None,
    events: list[dict[str, Any]] | None = None,
    duration: str = "1 week",
    aware: bool = False,
    **options: Any,
) -> RenderedPrompt:
    """Build one prompt."""
    builder = AgentContextBuilder(duration, aware, ComposedModules(modules), **options)
    return builder.build_prompt(agent, step, own or {}, world or {}, said or {}, events or [])


def write_module(folder: Path, name: str, data: str = "", code: str | None = None) -> Path:
    """Write a module's files; return the YAML file's path."""
    path = folder / f"{name}.yaml"
    path.write_text(dedent(data))
    if code is not None:
        (folder / f"{name}.py").write_text(dedent(code))
    return path
