"""The templates: their rules play by the textbook, and arrive where it says."""

from __future__ import annotations

import hashlib
import importlib
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from llmsim_lab import Question, data_path
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import RateChart
from llmsim_lab.tape.prompts_read import prompts_read

TEMPLATES = data_path("templates")
WORLDS = {
    "beauty_contest": "BeautyContest",
    "contract_net": "ContractNet",
    "double_auction": "DoubleAuction",
    "opinion_dynamics": "OpinionDynamics",
    "prisoners_dilemma": "PrisonersDilemma",
    "public_goods": "PublicGoods",
    "ultimatum": "Ultimatum",
}

READ_WITH_NAMES_FIRST = {
    "beauty_contest": 3396,
    "contract_net": 3227,
    "double_auction": 1885,
    "opinion_dynamics": 2990,
    "prisoners_dilemma": 2072,
    "public_goods": 3774,
    "ultimatum": 1373,
}
"""Characters that a server with one slot read anew, while each prompt began with a name."""

each = pytest.mark.parametrize("name", WORLDS)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a template's class, as a program beside its file would import it."""
    monkeypatch.syspath_prepend(TEMPLATES)
    return lambda name: getattr(importlib.import_module(name), WORLDS[name])


def ruled(kind: Any, turns: int = 8, players: dict[str, Any] | None = None, **more: Any) -> Any:
    run = kind(players={"*": "rule", **(players or {})}, **more)
    run.run(turns)
    return run


def test_these_are_all_recorded_templates() -> None:
    # Those that match published designs are in tests/people.
    published = {"contributing", "disjunction", "framing", "guessing", "investing", "splitting"}
    recorded = {path.stem for path in TEMPLATES.glob("*.tape")}
    assert recorded == {*READ_WITH_NAMES_FIRST, *published}


@each
def test_what_a_template_predicts_is_a_dashed_line_beside_its_run(name: str, world: Any) -> None:
    run = ruled(world(name), 2)
    main = RateChart(run).figure.axes[0]
    [line] = [it for it in main.get_lines() if str(it.get_label()).startswith("prediction")]
    assert line.get_linestyle() == "--"
    assert set(run.prediction()) <= set(run.to_frame().columns)
    assert line.get_ydata()[0] in run.prediction().values()  # type: ignore[index]


@each
def test_a_templates_tape_was_recorded_with_its_very_code_and_replays(
    name: str, world: Any
) -> None:
    run = world(name).replay(TEMPLATES / f"{name}.tape")
    [info] = run.tape.runs()
    assert info.manifest["model"]["name"].startswith("qwen2.5-coder-1.5b")
    code = (TEMPLATES / f"{name}.py").read_bytes()
    assert info.manifest["code"]["file"] == hashlib.sha256(code).hexdigest()
    assert run.turn_number == info.turns == 3
    assert {call.status for call in run.calls} <= {"ok", "repaired"}


@each
def test_of_a_templates_prompts_a_server_reads_the_shared_text_once(name: str, world: Any) -> None:
    run = world(name).replay(TEMPLATES / f"{name}.tape")
    read = prompts_read([attempt for call in run.calls for attempt in call.history])
    assert read.one_slot <= READ_WITH_NAMES_FIRST[name] / 2


@pytest.mark.parametrize(
    ("name", "parameter", "nobody"),
    [
        ("beauty_contest", "group", ()),
        ("public_goods", "group", ()),
        ("double_auction", "buyers", {}),
        ("double_auction", "sellers", {}),
    ],
)
def test_a_game_of_nobody_is_an_error(name: str, parameter: str, nobody: Any, world: Any) -> None:
    with pytest.raises(ConfigError, match=f"{parameter}: .* at least 1 item"):
        world(name)(**{parameter: nobody})


# --- public goods --------------------------------------------------------------------------------


