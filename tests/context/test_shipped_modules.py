from __future__ import annotations

from typing import Any

import pytest

from llmsim_lab.context import BehaviorModule, ModuleLoader


def shipped(name: str) -> BehaviorModule:
    return ModuleLoader().load([name]).modules[-1]


@pytest.mark.parametrize("name", sorted(path.stem for path in ModuleLoader.shipped.glob("*.yaml")))
def test_every_shipped_module_says_what_it_is_and_describes_its_variables(name: str) -> None:
    module = shipped(name)
    assert module.description
    variables = {**module.variables.global_vars, **module.variables.agent_vars}
    assert variables
    assert [name for name, variable in variables.items() if not variable.description] == []


# Both functions get the same variables here: no module has one name in both places.
@pytest.mark.parametrize(
    ("name", "variables", "words"),
    [
        ("diplomatic_base", {"diplomatic_channels": "Closed"}, "Channels are closed"),
        ("diplomatic_base", {"reputation": 90}, "carries weight (90/100)"),
        ("diplomatic_base", {"allies": "Bo"}, "Your allies: Bo."),
        ("military_base", {"military_readiness": 20}, "WARNING: Your forces are worn (20/100)"),
        ("military_base", {"military_readiness": 90}, "ADVANTAGE: Your forces are at high"),
        ("military_base", {"on_alert": True}, "on alert, which costs 2 points"),
    ],
)
def test_modules_say_what_is_out_of_the_ordinary(name: str, variables: Any, words: str) -> None:
    assert words in shipped(name).call("build_agent_context", "Ada", variables, variables)


@pytest.mark.parametrize(
    ("name", "own", "changes"),
    [
        ("trust_dynamics", {"trust_level": 50, "had_positive_interaction": False}, 49),
        ("trust_dynamics", {"trust_level": 0, "had_positive_interaction": False}, None),
        ("trust_dynamics", {"trust_level": 50, "had_positive_interaction": True}, None),
        ("military_base", {"military_readiness": 60, "on_alert": True}, 58),
        ("military_base", {"military_readiness": 1, "on_alert": True}, 0),
        ("military_base", {"military_readiness": 0, "on_alert": True}, None),
        ("military_base", {"military_readiness": 40, "on_alert": False}, 41),
        ("military_base", {"military_readiness": 50, "on_alert": False}, None),
    ],
)
def test_trust_wears_off_and_so_do_forces_on_alert_which_recover(
    name: str, own: dict[str, Any], changes: int | None
) -> None:
    expected = {} if changes is None else {next(iter(own)): changes}
    assert shipped(name).call("compute_state_updates", "Ada", own, {}, 1) == expected


def test_a_broken_commitment_costs_reputation_once() -> None:
    own = {"reputation": 50, "broke_commitment": True}
    paid = shipped("diplomatic_base").call("compute_state_updates", "Ada", own, {}, 1)
    assert paid == {"reputation": 40, "broke_commitment": False}
    again = shipped("diplomatic_base").call("compute_state_updates", "Ada", own | paid, {}, 1)
    assert again == {}
