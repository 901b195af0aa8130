"""The context X-ray: sections with their modules, a module taken out, and what that changes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from crisis_kit import crisis_client, make_crisis, said, talking

from llmsim_lab._util.files import data_path
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import (
    ContextXRay,
    PromptViewer,
    RateChart,
    ReasoningInspector,
    RunTree,
    TurnStepper,
)
from llmsim_lab.lab._context_xray import as_attempt
from llmsim_lab.prompts import Prompt

from builders import make_simulation  # isort: skip

HOSTILE = "<script>alert(1)</script> \x1b[31m</style><img src=x onerror=y> \u202e" + "x" * 100_000


def modules() -> list[Any]:
    return [talking("mud", "Mud everywhere."), talking("fog", "Fog as well.")]


def test_of_a_tape_whose_latest_run_is_no_crisis_the_error_names_one_that_is() -> None:
    with pytest.raises(ConfigError, match=r"Chat has no context modules; .* shows any$"):
        ContextXRay(data_path("tapes/assistant.tape"))
    with pytest.raises(ConfigError, match=r"PromptViewer shows any$"):
        ContextXRay(data_path("tapes/first_run.tape"))


@pytest.fixture
def crisis() -> Any:
    simulation = make_crisis(modules=modules())
    simulation.run(2)
    return simulation


def test_each_section_has_its_module_and_its_tokens(crisis: Any) -> None:
    xray = ContextXRay(crisis)
    lines = xray.static_text().splitlines()
    assert lines[0].startswith("Ada, turn 2: about ")
    assert "  MUD: module mud, user, 7 tokens" in lines
    assert "  SITUATION: context builder, user, " in xray.static_text()
    assert "module mud" in xray.sections.value
    assert "Mud everywhere." in xray.prompt.value


def test_bars_say_how_many_tokens_each_module_has(crisis: Any) -> None:
    xray = ContextXRay(crisis)
    said = re.sub("<[^>]+>", " ", xray.sections.value)
    assert re.search(r"mud +7 tokens, \d+%", said)
    xray.silence("mud")
    assert re.search(r"mud +7 tokens, left out", re.sub("<[^>]+>", " ", xray.sections.value))
    assert "Tokens by module" in xray.static_html()


def test_a_module_taken_out_is_gone_from_the_prompt_and_stands_in_the_changes(
    crisis: Any,
) -> None:
    xray = ContextXRay(crisis)
    assert xray.changes.value == ""
    xray.module_boxes["mud"].value = False
    assert "Mud everywhere." not in xray.prompt.value
    assert "Fog as well." in xray.prompt.value
    assert "Mud" in xray.changes.value
    assert "without mud (-7)" in xray.heading.value
    assert "  MUD: module mud, user, 7 tokens (left out)" in xray.static_text()
    xray.module_boxes["mud"].value = True
    assert "Mud everywhere." in xray.prompt.value


def test_the_changes_leave_out_the_many_lines_that_stay() -> None:
    lines = "\n".join(f"Line {number}" for number in range(1_000))
    long = make_crisis(modules=[talking("tale", lines), talking("mud", "Mud everywhere.")])
    xray = ContextXRay(long)
    xray.silence("mud")
    assert "<del" in xray.changes.value
    assert "Mud everywhere." in xray.changes.value
    assert "Line 5" not in xray.changes.value
    assert " lines before it stay." in xray.changes.value
    assert "were compared" not in xray.changes.value


def test_a_module_that_said_nothing_changes_nothing(crisis: Any) -> None:
    quiet = make_crisis(modules=[talking("hush", "")])
    xray = ContextXRay(quiet)
    xray.silence("hush")
    assert "had nothing to say to this agent" in xray.changes.value


def test_agent_and_turn_are_chosen(crisis: Any) -> None:
    xray = ContextXRay(crisis, agent="Bo", turn=1)
    assert "Step 1" in xray.prompt.value
    xray.turn_box.value = 2
    assert "Ada opens gate 1" in xray.prompt.value
    xray.agent_box.value = "Ada"
    assert "Bo opens gate 1" in xray.prompt.value


def test_a_new_turn_is_shown_to_who_looked_at_the_latest(crisis: Any) -> None:
    xray = ContextXRay(crisis)
    crisis.run(1)
    assert xray.turn_box.value == 3
    xray.turn_box.value = 1
    crisis.run(1)
    assert (xray.turn_box.value, xray.turn_box.max) == (1, 4)
    xray.close()
    crisis.run(1)
    assert xray.turn_box.max == 4


def test_a_run_that_was_not_played_has_a_preview() -> None:
    assert "turn 1 (a preview: it has not been played)" in ContextXRay(make_crisis()).static_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"agent": "Eve"}, "there is no agent 'Eve'"),
        ({"turn": 9}, "the run has no turn 9; it has turns 1 to 2"),
    ],
)
def test_a_wrong_agent_or_turn_is_named(
    crisis: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ContextXRay(crisis, **arguments)


def test_a_module_that_is_not_there_is_named(crisis: Any) -> None:
    with pytest.raises(ConfigError, match="no module 'ice'; there are: mud, fog"):
        ContextXRay(crisis).silence("ice")


def test_other_simulations_have_no_context_modules() -> None:
    with pytest.raises(ConfigError, match="Simulation has no context modules"):
        ContextXRay(make_simulation())


def test_hostile_words_are_text_only(crisis: Any) -> None:
    client = crisis_client(
        lambda request: (
            {
                "state_updates": {},
                "events": [{"type": "x", "description": HOSTILE[:300]}],
                "reasoning": HOSTILE,
            }
            if request.site.component == "engine"
            else said(HOSTILE)
        ),
        num_ctx=400_000,
    )
    simulation = make_crisis(modules=[talking("mud", HOSTILE)], client=client)
    simulation.run(2)
    xray = ContextXRay(simulation)
    whole = xray.prompt.value + xray.sections.value + str(xray.static_html())
    xray.silence("mud")
    whole += xray.changes.value + str(xray.static_html())
    assert "<script" not in whole
    assert "<img" not in whole
    assert "\x1b" not in whole
    assert len(xray.prompt.value) < 100_000


def test_the_other_widgets_need_no_special_case(tmp_path: Path) -> None:
    simulation = make_crisis(tmp_path / "a.tape", scenario="strait")
    simulation.run(2)
    viewer = PromptViewer(simulation)
    viewer.show(turn=2, component="agent", agent="Japan")
    assert viewer.provenance == simulation.context_of("Japan", 2).provenance
    assert "TRUST DYNAMICS = " in viewer.static_text() or "TRUST DYNAMICS" in viewer.legend.value
    assert "module trust_dynamics" in viewer.legend.value
    viewer.show(turn=2, component="engine")
    assert "events before turn 2" in viewer.legend.value
    assert "Taiwan" in ReasoningInspector(simulation).static_text()
    assert "Crisis level" in TurnStepper(simulation).static_text()
    assert "Crisis level" in str(RateChart(simulation).static_html())
    assert "crisis" in RunTree(tmp_path / "a.tape").static_text()


async def test_the_stepper_plays_a_crisis() -> None:
    simulation = make_crisis()
    stepper = TurnStepper(simulation)
    stepper.step_button.click()
    await stepper.idle()
    assert simulation.turn_number == 1
    assert "Water level" in stepper.static_text() or "Water level" in str(stepper.static_html())


def test_lines_are_cut_not_wrapped() -> None:
    simulation = make_crisis(modules=[talking("mud" * 200, "Mud all around.")])
    simulation.run(1)
    cut = [line for line in ContextXRay(simulation).static_text().splitlines() if len(line) == 300]
    assert len(cut) == 1
    assert re.match(r"  \S.*…$", cut[0])


def test_a_prompts_two_messages_have_their_roles() -> None:
    prompt = Prompt("It is war.", system="Be calm.").render()
    messages = as_attempt(prompt).request.messages
    assert [(message.role, message.content) for message in messages] == [
        ("system", "Be calm."),
        ("user", "It is war."),
    ]
