"""The economic world: turn, seats, committee, what is set from outside, parameters."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from builders import (
    answer,
    config_in,
    in_words,
    make_client,
    make_simulation,
    played,
    policy,
    rate_update,
    recorded,
    requests_of,
    verdict,
)

from llmsim_lab.agents import Agent, NationAgent, TaylorRuleAgent
from llmsim_lab.economy.macro import NO_SHOCKS
from llmsim_lab.engines import EconomicEngine
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.models import Action, GlobalState, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Question
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.simulation.world import Economy
from llmsim_lab.types import ChatRequest
from llmsim_lab.validators import EconLLMValidator


def ruled(**more: Any) -> Simulation:
    """A run by rules, without shocks."""
    return Simulation(**{"players": "rule", "economy": {"shock_scale": 0}, **more})


def rates(world: Simulation, turns: int = 1) -> list[float]:
    return world.run(turns, progress=False)["interest_rate"].tolist()


def asked_of(world: Simulation, player: str = "agent") -> list[ChatRequest]:
    calls = [call.request for turn in world.turns for call in turn.calls]
    return [it for it in calls if it.site is not None and it.site.component == player]


def moving(change_bp: int, action: str = "Change the rate") -> dict[str, Any]:
    words = {"action": action, "reasoning": "It is time.", "confidence": 0.5}
    return {**words, "rate_change_bp": change_bp}


# --- a turn ---------------------------------------------------------------------------------------


def test_members_are_asked_then_the_validator_then_the_engine_and_the_frames_say_so() -> None:
    def strict(request: ChatRequest) -> Any:
        assert request.site is not None
        if (request.site.component, request.site.agent) == ("validator", "Borduria"):
            return verdict(is_valid=False)
        return answer(request)

    world = make_simulation(strict, start_at="1979Q3", turns=1)
    frame = world.run(progress=False)
    assert frame.columns.tolist() == [
        "turn", "period", "interest_rate", "inflation", "output_gap", "unemployment",
        "gdp_growth", "total_economic_value", "taylor_rate", "calls", "ok", "repaired", "fallback",
        "failed", "tokens", "seconds", "interventions", "actions", "accepted",
    ]  # fmt: skip
    assert frame["period"].tolist() == ["1979Q3", "1979Q4"]
    assert frame[["actions", "accepted", "calls"]].iloc[-1].tolist() == [2, 1, 5]
    assert frame["taylor_rate"].iloc[0] == pytest.approx(11.085324 * 1.5 + 1 + 0.5 * 2.614, abs=0.2)
    rows = world.decisions()
    assert rows[["component", "player"]].to_numpy().tolist() == [
        ["agent", "Aland"],
        ["agent", "Borduria"],
        ["validator", "Aland"],
        ["validator", "Borduria"],
        ["engine", "Aland"],
    ]
    applied = rows.query("component == 'engine'").iloc[0]
    agents = rows.query("component == 'agent'").set_index("player")
    assert applied["new_interest_rate"] == agents["new_rate"]["Aland"] == frame.interest_rate[1]
    assert agents["accepted"].to_dict() == {"Aland": True, "Borduria": False}
    assert rows["accepted"].sum() == 1  # each outcome stands on one row
    assert agents["action"].unique().tolist() == ["Raise the interest rate by 0.25"]


@pytest.mark.parametrize("component", ["agent", "validator", "engine"])
def test_a_failed_call_stops_the_turn_and_a_run_stepped_again_is_one_that_never_failed(
    component: str,
) -> None:
    faults = Counter({"left": 2})

    def failing(request: ChatRequest) -> Any:
        site = request.site
        assert site is not None
        if (site.turn, site.component, site.agent) == (3, component, "Borduria") and faults["left"]:
            faults["left"] -= 1
            return ConnectionError("refused")
        return answer(request)

    changes = [{"turn": 2, "set": {"shock.supply": 2}}, {"turn": 4, "set": {"inflation": 9}}]
    more: dict[str, Any] = {"seed": 3, "start_at": "1979Q3", "interventions": changes, "turns": 5}
    more["economy"] = {"shock_scale": 1}
    broken, whole = make_simulation(failing, **more), make_simulation(**more)
    with pytest.raises(LLMFailureException) as caught:
        broken.run(progress=False)
    assert (caught.value.component, broken.turn_number) == (component, 2)
    broken.run(3, progress=False)
    whole.run(progress=False)
    assert [turn.state for turn in broken.turns] == [turn.state for turn in whole.turns]
    assert [turn.story for turn in broken.turns] == [turn.story for turn in whole.turns]


def test_a_move_is_applied_exactly_as_far_as_the_bounds_and_no_engine_is_asked() -> None:
    client = make_client(lambda _: moving(-50))
    here = Economy().with_economy(GlobalState(interest_rate=0.8))
    world = Simulation(llm_client=client, state=here, economy={"shock_scale": 0}, turns=2)
    assert rates(world, 2) == [0.8, 0.3, 0]
    assert {it.site.component for it in requests_of(client) if it.site} == {"agent"}
    first, second = world.decisions().to_dict("records")
    assert (first["rate_change_bp"], first["applied_bp"], first["new_rate"]) == (-50, -50, 0.3)
    assert (second["rate_change_bp"], second["applied_bp"], second["new_rate"]) == (-50, -30, 0)
    assert "vote_bp" not in first  # one member of one is no committee


def test_policies_meet_the_same_shocks_with_what_is_set_on_top_of_them() -> None:
    def world(target: float, seed: int, hit: float = 0) -> Any:
        nation = {"name": "Bank", "inflation_target": target}
        run = ruled(nations=[nation], seed=seed, economy={"shock_scale": 1}, turns=6)
        run.intervene(0, {"shock.demand": hit})
        return run.run(progress=False).drop(columns=["seconds", "interventions"])

    dove, hawk, hit, other = world(4, 5), world(0, 5), world(4, 5, 2), world(4, 6)
    assert dove.equals(world(4, 5))
    assert not dove.equals(hawk)
    # Policy needs a quarter to reach the gap: until then both see the shocks alone.
    assert dove["output_gap"][1] == hawk["output_gap"][1] != other["output_gap"][1]
    assert hit["output_gap"][1] - dove["output_gap"][1] == pytest.approx(2)


# --- seats ---------------------------------------------------------------------------------------


def test_the_contracts_classes_sit_in_seats_and_a_replay_asks_none(path: Path) -> None:
    client, names = make_client(), ("Aland", "Borduria")
    profile = {"mandate": "jobs"}
    seats: dict[str, Any] = {name: NationAgent(name, client, profile=profile) for name in names}
    seats["validator"] = EconLLMValidator(client)
    seats["engine"] = EconomicEngine(None, client)
    config = in_words(nations=[{"name": name, **profile} for name in names], turns=2)
    seated = recorded(Simulation(config, players=seats, tape=path))
    modelled = played(Simulation(config, llm_client=make_client()))
    assert [turn.state for turn in seated.turns] == [turn.state for turn in modelled.turns]
    prompts = [
        [it.request.prompt for turn in run.turns for it in turn.calls] for run in (seated, modelled)
    ]
    assert prompts[0] == prompts[1]
    asked = len(requests_of(client))
    assert Simulation.replay(path, players=seats).turns == seated.turns
    assert len(requests_of(client)) == asked == 12


class Cutting(Agent):
    """An agent of one's own, without words beside the action."""

    async def decide_action(self, state: SimulationState) -> Action:
        assert state.turn == 0
        return Action(agent_name=self.name, action_string="Cut the rate", rate_change_bp=-25)


