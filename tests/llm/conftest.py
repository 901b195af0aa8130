"""Servers without a socket."""

from __future__ import annotations

import httpx
import pytest
from client_kit import Served


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Served:
    served = Served()
    monkeypatch.setattr(
        "llmsim_lab.llm._http.BoundedHTTP", lambda **_: httpx.MockTransport(served.handle)
    )
    return served
