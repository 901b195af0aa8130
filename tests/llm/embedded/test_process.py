"""However the child fails, its parent can say why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from llmsim_lab.errors import BackendError, ConfigError, ModelFileError
from llmsim_lab.llm._embedded import weights
from llmsim_lab.llm._embedded.server import (
    ChildProcess,
    ChildSettings,
    ModelServer,
    _stop_all,
    child_command,
    lease,
    release,
)

READY = 'print(json.dumps({"ready": "http://127.0.0.1:1"}), flush=True)'
Launch = Callable[..., ChildProcess]


def settings(model: Path = Path("m.gguf"), *, timeout_s: float = 30) -> ChildSettings:
    return ChildSettings(model=model, num_ctx=64, threads=1, startup_timeout_s=timeout_s)


def command(code: str) -> list[str]:
    return [sys.executable, "-c", f"import json, os, sys\ntold = sys.stdin.readline()\n{code}"]


@contextmanager
def launched(code: str, *, timeout_s: float = 30) -> Iterator[ChildProcess]:
    child = ChildProcess(settings(timeout_s=timeout_s), command=command(code))
    yield child
    child.stop()


@pytest.mark.process
def test_a_child_that_is_ready_has_an_address_and_a_secret() -> None:
    with launched(f"{READY}\nsys.stdin.read()") as child:
        assert child.alive
        assert child.address == "http://127.0.0.1:1"
        assert len(child.api_key) > 20
        assert child.api_key not in " ".join(psutil.Process(child.pid).cmdline())
    assert not child.alive


@pytest.mark.process
def test_the_child_gets_its_settings_and_does_not_spin() -> None:
    code = 'print(told.strip(), os.environ["OMP_WAIT_POLICY"], file=sys.stderr)\n' + READY
    with launched(code) as child:
        assert '"num_ctx": 64' in child.ending()
        assert "PASSIVE" in child.last_lines


@pytest.mark.process
def test_native_noise_is_kept_for_error_messages_and_bounded() -> None:
    code = f"{READY}\nfor n in range(500): print('line', n, file=sys.stderr)\nprint('out')"
    with launched(code) as child:
        assert "exit status 0" in child.ending()
        assert len(child._lines) <= 60
        assert "line 499" in child._lines


@pytest.mark.process
@pytest.mark.parametrize(
    ("what", "detail", "kind", "message"),
    [
        ("runtime", "No module named 'x'", ConfigError, r"pip install 'llmsim-lab\[embedded\]'"),
        ("runtime", "libgomp.so.1: cannot open", ConfigError, "apt-get install libgomp1"),
        ("grammar", "root ::= x", ConfigError, "cannot hold replies to a schema"),
        ("load", "bad magic", ModelFileError, r"m\.gguf cannot be loaded .*bad magic"),
    ],
)
def test_what_the_child_reports_becomes_a_clear_error(
    what: str, detail: str, kind: type[Exception], message: str
) -> None:
    code = f'print(json.dumps({{"error": {what!r}, "detail": {detail!r}}}))'
    with pytest.raises(kind, match=message):
        ChildProcess(settings(), command=command(code))


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("print('boom', file=sys.stderr); sys.exit(3)", "exit status 3; it printed last: boom"),
        ("print('no json')", "exit status 0"),
        ("print('[1]')", "exit status 0"),
        ("os.kill(os.getpid(), 4)", "signal SIGILL .*x86 with AVX2"),
        ("os.kill(os.getpid(), 9)", "signal SIGKILL .*ran out of memory"),
    ],
)
def test_a_child_that_ends_at_its_start_is_explained(code: str, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        ChildProcess(settings(), command=command(code))


@pytest.mark.process
def test_a_child_that_ends_before_it_reads_is_explained() -> None:
    with pytest.raises(ModelFileError, match="exit status 5"):
        ChildProcess(settings(), command=[sys.executable, "-c", "import os; os._exit(5)"])


@pytest.mark.process
def test_a_child_that_is_not_ready_in_time_is_ended() -> None:
    code = "print(os.getpid(), file=sys.stderr, flush=True)\nsys.stdin.read()"
    with pytest.raises(BackendError, match="was not ready within 1 s") as caught:
        ChildProcess(settings(timeout_s=1), command=command(code))
    assert (caught.value.reason, caught.value.retry) == ("timeout", True)


@pytest.mark.process
def test_a_child_that_lives_but_does_not_answer_is_said_to() -> None:
    with launched(f"{READY}\nsys.stdin.read()") as child:
        assert child.ending() == "it is still running but does not answer"


def test_without_a_python_to_run_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(ConfigError, match=r"sys\.executable is empty"):
        child_command()


PARENT = """
import sys, time
from pathlib import Path
from llmsim_lab.llm._embedded.server import ChildProcess, ChildSettings
model = Path(sys.argv[1])
child = ChildProcess(ChildSettings(model=model, num_ctx=64, threads=1, startup_timeout_s=60))
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.embedded
@pytest.mark.process
def test_the_child_ends_with_its_parent_even_if_that_is_killed(small_model: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(small_model)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    gone, alive = psutil.wait_procs([child], timeout=20)
    assert (len(gone), alive) == (1, []) or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.embedded
@pytest.mark.process
def test_an_interrupt_of_the_notebook_does_not_reach_the_child(small_model: Path) -> None:
    child = ChildProcess(settings(small_model, timeout_s=60))
    try:
        assert os.getpgid(child.pid) != os.getpgid(0)
    finally:
        child.stop()


@pytest.mark.embedded
@pytest.mark.process
def test_a_file_that_only_begins_like_a_model_is_an_error(model_file: Path) -> None:
    with pytest.raises(ModelFileError, match=r"own\.gguf cannot be loaded with num_ctx=64"):
        ChildProcess(settings(model_file, timeout_s=60))


# The server around it


@pytest.mark.process
def test_a_dead_child_is_started_again_and_said_to_be(
    model_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = ModelServer(settings(model_file), command=command(f"{READY}\nsys.stdin.read()"))
    first = server.start(64)
    os.kill(first.pid, signal.SIGKILL)
    first.ending()
    assert server.running(64) is None
    second = server.start(64)
    assert second.pid != first.pid
    assert server.start(64) is second
    server.stop()
    assert not second.alive
    assert [record.getMessage().split()[0] for record in caplog.records] == ["EMBEDDED_ENDED"]


@pytest.mark.process
def test_a_larger_window_loads_the_model_again(model_file: Path) -> None:
    server = ModelServer(settings(model_file), command=command(f"{READY}\nsys.stdin.read()"))
    first = server.start(64)
    second = server.start(128)
    assert not first.alive
    assert (second.settings.num_ctx, server.running(64)) == (128, second)
    server.stop()


def test_a_model_that_does_not_fit_is_not_even_started(
    model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "available_memory_bytes", lambda: 100_000_000)
    server = ModelServer(settings(model_file), command=command("raise SystemExit"))
    with pytest.raises(ModelFileError, match=r"own\.gguf needs about 0\.2 GB of memory"):
        server.start(64)


@pytest.mark.process
def test_a_server_that_is_stopped_while_it_starts_leaves_no_child(
    model_file: Path,
) -> None:
    server = ModelServer(settings(model_file), command=command(f"{READY}\nsys.stdin.read()"))
    server.stop()
    child = server.start(64)
    assert not child.alive


@pytest.mark.process
def test_all_children_end_with_the_process_that_started_them(
    model_file: Path,
) -> None:
    server = lease(settings(model_file), command=command(f"{READY}\nsys.stdin.read()"))
    child = server.start(64)
    _stop_all(os.getpid() + 1)  # as in a process forked from this one
    assert child.alive
    _stop_all(os.getpid())
    assert not child.alive
    release(server)
    release(server)  # once more than leased does no harm


FORK = """
import os, sys
from pathlib import Path
from llmsim_lab.llm._embedded.server import ChildSettings
from llmsim_lab.llm._embedded.server import lease
code = sys.argv[2]
told = ChildSettings(model=Path(sys.argv[1]), num_ctx=64, threads=1, startup_timeout_s=30)
first = lease(told, command=[sys.executable, "-c", code])
child = first.start(64)
if os.fork() == 0:
    second = lease(told, command=[sys.executable, "-c", code])
    own = second.start(64)
    fine = second is not first and own.pid != child.pid and child.alive is not None
    own.stop()
    os._exit(0 if fine else 1)
code = os.waitstatus_to_exitcode(os.wait()[1])
alive = child.alive
child.stop()
sys.exit(code or not alive)
"""


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_has_children_of_its_own(model_file: Path) -> None:
    code = command(f"{READY}\nsys.stdin.read()")[2]
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(model_file), code], timeout=60, check=False
    )
    assert done.returncode == 0
