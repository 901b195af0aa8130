"""What a fake Ollama answers: a pure function of a request, its models and its replies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from llmsim_lab.testing import _go
from llmsim_lab.testing._go import GoError, quote
from llmsim_lab.testing._http import Request, Response, error, json_response
from llmsim_lab.testing._ollama_chat import Answer, Refusal, answer_chat
from llmsim_lab.testing._ollama_checks import NAME, bad_format, check_options, parse_body
from llmsim_lab.testing._ollama_models import FakeModel, expiry, full_name

__all__ = ["FakeState"]

_KEEP_ALIVE = timedelta(minutes=5)
_DEFAULT_CTX = 4096
_ALLOWED_HEADERS = (
    "Authorization,Content-Type,User-Agent,Accept,X-Requested-With,Openai-Beta,"
    "X-Stainless-Arch,X-Stainless-Async,X-Stainless-Custom-Poll-Interval,"
    "X-Stainless-Helper-Method,X-Stainless-Lang,X-Stainless-Os,X-Stainless-Package-Version,"
    "X-Stainless-Poll-Helper,X-Stainless-Retry-Count,X-Stainless-Runtime,"
    "X-Stainless-Runtime-Version,X-Stainless-Timeout"
)
_GET, _POST = "GET", "POST"
_METHODS = {
    "/": _GET,
    "/api/version": _GET,
    "/api/tags": _GET,
    "/api/ps": _GET,
    "/api/show": _POST,
    "/api/chat": _POST,
}


@dataclass(slots=True)
class FakeState:
    """The server's models, its version, and how it replies."""

    models: tuple[FakeModel, ...]
    version: str
    reply: Callable[[dict[str, Any]], Any]
    knows_truncate: bool = True
    loaded: dict[str, tuple[datetime, int]] = field(default_factory=dict)
    """By full name: when it is unloaded, and the context it was loaded with."""

    @property
    def old(self) -> bool:
        """Whether the server speaks as before 0.30 (recorded: 0.24.0)."""
        return tuple(map(int, self.version.split(".")[:2])) < (0, 30)

    def answer(self, request: Request) -> Response:
        """Answer one request."""
        if not _is_local(request.headers.get("host", "")) or not _is_local(
            request.headers.get("origin", "")
        ):
            return Response(status=403)
        method = _METHODS.get(request.path)
        if method is None:
            return _plain(404, "404 page not found")
        if request.method == "OPTIONS" and "origin" in request.headers:
            return _preflight(request.headers["origin"], method)
        if request.method != method and not (request.method == "HEAD" and method == _GET):
            return _plain(405, "405 method not allowed", Allow=method)
        routes: dict[str, Callable[[Request], Response]] = {
            "/": lambda _: _plain(200, "Ollama is running", charset="; charset=utf-8"),
            "/api/version": lambda _: json_response({"version": self.version}),
            "/api/tags": lambda _: json_response(
                {"models": [model.as_tag(old=self.old) for model in self.models]}
            ),
            "/api/ps": lambda _: json_response({"models": self._loaded_models()}),
            "/api/show": self._show,
            "/api/chat": self._chat,
        }
        return routes[request.path](request)

    def find(self, name: str) -> FakeModel | None:
        """Return the model of that name, with or without its tag, in any case."""
        known = {full_name(model.name): model for model in self.models}
        return known.get(full_name(name))

    def context_of(self, model: FakeModel, options: Mapping[str, Any]) -> int:
        """Return the context a request gets: what it asks for, up to what the model has."""
        return min(int(options.get("num_ctx") or _DEFAULT_CTX), model.context_length)

    def _loaded_models(self) -> list[dict[str, Any]]:
        now = datetime.now(UTC)
        self.loaded = {name: entry for name, entry in self.loaded.items() if entry[0] > now}
        return [
            model.as_loaded(expires_at=entry[0], context_length=entry[1])
            for name, entry in self.loaded.items()
            if (model := self.find(name))
        ]

    def _show(self, request: Request) -> Response:
        body = json.loads(request.content or b"{}")
        name = body.get("model") or body.get("name")
        if not name:
            return error(400, "model is required")
        model = self.find(name)
        if model is None:
            shown = name if self.old else full_name(name)
            return error(404, f"model '{shown}' not found")
        return json_response(model.as_shown())

    def _chat(self, request: Request) -> Response:
        try:
            body = parse_body(request.content)
            if not self.knows_truncate:
                body = {key: body[key] for key in body if key not in ("truncate", "shift")}
            model = self._model_for(body)
            return self._answer_chat(request, body, model)
        except GoError as fault:
            return error(400, str(fault))
        except Refusal as refusal:
            if refusal.from_runner and body.get("stream") is not False:
                document = _go.dumps({"error": str(refusal)}).encode()
                headers = {"Content-Type": "application/json"}
                return Response(
                    status=refusal.status, headers=headers, chunks=(document,), chunked=True
                )
            return error(refusal.status, str(refusal))

    def _model_for(self, body: Mapping[str, Any]) -> FakeModel:
        """Return the model asked for, if it can do what is asked."""
        if not 0 <= (body.get("top_logprobs") or 0) <= 20:
            raise GoError("top_logprobs must be between 0 and 20")
        name = body.get("model") or ""
        if not name:
            raise GoError("model is required")
        if not NAME.fullmatch(name):
            raise GoError("invalid model name")
        model = self.find(name)
        if model is None and name.endswith(("-cloud", ":cloud")):
            raise Refusal(403, "ollama cloud is disabled: remote model is unavailable")
        if model is None:
            raise Refusal(404, f"model '{name}' not found")
        if body.get("tools") and "tools" not in model.capabilities:
            full = full_name(name)
            path = full if "/" in full else f"library/{full}"
            raise GoError(f"registry.ollama.ai/{path} does not support tools")
        if body.get("think") and "thinking" not in model.capabilities:
            raise GoError(f"{quote(name)} does not support thinking")
        if "completion" not in model.capabilities:
            raise GoError(f"{quote(name)} does not support chat")
        return model

    def _answer_chat(self, request: Request, body: dict[str, Any], model: FakeModel) -> Response:
        options = body.get("options") or {}
        messages = body.get("messages") or []
        keep_alive = body.get("keep_alive")
        lifetime = _KEEP_ALIVE if keep_alive is None else _go.parse_duration(keep_alive)
        key, num_ctx = full_name(model.name), 0
        if not messages and not lifetime:
            self.loaded.pop(key, None)
            return Answer(body["model"]).bare("unload")
        try:
            check_options(options)
        except GoError as fault:
            raise Refusal(500, str(fault)) from None
        num_ctx = self.context_of(model, options)
        fresh = self.loaded.get(key, (None, 0))[1] != num_ctx
        self.loaded[key] = (expiry(lifetime), num_ctx)
        if not messages:
            return Answer(body["model"]).bare("load")
        if complaint := bad_format(body.get("format"), request.content):
            raise Refusal(500, complaint, from_runner=True)
        if any(message.get("images") for message in messages) and not (
            self.old or "vision" in model.capabilities
        ):
            what = "Multimodal data provided, but model does not support multimodal requests."
            raise Refusal.nested(what, "invalid_request_error")
        return answer_chat(body, num_ctx=num_ctx, old=self.old, fresh=fresh, reply=self.reply)


def _is_local(url: str) -> bool:
    """Whether a Host or Origin header names this machine (or is absent)."""
    host = url.rpartition("://")[2].rsplit(":", 1)[0].strip("[]")
    return host in ("", "localhost", "0.0.0.0", "::1") or host.startswith("127.")


def _plain(status: int, text: str, charset: str = "", **headers: str) -> Response:
    kind = {"Content-Type": f"text/plain{charset}"}
    return Response(status=status, headers={**headers, **kind}, chunks=(text.encode(),))


def _preflight(origin: str, method: str) -> Response:
    headers = {
        "Access-Control-Allow-Headers": _ALLOWED_HEADERS,
        "Access-Control-Allow-Methods": "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS",
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Max-Age": "43200",
        "Allow": method,
        "Vary": "Origin",
    }
    return Response(status=204, headers=headers)
