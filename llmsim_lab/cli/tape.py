"""``llmsim-lab tape``: look into tapes, check them, carry runs from one to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from llmsim_lab import simulation as verbs
from llmsim_lab.cli.output import console, literal, say
from llmsim_lab.cli.recorded import sound_run
from llmsim_lab.cli.tape_diff import show_differences
from llmsim_lab.cli.tape_show import show_call, show_run, show_turn
from llmsim_lab.cli.world_file import ImportFiles, import_files, lines_told
from llmsim_lab.errors import ConfigError, LabError, TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.llm.tape import verify as verify_tape
from llmsim_lab.llm.tape._verify import Finding

__all__ = ["app"]

app = typer.Typer(help="Look into tapes of recorded runs.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="A tape.")]
Run = Annotated[int | None, typer.Option(help="The run's number; the latest if not given.")]


@app.command("ls")
def ls(file: File) -> None:
    """List the runs on a tape, with what each changed."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    headings = ("run", "name", "verb", "from", "changed", "turns", "calls", "model", "started")
    for heading in (*headings, "outcome"):
        right = heading in ("run", "turns", "calls")
        table.add_column(heading, overflow="fold", justify="right" if right else "left")
    with Tape(file, read_only=True) as tape:
        runs = tape.runs()
        changes = tape.changes()
        for info in runs:
            source = "" if info.parent is None else f"run {info.parent}"
            if info.fork_turn is not None:
                source += f", turn {info.fork_turn}"
            row = (
                info.id,
                info.name,
                info.verb,
                source,
                "; ".join(changes.of(info.id)),
                info.turns,
                info.calls,
                info.model,
                info.started[:16].replace("T", " "),
                info.outcome or "open",
            )
            table.add_row(*map(literal, row))
    console.print(table)


@app.command("show")
def show(
    file: File,
    run: Run = None,
    turn: Annotated[int | None, typer.Option(help="One turn: what was asked and answered.")] = None,
    call: Annotated[int | None, typer.Option(help="One call, by its number, whole.")] = None,
    import_: ImportFiles = None,
) -> None:
    """Show a run: what defines it, its turns; or one turn; or one call."""
    import_files(import_)
    with Tape(file, read_only=True) as tape:
        if call is not None:
            show_call(tape.call(call))
        elif turn is not None:
            show_turn(tape, tape.run(run).id, turn)
        else:
            show_run(tape, sound_run(tape, run))


@app.command("tree")
def tree(file: File) -> None:
    """Show which run came from which, and what each changed."""
    with Tape(file, read_only=True) as tape:
        say(tape.tree())


@app.command("diff")
def diff(
    file: File,
    a: Annotated[int, typer.Argument(help="A run's number.")],
    b: Annotated[int, typer.Argument(help="Another's.")],
) -> None:
    """Say how two runs differ: what defines them, their prompts, what was done, where they led."""
    with Tape(file, read_only=True) as tape:
        show_differences(tape, sound_run(tape, a), sound_run(tape, b))


@app.command("export")
def export(
    file: File,
    target: Annotated[Path, typer.Argument(help="NAME.jsonl, which loses nothing, or .parquet.")],
    run: Annotated[
        int | None, typer.Option(help="This run and those it came from; else all.")
    ] = None,
) -> None:
    """Write a tape's runs to a file for other programs."""
    with Tape(file, read_only=True) as tape:
        paths = tape.export(target, run=run)
    say(f"Written: {', '.join(map(str, paths))}")


@app.command("import")
def take_in(
    source: Annotated[Path, typer.Argument(help="A file that 'tape export' wrote, .jsonl.")],
    file: Annotated[Path, typer.Argument(help="The tape; made if it is not there.")],
) -> None:
    """Take the runs of a JSON lines file onto a tape."""
    if not source.is_file():
        raise ConfigError(f"there is no file {source}")
    new = not file.exists()
    try:
        with Tape(file) as tape:
            runs = tape.import_jsonl(source)
    except LabError:
        if new:
            file.unlink(missing_ok=True)
        raise
    say(f"Imported to {file}: {'runs' if len(runs) > 1 else 'run'} {', '.join(map(str, runs))}")


Runs = Annotated[list[int] | None, typer.Option("--run", help="A run's number; may be repeated.")]


@app.command("prune")
def prune(file: File, run: Runs = None) -> None:
    """Take runs off a tape for good; their numbers are not used again."""
    if not run:
        raise ConfigError("say which runs to take off the tape: --run 2 --run 3")
    with _existing(file) as tape:
        tape.prune(run)
    say(f"Taken off {file}: {'runs' if len(run) > 1 else 'run'} {', '.join(map(str, run))}")


@app.command("redact")
def redact(
    file: File,
    run: Runs = None,
    component: Annotated[
        list[str] | None, typer.Option(help="Only its texts, such as agent; may be repeated.")
    ] = None,
    states: Annotated[
        bool, typer.Option("--states", help="Every text of the states as well, whoever wrote it.")
    ] = False,
) -> None:
    """Put digests in the place of prompts, answers and reasoning, for good; all runs if none named.

    Numbers, names, settings and prompt templates stay. A redacted run is not replayed.
    """
    with _existing(file) as tape:
        tape.redact(run or None, components=component or None, states=states)
        runs = tape.runs()
    done = set(run or [info.id for info in runs])
    named = ", ".join(map(str, sorted(done)))
    say(f"Redacted on {file}: {'runs' if len(done) > 1 else 'run'} {named}")
    for info in runs:
        if info.id not in done and info.parent in done and info.fork_turn is not None:
            say(
                f"Run {info.id} has its own copy of turn {info.fork_turn} of run {info.parent}: "
                f"redact it too with --run {info.id}",
                style="yellow",
            )


def _existing(file: Path) -> Tape:
    if not file.is_file():
        raise TapeError(f"there is no tape at {file}")
    return Tape(file)


@app.command("verify")
def verify(
    file: File,
    replay: Annotated[bool, typer.Option("--replay", help="Replay each run as well.")] = False,
    import_: ImportFiles = None,
) -> None:
    """Check that a tape is whole and holds what was recorded; status 1 if not."""
    import_files(import_)
    with Tape(file, read_only=True) as tape:
        findings = verify_tape(tape)
        played = 0
        if replay and not findings:
            for info in tape.runs():
                if info.manifest.get("redacted"):
                    continue
                findings += _replayed(tape, info.id)
                played += 1
        for finding in findings:
            say(finding, style="red")
        if findings:
            raise typer.Exit(1)
        runs = tape.runs()
        calls = sum(info.calls for info in runs)
        say(
            f"{file} is sound: {len(runs)} {'run' if len(runs) == 1 else 'runs'}, {calls:,} calls"
            + (f"; {played} replayed to the same turns." if replay else ".")
        )


def _replayed(tape: Tape, run: int) -> list[Finding]:
    try:
        with lines_told():
            verbs.replay(tape, sound_run(tape, run).id)
    except LabError as error:
        return [Finding(what=f"it cannot be replayed: {error}", run=run)]
    return []