@pytest.mark.parametrize("moves", [None, (-25, 0)])
def test_an_agent_of_ones_own_states_its_size_in_either_world(moves: Any) -> None:
    world = ruled(
        players={"*": "rule", "Aland": Cutting("Aland")}, nations=["Aland"], moves_bp=moves
    )
    assert world.run(1, progress=False)["interest_rate"].tolist() == [4, 3.75]


@pytest.mark.parametrize(
    "agent", [TaylorRuleAgent("Aland"), NationAgent("Aland", make_client(policy()))]
)
def test_an_agent_that_knows_of_no_moves_is_told_where_to_give_them(agent: Agent) -> None:
    world = ruled(players={"*": "rule", "Aland": agent}, nations=["Aland"])
    with pytest.raises(ConfigError, match=r"'Aland' states no change, .* moves_bp=None, or"):
        world.run(1, progress=False)
    world = ruled(players=agent, nations=["Aland"], moves_bp=None)
    with pytest.raises(ConfigError, match=r"is asked for a ValidationDecision; .*\{'agent': ...\}"):
        world.run(1, progress=False)


def test_what_is_outside_the_domain_twice_changes_nothing_and_is_not_judged() -> None:
    said = [policy("Sing a song"), policy("Dance")]
    agent, client = NationAgent("Aland", make_client(said)), make_client(said)
    for players, calls in (({"*": "rule", "Aland": agent}, 1), ({}, 1)):
        world = ruled(players=players, nations=["Aland"], llm_client=client, moves_bp=None)
        assert rates(world) == [4, 4]
        [answer] = [it for it in world.turns[1].answers if it.component == "agent"]
        assert (answer.status, len(answer.calls)) == ("fallback", calls)
        assert "proposed (REJECTED)" in world.turns[1].story[0]
    assert [it.site.component for it in requests_of(client) if it.site] == ["agent", "agent"]


