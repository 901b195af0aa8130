"""Who did best in the same world: the people, the Taylor rule, a rate held, a language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from llmsim_lab.agents._human import HumanAgent
from llmsim_lab.economy import QuadraticLoss
from llmsim_lab.errors import ConfigError, EconomyError, LLMFailureException, TapeError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.run import Run, load
from llmsim_lab.run._turn import reply_of
from llmsim_lab.simulation._counterfactual import people_in, with_seats, world_differs
from llmsim_lab.simulation._simulation import Simulation

if TYPE_CHECKING:
    import pandas as pd


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


class Losses:
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

    @property
    def notes(self) -> list[str]:
        """Why a row has no run, a line each."""
        noted = self.frame[self.frame["note"] != ""]
        return [f"{who}: {note}" for who, note in zip(noted["who"], noted["note"], strict=True)]

    @property
    def caption(self) -> str:
        """How the runs were judged, in words."""
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
        shown = self.frame.drop(columns="note").round(2).to_string(index=False, na_rep="-")
        return "\n".join([self.caption, shown, *self.notes])


def _against(mine: float, rule: float) -> float:
    """Return how much more than the rule's a loss is, percent."""
    return 100 * (mine / rule - 1)


def _row(who: str, frame: pd.DataFrame, loss: QuadraticLoss, after: int) -> dict[str, Any]:
    term = frame.iloc[: len(frame) - after]
    whole, own = (
        loss.of(**{name: part[name].tolist() for name in _JUDGED}) for part in (frame, term)
    )
    names = {"who": who, "loss": whole.total, "term": own.total, "note": ""}
    return asdict(whole) | names | {"last_rate": term["interest_rate"].iloc[-1]}


def compared(
    simulation: Simulation,
    model: LLMClient | Simulation | Tape | str | Path | None,
    loss: QuadraticLoss | None,
    *,
    after: int,
) -> tuple[QuadraticLoss, dict[str, pd.DataFrame], dict[str, str]]:
    """Play a run with people in it with others in their seats.

    Args:
        simulation: the people's run.
        model: a client, which plays; or a run of a model's, or its tape.
        loss: how runs are judged; by the target of the first person's nation if not given.
        after: how many quarters are played after the term.

    Returns:
        The loss, the runs' frames and why others are missing, as ``Losses`` takes them.

    Raises:
        ConfigError: there are no people in the run, no turn was played, or the model's run had
            another start or other shocks.
    """
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
    others: dict[str, Literal["taylor", "hold", "llm"]] = {_RULE: "taylor", _HOLD: "hold"}
    if client is not None:
        others[f"language model ({client.config.model})"] = "llm"
    for who, kind in others.items():
        try:
            add(who, with_seats(simulation, kind, llm_client=client))
        except ConfigError as error:
            missing[who] = str(error)
    if model is None:
        missing["language model"] = f"not played: {_HOW}"
    elif not isinstance(model, LLMClient):
        other = load(model) if isinstance(model, Tape | str | Path) else model
        if not isinstance(other, Simulation):
            raise ConfigError(f"the model's run is not an economic simulation: {other!r:.120}")
        if difference := world_differs(simulation, other):
            raise ConfigError(f"the model's run cannot be compared: {difference}")
        add(f"language model ({_model_of(other)})", other, played=True)
    return loss, runs, missing


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


def of_class(folder: Path, loss: QuadraticLoss | None, *, after: int) -> pd.DataFrame:
    """Return the runs with people of all tapes in a folder, the best against the rule first.

    Raises:
        ConfigError: there are no tapes in it.
    """
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
        board = Losses(*compared(run, None, loss, after=after), after=after)
    except ConfigError as error:
        return row | {"note": str(error)}
    losses = board.frame.set_index("who")["loss"]
    mine = losses[_who(people)]
    return row | {"loss": mine, "against_rule_pct": _against(mine, losses[_RULE])}


def advice_asked(run: Run) -> int:
    """Return in how many answers of people the tape says that the rule was asked before."""
    return sum(bool(reply_of(chain.call).get("advice_asked")) for chain in run.chains)


def _who(people: Sequence[HumanAgent]) -> str:
    names = ", ".join(agent.name for agent in people)
    return f"you ({names})" if len(people) == 1 else f"people ({names})"


def _model_of(simulation: Simulation) -> str:
    """Return the name of the model that decided, from the recorded calls."""
    calls = (chain.call for chain in simulation.chains if chain.component == "agent")
    return next((call.request.model for call in calls if call is not None), "no model call")
