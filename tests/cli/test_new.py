"""``llmsim-lab new``: what it makes works as it is, in an empty folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from cli_kit import Run, fails, succeeds
from fake_ollama import FakeOllama

from llmsim_lab._util.files import data_path
from llmsim_lab.llm import Tape

TEMPLATES = sorted(path.stem for path in data_path("templates").glob("*.py"))

each = pytest.mark.parametrize("template", TEMPLATES)


@each
def test_a_new_folder_has_the_world_as_it_is_its_tape_and_a_notebook_of_two_cells(
    llmsim_lab: Run, template: str
) -> None:
    out = succeeds(llmsim_lab, "new", "some/mine", "--from", template)
    assert f"python {template}.py" in out
    mine = Path("some/mine")
    names = [f"{template}.{ending}" for ending in ("ipynb", "py", "tape")]
    assert sorted(path.name for path in mine.iterdir()) == names
    for name in names[1:]:
        assert (mine / name).read_bytes() == data_path(f"templates/{name}").read_bytes()
    notebook = nbformat.read(mine / names[0], as_version=4)
    nbformat.validate(notebook)
    assert [cell.cell_type for cell in notebook.cells] == ["code", "code"]


def test_nothing_that_is_there_is_written_over(llmsim_lab: Run) -> None:
    Path("mine").mkdir()
    err = fails(llmsim_lab, "new", "mine", "--from", "public_goods")
    assert "cannot make mine: " in err
    assert list(Path("mine").iterdir()) == []


@pytest.mark.parametrize(
    ("more", "message"),
    [((), "no template None"), (("--from", "chess"), "no template 'chess'")],
)
def test_the_templates_are_listed_where_none_is_named(
    llmsim_lab: Run, more: tuple[str, ...], message: str
) -> None:
    err = fails(llmsim_lab, "new", "mine", *more)
    assert message in err
    for template in TEMPLATES:
        assert f"--from {template} " in err
    assert "Public goods: what each player gives to a pot" in err
    assert not Path("mine").exists()


# --- what was made -------------------------------------------------------------------------------


@pytest.mark.process
def test_the_program_runs_on_its_own_and_prints_the_run(llmsim_lab: Run) -> None:
    llmsim_lab("new", "mine", "--from", "public_goods")
    done = subprocess.run(
        [sys.executable, "-W", "error", "public_goods.py"],
        cwd="mine",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 8


@each
def test_the_notebook_replays_the_tape_and_runs_on_whatever_model_there_is(
    llmsim_lab: Run, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    llmsim_lab("new", "mine", "--from", template)
    monkeypatch.chdir("mine")
    monkeypatch.syspath_prepend(".")
    monkeypatch.delitem(sys.modules, template, raising=False)
    names: dict[str, Any] = {}
    with FakeOllama() as server:
        monkeypatch.setenv("OLLAMA_HOST", server.host)
        for cell in nbformat.read(f"{template}.ipynb", as_version=4).cells:
            exec(cell.source, names)
        assert server.requests
    with Tape("my.tape", read_only=True) as tape:
        assert [run.turns for run in tape.runs()] == [3]
