"""Waiting for several things at once, and for async work from plain code."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest
from worlds import PublicGoods

from llmsim_lab._util import waiting
from llmsim_lab._util.waiting import gather_all, run_sync
from llmsim_lab.errors import ConfigError


async def give(value: int, delay_s: float = 0.0) -> int:
    await asyncio.sleep(delay_s)
    return value


async def fail(error: BaseException, delay_s: float = 0.0) -> int:
    await asyncio.sleep(delay_s)
    raise error


# gather_all


async def test_a_failure_cancels_the_rest_and_waits_until_it_has_stopped() -> None:
    stopped = asyncio.Event()

    async def slow_to_stop() -> int:
        try:
            return await give(1, 60)
        finally:
            await asyncio.sleep(0.01)
            stopped.set()

    with pytest.raises(ValueError, match="no"):
        await gather_all([slow_to_stop(), fail(ValueError("no"))])
    assert stopped.is_set()
    assert len(asyncio.all_tasks()) == 1


async def fail_when_cancelled() -> int:
    try:
        return await give(1, 60)
    except asyncio.CancelledError:
        raise ValueError("while stopping") from None


async def test_of_two_failures_the_first_in_order_is_raised() -> None:
    with pytest.raises(ValueError, match="while stopping"):
        await gather_all([fail_when_cancelled(), fail(KeyError("first in time"))])


async def test_a_cancelled_caller_sees_the_cancellation_not_a_failure_it_brought_about() -> None:
    waiting = asyncio.create_task(gather_all([give(1, 60), fail_when_cancelled()]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


# run_sync


async def test_async_work_runs_from_plain_code_inside_a_running_loop() -> None:
    assert run_sync(give(7)) == 7


def test_waiting_inside_the_work_itself_is_refused_with_the_way_out() -> None:
    async def waits_for_itself() -> int:
        return run_sync(give(1))

    with pytest.raises(ConfigError, match=r"await arun\(\) instead"):
        run_sync(waits_for_itself())


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.posix
def test_an_interrupt_stops_the_work_before_it_is_raised() -> None:
    stopped = threading.Event()

    async def slow_to_stop() -> None:
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            stopped.set()

    with pytest.raises(KeyboardInterrupt) as caught:
        run_sync(slow_to_stop())
    assert stopped.is_set()
    assert "threading.py" not in "".join(traceback.format_exception(caught.value))
    assert run_sync(give(7)) == 7


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_work_that_ends_the_program_is_heard_of_and_the_loop_lives_on(error: BaseException) -> None:
    with pytest.raises(type(error)):
        run_sync(gather_all([fail(error), give(1, 60)]))
    assert run_sync(give(7)) == 7


PROGRAM = """
import os
from llmsim_lab._util.waiting import run_sync

async def give(value): return value

assert run_sync(give(1)) == 1
child = os.fork()
if child == 0:
    os._exit(run_sync(give(7)))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), run_sync(give(2)))
"""


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_gets_a_loop_of_its_own_and_a_program_ends_quietly() -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "7 2", "")


def test_without_threads_a_run_is_played_where_it_is_called_and_async_code_is_sent_to_arun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(waiting, "_background", None)
    run = PublicGoods(players="random", tape=tmp_path / "pot.tape")
    assert len(run.run(2)) == 3

    async def in_a_cell() -> None:
        await run.arun(1)
        with pytest.raises(ConfigError, match=r"no threads here to wait in; await arun\(\)"):
            run.run(1)
        again = await PublicGoods.areplay(tmp_path / "pot.tape")
        assert again.state == run.state

    asyncio.run(in_a_cell())
    assert run.turn_number == 3
