"""The git revision in a manifest: read without running anything that the folder names."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import make_config

from llmsim_lab.llm import Tape
from llmsim_lab.simulation import Simulation

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *words: str, check: bool = True) -> str:
    own = ("-c", "user.name=A", "-c", "user.email=a@invalid", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", "-C", str(folder), *own, *words], capture_output=True, text=True, check=check
    )
    return done.stdout.strip()


def make_repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "notes.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def recorded(folder: Path, tape: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """The revision that a run begun in a folder has in its manifest."""
    monkeypatch.chdir(folder)
    simulation = Simulation(make_config(), tape=tape)
    assert isinstance(simulation.tape, Tape)
    found: str | None = simulation.tape.run().manifest["git"]
    simulation.close()
    return found


def test_a_revision_has_a_plus_where_a_tracked_file_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_repository(tmp_path / "mine")
    head = git(folder, "rev-parse", "HEAD")
    (folder / "untracked.txt").write_text("new")
    (folder / "notes.txt").touch()
    assert recorded(folder, tmp_path / "a.tape", monkeypatch) == head
    (folder / "deeper").mkdir()
    (folder / "notes.txt").write_text("two\n")
    assert recorded(folder / "deeper", tmp_path / "b.tape", monkeypatch) == f"{head}+"
    git(folder, "add", ".")
    assert recorded(folder, tmp_path / "c.tape", monkeypatch) == f"{head}+"
    tree = tmp_path / "tree"
    git(folder, "worktree", "add", "-q", str(tree))
    assert recorded(tree, tmp_path / "d.tape", monkeypatch) == head


def test_a_repository_of_longer_hashes_is_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    git(folder, "init", "-q", "--object-format=sha256")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    head = git(folder, "rev-parse", "HEAD")
    assert len(head) == 64
    assert recorded(folder, tmp_path / "a.tape", monkeypatch) == head


# Each sets a trap that runs a command, by its words, when git looks at the folder.


def fsmonitor(folder: Path, command: str) -> None:
    git(folder, "config", "core.fsmonitor", command)


def included(folder: Path, command: str) -> None:
    (folder / "more.config").write_text(f"[core]\n\tfsmonitor = {command}\n")
    git(folder, "config", "include.path", "../more.config")


def clean_filter(folder: Path, command: str) -> None:
    git(folder, "config", "filter.trap.clean", command)
    (folder / ".gitattributes").write_text("* filter=trap\n")


def filter_process(folder: Path, command: str) -> None:
    git(folder, "config", "filter.trap.process", command)
    (folder / ".gitattributes").write_text("* filter=trap\n")


def hook(folder: Path, command: str) -> None:
    script = folder / ".git" / "hooks" / "post-index-change"
    script.write_text(f"#!/bin/sh\n{command}\n")
    script.chmod(0o755)


def hooks_elsewhere(folder: Path, command: str) -> None:
    (folder / "own").mkdir()
    script = folder / "own" / "post-index-change"
    script.write_text(f"#!/bin/sh\n{command}\n")
    script.chmod(0o755)
    git(folder, "config", "core.hooksPath", str(folder / "own"))


def submodule(folder: Path, command: str) -> None:
    inner = make_repository(folder.parent / "inner")
    git(folder, "submodule", "--quiet", "add", str(inner), "part")
    git(folder, "commit", "-q", "-m", "with a part")
    git(folder / "part", "config", "core.fsmonitor", command)


def lazy_fetch(folder: Path, command: str) -> None:
    git(folder, "config", "core.repositoryFormatVersion", "1")
    git(folder, "config", "extensions.partialClone", "origin")
    git(folder, "config", "remote.origin.url", str(folder.parent / "nowhere"))
    git(folder, "config", "remote.origin.promisor", "true")
    git(folder, "config", "remote.origin.uploadpack", command)
    tree = git(folder, "rev-parse", "HEAD^{tree}")
    (folder / ".git" / "objects" / tree[:2] / tree[2:]).unlink()


def alias_pager_diff(folder: Path, command: str) -> None:
    for name in ("alias.status", "alias.rev-parse", "alias.diff"):
        git(folder, "config", name, f"!{command}")
    for name in ("core.pager", "pager.status", "diff.external", "core.sshCommand", "core.editor"):
        git(folder, "config", name, command)
    git(folder, "config", "diff.trap.textconv", command)
    (folder / ".gitattributes").write_text("* diff=trap\n")


HARMLESS = (alias_pager_diff,)
"""What git itself does not run for a status; here to see that nothing else of ours does."""


@pytest.mark.skipif(sys.platform == "win32", reason="the traps are shell commands")
@pytest.mark.parametrize(
    "trap",
    [
        fsmonitor,
        included,
        clean_filter,
        filter_process,
        hook,
        hooks_elsewhere,
        submodule,
        lazy_fetch,
        *HARMLESS,
    ],
)
def test_nothing_that_a_folder_names_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: Callable[[Path, str], None]
) -> None:
    folder = make_repository(tmp_path / "theirs")
    sprung = tmp_path / "sprung"
    trap(folder, f"touch '{sprung}'")
    sprung.unlink(missing_ok=True)
    head = git(folder, "rev-parse", "HEAD")
    (folder / "notes.txt").write_text("two\n")
    assert recorded(folder, tmp_path / "a.tape", monkeypatch) == f"{head}+"
    assert not sprung.exists()
    (folder / "notes.txt").write_text("one\n")
    git(folder, "status", check=False)
    assert sprung.exists() != (trap in HARMLESS)  # the trap is one
