"""What is read of a server's answer before a client sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmsim_lab.llm._http import unwrapped

TOLD = {"code": "bad_value", "param": "top_p", "type": "invalid_request_error"}


@pytest.mark.parametrize("inner", [{"message": "no"}, {"error": {"message": "no", "code": None}}])
def test_what_comes_with_an_error_is_kept_where_its_message_is_json(inner: dict[str, Any]) -> None:
    text, details = unwrapped({"error": {**TOLD, "message": json.dumps(inner)}})
    assert text == "no"
    assert details.items() >= TOLD.items()


def test_the_error_that_was_passed_on_counts_more_than_the_one_around_it() -> None:
    runner = {"code": 400, "message": "too long", "type": "exceed_context_size_error", "n_ctx": 8}
    text, details = unwrapped({**TOLD, "error": json.dumps({"error": runner})})
    assert text == "too long"
    assert details.items() >= (TOLD | runner).items()


def test_an_error_without_a_text_is_told_as_it_is() -> None:
    assert unwrapped({"error": {"code": 7}})[0] == '{"code": 7}'
