"""Programs that the package starts import nothing of the folder in which somebody stands."""

from __future__ import annotations

import re
from pathlib import Path

import llmsim_lab


def test_each_python_that_is_started_leaves_the_current_folder_out_of_its_path() -> None:
    started = {}
    for path in Path(llmsim_lab.__file__).parent.rglob("*.py"):
        for arguments in re.findall(r"\[\s*sys\.executable,([^\]]*)", path.read_text("utf-8")):
            started[path.name, arguments.strip()] = '"-P"' in arguments
    assert len(started) >= 6
    assert [where for where, is_safe in started.items() if not is_safe] == []
