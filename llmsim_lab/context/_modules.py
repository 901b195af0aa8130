"""Modules: what they define, what they add to prompts, and the code they may bring along.

A module is read from a folder: ``name.yaml``, and ``name.py`` beside it where there is code. Code
is run only from the folders that the caller names, and from the package's own; nothing that a YAML
file says leads to another one. A module's code sees copies of the state. If it raises, or returns
what it must not, the turn stops with a ``ModuleError``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from traceback import extract_tb
from types import ModuleType, NoneType
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from llmsim_lab._util.checks import instance_of, items_of, known_names
from llmsim_lab._util.config import Settings, read_config
from llmsim_lab._util.files import as_path
from llmsim_lab._util.text import among, brief, error_text
from llmsim_lab.context._variables import Variable, Variables
from llmsim_lab.errors import ConfigError, ModuleError
from llmsim_lab.prompts.prompt import digest_of

_RETURNS: dict[str, tuple[tuple[type, ...], str]] = {
    "build_agent_context": ((str, NoneType), "a text or None"),
    "compute_state_updates": ((dict,), "a dict; {} changes nothing"),
}
"""What a module's code may define: types that each function returns, and these in words."""


# Apart from BehaviorModule: a file parsed as one could name its ``code``.
class ModuleData(Settings):
    """What a module's YAML file may hold: data only, so that no file can name code to run.

    Attributes:
        title: heading of the module's words; made of its name where empty.
        description: what the module is about, for people.
        requires: modules that it needs; their code runs first.
        variables: what it defines.
    """

    title: str = ""
    description: str = ""
    requires: tuple[str, ...] = ()
    variables: Variables = Field(default_factory=Variables)


class BehaviorModule(ModuleData):
    """A module, from files or made by hand.

    Attributes:
        name: by which scenarios and other modules refer to it.
        code: an object with ``build_agent_context(agent_name, agent_state, global_state)`` and/or
            ``compute_state_updates(agent_name, agent_state, global_state, step_number)``, or None.
        code_text: the code's text as it was run, for a run's records; empty if made by hand.

    Example:
        >>> from types import SimpleNamespace
        >>> code = SimpleNamespace(build_agent_context=lambda agent, own, world: "Keep calm.")
        >>> BehaviorModule(name="calm", code=code).call("build_agent_context", "Ada", {}, {})
        'Keep calm.'
    """

    name: Annotated[str, Field(min_length=1)]
    code: object = Field(default=None, repr=False)
    code_text: str = Field(default="", repr=False)

    @field_validator("code")
    @classmethod
    def _can_be_called(cls, code: object) -> object:
        # With misspelt names the code would never be called, without a word.
        if code is not None and not any(hasattr(code, name) for name in _RETURNS):
            raise ValueError(f"the code defines neither {' nor '.join(_RETURNS)}")
        return code

    @property
    def digest(self) -> str:
        """SHA-256 of its data and its code's text, hexadecimal, for a run's records."""
        # Without the code object, whose repr has an address in memory.
        data = self.model_dump_json(include={"name", *ModuleData.model_fields})
        return digest_of(data, self.code_text)

    def call(
        self,
        function: str,
        agent: str,
        agent_state: Mapping[str, object],
        global_state: Mapping[str, object],
        step_number: int | None = None,
    ) -> Any:
        """Return what a function of its code returns; None where it has no such function.

        Args:
            function: ``build_agent_context``, or ``compute_state_updates``, which takes the turn's
                number as well.
            agent: the agent's name.
            agent_state: the agent's variables.
            global_state: the world's.
            step_number: the turn's; None for a function that does not take it.

        Raises:
            ModuleError: the code raised, or returned what it must not.
        """
        if not hasattr(self.code, function):
            return None
        types, words = _RETURNS[function]
        run = getattr(self.code, function)
        # Copies: a change that code makes in its arguments would be on no record.
        arguments: list[object] = [
            agent,
            dict(agent_state),
            dict(global_state),
        ]
        if step_number is not None:
            arguments.append(step_number)
        try:
            result = run(*arguments)
        # All of them: the code is a scenario author's, who needs to read which module failed.
        except Exception as error:
            raise ModuleError(
                self.name,
                agent=agent,
                function=function,
                detail=error_text(error),
            ) from error
        if not isinstance(result, types):
            raise ModuleError(
                self.name,
                agent=agent,
                function=function,
                detail=f"it returned {type(result).__name__}, not {words}",
            )
        return result


