"""Who did best in the same world, as a page shows it: the table and the chart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, overload

from markupsafe import Markup

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.html import join, safe, styled, table
from llmsim_lab.economy import QuadraticLoss, history
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._html import sideways
from llmsim_lab.lab.figures import rate_figure
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation._scores import Losses, compared, of_class

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


AFTER = 12
"""Quarters after the term that count: a rate needs three to reach prices, and years to pay."""


class Leaderboard(Losses):
    """Runs of one world by their loss, as a table and a chart; arguments as for ``Losses``."""

    @property
    def figure(self) -> Figure:
        """The runs' rates and what became of the economy, with history where there is one."""
        first = next(iter(self.runs.values()))
        period = first["period"].iloc[0]
        past = history(period, len(first)) if isinstance(period, str) else None
        after = f" (the last {self.after} by the rule for all)" if self.after else ""
        return rate_figure(self.runs, history=past, title=f"The same quarters, decided by{after}")

    def _repr_html_(self) -> str:
        return str(self.html)

    @property
    def html(self) -> Markup:
        """The table, as a notebook shows it."""
        numbers = self.frame.dropna(subset="loss").drop(columns="note")
        rows = [
            [f"{cell:.2f}" if isinstance(cell, float) else safe(cell, limit=300) for cell in row]
            for row in numbers.itertuples(index=False)
        ]
        header = [str(name).replace("_", " ") for name in numbers]
        losses = sideways(table(header, rows, caption=self.caption), name="Losses")
        notes = (styled(safe(note, limit=300), tag="p", dir="auto") for note in self.notes)
        return join([losses, *notes])


@overload
def leaderboard(
    simulation: Simulation,
    *,
    model: LLMClient | Simulation | Tape | str | Path | None = None,
    loss: QuadraticLoss | None = None,
    after: int = AFTER,
) -> Leaderboard: ...
@overload
def leaderboard(
    simulation: str | Path, *, loss: QuadraticLoss | None = None, after: int = AFTER
) -> pd.DataFrame: ...
def leaderboard(
    simulation: Simulation | str | Path,
    *,
    model: LLMClient | Simulation | Tape | str | Path | None = None,
    loss: QuadraticLoss | None = None,
    after: int = AFTER,
) -> Leaderboard | pd.DataFrame:
    """Compare a run with people in it with the same run decided by others; or a class's runs.

    The Taylor rule and a rate that is never moved are played at once, in every seat that a person
    had: same start, same shocks, same interventions. The model's row needs a model, or a recorded
    run. A loss of the term alone would reward those who leave inflation to the next chair, since a
    rate takes three quarters to reach prices; so quarters after it count too, in which the Taylor
    rule decides for all and there are no shocks.

    Args:
        simulation: the people's run; at least one turn played. Or a folder of tapes.
        model: a client, which plays as many turns as the people did; or a run of a model's from
            the same start: a simulation, or a tape or its file, whose latest run is taken.
        loss: how runs are judged; Rudebusch and Svensson's benchmark with the inflation target of
            the first person's nation if not given.
        after: how many quarters after the term count; 0 for the term alone.

    Returns:
        The table; a row without a run has a note that says why, such as a model that failed. Of a
        folder a frame, a row for each run with people: ``name``; ``seed``; ``turns`` played;
        ``loss``; ``against_rule_pct``, how much more than the rule's in the same economy, negative
        for less, by which it is sorted; ``advice_asked``, in how many quarters; ``date``; ``tape``;
        ``note``, why there is no loss.

    Raises:
        ConfigError: there are no people in the run, no turn was played, or the recorded run had
            another start or other shocks; or there are no tapes in the folder.
    """
    if loss is not None and not isinstance(loss, QuadraticLoss):
        raise ConfigError(f"loss={loss!r:.80} is not a loss; pass QuadraticLoss(gap_weight=0.5)")
    whole_number("after", after, least=0)
    if isinstance(simulation, str | Path):
        return of_class(Path(simulation), loss, after=after)
    if not isinstance(simulation, Simulation):
        raise ConfigError(
            f"{type(simulation).__name__} is not an economic simulation and has no score to "
            "compare; pass the people's run, a Simulation, or a recorded one: "
            "leaderboard(load('x.tape'))"
        )
    return Leaderboard(*compared(simulation, model, loss, after=after), after=after)
