"""Which models an Ollama server has, and which one to take where none was named."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import ollama

from llmsim_lab.errors import BackendError
from llmsim_lab.llm.ollama.faults import translated
from llmsim_lab.llm.ollama.wire import Clients, parse_host
from llmsim_lab.llm.transport import count
from llmsim_lab.logs import log_event
from llmsim_lab.text import clip, printable

__all__ = [
    "SUGGESTED_MODEL",
    "InstalledModel",
    "OllamaProbe",
    "context_length",
    "full_name",
    "in_use",
    "installed",
    "look",
    "probe",
    "version_of",
]

logger = logging.getLogger(__name__)

SUGGESTED_MODEL = "llama3.1:8b"
"""What to pull where there is no model, or only a very small one; 4.9 GB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledModel:
    """A model on the server.

    Attributes:
        name: with its tag.
        digest: hash of its manifest.
        size_bytes: on the server's disk.
        modified_at: when it was pulled or made; None where the server does not tell.
    """

    name: str
    digest: str | None
    size_bytes: int
    modified_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaProbe:
    """What a quick look at a server found.

    Attributes:
        host: its URL.
        version: its version.
        models: the names of all models, the one pulled last first.
        model: the one that is taken where none is named, or None if none can chat.
    """

    host: str
    version: str
    models: tuple[str, ...]
    model: str | None


def full_name(name: str) -> str:
    """Return a model's name for comparing: lower case, with its tag."""
    name = name.lower()
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def installed(response: ollama.ListResponse) -> list[InstalledModel]:
    """Return the models of a listing, the one pulled last first."""
    oldest = datetime.min.replace(tzinfo=UTC)
    models = [
        InstalledModel(
            name=printable(model.model or ""),
            digest=printable(model.digest) if model.digest else None,
            size_bytes=int(model.size or 0),
            modified_at=model.modified_at,
        )
        for model in response.models
    ]
    return sorted(models, key=lambda model: model.modified_at or oldest, reverse=True)


async def in_use(clients: Clients, models: Iterable[InstalledModel]) -> str | None:
    """Return the model to take where none is named: a loaded one, else the one pulled last.

    None where no model completes text; one without a list of capabilities is taken to.
    """
    loaded = [printable(model.model or "") for model in (await clients.chat.ps()).models]
    for name in dict.fromkeys(loaded + [model.name for model in models]):
        capabilities = (await clients.chat.show(name)).capabilities
        if capabilities is None or "completion" in capabilities:
            return name
    return None


def context_length(shown: ollama.ShowResponse) -> int | None:
    """Return the longest context a model was trained for, tokens, where the server tells.

    Raises:
        ValueError: it is not a number of tokens.
    """
    for key, value in (shown.modelinfo or {}).items():
        if key.endswith(".context_length"):
            return count(value, key)
    return None


async def version_of(clients: Clients) -> str:
    """Return the server's version.

    Raises:
        ValueError: the server names none.
    """
    version = (await clients.http.get("/api/version")).json().get("version")
    if not isinstance(version, str):
        raise ValueError(f"the version is {clip(repr(version), 60)}")
    return clip(printable(version), 40)


def look(host: str | None = None, *, timeout_s: float = 1.0) -> OllamaProbe:
    """Return what an Ollama server has.

    Args:
        host: the server; by default ``$OLLAMA_HOST``, else the usual local one.
        timeout_s: how long each of the few requests may take, seconds.

    Raises:
        ConfigError: the host's name makes no sense.
        BackendError: no server answers there, or not in Ollama's form; the message says which.
    """
    url = parse_host(host)
    # In a thread of its own, since the caller's may be running an event loop already.
    with ThreadPoolExecutor(1, thread_name_prefix="llmsim-lab-look") as thread:
        return thread.submit(asyncio.run, _look(url, timeout_s)).result()


async def _look(url: str, timeout_s: float) -> OllamaProbe:
    clients = Clients.open(url, timeout_s=timeout_s)
    try:
        with translated("", host=url):
            version = await version_of(clients)
            models = installed(await clients.chat.list())
            chosen = await in_use(clients, models)
    finally:
        await clients.aclose()
    known = tuple(model.name for model in models)
    return OllamaProbe(host=url, version=version, models=known, model=chosen)


def probe(host: str | None = None, *, timeout_s: float = 1.0) -> OllamaProbe | None:
    """Look whether an Ollama server answers, and what it has; None if none does.

    Args:
        host: the server; by default ``$OLLAMA_HOST``, else the usual local one.
        timeout_s: how long each of the few requests may take, seconds.

    Raises:
        ConfigError: the host's name makes no sense.
    """
    try:
        return look(host, timeout_s=timeout_s)
    except BackendError as error:
        log_event(logger, logging.DEBUG, "ollama_probe", found=False, detail=str(error))
        return None
