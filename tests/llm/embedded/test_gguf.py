"""The head of a model file is read, and damage is named."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from llmsim_lab.errors import ModelFileError
from llmsim_lab.llm._embedded.machine import read_header

from .conftest import LLAMA, gguf_bytes

ONE = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
"""A head that announces one value."""


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_the_head_tells_what_the_model_is(tmp_path: Path) -> None:
    header = read_header(write(tmp_path / "m.gguf", gguf_bytes(LLAMA)))
    assert header.context_length == 128


def test_context_memory_counts_layers_and_shared_heads(tmp_path: Path) -> None:
    header = read_header(write(tmp_path / "m.gguf", gguf_bytes(LLAMA)))
    assert header.cache_bytes_per_token == 2 * 2 * (16 + 16) * 2


def test_heads_of_their_own_width_are_heeded(tmp_path: Path) -> None:
    values = LLAMA | {"llama.attention.key_length": 8, "llama.attention.value_length": 4}
    header = read_header(write(tmp_path / "m.gguf", gguf_bytes(values)))
    assert header.cache_bytes_per_token == 2 * 2 * (8 + 4) * 2


def test_what_the_file_does_not_say_is_none(tmp_path: Path) -> None:
    header = read_header(write(tmp_path / "m.gguf", gguf_bytes({"general.name": "x"})))
    assert header.context_length is None
    assert header.cache_bytes_per_token is None


def test_reading_stops_at_the_tokenizer_and_passes_lists(tmp_path: Path) -> None:
    values = {"a.list": [1, 2], **LLAMA, "tokenizer.list": [1]}
    content = gguf_bytes(values)[:-20]
    assert read_header(write(tmp_path / "m.gguf", content)).context_length == 128


def test_another_file_is_rejected_with_its_first_bytes(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"not a GGUF file: it begins with b'<htm'"):
        read_header(write(tmp_path / "m.gguf", b"<html>"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"gone\.gguf: No such file"):
        read_header(tmp_path / "gone.gguf")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (gguf_bytes(LLAMA)[:30], "unpack requires a buffer of 8 bytes"),
        (gguf_bytes(LLAMA, version=9), "version 9"),
        (ONE + struct.pack("<Q", 1 << 60), f"a text of {1 << 60} bytes"),
        (ONE + struct.pack("<Q", 1) + b"a" + struct.pack("<I", 99), "a value of type 99"),
        (
            ONE + struct.pack("<Q", 1) + b"a" + struct.pack("<IIQ", 9, 4, 1 << 40),
            f"a list of {1 << 40} values of type 4",
        ),
        (ONE + struct.pack("<Q", 1) + b"\xff" + struct.pack("<II", 4, 1), "'utf-8' codec .*"),
    ],
    ids=["short", "version", "endless text", "unknown type", "endless list", "no text"],
)
def test_a_damaged_head_is_an_error_and_no_hang(tmp_path: Path, content: bytes, why: str) -> None:
    message = rf"is damaged or of an unknown GGUF version \({why}\); fetch it again$"
    with pytest.raises(ModelFileError, match=message):
        read_header(write(tmp_path / "m.gguf", content))
