"""``llmsim-lab doctor --install``: what it says of a sound installation, and of one that is not.

``tests/structure/test_wheel.py`` runs it where the package is installed.
"""

from __future__ import annotations

import base64
import io
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jupyter_client.manager
import pandas as pd
import pytest
from cli_kit import Run, fails

from llmsim_lab import Tape, tape
from llmsim_lab import run as operations
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import figures
from llmsim_lab.tape import Finding

COMMAND = [sys.executable, "-c", "from llmsim_lab.cli import main; main()"]


def run(folder: Path, *arguments: str, **environment: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=os.environ | {"LLMSIM_MODELS": str(folder)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.process
def test_a_sound_installation_is_a_page_of_lines_without_a_fault(tmp_path: Path) -> None:
    status, page = run(tmp_path, "doctor", "--install", PYTHONIOENCODING="cp437", COLUMNS="0")
    assert status == 0, page
    assert page[-1].startswith("This installation is sound")
    assert len(page) < 25
    assert [line for line in page if line.startswith("fault")] == []
    [python] = [line for line in page if "Python 3." in line and sys.executable in line]
    assert ("not in a virtual environment" in python) == (sys.prefix == sys.base_prefix)
    for about in ("a run and its replay", "a chart", "a notebook's kernel", "JupyterLab"):
        assert any(line.startswith(f"ok    {about}: ") for line in page), page
    [terminal] = [line for line in page if "the terminal" in line]
    assert terminal.startswith("note  the terminal: cp437 has no sign for U+2212")
    assert terminal.endswith("set PYTHONUTF8=1")


def test_it_asks_no_model(llmsim_lab: Run) -> None:
    status, _, err = llmsim_lab("doctor", "embedded", "--install")
    assert (status, "leave the others out" in err) == (2, True)


@pytest.mark.process
def test_a_sign_that_the_terminal_lacks_is_a_question_mark(tmp_path: Path) -> None:
    status, page = run(tmp_path, "lab", "2 \N{MINUS SIGN} 1", "--no-open", PYTHONIOENCODING="cp437")
    assert (status, page[0].endswith("2 ? 1")) == (0, True), page


@pytest.mark.process
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is full")
def test_an_output_that_cannot_be_written_is_an_error_in_a_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


# --- the page, line by line, of installations that are made up ------------------------------------

REQUIRED = """\
Requires-Dist: aa>=1
Requires-Dist: bb<3
Requires-Dist: emb>=2; extra == "embedded"
Requires-Dist: nb1; extra == "notebooks"
Requires-Dist: nb2; extra == "notebooks"
Requires-Dist: aa>=1; extra == "tools"
Requires-Dist: tt; extra == "tools"
Requires-Dist: llmsim-lab[tools]; extra == "room"
Requires-Dist: rr>=2; extra == "room"
Requires-Dist: pq; extra == "parquet"
"""
FILES = ("llmsim_lab/__init__.py", *(f"llmsim_lab/data/{number}.csv" for number in range(4)))


class Installed:
    """A folder of packages that Python finds first: this one as a wheel, and some others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lines = ["llmsim_lab-9.9.dist-info/RECORD,,"]
        for name in FILES:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
            digest = base64.urlsafe_b64encode(sha256(name.encode()).digest()).decode().rstrip("=")
            lines.append(f"{name},sha256={digest},{len(name)}")
        self.add("llmsim_lab", "9.9", REQUIRED)
        self.record = folder / "llmsim_lab-9.9.dist-info" / "RECORD"
        self.record.write_text("\n".join(lines))

    def add(self, name: str, version: str, more: str = "") -> None:
        about = self.folder / f"{name}-{version}.dist-info"
        about.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        (about / "METADATA").write_text(text + more)


class Kernel:
    """Stands for a notebook's kernel, and keeps what it is asked."""

    def __init__(self, **content: Any) -> None:
        self.content = content
        self.asked: list[Any] = []

    def start(self, *, startup_timeout: float, env: dict[str, str]) -> tuple[Kernel, Kernel]:
        self.asked += [startup_timeout, env["PYTHONSAFEPATH"]]
        return self, self

    def execute(self, code: str, **settings: Any) -> dict[str, Any]:
        self.asked += [code, settings]
        return {"content": self.content}

    def stop_channels(self) -> None:
        self.asked.append("stopped")

    def shutdown_kernel(self, *, now: bool) -> None:
        self.asked.append(now)


def undrawable(_: object) -> Any:
    raise ConfigError("no fonts")


def a_kernel_in(python: str) -> Kernel:
    data = {"text/plain": repr(python)}
    return Kernel(status="ok", user_expressions={"python": {"data": data}})


@pytest.fixture
def page(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[int, list[str]]]:
    """The command's status and its lines, in a terminal of some encoding."""
    monkeypatch.setenv("LLMSIM_MODELS", str(tmp_path / "models"))
    platform.platform()  # starts a program, once
    for name in ("ipykernel", "jupyterlab", "xllamacpp"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)

    def shown(
        encoding: str,
        *,
        kernel: Kernel,
        program: Callable[..., Any],
    ) -> tuple[int, list[str]]:
        monkeypatch.setattr(jupyter_client.manager, "start_new_kernel", kernel.start)
        monkeypatch.setattr(subprocess, "run", program)
        terminal = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            status, _, err = llmsim_lab("doctor", "--install")
        assert "Traceback" not in err
        terminal.flush()
        return status, terminal.buffer.getvalue().decode(encoding).splitlines()  # type: ignore[attr-defined]

    return shown


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Installed:
    made = Installed(tmp_path / "site")
    monkeypatch.syspath_prepend(str(made.folder))
    return made


@pytest.mark.posix
@pytest.mark.parametrize("command", [("doctor", "--install"), ("grade", ".", "--out", "/nowhere")])
def test_a_current_folder_that_is_gone_is_said_before_anything_is_started(
    llmsim_lab: Run, command: tuple[str, ...]
) -> None:
    Path("gone").mkdir()
    os.chdir("gone")
    Path("../gone").rmdir()
    assert "the current folder is gone; go to another one" in fails(llmsim_lab, *command)


def test_every_line_of_a_sound_installation(
    page: Any, installed: Installed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, version in {"aa": "1.0", "bb": "2.9rc1", "emb": "2", "nb1": "1", "tt": "1"}.items():
        installed.add(name, version)
    monkeypatch.setattr(sys, "prefix", "/an/environment")
    started: list[Any] = []
    drawn: list[pd.DataFrame] = []
    draw = figures.rate_figure

    def program(command: list[str], **settings: Any) -> Any:
        started.append((command, settings.pop("env")["PYTHONUTF8"], settings))
        return subprocess.CompletedProcess(command, 0, stdout=f"{'4' * 70}\n", stderr="noise\n")

    def keep(runs: dict[str, pd.DataFrame]) -> Any:
        drawn.extend(runs.values())
        return draw(runs)

    monkeypatch.setattr(figures, "rate_figure", keep)
    kernel = a_kernel_in(sys.executable)
    status, lines = page("utf-8", kernel=kernel, program=program)
    assert status == 0, lines
    python, *rest = lines
    assert python.startswith("ok    Python: Python 3.")
    assert python.endswith(f", {sys.executable}")
    [chart] = [line for line in rest if "a chart: " in line]
    assert chart.startswith("ok    a chart: four quarters from 1979Q3 as a PNG of ")
    assert drawn[0]["period"].tolist() == ["1979Q3", "1979Q4", "1980Q1", "1980Q2", "1980Q3"]
    rest.remove(chart)
    assert rest == [
        "ok    llmsim-lab 9.9: 6 files, all as they were installed",
        "ok    packages: all 2 that it requires, in versions that fit",
        "ok    extra embedded: a small model without a server",
        "note  extra notebooks: nb2 is missing (JupyterLab and the tutorials)",
        "ok    extra room: not installed (a class that plays from its own phones: "
        "pip install 'llmsim-lab[room]')",
        "ok    extra tools: tools over MCP",
        "ok    extra study: tables for xarray, jobs for an executor",
        "ok    extra dask: studies on several machines",
        "ok    extra parquet: not installed (tables as Parquet: pip install 'llmsim-lab[parquet]')",
        f"ok    folders: writable; weights are kept in {tmp_path / 'models'}",
        "ok    a run and its replay: 8 quarters, the same twice, and the tape is whole",
        "ok    the terminal: utf-8",
        "ok    a notebook's kernel: imports the package",
        f"ok    JupyterLab: {'4' * 59}…",
        f"ok    the runtime of embedded models: {'4' * 59}…",
        "This installation is sound (17 checks).",
    ]
    assert [command[1:] for command, _, _ in started] == [
        ["-P", "-m", "jupyterlab", "--version"],
        ["-P", "-c", "import xllamacpp; print('loads')"],
    ]
    expected = {"encoding": "utf-8", "errors": "replace", "timeout": 60, "check": False}
    assert started[0][1:] == ("1", expected | {"capture_output": True})
    assert kernel.asked == [
        *(60, "1", "import llmsim_lab, sys"),
        {"user_expressions": {"python": "sys.executable"}, "reply": True, "timeout": 60},
        *("stopped", True),
    ]


def test_every_line_of_one_with_faults(
    page: Any, installed: Installed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed.add("bb", "3.1")
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    for name in FILES[1:]:
        (installed.folder / name).write_text("edited")
    (installed.folder / FILES[1]).unlink()
    (tmp_path / "models").write_text("a file")
    turns: list[int] = []

    def check(file: Path) -> list[Finding]:
        turns.append(Tape(file, read_only=True).run().turns)
        return [Finding(what="a line was changed", run=1)]

    def program(command: list[str], **_: object) -> Any:
        if "-m" in command:
            raise OSError("no memory")
        return subprocess.CompletedProcess(command, 1, stdout="", stderr="Trace\nImportError: no\n")

    monkeypatch.setattr(tape, "verify", check)
    monkeypatch.setattr(figures, "rate_figure", undrawable)
    kernel = Kernel(status="error", ename="NameError", evalue="no llmsim_lab")
    status, lines = page("ascii", kernel=kernel, program=program)
    assert (status, turns, kernel.asked[-1]) == (1, [8], True)
    python, *rest = lines
    assert python.startswith("note  Python: Python 3.")
    assert python.endswith(
        "; not in a virtual environment, so other programs may change its packages"
    )
    changed = ", ".join(FILES[1:4])
    assert rest[:2] == [
        f"fault llmsim-lab 9.9: missing or changed since it was installed: {changed} and 1 more",
        "fault packages: aa is missing; bb 3.1 is here, <3 is needed; "
        "reinstall: pip install llmsim-lab",
    ]
    assert [line for line in rest[2:] if not line.startswith("ok    extra")] == [
        f"fault folders: FileExistsError: [Errno 17] File exists: '{tmp_path / 'models'}'",
        "fault a run and its replay: the tape is not whole: run 1: a line was changed",
        "fault a chart: ConfigError: no fonts",
        "note  the terminal: ascii has no sign for U+2212, U+00D7, U+2264, U+2026, so a ? is "
        "printed; set PYTHONUTF8=1",
        "fault a notebook's kernel: NameError: no llmsim_lab",
        "fault JupyterLab: no memory",
        "fault the runtime of embedded models: ImportError: no",
        "8 faults: llmsim-lab 9.9, packages, folders, a run and its replay, a chart, a notebook's "
        "kernel, JupyterLab, the runtime of embedded models.",
    ]


def test_what_is_no_fault_of_an_installation_is_a_note(
    page: Any, installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.add("aa", "1.0")
    installed.add("bb", "2.0")
    installed.record.write_text("llmsim_lab-9.9.dist-info/RECORD,,\n")  # as of a checkout
    make = Path.mkdir
    lengths: list[int] = []

    def short(path: Path, **settings: Any) -> None:
        lengths.append(len(str(path)))
        if lengths[-1] > 260:
            raise OSError("File name too long")
        make(path, **settings)

    def program(command: list[str], **_: object) -> Any:
        raise subprocess.TimeoutExpired(command, 60)

    def other_state(_: Path) -> Any:
        return SimpleNamespace(state=None, close=lambda: None)

    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    monkeypatch.setattr(Path, "mkdir", short)
    monkeypatch.setattr(operations, "replay", other_state)
    monkeypatch.setattr(figures, "rate_figure", undrawable)
    status, lines = page("cp437", kernel=a_kernel_in("/usr/bin/python"), program=program)
    assert status == 1
    assert lines[1].startswith("ok    llmsim-lab 9.9: a checkout, ")
    assert 260 < max(lengths) < 500
    [folders] = [line for line in lines if "folders: " in line]
    assert folders.startswith("note  folders: writable, but no path may have more than 260 charac")
    assert "fault a run and its replay: the replay came to another state" in lines
    assert lines[-4:] == [
        "note  the terminal: cp437 has no sign for U+2212, U+00D7, U+2026, so a ? is printed; set "
        "PYTHONUTF8=1",
        "note  a notebook's kernel: runs cells in /usr/bin/python, which is another Python",
        "note  JupyterLab: not seen: it did not start within 60 s; try again when less is going on",
        "2 faults: a run and its replay, a chart.",
    ]
