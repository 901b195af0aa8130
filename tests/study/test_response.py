"""Impulse responses: pairs of forks, what they are compared with, and how they are continued."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import make_client, make_config, requests_of
from crisis_kit import make_crisis
from social_kit import make_social, social_client, social_values
from worlds import Gift, Pot, PublicGoods

from llmsim_lab import Question, data_path, load, replay
from llmsim_lab.agents import TaylorRuleAgent
from llmsim_lab.economy import TaylorRule, closed_loop
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.statechart import SocialSimulation
from llmsim_lab.study import impulse_response
from llmsim_lab.types import ChatRequest

UNBOUND = TaylorRule(lower_bound=-inf)
WIDE = {"rate_bounds": (-50, 50)}
SUPPLY = {"supply": 1}


def economy(**fields: Any) -> SimulationConfig:
    """A Taylor rule on a grid of moves, in an economy with shocks and hardly any bounds."""
    return make_config(**{"economy": {"shock_scale": 1}, "engine": WIDE, **fields})


def asked(**fields: Any) -> SimulationConfig:
    return economy(nations=["Aland"], **fields)


def by(rule: Any, **fields: Any) -> Simulation:
    config = economy(**fields)
    agent = TaylorRuleAgent(rule=rule, limits=config.engine.limits, exact=True)
    return Simulation(config, agents=[agent])


def hold(*, inflation: float, output_gap: float, previous_rate: float) -> float:
    return previous_rate


def moves(change_bp: int) -> Any:
    return lambda request: {
        "reasoning": "As always.",
        "rate_change_bp": change_bp,
        "action": "Set the interest rate",
        "confidence": 1.0,
    }


def reads_the_rate(request: ChatRequest) -> dict[str, Any]:
    """Raise the rate whenever the prompt says that inflation is above the target."""
    return moves(25 if "above the target" in request.prompt else -25)(request)


# --- rules and the linear solution ----------------------------------------------------------------


@pytest.mark.parametrize("shock", [{"supply": 1}, {"demand": -0.7}, {"supply": 0.3, "demand": 1}])
@pytest.mark.parametrize(
    "rule", [UNBOUND, TaylorRule(inertia=0.8, output_gap_weight=1.0, lower_bound=-inf)]
)
def test_rule_players_answer_as_the_linear_solution_off_the_bounds(
    rule: TaylorRule, shock: dict[str, float]
) -> None:
    response = impulse_response(by(rule), shock=shock, horizon=24, seeds=3, against=rule)
    linear = closed_loop(rule).response(**shock, quarters=25)
    for column in ("inflation", "output_gap", "interest_rate"):
        for curves in (response.curves, response.rule_curves):
            np.testing.assert_allclose(
                curves[column], np.tile(linear[column][1:], (3, 1)), atol=1e-9
            )
        shown = response.frame().query("column == @column")
        np.testing.assert_array_equal(shown["linear"], linear[column][1:])


def test_a_nation_of_the_configuration_follows_its_rule_exactly() -> None:
    calm = {"economy": {"shock_scale": 0.2}}
    config = economy(nations=[{"name": "Aland", "kind": "taylor", "exact": True}], **calm)
    response = impulse_response(config, shock=SUPPLY, seeds=2, against=TaylorRule())
    frame = response.frame().query("column == 'interest_rate'")
    np.testing.assert_allclose(frame["mean"], frame["linear"], atol=1e-9)
    coarse = impulse_response(economy(), shock=SUPPLY, seeds=2, columns=["interest_rate"])
    assert set((100 * coarse.curves["interest_rate"]).round(9).to_numpy().ravel() % 25) == {0}


def test_a_rule_against_itself_differs_by_exactly_nothing() -> None:
    response = impulse_response(by(TaylorRule()), shock=SUPPLY, seeds=4, against=TaylorRule())
    assert all((curve == 0).all(axis=None) for curve in response.minus_rule().curves.values())


def test_a_player_who_ignores_the_state_gives_the_path_without_a_policy_response() -> None:
    config = asked()
    response = impulse_response(
        config, shock=SUPPLY, seeds=3, against=hold, llm_client=make_client(moves(0))
    )
    assert all((curve == 0).all(axis=None) for curve in response.minus_rule().curves.values())
    assert (response.curves["interest_rate"] == 0).all(axis=None)
    linear = closed_loop(hold).response(supply=1, quarters=17)
    np.testing.assert_allclose(response.curves["inflation"].iloc[0], linear["inflation"][1:])


def test_at_a_bound_it_is_not_linear_and_a_note_says_so() -> None:
    narrow = economy(engine={"rate_bounds": (3.9, 4.1)})
    response = impulse_response(
        narrow, shock=SUPPLY, seeds=2, against=TaylorRule(), columns=["interest_rate"]
    )
    assert "in 2 of 2 pairs the rate was at one of its bounds" in response.notes[0]
    assert response.frame()["rule"].max() <= 0.2 < response.frame()["linear"].max()


def test_a_rules_own_lower_bound_counts_as_one() -> None:
    calm = by(TaylorRule(), economy={"shock_scale": 0})
    response = impulse_response(calm, shock={"demand": -12}, at=2, seeds=1, against=UNBOUND)
    assert response.notes[0].startswith("in 1 of 1 pairs the rate was at one of its bounds")
    assert len(response.notes) == 2


def test_an_exact_rule_is_replayed_from_a_tape(tmp_path: Path) -> None:
    config = economy(nations=[{"name": "Aland", "kind": "taylor", "exact": True}])
    run = Simulation(config, tape=tmp_path / "a.tape")
    run.run(6)
    run.close()
    assert replay(tmp_path / "a.tape").state == run.state
    decided = run.decisions().query("component == 'agent'")
    assert (decided["wanted_bp"] == decided["applied_bp"]).all()
    assert (decided["wanted_bp"] % 25).ne(0).any()


# --- pairs ----------------------------------------------------------------------------------------


def test_each_pair_has_a_seed_of_its_own_which_both_forks_share() -> None:
    client = make_client(reads_the_rate, model="scripted")
    response = impulse_response(
        asked(seed=5), shock=SUPPLY, at=3, horizon=4, seeds=3, llm_client=client
    )
    assert response.seeds == (5, 6, 7)
    seeds = [request.options["seed"] for request in requests_of(client, "agent")]
    # Two turns before the fork, then five in each of the two forks.
    assert sorted(seeds) == sorted([*set(seeds)] + [s for s in set(seeds) if seeds.count(s) > 1])
    assert len(set(seeds)) == 3 * 7
    assert len(seeds) == 3 * (2 + 2 * 5)


def test_the_band_has_a_row_for_each_turn_and_needs_two_pairs() -> None:
    response = impulse_response(economy(), shock=SUPPLY, horizon=6, seeds=6)
    frame = response.frame().query("column == 'interest_rate'")
    assert frame["horizon"].tolist() == list(range(7))
    assert (frame["n"] == 6).all()
    np.testing.assert_allclose(frame["mean"], response.curves["interest_rate"].mean())
    late = frame.query("horizon > 0")
    assert (late["low"] <= late["mean"]).all()
    assert (late["low"] < late["high"]).any()
    one = impulse_response(economy(), shock=SUPPLY, horizon=6, seeds=1)
    assert one.frame()["low"].isna().all()
    assert one.notes[-1] == "one pair: no interval; give more seeds"


def test_pairs_that_all_come_out_the_same_are_not_taken_for_precise() -> None:
    response = impulse_response(by(UNBOUND), shock=SUPPLY, seeds=3, columns=["interest_rate"])
    assert "all pairs came out the same" in response.notes[0]


def test_a_run_keeps_its_start_and_parts_in_each_pair_and_is_left_alone() -> None:
    start = Simulation(economy(start="1979Q3"))
    start.run(2)
    response = impulse_response(start, shock=SUPPLY, at=1, horizon=3, seeds=2)
    assert start.turn_number == 2
    assert len(response.curves["inflation"]) == 2


async def test_it_can_be_awaited_and_plays_several_pairs_at_once() -> None:
    client = make_client(moves(0), delay_s=0.002)
    response = impulse_response(
        asked(), shock=SUPPLY, horizon=2, seeds=4, parallel=2, llm_client=client, play=False
    )
    assert "not played yet" in str(response)
    with pytest.raises(ConfigError, match=r"await response\.arun\(\)"):
        response.frame()
    played = await asyncio.wait_for(response.arun(), 30)
    assert played is response
    assert len(played.seeds) == 4


def test_a_class_a_function_a_configuration_and_a_run_give_the_same() -> None:
    def made(seed: int) -> Simulation:
        return Simulation(economy(seed=seed))

    values = economy().model_dump(by_alias=True, include=economy().model_fields_set)
    found = [
        impulse_response(subject, shock=SUPPLY, horizon=4, seeds=2, **more)
        for subject, more in (
            (economy(), {}),
            (made, {}),
            (Simulation(economy()), {}),
            (Simulation, values),
        )
    ]
    for other in found[1:]:
        for name, curve in found[0].curves.items():
            np.testing.assert_array_equal(curve, other.curves[name])


# --- on a tape ------------------------------------------------------------------------------------


def test_a_completed_pair_is_not_played_again(tmp_path: Path) -> None:
    tape, first, second = tmp_path / "a.tape", *(make_client(reads_the_rate) for _ in range(2))
    options: dict[str, Any] = {"shock": SUPPLY, "at": 2, "horizon": 3, "tape": tape}
    once = impulse_response(asked(), seeds=2, llm_client=first, **options)
    again = impulse_response(asked(), seeds=2, llm_client=second, **options)
    assert requests_of(second) == []
    assert (once.curves["inflation"] == again.curves["inflation"]).all(axis=None)
    assert [(run.verb, run.parent) for run in Tape(tape).runs()] == [
        ("run", None),
        ("run", None),
        *[("fork", parent) for parent in (1, 1, 2, 2)],
    ]
    more = impulse_response(asked(), seeds=3, llm_client=second, **options)
    assert len(requests_of(second, "agent")) == 1 + 2 * 4
    assert len(more.seeds) == 3


def test_another_shock_uses_the_run_but_not_its_forks(tmp_path: Path) -> None:
    client = make_client(reads_the_rate)
    options: dict[str, Any] = {"at": 3, "horizon": 2, "seeds": 1, "tape": tmp_path / "a.tape"}
    impulse_response(asked(), shock=SUPPLY, llm_client=client, **options)
    assert len(requests_of(client, "agent")) == 2 + 2 * 3
    impulse_response(asked(), shock={"supply": 2}, llm_client=client, **options)
    # The fork without a shock is the same one.
    assert len(requests_of(client, "agent")) == 2 + 3 * 3


def test_what_was_cut_off_is_continued_and_a_failed_pair_is_reported(tmp_path: Path) -> None:
    def dies_after(count: int) -> Iterator[Any]:
        yield from (moves(25)(None) for _ in range(count))  # type: ignore[arg-type]
        while True:
            yield ConnectionError("the server is gone")

    options: dict[str, Any] = {
        "shock": SUPPLY,
        "at": 3,
        "horizon": 3,
        "seeds": 2,
        "parallel": 1,
        "tape": tmp_path / "a.tape",
    }
    dying = make_client(dies_after(10 + 5))
    broken = impulse_response(asked(), llm_client=dying, **options)
    assert broken.seeds == (0,)
    assert broken.notes[0].startswith("seed 1 failed: ")
    answering = make_client(moves(25))
    whole = impulse_response(asked(), llm_client=answering, **options)
    assert whole.seeds == (0, 1)
    assert len(requests_of(answering, "agent")) == 10 - 5
    anew = impulse_response(asked(), llm_client=answering, **{**options, "tape": None})
    for name, curve in whole.curves.items():
        np.testing.assert_array_equal(curve, anew.curves[name])


def test_a_world_that_fails_with_one_seed_does_not_lose_the_other_pairs() -> None:
    def world(seed: int) -> PublicGoods:
        return PublicGoods(seed=seed, turns=6, players={"*": lambda question: 5 / (seed - 1) ** 2})

    response = impulse_response(
        world, shock={"coins.Ann": -5}, at=1, horizon=2, seeds=[0, 1, 2], columns="coins.Ann"
    )
    assert response.seeds == (0, 2)
    assert "seed 1" in response.notes[0]
    assert list(response.curves) == ["coins.Ann"]


@pytest.mark.parametrize("where", ["made", "played"])
def test_a_world_that_refuses_one_seed_is_one_failed_pair(where: str) -> None:
    def refuses(seed: int) -> int:
        if seed == 1:
            raise ConfigError("seed 1 has no harvest")
        return 5

    def world(seed: int) -> PublicGoods:
        if where == "made":
            refuses(seed)
        return PublicGoods(seed=seed, turns=6, players={"*": lambda question: refuses(seed)})

    options: dict[str, Any] = {"shock": {"coins.Ann": -5}, "at": 1, "horizon": 2}
    response = impulse_response(world, seeds=[0, 1, 2], columns="coins.Ann", **options)
    assert response.seeds == (0, 2)
    assert response.notes[0] == "seed 1 failed: seed 1 has no harvest"
    with pytest.raises(ConfigError, match="seed 1 has no harvest"):
        impulse_response(world, seeds=[1], columns="coins.Ann", **options)


def test_a_run_that_is_over_too_early_is_one_failed_pair() -> None:
    def world(seed: int) -> PublicGoods:
        return (Short if seed == 1 else PublicGoods)(seed=seed, turns=12, players={"*": shares})

    response = impulse_response(
        world, shock={"coins.Ann": -1}, at=9, horizon=1, seeds=2, columns="coins.Ann"
    )
    assert response.seeds == (0,)
    assert "the run of seed 1 is over at turn" in response.notes[0]


async def test_a_response_is_not_played_twice_at_once(tmp_path: Path) -> None:
    with Tape(tmp_path / "a.tape") as tape:
        response = impulse_response(
            economy(), shock=SUPPLY, at=1, horizon=1, seeds=2, tape=tape, play=False
        )
        first = asyncio.create_task(response.arun())
        await asyncio.sleep(0)
        with pytest.raises(ConfigError, match="this response is being played"):
            await response.arun()
        await first
        assert len(tape) == 2 * 3


def test_a_response_without_columns_raises() -> None:
    with pytest.raises(ConfigError, match="charts no numbers"):
        impulse_response(economy(), shock=SUPPLY, columns=[], seeds=1, horizon=1)


def test_players_that_no_tape_can_hold_are_played_anew_unless_they_have_a_name(
    tmp_path: Path,
) -> None:
    calls = []

    def gives(question: Question) -> int:
        calls.append(question.player)
        return 5

    options: dict[str, Any] = {
        "shock": {"coins.Ann": -5},
        "at": 1,
        "horizon": 1,
        "seeds": 1,
        "tape": tmp_path / "a.tape",
    }
    run = PublicGoods(players={"*": gives})
    counts = []
    for name in ("", "", "givers", "givers"):
        impulse_response(run, name=name, **options)
        counts.append(len(calls))
    assert counts == [12, 24, 36, 36]


def test_a_run_loaded_from_a_tape_needs_a_model_again() -> None:
    recorded = load(data_path("tapes/first_run.tape"))
    options: dict[str, Any] = {"shock": SUPPLY, "at": 1, "horizon": 1, "seeds": 1}
    with pytest.raises(ConfigError, match="needs a model"):
        impulse_response(recorded, **options)
    client = make_client()
    response = impulse_response(recorded, llm_client=client, **options)
    assert len(response.curves["inflation"]) == 1
    assert len(requests_of(client, "agent")) == 4


def test_a_recorded_run_has_its_pairs_beside_it(tmp_path: Path) -> None:
    run = Simulation(economy(), tape=tmp_path / "a.tape")
    impulse_response(run, shock=SUPPLY, at=2, horizon=2, seeds=1)
    assert run.turn_number == 0
    assert [info.verb for info in run.tape.runs()] == ["run", "run", "fork", "fork"]  # type: ignore[union-attr]


# --- other worlds ---------------------------------------------------------------------------------


def shares(question: Question) -> Gift:
    return Gift(amount=round(question.limits["amount"][1] / 2), reasoning="Half.", confidence=1.0)


def test_numbers_are_added_to_the_state_of_a_world_of_ones_own() -> None:
    response = impulse_response(
        PublicGoods, players={"*": shares}, shock={"coins.Ann": -20}, at=2, horizon=3, seeds=2
    )
    assert response.shock == "turn 2: coins.Ann -20"
    assert response.curves["coins.Ann"][0].tolist() == [-20, -20]
    assert (response.curves["coins.Bob"][1] < 0).all()


def test_a_value_can_be_set_instead() -> None:
    response = impulse_response(
        PublicGoods(players={"*": shares}),
        shock={"set": {"coins.Ann": 0}},
        at=1,
        horizon=1,
        seeds=1,
    )
    assert response.curves["coins.Ann"][0].tolist() == [-26.0]
    assert response.shock == "turn 1: coins.Ann = 0"


def test_a_world_is_compared_with_other_players() -> None:
    response = impulse_response(
        PublicGoods,
        players={"*": shares},
        against={"*": lambda question: 0},
        shock={"coins.Ann": -10},
        at=1,
        horizon=2,
        seeds=1,
    )
    assert response.rule_curves["coins.Bob"].iloc[0].tolist() == [0, 0, 0]
    assert response.minus_rule().curves["coins.Bob"].iloc[0, 1] < 0


class Short(PublicGoods):
    def done(self, state: Pot) -> bool:
        return sum(state.coins.values()) > 130


def test_a_run_that_is_over_ends_the_horizon() -> None:
    response = impulse_response(
        Short, players={"*": shares}, shock={"coins.Ann": -1}, at=1, horizon=9, seeds=1
    )
    assert 0 < response.horizon < 9
    notes = response.notes
    assert f"the horizon ends at {response.horizon}, not 9" in notes[0]
    assert response.run().notes == notes
    with pytest.raises(ConfigError, match="is over at turn"):
        impulse_response(Short, players={"*": shares}, shock={"coins.Ann": -1}, at=9, seeds=1)


def test_a_response_that_is_played_on_has_its_whole_linear_solution_again() -> None:
    class Ending(Simulation):
        over_at = 3

        def done(self, state: Any) -> bool:
            return self.turn_number >= Ending.over_at

    config = make_config(turns=8).by_rules()
    response = impulse_response(
        Ending(config), shock={"supply": 1}, at=2, horizon=4, seeds=1, against=TaylorRule()
    )
    assert (response.horizon, len(response.linear["inflation"])) == (1, 2)
    Ending.over_at = 99
    assert len(response.run().linear["inflation"]) == 5
    assert set(response.frame()["horizon"]) == {*range(5)}


def test_a_rumour_has_a_response_in_the_social_world() -> None:
    post = {"author": "User 1", "text": "Tea is banned", "topics": ["tea"]}
    rumour = {"set": {"post": post}}
    town = SocialSimulation.config_type(**social_values())
    response = impulse_response(
        town, shock=rumour, at=3, horizon=4, seeds=4, llm_client=social_client()
    )
    assert "Tea is banned" in response.shock
    assert set(response.curves) == {one.column for one in make_social().series}
    by_rule = impulse_response(
        make_social(), shock=rumour, at=3, horizon=4, seeds=2, against="rule"
    )
    assert by_rule.rule_curves.keys() == by_rule.curves.keys()


def test_an_event_and_numbers_have_a_response_in_a_crisis() -> None:
    def plays(request: ChatRequest) -> Any:
        from crisis_kit import answer

        return answer(request)

    crisis = make_crisis(replies=plays)
    numbers = [name for name, value in crisis.state.columns().items() if type(value) is not str]
    response = impulse_response(
        crisis,
        shock={"set": {"events": "The dam breaks"}},
        at=1,
        horizon=2,
        seeds=1,
        columns=numbers[:1],
    )
    assert "The dam breaks" in response.shock
    column = next(name for name in numbers if "." in name)
    moved = impulse_response(crisis, shock={column: -1}, at=1, horizon=1, seeds=1, columns=[column])
    assert moved.curves[column].iloc[0, 0] == -1


# --- what is shown --------------------------------------------------------------------------------


def test_it_says_in_words_and_as_a_table_what_came_out() -> None:
    response = impulse_response(
        economy(), shock=SUPPLY, seeds=4, against=TaylorRule(), columns=["inflation"]
    )
    assert str(response).startswith("response to turn 4: supply shock +1, n = 4 pairs\ninflation: ")
    assert repr(response) == ("<ImpulseResponse: response to turn 4: supply shock +1, n = 4 pairs>")
    html = response._repr_html_()
    assert "4 pairs of forks" in html
    assert "95% band" in html
    assert "minus the rule" in str(response.minus_rule())


def test_a_chart_shows_the_band_the_rule_and_the_linear_solution() -> None:
    response = impulse_response(economy(), shock=SUPPLY, seeds=4, against=UNBOUND)
    axes = response.chart("inflation").axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "95% band, 4 pairs",
        "mean",
        "rule",
        "linear solution",
    ]
    assert axes.figure.alt.startswith("Response of inflation to turn 4: supply shock +1: largest ")
    assert axes.get_ylabel() == "Inflation, difference\n(% over four quarters)"
    with pytest.raises(ConfigError, match="no column 'inflaton'"):
        response.chart("inflaton")


def test_parameters_have_the_names_that_a_study_varies() -> None:
    fields = {"nations": [{"name": "Rule", "kind": "taylor"}], "validator.kind": "always_valid"}
    calm, strict = (
        impulse_response(
            Simulation,
            shock=SUPPLY,
            horizon=4,
            seeds=1,
            name="named",
            turns=9,
            **fields,
            **{"nations.0.exact": exact},
        )
        for exact in (False, True)
    )
    rates = [it.frame().query("column == 'interest_rate'")["mean"] for it in (calm, strict)]
    assert rates[0].tolist() != rates[1].tolist()


# --- misuse ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "arguments", "message"),
    [
        (economy(), {"shock": {}}, "must be a dict"),
        (economy(), {"shock": {"suply": 1}}, "no number 'suply'"),
        (economy(), {"shock": {"supply": 1}, "at": 0}, "the first is 1"),
        (economy(), {"shock": {"supply": 1, "inflation": 1}}, "two shocks"),
        (economy(), {"shock": SUPPLY, "against": 3}, "is not a policy rule"),
        (economy(), {"shock": SUPPLY, "columns": ["period"]}, "'period' is not a number"),
        (economy(), {"shock": SUPPLY, "seeds": [1, 1]}, "names a seed twice"),
        (economy(), {"shock": SUPPLY, "turns": 3}, "has its parameters already"),
        (3, {"shock": SUPPLY}, "is not something to play"),
        (lambda seed: 3, {"shock": SUPPLY}, "must return a run"),
        (lambda seed: Simulation(economy()), {"shock": SUPPLY}, "takes no seed|hand the seed on"),
        (Simulation, {"shock": SUPPLY, "nation": []}, "nation"),
        (PublicGoods, {"shock": {"coins.Ana": 1}, "players": {"*": "random"}}, "coins.Ann"),
        (PublicGoods, {"shock": {"coins.Ann": 1}, "against": 3}, "plays no PublicGoods"),
        (make_social(players="rule"), {"shock": {"set": {"idle": 1}}}, "it takes banned, a list"),
    ],
)
def test_misuse_says_what_would_work(subject: Any, arguments: dict[str, Any], message: str) -> None:
    if subject is PublicGoods:
        arguments = {"players": {"*": "random"}, **arguments}
    with pytest.raises(ConfigError, match=message):
        impulse_response(subject, horizon=1, **{"seeds": 2, **arguments})


def test_a_recorded_run_from_a_function_and_a_model_that_never_answers_are_named(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="gave its run a tape"):
        impulse_response(
            lambda seed: Simulation(economy(seed=seed), tape=tmp_path / "a.tape"), shock=SUPPLY
        )
    silent = LLMClient(LLMConfig(retry_wait_s=0), ScriptedBackend(ConnectionError("gone")))
    with pytest.raises(ConfigError, match="no pair could be played"):
        impulse_response(asked(), shock=SUPPLY, seeds=2, llm_client=silent)
    minus = impulse_response(economy(), shock=SUPPLY, horizon=1, seeds=1)
    with pytest.raises(ConfigError, match="nothing to subtract"):
        minus.minus_rule()
