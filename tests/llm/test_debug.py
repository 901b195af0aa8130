"""What becomes of a call, a line each in the log at DEBUG."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from builders import make_client, requests_of, until
from client_kit import GOOD, decide, say
from worlds import PublicGoods

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient

RATED = {"reasoning": "r", "amount": 1, "confidence": 1}


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines, without the time that things took, and clear them."""
    found = [one.getMessage() for one in caplog.records if one.name == "llmsim_lab.llm"]
    caplog.clear()
    return found


async def test_each_step_of_a_call_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = GOOD | {"confidence": 3, "action": "Hm?\nNo."}
    client = make_client([wrong, GOOD], retry_wait_s=0.001, model="test")
    await decide(client, prompt="What\nnow?")
    found = lines(caplog)
    place = "component=agent agent=Aland turn=1 attempt="
    begins = [
        f'LLM_REQUEST {place}1 model=test messages=1 chars=9 last="What now?"',
        f"LLM_REPLY {place}1 seconds=",
        f"LLM_COMPLAINT {place}1 reason=invalid_response retry=True detail=",
        f"LLM_WAIT {place}2 seconds=0.001 reason=invalid_response",
        f"LLM_RETRY {place}2 model=test messages=3 chars=",
        f"LLM_REPLY {place}2 seconds=",
    ]
    assert [line[: len(begin)] for line, begin in zip(found, begins, strict=True)] == begins
    assert "Hm?" in found[1]
    assert not any("\n" in line for line in found)


async def test_a_fault_a_cancellation_and_the_queue_are_lines_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    client = make_client([TimeoutError(), *["Yes."] * 2], max_concurrency=1, delay_s=0.01)
    await asyncio.gather(say(client), say(client))
    found = lines(caplog)
    assert [line.split()[0] for line in found].count("LLM_QUEUED") >= 1
    assert any("LLM_QUEUED attempt=1 at_once=1" in line for line in found)
    assert any(line.startswith("LLM_FAULT attempt=1 reason=timeout retry=True") for line in found)
    slow = make_client(["Yes."], delay_s=30)
    asking = asyncio.create_task(say(slow))
    await until(lambda: bool(requests_of(slow)))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert "LLM_FAULT attempt=1 reason=cancelled retry=False" in lines(caplog)[-1]


def test_a_replay_says_that_the_tape_answers(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    PublicGoods(llm_client=make_client(RATED), tape=path).run(1)
    caplog.set_level(logging.DEBUG)
    PublicGoods.replay(path)
    assert lines(caplog) == [
        f"LLM_RECORDED component=player agent={name} turn=1 attempt=1 call={number}"
        for number, name in enumerate(("Ann", "Bob", "Cy", "Di"), start=1)
    ]


def test_the_environment_asks_for_lines_on_the_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = logging.getLogger("llmsim_lab")
    monkeypatch.setattr(package, "propagate", False)  # to pytest's own handlers
    monkeypatch.setattr(package, "handlers", [])
    monkeypatch.setattr(package, "level", package.level)
    for _ in range(2):
        monkeypatch.setenv("LLMSIM_LOG", " Debug ")
        asyncio.run(say(make_client(["Yes."])))
    shown = capsys.readouterr().err.splitlines()
    assert [line.split()[4] for line in shown] == ["LLM_REQUEST", "LLM_REPLY"] * 2
    package.setLevel(logging.NOTSET)
    monkeypatch.setenv("LLMSIM_LOG", "banana")
    with pytest.raises(ConfigError, match=r"LLMSIM_LOG='banana' is not a level .* write debug, in"):
        LLMClient()
