"""Choose a model, and report which one and why."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from llmsim_lab._util.checks import text_argument
from llmsim_lab._util.text import brief, clip, listed
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm._access import Key, without_locals, without_password
from llmsim_lab.llm._config import LLMConfig
from llmsim_lab.llm._http import run_aside
from llmsim_lab.llm.client import LLMClient
from llmsim_lab.llm.embedded.backend import EmbeddedBackend, is_file, runtime_installed
from llmsim_lab.llm.embedded.weights import default_model, get_model, installed_models
from llmsim_lab.llm.ollama import SUGGESTED_MODEL, OllamaBackend, OllamaProbe, full_name, look
from llmsim_lab.llm.openai import OpenAIBackend, only_one
from llmsim_lab.types import ChatBackend

_SPECS = (
    "'auto', 'ollama', 'ollama:NAME', 'openai:NAME', 'embedded', 'embedded:NAME' or "
    "'embedded:/path/to/model.gguf'"
)
_GET = "pip install 'llmsim-lab[embedded]'"
_MAY_BE_THERE_S = 1.0
"""How long to wait for each answer of an Ollama server that the user did not name."""
_IS_THERE_S = 5.0
"""The same for one that was named."""


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
    """Return a client for a model; a line on the standard error says which one, and why.

    ``auto`` takes Ollama if it answers and has a model; else the embedded model, if its runtime is
    installed and its weights are on this machine.

    Args:
        model: ``auto``, ``ollama`` (the model in use there), ``ollama:NAME``, ``openai:NAME`` (on a
            server with OpenAI's protocol, such as vLLM; ``openai`` takes its only model),
            ``embedded`` (the one that suits this machine), ``embedded:NAME``, or
            ``embedded:/path/to/model.gguf``. The embedded models are for trying the tool, not for
            findings.
        host: Ollama's address; ``$OLLAMA_HOST`` if not given, else this machine. It may contain a
            user name and password, ``http://NAME:PASSWORD@box``.
        base_url: for ``openai:``, the server's address with its ``/v1`` (``host`` may have it too);
            ``$OPENAI_BASE_URL`` if not given, else OpenAI's own.
        key: for ``ollama`` and ``openai:``, the server's key or a function that returns it;
            ``$OLLAMA_API_KEY`` or ``$OPENAI_API_KEY`` if not given. Neither a key nor a password is
            recorded, logged or shown.
        api_key: the same as ``key``; OpenAI's own client has this name for it.
        config: further settings; its own ``model`` is ignored.
        download: True to fetch a model that is not on this machine: an embedded one, or with
            Ollama.
        quiet: True to print no line; the client's ``chosen`` has its text anyway.
        settings: single settings of ``LLMConfig``, such as ``temperature=0, seed=7``. With
            ``repeatable=True`` the same seed gives the same words, as far as the server can do
            that.

    Raises:
        ConfigError: the text is not understood, no server answers, the server lacks the model, or
            a setting is wrong; the message has the ways out.
        ModelFileError: the embedded model's weights are missing or cannot be fetched.
    """
    text_argument("model", model)
    if not isinstance(config, LLMConfig | None):
        raise ConfigError(f"config={brief(config)} must be an LLMConfig")
    if config is not None:
        settings = config.model_dump() | settings
    # Not ``model_validate``: its error would show a key that is given under a misspelt name.
    config = LLMConfig(**settings)
    # Split at the first colon, since names of Ollama's models have one too: llama3.1:8b.
    kind, _, name = model.partition(":")
    kind = kind.strip().lower()
    name = name.strip()
    if kind not in _ADDRESSES or (kind == "auto" and name):
        # A text that was meant as a model may contain a password: "http://me:secret@box".
        shown = clip(without_password(model), 120)
        raise ConfigError(
            f"model {shown!r} is not understood; say {_SPECS}. For a model of Ollama's: "
            f"'ollama:{shown}'"
        )
    _check_address(
        kind,
        host=host,
        base_url=base_url,
        key=key,
        api_key=api_key,
    )
    # The name in OpenAI's own client, which users try first.
    key = api_key if key is None else key
    try:
        if kind == "auto":
            answering = _auto(host, config, download=download)
        elif kind == "ollama":
            probe = look(host, key=key)
            answering = _ollama(
                name,
                host,
                key,
                probe,
                download=download,
            )
        elif kind == "openai":
            answering = _openai(name, base_url or host, key)
        else:
            answering = _embedded(name, config, download=download)
    except BackendError as error:
        if kind == "ollama":
            raise ConfigError(f"{error}, or use connect('embedded')") from error
        raise ConfigError(str(error)) from error
    config = config.model_copy(update={"model": answering.name})
    chosen = answering.chosen
    if config.repeatable:
        chosen += f" {_repeatable_words(answering.backend)}"
    if not quiet:
        # Not by logging, which most notebooks turn off: which model answers matters there too.
        sys.stderr.write(f"{chosen}\n")
    return LLMClient(config, answering.backend, chosen=chosen)


_ADDRESSES = {
    "auto": ("host",),
    "ollama": ("host", "key", "api_key"),
    "openai": ("base_url", "host", "key", "api_key"),
    "embedded": (),
}
"""The parts of a server's address that each kind of model takes."""
CONNECTED = ("ollama", "openai", "embedded")
"""The backends whose models a text can name."""


class ChosenModel(NamedTuple):
    """The model that was chosen.

    Attributes:
        name: its name, as the backend knows it.
        backend: the backend that answers.
        chosen: the choice and its reason, in a sentence.
    """

    name: str
    backend: ChatBackend
    chosen: str


def _repeatable_words(backend: ChatBackend) -> str:
    """Return what ``repeatable=True`` does with a backend, and what it costs."""
    costs = (
        "Repeatable: one request at a time, and each prompt is read whole; the tokens that this "
        "costs are told by the run's report and its manifest()['prompts_read']."
    )
    if isinstance(backend, OllamaBackend):
        # Its llama_server.go sends "cache_prompt": true with each request (August 2026).
        return (
            "Repeatable as far as Ollama can: one request at a time. Its prompt cache stays on, "
            "so some replies still differ; start it with OLLAMA_NUM_PARALLEL=1, its default."
        )
    if isinstance(backend, OpenAIBackend):
        return (
            f"{costs} That is so on a llama.cpp server; vLLM repeats if it was started with "
            "VLLM_BATCH_INVARIANT=1, and hosted services promise nothing."
        )
    return costs


def _check_address(kind: str, **address: Key | None) -> None:
    """Raise ConfigError for parts of an address that do not go with the kind of model.

    Args:
        kind: of model: ``auto``, ``ollama``, ``openai`` or ``embedded``.
        address: what was given, by the names that ``connect`` has for it.
    """
    present = {name: value for name, value in address.items() if value is not None}
    for name in present:
        if name not in _ADDRESSES[kind]:
            raise ConfigError(
                f"{name}= does not go with {kind!r}: host= is Ollama's address; base_url= goes "
                "with 'openai:NAME' only, which 'auto' never takes, as it may cost money; key= "
                "goes with 'ollama', 'ollama:NAME' and 'openai:NAME', so that it goes to no other "
                "server"
            )
    if "host" in present and "base_url" in present:
        host = without_password(str(present["host"]))
        base_url = without_password(str(present["base_url"]))
        raise ConfigError(
            f"host={host!r} and base_url={base_url!r} are two addresses; give base_url= only"
        )
    if "key" in present and "api_key" in present:
        raise ConfigError("key= and api_key= are one; give key= only")


def _auto(
    host: str | None,
    config: LLMConfig,
    *,
    download: bool,
) -> ChosenModel:
    """Return the model of an Ollama that answers, else an embedded one."""
    # A server that was named is there, and may be busy.
    is_named = bool(host or os.environ.get("OLLAMA_HOST"))
    patience_s = _IS_THERE_S if is_named else _MAY_BE_THERE_S
    try:
        # Without a key: it is sent only to a server that the user named.
        return _ollama(
            "",
            host,
            None,
            look(host, timeout_s=patience_s),
        )
    except BackendError as error:
        # Said where the embedded model is taken instead: users who have an Ollama wonder.
        no_ollama = str(error)
    if runtime_installed() and (download or installed_models()):
        # Of why there is no Ollama without the ways out, which are not needed now.
        return _embedded(
            "",
            config,
            no_ollama.partition(";")[0],
            download=download,
        )
    raise ConfigError(
        f"no model was found: {no_ollama}. Three ways to get one: an Ollama server with a model "
        f"('ollama pull {SUGGESTED_MODEL}') at OLLAMA_HOST or host=; an embedded model: {_GET}, "
        f"then 'llmsim-lab model get'; or name a model, as {_SPECS}"
    )


def _ollama(
    name: str,
    host: str | None,
    key: Key | None,
    probe: OllamaProbe,
    *,
    download: bool = False,
) -> ChosenModel:
    """Return a model of an Ollama server; without a name the one that is in use there."""
    reason = ""
    if not name:
        name = probe.chosen()
        reason = f": {probe.reason}"
    # As Ollama completes it: ``llama3.2`` is ``llama3.2:latest``.
    elif full_name(name) not in map(full_name, probe.models):
        if not download:
            raise ConfigError(
                f"Ollama at {probe.host} has no model {name!r}; it has: "
                f"{listed(probe.models) or 'none'}. 'ollama pull {name}' gets it"
            )
        sys.stderr.write(f"Ollama at {probe.host} fetches {name} …\n")
        run_sync(OllamaBackend(host=host, key=key).pull(name))
    return ChosenModel(
        name=name,
        backend=OllamaBackend(name, host=host, key=key),
        chosen=f"Using {name} on Ollama {probe.version} at {probe.host}{reason}.",
    )


def _openai(
    name: str,
    base_url: str | None,
    key: Key | None,
) -> ChosenModel:
    """Return a model of a server that speaks OpenAI's protocol; without a name its only one."""
    # Asked for its models in any case: a misspelt address shows now and not at the first turn.
    backend = OpenAIBackend(
        name or None,
        base_url=base_url,
        api_key=key,
    )
    # On another loop: a notebook's own is busy with the cell that asks.
    names = run_aside(backend.names())
    name = name or only_one(names, backend.base_url)
    chosen = f"Using {name} on the server at {backend.base_url}"
    # A server may answer to names that it does not list; a misspelt one fails at the first call.
    if names and name not in names:
        chosen += f", which lists {listed(names)}"
    return ChosenModel(name, backend, f"{chosen}.")


def _embedded(
    name: str,
    config: LLMConfig,
    reason: str = "",
    *,
    download: bool,
) -> ChosenModel:
    """Return an embedded model; without a name one that suits this machine, or is here."""
    if not runtime_installed():
        raise ConfigError(f"the embedded model needs its runtime: {_GET}")
    if not name:
        name, note = default_model()
        installed = installed_models()
        if name not in installed and installed and not download:
            note = f"{name} would suit this machine but is not here"
            name = installed[0]
        reason = "; ".join(filter(None, (reason, note)))
    chosen = f"Using the embedded model {name}"
    if reason:
        chosen += f": {reason}"
    chosen += "."
    if not is_file(name):
        if download:
            get_model(name)
        chosen += (
            " It is for trying the tool, not for findings: 'ollama pull "
            f"{SUGGESTED_MODEL}' gets a larger one for 'ollama:{SUGGESTED_MODEL}'."
        )
    return ChosenModel(
        name,
        EmbeddedBackend(name, num_ctx=config.num_ctx),
        chosen,
    )
