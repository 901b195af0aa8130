"""Where files are: those that ship with the package, that users ask for, or that are kept."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path, PurePosixPath, PureWindowsPath
from stat import S_ISFIFO, S_ISREG

from llmsim_lab._util.text import brief
from llmsim_lab.errors import ConfigError, DataError

_PACKAGE = Path(__file__).parents[1]
_ROOTS = (_PACKAGE / "_data", _PACKAGE.parent / "data")
"""An installed wheel has the first; a checkout has the second."""

_TAPE = b'{"tape":'
"""How a tape begins."""


def data_path(name: str) -> Path:
    """Return the path of a packaged file or folder, such as ``us_macro_quarterly.csv``.

    Args:
        name: relative to the data folder, with forward slashes: ``scenarios/oil_shock.yaml``.
    """
    # A name may come from a file of unknown origin, and must not lead out of the folder.
    parts = PurePosixPath(as_path("data file", name)).parts
    # Windows has two more ways out: a backslash and a drive, as in ``C:notes``.
    on_windows = PureWindowsPath(name)
    if not parts or on_windows.anchor or ".." in on_windows.parts:
        raise ConfigError(f"data file {name!r} must be a relative path inside the data folder")
    present: set[str] = set()
    for root in _ROOTS:
        path = root.joinpath(*parts)
        if path.exists():
            return path
        if root.is_dir():
            present.update(entry.name for entry in root.iterdir())
    raise DataError(
        f"no data file {name!r} in {' or '.join(map(str, _ROOTS))}; there are: "
        f"{', '.join(sorted(present)) or 'none at all, so reinstall the package'}"
    )


def as_path(name: str, value: object) -> Path:
    """Return a path that is given as a text or a ``Path``.

    Args:
        name: of the argument, as the caller wrote it.
        value: what was given.

    Raises:
        ConfigError: it is neither, the system has no file of such a name, its links go in a circle,
            or it is in a folder that may not be entered.
    """
    if not isinstance(value, str | Path):
        raise ConfigError(f"{name}={brief(value)} must be a path: a text, or a Path")
    shown = brief(str(value))
    try:
        is_name = b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise ConfigError(
            f"{name}={shown} is not a file's name: it has half a character (a surrogate) or a NUL"
        )
    path = Path(value)
    try:
        path.stat()
    except OSError as error:
        # That it is missing or may not be read is said where it is opened.
        if error.errno == errno.EACCES:
            raise ConfigError(
                f"{shown} is in a folder that you may not enter; change its permissions, or name "
                "another file"
            ) from error
        if error.errno == errno.ENAMETOOLONG:
            raise ConfigError(f"{name}={shown} is too long for a file's name") from error
        if error.errno == errno.ELOOP:
            raise ConfigError(
                f"{name}={shown} is a link that leads back to itself; name a file"
            ) from error
    return path


def resolved_path(name: str, value: object) -> Path:
    """Return a path from the root on, with the links in it followed.

    Raises:
        ConfigError: as ``as_path``, or the current folder is gone, from which a path leads nowhere.
    """
    try:
        return as_path(name, value).resolve()
    except FileNotFoundError as error:
        raise ConfigError("the current folder is gone; go to another one with cd") from error


def shown_path(path: Path) -> Path:
    """Return a path from the root on; as it is where the current folder is gone."""
    try:
        return path.absolute()
    except OSError:
        return path


def is_there(path: Path) -> bool:
    """Return True if there is a file, a folder or a link at a path, also one that leads nowhere.

    False where the system does not tell, as in a folder that may not be entered: whatever then
    opens the file says why it cannot. ``Path.exists`` raises.
    """
    try:
        path.lstat()
    except OSError:
        return False
    return True


def bounded_bytes(path: Path, most: int) -> bytes:
    """Return what a file of unknown origin holds.

    Raises:
        OSError: it cannot be read, has more than so many bytes, is a device, which may have no end,
            or a pipe without a writer, which would be waited for.
    """
    with open(path, "rb", opener=_opened_at_once) as file:
        mode = os.fstat(file.fileno()).st_mode
        # A shell hands over what a command prints as a pipe: ``run <(command)``, ``/dev/stdin``.
        if not S_ISREG(mode) and not S_ISFIFO(mode):
            raise OSError("it is a device")
        if S_ISFIFO(mode) and sys.platform != "win32":
            os.set_blocking(file.fileno(), True)
        content = file.read(most + 1)
    if S_ISFIFO(mode) and not content:
        raise OSError("it is a pipe that nobody writes to")
    if len(content) > most:
        raise OSError(f"it has more than {most / 10**6:.3g} MB")
    return content


def _opened_at_once(path: str, flags: int) -> int:
    # Windows has no such flag; without it a pipe is waited for until somebody writes to it.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def bounded_text(
    path: Path,
    most: int,
    encoding: str = "utf-8",
) -> str:
    """Return what a file of unknown origin says, each line with a plain end.

    Raises:
        OSError: as ``bounded_bytes``.
        UnicodeDecodeError: it is not a text.
    """
    content = bounded_bytes(path, most)
    return TextIOWrapper(BytesIO(content), encoding).read()


def path_from_home(name: str, value: object) -> Path:
    """Return a path as ``as_path`` does, in which a leading ``~`` is a home folder.

    Raises:
        ConfigError: as ``as_path``, or there is no such home.
    """
    path = as_path(name, value)
    try:
        expanded = path.expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"{name}={brief(str(value))} begins with a home folder that is not known; write the "
            "whole path"
        ) from error
    return as_path(name, expanded)


@contextmanager
def temporary_folder(prefix: str = "llmsim-") -> Iterator[Path]:
    """Make a folder that is removed at the end, whatever is in it by then.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        # Where links lead, as what is compared with it: macOS's /tmp is one.
        outer = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
        inner = outer / "0"
        inner.mkdir()
    except OSError as error:
        raise ConfigError(
            f"no temporary folder can be made: {error.strerror or error}; make room on the disk, "
            "or choose another folder: TMPDIR=..."
        ) from error
    try:
        yield inner
    finally:
        # What cannot be removed is left to the system, which clears its own folder.
        with suppress(OSError):
            _remove(outer)


