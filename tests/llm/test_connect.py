"""Choosing a model: what is taken, what is said, and the ways out where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ollama
import pytest
from client_kit import GOOD, decide, decided
from fake_ollama import FakeModel, FakeOllama

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import EmbeddedBackend, LLMClient, OllamaBackend, connect, connecting

EMBEDDER = FakeModel(name="embedder", capabilities=("embedding",))


@pytest.fixture(autouse=True)
def no_weights_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLMSIM_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")


@pytest.fixture
def server() -> Iterator[FakeOllama]:
    with FakeOllama(["llama3.2", "qwen3:4b"], reply=GOOD) as fake:
        yield fake


async def test_auto_takes_ollama_where_it_answers_and_has_a_model(
    server: FakeOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    async with connect("auto", host=server.host, seed=7) as client:
        assert isinstance(client.backend, OllamaBackend)
        assert (await decide(client)).action == GOOD["action"]
    assert client.config.seed == 7
    said = capsys.readouterr().err
    assert said == f"{client.chosen}\n"
    assert "Using llama3.2:latest on Ollama 0.32.15" in said
    assert server.requests[0].body["model"] == "llama3.2:latest"


@pytest.mark.parametrize("by_environment", [False, True])
def test_a_server_that_is_named_is_waited_for(
    server: FakeOllama, monkeypatch: pytest.MonkeyPatch, by_environment: bool
) -> None:
    monkeypatch.setattr(connecting, "_MAY_BE_THERE_S", 1e-6)
    monkeypatch.setenv("OLLAMA_HOST", server.host if by_environment else "")
    host = None if by_environment else server.host
    assert connect("auto", quiet=True, host=host).config.model == "llama3.2:latest"


def test_a_model_that_ollama_lacks_is_named_with_those_it_has(server: FakeOllama) -> None:
    with pytest.raises(ConfigError, match=r"no model 'nope'; it has: llama3.2:latest, qwen3:4b"):
        connect("ollama:nope", host=server.host)
    assert connect("ollama:nope", host=server.host, download=True).config.model == "nope"


def test_a_server_without_a_chat_model_is_an_error_with_the_way_out() -> None:
    with (
        FakeOllama([EMBEDDER]) as server,
        pytest.raises(ConfigError, match=r"'ollama pull llama3\.1:8b' gets one"),
    ):
        connect("ollama", host=server.host)


async def test_repeatable_asks_one_thing_at_a_time_and_says_what_ollama_cannot(
    server: FakeOllama,
) -> None:
    async with connect("ollama", host=server.host, quiet=True, repeatable=True) as client:
        assert client.limits.at_once == 1
        assert "as far as Ollama can: one request at a time. Its prompt cache" in client.chosen
        record = await decided(client)
    # It is recorded with the request, and Ollama is not sent what it does not know.
    assert record.history[0].request.options["cache_prompt"] is False
    assert "cache_prompt" not in server.requests[0].body["options"]
    with pytest.raises(ConfigError, match=r"max_concurrency=4 does not go with repeatable=True"):
        connect("ollama", host=server.host, repeatable=True, max_concurrency=4)


@pytest.mark.parametrize(
    ("model", "ways"),
    [
        ("ollama:llama3.2", ["no Ollama server answers at http://127.0.0.1:9; start it"]),
        ("auto", ["ollama pull llama3.1:8b", "llmsim-lab model get", "ollama:NAME"]),
    ],
)
def test_nothing_to_talk_to_is_an_error_with_the_ways_out(model: str, ways: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        connect(model)
    assert [way for way in ways if way not in str(caught.value)] == []


@pytest.mark.parametrize("model", ["auto", "ollama"])
def test_what_is_chosen_says_why(model: str) -> None:
    with FakeOllama([EMBEDDER, "qwen3:4b", "smollm2"]) as server:
        where = f"on Ollama 0.32.15 at {server.host}: "
        chosen = connect(model, host=server.host, quiet=True).chosen
        assert chosen == f"Using qwen3:4b {where}the model pulled last there."
        with ollama.Client(server.host) as other:
            list(other.chat("smollm2", [{"role": "user", "content": "Hi"}], stream=True))
        chosen = connect(model, host=server.host, quiet=True).chosen
    assert chosen == f"Using smollm2:latest {where}it is loaded there."


def test_without_the_runtime_the_way_to_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "runtime_installed", lambda: False)
    for model in ("auto", "embedded"):
        with pytest.raises(ConfigError, match=r"pip install 'llmsim-lab\[embedded\]'"):
            connect(model)


@pytest.mark.embedded
@pytest.mark.process
async def test_the_embedded_model_answers_and_is_asked_one_thing_at_a_time(
    monkeypatch: pytest.MonkeyPatch, small_model: Path
) -> None:
    monkeypatch.delenv("LLMSIM_MODELS")
    settings = {"temperature": 0, "max_text_chars": 60, "max_tokens": 200, "timeout_s": 120}
    client = connect("embedded:smollm2-135m", download=True, quiet=True, **settings)
    assert isinstance(client.backend, EmbeddedBackend)
    assert client.limits.at_once == 1
    assert LLMClient(client.config, client.backend).limits is client.limits
    assert client.chosen == (
        "Using the embedded model smollm2-135m. It is for trying the tool, not for findings: "
        "'ollama pull llama3.1:8b' gets a larger one for 'ollama:llama3.1:8b'."
    )
    async with client:
        assert (await decided(client, prompt="Inflation is at 9%. What now?")).reply_tokens > 5


@pytest.mark.parametrize("text", ["llama3.2", "gpt:4", "", "auto:x"])
def test_a_text_that_means_nothing_is_rejected_with_those_that_do(text: str) -> None:
    with pytest.raises(ConfigError, match=f"'auto', 'ollama', 'ollama:NAME'.*'ollama:{text}'$"):
        connect(text)
