"""Whether a model prefers what stands first: the same question with its options in every rotation.

Over all rotations of a question each option stands in each place once. A model that only weighs the
options therefore picks the one in first place in ``1 / options`` of the cases, whatever it prefers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llmsim_lab.errors import ConfigError
from llmsim_lab.statechart.choices import Chooser, Question

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PositionBias", "ask_rotated", "position_bias", "rotations"]


def rotations(question: Question) -> list[Question]:
    """Return a question once for each rotation of its options, the given order first."""
    options = list(question.options)
    return [replace(question, options=options[n:] + options[:n]) for n in range(len(options))]


async def ask_rotated(reasoner: Chooser, questions: Sequence[Question]) -> pd.DataFrame:
    """Ask every question with its options in every rotation; return one row an answer.

    Columns: ``question``, its number; ``agent``; ``trigger``; ``post``, its id or None;
    ``rotation``, 0 for the given order; ``options``, how many; ``shown_first``; ``chosen``;
    ``place``, where the chosen one stood, 1 for first; ``status``.

    Args:
        reasoner: one that shows options as they are given: ``Reasoner(client, seed=None)``.
        questions: for example a run's ``questions()``.

    Raises:
        ConfigError: the reasoner shuffles the options itself.
    """
    import pandas as pd

    if getattr(reasoner, "llm_client", None) and getattr(reasoner, "seed", None) is not None:
        raise ConfigError("a reasoner with a seed shuffles the options; use Reasoner(client)")
    asked = [
        (number, turned, one)
        for number, question in enumerate(questions)
        for turned, one in enumerate(rotations(question))
    ]
    choices = await reasoner.choose_all([one for _, _, one in asked])
    rows = [
        {
            "question": number,
            "agent": one.agent.name,
            "trigger": one.trigger,
            "post": getattr(one.context, "id", None),
            "rotation": turned,
            "options": len(one.options),
            "shown_first": one.options[0].value,
            "chosen": choice.state.value,
            "place": list(one.options).index(choice.state) + 1,
            "status": choice.status,
        }
        for (number, turned, one), choice in zip(asked, choices, strict=True)
    ]
    columns = ["question", "agent", "trigger", "post", "rotation", "options", "shown_first"]
    return pd.DataFrame(rows, columns=[*columns, "chosen", "place", "status"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionBias:
    """How often the option in one place was chosen.

    Attributes:
        place: the place, 1 for first.
        share: of the answers that chose it, 0 to 1.
        low: lower end of the 95 % interval; None with fewer than two questions.
        high: upper end.
        expected: the share without any preference for places.
        questions: how many there were.
        answers: how many there were; fallbacks are left out, since there no model chose.
    """

    place: int
    share: float
    low: float | None
    high: float | None
    expected: float
    questions: int
    answers: int

    def __str__(self) -> str:
        interval = ""
        if self.low is not None and self.high is not None:
            interval = f" (95 % interval {self.low:.0%} to {self.high:.0%})"
        return (
            f"place {self.place} was chosen in {self.share:.0%} of {self.answers} answers"
            f"{interval}; without a preference for places it would be {self.expected:.0%}"
        )


def position_bias(answers: pd.DataFrame, *, place: int = 1) -> PositionBias:
    """Return how often the option in a place was chosen, and how sure that is.

    The interval is Student's t over the questions' own shares, since answers to one question are
    not independent.

    Args:
        answers: as ``ask_rotated`` returns them.
        place: 1 for first.

    Raises:
        ConfigError: there are no answers but fallbacks.
    """
    from scipy import stats

    given = answers[answers["status"] != "fallback"]
    if given.empty:
        raise ConfigError("there is no answer that a model chose; nothing can be said of its bias")
    shares = (given["place"] == place).groupby(given["question"]).mean()
    share, count = float(shares.mean()), len(shares)
    low = high = None
    if count > 1:
        reach = float(stats.t.ppf(0.975, count - 1) * shares.std(ddof=1) / math.sqrt(count))
        low, high = max(0.0, share - reach), min(1.0, share + reach)
    return PositionBias(
        place=place,
        share=share,
        low=low,
        high=high,
        expected=float((1 / given["options"]).mean()),
        questions=count,
        answers=len(given),
    )
