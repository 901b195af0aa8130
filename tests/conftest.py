"""Rules for every test: no live model, no network, no writing outside temporary folders.

A test marked ``live`` may connect anywhere; such tests run only with ``-m live``. Child processes
are not watched, since some of them fetch and run the embedded model.
"""

from __future__ import annotations

import gc
import importlib.util
import ipaddress
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import platformdirs
import pytest
import quick_jsonschema  # noqa: F401 - before the next line, which imports jsonschema
from fake_ollama import FakeOllama
from ollama_rules import refusal

if TYPE_CHECKING:
    from llmsim_lab.simulation import Demonstration

REPO = Path(__file__).resolve().parents[1]
OLLAMA_PORT = 11434
BEHIND_PROXY = bool(urllib.request.getproxies())
MODEL_VARIABLES = (
    *("OLLAMA_HOST", "OLLAMA_API_KEY", "OLLAMA_NUM_PARALLEL", "LLMSIM_PROGRESS", "LLMSIM_LOG"),
    *("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_CUSTOM_HEADERS"),
)

os.environ["MPLBACKEND"] = "Agg"
os.environ.pop("COLUMNS", None)  # pytest-xdist sets it in its workers, and rich would obey it
if importlib.util.find_spec("sniffio") is None:
    # httpcore asks for it a dozen times in each request, and Python would look in every folder.
    sys.modules["sniffio"] = None  # type: ignore[assignment]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """Keep what was imported and collected out of the search for garbage: all of it stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # Python's 700 would begin a search every other test, and each goes through all reports.
        gc.set_threshold(10_000)
        gc.enable()


# Tests that run only when asked for by their marker


LEFT_OUT = {
    "live": "live tests: left out, they need a real model server (run them with -m live)",
    "browser": "browser tests: left out, they need Chromium (run them with make check-browser)",
    "process": "process tests: left out, they start programs or take long (run them with "
    "make check-process; make check and CI do)",
}
LEFT_OUT_TIMEOUT_S = 300


def _asked(config: pytest.Config, marker: str) -> bool:
    return marker in config.option.markexpr


