"""What each page shows, as JSON: its whole view, and no more than its viewer may know."""

from __future__ import annotations

from llmsim_lab._util.jsontext import JSON, JSONObject
from llmsim_lab.room._charts import class_charts
from llmsim_lab.room._seats import Guest, RoomGroup, RoomSeats
from llmsim_lab.run import Run
from llmsim_lab.run.told import payoff_of, told_of

_MOST_NAMED = 8
"""The most names of people who are waited for; a phone has no room for two hundred."""


def guest_view(
    seats: RoomSeats,
    guest: Guest,
    asked: JSONObject | None,
    closing: JSONObject | None,
) -> JSONObject:
    """Return all that a participant may know now.

    Args:
        seats: the room.
        guest: the participant.
        asked: the question that can be answered, as people see it; None if there is none.
        closing: the closing questions; None if there are none, or if they were answered.
    """
    view: JSONObject = {
        "guest": guest.id,
        "name": guest.name,
        "round": seats.round,
    }
    group = None
    if guest.place is not None:
        group = seats.groups[guest.place.group]
    # A group whose run failed does not continue, so its people must not wait.
    has_ended = group is not None and (group.is_over or bool(group.fault))
    is_over = seats.phase == "over" or has_ended
    if group is not None and group.run is not None and guest.place is not None:
        view |= _game_view(
            group.run,
            guest.place.seat,
            is_over=is_over,
        )
    if is_over and closing is not None and group is not None:
        return view | {"step": "closing", "ask": closing}
    if is_over and group is None:  # a person who came when all seats were taken has no results
        return view | {"step": "done"}
    if is_over:
        code = seats.keys.completion_code(guest.id)
        return view | {"step": "done", "code": code}
    if seats.phase == "lobby":
        here = len(seats.guests)
        return view | {"step": "lobby", "here": here, "seats": seats.count}
    if group is None:
        return view | {"step": "full"}
    if group.run is None:
        return view | {"step": "opening"}
    if guest.is_away:
        return view | {"step": "filled"}
    if asked is not None:
        return view | {"step": "ask", "ask": asked}
    # All have answered; the teacher's click is what is missing.
    last_turn = seats.last_turn
    if last_turn is not None and group.run.turn_number >= last_turn:
        return view | {"step": "held"}
    return view | {"step": "wait", "waiting": _waiting(group)}


def _game_view(
    run: Run,
    seat: str,
    *,
    is_over: bool,
) -> JSONObject:
    """Return where a player's game is, and what the player is told of it."""
    view: JSONObject = {
        "seat": seat,
        "turn": run.turn_number,
        "planned": run.config.turns,
    }
    results: dict[str, JSON] = {}
    # The initial state is not the result of a turn.
    if run.turn_number:
        results = told_of(run, run.state, seat)
    if results:
        # Pairs and not an object: a browser would reorder numeric keys.
        pairs: list[JSON] = [[label, value] for label, value in results.items()]
        view["told"] = pairs
        view["told_turn"] = run.turn_number
    if is_over:
        payoff = payoff_of(run, seat)
        if payoff is not None:
            view["payoff"] = payoff
    return view


def _waiting(group: RoomGroup) -> JSON:
    """Return the names of the seats in a group whose answers are missing."""
    shown = {}
    for seat, ask in group.asks.items():
        if ask.shown_at is not None:
            shown[seat] = ask.shown_at
    if not shown:
        return None
    names: list[JSON] = []
    names += list(shown)[:_MOST_NAMED]
    return {
        "count": len(shown),
        "seats": names,
        "since": min(shown.values()),
    }


# --- the teacher and the wall --------------------------------------------------------------------


def projector_view(seats: RoomSeats, beside: Run | None) -> JSONObject:
    """Return what everybody may see: before the end, nothing about arms or single people."""
    view = _class_view(seats)
    is_over = seats.phase == "over"
    view["charts"] = []
    if is_over or seats.is_shown:
        view["charts"] = class_charts(
            seats.groups,
            beside,
            with_arms=is_over,
        )
    return view


def teacher_view(
    seats: RoomSeats,
    beside: Run | None,
    *,
    is_played: bool,
) -> JSONObject:
    """Return who sits where, and who is waited for since when."""
    rows: list[JSON] = [_group_row(seats, group) for group in seats.playing]
    # People who wait for a seat: before the start all, later those for whom there was none.
    waiting = [guest for guest in seats.guests if guest.place is None]
    lobby: list[JSON] = list(map(_person, waiting))
    return {
        **_class_view(seats),
        "charts": class_charts(seats.groups, beside, with_arms=True),
        "rows": rows,
        "lobby": lobby,
        "gate": seats.last_turn,
        "shown": seats.is_shown,
        "playing": is_played,
        "fault": seats.fault,
    }


def _class_view(seats: RoomSeats) -> JSONObject:
    playing = seats.playing
    # Groups that are over do not count, since nobody waits for them.
    turns: list[int] = []
    planned = 0
    shown = 0
    people = 0
    for group in playing:
        run = group.run
        if run is None:
            continue
        planned = max(planned, run.config.turns)
        if group.is_over:
            continue
        turns.append(run.turn_number + 1)
        for ask in group.asks.values():
            shown += ask.shown_at is not None
        people += _people_in(seats, group)
    return {
        "title": seats.source.title,
        "phase": seats.phase,
        "round": seats.round,
        "joined": len(seats.guests),
        "online": sum(guest.is_online for guest in seats.guests),
        "seats": seats.count,
        "groups": len(playing),
        "groups_over": sum(group.is_over for group in playing),
        # The lowest, since the class waits for that turn.
        "turn": min(turns, default=planned),
        "planned": planned,
        "waiting": shown,
        "asked": people,
        # A seat that was just filled may still have its question.
        "answered": max(0, people - shown),
        "held": seats.last_turn is not None and not shown,
    }


def _people_in(seats: RoomSeats, group: RoomGroup) -> int:
    places = map(group.place_of, group.plan.seats)
    return sum(not seats.is_filled(place) for place in places)


def _group_row(seats: RoomSeats, group: RoomGroup) -> JSONObject:
    run = group.run
    rows: list[JSON] = []
    for seat in group.plan.seats:
        place = group.place_of(seat)
        guest = seats.guest_at(place)
        ask = group.asks.get(seat)
        person: JSONObject = {
            "guest": "",
            "name": "",
            "label": "",
            "online": False,
        }
        if guest is not None:
            person = _person(guest)
        rows.append(
            {
                **person,
                "seat": seat,
                "filled": seats.is_filled(place),
                "since": None if ask is None else ask.shown_at,
                "answered": 0 if guest is None else guest.answers,
            }
        )
    return {
        "key": str(group.number + 1),
        "name": group.plan.name,
        "turn": 0 if run is None else run.turn_number,
        "turns": 0 if run is None else run.config.turns,
        "over": group.is_over,
        "fault": group.fault,
        "seats": rows,
    }


def _person(guest: Guest) -> JSONObject:
    return {
        "guest": guest.id,
        "name": guest.name,
        "label": guest.label,
        "online": guest.is_online,
    }
