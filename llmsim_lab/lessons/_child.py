"""What runs a hand-in: a process of its own, with limits, started as a script by ``limits.py``.

It reads a request a line, JSON, and answers each with one. Only the standard library is imported
until a task needs more, since a tournament starts hundreds of these.

The limits stop mistakes and pranks. They are no prison: Python's own audit hooks can be got around
by code that sets out to (PEP 578 says so itself).
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import io
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

# Names of audit events: PEP 578, and the table in Python's documentation.
TOUCHES_PROCESSES = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.kill",
    "os.killpg",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.system",
    "pty.spawn",
    "subprocess.Popen",
}
USES_NETWORK = {
    "socket.bind",
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.sendmsg",
    "socket.sendto",
}
CHANGES_FILES = {
    "os.chmod",
    "os.link",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
    "shutil.rmtree",
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NEW_USER_AND_NETWORK = 0x10000000 | 0x40000000
"""Linux's flags of ``unshare`` for namespaces of its own."""
SIGNAL_OF_PARENTS_DEATH = 1
"""Linux's number of that setting of ``prctl``."""
LARGEST_FILE = 100 * 2**20


# --- limits ---------------------------------------------------------------------------------------


def leave_network() -> bool:
    """Leave the machine's network for an empty one of its own; False where that is not allowed."""
    if sys.platform != "linux":
        return False
    import ctypes

    # In 3.12 this is os.unshare.
    return bool(ctypes.CDLL(None).unshare(NEW_USER_AND_NETWORK) == 0)


def end_with_host() -> None:
    """Have the system end this process once its host is gone: a killed host ends nothing."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL)


def system_limits(
    cpu_s: int,
    memory_mb: int,
    *,
    starts_threads: bool,
) -> dict[str, int]:
    """Return what the system is to keep, by its names of them."""
    limits = {
        # What the host watches too; this holds if the host is gone.
        "RLIMIT_CPU": cpu_s,
        # Reserved addresses, of which a program has more than it uses.
        "RLIMIT_AS": 2 * memory_mb * 2**20,
        "RLIMIT_FSIZE": LARGEST_FILE,
        "RLIMIT_CORE": 0,
    }
    if not starts_threads:
        # For the system a thread is a process. It does not count those of root.
        limits["RLIMIT_NPROC"] = 0
    return limits


def set_limits(limits: dict[str, int]) -> None:
    """Have the system keep limits, as far as it has them."""
    # By its name, since types know it only where the system has it.
    with suppress(ImportError):  # Windows
        resource = importlib.import_module("resource")
        for name, value in limits.items():
            # macOS has no such limit of addresses.
            with suppress(AttributeError, ValueError, OSError):
                resource.setrlimit(getattr(resource, name), (value, value))


def guard_of(own_folder: Path) -> Callable[[str, tuple[Any, ...]], None]:
    """Return an audit hook that keeps code from processes, the network and others' files."""
    # Without links, as the paths that are compared with it: macOS's /tmp is one.
    root = os.path.realpath(own_folder)

    def check_path(path: object) -> None:
        # Numbers are files that are open already, and were looked at then.
        if not isinstance(path, str | bytes | os.PathLike):
            return
        target = os.path.realpath(os.fsdecode(path))
        is_inside = os.path.commonpath([root, target]) == root
        if target != os.devnull and not is_inside:
            raise PermissionError(f"a hand-in writes to its own folder only, not to {target}")

    def guard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in TOUCHES_PROCESSES:
            raise PermissionError("a hand-in starts and ends no process")
        if event in USES_NETWORK:
            raise PermissionError("a hand-in has no network")
        opens_to_write = event == "open" and arguments[2] & WRITES
        if event in CHANGES_FILES or opens_to_write:
            check_path(arguments[0])
        # Path.mkdir(exist_ok=True) tries, and is told that it is there.
        if event == "os.mkdir" and not os.path.isdir(arguments[0]):  # noqa: PTH112
            check_path(arguments[0])

    return guard


class Printed(io.TextIOBase):
    """Takes what is printed and keeps nothing; too much of it is an error."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._left = most

    def writable(self) -> bool:
        """Return True, as files do that are written to."""
        return True

    def write(self, text: str) -> int:
        """Count a text."""
        # Counted and not kept: what is printed may be more than fits into memory.
        self._left -= len(text)
        if self._left < 0:
            raise RuntimeError(f"it printed more than {self.most:,} characters")
        return len(text)


# --- a function as a player -----------------------------------------------------------------------


class Record(dict[str, Any]):
    """A JSON object whose members are attributes too, as those of a state are."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no {name!r}; there are {', '.join(self)}") from None


class AskedPlayer(SimpleNamespace):
    """What a hand-in is asked: a function in a run is given the same, and the prompt besides."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a question has no {name!r} here; it has {', '.join(vars(self))}")


class Player:
    """A file with a function, which each match runs anew."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._function: Any = None
        self._run = Record()

    def begin(self, seed: int, run: Record) -> None:
        """Run the file, so that nothing is left of the match before."""
        random.seed(seed)
        # A folder of this name, a link that leads nowhere; a fifo would be waited for.
        if not Path(self.file).is_file():
            raise TypeError("it is not a file: a folder, or a link that leads nowhere")
        # Not imported: a module stays, and with it what the last match left in it.
        names: dict[str, Any] = {
            "__name__": "player",
            "__file__": self.file,
        }
        # As bytes: Python finds the encoding that the file names.
        content = Path(self.file).read_bytes()
        code = compile(content, self.file, "exec")
        exec(code, names)
        functions = []
        for name, value in names.items():
            # Not those that the file imports.
            is_own = inspect.isfunction(value) and value.__module__ == "player"
            if is_own and not name.startswith("_"):
                functions.append(value)
        if "play" not in names and len(functions) != 1:
            raise TypeError(f"it has {len(functions)} functions, and none is called play(question)")
        self._function = names.get("play") or functions[0]
        self._run = run

    def answer(self, question: Record) -> Any:
        """Return what the function answers."""
        # From a number of the run's generator, so that a seed gives the same moves again.
        rng = random.Random(question.pop("rng"))
        reply = self._function(
            AskedPlayer(
                **question,
                run=self._run,
                rng=rng,
            )
        )
        if inspect.isawaitable(reply):
            return asyncio.run(_awaited(reply))
        return reply