def test_a_function_is_the_validator_and_what_it_rejects_moves_nothing() -> None:
    verdicts: dict[str, Any] = {"Ann": True, "Bo": False, "Cy": False}

    def judge(question: Question) -> Any:
        valid = verdicts[question.player]
        return {"is_valid": valid, "reasoning": f"{question.values['action']}?", "confidence": 1}

    players = {"agent": votes, "validator": judge}
    world = ruled(players=players, validator="asked", nations=[*VOTES], turns=2)
    assert rates(world) == [4, 4.5]
    assert world.to_frame()[["actions", "accepted"]].iloc[-1].tolist() == [3, 1]
    rows = world.decisions().set_index(["component", "player"])
    assert not rows.loc[("agent", "Bo"), "accepted"]
    assert rows.loc[("agent", "Ann"), "vote_bp"] == 50
    verdicts["Ann"] = False
    assert rates(world)[-1] == 4.5
    assert world.turns[2].story[0] == "No vote counts, so the rate stays at 4.5%."
    wrong = ruled(players={"*": "rule", "validator": lambda _: True}, validator="asked")
    told = (
        r"rule of validator, about United States, .*is_valid=..., reasoning=..., confidence=...\)"
    )
    with pytest.raises(ConfigError, match=told):
        wrong.run(1)


def test_the_rule_needs_no_moves_and_takes_no_rate_from_words() -> None:
    by_rule = ruled(moves_bp=None, start_at="1979Q3", turns=2).run(progress=False)
    assert by_rule["interest_rate"].round(2).tolist()[1:] == [11.5, 13.5]
    worded = ruled(
        players={"agent": lambda _: dict(policy("Raise the rate")), "*": "rule"},
        moves_bp=None,
        turns=2,
    )
    assert worded.run(progress=False)["interest_rate"].tolist() == [4, 4, 4]


def test_who_judges_words_is_offered_rates_with_the_digits_of_the_prompt() -> None:
    offered: list[float] = []

    def hold(question: Question) -> Any:
        offered.extend(question.limits["new_interest_rate"])
        return {"new_interest_rate": offered[0], "reasoning": "So.", "confidence": 1.0}

    players = {"agent": lambda _: dict(policy("Hold the rate")), "engine": hold}
    world = ruled(players=players, moves_bp=None, validator="none", start_at="1979Q3")
    here = rates(world)[0]
    assert here != round(here, 2)
    assert offered == [round(rate, 2) for rate in offered]


# --- the committee --------------------------------------------------------------------------------


VOTES = {"Ann": 50, "Bo": 25, "Cy": -25}


def votes(question: Question) -> dict[str, Any]:
    return moving(VOTES[question.player])


def test_votes_become_one_rate_with_minutes() -> None:
    world = ruled(players=votes, nations=[*VOTES])
    assert rates(world) == [4, 4.25]
    assert world.turns[1].story[0] == (
        "Votes: Ann 4.5% (+50 bp), Bo 4.25% (+25 bp), Cy 3.75% (-25 bp). "
        "By the rule median: 4.25% (+25 bp); dissent: Ann, Cy."
    )
    rows = world.decisions().set_index("player")
    assert rows["vote_bp"].to_dict() == VOTES
    assert rows["dissent"].tolist() == [True, False, True]
    assert rows["outcome_bp"].tolist() == [25, 25, 25]
    assert rows["new_rate"].tolist() == [4.25] * 3


@pytest.mark.parametrize(
    "committee", ["median", "majority", {"rule": "chair", "chair": "Bo", "tolerance_bp": 50}]
)
def test_the_order_in_which_members_are_named_changes_nothing(committee: Any) -> None:
    worlds = [
        ruled(players=votes, nations=names, committee=committee, economy={"shock_scale": 1})
        for names in permutations(VOTES)
    ]
    frames = [world.run(2, progress=False).drop(columns="seconds") for world in worlds]
    assert all(frame.equals(frames[0]) for frame in frames)
    told = [[(turn.state, turn.answers, turn.story) for turn in world.turns] for world in worlds]
    assert all(its == told[0] for its in told)


