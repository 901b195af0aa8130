"""Make a run's parts from its configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from llmsim_lab.agents import Agent, HumanAgent, NationAgent, TaylorRuleAgent
from llmsim_lab.economy import data
from llmsim_lab.economy.macro import MacroModel, RudebuschSvensson, StaticEconomy
from llmsim_lab.economy.rules import TaylorRule
from llmsim_lab.economy.shocks import ShockGenerator
from llmsim_lab.engines import EconomicEngine, Engine
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import AgentState, FrozenDict, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.simulation.config import NationConfig, SimulationConfig
from llmsim_lab.validators import AlwaysValid, EconLLMValidator, Validator

__all__ = [
    "Parts",
    "agents",
    "check_names",
    "check_prompts",
    "engine",
    "initial_state",
    "validator",
    "with_agents",
]


class Parts(TypedDict, total=False):
    """Parts that a run is given instead of those its configuration describes."""

    agents: Sequence[Agent] | None
    validator: Validator | None
    engine: Engine | None


Prompts = Mapping[str, Prompt]
"""Prompts by the part that uses them: ``agent:NAME``, ``validator``, ``engine``."""


def agents(config: SimulationConfig, llm_client: LLMClient | None, prompts: Prompts) -> list[Agent]:
    """Return the configured nations' agents, in order."""
    return [_agent(nation, config, llm_client, prompts) for nation in config.nations]


def _agent(
    nation: NationConfig, config: SimulationConfig, llm_client: LLMClient | None, prompts: Prompts
) -> Agent:
    if nation.kind == "taylor":
        return TaylorRuleAgent(
            nation.name,
            rule=TaylorRule(inflation_target=nation.inflation_target),
            limits=config.engine.limits,
        )
    prompt = prompts.get(f"agent:{nation.name}") or _prompt(nation.prompt)
    if nation.kind == "human":
        if not nation.names_rate:
            _needed(llm_client, f"the engine, for nation {nation.name!r} (names_rate: false)")
        return HumanAgent(
            nation.name,
            profile=nation.profile,
            prompt=prompt,
            limits=config.engine.limits,
            names_rate=nation.names_rate,
            timeout_s=nation.timeout_s,
        )
    client = _needed(llm_client, f"nation {nation.name!r} (kind: llm)")
    return NationAgent(
        nation.name,
        client,
        profile=nation.profile,
        prompt=prompt,
    )


def check_names(names: Iterable[str]) -> None:
    """Refuse two agents of one name.

    Raises:
        ConfigError: it names them.
    """
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ConfigError(f"agents must have different names; twice: {', '.join(twice)}")


def validator(
    config: SimulationConfig, llm_client: LLMClient | None, prompts: Prompts
) -> Validator:
    """Return the configured validator."""
    if config.validator.kind == "always_valid":
        return AlwaysValid()
    return EconLLMValidator(
        _needed(llm_client, "the validator (kind: llm)"),
        config.validator.domain,
        permissive=config.validator.permissive,
        prompt=prompts.get("validator") or _prompt(config.validator.prompt),
    )


def engine(
    config: SimulationConfig, llm_client: LLMClient | None, prompts: Prompts
) -> EconomicEngine:
    """Return the economic engine with the configured economy behind it."""
    macro: MacroModel = StaticEconomy() if config.economy.model == "static" else RudebuschSvensson()
    scale = config.economy.shock_scale
    return EconomicEngine(
        config,
        llm_client,
        macro=macro,
        shocks=ShockGenerator(config.seed, scale=scale) if scale else None,
        prompt=prompts.get("engine") or _prompt(config.engine_prompt),
    )


def initial_state(config: SimulationConfig) -> SimulationState:
    """Return the configured quarter's real data, or the steady state."""
    return SimulationState() if config.start is None else data.initial_state(config.start)


def _prompt(path: Path | None) -> Prompt | None:
    return Prompt.load(path) if path else None


def _needed(llm_client: LLMClient | None, who: str) -> LLMClient:
    if llm_client is not None and not hasattr(llm_client, "call_with_retry"):
        raise ConfigError(f"llm_client={llm_client!r} is no client; make one: connect('auto')")
    if llm_client is None:
        raise ConfigError(
            f"{who} needs a model: Simulation(config, llm_client=connect('auto')). For a run "
            "without one: nations of kind 'taylor' or 'human' and validator kind 'always_valid'"
        )
    return llm_client


def with_agents(state: SimulationState, agents: Sequence[Agent]) -> SimulationState:
    """Return the state with an entry for each agent."""
    missing = {a.name: AgentState(name=a.name) for a in agents if a.name not in state.agents}
    if not missing:
        return state
    return state.model_copy(update={"agents": FrozenDict({**state.agents, **missing})})


def check_prompts(prompts: Prompts, config: SimulationConfig, given: Collection[str]) -> None:
    """Refuse prompts that no part would use.

    Raises:
        ConfigError: it names them, and the parts there are.
    """
    places = {"validator", "engine"} - set(given)
    if "agents" not in given:
        places |= {f"agent:{nation.name}" for nation in config.nations}
    if idle := sorted(prompts.keys() - places):
        raise ConfigError(
            f"prompts for {', '.join(idle)} would not be used; the parts built here are "
            f"{', '.join(sorted(places)) or 'none'} (a part of your own brings its own prompt)"
        )
