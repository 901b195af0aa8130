"""What the commands that play share: import a world, connect to its model, ask its people."""

from __future__ import annotations

import importlib
import sys
import time
from functools import partial
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Annotated, Any

import typer

from llmsim_lab._util.files import as_path
from llmsim_lab._util.results import Results
from llmsim_lab._util.text import clip, closest
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.cli._output import errors, report, say
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, connect
from llmsim_lab.run import Run
from llmsim_lab.run.people import people_of
from llmsim_lab.run.registry import file_of, is_shipped
from llmsim_lab.run.terminal import ask_on_terminal

_NAMED_MODELS = "ollama:NAME, openai:NAME, embedded, embedded:NAME or embedded:/path/to.gguf"
MODEL_HELP = f"auto, rule, {_NAMED_MODELS}; for a world of your own also random, or person"
OTHER_MODEL_HELP = f"auto, {_NAMED_MODELS}"
"""For a recorded run, whose players stay what they are."""
Out = Annotated[Path, typer.Option(help="Folder for the results; made if it is not there.")]
_SERVER = "The address of Ollama, else $OLLAMA_HOST; or an openai: model's, else $OPENAI_BASE_URL."
Host = Annotated[str | None, typer.Option("--host", "--base-url", help=_SERVER)]


def world_from(named: str) -> type[Run]:
    """Run a file's code and return one of the worlds that it defines.

    Args:
        named: ``FILE.py:CLASS``; or ``FILE.py``, where the file defines one world.

    Raises:
        ConfigError: the file is not there, or it has no such world.
    """
    file = named
    name = ""
    if not named.endswith(".py"):
        # From the right: a path on Windows has a colon of its own.
        file, _, name = named.rpartition(":")
    path = Path(file)
    module = import_file(path)
    # A named class may be one that the file only imports. A base of worlds, whose type parameters
    # are still open, has no kind of its own.
    worlds: dict[str, type[Run]] = {
        item_name: item
        for item_name, item in vars(module).items()
        if isinstance(item, type) and issubclass(item, Run) and "kind" in vars(item)
    }
    # Without a name only those that the file itself defines are meant.
    defined = [world.__name__ for world in worlds.values() if world.__module__ == module.__name__]
    if not defined and not name:
        raise ConfigError(
            f"{path} has no world: a class derived from Run with async def turn(self, state, ask)"
        )
    if not name and len(defined) > 1:
        raise ConfigError(
            f"{path} has {len(defined)} worlds, {', '.join(defined)}; say which: "
            f"{path}:{defined[0]}"
        )
    chosen = name or defined[0]
    if chosen not in worlds:
        raise ConfigError(
            f"{path} has no world {chosen!r}{closest(chosen, defined)}; it has "
            f"{', '.join(defined) or 'none, which is a class derived from Run'}"
        )
    return worlds[chosen]


_files: set[Path] = set()
"""The user's files that were imported."""


def place_of(error: BaseException) -> str:
    """Return file and line of the user's code that an error came from; empty if from none."""
    # From the innermost: the last line of the user's that ran.
    for frame in reversed(extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path in _files:
            return f"{path.name}, line {frame.lineno}: "
    return ""


def import_file(path: Path) -> ModuleType:
    """Return a file as a module called after its stem, with its folder to import from.

    Raises:
        ConfigError: it is not there, or another module of that name is.
    """
    if path.suffix != ".py":
        raise ConfigError(f"{path} is not a Python file; name one that ends in .py")
    if not as_path("file", path).is_file():
        raise ConfigError(f"there is no file {path}")
    path = path.resolve()
    _files.add(path)
    sys.path.insert(0, str(path.parent))  # as Python does for a script
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(path.stem)
    except (SyntaxError, ImportError) as error:
        raise ConfigError(f"{path} cannot be imported: {clip(str(error), 300)}") from error
    except SystemExit as error:
        raise ConfigError(
            f"{path} ends the program while it is imported; put that below "
            'if __name__ == "__main__":'
        ) from error
    # Python gives what it has under this name: pot.py in another folder, or json for json.py. A
    # tape would then name a world by a file that is not the user's.
    if getattr(module, "__file__", None) != str(path):
        raise ConfigError(
            f"{path.name} has the name of another module, {path.stem!r}; call the file something "
            "else"
        )
    return module


def _import_files(paths: list[Path] | None) -> list[Path] | None:
    """Run the code of files, so that the worlds they define are known; returns the files.

    Raises:
        ConfigError: one is not there.
    """
    for path in paths or ():
        import_file(path)
    return paths


_CODE = "A Python file with the class of the recorded run, which is run as code; repeatable."
_IMPORT = typer.Option(
    "--import",
    metavar="FILE.py",
    help=_CODE,
    callback=_import_files,
)
ImportFiles = Annotated[list[Path] | None, _IMPORT]
"""What is named here is imported as the command line is read, before a command begins."""


def with_model(config: Any, model: str) -> Any:
    """Return a run's configuration with another model."""
    llm = config.llm.model_copy(update={"model": model})
    return config.model_copy(update={"llm": llm})


def client_for(
    config: Any,
    *,
    host: str | None,
) -> LLMClient | None:
    """Connect to a run's model, fetching the embedded one first if need be.

    Raises:
        ConfigError: there is no such model.
    """
    if not config.needs_model:
        return None
    # Not from Ollama, where a misspelt name may be gigabytes.
    fetch = not config.llm.model.startswith("ollama")
    client = connect(
        config.llm.model,
        host=host,
        config=config.llm,
        download=fetch,
        quiet=True,
    )
    say(client.chosen)
    return client


def play(
    simulation: Run,
    turns: int,
    results: Results,
) -> None:
    """Play turns, let go of the model, report what came of them, and close the run.

    People in the run are asked on the terminal. What ends the run early is raised once the turns
    played until then are reported.

    Args:
        simulation: the run.
        turns: how many.
        results: the folder for the files.
    """
    # Here nothing else can ask them; a world's file may say how, by Person(ask=...).
    for person in people_of(simulation):
        person.ask = person.ask or partial(ask_on_terminal, run=simulation)
    taped = simulation.turn_number
    failure: BaseException | None = None
    began = time.monotonic()
    failed_s = 0.0
    try:
        simulation.run(turns)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - raised once it is reported
        # What was played until then is reported first, since it may be hours of calls.
        failure = error
        played = [turn.seconds for turn in simulation.turns if turn.number > taped]
        # What no whole turn took was the broken one's.
        failed_s = max(0.0, time.monotonic() - began - sum(played))
    finally:
        # Before the report: an embedded server holds gigabytes.
        if simulation.llm_client is not None:
            run_sync(simulation.llm_client.aclose())
    report(
        simulation,
        results,
        since=taped,
        failed_s=failed_s,
    )
    tape = simulation.tape
    if taped:
        say(f"Turns up to {taped} are from the tape; those after it are live.")
    if tape is not None:
        say(f"All of it is recorded as run {simulation.run_id} of {tape.path}.")
    simulation.close()
    if failure is None:
        return
    say(f"The run ended early, at turn {simulation.turn_number}.", style="red", to=errors)
    # The command as it is to be typed: the class of a world of one's own has to be imported again.
    if tape is not None:
        arguments = f"{tape.path} --run {simulation.run_id}"
        if not is_shipped(type(simulation)):
            arguments += f" --import {file_of(type(simulation))}"
        say(f"'llmsim-lab resume {arguments}' continues it.", style="red", to=errors)
    raise failure
