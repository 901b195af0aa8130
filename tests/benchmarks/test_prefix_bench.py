"""The benchmark of the stable parts' place: what it sends, and how it counts."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm._embedded import wire

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "prefix_bench.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prefix_bench", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent)
        patch.setitem(sys.modules, "prefix_bench", module)  # where its dataclass looks for itself
        spec.loader.exec_module(module)
    return module


def test_both_orders_of_a_crisis_send_the_same_sections_in_another_order(bench: ModuleType) -> None:
    usual, ordered = (bench.requests_of(world, 2) for world in ("crisis, usual order", "crisis"))
    assert len(usual) == len(ordered) == 2 * 5
    assert usual[0].prompt == ordered[0].prompt, "the engine's prompt has but one order"
    for one, other in zip(usual, ordered, strict=True):
        assert sorted(one.prompt.split("\n\n")) == sorted(other.prompt.split("\n\n"))
    assert "YOUR DECISION" not in usual[1].messages[0].content
    assert "YOUR DECISION" in ordered[1].messages[0].content


def test_contracts_prompts_could_have_their_fixed_lines_first(bench: ModuleType) -> None:
    for world, line in (("economy", "Think step-by-step:"), ("social", "Respond with JSON only:")):
        usual = bench.requests_of(world, 2)
        moved = bench.requests_of(f"{world}, contract's fixed lines first", 2)
        changed = [
            (one.prompt, other.prompt)
            for one, other in zip(usual, moved, strict=True)
            if one.prompt != other.prompt
        ]
        assert changed
        for one, other in changed:
            assert sorted(one.split()) == sorted(other.split())
            assert other.startswith(line)


def test_the_same_requests_are_made_each_time(bench: ModuleType) -> None:
    for world in bench.WORLDS:
        requests = bench.requests_of(world, 2)
        assert requests
        assert requests == bench.requests_of(world, 2)


def test_a_server_with_one_slot_has_only_the_prompt_before(bench: ModuleType) -> None:
    requests = bench.requests_of("crisis", 2)[:3]
    tokens = [[1, 2, 3, 4], [1, 2, 9], [1, 2, 3, 4]]
    rows = bench.rows_of(requests, tokens, [(4, 0), (3, 2), (4, 3)])
    assert [row["anew_one_slot"] for row in rows] == [4, 1, 2]
    assert [row["anew"] for row in rows] == [4, 1, 1]
    assert [row["component"] for row in rows] == ["engine", "agent", "agent"]


def test_figures_are_of_a_turn_from_the_second_on(bench: ModuleType) -> None:
    row = {"component": "agent", "prompt": 9, "anew": 4, "anew_one_slot": 6}
    rows = [row | {"turn": turn} for turn in (1, 2, 2, 3, 3)]
    assert bench.summary(rows) == {
        part: {"calls": 2.0, "prompt": 18.0, "anew": 8.0, "anew_one_slot": 12.0}
        for part in ("agent", "all")
    }


def test_cached_tokens_are_counted_from_the_replys_usage(bench: ModuleType) -> None:
    counts: list[tuple[int, int]] = []
    before = wire.json_object
    usage = {"prompt_tokens": 91, "prompt_tokens_details": {"cached_tokens": 84}}
    with bench.counting(counts):
        wire.json_object(json.dumps({"usage": usage, "choices": []}))
        wire.json_object('{"choices": []}')
    assert counts == [(91, 84)]
    assert wire.json_object is before


def test_a_model_that_does_not_say_what_it_had_cached_is_refused(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMSIM_MODEL", "ollama:llama3.2")
    with pytest.raises(ConfigError, match="set it to embedded:NAME"):
        bench.measure(bench.QUICK)
