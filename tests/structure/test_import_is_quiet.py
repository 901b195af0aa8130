"""Importing the package does nothing: no file, connection, logging set-up or heavy library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

HEAVY = ("IPython", "ipywidgets", "jupyter_client", "matplotlib", "mcp", "nest_asyncio", "pandas")
HEAVY += ("xllamacpp", "typer", "httpx", "ollama")

WATCHED = """
import json, logging, os, sys, threading, warnings

seen = []
def hook(event, args):
    if event == "open":
        path, _, flags = args
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            seen.append(f"{event} {path}")
    elif event in ("os.mkdir", "os.rename", "os.remove", "sqlite3.connect", "subprocess.Popen",
                   "os.fork", "os.exec", "os.posix_spawn", "os.putenv", "os.unsetenv",
                   "socket.bind", "socket.connect", "socket.getaddrinfo", "signal.signal"):
        seen.append(f"{event} {args}")
sys.addaudithook(hook)
before = {"path": list(sys.path), "filters": len(warnings.filters), "environ": dict(os.environ)}

import llmsim_lab
for name in llmsim_lab.__all__ if LOAD_ALL else ["Run"]:
    getattr(llmsim_lab, name)

logger = logging.getLogger("llmsim_lab")
loggers = [logging.getLogger(), *(
    item for name, item in logging.root.manager.loggerDict.items()
    if name.startswith("llmsim_lab") and isinstance(item, logging.Logger))]
json.dump({
    "seen": seen,
    "modules": sorted({name.partition(".")[0] for name in sys.modules}),
    "handlers": [repr(h) for item in loggers for h in item.handlers
                 if not isinstance(h, logging.NullHandler)],
    "levels": [item.name for item in loggers[1:] if item.level],
    "threads": threading.active_count(),
    "path": sys.path == before["path"],
    "environ": dict(os.environ) == before["environ"],
}, sys.__stdout__)
"""


def _import(folder: Path, *, load_all: bool) -> dict[str, Any]:
    """Import in a new interpreter with an empty home, and return what it did."""
    keep = ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in keep if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-B", "-c", f"LOAD_ALL = {load_all}\n{WATCHED}"],
        cwd=folder,
        env=environment | {"HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    report: dict[str, Any] = json.loads(done.stdout)  # also fails if anything was printed
    report["files"] = [str(path) for path in folder.rglob("*")]
    return report


@pytest.mark.parametrize("load_all", [False, True])
def test_importing_does_nothing_else(tmp_path: Path, load_all: bool) -> None:
    report = _import(tmp_path, load_all=load_all)
    assert (report["files"], report["seen"], report["threads"]) == ([], [], 1)
    assert (report["path"], report["environ"]) == (True, True)
    assert (report["handlers"], report["levels"]) == ([], [])
    assert "llmsim_lab" in report["modules"]
    assert load_all or [name for name in HEAVY if name in report["modules"]] == []


def test_a_wrong_variable_is_an_error_of_what_reads_it_alone() -> None:
    wrong = {"ALL_PROXY": "socks://ann:s3cret@gate", "OLLAMA_HOST": "http://ann:s3cret/@box"}
    code = """if True:
        import asyncio, llmsim_lab.cli
        from llmsim_lab.llm import OllamaBackend
        asyncio.run(OllamaBackend(host="http://127.0.0.1:1").pull("x"))
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **wrong},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ConfigError: Ollama's client cannot read the environment (ValueError)" in done.stderr
    assert "s3cret" not in done.stderr
