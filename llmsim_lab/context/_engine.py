"""The engine of a crisis: what it is asked, what it may answer, and the contract's simulator.

A language model judges which variables change and what happens. It reads the variables with their
limits and values, and what the agents did. A JSON schema limits its answer to the scenario's
variables, and ``GameEngine`` checks each value.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, WithJsonSchema, create_model, with_config
from typing_extensions import TypedDict

from llmsim_lab._util.checks import instance_of, known_names, whole_number
from llmsim_lab._util.config import Words
from llmsim_lab._util.jsontext import Schema
from llmsim_lab._util.text import rounded
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.context._builder import event_line, quoted
from llmsim_lab.context._variables import Variable, Variables, value_text
from llmsim_lab.context._world import GameEngine, apply_deterministic_updates
from llmsim_lab.context.scenario import CrisisScenario, Happening
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm.client import checked_client
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.types import CallSite, Decision

_SOURCES = {
    "world": "the world's variables after the modules' rules of turn {step}",
    "parties": "the agents' variables after the modules' rules of turn {step}",
    "events": "events before turn {step}",
    "actions": "the agents' answers of turn {before}",
    "variables": "the scenario's and the modules' definitions",
}
"""Where the slots' values come from, in words; ``step`` and ``before`` are turns."""

_MOST_CHARS = 240
"""Of the reasoning, and of an event's description."""
_CLOSED = ConfigDict(extra="forbid")


# Typed dicts, not models: ``build_prompt`` and ``apply_state_updates`` take plain dicts.
@with_config(_CLOSED)
class Event(TypedDict):
    """Something that happened; prompts show its description."""

    type: str
    description: Words


@with_config(_CLOSED)
class StateUpdates(TypedDict):
    """New values by name; ``GameEngine`` judges which names and values are possible."""

    global_vars: NotRequired[dict[str, object]]
    agent_vars: NotRequired[dict[str, dict[str, object]]]


class EngineOutput(Decision):
    """What changes, what happened, and why. The model writes nothing else that agents read.

    Attributes:
        state_updates: ``{"global_vars": {name: value}, "agent_vars": {agent: {name: value}}}``.
        events: dicts with ``type`` and ``description``.
        reasoning: why.
    """

    # Else a misspelt part, such as "state_update", would be taken for a turn without changes.
    model_config = ConfigDict(extra="forbid")

    state_updates: StateUpdates
    events: list[Event]
    reasoning: str


def engine_output_for(
    engine: GameEngine,
    *,
    max_events: int = 3,
) -> type[EngineOutput]:
    """Return ``EngineOutput`` with this scenario's schema, for ``LLMClient.call_with_retry``.

    The schema has this scenario's variables and no others. Scales and whole percents are integers
    with bounds, choices are enums: servers enforce both. They do not enforce bounds of other
    numbers, so ``GameEngine`` judges every value. A variable that does not change may be left out;
    one that only code may change is not named. Make it once: clients keep what they work out of a
    class.

    Args:
        engine: whose variables and agents.
        max_events: the most events in one turn.
    """
    text = {"type": "string", "maxLength": _MOST_CHARS}
    event = _object(
        {
            "type": {"type": "string", "maxLength": 60},
            "description": text,
        }
    )
    changes_of_agent = _changes(engine.variables.agent_vars)
    updates = {
        "global_vars": _changes(engine.variables.global_vars),
        "agent_vars": _object(dict.fromkeys(engine.agents, changes_of_agent), optional=True),
    }
    events = {
        "type": "array",
        "maxItems": max_events,
        "items": event,
    }
    return create_model(
        "EngineOutput",
        __base__=EngineOutput,
        state_updates=Annotated[StateUpdates, WithJsonSchema(_object(updates))],
        events=Annotated[list[Event], WithJsonSchema(events)],
        reasoning=Annotated[str, WithJsonSchema(text)],
    )


def _object(
    properties: Schema,
    *,
    optional: bool = False,
) -> dict[str, Any]:
    required = [] if optional else list(properties)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        "x-required": required,  # for ``reply_schema``, which would require all
    }


def _changes(definitions: Mapping[str, Variable]) -> Schema:
    """Return the schema of an object with new values, of the variables that the engine may set."""
    properties = {}
    for name, variable in definitions.items():
        if not variable.engine_may_set:
            continue
        schema = variable.json_schema()
        if variable.description:
            schema["description"] = variable.description
        properties[name] = schema
    # A model that had to name every variable would write most of them as they are, in many tokens.
    return _object(properties, optional=True)


def _definitions(variables: Variables) -> str:
    """Return a list of the variables that the engine may set."""
    return "\n".join(
        [
            "In global_vars:",
            *_definition_lines(variables.global_vars),
            "In agent_vars, for each party:",
            *_definition_lines(variables.agent_vars),
        ]
    )


def _definition_lines(definitions: Mapping[str, Variable]) -> list[str]:
    lines = []
    for name, variable in definitions.items():
        if variable.engine_may_set:
            # Without a description nothing follows the full stop, which then goes too.
            line = f"- {name}: {limits_of(variable)}. {variable.description}"
            lines.append(line.removesuffix(". "))
    return lines or ["- none"]


def limits_of(variable: Variable) -> str:
    """Return which values a variable takes, in words: ``whole number, 0 to 100``."""
    # From the schema, so that the prompt never says anything else than what is enforced.
    schema = variable.json_schema()
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if schema["type"] == "string":
        return f"a text of at most {schema['maxLength']} characters"
    if schema["type"] == "boolean":
        return "true or false"
    words = "whole number" if schema["type"] == "integer" else "number"
    lowest = schema.get("minimum")
    highest = schema.get("maximum")
    if lowest is not None and highest is not None:
        words += f", {value_text(lowest)} to {value_text(highest)}"
    elif lowest is not None:
        words += f", at least {value_text(lowest)}"
    elif highest is not None:
        words += f", at most {value_text(highest)}"
    step = getattr(variable, "step", None)
    # A step of 1 is said by "whole number" already.
    if step not in (None, 1):
        words += f", in steps of {value_text(step)}"
    return words


