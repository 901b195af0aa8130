"""How open pages are told that something changed."""

from __future__ import annotations

from collections.abc import Callable

from llmsim_lab.room._streams import NewsDesk, Viewer


def test_of_many_answers_the_loop_is_woken_once() -> None:
    """Each wake-up writes to the loop's pipe: 120,000 in three turns of two hundred people."""
    calls: list[Callable[[], object]] = []
    news = NewsDesk()
    news.tell([Viewer()])  # before there is a server
    news.open(calls.append)
    people = [Viewer() for _ in range(200)]
    for person in people:
        news.tell([person], urgent=True)
        news.tell(people)
    assert len(calls) == 1


def test_news_that_a_closed_room_had_not_spread_hold_back_none_of_the_room_that_opens_again() -> (
    None
):
    news = NewsDesk()
    before: list[Callable[[], object]] = []
    news.open(before.append)
    news.tell([Viewer()])
    after: list[Callable[[], object]] = []
    news.open(after.append)
    news.tell([Viewer()])
    assert (len(before), len(after)) == (1, 1)
