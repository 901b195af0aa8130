"""Who did best in the same world: the people, the Taylor rule, a rate held, a language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from markupsafe import Markup

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.html import join, safe, styled, table
from llmsim_lab.agents._human import HumanAgent
from llmsim_lab.economy import QuadraticLoss, history
from llmsim_lab.errors import ConfigError, EconomyError, LLMFailureException, TapeError
from llmsim_lab.lab._html import sideways
from llmsim_lab.lab._run_reading import reply_of, simulation_of
from llmsim_lab.lab.figures import rate_figure
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.run import Run, load
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation._counterfactual import people_in, with_seats, world_differs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


AFTER = 12
"""Quarters after the term that count: a rate needs three to reach prices, and years to pay."""

_HOW = (
    "leaderboard(simulation, model=connect('auto')) lets a model play, "
    "model=load(tape, run) takes a recorded run from the same start"
)

_COLUMNS = ["who", "loss", "term", "inflation", "output_gap", "rate_change", "last_rate", "note"]
_CLASS_COLUMNS = [
    *("name", "seed", "turns", "loss", "against_rule_pct", "advice_asked", "date", "tape", "note")
]
_JUDGED = ("inflation", "output_gap", "interest_rate")
_RULE, _HOLD = "Taylor rule", "rate held"


class Leaderboard:
    """Runs of one world by their loss, the best first.

    Args:
        loss: how runs are judged.
        runs: frames of ``Simulation.to_frame``, by who decided, the people's first.
        missing: why a row has no run, by who would have decided.
        after: how many of a frame's last quarters came after the term.

    Attributes:
        loss: how runs are judged.
        runs: the frames.
        frame: one row for each: ``who``; ``loss``; ``term``, the loss of the term alone; the
            loss's parts ``inflation``, ``output_gap`` and ``rate_change``, mean squares in
            percentage points, without weights; ``last_rate`` of the term, percent per year;
            ``note``. Rows without a run come last and hold NaN.
    """

    def __init__(
        self,
        loss: QuadraticLoss,
        runs: Mapping[str, pd.DataFrame],
        missing: Mapping[str, str],
        *,
        after: int = 0,
    ) -> None:
        import pandas as pd

        self.loss = loss
        self.after = after
        self.runs = dict(runs)
        rows = [_row(who, frame, loss, after) for who, frame in runs.items()]
        rows += [{"who": who, "note": note} for who, note in missing.items()]
        frame = pd.DataFrame(rows, columns=_COLUMNS)
        self.frame = frame.sort_values("loss", kind="stable", ignore_index=True)

    @property
    def figure(self) -> Figure:
        """The runs' rates and what became of the economy, with history where there is one."""
        first = next(iter(self.runs.values()))
        period = first["period"].iloc[0]
        past = history(period, len(first)) if isinstance(period, str) else None
        after = f" (the last {self.after} by the rule for all)" if self.after else ""
        return rate_figure(self.runs, history=past, title=f"The same quarters, decided by{after}")

    @property
    def verdict(self) -> str:
        """How the people did against the rule and a rate held, in a sentence; empty without."""
        losses = self.frame.dropna(subset="loss").set_index("who")["loss"]
        who = next(iter(self.runs), "")
        if not {who, _RULE} <= set(losses.index) or who == _RULE:
            return ""
        mine, rule = losses[who], losses[_RULE]
        won = "beats" if mine < rule else "equals" if mine == rule else "loses to"
        pct = f"{_against(mine, rule):+.1f} %"
        held = f" Holding the rate would have cost {losses[_HOLD]:.1f}." if _HOLD in losses else ""
        return f"A loss of {mine:.1f} {won} the rule's {rule:.1f} ({pct}).{held}"

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
        losses = sideways(table(header, rows, caption=self._caption()), name="Losses")
        notes = (styled(safe(note, limit=300), tag="p", dir="auto") for note in self._notes())
        return join([losses, *notes])

    def _notes(self) -> list[str]:
        noted = self.frame[self.frame["note"] != ""]
        return [f"{who}: {note}" for who, note in zip(noted["who"], noted["note"], strict=True)]

    def _caption(self) -> str:
        loss = self.loss
        after = (
            f" Of the term and the {self.after} quarters after it, without shocks and under the "
            "rule; 'term' is without those."
        )
        return (
            f"Loss: mean of (inflation - {loss.inflation_target:g})² + {loss.gap_weight:g} · gap² "
            f"+ {loss.rate_change_weight:g} · (change of the rate)². The least is best."
            f"{after if self.after else ''}"
        )

    def __repr__(self) -> str:
        shown = self.frame.drop(columns="note").round(2)
        table_text = shown.to_string(index=False, na_rep="-")
        return "\n".join([self._caption(), table_text, *self._notes()])


def _against(mine: float, rule: float) -> float:
    """Return how much more than the rule's a loss is, percent."""
    return 100 * (mine / rule - 1)


def _row(who: str, frame: pd.DataFrame, loss: QuadraticLoss, after: int) -> dict[str, Any]:
    term = frame.iloc[: len(frame) - after]
    whole, own = (
        loss.of(**{name: part[name].tolist() for name in _JUDGED}) for part in (frame, term)
    )
    return {
        "who": who,
        "loss": whole.total,
        "term": own.total,
        "inflation": whole.inflation,
        "output_gap": whole.output_gap,
        "rate_change": whole.rate_change,
        "last_rate": term["interest_rate"].iloc[-1],
        "note": "",
    }


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
        return _of_class(Path(simulation), loss, after)
    if not isinstance(simulation, Simulation):
        raise ConfigError(
            f"{type(simulation).__name__} is not an economic simulation; pass the people's run, a "
            "Simulation, or a recorded one: leaderboard(load('x.tape'))"
        )
    return _of_run(simulation, model, loss, after)


