"""Who did best in the same world: people, the Taylor rule with and without inertia, a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.html import join, safe, styled, table
from llmsim_lab.agents import TaylorRuleAgent
from llmsim_lab.economy import QuadraticLoss, TaylorRule
from llmsim_lab.errors import ConfigError, EconomyError, LLMFailureException, TapeError
from llmsim_lab.llm import LLMClient, Person, Tape
from llmsim_lab.run import Question, Run, load
from llmsim_lab.run._turn import reply_of
from llmsim_lab.simulation._simulation import Hit, Nation, Simulation

if TYPE_CHECKING:
    import pandas as pd

Rival = LLMClient | Simulation | Tape | str | Path | None
"""A model to be compared with: a client, which plays; or a run of a model's, or its tape."""
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
_INERTIA = 0.5
_RULE, _INERT, _HOLD = "Taylor rule", f"Taylor rule, inertia {_INERTIA:g}", "rate held"


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

    @property
    def html(self) -> Markup:
        """The table, as a notebook shows it."""
        numbers = self.frame.dropna(subset="loss").drop(columns="note")
        rows = [
            [f"{cell:.2f}" if isinstance(cell, float) else safe(cell, limit=300) for cell in row]
            for row in numbers.itertuples(index=False)
        ]
        header = [str(name).replace("_", " ") for name in numbers]
        notes = (styled(safe(note, limit=300), tag="p", dir="auto") for note in self.notes)
        return join([table(header, rows, caption=self.caption), *notes])

    def _repr_html_(self) -> str:
        return str(self.html)

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
    model: Rival,
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
        ConfigError: the run is not an economic one, there are no people in it, no turn was played,
            or the model's run had another start or other shocks.
    """
    _check(loss, after, simulation)
    people = people_in(simulation)
    turns = simulation.turn_number - simulation.turns[0].number
    if not people:
        raise ConfigError(
            f"{simulation!r} has no people in it; give one a seat, players={{'Ann': 'person'}}, "
            "and play: HumanSeat(simulation)"
        )
    if not turns:
        raise ConfigError("a loss needs a quarter that was decided on; play a turn first")
    nations = {nation.name: nation for nation in simulation.nations}
    loss = loss or QuadraticLoss(inflation_target=nations[people[0]].inflation_target)
    runs: dict[str, pd.DataFrame] = {}
    missing: dict[str, str] = {}

    def add(who: str, run: Simulation) -> None:
        """Play what is missing of a run and its successor's quarters, or say why it has none."""
        try:
            if run.turn_number < turns:
                run._quiet = True  # the people's run has said what is wrong with these quarters
                run.run(turns)
            # Only as many turns as the people played, since a loss is a mean over turns.
            frame = run.to_frame().iloc[: turns + 1]
            runs[who] = _continued(run, frame, loss.inflation_target, after)
        except (EconomyError, LLMFailureException) as error:
            missing[who] = f"ended at turn {run.turn_number}: {error}"

    client = model if isinstance(model, LLMClient) else None
    models = [name for name in nations if seat_of(simulation, name) == "model"]
    # What rules propose is policy, which no model need judge.
    unjudged = {"validator": "rule"} if simulation._checked and not models else {}
    runs[_who(people)] = _continued(simulation, simulation.to_frame(), loss.inflation_target, after)
    slowly = {name: _slowly(simulation, nations[name]) for name in people}
    others: dict[str, dict[str, Any]] = {_RULE: dict.fromkeys(people, "rule"), _INERT: slowly}
    for who, seats in (others | {_HOLD: dict.fromkeys(people, _hold)}).items():
        if models and client is None:
            missing[who] = (
                f"this run needs a model, for {', '.join(models)}; give model=connect('auto')"
            )
        else:
            add(who, simulation.counterfactual({**seats, **unjudged}, llm_client=client))
    if client is not None:
        seats = dict.fromkeys(people, "model")
        who = f"language model ({client.config.model})"
        add(who, simulation.counterfactual(seats, llm_client=client))
    elif model is None:
        missing["language model"] = f"not played: {_HOW}"
    else:
        other = load(model) if isinstance(model, Tape | str | Path) else model
        if not isinstance(other, Simulation):
            raise ConfigError(f"the model's run is not an economic simulation: {other!r:.120}")
        if difference := world_differs(simulation, other):
            raise ConfigError(f"the model's run cannot be compared: {difference}")
        add(f"language model ({_model_of(other)})", other)
    return loss, runs, missing


