"""Read modules from folders: ``name.yaml``, and ``name.py`` beside it where there is code.

Code is run only from the folders that the caller names, and from the package's own; nothing that a
YAML file says leads to another one.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from llmsim_lab.context.composed import ComposedModules
from llmsim_lab.context.modules import BehaviorModule, ModuleData, check_code
from llmsim_lab.errors import ConfigError
from llmsim_lab.yaml_file import YamlFile

__all__ = ["SHIPPED_MODULES", "ModuleLoader"]

SHIPPED_MODULES = Path(__file__).parent / "definitions"
"""The folder of the modules that come with the package."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class ModuleLoader:
    """Finds modules by name.

    Args:
        folders: where to look; the package's own modules where none is named. To have both, name
            both: ``ModuleLoader("mine", SHIPPED_MODULES)``.
        run_code: whether the modules' Python files are run. Without it modules from your folders
            are data only; the package's own always have their code.

    Example:
        >>> ModuleLoader().load(["trust_dynamics"]).names
        ('agents_base', 'diplomatic_base', 'trust_dynamics')
    """

    def __init__(self, *folders: str | Path, run_code: bool = True) -> None:
        self.folders = tuple(Path(folder) for folder in folders) or (SHIPPED_MODULES,)
        self.run_code = run_code
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
            ConfigError: a name leads out of the folders, a module is missing, twice or wrong, its
                code does not load, or the modules do not fit together. The message names file and
                line.
        """
        if isinstance(names, str):
            raise ConfigError(f"load({names!r}) would load one module a letter; use [{names!r}]")
        found: dict[str, BehaviorModule] = {}
        wanted = [(name, "") for name in names]
        asked = [name for name, _ in wanted]
        if twice := [name for name in asked if asked.count(name) > 1]:
            raise ConfigError(f"module {twice[0]!r} is named twice; once is enough")
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
        if len(paths) > 1:
            raise ConfigError(
                f"module {name!r} is there twice: {', '.join(map(str, paths))}; rename one, or "
                "name one folder only"
            )
        _stay_inside(paths[0])
        return paths[0]

    def _code(self, path: Path) -> tuple[ModuleType | None, str]:
        if not path.exists() or not (self.run_code or path.parent == SHIPPED_MODULES):
            return None, ""
        _stay_inside(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the module's code {path}: {error}") from error
        code = _import_own(path) if path.parent == SHIPPED_MODULES else _run(path, text)
        try:
            check_code(code)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from error
        return code, text


def _stay_inside(path: Path) -> None:
    """Refuse a link to a file elsewhere: its folder is not one that the user named."""
    if not path.resolve().is_relative_to(path.parent.resolve()):
        raise ConfigError(
            f"{path} is a link to {path.resolve()}, outside its folder; copy the file instead"
        )


def _import_own(path: Path) -> ModuleType:
    return importlib.import_module(f"llmsim_lab.context.definitions.{path.stem}")


def _run(path: Path, text: str) -> ModuleType:
    """Run a module's Python file; nothing is written, not even compiled code."""
    mark = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    module = ModuleType(f"llmsim_lab_module_{mark}_{path.stem}")
    module.__file__ = str(path)
    # Dataclasses and pickles look their module up here.
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:  # no module may end the program
        if before is None:
            del sys.modules[module.__name__]
        else:
            sys.modules[module.__name__] = before
        line = getattr(error, "lineno", None) or _last_line(error, path)
        raise ConfigError(
            f"{path}{f', line {line}' if line else ''}: the module's code does not load: "
            f"{type(error).__name__}: {error}"
        ) from error
    return module


def _last_line(error: BaseException, path: Path) -> int | None:
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
