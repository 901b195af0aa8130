"""Variants of a prompt, typed and asked at recorded situations: what a user sees and does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from study_kit import Water, instant_client

from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import PromptComparer

pytestmark = pytest.mark.usefixtures("undrawn")
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    run = Water(llm_client=instant_client(), tape=tmp_path / "water.tape", turns=2)
    run.run(progress=False)
    run.close()
    return tmp_path / "water.tape"


def comparer(tape: Path, **more: Any) -> PromptComparer:
    variants = {"kind": lambda text: f"{text} Be kind."}
    run = Water.load(tape, 1)
    return PromptComparer(run, variants, samples=2, **{"llm_client": instant_client(), **more})


async def test_variants_stand_side_by_side_and_say_what_differs(tape: Path) -> None:
    made = comparer(tape)
    assert list(made.texts) == ["as it was", "kind"]
    assert made.texts["as it was"].disabled
    assert "Be kind." in made._notes["kind"].value
    made.controls[-1].click()
    assert list(made.texts) == ["as it was", "kind", "variant 2"]
    assert made.texts["variant 2"].value == made.prompt.text


async def test_slots_are_checked_while_one_types(tape: Path) -> None:
    made = comparer(tape)
    made.texts["kind"].value += " {{ wealth }}"
    assert "{{ wealth }}: the run gives this prompt no such value" in made._notes["kind"].value
    made.texts["kind"].value = "You are {{ name }}." + HOSTILE
    assert "no such value" not in made._notes["kind"].value
    assert "<img" not in made._notes["kind"].value


async def test_run_asks_the_situations_and_says_one_sentence_first(tape: Path) -> None:
    made = comparer(tape, outcome="amount")
    made.run_button.click()
    await made.idle()
    assert made.study is not None
    assert made.study.counts == {"done": 4}
    assert "Finished." in made.status.value
    effect = str(made.study.effects()[0])
    assert effect.startswith("kind \N{MINUS SIGN} as it was, amount: ")
    assert effect.partition(",")[0] in made.results.value
    assert made.results.value.index("amount") < made.results.value.index("All differences")
    assert effect in made.static_text()


async def test_a_recorded_run_has_no_model_and_run_says_how_to_give_one(tape: Path) -> None:
    made = comparer(tape, llm_client=None)
    made.run_button.click()
    await made.idle()
    assert "llm_client=connect(&#39;auto&#39;)" in made.error.value
    assert made.study is None


async def test_a_wrong_variant_is_an_error_when_it_is_run(tape: Path) -> None:
    made = comparer(tape)
    made.texts["kind"].value += " {{ wealth }}"
    made.run_button.click()
    await made.idle()
    assert "wealth" in made.error.value
    assert made.study is None


async def test_it_takes_a_run_on_a_tape_and_one_prompt_by_name(tape: Path) -> None:
    with pytest.raises(ConfigError, match="on no tape"):
        PromptComparer(Water(llm_client=instant_client()))
    with pytest.raises(ConfigError, match=r"prompt='wsh': the run asked with .*; name one of"):
        comparer(tape, prompt="wsh")
