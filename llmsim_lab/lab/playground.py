"""The window in a browser's own Python: a page sends a world's code, and no model is asked.

Python runs in a worker of the page, so that an endless loop can be ended. Messages in both
directions are JSON texts. The page sends the messages of windows, and three more: ``open``, with a
world's code and its players; ``replay``; and ``page``. It gets ``{"window"}``, a message of a
window; ``{"world"}``, what was opened; ``{"wrong"}``, a fault in the code and its line;
``{"tape"}``, a file that has grown; ``{"page"}``, a file that was written; and ``{"says"}``.
"""

from __future__ import annotations

import asyncio
import json
import linecache
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from llmsim_lab._util.text import counted, error_text, errors_behind
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.lab.window import LiveWindow, Message
from llmsim_lab.run import Run
from llmsim_lab.run.recorded import page, run_on_tape
from llmsim_lab.tape import RunInfo, Tape

_TRIAL = "who is asked"
"""The name of the run that is played to find out who is asked."""


class Playground:
    """Opens worlds by their code, and has a window over the runs of the latest.

    Args:
        send: sends a text to the page.
        folder: the folder for the files of worlds and tapes; each world has a folder in it.
    """

    def __init__(
        self,
        send: Callable[[str], object],
        folder: str | Path,
    ) -> None:
        self._send = send
        self._folder = Path(folder)
        self._window: PlaygroundWindow | None = None
        self._opening: asyncio.Task[None] | None = None

    def receive(self, text: str) -> None:
        """Take a command of the page, on the loop of the page."""
        message = json.loads(text)
        if message["do"] == "open":
            del message["do"]
            if self._opening is not None:
                self._opening.cancel()
            self._opening = asyncio.ensure_future(self.open(**message))
        elif self._window is not None:
            self._window.receive(message)

    async def open(
        self,
        place: str,
        *,
        codes: Mapping[str, str],
        name: str = "",
        players: Mapping[str, str] | None = None,
        anew: bool = False,
    ) -> None:
        """Open a world and its tape, and begin a run if the tape has none.

        Args:
            place: the name of the world's folder; the tape in it is named after it.
            codes: the code of worlds, by the stems of their files.
            name: the world to open; the one of the tape's latest run if not given.
            players: who answers, as worlds take it; the world's rule if not given, or random
                players.
            anew: True to begin a new run even if the tape has runs.
        """
        path = self._folder / place / f"{place}.tape"
        path.parent.mkdir(parents=True, exist_ok=True)
        world: Message = {"place": place, "players": players}
        try:
            if not name:
                name = _stem_on(Tape(path, read_only=True))
            if name in codes:
                world_file = path.with_name(f"{name}.py")
                cls = world_in(codes[name], world_file)
                has_rule = hasattr(cls, "rule")
                if players is None:
                    players = {"*": "rule" if has_rule else "random"}
                world |= {
                    "name": name,
                    "title": cls.__name__,
                    "hasRule": has_rule,
                    "players": players,
                    "seats": await seats_of(cls),
                }
                if anew or not path.exists() or not Tape(path, read_only=True).runs():
                    cls(players=players, tape=path)
            window = PlaygroundWindow(path, self._tell)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a world's code raises anything
            self._tell({"wrong": fault_in(error, path.parent)})
            return
        if self._window is not None:
            self._window.close()
        self._window = window
        window.keep_tape()
        self._tell({"world": world | {"runs": len(window.runs), "first": window.first}})

    def _tell(self, message: Message) -> None:
        self._send(json.dumps(message, ensure_ascii=False))


