"""One turn of a recorded run, played again with another prompt for one of its components.

What comes before the component in the turn is taken from the recording; the component, and what
comes after it, are asked. So all variants meet the very same state.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llmsim_lab.agents import Agent
from llmsim_lab.checks import plain_text
from llmsim_lab.concurrency import gather_all
from llmsim_lab.economy.shocks import NO_SHOCKS
from llmsim_lab.engines import EconomicEngine
from llmsim_lab.errors import ConfigError, FailureReason, LLMFailureException
from llmsim_lab.experiments.tally import failed_chains
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._scope import CallLog, Recorder, recording
from llmsim_lab.models import Action, LLMReasoningChain, SimulationState
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.simulation import Simulation, Turn

__all__ = ["Bench", "Sample", "Stage"]

Stage = Literal["agent", "validator", "engine"]
"""The parts of a turn, in the order in which they work."""

NO_SAMPLE: frozenset[FailureReason] = frozenset(
    ("connection_error", "rate_limited", "server_error", "client_error", "model_not_found")
)
"""Failures that say nothing about a prompt: the server's, not the model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One playing of a turn with one variant.

    Attributes:
        number: in the order of playing, from 1.
        variant: the variant's name.
        turn: the turn that is played again.
        sample: which of the variant's samples at this turn, from 1.
        seed: of the model's sampler; the same for all variants.
    """

    number: int
    variant: str
    turn: int
    sample: int
    seed: int


class Bench:
    """A run's turns and parts, ready to be played again.

    Args:
        simulation: the run; it is not changed.
        component: ``agent``, ``agent:NAME``, ``validator`` or ``engine``.
        only_component: whether to ask this component alone, and leave the rest of the turn out.

    Attributes:
        stage: the component's part of a turn.
        tested: the agents whose prompt is under test; empty for validator and engine.
        prompt: the component's prompt as the run used it.

    Raises:
        ConfigError: there is no such component, or it has no prompt.
    """

    def __init__(
        self, simulation: Simulation, component: str, *, only_component: bool = False
    ) -> None:
        self.simulation = simulation
        self.component = plain_text("component", component)
        self.only_component = only_component
        self.stage, self.tested = _tested(simulation, component)
        self.prompt = self._prompt()

    @property
    def _parts(self) -> list[Any]:
        if self.stage == "agent":
            return [agent for agent in self.simulation.agents if agent.name in self.tested]
        return [getattr(self.simulation, self.stage)]

    def _prompt(self) -> Prompt:
        prompts = []
        for part in self._parts:
            prompt = getattr(part, "prompt", None)
            if not isinstance(prompt, Prompt):
                raise ConfigError(
                    f"component={self.component!r}: {part!r} reads no prompt (a rule, or a part "
                    "with a prompt of its own making); choose a component that has one"
                )
            prompts.append(prompt)
        if len(set(prompts)) > 1:
            raise ConfigError(
                f"the agents {', '.join(self.tested)} use different prompts; compare one agent's: "
                f"component='agent:{self.tested[0]}'"
            )
        return prompts[0]

    @property
    def turns(self) -> list[int]:
        """The turns in which the run asked the component, oldest first."""
        return [turn.number for turn in self.simulation.turns[1:] if self.subjects(turn.number)]

    def turn(self, number: int) -> Turn:
        """Return the run's own record of a turn."""
        return self.simulation.turns[number - self.simulation.turns[0].number]

    def before(self, number: int) -> SimulationState:
        """Return the state that a turn was played from."""
        return self.turn(number - 1).state

    def subjects(self, number: int) -> list[str]:
        """Return whom the component decided for in a turn: agents' names."""
        if self.stage == "agent":
            return list(self.tested)
        actions = self.turn(number).actions
        if self.stage == "validator":
            return [action.agent_name for action in actions if action.status != "failed"]
        return [action.agent_name for action in actions if action.validated]

    def check(self, prompt: Prompt, *, name: str) -> None:
        """Refuse a variant whose slots are not the component's, or that cannot be rendered.

        Raises:
            ConfigError: it names the slots.
        """
        wanted, has = set(self.prompt.slots), set(prompt.slots)
        faults = []
        if unknown := sorted(has - wanted):
            faults.append(f"unknown slots {', '.join(unknown)}")
        if missing := sorted(wanted - has):
            faults.append(f"missing slots {', '.join(missing)}")
        if faults:
            raise ConfigError(
                f"variant {name!r}: {'; '.join(faults)}; the {self.stage} fills exactly: "
                f"{', '.join(self.prompt.slots) or 'none'}"
            )

    def render(self, prompt: Prompt, turn: int, *, agent: str | None = None) -> RenderedPrompt:
        """Return a variant as the model would get it in a turn.

        Args:
            prompt: the variant.
            turn: the turn.
            agent: who decides, or whose action is judged or applied; the first if not given.

        Raises:
            ConfigError: the component was not asked for that agent in that turn.
            PromptError: the variant cannot be rendered there.
        """
        names = self.subjects(turn)
        name = agent or (names[0] if names else "")
        if name not in names:
            raise ConfigError(
                f"the {self.stage} was not asked for {name!r} in turn {turn}, but for: "
                f"{', '.join(names) or 'nobody'}"
            )
        # The contracts' own names for how a component writes its prompt.
        if self.stage == "agent":
            part = next(part for part in self._parts if part.name == name)
            text = _with(part, prompt=prompt)._construct_prompt(self.before(turn))
        else:
            part = _with(self._parts[0], prompt=prompt)
            action = next(a for a in self.turn(turn).actions if a.agent_name == name)
            if self.stage == "validator":
                text = part._construct_validation_prompt(action)
            else:
                state = self.before(turn).global_state
                text = part._construct_state_update_prompt(action, state)
        if not isinstance(text, RenderedPrompt):
            raise ConfigError(f"{part!r} does not render its prompt; it cannot be shown")
        return text

    def view(self, turns: Sequence[Turn], prompt: Prompt) -> Simulation:
        """Return the run with other turns and another prompt: to look at, tied to no tape."""
        view = copy.copy(self.simulation)
        view.validator = copy.copy(view.validator)
        if self.stage == "agent":
            view.agents = tuple(
                _with(agent, prompt=prompt) if agent.name in self.tested else agent
                for agent in view.agents
            )
        else:
            setattr(view, self.stage, _with(self._parts[0], prompt=prompt))
        return view.take_over(turns, [], None)

    async def play(
        self, sample: Sample, prompt: Prompt, client: LLMClient, recorder: Recorder | None
    ) -> Turn:
        """Play a sample and return what came of it, as a turn with the sample's number.

        Only what was asked now has chains in it. A model that failed leaves a chain of status
        ``failed`` that says why, and the state as it was before the turn.

        Raises:
            LLMFailureException: the server failed, so that there is no sample.
        """
        log = CallLog(f"an experiment on {self.simulation.config.name}", sample.turn)
        before = self.before(sample.turn)
        work = _Work(actions=[_bare(action) for action in self.turn(sample.turn).actions])
        began = time.perf_counter()
        state = before
        failed = None
        with recording(recorder, log):
            try:
                state = await self._play(work, before, prompt, client)
            except LLMFailureException as failure:
                if failure.reason in NO_SAMPLE:
                    raise
                failed = failure
        calls = log.close()
        chains = [*work.chains, *state.reasoning_chains]
        if failed is not None:
            chains = [*work.chains, *failed_chains(failed, calls, sample.turn, work.chains)]
        return Turn(
            number=sample.number,
            state=state.model_copy(update={"reasoning_chains": tuple(chains)}),
            chains=tuple(chains),
            actions=tuple(work.actions),
            seconds=time.perf_counter() - began,
            calls=calls,
        )

    async def _play(
        self, work: _Work, before: SimulationState, prompt: Prompt, client: LLMClient
    ) -> SimulationState:
        simulation, turn = self.simulation, before.turn + 1
        asked: list[Action] = []
        if self.stage == "agent":
            agents = [
                _with(agent, prompt=prompt, client=client)
                for agent in simulation.agents
                if agent.name in self.tested
            ]
            asked = await _proposals(agents, before)
            work.put(asked, (action.chain for action in asked))
        elif self.stage == "validator":
            plain = {"validated": False, "validation_result": None}
            asked = [action.model_copy(update=plain) for action in work.actions]
        if asked and not (self.only_component and self.stage == "agent"):
            changed = prompt if self.stage == "validator" else None
            validator = _with(simulation.validator, prompt=changed, client=client)
            marked = await validator.validate_actions(asked, before)
            verdicts = (action.validation_result for action in marked)
            work.put(marked, (verdict.chain for verdict in verdicts if verdict))
        if self.only_component and self.stage != "engine":
            return before.model_copy(update={"turn": turn, "reasoning_chains": ()})
        engine = _with(
            simulation.engine, prompt=prompt if self.stage == "engine" else None, client=client
        )
        if isinstance(engine, EconomicEngine):
            done = self.turn(turn).interventions
            engine.extra_shocks = {turn: sum((item.shocks for item in done), start=NO_SHOCKS)}
        engine.current_state = before
        state: SimulationState = await engine.run_turn(work.actions)
        return state


