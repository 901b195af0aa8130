"""``llmsim-lab demo``: nations with a language model, beside a Taylor rule and history."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from llmsim_lab.cli.output import console, end, open_folder, report
from llmsim_lab.cli.play import client_for, play
from llmsim_lab.economy import initial_state
from llmsim_lab.errors import LabError
from llmsim_lab.files import data_path
from llmsim_lab.llm import LLMConfig
from llmsim_lab.runs import fork, replay
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.simulation._config import NationConfig

PLAIN: dict[str, Any] = {"markup": False, "highlight": False, "soft_wrap": True}

__all__ = ["config_with", "demo_config", "live_demo", "recorded_demo", "shadow_config"]

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


def shadow_config(config: SimulationConfig) -> SimulationConfig:
    """Return the same economy and shocks with a Taylor rule in charge and no model."""
    return config.model_copy(
        update={
            "name": "Taylor rule, same shocks",
            "nations": (NationConfig(name="Taylor rule", kind="taylor"),),
            "validator": config.validator.model_copy(update={"kind": "always_valid"}),
        }
    )


def recorded_demo(*, turns: int, model: str, out: Path, host: str | None) -> None:
    """Replay the recorded run, then fork it at its last turn and go on live.

    Where ``auto`` finds no model it ends after the recorded part and says how to get one.

    Raises:
        LabError: a model call failed; what was played until then is written.
    """
    out = open_folder(out)
    tape = _new_file(out / "demo.tape")
    tape.write_bytes(data_path("tapes/two_nations.tape").read_bytes())
    began = time.perf_counter()
    recorded = replay(tape)
    seconds = time.perf_counter() - began
    recording = recorded.tape.run().manifest["model"]["name"] if recorded.tape else ""
    taped = recorded.turn_number
    console.print(
        f"Turns 1 to {taped}: a recording of {_names(recorded)} with {recording}, "
        f"replayed in {seconds:.1f} s; no model was asked. That model is for trying the tool: read "
        "no economics into its rates.",
        soft_wrap=True,
    )
    simulation, failure = recorded, None
    try:
        client = client_for(config_with(recorded.config, model), host=host)
    except LabError as error:
        if model != "auto":
            raise
        console.print(f"It ends there, since there is no model to go on with: {error}", **PLAIN)
    else:
        console.print(f"Turns {taped + 1} to {taped + turns}: a fork of it, live.")
        simulation = fork(tape, llm_client=client)
        failure = play(simulation, turns)
    _finish(simulation, out, taped, tape)
    end(simulation, taped + turns, failure)


def live_demo(
    *, turns: int, nations: int, model: str, seed: int, start: str, out: Path, host: str | None
) -> None:
    """Play a run from its first turn.

    Raises:
        LabError: it cannot start, or a model call failed; what was played until then is written.
    """
    config = demo_config(turns=turns, nations=nations, model=model, seed=seed, start=start)
    initial_state(start)
    out = open_folder(out)
    client = client_for(config, host=host)
    simulation = Simulation(config, llm_client=client, tape=out / "demo.tape")
    console.print(
        f"Playing {turns} quarters from {simulation.state.period}: {_names(simulation)}; "
        f"beside it a Taylor rule in the same economy with the same shocks (seed {seed}).",
        soft_wrap=True,
    )
    failure = play(simulation, turns)
    _finish(simulation, out, None, out / "demo.tape")
    end(simulation, turns, failure)


def config_with(config: SimulationConfig, model: str) -> SimulationConfig:
    """Return the configuration with another model."""
    return config.model_copy(update={"llm": config.llm.model_copy(update={"model": model})})


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
    shadow = Simulation(shadow_config(simulation.config))
    shadow.run(simulation.turn_number)
    report(simulation, out, shadow=shadow, taped=taped)
    console.print(
        f"Every call is on {tape}: 'llmsim-lab tape show' it, 'llmsim-lab replay' it. "
        "Next: 'make lab' in the project's folder opens the tutorials in JupyterLab, "
        "notebooks/01_first_run.ipynb first.",
        **PLAIN,
    )