def test_each_members_words_are_judged_from_the_rate_in_force() -> None:
    client = make_client([rate_update(4.5), rate_update(5)])
    words = {"Ann": "Raise the rate a little", "Bo": "Raise the rate"}
    world = ruled(
        nations=[*words],
        moves_bp=None,
        validator="none",
        players={"agent": lambda question: dict(policy(words[question.player]))},
        llm_client=client,
    )
    assert rates(world) == [4, 4.5]
    assert all("Interest Rate: 4%" in request.prompt for request in requests_of(client))


def test_one_after_the_other_each_meets_the_rate_that_the_last_one_left() -> None:
    world = ruled(
        players=lambda _: {**dict(policy()), "rate_change_bp": 25},
        nations=["Bo", "Ann"],
        committee="sequential",
        turns=1,
    )
    assert world.run(progress=False)["interest_rate"].tolist() == [4, 4.5]
    rows = world.decisions().set_index("player")
    assert rows.loc[["Bo", "Ann"], "new_rate"].tolist() == [4.25, 4.5]
    assert rows["applied_bp"].tolist() == [25, 25]


# --- from outside ---------------------------------------------------------------------------------


def test_what_is_set_at_a_turn_acts_on_the_way_to_the_next() -> None:
    shocks = [{"turn": 1, "set": {"shock.supply": 4}}, {"turn": 1, "set": {"shock.demand": 1}}]
    world = ruled(interventions=shocks, turns=4)
    frame = world.run(progress=False)
    assert frame["inflation"].tolist()[:3] == [2, 2, 3]  # 4 points in one of four quarters
    assert frame["output_gap"].tolist()[:3] == [0, 0, 1]
    assert world.turns[1].state.shock.supply == 4
    assert world.turns[2].state.shock == NO_SHOCKS


