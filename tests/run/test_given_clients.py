"""A client that lacks what will be used of it is an error where it is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from builders import make_client
from worlds import PublicGoods

from llmsim_lab import Prompt, Question
from llmsim_lab.agents import EconLLMAgent
from llmsim_lab.assistant import OllamaAdapter, ToolLookup
from llmsim_lab.context import SimulatorAgent
from llmsim_lab.context.scenario import CrisisScenario
from llmsim_lab.engines import EconLLMEngine
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.lab import Lab
from llmsim_lab.llm import (
    LLMClient,
    LLMConfig,
    OllamaBackend,
    OpenAIBackend,
    Person,
    ScriptedBackend,
    Tape,
)
from llmsim_lab.simulation import economics_card
from llmsim_lab.statechart import Reasoner
from llmsim_lab.study import Study
from llmsim_lab.types import ModelInfo
from llmsim_lab.validators import EconLLMValidator


def pot() -> PublicGoods:
    return PublicGoods(llm_client=make_client({}))


class Another(ScriptedBackend):
    async def model_info(self) -> ModelInfo:
        return ModelInfo(name="another", backend="scripted")


class Thin:
    """A client that lacks most of one."""

    config, backend = LLMConfig(), ScriptedBackend({})

    async def call_with_retry(self, **_: Any) -> Any:
        raise AssertionError


class Talker:
    async def converse(self, *_: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize(
    ("give", "words"),
    [
        (lambda it: PublicGoods(llm_client=it), "llm_client=.*is a client without converse, choos"),
        (
            lambda it: PublicGoods(players={"Ann": it}),
            r"players\['Ann'\]=.*without converse, choos",
        ),
        (lambda it: pot().fork(llm_client=it), "llm_client=.*is a client without converse, choose"),
        (lambda it: Study(PublicGoods, llm_client=it), "llm_client=.*is a client without converse"),
        (
            lambda it: Study(PublicGoods, vary={"model": {"a": "auto", "b": it}}),
            "model 'b'=.*witho",
        ),
        (lambda it: Study(PublicGoods, vary={"players": {"a": it, "b": "random"}}), "without conv"),
        (lambda it: Lab(pot(), llm_client=it), "llm_client=.*is a client without converse, choose"),
        (lambda it: economics_card(it), "player=.*is a client without converse, choose"),
        (lambda it: OllamaAdapter(it), "client=.*is not a client; make one: client=connect"),
        (lambda it: ToolLookup(None).player(it), "client=.*is a client without converse;"),
        (lambda _: EconLLMValidator(Talker()), "llm_client=.*is not a client; make one"),
        (lambda _: EconLLMEngine(llm_client=Talker()), "llm_client=.*is not a client; make one"),
        (lambda _: EconLLMAgent("Ann", Talker()), "llm_client=.*is not a client; make one"),
        (
            lambda _: SimulatorAgent(CrisisScenario.load("strait"), Talker()),
            "is not a client; make",
        ),
        (lambda _: Reasoner(Talker()), "client=.*is not a client; make one: client=connect"),
    ],
)
def test_a_client_that_lacks_a_method_is_an_error_when_it_is_given(
    give: Callable[[Any], Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        give(Thin())


def test_a_client_that_a_player_is_to_ask_is_checked_too() -> None:
    async def player(question: Question) -> Any:
        return await question.put_to(cast("Any", Talker()))

    with pytest.raises(ConfigError, match=r"client=.*is not a client; make one: client=connect"):
        PublicGoods(players=player).run(1)


def test_a_client_that_is_set_later_is_checked_and_on_a_tape_is_the_same_model(
    path: Path,
) -> None:
    reply = {"reasoning": "r", "amount": 1, "confidence": 1}
    client = make_client(reply)
    run = PublicGoods(llm_client=client, tape=path)
    run.run(1, progress=False)
    with pytest.raises(ConfigError, match="llm_client=5"):
        run.llm_client = cast("Any", 5)
    run.llm_client = LLMClient(client.config, Another(reply))
    with pytest.raises(TapeError, match="begun with another model: its name is 'another'"):
        run.run(1, progress=False)
    run.llm_client = client
    run.run(1, progress=False)
    assert (run.turn_number, Tape(path).run(1).outcome) == (2, "done")


@pytest.mark.parametrize("name", ["config", "turns", "planned"])
@pytest.mark.parametrize("value", [5, [], [5], None], ids=str)
def test_what_is_not_a_configuration_or_a_turn_cannot_be_set(name: str, value: Any) -> None:
    run = pot()
    if (name, value) == ("planned", []):
        return
    with pytest.raises(ConfigError, match=f"{name}="):
        setattr(run, name, value)
    assert run.turn_number == 0


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (Prompt("Give?"), "user"),
        (Prompt("Give?"), "slots"),
        (make_client({}), "backend"),
        (OllamaBackend("m"), "host"),
        (OpenAIBackend("m", base_url="http://127.0.0.1:1/v1"), "base_url"),
        (Person(), "stand_in"),
    ],
    ids=lambda it: type(it).__name__,
)
def test_what_was_checked_when_a_thing_was_made_stays_as_it_is(thing: Any, name: str) -> None:
    before = getattr(thing, name)
    with pytest.raises(ConfigError, match=f"{name} of this {type(thing).__name__} is set to 'x'"):
        setattr(thing, name, "x")
    assert getattr(thing, name) == before