class ComposedModules:
    """Modules that fit together.

    Args:
        modules: in any order. Those that others require are put before them; else the order stays.

    Attributes:
        modules: in dependency order.

    Raises:
        ConfigError: a module is given twice, requires one that is missing, requires itself through
            others, or a variable is defined twice.
    """

    def __init__(self, modules: Iterable[BehaviorModule] = ()) -> None:
        modules = items_of("modules", modules, BehaviorModule, "a list of BehaviorModules")
        by_name = {module.name: module for module in modules}
        if len(by_name) < len(modules):
            [(twice, _)] = Counter(module.name for module in modules).most_common(1)
            raise ConfigError(f"module {twice!r} is given twice; name each once")
        ordered: dict[str, BehaviorModule] = {}

        def add(
            name: str,
            above: tuple[str, ...] = (),
        ) -> None:
            if name not in by_name:
                raise ConfigError(
                    f"module {above[-1]!r} requires {name!r}, which is not given"
                    f"{among(name, by_name)}"
                )
            # Before the modules that it needs are added, which would never end.
            if name in above:
                circle = " -> ".join([*above, name])
                raise ConfigError(f"modules require each other in a circle: {circle}")
            for needed in by_name[name].requires:
                add(needed, (*above, name))
            # Two modules may require one: it stands where it was needed first.
            ordered.setdefault(name, by_name[name])

        for name in by_name:
            add(name)
        self.modules = tuple(ordered.values())
        self.variables_with(None)  # raises for what is defined twice

    def variables_with(self, scenario: Variables | None) -> Variables:
        """Return a scenario's own definitions, if it has any, then what all modules define.

        Raises:
            ConfigError: a variable is defined twice.
        """
        instance_of("variables", scenario, Variables | None, "Variables, or None")
        owners: dict[str, str] = {}
        global_vars: dict[str, Variable] = {}
        agent_vars: dict[str, Variable] = {}
        parts = {"the scenario": scenario or Variables()}
        for module in self.modules:
            parts[f"module {module.name!r}"] = module.variables
        for owner, part in parts.items():
            for name in (*part.global_vars, *part.agent_vars):
                if name in owners:
                    raise ConfigError(
                        f"{owner} defines the variable {name!r}, which {owners[name]} defines "
                        "already; rename one, or leave one out"
                    )
                owners[name] = owner
            global_vars |= part.global_vars
            agent_vars |= part.agent_vars
        return Variables(global_vars=global_vars, agent_vars=agent_vars)

    def silenced(self, *names: str) -> ComposedModules:
        """Return the composition with some modules that say and change nothing.

        Their variables stay defined and listed, so that a prompt without a module's words differs
        in those words only.

        Raises:
            ConfigError: there is no such module.
        """
        known_names(
            "module",
            names,
            [module.name for module in self.modules],
        )
        modules = []
        for module in self.modules:
            if module.name in names:
                # The requirements stay: the order of the other modules must not change.
                module = module.model_copy(update={"code": None, "code_text": ""})
            modules.append(module)
        return ComposedModules(modules)

    def __iter__(self) -> Iterator[BehaviorModule]:
        return iter(self.modules)


class ModuleLoader:
    """Finds modules by name.

    Args:
        folders: where to look; the package's own modules if none is named. To have both, name
            both: ``ModuleLoader("mine", ModuleLoader.shipped)``.

    Example:
        >>> [module.name for module in ModuleLoader().load(["trust_dynamics"])]
        ['agents_base', 'diplomatic_base', 'trust_dynamics']
    """

    shipped: ClassVar[Path] = Path(__file__).parent / "definitions"
    """The folder of the modules that come with the package."""

    def __init__(self, *folders: str | Path) -> None:
        if not folders:
            folders = (self.shipped,)
        self.folders = tuple(as_path("folder", folder) for folder in folders)
        for folder in self.folders:
            if not folder.is_dir():
                raise ConfigError(f"there is no module folder {folder}; name one that exists")

    def load(self, names: Iterable[str]) -> ComposedModules:
        """Return the modules of these names and all that they require, in dependency order.

        Raises:
            ConfigError: a name leads out of the folders; a module is missing, there twice or wrong;
                its code does not load; or the modules do not fit together. The message names file
                and line.
        """
        modules: dict[str, BehaviorModule] = {}
        # Taken from the front: the order asked for is that of the modules' words in prompts.
        wanted = items_of("names", names, str, "a list of names")
        while wanted:
            name = wanted.pop(0)
            if name not in modules:
                modules[name] = self._read(name)
                wanted += modules[name].requires
        return ComposedModules(modules.values())

    def _read(self, name: str) -> BehaviorModule:
        # Looked for among what is there: "../elsewhere/name" would lead out of the folders.
        files: list[Path] = []
        for folder in self.folders:
            files += folder.glob("*.yaml")
        files.sort()
        paths = [path for path in files if path.stem == name]
        if not paths:
            folders = ", ".join(map(str, self.folders))
            names = [path.stem for path in files]
            raise ConfigError(
                f"there is no module {brief(name, 80)} in {folders}{among(name, names)}"
            )
        # Not simply the first: which code is run must not depend on the order of the folders.
        if len(paths) > 1:
            raise ConfigError(f"module {name!r} is there twice: {', '.join(map(str, paths))}")
        data = read_config(paths[0], ModuleData)
        code = None
        text = ""
        code_path = paths[0].with_suffix(".py")
        if code_path.exists():
            try:
                text = code_path.read_text(encoding="utf-8")
                code = _run(code_path, text)
            # Whatever running it raises: the message names file and line for the module's author.
            except Exception as error:
                line = _line_of(error, code_path)
                place = f"{code_path}, line {line}" if line else str(code_path)
                raise ConfigError(
                    f"{place}: the module's code does not load: {error_text(error)}"
                ) from error
        return BehaviorModule(
            name=name,
            code=code,
            code_text=text,
            **dict(data),
        )


def _line_of(error: Exception, path: Path) -> int | None:
    """Return the line of a file that an error is about; None where it is about none."""
    if isinstance(error, SyntaxError):
        return error.lineno
    # The innermost line of this file; the error itself may be raised in a library that it calls.
    for frame in reversed(extract_tb(error.__traceback__)):
        if frame.filename == str(path):
            return frame.lineno
    return None


def _run(path: Path, text: str) -> ModuleType:
    """Run a module's Python file; nothing is written, not even compiled code."""
    # The path is part of the name, so that files of one name in two folders stay apart.
    module = ModuleType(f"llmsim_lab_module_{digest_of(str(path.resolve()))}_{path.stem}")
    module.__file__ = str(path)
    # Dataclasses and pickles look up their module by its name.
    sys.modules[module.__name__] = module
    # The text that the digest is made of, not what the file holds by now.
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module
