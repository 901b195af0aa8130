"""Runs and the window in a real Jupyter kernel, where a cell can be interrupted or fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

pytestmark = pytest.mark.process

TESTS = Path(__file__).resolve().parents[1]
WAIT_S = 60

SET_UP = f"""
import asyncio, sys
sys.path.insert(0, {str(TESTS)!r})
from builders import answer, make_simulation
from llmsim_lab.lab import TurnStepper

gate = asyncio.Event()
gate.set()

async def reply(request):
    if not gate.is_set():
        print("asked", flush=True)
    await gate.wait()
    return answer(request)

run = make_simulation(reply, names=("Aland",))
stepper = TurnStepper(run)
"""


class Kernel:
    """A kernel that runs cells and tells what they print."""

    def __init__(self, client: BlockingKernelClient, interrupt: Callable[[], object]) -> None:
        self.client = client
        self.interrupt = interrupt

    def begin(self, code: str) -> str:
        """Send a cell; returns its message's number."""
        return str(self.client.execute(code))

    def output(self, sent: str, *, until: str | None = None) -> str:
        """Read what a cell gives, to its end or until it has printed something."""
        said, end = "", time.monotonic() + WAIT_S
        while time.monotonic() < end:
            message: dict[str, Any] = self.client.get_iopub_msg(timeout=WAIT_S)
            if message["parent_header"].get("msg_id") != sent:
                continue
            content = message["content"]
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                return said
            said += content.get("text", "")
            said += content.get("data", {}).get("text/plain", "")
            said += "\n".join(content.get("traceback", []))
            if until is not None and until in said:
                return said
        raise TimeoutError(f"the kernel did not get there; it said: {said}")

    def run(self, code: str) -> str:
        """Run a cell to its end."""
        return self.output(self.begin(code))


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """One for all tests, each of which makes a stepper of its own."""
    folder = str(tmp_path_factory.mktemp("kernel"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
            patch.setenv(name, folder)
        manager, client = start_new_kernel(cwd=folder)
    try:
        yield Kernel(client, manager.interrupt_kernel)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_interrupting_the_cell_leaves_the_last_whole_turn_and_a_ready_stepper(
    kernel: Kernel,
) -> None:
    assert kernel.run(SET_UP) == ""
    kernel.run("turns = await stepper.play(2)\ngate.clear()")
    cell = kernel.begin("await stepper.play(3)")
    kernel.output(cell, until="asked")
    kernel.interrupt()
    said = kernel.output(cell)
    assert "KeyboardInterrupt" in said or "CancelledError" in said
    assert kernel.run("run.turn_number, stepper._live['busy']") == "(2, False)"
    kernel.run("gate.set()\nawait stepper.play()")
    assert kernel.run("run.turn_number") == "3"


def test_the_static_view_is_written_anew_at_the_end_of_a_cell_that_changed_it(
    kernel: Kernel,
) -> None:
    kernel.run(SET_UP)
    assert "Start" in kernel.run("stepper")
    for cell, turn in (("await stepper.play(2)", 2), ("turns = run.run(1, progress=False)", 3)):
        said = kernel.run(cell)
        assert said.count(f"Turn {turn}\n") == said.count("Turn ") == 1
    assert kernel.run("1") == "1"
    kernel.run("stepper.close()")
    assert kernel.run("turns = run.run(1, progress=False)") == ""


RUN = f"""
import asyncio, os, signal, sys, threading
sys.path.insert(0, {str(TESTS)!r})
from builders import answer, make_simulation

asked = threading.Event()

async def hanging(request):
    if request.site.turn == 2:
        asked.set()
        await asyncio.sleep(60)
    return answer(request)

async def failing(request):
    if request.site.turn == 2:
        raise ConnectionError("the server is gone")
    return answer(request)

loop = asyncio.get_running_loop()

def ctrl_c():
    asked.wait(20)
    os.kill(os.getpid(), signal.SIGINT)
    # A loop that waits sees a signal when something wakes it, as the line of progress does.
    loop.call_soon_threadsafe(int)

os.environ["LLMSIM_PROGRESS"] = "0"
threading.Thread(target=ctrl_c, daemon=True).start()
"""
KEPT = "Turn 2 was not finished: the run is kept up to turn 1, and .run(2) continues it"


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("make_simulation(hanging).run(3)", "KeyboardInterrupt: "),
        ("await make_simulation(hanging).arun(3)", "CancelledError: "),
        (
            "make_simulation(failing).run(3)",
            "LLMFailureException: agent of Aland in turn 2: connection_error after 2 attempts: the "
            "server is gone. ",
        ),
    ],
)
def test_a_cell_that_is_stopped_or_whose_model_fails_ends_in_words_and_tb_shows_the_frames(
    kernel: Kernel, cell: str, says: str
) -> None:
    assert kernel.run(RUN) == ""
    assert kernel.run(cell) == f"{says}{KEPT}."
    assert "Traceback (most recent call last)" in kernel.run("%tb")
