"""The economic gate: who passes and who fails, what it asks, and how its card is kept."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab.economy import RudebuschSvensson, TaylorRule
from llmsim_lab.errors import BackendError, ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.study import economics_card
from llmsim_lab.study._gate import (
    CLEAR,
    GATE_MOVES_BP,
    PAIRS,
    Criterion,
    EconomicsCard,
    GateAnswer,
    drawn_situations,
    fieller_interval,
    kept_economics_cards,
    names,
    question,
    response,
    share_interval,
    situations,
    state,
)
from llmsim_lab.types import ChatReply, ChatRequest

_RULE = TaylorRule()


@pytest.fixture(autouse=True)
def _cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMSIM_CARDS", str(tmp_path / "cards"))


def verdicts(card: EconomicsCard, decide: str = "sample") -> dict[str, str]:
    return {one.name: one.verdict for one in card.criteria if one.decide == decide}


def criterion(card: EconomicsCard, name: str, decide: str = "mode") -> Criterion:
    [one] = [one for one in card.criteria if (one.name, one.decide) == (name, decide)]
    return one


# --- players --------------------------------------------------------------------------------------


@pytest.mark.parametrize("inertia", [0.0, 0.5, 0.8])
def test_a_taylor_rule_passes_with_and_without_inertia(inertia: float) -> None:
    card = economics_card(TaylorRule(inertia=inertia))
    assert {card.outcome(way) for way in ("sample", "mode", "expected")} == {"pass"}
    assert criterion(card, "response").value == pytest.approx(1.5, abs=0.25)
    assert card.verdict == (
        "Passes the economic gate; raises in 48, lowers in 48 of 96 situations, of which 48 call "
        "for a rise; right in 100 % (set A: 100 %, set B: 100 %)."
    )


def test_a_random_player_fails() -> None:
    rng = random.Random(3)

    def at_random(*, previous_rate: float, **_: float) -> float:
        return previous_rate + rng.choice(GATE_MOVES_BP) / 100

    card = economics_card(at_random)
    assert card.outcome() == "fail"
    found = verdicts(card)
    assert (found["direction"], found["state"], found["names"]) == ("fail", "fail", "fail")
    assert found["response"] != "pass"


def test_a_player_that_always_raises_fails_and_the_words_say_so() -> None:
    card = economics_card(lambda *, previous_rate, **_: previous_rate + 0.75)
    assert verdicts(card) == {
        "direction": "fail",
        "response": "fail",
        "state": "fail",
        "names": "pass",
    }
    assert card.verdict.startswith(
        "Fails the economic gate; direction (fail): raises in 96 of 96 situations, of which 48 "
        "call for a rise; right in 50 %"
    )
    assert "the move is the same whatever inflation is" in card.verdict


def test_a_rule_with_its_sign_flipped_fails_although_its_ratio_is_that_of_the_rule() -> None:
    def flipped(*, previous_rate: float, **seen: float) -> float:
        return 2 * previous_rate - _RULE.rate(previous_rate=previous_rate, **seen)

    card = economics_card(flipped)
    found = verdicts(card)
    assert (found["direction"], found["response"]) == ("fail", "fail")
    assert criterion(card, "direction").value == 0
    assert "it comes to rest nowhere" in criterion(card, "response").words


def test_a_rule_that_answers_inflation_by_half_does_not_pass() -> None:
    card = economics_card(TaylorRule(inflation_weight=0.5))
    assert verdicts(card)["response"] == "fail"
    assert card.outcome() == "fail"


# --- models ---------------------------------------------------------------------------------------


def scripted(rate: Callable[[Mapping[str, float]], float], *, mass: float = 0.9) -> ScriptedBackend:
    """Return a model that reads the briefing and gives most probability to its move's letter."""

    def reply(request: ChatRequest) -> ChatReply:
        text = request.messages[-1].content
        seen = {
            "inflation": float(re.findall(r"Inflation over 4 quarters is (\S+)%,", text)[0]),
            "output_gap": float(re.findall(r"output gap is (\S+)%", text)[0]),
            "previous_rate": float(re.findall(r"policy rate is (\S+)%", text)[0]),
        }
        wanted = rate(seen) - seen["previous_rate"]
        letters = {
            letter: 0 if move == "no change" else int(move.split()[0])
            for letter, move in re.findall(r"^([A-Z]): (.+)$", text, re.M)
        }
        best = min(letters, key=lambda letter: abs(letters[letter] / 100 - wanted))
        rest = (1 - mass) / len(letters)
        top = tuple(
            (letter, math.log(mass + rest if letter == best else rest)) for letter in letters
        )
        return ChatReply(text=best, top_logprobs=top)

    return ScriptedBackend(reply, name="scripted economist")


