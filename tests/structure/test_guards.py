"""The rules that tests/conftest.py holds every test to do bite."""

from __future__ import annotations

import os
import shutil
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


def test_a_name_that_never_exists_is_not_looked_up_but_not_found(watch: Any) -> None:
    with pytest.raises(socket.gaierror):
        socket.create_connection(("no-such-host.invalid", 80))
    assert watch.faults == []


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
    assert not {"OLLAMA_HOST", "LLMSIM_MODEL"} & set(os.environ)


@pytest.fixture
def suite(tmp_path: Path, repo: Path) -> Path:
    """A small suite of its own under this suite's rules, with one live test and one other."""
    tests = tmp_path / "suite" / "tests"
    tests.mkdir(parents=True)
    for name in ("conftest.py", "ollama_rules.py"):
        (tests / name).write_bytes((repo / "tests" / name).read_bytes())
    shutil.copytree(repo / "tests" / "fake_ollama", tests / "fake_ollama")
    (tests.parent / "pytest.ini").write_text("[pytest]\nmarkers = live: real servers\n")
    (tests / "test_both.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.live\n"
        "def test_live(): assert os.environ['OLLAMA_HOST'] == 'http://gpu-box'\n"
        "def test_other(): assert 'OLLAMA_HOST' not in os.environ\n"
    )
    return tests.parent


def run_suite(suite: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=suite,
        env=os.environ | {"OLLAMA_HOST": "http://gpu-box"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "header"),
    [
        ((), "process tests: left out, they start programs or take long"),
        (("-m", "live"), "live tests: may connect to real models"),
    ],
)
def test_live_tests_run_only_when_asked_for_and_see_the_users_server(
    suite: Path, arguments: tuple[str, ...], header: str
) -> None:
    output = run_suite(suite, *arguments)
    assert header in output
    assert "1 passed, 1 deselected" in output