@dataclass(slots=True)
class _Work:
    """What there is of a turn so far."""

    actions: list[Action]
    chains: list[LLMReasoningChain]

    def __init__(self, *, actions: list[Action]) -> None:
        self.actions = actions
        self.chains = []

    def put(self, changed: Sequence[Action], chains: Iterable[LLMReasoningChain | None]) -> None:
        """Put actions in the place of the same agents' earlier ones."""
        new = {action.agent_name: action for action in changed}
        self.actions = [new.get(action.agent_name, action) for action in self.actions]
        self.chains += [chain for chain in chains if chain is not None]


def _bare(action: Action) -> Action:
    """Return a recorded action without its chains, which are the run's, not the sample's."""
    verdict = action.validation_result
    if verdict is not None:
        verdict = verdict.model_copy(update={"chain": None})
    return action.model_copy(update={"chain": None, "validation_result": verdict})


async def _proposals(agents: Sequence[Agent], state: SimulationState) -> list[Action]:
    return await gather_all([agent.decide_action(state) for agent in agents])


def _with(part: Any, *, prompt: Prompt | None = None, client: LLMClient | None = None) -> Any:
    """Return a copy of a part with another prompt and model."""
    new = copy.copy(part)
    if prompt is not None:
        new.prompt = prompt
    if client is not None and hasattr(part, "llm_client"):
        new.llm_client = client
    return new


def _tested(simulation: Simulation, component: str) -> tuple[Stage, tuple[str, ...]]:
    kind, _, name = component.partition(":")
    names = [agent.name for agent in simulation.agents]
    if component == "agent":
        reading = (a for a in simulation.agents if isinstance(getattr(a, "prompt", None), Prompt))
        return "agent", tuple(agent.name for agent in reading) or tuple(names)
    if kind == "agent" and name in names:
        return "agent", (name,)
    if component == "validator":
        return "validator", ()
    if component == "engine":
        return "engine", ()
    there = ", ".join(["agent", *(f"agent:{name}" for name in names), "validator", "engine"])
    raise ConfigError(f"component={component!r} is not a part of this run; it has: {there}")
