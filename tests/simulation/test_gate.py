"""The economic gate: what it asks, how its card is kept, and who passes."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmsim_lab.agents import TaylorRuleAgent
from llmsim_lab.economy import RudebuschSvensson, TaylorRule
from llmsim_lab.economy.macro import Shocks
from llmsim_lab.errors import BackendError, ConfigError, EconomyError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, Person, ScriptedBackend
from llmsim_lab.models import GlobalState
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Question
from llmsim_lab.simulation import Simulation, economics_card, gate
from llmsim_lab.simulation.gate import (
    GATE_MOVES_BP,
    QUESTIONS,
    EconomicsCard,
    kept_economics_cards,
    situations,
)
from llmsim_lab.simulation.world import Nation
from llmsim_lab.types import ChatReply, ChatRequest

CALLS = len(GATE_MOVES_BP)


@pytest.fixture(autouse=True)
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLMSIM_CARDS", str(tmp_path / "cards"))
    return tmp_path / "cards" / "economics"


@pytest.fixture(scope="module")
def card() -> EconomicsCard:
    """The card of a Taylor rule."""
    return economics_card(TaylorRule(), seed=1)


def read(request: ChatRequest) -> dict[str, float]:
    """Return what a briefing says of the economy."""
    text = request.messages[-1].content
    return {
        "inflation": float(re.findall(r"Inflation over 4 quarters is (\S+)%,", text)[0]),
        "output_gap": float(re.findall(r"output gap is (\S+)%", text)[0]),
        "previous_rate": float(re.findall(r"policy rate is (\S+)%", text)[0]),
    }


def scripted(rate: Callable[[Mapping[str, float]], float], *, mass: float = 0.9) -> ScriptedBackend:
    """Return a model that reads the briefing and gives most probability to its move's letter."""

    def reply(request: ChatRequest) -> ChatReply:
        seen, text = read(request), request.messages[-1].content
        wanted = rate(seen) - seen["previous_rate"]
        letters = {
            letter: 0 if move == "no change" else int(move.split()[0])
            for letter, move in re.findall(r"^([A-Z]): (.+)$", text, re.M)
        }
        best = min(letters, key=lambda letter: abs(letters[letter] / 100 - wanted))
        rest = (1 - mass) / len(letters)
        top = tuple((one, math.log(mass + rest if one == best else rest)) for one in letters)
        return ChatReply(text=best, top_logprobs=top)

    return ScriptedBackend(reply, name="scripted economist")


def client_of(backend: ScriptedBackend) -> LLMClient:
    return LLMClient(LLMConfig(retry_wait_s=(0, 0)), backend)


def by_rule(seen: Mapping[str, float]) -> float:
    return TaylorRule().rate(**seen)


# --- players --------------------------------------------------------------------------------------


def judged(player: Any) -> EconomicsCard:
    """Return the card of a player of a run that has the gate's moves."""
    run = Simulation(players=player, moves_bp=GATE_MOVES_BP, decide="sample")
    return run.responds(seed=1)


def test_a_rule_that_is_told_a_name_and_follows_it_fails_by_the_name() -> None:
    def pessimist(question: Question) -> dict[str, Any]:
        now = question.state
        rate = TaylorRule(inertia=0.8).rate(
            inflation=now.inflation, output_gap=now.output_gap, previous_rate=now.interest_rate
        )
        wanted = rate - now.interest_rate + 0.75 * ("Japan" in question.prompt)
        return {"rate_change_bp": min(GATE_MOVES_BP, key=lambda bp: abs(bp / 100 - wanted))}

    card = judged(pessimist)
    assert card.outcome == "fail"
    assert card.sentence.startswith("The name Japan, 1999Q1 alone changes its move by 0.")


def test_players_that_draw_are_asked_ten_times_and_random_ones_do_not_pass() -> None:
    card = judged("random")
    assert card.outcome != "pass"
    assert "by 10 answers to each" in card.heading

    rng = random.Random(3)

    def mostly(*, previous_rate: float, **seen: float) -> float:
        if rng.random() < 0.1:
            return previous_rate + rng.choice(GATE_MOVES_BP) / 100
        return TaylorRule(inertia=0.5).rate(previous_rate=previous_rate, **seen)

    assert economics_card(mostly, seed=2).outcome == "pass"


