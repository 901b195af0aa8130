"""OllamaBackend against FakeOllama: what goes out, what comes back, what failures mean."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ollama
import pytest
from client_kit import GOOD, decided, failure_of, say
from fake_ollama._fake_ollama import FakeModel, FakeOllama, Fault, pieces_of

from llmsim_lab.errors import BackendError, ConfigError, FailureReason
from llmsim_lab.llm import LLMClient, LLMConfig, connect
from llmsim_lab.llm.ollama import OllamaBackend, look, parse_host
from llmsim_lab.types import ChatReply, ChatRequest, Message, ToolCall

TEXT = "The capital of France is Paris."
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


def client_of(server: FakeOllama, **config: Any) -> LLMClient:
    settings = {"model": "llama3.2", "retry_wait_s": 0, **config}
    return LLMClient(LLMConfig(**settings), OllamaBackend(host=server.host))


# The wire


def test_the_client_still_lacks_truncate() -> None:
    """When this fails, pass ``truncate`` to ``chat``, without the transport."""
    assert "truncate" not in inspect.signature(ollama.AsyncClient.chat).parameters


async def test_a_request_arrives_as_it_was_made_and_the_server_is_not_to_cut_it(
    server: FakeOllama, backend: OllamaBackend
) -> None:
    arguments = {"name": "set_rate", "arguments": {"path": []}}
    tool = {"type": "function", "function": {"name": "set_rate", "parameters": {"type": "object"}}}
    request = ask(
        messages=(
            Message("assistant", "", tool_calls=(ToolCall(**arguments),)),
            Message("tool", "done", tool_name="set_rate"),
            Message("user", "Grüße & <x> 中"),
        ),
        schema={"type": "object", "properties": {"z": {"const": 1}, "a": {"const": 2}}},
        tools=(tool,),
        options={"num_ctx": 4096, "temperature": 0.7, "seed": 0, "stop": ["\n\n"]},
        keep_alive="10m",
    )
    reply = await backend.chat(request)
    assert (reply.text, reply.done_reason, reply.load_seconds) == (TEXT, "stop", 0.25)
    assert (reply.prompt_tokens, reply.reply_tokens) == (22, 8)
    [sent] = server.requests
    assert sent.body["messages"] == [
        {"role": "assistant", "tool_calls": [{"function": arguments}]},
        {"role": "tool", "content": "done", "tool_name": "set_rate"},
        {"role": "user", "content": "Grüße & <x> 中"},
    ]
    assert json.dumps(sent.body["format"]) == json.dumps(request.schema)
    assert (sent.body["tools"], sent.body["options"]) == ([tool], request.options)
    assert (sent.body["keep_alive"], sent.body["think"]) == ("10m", False)
    assert sent.body["truncate"] is False
    assert "shift" not in sent.body, "the server would load the model anew for us"
    assert int(sent.headers["content-length"]) == len(sent.content)


def test_one_client_serves_loops_in_several_threads(server: FakeOllama) -> None:
    client = client_of(server, max_concurrency=1)

    async def several() -> list[str]:
        said = await asyncio.gather(*(say(client) for _ in range(5)))
        return [reply.text for reply, _ in said]

    async def threads() -> Any:
        return await asyncio.gather(*(asyncio.to_thread(asyncio.run, several()) for _ in range(3)))

    assert asyncio.run(threads()) == [[TEXT] * 5] * 3


# Failures

FAULTS: list[tuple[Fault, FailureReason, int | None, bool]] = [
    (Fault.status(404, "page not found"), "client_error", 404, False),
    (Fault.status(404, "model 'llama3.2' not found"), "model_not_found", 404, False),
    (Fault.status(500, '{"error": {"code": 7}}'), "server_error", 500, True),
    (Fault("overflow"), "context_overflow", 400, False),
    (Fault("cut_stream"), "connection_error", None, True),
    (Fault("invalid_json"), "server_error", 200, True),
]


@pytest.mark.parametrize(("fault", "reason", "status", "retry"), FAULTS)
async def test_every_fault_has_its_reason(
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


async def test_a_missing_model_is_named_with_the_way_to_it(
    server: FakeOllama, backend: OllamaBackend
) -> None:
    error = await failure(backend, ask(model="nope"))
    assert (error.reason, error.status_code) == ("model_not_found", 404)
    assert str(error) == (
        f"Ollama at {server.host} has no model 'nope': model 'nope' not found; get it with: "
        "ollama pull nope"
    )


@pytest.mark.parametrize(
    ("version", "prompt", "said"),
    [
        ("0.32.15", "592 tokens", r"request \(592 tokens\) .*try increasing it"),
        ("0.24.0", "2400 characters", "the input length exceeds the context length"),
    ],
)
async def test_an_overflow_names_prompt_window_and_way_out(
    version: str, prompt: str, said: str
) -> None:
    with FakeOllama(version=version) as server:
        request = ask("A b c d e f g h i j. " * 34 + "x" * 1686, options={"num_ctx": 256})
        with pytest.raises(
            BackendError,
            match=rf"the prompt has {prompt}, .* window of 256 tokens can hold \({said}\)"
            r"; shorten the prompt, or raise LLMConfig\.num_ctx",
        ) as caught:
            await OllamaBackend(host=server.host).chat(request)
    assert (caught.value.reason, caught.value.retry) == ("context_overflow", False)


@pytest.mark.parametrize(("num_ctx", "trained", "window"), [(64, 8192, 64), (8192, 1024, 1024)])
async def test_an_answer_that_goes_past_the_window_is_an_error_with_both_counts(
    num_ctx: int, trained: int, window: int
) -> None:
    text = "one two " * 600
    model = FakeModel(name="llama3.2", context_length=trained)
    with FakeOllama([model], reply=text) as server:
        backend = OllamaBackend(host=server.host)
        error = await failure(backend, ask("Count.", options={"num_ctx": num_ctx}))
    assert (error.reason, error.reply and error.reply.text) == ("context_overflow", text)
    assert f"9 tokens of prompt and 1202 of answer are more than the {window} tokens" in str(error)
    assert "so the server dropped the start of the prompt" in str(error)
    assert "shorten the prompt, or raise LLMConfig.num_ctx" in str(error)


async def test_after_an_answer_past_the_window_the_same_is_asked_with_another_seed() -> None:
    with FakeOllama(reply=["one two " * 300, "Brief."]) as server:
        async with client_of(server, num_ctx=512, max_tokens=511, seed=7) as client:
            reply, call = await say(client)
    assert (reply.text, call.attempts) == ("Brief.", 2)
    assert call.history[0].reason == "context_overflow"
    first, second = (request.body for request in server.requests)
    assert first["messages"] == second["messages"]
    assert first["options"]["seed"] != second["options"]["seed"]


# A model that the server stops because it repeats itself


async def test_a_stopped_model_learns_it_and_is_asked_with_another_seed() -> None:
    text = json.dumps(GOOD) + " ha" * 40  # would do, if the model had not been stopped
    with FakeOllama(reply=[text, GOOD]) as server:
        server.fail_next(Fault("end_stream", after=len(pieces_of(text))))
        async with client_of(server, seed=7) as client:
            call = await decided(client)
    assert (call.status, call.attempts) == ("repaired", 2)
    first = call.history[0]
    assert first.reply is not None
    assert (first.reply.text, first.reply.done_reason) == (text, "aborted")
    assert (first.reason, first.status_code, first.retry) == ("generation_stopped", 200, True)
    asked, again = (request.body for request in server.requests)
    *before, shown, note = again["messages"]
    assert (before, shown["role"]) == (asked["messages"], "assistant")
    assert text.startswith(shown["content"].removesuffix(" …"))
    assert note["content"].startswith("That reply was stopped before it was complete.\nReply again")
    assert (asked["options"]["seed"], again["options"]["seed"]) == (7, 450017278)
    assert {**again["options"], "seed": 7} == asked["options"]


# Which server and which model


async def test_a_reply_that_is_only_thinking_says_so() -> None:
    with FakeOllama(
        [FakeModel(name="llama3.2", capabilities=("completion", "thinking"))],
        reply=ChatReply(text="", thinking="Let me see ..."),
    ) as server:
        failed = await failure_of(client_of(server, think=True))
    assert "the reply is empty: it has only thinking, and no answer after it; LLM" in str(failed)
    assert "LLMConfig(think=False) asks without thinking" in str(failed)
    shown = server.requests[1].body["messages"][-1]["content"]
    assert "it has only thinking, and no answer after it." in shown


async def test_what_identifies_the_model_is_reported() -> None:
    model = FakeModel(name="Llama3.2")
    with FakeOllama([model]) as server:
        info = await OllamaBackend("llama3.2:latest", host=server.host).model_info()
        # A run notes whose digest it is: one without could never be resumed.
        with pytest.raises(BackendError, match="no model 'nope'; get it with: ollama pull nope"):
            await OllamaBackend("nope", host=server.host).model_info()
    assert (info.name, info.backend, info.version) == ("llama3.2:latest", "ollama", "0.32.15")
    assert info.digest == model.digest


@pytest.mark.parametrize("version", ["0.32.15", "0.24.0"])
async def test_without_a_name_the_chat_model_pulled_last_is_taken(version: str) -> None:
    models: list[str | FakeModel] = [EMBEDDER, "phi4", "llama3.2"]
    with FakeOllama(models, version=version) as server:
        backend = OllamaBackend(host=server.host)
        for name in ("auto", ""):
            await backend.chat(ask(model=name))
        found = await asyncio.to_thread(look, server.host)
    assert [request.body["model"] for request in server.requests] == ["phi4:latest"] * 2
    assert (found.host, found.version, found.model) == (server.host, version, "phi4:latest")
    assert found.models == ("embed:latest", "phi4:latest", "llama3.2:latest")


async def test_something_else_than_ollama_is_not_understood(says: Callable[..., None]) -> None:
    says(b'["version"]')
    backend = OllamaBackend("llama3.2")
    for question in (backend.model_info(), backend.chat(ask()), asyncio.to_thread(look)):
        with pytest.raises(BackendError, match="not JSON as an Ollama server sends it"):
            await question


@pytest.mark.parametrize("version", ["0.23.9", "v0.9.1-rc0"])
async def test_a_server_that_would_cut_prompts_without_a_word_is_too_old(
    server: FakeOllama, backend: OllamaBackend, version: str
) -> None:
    server._version = version
    error = await failure(backend)
    assert (error.reason, error.retry) == ("client_error", False)
    assert f"is of version {version}; the oldest that can be used is 0.24" in str(error)
    with pytest.raises(ConfigError, match=r"ollama\.com/download"):
        await asyncio.to_thread(connect, "ollama", host=server.host)
    assert server.requests == []


# Addresses


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("gpu-box", "http://gpu-box:11434"),
        (":8080", "http://127.0.0.1:8080"),
        ("https://gpu-box/ollama/", "https://gpu-box/ollama"),
        (' "10.0.0.7" ', "http://10.0.0.7:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("[::]:9", "http://[::1]:9"),
        ("::1", "http://[::1]:11434"),
        ("::", "http://[::1]:11434"),
        ("http://::1/ollama", "http://[::1]/ollama"),
        ("fe80::1%eth0", "http://[fe80::1%25eth0]:11434"),
        ("ann:pw@box", "http://box:11434"),
        (None, "http://127.0.0.1:11434"),
    ],
)
def test_an_address_is_read_as_ollama_does(given: str | None, url: str) -> None:
    assert parse_host(given) == url


@pytest.mark.parametrize(
    "given",
    ["http://:bad", "box:99999", "ftp://box", "http://[::1", "a box", "box?x", "x/\x1b[2J"],
)
def test_an_address_that_makes_no_sense_is_rejected(given: str) -> None:
    with pytest.raises(ConfigError, match=r"host=.* is not .*for example 127.* or \[::1\]:11434"):
        parse_host(given)


async def test_the_environments_proxy_is_used_for_other_machines_only(
    server: FakeOllama, backend: OllamaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, server.host)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "")
    assert (await backend.chat(ask())).text == TEXT
    # The fake server, asked as a proxy, has no page of the foreign host's whole URL.
    there = OllamaBackend(host="http://gpu-box.invalid:11434")
    assert "404 page not found" in str(await failure(there))
    url = "http://gpu-box.invalid:11434/api/version"
    assert server.request_lines[-2:] == ["POST /api/chat", f"GET {url}"]
