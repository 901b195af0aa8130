"""What the engine's model answers, and the schema that holds it to the scenario's variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NotRequired

from pydantic import ConfigDict, GetJsonSchemaHandler, with_config
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

from llmsim_lab.context.game_engine import GameEngine
from llmsim_lab.context.variables import Variable
from llmsim_lab.values import Decision

__all__ = ["EngineOutput", "Event", "StateUpdates", "engine_output_for", "engine_output_schema"]

_CLOSED = ConfigDict(extra="forbid")


@with_config(_CLOSED)
class Event(TypedDict):
    """Something that happened; prompts show its description."""

    type: str
    description: str


@with_config(_CLOSED)
class StateUpdates(TypedDict):
    """New values by name; which names and values are possible is the ``GameEngine``'s to judge."""

    global_vars: NotRequired[dict[str, Any]]
    agent_vars: NotRequired[dict[str, dict[str, Any]]]


class EngineOutput(Decision):
    """What changes, what happened, and why. What agents read is not the model's to write.

    Attributes:
        state_updates: ``{"global_vars": {name: value}, "agent_vars": {agent: {name: value}}}``.
        events: dicts with ``type`` and ``description``.
        reasoning: why.
    """

    model_config = ConfigDict(extra="forbid")

    state_updates: StateUpdates
    events: list[Event]
    reasoning: str

    @property
    def confidence(self) -> float | None:
        """None: nobody asks for it."""
        return None


def engine_output_schema(
    engine: GameEngine, *, max_events: int = 5, max_text_chars: int = 400
) -> dict[str, Any]:
    """Return the JSON schema of an engine's answer: this scenario's variables and no others.

    Scales and whole percents are integers with bounds, choices are enums, which servers hold a
    model to; bounds of other numbers they do not, so that ``GameEngine`` judges every value. A
    variable that does not change may be left out; one that only code may change is not named.

    Args:
        engine: whose variables and agents.
        max_events: the most events in one step.
        max_text_chars: longest reasoning and longest description of an event, characters.
    """
    text = {"type": "string", "maxLength": max_text_chars}
    return _closed(
        {
            "state_updates": _closed(
                {
                    "global_vars": _optional(engine.definitions_of()),
                    "agent_vars": _closed(
                        {agent: _optional(engine.definitions_of(agent)) for agent in engine.agents},
                        required=(),
                    ),
                }
            ),
            "events": {
                "type": "array",
                "maxItems": max_events,
                "items": _closed(
                    {"type": {"type": "string", "maxLength": 60}, "description": dict(text)}
                ),
            },
            "reasoning": text,
        }
    )


def engine_output_for(
    engine: GameEngine, *, max_events: int = 5, max_text_chars: int = 400
) -> type[EngineOutput]:
    """Return ``EngineOutput`` with this scenario's schema, for ``LLMClient.call_with_retry``.

    The same schema gives the same class, for which clients keep what they make of it.

    Args:
        engine: whose variables and agents.
        max_events: the most events in one step.
        max_text_chars: longest reasoning and longest description of an event, characters.
    """
    schema = engine_output_schema(engine, max_events=max_events, max_text_chars=max_text_chars)
    return _output_model(json.dumps(schema))


@lru_cache(maxsize=64)
def _output_model(schema_json: str) -> type[EngineOutput]:
    schema = json.loads(schema_json)

    class ScenarioOutput(EngineOutput):
        @classmethod
        def __get_pydantic_json_schema__(
            cls, _core: CoreSchema, _handler: GetJsonSchemaHandler
        ) -> JsonSchemaValue:
            marked: JsonSchemaValue = _marked(schema)
            return marked

    ScenarioOutput.__name__ = ScenarioOutput.__qualname__ = EngineOutput.__name__
    return ScenarioOutput


def _marked(schema: Any) -> Any:
    """Return a copy that tells ``reply_schema`` which fields are required: not all."""
    if isinstance(schema, list):
        return [_marked(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copied = {key: _marked(value) for key, value in schema.items()}
    if isinstance(schema.get("required"), list):
        copied["x-required"] = copied["required"]
    return copied


def _closed(
    properties: Mapping[str, Any], *, required: tuple[str, ...] | None = None
) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def _optional(definitions: Mapping[str, Variable]) -> dict[str, Any]:
    properties = {}
    for name, variable in definitions.items():
        if not variable.engine_may_set:
            continue
        schema = variable.json_schema()
        if variable.description:
            schema["description"] = variable.description
        properties[name] = schema
    return _closed(properties, required=())
