"""Who did best in the same world: people, the Taylor rule with and without inertia, a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.tables import frame_of
from llmsim_lab.agents import TaylorRuleAgent
from llmsim_lab.economy import QuadraticLoss, TaylorRule
from llmsim_lab.economy.macro import NO_SHOCKS, Rule
from llmsim_lab.errors import ConfigError, EconomyError, LLMFailureException, TapeError
from llmsim_lab.llm import LLMClient, Person, Tape
from llmsim_lab.llm.client import run_client
from llmsim_lab.run import Run, load
from llmsim_lab.run._turn import reply_of
from llmsim_lab.simulation.world import Nation, Simulation, seat_of

if TYPE_CHECKING:
    import pandas as pd

Rival = LLMClient | Simulation | None
"""A model to be compared with: a client, which plays, or a run of a model's."""
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
_RULE, _HOLD = "Taylor rule", "rate held"
_RIVALS: dict[str, Rule] = {
    _RULE: TaylorRule(),
    "Taylor rule, inertia 0.5": TaylorRule(inertia=0.5),
    _HOLD: lambda *, previous_rate, **_: previous_rate,
}


class Losses:
    """Runs of one world by their loss, the best first.

    Attributes:
        loss: how runs are judged.
        after: how many of a frame's last quarters came after the term.
        runs: frames of ``Simulation.to_frame``, by who decided, the people's first.
        frame: one row for each: ``who``; ``loss``; ``term``, the loss of the term alone; the
            loss's parts ``inflation``, ``output_gap`` and ``rate_change``, mean squares in
            percentage points, without weights; ``last_rate`` of the term, percent per year;
            ``note``, why there is no run. Rows without a run come last and hold NaN.
    """

    def __init__(
        self, simulation: Simulation, model: Rival, loss: QuadraticLoss | None, *, after: int
    ) -> None:
        """Play a run with people in it with others in their seats.

        Args:
            simulation: the people's run.
            model: a client, which plays; or a run of a model's.
            loss: how runs are judged; by the target of the first person's nation if not given.
            after: how many quarters are played after the term.

        Raises:
            ConfigError: the run is not an economic one, there are no people in it, no turn was
                played, or the model's run had another start or other shocks.
        """
        whole_number("after", after, least=0)
        if not isinstance(simulation, Simulation):
            what = f"{type(simulation).__name__} is not an economic simulation"
            raise ConfigError(f"{what}; pass the people's run, a Simulation, or load('x.tape')")
        people, turns = people_in(simulation), simulation.turn_number - simulation.turns[0].number
        if not people:
            way_out = "give one a seat, players={'Ann': 'person'}, and play: HumanSeat(simulation)"
            raise ConfigError(f"{simulation!r} has no people in it; {way_out}")
        if not turns:
            raise ConfigError("a loss needs a quarter that was decided on; play a turn first")
        target = simulation._nations[people[0]].inflation_target
        self.loss, self.after = loss or QuadraticLoss(inflation_target=target), after
        others, missing = _others(simulation, people, model)
        aim = self.loss.inflation_target
        self.runs = {_who(people): _continued(simulation, turns, aim, after)}
        for who, run in others.items():
            try:
                if run.turn_number < turns:
                    run._quiet = True  # the people's run has said what is wrong with these quarters
                    run.run(turns)
                self.runs[who] = _continued(run, turns, aim, after)
            except (EconomyError, LLMFailureException) as error:
                missing[who] = f"ended at turn {run.turn_number}: {error}"
        rows: list[dict[str, Any]] = [{"who": who, "note": note} for who, note in missing.items()]
        for who, played in self.runs.items():
            term = played.iloc[: turns + 1]
            ends = {"term": self.loss.of(term)["loss"], "last_rate": term["interest_rate"].iloc[-1]}
            lost = int(term["fallback"].sum())
            note = f"{lost} of its answers were invalid, and the rate was held" * bool(lost)
            rows.append({"who": who, "note": note, **self.loss.of(played), **ends})
        frame = frame_of(rows, _COLUMNS)
        self.frame = frame.sort_values("loss", kind="stable", ignore_index=True)

    @property
    def verdict(self) -> str:
        """How the people did against the rule and a rate held, in a sentence; empty without."""
        losses = self.frame.dropna(subset="loss").set_index("who")["loss"]
        if _RULE not in losses:
            return ""
        mine, rule = losses[next(iter(self.runs))], losses[_RULE]
        won = "beats" if mine < rule else "equals" if mine == rule else "loses to"
        pct = f"{100 * (mine / rule - 1):+.1f} %"
        held = f" Holding the rate would have cost {losses[_HOLD]:.1f}." if _HOLD in losses else ""
        return f"A loss of {mine:.1f} {won} the rule's {rule:.1f} ({pct}).{held}"

    @property
    def notes(self) -> list[str]:
        """Why a row has no run, or what it lacks, a line each."""
        noted = self.frame[self.frame["note"] != ""]
        return [f"{who}: {note}" for who, note in zip(noted["who"], noted["note"], strict=True)]

    @property
    def caption(self) -> str:
        """How the runs were judged, in words."""
        loss = self.loss
        later = (
            f" Of the term and the {self.after} quarters after it, without shocks and under the "
            "rule; 'term' is without those."
        )
        return (
            f"Loss: mean of (inflation - {loss.inflation_target:g})² + {loss.gap_weight:g} · gap² "
            f"+ {loss.rate_change_weight:g} · (change of the rate)². The least is best."
            f"{later if self.after else ''}"
        )

    def __repr__(self) -> str:
        shown = self.frame.drop(columns="note").round(2).to_string(index=False, na_rep="-")
        return "\n".join([self.caption, shown, *self.notes])


