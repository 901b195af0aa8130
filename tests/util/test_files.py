"""How pages and reports replace older ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsim_lab._util.files import write_file
from llmsim_lab.errors import ConfigError


def test_a_file_that_cannot_be_written_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write .*: Is a directory; choose another file"):
        write_file(tmp_path, b"x")


@pytest.mark.posix
def test_a_replaced_file_keeps_its_permissions_and_the_links_to_it(tmp_path: Path) -> None:
    page, link = tmp_path / "page.html", tmp_path / "latest.html"
    page.write_text("the older one")
    page.chmod(0o604)
    link.symlink_to(page.name)
    assert write_file(link, b"new") == link
    assert link.is_symlink()
    assert (page.read_bytes(), page.stat().st_mode & 0o777) == (b"new", 0o604)
