"""What an Ollama server's errors mean: which kind of failure, and whether to try again."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import ollama

from llmsim_lab.errors import BackendError
from llmsim_lab.llm.transport import error_text, read_json

__all__ = [
    "context_overflow",
    "fault_of",
    "lost_connection",
    "no_thinking",
    "not_understood",
    "translated",
]

_WRONG_REQUEST = re.compile(
    r"option \".*\" must be of type|option \".*\" must be of an array|invalid format:"
    r"|invalid JSON schema in format|failed to parse grammar",
    re.IGNORECASE,
)
"""What older and newer servers answer with status 500 although the request itself is at fault."""
_OVERFLOW = re.compile(
    r"exceeds the available context size|exceeds (?:the )?(?:maximum )?context length"
    r"|exceed_context_size_error",
    re.IGNORECASE,
)
_MAX_TEXT = 500


def _unwrap(error: Any) -> tuple[str, dict[str, Any]]:
    """Return the innermost text of an error, and the JSON object it stood in."""
    details: dict[str, Any] = {}
    while True:
        if isinstance(error, str) and error.lstrip().startswith("{"):
            try:
                error = read_json(error)
            except ValueError:
                return error, details
        if not isinstance(error, dict):
            return str(error).strip(), details
        details = error
        error = error.get("error") or error.get("message") or json.dumps(error)
        if error == json.dumps(details):
            return str(error), details


def no_thinking(error: ollama.ResponseError) -> bool:
    """Whether the server refuses ``think`` because the model cannot."""
    return error.status_code == 400 and "does not support thinking" in str(error.error)


def context_overflow(
    prompt: str, num_ctx: int | None, *, what: str = "", status_code: int | None = None
) -> BackendError:
    """Return the failure of a prompt that does not fit.

    Args:
        prompt: how long the prompt is, in words.
        num_ctx: the window it does not fit.
        what: how that showed.
        status_code: the HTTP status, where there was one.
    """
    window = f"num_ctx={num_ctx}" if num_ctx is not None else "the context window"
    shown = f" ({what})" if what else ""
    return BackendError(
        f"the prompt has {prompt}, more than {window} can hold{shown}; raise LLMConfig.num_ctx, "
        "up to what the model was trained for, or shorten the prompt",
        reason="context_overflow",
        status_code=status_code,
    )


def fault_of(
    error: ollama.ResponseError, *, model: str, host: str, num_ctx: int | None, chars: int
) -> BackendError:
    """Turn an error the server reported into a failure of ours.

    Args:
        error: what the official client raised.
        model: the model asked for.
        host: the server.
        num_ctx: the context asked for.
        chars: the prompt's length in characters.
    """
    status = error.status_code if error.status_code >= 100 else None
    text, details = _unwrap(error.error)
    text = error_text(text)[:_MAX_TEXT]  # once more, since it may have come out of JSON just now
    if _OVERFLOW.search(text) or details.get("type") == "exceed_context_size_error":
        tokens, window = details.get("n_prompt_tokens"), details.get("n_ctx")
        prompt = f"{tokens} tokens" if type(tokens) is int else f"{chars} characters"
        return context_overflow(
            prompt, window if type(window) is int else num_ctx, what=text, status_code=status
        )
    where = f"Ollama at {host}"
    shown = text or "no explanation"
    if status == 404 and "model" in text:
        return BackendError(
            f"model {model!r} is not on {where}; get it with: ollama pull {model}",
            reason="model_not_found",
            status_code=status,
        )
    if status == 404:
        shown += "; is this the address of an Ollama server?"
    if status == 403 and not text:
        shown = "it refuses this host name or origin; see its setting OLLAMA_ORIGINS"
    if status == 429:
        return BackendError(
            f"{where} limits the rate: {shown}",
            reason="rate_limited",
            status_code=status,
            retry=True,
        )
    if (status is not None and status < 500) or _WRONG_REQUEST.search(text):
        return BackendError(
            f"{where} refuses the request for {model!r}: {shown}",
            reason="client_error",
            status_code=status,
        )
    return BackendError(
        f"{where} failed on {model!r}: {shown}",
        reason="server_error",
        status_code=status,
        retry=True,
    )


def lost_connection(error: ConnectionError | httpx.TransportError, *, host: str) -> BackendError:
    """Return the failure of a connection that could not be made, or broke."""
    # The official client makes a plain ConnectionError of a ConnectError, and of nothing else.
    refused = isinstance(error, httpx.ConnectError) or type(error) is ConnectionError
    if refused and (fault := _tls_fault(error)) is not None:
        return BackendError(_tls_text(fault, host), reason="connection_error")
    if refused:
        text = (
            f"no Ollama server answers at {host}; start it with: ollama serve, or set OLLAMA_HOST"
        )
    elif isinstance(error, httpx.TimeoutException):
        text = f"nothing answered in time at {host}; see that an Ollama server runs there"
    else:
        detail = error_text(str(error)) or type(error).__name__
        text = f"the connection to Ollama at {host} broke: {detail}"
    if host.startswith("https:") and (refused or isinstance(error, httpx.ConnectTimeout)):
        text += f"; if it speaks plain http, write {_plain(host)}"
    return BackendError(text, reason="connection_error", retry=True)


def _plain(host: str) -> str:
    return host.replace("https:", "http:", 1)


def _tls_fault(error: BaseException | None) -> ssl.SSLError | None:
    """Return what went wrong with TLS; the libraries in between put their own errors on top."""
    waiting = (ssl.SSLWantReadError, ssl.SSLWantWriteError)  # every read over TLS raises those
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, waiting):
            return error
        error = error.__cause__ or error.__context__
    return None


def _tls_text(fault: ssl.SSLError, host: str) -> str:
    if isinstance(fault, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {host} is not trusted ({fault.verify_message}); name the file "
            "of your own authority's certificate in SSL_CERT_FILE"
        )
    return (
        f"{host} does not answer in TLS ({fault.reason or fault}); if it speaks plain http, as "
        f"Ollama itself does, write {_plain(host)}"
    )


@contextmanager
def translated(model: str, *, host: str) -> Iterator[None]:
    """Turn what the clients raise in requests about models into failures of ours."""
    try:
        yield
    except ollama.ResponseError as error:
        raise fault_of(error, model=model, host=host, num_ctx=None, chars=0) from error
    except (ConnectionError, httpx.TransportError) as error:
        raise lost_connection(error, host=host) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise not_understood(error, host=host) from error


def not_understood(error: Exception, *, host: str) -> BackendError:
    """Return the failure of an answer that is not what Ollama's protocol says."""
    detail = error_text(f"{type(error).__name__}: {error}")[:_MAX_TEXT]
    return BackendError(
        f"the answer of {host} is not valid JSON of Ollama's form ({detail})",
        reason="server_error",
        status_code=200,
        retry=True,
    )
