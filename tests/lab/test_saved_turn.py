"""A turn as a saved notebook has it: what is shown of many values and decisions, whole."""

from __future__ import annotations

import re
from typing import Any

import pytest

from llmsim_lab import Ask, LLMClient, LLMConfig, Reply, Run, ScriptedBackend, State
from llmsim_lab.lab import TurnStepper

NAMES = [f"P{number}" for number in range(13)]


class Till(State):
    coins: dict[str, float]
    pot: float = 10.0
    mood: str | None = None


class Gift(Reply):
    amount: int
    is_final: bool


class Tills(Run[Till]):
    """Thirteen players give; one of them never answers in the form."""

    async def turn(self, state: Till, ask: Ask) -> Till:
        none = Gift(amount=0, is_final=False, reasoning="", confidence=1)
        prompt = "You are {{ name }}."
        gifts = await ask.each(state.coins, Gift, prompt, fallback=lambda _: none)
        coins = {name: state.coins[name] - gift.amount / 4 for name, gift in gifts.items()}
        return Till(coins=coins, pot=state.pot + sum(gift.amount for gift in gifts.values()))


def answer(request: Any) -> Any:
    name = request.site.agent
    if name == "P1":
        return "no"
    gift = {"amount": int(name[1:]) % 3, "is_final": name == "P2"}
    return {**gift, "reasoning": f"{name} likes it.", "confidence": 1}


@pytest.fixture(scope="module")
def run() -> Tills:
    client = LLMClient(LLMConfig(model="script", retry_wait_s=0), ScriptedBackend(answer))
    begins = Till(coins=dict.fromkeys(NAMES, 2.5))
    changes = [{"turn": 2, "set": {"pot": 20}}]
    tills = Tills(llm_client=client, state=begins, interventions=changes)
    tills.run(2, progress=False)
    return tills


DECISIONS = [
    *("P1: amount 0, is not final", "P0: amount 0, is not final", "P10: amount 1, is not final"),
    *("P11: amount 2, is not final", "P12: amount 0, is not final", "P2: amount 2, is final"),
    *("P3: amount 0, is not final", "P4: amount 1, is not final", "P5: amount 2, is not final"),
    "P6: amount 0, is not final",
]


def test_a_turn_in_words_has_twelve_values_ten_decisions_and_says_what_is_left_out(
    run: Tills,
) -> None:
    first, last = (2.5, 2.5, 2.0, 2.5, 2.25, 2.0, 2.5, 2.25, 2.0, 2.5, 2.25), []
    for place, coins in enumerate(first):
        spent = 0 if place == 1 else place % 3 / 4
        change = f" (-{spent:g})" if spent else ""
        last.append(f"coins.P{place}: {coins - spent:g}{change}")
    assert [line.strip() for line in TurnStepper(run).static_text().splitlines()] == [
        *("TurnStepper of Tills", "Turn 2", "pot: 20 (-1)", *last),
        *("from outside: turn 2: pot = 20", *DECISIONS, "and 3 more decisions"),
    ]
    stepper = TurnStepper(run)
    stepper.show(1)
    assert "\n  pot: 21 (+11)\n" in stepper.static_text()
    stepper.show(0)
    assert "\n  coins.P10: 2.5" in stepper.static_text()


def test_a_turn_as_a_page_has_players_in_rows_and_reasons_below_their_answers(run: Tills) -> None:
    html = str(TurnStepper(run).static_html())
    cells = [cell for cell in re.sub(r"(<[^>]+>\s*)+", "|", html).split("|") if cell]
    values = [2.5, 2.5, 1.5, 2.5, 2.0, 1.5, 2.5, 2.0, 1.5, 2.5, 2.0, 1.5]
    rows = [cell for place, coins in enumerate(values) for cell in (f"P{place}", f"{coins:g}")]
    fault = "player of P1 in turn 2: invalid_response after 2 attempts: the reply is not valid JSON"
    ones = []
    for decision in DECISIONS[1:]:
        name, _, words = decision.partition(": ")
        ones += [name, words, f"{name} likes it."]
    assert cells == [
        *("Turn 2", "variable", "value", "change", "pot", "20", "-1"),
        *("coins", *rows, "and 1 more", "From outside: turn 2: pot = 20"),
        *("Decisions", "who", "status", "answer", "P1", "fallback", "amount 0, is not final"),
        f"stands in: {fault}: there is no JSON object in it",
        *(*ones, "and 3 more decisions"),
    ]
