from __future__ import annotations

from typing import Any

import pytest
from context_kit import make_variables
from pydantic import ValidationError

from llmsim_lab.context import EngineOutput, GameEngine
from llmsim_lab.context._engine import engine_output_for
from llmsim_lab.types import reply_schema


def make_engine() -> GameEngine:
    variables = make_variables(
        global_vars={
            "tension": {"type": "scale", "default": 50, "description": "How tense it is."},
            "talks": {"type": "choice", "options": ["Open", "Closed"], "default": "Open"},
            "tax": {"type": "percent", "default": 10, "engine_may_set": False},
        },
        agent_vars={"gold": {"type": "number", "min": 0, "default": 1}},
    )
    return GameEngine({}, {"Ada": {}, "Bo": {}}, variables=variables)


ANSWER: dict[str, Any] = {
    "state_updates": {"global_vars": {"tension": 65}, "agent_vars": {"Ada": {"gold": 3}}},
    "events": [{"type": "trade", "description": "Ada sold wool"}],
    "reasoning": "Wool was dear.",
}


@pytest.mark.parametrize(
    "change",
    [
        {"confidence": 1},
        {"state_updates": {"agents": {}}},
        {"events": [{"type": "a", "description": "b", "secret": "c"}]},
        {"events": [{"type": "a"}]},
        {"state_updates": {"agent_vars": {"Ada": 3}}},
    ],
)
def test_what_is_not_of_the_form_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EngineOutput.model_validate(ANSWER | change)


def test_the_schema_names_what_the_engine_may_change_and_bounds_texts_and_events() -> None:
    schema = reply_schema(engine_output_for(make_engine(), max_events=2))["properties"]
    assert schema["events"]["maxItems"] == 2
    assert schema["events"]["items"]["properties"]["description"]["maxLength"] == 240
    assert schema["reasoning"]["maxLength"] == 240
    updates = schema["state_updates"]["properties"]
    world = updates["global_vars"]["properties"]
    assert list(world) == ["tension", "talks"]
    assert world["tension"] == {
        "type": "integer",
        "minimum": 0,
        "maximum": 100,
        "description": "How tense it is.",
    }
    assert world["talks"] == {"enum": ["Open", "Closed"]}
    assert list(updates["agent_vars"]["properties"]) == ["Ada", "Bo"]
    assert updates["agent_vars"]["properties"]["Bo"]["properties"] == {
        "gold": {"type": "number", "minimum": 0}
    }
