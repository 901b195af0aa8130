"""What a room gives away as tables: people, an oTree-shaped export, one's own answers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from llmsim_lab._util.files import write_file
from llmsim_lab._util.tables import csv_cell
from llmsim_lab.room._seats import PARTICIPANT, Guest, RoomGroup, RoomPlace, RoomSeats
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
"""Those that each world has."""


def people_rows(seats: RoomSeats) -> list[Row]:
    """Return a row for each participant, in the order in which they came."""
    rows = []
    for guest in seats.guests:
        # All keys first, so that the columns stand in one order, whoever has no seat.
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
            row["filled"] = _filled_in(seats, group, guest.place.seat)
            if group.run is not None:
                row["payoff"] = payoff_of(group.run, guest.place.seat)
        row["code"] = seats.keys.completion_code(guest.id)
        row["trial"] = guest.trial
        # A closing question may be called as a column is.
        for name, value in (guest.closing or {}).items():
            column = f"closing {name}" if name in row else name
            row[column] = value
        rows.append(row)
    return rows


def people_csv(seats: RoomSeats) -> str:
    """Return the participants as CSV."""
    return _as_csv(people_rows(seats))


def answers_csv(seats: RoomSeats, guest: Guest) -> str:
    """Return one participant's own answers of this round, and what came of them."""
    rows: list[Row] = []
    if guest.place is not None:
        group = seats.groups[guest.place.group]
        for turn in _turns_played(group):
            for answer in _answers_of(seats, group, turn, guest.place.seat):
                fields = dict(answer.fields)
                # A seat may have changed hands, or something filled it in.
                is_own = fields.pop(PARTICIPANT, "") == guest.id
                row: Row = {"turn": turn.number}
                row["answered_by"] = guest.id if is_own else "somebody else"
                row |= {**fields, "reasoning": answer.reasoning}
                if group.run is not None:
                    results = told_of(
                        group.run,
                        turn.state,
                        guest.place.seat,
                    )
                    row |= {f"result {label}": value for label, value in results.items()}
                rows.append(row)
    if guest.closing is not None:
        closing: Row = {"turn": "closing", "answered_by": guest.id}
        rows.append(closing | guest.closing)
    return _as_csv(rows)


def _turns_played(group: RoomGroup) -> list[Turn]:
    if group.run is None:
        return []
    # Without the state that it started from, of which nobody decided anything.
    return list(group.run.turns[1:])


def _answers_of(
    seats: RoomSeats,
    group: RoomGroup,
    turn: Turn,
    seat: str,
) -> Iterator[Answer]:
    """Yield what a seat answered in a turn, and not what others answered about it."""
    guest = seats.guest_at(RoomPlace(group.number, seat))
    players = {answer.player for answer in turn.answers}
    for answer in turn.answers:
        given_by = answer.fields.get(PARTICIPANT)
        # A person's answer says by itself who gave it, whoever has the seat now.
        if given_by is not None:
            if guest is not None and given_by == guest.id:
                yield answer
            continue
        # With ``by=`` the one who answers is the component, and the player whom it is about.
        is_by_other = answer.component in players and answer.component != answer.player
        if seat == (answer.component if is_by_other else answer.player):
            yield answer


def _filled_in(
    seats: RoomSeats,
    group: RoomGroup,
    seat: str,
) -> int:
    """Return how many decisions of a seat something else made."""
    count = 0
    for turn in _turns_played(group):
        for answer in _answers_of(seats, group, turn, seat):
            count += answer.status == "fallback"
    return count


# --- as oTree has it -----------------------------------------------------------------------------


def otree_csv(seats: RoomSeats) -> str:
    """Return a row for each participant and turn, with the columns of an oTree app's export.

    A turn is oTree's round, a run its group. Seats without a participant are marked as bots. What
    the world pays stands in the last turn, so that the sum over turns is what is paid.
    Source: ``otree/export.py`` of oTree-core, which writes the models participant, player, group,
    subsession and session, in this order. Differs: fields that have no meaning here are left out;
    ``player.filled`` and ``group.arm`` are ours.
    """
    rows: list[Row] = []
    for number, group in enumerate(seats.playing, start=1):
        for turn in _turns_played(group):
            for place_in_group, seat in enumerate(group.plan.seats, start=1):
                row = _otree_row(seats, group, turn, seat)
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
) -> Row:
    guest = seats.guest_at(RoomPlace(group.number, seat))
    number: int | str = ""
    code = f"{group.number + 1}-{seat}"
    label = ""
    if guest is not None:
        # oTree counts participants, and our ids are p001, p002.
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
    # ``payoff`` is of the whole run, so that it stands in one row and the sum over rows is right.
    assert group.run is not None
    if turn is group.run.turns[-1]:
        row["player.payoff"] = payoff_of(group.run, seat)
    filled = 0
    for answer in _answers_of(seats, group, turn, seat):
        filled += answer.status == "fallback"
        for name, value in answer.fields.items():
            column = f"player.{name}"
            if column in row:  # asked twice in a turn, or called as one of oTree's
                column = f"player.{answer.component}_{name}"
            if name != PARTICIPANT:
                # oTree writes truth values as 0 and 1.
                row[column] = int(value) if isinstance(value, bool) else value
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
    """Return rows with their columns model by model; each model's stay in their order."""
    # Of all rows, since a later turn may ask for what the first did not.
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)
    # sorted() keeps what is equal in its order.
    names = sorted(
        columns,
        key=lambda name: models.index(name.partition(".")[0]),
    )
    return [{name: row.get(name) for name in names} for row in rows]


# --- CSV -----------------------------------------------------------------------------------------


def _as_csv(rows: Iterable[Row]) -> str:
    """Return rows as CSV, which spreadsheets may open: no cell is a formula."""
    rows = list(rows)
    # A dict in place of a set: columns stand in the order in which they first came.
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
    """Write the oTree-shaped table as a file."""
    return write_file(path, otree_csv(seats).encode())
