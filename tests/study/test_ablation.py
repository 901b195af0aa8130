"""What leaving a part of a prompt out does, and what is noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from crisis_kit import crisis_client, make_crisis, said, talking

from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import load, replay, resume
from llmsim_lab.run._registry import find_class
from llmsim_lab.study._ablation import (
    Ablation,
    AblationConfig,
    PromptText,
)
from llmsim_lab.types import ChatRequest


def make_ablation(replies: Any, tape: Path | None = None, **config: Any) -> Ablation:
    prompts = {"long": PromptText(system="Be brief.", user="Rain?"), "short": PromptText(user="?")}
    config.setdefault("response_format", ("ASSESSMENT: Why", "ACTIONS: What"))
    return Ablation(
        AblationConfig(prompts=prompts, **config), llm_client=crisis_client(replies), tape=tape
    )


def by_prompt(request: ChatRequest) -> Any:
    """Answer the short prompt otherwise, and the long one in the same words each time."""
    return said("Wait and see" if "Rain" in request.prompt else "Dig a well now")


def test_a_change_beyond_noise_is_found() -> None:
    replies = iter(range(100))

    def reply(request: ChatRequest) -> Any:
        return said(f"{by_prompt(request)['actions']} {next(replies) % 7}")

    ablation = make_ablation(reply, turns=5)
    ablation.run()
    effect = ablation.effect
    assert (effect.unit, effect.n) == ("situations", 1)
    assert effect.p is not None
    assert effect.p < 0.05
    assert ": evidence of a change beyond noise" in ablation.verdict()
    assert list(ablation.to_frame()["change"][1:] > ablation.to_frame()["noise"][1:]) == [True] * 5


def test_noise_alone_is_called_noise() -> None:
    replies = iter(["a b", "b c", "c a", "a c", "c b", "b a", "a b", "a b", "b c", "d a"] * 3)
    ablation = make_ablation(lambda request: said(next(replies)), turns=6)
    ablation.run()
    assert "no evidence of a change beyond noise" in ablation.verdict()


def test_a_change_of_how_often_an_answer_is_given_is_found() -> None:
    # Any two answers to either prompt are as far apart as two to the same prompt, on average, so
    # that ``excess`` is near 0 for "always A" against 60 % A: it cannot see what this test sees.
    mixed = iter(("Wait now", "Wait now", "Wait now", "Dig a well", "Dig a well") * 8)

    def reply(request: ChatRequest) -> Any:
        return said(next(mixed) if "Rain" in request.prompt else "Wait now")

    ablation = make_ablation(reply, turns=20)
    ablation.run()
    assert abs(ablation.to_frame()["excess"].mean()) < 0.15
    effect = ablation.effect
    assert effect.p is not None
    assert effect.p < 0.05
    assert "evidence of a change beyond noise" in ablation.verdict()


def test_samples_have_seeds_of_their_own_and_the_two_prompts_share_them() -> None:
    ablation = make_ablation(by_prompt, turns=2, seed=5)
    ablation.run()
    requests = ablation.llm_client.backend.requests
    seeds = [(request.site.agent, request.options["seed"]) for request in requests]
    assert seeds == [
        ("long", 6),
        ("short", 6),
        ("long (again)", 100_006),
        ("long", 7),
        ("short", 7),
        ("long (again)", 100_007),
    ]


def test_a_sample_that_failed_is_counted_and_left_out() -> None:
    late = BackendError("slow", reason="timeout")

    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        bad = (request.site.agent, request.site.turn) == ("short", 1)
        return late if bad else by_prompt(request)

    ablation = make_ablation(reply, turns=3)
    ablation.run()
    assert ablation.effect.note == "samples that failed: 1"
    assert list(ablation.to_frame()["excess"].notna()) == [False, False, True, True]
    assert ablation.verdict().endswith("Samples that failed: 1.")
    assert list(ablation.answers["status"]).count("failed") == 1


def test_where_every_sample_failed_it_says_so_instead_of_asking_for_more() -> None:
    ablation = make_ablation(lambda _: BackendError("slow", reason="timeout"), turns=2)
    ablation.run()
    assert ablation.verdict() == "No sample succeeded. Samples that failed: 2."
    assert ablation.effect.note == "too few samples for a test: 0; 2 of 2 samples failed"


@pytest.mark.parametrize(
    ("turns", "verdict"),
    [(0, "No sample so far."), (1, "No test: too few samples for a test: 1; play two or more")],
)
def test_too_few_samples_give_no_test(turns: int, verdict: str) -> None:
    ablation = make_ablation(by_prompt, turns=turns)
    ablation.run()
    assert verdict in ablation.verdict()


def test_an_ablation_is_a_run_on_a_tape(tmp_path: Path) -> None:
    ablation = make_ablation(by_prompt, tmp_path / "a.tape", turns=2)
    ablation.run()
    ablation.close()
    assert find_class("ablation") is Ablation
    assert replay(tmp_path / "a.tape").turns == ablation.turns
    again = resume(tmp_path / "a.tape", llm_client=crisis_client(by_prompt))
    again.run(1)
    again.close()
    loaded = load(tmp_path / "a.tape")
    assert len(loaded.answers) == 9
    assert loaded.verdict() == again.verdict()


def test_a_module_can_be_left_out_of_a_played_turn() -> None:
    crisis = make_crisis(modules=[talking("mud", "Mud everywhere.")])
    crisis.run(2)
    client = crisis_client(lambda request: said(f"mud: {'Mud' in request.prompt}"))
    ablation = Ablation.without(crisis, "Bo", 1, silenced=["mud"], samples=2, llm_client=client)
    ablation.run()
    assert ablation.config.about == "Bo, turn 1"
    words = ablation.turns[1].state.words
    assert words["as it was"] == "ACTIONS: mud: True"
    assert words["without mud"] == "ACTIONS: mud: False"
    assert crisis.turn_number == 2


def test_a_module_that_says_nothing_there_cannot_be_left_out() -> None:
    crisis = make_crisis(modules=[talking("mud", "")])
    crisis.run(1)
    with pytest.raises(ConfigError, match="of Bo, turn 1, is the same: they said nothing there"):
        Ablation.without(crisis, "Bo", silenced=["mud"])


def test_before_the_first_turn_it_is_the_prompt_to_come_that_is_compared() -> None:
    crisis = make_crisis(modules=[talking("mud", "Mud.")])
    assert Ablation.without(crisis, "Bo", silenced=["mud"]).config.about == "Bo, turn 1"


def test_one_module_may_be_named_alone_and_twice_is_once() -> None:
    crisis = make_crisis(modules=[talking("mud", "Mud.")])
    for silenced in ("mud", ["mud", "mud"]):
        made = Ablation.without(crisis, "Bo", silenced=silenced)
        assert made.config.name == "without mud"
    assert "Mud." not in crisis.context_of("Bo", silenced="mud")


@pytest.mark.parametrize("samples", [0, -1, 2.5, True])
def test_an_ablation_needs_a_sample_or_more(samples: Any) -> None:
    crisis = make_crisis(modules=[talking("mud", "Mud.")])
    with pytest.raises(ConfigError, match=f"samples={samples} must be a whole number from 1"):
        Ablation.without(crisis, "Bo", silenced="mud", samples=samples)


def test_an_ablation_of_nothing_is_an_error() -> None:
    with pytest.raises(ConfigError, match="silenced is empty"):
        Ablation.without(make_crisis(), "Bo", silenced=[])


@pytest.mark.parametrize("number", [1, 3])
def test_two_prompts_are_compared(number: int) -> None:
    prompts = {str(n): PromptText(user="x") for n in range(number)}
    with pytest.raises(ConfigError, match=f"{number} are given; two are compared( |$)"):
        AblationConfig(prompts=prompts)


def test_an_ablation_needs_a_model() -> None:
    config = AblationConfig(prompts={"a": PromptText.of("x"), "b": PromptText.of("y")})
    with pytest.raises(ConfigError, match="asks a model"):
        Ablation(config)


def test_there_is_no_prompt_to_replace() -> None:
    config = AblationConfig(prompts={"a": PromptText.of("x"), "b": PromptText.of("y")})
    with pytest.raises(ConfigError, match="no prompts to replace: engine"):
        Ablation(config, llm_client=crisis_client(), prompts={"engine": Prompt("x")})


def test_the_distances_can_be_charted() -> None:
    assert [item.column for item in make_ablation(by_prompt).series] == [
        "change",
        "noise",
        "excess",
    ]
