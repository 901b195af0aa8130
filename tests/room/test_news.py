"""How open pages are told that something changed."""

from __future__ import annotations

from collections.abc import Callable

from llmsim_lab.room._streams import NewsDesk, Viewer


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
