from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import uvicorn.server


@pytest.fixture(autouse=True, scope="session")
def _closed_soon() -> Iterator[None]:
    """Have a server's end wait for hundredths of a second, not for two tenths."""

    async def sleep(delay_s: float) -> None:
        await asyncio.sleep(delay_s / 20)

    hurried = SimpleNamespace(**{**vars(asyncio), "sleep": sleep})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn.server, "asyncio", hurried)
        yield
