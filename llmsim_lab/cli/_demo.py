"""``llmsim-lab demo``: does a language model, as a central bank, respond to the economy?"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from llmsim_lab._util.drawing import figure_bytes
from llmsim_lab._util.files import is_there
from llmsim_lab._util.results import Results
from llmsim_lab._util.tables import csv_text
from llmsim_lab._util.text import counted
from llmsim_lab.cli._output import open_results, open_run_results, say
from llmsim_lab.cli._playing import OTHER_MODEL_HELP, Host, Out, client_for, play, with_model
from llmsim_lab.errors import LabError
from llmsim_lab.simulation import Demonstration

_NEXT = (
    "For a model that responds: get a larger one ('ollama pull llama3.1:8b'), see if it passes the "
    "economic gate ('llmsim-lab doctor ollama:llama3.1:8b --economics'; docs/models.md), and play "
    "it ('llmsim-lab demo --model ollama:llama3.1:8b')."
)


def demo(
    turns: Annotated[int, typer.Option(min=1, max=400, help="Quarters to play live.")] = 3,
    model: Annotated[str, typer.Option(help=OTHER_MODEL_HELP)] = "auto",
    no_live: Annotated[bool, typer.Option("--no-live", help="Ask no model.")] = False,
    out: Out = Path("out/demo"),
    host: Host = None,
) -> None:
    """Show recorded runs of a model beside a rule and say whether it responds.

    Then continue one of them live, unless --no-live is given. Where no model is found it ends after
    the recorded part and says how to get one.
    """
    results = open_results(out, "demo", "demo.png", "demo.csv")
    if not no_live:
        results_of_run = open_run_results(out)
    demonstration = Demonstration.read()
    _show(demonstration, results)
    if no_live:
        say(_NEXT)
        return
    # Of the first seed, and neither its mirror image nor the oil shock: as a first run would be.
    seed, worlds = next(iter(demonstration.runs.items()))
    recorded = worlds["plain"]
    taped = recorded.turn_number
    try:
        client = client_for(with_model(recorded.config, model), host=host)
    except LabError as error:
        # A model that is named and is not there is a mistake; without one the demo is shorter.
        if model != "auto":
            raise
        say(f"The demo ends here, as no model was found to continue with: {error}")
        say(_NEXT)
        return
    say(f"Quarters {taped + 1} to {taped + turns} of seed {seed}: a fork of its run, live.")
    say("Ctrl-C ends it and keeps what was played; --no-live leaves it out.")
    # A tape of its own, since the recording may be read-only; nothing recorded is overwritten.
    tape = out / "demo.tape"
    for number in count(2):
        if not is_there(tape):
            break
        tape = out / f"demo-{number}.tape"
    simulation = recorded.fork(llm_client=client, to=tape)
    play(simulation, turns, results_of_run)
    say("'llmsim-lab tape show' and 'llmsim-lab replay' take it.")
    say("Next: 'make lab' in the project's folder opens the tutorials, 01_first_run.ipynb first.")
    say(_NEXT)


def _show(demonstration: Demonstration, results: Results) -> None:
    """Print what a recording shows, and write its picture and its quarters."""
    # Here, since it loads all worlds, and most commands draw nothing.
    from llmsim_lab.lab.figures import demo_figure

    first = next(iter(demonstration.runs.values()))["plain"]
    many = f"up to {demonstration.paths['turn'].max()} quarters from {first.turns[0].state.period}"
    shocks = f"{counted(len(demonstration.runs), 'seed')} of shocks, {many}, their mirror images"
    say(f"{demonstration.model} as a central bank: {shocks}, and an oil shock; no model was asked.")
    say(demonstration.to_frame().to_string())
    say(demonstration.judged)
    say(demonstration.headline)
    say(demonstration.verdict, style="bold")
    figure = figure_bytes(demo_figure(demonstration), "png", dpi=120)
    # Both again each time: they follow from the recording alone.
    picture = results.write("demo.png", figure)
    quarters = results.write("demo.csv", csv_text(demonstration.paths).encode())
    say(f"Written: {picture}, {quarters}")
