"""The command line as its user meets it: what it prints, writes, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cli_kit import Run, reply
from fake_ollama import FakeOllama

from llmsim_lab._util.config import yaml_text
from llmsim_lab._util.files import data_path
from llmsim_lab.llm._embedded.weights import CATALOGUE

SCENARIO = str(data_path("scenarios/volcker.yaml"))


@pytest.mark.usefixtures("drawn")
def test_a_run_on_ollama_shows_what_was_proposed_and_why(llmsim_lab: Run) -> None:
    nations = ["United States", "Federal Republic of Germany"]
    llm = {"model": "auto", "num_ctx": 2048}
    Path("two.yaml").write_text(
        yaml_text({"start_at": "1979Q3", "turns": 2, "nations": nations, "llm": llm})
    )
    with FakeOllama(reply=reply) as server:
        status, out, err = llmsim_lab("run", "two.yaml", "--host", server.host, "--out", "here")
        host = server.host
    assert (status, err) == (0, "")
    assert f"Using llama3.2:latest on Ollama 0.32.15 at {host}" in out
    what = "action Raise the interest rate [bold]now[/bold], rate_change_bp 50; Prices rise."
    assert f"1 Federal Republic of Germany: {what}" in out
    assert "4 model calls: ok 100%" in out
    assert "tokens" in out
    frame = pd.read_csv("here/decisions.csv")
    assert frame["component"].tolist() == ["agent"] * 4
    assert frame["outcome_bp"].tolist() == [50] * 4
    bodies = [request.body for request in server.requests]
    assert len(bodies) == 4
    assert all(body["options"]["num_ctx"] == 2048 for body in bodies)
    assert all(body["truncate"] is False for body in bodies)


@pytest.mark.usefixtures("drawn")
def test_a_run_from_a_file_obeys_the_file(llmsim_lab: Run) -> None:
    Path("run.yaml").write_text(
        yaml_text(
            {
                "name": "mine",
                "start_at": "2007Q4",
                "turns": 2,
                "nations": ["Rule"],
                "players": "rule",
                "interventions": [{"turn": 1, "set": {"inflation": 9}, "note": "war"}],
            }
        )
    )
    status, out, _ = llmsim_lab("run", "run.yaml", "--out", "res")
    assert status == 0
    assert "2008Q2" in out
    frame = pd.read_csv("res/turns.csv")
    assert frame["inflation"][1] == pytest.approx(9)
    assert frame["interventions"][1] == "turn 1: inflation = 9 (war)"


def test_the_configuration_written_beside_a_run_runs_again_to_the_same_rates(
    llmsim_lab: Run,
) -> None:
    llmsim_lab("run", SCENARIO, "--model", "rule", "--turns", "3", "--out", "first")
    status, out, err = llmsim_lab("run", "first/config.yaml", "--out", "second")
    assert (status, err) == (0, "")
    assert "no model was called" in out
    first, second = (pd.read_csv(f"{folder}/turns.csv") for folder in ("first", "second"))
    assert first["period"].tolist() == ["1979Q3", "1979Q4", "1980Q1", "1980Q2"]
    pd.testing.assert_frame_equal(first.drop(columns="seconds"), second.drop(columns="seconds"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", SCENARIO, "--set", "start_at=1850Q1"), "1850Q1"),
        (("run", SCENARIO, "--model", "llama3.2"), "'ollama:llama3.2'"),
        (("run", SCENARIO, "--model", "ollama", "--host", "127.0.0.1:9"), "no Ollama server"),
        (("run", "nowhere.yaml"), "cannot read the configuration nowhere.yaml"),
        (("model", "get", "gpt-9"), "gpt-9"),
        (("model", "rm", "gpt-9"), "gpt-9"),
    ],
)
def test_bad_input_ends_with_one_message_and_status_1(
    llmsim_lab: Run, arguments: tuple[str, ...], message: str
) -> None:
    status, _, err = llmsim_lab(*arguments)
    assert status == 1
    assert "error: " in err
    assert message in err
    assert "Traceback" not in err


def test_a_folder_that_cannot_be_written_to_is_named(llmsim_lab: Run) -> None:
    Path("file").write_text("in the way")
    status, _, err = llmsim_lab("run", SCENARIO, "--model", "rule", "--out", "file/out")
    assert status == 1
    assert "cannot write to the folder file/out" in err


def test_a_bad_key_in_a_configuration_is_named_with_its_line(llmsim_lab: Run) -> None:
    Path("bad.yaml").write_text("turns: 2\nengine:\n  max_moves: 1\n")
    status, _, err = llmsim_lab("run", "bad.yaml")
    assert status == 1
    assert "bad.yaml, line 3: engine.max_moves: unknown key; known here are max_move" in err


def test_a_number_out_of_range_is_named_in_the_error(llmsim_lab: Run) -> None:
    status, _, err = llmsim_lab("demo", "--turns", "-1")
    assert (status, "--turns" in err) == (2, True)


def test_the_version_is_said(llmsim_lab: Run) -> None:
    status, out, _ = llmsim_lab("--version")
    assert status == 0
    assert out.startswith("llmsim-lab 0.")


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [(reply, 0, "yes: Raise the interest rate"), ("I would rather not.", 1, "invalid_response")],
)
def test_the_doctor_asks_the_model_and_says_how_it_did(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch, answer: Any, status: int, said: str
) -> None:
    monkeypatch.setattr("llmsim_lab.cli._doctor.runtime_installed", lambda: False)
    with FakeOllama(models=["llama3.2", "other"], reply=answer) as server:
        ended, out, _ = llmsim_lab("doctor", "--host", server.host)
        host = server.host
    words = " ".join(out.split())
    assert (ended, said in words) == (status, True)
    assert "other:latest (not asked)" in words
    assert f"connect('auto') says: Using llama3.2:latest on Ollama 0.32.15 at {host}" in out


def test_what_stands_in_brackets_is_printed_as_it_is(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmsim_lab.cli._doctor.runtime_installed", lambda: False)
    model = replace(CATALOGUE[0], note="small [embedded]", licence="[bold]MIT")
    monkeypatch.setattr("llmsim_lab.cli._doctor.CATALOGUE", (model,))
    _, out, _ = llmsim_lab("doctor", "--host", "127.0.0.1:9")
    assert "pip install 'llmsim-lab[embedded]'" in " ".join(out.split())
    _, out, _ = llmsim_lab("model", "ls")
    assert "small [embedded]" in out
    assert "[bold]MIT" in out


def test_the_catalogue_is_listed_with_what_its_models_cannot_do(llmsim_lab: Run) -> None:
    status, out, _ = llmsim_lab("model", "ls")
    assert status == 0
    assert "trying the tool, not findings" in out
    assert "None of them is for findings" in out
    assert all(model.name in out for model in CATALOGUE)


def test_lint_names_what_is_wrong_and_how_to_fix_it(llmsim_lab: Run) -> None:
    Path("run.yaml").write_text("turns: 8\nnations: [{name: Aland, inflation_target: 0.02}]\n")
    status, out, err = llmsim_lab("lint", "run.yaml")
    assert (status, err) == (1, "")
    assert "L4 percent and fraction" in out
    assert "; rates are in percent here: write 2 if you mean 2%" in out
    assert "L11 horizon" in out
    assert "run.yaml: 2 findings" in out
    Path("run.yaml").write_text("turns: 20\n")
    assert llmsim_lab("lint", "run.yaml") == (0, "run.yaml: 0 findings\n", "")


@pytest.mark.parametrize("command", ["lint", "run"])
def test_a_study_in_the_place_of_a_run_is_said_to_be_one(llmsim_lab: Run, command: str) -> None:
    Path("plan.yaml").write_text("world: economic\nseeds: 2\n")
    status, _, err = llmsim_lab(command, "plan.yaml")
    assert (status, err.count("\n")) == (1, 1)
    assert "plan.yaml describes a study, and this takes a run's configuration" in err
    assert "llmsim-lab study plan.yaml run plays it" in err


def test_a_run_in_the_place_of_a_study_is_said_to_be_one(llmsim_lab: Run) -> None:
    Path("run.yaml").write_text("turns: 2\nnations: [Aland]\n")
    status, _, err = llmsim_lab("study", "run.yaml", "status")
    assert (status, err.count("\n")) == (1, 1)
    assert "run.yaml describes one run, and a study has a world" in err
    assert "llmsim-lab run run.yaml plays it" in err


def test_lint_says_of_another_worlds_file_what_it_is(llmsim_lab: Run) -> None:
    status, _, err = llmsim_lab("lint", str(data_path("scenarios/bank_run.yaml")))
    assert (status, err.count("\n")) == (1, 1)
    assert "describes a run of kind 'crisis', and this takes an economic run's" in err
