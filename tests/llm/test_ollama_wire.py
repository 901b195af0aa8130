"""Addresses of servers, proxies, and clients shared per event loop."""

from __future__ import annotations

import asyncio
import threading
import traceback
from pathlib import Path

import httpx
import pytest
from fake_ollama._fake_ollama import FakeOllama

from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm import connect
from llmsim_lab.llm._connections import is_loopback
from llmsim_lab.llm._ollama.backend import OllamaBackend
from llmsim_lab.llm._ollama.wire import (
    ChatExchange,
    Clients,
    OllamaTransport,
    clients_for,
    parse_host,
)
from llmsim_lab.llm._scope import scoped
from llmsim_lab.types import ChatRequest, Message


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("gpu-box", "http://gpu-box:11434"),
        ("gpu-box:8080/", "http://gpu-box:8080"),
        (":8080", "http://127.0.0.1:8080"),
        ("http://gpu-box", "http://gpu-box:80"),
        ("https://gpu-box/ollama/", "https://gpu-box:443/ollama"),
        (' "10.0.0.7" ', "http://10.0.0.7:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("[::]:9", "http://[::1]:9"),
        ("[fe80::1]", "http://[fe80::1]:11434"),
        ("::1", "http://[::1]:11434"),
        ("::", "http://[::1]:11434"),
        ("http://::1/", "http://[::1]:80"),
        ("http://0.0.0.0:11434/", "http://127.0.0.1:11434"),
        ("HTTP://gpu-box:9", "http://gpu-box:9"),
        ("http://gpu-box:11434/api", "http://gpu-box:11434"),
        ("gpu-box:11434/api/", "http://gpu-box:11434"),
        ("http://gpu-box:11434/v1", "http://gpu-box:11434"),
        ("http://gpu-box:11434/v1/chat/completions", "http://gpu-box:11434"),
        ("http://gpu-box:11434/api/chat", "http://gpu-box:11434"),
        ("https://gpu-box/ollama/api", "https://gpu-box:443/ollama"),
        ("https://gpu-box/api/api", "https://gpu-box:443/api"),
        ("https://gpu-box/my-api", "https://gpu-box:443/my-api"),
        ("1box.example", "http://1box.example:11434"),
        (None, "http://127.0.0.1:11434"),
    ],
)
def test_an_address_is_read_as_ollama_does(given: str | None, url: str) -> None:
    assert parse_host(given) == url


@pytest.mark.parametrize(
    "given",
    [
        "http://:bad",
        "box:99999",
        "ftp://box",
        "http://[::1",
        "1.2.3",
        "a box",
        "::1:11434",
        "box?x",
        "box/\x1b[2J",
    ],
)
def test_an_address_that_makes_no_sense_is_rejected(given: str) -> None:
    with pytest.raises(ConfigError, match=r"host=.* is not a server's address; write it as") as no:
        parse_host(given)
    assert "for example 127.0.0.1:11434 or [::1]:11434" in str(no.value)


@pytest.mark.parametrize(
    "given", ["http://me:secret@box", "me:secret@box:1", "http://me:sec/ret@box", "secret@box/x"]
)
def test_a_password_in_an_address_is_rejected_and_never_shown(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", given)
    with pytest.raises(ConfigError, match="no user name or password") as no:
        parse_host()
    assert "***@box" in str(no.value)
    with pytest.raises(ConfigError, match=r"goes with Ollama") as other:
        connect("embedded", host=given)
    for error in (no.value, other.value):
        shown = "".join(traceback.format_exception(error))
        assert "sec" not in str(error)
        assert "ret@" not in shown


def test_the_environments_address_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "gpu-box:8080")
    assert parse_host() == "http://gpu-box:8080"
    assert parse_host("other") == "http://other:11434"


