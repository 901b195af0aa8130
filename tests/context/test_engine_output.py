from __future__ import annotations

from typing import Any

import pytest
from builders import played
from crisis_kit import judged, make_crisis, make_scenario, said, schema_of
from pydantic import ValidationError

from llmsim_lab.context import EngineOutput


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
    variables = {
        "global_vars": {
            "tension": {"type": "scale", "default": 50, "description": "How tense it is."},
            "tax": {"type": "percent", "default": 10, "engine_may_set": False},
        },
        "agent_vars": {"gold": {"type": "number", "min": 0, "default": 1}},
    }
    scenario = make_scenario(variables=variables, global_vars={})
    crisis = played(
        make_crisis(
            scenario=scenario,
            max_events=2,
            replies=lambda it: judged() if it.site.component == "engine" else said(),
        ),
        1,
    )
    schema = schema_of(crisis, "engine")["properties"]
    assert schema["events"]["maxItems"] == 2
    event = schema["events"]["items"]
    assert {name: its["maxLength"] for name, its in event["properties"].items()} == {
        "type": 60,
        "description": 240,
    }
    assert (event["required"], event["additionalProperties"]) == (["type", "description"], False)
    assert schema["reasoning"]["maxLength"] == 240
    updates = schema["state_updates"]["properties"]
    tension = {"type": "integer", "minimum": 0, "maximum": 100, "description": "How tense it is."}
    assert updates["global_vars"]["properties"] == {"tension": tension}
    gold = {"gold": {"type": "number", "minimum": 0}}
    own = updates["agent_vars"]["properties"]
    assert {name: its["properties"] for name, its in own.items()} == {"Ada": gold, "Bo": gold}
