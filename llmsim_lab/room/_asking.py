"""Questions as pages show them to people, and the answers that pages send."""

from __future__ import annotations

from collections.abc import Mapping

from llmsim_lab._util.jsontext import JSON, JSONObject
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.human import AnswerError
from llmsim_lab.room._faults import RoomError
from llmsim_lab.room._seats import PARTICIPANT, Guest, OpenAsk, RoomSeats
from llmsim_lab.run.seating import SeatQuestion, put_reply
from llmsim_lab.types import Reply

CLOSING = "closing"
"""The question's id in an answer to the closing questions."""


def ask_view(seats: RoomSeats, guest: Guest) -> JSONObject | None:
    """Return the question that a participant can answer now, in the form of a page."""
    ask = seats.ask_of(guest)
    if ask is None or ask.shown_at is None:
        return None
    until = None
    if seats.timeout_s is not None:
        until = ask.shown_at + seats.timeout_s
    return {
        **ask.put.as_json(),
        "id": ask.id,
        # With the round, since its questions are the same as in an earlier round, whose drafts must
        # not appear again.
        "draft": f"{seats.round} {ask.put.draft}",
        "since": ask.shown_at,
        "until": until,
    }


def take_answer(
    guest: Guest,
    ask: OpenAsk,
    values: JSON,
) -> None:
    """Answer a question.

    Raises:
        RoomError: the answer is wrong, and was not sent; or the question is closed.
    """
    try:
        typed = ask.put.read(values)
        reply = ask.put.taken(typed)
        # Recorded with the reply: the tape says who decided, even if the seat changes hands.
        reply[PARTICIPANT] = guest.id
        ask.person.answer(ask.question, reply)
    except AnswerError as error:
        raise _wrong(error) from error
    except ConfigError as error:
        raise closed() from error


def closing_view(closing: SeatQuestion) -> JSONObject:
    """Return the closing questions in the form of a page."""
    # Without a clock, since nobody waits for the answers.
    return {
        **closing.as_json(),
        "id": CLOSING,
        "draft": CLOSING,
        "since": None,
        "until": None,
    }


def closing_questions(reply: type[Reply]) -> SeatQuestion:
    """Return the closing questions: the fields of a class of replies."""
    return put_reply(reply)


def closing_answers(closing: SeatQuestion, values: JSON) -> JSONObject:
    """Return a participant's answers to the closing questions.

    Raises:
        RoomError: an answer is wrong; the error names its field.
    """
    try:
        answers: JSONObject = closing.taken(closing.read(values))
    except AnswerError as error:
        raise _wrong(error) from error
    return answers


def closed() -> RoomError:
    """Return the error for an answer that comes too late."""
    return RoomError(
        409,
        "closed",
        "This question is closed: it was answered, or something else answered for you.",
    )


def _wrong(error: AnswerError) -> RoomError:
    faults: Mapping[str, str] = error.by_field
    # The empty name stands for the answer as a whole.
    parts = [f"{field} {fault}".strip() for field, fault in faults.items()]
    sentences = "; ".join(parts)
    return RoomError(409, "faults", f"This was not sent: {sentences}.", faults)
