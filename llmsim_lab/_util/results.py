"""Results under fixed names, in a folder that somebody chose, which replace nothing of theirs.

A hidden file in the folder notes what each result was made from. Only what is noted there is
replaced, and only by a result of the same source: anything else is a user's own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from llmsim_lab._util.files import as_path, bounded_text, is_there, make_folder, write_file
from llmsim_lab.errors import ConfigError

_NOTE = ".made-from"
"""Hidden, so that it is neither handed out with a lesson nor taken for a hand-in."""
_MOST_BYTES = 1_000_000


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
                raise ConfigError(
                    f"{result} is of the {notes[name]}, not of the {words}, and would be replaced: "
                    f"choose another {self.option}, or move it away"
                )

    def note(self, *names: str) -> None:
        """Check as ``check`` does, and note results that are written next.

        Before they are: what a killed process has written is known for a result too.

        Raises:
            ConfigError: as ``check``, or the folder cannot be written to.
        """
        self.check(*names)
        notes = self._notes() | dict.fromkeys(names, self._words())
        make_folder(self.folder)
        write_file(self.folder / _NOTE, json.dumps(notes, indent=1).encode())

    def write(self, name: str, content: bytes) -> Path:
        """Note and write a result; return its path.

        Raises:
            ConfigError: as ``note``, or it cannot be written.
        """
        self.note(name)
        return write_file(self.folder / name, content)

    def _words(self) -> str:
        if self.source is None:
            return self.kind
        return f"{self.kind} of {as_path('path', self.source).resolve()}"

    def _notes(self) -> dict[str, str]:
        """Return the sources of the folder's results by their names.

        Raises:
            ConfigError: what stands in the note's place is none, or it cannot be read.
        """
        note = self.folder / _NOTE
        self.check_no_links(note)
        if not is_there(note):
            return {}
        try:
            notes = json.loads(bounded_text(note, _MOST_BYTES))
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
