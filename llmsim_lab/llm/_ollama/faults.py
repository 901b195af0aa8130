"""What an Ollama server's errors mean: which kind of failure, and whether to try again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import ollama

from llmsim_lab.errors import BackendError
from llmsim_lab.llm._connections import clear_locals, connection_fault, not_understood, status_fault
from llmsim_lab.llm._ollama.wire import ChatExchange
from llmsim_lab.llm._retry import context_overflow
from llmsim_lab.llm._transport import error_text, unwrapped

_WRONG_REQUEST = re.compile(
    r"option \".*\" must be of type|option \".*\" must be of an array|invalid format:"
    r"|invalid JSON schema in format|failed to parse grammar",
    re.IGNORECASE,
)
"""Errors with status 500, of older and newer servers, that the request itself causes."""
_OVERFLOW = re.compile(
    r"exceeds the available context size|exceeds (?:the )?(?:maximum )?context length"
    r"|exceed_context_size_error",
    re.IGNORECASE,
)
_MAX_TEXT = 500


def no_thinking(error: ollama.ResponseError) -> bool:
    """Return True if the server rejects ``think`` because the model cannot think."""
    return error.status_code == 400 and "does not support thinking" in str(error.error)


def is_overflow(error: ollama.ResponseError) -> bool:
    """Return True if the server says that the prompt does not fit."""
    text, details = unwrapped(error.error)
    return bool(_OVERFLOW.search(text)) or details.get("type") == "exceed_context_size_error"


def fault_of(
    error: ollama.ResponseError,
    *,
    model: str,
    host: str,
    num_ctx: int | None,
    chars: int,
    trained: int | None = None,
) -> BackendError:
    """Turn an error the server reported into a failure of ours.

    Args:
        error: what the official client raised.
        model: the model asked for.
        host: the server.
        num_ctx: the context asked for.
        chars: the prompt's length in characters.
        trained: the longest context the model was trained for, tokens, where known.
    """
    # The client has -1 for an error within a stream, whose own status was 200.
    status = error.status_code if error.status_code >= 100 else None
    text, details = unwrapped(error.error)
    text = error_text(text)[:_MAX_TEXT]  # again: escapes in the inner JSON were decoded just now
    if is_overflow(error):
        tokens, in_force = details.get("n_prompt_tokens"), details.get("n_ctx", num_ctx)
        in_force = in_force if type(in_force) is int else num_ctx
        prompt = f"{tokens} tokens" if type(tokens) is int else f"{chars} characters"
        if trained is None and in_force is not None and in_force < (num_ctx or 0):
            trained = in_force  # the server grants less than was asked for
        return context_overflow(
            prompt, num_ctx or in_force, trained=trained, what=text, status_code=status
        )
    where = f"Ollama at {host}"
    explanation = text or "no explanation"
    if status == 403 and not text:
        explanation = "it rejects this host name or origin; see its setting OLLAMA_ORIGINS"
    # A 404 is also what anything else than Ollama answers at that path.
    if status == 404 and "model" in text:
        return BackendError(
            f"model {model!r} is not on {where}; get it with: ollama pull {model}",
            reason="model_not_found",
            status_code=status,
        )
    if status == 404:
        return BackendError(
            f"{host} is not the address of an Ollama server, for it answers 404 ({explanation}); "
            "see that host, port and path are right",
            reason="client_error",
            status_code=status,
        )
    is_wrong = _WRONG_REQUEST.search(text) is not None
    return status_fault(status, explanation, who=where, model=model, is_wrong_request=is_wrong)


def lost_connection(error: ConnectionError | httpx.TransportError, *, host: str) -> BackendError:
    """Return the failure of a connection that could not be made, or broke."""
    start = "start it with: ollama serve, or set OLLAMA_HOST"
    # The official client makes a plain ConnectionError of a ConnectError, and of nothing else.
    not_made = isinstance(error, httpx.ConnectError) or type(error) is ConnectionError
    return connection_fault(
        error, url=host, who="Ollama", kind="Ollama server", not_made=not_made, way_out=start
    )


@contextmanager
def translated(model: str, *, host: str, extra: ChatExchange | None = None) -> Iterator[None]:
    """Turn what the clients raise in requests about models into failures of ours.

    Args:
        model: the model asked for.
        host: the server.
        extra: of a chat request, what says whether it was sent.
    """
    try:
        try:
            yield
        except BaseException as error:
            clear_locals(error)  # those of the HTTP client have the password of a proxy
            raise
    except ollama.ResponseError as error:
        raise fault_of(error, model=model, host=host, num_ctx=None, chars=0) from error
    except (ConnectionError, httpx.TransportError) as error:
        raise lost_connection(error, host=host) from error
    except (ValueError, TypeError, AttributeError) as error:
        sent = extra is None or extra.sent
        raise not_understood(error, url=host, form="Ollama's", model=model, sent=sent) from error
