"""``llmsim-lab demo``: does a language model, as a central bank, answer the economy?"""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from llmsim_lab._util.files import data_path, write_file
from llmsim_lab._util.tables import csv_text
from llmsim_lab._util.text import duration
from llmsim_lab.cli._output import (
    console,
    end,
    literal,
    open_folder,
    plain_table,
    report,
    right,
    say,
    write_figure,
)
from llmsim_lab.cli._playing import MODEL_HELP, Host, Out, client_for, play, with_model
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.run import fork, load
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.study import Demonstration
from llmsim_lab.study._demo import DEMO_START, demo_config, demo_runs

_NEXT = (
    "For a model that answers the economy: get a larger one ('ollama pull llama3.1:8b'), see if it "
    "passes where the direction is beyond doubt ('llmsim-lab doctor ollama:llama3.1:8b "
    "--economics'), and play it ('llmsim-lab demo --live --model ollama:llama3.1:8b'). "
    "docs/models.md says what passing means."
)


def demo(
    turns: Annotated[
        int | None,
        typer.Option(min=1, max=400, help="Quarters to play live; 3 after a recording, else 8."),
    ] = None,
    model: Annotated[str, typer.Option(help=MODEL_HELP)] = "auto",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the shocks and of the model's draws; 1.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help=f"The quarter whose data come first; {DEMO_START}.")
    ] = None,
    live: Annotated[
        bool | None,
        typer.Option(
            "--live/--no-live",
            help="Play all of it, and show no recording; or only the recording, without a model.",
            show_default=False,
        ),
    ] = None,
    out: Out = Path("out/demo"),
    host: Host = None,
) -> None:
    """Show recorded runs of a model beside a rule and say whether it answers the economy.

    Then continue one of them live, unless --no-live is given. With --live, --seed, --start or
    --model rule it plays live from the first quarter, and shows no recording.
    """
    # A recording has its own seed, start and players: to choose one of them is to play live.
    chosen = model == "rule" or any(x is not None for x in (seed, start))
    if live is False and (chosen or turns is not None or model != "auto"):
        raise ConfigError(
            "--no-live shows the recording as it is; leave out --turns, --model, --seed and --start"
        )
    if live or chosen:
        config = demo_config(
            model="auto" if model == "rule" else model,
            turns=turns or 8,
            seed=1 if seed is None else seed,
            start=start or DEMO_START,
        )
        if model == "rule":
            config = config.by_rules()
        _live_demo(config, out=out, host=host)
    else:
        _recorded_demo(turns=0 if live is False else turns or 3, model=model, out=out, host=host)


def _recorded_demo(*, turns: int, model: str, out: Path, host: str | None) -> None:
    """Read the recorded runs, draw and judge them, then fork one at its end and continue live.

    With 0 turns there is no live part.

    Where ``auto`` finds no model it ends after the recorded part and says how to get one.

    Raises:
        LabError: a model call failed; what was played until then is written.
    """
    out = open_folder(out)
    tape = _new_file(out / "demo.tape")
    # A copy, since the fork is recorded on it and the package may be read-only.
    tape.write_bytes(gzip.decompress(data_path("tapes/demo.tape.gz").read_bytes()))
    began = time.perf_counter()
    found = Demonstration.read(tape)
    _show(found, out, seconds=time.perf_counter() - began)
    if not turns:
        say(_NEXT)
        return
    seed, runs = next(iter(found.runs.items()))
    recorded = runs["plain"]
    taped = recorded.turn_number
    try:
        client = client_for(with_model(recorded.config, model), host=host)
    except LabError as error:
        if model != "auto":
            raise
        say(f"It ends there, since there is no model to continue with: {error}")
        say(_NEXT)
        return
    say(f"Quarters {taped + 1} to {taped + turns} of seed {seed}: a fork of its run, live.")
    say(_how_long(recorded, turns))
    simulation = fork(tape, demo_runs(tape)[seed]["plain"], llm_client=client)
    failure = play(simulation, turns)
    _finish(simulation, out, taped, tape)
    end(simulation, taped + turns, failure)


