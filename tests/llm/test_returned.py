"""What a backend of one's own returns is converted or an error, and a tape gives back the same."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from client_kit import failure_of
from worlds import PublicGoods

from llmsim_lab.errors import BackendError, ConfigError, LLMFailureException
from llmsim_lab.llm import ChatReply, LLMClient, LLMConfig
from llmsim_lab.tape import verify
from llmsim_lab.types import ModelInfo, ToolCall

TEXT = '{"reasoning": "r", "amount": 1, "confidence": 0.5}'


class Text(str):
    __slots__ = ()


class OwnReply(ChatReply):
    more = 3


class Own:
    """A backend that returns, or raises, what it is given."""

    def __init__(self, reply: Any, info: Any = None) -> None:
        self.reply = reply
        self.info = info or ModelInfo(name="own", backend="own")

    async def chat(self, _: Any) -> Any:
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    async def model_info(self) -> Any:
        return self.info


def client_of(reply: Any, info: Any = None) -> LLMClient:
    return LLMClient(LLMConfig(model="own", retry_wait_s=0), Own(reply, info))


def reply(**fields: Any) -> ChatReply:
    return ChatReply(**{"text": TEXT, **fields})


def nested(levels: int) -> dict[str, Any]:
    """Return dicts in one another."""
    values: dict[str, Any] = {"a": 1}
    for _ in range(levels - 1):
        values = {"a": values}
    return values


DEEPEST = ToolCall("f", nested(190))
"""As deep as a state's values may be."""
CALL = ToolCall("f", {"n": np.int64(3), "x": np.float32(0.5), "t": (1, [2]), 3: "k"}, "c")
CONVERTED: list[tuple[ChatReply, dict[str, Any]]] = [
    (reply(prompt_tokens=12.0, reply_tokens=np.int64(3)), {"prompt_tokens": 12, "reply_tokens": 3}),
    (reply(cached_tokens=np.float64(2.0)), {"cached_tokens": 2}),
    (reply(seconds=1, load_seconds=np.float32(0.5)), {"seconds": 1.0, "load_seconds": 0.5}),
    (
        reply(thinking=None, done_reason=None, seconds=None, load_seconds=None, tool_calls=None),
        {"thinking": "", "done_reason": "stop", "seconds": 0.0, "tool_calls": ()},
    ),
    (
        reply(top_logprobs=[["b", np.float32(-2)], ("a", -0.5)]),
        {"top_logprobs": (("a", -0.5), ("b", -2.0))},
    ),
    (
        reply(tool_calls=[CALL]),
        {"tool_calls": (ToolCall("f", {"n": 3, "x": 0.5, "t": [1, [2]], "3": "k"}, "c"),)},
    ),
    (reply(tool_calls=(DEEPEST,)), {"tool_calls": (DEEPEST,)}),
    (reply(text=Text(TEXT), thinking="half \ud83d, \x00"), {"thinking": "half \ud83d, \x00"}),
    (OwnReply(text=TEXT, reply_tokens=4), {"reply_tokens": 4}),
]


@pytest.mark.parametrize(("returned", "fields"), CONVERTED)
async def test_a_field_of_another_type_is_converted_and_comes_back_from_the_tape(
    returned: ChatReply, fields: dict[str, Any], path: Path
) -> None:
    world = PublicGoods(llm_client=client_of(returned), tape=path)
    await world.arun(1, progress=False)
    kept = cast("ChatReply", world.calls[0].reply)
    assert type(kept) is ChatReply
    found = {name: getattr(kept, name) for name in fields}
    assert repr(found) == repr(fields)
    assert type(kept.text) is str
    assert verify(path) == []
    assert [call.reply for call in PublicGoods.replay(path).calls] == [kept] * 4


