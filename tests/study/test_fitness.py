"""The fitness card of models whose answers are known, and how it is kept."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from fake_ollama import FakeModel, FakeOllama
from fitness_kit import (
    Reply,
    always_the_same,
    client_of,
    invalid_half_of_the_time,
    never_valid,
    obeys,
)

from llmsim_lab.errors import BackendError, ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, OllamaBackend, ScriptedBackend, connect
from llmsim_lab.study import _checks, fitness_card
from llmsim_lab.study._checks import CHECKS, Measure, share
from llmsim_lab.study._fitness import FitnessCard, kept_cards
from llmsim_lab.types import ChatReply, ChatRequest, Message, ModelInfo


@pytest.fixture(autouse=True)
def _cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMSIM_CARDS", str(tmp_path / "cards"))


@pytest.fixture
def _one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is about keeping cards, one short check is as good as all."""
    monkeypatch.setattr(_checks, "CHECKS", {"spread": CHECKS["spread"]})


def card_of(reply: Reply, **options: Any) -> FitnessCard:
    return fitness_card(client_of(reply), **options)


def measure(card: FitnessCard, name: str) -> Measure:
    [one] = [one for one in card.measures if one.name == name]
    return one


def test_a_model_that_obeys_is_fit_for_structured_decisions_once_enough_was_asked() -> None:
    quick, full = card_of(obeys), card_of(obeys, full=True)
    assert quick.verdict == (
        "Fit for trying the tool; undecided for structured decisions: 10 of 10 pairs of an "
        "instruction and its reverse are obeyed (69 to 100 %; it takes 80 %); the full card asks "
        "more; nothing is said of economics."
    )
    assert full.verdict == (
        "Fit for structured decisions; undecided for a long text (10 of 10); "
        "nothing is said of economics."
    )
    assert measure(full, "obeyed").n == 40
    assert measure(full, "tools").hits == measure(full, "tools").n == 20


def test_a_model_that_always_says_the_same_is_fit_for_plumbing_only() -> None:
    card = card_of(always_the_same)
    assert card.verdict == (
        "Fit for plumbing and tests only; not for trying the tool: 0 of 10 pairs of an "
        "instruction and its reverse are obeyed (0 to 31 %; it takes 50 %); nothing is said of "
        "economics."
    )
    assert measure(card, "tools").hits == 0
    note = "picks by place: 15, 0, 0 (p < 0.01): the place matters"
    assert measure(card, "order_effect").note == note
    assert measure(card, "spread").value == 0


def test_a_model_that_is_invalid_half_of_the_time_leaves_plumbing_undecided() -> None:
    card = card_of(invalid_half_of_the_time())
    assert measure(card, "field").hits == 5
    assert measure(card, "field").note == "else: repaired 5"
    assert card.verdict.startswith("Undecided for plumbing and tests: 20 of 40 replies have the")
    assert "Fit" not in card.verdict


def test_a_model_that_is_never_valid_is_fit_for_nothing() -> None:
    card = card_of(never_valid)
    assert card.verdict.startswith("Fit for nothing here; not for plumbing and tests: 0 of 40")
    assert measure(card, "field").note == "else: invalid_response 10"
    assert measure(card, "spread").why_not == "fewer than two answers were valid"
    assert measure(card, "order_effect").why_not == "no answer was one of the options"


def test_order_alone_shows_no_effect_where_the_same_option_is_picked_at_every_place() -> None:
    note = measure(card_of(obeys), "order_effect").note
    assert note == "picks by place: 5, 5, 5 (p = 1.00): no evidence of an effect"


def test_probabilities_show_how_much_is_on_the_options_and_what_a_letter_pulls() -> None:
    def pulled_to_a(request: ChatRequest) -> Any:
        if not request.top_logprobs:
            return obeys(request)
        listed = (("A", math.log(0.5)), ("B", math.log(0.1)), ("C", math.log(0.1)))
        return ChatReply(text="A", top_logprobs=listed)

    card = card_of(pulled_to_a)
    assert measure(card, "logprobs").value == pytest.approx(0.7)
    assert measure(card, "letter_pull").value == pytest.approx(100 * (5 / 7 - 1 / 3))
    assert measure(card, "letter_pull").n == 3
    without = measure(card_of(obeys, again=True), "logprobs")
    assert without.why_not == "ScriptedBackend gives no log-probabilities"