def pytest_report_header(config: pytest.Config) -> list[str]:
    left_out = [line for marker, line in LEFT_OUT.items() if not _asked(config, marker)]
    live = ["live tests: may connect to real models"] if _asked(config, "live") else []
    return live + left_out


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread of whose tests none is asked for: each worker would import all of them."""
    marker = config.option.markexpr
    if marker not in ("", "process") or not collection_path.is_file():
        return None
    content = collection_path.read_bytes()
    if marker == "process":
        return b"mark.process" not in content or None
    return re.search(rb"^pytestmark = .*mark\.process", content, re.MULTILINE) is not None or None


@pytest.hookimpl(trylast=True)  # after the folders have put their markers on their tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        is_left_out = any(map(item.get_closest_marker, LEFT_OUT))
        if is_left_out and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LEFT_OUT_TIMEOUT_S))
    markers = [marker for marker in LEFT_OUT if not _asked(config, marker)]
    if sys.platform == "win32":
        markers.append("posix")
    left_out = [item for item in items if any(map(item.get_closest_marker, markers))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    # The longest first: at the end the other workers would have nothing to do but wait for it.
    items.sort(key=lambda item: item.path.name != "test_setup.py")


# Network


class Watch:
    """What the current test may do, and which rules it broke."""

    running = False
    live = False
    process = False
    faults: list[str] = []  # noqa: RUF012 - one watch per process, shared on purpose


def _is_here(host: object) -> bool:
    if host in (None, "", "localhost", "0.0.0.0", "::", b"localhost"):
        return True
    text = host.decode() if isinstance(host, bytes) else str(host)
    try:
        return ipaddress.ip_address(text.split("%")[0]).is_loopback
    except ValueError:
        return False


def _refuse(what: str) -> None:
    fault = (
        f"{what}; tests must not reach a live model or the network. Use ScriptedBackend, "
        "or FakeOllama on its own port (OLLAMA_HOST is not set here); a test that is about "
        "a real server is marked pytest.mark.live."
    )
    Watch.faults.append(fault)
    # Not an Exception: the code under test must not be able to swallow it.
    pytest.fail(fault)


def _check_address(sock: socket.socket, address: Any) -> None:
    if Watch.live or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    host, port = address[0], address[1]
    if not _is_here(host):
        _refuse(f"connection attempt to {host}:{port}")
    if port == OLLAMA_PORT:
        _refuse(f"connection attempt to the default Ollama port {OLLAMA_PORT}")


@pytest.fixture(scope="session", autouse=True)
def _guarded_sockets() -> Iterator[None]:
    """Fail tests that connect to another machine, or to the usual Ollama port."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex
    getaddrinfo = socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        _check_address(self, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        _check_address(self, address)
        return connect_ex(self, address)

    def guarded_getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        if not Watch.live and not _is_here(host):
            name = host.decode() if isinstance(host, bytes) else str(host)
            if name.rstrip(".").endswith(".invalid"):  # RFC 6761: such a host never exists
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            _refuse(f"look-up of the host {name}")
        return getaddrinfo(host, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded_connect)
        patch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
        patch.setattr(socket, "getaddrinfo", guarded_getaddrinfo)
        yield


# Files


@pytest.fixture(scope="session", autouse=True)
def _unsynced() -> Iterator[None]:
    """Leave it to the system when files reach the disk: no test here cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


_TEMPORARY = Path(tempfile.gettempdir()).resolve()
_WRITABLE = (
    _TEMPORARY,
    Path("/dev"),
    Path("/proc"),
    platformdirs.user_cache_path().resolve(),
    Path(os.environ.get("LLMSIM_MODELS") or tempfile.gettempdir()).expanduser().resolve(),
    platformdirs.user_config_path("matplotlib").resolve(),
    REPO / ".pytest_cache",
    REPO / "out" / "screenshots",  # from the browser tests
)
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _may_write(path: Path) -> bool:
    if "__pycache__" in path.parts or path.name.startswith(".coverage"):
        return True
    # A checkout may itself lie in a temporary folder; its own files are out of bounds even so.
    in_repo = path.is_relative_to(REPO)
    return any(
        path.is_relative_to(root) and not (in_repo and REPO.is_relative_to(root))
        for root in _WRITABLE
    )


_WATCHED = {"open", "os.mkdir", "subprocess.Popen"}


def _on_audit_event(event: str, args: tuple[Any, ...]) -> None:
    if event not in _WATCHED or not Watch.running:
        return
    if event == "subprocess.Popen" and not Watch.process:
        _check_program(os.fsdecode(args[0]))
    if event == "subprocess.Popen":
        return
    target = args[0]
    if event == "open" and not (isinstance(args[2], int) and args[2] & _WRITE_FLAGS):
        return
    if not isinstance(target, str | bytes | os.PathLike):
        return
    name = os.fsdecode(target)
    if event == "os.mkdir" and args[2] != -1:
        return
    path = Path(os.path.realpath(name))
    if not _may_write(path) and not (event == "os.mkdir" and path.is_dir()):
        Watch.faults.append(
            f"{event} wrote to {path}; tests write to tmp_path only (pass it on, "
            "or use monkeypatch.chdir(tmp_path))"
        )


def _check_program(program: str) -> None:
    path = Path(program)
    if path.name.startswith("python") or path.parent == Path(sys.executable).parent:
        Watch.faults.append(
            f"{program} was started; a test that starts an interpreter takes seconds: mark it "
            "pytest.mark.process, or call the function itself"
        )


sys.addaudithook(_on_audit_event)


@pytest.fixture(autouse=True)
def _isolated(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hide the user's model settings, and fail the test that broke a rule of this module."""
    live = request.node.get_closest_marker("live") is not None
    with pytest.MonkeyPatch.context() as patch:
        if not live:
            for name in MODEL_VARIABLES:
                patch.delenv(name, raising=False)
        patch.setenv("LLMSIM_CARDS", str(REPO / "build" / "no-cards"))
        if BEHIND_PROXY:  # it is not for servers on this machine
            for name in ("NO_PROXY", "no_proxy"):
                patch.setenv(name, f"{os.environ.get(name, '')},127.0.0.1,localhost")
        Watch.live, Watch.running = live, True
        Watch.process = any(map(request.node.get_closest_marker, LEFT_OUT))
        yield
        Watch.live, Watch.running = False, False
    faults, Watch.faults = Watch.faults, []
    if faults:
        pytest.fail("\n".join(dict.fromkeys(faults)), pytrace=False)


# Requests to Ollama


@pytest.fixture(autouse=True)
def _sound_requests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which the package sends a request that a real Ollama would reject."""
    started: list[FakeOllama] = []
    start = FakeOllama.__enter__

    def noted(self: FakeOllama) -> FakeOllama:
        started.append(self)
        return start(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeOllama, "__enter__", noted)
        yield
    if "odd_requests" in request.keywords or request.path.parent.name == "testing":
        return
    sent = [asked.content for server in started for asked in server.requests]
    assert [told for content in sent if (told := refusal(content))] == []


# What several folders' tests need


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a tape that is not there yet."""
    return tmp_path / "x.tape"


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Make Ctrl-C raise, even if the tests were started so that it is ignored (nohup, ``&``)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def drawn() -> None:
    """Ask for real pictures where ``undrawn`` would spare them."""


@pytest.fixture
def undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make figures whole but write them as tiny pictures, unless a test asks for ``drawn``.

    For tests about what stands around a picture: drawing one takes a quarter of a second.
    """
    if "drawn" in request.fixturenames:
        return
    from matplotlib.figure import Figure
    from PIL import Image

    save = Figure.savefig

    def tiny(_: object, file: str | Path | IO[bytes], **__: object) -> None:
        Image.new("L", (1, 1)).save(file, format="png")

    def saved(figure: Figure, file: Any, **options: Any) -> None:
        (tiny if options.get("format", "png") == "png" else save)(figure, file, **options)

    monkeypatch.setattr(Figure, "savefig", saved)


@pytest.fixture(scope="session")
def shipped() -> Demonstration:
    """The recording that is shipped, replayed beside the rules."""
    from llmsim_lab.simulation import Demonstration  # most folders' tests do without it

    return Demonstration.read()


@pytest.fixture(scope="session")
def small_model() -> Path:
    """The real small model in the usual cache, fetched by another process, which may connect."""
    code = "from llmsim_lab.llm.embedded.weights import get_model\nprint(get_model('smollm2-135m'))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


@pytest.fixture
def under_two_hash_seeds() -> Callable[..., list[str]]:
    """Run code with arguments in two interpreters that hash differently; return what each printed.

    The tests' folder is on their path.
    """

    def run(code: str, *arguments: object) -> list[str]:
        command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
        own = {**os.environ, "PYTHONPATH": str(REPO / "tests"), "PYTHONIOENCODING": "utf-8"}
        printed = []
        for seed in ("1", "4711"):
            env = own | {"PYTHONHASHSEED": seed}
            done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE)
            printed.append(done.stdout.decode())
        return printed

    return run
