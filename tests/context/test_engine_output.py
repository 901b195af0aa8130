from __future__ import annotations

from typing import Any

import pytest
from context_kit import make_variables
from pydantic import ValidationError

from llmsim_lab.context import EngineOutput, GameEngine
from llmsim_lab.context._engine import engine_output_for
from llmsim_lab.types import reply_schema


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
    empty: dict[str, Any] = {"state_updates": {}, "events": [], "reasoning": "Wool was dear."}
    EngineOutput.model_validate(empty)
    with pytest.raises(ValidationError):
        EngineOutput.model_validate(empty | change)


def test_the_schema_names_what_the_engine_may_change_and_bounds_texts_and_events() -> None:
    variables = make_variables(
        global_vars={
            "tension": {"type": "scale", "default": 50, "description": "How tense it is."},
            "tax": {"type": "percent", "default": 10, "engine_may_set": False},
        },
        agent_vars={"gold": {"type": "number", "min": 0, "default": 1}},
    )
    engine = GameEngine({}, {"Ada": {}, "Bo": {}}, variables=variables)
    schema = reply_schema(engine_output_for(engine, max_events=2))["properties"]
    assert schema["events"]["maxItems"] == 2
    assert schema["events"]["items"]["properties"]["description"]["maxLength"] == 240
    assert schema["reasoning"]["maxLength"] == 240
    updates = schema["state_updates"]["properties"]
    tension = {"type": "integer", "minimum": 0, "maximum": 100, "description": "How tense it is."}
    assert updates["global_vars"]["properties"] == {"tension": tension}
    gold = {"gold": {"type": "number", "minimum": 0}}
    own = updates["agent_vars"]["properties"]
    assert {name: its["properties"] for name, its in own.items()} == {"Ada": gold, "Bo": gold}
