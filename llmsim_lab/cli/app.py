"""The commands and their options; each one's work is in a module of its own."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from llmsim_lab.cli import demo as demo_command
from llmsim_lab.cli import doctor as doctor_command
from llmsim_lab.cli import model as model_command
from llmsim_lab.cli import run as run_command
from llmsim_lab.cli.output import console, errors
from llmsim_lab.errors import LabError

__all__ = ["app", "main"]

app = typer.Typer(
    name="llmsim-lab",
    help="Simulations whose agents are language models, on your own machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(model_command.app, name="model")

MODEL_HELP = (
    "auto, rule (no model at all), ollama:NAME, embedded, embedded:NAME or embedded:/path/to.gguf"
)

Model = Annotated[str, typer.Option(help=MODEL_HELP)]
Out = Annotated[Path, typer.Option(help="Folder for the results; made if it is not there.")]
Host = Annotated[str | None, typer.Option(help="Ollama's address; else $OLLAMA_HOST.")]


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"llmsim-lab {version('llmsim-lab')}")
        raise typer.Exit


@app.callback()
def _options(
    _show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which it is.")
    ] = False,
) -> None:
    """Simulations whose agents are language models, on your own machine."""


@app.command()
def demo(
    turns: Annotated[
        int | None,
        typer.Option(min=1, max=400, help="Quarters to play live; 4 after a recording, else 8."),
    ] = None,
    nations: Annotated[
        int | None, typer.Option(min=1, max=8, help="Nations that propose policy, live from 1.")
    ] = None,
    model: Model = "auto",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the shocks and of the model's sampler; 7.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="The quarter whose data come first; 1979Q3.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Play all of it, without recording.")
    ] = False,
    out: Out = Path("out/demo"),
    host: Host = None,
) -> None:
    """Replay a recorded run of two nations, then go on live; chart it beside a rule and history.

    With --live, --nations, --seed, --start or --model rule it plays live from the first quarter.
    """
    chosen = live or model == "rule" or any(x is not None for x in (nations, seed, start))
    if not chosen:
        demo_command.recorded_demo(turns=turns or 4, model=model, out=out, host=host)
        return
    demo_command.live_demo(
        turns=turns or 8,
        nations=nations or 1,
        model=model,
        seed=7 if seed is None else seed,
        start=start or "1979Q3",
        out=out,
        host=host,
    )


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="A run's configuration, YAML.")],
    turns: Annotated[int | None, typer.Option(min=0, help="Instead of the file's.")] = None,
    model: Annotated[str | None, typer.Option(help=f"Instead of the file's: {MODEL_HELP}")] = None,
    out: Out = Path("out/run"),
    host: Host = None,
) -> None:
    """Play the run that a file describes."""
    run_command.run(config, turns=turns, model=model, out=out, host=host)


@app.command()
def doctor(
    model: Annotated[
        str | None, typer.Option(help="Check this one only, as 'connect' would name it.")
    ] = None,
    host: Host = None,
) -> None:
    """Say which models are there, and whether they answer as they must."""
    raise typer.Exit(doctor_command.doctor(model=model, host=host))


def main() -> None:
    """Run the command line; errors of ours end it with one message and status 1."""
    try:
        app()
    except LabError as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("stopped", style="red")
        sys.exit(130)
