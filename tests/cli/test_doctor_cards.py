"""The doctor's checks and economic cards as its user meets them."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Run
from fake_ollama import FakeOllama, Fault
from ollama_rules import refusal

from llmsim_lab.cli import main
from llmsim_lab.study import economics_card


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeOllama]:
    """Two models: one says the least that has the form asked for, the other what has none."""
    monkeypatch.setenv("LLMSIM_CARDS", str(tmp_path / "cards"))

    def reply(body: dict[str, Any]) -> Any:
        return "I would rather not." if body["model"].startswith("rude") else None

    with FakeOllama(["polite", "rude"], reply=reply) as fake:
        monkeypatch.setenv("OLLAMA_HOST", fake.host)
        yield fake


def test_the_doctor_checks_models_in_a_table_each_with_lines_of_progress(
    llmsim_lab: Run, server: FakeOllama
) -> None:
    status, out, err = llmsim_lab("doctor", "ollama:polite", "ollama:rude")
    assert status == 0
    assert err.splitlines()[:2] == [
        "ollama:polite: answers ...",
        "ollama:polite: valid JSON: a field ...",
    ]
    assert "polite (ollama 0.32.15, digest " in out
    rows = [line.split("  ")[0] for line in out.splitlines()]
    assert rows.count("valid JSON: a nested list") == 2
    polite, rude = [line for line in out.splitlines() if line.startswith("valid JSON: a field")]
    assert "4 of 4" in polite
    assert "0 of 4" in rude
    assert "4 invalid_response" in rude


def test_what_the_doctor_finds_is_written_as_json(llmsim_lab: Run, server: FakeOllama) -> None:
    status, out, _ = llmsim_lab("doctor", "ollama:polite", "ollama:rude", "--json", "c.json")
    assert status == 0
    assert "Written: c.json" in out
    first, second = json.loads(Path("c.json").read_text())
    assert (first["model"], second["model"]) == ("polite", "rude")
    _, out, _ = llmsim_lab("doctor", "ollama:rude", "--json", "-")
    found = json.loads(out)
    assert found["model"] == "rude"
    assert {"check": "valid JSON: a field", "value": 0, "asked": 4}.items() <= found["checks"][
        1
    ].items()


def test_a_model_that_does_not_answer_is_an_error(llmsim_lab: Run, server: FakeOllama) -> None:
    server.fail_next(Fault.status(429), times=2)
    status, _, err = llmsim_lab("doctor", "ollama:polite")
    assert status == 1
    assert "rate_limited" in err


@pytest.mark.odd_requests  # Ollama has no such name, but other servers may
def test_a_models_name_is_no_markup(
    llmsim_lab: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMSIM_CARDS", str(tmp_path / "cards"))
    with FakeOllama(["[/red]"], reply="No.") as fake:
        status, out, err = llmsim_lab("doctor", "ollama:[/red]", "--host", fake.host)
    assert (status, err.splitlines()[0]) == (0, "ollama:[/red]: answers ...")
    assert "[/red] (ollama 0.32.15, digest " in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--json", "-"), "go with a model"),
        (("--economics",), "go with a model"),
        (("embedded:smollm2-135m", "--thin"), "--thin goes with --economics"),
    ],
)
def test_options_that_do_not_go_together_are_named(
    llmsim_lab: Run, arguments: tuple[str, ...], message: str
) -> None:
    status, _, err = llmsim_lab("doctor", *arguments)
    assert status == 2
    assert message in " ".join(err.split())


def test_a_name_that_is_no_model_is_refused_before_the_work_is_announced(llmsim_lab: Run) -> None:
    status, _, err = llmsim_lab("doctor", "rule", "--economics")
    assert status == 1
    assert err.startswith("error: model 'rule' is not understood")


@dataclass(frozen=True)
class Measured:
    """A model that always wants to raise, and what the doctor said as it measured its card."""

    server: FakeOllama
    cards: Path
    status: int | str | None
    out: str
    err: str


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    """A model of the catalogue's name that always wants to raise by 75 basis points."""
    cards = tmp_path_factory.mktemp("measured") / "cards"
    command = ["llmsim-lab", "doctor", "ollama:smollm2-135m", "--economics"]
    out, err = io.StringIO(), io.StringIO()

    def reply(body: dict[str, Any]) -> Any:
        [letter] = re.findall(
            r"^([A-Z]): \+75 basis points$", body["messages"][-1]["content"], re.MULTILINE
        )
        return FakeOllama.tokens([{letter: -0.1, "I": -2.4}])

    with FakeOllama(["smollm2-135m"], reply=reply) as fake:
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setenv("LLMSIM_CARDS", str(cards))
            patch.setenv("OLLAMA_HOST", fake.host)
            patch.setenv("COLUMNS", "160")
            patch.setattr(sys, "argv", command)
            with pytest.raises(SystemExit) as end:
                main()
        assert [told for one in fake.requests if (told := refusal(one.content))] == []
        yield Measured(fake, cards, end.value.code, out.getvalue(), err.getvalue())


@pytest.fixture
def raiser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: Measured) -> FakeOllama:
    """The model that was measured; its card is in a folder that no other test sees."""
    monkeypatch.setenv("LLMSIM_CARDS", str(shutil.copytree(measured.cards, tmp_path / "cards")))
    monkeypatch.setenv("OLLAMA_HOST", measured.server.host)
    return measured.server


def test_the_doctor_asks_about_economies_and_the_verdict_is_listed_from_then_on(
    llmsim_lab: Run, raiser: FakeOllama, measured: Measured
) -> None:
    assert not measured.status
    assert "72 questions, each in 7 calls of one token (504 in all)" in measured.err
    last = measured.out.rstrip().splitlines()[-1]
    assert "Fails the economic gate. A point more of inflation changes its" in measured.out
    asked = len(raiser.requests)
    _, out, _ = llmsim_lab("doctor", "ollama:smollm2-135m", "--economics", "--json", "-")
    assert json.loads(out)["verdict"] == last
    assert len(raiser.requests) == asked
    _, out, _ = llmsim_lab("model", "ls")
    assert last in out


def test_a_run_of_a_model_that_failed_the_gate_says_so(
    llmsim_lab: Run, raiser: FakeOllama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMSIM_CARDS", str(tmp_path / "none"))
    Path("run.yaml").write_text("turns: 0\nllm: {model: 'ollama:smollm2-135m'}\n")
    _, out, _ = llmsim_lab("run", "run.yaml")
    assert "economic gate" not in out
    monkeypatch.setenv("LLMSIM_CARDS", str(tmp_path / "cards"))
    asked = len(raiser.requests)
    assert economics_card("ollama:smollm2-135m").outcome  # the name alone finds what was measured
    assert len(raiser.requests) == asked
    _, out, _ = llmsim_lab("run", "run.yaml")
    assert "smollm2-135m failed the economic gate. A point more of inflation" in out
    Path("run.yaml").write_text("turns: 0\nbriefing: thin\nllm: {model: 'ollama:smollm2-135m'}\n")
    _, out, _ = llmsim_lab("run", "run.yaml")
    assert "economic gate" not in out