async def _awaited(reply: Any) -> Any:
    return await reply


# --- a hand-in's notebooks and tapes --------------------------------------------------------------


@cache
def _shell() -> Any:
    from IPython.core.interactiveshell import InteractiveShell

    # IPython's own, since a lesson's cells have magics and wait at the top level.
    class Shell(InteractiveShell):
        def enable_gui(self, gui: object = None) -> None:
            """Do nothing, so that %matplotlib inline works as in a notebook."""

    return Shell.instance()


def run_cell(source: str) -> None:
    """Run a cell of a notebook, as IPython does."""
    _shell().run_cell(source).raise_error()


def answers_given(*, recording: bool) -> list[tuple[str, Any]]:
    """Return what ``grade_answer`` was given since the last call.

    Args:
        recording: whether from now on there is no key to compare with: a teacher's notebook.
    """
    from llmsim_lab.lessons import answers

    last_answers = list(answers.recorded)
    answers.recorded.clear()
    answers.is_recording = recording
    if not recording:
        return [(question, _writable(answer)) for question, answer in last_answers]
    return last_answers


def _writable(answer: object) -> object:
    """Return a student's answer, in words where JSON has none: one of ten may be a function."""
    try:
        json.dumps(answer, default=_as_json)
    except (TypeError, ValueError, RecursionError):
        return f"{answer!r:.60}"
    return answer


def replay_tape(tape: str, files: list[str]) -> int:
    """Play all runs of a tape again; return how many there are.

    Args:
        tape: the file.
        files: of the worlds, which are run.
    """
    from llmsim_lab.run import replay
    from llmsim_lab.tape import Tape

    for file in files:
        # As when it was recorded: a tape names a world by its module.
        path = Path(file)
        sys.path.insert(0, str(path.parent))
        importlib.import_module(path.stem)
    with Tape(tape, read_only=True) as opened:
        runs = opened.runs()
        for info in runs:
            replay(opened, info.id)
    return len(runs)


# --- the loop -------------------------------------------------------------------------------------


def _as_json(value: object) -> Any:
    """Return numbers of numpy, series, sets and replies as JSON has them."""
    for method in ("tolist", "model_dump", "to_list"):
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    raise TypeError(f"a hand-in answers numbers, texts, lists and dicts, not {value!r:.60}")


def _fault(error: BaseException, file: str) -> str:
    """Return what went wrong in a line, with the line of the hand-in's file if it is one of its."""
    words = f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, SystemExit):
        words = "it called exit()"
    # The innermost line that is the student's: below it is the library's.
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == file:
            return f"line {frame.lineno}: {words}"
    return words


def tasks_of(file: str) -> dict[str, Callable[..., Any]]:
    """Return what can be asked, by name.

    Args:
        file: of the player; empty for tapes and notebooks.
    """
    player = Player(file)
    return {
        "begin": player.begin,
        "answer": player.answer,
        "cell": run_cell,
        "answers": answers_given,
        "replay": replay_tape,
    }


def reply_to(
    line: bytes,
    tasks: dict[str, Callable[..., Any]],
    file: str,
) -> dict[str, Any]:
    """Do what a line asks for; return what came of it, or its fault."""
    request = json.loads(line, object_hook=Record)
    try:
        task = tasks[request.pop("do")]
        return {"result": task(**request)}
    except BaseException as error:  # noqa: BLE001 - a hand-in raises anything, exit() too
        return {"fault": _fault(error, file)}


def line_of(reply: dict[str, Any]) -> bytes:
    """Return a reply as the host reads it."""
    try:
        text = json.dumps(reply, default=_as_json)
    except (TypeError, ValueError, RecursionError) as error:
        text = json.dumps({"fault": str(error)})
    return text.encode() + b"\n"


def main() -> None:
    """Do what is asked, until there is nothing more to read."""
    # Copies, before 0 and 1 lead elsewhere.
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    # What the hand-in reads and prints is not this conversation.
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    end_with_host()
    settings = json.loads(requests.readline())
    file = settings["file"]
    tasks = tasks_of(file)
    if not file:
        # As in a notebook's kernel: modules beside it can be imported.
        sys.path.insert(0, str(Path.cwd()))
    # Before threads: Linux lets only a process of one thread leave into a user of its own.
    reply: dict[str, Any] = {"result": {"has_left_network": leave_network()}}
    limits = system_limits(
        settings["cpu_s"],
        settings["memory_mb"],
        starts_threads=not file,
    )
    set_limits(limits)
    # For good: Python has no call that takes a hook away.
    sys.addaudithook(guard_of(Path.cwd()))
    sys.stdout = sys.stderr = Printed(settings["printed"])
    while True:
        replies.write(line_of(reply))
        replies.flush()
        line = requests.readline()
        if not line:  # the host has closed the pipe, or is gone
            return
        reply = reply_to(line, tasks, file)


if __name__ == "__main__":
    main()
