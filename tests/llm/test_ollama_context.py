"""When OllamaBackend takes a prompt for cut, and when it must not."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from fake_ollama._fake_ollama import FakeModel, FakeOllama

from llmsim_lab.errors import BackendError
from llmsim_lab.llm._ollama import OllamaBackend
from llmsim_lab.types import ChatReply, ChatRequest, Message

ENGLISH = (
    "The central bank raised its policy rate by fifty basis points, because inflation expectations "
    "had become unanchored and unemployment remained historically low. Governments communicated "
    "their intentions transparently; international institutions nevertheless recommended caution. "
)
PLAIN = "The bank has set the rate at four and a half, so that food will not cost more by May. "
CODE = """
class Simulation:
    def step(self, actions: list[Action]) -> SimulationState:
        if not actions:
            raise ValueError("no actions")
        return self.engine.run_turn([action for action in actions if action.validated])
"""
JSON = json.dumps(
    {"interest_rate": 4.25, "inflation": 2.0, "history": [{"turn": 1, "rate": 4.0}] * 3}, indent=4
)
CHINESE = "中央银行将政策利率上调五十个基点,因为通货膨胀预期已经失控,而失业率仍处于历史低位。"
GERMAN = (
    "Die Bundesbankpräsidentin erläuterte die Zinsentscheidung und die "
    "Wirtschaftswachstumsprognosen der Sachverständigenkommission ausführlich. "
)
SPACED = "Rate:" + " " * 400 + "4.25\n" + "\n" * 60 + "Inflation:" + "\t" * 200 + "2.0\n"
RULED = "=" * 400 + "\nHeading\n" + "-" * 400 + "\n" + "#" * 80 + "\n" + "." * 1000 + "\n"
ORDINARY = {
    "english": ENGLISH,
    "plain": PLAIN,
    "code": CODE,
    "json": JSON,
    "chinese": CHINESE,
    "german": GERMAN,
    "spaced": SPACED,
    "ruled": RULED,
}
TIGHT = re.compile(
    r"\s{1,64}(?=\s)"  # a run of white space, but for its last
    r"|\s?[^\W\d_\u4e00-\u9fff]{1,12}(?![^\W\d_])"  # a whole word
    r"|\s?[^\W\d_\u4e00-\u9fff]{1,6}"  # a piece of a longer one
    r"|[\u4e00-\u9fff]{1,2}|\s?\d{1,3}|\s?([^\w\s])\1{0,63}|\s|\w"
)


def ask(text: str, *, num_ctx: int = 4096) -> ChatRequest:
    messages = (Message("user", text),)
    return ChatRequest(model="llama3.2", messages=messages, options={"num_ctx": num_ctx})


async def test_a_reply_that_just_fills_the_window_is_not_an_overflow() -> None:
    request = replace(ask("Count to a thousand."), options={"num_ctx": 64, "num_predict": 52})
    with FakeOllama(reply="one two " * 250) as server:
        backend = OllamaBackend(host=server.host)
        reply = await backend.chat(request)
    assert reply.done_reason == "length"
    assert (reply.prompt_tokens or 0) + (reply.reply_tokens or 0) == 64


async def test_an_answer_that_goes_past_the_window_is_an_error_with_both_counts() -> None:
    with FakeOllama(reply="one two " * 250) as server:
        backend = OllamaBackend(host=server.host)
        with pytest.raises(BackendError) as caught:
            await backend.chat(ask("Count to a thousand.", num_ctx=64))
    assert str(caught.value) == (
        "the answer met the end of the context: 12 tokens of prompt and 502 of answer are more "
        "than num_ctx=64, so the server dropped the start of the prompt while the model wrote on; "
        "raise LLMConfig.num_ctx, shorten the prompt, or ask for less"
    )
    assert caught.value.reason == "context_overflow"
    assert caught.value.reply.text == "one two " * 250


async def test_an_answer_past_what_the_model_was_trained_for_is_not_told_to_raise_num_ctx() -> None:
    model = FakeModel(name="llama3.2", context_length=1024)
    with FakeOllama([model], reply="one two " * 600) as server:
        backend = OllamaBackend(host=server.host)
        with pytest.raises(BackendError) as caught:
            await backend.chat(ask("Count to a thousand.", num_ctx=8192))
    assert str(caught.value) == (
        "the answer met the end of the context: 12 tokens of prompt and 1202 of answer are more "
        "than the 1024 tokens of context that the model was trained for, so the server dropped the "
        "start of the prompt while the model wrote on; shorten the prompt, or ask for less"
    )


async def test_an_answer_without_token_counts_is_taken_as_it_is() -> None:
    silent = ChatReply(text="ok", prompt_tokens=0, reply_tokens=0)
    with FakeOllama(reply=silent) as server:
        backend = OllamaBackend(host=server.host)
        reply = await backend.chat(ask(ENGLISH))
    assert (reply.text, reply.prompt_tokens, reply.reply_tokens) == ("ok", None, None)
