"""The commands and their options; each one's work is in a module of its own."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from llmsim_lab.cli import demo as demo_command
from llmsim_lab.cli import doctor as doctor_command
from llmsim_lab.cli import doctor_tools as doctor_tools_command
from llmsim_lab.cli import model as model_command
from llmsim_lab.cli import new as new_command
from llmsim_lab.cli import recorded as recorded_command
from llmsim_lab.cli import run as run_command
from llmsim_lab.cli import tape as tape_command
from llmsim_lab.cli.output import console, errors, say
from llmsim_lab.cli.world_file import ImportFiles, import_files
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
app.add_typer(tape_command.app, name="tape")

MODEL_HELP = (
    "auto, rule (no model at all), ollama:NAME, embedded, embedded:NAME or embedded:/path/to.gguf"
)

Model = Annotated[str, typer.Option(help=MODEL_HELP)]
Out = Annotated[Path, typer.Option(help="Folder for the results; made if it is not there.")]
Host = Annotated[str | None, typer.Option(help="Ollama's address; else $OLLAMA_HOST.")]

TapeFile = Annotated[Path, typer.Argument(metavar="FILE", help="A tape.")]
RunNumber = Annotated[
    int | None, typer.Option("--run", help="The run's number; the latest if not given.")
]
LiveTurns = Annotated[
    int | None,
    typer.Option("--turns", min=1, help="How many to play; what the configuration has left."),
]
OtherModel = Annotated[
    str | None, typer.Option("--model", help=f"Instead of the recorded one: {MODEL_HELP}")
]


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
        typer.Option(min=1, max=400, help="Quarters to play live; 3 after a recording, else 8."),
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
        demo_command.recorded_demo(turns=turns or 3, model=model, out=out, host=host)
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
    described: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A run's configuration, YAML; or FILE.py:CLASS, a world of your own. That file is "
            "run as code.",
        ),
    ],
    config: Annotated[
        Path | None, typer.Option(help="The parameters of a world of your own, YAML.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="factor=2 or llm.seed=3: instead of the file's; repeatable."),
    ] = None,
    turns: Annotated[int | None, typer.Option(min=0, help="Instead of the file's.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help=f"Instead of the file's: {MODEL_HELP}; for a world of your own also random, or "
            "person, who is asked here"
        ),
    ] = None,
    tape: Annotated[
        Path | None, typer.Option(help="Record the run on this tape; made if it is not there.")
    ] = None,
    out: Out = Path("out/run"),
    host: Host = None,
) -> None:
    """Play the run that a file describes.

    A Python file is run as code, since it is named here: llmsim-lab run pot.py:PublicGoods.
    """
    run_command.run(
        described,
        parameters=config,
        settings=set_ or [],
        turns=turns,
        model=model,
        out=out,
        host=host,
        tape=tape,
    )


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="The folder to make.")],
    template: Annotated[
        str | None, typer.Option("--from", help="A template; without one they are listed.")
    ] = None,
) -> None:
    """Make a folder with a world to start from: a program, a notebook, a recorded run."""
    new_command.new(folder, template=template)


@app.command()
def replay(
    file: TapeFile,
    run: RunNumber = None,
    turns: Annotated[
        int | None, typer.Option(min=0, help="The last turn to replay; all if not given.")
    ] = None,
    import_: ImportFiles = None,
    out: Out = Path("out/replay"),
) -> None:
    """Play a recorded run again from its tape alone: no model, the same numbers."""
    import_files(import_)
    recorded_command.replay(file, run=run, turns=turns, out=out)


@app.command()
def resume(
    file: TapeFile,
    run: RunNumber = None,
    turns: LiveTurns = None,
    model: OtherModel = None,
    import_: ImportFiles = None,
    out: Out = Path("out/resume"),
    host: Host = None,
) -> None:
    """Go on with a recorded run where it stopped, on the same tape."""
    import_files(import_)
    recorded_command.resume(file, run=run, turns=turns, model=model, host=host, out=out)


@app.command()
def rerun(
    file: TapeFile,
    run: RunNumber = None,
    turns: LiveTurns = None,
    model: OtherModel = None,
    import_: ImportFiles = None,
    out: Out = Path("out/rerun"),
    host: Host = None,
) -> None:
    """Play a recorded run's configuration anew, with fresh calls, beside it on the tape."""
    import_files(import_)
    recorded_command.rerun(file, run=run, turns=turns, model=model, host=host, out=out)


@app.command()
def fork(
    file: TapeFile,
    run: RunNumber = None,
    turn: Annotated[
        int | None, typer.Option(min=0, help="The turn to go on from; the last if not given.")
    ] = None,
    prompt: Annotated[
        list[Path] | None,
        typer.Option(help="NAME.md in the place of the recorded prompt of that name; repeatable."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="inflation=9 or coins.Ann=5: set it in that turn's state; repeatable."
        ),
    ] = None,
    shock: Annotated[
        list[str] | None,
        typer.Option(help="supply=2 or demand=-1: points, on the way to the next turn."),
    ] = None,
    turns: LiveTurns = None,
    model: OtherModel = None,
    import_: ImportFiles = None,
    out: Out = Path("out/fork"),
    host: Host = None,
) -> None:
    """Go on live from a turn of a recorded run, with something changed."""
    import_files(import_)
    recorded_command.fork(
        file,
        run=run,
        turn=turn,
        prompts=prompt or [],
        settings=set_ or [],
        shocks=shock or [],
        turns=turns,
        model=model,
        host=host,
        out=out,
    )


@app.command()
def doctor(
    model: Annotated[
        str | None, typer.Option(help="Check this one only, as 'connect' would name it.")
    ] = None,
    host: Host = None,
    tools: Annotated[
        bool, typer.Option("--tools", help="Have a model use tools, on a message of each kind.")
    ] = False,
    whole: Annotated[
        bool, typer.Option("--all", help="With --tools: on all messages, which takes long.")
    ] = False,
) -> None:
    """Say which models are there, and whether they answer as they must."""
    if tools:
        raise typer.Exit(doctor_tools_command.check_tools(model, host, whole=whole))
    if whole:
        raise typer.BadParameter("--all goes with --tools")
    raise typer.Exit(doctor_command.doctor(model=model, host=host))


def main() -> None:
    """Run the command line; errors of ours end it with one message and status 1."""
    try:
        app()
    except LabError as error:
        say(f"error: {error}", style="red", to=errors)
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("stopped", style="red")
        sys.exit(130)
