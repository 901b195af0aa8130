"""The patch of asyncio is refused where it would lose cells, and works where it can."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from llmsim_lab.errors import ConfigError
from llmsim_lab.lab.nested import enable_nested_asyncio

NESTED = """
import asyncio
from llmsim_lab.lab.nested import enable_nested_asyncio

enable_nested_asyncio()

async def inner():
    return 7

async def outer():
    return asyncio.run(inner())

print(asyncio.run(outer()))
"""


@pytest.mark.parametrize("there", [(7, 1, 0), (7, 4, 0), (8, 0, 0, "rc1")])
def test_it_is_refused_where_cells_would_be_lost(
    monkeypatch: pytest.MonkeyPatch, there: tuple[Any, ...]
) -> None:
    kernel = SimpleNamespace(version_info=there, __version__=".".join(map(str, there)))
    monkeypatch.setitem(sys.modules, "ipykernel", kernel)
    with pytest.raises(ConfigError, match=r"ipykernel \d\.\d\S* loses queued cells .*await"):
        enable_nested_asyncio()


@pytest.mark.process
def test_it_lets_a_loop_run_inside_a_loop_elsewhere() -> None:
    # In a process of its own, since the patch stays.
    done = subprocess.run(
        [sys.executable, "-c", NESTED], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "7", done.stderr


@pytest.mark.parametrize("there", [None, SimpleNamespace(version_info=(6, 31, 0))])
def test_without_a_kernel_that_loses_cells_it_takes_the_patch(
    monkeypatch: pytest.MonkeyPatch, there: Any
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", there)
    monkeypatch.setitem(sys.modules, "nest_asyncio", None)
    with pytest.raises(ConfigError, match="pip install 'llmsim-lab"):
        enable_nested_asyncio()
