"""Small builders for the tests of the context package."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

from llmsim_lab.context import AgentContextBuilder, BehaviorModule, ComposedModules
from llmsim_lab.context._variables import Variables
from llmsim_lab.prompts._prompt import RenderedPrompt

__all__ = ["build", "make_code", "make_module", "make_variables", "write_module"]


def make_variables(**kinds: dict[str, dict[str, Any]]) -> Variables:
    """Return definitions as in YAML: ``make_variables(agent_vars={"gold": {"type": "text"}})``."""
    return Variables.model_validate(kinds)


def make_code(context: Any = None, updates: Any = None) -> SimpleNamespace:
    """Return a module's code, given its functions or what they should return."""
    functions = {}
    if context is not None:
        functions["build_agent_context"] = (
            context if callable(context) else lambda agent, own, world: context
        )
    if updates is not None:
        functions["compute_state_updates"] = (
            updates if callable(updates) else lambda agent, own, world, step: updates
        )
    return SimpleNamespace(**functions)


def make_module(
    name: str = "weather", context: Any = None, updates: Any = None, **fields: Any
) -> Any:
    """Return a module, with code if any is given."""
    if context is not None or updates is not None:
        fields["code"] = make_code(context, updates)
    return BehaviorModule(name=name, **fields)


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
