"""The files of a room beside its tapes: after a crash, everybody is back in their seats.

There are three files of JSON lines. ``room.jsonl`` has the room's keys, digests of tokens, seats,
and who is away. ``room.names.jsonl`` has the participants' names. ``room.closing.jsonl`` has their
answers to the closing questions. The names can be deleted without the data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from llmsim_lab._util.files import is_there
from llmsim_lab._util.jsontext import JSONObject
from llmsim_lab.errors import ConfigError

JournalPart = Literal["", ".names", ".closing"]


class RoomJournal:
    """The files of one room.

    Args:
        folder: the folder of the files; None to write none, as for a run on no tape.
        stem: the beginning of their names: ``room``, or a tape's name and ``room``.

    Raises:
        ConfigError: the folder cannot be written to.
    """

    def __init__(
        self,
        folder: Path | None,
        stem: str = "room",
    ) -> None:
        self.folder = folder
        self._stem = stem
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for part in ("", ".names", ".closing"):
                self._end_line(self._path(folder, part))
        except OSError as error:
            raise ConfigError(
                f"cannot keep the room in {folder}: {error.strerror or error}; choose another "
                "folder: Room(..., folder=...)"
            ) from error

    def _path(self, folder: Path, part: JournalPart) -> Path:
        return folder / f"{self._stem}{part}.jsonl"

    @staticmethod
    def _end_line(path: Path) -> None:
        """End a line that a crash cut off, so that the next line is not lost with it."""
        if not is_there(path):
            return
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            with path.open("ab") as file:
                file.write(b"\n")

    def write(self, line: JSONObject, part: JournalPart = "") -> None:
        """Append a line; when this returns, the line is in the file.

        Raises:
            ConfigError: the line cannot be written; then no part of it is in the file.
        """
        if self.folder is None:
            return
        # Opened for each line, since the file with the names may be deleted at any time.
        text = json.dumps(line, separators=(",", ":"))
        # Readable for the teacher's account only: the file has the room's secret, or names.
        path = self._path(self.folder, part)
        try:
            opener = partial(os.open, mode=0o600)
            with open(path, "ab", buffering=0, opener=opener) as file:
                size = os.fstat(file.fileno()).st_size
                raw = f"{text}\n".encode()
                try:
                    while raw:
                        raw = raw[file.write(raw) :]
                except OSError:
                    # Else the next line would be appended to half of this one, and be lost with it.
                    file.truncate(size)
                    raise
        except OSError as error:
            raise ConfigError(
                f"cannot write to {path}: {error.strerror or error}; make room on the disk, the "
                "room goes on"
            ) from error

    def lines(self, part: JournalPart = "") -> Iterator[JSONObject]:
        """Yield the lines; one that a crash cut off is left out."""
        if self.folder is None:
            return
        path = self._path(self.folder, part)
        if not is_there(path):
            return
        # Bytes that are not UTF-8 lose their own line, but not the room.
        try:
            content = path.read_text("utf-8", errors="replace")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
        for text in content.split("\n"):
            try:
                line = json.loads(text)
            except ValueError:  # a crash cut the line off
                continue
            if isinstance(line, dict):
                yield line


def forget_names(folder: str | Path) -> int:
    """Delete the names and labels in a folder's rooms; the data stay.

    Returns:
        The number of participants whose names were deleted.

    Raises:
        ConfigError: the folder has no room.
    """
    folder = Path(folder)
    if not any(folder.glob("*room.jsonl")):
        raise ConfigError(
            f"{folder} has no room; name the folder of its tapes, in which room.jsonl is"
        )
    count = 0
    for path in folder.glob("*room.names.jsonl"):
        count += len(path.read_text("utf-8").splitlines())
        path.unlink()
    return count
