"""Comparisons in every world: crisis, social, conversations with tools, worlds of one's own."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest
from assistant_kit import MemoryTasks
from builders import requests_of
from crisis_kit import crisis_client, make_crisis
from crisis_kit import said as crisis_said
from pydantic import Field
from social_kit import make_social
from worlds import PublicGoods

from llmsim_lab import Ask, Reply, Run, State
from llmsim_lab.assistant import Chat
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import ChatReply, LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.run import load
from llmsim_lab.run._run import turns_of
from llmsim_lab.study import Comparison
from llmsim_lab.tape import verify
from llmsim_lab.types import ChatRequest, ToolCall

MORE = "You are generous."


def generous(text: str) -> str:
    return f"{text} {MORE}"


def gift(request: ChatRequest) -> dict[str, Any]:
    """A gift of 0 to 3 by the seed, and of ten coins more from whoever is generous."""
    amount = int(request.options.get("seed", 0)) % 4 + (10 if MORE in request.prompt else 0)
    return {"reasoning": "Because.", "amount": amount, "confidence": 0.5}


def client_of(replies: Any = gift, **config: Any) -> LLMClient:
    return LLMClient(LLMConfig(model="script", retry_wait_s=0, **config), ScriptedBackend(replies))


def goods(tape: Path | Tape | None = None, *, turns: int = 2, client: Any = None) -> PublicGoods:
    run = PublicGoods(llm_client=client or client_of(), tape=tape)
    run.run(turns)
    return run


def asked_by(client: LLMClient | None, before: int) -> list[ChatRequest]:
    assert client is not None
    return requests_of(client)[before:]


class Offer(Reply):
    amount: int = Field(ge=0, le=20)


class Answer(Reply):
    way: Literal["yes", "no"]


class Deal(State):
    offer: int = 0
    taken: bool = False


class Bargain(Run[Deal]):
    """Ann offers, then Bob answers; ``decide`` says whether by probabilities."""

    decide: str = ""

    async def turn(self, state: Deal, ask: Ask) -> Deal:
        how: Any = self.decide or None
        offer = await ask("Ann", Offer, "You are {{ name }}. Last: {{ state.offer }}. Offer?")
        answer = await ask("Bob", Answer, "You get {{ x }}. Take it?", x=offer.amount, decide=how)
        return Deal(offer=offer.amount, taken=answer.way == "yes")


def bargains(request: ChatRequest) -> Any:
    if request.site and request.site.agent == "Ann":
        return gift(request)
    if request.top_logprobs is not None:
        yes = 0.8 if MORE in request.prompt else 0.3
        letters = re.findall(r"^([A-Z]): (.+)$", request.messages[-1].content, re.MULTILINE)
        chances = {"yes": yes, "no": 1 - yes}
        top = tuple((letter, math.log(chances[text])) for letter, text in letters)
        return ChatReply(text="A", top_logprobs=top)
    return {"reasoning": "Well.", "way": "yes", "confidence": 1.0}


def looking(request: ChatRequest) -> Any:
    """Look up the tasks, then say how many there are."""
    if request.messages[-1].role == "tool":
        return f"One task. {MORE}" if MORE in request.prompt else "One task."
    return ChatReply(text="", tool_calls=(ToolCall(name="list_tasks", arguments={}),))


def world(name: str, tape: Tape) -> Any:
    if name == "own":
        return goods(tape)
    run: Any = make_crisis(tape) if name == "crisis" else make_social(tape)
    run.run(2 if name == "crisis" else 6)
    return run


@pytest.mark.parametrize("name", ["own", "crisis", "social"])
def test_each_world_is_asked_again_recorded_loaded_and_replayed(tmp_path: Path, name: str) -> None:
    tape = Tape(tmp_path / "x.tape")
    run = world(name, tape)
    found = Comparison(run, prompt={"more": generous}, samples=2)
    turns = len(found.turns)
    frame = found.run()
    assert len(found.played) == 4 * turns
    assert frame["completed"].all()
    assert verify(tape) == []
    seeds = frame.groupby(["turn", "sample"])["seed"].nunique()
    assert (seeds == 1).all()
    loaded = Comparison.load(tape, prompt={"more": generous})
    assert loaded.frame.equals(frame)
    assert loaded.replay().equals(frame)
    assert loaded.outcomes == found.outcomes
    assert found.tape is tape
    # Whoever reads the tape gets turns of the run's own class.
    assert [type(turn) for turn in turns_of(tape, 2)][1:] == [run.turn_type] * len(found.played)
    assert str(tape.tree()).count("experiment") == 1


def test_what_a_sentence_does_is_found_in_a_world_of_ones_own() -> None:
    found = Comparison(goods(), prompt={"more": generous}, samples=6, outcome="given.Ann")
    found.run()
    effect, answers = found.effects()
    assert found.effects().to_frame()["outcome"].tolist() == ["given.Ann", "answers"]
    assert (effect.contrast, effect.outcome) == ("more \u2212 as it was", "given.Ann")
    assert effect.estimate == pytest.approx(10, abs=1e-9)
    assert effect.unit == "situations"
    assert "these 2 situations" in effect.speaks_of
    assert answers.outcome == "answers"
    assert answers.p_family is not None
    assert answers.p_family < 0.05
    assert found.answers["variant"].unique().tolist() == ["as it was", "more"]
    assert "these 2 situations" in found._repr_html_()


def test_without_a_seed_each_call_has_its_own_and_all_variants_share_them() -> None:
    run = goods()
    before = len(requests_of(run.llm_client))
    found = Comparison(run, prompt={"more": generous}, samples=2, turns=[1])
    found.run()
    seeds: dict[bool, list[Any]] = {False: [], True: []}
    for request in asked_by(run.llm_client, before):
        assert request.site is not None
        seeds[MORE in request.prompt].append((request.site.agent, request.options["seed"]))
    assert sorted(seeds[False]) == sorted(seeds[True])
    assert len(set(seeds[True])) == 8
    assert len({seed for _, seed in seeds[True]}) == 8


def test_the_state_that_is_asked_about_is_the_recorded_one() -> None:
    run = goods(turns=3)
    before = len(requests_of(run.llm_client))
    Comparison(run, prompt={"more": generous}, samples=1, turns=[3]).run()
    asked = {r.prompt.replace(f" {MORE}", "").strip() for r in asked_by(run.llm_client, before)}
    assert asked == {call.request.prompt for call in run.turns[3].calls}
    assert run.turn_number == 3


def test_who_was_asked_before_is_answered_from_the_recording() -> None:
    run = Bargain(llm_client=client_of(bargains))
    run.run(2)
    before = len(requests_of(run.llm_client))
    found = Comparison(run, component="player:Bob", prompt={"more": generous}, samples=2)
    assert found.plan().calls == 8
    frame = found.run()
    asked = asked_by(run.llm_client, before)
    assert Counter(r.site.agent for r in asked if r.site) == {"Bob": 8}
    assert [MORE in r.prompt for r in asked] == [False, True] * 4
    assert frame["calls"].tolist() == [1] * 8
    assert set(frame["offer"]) == {run.turns[1].state.offer, run.turns[2].state.offer}
    # Ann is first, so that what Bob is asked follows from her and is asked as well.
    assert Comparison(run, component="player:Ann", prompt={"more": generous}).plan().calls == 40


def test_a_component_without_a_template_is_asked_with_the_changed_text() -> None:
    crisis = make_crisis()
    crisis.run(2)
    client = crisis_client(lambda request: crisis_said(f"Ask {MORE in request.prompt}"))
    found = Comparison(
        crisis, component="agent:Ada", prompt={"more": generous}, samples=1, llm_client=client
    )
    assert found.plan().calls == 4  # Bo's answer is the recorded one
    frame = found.run()
    requests = requests_of(client)
    assert {r.site.agent for r in requests if r.site} == {"Ada"}
    assert [r.messages[-1].content.endswith(MORE) for r in requests] == [False, True] * 2
    said = [text.rpartition(" Ask ")[2] for text in frame["decision"]]
    assert said == ["False", "True"] * 2
    view = found.sample("more", 2)
    assert (view.turn_number, view.tape) == (2, None)
    with pytest.raises(
        ConfigError, match=r"agent:Ada has no template.*give a function of the text"
    ):
        Comparison(crisis, component="agent:Ada", prompt={"more": "Do {{ what }}."})


@pytest.mark.parametrize("component", ["engine", "agent"])
def test_a_function_changes_the_prompt_of_the_component_and_no_other(component: str) -> None:
    crisis, client = make_crisis(), crisis_client()
    crisis.run(1)
    Comparison(
        crisis, component=component, prompt={"more": generous}, samples=1, llm_client=client
    ).run()
    changed = {r.site.component for r in requests_of(client) if r.site and MORE in r.prompt}
    assert changed == {component}


def test_a_second_attempt_is_asked_with_the_changed_text_too() -> None:
    crisis = make_crisis()
    crisis.run(1)
    replies = iter(["nothing", crisis_said("Go on"), "nothing", crisis_said("Stop")])
    client = crisis_client(lambda request: next(replies))
    found = Comparison(
        crisis, component="agent:Bo", prompt={"more": generous}, samples=1, llm_client=client
    )
    found.run()
    again = [request for request in requests_of(client) if request.attempt == 2]
    assert [MORE in request.prompt for request in again] == [False, True]
    assert again[1].messages[-1].content.endswith(MORE) == (len(again[1].messages) < 3)


def test_a_function_that_no_tape_holds_is_given_again(tmp_path: Path) -> None:
    crisis = make_crisis(tmp_path / "x.tape")
    crisis.run(1)
    client = crisis_client()
    found = Comparison(
        crisis, component="agent:Bo", prompt={"more": generous}, samples=1, llm_client=client
    )
    frame = found.run()
    with pytest.raises(ConfigError, match=r"'more' .* is a function.*give it again"):
        Comparison.load(crisis.tape)  # type: ignore[arg-type]
    loaded = Comparison.load(crisis.tape, prompt={"more": generous})  # type: ignore[arg-type]
    assert loaded.replay().equals(frame)


def test_models_are_compared_over_whole_turns(tmp_path: Path) -> None:
    tape = Tape(tmp_path / "x.tape")
    run = goods(tape)
    larger = client_of(lambda request: {"reasoning": "", "amount": 15, "confidence": 1.0})
    found = Comparison(run, model={"larger": larger}, samples=2, outcome=["given.Ann"])
    assert found.plan().calls == 32
    frame = found.run()
    assert len(requests_of(larger)) == 16
    given = frame.groupby("variant")["given.Ann"].max()
    assert given["as it was"] < 4 < given["larger"] == 15
    loaded = Comparison.load(tape)
    assert loaded.frame.equals(frame)
    assert loaded.replay().equals(frame)
    assert loaded.outcomes == ["given.Ann"]
    with pytest.raises(ConfigError, match=r"needs a model.*model=\{'larger'"):
        Comparison.load(tape, llm_client=client_of()).run()


def test_where_answers_have_probabilities_the_contrast_is_exact(tmp_path: Path) -> None:
    run = Bargain(llm_client=client_of(bargains), tape=tmp_path / "x.tape", decide="mode")
    run.run(2)
    found = Comparison(run, component="player:Bob", prompt={"more": generous}, samples=1)
    found.run()
    exact = {effect.outcome: effect for effect in found.exact}
    assert exact["chance of yes"].estimate == pytest.approx(0.5)
    assert exact["chance of no"].estimate == pytest.approx(-0.5)
    assert exact["chance of yes"].n == 2
    loaded = Comparison.load(run.tape, prompt={"more": generous})  # type: ignore[arg-type]
    assert loaded.exact == []
    loaded.replay()
    assert [effect.estimate for effect in loaded.exact] == [e.estimate for e in found.exact]
    run.close()


def test_all_outcomes_and_variants_are_one_family() -> None:
    found = Comparison(
        goods(),
        prompt={"as it was": None, "more": generous, "same": lambda text: f"{text} "},
        samples=4,
        outcome=["given.Ann", "given.Bob"],
    )
    found.run()
    alone = [effect.p for effect in found.effects()]
    assert len(alone) == 6
    known = sorted(p for p in alone if p is not None)
    smallest = min(e.p_family for e in found.effects() if e.p_family is not None)
    assert smallest == pytest.approx(min(1.0, len(known) * known[0]))
    assert all(
        e.p_family >= e.p for e in found.effects() if e.p is not None and e.p_family is not None
    )


def test_a_prompt_that_changes_nothing_makes_a_difference_of_exactly_zero() -> None:
    run = goods()
    found = Comparison(run, prompt={"a": None, "b": None}, samples=3, outcome="given.Ann")
    found.run()
    assert [effect.estimate for effect in found.effects()] == [0, 0]
    assert found.effects()[1].p == 1


def test_an_outcome_may_be_a_function_of_the_turn() -> None:
    def total(turn: Any) -> float:
        return float(sum(turn.state.given.values()))

    found = Comparison(goods(), prompt={"more": generous}, samples=2, outcome=total)
    found.run()
    assert found.effects()[0].outcome == "total"
    assert found.effects()[0].estimate == pytest.approx(40)


async def test_a_conversation_is_asked_again_and_its_tools_are_not_run_twice(
    tmp_path: Path,
) -> None:
    tape, tools = Tape(tmp_path / "x.tape"), MemoryTasks(ann=["Tea"])
    client = client_of(looking)
    chat = Chat(user_id="ann", constitution="Help.", llm_client=client, tools=tools, tape=tape)
    await chat.send("What is due?")
    found = Comparison(chat, prompt={"more": generous}, samples=1)
    frame = await found.arun()
    assert len(tools.ran) == 1
    assert frame["decision"].tolist() == ["One task.", f"One task. {MORE}"]
    assert frame["calls"].tolist() == [2, 2]
    loaded = Comparison.load(tape, prompt={"more": generous})
    assert (await asyncio.to_thread(loaded.replay)).equals(frame)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give prompts or models to compare, one of both"),
        ({"prompt": {"a": generous}, "model": {"b": None}}, "one of both"),
        ({"model": {}}, "model={} must be clients by name"),
        ({"model": {"b": "auto"}}, "model 'b' is 'auto', not a client"),
        ({"model": {" ": None}}, "name that is not empty"),
        ({"prompt": {"a": None}}, "is the prompt as it was; give another"),
        ({"prompt": {"a": lambda text: 5}}, "variant 'a' is int"),
        ({"prompt": {"a": generous}, "outcome": "gifts"}, "'gifts' is not a number of this run's"),
        ({"prompt": {"a": generous}, "component": "Ann"}, "it has: player, player:Ann, player:Bob"),
    ],
)
def test_wrong_arguments_name_the_way_out(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Comparison(goods(), **arguments)
    assert message in str(caught.value)


def test_of_several_templates_a_prompt_names_its_own() -> None:
    run = Bargain(llm_client=client_of(bargains))
    run.run(1)
    with pytest.raises(ConfigError, match=r"several templates \(offer, answer\)"):
        Comparison(run, prompt={"more": "You get {{ x }}."})
    answer = next(prompt for prompt in run.prompts.values() if prompt.name == "answer")
    before = len(requests_of(run.llm_client))
    Comparison(run, prompt={"more": answer.replace("Take", "Dare take")}, samples=1).run()
    asked = [request.prompt for request in asked_by(run.llm_client, before)]
    assert sum("Dare take" in prompt for prompt in asked) == 1
    assert len(asked) == 4


def test_a_loaded_run_is_left_as_it_is(tmp_path: Path) -> None:
    goods(tmp_path / "x.tape").close()
    run = load(tmp_path / "x.tape")
    turns, prompts = list(run.turns), dict(run.prompts)
    Comparison(run, prompt={"more": generous}, samples=1, llm_client=client_of()).run()
    assert run.turns == turns
    assert dict(run.prompts) == prompts


@pytest.mark.parametrize("outcome", [lambda turn: 1 / 0, lambda turn: "much"])
def test_an_outcome_that_gives_no_number_raises_before_a_sample_is_played(outcome: Any) -> None:
    with pytest.raises(ConfigError, match="gives no number for the run's last turn"):
        Comparison(goods(), prompt={"more": generous}, outcome=outcome)
