from __future__ import annotations

from typing import Any

import pytest

from llmsim_lab.context import BehaviorModule, ModuleLoader


def shipped(name: str) -> BehaviorModule:
    return ModuleLoader().load([name]).modules[-1]


def says(name: str, own: dict[str, Any], world: dict[str, Any] | None = None) -> str:
    return str(shipped(name).call("build_agent_context", "Ada", own, world or {}))


def changes(name: str, own: dict[str, Any], world: dict[str, Any] | None = None) -> dict[str, Any]:
    made: dict[str, Any] = shipped(name).call("compute_state_updates", "Ada", own, world or {}, 1)
    return made


@pytest.mark.parametrize("name", sorted(path.stem for path in ModuleLoader.shipped.glob("*.yaml")))
def test_every_shipped_module_says_what_it_is_and_describes_its_variables(name: str) -> None:
    module = shipped(name)
    assert module.description
    variables = {**module.variables.global_vars, **module.variables.agent_vars}
    assert variables
    assert [name for name, variable in variables.items() if not variable.description] == []


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"trust_level": 50, "had_positive_interaction": False}, {"trust_level": 49}),
        ({"trust_level": 0, "had_positive_interaction": False}, {}),
        ({"trust_level": 50, "had_positive_interaction": True}, {}),
        ({"trust_level": 50}, {}),
    ],
)
def test_trust_wears_off_without_good_dealings(
    own: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert changes("trust_dynamics", own) == expected


@pytest.mark.parametrize(
    ("own", "world", "words"),
    [
        ({}, {"diplomatic_channels": "Strained"}, "Channels are strained"),
        ({}, {"diplomatic_channels": "Closed"}, "Channels are closed"),
        ({"reputation": 20}, {}, "counts for little (20/100)"),
        ({"reputation": 90}, {}, "carries weight (90/100)"),
        ({"allies": "Bo"}, {}, "Your allies: Bo."),
    ],
)
def test_diplomacy_says_what_is_out_of_the_ordinary(
    own: dict[str, Any], world: dict[str, Any], words: str
) -> None:
    assert words in says("diplomatic_base", own, world)


def test_a_broken_commitment_costs_reputation_once() -> None:
    own = {"reputation": 50, "broke_commitment": True}
    paid = changes("diplomatic_base", own)
    assert paid == {"reputation": 40, "broke_commitment": False}
    assert changes("diplomatic_base", own | paid) == {}


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"military_readiness": 20}, "WARNING: Your forces are worn (20/100)"),
        ({"military_readiness": 90}, "ADVANTAGE: Your forces are at high readiness (90/100)"),
        ({"on_alert": True}, "on alert, which costs 2 points"),
    ],
)
def test_forces_say_what_is_out_of_the_ordinary(own: dict[str, Any], words: str) -> None:
    assert words in says("military_base", own)


@pytest.mark.parametrize(
    ("readiness", "on_alert", "expected"),
    [
        (60, True, {"military_readiness": 58}),
        (1, True, {"military_readiness": 0}),
        (0, True, {}),
        (40, False, {"military_readiness": 41}),
        (50, False, {}),
    ],
)
def test_an_alert_wears_forces_out_and_rest_restores_them(
    readiness: int, on_alert: bool, expected: dict[str, Any]
) -> None:
    own = {"military_readiness": readiness, "on_alert": on_alert}
    assert changes("military_base", own) == expected
