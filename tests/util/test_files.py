"""How pages and reports replace older ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmsim_lab._util.files import write_file
from llmsim_lab.errors import ConfigError


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let no file grow beyond a size, as on a full disk."""
    import resource  # which Windows does not have

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_older_file_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("the older one")
    with room_for(4096), pytest.raises(ConfigError, match=r"cannot write .*page\.html: File too l"):
        write_file(page, b"x" * 8192)
    assert page.read_text() == "the older one"
    assert list(tmp_path.iterdir()) == [page]


def test_a_replaced_file_keeps_its_permissions_and_the_links_to_it(tmp_path: Path) -> None:
    page, link = tmp_path / "page.html", tmp_path / "latest.html"
    page.write_text("the older one")
    page.chmod(0o604)
    link.symlink_to(page.name)
    assert write_file(link, b"new") == link
    assert link.is_symlink()
    assert (page.read_bytes(), page.stat().st_mode & 0o777) == (b"new", 0o604)


def test_what_is_no_file_is_written_to_as_it_is() -> None:
    assert write_file(Path("/dev/null"), b"x") == Path("/dev/null")
    assert Path("/dev/null").is_char_device()
