"""What is varied, what its names stand for, and which arms come of it."""

from __future__ import annotations

import copy
import json
import math
import os
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from fake_ollama import FakeOllama
from study_kit import Basin, Water, Wish, instant_client

from llmsim_lab import LLMConfig, Prompt, Simulation, SimulationConfig, TaylorRuleAgent
from llmsim_lab.economy import TaylorRule
from llmsim_lab.errors import ConfigError
from llmsim_lab.study import Study
from llmsim_lab.study._design import said


def study_of(world: Any = Water, vary: Any = None, **more: Any) -> Study:
    settings = {"seeds": 2, "turns": 2, "llm_client": instant_client(), **more}
    return Study(world, vary, **settings)


def config_in(study: Study, arm: str) -> Any:
    return study.simulation(arm, 0).config


def played(study: Study) -> Study:
    return study.run(progress=False)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"vary": {"factor": {1: 1.0, "1": 2.0}}}, "two levels called '1'"),
        ({"outcome": [lambda _: 1.0, lambda _: 2.0]}, "two outcomes are called '<lambda>'"),
    ],
)
def test_two_of_one_name_raise_and_none_is_lost(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study_of(**more)


def adding(text: str, *, times: int = 1) -> Any:
    return lambda old: old + text * times


class Plain:
    def __init__(self, amount: float) -> None:
        self.amount = amount


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (adding("Be kind."), adding("Be harsh.")),
        (adding("Be kind."), adding("Be kind.", times=2)),
        (lambda old, more="a": old + more, lambda old, more="b": old + more),
        (lambda _: (lambda: 1)(), lambda _: (lambda: 2)()),
        (partial(adding, times=1), partial(adding, times=2)),
        (TaylorRule(inflation_target=2.0), TaylorRule(inflation_target=3.0)),
        (Plain(1.0), Plain(2.0)),
        (np.int64(1), np.int64(2)),
        (math.inf, -math.inf),
    ],
)
def test_levels_that_play_differently_are_told_apart_on_a_tape(one: Any, other: Any) -> None:
    assert said(one) != said(other)
    assert said(one) == said(copy.deepcopy(one))


