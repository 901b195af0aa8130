"""One step of a crisis up to the agents' prompts: rules, the engine's judgement, context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from llmsim_lab.calls import Status
from llmsim_lab.concurrency import run_sync
from llmsim_lab.context.builder import AgentContextBuilder
from llmsim_lab.context.composed import ComposedModules
from llmsim_lab.context.crisis_engine import CrisisEngine, Judges
from llmsim_lab.context.crisis_state import Happening, plain
from llmsim_lab.context.game_engine import GameEngine, UpdateRecord
from llmsim_lab.context.loader import ModuleLoader
from llmsim_lab.context.scenario import CrisisScenario
from llmsim_lab.context.updates import apply_deterministic_updates
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.prompts import RenderedPrompt

__all__ = ["SimulatorAgent", "StepRecord", "first_events"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """What a step led to, up to the agents' answers.

    Attributes:
        prompts: what each agent reads.
        events: what they are told has happened.
        updates: every change asked for and what became of it.
        chains: the engine's, then one for each change that was refused or converted.
        reasoning: the engine's.
    """

    prompts: Mapping[str, RenderedPrompt]
    events: tuple[Happening, ...]
    updates: tuple[UpdateRecord, ...]
    chains: tuple[LLMReasoningChain, ...]
    reasoning: str


class SimulatorAgent:
    """Plays a crisis step by step and writes what its agents read.

    Args:
        game_engine: the world.
        context_builder: writes the prompts.
        engine: judges each step: a ``CrisisEngine``, or a ``RuleCrisisEngine``.
        composed_modules: whose rules are applied; the builder's if not given.
        pending: what has happened and nobody was told yet, such as a scenario's first events.
        known: what everybody was told in the step before.

    Attributes:
        last: the latest step, or None.
    """

    def __init__(
        self,
        game_engine: GameEngine,
        context_builder: AgentContextBuilder,
        engine: Judges,
        *,
        composed_modules: ComposedModules | None = None,
        pending: Iterable[Happening] = (),
        known: Iterable[Happening] = (),
    ) -> None:
        self.game_engine = game_engine
        self.context_builder = context_builder
        self.engine = engine
        self.composed_modules = (
            context_builder.composed_modules if composed_modules is None else composed_modules
        )
        self.pending = tuple(pending)
        self.known = tuple(known)
        self.last: StepRecord | None = None

    @classmethod
    def of(
        cls,
        scenario: CrisisScenario,
        llm_client: LLMClient,
        *,
        loader: ModuleLoader | None = None,
        **options: Any,
    ) -> SimulatorAgent:
        """Return one for a scenario, at its start.

        Args:
            scenario: the scenario.
            llm_client: the model that judges.
            loader: where its modules are; the package's own if not given.
            options: of ``CrisisScenario.builder``, such as ``stable_first``.
        """
        modules = scenario.compose(loader)
        return cls(
            scenario.engine(modules),
            scenario.builder(modules, **options),
            CrisisEngine(llm_client, scenario),
            pending=first_events(scenario),
        )

    def process_step(self, step_number: int, agent_responses: Mapping[str, str]) -> dict[str, str]:
        """Play a step and return each agent's prompt; from async code await ``aprocess_step``.

        Rules of the modules first, then the engine's judgement, then the prompts. A step that fails
        leaves the world as it was.

        Args:
            step_number: the number of the step.
            agent_responses: what each agent said in the step before. They are the ones to get a
                prompt; where there are none, in the first step, everybody gets one.

        Raises:
            ModuleError: a module's code failed.
            LLMFailureException: the engine's model failed.
            ConfigError: a response is of somebody who is not there.
        """
        return run_sync(self.aprocess_step(step_number, agent_responses))

    async def aprocess_step(
        self, step_number: int, agent_responses: Mapping[str, str]
    ) -> dict[str, str]:
        """Do what ``process_step`` does."""
        self._check(agent_responses)
        restore = self.game_engine.checkpoint()
        try:
            record = await self._play(step_number, agent_responses)
        except BaseException:
            restore()
            raise
        self.known, self.pending, self.last = record.events, (), record
        return dict(record.prompts)

    def _check(self, responses: Mapping[str, str]) -> None:
        agents = self.game_engine.agents
        if strangers := [name for name in responses if name not in agents]:
            raise ConfigError(
                f"there is no agent {strangers[0]!r} to respond; there are: {', '.join(agents)}"
            )

    async def _play(self, step_number: int, responses: Mapping[str, str]) -> StepRecord:
        updates = apply_deterministic_updates(self.composed_modules, self.game_engine, step_number)
        output, chain = await self.engine.judge(
            self.game_engine,
            step_number=step_number,
            responses=responses,
            events=[item.event for item in (*self.known, *self.pending)],
        )
        updates += self.game_engine.apply_state_updates(output.state_updates)
        happened = [Happening(item["description"], item["type"]) for item in output.events]
        events = (*self.pending, *happened)
        updates = plain(updates)
        chains = [chain] if chain is not None else []
        return StepRecord(
            prompts=self._prompts(step_number, responses, events),
            events=events,
            updates=updates,
            chains=(*chains, *_what_went_wrong(updates, step_number)),
            reasoning=output.reasoning,
        )

    def _prompts(
        self, step_number: int, responses: Mapping[str, str], events: Iterable[Happening]
    ) -> dict[str, RenderedPrompt]:
        state = self.game_engine.get_current_state()
        told = [item.event for item in events]
        return {
            name: self.context_builder.build_prompt(
                agent_name=name,
                step_number=step_number,
                agent_state=state["agent_vars"][name],
                global_state=state["global_vars"],
                other_responses=responses,
                events=told,
            )
            for name in responses or self.game_engine.agents
        }


def first_events(scenario: CrisisScenario) -> tuple[Happening, ...]:
    """Return what has happened before the first step."""
    return tuple(
        Happening(event.description, event.type, source="scenario") for event in scenario.events
    )


def _what_went_wrong(
    updates: Iterable[UpdateRecord], step_number: int
) -> Iterable[LLMReasoningChain]:
    """Make of each change that was refused or converted a decision that people see."""
    for record in updates:
        if record.status == "ok":
            continue
        status: Status = record.status
        what = "refused" if status == "failed" else "taken"
        yield LLMReasoningChain(
            component="update",
            agent=record.agent or "world",
            turn=step_number,
            reasoning=f"{record.source}: {record.variable} = {record.asked!r} was {what}: "
            f"{record.reason}",
            confidence=None,
            status=status,
        )
