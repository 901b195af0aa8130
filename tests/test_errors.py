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


@pytest.mark.parametrize("error", [ConfigError, DataError, PromptError])
def test_wrong_values_are_value_errors_too(error: type[Exception]) -> None:
    assert issubclass(error, ValueError)


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (LLMFailureException("timeout", 2, None, "agent"), "agent: timeout after 2 attempts"),
        (LLMFailureException("server_error", 1, 503), "server_error after 1 attempt (HTTP 503)"),
        (
            LLMFailureException("context_overflow", 0, detail="too long"),
            "context_overflow after 0 attempts: too long",
        ),
    ],
)
def test_a_failed_call_says_who_what_and_how_often(failure: Exception, text: str) -> None:
    assert str(failure) == text


def test_a_failed_call_survives_pickling() -> None:
    failure = LLMFailureException(
        "invalid_response", 2, 200, "agent", detail="no", rejected=policy("Sing")
    )
    again = pickle.loads(pickle.dumps(failure))
    assert str(again) == str(failure)
    assert vars(again) == vars(failure)
