"""Every general widget opens on a world of one's own: live, in memory, from its tape, replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from worlds import PublicGoods

from llmsim_lab import lab
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._widget import LabWidget
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.run._turn import RuleAnswer
from llmsim_lab.types import ChatRequest

ECONOMIC = ("Taylor", "inflation", "interest rate", "quarter", "rates", "History")


def client() -> LLMClient:
    def gives(request: ChatRequest) -> dict[str, Any]:
        assert request.site is not None
        amount = len(request.site.agent or "")
        return {"amount": amount, "reasoning": "I like them.", "confidence": 0.5}

    return LLMClient(LLMConfig(model="scripted", retry_wait_s=0), ScriptedBackend(gives))


async def live(path: Path) -> PublicGoods:
    run = PublicGoods(llm_client=client(), tape=path)
    await run.arun(2)
    run.intervene(2, {"coins.Ann": 5})
    return run


async def in_memory(path: Path) -> PublicGoods:
    del path
    run = PublicGoods(llm_client=client())
    await run.arun(2)
    return run


async def by_chance(path: Path) -> PublicGoods:
    run = PublicGoods(players={"*": "random"}, tape=path)
    await run.arun(2)
    return run


async def loaded(path: Path) -> PublicGoods:
    (await live(path)).close()
    return PublicGoods.load(path)


async def replayed(path: Path) -> PublicGoods:
    (await live(path)).close()
    return PublicGoods.replay(path)


async def not_played_yet(path: Path) -> PublicGoods:
    del path
    return PublicGoods(llm_client=client())


SOURCES = [live, in_memory, by_chance, loaded, replayed, not_played_yet]
WIDGETS = [lab.TurnStepper, lab.RateChart, lab.PromptViewer]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("widget", WIDGETS)
async def test_a_general_widget_opens_in_its_words(
    source: Callable[[Path], Any], widget: Callable[[Any], LabWidget], tmp_path: Path
) -> None:
    run = await source(tmp_path / "t.tape")
    shown = widget(run)
    try:
        text, html = shown.static_text(), str(shown.static_html())
        await shown.idle()
    finally:
        shown.close()
    assert shown.error.value == ""
    assert "PublicGoods" in text
    assert not [word for word in ECONOMIC if word in text + html]


async def test_the_tree_of_runs_shows_forks_and_compares_them(tmp_path: Path) -> None:
    first = await live(tmp_path / "t.tape")
    fork = first.fork(1, intervene=[{"turn": 1, "set": {"coins.Ann": 7}}], llm_client=client())
    await fork.arun(1)
    tree = lab.RunTree(tmp_path / "t.tape")
    tree.select(1, compare_with=2)
    await tree.idle()
    assert "coins.Ann" in tree.differences.value
    assert "turn 1: set coins.Ann 7" in tree.static_text()
    tree.open_button.click()
    await tree.idle()
    assert tree.error.value == ""
    tree.close()


async def test_what_players_answered_is_shown_whoever_answered(tmp_path: Path) -> None:
    run = PublicGoods(llm_client=client(), players={"Bob": "random"})
    await run.arun(1)
    bob = next(answer.fields["amount"] for answer in run.turns[1].answers)
    stepper = lab.TurnStepper(run)
    assert f"amount {bob}" in stepper.static_text()
    assert "Ann: amount 3" in stepper.static_text()
    assert isinstance(run.chains[0], LLMReasoningChain)
    stepper.close()


def test_an_answer_is_told_in_numbers_that_can_be_read() -> None:
    fields = {"percent": 53.35419077932098, "tiny": 1.234e-7, "whole": 2.0, "shares": [1 / 3]}
    told = str(RuleAnswer(player="Ann", tag="", fields={**fields, "yes": True, "reasoning": "So."}))
    assert told == "percent 53.35, tiny 1.2e-07, whole 2, shares [0.33], yes True"


async def test_a_chart_offers_the_states_numbers_and_no_reference_of_other_worlds(
    tmp_path: Path,
) -> None:
    chart = lab.RateChart(await live(tmp_path / "t.tape"))
    columns = [column for _, column in chart.main_box.options]
    assert columns[:5] == ["coins.Ann", "coins.Bob", "coins.Cy", "coins.Di", "given.Ann"]
    assert [chart.rule_box.layout.display, chart.history_box.layout.display] == ["none", "none"]
    chart.table.toggle.click()
    assert "quarter" not in chart.table.html.value
    chart.save(tmp_path / "chart.svg")
    assert "turn" in (tmp_path / "chart.svg").read_text()
    chart.close()


@pytest.fixture
def unknown(tmp_path: Path) -> Iterator[Path]:
    """A tape of a class that is not known here any more."""
    from llmsim_lab.run import _registry

    run = PublicGoods(players={"*": "random"}, tape=tmp_path / "t.tape")
    run.run(2)
    run.close()
    del _registry._known[PublicGoods.kind]
    yield tmp_path / "t.tape"
    _registry.register(PublicGoods.kind, PublicGoods)


async def test_a_tape_is_charted_and_its_runs_compared_without_the_class(unknown: Path) -> None:
    chart = lab.RateChart(unknown)
    assert "coins.Ann" in chart.static_text()
    chart.close()
    tree = lab.RunTree(unknown)
    assert "PublicGoods" in tree.static_text()
    tree.close()


def test_a_widget_of_another_world_says_what_it_compares() -> None:
    with pytest.raises(ConfigError, match="compares"):
        lab.PromptComparer(PublicGoods(players={"*": "random"}))
