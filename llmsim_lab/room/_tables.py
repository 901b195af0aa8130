"""The tables of a room: its people, an export shaped like oTree's, a participant's answers."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from llmsim_lab._util.files import write_file
from llmsim_lab._util.tables import csv_cell
from llmsim_lab.room._seats import PARTICIPANT, Guest, RoomGroup, RoomSeats
from llmsim_lab.run.told import payoff_of, told_of
from llmsim_lab.run.turn import Answer, Turn

Row = dict[str, object]

_OTREE_COLUMNS = (
    "participant.id_in_session",
    "participant.code",
    "participant.label",
    "participant._is_bot",
    "player.id_in_group",
    "player.role",
    "player.payoff",
    "group.id_in_subsession",
    "subsession.round_number",
    "session.code",
)
"""The columns that every world has."""


def people_rows(seats: RoomSeats) -> list[Row]:
    """Return a row for each participant, in the order in which they came."""
    rows = []
    filled_by_group = {group.number: _filled_by_seat(seats, group) for group in seats.groups}
    for guest in seats.guests:
        # All keys first, so that the order of columns does not depend on who has a seat.
        row: Row = {
            "participant": guest.id,
            "label": guest.label,
            "name": guest.name,
        }
        row |= {
            "round": seats.round,
            "run": "",
            "arm": "",
            "seat": "",
        }
        row |= {
            "answered": guest.answers,
            "filled": 0,
            "payoff": None,
        }
        if guest.place is not None:
            group = seats.groups[guest.place.group]
            row |= {
                "run": group.plan.name,
                "arm": group.plan.arm,
                "seat": guest.place.seat,
            }
            seat = guest.place.seat
            row["filled"] = filled_by_group[group.number][seat]
            if group.run is not None:
                row["payoff"] = payoff_of(group.run, seat)
        row["code"] = seats.keys.completion_code(guest.id)
        row["trial"] = guest.trial
        closing = guest.closing or {}
        for name, value in closing.items():
            # A closing question may have the name of a column.
            column = f"closing {name}" if name in row else name
            row[column] = value
        rows.append(row)
    return rows


def people_csv(seats: RoomSeats) -> str:
    """Return the participants as CSV."""
    return _as_csv(people_rows(seats))


def answers_csv(seats: RoomSeats, guest: Guest) -> str:
    """Return a participant's own answers in this round, with their outcomes, as CSV."""
    rows: list[Row] = []
    if guest.place is not None:
        group = seats.groups[guest.place.group]
        seat = guest.place.seat
        for turn in _turns_played(group):
            for answer in _answers_by_seat(seats, group, turn)[seat]:
                fields = dict(answer.fields)
                # The seat may have changed hands, or a stand-in may have answered.
                is_own = fields.pop(PARTICIPANT, "") == guest.id
                row: Row = {"turn": turn.number}
                row["answered_by"] = guest.id if is_own else "somebody else"
                row |= {**fields, "reasoning": answer.reasoning}
                if group.run is not None:
                    results = told_of(group.run, turn.state, seat)
                    for label, value in results.items():
                        row[f"result {label}"] = value
                rows.append(row)
    if guest.closing is not None:
        closing: Row = {"turn": "closing", "answered_by": guest.id}
        rows.append(closing | guest.closing)
    return _as_csv(rows)


def _turns_played(group: RoomGroup) -> list[Turn]:
    if group.run is None:
        return []
    # Without the initial state, which has no decisions.
    return list(group.run.turns[1:])


def _answers_by_seat(
    seats: RoomSeats,
    group: RoomGroup,
    turn: Turn,
) -> defaultdict[str, list[Answer]]:
    """Return a turn's answers by the seat that gave them, without the answers of who has left."""
    seat_by_guest: dict[str, str] = {}
    for seat in group.plan.seats:
        guest = seats.guest_at(group.place_of(seat))
        if guest is not None:
            seat_by_guest[guest.id] = seat
    players = {answer.player for answer in turn.answers}
    answers: defaultdict[str, list[Answer]] = defaultdict(list)
    for answer in turn.answers:
        given_by = answer.fields.get(PARTICIPANT)
        # A person's answer names its participant, whoever has the seat now.
        if given_by is not None:
            # A journal that was changed may have anything there.
            own_seat = seat_by_guest.get(str(given_by))
            if own_seat is not None:
                answers[own_seat].append(answer)
            continue
        # With ``by=``, the component is the one who answers, and the player the one it is about.
        is_by_other = answer.component in players and answer.component != answer.player
        giver = answer.component if is_by_other else answer.player
        answers[giver].append(answer)
    return answers


