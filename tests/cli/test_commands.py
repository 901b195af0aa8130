"""The command line as its user meets it: what it prints, writes, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cli_kit import Run, reply
from fake_ollama import FakeOllama, Fault

from llmsim_lab._util.config import yaml_text
from llmsim_lab._util.files import data_path
from llmsim_lab.llm._embedded.weights import CATALOGUE


@pytest.mark.usefixtures("drawn")
def test_the_demo_with_a_rule_needs_no_model_and_writes_chart_and_tables(llmsim_lab: Run) -> None:
    status, out, _ = llmsim_lab("demo", "--model", "rule", "--turns", "3")
    assert status == 0
    assert "Playing 3 quarters from 2000Q2: United States" in out
    assert "no model was called" in out
    assert "With inflation at 3.24% and" in out
    rows = [line.split() for line in out.splitlines() if line.startswith("200")]
    # The move, and then why.
    assert [row[5:7] for row in rows[1:]] == [["+75", "With"], ["+75", "With"], ["0", "With"]]
    assert "make lab" in out
    frame = pd.read_csv("out/demo/turns.csv")
    assert frame["period"].tolist() == ["2000Q2", "2000Q3", "2000Q4", "2001Q1"]
    assert Path("out/demo/rates.png").read_bytes().startswith(b"\x89PNG")


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
    assert "Raise the interest rate [bold]now[/bold]: Prices rise." in out
    # A long name goes on in the next line, and nothing of it is cut.
    assert "Federal Republic" in out
    assert "of Germany" in out
    assert "+50" in out
    assert "4 model calls: ok 100%" in out
    assert "tokens" in out
    frame = pd.read_csv("here/decisions.csv")
    assert frame["component"].tolist() == ["agent"] * 4
    assert frame["outcome_bp"].tolist() == [50] * 4
    bodies = [request.body for request in server.requests]
    assert len(bodies) == 4
    assert all(body["options"]["num_ctx"] == 2048 for body in bodies)
    assert all(body["truncate"] is False for body in bodies)


def test_a_demo_whose_model_fails_keeps_the_turns_before_and_ends_with_status_1(
    llmsim_lab: Run,
) -> None:
    letters = FakeOllama.tokens([dict.fromkeys("ABCDE", -1.7)])

    def then_fail(_body: dict[str, Any]) -> Any:
        if len(server.requests) >= 5:
            server.fail_next(Fault.status(400, "no more"), times=9)
        return letters

    with FakeOllama(reply=then_fail) as server:
        status, out, err = llmsim_lab("demo", "--live", "--turns", "4", "--host", server.host)
    assert status == 1
    assert "Playing 4 quarters from 2000Q2: United States" in out
    assert "Written: " in out
    assert "The run ended early: 1 of 4 turns were played and written." in err
    assert "client_error" in err
    assert len(pd.read_csv("out/demo/turns.csv")) == 2


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
    llmsim_lab("demo", "--model", "rule", "--turns", "3", "--out", "first")
    status, _, err = llmsim_lab("run", "first/config.yaml", "--out", "second")
    assert (status, err) == (0, "")
    first, second = (pd.read_csv(f"{folder}/turns.csv") for folder in ("first", "second"))
    pd.testing.assert_frame_equal(first.drop(columns="seconds"), second.drop(columns="seconds"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("demo", "--start", "1850Q1", "--model", "rule"), "1850Q1"),
        (("demo", "--live", "--model", "llama3.2"), "'ollama:llama3.2'"),
        (("demo", "--live", "--model", "ollama", "--host", "127.0.0.1:9"), "no Ollama server"),
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
    status, _, err = llmsim_lab("demo", "--model", "rule", "--out", "file/out")
    assert status == 1
    assert "cannot write to the folder file/out" in err


def test_a_bad_key_in_a_configuration_is_named_with_its_line(llmsim_lab: Run) -> None:
    Path("bad.yaml").write_text("turns: 2\nengine:\n  max_moves: 1\n")
    status, _, err = llmsim_lab("run", "bad.yaml")
    assert status == 1
    assert "bad.yaml, line 3: engine.max_moves: unknown key; known here are max_move" in err


@pytest.mark.parametrize("arguments", [("demo", "--turns", "-1"), ("demo", "--seed", "-1")])
def test_numbers_out_of_range_are_named_in_the_error(
    llmsim_lab: Run, arguments: tuple[str, ...]
) -> None:
    status, _, err = llmsim_lab(*arguments)
    assert status == 2
    assert arguments[1] in err


def test_the_version_is_said(llmsim_lab: Run) -> None:
    status, out, _ = llmsim_lab("--version")
    assert status == 0
    assert out.startswith("llmsim-lab 0.")


def test_the_doctor_asks_the_model_and_says_how_it_did(llmsim_lab: Run) -> None:
    with FakeOllama(models=["llama3.2", "other"], reply=reply) as server:
        status, out, _ = llmsim_lab("doctor", "--host", server.host, "--model", "ollama:llama3.2")
        host = server.host
    assert status == 0
    assert "yes: Raise the interest rate" in out
    assert "tokens/s" in out
    assert f"connect('auto') says: Using llama3.2:latest on Ollama 0.32.15 at {host}" in out


def test_the_doctor_says_what_is_wrong_and_ends_with_status_1(llmsim_lab: Run) -> None:
    with FakeOllama(reply="I would rather not.") as server:
        status, out, _ = llmsim_lab("doctor", "--host", server.host, "--model", "ollama:llama3.2")
    assert status == 1
    assert "invalid_response" in out


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


def test_the_shipped_scenario_is_played_by_rules_without_a_model(llmsim_lab: Run) -> None:
    status, out, err = llmsim_lab(
        "run", str(data_path("scenarios/volcker.yaml")), "--model", "rule", "--turns", "2"
    )
    assert (status, err) == (0, "")
    assert "no model was called" in out
    assert pd.read_csv("out/run/turns.csv")["period"].tolist() == ["1979Q3", "1979Q4", "1980Q1"]


def test_the_catalogue_is_listed_with_what_its_models_cannot_do(llmsim_lab: Run) -> None:
    status, out, _ = llmsim_lab("model", "ls")
    assert status == 0
    assert "trying the tool, not findings" in out
    assert "qwen2.5-coder-1.5b fails the economic gate" in out
    assert "a rise in 96 of 96 situations, of which 48 call for one" in out
    assert "'ollama pull llama3.1:8b', then --model ollama:llama3.1:8b" in out
    assert "qwen2.5-coder-1.5b" in out
    assert "smollm2-135m" in out


def test_lint_names_what_is_wrong_and_how_to_fix_it(llmsim_lab: Run) -> None:
    Path("run.yaml").write_text("turns: 8\nnations: [{name: Aland, inflation_target: 0.02}]\n")
    status, out, err = llmsim_lab("lint", "run.yaml")
    assert (status, err) == (1, "")
    assert "L4 percent and fraction" in out
    assert "-> rates are in percent here: write 2 if you mean 2%" in out
    assert "L11 horizon" in out
    assert "run.yaml: 2 findings" in out
    Path("run.yaml").write_text("turns: 20\n")
    assert llmsim_lab("lint", "run.yaml") == (0, "run.yaml: no findings\n", "")


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
