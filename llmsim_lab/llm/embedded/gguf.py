"""The head of a GGUF file: enough to tell what a model is and how much memory it takes.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from llmsim_lab.errors import ModelFileError

__all__ = ["GGUFHeader", "read_header"]

_NUMBERS: Mapping[int, str] = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_LONGEST_TEXT = 1 << 24
_LONGEST_ARRAY = 1 << 20
_BYTES_PER_NUMBER = 2
"""Keys and values are kept as 16-bit floats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFHeader:
    """What a GGUF file says of its model; None where it does not say.

    Attributes:
        architecture: such as ``llama`` or ``qwen2``.
        name: as its makers gave it.
        context_length: the longest context it was trained for, tokens.
        cache_bytes_per_token: memory that each token of context takes.
    """

    architecture: str | None
    name: str | None
    context_length: int | None
    cache_bytes_per_token: int | None


def read_header(path: Path) -> GGUFHeader:
    """Read the head of a model file.

    Raises:
        ModelFileError: the file cannot be read, is no GGUF file, or is damaged at its head.
    """
    try:
        with path.open("rb") as file:
            start = file.read(4)
            if start != b"GGUF":
                raise ModelFileError(
                    f"{path} is not a GGUF file: it begins with {start!r}, not b'GGUF'; give a "
                    "model in that format (other weights can be converted with llama.cpp)"
                )
            values = _read_values(file)
    except (struct.error, UnicodeDecodeError, _DamagedError) as error:
        raise ModelFileError(
            f"{path} is damaged or of an unknown GGUF version ({error}); fetch it again"
        ) from error
    except OSError as error:
        raise ModelFileError(f"cannot read the model file {path}: {error.strerror}") from error
    architecture = values.get("general.architecture")

    def number(key: str) -> int | None:
        value = values.get(f"{architecture}.{key}")
        return value if isinstance(value, int) else None

    return GGUFHeader(
        architecture=architecture,
        name=values.get("general.name"),
        context_length=number("context_length"),
        cache_bytes_per_token=_cache_bytes_per_token(number),
    )


class _DamagedError(Exception):
    """A value in the head makes no sense."""


def _cache_bytes_per_token(number: Callable[[str], int | None]) -> int | None:
    layers, width, heads = (
        number(key) for key in ("block_count", "embedding_length", "attention.head_count")
    )
    if not layers or not width or not heads:
        return None
    shared_heads = number("attention.head_count_kv") or heads
    key_width = number("attention.key_length") or width // heads
    value_width = number("attention.value_length") or width // heads
    return layers * shared_heads * (key_width + value_width) * _BYTES_PER_NUMBER


def _read_values(file: BinaryIO) -> dict[str, Any]:
    version, _tensors, count = _unpack(file, "<IQQ")
    if version not in (2, 3):
        raise _DamagedError(f"version {version}")
    values: dict[str, Any] = {}
    for _ in range(count):
        key = _text(file)
        if key.startswith("tokenizer."):
            break  # long lists, and what matters here stands before them
        (kind,) = _unpack(file, "<I")
        values[key] = _value(file, kind)
    return values


def _unpack(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _text(file: BinaryIO) -> str:
    (length,) = _unpack(file, "<Q")
    if length > _LONGEST_TEXT:
        raise _DamagedError(f"a text of {length} bytes")
    content: bytes = file.read(length)
    return content.decode()


def _value(file: BinaryIO, kind: int) -> Any:
    if kind in _NUMBERS:
        return _unpack(file, _NUMBERS[kind])[0]
    if kind == _STRING:
        return _text(file)
    if kind != _ARRAY:
        raise _DamagedError(f"a value of type {kind}")
    item_kind, length = _unpack(file, "<IQ")
    if length > _LONGEST_ARRAY or item_kind == _ARRAY:
        raise _DamagedError(f"a list of {length} values of type {item_kind}")
    return [_value(file, item_kind) for _ in range(length)]
