"""Make the parts of a crisis simulation from its configuration, and compare modules' digests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from llmsim_lab.context.crisis_config import CrisisConfig
from llmsim_lab.context.crisis_engine import CrisisEngine, Judges, RuleCrisisEngine
from llmsim_lab.context.players import (
    CrisisAgent,
    LLMCrisisAgent,
    RuleCrisisAgent,
    ScriptedCrisisAgent,
)
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient
from llmsim_lab.prompts import Prompt

__all__ = ["in_order", "make_agents", "make_engine", "modules_differ"]


def make_agents(config: CrisisConfig, llm_client: LLMClient | None) -> tuple[CrisisAgent, ...]:
    """Return who plays the scenario's agents: a script where there is one, else as configured.

    Raises:
        ConfigError: a model is needed and not there.
    """
    form = config.scenario.briefing.response_format
    found: list[CrisisAgent] = []
    for name in config.scenario.agents:
        if name in config.scripts:
            found.append(ScriptedCrisisAgent(name, config.scripts[name]))
        elif config.agents == "rule":
            found.append(RuleCrisisAgent(name))
        else:
            client = _there(llm_client, f"agent {name!r} is", "agents: rule")
            found.append(LLMCrisisAgent(name, client, response_format=form))
    return tuple(found)


def make_engine(
    config: CrisisConfig, llm_client: LLMClient | None, prompt: Prompt | None
) -> Judges:
    """Return who judges.

    Raises:
        ConfigError: a model is needed and not there.
    """
    if config.engine == "rule":
        return RuleCrisisEngine()
    client = _there(llm_client, "the engine is", "engine: rule")
    return CrisisEngine(client, config.scenario, prompt=prompt, max_events=config.max_events)


def _there(llm_client: LLMClient | None, who: str, instead: str) -> LLMClient:
    if llm_client is None:
        raise ConfigError(
            f"{who} of kind 'llm' and needs a model: CrisisSimulation(config, "
            f"llm_client=connect('auto')); or set '{instead}' in the configuration"
        )
    return llm_client


def in_order(names: Iterable[str], agents: Sequence[CrisisAgent]) -> tuple[CrisisAgent, ...]:
    """Return the agents in the scenario's order.

    Raises:
        ConfigError: they are not the scenario's, each once.
    """
    wanted, there = list(names), [agent.name for agent in agents]
    if sorted(there) != sorted(wanted):
        raise ConfigError(f"agents={there} do not play the scenario's agents, {wanted}, each once")
    by_name = {agent.name: agent for agent in agents}
    return tuple(by_name[name] for name in wanted)


def modules_differ(recorded: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Say how modules differ from recorded ones, by their digests; empty if they do not."""
    found = [f"{name} is missing" for name in recorded if name not in now]
    found += [f"{name} is new" for name in now if name not in recorded]
    found += [
        f"{name} is {digest[:12]} and was {recorded[name][:12]}"
        for name, digest in now.items()
        if recorded.get(name, digest) != digest
    ]
    what = "the modules are not those that the run was recorded with"
    return f"{what}: {', '.join(found)}" if found else ""