class PlaygroundWindow(LiveWindow):
    """The window over the runs of a tape, which can be played further.

    Args:
        path: the tape.
        tell: sends a message to the page.
    """

    def __init__(
        self,
        path: Path,
        tell: Callable[[Message], None],
    ) -> None:
        self._path = path
        self._tell_page = tell
        self._waiting: set[str] = set()
        self._kept_size = 0
        super().__init__(Tape(path))

    def close(self) -> None:
        """Stop what is under way."""
        for stop in self._stop_listening:
            stop()
        self.stop()

    def keep_tape(self) -> None:
        """Ask the page to keep the tape, if it has grown."""
        # A tape only ever grows, so its size shows whether anything is new.
        size = self._path.stat().st_size
        if size != self._kept_size:
            self._kept_size = size
            self._tell_page({"tape": str(self._path)})

    _save_soon = keep_tape

    def _say(self, message: Message) -> None:
        self._tell_page({"window": message})

    def _later(
        self,
        act: Callable[[], None],
        wait_s: float,
    ) -> None:
        name = act.__name__
        if name in self._waiting:
            return
        self._waiting.add(name)

        def do() -> None:
            self._waiting.discard(name)
            act()

        self._loop.call_later(max(wait_s, 0), do)

    def _grew(self, number: int) -> None:
        super()._grew(number)
        self.keep_tape()  # now, since the next turn may never end

    def _run(self, number: int) -> Run:
        if number in self._infos and number not in self.runs.read:
            self._keep(
                number,
                _resumed(self._path, self._infos[number]),
                self._infos[number],
            )
        return super()._run(number)

    async def play(
        self,
        turns: int = 1,
        *,
        run: int | None = None,
    ) -> None:
        """Play some turns; an error is also shown at its line of the code."""
        try:
            await super().play(turns, run=run)
        except Exception as error:
            fault = fault_in(error, self._path.parent)
            if fault["line"]:
                self._tell_page({"wrong": fault})
            raise

    def _do_replay(self) -> None:
        self._replaying = self._start(self._replay())

    async def _replay(self) -> None:
        """Play all runs again from the tape alone, and show whether they are equal."""
        runs = Tape(self._path, read_only=True).runs()
        turns = 0
        for info in runs:
            try:
                replayed = await Run.areplay(self._path, info.id)
            except LabError as error:
                self._tell_page({"says": f"The replay of run {info.id} failed: {error}"})
                return
            turns += replayed.turn_number
        self._tell_page(
            {
                "says": f"Played again from the tape, nobody asked: {counted(len(runs), 'run')} "
                f"with {counted(turns, 'turn')}, all equal to the last digit."
            }
        )

    def _do_page(self) -> None:
        written = page(self._path, self._path.with_suffix(".html"))
        self._tell_page({"page": str(written)})


def _stem_on(tape: Tape) -> str:
    """Return the stem of the file with the class of a tape's latest run."""
    # Such as "pot:PublicGoods": the file's stem, and the class.
    kind = str(tape.run().manifest.get("kind"))
    stem, _, _ = kind.partition(":")
    return stem


def _resumed(path: Path, info: RunInfo) -> Any:
    """Return a recorded run that can be played further; without its class, one to look at."""
    try:
        return Run.resume(path, info.id)
    except LabError:
        return run_on_tape(Tape(path), info)


def world_in(code: str, path: Path) -> type[Run]:
    """Return the world that a file's code defines; the last one if there are several.

    Args:
        code: the code, which is run.
        path: the file of the code, for errors and for names on tapes.

    Raises:
        ConfigError: the code defines no world.
        Exception: the code raised it.
    """
    path.write_text(code, encoding="utf-8")
    linecache.checkcache(str(path))
    # With a space: the name of a real module would replace that module.
    module = types.ModuleType(f"playground {path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(code, path, "exec"), module.__dict__)
    worlds = [
        item
        for item in vars(module).values()
        if isinstance(item, type) and issubclass(item, Run) and item.__module__ == module.__name__
    ]
    if not worlds:
        raise ConfigError(
            f"{path.name} has no world in it; define one: class World(Run[YourState]), with "
            "async def turn(self, state, ask)"
        )
    return worlds[-1]


async def seats_of(world: type[Run]) -> list[str]:
    """Return the players that a world asks in its first turn, played by random players."""
    trial = world(players="random", name=_TRIAL)
    await trial.step()
    asked = [answer.player for answer in trial.turns[-1].answers if answer.player]
    return list(dict.fromkeys(asked))


def fault_in(error: BaseException, folder: Path) -> dict[str, Any]:
    """Return a world's fault in words, and the line of its code; 0 if there is none.

    Args:
        error: the error that the world's code raised.
        folder: the folder of the code.
    """
    if isinstance(error, SyntaxError) and error.filename is not None:
        return {"line": error.lineno or 0, "text": f"Python cannot read this line: {error.msg}."}
    line = 0
    for cause in errors_behind(error):
        for frame in traceback.extract_tb(cause.__traceback__):
            if Path(frame.filename).parent == folder:
                line = frame.lineno or 0
        if line:
            break
    if isinstance(error, LabError):
        return {"line": line, "text": error_text(error)}
    if isinstance(error, ModuleNotFoundError):  # Pyodide's own message says how to install it
        words = (
            f"There is no module {error.name!r} in this page: it has what comes with Python, "
            "pydantic and Jinja2, and neither models nor numpy and pandas."
        )
        return {"line": line, "text": words}
    # Python's own words, which may suggest a name. Notes come after them, and are for scripts.
    formatted = traceback.TracebackException.from_exception(error)
    words = next(formatted.format_exception_only())
    return {"line": line, "text": words.strip()}