def test_one_seed_is_tried_again_at_once_and_after_a_reload_or_it_says_why_not() -> None:
    made: dict[str, int] = {}

    def forgets(request: ChatRequest) -> Any:
        if request.schema is None and not request.tools:
            made[request.prompt] = made.get(request.prompt, 0) + 1
            return f"{made[request.prompt]}"
        return obeys(request)

    card = card_of(forgets)
    assert measure(card, "same_again").hits == measure(card, "same_parallel").hits == 0
    assert measure(card, "same_reload").why_not == "ScriptedBackend cannot unload a model"
    assert measure(card_of(obeys, again=True), "same_again").hits == 4


def test_what_a_script_cannot_tell_is_named_with_its_reason() -> None:
    card = card_of(obeys)
    unmeasured = {one.name: one.why_not for one in card.measures if one.value is None}
    assert unmeasured["memory_gb"] == "ScriptedBackend does not tell"
    assert unmeasured["load_s"] == "ScriptedBackend cannot unload a model"
    assert "too quick" in unmeasured["reading"]
    assert all(one.value is not None or one.why_not for one in card.measures)
    assert "no digest is known: kept by name" in card.heading


# Speeds, on a backend whose clock is known


class Clocked:
    """Reads 1,000 tokens a second that it has not read before, and writes 50."""

    def __init__(self) -> None:
        self.unloaded = 0
        self._read = ""
        self._loaded = False

    async def chat(self, request: ChatRequest) -> ChatReply:
        same = takewhile(
            lambda pair: pair[0] == pair[1], zip(self._read, request.prompt, strict=False)
        )
        shared = len(list(same)) if self._loaded else 0
        load, self._loaded, self._read = 0.0 if self._loaded else 0.4, True, request.prompt
        tokens = min(request.options["num_predict"], 48)
        seconds = load + (len(request.prompt) - shared) / 1000 + tokens / 50
        return ChatReply(
            text="Yes.",
            prompt_tokens=len(request.prompt),
            reply_tokens=tokens,
            seconds=seconds,
            load_seconds=load,
        )

    async def model_info(self) -> ModelInfo:
        return ModelInfo(name="clocked", backend="own", digest="ab" * 32)

    async def aclose(self) -> None:
        pass

    async def unload(self) -> None:
        self.unloaded += 1
        self._loaded = False

    async def memory_bytes(self) -> int:
        return 1_500_000_000


def test_speeds_load_time_and_memory_are_told_where_the_backend_has_them() -> None:
    backend = Clocked()
    card = fitness_card(LLMClient(LLMConfig(retry_wait_s=0), backend))
    assert measure(card, "memory_gb").shown == "1.5 GB"
    assert measure(card, "load_s").value == 0.4
    assert 900 < (measure(card, "reading").value or 0) < 1000  # the first token is written, too
    assert measure(card, "writing").value == pytest.approx(50)
    assert (measure(card, "prefix_gain").value or 0) > 20
    assert measure(card, "prefix_gain").note.startswith("to the first token: 1.")
    assert measure(card, "same_reload").n == 4
    assert backend.unloaded == 2


def test_speeds_that_a_busy_machine_gave_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.getloadavg", lambda: (15.0, 9.0, 4.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    client = LLMClient(LLMConfig(), Clocked())
    note = "this machine was busy (load 15 on 2 cores): speeds are lower than idle"
    assert measure(fitness_card(client), "reading").note == note
    monkeypatch.setattr("psutil.getloadavg", lambda: (2.0, 2.0, 2.0))
    assert measure(fitness_card(client, again=True), "reading").note == ""