def test_this_machine_is_known_by_its_addresses() -> None:
    here = ("http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "http://a.localhost:1")
    assert all(is_loopback(url) for url in here)
    assert not any(is_loopback(url) for url in ("http://10.0.0.1:1", "http://gpu-box:1"))


async def test_the_environments_proxy_is_used_for_other_machines_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = ChatRequest(model="llama3.2", messages=(Message("user", "Hello"),))
    with FakeOllama(reply="from here") as server:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, server.host)
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("no_proxy", "")
        here = OllamaBackend(host=server.host)
        assert (await here.chat(request)).text == "from here"
        # The fake server, asked as a proxy, has no page of the foreign host's whole URL.
        there = OllamaBackend(host="http://gpu-box.invalid:11434")
        with pytest.raises(BackendError, match="404 page not found"):
            await there.chat(request)
        await there.aclose()
        await here.aclose()
    assert server.request_lines == [
        "POST /api/chat",
        "POST http://gpu-box.invalid:11434/api/chat",
    ]


async def test_a_host_excepted_from_the_proxy_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "gpu-box.invalid")
    backend = OllamaBackend(host="http://gpu-box.invalid:11434")
    with pytest.raises(BackendError, match=r"the name 'gpu-box\.invalid' of http://gpu-box"):
        await backend.chat(ChatRequest(model="m", messages=(Message("user", "Hello"),)))
    await backend.aclose()


def test_a_proxy_of_an_unknown_kind_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "gopher://me:secret@proxy:70")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(ConfigError, match=r"proxy 'gopher://\*\*\*@proxy:70' cannot be") as caught:
        Clients.open("http://gpu-box:11434")
    assert "secret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("url", ["https://gpu-box:443", "https://127.0.0.1:443"])
def test_https_servers_are_held_to_the_environments_certificates(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(mine))
    with pytest.raises(ConfigError, match=r"SSL_CERT_FILE.*mine\.pem.* cannot be read.*PEM format"):
        Clients.open(url)
    mine.write_text("not a certificate")
    with pytest.raises(ConfigError, match="cannot be read"):
        Clients.open(url)


def test_plain_http_needs_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/mine.pem")
    assert not Clients.open("http://127.0.0.1:9").http.is_closed


async def test_only_chat_requests_get_further_fields() -> None:
    seen: list[bytes] = []

    def note(request: httpx.Request) -> httpx.Response:
        seen.append(request.content)
        return httpx.Response(200, json={})

    transport = OllamaTransport(httpx.MockTransport(note))
    extra = ChatExchange({"truncate": False})
    async with httpx.AsyncClient(transport=transport, base_url="http://box") as client:
        with scoped(outgoing=extra):
            await client.post("/api/show", json={"model": "m"})
            await client.post("/ollama/api/chat", json={"model": "m"})
    assert seen == [b'{"model":"m"}', b'{"model":"m","truncate":false}']


class User:
    """Something that uses a server; only its identity matters."""


async def test_all_users_of_a_server_share_one_client_in_a_loop() -> None:
    with FakeOllama() as server:
        first, second = (OllamaBackend(host=server.host) for _ in range(2))
        clients = await clients_for(server.host, first)
        assert await clients_for(server.host, second) is clients
        await first.aclose()
        assert not clients.http.is_closed
        await second.aclose()
    assert clients.http.is_closed


def test_a_loops_end_closes_its_clients() -> None:
    user = User()
    clients = asyncio.run(clients_for("http://127.0.0.1:9", user))
    assert clients.http.is_closed


def test_closing_reaches_the_clients_of_other_running_loops() -> None:
    with FakeOllama() as server:
        backend = OllamaBackend(host=server.host)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        started = asyncio.run_coroutine_threadsafe(clients_for(server.host, backend), loop)
        clients = started.result(timeout=10)
        asyncio.run(backend.aclose())
        assert clients.http.is_closed
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_closing_leaves_loops_alone_that_do_not_run() -> None:
    with FakeOllama() as server:
        backend = OllamaBackend(host=server.host)
        loop = asyncio.new_event_loop()
        clients = loop.run_until_complete(clients_for(server.host, backend))
        asyncio.run(backend.aclose())
        assert not clients.http.is_closed
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    assert clients.http.is_closed
