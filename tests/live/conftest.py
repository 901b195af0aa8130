"""The real Ollama server that the tests of this folder talk to, found once.

It is the one at ``$OLLAMA_HOST``, else at the usual port; the model is ``$LLMSIM_LIVE_MODEL``, else
the one that ``connect("auto")`` would take. Where no server answers, the tests are skipped and say
so.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from llmsim_lab.errors import LabError
from llmsim_lab.llm.ollama import OllamaBackend, OllamaProbe, full_name, look, parse_host

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Live:
    """The server's address and the model's name."""

    host: str
    version: str
    model: str


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("live")


@cache
def find(host: str) -> OllamaProbe | str:
    """Look for a server once; return the reason if there is none."""
    try:
        return look(host, timeout_s=5)
    except LabError as error:
        return str(error)


@pytest.fixture
def live() -> Live:
    """Give the server and its model, which every test of this folder needs."""
    found = find(parse_host(os.environ.get("OLLAMA_HOST")))
    if isinstance(found, str):
        pytest.skip(found)
    model = os.environ.get("LLMSIM_LIVE_MODEL") or found.model
    if model is None:
        pytest.skip(
            f"Ollama at {found.host} has no model that can chat; ollama pull llama3.2 gets one"
        )
    if full_name(model) not in map(full_name, found.models):
        pytest.fail(f"LLMSIM_LIVE_MODEL={model}, but the server has {', '.join(found.models)}")
    return Live(found.host, found.version, model)


@pytest.fixture
def backend(live: Live) -> OllamaBackend:
    return OllamaBackend(live.model, host=live.host)
