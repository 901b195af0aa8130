"""``llmsim-lab lab``: a recorded run in a window, served to this machine alone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import httpx
import nbformat
import pytest
from cli_kit import Run
from fake_ollama import FakeOllama

from llmsim_lab._util.files import data_path
from llmsim_lab.cli import _lab
from llmsim_lab.cli._lab import prepared
from llmsim_lab.errors import ConfigError

TAPE = data_path("tapes/first_run.tape")


def test_a_notebook_with_the_window_is_written_and_served_on_loopback(tmp_path: Path) -> None:
    command = prepared(
        tmp_path, TAPE, 1, model="auto", imports=[Path("mine/pot.py")], browser=False
    )
    notebook = nbformat.read(tmp_path / "first_run.ipynb", as_version=4)
    nbformat.validate(notebook)
    [cell] = notebook.cells
    compile(cell.source, "cell", "exec")
    assert "import pot" in cell.source
    assert f"Lab({str(TAPE)!r}, run=1, llm_client=connect('auto'))" in cell.source
    assert any(part.endswith(".ip=127.0.0.1") for part in command)
    assert command[-1] == "--no-browser"


def test_without_a_server_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_lab, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=re.escape("pip install 'llmsim-lab[serve]'")):
        prepared(tmp_path, TAPE, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_not_there_is_said_before_anything_is_served(llmsim_lab: Run) -> None:
    status, _, err = llmsim_lab("lab", str(TAPE), "--run", "99")
    assert status == 1
    assert "99" in err


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cells that would be served, in place of a server."""
    cells: list[str] = []

    def serve(command: list[str], **_: object) -> None:
        [cell] = nbformat.read(command[3], as_version=4).cells
        cells.append(cell.source)

    monkeypatch.setattr(_lab, "subprocess", SimpleNamespace(run=serve))
    return cells


@pytest.mark.parametrize("model", ["nope", "rule"])
def test_a_model_that_is_not_understood_is_said_before_anything_is_served(
    llmsim_lab: Run, served: list[str], model: str
) -> None:
    status, _, err = llmsim_lab("lab", str(TAPE), "--model", model)
    assert status == 1
    assert f"model '{model}' is not understood" in err
    assert served == []


def test_a_model_that_answers_is_connected_to_in_the_page(
    llmsim_lab: Run, served: list[str]
) -> None:
    with FakeOllama() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OLLAMA_HOST", server.host)
        status, out, err = llmsim_lab("lab", str(TAPE), "--model", "ollama")
    assert (status, err) == (0, "")
    assert "Using llama3.2" in out
    assert "llm_client=connect('ollama'))" in served[0]


def test_a_run_by_rules_takes_the_word_for_no_model(llmsim_lab: Run, served: list[str]) -> None:
    scenario = str(data_path("scenarios/volcker.yaml"))
    llmsim_lab("run", scenario, "--model", "rule", "--turns", "1", "--tape", "a.tape")
    assert llmsim_lab("lab", "a.tape", "--model", "rule")[0] == 0
    assert "llm_client=None)" in served[0]


def test_help_names_no_model_that_the_window_cannot_take(llmsim_lab: Run) -> None:
    assert "rule" not in llmsim_lab("lab", "--help")[1]


@pytest.mark.process
def test_only_who_has_the_token_gets_the_page(tmp_path: Path) -> None:
    command = prepared(tmp_path, TAPE, 1, browser=False)
    with subprocess.Popen(
        [*command, "--allow-root"] if command[2] == "jupyterlab" else command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env={"HOME": str(tmp_path), "JUPYTER_PREFER_ENV_PATH": "1"},
    ) as server:
        try:
            assert server.stderr is not None
            found = None
            for line in server.stderr:
                if found := re.search(r"(http://127\.0\.0\.1:\d+/)\S*\?token=(\w+)", line):
                    break
            assert found is not None, "the server ended without an address"
            # JupyterLab refuses, and Voila sends to where the token is asked for.
            page = f"{found[1]}api/kernels"
            refused, allowed = httpx.get(page), httpx.get(page, params={"token": found[2]})
            assert refused.status_code == 403 or "/login" in refused.headers["location"]
            assert allowed.status_code == 200 or "/login" not in allowed.headers["location"]
        finally:
            server.terminate()
            server.communicate(timeout=30)