def _how_long(recorded: Simulation, turns: int) -> str:
    """Return how long quarters take live, as far as the recording of others shows."""
    played = [turn for turn in recorded.turns if turn.calls]
    calls = turns * median(sum(call.attempts for call in turn.calls) for turn in played)
    seconds = median(turn.seconds for turn in played)
    return (
        f"That is about {calls:.0f} calls of a model. As {played[0].calls[0].request.model} was "
        f"recorded a quarter took {duration(seconds)}, which makes {duration(turns * seconds)}; a "
        "larger model takes longer, and a faster machine less. Ctrl-C ends it and keeps what was "
        "played; --no-live leaves it out."
    )


def _show(found: Demonstration, out: Path, *, seconds: float) -> None:
    """Print what a recording shows, and write its picture and its quarters."""
    # Here, since it loads all worlds, and most commands draw nothing.
    from llmsim_lab.lab.figures import demo_figure

    first = next(iter(found.runs.values()))["plain"]
    count = len(found.runs)
    say(
        f"{found.model} as a central bank: {count} seed{'' if count == 1 else 's'} of shocks, "
        f"{found.quarters} quarters from {first.turns[0].state.period}, the same mirrored, and "
        f"an oil shock: a recording, read in {seconds:.1f} s, and no model was asked."
    )
    frame = found.to_frame().drop(columns="verdict")
    table = plain_table("player", *(right(title, overflow="fold") for title in frame.columns))
    for player, row in frame.iterrows():
        table.add_row(literal(player), *(literal(value) for value in row))
    console.print(table)
    console.print()
    say(found.headline)
    say(found.verdict, style="bold")
    say(found.answer().reason)
    picture, quarters = out / "demo.png", out / "demo.csv"
    write_figure(picture, demo_figure(found), dpi=120)
    write_file(quarters, csv_text(found.paths).encode())
    say(f"Written: {picture}, {quarters}")


def _live_demo(config: SimulationConfig, *, out: Path, host: str | None) -> None:
    """Play a run from its first turn.

    Raises:
        LabError: it cannot start, or a model call failed; what was played until then is written.
    """
    out = open_folder(out)
    client = client_for(config, host=host)
    simulation = Simulation(config, llm_client=client, tape=out / "demo.tape")
    names = ", ".join(nation.name for nation in simulation.nations)
    say(
        f"Playing {config.turns} quarters from {simulation.state.period}: {names}; "
        f"beside it a Taylor rule in the same economy with the same shocks (seed {config.seed})."
    )
    if client is not None:
        tape = data_path("tapes/demo.tape.gz")
        say(_how_long(load(tape, next(iter(demo_runs(tape).values()))["plain"]), config.turns))
    failure = play(simulation, config.turns)
    _finish(simulation, out, None, out / "demo.tape")
    end(simulation, config.turns, failure)


def _new_file(path: Path) -> Path:
    """Return the path, or the next one like it that is free: nothing recorded is overwritten."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free


def _finish(simulation: Simulation, out: Path, taped: int | None, tape: Path) -> None:
    """Report the run beside a Taylor rule in the same economy with the same shocks."""
    shadow = simulation.counterfactual("rule", name="Taylor rule, same shocks")
    shadow._quiet = True  # the run itself has said what is wrong with these quarters
    shadow.run(simulation.turn_number)
    report(simulation, out, shadow=shadow, taped=taped, since=taped or 0)
    say(
        f"Every call is on {tape}: 'llmsim-lab tape show' it, 'llmsim-lab replay' it. "
        "Next: 'make lab' in the project's folder opens the tutorials in JupyterLab, "
        "notebooks/01_first_run.ipynb first."
    )
    say(_NEXT)
