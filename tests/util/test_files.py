"""How pages and reports replace older ones."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from llmsim_lab._util.files import as_path, bounded_bytes, write_file
from llmsim_lab.errors import ConfigError


def test_a_file_that_cannot_be_written_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write .*: Is a directory; choose another file"):
        write_file(tmp_path, b"x")


def test_a_path_in_a_folder_that_may_not_be_entered_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stat(_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "stat", stat)  # root may enter any folder
    with pytest.raises(ConfigError, match=r"'pot\.py' is in a folder that you may not enter"):
        as_path("file", "pot.py")


@pytest.mark.posix
def test_a_replaced_file_keeps_its_permissions_and_the_links_to_it(tmp_path: Path) -> None:
    page, link = tmp_path / "page.html", tmp_path / "latest.html"
    page.write_text("the older one")
    page.chmod(0o604)
    link.symlink_to(page.name)
    assert write_file(link, b"new") == link
    assert link.is_symlink()
    assert (page.read_bytes(), page.stat().st_mode & 0o777) == (b"new", 0o604)


@pytest.mark.posix
def test_what_a_command_prints_is_read_and_a_folder_is_named_and_closed(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"turns: 3")
    os.close(writing)
    # As a shell names it: ``llmsim-lab run <(command)``.
    assert bounded_bytes(Path(f"/dev/fd/{reading}"), 8) == b"turns: 3"
    for _ in range(2):
        with pytest.raises(IsADirectoryError, match=tmp_path.name):
            bounded_bytes(tmp_path, 8)
    next_number = os.open(tmp_path / "new", os.O_CREAT)
    os.close(next_number)
    os.close(reading)
    assert next_number == writing
