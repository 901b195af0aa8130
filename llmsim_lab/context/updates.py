"""What modules change by rule, before the engine's model is asked."""

from __future__ import annotations

from collections.abc import Iterator

from llmsim_lab.context.composed import ComposedModules
from llmsim_lab.context.game_engine import GameEngine, UpdateRecord
from llmsim_lab.context.modules import read_only
from llmsim_lab.errors import ModuleError

__all__ = ["apply_deterministic_updates"]


def apply_deterministic_updates(
    composed_modules: ComposedModules | None, game_engine: GameEngine, step_number: int
) -> tuple[UpdateRecord, ...]:
    """Let each module, in dependency order, change the agents' states; return what became of it.

    One module sees all agents as they were before it, so that their order does not matter; the next
    module sees what it changed.

    Args:
        composed_modules: the modules, or None for none.
        game_engine: its state is changed.
        step_number: the number of the step being played.

    Raises:
        ModuleError: a module's code failed. The state is then as it was before the first module.
    """
    restore = game_engine.checkpoint()
    try:
        return tuple(_run(composed_modules, game_engine, step_number))
    except ModuleError:
        restore()
        raise


def _run(
    composed_modules: ComposedModules | None, game_engine: GameEngine, step_number: int
) -> Iterator[UpdateRecord]:
    for module in composed_modules.modules if composed_modules else ():
        if not module.updates_state:
            continue
        state = game_engine.get_current_state()
        world = read_only(state["global_vars"])
        changes = {
            agent: updates
            for agent, own in state["agent_vars"].items()
            if (updates := module.updates_for(agent, own, world, step_number))
        }
        if changes:
            yield from game_engine.apply_state_updates({"agent_vars": changes}, source=module.name)
