"""``llmsim-lab doctor --install``: is this installation sound? One page, at most two minutes."""

from __future__ import annotations

import csv
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from llmsim_lab._util.files import kept_folder, resolved_path
from llmsim_lab._util.text import clip, counted, listed
from llmsim_lab.cli._output import say
from llmsim_lab.errors import LabError

_NAME = "llmsim-lab"
_MOST_S = 60
"""Seconds that a program may take that is started to see whether it can be."""
_EXTRAS = {
    "embedded": "a small model without a server",
    "notebooks": "JupyterLab and the tutorials",
    "room": "a class that plays from its own phones",
    "tools": "tools over MCP",
    "study": "tables for xarray, jobs for an executor",
    "dask": "studies on several machines",
    "parquet": "tables as Parquet",
}
"""What one of the extras is for; those that only serve development are left out."""

Result = Literal["ok", "note", "fault"]
_STYLES: dict[Result, str] = {
    "ok": "",
    "note": "yellow",
    "fault": "red",
}


@dataclass(frozen=True)
class Check:
    """One line of the page: what was looked at, whether it is sound, and what was found."""

    about: str
    result: Result
    text: str


def report_installation() -> bool:
    """Print a line for each check as it is done; return True if nothing is at fault.

    Raises:
        ConfigError: the current folder is gone, in which no program can be started.
    """
    resolved_path("folder", ".")
    checks: list[Check] = []
    # As each is done: a new kernel and JupyterLab take long, and nothing would show meanwhile.
    for check in _checks():
        checks.append(check)
        say(f"{check.result:<6}{check.about}: {check.text}", style=_STYLES[check.result])
    faults = [check.about for check in checks if check.result == "fault"]
    if faults:
        say(f"{counted(len(faults), 'fault')}: {listed(faults)}.", style="red")
        return False
    say(f"This installation is sound ({counted(len(checks), 'check')}).", style="bold")
    return True


def _checks() -> Iterator[Check]:
    yield _python()
    yield _files_of_the_package()
    yield from _packages()
    yield _guarded("folders", _folders)
    yield _guarded("a run and its replay", _run_and_replay)
    yield _guarded("a chart", _chart)
    yield _console()
    if find_spec("ipykernel") is not None:
        yield _guarded("a notebook's kernel", _kernel)
    if find_spec("jupyterlab") is not None:
        yield _program("JupyterLab", ["-m", "jupyterlab", "--version"])
    if find_spec("xllamacpp") is not None:
        yield _runtime_of_embedded_models()


def _guarded(
    about: str,
    check: Callable[[], Check],
) -> Check:
    """Do a check; what it raises is what it found."""
    try:
        return check()
    except (LabError, OSError, ImportError, RuntimeError) as error:
        return Check(about, "fault", f"{type(error).__name__}: {clip(str(error), 300)}")


def _python() -> Check:
    text = f"Python {platform.python_version()} on {platform.platform()}, {sys.executable}"
    result: Result = "ok"
    # Python's own way to tell: outside of an environment both are the same.
    if sys.prefix == sys.base_prefix:
        result = "note"
        text += "; not in a virtual environment, so other programs may change its packages"
    return Check("Python", result, text)


def _files_of_the_package() -> Check:
    """Compare what is installed with the list that came with it."""
    package = metadata.distribution(_NAME)
    name = f"{_NAME} {package.version}"
    # From Python 3.12 on, package.files leaves out the files that are missing.
    record = (package.read_text("RECORD") or "").splitlines()
    hashes = {row[0]: row[1] for row in csv.reader(record)}
    # A checkout that is installed as it stands has a list without its sources.
    if not any(Path(file).name == "__init__.py" for file in hashes):
        return Check(name, "ok", f"a checkout, {Path(__file__).parents[2]}")
    changed: list[str] = []
    for file, file_hash in hashes.items():
        # The list itself, and what Python compiles, have none.
        if not file_hash:
            continue
        path = Path(str(package.locate_file(file)))
        if not path.is_file() or f"sha256={_digest(path)}" != file_hash:
            changed.append(file)
    if changed:
        return Check(
            name, "fault", f"missing or changed since it was installed: {listed(changed, 3)}"
        )
    return Check(name, "ok", f"{len(hashes):,} files, all as they were installed")