def test_an_ollama_that_keeps_the_model_is_no_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    async def still_there(*_: object) -> object:
        return object()

    monkeypatch.setattr("llmsim_lab.llm._ollama.backend._UNLOADED_POLL_S", 0.0)
    monkeypatch.setattr(OllamaBackend, "_loaded", still_there)
    monkeypatch.setattr(OllamaBackend, "memory_bytes", Clocked.memory_bytes)
    with FakeOllama(["tiny"]) as server:
        card = fitness_card(connect("ollama:tiny", host=server.host, quiet=True))
    assert "still has 'tiny' in memory" in measure(card, "load_s").why_not
    assert "still has 'tiny' in memory" in measure(card, "same_reload").why_not


def test_a_model_that_must_stay_loaded_is_not_unloaded() -> None:
    backend = Clocked()
    card = fitness_card(LLMClient(LLMConfig(), backend), reload=False)
    assert backend.unloaded == 0
    assert measure(card, "load_s").why_not == "the model was not to be unloaded"
    assert measure(card, "same_reload").why_not == "the model was not to be unloaded"


def test_more_at_once_is_best_where_a_server_has_the_slots() -> None:
    async def slow(request: ChatRequest) -> Any:
        if "Count from" in request.prompt:
            await asyncio.sleep(0.05)
        return obeys(request)

    one = measure(card_of(slow), "at_once")
    assert one.value == 4
    assert one.note.startswith("tokens/s by number: 1: ")


# How a card is kept


def test_a_card_is_measured_once_and_then_read() -> None:
    first = card_of(obeys)
    backend = ScriptedBackend([])  # a single request would fail
    again = fitness_card(LLMClient(LLMConfig(model="scripted"), backend))
    assert again == first
    assert backend.requests == []
    assert kept_cards() == [first]


@pytest.mark.usefixtures("_one_check")
def test_a_card_of_other_checks_is_measured_anew(tmp_path: Path) -> None:
    card_of(obeys, folder=tmp_path)
    [path] = tmp_path.iterdir()
    assert len(kept_cards(tmp_path)) == 1
    path.write_text(path.read_text().replace('"version_of_checks": 1', '"version_of_checks": 0'))
    assert kept_cards(tmp_path) == []


def test_a_card_that_was_stopped_continues_after_the_last_whole_check() -> None:
    begun: list[str] = []

    def dies(request: ChatRequest) -> Any:
        if request.tools:
            return BackendError("the server is gone", reason="connection_error")
        return obeys(request)

    with pytest.raises(LLMFailureException, match="the server is gone"):
        card_of(dies)
    assert kept_cards() == []
    card = card_of(obeys, progress=begun.append)
    assert begun == list(CHECKS)[list(CHECKS).index("tools") :]
    assert list(card.checks) == list(CHECKS)


@pytest.mark.usefixtures("_one_check")
def test_other_settings_another_form_and_another_digest_have_cards_of_their_own() -> None:
    card_of(obeys)
    with FakeOllama([FakeModel(name="a"), FakeModel(name="b")]) as server:
        for model in ("ollama:a", "ollama:b"):
            fitness_card(connect(model, host=server.host, quiet=True))
        asked = len(server.requests)
        fitness_card(connect("ollama:a", host=server.host, quiet=True))
        assert len(server.requests) == asked
        fitness_card(connect("ollama:a", host=server.host, quiet=True, num_ctx=2048))
        assert len(server.requests) > asked
    assert len(kept_cards()) == 4


@pytest.mark.usefixtures("_one_check")
def test_servers_whose_models_have_the_same_name_have_cards_of_their_own() -> None:
    for base_url in ("http://one/v1", "http://two/v1", "http://two/v1"):
        backend = ScriptedBackend(obeys, name="served")
        backend.base_url = base_url  # type: ignore[attr-defined]
        fitness_card(LLMClient(LLMConfig(), backend))
    assert len(kept_cards()) == 2