@pytest.mark.process
def test_what_identifies_a_level_is_the_same_in_every_process() -> None:
    code = (
        "from llmsim_lab.study._design import said\n"
        "print(said([{'a', 'b', 'c', 'd'}, lambda it: it in {'e', 'f', 'g', 'h'}, object()]))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1


def test_a_function_that_calls_itself_identifies_a_level() -> None:
    def down(count: int) -> int:
        return down(count - 1) if count else 0

    assert said(down).startswith("function down")


# --- arms ----------------------------------------------------------------------------------------


def test_a_full_design_has_every_combination_and_the_first_is_the_reference() -> None:
    study = study_of(vary={"factor": [1.0, 2.0], "taste": ["plain", "fine"]})
    assert study.arms == {
        "factor=1 · plain": {"factor": "1", "taste": "plain"},
        "factor=1 · fine": {"factor": "1", "taste": "fine"},
        "factor=2 · plain": {"factor": "2", "taste": "plain"},
        "factor=2 · fine": {"factor": "2", "taste": "fine"},
    }
    assert study.reference == "factor=1 · plain"


def test_one_at_a_time_changes_one_factor_from_the_first_levels() -> None:
    study = study_of(
        vary={"factor": [1.0, 2.0, 3.0], "taste": ["plain", "fine"]}, design="one at a time"
    )
    assert list(study.arms) == ["reference", "factor=2", "factor=3", "taste=fine"]
    assert study.arms["taste=fine"] == {"factor": "1", "taste": "fine"}


def test_levels_may_have_labels() -> None:
    study = played(study_of(vary={"factor": {"dry": 0.5, "wet": 3}}))
    assert list(study.arms) == ["dry", "wet"]
    assert config_in(study, "wet").factor == 3.0


@pytest.mark.parametrize(
    ("vary", "more", "message"),
    [
        ({"factr": [1.0]}, {}, "nothing called 'factr' to vary (did you mean 'factor'?)"),
        ({"llm.temprature": [0.1]}, {}, "did you mean 'llm.temperature'"),
        ({"factor": 2.0}, {}, "neither a list of levels nor a mapping"),
        ({"factor": []}, {}, "is empty"),
        ({"factor": [1.0, "much"]}, {}, "arm 'much': Water: factor"),
        ({"factor": [1.0, 1.0]}, {}, "two levels called '1'"),
        ({"seed": [1, 2]}, {}, "the study's own, not a factor; say Study(..., seed="),
        ({"llm": [{"temperature": -1}]}, {}, "temperature"),
        ({"factor": [1.0, 2.0]}, {"design": "ful"}, "did you mean 'full'"),
        ({"factor": [1.0, 2.0]}, {"factor": 2.0}, "both fixed and varied"),
        ({"factor": [1.0, 2.0]}, {"seeds": [1, 1]}, "names a seed twice"),
        ({"factor": [1.0, 2.0]}, {"seeds": 0}, "seeds"),
        ({"players": ["ruel"]}, {}, "players"),
        ({"state": [3]}, {}, "starts from 3"),
        ({"prompt": {"new": {"wsh": str}}}, {}, "no prompt is called 'wsh' (did you mean 'wish'?)"),
        ({"prompt": {"new": lambda text: 3}}, {}, "not a text"),
    ],
)
def test_a_wrong_name_or_level_raises_before_anything_is_played(
    vary: Any, more: Any, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        study_of(vary=vary, **more)
    assert message in str(caught.value)


def test_a_wrong_model_raises_before_anything_is_played() -> None:
    study = study_of(vary={"model": {"real": instant_client(), "typo": "olama:x"}})
    with pytest.raises(ConfigError, match="olama:x"):
        study.run(progress=False)
    assert study.counts == {"left": 4}


@pytest.mark.parametrize("world", [3, "Water", Water(llm_client=instant_client())])
def test_what_cannot_be_played_is_named(world: Any) -> None:
    with pytest.raises(ConfigError, match=r"give (the class|a Run class)"):
        study_of(world)


# --- what names stand for ------------------------------------------------------------------------


def test_a_nested_setting_is_named_by_its_path_and_reaches_the_model() -> None:
    client = instant_client()
    study = played(study_of(vary={"llm.temperature": [0.1, 0.9]}, llm_client=client))
    sent = [request.options["temperature"] for request in client.backend.requests]
    assert sorted(set(sent)) == [0.1, 0.9]
    assert config_in(study, "llm.temperature=0.9").llm.temperature == 0.9


def test_a_bare_name_that_is_in_one_place_is_set_there() -> None:
    study = study_of(vary={"temperature": [0.1, 0.9]})
    assert study._world.config(study._by_name["temperature=0.9"], 0).llm.temperature == 0.9


TWO = [{"name": "Aland"}, {"name": "Bland", "temperament": "hawkish"}]


def test_a_bare_name_of_a_nation_is_set_in_all_nations() -> None:
    study = study_of(Simulation, {"temperament": ["cautious", "hawkish"]}, nations=TWO)
    config = study._world.config(study._by_name["cautious"], 0)
    assert [nation.temperament for nation in config.nations] == ["cautious", "cautious"]


def test_a_path_with_a_number_is_set_in_one_nation() -> None:
    study = study_of(
        SimulationConfig(nations=TWO), {"nations.0.temperament": ["hawkish", "dovish"]}
    )
    config = study._world.config(study._by_name["dovish"], 0)
    assert [nation.temperament for nation in config.nations] == ["dovish", "hawkish"]


def test_what_follows_from_a_level_is_worked_out_anew() -> None:
    study = study_of(Simulation, {"moves_bp": {"stated": [-25, 0, 25], "in words": None}})
    briefings = [study._world.config(study._by_name[arm], 0).briefing for arm in study.arms]
    assert briefings == ["economist", "thin"]


def test_an_ambiguous_name_says_where_it_is() -> None:
    with pytest.raises(ConfigError, match=r"'engine.*kind|may be several things"):
        study_of(Simulation, {"kind": ["llm", "taylor"]})


def test_a_configuration_class_and_a_configuration_are_worlds_too() -> None:
    for world in (SimulationConfig, SimulationConfig()):
        assert study_of(world)._cls is Simulation


def test_players_are_varied_by_word_and_by_function() -> None:
    greedy = lambda question: {"amount": 9, "reasoning": "", "confidence": 1}  # noqa: E731
    study = played(
        study_of(
            vary={"players": {"rule": "rule", "one": {"Ann": greedy, "*": "rule"}}},
            llm_client=None,
            outcome=["shares.Ann", "shares.Bob"],
        )
    )
    means = study.outcomes().groupby(["arm", "outcome"])["value"].mean().to_dict()
    assert means == {
        ("rule", "shares.Ann"): 3,
        ("rule", "shares.Bob"): 4,
        ("one", "shares.Ann"): 9,
        ("one", "shares.Bob"): 4,
    }


def test_rules_play_the_economy_where_players_say_so() -> None:
    study = played(study_of(Simulation, {"players": ["rule"]}, llm_client=None))
    assert study.counts == {"done": 2}


def test_the_state_to_start_from_is_varied() -> None:
    full, empty = Basin(level=20.0), Basin(level=0.0)
    study = played(study_of(vary={"state": {"full": full, "empty": empty}}))
    frame = study.to_frame()
    assert frame[frame["turn"] == 0].groupby("arm")["level"].first().to_dict() == {
        "empty": 0.0,
        "full": 20.0,
    }


def test_a_function_makes_the_runs() -> None:
    def water(factor: float, thirst: str, seed: int, llm_client: Any) -> Water:
        return Water(factor=factor, taste=f"very {thirst}", seed=seed, llm_client=llm_client)

    study = played(study_of(water, {"thirst": ["dry", "wet"]}, factor=2.0, aa=True))
    assert config_in(study, "wet").taste == "very wet"
    assert config_in(study, "wet").factor == 2.0
    assert config_in(study, "A/A").replicate == 1


def seedless(factor: float) -> Water:
    return Water(factor=factor)


def forgetful(factor: float, seed: int) -> Water:
    del seed
    return Water(factor=factor, llm_client=instant_client(), seed=99)


def other(factor: float, seed: int) -> object:
    return [factor, seed]


@pytest.mark.parametrize(
    ("make", "vary", "message"),
    [
        (seedless, {"factor": [1.0]}, "takes no seed"),
        (forgetful, {"factor": [1.0]}, "hand the seed on"),
        (other, {"factor": [1.0]}, "must return a run"),
        (other, {"facto": [1.0]}, "takes no 'facto' .did you mean 'factor'"),
    ],
)
def test_a_function_that_makes_no_proper_run_is_told_so(make: Any, vary: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study_of(make, vary)


# --- prompts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: f"{text} Be kind.",
        {"wish": lambda text: f"{text} Be kind."},
        "You are {{ name }}, {{ run.taste }}. The basin holds {{ state.level }}. Be kind.",
        Prompt("You are {{ name }}. The basin holds {{ state.level }}. Be kind.", name="wish"),
    ],
)
def test_a_prompt_of_ones_own_world_is_edited(edit: Any) -> None:
    study = played(study_of(vary={"prompt": {"as it is": None, "kind": edit}}))
    prompts = {
        arm: {call.request.prompt.endswith("Be kind.") for call in study.simulation(arm, 0).calls}
        for arm in study.arms
    }
    assert prompts == {"as it is": {False}, "kind": {True}}


def test_a_prompt_of_the_economy_is_edited_for_its_agents() -> None:
    study = study_of(
        Simulation, {"prompt": {"as it is": None, "hawk": lambda text: f"{text} Be a hawk."}}
    )
    prompts = study._world.trial(study._by_name["hawk"], 0).prompts
    assert prompts["agent:United States"].text.endswith("Be a hawk.\n")
    assert not prompts["validator"].text.endswith("Be a hawk.\n")


class TwoMinds(Water):
    """Asks with another prompt after an answer that chance never gives."""

    async def turn(self, state: Basin, ask: Any) -> Basin:
        said = "{{ name }}?" if state.level < 900 else "Now what, {{ name }}?"
        wishes = await ask.each(state.shares, Wish, said)
        said_so = all(wish.reasoning == "so" for wish in wishes.values())
        return state.replace(level=1000.0 if said_so else 0.0)


def test_a_run_that_asked_with_a_prompt_that_was_not_edited_fails_loudly() -> None:
    study = study_of(TwoMinds, {"prompt": {"as it is": None, "new": lambda text: f"{text} Hm."}})
    played(study)
    assert set(study.runs.groupby("arm")["status"].first()) == {"done", "failed"}
    assert "never came to" in study.runs[study.runs["arm"] == "new"]["error"].iloc[0]


# --- models and call seeds -----------------------------------------------------------------------


def seeds_sent(client: Any) -> list[int]:
    return sorted(request.options["seed"] for request in client.backend.requests)


def test_models_are_varied_and_arms_of_one_model_share_its_client() -> None:
    clients = {"one": instant_client(), "two": instant_client()}
    played(study_of(vary={"model": clients, "factor": [1.0, 2.0]}, llm_client=None))
    assert [len(client.backend.requests) for client in clients.values()] == [16, 16]


def test_models_are_named_as_connect_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = {"reasoning": "so", "amount": 2, "confidence": 0.5}
    with FakeOllama(["small", "large"], reply=reply) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.host)
        study = study_of(
            vary={"model": ["ollama:small", "ollama:large"]}, llm_client=None, temperature=0.4
        )
        played(study)
        asked = [json.loads(request.content) for request in server.requests if request.content]
    chats = [content for content in asked if "messages" in content]
    assert {(chat["model"], chat["options"]["temperature"]) for chat in chats} == {
        ("small", 0.4),
        ("large", 0.4),
    }
    assert study.counts == {"done": 4}