def _remove(outer: Path) -> None:
    """Remove a folder of folders, however deep these are, as shutil.rmtree in 3.11 cannot."""
    folders = [outer / "0"]
    count = 0
    folders[0].chmod(0o700)
    while folders:
        folder = folders.pop()
        with os.scandir(folder) as listing:
            entries = list(listing)
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)  # noqa: PTH108
                continue
            with suppress(OSError):  # it has something in it
                os.rmdir(entry.path)  # noqa: PTH106
                continue
            # Up, so that no path becomes too long. A folder without rights cannot be moved.
            count += 1
            upper = outer / str(count)
            os.chmod(entry.path, 0o700)  # noqa: PTH101
            os.rename(entry.path, upper)  # noqa: PTH104
            folders.append(upper)
        folder.rmdir()
    outer.rmdir()


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, unless it is there.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the folder {path}: {error.strerror or error}; choose another one"
        ) from error


def write_file(path: Path, content: bytes) -> Path:
    """Write a file, in place of one that is there; return its path.

    One that is there is whole until the new one is: a full disk does not cost it.

    Raises:
        ConfigError: it cannot be written, or is a tape, which would be lost.
    """
    try:
        # By its first bytes: any name may be a tape's.
        if path.is_file():
            with path.open("rb") as file:
                is_tape = file.read(len(_TAPE)) == _TAPE
            if is_tape:
                raise ConfigError(f"{path} is a tape, and would be replaced; choose another file")
            _replace(path, content)
        elif is_there(path):  # a device such as /dev/stdout
            path.write_bytes(content)
        else:
            _write_new(path, content)
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror or error}; choose another file"
        ) from error
    return path


def _write_new(path: Path, content: bytes) -> None:
    """Write a new file; half of one does not stay."""
    with path.open("xb") as file:
        try:
            file.write(content)
            file.flush()
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _replace(path: Path, content: bytes) -> None:
    """Put a file in another one's place, with its permissions, where a link to it points."""
    target = path.resolve()
    try:
        number, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
    except PermissionError:  # the file may be written to, its folder may not
        target.write_bytes(content)
        return
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
        shutil.copymode(target, name)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def kept_folder(name: str) -> Path:
    """Return a folder of what is kept between programs.

    Args:
        name: ``cards`` or ``models``; ``$LLMSIM_CARDS`` and ``$LLMSIM_MODELS`` choose others than
            those in the user's cache.
    """
    chosen = os.environ.get(f"LLMSIM_{name.upper()}", "").strip()
    if chosen:
        return path_from_home(f"LLMSIM_{name.upper()}", chosen)
    # Only here: most programs keep nothing.
    import platformdirs

    return platformdirs.user_cache_path("llmsim_lab") / name
