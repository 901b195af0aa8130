"""Who did best in the same world: the people, the Taylor rule, a language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from llmsim_lab._util.html import safe, table
from llmsim_lab.agents._human import HumanAgent
from llmsim_lab.economy import QuadraticLoss, history
from llmsim_lab.errors import ConfigError, EconomyError, LLMFailureException
from llmsim_lab.lab._run_reading import simulation_of
from llmsim_lab.lab.figures import rate_figure
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation._counterfactual import people_in, with_seats, world_differs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


_HOW = (
    "leaderboard(simulation, model=connect('auto')) lets a model play, "
    "model=load(tape, run) takes a recorded run from the same start"
)

_HEADER = ("who", "loss", "inflation", "output gap", "rate change", "last rate", "note")


class Leaderboard:
    """Runs of one world by their loss, the best first.

    Args:
        loss: how runs are judged.
        runs: frames of ``Simulation.to_frame``, by who decided.
        missing: why a row has no run, by who would have decided.

    Attributes:
        loss: how runs are judged.
        runs: the frames.
        frame: one row for each: ``who``; ``loss``; its parts ``inflation``, ``output_gap`` and
            ``rate_change``, mean squares in percentage points, without weights; ``last_rate``,
            percent per year; ``note``. Rows without a run come last and hold NaN.
    """

    def __init__(
        self,
        loss: QuadraticLoss,
        runs: Mapping[str, pd.DataFrame],
        missing: Mapping[str, str],
    ) -> None:
        import pandas as pd

        self.loss = loss
        self.runs = dict(runs)
        rows = [_row(who, frame, loss) for who, frame in runs.items()]
        rows += [{"who": who, "note": note} for who, note in missing.items()]
        columns = [name.replace(" ", "_") for name in _HEADER]
        self.frame = (
            pd.DataFrame(rows, columns=columns)
            .sort_values("loss", kind="stable", na_position="last")
            .reset_index(drop=True)
        )

    @property
    def figure(self) -> Figure:
        """The runs' rates and what became of the economy, with history where there is one."""
        first = next(iter(self.runs.values()))
        period = first["period"].iloc[0]
        past = history(period, len(first)) if isinstance(period, str) else None
        return rate_figure(self.runs, history=past, title="The same quarters, decided by")

    def _repr_html_(self) -> str:
        return str(self.html)

    @property
    def html(self) -> Markup:
        """The table, as a notebook shows it."""
        header = _HEADER if self.frame["note"].any() else _HEADER[:-1]
        rows = [
            [_cell(row[name.replace(" ", "_")]) for name in header]
            for row in self.frame.to_dict("records")
        ]
        return table(header, rows, caption=self._caption())

    def _caption(self) -> str:
        loss = self.loss
        return (
            f"Loss: mean of (inflation - {loss.inflation_target:g})² + {loss.gap_weight:g} · gap² "
            f"+ {loss.rate_change_weight:g} · (change of the rate)². The least is best."
        )

    def __repr__(self) -> str:
        shown = self.frame.drop(columns="note").round(2)
        notes = [
            f"{row['who']}: {row['note']}" for row in self.frame.to_dict("records") if row["note"]
        ]
        return "\n".join([self._caption(), shown.to_string(index=False, na_rep="-"), *notes])


def _row(who: str, frame: pd.DataFrame, loss: QuadraticLoss) -> dict[str, Any]:
    parts = loss.of(
        inflation=frame["inflation"].tolist(),
        output_gap=frame["output_gap"].tolist(),
        interest_rate=frame["interest_rate"].tolist(),
    )
    return {
        "who": who,
        "loss": parts.total,
        "inflation": parts.inflation,
        "output_gap": parts.output_gap,
        "rate_change": parts.rate_change,
        "last_rate": frame["interest_rate"].iloc[-1],
        "note": "",
    }


def _cell(value: object) -> Markup:
    if isinstance(value, float):
        return safe("-" if value != value else f"{value:.2f}")
    return safe(value, limit=300)


def leaderboard(
    simulation: Simulation,
    *,
    model: LLMClient | Simulation | Tape | str | Path | None = None,
    loss: QuadraticLoss | None = None,
) -> Leaderboard:
    """Compare a run with people in it with the same run decided by others.

    The Taylor rule's row is played at once, in every seat that a person had: same start, same
    shocks, same interventions. The model's row needs a model, or a recorded run.

    Args:
        simulation: the people's run; at least one turn played.
        model: a client, which plays as many turns as the people did; or a run of a model's from
            the same start: a simulation, or a tape or its file, whose latest run is taken.
        loss: how runs are judged; Rudebusch and Svensson's benchmark with the inflation target of
            the first person's nation if not given.

    Returns:
        The table; a row without a run has a note that says why, such as a model that failed.

    Raises:
        ConfigError: there are no people in the run, no turn was played, or the recorded run had
            another start or other shocks.
    """
    if not isinstance(simulation, Simulation):
        raise ConfigError(
            f"{type(simulation).__name__} is not an economic simulation; pass the people's run, a "
            "Simulation, or a recorded one: leaderboard(load('x.tape'))"
        )
    if loss is not None and not isinstance(loss, QuadraticLoss):
        raise ConfigError(f"loss={loss!r:.80} is not a loss; pass QuadraticLoss(gap_weight=0.5)")
    turns = simulation.turn_number - simulation.turns[0].number
    people = people_in(simulation)
    client = model if isinstance(model, LLMClient) else None
    runs, missing = {}, {}
    if people:
        runs[_who(people)] = simulation.to_frame()
        loss = loss or QuadraticLoss(inflation_target=people[0].profile.inflation_target)
    try:
        ruled = with_seats(simulation, "taylor", llm_client=client)
    except ConfigError as error:
        if not people:
            raise
        missing["Taylor rule"] = str(error)
    else:
        _play(ruled, "Taylor rule", runs, missing)
    if isinstance(model, LLMClient):
        played = with_seats(simulation, "llm", llm_client=model)
        _play(played, f"language model ({model.config.model})", runs, missing)
    elif model is None:
        missing["language model"] = f"not played: {_HOW}"
    else:
        other = simulation_of(model)
        if not isinstance(other, Simulation):
            raise ConfigError(f"the model's run is not an economic simulation: {other!r:.120}")
        if difference := world_differs(simulation, other):
            raise ConfigError(f"the model's run cannot be compared: {difference}")
        # Only as many turns as the people played, since a loss is a mean over turns.
        runs[f"language model ({_model_of(other)})"] = other.to_frame().iloc[: turns + 1]
    return Leaderboard(loss or QuadraticLoss(), runs, missing)


def _who(people: Sequence[HumanAgent]) -> str:
    names = ", ".join(agent.name for agent in people)
    return f"you ({names})" if len(people) == 1 else f"people ({names})"


def _play(
    simulation: Simulation, who: str, runs: dict[str, pd.DataFrame], missing: dict[str, str]
) -> None:
    """Play a run to its end, or put in the table why it has none."""
    try:
        runs[who] = simulation.run()
    except (EconomyError, LLMFailureException) as error:
        missing[who] = f"ended at turn {simulation.turn_number}: {error}"


def _model_of(simulation: Simulation) -> str:
    """Return the name of the model that decided, from the recorded calls."""
    for chain in simulation.chains:
        if chain.component == "agent" and chain.call is not None:
            return chain.call.request.model
    return "no model call"
