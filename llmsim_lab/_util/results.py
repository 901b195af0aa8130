"""Results under fixed names, in a folder that somebody chose, which replace nothing of theirs.

A hidden file in the folder notes what each result was made from. Only what is noted there is
replaced, and only by a result of the same source: anything else is a user's own.

A source is noted by its path from the folder on, so that a project can be moved or copied.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import filelock

from llmsim_lab._util.files import bounded_text, is_there, make_folder, resolved_path, write_file
from llmsim_lab._util.text import clip, printable
from llmsim_lab.errors import ConfigError

_NOTE = ".made-from"
"""Hidden, so that it is neither handed out with a lesson nor taken for a hand-in."""
_MOST_BYTES = 1_000_000
_LONGEST_SHOWN = 300
"""Of what a note of unknown origin says, in characters."""
_LOCK_S = 10.0
"""How long to wait for another process that is writing the note, which takes it a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of one source in a folder.

    Attributes:
        folder: where they are.
        kind: what they are: ``run``, ``tournament``.
        source: the file or folder that they are of; None where each of a kind replaces the last.
        option: how the folder was chosen, for the errors.
    """

    folder: Path
    kind: str
    source: Path | None = None
    option: str = "folder"

    def check(self, *names: str) -> None:
        """See that writing results would replace nothing but results of the same source.

        Args:
            names: of files, and of folders, in which all is a result.

        Raises:
            ConfigError: there is something else of such a name, or a link, through which results
                would be written to where it leads.
        """
        notes = self._notes()
        words = self._words()
        for name in names:
            result = self.folder / name
            self.check_no_links(result)
            is_empty = result.is_dir() and not any(result.iterdir())
            if is_empty or not is_there(result):
                continue
            if name not in notes:
                raise ConfigError(
                    f"{result} is there already and would be replaced, and {self.folder / _NOTE} "
                    f"does not say that it is a result: choose another {self.option}, or move it "
                    "away. What an earlier version wrote is to be moved away once"
                )
            if notes[name] != words:
                noted = clip(printable(notes[name]), _LONGEST_SHOWN)
                raise ConfigError(
                    f"{result} is of the {noted}, not of the {words}, seen from {self.folder}, and "
                    f"would be replaced: choose another {self.option}, or move it away"
                )

    def note(self, *names: str) -> None:
        """Check as ``check`` does, and note results that are written next.

        Before they are: what a killed process has written is known for a result too.

        Raises:
            ConfigError: as ``check``, or the folder cannot be written to.
        """
        self.check(*names)  # before a lock is left in a folder where nothing will be written
        make_folder(self.folder)
        note = self.folder / _NOTE
        # Else two that write at once would each leave out what the other one has noted.
        with self._locked():
            self.check(*names)
            notes = self._notes() | dict.fromkeys(names, self._words())
            # In place of a file, also of an empty one, it is replaced as a whole: who reads it
            # meanwhile finds no half of it.
            if not is_there(note):
                write_file(note, b"")
            write_file(note, json.dumps(notes, indent=1).encode())

    def write(self, name: str, content: bytes) -> Path:
        """Note and write a result; return its path.

        Raises:
            ConfigError: as ``note``, or it cannot be written.
        """
        self.note(name)
        return write_file(self.folder / name, content)

    @property
    def _lock(self) -> Path:
        return self.folder / f"{_NOTE}.lock"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes and threads from writing the note.

        Raises:
            ConfigError: another one does not end, or the folder cannot be written to.
        """
        self.check_no_links(self._lock)
        try:
            # Others who may write into the folder may take it too.
            guard = filelock.FileLock(self._lock, timeout=_LOCK_S, mode=0o666).acquire()
        except filelock.Timeout as error:
            raise ConfigError(
                f"another program has held {self._lock} for {_LOCK_S:g} seconds; wait until it has "
                f"written its results, choose another {self.option}, or delete that file if no "
                "program is writing"
            ) from error
        except OSError as error:
            raise ConfigError(
                f"cannot write {self._lock}: {error.strerror or error}; choose another "
                f"{self.option}"
            ) from error
        with guard:
            yield

    def _words(self) -> str:
        if self.source is None:
            return self.kind
        source = resolved_path("path", self.source)
        folder = resolved_path(self.option, self.folder)
        try:
            place = os.path.relpath(source, folder)
        except ValueError:  # on another drive of Windows, to which no path leads from the folder
            place = str(source)
        return f"{self.kind} of {Path(place).as_posix()}"

    def _notes(self) -> dict[str, str]:
        """Return the sources of the folder's results by their names.

        Raises:
            ConfigError: what stands in the note's place is none, or it cannot be read.
        """
        note = self.folder / _NOTE
        for path in (note, self._lock):
            self.check_no_links(path)
        if not is_there(note):
            return {}
        try:
            text = bounded_text(note, _MOST_BYTES)
            # A process that was killed may have left an empty one.
            notes = json.loads(text) if text else {}
        except OSError as error:
            raise ConfigError(
                f"cannot read {note}: {error.strerror or error}; choose another {self.option}"
            ) from error
        except (ValueError, RecursionError):
            notes = None
        if not isinstance(notes, dict) or not all(isinstance(of, str) for of in notes.values()):
            raise ConfigError(
                f"{note} does not say, as this version does, which results are in its folder: "
                f"choose another {self.option}, or move it away together with the results"
            )
        return notes

    def check_no_links(self, result: Path) -> None:
        """Raise ConfigError if a file or folder, or anything in it, is a link, pipe or device."""
        left = [result]
        try:
            # A list and not a recursion: folders of unknown origin may be a thousand deep.
            while left:
                path = left.pop()
                if path.is_symlink():
                    raise ConfigError(
                        f"{path} is a link, and results would be written where it leads; remove "
                        f"it, or choose another {self.option}"
                    )
                if path.is_dir():
                    left += path.iterdir()
                elif is_there(path) and not path.is_file():
                    raise ConfigError(
                        f"{path} is a pipe or a device, in place of results; remove it, or choose "
                        f"another {self.option}"
                    )
        except OSError as error:
            raise ConfigError(
                f"cannot look into {result}: {error.strerror or error}; choose another "
                f"{self.option}"
            ) from error
