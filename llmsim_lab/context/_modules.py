"""Modules: what they define, what they add to prompts, and the code they may bring along.

A module is read from a folder: ``name.yaml``, and ``name.py`` beside it where there is code. Code
is run only from the folders that the caller names, and from the package's own; nothing that a YAML
file says leads to another one. A module's code sees copies of the state. If it raises, or returns
what it must not, the turn stops with a ``ModuleError``.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, InstanceOf, field_validator, model_validator

from llmsim_lab._util.config import Settings, YamlFile
from llmsim_lab.context._variables import Owner, Variables, humanise
from llmsim_lab.errors import ConfigError, ModuleError, PromptError
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import digest_of

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_FUNCTIONS = ("build_agent_context", "compute_state_updates")


class ModuleSection(Settings):
    """A section of text that every agent gets.

    Attributes:
        title: its heading; the module's title where empty.
        text: with slots such as ``{{ trust_level }}`` for variables, which are filled with their
            unit or scale, and ``{{ agent_name }}``.
    """

    title: str = ""
    text: Annotated[str, Field(min_length=1)]

    @field_validator("text")
    @classmethod
    def _template(cls, text: str) -> str:
        try:
            Prompt(text, name="section")
        except PromptError as error:
            raise ValueError(str(error)) from error
        return text.strip()


# Apart from BehaviorModule: a file parsed as one could name its ``code`` or its ``source``.
class ModuleData(Settings):
    """What a module's YAML file may hold: data only, so that no file can name code to run.

    Attributes:
        title: heading of the module's words; made of its name where empty.
        description: what the module is about, for people.
        requires: modules that it needs; their code runs first.
        variables: what it defines.
        sections: texts for every agent.
    """

    title: str = ""
    description: str = ""
    requires: tuple[str, ...] = ()
    variables: Variables = Field(default_factory=Variables)
    sections: tuple[ModuleSection, ...] = ()


class BehaviorModule(ModuleData):
    """A module, from files or made by hand.

    Attributes:
        name: by which scenarios and other modules refer to it.
        code: an object with ``build_agent_context(agent_name, agent_state, global_state)`` and/or
            ``compute_state_updates(agent_name, agent_state, global_state, step_number)``, or None.
        source: the file it was read from, or None.
        code_text: the code's text as it was run; empty for code made by hand.

    Example:
        >>> from types import SimpleNamespace
        >>> code = SimpleNamespace(build_agent_context=lambda agent, own, world: "Keep calm.")
        >>> BehaviorModule(name="calm", code=code).context_for("Ada", {}, {})
        'Keep calm.'
    """

    name: Annotated[str, Field(min_length=1)]
    code: Any = Field(default=None, repr=False)
    source: InstanceOf[YamlFile] | None = Field(default=None, repr=False, exclude=True)
    code_text: str = Field(default="", repr=False)

    @model_validator(mode="after")
    def _code_can_be_called(self) -> Self:
        if self.code is not None:
            _check_code(self.code)
        return self

    @property
    def heading(self) -> str:
        """The heading over its code's words."""
        return self.title or humanise(self.name).upper()

    @property
    def digest(self) -> str:
        """SHA-256 of its data and its code's text, hexadecimal, for a run's records."""
        # Without ``source``: the same module has the same digest in whatever folder it is.
        data = self.model_dump_json(include={"name", *ModuleData.model_fields})
        return digest_of(data, self.code_text or _source_of(self.code))

    @property
    def builds_context(self) -> bool:
        """True if it has ``build_agent_context``."""
        return hasattr(self.code, "build_agent_context")

    @property
    def updates_state(self) -> bool:
        """True if it has ``compute_state_updates``."""
        return hasattr(self.code, "compute_state_updates")

    def where(self, *location: str | int) -> str:
        """Return the module's name and, if it came from a file, the place in it."""
        place = f" ({self.source.place(location)})" if self.source else ""
        return f"module {self.name!r}{place}"

    def context_for(
        self, agent_name: str, agent_state: Mapping[str, Any], global_state: Mapping[str, Any]
    ) -> str | None:
        """Return what its code adds to an agent's prompt, or None.

        Raises:
            ModuleError: the code raised, or returned neither a text nor None.
        """
        if not self.builds_context:
            return None
        function = "build_agent_context"
        text = self._call(function, agent_name, agent_state, global_state)
        if text is not None and not isinstance(text, str):
            what = f"{type(text).__name__}, not a text or None"
            raise self._fault(function, agent_name, what)
        return text

    def updates_for(
        self,
        agent_name: str,
        agent_state: Mapping[str, Any],
        global_state: Mapping[str, Any],
        step_number: int,
    ) -> dict[str, Any]:
        """Return what its code changes of an agent's state; an empty dict for nothing.

        Raises:
            ModuleError: the code raised, or returned anything but a dict of names and values.
        """
        if not self.updates_state:
            return {}
        function = "compute_state_updates"
        updates = self._call(function, agent_name, agent_state, global_state, step_number)
        if not isinstance(updates, dict):
            what = f"{type(updates).__name__}, not a dict; return {{}} to change nothing"
            raise self._fault(function, agent_name, what)
        for name, value in updates.items():
            if not isinstance(name, str) or not isinstance(value, str | int | float | bool):
                what = f"a dict with {name!r}: {type(value).__name__}; it must map names to values"
                raise self._fault(function, agent_name, what)
        return dict(updates)

    def _call(
        self, name: str, agent: str, own: Mapping[str, Any], world: Mapping[str, Any], *rest: int
    ) -> Any:
        try:
            return getattr(self.code, name)(agent, dict(own), dict(world), *rest)
        except Exception as error:
            detail = f"{type(error).__name__}: {error}{_place_of(error)}"
            raise ModuleError(self.name, agent=agent, function=name, detail=detail) from error

    def _fault(self, function: str, agent: str, returned: str) -> ModuleError:
        return ModuleError(
            self.name, agent=agent, function=function, detail=f"it returned {returned}"
        )