def _values(values: Mapping[str, object]) -> str:
    """Return a state's values as the engine reads them: ``water = 40, alert = true``."""
    parts = []
    for name, value in values.items():
        # As JSON, in which the model answers: true, not True; texts in quotation marks.
        parts.append(f"{name} = {json.dumps(rounded(value), ensure_ascii=False)}")
    return ", ".join(parts) or "nothing is recorded"


def engine_prompt(
    prompt: Prompt,
    scenario: CrisisScenario,
    game_engine: GameEngine,
    step_number: int,
    responses: Mapping[str, str],
    events: Iterable[Happening],
) -> RenderedPrompt:
    """Return what the engine reads of a turn.

    Args:
        prompt: one with slots of the shipped ``crisis_engine``; it may do without some of them.
        scenario: what it is about.
        game_engine: the world as the modules' rules have left it.
        step_number: the turn's number.
        responses: each agent's public words of the turn before.
        events: what has happened.

    Raises:
        PromptError: an edited prompt has slots that nothing fills.
    """
    state = game_engine.get_current_state()
    agents = game_engine.agents
    # In the scenario's order, whatever the order of ``responses``: same state, same prompt.
    words = {name: responses[name] for name in agents if name in responses}
    event_lines = [f"- {event_line(event.model_dump())}" for event in events]
    parties = [f"- {agent}: {_values(values)}" for agent, values in state["agent_vars"].items()]
    slots = {
        "title": scenario.title,
        "description": scenario.description,
        "time_step_duration": scenario.time_step_duration,
        "agents": ", ".join(agents),
        "variables": _definitions(game_engine.variables),
        "step": step_number,
        "world": _values(state["global_vars"]),
        "parties": "\n".join(parties),
        "events": "\n".join(event_lines) or "Nothing yet.",
        "actions": quoted(words, agents),
    }
    # An edited prompt may leave slots out, and what no slot takes is an error.
    used = {name: slots[name] for name in slots if name in prompt.slots}
    return prompt.render(**used).sourced(
        _SOURCES,
        step=step_number,
        before=step_number - 1,
    )


class SimulatorAgent:
    """Plays a crisis turn by turn, up to what its agents read.

    Args:
        scenario: the scenario.
        llm_client: the model that judges which variables change, what happens, and why.

    Attributes:
        composed_modules: whose rules are applied.
        game_engine: the world.
        context_builder: writes the prompts.
    """

    def __init__(self, scenario: CrisisScenario, llm_client: LLMClient) -> None:
        self.scenario = instance_of(
            "scenario",
            scenario,
            CrisisScenario,
            "a CrisisScenario, such as CrisisScenario.load('strait')",
        )
        self.llm_client: LLMClient = checked_client(llm_client, "llm_client")
        self.composed_modules = scenario.compose()
        self.game_engine = scenario.engine(self.composed_modules)
        self.context_builder = scenario.builder(self.composed_modules)
        self._reply = engine_output_for(self.game_engine)
        self._pending = scenario.events
        # Events of the last turn, which the engine reads once more with what agents did about them.
        self._known: tuple[Happening, ...] = ()

    def process_step(
        self,
        step_number: int,
        agent_responses: Mapping[str, str],
    ) -> dict[str, str]:
        """Play a turn and return each agent's prompt.

        Rules of the modules first, then the engine's judgement, then the prompts. A turn that fails
        leaves the world as it was.

        Args:
            step_number: the turn's number.
            agent_responses: each agent's words of the turn before. Those agents get a prompt;
                where there are none, as in the first turn, all do.

        Raises:
            ModuleError: a module's code failed.
            LLMFailureException: the engine's model failed.
            ConfigError: a response is of an unknown agent.
        """
        whole_number("step_number", step_number)
        instance_of("agent_responses", agent_responses, Mapping, "a dict of texts by agent")
        # A copy: a turn that fails or is cancelled must not leave half of its changes.
        world = copy.deepcopy(self.game_engine)
        known_names("agent", list(agent_responses), world.agents)
        apply_deterministic_updates(
            self.composed_modules,
            world,
            step_number,
        )
        prompt = engine_prompt(
            Prompt.load("crisis_engine"),
            self.scenario,
            world,
            step_number,
            agent_responses,
            # The engine reads what agents know already and what is pending; they what is new.
            (*self._known, *self._pending),
        )
        asking = self.llm_client.call_with_retry(
            prompt=prompt,
            response_model=self._reply,
            site=CallSite(component="engine", turn=step_number),
        )
        # The contract's method is not a coroutine; notebooks call it while their own loop runs.
        output = run_sync(asking)
        world.apply_state_updates(output.state_updates)
        events = (*self._pending, *happenings(output))
        state = world.get_current_state()
        prompts: dict[str, str] = {}
        # In the first turn no agent has answered yet: all get a prompt.
        for name in agent_responses or world.agents:
            prompts[name] = self.context_builder.build_prompt(
                name,
                step_number,
                state["agent_vars"][name],
                state["global_vars"],
                agent_responses,
                [event.model_dump() for event in events],
            )
        # Only now, when nothing can fail any more.
        self.game_engine = world
        self._known = events
        self._pending = ()
        return prompts


def happenings(output: EngineOutput) -> tuple[Happening, ...]:
    """Return the events of a judgement, as agents read them."""
    # The source is set by code: no model can make its event look like one from outside.
    return tuple(Happening(**event, source="engine") for event in output.events)
