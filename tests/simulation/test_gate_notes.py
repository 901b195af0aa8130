"""What runs say of a model that did not pass the economic gate."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from builders import answer, recorded

from llmsim_lab import load
from llmsim_lab.economy import TaylorRule
from llmsim_lab.lab import RateChart
from llmsim_lab.lab.figures import rate_figure
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation._gate import EconomicsCard, Told
from llmsim_lab.study import economics_card
from llmsim_lab.types import ModelInfo

SENTENCE = (
    "tiny, by 2 answers to each: Fails the economic gate. A point more of inflation changes its "
    "move by 0.00 (0.00 to 0.00) points; whatever happens, it moves the rate by 0.75 (0.75 to "
    "0.75) points a quarter."
)


class Tiny(ScriptedBackend):
    """A model with a digest, which counts how often it is asked who it is."""

    digest = "ab12"
    asked_who = 0

    async def model_info(self) -> ModelInfo:
        self.asked_who += 1
        return ModelInfo(name="tiny", backend="scripted", digest=self.digest)


@cache
def raiser(told: Told = "economist") -> EconomicsCard:
    return economics_card(lambda *, previous_rate, **_: previous_rate + 0.75, told=told)


@cache
def ruler() -> EconomicsCard:
    return economics_card(TaylorRule())


Keep = Callable[..., Path]
Make = Callable[..., Simulation]


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keep:
    """Keep a card as one of the model ``tiny``."""
    monkeypatch.setenv("LLMSIM_CARDS", str(tmp_path / "cards"))

    def kept(card: EconomicsCard, **changes: Any) -> Path:
        path = tmp_path / "cards" / "economics" / "tiny.json"
        path.parent.mkdir(parents=True)
        own = {"model": "tiny", "digest": Tiny.digest, **changes}
        path.write_text(card.model_copy(update=own).model_dump_json())
        return path

    return kept


@pytest.fixture
def simulation(tmp_path: Path) -> Make:
    """Make recorded runs, each on a tape of its own."""
    numbers = count(1)

    def make(backend: ScriptedBackend | None = None, **more: Any) -> Simulation:
        tape = tmp_path / f"run_{next(numbers)}.tape"
        client = LLMClient(LLMConfig(), backend or Tiny(answer))
        return Simulation(turns=3, llm_client=client, tape=tape, **more)

    return make


def test_frame_caption_and_words_of_a_chart_name_a_model_that_failed(
    keep: Keep, simulation: Make
) -> None:
    keep(raiser())
    run = simulation()
    assert not run.notes  # nothing was asked yet
    frame = run.run(1, progress=False)
    assert frame.attrs["notes"] == [SENTENCE]
    chart = RateChart(run)
    assert SENTENCE in chart.static_text()
    for figure in (chart.figure, rate_figure({"run": frame})):
        assert figure.get_supxlabel().replace("\n", " ") == SENTENCE


def test_loaded_runs_and_charts_of_tapes_say_so_too(keep: Keep, simulation: Make) -> None:
    run = recorded(simulation(), 1)
    assert list(run.notes) == []
    path = keep(raiser())
    half = raiser().model_copy(update={"outcome": None})
    path.with_name("half.json").write_text(half.model_dump_json())
    path.with_name("broken.json").write_text("{")  # files that are not finished cards
    assert list(load(run.tape.path).notes) == [SENTENCE]


def test_a_fork_is_of_the_model_that_continues_it(keep: Keep, simulation: Make) -> None:
    keep(raiser())
    run = simulation()
    run.run(1, progress=False)
    other = Tiny(answer)
    other.digest = "cd34"
    fork = run.fork(1, llm_client=LLMClient(LLMConfig(), other))
    fork.run(1, progress=False)
    assert (list(run.notes), list(fork.notes)) == ([SENTENCE], [])


def test_nothing_is_said_of_a_model_that_passed_and_little_of_an_undecided_one(
    keep: Keep, simulation: Make
) -> None:
    path = keep(ruler())
    assert simulation().run(1, progress=False).attrs["notes"] == []
    card = path.read_text().replace('"outcome":"pass"', '"outcome":"undecided"')
    path.write_text(card)
    [note] = simulation().run(1, progress=False).attrs["notes"]
    assert note.startswith("tiny, by 2 answers to each: Undecided at the economic gate. ")


@pytest.mark.parametrize(
    ("other", "how"),
    [
        ({"digest": "cd34"}, {}),
        ({"prompt": "ef56"}, {}),
        ({"version_of_gate": 1}, {}),
        ({}, {"players": "rule"}),
    ],
    ids=["another model", "another prompt", "another gate", "a run of rules"],
)
def test_cards_of_something_else_say_nothing(
    keep: Keep, simulation: Make, other: dict[str, Any], how: dict[str, Any]
) -> None:
    keep(raiser(), **other)
    assert simulation(**how).run(1, progress=False).attrs["notes"] == []


def test_a_card_is_of_the_prompt_and_an_edited_one_has_its_own(
    keep: Keep, simulation: Make
) -> None:
    keep(raiser("thin"))
    assert simulation().run(1, progress=False).attrs["notes"] == []
    run = simulation(briefing="thin")
    assert run.run(1, progress=False).attrs["notes"] == [SENTENCE]
    [prompt] = run.prompts.values()
    fork = run.fork(0, prompt=prompt.edit(f"{prompt.text} Think of the target."))
    assert fork.run(1, progress=False).attrs["notes"] == []


def test_a_run_without_a_tape_says_nothing_and_does_not_ask_who_the_model_is(keep: Keep) -> None:
    keep(raiser())
    backend = Tiny(answer)
    run = Simulation(llm_client=LLMClient(LLMConfig(), backend))
    assert run.run(1, progress=False).attrs["notes"] == []
    assert backend.asked_who == 0
