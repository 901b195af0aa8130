"""A private JupyterLab server: its own folders, port and token, and this interpreter's kernel."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

__all__ = ["LabServer", "lab_server"]

RUN_JUPYTERLAB = "import quick_jsonschema, jupyterlab.labapp as app; app.main()"
START_S = 90.0
# Nothing may come from a registry, a news feed or the person's own settings.
CONFIG = {
    "ServerApp": {"port": 0, "ip": "127.0.0.1", "open_browser": False, "allow_root": True},
    "LabApp": {"expose_app_in_browser": True, "extension_manager": "readonly"},
}
SETTINGS = {
    "apputils-extension/notification": {
        "checkForUpdates": False,
        "doNotDisturbMode": True,
        "fetchNews": "false",
    },
    "docmanager-extension/plugin": {"autosave": False},
    "notebook-extension/tracker": {"scrollPastEnd": False},
}
TESTS = Path(__file__).resolve().parents[1]
HIDDEN = ("OLLAMA_HOST", "MPLBACKEND")


@dataclass(frozen=True)
class LabServer:
    """Where a server is, and the folder that it serves."""

    url: str
    token: str
    root: Path


@contextmanager
def lab_server(folder: Path) -> Iterator[LabServer]:
    """Run JupyterLab with all its files below a folder, and stop it with its kernels."""
    root, token = folder / "notebooks", secrets.token_hex(16)
    root.mkdir()
    environment = _environment(folder) | {"JUPYTER_TOKEN": token}
    log = folder / "jupyterlab.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-c", RUN_JUPYTERLAB, f"--ServerApp.root_dir={root}"],
            cwd=root,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield LabServer(_address(server, folder / "runtime", log, token), token, root)
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _environment(folder: Path) -> dict[str, str]:
    """This process's variables, with Jupyter's folders below ``folder`` and no model's address."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JUPYTER", "IPYTHON")) and name not in HIDDEN
    }
    for name in ("config", "data", "runtime"):
        (folder / name).mkdir()
        environment[f"JUPYTER_{name.upper()}_DIR"] = str(folder / name)
    settings = folder / "config" / "lab" / "user-settings" / "@jupyterlab"
    for name, values in SETTINGS.items():
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values))
    (folder / "config" / "jupyter_server_config.json").write_text(json.dumps(CONFIG))
    environment |= {
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTERLAB_SETTINGS_DIR": str(settings.parent),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "PYTHONPATH": os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS / "browser"))),
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }
    return environment


def _address(server: subprocess.Popen[bytes], runtime: Path, log: Path, token: str) -> str:
    """Wait until the server answers, and return its address."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        for path in runtime.glob("jpserver-*.json"):
            try:
                url = str(json.loads(path.read_text())["url"])
                httpx.get(f"{url}api/status", params={"token": token}).raise_for_status()
            except (ValueError, httpx.HTTPError):
                continue  # the file is half written, or the server not ready yet
            return url
        time.sleep(0.2)
    raise RuntimeError(
        f"JupyterLab did not start within {START_S:.0f} s:\n{log.read_text()[-4000:]}"
    )