def test_what_24_pairs_do_not_decide_is_asked_of_24_more() -> None:
    backend = scripted(lambda seen: seen["previous_rate"] + 0.2 * random.Random(str(seen)).gauss())
    card = economics_card(client_of(backend), seed=4)
    assert card.outcome == "undecided"
    assert len(backend.requests) == 1_008
    assert "Not decided by 48 independent cases" in card.verdict


def test_a_model_without_an_answer_fails() -> None:
    backend = ScriptedBackend(ChatReply(text="no", top_logprobs=(("no", -0.1),)), name="mute")
    card = economics_card(client_of(backend))
    assert (card.outcome, card.sentence) == ("fail", "It gave no answer to 72 of 72 questions.")


@pytest.mark.parametrize(("target", "inertia"), [(1, 0), (3, 0), (3, 0.85)])
def test_a_rule_is_judged_from_its_own_target(target: float, inertia: float) -> None:
    card = economics_card(TaylorRule(inflation_target=target, inertia=inertia), seed=1)
    assert card.outcome == "pass"
    assert card.response is not None
    assert card.response["target"].value == pytest.approx(0, abs=0.1)
    assert card.sentence.endswith(card.response.stability)


def test_a_member_is_judged_from_its_own_target_and_one_with_another_aim_misses_it() -> None:
    nations = [{"name": "Ann", "inflation_target": 3}, {"name": "Bo", "inflation_target": 2}]
    three = TaylorRuleAgent(rule=TaylorRule(inflation_target=3), moves_bp=GATE_MOVES_BP)
    run = Simulation(nations=nations, players={"*": three}, moves_bp=GATE_MOVES_BP)
    ann, bo = run.responds("Ann", seed=2), run.responds("Bo", seed=2)
    assert ann.outcome == "pass"
    assert ", target 3%, 72 questions (seed 2)" in ann.heading
    assert bo.outcome == "fail"
    assert re.search(r"inflation is \d\.\d\d points .* above its target", bo.verdict)


def test_a_target_whose_rates_would_meet_a_bound_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"target of -1% .* can judge targets from 0% to 21%"):
        economics_card(TaylorRule(inflation_target=-1))


# --- a run's own deciding -------------------------------------------------------------------------


def test_a_run_is_judged_with_its_prompt_its_moves_and_its_way_of_deciding() -> None:
    backend = scripted(by_rule, mass=0.3)
    edited = Prompt.load("agent_briefing").text.replace("Now:", "Think of the target. Now:")
    ann = (Nation(name="Ann", prompt=edited),)
    run = Simulation(
        nations=ann, moves_bp=(-100, 0, 100), decide="mode", llm_client=client_of(backend)
    )
    card = run.responds(seed=5)
    assert card.outcome == "pass"
    assert {abs(move or 0) for move in card.moves.values()} == {0, 1}
    assert all("Think of the target. Now:" in it.messages[-1].content for it in backend.requests)
    run = Simulation(llm_client=client_of(backend), decide="sample")
    assert run.responds(seed=5).prompt != card.prompt
    assert len(kept_economics_cards()) == 2


def test_a_model_that_writes_its_moves_is_judged_by_what_it_writes() -> None:
    def writes(request: ChatRequest) -> dict[str, Any]:
        seen = read(request)
        wanted = 100 * (by_rule(seen) - seen["previous_rate"])
        move = min(GATE_MOVES_BP, key=lambda bp: abs(bp - wanted))
        return {"reasoning": "Rule.", "action": "move", "confidence": 1.0, "rate_change_bp": move}

    run = Simulation(moves_bp=GATE_MOVES_BP, llm_client=client_of(ScriptedBackend(writes)))
    card = run.responds(seed=3)
    assert (card.outcome, card.method, card.calls) == ("pass", "2 answers to each", 144)
    assert run.responds(seed=3) == card
    assert len(kept_economics_cards()) == 1