def test_nothing_is_given_to_the_pot_and_whoever_gives_earns_less(world: Any) -> None:
    kind = world("public_goods")
    run = ruled(kind)
    assert run.to_frame()["given"].tolist()[1:] == [0] * 8
    for gift in (1, 10, 20):
        giver = ruled(kind, 1, {"Ann": lambda question, gift=gift: gift})
        assert giver.state.earned["Ann"] < run.state.earned["Ann"] < giver.state.earned["Bob"]


def test_people_are_told_what_they_earned_and_paid_the_sum_of_all_turns(world: Any) -> None:
    run = ruled(world("public_goods"), 2, {"Ann": lambda question: 20})
    assert run.told(run.state, "Bob") == {"you earned": 28.0, "given on average": 5.0}
    assert (run.payoff("Ann"), run.payoff("Bob")) == (16, 56)


def test_everything_is_given_where_a_gift_earns_its_giver_more_than_it_costs(world: Any) -> None:
    kind = world("public_goods")
    run = ruled(kind, 1, factor=4.5)
    assert run.state.given == run.prediction()["given"] == 20
    miser = ruled(kind, 1, {"Ann": lambda question: 19}, factor=4.5)
    assert miser.state.earned["Ann"] < run.state.earned["Ann"]


# --- ultimatum -----------------------------------------------------------------------------------


def test_the_smallest_positive_offer_is_made_and_accepted(world: Any) -> None:
    run = ruled(world("ultimatum"))
    assert run.to_frame()["offer"].tolist()[1:] == [1] * 8
    assert dict(run.state.earned) == {"Ann": 9, "Bob": 1}


@pytest.mark.parametrize("offer", [0, 2, 5, 10])
def test_any_other_offer_earns_ann_less(offer: int, world: Any) -> None:
    def ann(question: Question) -> int:
        return offer

    assert ruled(world("ultimatum"), 1, {"Ann": ann}).state.earned["Ann"] < 9


# --- beauty contest ------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "depth"), [(0.5, 1), (2 / 3, 1), (0.5, 2)])
def test_guesses_go_to_0_as_fast_as_the_steps_of_reasoning(
    factor: float, depth: int, world: Any
) -> None:
    run = ruled(world("beauty_contest"), 30, factor=factor, depth=depth)
    means = run.to_frame()["mean"].to_numpy()
    assert means == pytest.approx([50 * factor ** (depth * turn) for turn in range(31)])
    assert means[-1] == pytest.approx(run.prediction()["mean"], abs=0.001)


def test_one_step_more_than_the_others_wins(world: Any) -> None:
    def two_steps(question: Question) -> float:
        return float(question.run.factor**2 * question.state.mean)

    run = ruled(world("beauty_contest"), 3, {"Di": two_steps})
    assert [list(turn.state.winners) for turn in run.turns[1:]] == [["Di"]] * 3


# --- double auction ------------------------------------------------------------------------------


def test_traders_by_chance_come_near_the_price_of_the_textbook_and_all_gains(world: Any) -> None:
    runs = [ruled(world("double_auction"), 20, seed=seed) for seed in range(30)]
    predicted = runs[0].prediction()
    assert fmean(run.state.price for run in runs) == pytest.approx(predicted["price"], abs=4)
    assert fmean(run.state.gains for run in runs) > 0.9 * predicted["gains"]
    assert max(run.state.gains for run in runs) == predicted["gains"]


@pytest.mark.parametrize(
    ("buyers", "sellers"),
    [((90, 75, 60, 45), (10, 25, 40, 55)), ((50,), (10, 20, 45, 70)), ((88, 31), (5, 29, 30))],
)
def test_at_the_predicted_price_as_many_want_to_buy_as_to_sell(
    buyers: tuple[int, ...], sellers: tuple[int, ...], world: Any
) -> None:
    market = world("double_auction")(
        buyers={f"buyer {value}": value for value in buyers},
        sellers={f"seller {cost}": cost for cost in sellers},
    )
    predicted = market.prediction()
    wanted = [value for value in buyers if value > predicted["price"]]
    offered = [cost for cost in sellers if cost < predicted["price"]]
    assert len(wanted) == len(offered)
    assert sum(wanted) - sum(offered) == predicted["gains"]