def _check_code(code: Any) -> None:
    """Raise ValueError for an object with neither of the two functions."""
    if not any(hasattr(code, name) for name in _FUNCTIONS):
        raise ValueError(f"the code defines neither {' nor '.join(_FUNCTIONS)}")


def _source_of(code: Any) -> str:
    """Return the source of code made by hand; empty where Python cannot find it."""
    functions = [getattr(code, name) for name in _FUNCTIONS if hasattr(code, name)]
    try:
        return "\n".join([inspect.getsource(function) for function in functions])
    except (OSError, TypeError):
        return ""


def _place_of(error: BaseException) -> str:
    """Return the file and line in the module's code that raised, in words."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is the call in this file
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


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
        self.modules: tuple[BehaviorModule, ...] = _sorted(tuple(modules))
        self.variables = self.variables_with(None)
        """What all modules define, in their order."""

    def variables_with(self, own: Variables | None, owner: Owner = "the scenario") -> Variables:
        """Return a scenario's own definitions, if it has any, then what all modules define.

        Raises:
            ConfigError: a variable is defined twice.
        """
        modules = [(module.where, module.variables) for module in self.modules]
        return Variables.together([(owner, own or Variables()), *modules])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The modules' names, in order."""
        return tuple(module.name for module in self.modules)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The modules' digests by name: what a run was made with."""
        return {module.name: module.digest for module in self.modules}

    def silenced(self, *names: str) -> ComposedModules:
        """Return the composition with some modules that say and change nothing.

        Their variables stay defined and listed, so that a prompt without a module's words differs
        in those words only.

        Raises:
            ConfigError: there is no such module.
        """
        if unknown := [name for name in names if name not in self.names]:
            raise ConfigError(f"no module {unknown[0]!r}; there are: {', '.join(self.names)}")
        # The requirements stay too: the order of the other modules must not change.
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


def _sorted(modules: tuple[BehaviorModule, ...]) -> tuple[BehaviorModule, ...]:
    by_name: dict[str, BehaviorModule] = {}
    for module in modules:
        if module.name in by_name:
            raise ConfigError(f"module {module.name!r} is given twice; name each once")
        by_name[module.name] = module
    ordered: dict[str, BehaviorModule] = {}

    def add(module: BehaviorModule, path: tuple[str, ...]) -> None:
        if module.name in path:
            circle = " -> ".join((*path[path.index(module.name) :], module.name))
            raise ConfigError(f"modules require each other in a circle: {circle}; break it")
        for name in module.requires:
            if name not in by_name:
                raise ConfigError(
                    f"{module.where('requires')} requires {name!r}, which is not given; "
                    f"there are: {', '.join(by_name)}"
                )
            if name not in ordered:
                add(by_name[name], (*path, module.name))
        ordered[module.name] = module  # after all that it requires

    for module in modules:
        if module.name not in ordered:
            add(module, ())
    return tuple(ordered.values())