def _of_run(
    simulation: Simulation,
    model: LLMClient | Simulation | Tape | str | Path | None,
    loss: QuadraticLoss | None,
    after: int,
) -> Leaderboard:
    people = people_in(simulation)
    turns = simulation.turn_number - simulation.turns[0].number
    if not people:
        with_seats(simulation, "hold")  # raises, and says what to do
    if not turns:
        raise ConfigError("a loss needs a quarter that was decided on; play a turn first")
    loss = loss or QuadraticLoss(inflation_target=people[0].profile.inflation_target)
    runs: dict[str, pd.DataFrame] = {}
    missing: dict[str, str] = {}

    def add(who: str, run: Simulation, *, played: bool = False) -> None:
        """Play a run and its successor's quarters, or say why it has none."""
        try:
            frame = run.to_frame() if played else run.run()
            # Only as many turns as the people played, since a loss is a mean over turns.
            runs[who] = _continued(run, frame.iloc[: turns + 1], loss.inflation_target, after)
        except (EconomyError, LLMFailureException) as error:
            missing[who] = f"ended at turn {run.turn_number}: {error}"

    add(_who(people), simulation, played=True)
    client = model if isinstance(model, LLMClient) else None
    others: tuple[tuple[Literal["taylor", "hold"], str], ...] = (("taylor", _RULE), ("hold", _HOLD))
    for kind, who in others:
        try:
            add(who, with_seats(simulation, kind, llm_client=client))
        except ConfigError as error:
            missing[who] = str(error)
    if isinstance(model, LLMClient):
        name = f"language model ({model.config.model})"
        add(name, with_seats(simulation, "llm", llm_client=model))
    elif model is None:
        missing["language model"] = f"not played: {_HOW}"
    else:
        other = simulation_of(model)
        if not isinstance(other, Simulation):
            raise ConfigError(f"the model's run is not an economic simulation: {other!r:.120}")
        if difference := world_differs(simulation, other):
            raise ConfigError(f"the model's run cannot be compared: {difference}")
        add(f"language model ({_model_of(other)})", other, played=True)
    return Leaderboard(loss, runs, missing, after=after)


def _continued(run: Simulation, frame: pd.DataFrame, target: float, quarters: int) -> pd.DataFrame:
    """Return a run's frame, and below it the quarters of a successor who follows the rule."""
    import pandas as pd

    if not quarters:
        return frame
    rule = {"name": "Successor", "kind": "taylor", "inflation_target": target}
    calm: dict[str, Any] = {"mirrored": False}
    if run.config.economy.model != "static":
        calm["shock_scale"] = 0
    config = run.config.with_values(
        name="after the term",
        nations=[rule],
        committee="median",
        validator={"kind": "always_valid"},
        moves_bp=None,
        briefing="thin",
        start=None,
        interventions=(),
        economy=run.config.economy.model_copy(update=calm),
    )
    # A recorded run may be longer than the people's.
    state = run.turns[len(frame) - 1].state.model_copy(update={"reasoning_chains": ()})
    later = Simulation(config, state=state).run(quarters)
    return pd.concat([frame, later.iloc[1:]], ignore_index=True)


def _of_class(folder: Path, loss: QuadraticLoss | None, after: int) -> pd.DataFrame:
    """Return the runs with people of all tapes in a folder, the best against the rule first."""
    import pandas as pd

    tapes = sorted(folder.glob("*.tape"))
    if not tapes:
        raise ConfigError(f"there are no tapes in {folder}; give a folder of .tape files")
    rows: list[dict[str, Any]] = []
    for path in tapes:
        try:
            with Tape(path, read_only=True) as tape:
                for info in tape.runs():
                    run = load(tape, info.id)
                    if isinstance(run, Simulation) and people_in(run):
                        own = _in_class(run, loss, after)
                        rows.append(own | {"date": info.started[:10], "tape": path.name})
        except TapeError as error:
            rows.append({"tape": path.name, "note": str(error)})
    frame = pd.DataFrame(rows, columns=_CLASS_COLUMNS)
    return frame.sort_values("against_rule_pct", kind="stable", ignore_index=True)


def _in_class(run: Simulation, loss: QuadraticLoss | None, after: int) -> dict[str, Any]:
    """Return a game of a class: who played it, and what came of it."""
    people = people_in(run)
    row: dict[str, Any] = {
        "name": ", ".join(person.name for person in people),
        "seed": run.config.seed,
        "turns": run.turn_number,
        "advice_asked": advice_asked(run),
        "note": "",
    }
    try:
        losses = leaderboard(run, loss=loss, after=after).frame.set_index("who")["loss"]
    except ConfigError as error:
        return row | {"note": str(error)}
    mine = losses[_who(people)]
    return row | {"loss": mine, "against_rule_pct": _against(mine, losses[_RULE])}


def advice_asked(run: Run) -> int:
    """Return in how many answers of people the tape says that the rule was asked before."""
    return sum(bool(reply_of(chain).get("advice_asked")) for chain in run.chains)


def _who(people: Sequence[HumanAgent]) -> str:
    names = ", ".join(agent.name for agent in people)
    return f"you ({names})" if len(people) == 1 else f"people ({names})"


def _model_of(simulation: Simulation) -> str:
    """Return the name of the model that decided, from the recorded calls."""
    for chain in simulation.chains:
        if chain.component == "agent" and chain.call is not None:
            return chain.call.request.model
    return "no model call"
