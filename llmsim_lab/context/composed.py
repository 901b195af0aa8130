"""Modules put together: in dependency order, each variable defined once, every slot known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from llmsim_lab.context.modules import BehaviorModule
from llmsim_lab.context.table import Variables
from llmsim_lab.errors import ConfigError

__all__ = ["ComposedModules"]


class ComposedModules:
    """Modules that fit together.

    Args:
        modules: in any order; those required by others are put before them, else the order stays.

    Attributes:
        modules: in dependency order.

    Raises:
        ConfigError: a module is there twice, requires one that is not there or, in the end,
            itself, or a variable is defined twice.
    """

    def __init__(self, modules: Iterable[BehaviorModule] = ()) -> None:
        self.modules: tuple[BehaviorModule, ...] = _in_order(tuple(modules))
        self.variables: Variables = self._join(self.modules)
        """What all modules define, in their order."""

    @staticmethod
    def _join(modules: tuple[BehaviorModule, ...]) -> Variables:
        # By name and line only where something is wrong: lines cost a search.
        try:
            return Variables.together((module.name, module.variables) for module in modules)
        except ConfigError:
            parts = [
                (_defining(module, kind, name), Variables(**{kind: {name: variable}}))
                for module in modules
                for kind in ("global_vars", "agent_vars")
                for name, variable in getattr(module.variables, kind).items()
            ]
            return Variables.together(parts)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The modules' names, in order."""
        return tuple(module.name for module in self.modules)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The modules' digests by name: what a run was made with."""
        return {module.name: module.digest for module in self.modules}

    @cached_property
    def owned(self) -> tuple[tuple[str, Variables], ...]:
        """Each module's definitions, with whose they are in words."""
        return tuple((f"module {module.name!r}", module.variables) for module in self.modules)

    def without(self, *names: str) -> ComposedModules:
        """Return the composition without some modules, to see what they did.

        Raises:
            ConfigError: one is not there, or is required by one that stays.
        """
        if unknown := [name for name in names if name not in self.names]:
            raise ConfigError(f"no module {unknown[0]!r}; there are: {', '.join(self.names)}")
        return ComposedModules(module for module in self.modules if module.name not in names)

    def silenced(self, *names: str) -> ComposedModules:
        """Return the composition with some modules that say and change nothing.

        Their variables stay defined and listed, so that a prompt without a module's words differs
        in those words only.

        Raises:
            ConfigError: one is not there.
        """
        if unknown := [name for name in names if name not in self.names]:
            raise ConfigError(f"no module {unknown[0]!r}; there are: {', '.join(self.names)}")
        quiet = {"sections": (), "code": None, "code_text": ""}
        return ComposedModules(
            module.model_copy(update=quiet) if module.name in names else module
            for module in self.modules
        )

    def __iter__(self) -> Iterator[BehaviorModule]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    def __repr__(self) -> str:
        return f"ComposedModules({', '.join(self.names) or 'none'})"


def _defining(module: BehaviorModule, kind: str, name: str) -> str:
    return module.where("variables", kind, name)


def _in_order(modules: tuple[BehaviorModule, ...]) -> tuple[BehaviorModule, ...]:
    by_name: dict[str, BehaviorModule] = {}
    for module in modules:
        if module.name in by_name:
            raise ConfigError(f"module {module.name!r} is there twice; name each once")
        by_name[module.name] = module
    ordered: dict[str, BehaviorModule] = {}

    def add(module: BehaviorModule, path: tuple[str, ...]) -> None:
        if module.name in path:
            circle = " -> ".join((*path[path.index(module.name) :], module.name))
            raise ConfigError(f"modules require each other in a circle: {circle}; break it")
        for name in module.requires:
            if name not in by_name:
                raise ConfigError(
                    f"{module.where('requires')} requires {name!r}, which is not there; "
                    f"there are: {', '.join(by_name)}"
                )
            if name not in ordered:
                add(by_name[name], (*path, module.name))
        ordered[module.name] = module

    for module in modules:
        if module.name not in ordered:
            add(module, ())
    return tuple(ordered.values())
