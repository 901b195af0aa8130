"""``llmsim-lab demo``: nations with a language model, beside a Taylor rule and history."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from llmsim_lab._util.files import data_path
from llmsim_lab.cli._output import end, open_folder, report, say
from llmsim_lab.cli._playing import MODEL_HELP, Host, Out, client_for, play, with_model
from llmsim_lab.economy import initial_state
from llmsim_lab.errors import LabError
from llmsim_lab.llm import LLMConfig
from llmsim_lab.run import fork, replay
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.simulation._config import NationConfig

_NATIONS = (
    ("United States", "cautious"),
    ("Germany", "hawkish on inflation"),
    ("Japan", "patient"),
    ("United Kingdom", "pragmatic"),
    ("France", "growth-minded"),
    ("Canada", "steady"),
    ("Italy", "worried about jobs"),
    ("Sweden", "data-driven"),
)


def demo_config(*, turns: int, nations: int, model: str, seed: int, start: str) -> SimulationConfig:
    """Return the demo's configuration: short answers, so that a laptop keeps up."""
    rule = model == "rule"
    return SimulationConfig(
        name="rule" if rule else "model",
        seed=seed,
        turns=turns,
        start=start,
        nations=tuple(
            NationConfig(name=name, kind="taylor")
            if rule
            else NationConfig(name=name, temperament=temperament)
            for name, temperament in _NATIONS[:nations]
        ),
        validator={"kind": "always_valid" if rule else "llm"},
        llm=LLMConfig(
            model=model, seed=seed, num_ctx=2048, max_tokens=256, max_text_chars=140, timeout_s=180
        ),
        economy={"shock_scale": 1.0},
    )


def demo(
    turns: Annotated[
        int | None,
        typer.Option(min=1, max=400, help="Quarters to play live; 3 after a recording, else 8."),
    ] = None,
    nations: Annotated[
        int | None, typer.Option(min=1, max=8, help="Nations that propose policy, live from 1.")
    ] = None,
    model: Annotated[str, typer.Option(help=MODEL_HELP)] = "auto",
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
    """Replay a recorded run of two nations, then continue live; chart it beside a rule and history.

    With --live, --nations, --seed, --start or --model rule it plays live from the first quarter.
    """
    if live or model == "rule" or any(x is not None for x in (nations, seed, start)):
        config = demo_config(
            turns=turns or 8,
            nations=nations or 1,
            model=model,
            seed=7 if seed is None else seed,
            start=start or "1979Q3",
        )
        _live_demo(config, out=out, host=host)
    else:
        _recorded_demo(turns=turns or 3, model=model, out=out, host=host)


def _recorded_demo(*, turns: int, model: str, out: Path, host: str | None) -> None:
    """Replay the recorded run, then fork it at its last turn and continue live.

    Where ``auto`` finds no model it ends after the recorded part and says how to get one.

    Raises:
        LabError: a model call failed; what was played until then is written.
    """
    out = open_folder(out)
    tape = _new_file(out / "demo.tape")
    # A copy, since the fork is recorded on it and the package may be read-only.
    tape.write_bytes(data_path("tapes/two_nations.tape").read_bytes())
    began = time.perf_counter()
    recorded = replay(tape)
    seconds = time.perf_counter() - began
    recording = recorded.tape.run().manifest["model"]["name"] if recorded.tape else ""
    taped = recorded.turn_number
    say(
        f"Turns 1 to {taped}: a recording of {_names(recorded)} with {recording}, "
        f"replayed in {seconds:.1f} s; no model was asked. That model is for trying the tool: read "
        "no economics into its rates."
    )
    simulation, failure = recorded, None
    try:
        client = client_for(with_model(recorded.config, model), host=host)
    except LabError as error:
        if model != "auto":
            raise
        say(f"It ends there, since there is no model to continue with: {error}")
    else:
        say(f"Turns {taped + 1} to {taped + turns}: a fork of it, live.")
        simulation = fork(tape, llm_client=client)
        failure = play(simulation, turns)
    _finish(simulation, out, taped, tape)
    end(simulation, taped + turns, failure)


def _live_demo(config: SimulationConfig, *, out: Path, host: str | None) -> None:
    """Play a run from its first turn.

    Raises:
        LabError: it cannot start, or a model call failed; what was played until then is written.
    """
    initial_state(config.start)  # an unknown quarter is an error before a model is fetched
    out = open_folder(out)
    client = client_for(config, host=host)
    simulation = Simulation(config, llm_client=client, tape=out / "demo.tape")
    say(
        f"Playing {config.turns} quarters from {simulation.state.period}: {_names(simulation)}; "
        f"beside it a Taylor rule in the same economy with the same shocks (seed {config.seed})."
    )
    failure = play(simulation, config.turns)
    _finish(simulation, out, None, out / "demo.tape")
    end(simulation, config.turns, failure)


def _names(simulation: Simulation) -> str:
    return ", ".join(agent.name for agent in simulation.agents)


def _new_file(path: Path) -> Path:
    """Return the path, or the next one like it that is free: nothing recorded is overwritten."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free


def _finish(simulation: Simulation, out: Path, taped: int | None, tape: Path) -> None:
    """Report the run beside a Taylor rule in the same economy with the same shocks."""
    config = simulation.config
    shadow_config = config.model_copy(
        update={
            "name": "Taylor rule, same shocks",
            "nations": (NationConfig(name="Taylor rule", kind="taylor"),),
            "validator": config.validator.model_copy(update={"kind": "always_valid"}),
        }
    )
    shadow = Simulation(shadow_config)
    shadow.run(simulation.turn_number)
    report(simulation, out, shadow=shadow, taped=taped)
    say(
        f"Every call is on {tape}: 'llmsim-lab tape show' it, 'llmsim-lab replay' it. "
        "Next: 'make lab' in the project's folder opens the tutorials in JupyterLab, "
        "notebooks/01_first_run.ipynb first."
    )
