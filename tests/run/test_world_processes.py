"""A world of one's own in processes that are killed, and in others that are handed its class."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest
from nbconvert.preprocessors import ExecutePreprocessor

pytestmark = pytest.mark.process

WORLDS = Path(__file__).resolve().parents[1] / "worlds.py"

SLOW = """
import os, time
from llmsim_lab import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.types import ChatRequest

def answer(request: ChatRequest) -> dict:
    with open("asked.txt", "a") as file:
        file.write(f"{request.site.turn} {request.site.agent}\\n")
    if os.environ.get("DIE_AT") == f"{request.site.turn} {request.site.agent}":
        os.kill(os.getpid(), 9)
    return {"reasoning": "r", "amount": 1, "confidence": 0.5}

client = LLMClient(LLMConfig(model="s", max_concurrency=1), ScriptedBackend(answer))
"""


def script(
    folder: Path, name: str, text: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    (folder / name).write_text(SLOW + textwrap.dedent(text))
    return subprocess.run(
        [sys.executable, name],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pot.py").write_text(WORLDS.read_text())
    return tmp_path


def test_a_killed_run_is_resumed_and_nothing_is_asked_twice(folder: Path) -> None:
    play = "from pot import PublicGoods\nPublicGoods(llm_client=client, tape='x.tape').run(3)\n"
    killed = script(folder, "play.py", play, DIE_AT="2 Cy")
    assert killed.returncode == -signal.SIGKILL
    again = """
        from pot import PublicGoods
        run = PublicGoods.resume("x.tape", llm_client=client)
        run.run(3 - run.turn_number)
        print(run.turn_number, len(run.calls), run.state == PublicGoods.replay("x.tape").state)
    """
    done = script(folder, "again.py", again)
    assert done.stdout.split() == ["3", "12", "True"], done.stderr
    asked = (folder / "asked.txt").read_text().splitlines()
    assert [line for line in sorted(set(asked)) if asked.count(line) > 1] == ["2 Cy"]
    assert len(asked) == 13  # the one that was under way when it was killed is asked again


def test_a_class_from_a_cell_is_recorded_defined_again_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    defined = WORLDS.read_text()
    record = """
        run = PublicGoods(players={"*": "random"}, tape="pot.tape")
        frame = run.run(2)
        run.close()
    """
    same = """
        from llmsim_lab.run import replay
        again = replay("pot.tape")
        print(again.to_frame().equals(frame), PublicGoods.replay("pot.tape").kind)
    """
    sources = (defined, record, same, defined, same)
    cells = [nbformat.v4.new_code_cell(textwrap.dedent(source)) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    folder = {"metadata": {"path": str(tmp_path)}}
    ExecutePreprocessor(kernel_name="python3").preprocess(notebook, folder)
    said = [cell.outputs for cell in notebook.cells]
    for place in (2, 4):
        assert said[place][0]["text"] == "True notebook:PublicGoods\n"
