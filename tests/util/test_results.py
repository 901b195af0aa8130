"""The note that says which files of a folder are results."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llmsim_lab._util.results import Results
from llmsim_lab.errors import ConfigError


def test_results_that_are_written_at_once_are_all_noted(tmp_path: Path) -> None:
    results = Results(folder=tmp_path, kind="run")
    names = [f"{number}.csv" for number in range(20)]
    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(results.write, names, [b"x"] * len(names)))
    results.check(*names)


@pytest.mark.parametrize(
    ("note", "message"),
    [
        (b'{"a.csv": "run of ../b', "does not say, as this version does"),
        (b'{"a.csv": {"kind": "run"}}', "does not say, as this version does"),
        (b"[" * 100_000, "does not say, as this version does"),
        (b'"\xff"', "does not say, as this version does"),
        (b"", "does not say that it is a result"),
        (b'{"../a.csv": "run of b"}', "does not say that it is a result"),
        (
            b'{"a.csv": "run of ../b\\u001b"}',
            r"a\.csv is of the run of \.\./b, not of the run of b",
        ),
        (b" " * 1_000_001, "it has more than 1 MB"),
    ],
)
def test_an_odd_note_is_an_error_and_no_file_is_replaced(
    tmp_path: Path, note: bytes, message: str
) -> None:
    (tmp_path / ".made-from").write_bytes(note)
    (tmp_path / "a.csv").touch()
    results = Results(folder=tmp_path, kind="run", source=tmp_path / "b")
    with pytest.raises(ConfigError, match=message):
        results.write("a.csv", b"x")
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert files == {"a.csv": b"", ".made-from": note}