WRONG: dict[str, tuple[Any, ...]] = {
    "text": (None, TEXT.encode(), 10**5000),
    "thinking": (b"", 0),
    "done_reason": (3,),
    "prompt_tokens": (-1, True, 12.5, float("nan"), "12", Decimal(12), 2**60, 10**5000),
    "reply_tokens": (float("inf"), np.float64(-2)),
    "cached_tokens": ([], np.array([1, 2])),
    "seconds": (float("nan"), float("inf"), -1.0, "1", True, 10**400, 1e12),
    "load_seconds": (np.float64("nan"),),
    "tool_calls": (CALL, [{"name": "f", "arguments": {}}], "f", [None]),
}
CALLS = [
    ToolCall(cast("Any", None), {}),
    ToolCall("f", cast("Any", [1])),
    ToolCall("f", cast("Any", None)),
    ToolCall("f", {"x": {1}}),
    ToolCall("f", {"x": float("nan")}),
    ToolCall("f", {"x": object()}),
    ToolCall("f", nested(191)),
    ToolCall("f", {}, cast("Any", 5)),
]
EVERY_WRONG = [(name, value) for name, values in WRONG.items() for value in values]
EVERY_WRONG += [("tool_calls", (call,)) for call in CALLS]
LOGPROBS = [
    5,
    "ab",
    {"a": -1},
    [("a",)],
    [("a", "x")],
    [("a", True)],
    [("a", float("nan"))],
    [(1, -1)],
]


@pytest.mark.parametrize(
    ("name", "value"), EVERY_WRONG, ids=[f"{name} {n}" for n, (name, _) in enumerate(EVERY_WRONG)]
)
async def test_a_field_that_no_tape_can_hold_is_an_error_that_names_it(
    name: str, value: Any
) -> None:
    error = await failure_of(client_of(reply(**{name: value})))
    assert (error.reason, error.attempts) == ("server_error", 1)
    assert f"Own.chat returned a ChatReply that no tape can hold: {name}" in str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize("value", LOGPROBS)
async def test_alternatives_that_are_not_log_probabilities_are_an_error(value: Any) -> None:
    error = await failure_of(client_of(reply(top_logprobs=value)))
    assert "where tokens and the logarithms of their probabilities should be" in str(error)


async def test_a_failure_of_ones_own_is_recorded_whatever_its_fields(path: Path) -> None:
    odd = BackendError("no", reason=cast("Any", "odd"), status_code=cast("Any", "5"))
    odd.retry, odd.retry_after_s, odd.reply = cast("Any", 1), float("nan"), reply(seconds=2)
    world = PublicGoods(llm_client=client_of(odd), tape=path)
    with pytest.raises(LLMFailureException, match="server_error after 2 attempts: no"):
        await world.arun(1, progress=False)
    assert verify(path) == []


@pytest.mark.parametrize(
    ("info", "error", "words"),
    [
        ({"name": "m"}, ConfigError, r"Own.model_info returned dict; it must return ModelInfo\("),
        (ModelInfo(name=cast("Any", 5), backend="x"), LLMFailureException, "name=5 must be a text"),
        (
            ModelInfo(name="m", backend="x", digest=cast("Any", b"a")),
            *(LLMFailureException, "digest=b'a' must be a text"),
        ),
    ],
)
async def test_what_a_model_is_said_to_be_is_checked(
    info: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        await client_of(reply(), info).model_info()


def test_what_is_not_a_backend_is_an_error_when_it_is_given() -> None:
    class NotAsync:
        def chat(self, _: Any) -> ChatReply:
            return reply()

    for given in (object(), Own, "ollama", {"chat": 1}):
        with pytest.raises(ConfigError, match=r"is not a backend: one has async def chat\("):
            LLMClient(LLMConfig(), cast("Any", given))
    with pytest.raises(
        ConfigError, match=r"'llama3.2' is not an LLMConfig; connect\('ollama:NAME'"
    ):
        LLMClient(cast("Any", "llama3.2"), Own(reply()))
    many = Own(reply())
    many.max_top_logprobs = "20"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"max_top_logprobs='20' must be a whole number"):
        LLMClient(LLMConfig(), cast("Any", many))
    none_at_once = Own(reply())
    none_at_once.slots = -1  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"slots=-1 must be a whole number .*1"):
        LLMClient(LLMConfig(), cast("Any", none_at_once))
    failing: Callable[..., Any] = PublicGoods(
        llm_client=LLMClient(LLMConfig(), cast("Any", NotAsync()))
    ).run
    with pytest.raises(ConfigError, match=r"NotAsync.chat must be async: async def chat"):
        failing(1)
