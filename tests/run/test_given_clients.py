"""A client that lacks what will be used of it is an error where it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from builders import make_client
from worlds import PublicGoods

from llmsim_lab import Question
from llmsim_lab.agents import EconLLMAgent
from llmsim_lab.assistant import OllamaAdapter, ToolLookup
from llmsim_lab.context import SimulatorAgent
from llmsim_lab.context.scenario import CrisisScenario
from llmsim_lab.engines import EconLLMEngine
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import Lab
from llmsim_lab.llm import LLMConfig, ScriptedBackend
from llmsim_lab.simulation import economics_card
from llmsim_lab.statechart import Reasoner
from llmsim_lab.study import Study
from llmsim_lab.validators import EconLLMValidator


def pot() -> PublicGoods:
    return PublicGoods(llm_client=make_client({}))


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
