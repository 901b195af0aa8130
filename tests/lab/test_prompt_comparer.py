"""The prompt comparer as its user has it: typing, running, stopping, looking at results."""

from __future__ import annotations

import asyncio
import html
import re
from pathlib import Path
from typing import Any

import pytest
from builders import answer, in_words, make_simulation, policy, rate_update
from markupsafe import Markup

from llmsim_lab._util.files import data_path
from llmsim_lab._util.html import visible
from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.lab import PromptComparer
from llmsim_lab.lab._prompt_comparer import read_turns, spread, turns_text
from llmsim_lab.llm import Tape
from llmsim_lab.simulation import Simulation
from llmsim_lab.study import Comparison
from llmsim_lab.study._figures import difference_in_words
from llmsim_lab.types import ChatRequest

HOSTILE = (
    "Raise the interest rate <script>alert(1)</script><img src=x onerror=alert(1)></style>"
    "\x1b[31m \u202eetar"
)


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts without their pictures; ``test_drawing`` draws them."""

    def words_only(results: Comparison, outcome: Any) -> Markup:
        return Markup('<img alt="{}">').format(visible(difference_in_words(results, outcome)))

    monkeypatch.setattr("llmsim_lab.lab._prompt_comparer.chart_html", words_only)


async def played(replies: Any = answer, *, turns: int = 3, **config: Any) -> Simulation:
    simulation = make_simulation(replies, names=("Aland",), **config)
    await simulation.arun(turns)
    return simulation


def plan_of(widget: PromptComparer) -> str:
    return html.unescape(re.sub("<[^>]+>", "", widget.plan_line.value))


def hawkish(widget: PromptComparer) -> None:
    """Type another role into the second variant."""
    box = widget.editors[1].text_box
    box.value = box.value.replace("an economic policy advisor", "a hawk")


# Editing


async def test_it_opens_with_the_runs_own_prompt_twice_and_a_plan() -> None:
    simulation = await played()
    widget = PromptComparer(simulation, samples=2)
    assert [editor.name for editor in widget.editors] == ["as it was", "variant 2"]
    assert widget.editors[0].text_box.value == simulation.agents[0].prompt.text  # type: ignore[attr-defined]
    assert plan_of(widget).startswith(
        "2 variants, 3 turns, 2 samples: 12 samples to play: 36 model"
    )
    assert "An estimate" in plan_of(widget)
    assert not widget.run_button.disabled
    assert widget.stop_button.disabled


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("{{ inflaton }}", "unknown slots inflaton; missing slots inflation"),
        ("{{ inflation", "line "),
        ("{% if %}", "line "),
    ],
)
async def test_a_wrong_slot_is_said_under_the_editor_as_it_is_typed(typed: str, said: str) -> None:
    widget = PromptComparer(await played())
    box = widget.editors[1].text_box
    right = box.value
    box.value = right.replace("{{ inflation }}", typed)
    assert said in widget.editors[1].note.value
    assert 'role="alert"' in widget.editors[1].note.value
    assert widget.run_button.disabled
    assert "samples to play" in plan_of(widget)
    assert "Cannot run: variant 'variant 2'" in plan_of(widget)
    assert list(widget.preview.variant_choice.options) == [("as it was", "as it was")]
    box.value = right
    assert "Slots filled: profile, gdp_growth" in widget.editors[1].note.value
    assert not widget.run_button.disabled


async def test_what_differs_from_the_first_variant_is_shown_word_by_word() -> None:
    widget = PromptComparer(await played())
    assert "no change" in widget.editors[1].difference.value
    hawkish(widget)
    shown = re.sub(r"<(\w+)[^>]*>", r"<\1>", widget.editors[1].difference.value)
    assert "advisor</del>" in shown
    assert "hawk</ins>" in shown
    assert "compared with this one" in widget.editors[0].difference.value


async def test_the_prompt_is_shown_as_the_model_would_get_it_on_a_chosen_state() -> None:
    simulation = await played(start="1979Q3")
    widget = PromptComparer(simulation)
    hawkish(widget)
    widget.preview.variant_choice.value = "variant 2"
    widget.preview.turn_choice.value = 2
    assert "You are a hawk" in widget.preview.view.value
    inflation = simulation.turns[1].state.global_state.inflation
    assert f"Inflation: {inflation:.2f}" in widget.preview.view.value
    assert list(widget.preview.agent_choice.options) == [("Aland", "Aland")]


async def test_a_prompt_that_cannot_be_rendered_is_said_in_the_preview() -> None:
    widget = PromptComparer(await played())
    box = widget.editors[1].text_box
    box.value = box.value.replace("{{ inflation }}", "{{ inflation.core }}")
    widget.preview.variant_choice.value = "variant 2"
    assert 'role="alert"' in widget.preview.view.value


async def test_variants_are_added_named_and_removed() -> None:
    widget = PromptComparer(await played())
    widget.add_button.click()
    assert [editor.name for editor in widget.editors] == ["as it was", "variant 2", "variant 3"]
    assert plan_of(widget).startswith("3 variants")
    widget.editors[2].name_box.value = "as it was"
    assert "two variants are called" in plan_of(widget)
    widget.editors[2].name_box.value = " "
    assert "variant '': a variant needs a name" in plan_of(widget)
    widget.editors[2].remove_button.click()
    widget.editors[1].remove_button.click()
    assert "there is only one variant" in plan_of(widget)
    assert widget.editors[0].remove_button.layout.display == "none"
    widget.add_variant("mine", "Inflation is {{ inflation }}.")
    assert "missing slots" in widget.editors[1].note.value


async def test_a_prompt_of_a_hundred_thousand_characters_is_refused_not_rendered() -> None:
    widget = PromptComparer(await played())
    widget.editors[1].text_box.value += "x" * 100_000
    assert "more than 100,000; shorten it" in widget.editors[1].note.value
    assert len(widget.editors[1].difference.value) < 60_000


async def test_turns_samples_and_scope_change_the_plan() -> None:
    widget = PromptComparer(await played(), samples=1)
    widget.turns_box.value = "1, 3"
    assert plan_of(widget).startswith("2 variants, 2 turns, 1 samples: 4 samples to play: 12 model")
    widget.samples_box.value = 3
    assert "12 samples to play: 36 model calls" in plan_of(widget)
    widget.only_box.value = True
    assert "12 samples to play: 12 model calls" in plan_of(widget)
    widget.turns_box.value = "9"
    assert "Cannot run: turns '9'" in plan_of(widget)
    assert "in the turns 1-3, not in 9" in widget.plan


def test_turns_are_read_and_written_short() -> None:
    there = [1, 2, 3, 5, 8]
    assert read_turns("1, 3 5", there) == [1, 3, 5]
    assert read_turns("1 - 5", there) == [1, 2, 3, 5]
    assert read_turns("All", there) == there
    assert turns_text(there) == "1-3, 5, 8"
    assert spread(list(range(1, 41)), 4) == [1, 14, 27, 40]
    for wrong in ("", "x", "4", "1-4", "3-1"):
        with pytest.raises(ConfigError, match="turns"):
            read_turns(wrong, there)


async def test_new_turns_are_offered_when_it_is_refreshed() -> None:
    simulation = await played(turns=1)
    widget = PromptComparer(simulation)
    await simulation.step()
    widget.refresh()
    assert list(widget.preview.turn_choice.options) == [("1", 1), ("2", 2)]


async def test_a_run_without_turns_says_that_there_is_nothing_to_play() -> None:
    widget = PromptComparer(await played(turns=0))
    assert widget.run_button.disabled
    assert "Nothing to show" in widget.preview.view.value


# Running


async def test_run_plays_all_and_shows_numbers_chart_and_answers() -> None:
    simulation = await played(_by_prompt)
    widget = PromptComparer(simulation, samples=2)
    hawkish(widget)
    widget.run_button.click()
    await widget.idle()
    assert widget.error.value == ""
    assert "12 of 12 samples played, 0 of them failed" in widget.results.value
    assert "in memory only: the run is on no tape" in widget.results.value
    assert "+0.50 points" in widget.results.value
    assert re.sub("<[^>]+>", "", widget.results.value).startswith("variant 2 +0.50")
    assert 'alt="resulting interest rate, variant 2 \u2212 as it was: +0.50' in widget.chart.value
    assert "Most common answers" in widget.answers.value
    assert '<div dir="auto">raise the rate by 0.75</div>' in widget.answers.value
    assert len(widget.frame) == 12
    assert widget.summary["estimate"].tolist()[0] == pytest.approx(0.5)
    assert "all samples are played" in plan_of(widget)
    assert widget.run_button.disabled
    widget.samples_box.value = 3
    assert not widget.run_button.disabled


def _by_prompt(request: ChatRequest) -> Any:
    assert request.site is not None
    if request.site.component == "agent":
        return policy(
            "Raise the rate by 0.75" if "hawk" in request.prompt else "Raise the rate by 0.25"
        )
    if request.site.component == "engine":
        assert request.schema is not None
        offered = request.schema["properties"]["new_interest_rate"]["enum"]
        middle = sum(offered) / len(offered)
        return rate_update(middle + (0.75 if "0.75" in request.prompt else 0.25))
    return answer(request)


class Gate:
    """Answers so many requests and lets the rest wait."""

    def __init__(self) -> None:
        self.left = 1_000
        self.open = asyncio.Event()
        self.shut = asyncio.Event()

    async def answer(self, request: ChatRequest) -> Any:
        if self.left == 0:
            self.shut.set()
            await self.open.wait()
        else:
            self.left -= 1
        return answer(request)


async def test_stop_keeps_what_was_played_and_run_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("llmsim_lab.lab._prompt_comparer._TICK_S", 0)
    gate = Gate()
    simulation = await played(gate.answer)
    widget = PromptComparer(simulation, samples=1)
    gate.left = 8
    widget.run_button.click()
    await gate.shut.wait()
    assert widget.run_button.disabled
    assert not widget.stop_button.disabled
    assert widget.editors[0].text_box.disabled
    widget.add_button.click()
    widget.run_button.click()
    assert len(widget.editors) == 2
    widget.stop_button.click()
    await widget.idle()
    assert widget.comparison is not None
    done = len(widget.comparison.played)
    assert done == 2
    await asyncio.sleep(0)  # its clock has stopped as well
    assert f"Stopped after {done} of 6 samples; Run continues" in widget.status.value
    assert f"{done} of 6 samples played" in widget.results.value
    assert not widget.editors[0].text_box.disabled
    gate.open.set()
    widget.run_button.click()
    await widget.idle()
    assert "6 of 6 samples played" in widget.results.value


async def test_a_server_that_fails_is_said_in_place_and_tried_again() -> None:
    faults: list[BackendError] = []

    def reply(request: ChatRequest) -> Any:
        if faults:
            raise faults.pop()
        return answer(request)

    widget = PromptComparer(await played(reply), samples=1)
    faults.append(BackendError("no model <b>here</b>", reason="model_not_found"))
    widget.run_button.click()
    await widget.idle()
    assert "no model &lt;b&gt;here&lt;/b&gt;" in widget.error.value
    assert widget.retry.layout.display == ""
    widget.retry.click()
    await widget.idle()
    assert widget.error.value == ""
    assert len(widget.frame) == 6


async def test_a_click_that_overtakes_what_was_typed_plays_what_was_typed() -> None:
    widget = PromptComparer(await played(), samples=1)
    widget.run_button.click()
    hawkish(widget)
    widget.samples_box.value = 2
    await widget.idle()
    assert widget.comparison is not None
    assert "a hawk" in widget.comparison.variants["variant 2"].text
    assert widget.comparison.samples == 2


async def test_a_click_that_overtakes_a_fault_plays_nothing_and_says_the_fault() -> None:
    widget = PromptComparer(await played(), samples=1)
    widget.run_button.click()
    widget.editors[1].text_box.value += "{{ inflaton }}"
    await widget.idle()
    assert "inflaton" in widget.error.value
    assert widget.comparison is None


async def test_when_all_samples_fail_it_says_why_and_all_can_be_played_again() -> None:
    broken: list[bool] = []

    def reply(request: ChatRequest) -> Any:
        return "no JSON at all" if broken else answer(request)

    widget = PromptComparer(await played(reply), samples=1)
    assert widget.again_button.disabled
    broken.append(True)
    widget.run_button.click()
    await widget.idle()
    said = plan_of(widget)
    assert "all samples are played" in said
    assert "All 6 failed, the first with: agent" in said
    assert "playing only the failed ones again would favour whatever came off" in said
    assert not widget.again_button.disabled
    broken.clear()
    widget.again_button.click()
    await widget.idle()
    first, second = widget.comparisons
    assert widget.comparison is second
    assert second.frame.completed.all()
    assert not first.frame.completed.any()
    assert set(first.frame.seed).isdisjoint(second.frame.seed)
    assert "failed" not in plan_of(widget)


async def test_what_is_to_be_played_again_must_be_what_was_played() -> None:
    widget = PromptComparer(await played(), samples=1)
    widget.run_button.click()
    await widget.idle()
    widget.again_button.click()
    widget.samples_box.value = 2
    await widget.idle()
    assert "the set-up was changed since it was played; click Run" in widget.error.value
    assert len(widget.comparisons) == 1


async def test_differences_and_preview_are_shown_on_demand() -> None:
    widget = PromptComparer(await played())
    for box, parts in (
        (widget.difference_box, [editor.difference for editor in widget.editors]),
        (widget.preview.open_box, [widget.preview.children[1]]),
    ):
        assert {part.layout.display for part in parts} == {"none"}
        box.value = True
        assert {part.layout.display for part in parts} == {""}
    assert widget.add_variant().difference.layout.display == ""


def test_other_kinds_of_simulation_are_refused_with_what_shows_them() -> None:
    with pytest.raises(ConfigError, match="PromptViewer shows the prompts of any"):
        PromptComparer(data_path("tapes/social.tape"))


async def test_a_changed_variant_begins_another_comparison() -> None:
    widget = PromptComparer(await played(), samples=1)
    widget.run_button.click()
    await widget.idle()
    first = widget.comparison
    hawkish(widget)
    widget.run_button.click()
    await widget.idle()
    assert widget.comparison is not first
    assert "hawk" in widget.comparison.variants["variant 2"].text  # type: ignore[union-attr]


async def test_before_a_run_there_are_no_results_to_ask_for() -> None:
    widget = PromptComparer(await played())
    with pytest.raises(ConfigError, match="nothing was played yet; click Run"):
        _ = widget.frame
    with pytest.raises(ConfigError, match="nothing was played yet"):
        _ = widget.summary


def test_results_begin_with_what_they_amount_to_and_fold_the_numbers() -> None:
    widget = PromptComparer.from_results(data_path("tapes/prompt_experiment.tape"))
    lines = html.unescape(re.sub("<[^>]+>", "\n", widget.results.value)).split("\n")
    assert list(filter(None, lines))[:2] == [
        "hawkish \N{MINUS SIGN}0.61 [\N{MINUS SIGN}2.02, 0.79], p > .99",
        "No evidence of a difference.",
    ]
    assert widget.results.value.index("p &gt; .99") < widget.results.value.index("<details>")
    assert widget.results.value.index("<details>") < widget.results.value.index("<table")


# Wrong arguments, and the wrong moment


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples": 0}, "samples=0 must be a whole number, 1 to 1,000"),
        ({"samples": -1}, "samples=-1 must be"),
        ({"samples": 1.5}, "samples=1.5 must be"),
        ({"samples": None}, "samples=None must be"),
        ({"samples": "5"}, "samples='5' must be"),
        ({"samples": 10**9}, "samples=1000000000 must be"),
        ({"seed": "a"}, "seed='a' must be a whole number from 0 on"),
        ({"seed": 1.5}, "seed=1.5 must be"),
        ({"seed": -1}, "seed=-1 must be"),
        ({"temperature": "a"}, "temperature='a' must be a finite number"),
        ({"temperature": float("nan")}, "temperature=nan must be"),
        ({"temperature": 9}, "temperature=9"),
        ({"component": 5}, "component=5 must be a text"),
        ({"turns": 5}, "turns=5 must be the turns' numbers, such as turns=(1, 3)"),
        ({"turns": ("a",)}, "turn='a' must be a whole number"),
        ({"variants": ["a"]}, "variants=['a'] must be prompts by name"),
        ({"variants": {}}, "variants={} must be prompts by name"),
        ({"variants": {"a": 5}}, "variant 'a' is int; give a Prompt"),
        ({"variants": {5: None}}, "a variant needs a name that is not empty, not 5"),
        ({"llm_client": 5}, "llm_client=5 is not an LLMClient"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_shown(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        PromptComparer(data_path("tapes/first_run.tape"), **{"run": 1} | arguments)


async def test_variants_cannot_be_added_while_a_comparison_runs() -> None:
    gate = Gate()
    widget = PromptComparer(await played(gate.answer), samples=1)
    gate.left = 0
    widget.run_button.click()
    await gate.shut.wait()
    with pytest.raises(ConfigError, match="a comparison is running; stop it, or wait"):
        widget.add_variant("late")
    assert len(widget.editors) == 2
    gate.open.set()
    await widget.idle()
    assert widget.add_variant("in time").name == "in time"


@pytest.mark.parametrize(("name", "prompt"), [(5, None), (" ", None), ("a", 5)])
async def test_a_variant_that_is_none_is_not_added(name: Any, prompt: Any) -> None:
    widget = PromptComparer(await played())
    with pytest.raises(ConfigError, match="variant"):
        widget.add_variant(name, prompt)
    assert len(widget.editors) == 2


# Tapes


async def test_a_tape_with_several_runs_is_asked_about_and_the_one_compared_is_named(
    tmp_path: Path,
) -> None:
    client = make_simulation(_by_prompt, names=("Aland",)).llm_client
    config = in_words(nations=("Aland",), name="first")
    simulation = Simulation(config, llm_client=client, tape=tmp_path / "x.tape")
    await simulation.arun(2)
    simulation.fork(1)
    with pytest.raises(ConfigError, match=r"run=1 \('first', turns to 2\); run=2 "):
        PromptComparer(tmp_path / "x.tape")
    widget = PromptComparer(tmp_path / "x.tape", run=1, samples=2, llm_client=client)
    assert widget.simulation.tape is not None
    assert widget.simulation.tape.read_only
    assert widget.static_text().startswith(
        "Prompts of agent compared, on run 1 'first' of x.tape\n"
    )
    widget.run_button.click()
    await widget.idle()
    named = "Prompts of agent compared, on run 1 &#39;first&#39; of x.tape"
    assert named in str(widget.static_html())
    assert "in run 1 &#39;first&#39; of x.tape, over pairs of the same turn" in widget.results.value


async def test_a_comparison_of_more_samples_than_the_box_takes_is_shown_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmsim_lab.lab._prompt_comparer.MOST_SAMPLES", 5)
    monkeypatch.setattr("llmsim_lab.lab._prompt_comparer.MOST_SAMPLES", 5)
    client = make_simulation(answer, names=("Aland",)).llm_client
    config = in_words(nations=("Aland",))
    simulation = Simulation(config, llm_client=client, tape=tmp_path / "x.tape")
    await simulation.arun(1)
    variants = {"as it was": None, "again": None}
    await Comparison(simulation, prompt=variants, samples=6).arun()
    shown = PromptComparer.from_results(tmp_path / "x.tape")
    assert shown.samples_box.value == 6
    assert "12 of 12 samples" in shown.static_text()


async def test_on_a_tape_the_results_are_recorded_and_can_be_shown_again(tmp_path: Path) -> None:
    source = make_simulation(_by_prompt, names=("Aland",))
    config = in_words(nations=("Aland",))
    simulation = Simulation(config, llm_client=source.llm_client, tape=tmp_path / "x.tape")
    await simulation.arun(2)
    widget = PromptComparer(simulation, samples=2)
    hawkish(widget)
    widget.run_button.click()
    await widget.idle()
    assert "Results are recorded on x.tape" in widget.results.value
    shown = PromptComparer.from_results(tmp_path / "x.tape")
    assert shown.frame.equals(widget.frame)
    assert shown.static_text() == widget.static_text()
    assert shown.editors[1].text_box.value == widget.editors[1].text_box.value
    assert "there is no model" in plan_of(shown)
    assert "All 8 samples are recorded on x.tape." in shown.results.value
    assert "memory" not in shown.results.value + plan_of(shown)
    assert Tape(tmp_path / "x.tape", read_only=True).run(2).verb == "experiment"


def test_a_loaded_tape_without_a_model_does_all_but_run_and_says_the_way_out() -> None:
    widget = PromptComparer(data_path("tapes/first_run.tape"), run=1)
    assert widget.turns_box.value == "1, 3, 6, 8"
    assert widget.run_button.disabled
    assert "llm_client=connect(&#39;auto&#39;)" in widget.plan_line.value
    hawkish(widget)
    assert "hawk</ins>" in widget.editors[1].difference.value
    assert "40 samples to play: 120 model calls" in widget.plan


@pytest.mark.parametrize("component", ["validator", "engine", "agent:United States"])
def test_every_component_can_be_compared(component: str) -> None:
    widget = PromptComparer(data_path("tapes/first_run.tape"), component, run=1)
    assert "[user]" in widget.preview.view.value
    assert f"Prompts of {component} compared" in widget.static_text()


# Strangers' text, and many of everything


async def test_what_models_and_users_write_is_shown_and_never_obeyed() -> None:
    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.component == "agent":
            return policy(HOSTILE, reasoning=HOSTILE)
        return answer(request)

    widget = PromptComparer(await played(reply, turns=1), samples=1)
    widget.editors[1].name_box.value = HOSTILE
    widget.editors[1].text_box.value += HOSTILE
    widget.run_button.click()
    await widget.idle()
    assert widget.error.value == ""
    parts = [widget.results, widget.chart, widget.answers, widget.plan_line, widget.preview.view]
    parts += [part for editor in widget.editors for part in (editor.note, editor.difference)]
    shown = "".join(part.value for part in parts) + str(widget.static_html())
    assert "<script" not in shown
    assert "<img src=x" not in shown
    assert "</style>" not in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown + widget.static_text()
    labels = [label for label, _ in widget.preview.variant_choice.options]
    assert any("⟨U+202E⟩" in label for label in labels)
    assert "\u202e" not in "".join(labels)
    assert "&lt;script&gt;" in shown


async def test_the_static_view_is_the_same_for_the_same_run() -> None:
    views = []
    for _ in range(2):
        widget = PromptComparer(await played(_by_prompt), samples=2)
        hawkish(widget)
        before = widget.static_text()
        assert before.endswith("nothing played yet")
        assert str(widget.static_html()).startswith("<pre")
        widget.run_button.click()
        await widget.idle()
        views.append((before, widget.static_text(), str(widget.static_html())))
    assert views[0] == views[1]
    assert "variant 2: 6 times: raise the rate by 0.75" in views[0][1]
    assert "<table" in views[0][2]
    assert "<img" not in views[0][2]


async def test_only_the_component_can_be_asked_and_then_no_rate_is_shown() -> None:
    widget = PromptComparer(await played(_by_prompt), samples=2)
    hawkish(widget)
    widget.only_box.value = True
    widget.run_button.click()
    await widget.idle()
    assert "resulting interest rate" not in widget.results.value
    assert "Which way the rate went" not in widget.answers.value
    assert isinstance(widget.comparison, Comparison)
    assert widget.comparison.only_component
