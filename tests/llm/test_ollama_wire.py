"""Addresses of servers, proxies, and clients shared per event loop."""

from __future__ import annotations

import traceback

import pytest
from fake_ollama._fake_ollama import FakeOllama

from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm import connect
from llmsim_lab.llm._ollama import OllamaBackend, parse_host
from llmsim_lab.types import ChatRequest, Message


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("gpu-box", "http://gpu-box:11434"),
        ("gpu-box:8080/", "http://gpu-box:8080"),
        (":8080", "http://127.0.0.1:8080"),
        ("http://gpu-box", "http://gpu-box"),
        ("https://gpu-box/ollama/", "https://gpu-box/ollama"),
        (' "10.0.0.7" ', "http://10.0.0.7:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("[::]:9", "http://[::1]:9"),
        ("[fe80::1]", "http://[fe80::1]:11434"),
        ("HTTP://gpu-box:9", "http://gpu-box:9"),
        (None, "http://127.0.0.1:11434"),
    ],
)
def test_an_address_is_read_as_ollama_does(given: str | None, url: str) -> None:
    assert parse_host(given) == url


@pytest.mark.parametrize(
    "given",
    ["http://:bad", "box:99999", "ftp://box", "http://[::1", "a box", "::1", "box?x", "x/\x1b[2J"],
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
    with pytest.raises(ConfigError, match="without a user name, password or query") as no:
        parse_host()
    with pytest.raises(ConfigError, match="does not go with 'embedded'") as other:
        connect("embedded", host=given)
    for error in (no.value, other.value):
        shown = "".join(traceback.format_exception(error))
        assert "sec" not in str(error)
        assert "ret@" not in shown


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
    assert server.request_lines[-2:] == [
        "POST /api/chat",
        "GET http://gpu-box.invalid:11434/api/version",
    ]
