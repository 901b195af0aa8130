"""How much of a run's prompts was read anew: by the server's counts, else by the texts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from llmsim_lab.tape.prompts_read import prompts_read
from llmsim_lab.types import Attempt, CallSite, ChatReply, ChatRequest, Message

SHARED = "Everybody decides at the same time. "


def asked(*texts: str, kind: str = "gift", model: str = "small", **reply: int) -> Attempt:
    roles = ("system", "user") if len(texts) == 2 else ("user",)
    messages = tuple(map(Message, roles, texts))
    request = ChatRequest(model=model, messages=messages, site=CallSite(component=kind))
    return Attempt(request=request, reply=ChatReply(text="{}", **reply), seconds=0.1)


def _common_start(a: str, b: str) -> int:
    for place, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return place
    return min(len(a), len(b))


def test_shares_are_those_of_comparing_every_prompt_with_all_before_it() -> None:
    random = Random(1)
    rules = ["", "Be brief. ", "Be brief"]
    attempts = [
        asked(random.choice(rules), "".join(random.choices("ab", k=random.randrange(9))), kind=kind)
        for kind in random.choices(["gift", "trade"], k=300)
    ]
    one_slot = by_kind = at_best = 0
    texts: list[str] = []
    latest = {"gift": "", "trade": ""}
    for attempt in attempts:
        text = "\x00".join(message.content for message in attempt.request.messages)
        kind = attempt.request.site.component if attempt.request.site else ""
        held = [("", *texts[-1:]), ("", latest[kind]), ("", *texts)]
        shared = [max(_common_start(text, one) for one in its) for its in held]
        one_slot += len(text) - shared[0]
        by_kind += len(text) - shared[1]
        at_best += len(text) - shared[2]
        texts.append(text)
        latest[kind] = text
    found = prompts_read(attempts)
    assert (found.one_slot, found.by_kind, found.at_best) == (one_slot, by_kind, at_best)
    assert (found.requests, found.characters) == (300, sum(map(len, texts)))


UNCOUNTED = [asked(f"{SHARED}{n}", prompt_tokens=100) for n in ("Ann,", "Bob,")]


@pytest.mark.parametrize(
    ("attempts", "words"),
    [
        (
            UNCOUNTED,
            "55 % of the prompts' tokens were read anew; no less would do (computed from the "
            "texts: the server does not tell)",
        ),
        (
            [asked(f"{SHARED}{n}", prompt_tokens=100, cached_tokens=20) for n in ("Ann,", "Bob,")],
            "80 % of the prompts' tokens were read anew; 45 % would do",
        ),
        (
            [*UNCOUNTED, asked("?", prompt_tokens=100, cached_tokens=99)],
            "37 % of the prompts' tokens were read anew; no less would do (computed from the texts "
            "for 2 of 3 requests)",
        ),
        # The server held the rules from an earlier run.
        (
            [asked(f"{SHARED}{n}", prompt_tokens=100, cached_tokens=90) for n in ("Ann,", "Bob,")],
            "10 % of the prompts' tokens were read anew; no less would do",
        ),
        # No server can have said this, but a tape may have been edited.
        *[
            (
                [asked(f"{SHARED}{n}", **counts) for n in ("Ann,", "Bob,")],
                "55 % of the prompts' tokens were read anew; no less would do (computed from the "
                "texts: the server does not tell)",
            )
            for counts in (
                {"prompt_tokens": 100, "cached_tokens": -20},
                {"prompt_tokens": 100, "cached_tokens": 120},
                {"prompt_tokens": -100, "cached_tokens": 20},
                {"prompt_tokens": 10**400},
            )
        ],
        # Two models share nothing, and what a person is asked no server reads.
        (
            [asked(SHARED), asked(SHARED, model="large"), asked(SHARED, model="human")],
            "100 % of the prompts' tokens were read anew; no less would do (computed from the "
            "texts: the server does not tell)",
        ),
        ([asked(SHARED)], ""),
        ([], ""),
    ],
)
def test_a_sentence_says_what_was_read_anew(attempts: list[Attempt], words: str) -> None:
    assert str(prompts_read(attempts)) == words


def test_requests_of_a_tape_are_taken_in_its_order_and_once() -> None:
    texts = ("a" * 40, "a" * 40 + "b" * 40, "b" * 40)
    numbered = [replace(asked(text), number=n) for n, text in enumerate(texts, 1)]
    unreached = replace(asked("c"), reply=None, reason="connection_error", number=4)
    found = prompts_read([numbered[2], unreached, *numbered])
    assert (found.requests, found.characters, found.one_slot) == (3, 160, 120)
