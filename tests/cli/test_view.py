"""``llmsim-lab view``: a tape's runs as a page."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_kit import Run, fails, succeeds
from page_kit import PageData

from llmsim_lab import data_path


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    return Path(shutil.copy(data_path("tapes/first_run.tape"), tmp_path / "my.tape"))


def test_a_page_is_written_beside_the_tape(llmsim_lab: Run, tape: Path) -> None:
    out = succeeds(llmsim_lab, "view", "my.tape")
    assert out.startswith("Written: my.html (")
    assert list(PageData(tape.with_suffix(".html")).runs) == [1, 2, 3]


def test_a_page_that_is_there_is_replaced_only_where_it_is_named(
    llmsim_lab: Run, tape: Path
) -> None:
    tape.with_suffix(".html").write_text("notes of mine")
    err = fails(llmsim_lab, "view", "my.tape")
    assert "my.html is there already; say --out my.html to replace it" in err
    assert tape.with_suffix(".html").read_text() == "notes of mine"
    assert llmsim_lab("view", "my.tape", "--out", "my.html")[0] == 0


def test_a_tape_is_never_replaced_by_its_own_page(llmsim_lab: Run, tape: Path) -> None:
    named = tape.rename(tape.with_name("run.html"))
    before = named.read_bytes()
    for target in ((), ("-o", "run.html")):
        err = fails(llmsim_lab, "view", "run.html", *target)
        assert "run.html is a tape, and would be replaced; choose another file" in err
    assert named.read_bytes() == before
