"""A model's file while it is being fetched: the first part of its bytes, whoever brought them.

Every source gives the same bytes, so what one has begun another can go on with. What is complete
is moved into place in one step, if its hash is right; if not, nothing of it is kept.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from llmsim_lab.errors import ModelFileError
from llmsim_lab.llm.embedded.catalogue import CatalogueModel
from llmsim_lab.llm.embedded.store import free_space_bytes, note_verified

__all__ = ["PartialFile", "ProgressCallback"]

ProgressCallback = Callable[[int, int | None], None]
"""Called with the bytes that are here, and the bytes that there will be, where known."""

_CHUNK_BYTES = 1 << 20
_SPARE_BYTES = 64 << 20


class PartialFile:
    """The bytes of a model that are here so far; a context manager.

    Args:
        model: whose bytes.
        folder: where the file is to be.
        progress: is told of every piece that arrives.
    """

    def __init__(
        self, model: CatalogueModel, folder: Path, *, progress: ProgressCallback | None = None
    ) -> None:
        self.model = model
        self.target = folder / model.file_name
        self.path = folder / f"{model.file_name}.part"
        self.size = 0
        self._progress = progress
        self._hash = hashlib.sha256()

    def __enter__(self) -> Self:
        self._file = self._open()
        return self

    def reopen(self) -> None:
        """Look again at what is here: another source may have had to discard it."""
        self._file.close()
        self._file = self._open()

    def _open(self) -> BinaryIO:
        file = self.path.open("a+b")
        self._hash, self.size = hashlib.sha256(), 0
        file.seek(0)
        while chunk := file.read(_CHUNK_BYTES):
            self._hash.update(chunk)
            self.size += len(chunk)
        if self.size > self.model.size_bytes:
            file.truncate(0)
            self._hash, self.size = hashlib.sha256(), 0
        self.tell(0)
        return file

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def missing(self) -> int:
        """How many bytes are still to come."""
        return self.model.size_bytes - self.size

    def check_space(self, extra_bytes: int = 0) -> None:
        """Refuse to begin what cannot be finished.

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
        self.tell(0)

    def tell(self, on_the_way: int) -> None:
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
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self.path.replace(self.target)
        note_verified(self.model)
        return self.target
