"""What a run may spend: calls, tokens or money."""

from __future__ import annotations

import threading
from typing import Annotated

from pydantic import Field, model_validator

from llmsim_lab.calls import Attempt
from llmsim_lab.errors import BudgetReached, ConfigError
from llmsim_lab.settings import Settings

__all__ = ["Budget", "Purse"]


class Budget(Settings):
    """What ``run()`` may spend on live calls before it stops; what a tape answers costs nothing.

    Attributes:
        calls: requests to a model, repeated ones included.
        tokens: of prompts and replies together.
        money: in any currency, the same as ``price``.
        price: of a million prompt tokens, and of a million reply tokens.

    Raises:
        ConfigError: nothing is limited, or ``money`` without ``price``.
    """

    calls: Annotated[int, Field(ge=1)] | None = None
    tokens: Annotated[int, Field(ge=1)] | None = None
    money: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    price: tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)]] | None = None

    @model_validator(mode="after")
    def _limits_something(self) -> Budget:
        if self.calls is None and self.tokens is None and self.money is None:
            raise ConfigError("a Budget limits something: Budget(calls=500), or tokens=, money=")
        if self.money is not None and self.price is None:
            raise ConfigError(
                f"money={self.money:g} needs the price of a million prompt tokens and of a million "
                "reply tokens: Budget(money=2, price=(0.15, 0.60))"
            )
        return self


class Purse:
    """What is left of a budget while a run spends it.

    Args:
        budget: what may be spent.

    Attributes:
        calls: requests begun.
        tokens: used by those that were answered.
        money: what these cost.
        refusal: why a request was not made; a turn that went on without it does not count.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.calls = 0
        self.tokens = 0
        self.money = 0.0
        self.refusal: BudgetReached | None = None
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise BudgetReached if no further request may be made.

        Tokens are known once an answer is there, so that requests in flight together can pass
        their limit by what they use.
        """
        limits = self.budget
        for spent, limit, unit in (
            (self.calls, limits.calls, "calls"),
            (self.tokens, limits.tokens, "tokens"),
            (round(self.money, 6), limits.money, "of money"),
        ):
            if limit is not None and spent >= limit:
                raise BudgetReached(
                    f"the budget of {limit:,} {unit} is spent; resume the run with another budget "
                    "to go on"
                )

    def begin(self) -> None:
        """Count a request that is about to be made.

        Raises:
            BudgetReached: it may not be made.
        """
        with self._lock:
            try:
                self.check()
            except BudgetReached as refusal:
                self.refusal = refusal
                raise
            self.calls += 1

    def end(self, attempt: Attempt) -> None:
        """Count what a request used."""
        reply = attempt.reply
        if reply is None:
            return
        read, written = reply.prompt_tokens or 0, reply.reply_tokens or 0
        with self._lock:
            self.tokens += read + written
            if self.budget.price is not None:
                per_prompt, per_reply = self.budget.price
                self.money += (read * per_prompt + written * per_reply) / 1e6
