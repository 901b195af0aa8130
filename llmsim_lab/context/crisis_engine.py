"""Who judges what a step leads to: a language model, or nobody but the modules' rules."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from llmsim_lab.calls import CallSite
from llmsim_lab.context.engine_output import EngineOutput, engine_output_for
from llmsim_lab.context.engine_prompt import engine_slots
from llmsim_lab.context.game_engine import GameEngine
from llmsim_lab.context.scenario import CrisisScenario
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._chains import chain_of
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.prompts import Prompt, RenderedPrompt

__all__ = ["CrisisEngine", "Judgement", "Judges", "RuleCrisisEngine"]

logger = logging.getLogger(__name__)

_SOURCES = {
    "world": "the world's variables after the modules' rules of step {step}",
    "parties": "the agents' variables after the modules' rules of step {step}",
    "events": "events before step {step}",
    "actions": "the agents' answers of step {before}",
    "variables": "the scenario's and the modules' definitions",
}


class Judgement(NamedTuple):
    """What an engine makes of a step, and why."""

    output: EngineOutput
    chain: LLMReasoningChain | None = None


class Judges(Protocol):
    """The engine's role."""

    async def judge(
        self,
        game_engine: GameEngine,
        *,
        step_number: int,
        responses: Mapping[str, str],
        events: Sequence[Mapping[str, Any]],
    ) -> Judgement:
        """Say what changes in a step and what happens; change nothing.

        Args:
            game_engine: the world as the modules' rules have left it.
            step_number: the number of the step.
            responses: what each agent was heard to say in the step before.
            events: what is known to have happened, dicts with a ``description``.
        """
        ...


class CrisisEngine:
    """A language model that judges: which variables change, what happens, and why.

    It writes nothing that agents read but the events. What it may answer is held by a JSON schema
    to the scenario's variables; whether a value is possible is the ``GameEngine``'s to judge.

    Args:
        llm_client: the model.
        scenario: what it is about.
        prompt: with the slots of the shipped ``crisis_engine``; that one if not given.
        max_events: the most events in a step.
        max_text_chars: longest reasoning and longest description of an event, characters.
    """

    def __init__(
        self,
        llm_client: LLMClient,
        scenario: CrisisScenario,
        *,
        prompt: Prompt | None = None,
        max_events: int = 3,
        max_text_chars: int = 240,
    ) -> None:
        self.llm_client = llm_client
        self.scenario = scenario
        self.prompt = prompt or Prompt.load("crisis_engine")
        self.max_events = max_events
        self.max_text_chars = max_text_chars

    async def judge(
        self,
        game_engine: GameEngine,
        *,
        step_number: int,
        responses: Mapping[str, str],
        events: Sequence[Mapping[str, Any]],
    ) -> Judgement:
        """Ask the model about a step.

        Raises:
            LLMFailureException: the model failed.
        """
        prompt = self.build_prompt(
            game_engine, step_number=step_number, responses=responses, events=events
        )
        site = CallSite(component="engine", turn=step_number)
        output = await self.llm_client.call_with_retry(
            prompt=prompt,
            response_model=engine_output_for(
                game_engine, max_events=self.max_events, max_text_chars=self.max_text_chars
            ),
            check=_events_say_something,
            site=site,
        )
        return Judgement(output, chain_of(output, site, logger=logger, prompt=prompt))

    def build_prompt(
        self,
        game_engine: GameEngine,
        *,
        step_number: int,
        responses: Mapping[str, str],
        events: Sequence[Mapping[str, Any]],
    ) -> RenderedPrompt:
        """Return the prompt about a step; ``judge`` has the words.

        Raises:
            PromptError: an edited prompt has slots that nothing fills.
        """
        slots = engine_slots(
            game_engine, step_number=step_number, responses=responses, events=events
        )
        slots |= {
            "title": self.scenario.title,
            "description": self.scenario.description,
            "time_step_duration": self.scenario.time_step_duration,
        }
        # An edited prompt may do without some of them.
        wanted = {name: value for name, value in slots.items() if name in self.prompt.slots}
        return self.prompt.render(**wanted).sourced(
            {name: words for name, words in _SOURCES.items() if name in wanted},
            step=step_number,
            before=step_number - 1,
        )


class RuleCrisisEngine:
    """No judge: only the modules' rules move the world. A baseline that needs no model."""

    async def judge(
        self,
        game_engine: GameEngine,
        *,
        step_number: int,
        responses: Mapping[str, str],
        events: Sequence[Mapping[str, Any]],
    ) -> Judgement:
        """Change nothing."""
        del game_engine, step_number, responses, events
        nothing = EngineOutput(state_updates={}, events=[], reasoning="")
        return Judgement(nothing)


def _events_say_something(output: EngineOutput) -> str | None:
    if all(event["description"].strip() for event in output.events):
        return None
    return "an event has no description; describe it, or leave it out"