@pytest.mark.usefixtures("_one_check")
def test_a_card_that_cannot_be_read_is_measured_anew(tmp_path: Path) -> None:
    first = card_of(obeys)
    [path] = (tmp_path / "cards").iterdir()
    path.write_text(path.read_text()[:100])
    assert kept_cards() == []
    again = card_of(obeys)
    assert [one.name for one in again.measures] == [one.name for one in first.measures]


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ('"hits": 10', '"hits": 999'),
        ('"n": 10', '"n": -10'),
        ('"model": "scripted"', '"model": "another"'),
        ('"digest": null', '"digest": "abcd"'),
        ('"full": false', '"full": true'),
        ('Z",', '",'),
    ],
)
def test_a_card_that_was_changed_is_measured_anew(tmp_path: Path, was: str, now: str) -> None:
    first = card_of(obeys)
    [path] = (tmp_path / "cards").iterdir()
    kept = path.read_text()
    assert was in kept
    path.write_text(kept.replace(was, now))
    path.with_name("b.json").write_text(kept)
    assert first in kept_cards()
    assert card_of(obeys).measured_at > first.measured_at


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"cannot keep the card in .*file.*LLMSIM_CARDS"):
        card_of(obeys, folder=tmp_path / "file" / "cards")


# On a server


@pytest.fixture
def server() -> Iterator[FakeOllama]:
    with FakeOllama([FakeModel(name="tiny", capabilities=("completion",))]) as fake:
        yield fake


def test_a_server_that_has_no_tools_for_a_model_is_quoted(server: FakeOllama) -> None:
    card = fitness_card(connect("ollama:tiny", host=server.host, quiet=True))
    assert "does not support tools" in measure(card, "tools").why_not
    assert measure(card, "memory_gb").value == pytest.approx(0.3224, abs=0.001)
    assert measure(card, "load_s").value == 0.25
    assert measure(card, "same_reload").hits == 4
    assert card.digest == FakeModel(name="tiny").digest


async def test_unloading_takes_the_model_out_of_the_servers_memory(server: FakeOllama) -> None:
    backend = OllamaBackend("tiny", host=server.host)
    client = LLMClient(LLMConfig(model="tiny"), backend)
    async with client:
        assert await backend.memory_bytes() is None
        await client.converse([Message("user", "Hello")])
        assert (await backend.memory_bytes() or 0) > 10**8
        await backend.unload()
        assert await backend.memory_bytes() is None


# What is shown


def test_a_card_is_a_table_json_and_html_with_n_beside_each_share() -> None:
    card = card_of(obeys)
    frame = card.to_frame()
    row = frame.set_index("name").loc["enum"]
    assert (row["value"], row["n"], row["hits"]) == (1.0, 10, 10)
    assert row["low"] == pytest.approx(0.6915, abs=1e-4)  # 0.025 ** 0.1
    document = json.loads(card.to_json())
    assert document["verdict"] == card.verdict
    assert document["checks"]["forms"]["raw"][0] == {"name": "text"}
    assert FitnessCard.model_validate_json(card.to_json()) == card
    html = card._repr_html_()
    assert "69 to 100 %" in html
    assert card.verdict in html
    assert str(card).splitlines()[-1] == card.verdict


def test_cards_side_by_side_end_with_what_each_is_fit_for() -> None:
    good = card_of(obeys)
    bad = fitness_card(client_of(always_the_same, name="parrot"))
    frame = good.compare(bad)
    assert list(frame.columns) == ["measure", "scripted", "parrot"]
    row = frame.set_index("measure").loc["obeys an instruction and its reverse"]
    assert list(row) == ["100 % (n = 10, 69 to 100 %)", "0 % (n = 10, 0 to 31 %)"]
    assert list(frame.iloc[-1]) == ["fit for", good.verdict, bad.verdict]


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(0, 10, 0.0, 0.3085), (5, 10, 0.1871, 0.8129), (8, 10, 0.4439, 0.9748)],
)
def test_shares_have_the_exact_interval(hits: int, n: int, low: float, high: float) -> None:
    # Clopper and Pearson's, as printed in tables of the binomial distribution.
    assert share("x", hits, n).interval == pytest.approx((low, high), abs=1e-4)
