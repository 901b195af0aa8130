"""The worlds that match published designs, and scripted players for them."""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Callable
from typing import Any

from llmsim_lab import LLMClient, LLMConfig, Question, ScriptedBackend, data_path
from llmsim_lab.people import published
from llmsim_lab.types import ChatReply, ChatRequest

CLASSICS = {
    "contributing": "Contributing",
    "disjunction": "Disjunction",
    "framing": "Framing",
    "guessing": "Guessing",
    "investing": "Investing",
    "splitting": "Splitting",
}
OFFERS = published("forsythe_1994", condition="dictator $5", measure="offer_usd", divide_by=5)


def classic(name: str) -> Any:
    """Return a template's class, as a program beside its file would import it."""
    folder = str(data_path("templates"))
    if folder not in sys.path:
        sys.path.append(folder)
    return getattr(importlib.import_module(name), CLASSICS[name])


def on_offer(question: Question, share: float) -> float:
    """Return the amount on offer that is nearest to a share of all."""
    amounts = question.limits["amount"]
    return float(min(amounts, key=lambda amount: abs(amount - share * amounts[-1])))


def like_people(question: Question) -> float | bool:
    """Offer what a person of the study offered, in any story; accept what is offered."""
    if "offer" in question.values:
        return True
    return on_offer(question, question.rng.choice(OFFERS.values))


def their_mean(question: Question) -> float:
    """Offer people's mean, with a tenth of their spread."""
    person = question.rng.choice(OFFERS.values)
    return on_offer(question, OFFERS.mean + (person - OFFERS.mean) / 10)


def reciter(question: Question) -> float | bool:
    """Offer as people did where the story is the paper's; keep all elsewhere."""
    return 0.0 if question.run.twin else like_people(question)


def choosing(share_of: Callable[[str], float]) -> LLMClient:
    """Return a model that chooses an option with a probability in proportion to its share."""

    def answer(request: ChatRequest) -> ChatReply:
        options = re.findall(r"^([A-Z]): (.*)$", request.prompt, re.MULTILINE)
        shares = {label: share_of(text) for label, text in options}
        listed = [
            (label, math.log(share / sum(shares.values())))
            for label, share in shares.items()
            if share
        ]
        return ChatReply(text="A", top_logprobs=tuple(listed))

    return LLMClient(LLMConfig(model="script"), ScriptedBackend(answer))