def test_a_function_that_makes_a_client_is_called_once() -> None:
    made = []

    def model() -> Any:
        made.append(instant_client())
        return made[-1]

    played(study_of(vary={"model": {"one": model}, "factor": [1.0, 2.0]}, llm_client=None))
    assert len(made) == 1


def test_call_seeds_follow_from_seed_and_place_and_never_from_the_arm() -> None:
    clients = {"one": instant_client(), "two": instant_client()}
    played(study_of(vary={"model": clients}, llm_client=None, seeds=3))
    assert seeds_sent(clients["one"]) == seeds_sent(clients["two"])
    assert len(set(seeds_sent(clients["one"]))) == 3 * 2 * 2


def test_the_a_a_arm_has_the_same_world_and_other_call_seeds() -> None:
    client = instant_client()
    study = played(study_of(vary={"taste": ["plain", "fine"]}, llm_client=client, aa=True))
    assert config_in(study, "A/A").taste == "plain"
    assert config_in(study, "A/A").replicate == 1
    sent = seeds_sent(client)
    assert len(sent) == 24
    assert len(set(sent)) == 16  # two arms share theirs


def test_a_a_with_a_fixed_call_seed_would_show_nothing() -> None:
    with pytest.raises(ConfigError, match=r"leave llm\.seed out"):
        played(study_of(llm_client=instant_client(seed=7), aa=True))


