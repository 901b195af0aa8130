"""Where packaged files are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsim_lab import data_path
from llmsim_lab._util import files
from llmsim_lab.errors import ConfigError, DataError


def test_an_installed_copy_comes_before_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("installed", "checkout"):
        (tmp_path / place / "tapes").mkdir(parents=True)
        (tmp_path / place / "tapes" / "one.db").touch()
    monkeypatch.setattr(files, "_ROOTS", (tmp_path / "installed", tmp_path / "checkout"))
    assert data_path("tapes/one.db") == tmp_path / "installed" / "tapes" / "one.db"


def test_a_missing_file_is_an_error_that_names_what_there_is() -> None:
    with pytest.raises(DataError, match=r"no data file 'mars\.csv'.*us_macro_quarterly\.csv"):
        data_path("mars.csv")


@pytest.mark.parametrize("name", ["../pyproject.toml", "/etc/passwd", "", "a/../../b"])
def test_a_path_out_of_the_data_folder_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match="inside the data folder"):
        data_path(name)
