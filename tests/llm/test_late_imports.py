"""What talks to servers is imported when it is used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from llmsim_lab import llm

CODE = """
import json, sys
import llmsim_lab
llmsim_lab.Run
print(json.dumps([name for name in ("httpx", "ollama", "llmsim_lab.llm") if name in sys.modules]))
"""


@pytest.mark.process
def test_a_run_loads_no_http_client() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, check=True)
    assert json.loads(done.stdout) == ["llmsim_lab.llm"]


def test_names_that_are_imported_late_are_listed_and_others_are_not_there() -> None:
    assert set(llm.__all__) <= set(dir(llm))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        llm.nothing  # noqa: B018
