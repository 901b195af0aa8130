"""Whether a model fits this machine: what its file says, and what memory and processor there are.

Of a GGUF file only the head is read, in well under a millisecond, with a limit on every length,
since the file is untrusted. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md,
versions 2 and 3, little-endian. llama.cpp's own reader (the package ``gguf``) makes an array of
every token of the vocabulary, which takes seconds, and has no limits.
"""

from __future__ import annotations

import os
import platform
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from llmsim_lab.errors import ConfigError, ModelFileError

_CGROUP = Path("/sys/fs/cgroup")
_PROCESSORS = Path("/proc/cpuinfo")

_NUMBERS = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""How ``struct`` calls the types of numbers."""
_STRING, _ARRAY = 8, 9
_LONGEST_TEXT = 1 << 24
_LONGEST_ARRAY = 1 << 20
_BYTES_PER_NUMBER = 2
"""Keys and values are kept as 16-bit floats."""


def available_memory_bytes(*, cgroup: Path = _CGROUP) -> int:
    """Return how much memory a new process can have; a container's own limit counts."""
    import psutil

    free = int(psutil.virtual_memory().available)  # of the host, also inside a container
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used))
    return free


def check_memory(needed_bytes: int, *, model: str, free_bytes: int | None = None) -> None:
    """Check that a model fits.

    Raises:
        ModelFileError: less memory is free than the model needs.
    """
    free = available_memory_bytes() if free_bytes is None else free_bytes
    if needed_bytes > free:
        raise ModelFileError(
            f"{model} needs about {needed_bytes / 1e9:.1f} GB of memory but "
            f"{free / 1e9:.1f} GB is free; close other programs, lower num_ctx, or take a "
            "smaller model ('llmsim-lab model ls')"
        )


def usable_cores(*, cgroup: Path = _CGROUP) -> int:
    """Return how many cores this process may use: physical ones, within the limits set for it."""
    import psutil

    counts = [psutil.cpu_count(logical=False), os.cpu_count()]
    if hasattr(os, "sched_getaffinity"):
        counts.append(len(os.sched_getaffinity(0)))
    try:
        quota, _, period = (cgroup / "cpu.max").read_text().partition(" ")
        counts.append(int(quota) // int(period))
    except (OSError, ValueError):
        counts.append(None)  # no limit there, or no such file
    return max(1, min(count for count in counts if count is not None))


def check_processor(*, processors: Path = _PROCESSORS, machine: str | None = None) -> None:
    """Check that the runtime would not crash on this x86 processor, as far as Linux tells.

    Raises:
        ConfigError: it has no AVX2.
    """
    if (machine or platform.machine()).lower() not in ("x86_64", "amd64"):
        return
    if not sys.platform.startswith("linux") or not processors.exists():
        return
    text = processors.read_text(errors="replace")
    flags = next((line for line in text.splitlines() if line.startswith("flags")), None)
    if flags is not None and "avx2" not in flags.split():
        raise ConfigError(
            "the embedded model's runtime needs a processor with AVX2, and this one has none; "
            "run Ollama, here or on another machine, and connect('ollama', host=...)"
        )


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # "max", or no such file


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFHeader:
    """What a GGUF file says of its model; None where it does not say.

    Attributes:
        context_length: the longest context it was trained for, tokens.
        cache_bytes_per_token: memory that each token of context takes.
    """

    context_length: int | None
    cache_bytes_per_token: int | None


def read_header(path: Path) -> GGUFHeader:
    """Read the head of a model file.

    Raises:
        ModelFileError: the file cannot be read, is not a GGUF file, or its head is damaged.
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
    except (struct.error, ValueError) as error:  # the latter also of text that is not UTF-8
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
        context_length=number("context_length"),
        cache_bytes_per_token=_cache_bytes_per_token(number),
    )


def _cache_bytes_per_token(number: Callable[[str], int | None]) -> int | None:
    layers, width, heads = (
        number(key) for key in ("block_count", "embedding_length", "attention.head_count")
    )
    if not layers or not width or not heads:
        return None
    # Grouped-query attention: several heads share one head of keys and values.
    shared_heads = number("attention.head_count_kv") or heads
    key_width = number("attention.key_length") or width // heads
    value_width = number("attention.value_length") or width // heads
    return layers * shared_heads * (key_width + value_width) * _BYTES_PER_NUMBER


def _read_values(file: BinaryIO) -> dict[str, Any]:
    version, _tensors, count = _unpack(file, "<IQQ")
    if version not in (2, 3):
        raise ValueError(f"version {version}")
    values: dict[str, Any] = {}
    for _ in range(count):  # any count: reading past the end of the file raises
        key = _text(file)
        if key.startswith("tokenizer."):
            break  # long lists come here, and what matters stands before them
        (type_id,) = _unpack(file, "<I")
        values[key] = _value(file, type_id)
    return values


def _unpack(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _text(file: BinaryIO) -> str:
    (length,) = _unpack(file, "<Q")
    if length > _LONGEST_TEXT:
        raise ValueError(f"a text of {length} bytes")
    content: bytes = file.read(length)
    return content.decode()


def _value(file: BinaryIO, type_id: int) -> Any:
    if type_id in _NUMBERS:
        return _unpack(file, f"<{_NUMBERS[type_id]}")[0]
    if type_id == _STRING:
        return _text(file)
    if type_id != _ARRAY:
        raise ValueError(f"a value of type {type_id}")
    item_type, length = _unpack(file, "<IQ")
    # Arrays of arrays are valid GGUF, but a file made for harm could nest them without end.
    if length > _LONGEST_ARRAY or item_type == _ARRAY:
        raise ValueError(f"a list of {length} values of type {item_type}")
    return [_value(file, item_type) for _ in range(length)]
