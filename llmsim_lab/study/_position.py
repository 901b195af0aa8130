"""Does a model prefer the option in some place of a list, whatever stands there?

Over all rotations of a question each option stands in each place once (``Reasoner.ask_rotated``).
Who only weighs the options takes each of n places in 1/n of the answers, whatever they prefer. What
they do beyond that is compared question by question, all places as one family.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from llmsim_lab._util.tables import frame_of
from llmsim_lab.errors import ConfigError
from llmsim_lab.study._study import Effects

if TYPE_CHECKING:
    import pandas as pd

_CHOSEN, _EXPECTED = "chosen", "no preference"


def position_bias(answers: pd.DataFrame, *, level: float = 0.95) -> Effects:
    """Return how much more or less often each place was chosen than without a preference.

    The unit is a question, since answers to one question are not independent; one that has fewer
    options than a place says nothing of that place. Fallbacks are left out: there no model chose.

    Args:
        answers: as ``Reasoner.ask_rotated`` returns them.
        level: of the intervals.

    Raises:
        ConfigError: all answers are fallbacks.
    """
    from llmsim_lab.study._statistics import run_effects  # here, since it imports numpy

    # A fallback takes the first option whatever the model prefers, and would look like a bias.
    given = answers[answers["status"] != "fallback"]
    if given.empty:
        raise ConfigError("there is no answer that a model chose; nothing can be said of its bias")
    questions = given.groupby("question")
    options = questions["options"].first()
    rows = [
        {"arm": arm, "seed": question, "outcome": f"place {place}", "value": value}
        for place in range(1, int(options.max()) + 1)
        for question, chosen in questions["place"]
        if options[question] >= place
        for arm, value in ((_CHOSEN, (chosen == place).mean()), (_EXPECTED, 1 / options[question]))
    ]
    found = run_effects(frame_of(rows), reference=_EXPECTED, level=level)
    effects = []
    for one in found:
        what = one.contrast.replace(_CHOSEN, one.outcome, 1)
        note = re.sub(r"pair(s?) of runs", r"question\1", one.note)
        of = "questions like these"
        one = replace(one, contrast=what, outcome="", unit="situations", speaks_of=of, note=note)
        effects.append(one)
    left_out = len(answers) - len(given)
    label = f"{left_out} of {len(answers)} answers are fallbacks, left out" if left_out else ""
    return Effects(effects, label=label)