def client_of(backend: ScriptedBackend) -> LLMClient:
    return LLMClient(LLMConfig(retry_wait_s=(0, 0)), backend)


def test_a_model_that_follows_the_rule_passes_by_letters() -> None:
    backend = scripted(lambda seen: _RULE.rate(**seen))
    card = economics_card(client_of(backend))
    assert card.outcome() == "pass"
    assert len(backend.requests) == 120 * len(GATE_MOVES_BP)
    assert criterion(card, "direction", "sample").value == pytest.approx(0.943, abs=0.01)
    assert criterion(card, "direction", "mode").value == 1


def test_a_model_that_always_raises_fails_in_each_way_of_deciding() -> None:
    card = economics_card(client_of(scripted(lambda seen: seen["previous_rate"] + 0.75)))
    assert {card.outcome(way) for way in ("sample", "mode", "expected")} == {"fail"}
    assert "raises in 96 of 96 situations" in card.verdict


def test_a_kept_card_is_not_asked_for_again_and_a_stopped_one_is_continued() -> None:
    made: list[ChatRequest] = []
    down = True

    def reply(request: ChatRequest) -> ChatReply:
        if down and len(made) == 3 * len(GATE_MOVES_BP):
            raise BackendError("the server is gone", reason="connection_error")
        made.append(request)
        return ChatReply(text="A", top_logprobs=(("A", -0.1), ("B", -3.0)))

    backend = ScriptedBackend(reply, name="stops")
    with pytest.raises(LLMFailureException, match="gone"):
        economics_card(client_of(backend))
    assert kept_economics_cards() == []
    down = False
    said: list[str] = []
    card = economics_card(client_of(backend), progress=said.append)
    assert said[0] == "situation 4 of 120"
    assert said[1].startswith("situation 5 of 120, about ")
    assert card.finished
    assert kept_economics_cards() == [card]
    asked = len(made)
    assert economics_card(client_of(backend)) == card
    assert len(made) == asked
    economics_card(client_of(backend), told="thin")  # a card of its own
    assert len(made) == asked + 120 * len(GATE_MOVES_BP)


def test_servers_whose_models_have_the_same_name_have_cards_of_their_own() -> None:
    for base_url in ("http://one/v1", "http://two/v1", "http://two/v1"):
        backend = scripted(lambda seen: seen["previous_rate"])
        backend.base_url = base_url  # type: ignore[attr-defined]
        economics_card(client_of(backend))
    assert len(kept_economics_cards()) == 2


def test_a_card_that_cannot_be_read_is_measured_anew(tmp_path: Path) -> None:
    backend = scripted(lambda seen: seen["previous_rate"])
    economics_card(client_of(backend))
    [path] = (tmp_path / "cards" / "economics").iterdir()
    path.write_text(path.read_text()[:100])
    assert kept_economics_cards() == []
    assert economics_card(client_of(backend)).finished
    assert len(backend.requests) == 2 * 120 * len(GATE_MOVES_BP)


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"cannot keep the card in .*file.*LLMSIM_CARDS"):
        economics_card(
            client_of(scripted(lambda seen: seen["previous_rate"])), folder=tmp_path / "file"
        )


