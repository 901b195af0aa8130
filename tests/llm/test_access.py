"""Getting in to a server: keys, passwords, proxies, certificates; and what to do where it fails."""

from __future__ import annotations

import asyncio
import base64
import pickle
import ssl
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from client_kit import GOOD, decide
from fake_ollama import FakeOllama

from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.llm import OllamaBackend, OpenAIBackend, connect
from llmsim_lab.types import ChatRequest, Message

KEY = "sk-secret-0123456789"
LOGIN = "ann:s3cret/pw"
BEARER = f"Bearer {KEY}"
BASIC = f"Basic {base64.b64encode(LOGIN.encode()).decode()}"
CERTIFICATE = Path(__file__).with_name("self_signed.pem")
ASKED = ChatRequest(model="m", messages=(Message("user", "Hello"),))


async def fetched() -> str:
    return KEY


def with_login(host: str) -> str:
    return host.replace("://", "://ann:s3cret%2Fpw@")


WAYS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "key=": (BEARER, lambda host: {"host": host, "key": KEY}),
    "api_key=": (BEARER, lambda host: {"host": host, "api_key": KEY}),
    "a function": (BEARER, lambda host: {"host": host, "key": fetched}),
    "OLLAMA_API_KEY": (BEARER, lambda host: {"host": host, "OLLAMA_API_KEY": f" {KEY}\n"}),
    "host=": (BASIC, lambda host: {"host": with_login(host)}),
    "OLLAMA_HOST": (BASIC, lambda host: {"OLLAMA_HOST": with_login(host)}),
    "before a key": (BASIC, lambda host: {"host": with_login(host), "OLLAMA_API_KEY": KEY}),
}


@pytest.mark.parametrize("way", WAYS)
async def test_every_request_to_ollama_shows_the_key_or_the_password(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants, settings_for = WAYS[way]
    with FakeOllama(reply=GOOD, wants=wants) as server:
        settings = settings_for(server.host)
        for name in [name for name in settings if name.isupper()]:
            monkeypatch.setenv(name, settings.pop(name))
        client = connect("ollama:llama3.2", quiet=True, **settings)
        await decide(client)
        await client.model_info()
        await client.backend.pull("new")  # type: ignore[attr-defined]
        other = connect("ollama", quiet=True, **settings)
    assert {line.partition(" ")[2] for line in server.request_lines} == {
        *("/api/version", "/api/tags", "/api/ps", "/api/show", "/api/chat", "/api/pull")
    }
    shown = f"{client!r} {vars(client.backend)} {client.backend.host} {other.chosen}"  # type: ignore[attr-defined]
    assert server.host in shown
    assert not any(secret in shown for secret in (KEY, "s3cret", "ann"))


@pytest.mark.parametrize("way", ["key=", "host="])
async def test_a_pickled_ollama_backend_gets_in_by_the_environment_of_where_it_arrives(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants, settings_for = WAYS[way]
    with FakeOllama(reply=GOOD, wants=wants) as server:
        pickled = pickle.dumps(OllamaBackend("llama3.2", **settings_for(server.host)))
        assert not any(secret in pickled for secret in (KEY.encode(), b"s3cret", b"czNjcmV0"))
        with pytest.raises(BackendError, match="401"):
            await pickle.loads(pickled).model_info()
        monkeypatch.setenv("OLLAMA_HOST", with_login(server.host) if way == "host=" else "")
        monkeypatch.setenv("OLLAMA_API_KEY", KEY if way == "key=" else "")
        assert (await pickle.loads(pickled).model_info()).name == "llama3.2"


async def test_an_openai_servers_address_may_have_a_password(says: Callable[..., None]) -> None:
    says(b"", 401, WWW_Authenticate="Basic")
    backend = OpenAIBackend("m", base_url="http://ann:s3cret%2Fpw@box/v1")
    with pytest.raises(BackendError, match=r"does not know this user name and password"):
        await backend.chat(ASKED)
    [request] = says.requests  # type: ignore[attr-defined]
    assert (str(request.url), request.headers["authorization"]) == (
        "http://box/v1/chat/completions",
        BASIC,
    )
    with pytest.raises(ConfigError, match="address has a user name and password; a server is sho"):
        OpenAIBackend("m", base_url="http://ann:s3cret@box/v1", api_key=KEY)


# What to do where it fails

NAMED = "write a user name and password into its address: http://NAME:PASSWORD@box:1"
A_KEY = "set OLLAMA_API_KEY, or give key="
HTML = b"<html>nginx</html>"
HINTS: dict[str, tuple[str | None, int, bytes, str, str]] = {
    "bearer": (None, 401, HTML, 'Bearer realm="x"', f"nginx</html>; {A_KEY}"),
    "basic": (None, 401, HTML, "Basic", f"nginx</html>; {NAMED}"),
    "neither": (None, 401, HTML, "", f"nginx</html>; {A_KEY}"),
    "wrong key": (KEY, 401, b"no", "Bearer", f"the key that it was shown is not one.*{A_KEY}"),
    "key for basic": (KEY, 401, b"no", "basic", f"was shown a key and wants no key: {NAMED}"),
    "origin": (None, 403, b"", "", "; its setting OLLAMA_ORIGINS says which"),
    "forbidden": (None, 403, HTML, "", "nginx</html>; a server in front of it refuses"),
    "said why": (None, 403, b'{"error": "not in your plan"}', "", "not in your plan$"),
    "tls": (
        None,
        400,
        b"an HTTP request to an HTTPS server",
        "",
        r"address with https:.*https://b",
    ),
}


@pytest.mark.parametrize("case", HINTS)
async def test_a_refusal_has_the_hint_that_fits_it(case: str, says: Callable[..., None]) -> None:
    key, status, body, scheme, words = HINTS[case]
    says(body, status, WWW_Authenticate=scheme)
    with pytest.raises(BackendError, match=words) as caught:
        await OllamaBackend("m", host="http://box:1", key=key).chat(ASKED)
    assert "OLLAMA_ORIGINS" not in str(caught.value) or case == "origin"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            httpx.ConnectError("refused"),
            r"the proxy http://gate:3 gives no connection to http://box",
        ),
        (httpx.ProxyError("407"), r"\(407\); see HTTP_PROXY.*or go past it with NO_PROXY=box$"),
        (
            "http://ann:s3cret@[gate",
            "cannot be reached with the environment's proxy or certificates",
        ),
        ("ftp://ann:s3cret@gate", "be reached with the environment's proxy or certificates"),
        (502, r"asked through the proxy http://gate:3, which may have said this"),
        (407, r"this is the proxy: write .* as http://NAME:PASSWORD@gate:3$"),
    ],
)
async def test_a_fault_of_the_proxy_names_the_proxy(
    fault: Exception | int | str,
    words: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy = fault if isinstance(fault, str) else "http://ann:s3cret@gate:3"
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy)
    if not isinstance(fault, str):
        says = request.getfixturevalue("says")
        says(*((fault,) if isinstance(fault, Exception) else (b"You are ann:s3cret", fault)))
    with pytest.raises(BackendError, match=words) as caught:
        await OllamaBackend("m", host="http://box:1").chat(ASKED)
    assert "s3cret" not in str(caught.value)


