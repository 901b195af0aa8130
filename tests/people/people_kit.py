"""The worlds that match published designs, and scripted players for them."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from llmsim_lab import Question, data_path
from llmsim_lab.people import published

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