def test_a_finished_card_ends_in_its_verdicts_which_an_older_one_gets_without_being_asked(
    tmp_path: Path,
) -> None:
    backend = scripted(lambda seen: seen["previous_rate"] + 0.75)
    economics_card(client_of(backend))
    [path] = (tmp_path / "cards" / "economics").iterdir()
    kept = json.loads(path.read_text())
    words = "raises in 96 of 96 situations, of which 48 call for a rise"
    assert kept["verdicts"]["mode"] == {"outcome": "fail", "words": words}
    assert kept["verdicts"].keys() == {"sample", "mode", "expected"}
    del kept["verdicts"]
    path.write_text(json.dumps(kept))
    asked = len(backend.requests)
    economics_card(client_of(backend))
    assert len(backend.requests) == asked
    assert json.loads(path.read_text())["verdicts"]["mode"]["words"] == words


def test_a_verdict_in_short_tells_what_failed_and_else_what_was_done() -> None:
    weak = economics_card(TaylorRule(inflation_weight=0.5)).in_short("mode")
    assert weak.outcome != "pass"
    assert weak.words.startswith("for a point of inflation the rate rises by ")
    good = economics_card(TaylorRule()).in_short("mode")
    assert good.outcome == "pass"
    assert good.words.startswith("raises in 48, lowers in 48 of 96 situations")


def test_a_card_that_is_not_finished_is_undecided() -> None:
    card = economics_card(TaylorRule())
    assert card.outcome() == "pass"
    half = card.model_copy(update={"answers": dict(list(card.answers.items())[:10])})
    assert half.outcome() == "undecided"
    assert half.verdict == (
        "Undecided: 10 of 120 situations were asked; so far raises in 5, lowers in 5 of 10 "
        "situations, of which 5 call for a rise; right in 100 % (set A: 100 %)."
    )


def test_situations_without_an_answer_count_as_wrong() -> None:
    backend = ScriptedBackend(ChatReply(text="no", top_logprobs=(("no", -0.1),)), name="mute")
    card = economics_card(client_of(backend))
    assert criterion(card, "direction").value == 0
    assert "no answer in 96" in criterion(card, "direction").words
    assert card.outcome() == "fail"


# --- situations -----------------------------------------------------------------------------------


def test_each_situation_is_clear_and_has_its_mirror_image() -> None:
    for which in "AB":
        found = situations(which)
        assert len(found) == 2 * PAIRS
        for one, other in zip(found[::2], found[1::2], strict=True):
            assert abs(one.move) >= CLEAR
            asked = _RULE.rate(inflation=one.inflation, output_gap=one.gap, previous_rate=0)
            assert asked - one.interest_rate == pytest.approx(one.move)
            assert one.inflation + other.inflation == pytest.approx(4)
            assert one.interest_rate + other.interest_rate == pytest.approx(8)
            assert one.gap == -other.gap
            assert one.pair == other.pair


def test_mirrored_quarters_obey_the_macro_model_and_show_the_mirrored_gap() -> None:
    model = RudebuschSvensson()
    for one in situations("A")[:8]:
        assert one.quarters[-1].output_gap == one.gap
        before, last = one.quarters[-2:]
        assert before.inflation is not None
        growth = 400 * math.log(last.real_output / before.real_output)
        assert growth == pytest.approx(one.growth)
        # Growth above potential is what the gap rises by, and Okun's law what unemployment falls.
        rise = (growth - model.potential_growth) / 4
        assert last.unemployment == pytest.approx(before.unemployment - model.okun * rise)


def test_the_sets_differ_and_are_always_the_same() -> None:
    assert situations("A")[0].quarters != situations("B")[0].quarters
    seed = "economic gate, set A, seed 1"
    assert drawn_situations(random.Random(seed), "A", 2) == situations("A")[:4]


def test_names_and_dates_are_all_that_differs_between_the_two_questions() -> None:
    one = situations("A")[0]
    masked, named = (question(one, told="economist", named=named) for named in (False, True))
    assert "a large economy" in masked
    assert not re.search(r"\d{4}Q\d", masked)
    assert "United States" in named
    bare = re.sub(
        r"^\d{4}Q\d \|", "X |", named.replace("United States", "a large economy"), flags=re.M
    )
    assert bare == re.sub(r"^(-\d|now) \|", "X |", masked, flags=re.M)