def test_what_is_set_moves_the_past_that_the_next_quarter_follows_from_and_no_more() -> None:
    world = ruled(turns=1)
    world.intervene(0, {"inflation": 9, "output_gap": 1, "interest_rate": 10})
    assert world.state.lags.inflation == (9, 9, 9, 9)
    assert world.state.lags.output_gap == (1, 0)
    assert world.state.lags.interest_rate == (10, 4, 4, 4)
    world.intervene(0, {"gdp_growth": -3, "total_economic_value": 900})
    assert (world.state.gdp_growth, world.state.total_economic_value) == (-3, 900)
    assert world.state.lags.inflation == (9, 9, 9, 9)
    world.run(progress=False)
    assert world.state.inflation == pytest.approx(9 + 0.14 / 4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"inflaton": 9}, r"'inflaton' \(did you mean 'inflation'\?\)"),
        ({"unemployment": 200}, r"unemployment: .*less than or equal to 100 \(it is 200\)"),
        ({"inflation": float("nan")}, "set: inflation is nan, and a tape holds finite numbers"),
        ({"shock.supply": float("inf")}, "set: shock.supply is inf"),
        ({"shock.oil": 3}, "oil"),
    ],
)
def test_what_no_economy_has_cannot_be_set(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ruled().intervene(0, values)


# --- parameters and notes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nations": [{"name": "Ann", "kind": "taylor"}]}, r"players: \{Ann: rule\}"),
        ({"validator": {"kind": "always_valid"}}, r"players=\{'validator': ...\}"),
        ({"engine": EconomicEngine()}, r"players=\{'engine': ...\}"),
        ({"agents": [Cutting("Ann")]}, r"players={'Ann': NationAgent\(...\)}"),
        ({"start": "1979Q3"}, "write start_at"),
        (
            {"interventions": [{"turn": 4, "shock": {"supply": 1}}]},
            "shock: unknown; there are turn, set, note; write .*, which acts on the way",
        ),
        ({"nations": ["Ann", "Ann"]}, "twice: Ann"),
        ({"start_at": "2010Q1"}, "quarter=2010Q1 is outside the data; choose 1960Q1 to"),
        ({"moves_bp": [25, 50]}, "0 among them"),
        ({"moves_bp": [0, 25, 25]}, "2 to 101 different changes"),
        ({"committee": {"rule": "chair"}}, "needs the chair's name"),
        ({"committee": {"rule": "median", "chair": "Ann"}}, "no effect with the rule median"),
        ({"moves_bp": None, "decide": "mode"}, "decide: mode needs moves"),
        ({"moves_bp": None, "briefing": "economist"}, "an economist's briefing needs moves"),
        ({"committee": {"rule": "chair", "chair": "Bob"}}, "there is no chair 'Bob'; there are"),
        ({"nations": [{"name": "Ann", "prompt": "## User\n\nHm."}]}, "no slot {{ moves }}"),
        ({"nations": [{"name": "Ann", "prompt": "hawk.md"}]}, "'hawk.md' is a file's name"),
        ({"economy": {"mirrored": True}, "start_at": "1981Q3"}, "choose another start"),
    ],
)
def test_parameters_that_do_not_fit_are_errors_that_name_the_way_out(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Simulation(**values)


def test_a_start_is_kept_in_one_form() -> None:
    assert Simulation(start_at=" 1979-q3").start_at == "1979Q3"


def test_a_member_is_asked_with_its_profile_and_its_rule_has_its_target() -> None:
    nation = {"name": "Aland", "mandate": "jobs", "inflation_target": 1, "temperament": "stern"}
    client = make_client()
    Simulation(nations=[nation], llm_client=client).run(1, progress=False)
    [request] = requests_of(client)
    assert "Mandate: jobs. Inflation target: 1%" in request.prompt
    assert "Temperament: stern." in request.prompt
    assert rates(ruled(nations=[nation])) == [4, 4.5]


def test_prompts_come_from_the_recording_and_not_from_todays_files(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Prompt.load("agent_policy")
    nation = {"name": "Ann", "prompt": f"## System\n\n{own.system}\n\n## User\n\nHm? {own.user}"}
    client = make_client()
    world = recorded(
        ruled(
            nations=[nation, "Bo"], players={}, llm_client=client, moves_bp=None, tape=path, turns=2
        )
    )
    load = Prompt.load

    def changed(name: str) -> Prompt:
        prompt = load(name)
        return prompt.edit(f"{prompt.text}\nAnd be quick.")

    monkeypatch.setattr(Prompt, "load", changed)
    replayed = Simulation.replay(path)
    assert replayed.turns == world.turns
    assert replayed.prompts == world.prompts
    edited = world.prompts[f"agent_policy#{own.digest[:8]}"].replace("ONE", "exactly ONE")
    forked = played(replayed.fork(1, prompt=edited, llm_client=client), 1)
    first, second = (it.prompt for it in asked_of(forked)[-2:])
    assert "Hm?" in first
    assert "exactly ONE" not in first
    assert "exactly ONE" in second


def test_charts_have_the_rates_bounds() -> None:
    world = ruled(engine={"rate_bounds": [0, 15]})
    bounds = {item.column: (item.low, item.high) for item in world.series}
    assert bounds["interest_rate"] == (0, 15)


def test_the_budget_adds_demand_at_the_bound_where_the_parameters_say_so() -> None:
    # The Taylor rule asks for -7.5 percent, and the first two points below the bound are tolerated.
    for rate, added in ((0, 0.1 * (7.5 - 2)), (20, 0)):
        slump = GlobalState(interest_rate=rate, inflation=-3, output_gap=-8)
        helped, alone = (
            ruled(
                economy={"shock_scale": 0, "fiscal_backstop": on},
                state=Economy().with_economy(slump),
            ).run(1)["output_gap"]
            for on in (True, False)
        )
        assert (helped - alone).tolist() == pytest.approx([0, added])


# --- mirror images --------------------------------------------------------------------------------


def test_a_mirrored_run_has_everything_on_the_other_side_of_the_steady_state() -> None:
    one, other = (
        ruled(start_at="2000Q2", seed=5, economy={"mirrored": on}).run(3, progress=False)
        for on in (False, True)
    )
    assert one["inflation"].std() > 0.1
    for column, twice in (("inflation", 4), ("output_gap", 0), ("unemployment", 10)):
        assert (one[column] + other[column]).tolist() == pytest.approx([twice] * 4)
    assert other["period"].isna().all()


# --- files ----------------------------------------------------------------------------------------


def read(folder: Path, text: str) -> SimulationConfig:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return config_in(path, kind="economic")  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("turns: 3\nsede: 1", "run.yaml, line 2: sede: unknown key; known here are briefing, "),
        ("nations:\n  - name: A\n    kind: taylor", "line 2: nations.0: kind: who decides is said"),
        ("engine:\n  max_moves: 1", "run.yaml, line 2: engine.max_moves: unknown key"),
        ("turns: -1", "line 1: turns: Input should be greater than or equal to 0 (it is -1)"),
        ("seed: 1\nstart_at: 2015Q1", "line 2: start_at: quarter=2015Q1 is outside the data"),
        ("start: 1979Q3", "line 1: start: write start_at: 1979Q3"),
    ],
)
def test_a_fault_in_a_file_is_explained(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
