"""What the child does with its runtime, as seen by its parent; the runtime is a stand-in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from llmsim_lab.errors import ConfigError, ModelFileError
from llmsim_lab.llm._embedded.child import _parameters
from llmsim_lab.llm._embedded.server import ChildProcess, ChildSettings

GRAMMAR = """
import json
class CommonParams:
    def __init__(self):
        self.model, self.cpuparams, self.cpuparams_batch = Part(), Part(), Part()
class Part:
    pass
def json_schema_to_grammar(schema):
    return "%llguidance {}\\nstart: %json " + json.dumps(schema)
"""
SERVES = """
class Server:
    def __init__(self, parameters):
        print("native noise on standard output")
        self.listening_address = f"http://127.0.0.1:{parameters.n_ctx}"
"""


def launch(folder: Path, runtime: str, monkeypatch: pytest.MonkeyPatch) -> ChildProcess:
    (folder / "xllamacpp.py").write_text(runtime)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    told = ChildSettings(model=folder / "m.gguf", num_ctx=64, threads=1, startup_timeout_s=30)
    return ChildProcess(told)


@pytest.mark.process
def test_native_noise_does_not_get_between_parent_and_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = launch(tmp_path, GRAMMAR + SERVES, monkeypatch)
    assert child.address == "http://127.0.0.1:64"
    child.stop()


@pytest.mark.process
@pytest.mark.parametrize(
    ("runtime", "kind", "message"),
    [
        ("raise ImportError('libgomp.so.1: cannot open')", ConfigError, "install libgomp1"),
        ("raise ModuleNotFoundError('no runtime')", ConfigError, "pip install 'llmsim-lab"),
        (
            GRAMMAR + "def json_schema_to_grammar(schema): return 'root ::= x'",
            ConfigError,
            "cannot hold replies to a schema",
        ),
        (
            GRAMMAR + "def Server(parameters): raise RuntimeError('bad weights')",
            ModelFileError,
            r"cannot be loaded with num_ctx=64: bad weights",
        ),
    ],
    ids=["libgomp", "missing", "grammar", "load"],
)
def test_what_goes_wrong_in_the_child_is_reported_to_the_user(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    runtime: str,
    kind: type[Exception],
    message: str,
) -> None:
    with pytest.raises(kind, match=message):
        launch(tmp_path, runtime, monkeypatch)


def test_the_child_listens_on_this_machine_only_and_asks_for_a_secret() -> None:
    runtime = SimpleNamespace(
        CommonParams=lambda: SimpleNamespace(
            model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace()
        )
    )
    told = {"model": "m", "num_ctx": 64, "threads": 2, "api_key": "secret"}
    parameters = _parameters(runtime, told)
    assert (parameters.hostnames, parameters.port) == (["127.0.0.1"], 0)
    assert parameters.api_keys == ["secret"]
    assert parameters.n_parallel == 1
    assert parameters.cache_ram_mib == 512
    assert parameters.verbosity == 2  # the runtime's number for warnings and errors
