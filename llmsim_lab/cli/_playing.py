"""Play a run on the command line: import its world, connect to its model, seat its people."""

from __future__ import annotations

import importlib.util
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from llmsim_lab._util.text import closest, printable
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.cli._output import console
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.llm import LLMClient, OpenQuestion, connect
from llmsim_lab.llm._human import schema_words
from llmsim_lab.run import Run

MODEL_HELP = (
    "auto, rule (no model at all), ollama:NAME, embedded, embedded:NAME or embedded:/path/to.gguf"
)
Out = Annotated[Path, typer.Option(help="Folder for the results; made if it is not there.")]
Host = Annotated[str | None, typer.Option(help="Ollama's address; else $OLLAMA_HOST.")]
ImportFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--import",
        metavar="FILE.py",
        help="A Python file with the class of the recorded run, which is run as code; repeatable.",
    ),
]


def is_world(named: str) -> bool:
    """Return True for ``FILE.py`` and ``FILE.py:CLASS``."""
    return named.endswith(".py") or ".py:" in named


def world_named(named: str) -> type[Run]:
    """Run a file's code and return one of the worlds that it defines.

    Args:
        named: ``FILE.py:CLASS``; or ``FILE.py``, where the file defines one world.

    Raises:
        ConfigError: the file cannot be read or run, or it has no such world.
    """
    file, _, name = named.rpartition(":") if not named.endswith(".py") else (named, "", "")
    path = Path(file)
    module = _imported(path)
    own: dict[str, type[Run]] = {
        item.__name__: item
        for item in vars(module).values()
        if _plays(item) and item.__module__ == module.__name__
    }
    found: Any = getattr(module, name, None) if name else None
    if _plays(found):
        world: type[Run] = found
        return world
    if not own:
        raise ConfigError(
            f"{path} defines no world: a class derived from Run with async def turn(self, state, "
            "ask)"
        )
    if name:
        raise ConfigError(
            f"{path} defines no world {name!r}{closest(name, own)}; it defines {', '.join(own)}"
        )
    if len(own) > 1:
        raise ConfigError(
            f"{path} defines {len(own)} worlds, {', '.join(own)}; say which: "
            f"{path}:{next(iter(own))}"
        )
    return next(iter(own.values()))


def import_files(paths: Iterable[Path] | None) -> None:
    """Run the code of files, so that the worlds they define are known.

    Raises:
        ConfigError: one cannot be read or run.
    """
    for path in paths or ():
        _imported(path)


@contextmanager
def lines_told() -> Iterator[None]:
    """Name the file and the line where code of the user's, or what it calls, raises an error.

    Raises:
        ConfigError: in the place of such an error; any other is raised as it is.
    """
    try:
        yield
    except SyntaxError as error:
        file = _shown(Path(error.filename or "the file"))
        raise ConfigError(f"{file}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        place = _place_in(error)
        if not place or (isinstance(error, LabError) and not isinstance(error, ConfigError)):
            raise
        said = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
        raise ConfigError(f"{place}: {said}") from error


def _place_in(error: BaseException) -> str:
    """Return file and line of the user's code that an error came from; empty if from none."""
    folders = {path.parent for path in _files}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.parent in folders:
            return f"{_shown(path)}, line {frame.lineno}"
    return ""


def _shown(path: Path) -> Path:
    """Return a path as seen from the current folder, if it is below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


_files: set[Path] = set()
"""Those that were imported."""


def _plays(item: Any) -> bool:
    return isinstance(item, type) and issubclass(item, Run) and "kind" in vars(item)


def _imported(path: Path) -> ModuleType:
    """Return a file as a module called after its stem, with its folder to import from.

    Raises:
        ConfigError: it cannot be read or run, or a module of that name is there.
    """
    if path.suffix != ".py":
        raise ConfigError(f"{path} is not a Python file; name one that ends in .py")
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    path = path.resolve()
    there = sys.modules.get(path.stem)
    if there is not None and path in _files and there.__file__ == str(path):
        return there
    if there is not None or path.stem in sys.stdlib_module_names:
        raise ConfigError(
            f"{path.name} has the name of another module, {path.stem!r}, which it would hide; call "
            "the file something else"
        )
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # as Python does for a script
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    _files.add(path)
    try:
        with lines_told():
            spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[path.stem]
        if not isinstance(error, SystemExit):
            raise
        raise ConfigError(
            f"{_place_in(error)}: the file ends the program while it is imported; put that below "
            'if __name__ == "__main__":'
        ) from error
    return module


def client_for(config: Any, *, host: str | None) -> LLMClient | None:
    """Connect to a run's model, fetching the embedded one first if need be.

    Raises:
        ConfigError: there is no such model.
    """
    if not config.needs_model:
        return None
    if config.llm.model == "rule":
        raise ConfigError(
            "llm.model is 'rule', which is not a model; leave it out of the file and run it with "
            "--model rule, if this kind of simulation has rules"
        )
    client = connect(config.llm.model, host=host, config=config.llm, download=True, quiet=True)
    console.print(client.chosen, markup=False, highlight=False)
    return client


def play(simulation: Run, turns: int) -> BaseException | None:
    """Play turns, let go of the model, and return what ended the run early, if anything did.

    People in the run are asked on the terminal. The turns played until then stay in the simulation.
    """
    seat_people(simulation)
    try:
        with lines_told():
            simulation.run(turns)
    except (LabError, KeyboardInterrupt) as error:
        return error
    finally:
        if simulation.llm_client is not None:
            run_sync(simulation.llm_client.aclose())
    return None


_one_at_a_time = threading.Lock()


def seat_people(simulation: Run) -> None:
    """Let people of a run, if it has any, be asked on the terminal, but for those asked already."""
    for person in simulation.people:
        person.ask = person.ask or _ask


def _ask(question: OpenQuestion) -> Mapping[str, Any]:
    """Show the question and ask for each field until it is right.

    Raises:
        ConfigError: there is nobody at the keyboard.
    """
    with _one_at_a_time:
        _show(f"\nTurn {question.turn}: {question.agent} is asked.")
        if question.complaint:
            _show(f"Not accepted: {question.complaint} This is the second try, and the last.")
        else:
            _show("\n" + question.request.prompt + "\n")
        return {name: _field(question, name) for name in question.fields}


def _field(question: OpenQuestion, name: str) -> Any:
    schema = question.fields[name]
    about = f", {schema['description']}" if "description" in schema else ""
    words = schema_words(schema)
    offer = f" ({words})" if words else ""
    while True:
        _show(f"{name.replace('_', ' ')}{about}{offer}:")
        try:
            said = input("> ").strip()
        except EOFError:
            raise ConfigError(
                f"nobody answers for {question.agent}: standard input has ended; play on a "
                "terminal, or in a notebook with HumanSeat(simulation)"
            ) from None
        value = question.value(name, said)
        fault = question.faults({name: value}).get(name)
        if fault is None:
            return value
        _show(f"That {fault}.")


def _show(text: str) -> None:
    console.print(printable(text, keep="\n"), markup=False, highlight=False, soft_wrap=True)
