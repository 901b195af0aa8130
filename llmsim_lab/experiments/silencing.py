"""What a module's words do to an agent's answer: its prompt with them, and without."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from llmsim_lab.checks import whole_number
from llmsim_lab.context import CrisisSimulation
from llmsim_lab.context._builder import module_source
from llmsim_lab.errors import ConfigError
from llmsim_lab.experiments.ablation import Ablation, AblationConfig, PromptText
from llmsim_lab.experiments.arms import pieces_of
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.prompts import RenderedPrompt

__all__ = ["module_ablation"]


def module_ablation(
    simulation: CrisisSimulation,
    agent: str,
    turn: int | None = None,
    *,
    silenced: Iterable[str] | str,
    samples: int = 5,
    llm_client: LLMClient | None = None,
    tape: Tape | str | Path | None = None,
) -> Ablation:
    """Return a comparison of an agent's prompt with the same without some modules' words.

    Nothing is asked until it is run. Under a token budget another module may come in where one is
    left out: the comparison's ``verdict`` says so, and its ``arms`` list both prompts' sections.

    Args:
        simulation: the run; it is left as it is.
        agent: whose prompt.
        turn: of which turn; the latest if not given.
        silenced: the modules that say nothing; one may be given by its name alone.
        samples: how many.
        llm_client: the model; the run's own if not given.
        tape: where to record it.

    Raises:
        ConfigError: there is no such agent, turn or module, no module is named, or those named say
            nothing there.
    """
    names = list(dict.fromkeys([silenced] if isinstance(silenced, str) else silenced))
    if not names:
        raise ConfigError("silenced is empty: name a module whose words are to be left out")
    whole = simulation.context_of(agent, turn)
    without = simulation.context_of(agent, turn, silenced=names)
    # Before the first turn that is the one to come, as ``context_of`` has it.
    at = max(simulation.turn_number, simulation.turns[0].number + 1) if turn is None else turn
    arms = {"as it was": whole, f"without {', '.join(names)}": without}
    if (whole.system, whole.user) == (without.system, without.user):
        raise ConfigError(
            f"without {', '.join(names)} the prompt of {agent}, turn {at}, is the same: "
            f"{_why_nothing(whole, names)}; name a module that has a section in it"
        )
    config = AblationConfig(
        name=f"without {', '.join(names)}",
        turns=whole_number("samples", samples, least=1),
        seed=simulation.config.seed,
        prompts={name: PromptText.of(prompt) for name, prompt in arms.items()},
        response_format=simulation.config.scenario.briefing.response_format,
        about=f"{agent}, turn {at}",
        arms={name: pieces_of(prompt) for name, prompt in arms.items()},
        silenced=tuple(map(module_source, names)),
    )
    return Ablation(config, llm_client=llm_client or simulation.llm_client, tape=tape)


def _why_nothing(prompt: RenderedPrompt, names: Sequence[str]) -> str:
    sources = set(map(module_source, names))
    cuts = [cut for cut in prompt.provenance.cuts if cut.source in sources]
    return "; ".join(f"{cut.name} was {cut.reason}" for cut in cuts) or "they said nothing there"
