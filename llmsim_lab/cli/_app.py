"""The command ``llmsim-lab``: its subcommands, each a function of the module that does its work."""

from __future__ import annotations

import sys

import typer

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
from llmsim_lab.errors import ConfigError, LabError

app = typer.Typer(
    name="llmsim-lab",
    help="Simulations whose agents are language models, on your own machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they would show local variables, such as whole prompts
    rich_markup_mode=None,
)
for command in (demo, run, lint, new, replay, resume, rerun, fork, view, study, people, doctor):
    app.command()(command)
app.command("tournament")(play_tournament)
app.command()(lesson)
app.command("grade")(grade_hand_ins)
app.add_typer(model_app, name="model")
app.add_typer(_tape.app, name="tape")
app.add_typer(room_app, name="room")


def main() -> None:
    """Run the command line; errors of ours end it with one message and status 1."""
    try:
        app()
    except LabError as error:
        # Others are faults of this package or of a user's code, whose traceback is needed.
        # A failed model call or a damaged tape is not a fault of the code that it passed through.
        place = place_of(error) if isinstance(error, ConfigError) else ""
        say(f"error: {place}{error}", style="red", to=errors)
        sys.exit(1)