async def test_a_server_that_hangs_is_not_told_to_be_started(says: Callable[..., None]) -> None:
    says(httpx.ReadTimeout(""))
    with pytest.raises(BackendError, match=r"^Ollama at http://box:1 took .* hangs or is busy$"):
        await OllamaBackend("m", host="http://box:1").chat(ASKED)


async def test_a_self_signed_certificate_is_named_and_can_be_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encryption = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    encryption.load_cert_chain(CERTIFICATE)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=encryption) as server:
        port = server.sockets[0].getsockname()[1]
        backend = OllamaBackend("m", host=f"https://127.0.0.1:{port}")
        with pytest.raises(BackendError, match=r"self-signed certificate; .*SSL_CERT_FILE=/path"):
            await backend.chat(ASKED)
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        # Connections are kept by address, and so is what they trust.
        trusting = OllamaBackend("m", host=f"https://127.0.0.1:{port}/ollama")
        with pytest.raises(BackendError, match="is the address of an Ollama server"):
            await trusting.chat(ASKED)
        elsewhere = OllamaBackend("m", host=f"https://localhost:{port}")
        with pytest.raises(BackendError, match="give the address with a name that the certificate"):
            await elsewhere.chat(ASKED)


@pytest.mark.parametrize("encrypted", [True, False])
async def test_what_a_server_sends_too_much_is_no_answer_to_the_next_request(
    encrypted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    encryption = None
    if encrypted:
        encryption = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        encryption.load_cert_chain(CERTIFICATE)
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    answers = b""
    for name in (b"sound", b"evil"):
        body = b'{"data":[{"id":"%b"}]}' % name
        answers += b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answers)
        with closing(writer):
            served.release()

    served = asyncio.Semaphore(0)
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=encryption) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        backend = OpenAIBackend(base_url=f"{'https' if encrypted else 'http'}://{address}")
        assert await backend.names() == await backend.names() == ["sound"]
        for _connection in range(2):
            await served.acquire()


@pytest.mark.parametrize(
    "host",
    [
        *(
            "http:/box",
            "http:box",
            "http//box",
            "https:/box:443",
            "http:///box",
            "http://",
            "//box",
        ),
        *(
            "::1:port",
            "http://bo%78",
            "http://box\\x",
            "a,b",
            "http://u:p#w@box",
            "u/v@box",
            "box:0",
        ),
    ],
)
def test_what_only_looks_like_an_address_is_an_error(host: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a server's address; write it as host:port or"):
        OllamaBackend(host=host)