class ModuleLoader:
    """Finds modules by name.

    Args:
        folders: where to look; the package's own modules if none is named. To have both, name
            both: ``ModuleLoader("mine", ModuleLoader.shipped)``.

    Example:
        >>> ModuleLoader().load(["trust_dynamics"]).names
        ('agents_base', 'diplomatic_base', 'trust_dynamics')
    """

    shipped: ClassVar[Path] = Path(__file__).parent / "definitions"
    """The folder of the modules that come with the package."""

    def __init__(self, *folders: str | Path) -> None:
        self.folders = tuple(Path(folder) for folder in folders) or (self.shipped,)
        for folder in self.folders:
            if not folder.is_dir():
                raise ConfigError(f"there is no module folder {folder}; name one that exists")

    def available(self) -> list[str]:
        """Return the names of all modules in the folders, sorted."""
        found = {path.stem for folder in self.folders for path in folder.glob("*.yaml")}
        return sorted(name for name in found if _NAME.fullmatch(name))

    def load(self, names: Iterable[str]) -> ComposedModules:
        """Return the modules of these names and all that they require, in dependency order.

        Raises:
            ConfigError: a name leads out of the folders; a module is missing, there twice or wrong;
                its code does not load; or the modules do not fit together. The message names file
                and line.
        """
        # A text is an iterable of letters.
        if isinstance(names, str):
            raise ConfigError(f"load({names!r}) would load one module a letter; use [{names!r}]")
        names = list(names)
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"module {twice[0]!r} is named twice; once is enough")
        found: dict[str, BehaviorModule] = {}
        wanted = [(name, "") for name in names]
        while wanted:
            name, why = wanted.pop(0)
            if name not in found:
                module = self._read(name, why)
                found[name] = module
                wanted += [(other, module.where("requires")) for other in module.requires]
        return ComposedModules(found.values())

    def _read(self, name: str, why: str) -> BehaviorModule:
        path = self._find(name, why)
        source = YamlFile.read(path, example="title: TRUST DYNAMICS")
        data = source.parse(ModuleData)
        code, code_text = self._code(path.with_suffix(".py"))
        fields = {key: getattr(data, key) for key in ModuleData.model_fields}
        return BehaviorModule(name=name, code=code, code_text=code_text, source=source, **fields)

    def _find(self, name: str, why: str) -> Path:
        asked = f", which {why} requires" if why else ""
        # Before anything is looked up: "../elsewhere/name" would lead out of the folders.
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"module name {name!r}{asked} is not a plain name: letters, digits, '_' and '-', "
                "no folders and no ending"
            )
        paths = [path for folder in self.folders if (path := folder / f"{name}.yaml").exists()]
        if not paths:
            places = ", ".join(map(str, self.folders))
            raise ConfigError(
                f"there is no module {name!r}{asked} in {places}; "
                f"there are: {', '.join(self.available()) or 'none'}"
            )
        # Not simply the first: which code is run must not depend on the order of the folders.
        if len(paths) > 1:
            raise ConfigError(
                f"module {name!r} is there twice: {', '.join(map(str, paths))}; rename one, or "
                "name one folder only"
            )
        _stay_inside(paths[0])
        return paths[0]

    def _code(self, path: Path) -> tuple[ModuleType | None, str]:
        if not path.exists():
            return None, ""
        _stay_inside(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the module's code {path}: {error}") from error
        # The package's own modules are ordinary modules of it, with types and breakpoints.
        if path.parent == self.shipped:
            code = importlib.import_module(f"llmsim_lab.context.definitions.{path.stem}")
        else:
            code = _run(path, text)
        try:
            _check_code(code)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from error
        return code, text


def _stay_inside(path: Path) -> None:
    """Raise ConfigError for a link to a file elsewhere: that folder was not named to be trusted."""
    if not path.resolve().is_relative_to(path.parent.resolve()):
        raise ConfigError(
            f"{path} is a link to {path.resolve()}, outside its folder; copy the file instead"
        )


def _run(path: Path, text: str) -> ModuleType:
    """Run a module's Python file; nothing is written, not even compiled code."""
    # The path is part of the name, so that files of one name in two folders stay apart.
    mark = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    module = ModuleType(f"llmsim_lab_module_{mark}_{path.stem}")
    module.__file__ = str(path)
    # Dataclasses and pickles look up their module by its name.
    sys.modules[module.__name__] = module
    try:
        # The text that the digest is made of, not what the file holds by now.
        exec(compile(text, str(path), "exec"), module.__dict__)
    except Exception as error:
        own = [
            at.lineno
            for at in traceback.extract_tb(error.__traceback__)
            if at.filename == str(path)
        ]
        line = getattr(error, "lineno", None) or (own[-1] if own else None)
        raise ConfigError(
            f"{path}{f', line {line}' if line else ''}: the module's code does not load: "
            f"{type(error).__name__}: {error}"
        ) from error
    return module
