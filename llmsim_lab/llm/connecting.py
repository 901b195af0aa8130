"""Choose a model, and report which one and why."""

from __future__ import annotations

import sys
from typing import Any

from llmsim_lab._util.text import listed
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm._access import Key, without_locals, without_password
from llmsim_lab.llm._config import LLMConfig
from llmsim_lab.llm._embedded.backend import EmbeddedBackend, is_file, runtime_installed
from llmsim_lab.llm._embedded.weights import default_model, get_model, installed_models
from llmsim_lab.llm._http import run_aside
from llmsim_lab.llm._ollama import SUGGESTED_MODEL, OllamaBackend, OllamaProbe, full_name, look
from llmsim_lab.llm._openai import OpenAIBackend, only_one
from llmsim_lab.llm.client import LLMClient
from llmsim_lab.types import ChatBackend

_SPECS = (
    "'auto', 'ollama', 'ollama:NAME', 'openai:NAME', 'embedded', 'embedded:NAME' or "
    "'embedded:/path/to/model.gguf'"
)
_GET = "pip install 'llmsim-lab[embedded]'"
_MAY_BE_THERE_S = 1.0
"""How long an Ollama that was not named may take for each answer."""


@without_locals
def connect(
    model: str = "auto",
    *,
    host: str | None = None,
    base_url: str | None = None,
    key: Key | None = None,
    api_key: Key | None = None,
    config: LLMConfig | None = None,
    download: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> LLMClient:
    """Return a client for a model; one line on standard error says what was chosen and why.

    ``auto`` takes Ollama, if it answers and has a model; else the embedded model, if its runtime is
    installed and its weights are here.

    Args:
        model: ``auto``, ``ollama`` (the model in use there), ``ollama:NAME``, ``openai:NAME`` (on a
            server that speaks OpenAI's protocol, such as vLLM; ``openai`` takes its only model),
            ``embedded`` (the one that suits this machine), ``embedded:NAME``, or
            ``embedded:/path/to/model.gguf``. The embedded models are for trying the tool, not for
            findings.
        host: Ollama's address; ``$OLLAMA_HOST`` if not given, else this machine. It may have a user
            name and password, ``http://NAME:PASSWORD@box``.
        base_url: for ``openai:``, the server's address with its ``/v1`` (``host`` may say it too);
            ``$OPENAI_BASE_URL`` if not given, else OpenAI's own.
        key: for ``ollama`` and ``openai:``, the server's key or a function that returns it;
            ``$OLLAMA_API_KEY`` or ``$OPENAI_API_KEY`` if not given. Neither a key nor a password is
            recorded, logged or shown.
        api_key: the same, by the name that OpenAI's own client has for it.
        config: further settings; its own ``model`` is ignored.
        download: whether to fetch a model that is not there yet: an embedded one, or by Ollama.
        quiet: whether to leave the line out; it is the client's ``chosen`` in any case.
        settings: single settings of ``LLMConfig``, for example ``temperature=0, seed=7``.

    Raises:
        ConfigError: the text is not understood, no server answers, the server lacks the model, or
            a setting is wrong; the message has the ways out.
        ModelFileError: the embedded model's weights are missing or cannot be fetched.
    """
    config = LLMConfig(**((config.model_dump() if config else {}) | settings))
    kind, _, name = map(str.strip, model.partition(":"))
    kind = kind.lower()
    if kind not in _ADDRESSES or (kind == "auto" and name):
        shown = without_password(model)
        text = f"model {shown!r} is not understood; say {_SPECS}"
        raise ConfigError(f"{text}. For a model of Ollama's: 'ollama:{shown}'")
    address = {"host": host, "base_url": base_url, "key": key, "api_key": api_key}
    given = [one for one, value in address.items() if value is not None]
    if stray := [one for one in given if one not in _ADDRESSES[kind]]:
        raise ConfigError(
            f"{stray[0]}= does not go with {kind!r}: host= is Ollama's address; base_url= goes "
            "with 'openai:NAME' only, which 'auto' never takes, as it may cost money; key= goes "
            "with 'ollama', 'ollama:NAME' and 'openai:NAME', so that it goes to no other server"
        )
    if host is not None and base_url is not None:
        addresses = [without_password(address) for address in (host, base_url)]
        raise ConfigError(
            f"host={addresses[0]!r} and base_url={addresses[1]!r} are two addresses; give base_url="
            " only"
        )
    if key is not None and api_key is not None:
        raise ConfigError("key= and api_key= are one; give key= only")
    key = api_key if key is None else key
    try:
        if kind == "auto":
            name, backend, chosen = _auto(host, config, download=download)
        elif kind == "ollama":
            name, backend, chosen = _ollama(name, host, key, look(host, key=key), download=download)
        elif kind == "openai":
            name, backend, chosen = _openai(name, base_url or host, key)
        else:
            name, backend, chosen = _embedded(name, config, download=download)
    except BackendError as error:
        instead = ", or use connect('embedded')" if kind == "ollama" else ""
        raise ConfigError(f"{error}{instead}") from error
    config = config.model_copy(update={"model": name})
    if not quiet:
        sys.stderr.write(f"{chosen}\n")
    return LLMClient(config, backend, chosen=chosen)


_ADDRESSES = {
    "auto": ("host",),
    "ollama": ("host", "key", "api_key"),
    "openai": ("base_url", "host", "key", "api_key"),
    "embedded": (),
}
"""What may be given of a server's address, by the kind of model."""
CONNECTED = ("ollama", "openai", "embedded")
"""Backends that a text names a model of."""
Found = tuple[str, ChatBackend, str]
"""A model's name, its backend, and what was chosen and why."""


def _auto(host: str | None, config: LLMConfig, *, download: bool) -> Found:
    try:
        return _ollama("", host, None, look(host, timeout_s=_MAY_BE_THERE_S))
    except BackendError as error:
        why = str(error)
    if runtime_installed() and (download or installed_models()):
        # Of why there is no Ollama without the ways out, which are not needed now.
        return _embedded("", config, why.partition(";")[0], download=download)
    raise ConfigError(
        f"no model was found: {why}. Three ways to get one: an Ollama server with a model "
        f"('ollama pull {SUGGESTED_MODEL}') at OLLAMA_HOST or host=; an embedded model: {_GET}, "
        f"then 'llmsim-lab model get'; or name a model, as {_SPECS}"
    )


def _ollama(
    name: str, host: str | None, key: Key | None, found: OllamaProbe, *, download: bool = False
) -> Found:
    is_missing = name and full_name(name) not in map(full_name, found.models)
    if is_missing and download:
        sys.stderr.write(f"Ollama at {found.host} fetches {name} …\n")
        run_sync(OllamaBackend(host=host, key=key).pull(name))
    elif is_missing:
        known = listed(found.models) or "none"
        text = f"Ollama at {found.host} has no model {name!r}; it has: {known}"
        raise ConfigError(f"{text}. 'ollama pull {name}' gets it")
    why = "" if name else f": {found.why}"
    name = name or found.chosen()
    chosen = f"Using {name} on Ollama {found.version} at {found.host}{why}."
    return name, OllamaBackend(name, host=host, key=key), chosen


def _openai(name: str, base_url: str | None, key: Key | None) -> Found:
    backend = OpenAIBackend(name or None, base_url=base_url, api_key=key)
    names = run_aside(backend.names())
    name = name or only_one(names, backend.base_url)
    known = f", which lists {listed(names)}" if names and name not in names else ""
    return name, backend, f"Using {name} on the server at {backend.base_url}{known}."


def _embedded(name: str, config: LLMConfig, why: str = "", *, download: bool) -> Found:
    if not runtime_installed():
        raise ConfigError(f"the embedded model needs its runtime: {_GET}")
    if not name:
        name, note = default_model()
        here = installed_models()
        if name not in here and here and not download:
            name, note = here[0], f"{name} would suit this machine but is not here"
        why = "; ".join(filter(None, (why, note)))
    chosen = f"Using the embedded model {name}{f': {why}' if why else ''}."
    if not is_file(name):
        if download:
            get_model(name)
        chosen += (
            " It is for trying the tool, not for findings: 'ollama pull "
            f"{SUGGESTED_MODEL}' gets a larger one for 'ollama:{SUGGESTED_MODEL}'."
        )
    return name, EmbeddedBackend(name, num_ctx=config.num_ctx), chosen
