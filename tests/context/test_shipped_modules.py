from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from llmsim_lab.context import BehaviorModule, ModuleLoader
from llmsim_lab.context.definitions import diplomatic_base, military_base, trust_dynamics


def shipped(name: str) -> BehaviorModule:
    return ModuleLoader().load([name]).modules[-1]


@pytest.mark.parametrize("name", sorted(path.stem for path in ModuleLoader.shipped.glob("*.yaml")))
def test_every_shipped_module_says_what_it_is_and_describes_its_variables(name: str) -> None:
    module = shipped(name)
    assert module.description
    variables = {**module.variables.global_vars, **module.variables.agent_vars}
    assert variables
    assert [name for name, variable in variables.items() if not variable.description] == []


WORN = "WARNING: Your forces are worn ({}/100). A show of force may fail."
STRONG = "ADVANTAGE: Your forces are at high readiness ({}/100)."
DOUBTED = "Your word counts for little ({}/100): others want guarantees."
BELIEVED = "Your word carries weight ({}/100): others take your assurances."
DISTRUSTED = "WARNING: Trust critically low ({}/100). Others view you with suspicion."
TRUSTED = "ADVANTAGE: High trust ({}/100). Others are receptive to your proposals."
STRAINED = "Channels are strained: expect slow answers, and hidden meanings read into yours."
CLOSED = "Channels are closed: what you say reaches the other parties only in public."
FRIENDS = "Your allies: Bo. They expect to hear from you before you act."
ALERT = "Your forces are on alert, which costs 2 points a step."


# Both functions get the same variables here: no module has one name in both places.
@pytest.mark.parametrize(
    ("module", "variables", "words"),
    [
        (diplomatic_base, {}, None),
        (diplomatic_base, {"reputation": 29}, DOUBTED.format(29)),
        (diplomatic_base, {"reputation": 30}, None),
        (diplomatic_base, {"reputation": 70}, None),
        (diplomatic_base, {"reputation": 71}, BELIEVED.format(71)),
        (diplomatic_base, {"diplomatic_channels": "Strained"}, STRAINED),
        (
            diplomatic_base,
            {"diplomatic_channels": "Closed", "reputation": 90, "allies": "Bo"},
            f"{CLOSED}\n{BELIEVED.format(90)}\n{FRIENDS}",
        ),
        (military_base, {}, None),
        (military_base, {"military_readiness": 29}, WORN.format(29)),
        (military_base, {"military_readiness": 30}, None),
        (military_base, {"military_readiness": 85}, None),
        (military_base, {"military_readiness": 86}, STRONG.format(86)),
        (
            military_base,
            {"military_readiness": 90, "on_alert": True},
            f"{STRONG.format(90)}\n{ALERT}",
        ),
        (trust_dynamics, {}, "Your trust is stable (50/100)."),
        (trust_dynamics, {"trust_level": 29}, DISTRUSTED.format(29)),
        (trust_dynamics, {"trust_level": 30}, "Your trust is stable (30/100)."),
        (trust_dynamics, {"trust_level": 70}, "Your trust is stable (70/100)."),
        (
            trust_dynamics,
            {"trust_level": 71, "trust_note": "Remember?"},
            TRUSTED.format(71) + "\nRemember?",
        ),
    ],
)
def test_modules_say_what_is_out_of_the_ordinary(
    module: ModuleType, variables: Any, words: str | None
) -> None:
    assert module.build_agent_context("Ada", variables, variables) == words


@pytest.mark.parametrize(
    ("module", "own", "changes"),
    [
        (trust_dynamics, {}, {}),
        (trust_dynamics, {"had_positive_interaction": False}, {"trust_level": 49}),
        (
            trust_dynamics,
            {"trust_level": 1, "had_positive_interaction": False},
            {"trust_level": 0},
        ),
        (trust_dynamics, {"trust_level": 0, "had_positive_interaction": False}, {}),
        (trust_dynamics, {"trust_level": 50, "had_positive_interaction": True}, {}),
        (military_base, {}, {}),
        (military_base, {"on_alert": True}, {"military_readiness": 48}),
        (military_base, {"military_readiness": 1, "on_alert": True}, {"military_readiness": 0}),
        (military_base, {"military_readiness": 0, "on_alert": True}, {}),
        (
            military_base,
            {"military_readiness": 49, "on_alert": False},
            {"military_readiness": 50},
        ),
        (military_base, {"military_readiness": 50, "on_alert": False}, {}),
        (diplomatic_base, {"reputation": 50}, {}),
        (
            diplomatic_base,
            {"broke_commitment": True},
            {"reputation": 40, "broke_commitment": False},
        ),
        (
            diplomatic_base,
            {"reputation": 9, "broke_commitment": True},
            {"reputation": 0, "broke_commitment": False},
        ),
    ],
)
def test_trust_wears_off_a_broken_word_costs_reputation_and_forces_tire_on_alert_or_recover(
    module: ModuleType, own: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert module.compute_state_updates("Ada", own, {}, 1) == changes