def test_without_a_model_the_study_says_so_before_it_plays() -> None:
    with pytest.raises(ConfigError, match="asks a model, and the study has none"):
        played(study_of(llm_client=None))
    with pytest.raises(ConfigError, match="needs a model"):
        played(study_of(Simulation, llm_client=None))


def test_settings_of_the_given_client_stay_where_nothing_is_varied() -> None:
    client = instant_client(temperature=0.33)
    played(study_of(llm_client=client))
    assert client.config == LLMConfig(
        model="instant", retry_wait_s=0, max_concurrency=64, temperature=0.33
    )
    assert {request.options["temperature"] for request in client.backend.requests} == {0.33}


def test_a_part_is_made_anew_for_each_run() -> None:
    made = []

    def agents(_client: Any) -> Any:
        made.append(TaylorRuleAgent("Rule"))
        return [made[-1]]

    vary = {"agents": {"rule": agents}}
    played(study_of(Simulation, vary, llm_client=None, validator={"kind": "always_valid"}))
    assert len(made) >= 2
    with pytest.raises(ConfigError, match="cannot share a part"):
        study_of(Simulation, {"agents": {"rule": [TaylorRuleAgent("Rule")]}})


def test_what_can_be_varied_is_listed_once() -> None:
    with pytest.raises(ConfigError) as error:
        study_of(Water, {"sise": [1, 2]})
    names = str(error.value).split("there are ")[1].split(", ")
    assert sorted(set(names)) == sorted(names)
