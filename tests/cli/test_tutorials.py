"""``llmsim-lab lab``: the tutorials, copied and opened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import Run, fails, succeeds

FIRST, SECOND = "01_first_run.ipynb", "02_replay_and_fork.ipynb"
SHIPPED = Path(__file__).parents[2] / "notebooks"


def test_the_tutorials_are_copied_and_what_was_edited_is_kept(llmsim_lab: Run) -> None:
    out = succeeds(llmsim_lab, "lab", "my pages", "--no-open")
    assert f"12 tutorials copied to {Path('my pages').resolve()}" in out
    names = sorted(path.name for path in Path("my pages").iterdir())
    assert names == sorted(path.name for path in SHIPPED.glob("*.ipynb"))

    Path("my pages", FIRST).write_text("mine")
    Path("my pages", SECOND).unlink()
    out = succeeds(llmsim_lab, "lab", "my pages", "--no-open")
    assert "1 tutorial copied" in out
    assert f"Kept as you left them: {FIRST}. To get one anew, rename yours" in out
    assert Path("my pages", FIRST).read_text() == "mine"
    assert Path("my pages", SECOND).read_bytes() == (SHIPPED / SECOND).read_bytes()


def test_a_file_where_the_folder_should_be_is_left_as_it_is(llmsim_lab: Run) -> None:
    Path("notes").write_text("mine")
    assert "notes is a file; name a folder" in fails(llmsim_lab, "lab", "notes")
    assert Path("notes").read_text() == "mine"


def test_without_jupyterlab_the_way_to_get_it_is_named(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jupyterlab", None)
    err = fails(llmsim_lab, "lab")
    assert "pip install 'llmsim-lab[lab]'" in err
    assert Path("llmsim-tutorials", FIRST).exists()


STANDS_FOR_JUPYTERLAB = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.environ["JUPYTER_CONFIG_PATH"]]))
sys.exit(3)
"""


@pytest.mark.process
def test_jupyterlab_opens_the_first_page_without_a_question_about_its_news(tmp_path: Path) -> None:
    # Not in the current folder, of which nothing is imported.
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "jupyterlab.py").write_text(STANDS_FOR_JUPYTERLAB)
    paths = [str(tmp_path / "packages"), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {"JUPYTER_CONFIG_PATH": "of the user", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", "from llmsim_lab.cli import main; main()", "lab", "pages"],
        cwd=tmp_path,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert 'jupyter lab --allow-root "pages"' in done.stderr
    arguments, folders = json.loads(done.stdout.splitlines()[-1])
    assert arguments == [str(Path("pages", FIRST))]
    ours, theirs = folders.split(os.pathsep)
    assert theirs == "of the user"
    [file] = Path(ours).rglob("*.json")
    assert json.loads(file.read_text())["@jupyterlab/apputils-extension:notification"] == {
        "fetchNews": "false",
        "checkForUpdates": False,
    }


def test_a_folder_or_a_dangling_link_in_a_tutorials_place_is_kept(llmsim_lab: Run) -> None:
    Path("pages", FIRST).mkdir(parents=True)
    Path("pages", SECOND).symlink_to("nowhere")
    out = succeeds(llmsim_lab, "lab", "pages", "--no-open")
    assert f"Kept as you left them: {FIRST}, {SECOND}" in out