def _check(loss: object, after: object, *runs: object) -> None:
    for run in runs:
        if not isinstance(run, Simulation):
            raise ConfigError(
                f"{type(run).__name__} is not an economic simulation and has no score to compare; "
                "pass the people's run, a Simulation, or a recorded one: "
                "leaderboard(load('x.tape'))"
            )
    if loss is not None and not isinstance(loss, QuadraticLoss):
        raise ConfigError(f"loss={loss!r:.80} is not a loss; pass QuadraticLoss(gap_weight=0.5)")
    whole_number("after", after, least=0)


def seat_of(simulation: Simulation, nation: str) -> Any:
    """Return who decides for a nation, as ``players`` has it."""
    seats = (simulation.players.get(seat) for seat in (nation, "agent", "*"))
    return next(filter(None, seats), "model")


def people_in(simulation: Simulation) -> list[str]:
    """Return the nations that people decide for."""
    return [
        nation.name
        for nation in simulation.nations
        if isinstance(getattr(seat_of(simulation, nation.name), "backend", None), Person)
    ]


def _slowly(simulation: Simulation, nation: Nation) -> TaylorRuleAgent:
    """Return the rule that moves half of the way."""
    return TaylorRuleAgent(
        nation.name,
        rule=TaylorRule(inflation_target=nation.inflation_target, inertia=_INERTIA),
        limits=simulation.engine.limits,
        moves_bp=simulation.moves_bp,
    )


def _hold(question: Question) -> dict[str, Any]:
    """Never move the rate."""
    said = {"action": "Hold the rate", "reasoning": "It is never moved.", "confidence": 1.0}
    moves = "rate_change_bp" in question.limits
    stays = {"rate_change_bp": 0} if moves else {"proposed_rate": question.state.interest_rate}
    return {**said, **stays}


def world_differs(simulation: Simulation, other: Simulation) -> str:
    """Return how two runs differ, apart from who decides; empty if they do not.

    Start, economy, shocks, the rate's limits and interventions are compared, over the turns that
    the first run has played.

    Args:
        simulation: the run to compare with.
        other: it must have as many turns, or more.
    """
    facts: dict[str, Callable[[Simulation], Any]] = {
        "starting state": lambda run: run.turns[0].state,
        "economy": lambda run: run.economy,
        "limits of the rate": lambda run: run.engine,
    }
    if simulation.economy.shock_scale:
        facts["seed of the shocks"] = lambda run: run.seed
    for what, of in facts.items():
        if of(simulation) != of(other):
            return f"its {what} is another: {of(other)!r:.120}, not {of(simulation)!r:.120}"
    if other.turn_number < simulation.turn_number:
        return f"it has {other.turn_number} turns, and {simulation.turn_number} are compared"
    for ours, theirs in zip(simulation.turns[1:], other.turns[1:], strict=False):
        done = [
            [item.model_dump(exclude={"note"}) for item in it.interventions]
            for it in (ours, theirs)
        ]
        if done[0] != done[1]:
            return (
                f"what was done from outside at turn {ours.number} is another: "
                f"{'; '.join(map(str, theirs.interventions)) or 'nothing'}, not "
                f"{'; '.join(map(str, ours.interventions)) or 'nothing'}"
            )
    return ""


def _continued(run: Simulation, frame: pd.DataFrame, target: float, quarters: int) -> pd.DataFrame:
    """Return a run's frame, and below it the quarters of a successor who follows the rule."""
    import pandas as pd

    if not quarters:
        return frame
    successor = Simulation(
        name="after the term",
        nations=(Nation(name="Successor", inflation_target=target),),
        players="rule",
        moves_bp=None,
        validator="none",
        engine=run.engine,
        economy=run.economy.model_copy(update={"mirrored": False, "shock_scale": 0}),
        # A recorded run may be longer than the people's.
        state=run.turns[len(frame) - 1].state.replace(shock=Hit()),
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
    import pandas as pd

    _check(loss, after)
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
        "name": ", ".join(people),
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
    return sum(bool(reply_of(call).get("advice_asked")) for call in run.calls)


def _who(people: Iterable[str]) -> str:
    names = [*people]
    return f"{'you' if len(names) == 1 else 'people'} ({', '.join(names)})"


def _model_of(simulation: Simulation) -> str:
    """Return the name of the model that decided, from the recorded calls."""
    sites = ((call.request.model, call.request.site) for call in simulation.calls)
    named = (model for model, site in sites if site is not None and site.component == "agent")
    return next(named, "no model call")
