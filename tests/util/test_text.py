"""How numbers and lines are written, and the one log format: an event's name, then pairs."""

from __future__ import annotations

import logging

import pytest

from llmsim_lab._util.text import clip, log_event, logfmt, number, printable

logger = logging.getLogger("llmsim_lab.test")


@pytest.mark.parametrize(
    ("value", "written"),
    [(2.0, "2"), (9.673333, "9.67"), (0.125, "0.12"), (-0.004, "0"), (-1.5, "-1.5")],
)
def test_a_number_has_two_decimals_at_most_and_none_idle(value: float, written: str) -> None:
    assert number(value) == written


def test_a_text_that_does_not_fit_ends_in_an_ellipsis_and_fits() -> None:
    assert clip("Cut the taxes", 8) == "Cut the…"
    assert len(clip("x" * 100, 20)) == 20


def test_what_a_terminal_would_obey_is_taken_out_of_a_text() -> None:
    assert printable("a\x1b[2Jb\u202ec\r\nd\ud800") == "a[2Jbcd"
    assert printable("é\n\tb\x07", keep="\n\t") == "é\n\tb"
    assert printable("10\u00a0000\u202f€\u3000\u2028!") == "10 000 €  !"


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
