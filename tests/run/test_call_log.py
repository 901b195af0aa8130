"""The run notes its calls itself, whoever makes them, with a tape or without."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, played, recorded
from counter_kit import Addition, Total, answer

from llmsim_lab import Ask, Run, State
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.run import replay
from llmsim_lab.types import CallSite


class Silent(Run[Total]):
    """Asks three with its client, past ``ask``."""

    kind = "silent"

    async def turn(self, state: Total, ask: Ask) -> Total:
        amounts = await gather_all([self._add(name, state) for name in ("Ann", "Bob", "Cy")])
        return Total(value=state.value + sum(amounts))

    async def _add(self, name: str, total: Total) -> int:
        assert self.llm_client is not None
        reply = await self.llm_client.call_with_retry(
            prompt=f"{name}, the total is {total.value}.",
            response_model=Addition,
            site=CallSite(component="adder", agent=name),
        )
        return reply.add


@pytest.fixture(params=["in memory", "loaded"])
def silent(request: pytest.FixtureRequest, tmp_path: Path) -> Silent:
    path = None if request.param == "in memory" else tmp_path / "x.tape"
    run = recorded(Silent(llm_client=make_client(answer), tape=path), 2)
    return run if path is None else Silent.load(path)


def test_every_call_is_in_turns_frames_and_statuses(silent: Silent) -> None:
    assert [len(turn.calls) for turn in silent.turns] == [0, 3, 3]
    assert {call.request.site.agent for call in silent.calls if call.request.site} == {
        "Ann",
        "Bob",
        "Cy",
    }
    frame = silent.to_frame()
    assert frame["calls"].tolist() == [0, 3, 3]
    assert frame["ok"].tolist() == [0, 3, 3]
    decisions = silent.decisions()
    assert decisions["player"].tolist() == ["Ann", "Bob", "Cy"] * 2
    assert decisions["component"].unique().tolist() == ["adder"]
    assert all(decisions["reasoning"])


class Forgiving(Silent):
    """Takes a failed call for zero."""

    kind = "forgiving"

    async def _add(self, name: str, total: Total) -> int:
        try:
            return await super()._add(name, total)
        except LLMFailureException:
            return 0


def test_a_failed_call_that_a_simulation_passes_over_is_counted_as_failed(path: Path) -> None:
    def reply(request: Any) -> Any:
        if request.site.agent == "Bob":
            raise TimeoutError
        return answer(request)

    run = played(Forgiving(llm_client=make_client(reply), tape=path), 1)
    assert run.to_frame()[["calls", "ok", "failed"]].loc[1].tolist() == [3, 2, 1]
    assert replay(path).turns == run.turns


class Leaving(Silent):
    """Leaves a call running when its turn ends."""

    kind = "leaving"
    _left: asyncio.Task[int]

    async def turn(self, state: Total, ask: Ask) -> Total:
        self._left = asyncio.create_task(self._add("Ann", state))
        await asyncio.sleep(0)
        return state


async def test_a_turn_that_leaves_a_call_running_fails() -> None:
    asked = asyncio.Event()

    async def hang(_: Any) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    run = Leaving(llm_client=make_client(hang))
    with pytest.raises(ConfigError, match="ended while a call of adder of Ann is still"):
        await run.step()
    assert run.turn_number == 0
    run._left.cancel()


class Late(Silent):
    """Starts a task that makes its call when the turn is over."""

    kind = "late"
    _left: asyncio.Task[int]

    async def turn(self, state: Total, ask: Ask) -> Total:
        async def later() -> int:
            await self._end.wait()
            return await self._add("Ann", state)

        self._end = asyncio.Event()
        self._left = asyncio.create_task(later())
        return state


async def test_a_call_left_over_from_an_earlier_turn_is_an_error() -> None:
    run = Late(llm_client=make_client(answer))
    await run.step()
    run._end.set()
    with pytest.raises(ConfigError, match="adder of Ann made a call for turn 1 of 'Late'"):
        await run._left
    assert run.llm_client is not None
    assert run.llm_client.backend.requests == []  # type: ignore[attr-defined]


def test_a_row_that_holds_nan_is_an_error_on_a_tape(path: Path) -> None:
    class Share(State):
        def columns(self) -> dict[str, Any]:
            return {"share": float("nan")}

    class Dividing(Run[Share]):
        async def turn(self, state: Share, ask: Ask) -> Share:
            return state

    with pytest.raises(ConfigError, match=r"Dividing, turn 0: the column share is nan, .*finite"):
        Dividing(tape=path)
