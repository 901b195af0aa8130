"""Which models an Ollama server has, and which one to take where none was named."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import ollama

from llmsim_lab.llm.ollama.wire import is_loopback, parse_host
from llmsim_lab.logs import log_event

__all__ = [
    "InstalledModel",
    "OllamaProbe",
    "can_chat",
    "candidates",
    "context_length",
    "full_name",
    "installed",
    "probe",
]

logger = logging.getLogger(__name__)


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
            name=model.model or "",
            digest=model.digest,
            size_bytes=int(model.size or 0),
            modified_at=model.modified_at,
        )
        for model in response.models
    ]
    return sorted(models, key=lambda model: model.modified_at or oldest, reverse=True)


def candidates(loaded: ollama.ProcessResponse, models: Iterable[InstalledModel]) -> list[str]:
    """Return the models to consider, in order: loaded ones, then those pulled last."""
    names = [model.model or "" for model in loaded.models] + [model.name for model in models]
    return list(dict.fromkeys(names))


def can_chat(shown: ollama.ShowResponse) -> bool:
    """Whether a model completes text; one without a list of capabilities is taken to."""
    return shown.capabilities is None or "completion" in shown.capabilities


def context_length(shown: ollama.ShowResponse) -> int | None:
    """Return the longest context a model was trained for, tokens; None where it is not told."""
    details = shown.modelinfo or {}
    lengths = (int(value) for key, value in details.items() if key.endswith(".context_length"))
    return next(lengths, None)


def probe(host: str | None = None, *, timeout_s: float = 1.0) -> OllamaProbe | None:
    """Look whether an Ollama server answers, and what it has; None if none does.

    Args:
        host: the server; by default ``$OLLAMA_HOST``, else the usual local one.
        timeout_s: how long each of the few requests may take, seconds.

    Raises:
        ConfigError: the host's name makes no sense.
    """
    url = parse_host(host)
    trust_env = not is_loopback(url)
    try:
        with httpx.Client(base_url=url, timeout=timeout_s, trust_env=trust_env) as client:

            def get(path: str, model: str | None = None) -> dict[str, Any]:
                answer = client.post(path, json={"model": model}) if model else client.get(path)
                return dict(answer.raise_for_status().json())

            version = str(get("/api/version")["version"])
            models = installed(ollama.ListResponse(**get("/api/tags")))
            names = candidates(ollama.ProcessResponse(**get("/api/ps")), models)
            shown = ((name, ollama.ShowResponse(**get("/api/show", name))) for name in names)
            chosen = next((name for name, details in shown if can_chat(details)), None)
    # The last three: something answers, but not in Ollama's form.
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        log_event(logger, logging.DEBUG, "ollama_probe", host=url, found=False, detail=repr(error))
        return None
    known = tuple(model.name for model in models)
    return OllamaProbe(host=url, version=version, models=known, model=chosen)
