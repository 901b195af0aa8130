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


def test_both_orders_send_the_same_sections_in_another_order(bench: ModuleType) -> None:
    usual, stable = (bench.requests_of(2, stable_first=order) for order in (False, True))
    assert len(usual) == len(stable) == 2 * 5
    assert usual[0].prompt == stable[0].prompt, "the engine's prompt has but one order"
    for one, other in zip(usual, stable, strict=True):
        assert sorted(one.prompt.split("\n\n")) == sorted(other.prompt.split("\n\n"))
    assert "YOUR DECISION" not in usual[1].messages[0].content
    assert "YOUR DECISION" in stable[1].messages[0].content


def test_cached_tokens_are_counted_from_the_replys_usage(bench: ModuleType) -> None:
    counts: list[tuple[int, int]] = []
    before = wire._decoded
    usage = {"prompt_tokens": 91, "prompt_tokens_details": {"cached_tokens": 84}}
    with bench.counting(counts):
        wire._decoded(json.dumps({"usage": usage, "choices": []}))
        wire._decoded('{"choices": []}')
    assert counts == [(91, 84)]
    assert wire._decoded is before


def test_a_model_that_does_not_say_what_it_had_cached_is_refused(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMSIM_MODEL", "ollama:llama3.2")
    with pytest.raises(ConfigError, match="set it to embedded:NAME"):
        bench.measure(bench.QUICK)