def test_a_trade_is_at_the_price_of_who_came_first_and_never_at_a_loss(world: Any) -> None:
    run = ruled(world("double_auction"), 40, buyers={"Ann": 60}, sellers={"Ed": 50})
    turn = next(turn for turn in run.turns if turn.state.traded)
    assert sorted(turn.state.traded) == ["Ann", "Ed"]
    quotes = {answer.player: answer.fields["price"] for answer in turn.answers}
    assert quotes["Ed"] <= quotes["Ann"]
    assert turn.state.price in quotes.values()
    assert 50 <= turn.state.price <= 60
    assert turn.state.gains == 10


# --- opinions ------------------------------------------------------------------------------------


def test_all_come_to_the_mean_weighted_by_the_stationary_distribution(world: Any) -> None:
    links = (("Ann", "Bob"), ("Ann", "Cy"), ("Ann", "Di"), ("Di", "Ed"))
    run = ruled(world("opinion_dynamics"), 150, links=links)
    names = list(run.opening)
    heard = np.array(
        [[a == b or (a, b) in links or (b, a) in links for b in names] for a in names], dtype=float
    )
    values, vectors = np.linalg.eig((heard / heard.sum(axis=1, keepdims=True)).T)
    stationary = vectors[:, np.argmax(values.real)].real
    consensus = stationary @ np.array(list(run.opening.values())) / stationary.sum()
    assert list(run.prediction().values()) == pytest.approx([consensus] * 5)
    assert list(run.state.opinions.values()) == pytest.approx([consensus] * 5)


# --- prisoner's dilemma --------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["C", "D"])
def test_defecting_earns_more_whatever_the_other_does_and_less_than_cooperating_together(
    other: str, world: Any
) -> None:
    kind = world("prisoners_dilemma")
    bob = {"Bob": lambda question: other}
    defector, cooperator = (
        ruled(kind, 1, {"Ann": lambda question, move=move: move, **bob}) for move in "DC"
    )
    assert defector.state.earned["Ann"] > cooperator.state.earned["Ann"]
    both = ruled(kind, 1, {"*": lambda question: "C"})
    assert both.state.earned["Ann"] > ruled(kind, 1).state.earned["Ann"]


def test_a_player_reads_the_past_from_its_own_side_and_is_paid_for_all_turns(world: Any) -> None:
    def returns(question: Question) -> str:
        past = question.values["past"]
        return str(past[-1][1]) if past else "C"

    run = ruled(world("prisoners_dilemma"), 3, {"Ann": returns})
    assert dict(run.state.past) == {"Ann": "CDD", "Bob": "DDD"}
    assert (run.payoff("Ann"), run.payoff("Bob")) == (2, 7)
    assert run.told(run.state, "Ann") == {"the other chose": "D", "you earned": 1}


# --- contract net --------------------------------------------------------------------------------


def test_tasks_go_where_the_skill_is_and_one_who_is_always_sure_takes_them_all(world: Any) -> None:
    kind = world("contract_net")
    fair, vain = (ruled(kind, 6, condition=name) for name in ("baseline", "overconfident"))
    assert fair.state.share_right == fair.prediction()["share_right"] == 1
    assert {turn.state.went_to for turn in vain.turns[1:]} == {"coder"}
    assert vain.state.share_right == vain.prediction()["share_right"] == pytest.approx(1 / 3)


def test_equal_bids_are_decided_by_chance_and_not_by_the_order_of_the_list(world: Any) -> None:
    kind = world("contract_net")
    runs = [ruled(kind, 6, condition="homogeneous", seed=seed) for seed in range(40)]
    assert fmean(run.state.share_right for run in runs) == pytest.approx(1 / 3, abs=0.1)
    assert {run.turns[1].state.went_to for run in runs} == {"math", "writer", "coder"}
    assert ruled(kind, 1, {"*": lambda question: {"bid": False, "sure": 0}}).state.went_to == ""
