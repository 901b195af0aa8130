"""Questions as a page puts them to a person, and answers as they come back."""

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
"""What an answer to the closing questions names."""


def ask_view(seats: RoomSeats, guest: Guest) -> JSONObject | None:
    """Return the question that a participant can answer now, as a page takes it."""
    ask = seats.ask_of(guest)
    if ask is None or ask.shown_at is None:
        return None
    until = None
    if seats.timeout_s is not None:
        until = ask.shown_at + seats.timeout_s
    return {
        **ask.put.as_json(),
        "id": ask.id,
        # Another round's questions are the same ones: what was typed into them is not kept for this
        # one.
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
        # Noted with the reply, so that the tape says who decided, also where seats change hands.
        reply[PARTICIPANT] = guest.id
        ask.person.answer(ask.question, reply)
    except AnswerError as error:
        raise _wrong(error) from error
    except ConfigError as error:
        raise closed() from error


def closing_view(closing: SeatQuestion) -> JSONObject:
    """Return the closing questions as a page takes them."""
    # Nobody is waiting for it: no clock runs.
    return {
        **closing.as_json(),
        "id": CLOSING,
        "draft": CLOSING,
        "since": None,
        "until": None,
    }


def closing_questions(reply: type[Reply]) -> SeatQuestion:
    """Return what is asked at the end: the fields of a class of replies."""
    return put_reply(reply)


def closing_answers(closing: SeatQuestion, values: JSON) -> JSONObject:
    """Return what a participant answered to the closing questions.

    Raises:
        RoomError: something is wrong, by field.
    """
    try:
        answers: JSONObject = closing.taken(closing.read(values))
    except AnswerError as error:
        raise _wrong(error) from error
    return answers


def closed() -> RoomError:
    """Return the fault of an answer that comes too late."""
    return RoomError(
        409,
        "closed",
        "This question is closed: it was answered, or something else answered for you.",
    )


def _wrong(error: AnswerError) -> RoomError:
    faults: Mapping[str, str] = error.by_field
    # Under an empty name stands what is wrong with the answer as a whole.
    sentences = "; ".join(f"{field} {fault}".strip() for field, fault in faults.items())
    return RoomError(409, "faults", f"This was not sent: {sentences}.", faults)
