"""The files of a room beside its tapes: after a crash, everybody is back in their seats.

There are three files of JSON lines. ``room.jsonl`` has the room's keys, digests of tokens, seats,
and who is away. ``room.names.jsonl`` has the participants' names. ``room.closing.jsonl`` has their
answers to the closing questions. The names can be deleted without the data.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Literal

from llmsim_lab._util.files import as_path
from llmsim_lab._util.jsontext import JSONObject
from llmsim_lab._util.text import whole
from llmsim_lab.errors import ConfigError

JournalPart = Literal["", ".names", ".closing"]
_MOST_BYTES = 2**22
"""Of one file: a room of five hundred people writes some 60 kB a round."""
# A folder may come from somebody else. A link in a file's place would lead to another file, which
# would get the room's lines, and a pipe would be waited for without end. Windows has neither flag.
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


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
        content = _read(path)
        if content and not content.endswith(b"\n"):
            with os.fdopen(_opened(path, os.O_WRONLY | os.O_APPEND), "ab") as file:
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
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        path = self._path(self.folder, part)
        try:
            with os.fdopen(_opened(path, flags), "ab", buffering=0) as file:
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
                f"cannot write to {path}: {error.strerror or error}; make room on the disk or "
                "move away what stands there; the room goes on"
            ) from error

    def lines(self, part: JournalPart = "") -> Iterator[JSONObject]:
        """Yield the lines; one that a crash cut off is left out."""
        if self.folder is None:
            return
        path = self._path(self.folder, part)
        try:
            # Bytes that are not UTF-8 lose their own line, but not the room.
            content = _read(path).decode(errors="replace")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
        for text in content.split("\n"):
            # Looked at first: to be told that a line is not JSON takes ten times as long.
            if not text.startswith("{"):
                continue
            try:
                line = whole(json.loads(text))
            # A crash cut the line off, or it is nested as no line of a room is.
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict):
                yield line


def _opened(path: Path, flags: int) -> int:
    """Open a file that is one, with its owner's rights alone if it is new; return its number.

    Raises:
        OSError: there is none, or something else stands in its place.
    """
    try:
        number = os.open(path, flags | _PLAIN, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, f"{path.name} is a link") from None
        raise
    if S_ISREG(os.fstat(number).st_mode):
        return number
    os.close(number)
    raise OSError(errno.EINVAL, f"{path.name} is not a file")


def _read(path: Path) -> bytes:
    """Return what is in a file; nothing if there is none.

    Raises:
        OSError: it cannot be read, or is larger than any room's.
    """
    try:
        number = _opened(path, os.O_RDONLY)
    except FileNotFoundError:
        return b""
    with os.fdopen(number, "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise OSError(errno.EFBIG, f"{path.name} has more than {_MOST_BYTES >> 20} MB")
    return content


def forget_names(folder: str | Path) -> int:
    """Delete the names and labels in a folder's rooms; the data stay.

    Returns:
        The number of participants whose names were deleted.

    Raises:
        ConfigError: the folder has no room.
    """
    folder = as_path("folder", folder)
    if not any(folder.glob("*room.jsonl")):
        raise ConfigError(
            f"{folder} has no room; name the folder of its tapes, in which room.jsonl is"
        )
    count = 0
    for path in folder.glob("*room.names.jsonl"):
        try:
            count += len(_read(path).splitlines())
        except OSError:  # whatever stands there, it goes
            count += 1
        path.unlink()
    return count
