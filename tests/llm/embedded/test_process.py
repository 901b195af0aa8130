"""The child process, with a stand-in for the runtime: ready, failing, shared, ended."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from builders import until

from llmsim_lab.errors import ModelFileError
from llmsim_lab.llm.embedded import backend
from llmsim_lab.llm.embedded.backend import ChildProcess, ModelServer

RUNTIME = """
import os, sys, time

class Part:
    pass

class CommonParams:
    def __init__(self):
        self.model, self.cpuparams, self.cpuparams_batch = Part(), Part(), Part()

class Server:
    def __init__(self, parameters):
        said = parameters.hostnames, parameters.port, parameters.n_parallel, parameters.verbosity
        said += [len(key) > 20 for key in parameters.api_keys], parameters.cache_ram_mib
        print("noise", *said, os.environ["OMP_WAIT_POLICY"], flush=True)
        self.listening_address = f"http://127.0.0.1:{parameters.n_ctx}"
        CODE
"""
Launch = Callable[..., ChildProcess]
MODEL = Path("m.gguf")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what puts a runtime in place that does something while it loads a model."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write(code: str) -> None:
        (tmp_path / "xllamacpp.py").write_text(RUNTIME.replace("CODE", code))

    write("")
    return write


@pytest.fixture
def launch(install: Callable[[str], None]) -> Iterator[Launch]:
    launched = []

    def start(code: str = "") -> ChildProcess:
        install(code)
        launched.append(ChildProcess(MODEL, 64))
        return launched[-1]

    yield start
    for child in launched:
        child.stop()


@pytest.mark.process
def test_a_child_that_is_ready_has_an_address_and_a_secret(launch: Launch) -> None:
    child = launch()
    assert child.alive
    assert child.backend.base_url == "http://127.0.0.1:64/v1"
    assert psutil.Process(child._process.pid).cmdline()[1:] == ["-P", str(backend._SCRIPT)]
    assert os.getpgid(child._process.pid) != os.getpgid(0)  # an interrupt does not reach it
    assert child.ending() == (
        "it is still running but does not answer; it printed last: "
        "noise ['127.0.0.1'] 0 1 2 [True] 512 PASSIVE"
    )
    child.stop()
    assert not child.alive


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise RuntimeError('bad')", "num_ctx=64: exit status 1; .* bad; see that the machine is"),
        ("os.kill(os.getpid(), 4)", "signal SIGILL .*x86 with AVX2"),
        ("os.kill(os.getpid(), 9)", "signal SIGKILL .*ran out of memory"),
    ],
)
def test_a_child_that_ends_at_its_start_is_explained(
    launch: Launch, code: str, message: str
) -> None:
    with pytest.raises(ModelFileError, match=message):
        launch(code)


@pytest.mark.process
@pytest.mark.usefixtures("install")
def test_a_runtime_that_cannot_be_imported_comes_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise ImportError('libgomp.so.1: cannot open')")
    with pytest.raises(ModelFileError, match=r"cannot open; see .*pip install .* 'apt-get install"):
        ChildProcess(MODEL, 64)


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("time.sleep(600)", r"exit status 1; .*Timeout \(0:00:01\)!"),
        pytest.param("os.kill(0, 19)", "it was not ready after 2 s", marks=pytest.mark.posix),
    ],
)
def test_a_child_that_is_not_ready_in_time_is_ended(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    monkeypatch.setattr(backend, "_STARTUP_S", 1)
    monkeypatch.setattr(backend, "_START_GRACE_S", 1)
    with pytest.raises(ModelFileError, match=message):
        launch(code)


@pytest.mark.process
def test_what_an_environment_prints_first_is_not_taken_for_the_address(
    launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('http://box:80', 'x' * 5_000, sep='\\n')")
    child = launch("os.write(2, b'noise ' * 10**7)")
    assert child.backend.base_url == "http://127.0.0.1:64/v1"
    assert len(child.ending()) < 1_000
    child.forget_printed()
    assert child.ending() == "it is still running but does not answer"


PARENT = """
import time
from pathlib import Path
from llmsim_lab.llm.embedded.backend import ChildProcess
child = ChildProcess(Path("m.gguf"), 64)
print(child._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.process
@pytest.mark.usefixtures("install")
def test_the_child_ends_with_its_parent_even_if_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    gone, alive = psutil.wait_procs([child], timeout=20)
    assert (len(gone), alive) == (1, []) or child.status() == psutil.STATUS_ZOMBIE


# The server around it


@pytest.fixture
def shared(install: Callable[[str], None]) -> Iterator[ModelServer]:
    made = ModelServer(MODEL)
    made.users.add(install)  # in a backend's place
    yield made
    made.stop()


@pytest.mark.process
def test_a_larger_window_loads_the_model_again_and_no_smaller_one_does(
    shared: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    first = shared.start(64)
    second = shared.start(128)
    assert not first.alive
    assert shared.running(64) is shared.running(128) is second
    assert caplog.records == []


FORK = """
import os, sys
from pathlib import Path
from llmsim_lab.llm.embedded.backend import shared_server

def child_of(server):
    server.users.add(sys)
    return server.start(64)

first = shared_server(Path("m.gguf"))
child = child_of(first)
if os.fork() == 0:
    own = child_of(shared_server(Path("m.gguf")))
    sys.exit(own._process.pid == child._process.pid)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]) or not child.alive)
"""


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.usefixtures("install")
def test_a_forked_process_has_a_child_of_its_own_and_leaves_its_parents_alone() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], timeout=60, check=False)
    assert done.returncode == 0


# One at a time


async def test_requests_take_turns_in_order_and_giving_up_harms_nobody() -> None:
    queue, seen, inside = ModelServer(MODEL), [], 0

    async def work(number: int) -> None:
        nonlocal inside
        async with queue.turn():
            inside += 1
            assert inside == 1
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.03)
                seen.append(number)
            inside -= 1

    tasks = [asyncio.create_task(work(number)) for number in range(5)]
    await asyncio.sleep(0.01)
    tasks[0].cancel()
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert seen == [1, 3, 4]


async def test_two_event_loops_take_turns_and_one_that_waits_hears_of_it() -> None:
    queue, seen, pieces = ModelServer(MODEL), [], []

    async def other() -> None:
        async with queue.turn(pieces.append):
            seen.append("other")

    thread = threading.Thread(target=lambda: asyncio.run(other()))
    async with queue.turn():
        thread.start()
        await until(lambda: pieces)
        seen.append("first")
    await asyncio.to_thread(thread.join)
    assert seen == ["first", "other"]
    assert set(pieces) == {""}
