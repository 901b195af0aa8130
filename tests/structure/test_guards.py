"""The rules that tests/conftest.py holds every test to do bite."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest


@pytest.fixture
def watch(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The watch of tests/conftest.py; what it noted in this test is expected, and forgotten."""
    conftest = request.config.pluginmanager.get_plugin(
        str(Path(__file__).parents[1] / "conftest.py")
    )
    assert conftest is not None
    yield conftest.Watch
    conftest.Watch.faults = []


refused = pytest.raises(pytest.fail.Exception, match="tests must not reach a live model")


def test_a_connection_to_another_machine_is_refused(watch: Any) -> None:
    with refused, socket.socket() as sock:
        sock.connect(("192.0.2.1", 80))
    assert "192.0.2.1:80" in watch.faults[0]


def test_the_usual_ollama_port_is_refused_even_here(watch: Any) -> None:
    with refused, socket.socket() as sock:
        sock.connect_ex(("127.0.0.1", 11434))
    assert "default Ollama port 11434" in watch.faults[0]


async def test_code_under_test_cannot_swallow_the_refusal(watch: Any) -> None:
    with refused:
        try:
            async with httpx.AsyncClient() as client:
                await client.get("http://example.org")
        except Exception as error:
            raise AssertionError("the refusal was an Exception") from error
    assert "example.org" in watch.faults[0]


def test_writing_into_the_checkout_is_noted(watch: Any, repo: Path) -> None:
    stray = repo / "a-stray-file-of-the-tests"
    try:
        stray.write_text("")
    finally:
        stray.unlink()
    assert "a-stray-file-of-the-tests; tests write to tmp_path only" in watch.faults[0]


def test_an_interpreter_started_by_a_test_that_is_not_marked_is_noted(watch: Any) -> None:
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)
    assert "mark it pytest.mark.process" in watch.faults[0]


def test_the_users_model_settings_are_hidden() -> None:
    assert "OLLAMA_HOST" not in os.environ


def test_live_tests_run_only_when_asked_for(request: pytest.FixtureRequest) -> None:
    assert "live" not in request.config.option.markexpr
    assert [it for it in request.session.items if it.get_closest_marker("live")] == []
