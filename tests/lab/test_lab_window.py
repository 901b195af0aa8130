"""The window over a run: one selection for all parts, forks and restarts with what was changed."""

from __future__ import annotations

import asyncio
import importlib
import math
import sys
from typing import Any

import pytest
from builders import answer, make_client, make_simulation
from pydantic import BaseModel, Field

from llmsim_lab._util.files import data_path
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import Lab
from llmsim_lab.lab._lab import Form
from llmsim_lab.llm import Person
from llmsim_lab.run import Run, load

pytestmark = pytest.mark.usefixtures("undrawn")
TAPES = [("first_run", 1), ("crisis", 1), ("social", 1), ("assistant", 1)]
TEMPLATES = sorted(path.stem for path in data_path("templates").glob("*.py"))


def template(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a template's module, imported as a user's is."""
    monkeypatch.syspath_prepend(str(data_path("templates")))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


def world(name: str, monkeypatch: pytest.MonkeyPatch, **given: Any) -> Run:
    """Return a template's world played by its rules for four turns."""
    cls: Any = next(
        it
        for it in vars(template(name, monkeypatch)).values()
        if isinstance(it, type) and issubclass(it, Run) and it is not Run
    )
    run: Run = cls(players={"*": "rule"}, **given)
    run.run(4, progress=False)
    return run


def field(lab: Lab, *place: str) -> Any:
    return {**lab.parameters.fields, **lab.outside.fields}[place]


# One selection


@pytest.mark.parametrize(("name", "number"), TAPES)
def test_on_every_world_all_parts_show_the_turn_that_is_chosen(name: str, number: int) -> None:
    lab = Lab(data_path(f"tapes/{name}.tape"), run=number)
    lab.slider.value = 1
    assert lab.error.value == ""
    assert "Turn 1" in lab.heading.value
    assert lab.prompts is not None
    assert lab.shown == lab.turn_box.value == lab.prompts.turn_box.value == 1
    assert "Turn 1" in lab.prompts.heading.value
    lab.change_button.value = True
    assert lab.parameters.fields
    lab.close()


@pytest.mark.parametrize("name", TEMPLATES)
def test_on_a_world_of_ones_own_it_plays_looks_and_forks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(world(name, monkeypatch))
    assert lab.chart is not None
    lab.show(2)
    lab.fork_button.click()
    asyncio.run(lab.idle())
    lab.step_button.click()
    asyncio.run(lab.idle())
    assert lab.error.value == ""
    assert (lab.simulation.turn_number, lab.shown) == (3, 3)
    assert [track.name for track in lab.chart._tracks] == ["original", f"{lab.simulation.name} 1"]


async def test_a_search_in_the_prompts_takes_all_parts_to_where_it_is_found() -> None:
    lab = Lab(make_simulation(names=("Aland",)))
    await lab.play(3)
    assert lab.prompts is not None
    assert lab.prompts.find("Aland sees turn 2.")
    await asyncio.sleep(0)
    assert lab.shown == lab.slider.value == 2
    assert "Turn 2" in lab.heading.value


async def test_who_is_looked_at_stays_in_a_fork() -> None:
    lab = Lab(make_simulation(names=("Aland", "Borduria")))
    await lab.play(2)
    assert lab.prompts is not None
    lab.prompts.show(component="agent", agent="Borduria")
    lab.fork(1)
    assert "Borduria" in lab.prompts.heading.value
    assert lab.prompts.simulation is lab.simulation


def test_the_parts_that_are_led_have_no_navigation_of_their_own() -> None:
    lab = Lab(data_path("tapes/first_run.tape"))
    assert lab.prompts is not None
    assert lab.prompts.turn_box in lab.prompts.navigation.children
    assert lab.prompts.navigation.layout.display == "none"


# Keys, as the page sends them


async def test_space_plays_and_pauses_and_enter_steps() -> None:
    gate, asked = asyncio.Event(), asyncio.Event()

    async def slowly(request: Any) -> Any:
        asked.set()
        await gate.wait()
        return answer(request)

    lab = Lab(make_simulation(slowly))
    lab._press("play")
    await asked.wait()
    lab._press("step")  # while a turn is under way Enter does nothing
    lab._press("play")
    assert "finished first" in lab.status.value
    gate.set()
    await lab.idle()
    assert lab.simulation.turn_number == 1
    lab._press("step")
    await lab.idle()
    assert lab.simulation.turn_number == 2


# Changing


def test_a_parameter_has_a_control_with_its_limits_and_restarts_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab(world("beauty_contest", monkeypatch))
    lab.change_button.value = True
    factor = field(lab, "factor")
    assert factor.value == 0.5
    factor.box.value = "2"
    lab.restart_button.click()
    asyncio.run(lab.idle())
    assert "factor is 2; it must be a number above 0 and below 1" in lab.error.value
    assert lab.forks == []
    factor.box.value = "0.25"
    field(lab, "group").box.value = "Ann, Bob"
    lab.restart_button.click()
    asyncio.run(lab.idle())
    assert lab.error.value == ""
    new = lab.simulation.config
    assert (new.factor, list(new.group), lab.simulation.turn_number) == (0.25, ["Ann", "Bob"], 0)
    assert "restart 1 of the original with group Ann, Bob; factor 0.25" in lab.status.value


async def test_a_part_of_a_parameter_can_be_changed_alone() -> None:
    lab = Lab(make_simulation())
    before = lab.simulation.config
    new = lab.restart(economy={"shock_scale": 2.0})
    assert new.config.economy.shock_scale == 2
    assert new.config.nations == before.nations
    assert await lab.step() is new.turns[-1]


def test_a_state_is_changed_at_the_turn_shown_and_an_event_on_the_way_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab(make_simulation())
    asyncio.run(lab.play(2))
    lab.show(1)
    lab.change_button.value = True
    field(lab, "set", "inflation").value = 9
    field(lab, "shock", "supply").value = 2
    field(lab, "note").value = "war"
    lab.apply_button.click()
    asyncio.run(lab.idle())
    assert lab.error.value == ""
    fork = lab.simulation
    assert [str(it) for it in fork.turns[1].interventions] == ["turn 1: inflation=9 (war)"]
    assert [str(it) for it in fork.planned[2]] == ["turn 2: supply shock +2 (war)"]


def test_an_edited_prompt_is_asked_with_in_the_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def hears(request: Any) -> Any:
        asked.append(request.prompt)
        return answer(request)

    lab = Lab(make_simulation(hears))
    asyncio.run(lab.step())
    lab.change_button.value = True
    text = lab._texts["agent_policy"]
    text.value = text.value.replace("## User", "## User\nBe bold.", 1)
    lab.apply_button.click()
    asyncio.run(lab.idle())
    asyncio.run(lab.step())
    assert lab.error.value == ""
    assert "Be bold." in asked[-1] or any("Be bold." in prompt for prompt in asked[3:])
    assert not any("Be bold." in prompt for prompt in asked[:3])


def test_a_model_that_is_only_named_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"llm_client is a str, not a client; pass connect"):
        Lab(data_path("tapes/first_run.tape"), llm_client="auto")  # type: ignore[arg-type]