def _others(
    simulation: Simulation, people: Sequence[str], model: Rival
) -> tuple[dict[str, Simulation], dict[str, str]]:
    """Return the runs of others in people's seats, some still to be played; and why one is not."""
    others, missing = dict[str, Simulation](), dict[str, str]()
    client = run_client(model, "model") if hasattr(model, "call_with_retry") else None
    models = [name for name in simulation._nations if seat_of(simulation, name) == "model"]
    # What rules propose is policy, which no model need judge.
    unjudged = {"validator": "rule"} if simulation._checked and not models else {}
    targets = {name: simulation._nations[name].inflation_target for name in people}
    limits, moves = simulation.engine, simulation.moves_bp
    for who, rule in _RIVALS.items():
        if models and client is None:
            missing[who] = f"a model is needed for {', '.join(models)}; {_HOW}"
            continue
        seats: dict[str, Any] = {}
        for name, aim in targets.items():
            own = replace(rule, inflation_target=aim) if isinstance(rule, TaylorRule) else rule
            seats[name] = TaylorRuleAgent(rule=own, limits=limits, moves_bp=moves)
        others[who] = simulation.counterfactual({**seats, **unjudged}, llm_client=client)
    if client is not None:
        played = simulation.counterfactual(dict.fromkeys(people, "model"), llm_client=client)
        others[f"language model ({client.config.model})"] = played
    elif model is None:
        missing["language model"] = f"not played: {_HOW}"
    elif not isinstance(model, Simulation):
        raise ConfigError(f"model={model!r:.120} is neither a client nor an economic run; {_HOW}")
    elif difference := world_differs(simulation, model):
        raise ConfigError(f"the model's run cannot be compared: {difference}")
    else:
        requests = (call.request for call in model.calls)
        asked = (it.model for it in requests if it.site and it.site.component == "agent")
        others[f"language model ({next(asked, 'no model')})"] = model
    return others, missing


def people_in(simulation: Simulation) -> list[str]:
    """Return the nations that people decide for."""
    seats = {name: seat_of(simulation, name) for name in simulation._nations}
    return [it for it, who in seats.items() if isinstance(getattr(who, "backend", None), Person)]


def world_differs(simulation: Simulation, other: Simulation) -> str:
    """Return how two runs differ, apart from who decides; empty if they do not.

    Start, economy, shocks, the rate's limits and interventions are compared, over the turns that
    the first run has played.

    Args:
        simulation: the run to compare with.
        other: it must have as many turns, or more.
    """
    turns = simulation.turn_number
    if other.turn_number < turns:
        return f"it has {other.turn_number} turns, and {turns} are compared"
    compared: dict[str, Callable[[Simulation], Any]] = {
        "starting state": lambda run: run.turns[0].state,
        "economy": lambda run: run.economy,
        "limits of the rate": lambda run: run.engine,
        "seed of the shocks": lambda run: run.seed if run.economy.shock_scale else None,
        "list of interventions": lambda run: [
            [it.set for it in turn.interventions] for turn in run.turns[1 : turns + 1]
        ],
    }
    for what, of in compared.items():
        if (ours := of(simulation)) != (theirs := of(other)):
            return f"its {what} is another: {theirs!r:.120}, not {ours!r:.120}"
    return ""


def _continued(run: Simulation, turns: int, target: float, quarters: int) -> pd.DataFrame:
    """Return a run's frame, and below it the quarters of a successor who follows the rule."""
    import pandas as pd

    # Only as many turns as the people played, since a loss is a mean over turns.
    frame = run.to_frame().iloc[: turns + 1]
    if not quarters:
        return frame
    successor = Simulation(
        nations=(Nation(name="Successor", inflation_target=target),),
        players="rule",
        moves_bp=None,
        engine=run.engine,
        economy=run.economy.model_copy(update={"mirrored": False, "shock_scale": 0}),
        state=run.turns[turns].state.replace(shock=NO_SHOCKS),
    )
    successor._quiet = True  # its moves are no choice of the people's
    later = successor.run(quarters)
    later["turn"] += frame["turn"].iloc[-1]
    return pd.concat([frame, later.iloc[1:]], ignore_index=True)


def of_class(folder: Path, loss: QuadraticLoss | None, *, after: int) -> pd.DataFrame:
    """Return the runs with people of all tapes in a folder, the best against the rule first.

    Raises:
        ConfigError: there are no tapes in it.
    """
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
                        row = {"date": info.started[:10], "tape": path.name}
                        rows.append(row | _in_class(run, loss, after))
        except TapeError as error:
            rows.append({"tape": path.name, "note": str(error)})
    frame = frame_of(rows, _CLASS_COLUMNS)
    return frame.sort_values("against_rule_pct", kind="stable", ignore_index=True)


def _in_class(run: Simulation, loss: QuadraticLoss | None, after: int) -> dict[str, Any]:
    """Return a game of a class: who played it, and what came of it."""
    people = people_in(run)
    row = {"name": ", ".join(people), "seed": run.seed, "turns": run.turn_number, "note": ""}
    row["advice_asked"] = advice_asked(run)
    try:
        losses = Losses(run, None, loss, after=after).frame.set_index("who")["loss"]
    except ConfigError as error:
        return row | {"note": str(error)}
    mine = losses[_who(people)]
    return row | {"loss": mine, "against_rule_pct": 100 * (mine / losses[_RULE] - 1)}


def advice_asked(run: Run) -> int:
    """Return in how many answers of people the tape says that the rule was asked before."""
    return sum(bool(reply_of(call).get("advice_asked")) for call in run.calls)


def _who(people: Sequence[str]) -> str:
    return f"{'you' if len(people) == 1 else 'people'} ({', '.join(people)})"
