"""OllamaBackend against FakeOllama: what goes out, what comes back, what failures mean."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ollama
import pytest
from fake_ollama._fake_ollama import FakeModel, FakeOllama, Fault

from llmsim_lab.errors import BackendError, ConfigError, FailureReason
from llmsim_lab.llm import connect
from llmsim_lab.llm._ollama import OllamaBackend, look
from llmsim_lab.types import ChatRequest, Message, ToolCall

TEXT = "The capital of France is Paris."
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "set_rate", "parameters": {"type": "object", "properties": {}}},
}
EMBEDDER = FakeModel(name="embed", capabilities=("embedding",))


def ask(text: str = "What is the capital of France?", **changes: Any) -> ChatRequest:
    request = ChatRequest(
        model="llama3.2", messages=(Message("user", text),), options={"num_ctx": 4096}
    )
    return replace(request, **changes)


@pytest.fixture
def server() -> Iterator[FakeOllama]:
    with FakeOllama(reply=TEXT) as server:
        yield server


@pytest.fixture
def backend(server: FakeOllama) -> OllamaBackend:
    return OllamaBackend("llama3.2", host=server.host)


async def failure(backend: OllamaBackend, request: ChatRequest | None = None) -> BackendError:
    with pytest.raises(BackendError) as caught:
        await backend.chat(request or ask())
    return caught.value


class TestReplies:
    async def test_a_reply_has_text_tokens_and_times(self, backend: OllamaBackend) -> None:
        reply = await backend.chat(ask())
        assert (reply.text, reply.done_reason) == (TEXT, "stop")
        assert (reply.prompt_tokens, reply.reply_tokens) == (14, 8)
        assert reply.load_seconds == 0.25


class TestWire:
    async def test_the_prompt_is_never_to_be_cut_by_the_server(
        self, server: FakeOllama, backend: OllamaBackend
    ) -> None:
        await backend.chat(ask())
        [request] = server.requests
        assert request.body["truncate"] is False
        assert int(request.headers["content-length"]) == len(request.content)

    def test_the_client_still_lacks_truncate(self) -> None:
        """When this fails, pass ``truncate`` to ``chat``, without the transport."""
        assert "truncate" not in inspect.signature(ollama.AsyncClient.chat).parameters

    async def test_a_request_arrives_as_it_was_made(
        self, server: FakeOllama, backend: OllamaBackend
    ) -> None:
        call = ToolCall(name="set_rate", arguments={"path": []})
        request = ask(
            messages=(
                Message("system", "Be brief."),
                Message("assistant", "", tool_calls=(call,)),
                Message("tool", "done", tool_name="set_rate"),
                Message("user", "Grüße & <x> 中"),
            ),
            schema={"type": "object", "properties": {"z": {"const": 1}, "a": {"const": 2}}},
            tools=(TOOL,),
            options={"num_ctx": 4096, "temperature": 0.7, "seed": 0, "stop": ["\n\n"]},
            keep_alive="10m",
        )
        await backend.chat(request)
        body = server.requests[0].body
        assert body["messages"] == [
            {"role": "system", "content": "Be brief."},
            {
                "role": "assistant",
                "tool_calls": [{"function": {"name": "set_rate", "arguments": {"path": []}}}],
            },
            {"role": "tool", "content": "done", "tool_name": "set_rate"},
            {"role": "user", "content": "Grüße & <x> 中"},
        ]
        assert json.dumps(body["format"]) == json.dumps(request.schema)
        assert body["tools"] == [TOOL]
        assert body["options"] == request.options
        assert (body["keep_alive"], body["think"]) == ("10m", False)


FAULTS: list[tuple[Fault, FailureReason, int | None, bool]] = [
    (Fault.status(502, "<html>Bad Gateway</html>"), "server_error", 502, True),
    (Fault.status(400, "no such thing"), "client_error", 400, False),
    (Fault.status(403, ""), "client_error", 403, False),
    (Fault.status(404, "page not found"), "client_error", 404, False),
    (Fault.status(404, "model 'llama3.2' not found"), "model_not_found", 404, False),
    (Fault.status(500, "{not JSON"), "server_error", 500, True),
    (Fault.status(500, '{"error": {"code": 7}}'), "server_error", 500, True),
    (Fault.overflow(), "context_overflow", 400, False),
    (Fault.cut_connection(), "connection_error", None, True),
    (Fault.cut_stream(), "connection_error", None, True),
    (Fault.invalid_json(), "server_error", 200, True),
]


class TestFailures:
    @pytest.mark.parametrize(("fault", "reason", "status", "retry"), FAULTS)
    async def test_every_fault_has_its_reason(
        self,
        server: FakeOllama,
        backend: OllamaBackend,
        fault: Fault,
        reason: str,
        status: int | None,
        retry: bool,
    ) -> None:
        server.fail_next(fault)
        error = await failure(backend)
        assert (error.reason, error.status_code, error.retry) == (reason, status, retry)
        assert (await backend.chat(ask())).text == TEXT

    async def test_a_stream_without_a_line_is_a_lost_connection(
        self, server: FakeOllama, backend: OllamaBackend
    ) -> None:
        server.fail_next(Fault.end_stream(after=0))
        error = await failure(backend)
        assert (error.reason, error.retry) == ("connection_error", True)
        assert str(error) == f"the reply of Ollama at {server.host} ended before it was done"

    async def test_a_missing_model_is_named_with_those_there_are(
        self, server: FakeOllama, backend: OllamaBackend
    ) -> None:
        error = await failure(backend, ask(model="nope"))
        assert (error.reason, error.status_code) == ("model_not_found", 404)
        assert str(error) == (
            f"Ollama at {server.host} has no model 'nope': model 'nope' not found; get it with: "
            "ollama pull nope; it has llama3.2:latest"
        )

    @pytest.mark.parametrize(
        ("version", "prompt", "said"),
        [
            (
                "0.32.15",
                "592 tokens",
                "request (592 tokens) exceeds the available context size (256 tokens), try "
                "increasing it",
            ),
            ("0.24.0", "2400 characters", "the input length exceeds the context length"),
        ],
    )
    async def test_an_overflow_names_prompt_window_and_way_out(
        self, version: str, prompt: str, said: str
    ) -> None:
        with FakeOllama(version=version) as server:
            backend = OllamaBackend(host=server.host)
            request = ask("A b c d e f g h i j. " * 34 + "x" * 1686, options={"num_ctx": 256})
            error = await failure(backend, request)
        assert (error.reason, error.retry) == ("context_overflow", False)
        assert str(error) == (
            f"the prompt has {prompt}, more than the context window of 256 tokens can hold ({said})"
            "; shorten the prompt, or raise LLMConfig.num_ctx, up to what the model was trained for"
        )


class TestCancelling:
    async def test_a_cancelled_request_frees_the_server(
        self, server: FakeOllama, backend: OllamaBackend
    ) -> None:
        server.fail_next(Fault.hang())
        asking = asyncio.create_task(backend.chat(ask()))
        await asyncio.to_thread(server.wait_for, active=1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.to_thread(server.wait_for, active=0)
        assert (await backend.chat(ask())).text == TEXT


class TestLoops:
    def test_one_backend_serves_loops_in_several_threads(self, server: FakeOllama) -> None:
        backend = OllamaBackend(host=server.host)
        replies: list[str] = []

        async def several() -> None:
            made = await asyncio.gather(*(backend.chat(ask()) for _ in range(5)))
            replies.extend(reply.text for reply in made)

        threads = [threading.Thread(target=lambda: asyncio.run(several())) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert replies == [TEXT] * 15


class TestModels:
    async def test_the_models_details_are_reported(self) -> None:
        model = FakeModel(name="Llama3.2", capabilities=("completion",), context_length=131072)
        with FakeOllama([model]) as server:
            backend = OllamaBackend("llama3.2:latest", host=server.host)
            info = await backend.model_info()
        assert (info.name, info.backend, info.version) == ("llama3.2:latest", "ollama", "0.32.15")
        assert (info.digest, info.context_length) == (model.digest, 131072)
        assert info.capabilities == ("completion",)

    async def test_without_a_name_the_chat_model_pulled_last_is_taken(self) -> None:
        models: list[str | FakeModel] = [EMBEDDER, "phi4", "llama3.2"]
        with FakeOllama(models) as server:
            backend = OllamaBackend(host=server.host)
            for name in ("auto", ""):
                await backend.chat(ask(model=name))
        assert [request.body["model"] for request in server.requests] == ["phi4:latest"] * 2

    async def test_something_else_than_ollama_is_not_understood(
        self, says: Callable[..., None]
    ) -> None:
        says(b'["version"]')
        backend = OllamaBackend("llama3.2")
        for question in (backend.model_info, lambda: backend.chat(ask())):
            with pytest.raises(BackendError, match="not JSON as an Ollama server sends it"):
                await question()
        with pytest.raises(BackendError, match="not JSON as an Ollama server sends it"):
            await asyncio.to_thread(look)


class TestLook:
    @pytest.mark.parametrize("version", ["0.32.15", "0.24.0"])
    def test_a_server_is_found_with_its_models(self, version: str) -> None:
        models: list[str | FakeModel] = [EMBEDDER, "phi4"]
        with FakeOllama(models, version=version) as server:
            found = look(server.host)
            assert found.host == server.host
        assert (found.version, found.model) == (version, "phi4:latest")
        assert found.models == ("embed:latest", "phi4:latest")


class TestVersion:
    @pytest.mark.parametrize("version", ["0.23.9", "v0.9.1-rc0"])
    async def test_a_server_that_would_cut_prompts_without_a_word_is_too_old(
        self, server: FakeOllama, version: str
    ) -> None:
        server._version = version
        error = await failure(OllamaBackend("llama3.2", host=server.host))
        assert (error.reason, error.retry) == ("client_error", False)
        assert f"is of version {version}; the oldest that can be used is 0.24" in str(error)
        with pytest.raises(ConfigError, match=r"ollama\.com/download"):
            await asyncio.to_thread(connect, "ollama", host=server.host)
        assert server.requests == []

    async def test_a_server_that_was_away_is_asked_for_it_again(self) -> None:
        with FakeOllama(reply=TEXT) as server:
            host, port = server.host, int(server.host.rpartition(":")[2])
        backend = OllamaBackend("llama3.2", host=host)
        assert (await failure(backend)).reason == "connection_error"
        with FakeOllama(reply=TEXT, port=port) as server:
            server._version = "0.9.0"
            assert "oldest that can be used is 0.24" in str(await failure(backend))