def test_a_restart_of_a_recorded_run_needs_a_model_and_says_how_to_give_one() -> None:
    lab = Lab(data_path("tapes/first_run.tape"), run=1)
    with pytest.raises(ConfigError, match=r"llm_client=connect"):
        lab.restart(seed=9)
    lab.llm_client = make_client(answer)
    new = lab.restart(seed=9)
    assert (new.seed, new.turn_number) == (9, 0)
    assert "read" in new.unrecorded


def test_what_is_left_open_is_shown_so_and_no_change() -> None:
    lab = Lab(data_path("tapes/crisis.tape"), run=1)
    lab.change_button.value = True
    replicate = field(lab, "replicate")
    assert (replicate.box.value, replicate.value, lab.parameters.changed) == ("", None, {})
    replicate.box.value = "900"
    field(lab, "stable_first").value = False
    field(lab, "scenario", "modules").box.value = "military_base, agents_base"
    assert lab.parameters.changed == {
        "replicate": 900,
        "stable_first": False,
        "scenario": {"modules": ["military_base", "agents_base"]},
    }


class Parameters(BaseModel):
    group: list[str] = ["Ann", "Bob"]
    nobody: list[str] = []
    limit: float = math.inf
    seed: int = 2**64 - 1


def test_parameters_that_are_not_touched_are_no_change_and_a_list_can_be_emptied() -> None:
    form = Form(Parameters.model_json_schema(), Parameters().model_dump(mode="json"))
    assert form.changed == {}
    form.fields[("group",)].box.value = ""
    form.fields[("limit",)].box.value = "3"
    assert form.changed == {"group": [], "limit": 3}


class Part(BaseModel):
    most: int = Field(7, le=5)
    either: int | str = "auto"


def test_there_is_a_field_for_what_is_outside_its_limits_and_of_a_second_type() -> None:
    form = Form(Part.model_json_schema(), Part().model_dump(mode="json"))
    assert form.changed == {}
    form.fields[("either",)].box.value = "3"
    form.fields[("most",)].box.value = "6"
    with pytest.raises(ConfigError, match="most is 6; it must be a whole number of at most 5"):
        _ = form.changed
    form.fields[("most",)].box.value = "5"
    assert form.changed == {"either": 3, "most": 5}


def test_looking_at_what_can_be_changed_of_a_crisis_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = Lab(data_path("tapes/crisis.tape"), run=1)
    lab.change_button.value = True
    assert ("set", "crisis_level") in lab.outside.fields
    assert caplog.text == ""


def test_numbers_of_a_state_that_no_field_can_hold_exactly_are_no_change() -> None:
    numbers = {"type": "object", "additionalProperties": {"type": "number"}}
    schema = {"type": "object", "properties": {"set": numbers}}
    form = Form(schema, {}, settable={"money": 1e18 / 7, "price": math.nan, "rate": 1.5})
    form.fields["set", "rate"].box.value = "2"
    assert form.renew({"money": 2e18 / 7, "price": 3.0, "rate": 1.75})
    assert form.changed == {"set": {"rate": 2}}
    assert form.fields["set", "price"].value == 3


def test_a_wrong_parameter_is_explained_in_place() -> None:
    lab = Lab(make_simulation())
    lab.change_button.value = True
    field(lab, "start").value = "soon"
    lab.restart_button.click()
    asyncio.run(lab.idle())
    assert "start" in lab.error.value
    assert lab.forks == []


# People, and what is kept


async def test_a_persons_form_is_there_where_people_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    game = template("public_goods", monkeypatch).PublicGoods
    lab = Lab(game(players={"Ann": Person(), "*": "rule"}))
    assert lab.seat is not None
    lab.step_button.click()
    async with asyncio.timeout(20):
        while not lab.seat.waiting_for:  # noqa: ASYNC110 - what the user sees
            await asyncio.sleep(0.01)
    lab.seat.answer(amount=3, reasoning="It pays.", confidence=1)
    await lab.idle()
    assert lab.simulation.state.gifts["Ann"] == 3


def test_the_static_view_has_the_chart_the_turn_and_the_decisions() -> None:
    lab = Lab(load(data_path("tapes/first_run.tape"), 1))
    html = str(lab.static_html())
    assert "<img" in html
    assert "Turn 8" in html
    assert "Decisions" in html
    assert lab.static_text().startswith("Lab of ")
