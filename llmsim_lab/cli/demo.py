"""``llmsim-lab demo``: nations with a language model, beside a Taylor rule and beside history."""

from __future__ import annotations

from pathlib import Path

from llmsim_lab.cli.output import console, end, open_folder, report
from llmsim_lab.cli.play import client_for, play
from llmsim_lab.llm import LLMConfig
from llmsim_lab.simulation import NationConfig, Simulation, SimulationConfig

__all__ = [
    "demo",
    "demo_config",
    "shadow_config",
]

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
            NationConfig(name=name, temperament=temperament, kind="taylor" if rule else "llm")
            for name, temperament in _NATIONS[:nations]
        ),
        validator={"kind": "always_valid" if rule else "llm"},
        llm=LLMConfig(
            model=model, seed=seed, num_ctx=2048, max_tokens=256, max_text_chars=200, timeout_s=180
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


def demo(
    *, turns: int, nations: int, model: str, seed: int, start: str, out: Path, host: str | None
) -> None:
    """Run the demo and write its results.

    Raises:
        LabError: it cannot start, or a model call failed; what was played until then is written.
    """
    config = demo_config(turns=turns, nations=nations, model=model, seed=seed, start=start)
    shadow = Simulation(shadow_config(config))
    out = open_folder(out)
    client = client_for(config, host=host)
    simulation = Simulation(config, llm_client=client)
    names = ", ".join(agent.name for agent in simulation.agents)
    console.print(
        f"Playing {turns} quarters from {simulation.state.period}: {names}; "
        f"beside it a Taylor rule in the same economy with the same shocks (seed {seed})."
    )
    failure = play(simulation, turns)
    shadow.run(simulation.turn)
    report(simulation, out, shadow=shadow)
    console.print(
        "Next: 'make lab' in the project's folder opens the tutorials in JupyterLab, "
        "notebooks/01_first_run.ipynb first.",
        soft_wrap=True,
    )
    end(simulation, turns, failure)
