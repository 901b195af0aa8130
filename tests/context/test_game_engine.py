from __future__ import annotations

from typing import Any

import pytest
from context_kit import make_variables

from llmsim_lab.context import GameEngine
from llmsim_lab.errors import ConfigError

TALKS = {"type": "choice", "options": ["Open", "Closed"], "default": "Open"}
DEFINED = make_variables(
    global_vars={
        "tension": {"type": "scale", "default": 50},
        "talks": TALKS,
        "tax": {"type": "percent", "default": 10, "engine_may_set": False},
    },
    agent_vars={"gold": {"type": "number", "min": 0}, "angry": {"type": "flag", "default": False}},
)
OWN = {"Ada": {"gold": 5}, "Bo": {"gold": 2}}


def test_a_state_is_initial_values_and_defaults_in_the_definitions_order() -> None:
    world = {"talks": "Closed", "tension": 60.0}  # which a scale holds as a whole number
    state = GameEngine(world, {"Ada": {"gold": 5}}, variables=DEFINED)
    assert str(state.get_current_state()) == str(
        {
            "global_vars": {"tension": 60, "talks": "Closed", "tax": 10},
            "agent_vars": {"Ada": {"gold": 5, "angry": False}},
        }
    )


@pytest.mark.parametrize(
    ("updates", "reason"),
    [
        ({"global_vars": {"tension": 130}}, "130 is above the greatest value, 100"),
        ({"global_vars": {"mood": 1}}, "unknown variable; there are: tension, talks, tax"),
        ({"global_vars": {"tax": 20}}, "only modules' code may change it"),
        ({"agent_vars": {"Ada": {"mood": 1}}}, "unknown variable; there are: gold, angry"),
        ({"agent_vars": {"Zoe": {"gold": 1}}}, "unknown agent; there are: Ada, Bo"),
    ],
)
def test_an_impossible_update_is_refused_and_recorded_with_its_reason(
    updates: Any, reason: str
) -> None:
    engine = GameEngine({}, OWN, variables=DEFINED)
    before = engine.get_current_state()
    [record] = engine.apply_state_updates(updates)
    assert (record.status, record.reason) == ("failed", reason)
    assert record.before == record.after
    assert engine.get_current_state() == before


def test_values_that_nobody_defines_are_typed_without_bounds() -> None:
    engine = GameEngine({"alert": False, "wind": 3}, {"Ada": {"mood": "calm"}})
    records = engine.apply_state_updates(
        {"global_vars": {"alert": 3, "wind": -1e6}, "agent_vars": {"Ada": {"mood": 5}}}
    )
    assert [(r.column, r.before, r.after, r.status, r.source) for r in records] == [
        ("alert", False, False, "failed", "engine"),
        ("wind", 3, -1e6, "ok", "engine"),
        ("Ada.mood", "calm", "calm", "failed", "engine"),
    ]
    assert engine.get_current_state()["global_vars"] == {"alert": False, "wind": -1e6}


@pytest.mark.parametrize(
    ("world", "own", "message"),
    [
        ({"tension": "7"}, {"gold": 1}, "global_vars.tension: '7' is str, not a number"),
        ({}, {}, "agent_vars.Ada: no value for 'gold', which has no default"),
        ({}, {"gold": -1}, "agent_vars.Ada.gold: -1 is below"),
        ({"ports": ["Kobe"]}, {"gold": 1}, "global_vars.ports: ['Kobe'] is list; a variable holds"),
    ],
)
def test_an_impossible_start_is_refused_naming_the_value(
    world: dict[str, Any], own: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        GameEngine(world, {"Ada": own}, variables=DEFINED)
    assert message in str(caught.value)
