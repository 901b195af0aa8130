"""The social benchmarks run and give the figures they promise."""

from __future__ import annotations

import asyncio
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from social_kit import social_client

from llmsim_lab.statechart import SocialConfig

pytestmark = pytest.mark.process

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def script(name: str) -> dict[str, Any]:
    return runpy.run_path(str(BENCHMARKS / f"{name}.py"))


def test_the_bench_by_rule_writes_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    out = tmp_path / "out.json"
    script("social_bench")["main"](["--quick", "--out", str(out)])
    figures = json.loads(out.read_text(encoding="utf-8"))
    assert figures["rounds_per_cpu_second"].keys() == {"10", "20"}
    assert all(rate > 0 for rate in figures["rounds_per_cpu_second"].values())
    assert 0 < figures["share_of_moves_that_need_a_decision"]["20"] < 1
    assert {"growth_with_users", "growth_with_rounds"} <= figures.keys()
    assert "The social simulation by rule" in capsys.readouterr().out


def test_the_questions_of_the_bias_bench_are_about_what_interests_each_user() -> None:
    made = script("position_bias")
    questions = made["make_questions"](SocialConfig(population=12, reasoner={"kind": "rule"}), 12)
    assert len(questions) == 12
    for question in questions:
        assert set(question.context.topics) & set(question.agent.interests)
        assert question.context.author != question.agent.name
        assert len(question.options) == 6


def test_batches_are_timed_against_one_by_one() -> None:
    made = script("position_bias")
    questions = made["make_questions"](SocialConfig(population=3, reasoner={"kind": "rule"}), 3)
    figures = asyncio.run(made["time_batches"](social_client(), questions, 2))
    assert figures["questions"] == 3
    assert [len(times) for times in figures["seconds"].values()] == [2, 2]
    assert figures["one_by_one_to_at_once"] > 0
