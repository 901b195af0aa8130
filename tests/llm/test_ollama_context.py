"""When OllamaBackend takes a prompt for cut, and when it must not."""

from __future__ import annotations

import pytest
from fake_ollama._fake_ollama import FakeModel, FakeOllama

from llmsim_lab.errors import BackendError
from llmsim_lab.llm._ollama import OllamaBackend
from llmsim_lab.types import ChatRequest, Message


def ask(text: str, *, num_ctx: int = 4096) -> ChatRequest:
    messages = (Message("user", text),)
    return ChatRequest(model="llama3.2", messages=messages, options={"num_ctx": num_ctx})


async def test_an_answer_that_goes_past_the_window_is_an_error_with_both_counts() -> None:
    with FakeOllama(reply="one two " * 250) as server:
        backend = OllamaBackend(host=server.host)
        with pytest.raises(BackendError) as caught:
            await backend.chat(ask("Count to a thousand.", num_ctx=64))
    assert str(caught.value) == (
        "the answer met the end of the context: 12 tokens of prompt and 502 of answer are more "
        "than the 64 tokens of the context window, so the server dropped the start of the prompt "
        "while the model wrote on; ask for less, shorten the prompt, or raise LLMConfig.num_ctx, "
        "up to what the model was trained for"
    )
    assert caught.value.reason == "context_overflow"
    assert caught.value.reply.text == "one two " * 250


async def test_an_answer_past_what_the_model_was_trained_for_is_an_error_too() -> None:
    model = FakeModel(name="llama3.2", context_length=1024)
    with FakeOllama([model], reply="one two " * 600) as server:
        backend = OllamaBackend(host=server.host)
        with pytest.raises(BackendError) as caught:
            await backend.chat(ask("Count to a thousand.", num_ctx=8192))
    assert "more than the 1024 tokens of the context window" in str(caught.value)
