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

from llmsim_lab import data_path
from llmsim_lab.llm import Tape

TEMPLATES = sorted(path.stem for path in data_path("templates").glob("*.py"))


def test_nothing_that_is_there_is_written_over(llmsim_lab: Run) -> None:
    Path("mine").mkdir()
    err = fails(llmsim_lab, "new", "mine", "--from", "public_goods")
    assert "cannot make mine: " in err
    assert list(Path("mine").iterdir()) == []


@pytest.mark.parametrize(
    ("more", "message"), [((), "choose a template"), (("--from", "chess"), "no template 'chess'")]
)
def test_the_templates_are_listed_where_none_is_named(
    llmsim_lab: Run, more: tuple[str, ...], message: str
) -> None:
    err = fails(llmsim_lab, "new", "mine", *more)
    assert message in err
    for template in TEMPLATES:
        assert f"--from {template}\n" in err
    assert not Path("mine").exists()


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_folder_has_world_tape_and_a_notebook_that_runs_on_whatever_model_there_is(
    llmsim_lab: Run, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"python {template}.py" in succeeds(llmsim_lab, "new", "some/mine", "--from", template)
    monkeypatch.chdir("some/mine")
    files = [f"{template}.ipynb", f"{template}.py"]
    if data_path(f"templates/{template}.py").with_suffix(".tape").exists():
        files.append(f"{template}.tape")
    assert sorted(path.name for path in Path().iterdir()) == files
    for name in files[1:]:
        assert Path(name).read_bytes() == data_path(f"templates/{name}").read_bytes()
    notebook = nbformat.read(files[0], as_version=4)
    nbformat.validate(notebook)
    monkeypatch.syspath_prepend(".")
    # Set first, so that this copy is forgotten afterwards: other tests import the template.
    monkeypatch.setitem(sys.modules, template, None)
    monkeypatch.delitem(sys.modules, template)
    names: dict[str, Any] = {}
    with FakeOllama() as server:
        monkeypatch.setenv("OLLAMA_HOST", server.host)
        for cell in notebook.cells:
            exec(cell.source, names)
        assert server.requests
    with Tape("my.tape", read_only=True) as tape:
        assert [run.turns for run in tape.runs()] == [3]


@pytest.mark.process
def test_the_program_runs_on_its_own_and_prints_the_run(llmsim_lab: Run) -> None:
    llmsim_lab("new", "mine", "--from", "public_goods")
    said = subprocess.check_output([sys.executable, "public_goods.py"], cwd="mine", text=True)
    assert "prediction" in said
