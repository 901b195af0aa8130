"""The command line as its user meets it: what it prints, writes, and how it ends."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pandas as pd
import pytest
from cli_kit import Run, fails, reply, succeeds
from fake_ollama import FakeOllama, Fault

from llmsim_lab import data_path

SCENARIO = str(data_path("scenarios/volcker.yaml"))


def test_a_run_on_ollama_shows_what_was_proposed_and_why(llmsim_lab: Run) -> None:
    nations = ["United States", "Federal Republic of Germany"]
    llm = {"model": "auto", "num_ctx": 2048}
    Path("two.yaml").write_text(
        json.dumps({"start_at": "1979Q3", "turns": 2, "nations": nations, "llm": llm})
    )
    with FakeOllama(reply=reply) as server:
        status, out, err = llmsim_lab("run", "two.yaml", "--host", server.host, "--out", "here")
        host = server.host
    assert (status, err) == (0, "")
    assert f"Using llama3.2:latest on Ollama 0.32.15 at {host}" in out
    what = "action Raise the interest rate [bold]now[/bold], rate_change_bp 50; Prices rise."
    assert f"1 Federal Republic of Germany: {what}" in out
    assert "4 model calls: ok 100%" in out
    assert " of the prompts' tokens were read anew" in out
    frame = pd.read_csv("here/decisions.csv")
    assert frame["component"].tolist() == ["agent"] * 4
    assert frame["outcome_bp"].tolist() == [50] * 4
    bodies = [request.body for request in server.requests]
    assert len(bodies) == 4
    assert all(body["options"]["num_ctx"] == 2048 for body in bodies)
    assert all(body["truncate"] is False for body in bodies)


def test_the_configuration_written_beside_a_run_runs_again_to_the_same_rates(
    llmsim_lab: Run,
) -> None:
    out = succeeds(
        llmsim_lab, *("run", SCENARIO, "--model", "rule", "--turns", "4", "--out", "first")
    )
    assert "not reached" not in out
    assert out.endswith("Written: first/config.yaml, first/turns.csv, first/decisions.csv\n")
    out = succeeds(llmsim_lab, "run", "first/config.yaml", "--out", "second")
    assert "no model was called" in out
    first, second = (pd.read_csv(f"{folder}/turns.csv") for folder in ("first", "second"))
    assert first["period"].tolist() == ["1979Q3", "1979Q4", "1980Q1", "1980Q2", "1980Q3"]
    pd.testing.assert_frame_equal(first.drop(columns="seconds"), second.drop(columns="seconds"))


def test_a_run_whose_first_requests_fail_says_how_many_it_made(llmsim_lab: Run) -> None:
    nations = ["United States", "Federal Republic of Germany"]
    Path("two.yaml").write_text(json.dumps({"turns": 2, "nations": nations}))
    with FakeOllama(reply=reply) as server:
        server.fail_next(Fault.status(400, "no"), times=9)
        status, out, _ = llmsim_lab(
            "run", "two.yaml", "--model", "ollama:llama3.2", "--host", server.host
        )
    assert status == 1
    assert "\n2 requests in the turn that failed, none answered; " in out


def test_a_run_on_a_server_of_openais_kind_shows_no_key(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, url, keys = "sk-secret-0123456789", "http://127.0.0.1:1/v1", set()

    def answered(request: httpx.Request) -> httpx.Response:
        keys.add(request.headers["Authorization"])
        if request.method == "GET":
            return httpx.Response(200, json={"data": [{"id": "qwen"}]})
        schema = json.loads(request.content)["response_format"]["json_schema"]["schema"]
        delta = {"content": json.dumps(reply({"format": schema}))}
        event = {"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}
        return httpx.Response(200, text=f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n")

    monkeypatch.setattr(
        "llmsim_lab.llm._http.BoundedHTTP", lambda **_: httpx.MockTransport(answered)
    )
    monkeypatch.setenv("OPENAI_API_KEY", key)
    how = ("--model", "openai:qwen", "--base-url", url, "--turns", "1", "--tape", "t.tape")
    out = succeeds(llmsim_lab, "run", SCENARIO, *how)
    assert f"Using qwen on the server at {url}." in " ".join(out.split())
    assert "\nnot reached: the intervention planned for turn 4: shock.supply = 2 (oil)\n" in out
    assert keys == {f"Bearer {key}"}
    files = [path.read_bytes() for path in Path().rglob("*") if path.is_file()]
    assert files
    assert key not in out
    assert not any(key.encode() in data for data in files)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", SCENARIO, "--model", "llama3.2"), "'ollama:llama3.2'"),
        (("run", SCENARIO, "--model", "ollama", "--host", "127.0.0.1:9"), "no Ollama server"),
        (("run", "bad.yaml"), "bad.yaml, line 3: engine.max_moves: unknown key"),
        (("run", SCENARIO, "--model", "rule", "--out", "bad.yaml/out"), "write to the folder bad."),
        (("lint", "none.yaml"), "none.yaml"),
        (("lint", "study.yml"), "study.yml describes a study; a run is described by YAML without"),
        (
            ("run", "a.tape"),
            "a.tape is a tape, which is recorded; llmsim-lab run and lint take a r",
        ),
        (("lint", "a.tape.gz"), "a.tape.gz is a tape, which is recorded"),
        (("model", "get", "gpt-9"), "gpt-9"),
    ],
)
def test_bad_input_ends_with_one_message_and_status_1(
    llmsim_lab: Run, arguments: tuple[str, ...], message: str
) -> None:
    Path("bad.yaml").write_text("turns: 2\nengine:\n  max_moves: 1\n")
    Path("study.yml").write_text("world: economic\nvary: {seed: [1, 2]}\noutcome: loss\n")
    status, _, err = llmsim_lab(*arguments)
    assert (status, err.count("\n")) == (1, 1)
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


def test_a_file_that_fails_anywhere_is_said_and_where_that_was_is_logged(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def read_text(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "pot.py")

    monkeypatch.setattr(Path, "read_text", read_text)
    caplog.set_level("DEBUG")
    err = fails(llmsim_lab, "new", "talk", "--from", "lesson")
    assert err == "error: pot.py: Permission denied; name another file or folder\n"
    assert "in read_text" in caplog.text
    monkeypatch.setenv("LLMSIM_LOG", "loud")
    assert "LLMSIM_LOG='loud' is not a level" in fails(llmsim_lab, "new", "talk")


INTERRUPTED = """
import sys
class Terminal:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Terminal())
from llmsim_lab.cli import main
main()
"""


@pytest.mark.process
def test_ctrl_c_while_a_command_is_loaded_leaves_no_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"")


@pytest.mark.process
@pytest.mark.posix
def test_results_are_written_also_where_nobody_reads_what_is_printed(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", "from llmsim_lab.cli import main; main()", "run", SCENARIO]
    ended = subprocess.run(
        [*command, "--model", "rule", "--turns", "1", "--out", "here"],
        cwd=tmp_path,
        stdout=writing,
        check=False,
    )
    os.close(writing)
    assert ended.returncode == 1
    assert pd.read_csv(tmp_path / "here" / "turns.csv")["turn"].tolist() == [0, 1]


def test_lint_names_what_is_wrong_and_how_to_fix_it(llmsim_lab: Run) -> None:
    Path("run.yaml").write_text("turns: 8\nnations: [{name: Aland, inflation_target: 0.02}]\n")
    status, out, err = llmsim_lab("lint", "run.yaml")
    assert (status, err) == (1, "")
    assert "\npercent and fraction: " in out
    assert "; rates are in percent here: write 2 if you mean 2%" in out
    assert "run.yaml: 1 finding\n" in out
    Path("run.yaml").write_text("turns: 20\nmoves_bp: null\n")  # words, which a model judges
    status, out, err = llmsim_lab("lint", "run.yaml")
    assert (status, err) == (0, "")
    assert out.startswith("turn 5, EconomicDecision (tag 'agent'): 1 prompt of about ")
    assert "\nturn 5, StateUpdateDecision: 1 prompt of about " in out
    assert out.endswith("run.yaml: 0 findings\n")


@pytest.mark.parametrize(
    ("options", "is_warned"),
    [
        ((), False),
        (("--groups", "2"), False),  # they count with --written alone
        (("--groups", "2", "--written"), True),
        (("--groups-of-many", "2"), True),
        (("--groups", "5", "--groups-of-many", "5", "--written"), False),
    ],
)
def test_too_few_groups_beside_people_are_said_before_anything_is_asked(
    llmsim_lab: Run, options: tuple[str, ...], is_warned: bool
) -> None:
    status, out, _ = llmsim_lab("people", "--plan", "--model", "random", *options)
    assert status == 0
    assert ("groups a condition has no interval and no verdict" in out) == is_warned
