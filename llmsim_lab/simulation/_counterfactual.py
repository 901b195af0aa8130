"""What would have happened with a rule or a model in a person's place: same start, same shocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from llmsim_lab.agents import Agent, NationAgent, TaylorRuleAgent
from llmsim_lab.agents._human import HumanAgent
from llmsim_lab.economy import TaylorRule
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import Action, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._run import copied
from llmsim_lab.simulation._config import NationConfig, SimulationConfig
from llmsim_lab.simulation._simulation import Simulation, agent_for
from llmsim_lab.validators import AlwaysValid

_NAMES = {"taylor": "Taylor rule", "hold": "rate held", "llm": "language model"}


def people_in(simulation: Simulation) -> list[HumanAgent]:
    """Return the agents of a run that are people."""
    return [agent for agent in simulation.agents if isinstance(agent, HumanAgent)]


def with_seats(
    simulation: Simulation,
    kind: Literal["taylor", "hold", "llm"],
    *,
    llm_client: LLMClient | None = None,
) -> Simulation:
    """Return a run, at its first turn, in which a rule or a model decides where people did.

    It starts from the same state, has the same shocks and interventions (common random numbers),
    and lasts as many turns as have been played; it is not recorded. Where only rules are left,
    their actions are not checked, so that no model is needed. A state that a fork set in a turn's
    place is not an intervention, and is not set again.

    Args:
        simulation: a run with people in it.
        kind: the Taylor rule with the nation's inflation target; ``hold``, which never moves the
            rate; or a language model with the nation's profile and prompt; where that is the
            shipped one, briefed as the configuration says. All have the moves on offer that the
            people had.
        llm_client: the model; needed where any of the agents or the validator is one.

    Raises:
        ConfigError: there are no people in the run, or it needs a model and none is given.
    """
    people = people_in(simulation)
    if not people:
        raise ConfigError(
            f"{simulation!r} has no people in it; make a nation kind: human, and give it a seat: "
            "HumanSeat(simulation)"
        )
    copies = copied(simulation.parts, llm_client, {})  # the run that is compared with keeps its own
    agents: list[Agent] = [
        _seated(agent, kind, llm_client, simulation.config)
        if isinstance(agent, HumanAgent)
        else agent
        for agent in copies["agents"]
    ]
    rules = all(isinstance(agent, TaylorRuleAgent | _Held) for agent in agents)
    if llm_client is None and not rules:
        raise ConfigError(
            "this run needs a model, for the people's seats or for another agent that is not a "
            "rule; give llm_client=connect('auto')"
        )
    # Parts of the user's own are in no configuration; the others are built from it.
    parts = {name: copies[name] for name in ("validator", "engine") if name in simulation.given}
    if rules:
        parts["validator"] = AlwaysValid()
    config = simulation.config.model_copy(
        update={
            "name": _NAMES[kind],
            "turns": simulation.turn_number - simulation.turns[0].number,
            # What was done to the first turn is in its state already.
            "interventions": tuple(
                item for turn in simulation.turns[1:] for item in turn.interventions
            ),
        }
    )
    state = simulation.turns[0].state.model_copy(update={"reasoning_chains": ()})
    return Simulation(config, llm_client=llm_client, agents=agents, state=state, **parts)


def _seated(
    agent: HumanAgent,
    kind: Literal["taylor", "hold", "llm"],
    client: LLMClient | None,
    config: SimulationConfig,
) -> Agent:
    if kind != "llm":
        rule = rule_for(agent)
        return rule if kind == "taylor" else _Held(rule)
    if client is None:
        raise ConfigError(
            f"the seat of {agent.name!r} needs a model; give llm_client=connect('auto')"
        )
    prompt, moves, profile = agent.prompt, agent.moves_bp, agent.profile
    if prompt.text == Prompt.load("agent_policy").text:
        # Nobody chose a prompt: the model is briefed as one that the configuration names.
        how = {} if moves else {"briefing": "thin", "decide": None}
        config = config.model_copy(update={"moves_bp": moves, **how})
        return agent_for(NationConfig(name=agent.name, **dict(profile)), config, client, {})
    # A prompt of one's own that has no slot for moves asks for words, which the engine judges.
    moves = moves if "moves" in prompt.slots else None
    return NationAgent(agent.name, client, profile=profile, prompt=prompt, moves_bp=moves)


class _Held(Agent):
    """Never moves the rate, which is no rule that a run's check of rules would pass."""

    def __init__(self, place: TaylorRuleAgent) -> None:
        super().__init__(place.name)
        place.rule = lambda **now: now["previous_rate"]
        self._place = place

    async def decide_action(self, state: SimulationState) -> Action:
        """Propose the rate in force."""
        return await self._place.decide_action(state)


def rule_for(agent: HumanAgent) -> TaylorRuleAgent:
    """Return the Taylor rule in a person's place, with what they have on offer."""
    rule = TaylorRule(inflation_target=agent.profile.inflation_target)
    return TaylorRuleAgent(agent.name, rule=rule, limits=agent.limits, moves_bp=agent.moves_bp)


def world_differs(simulation: Simulation, other: Simulation) -> str:
    """Return how two runs differ, apart from who decides; empty if they do not.

    Start, economy, shocks, the rate's limits and interventions are compared, over the turns that
    the first run has played.

    Args:
        simulation: the run to compare with.
        other: it must have as many turns, or more.
    """
    mine = simulation.config
    facts: dict[str, Callable[[Simulation], Any]] = {
        "starting state": lambda run: run.turns[0].state.global_state,
        "economy": lambda run: run.config.economy,
        "limits of the rate": lambda run: run.config.engine,
    }
    if mine.economy.shock_scale:
        facts["seed of the shocks"] = lambda run: run.config.seed
    for what, of in facts.items():
        if of(simulation) != of(other):
            return f"its {what} is another: {of(other)!r:.120}, not {of(simulation)!r:.120}"
    if other.turn_number < simulation.turn_number:
        return f"it has {other.turn_number} turns, and {simulation.turn_number} are compared"
    for ours, theirs in zip(simulation.turns[1:], other.turns[1:], strict=False):
        ours_done, theirs_done = (
            [item.model_dump(exclude={"note"}) for item in turn.interventions]
            for turn in (ours, theirs)
        )
        if ours_done != theirs_done:
            return (
                f"what was done from outside at turn {ours.number} is another: "
                f"{'; '.join(map(str, theirs.interventions)) or 'nothing'}, not "
                f"{'; '.join(map(str, ours.interventions)) or 'nothing'}"
            )
    return ""
