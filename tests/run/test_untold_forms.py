"""Shipped worlds on a server that ignores ``format``, as Ollama's cloud does."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from fake_ollama import FakeOllama

from llmsim_lab import Simulation, connect, data_path
from llmsim_lab.context import CrisisSimulation
from llmsim_lab.statechart import SocialSimulation

TEMPLATES = {
    "double_auction": "DoubleAuction",
    "public_goods": "PublicGoods",
}
SHIPPED: dict[str, tuple[Any, dict[str, Any]]] = {
    "economy": (Simulation, {"nations": ["Ann", "Bo"]}),
    "crisis": (CrisisSimulation, {"scenario": "strait"}),
    "social": (SocialSimulation, {"rationale": True}),
}
UNTOLD = {"crisis": {"ok", "repaired"}, "social": {"ok"}}
"""Where prompts name the fields themselves, as the crisis engine's does."""


@pytest.mark.parametrize("tell_form", [False, True])
@pytest.mark.parametrize("name", [*TEMPLATES, *SHIPPED])
def test_a_model_that_is_held_to_no_schema_answers_once_it_is_told_the_form(
    name: str, tell_form: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(data_path("templates"))
    world, parameters = SHIPPED.get(name, (None, {}))
    if world is None:
        world = getattr(importlib.import_module(name), TEMPLATES[name])
    with FakeOllama(ignores_format=True) as server:
        settings: dict[str, Any] = {"tell_form": tell_form, "num_ctx": 8192, "retry_wait_s": 0}
        client = connect("ollama:llama3.2", host=server.host, quiet=True, **settings)
        run = world(llm_client=client, **parameters)
        run.run(4 if name == "social" else 1)
    expected = {"ok"} if tell_form else UNTOLD.get(name, {"repaired"})
    assert {call.status for call in run.calls} == expected
