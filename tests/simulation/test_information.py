"""One information set: models, rules and people read the same output gap, the state's."""

from __future__ import annotations

from itertools import pairwise
from statistics import correlation, stdev
from typing import Any

import pytest
from builders import played

from llmsim_lab import Question, Simulation
from llmsim_lab.agents import Agent, TaylorRuleAgent
from llmsim_lab.economy import initial_state
from llmsim_lab.economy.data import next_quarter
from llmsim_lab.economy.macro import NO_SHOCKS
from llmsim_lab.errors import ConfigError
from llmsim_lab.models import Action, SimulationState
from llmsim_lab.simulation.world import Economy


def shown(run: Simulation, turn: int) -> list[str]:
    """Return the gaps of a prompt's table at a turn, the present quarter's last."""
    name, states = run.nations[0].name, [turn.state for turn in run.turns[: turn + 1]]
    text = run._prompts_to(states, turn + 1)(name)
    table = str(text).partition("oldest first:")[2].partition("Now:")[0].strip()
    return [line.split(" | ")[3] for line in table.splitlines()[1:]]


def cents(gap: float) -> str:
    return f"{round(gap, 2) + 0.0:.2f}"


@pytest.mark.parametrize("mirrored", [False, True])
async def test_the_prompts_gap_is_the_states_from_any_start(mirrored: bool) -> None:
    for number in range(0, 179, 9):
        start = next_quarter("1965Q1", steps=number)
        first = initial_state(start).global_state
        if mirrored and (first.interest_rate > 8 or first.unemployment > 10):
            continue  # neither may be below zero on the other side
        run = Simulation(start_at=start, economy={"mirrored": mirrored}, players="rule")
        for _ in range(3):
            await run.step()
        gaps = [run.turns[0].state.lags.output_gap[1]]
        gaps += [turn.state.output_gap for turn in run.turns]
        for turn in (0, 3):
            assert shown(run, turn)[-turn - 2 :] == list(map(cents, gaps[: turn + 2]))


def noisy(seed: int = 1, mirrored: bool = False, **players: object) -> Simulation:
    how: dict[str, Any] = {"seed": seed, "economy": {"mirrored": mirrored}}
    return played(Simulation(gap_noise=1.5, players=players or {"agent": "rule"}, **how), 12)


def test_all_read_the_same_gap_with_its_noise_and_the_loss_is_of_the_true_one() -> None:
    run = noisy()
    frame = run.to_frame()
    assert shown(run, 12) == list(map(cents, frame["output_gap_read"][-8:]))
    taylor = 4 + 1.5 * (frame["inflation"] - 2) + 0.5 * frame["output_gap_read"]
    assert frame["taylor_rate"].tolist() == pytest.approx(taylor.clip(lower=0).tolist())
    agent = noisy(agent=TaylorRuleAgent(moves_bp=Simulation().moves_bp))
    assert agent.to_frame()["interest_rate"].tolist() == frame["interest_rate"].tolist()
    plain = played(Simulation(seed=1, players={"agent": "rule"}), 12)
    assert "output_gap_read" not in plain.to_frame()
    assert plain.to_frame()["output_gap"][1] == frame["output_gap"][1]  # the shocks are the same
    loss = run.measures(run.config)["loss"]
    assert loss(frame) == loss(frame.drop(columns="output_gap_read"))


class Asked(Agent):
    """Proposes nothing new, and notes each economy that it is shown."""

    def __init__(self, seen: list[Any]) -> None:
        super().__init__("Ann")
        self.seen = seen

    async def decide_action(self, state: SimulationState) -> Action:
        self.seen.append(state.global_state)
        return Action(agent_name="Ann", action_string="Hold the rate", rate_change_bp=0)


def noted(who: str, seen: list[Any]) -> dict[str, Any]:
    """Return players of whom one notes what economies it can reach."""

    def member(question: Question) -> Any:
        seen.extend([question.state, question.state.actual, question.state.global_state])
        return {"action": "Hold the rate", "rate_change_bp": 0, "reasoning": "So.", "confidence": 1}

    def engine(question: Question) -> Any:
        seen.extend([question.state, question.values["economy"]])
        rates = question.limits["new_interest_rate"]
        return {"new_interest_rate": rates[0], "reasoning": "So.", "confidence": 1}

    def words(question: Question) -> Any:
        return {"action": "Hold the rate", "reasoning": "So.", "confidence": 1}

    return {
        "a function": {"agent": member},
        "an agent": {"agent": Asked(seen)},
        "the engine": {"agent": words, "*": "rule", "engine": engine},
    }[who]


@pytest.mark.parametrize("who", ["a function", "an agent", "the engine"])
def test_no_player_is_handed_the_true_gap_or_a_shock_that_is_to_come(who: str) -> None:
    seen: list[Any] = []
    how: dict[str, Any] = {"moves_bp": None} if who == "the engine" else {}
    run = Simulation(
        gap_noise=1.5,
        start_at="1974Q1",
        players=noted(who, seen),
        interventions=[{"turn": 1, "set": {"shock.demand": 1}}],
        **how,
    )
    played(run, 4)
    read = [turn.columns()["output_gap_read"] for turn in run.turns[:-1]]
    before = [run.turns[0].state.lags.output_gap[1], *read]  # the data's, as the prompt has it
    each = len(seen) // 4
    for number, economy in enumerate(seen):
        turn = number // each
        assert economy.output_gap == read[turn]
        assert economy.lags.output_gap == (read[turn], before[turn])
        assert getattr(economy, "gap_error", 0) == 0
        assert getattr(economy, "shock", NO_SHOCKS) == NO_SHOCKS
    assert run.turns[1].state.shock.demand == 1


def test_the_noise_has_its_size_and_persistence_and_a_mirror_image() -> None:
    runs = [noisy(seed).to_frame() for seed in range(40)]
    errors = [frame["output_gap_read"] - frame["output_gap"] for frame in runs]
    first, last = ([error.iloc[at] for error in errors] for at in (0, -1))
    assert correlation(first, last) == pytest.approx(0.97**12, abs=0.2)
    starts = [Simulation(gap_noise=1.5, seed=seed).state.gap_error for seed in range(400)]
    assert stdev(starts) == pytest.approx(1.5, rel=0.05)
    # In each quarter what is new has the size that keeps the whole error's, the first one's.
    new = [now - 0.97 * then for error in errors for then, now in pairwise(error)]
    assert stdev(new) == pytest.approx(1.5 * (1 - 0.97**2) ** 0.5, rel=0.05)
    turned = noisy(3, mirrored=True).to_frame()
    assert turned["output_gap_read"].tolist() == pytest.approx(
        [-gap for gap in runs[3]["output_gap_read"]]
    )


def test_a_gap_and_an_error_that_no_number_holds_together_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"output_gap \+ gap_error=inf must be a finite number"):
        _ = Economy(output_gap=1e308, gap_error=1e308).global_state