def _filled_by_seat(seats: RoomSeats, group: RoomGroup) -> Counter[str]:
    """Return how many decisions of each seat a stand-in made."""
    filled: Counter[str] = Counter()
    for turn in _turns_played(group):
        for seat, answers in _answers_by_seat(seats, group, turn).items():
            filled[seat] += sum(answer.status == "fallback" for answer in answers)
    return filled


# --- as oTree has it -----------------------------------------------------------------------------


def otree_csv(seats: RoomSeats) -> str:
    """Return a row for each participant and turn, with the columns of an oTree app's export.

    A turn is oTree's round, and a run its group. Seats without a participant are marked as bots.
    The world's payoff stands in the last turn, so that the sum over turns is what a participant is
    paid. Source: ``otree/export.py`` of oTree-core, which writes the models participant, player,
    group, subsession and session, in this order. Differs: fields that have no meaning here are left
    out; ``player.filled`` and ``group.arm`` are ours.
    """
    rows: list[Row] = []
    for number, group in enumerate(seats.playing, start=1):
        for turn in _turns_played(group):
            answers = _answers_by_seat(seats, group, turn)
            for place_in_group, seat in enumerate(group.plan.seats, start=1):
                row = _otree_row(seats, group, turn, seat, answers[seat])
                row["player.id_in_group"] = place_in_group
                row["group.id_in_subsession"] = number
                rows.append(row)
    if not rows:  # else programs that read tables fail on a file without a header
        rows = [dict.fromkeys(_OTREE_COLUMNS)]
        return _as_csv(rows).partition("\n")[0] + "\n"
    models = ("participant", "player", "group", "subsession", "session")
    return _as_csv(_in_order(rows, models))


def _otree_row(
    seats: RoomSeats,
    group: RoomGroup,
    turn: Turn,
    seat: str,
    answers: Sequence[Answer],
) -> Row:
    guest = seats.guest_at(group.place_of(seat))
    number: int | str = ""
    code = f"{group.number + 1}-{seat}"
    label = ""
    if guest is not None:
        # oTree has numbers for participants; our ids are p001, p002.
        number = int(guest.id.removeprefix("p"))
        code = guest.id
        label = guest.label
    row: Row = {
        "participant.id_in_session": number,
        "participant.code": code,
        "participant.label": label,
        "participant._is_bot": int(guest is None),
        "player.id_in_group": 0,
        "player.role": seat,
        "player.payoff": "",
    }
    # The payoff is for the whole run, so it stands in one row, and the sum over rows is right.
    assert group.run is not None
    if turn is group.run.turns[-1]:
        row["player.payoff"] = payoff_of(group.run, seat)
    filled = 0
    for answer in answers:
        filled += answer.status == "fallback"
        for name, value in answer.fields.items():
            if name == PARTICIPANT:
                continue
            column = f"player.{name}"
            if column in row:  # asked twice in a turn, or a name of oTree's
                column = f"player.{answer.component}_{name}"
            row[column] = value
            # oTree writes booleans as 0 and 1.
            if isinstance(value, bool):
                row[column] = int(value)
    row["player.filled"] = filled
    row["group.id_in_subsession"] = 0
    row["group.arm"] = group.plan.arm
    row["subsession.round_number"] = turn.number
    row["session.code"] = seats.keys.room
    return row


def _in_order(
    rows: Sequence[Row],
    models: tuple[str, ...],
) -> list[Row]:
    """Return rows with their columns ordered by model; within a model, the order stays."""
    # The columns of all rows, since a later turn may have questions that the first had not.
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)

    def model_number(column: str) -> int:
        model, _, _ = column.partition(".")
        return models.index(model)

    # sorted() keeps the order of columns with equal numbers.
    names = sorted(columns, key=model_number)
    return [{name: row.get(name) for name in names} for row in rows]


# --- CSV -----------------------------------------------------------------------------------------


def _as_csv(rows: Iterable[Row]) -> str:
    """Return rows as CSV that is safe for spreadsheets: no cell is a formula."""
    rows = list(rows)
    # A dict and not a set: columns keep the order in which they first came.
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([csv_cell(name) for name in columns])
    for row in rows:
        values = [row.get(name) for name in columns]
        cells = ["" if value is None else csv_cell(value) for value in values]
        writer.writerow(cells)
    return text.getvalue()


def write_otree(seats: RoomSeats, path: Path) -> Path:
    """Write the table shaped like oTree's to a file."""
    return write_file(path, otree_csv(seats).encode())
