"""One log format: an event's name, then key=value pairs."""

from __future__ import annotations

import logging

import pytest

from llmsim_lab._util.text import log_event, logfmt

logger = logging.getLogger("llmsim_lab.test")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        ("two words", '"two words"'),
        ("", '""'),
        ('say "hi"', '"say \\"hi\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("line\nbreak", '"line\\nbreak"'),
        ("\x1b[31mred", '"\\u001b[31mred"'),
        ("naïve", "naïve"),
        ("30 °C", '"30 °C"'),
    ],
)
def test_a_value_is_quoted_only_where_it_has_to_be(value: object, written: str) -> None:
    assert logfmt(key=value) == f"key={written}"


def test_an_event_is_in_the_records_own_message_with_the_place_that_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    log_event(logger, logging.DEBUG, "llm_reasoning_chain", component="agent", reasoning="So so.")
    (record,) = caplog.records
    assert record.getMessage() == 'llm_reasoning_chain component=agent reasoning="So so."'
    assert (record.levelname, record.name) == ("DEBUG", "llmsim_lab.test")
    assert str(record.funcName).startswith("test_an_event_is_in")


def test_where_no_logging_is_set_up_the_screen_has_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    log_event(logger, logging.WARNING, "FORK_LOST", run=1, reason="no room")
    log_event(logger, logging.WARNING, "BELL", words="The bell\x07 rang.", times=1)
    log_event(logger, logging.ERROR, "TOLD_BY_AN_EXCEPTION", words="")
    log_event(logger, logging.INFO, "FOR_LOGS_ONLY")
    assert capsys.readouterr().err == ('FORK_LOST run=1 reason="no room"\nThe bell rang.\n')
