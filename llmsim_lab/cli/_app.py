"""The command ``llmsim-lab``: its subcommands, each a function of the module that does its work."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable
from io import TextIOWrapper

import typer

from llmsim_lab._util.text import log_as_asked
from llmsim_lab.cli import _tape
from llmsim_lab.cli._demo import demo
from llmsim_lab.cli._doctor import doctor, model_app
from llmsim_lab.cli._lab import new, view
from llmsim_lab.cli._lessons import grade_hand_ins, lesson, play_tournament
from llmsim_lab.cli._output import errors, say
from llmsim_lab.cli._people import people
from llmsim_lab.cli._playing import place_of
from llmsim_lab.cli._room import room_app
from llmsim_lab.cli._run import fork, lint, replay, rerun, resume, run
from llmsim_lab.cli._study import study
from llmsim_lab.cli._tutorials import lab
from llmsim_lab.errors import ConfigError, LabError

logger = logging.getLogger(__name__)

app = typer.Typer(
    name="llmsim-lab",
    help="Simulations whose agents are language models, on your own machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they would show local variables, such as whole prompts
    rich_markup_mode=None,
)
# In the order in which ``--help`` lists them. A command of yours: its name and its function.
_COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "lab": lab,
    "doctor": doctor,
    "new": new,
    "run": run,
    "lint": lint,
    "replay": replay,
    "resume": resume,
    "rerun": rerun,
    "fork": fork,
    "view": view,
    "study": study,
    "people": people,
    "tournament": play_tournament,
    "lesson": lesson,
    "grade": grade_hand_ins,
}
_GROUPS = {
    "model": model_app,
    "tape": _tape.app,
    "room": room_app,
}
for name, command in _COMMANDS.items():
    app.command(name)(command)
for name, group in _GROUPS.items():
    app.add_typer(group, name=name)


def main() -> None:
    """Run the command line; errors of ours end it with one message and status 1."""
    for stream in (sys.stdout, sys.stderr):
        # Windows gives files and pipes an encoding without a minus sign, and a table must not fail
        # for want of one.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        log_as_asked()
        app()
    except LabError as error:
        # Others are faults of this package or of a user's code, whose traceback is needed.
        # A failed model call or a damaged tape is not a fault of the code that it passed through.
        place = place_of(error) if isinstance(error, ConfigError) else ""
        say(f"error: {place}{error}", style="red", to=errors)
        sys.exit(1)
    except KeyboardInterrupt:
        # Typer takes it while a command runs; this one came before.
        sys.exit(130)
    except OSError as error:
        # Of a file there is its name. That it may not be read, say, is no fault of this package's,
        # while an error in a user's code needs its traceback.
        if error.filename is not None and not place_of(error):
            words = f"error: {error.filename}: {error.strerror}; name another file or folder"
            say(words, style="red", to=errors)
            # Of one that no user named it is a fault of this package's, to be looked for here.
            logger.debug("Where it was raised (LLMSIM_LOG=debug):", exc_info=True)
            sys.exit(1)
        # Without one it is the output itself, as on a full disk.
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO):
            raise
        # Else Python would try to write the rest as it ends, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        say(f"error: the output cannot be written: {error.strerror}", style="red", to=errors)
        sys.exit(1)