def _digest(path: Path) -> str:
    """Return a file's SHA-256 as the lists of wheels write it."""
    import base64

    digest = sha256(path.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _packages() -> Iterator[Check]:
    """Check the packages that are required, and tell which extras are whole."""
    requirements = [Requirement(line) for line in metadata.requires(_NAME) or ()]
    core = [item for item in requirements if _is_wanted(item, "")]
    unmet = _faults_of(core)
    if unmet:
        yield Check("packages", "fault", f"{'; '.join(unmet)}; reinstall: pip install {_NAME}")
    else:
        yield Check("packages", "ok", f"all {len(core)} that it requires, in versions that fit")
    for extra, purpose in _EXTRAS.items():
        # An extra may name others of this package's: llmsim-lab[room] is no package of its own.
        wanted = [item for item in requirements if _is_wanted(item, extra)]
        parts = [item for item in wanted if item not in core and item.name != _NAME]
        faults = _faults_of(parts)
        if not faults:
            yield Check(f"extra {extra}", "ok", purpose)
        elif len(faults) == len(parts):
            # Nothing of it is there: nobody wanted it, which is no fault.
            yield Check(
                f"extra {extra}",
                "ok",
                f"not installed ({purpose}: pip install '{_NAME}[{extra}]')",
            )
        else:
            yield Check(f"extra {extra}", "note", f"{'; '.join(faults)} ({purpose})")


def _faults_of(requirements: Iterable[Requirement]) -> list[str]:
    """Return what is wrong with packages that are required."""
    faults = [_unmet(requirement) for requirement in requirements]
    return [fault for fault in faults if fault]


def _is_wanted(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _unmet(requirement: Requirement) -> str:
    """Return what is wrong with a package that is required; empty if nothing is."""
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is missing"
    # A release candidate that the user chose is no fault.
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} {version} is here, {requirement.specifier} is needed"
    return ""


def _folders() -> Check:
    """See that results, temporary files and weights can be written, and how long a path may be."""
    # Written to, and not only asked: permissions of network drives are seldom what they say.
    cache = kept_folder("models")
    for folder in (Path.cwd(), Path(tempfile.gettempdir()), cache):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    # Windows allows 260 characters if not told otherwise, and a study's folders lie deep.
    with tempfile.TemporaryDirectory() as temporary:
        deep = Path(temporary).joinpath(*["a folder of a study"] * 15)
        try:
            deep.mkdir(parents=True)
        except OSError:
            return Check(
                "folders",
                "note",
                "writable, but no path may have more than 260 characters; keep the folders of "
                f"studies near the root of a drive. Weights are kept in {cache}",
            )
    return Check("folders", "ok", f"writable; weights are kept in {cache}")


def _run_and_replay() -> Check:
    """Play a rule for eight quarters, replay its tape, and compare."""
    # Here, so that a broken installation is a line of the page and no traceback before it.
    from llmsim_lab.run import replay
    from llmsim_lab.simulation import Simulation
    from llmsim_lab.tape import verify

    with tempfile.TemporaryDirectory() as folder:
        # With a space, as in many users' folders.
        tape = Path(folder) / "a run.tape"
        run = Simulation(players={"*": "rule"}, tape=tape)
        run.run(8)
        run.close()
        # What most of the package rests on: the same state from the tape alone.
        again = replay(tape)
        findings = verify(tape)
        is_same = again.state == run.state
        again.close()
    if findings:
        words = "; ".join(map(str, findings))
        return Check("a run and its replay", "fault", f"the tape is not whole: {words}")
    if not is_same:
        return Check("a run and its replay", "fault", "the replay came to another state")
    return Check("a run and its replay", "ok", "8 quarters, the same twice, and the tape is whole")


def _chart() -> Check:
    """Draw a run's interest rate as a picture."""
    from llmsim_lab._util.drawing import figure_bytes
    from llmsim_lab.lab.figures import rate_figure
    from llmsim_lab.simulation import Simulation

    run = Simulation(start_at="1979Q3", players={"*": "rule"})
    run.run(4)
    picture = figure_bytes(
        rate_figure({"rule": run.to_frame()}),
        "png",
        dpi=60,
    )
    return Check("a chart", "ok", f"four quarters from 1979Q3 as a PNG of {len(picture):,} bytes")


def _console() -> Check:
    """See whether the terminal shows the signs that tables and messages have."""
    # Windows' own code pages lack a minus sign, which main() then prints as a question mark.
    encoding = sys.stdout.encoding or "ascii"
    signs = "\N{MINUS SIGN}\N{MULTIPLICATION SIGN}\N{LESS-THAN OR EQUAL TO}\N{HORIZONTAL ELLIPSIS}"
    missing = [sign for sign in signs if not _is_encodable(sign, encoding)]
    if missing:
        codes = ", ".join(f"U+{ord(sign):04X}" for sign in missing)
        return Check(
            "the terminal",
            "note",
            f"{encoding} has no sign for {codes}, so a ? is printed; set PYTHONUTF8=1",
        )
    return Check("the terminal", "ok", encoding)


def _is_encodable(sign: str, encoding: str) -> bool:
    try:
        sign.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _kernel() -> Check:
    """Run a cell in a new kernel: notebooks may be set up to start another Python."""
    from jupyter_client.manager import start_new_kernel

    about = "a notebook's kernel"
    # As -P for the other programs: files beside must not hide Python's and our own.
    safe = {**os.environ, "PYTHONSAFEPATH": "1"}
    manager, client = start_new_kernel(startup_timeout=_MOST_S, env=safe)
    try:
        reply = client.execute(
            "import llmsim_lab, sys",
            user_expressions={"python": "sys.executable"},
            reply=True,
            timeout=_MOST_S,
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    # What the cell raised is in the reply, and no error here.
    content = reply["content"]
    if content["status"] != "ok":
        return Check(about, "fault", f"{content.get('ename')}: {content.get('evalue')}")
    python = content["user_expressions"]["python"]["data"]["text/plain"].strip("'")
    if Path(python) != Path(sys.executable):
        return Check(about, "note", f"runs cells in {python}, which is another Python")
    return Check(about, "ok", "imports the package")


def _runtime_of_embedded_models() -> Check:
    """Load the runtime, in a process of its own: native code may end the process that loads it."""
    code = "import xllamacpp; print('loads')"
    return _program("the runtime of embedded models", ["-c", code])


def _program(about: str, arguments: list[str]) -> Check:
    try:
        program = subprocess.run(
            [sys.executable, "-P", *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_MOST_S,
            check=False,
            env={**os.environ, "PYTHONUTF8": "1"},
        )
    except subprocess.TimeoutExpired:
        # A program reads many files when it is started first, and a busy machine is no fault.
        slow = f"not seen: it did not start within {_MOST_S} s; try again when less is going on"
        return Check(about, "note", slow)
    except OSError as error:
        return Check(about, "fault", clip(str(error), 300))
    if program.returncode:
        # The last line of a traceback is the error itself.
        last_words = program.stderr.strip().splitlines()[-1:] or [f"status {program.returncode}"]
        return Check(about, "fault", clip(last_words[0], 300))
    return Check(about, "ok", clip(program.stdout, 60))