def test_each_member_of_a_committee_is_judged_by_itself() -> None:
    run = Simulation(
        nations=(Nation(name="Ann"), Nation(name="Bo")), players={"Ann": "rule", "Bo": "random"}
    )
    assert run.responds(seed=1).outcome == "pass"
    assert run.responds("Bo", seed=1).outcome != "pass"
    with pytest.raises(ConfigError, match="there is no member 'Cy'; there are Ann, Bo"):
        run.responds("Cy")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"players": Person()}, "neither probabilities nor 10 answers"),
        ({"players": "rule", "moves_bp": None}, "moves_bp=None .* give the run moves"),
    ],
)
def test_what_cannot_be_judged_is_told_what_it_takes(how: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Simulation(**how).responds()


# --- kept cards -----------------------------------------------------------------------------------


def test_a_kept_card_is_not_asked_for_again_and_a_stopped_one_is_continued() -> None:
    made: list[ChatRequest] = []
    down = True

    def reply(request: ChatRequest) -> ChatReply:
        if down and len(made) == 3 * CALLS:
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
    assert said[0] == "question 4 of 72"
    assert said[1].startswith("question 5 of 72, about ")
    assert said[1].endswith(" s left")
    assert kept_economics_cards() == [card]
    asked = len(made)
    assert asked % (72 * CALLS) == 0
    assert economics_card(client_of(backend)) == card
    assert len(made) == asked
    other = economics_card(client_of(backend), seed=card.seed + 1)
    assert (other.seed, kept_economics_cards()) == (card.seed + 1, [other])


def test_servers_whose_models_have_the_same_name_have_cards_of_their_own() -> None:
    for base_url in ("http://one/v1", "http://two/v1", "http://two/v1"):
        backend = scripted(lambda seen: seen["previous_rate"])
        backend.base_url = base_url  # type: ignore[attr-defined]
        economics_card(client_of(backend))
    assert len(kept_economics_cards()) == 2


def test_a_card_that_cannot_be_read_or_is_of_another_version_is_measured_anew(cards: Path) -> None:
    backend = scripted(lambda seen: seen["previous_rate"])
    economics_card(client_of(backend))
    [path] = cards.iterdir()
    assert re.fullmatch(r"scripted-economist-[0-9a-f]{16}\.json", path.name)
    for text in (path.read_text()[:100], path.read_text().replace('_gate":3', '_gate":2')):
        path.write_text(text)
        assert kept_economics_cards() == []
    assert economics_card(client_of(backend)).outcome == "fail"
    assert len(backend.requests) == 2 * 504


def test_a_folder_that_cannot_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LLMSIM_CARDS", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"cannot keep the card in .*file.*LLMSIM_CARDS"):
        economics_card(client_of(scripted(by_rule)))


def test_a_taylor_rule_passes_and_its_card_is_shown_as_text_and_a_frame(
    card: EconomicsCard,
) -> None:
    assert card.verdict.startswith("Passes the economic gate. In the end it raises the rate by 1.")
    names = ["inflation", "long run", "output gap", "drift", "rate", "target"]
    frame = card.to_frame().set_index("name")
    assert list(frame.index) == [*names, "United States, 1979Q3", "Japan, 1999Q1"]
    assert frame["verdict"].drop("rate").eq("pass").all()
    assert card.heading == (
        f"{TaylorRule()!r} (rule), an economist's briefing, 72 questions (seed 1) by 2 answers to "
        f"each, 0 calls, {card.measured_at:%Y-%m-%d}"
    )
    for text in ("72 questions (seed 1)", "between -0.25 and 0.25", card.verdict):
        assert text in str(card)


def test_how_long_it_takes_is_told_by_what_questions_took_but_for_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The first question takes ten seconds, each of the others one.
    readings = iter([0, 10, *(second for at in range(100, 300) for second in (at, at + 1))])
    monkeypatch.setattr(gate, "time", SimpleNamespace(monotonic=lambda: next(readings)))
    said: list[str] = []
    economics_card(TaylorRule(), seed=1, progress=said.append)
    assert said[:4] == [
        "question 1 of 72",
        "question 2 of 72, about 12 min left",
        "question 3 of 72, about 70 s left",
        "question 4 of 72, about 69 s left",
    ]
    assert said[-1] == "question 72 of 72, about 1 s left"


def test_a_card_is_judged_with_three_answers_missing_and_not_with_four(card: EconomicsCard) -> None:
    for missing, is_judged in ((3, True), (4, False)):
        moves = dict(card.moves) | dict.fromkeys(list(card.moves)[:missing])
        left = card.model_copy(update={"moves": moves})
        assert (left.unanswered, left.response is not None) == (missing, is_judged)
        # Of two missing answers of one pair, and one or two of the next.
        assert not is_judged or left.response.units == 24 - 2


def test_a_name_counts_by_how_much_it_changes_both_images_of_a_situation(
    card: EconomicsCard,
) -> None:
    changed = {}
    for key in card.moves:
        pair = key.partition(" ")[0]
        if "Japan" in key or "United States" in key:
            plain = card.moves[f"{pair} mirrored" if "mirrored" in key else pair]
            # What is changed in one image and taken back in the other is no change by the name.
            sign = -1 if "mirrored" in key else 1
            changed[key] = (plain or 0) + (0.5 if "Japan" in key else 0.5 * sign)
    response = card.model_copy(update={"moves": {**card.moves, **changed}}).response
    assert response is not None
    assert response["Japan, 1999Q1"].value == pytest.approx(0.5)
    assert response["United States, 1979Q3"].value == pytest.approx(0)


def test_a_card_that_was_broken_off_in_its_second_half_is_shown() -> None:
    fields = {"model": "m", "told": "thin", "prompt": "p", "measured_at": datetime.now(UTC)}
    card = EconomicsCard(**fields, seed=1, moves=dict.fromkeys([*QUESTIONS][:50], 0.25))
    assert card.response is not None
    assert card.response["United States, 1979Q3"].verdict == "undecided"
    assert "United States, 1979Q3" in str(card)


# --- situations -----------------------------------------------------------------------------------


def ran_into(rng: random.Random) -> list[GlobalState]:
    """Return twenty quarters in which the rate slips away from what a rule asks for."""
    path = [GlobalState()]
    slip = 0.0
    for _ in range(20):
        now = path[-1]
        slip = 0.85 * slip + rng.gauss(0, 0.4)
        wanted = 4 + 1.5 * (now.inflation - 2) + 0.5 * now.output_gap
        rate = 0.8 * now.interest_rate + 0.2 * wanted + 0.5 * slip
        shocks = Shocks(supply=rng.gauss(0, 1.009), demand=rng.gauss(0, 0.819))
        path.append(RudebuschSvensson().advance(now, interest_rate=rate, shocks=shocks))
    return path


def is_usual(path: list[GlobalState]) -> bool:
    wanted = 4 + 1.5 * (path[-1].inflation - 2) + 0.5 * path[-1].output_gap
    return 0 <= wanted <= 8 and all(
        0.25 <= now.interest_rate <= 7.75
        and abs(now.inflation - 2) < 3.5
        and abs(now.unemployment - 5) < 4
        for now in path
    )


def test_situations_follow_from_the_seed_so_that_a_kept_card_is_judged_as_it_was_asked() -> None:
    rng = random.Random("economic gate, seed 8")
    expected: list[list[GlobalState]] = []
    while len(expected) < 48:
        with suppress(EconomyError):
            # The eight quarters that a briefing shows.
            path = ran_into(rng)[-8:]
            if is_usual(path):
                expected.append(path)
    paths = situations(8)
    assert len(paths) == 48
    for path, quarters in zip(paths, expected, strict=True):
        for quarter, other in zip(path, quarters, strict=True):
            for name in ("interest_rate", "inflation", "output_gap", "unemployment"):
                assert getattr(quarter, name) == pytest.approx(getattr(other, name), abs=1e-9)


def test_questions_have_the_moves_and_differ_by_mirror_and_by_name_and_dates_alone() -> None:
    backend = scripted(by_rule)
    assert economics_card(client_of(backend), seed=1).outcome == "pass"
    assert len(backend.requests) == 72 * CALLS == 504
    texts = [it.messages for it in backend.requests[::CALLS]]
    plain, turned = read(backend.requests[0]), read(backend.requests[CALLS])
    assert plain["inflation"] + turned["inflation"] == pytest.approx(4)
    assert plain["previous_rate"] + turned["previous_rate"] == pytest.approx(8)
    masked, named = ("\n".join(it.content for it in texts[at]) for at in (0, 48))
    assert "-200, -75, -25, 0, +25, +75, +200" in masked
    assert "central bank of a large economy" in masked
    assert not re.search(r"\d{4}Q\d", masked)
    assert "central bank of United States" in named
    assert "1979Q3 | " in named
    bare = re.sub(
        r"^\d{4}Q\d \|", "X |", named.replace("United States", "a large economy"), flags=re.M
    )
    assert bare == re.sub(r"^(-\d|now) \|", "X |", masked, flags=re.M)
    assert "central bank of Japan" in "\n".join(it.content for it in texts[-1])
