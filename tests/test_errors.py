"""The exception tree: what is caught by what, and what a failed call says."""

from __future__ import annotations

import pickle

import pytest
from builders import policy

from llmsim_lab import errors
from llmsim_lab.errors import ConfigError, DataError, LabError, LLMFailureException, PromptError


def test_every_error_of_the_package_is_a_lab_error() -> None:
    found = [getattr(errors, name) for name in errors.__all__]
    classes = [item for item in found if isinstance(item, type) and issubclass(item, Exception)]
    assert len(classes) > 8
    assert all(issubclass(item, LabError) for item in classes)
    assert all(issubclass(it, ValueError) for it in (ConfigError, DataError, PromptError))


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (LLMFailureException("timeout", 2, None, "agent"), "agent: timeout after 2 attempts"),
        (
            LLMFailureException("timeout", 2, None, "player", agent="Ann", turn=3),
            "player of Ann in turn 3: timeout after 2 attempts",
        ),
        (LLMFailureException("server_error", 1, 503), "server_error after 1 attempt (HTTP 503)"),
        (LLMFailureException("timeout", 0, detail="why"), "timeout after 0 attempts: why"),
    ],
)
def test_a_failed_call_says_who_what_and_how_often(failure: Exception, text: str) -> None:
    assert str(failure) == text


def test_a_failed_call_survives_pickling() -> None:
    failure = LLMFailureException("timeout", 2, 200, "a", detail="no", rejected=policy("Sing"))
    again = pickle.loads(pickle.dumps(failure))
    assert str(again) == str(failure)
    assert vars(again) == vars(failure)