@pytest.mark.parametrize("told", ["economist", "thin"])
def test_the_question_has_the_moves_on_offer(told: Any) -> None:
    text = question(situations("A")[0], told=told, named=False)
    assert "-200, -75, -25, 0, +25, +75, +200" in text


def test_the_second_set_is_not_printed() -> None:
    card = economics_card(TaylorRule())
    shown = str(card) + repr(card) + card._repr_html_() + card.situations().to_string()
    assert "A07" in shown
    for one in situations("B"):
        assert one.name not in shown
        assert f"{one.inflation:.6f}" not in shown
    assert all(set(one) <= set(GateAnswer.model_fields) for one in _answers(card).values())


def _answers(card: EconomicsCard) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(card.to_json())["answers"]
    return found


# --- statistics -----------------------------------------------------------------------------------


def test_the_interval_of_whole_counts_is_clopper_and_pearsons() -> None:
    from scipy.stats import binomtest

    for hits in (0, 7, 24, 48):
        exact = binomtest(hits, 48).proportion_ci(0.95, method="exact")
        assert share_interval(hits, 48) == pytest.approx((exact.low, exact.high))


def test_fiellers_interval_holds_the_ratios_that_a_t_test_does_not_reject() -> None:
    top, bottom, variances, quantile = 1.5, 1.0, (0.04, 0.005, 0.01), 2.0
    for ratio in fieller_interval(top, bottom, variances=variances, quantile=quantile):
        error = math.sqrt(variances[0] - 2 * ratio * variances[1] + ratio**2 * variances[2])
        assert abs(top - ratio * bottom) == pytest.approx(quantile * error)
    unknown = fieller_interval(1.0, 0.1, variances=variances, quantile=quantile)
    assert unknown == (-math.inf, math.inf)


def answered(of: Callable[[Any], dict[int, float]], **options: Any) -> list[tuple[Any, GateAnswer]]:
    return [(one, GateAnswer(chances=of(one), **options)) for one in situations("A")]


def test_repeats_do_not_count_as_more_evidence() -> None:
    def unsure(one: Any) -> dict[int, float]:
        return {-75: 0.4, 75: 0.6} if one.move > 0 else {-75: 0.6, 75: 0.4}

    few, many = (
        [
            (one, answer.model_copy(update={"orders": (answer.chances,) * n}))
            for one, answer in answered(unsure)
        ]
        for n in (2, 200)
    )
    for check in (response, state):
        first, second = check(few, "sample"), check(many, "sample")
        assert (first.low, first.high) == pytest.approx((second.low, second.high))


def test_the_state_explains_what_draws_and_orders_leave() -> None:
    def of(one: Any) -> dict[int, float]:
        return {75: 1.0} if one.move > 0 else {-75: 1.0}

    always = [
        (one, answer.model_copy(update={"orders": (answer.chances,) * 3}))
        for one, answer in answered(of)
    ]
    assert state(always, "sample").value == 1
    # One order turns the move round: of three answers one is due to the order.
    turned = [
        (
            one,
            answer.model_copy(
                update={
                    "orders": (
                        answer.chances,
                        answer.chances,
                        {-m: p for m, p in answer.chances.items()},
                    )
                }
            ),
        )
        for one, answer in answered(of)
    ]
    value = state(turned, "mode").value
    assert value is not None
    assert value < 0.5


def test_a_change_with_names_fails_if_it_is_surely_more_than_half_a_move() -> None:
    asked = answered(lambda one: {-75: 0.0, 75: 1.0})
    other = {one.name: GateAnswer(chances={-75: 0.2, 75: 0.8}) for one, _ in asked}
    found = names(asked, other, "sample")
    assert (found.value, found.verdict) == (pytest.approx(30), "fail")
    assert names(asked, other, "mode").verdict == "pass"
    assert names(asked, {}, "mode").verdict == "undecided"


def test_a_card_shows_criteria_and_the_first_set_as_tables() -> None:
    card = economics_card(TaylorRule())
    frame = card.to_frame()
    assert len(frame) == 12
    assert set(frame["verdict"]) == {"pass"}
    assert card.situations()["situation"].tolist()[:2] == ["A01", "A01 mirrored"]
