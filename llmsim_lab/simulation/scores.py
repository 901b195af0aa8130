"""Losses in the same world: people, the Taylor rule with and without inertia, a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import brief
from llmsim_lab.agents import TaylorRuleAgent
from llmsim_lab.economy import QuadraticLoss, TaylorRule
from llmsim_lab.economy.macro import NO_SHOCKS, Rule
from llmsim_lab.errors import ConfigError, EconomyError, LLMFailureException, TapeError
from llmsim_lab.llm import LLMClient, Person, Tape
from llmsim_lab.llm.client import run_client
from llmsim_lab.run import Run, load
from llmsim_lab.run.guided import leave_out_warnings
from llmsim_lab.run.replies import reply_of
from llmsim_lab.run.turn import Turn
from llmsim_lab.simulation.world import Nation, Simulation, seat_of

if TYPE_CHECKING:
    import pandas as pd

Rival = LLMClient | Simulation | None
"""A model to compare with: a client that plays, or a run that a model has played."""
AFTER = 12
"""Quarters after the term that count: a rate needs three to reach prices, and pays after years."""

_HOW = (
    "leaderboard(simulation, model=connect('auto')) lets a model play, "
    "model=load(tape, run) takes a recorded run from the same start"
)

_COLUMNS = [
    "who",
    "loss",
    "term",
    "inflation",
    "output_gap",
    "rate_change",
    "last_rate",
    "note",
]
_CLASS_COLUMNS = [
    "name",
    "seed",
    "turns",
    "loss",
    "against_rule_pct",
    "advice_asked",
    "date",
    "tape",
    "note",
]
_RULE = "Taylor rule"
_HOLD = "rate held"
_RIVALS: dict[str, Rule] = {
    _RULE: TaylorRule(),
    "Taylor rule, inertia 0.5": TaylorRule(inertia=0.5),
    _HOLD: lambda *, previous_rate, **_: previous_rate,
}


class Losses:
    """Runs of one world by their loss, the best first.

    Attributes:
        loss: how runs are judged.
        after: how many of a frame's last quarters come after the term.
        runs: frames of ``Simulation.to_frame`` by player; the people's comes first.
        frame: one row for each player: ``who``; ``loss``; ``term``, the loss of the term alone;
            the loss's parts ``inflation``, ``output_gap`` and ``rate_change``, mean squares in
            percentage points, without weights; ``last_rate`` of the term, percent per year;
            ``note``, why there is no run. Rows without a run come last and have NaN.
    """

    def __init__(
        self,
        simulation: Simulation,
        model: Rival,
        loss: QuadraticLoss | None,
        *,
        after: int,
    ) -> None:
        """Play a run of people again with other players in their seats.

        Args:
            simulation: the people's run.
            model: a client that plays, or a run that a model has played.
            loss: how runs are judged; if not given, by the inflation target of the first person's
                nation.
            after: how many quarters are played after the term.

        Raises:
            ConfigError: the run is not an economic one, there are no people in it, no turn was
                played, or the model's run had another start or other shocks.
        """
        whole_number("after", after, least=0)
        if not isinstance(simulation, Simulation):
            raise ConfigError(
                f"{type(simulation).__name__} is not an economic simulation; pass the people's "
                "run, a Simulation, or load('x.tape')"
            )
        # Only people are replaced; functions and models keep their seats.
        people = people_in(simulation)
        if not people:
            raise ConfigError(
                f"{simulation!r} has no people in it; give one a seat, players={{'Ann': "
                "'person'}, and play: HumanSeat(simulation)"
            )
        turns = simulation.turn_number - simulation.turns[0].number
        if not turns:
            raise ConfigError("a loss needs a quarter that was decided on; play a turn first")
        # The first person's, since a frame has one loss.
        target = _targets(simulation)[people[0]]
        self.loss = loss or QuadraticLoss(inflation_target=target)
        self.after = after
        aim = self.loss.inflation_target
        rivals = _rivals_of(simulation, people, model)
        # A copy, since runs that are played below may fail and be added.
        missing = dict(rivals.missing)
        self.runs = {_who(people): _continued(simulation, turns, aim, after)}
        for name, run in rivals.runs.items():
            try:
                if run.turn_number < turns:
                    # The people's run has logged the warnings about these quarters.
                    leave_out_warnings(run)
                    run.run(turns)
                self.runs[name] = _continued(run, turns, aim, after)
            except (EconomyError, LLMFailureException) as error:
                # Such as a spiral, or a server that is gone. The other runs are still compared.
                missing[name] = f"ended at turn {run.turn_number}: {error}"
        rows: list[dict[str, object]] = []
        for name, note in missing.items():
            rows.append({"who": name, "note": note})
        for name, played in self.runs.items():
            rows.append(self._row(name, played, turns))
        frame = frame_of(rows, _COLUMNS)
        self.frame = frame.sort_values(
            "loss",
            # Equal losses keep the order above, the people's first.
            kind="stable",
            ignore_index=True,
        )

    def _row(
        self,
        name: str,
        played: pd.DataFrame,
        turns: int,
    ) -> dict[str, object]:
        """Return the loss of a run's quarters, as a row of the frame."""
        term = played.iloc[: turns + 1]
        # In the term only, since a rule decides in the quarters after it.
        invalid = int(term["fallback"].sum())
        note = ""
        if invalid:
            note = f"{invalid} of its answers were invalid, and the rate was held"
        return {
            "who": name,
            "note": note,
            **self.loss.of(played),
            "term": self.loss.of(term)["loss"],
            "last_rate": term["interest_rate"].iloc[-1],
        }

    @property
    def verdict(self) -> str:
        """The people compared with the rule and a constant rate, in a sentence; empty without."""
        played = self.frame.dropna(subset="loss")
        losses = played.set_index("who")["loss"]
        if _RULE not in losses:
            return ""
        # The people's run comes first.
        peoples = losses[next(iter(self.runs))]
        rules = losses[_RULE]
        # A smaller loss is better.
        verb = "loses to"
        if peoples < rules:
            verb = "beats"
        elif peoples == rules:
            verb = "equals"
        percent = 100 * (peoples / rules - 1)
        sentence = f"A loss of {peoples:.1f} {verb} the rule's {rules:.1f} ({percent:+.1f} %)."
        if _HOLD in losses:
            sentence += f" Holding the rate would have cost {losses[_HOLD]:.1f}."
        return sentence

    @property
    def notes(self) -> list[str]:
        """Why rows have no run or lack something, one line each."""
        has_note = self.frame["note"] != ""
        notes = self.frame[has_note].set_index("who")["note"]
        return [f"{name}: {note}" for name, note in notes.items()]

    @property
    def caption(self) -> str:
        """How the runs were judged, in words."""
        loss = self.loss
        words = (
            f"Loss: mean of (inflation - {loss.inflation_target:g})² + {loss.gap_weight:g} · gap² "
            f"+ {loss.rate_change_weight:g} · (change of the rate)². The least is best."
        )
        if self.after:
            words += (
                f" Of the term and the {self.after} quarters after it, without shocks and under "
                "the rule; 'term' is without those."
            )
        return words

    def __repr__(self) -> str:
        figures = self.frame.drop(columns="note").round(2)
        table = figures.to_string(index=False, na_rep="-")
        return "\n".join([self.caption, table, *self.notes])


class _Rivals(NamedTuple):
    """Runs with others in people's seats, some still to be played, and why some are missing."""

    runs: dict[str, Simulation]
    missing: dict[str, str]


def _rivals_of(
    simulation: Simulation,
    people: Sequence[str],
    model: Rival,
) -> _Rivals:
    """Return the runs to compare with a run of people."""
    rivals = _Rivals({}, {})
    client = None
    if hasattr(model, "call_with_retry"):
        client = run_client(model, "model")
    names = [nation.name for nation in simulation.nations]
    models = [name for name in names if _is_model(simulation, name)]
    targets = _targets(simulation)
    for name, rule in _RIVALS.items():
        # A committee with a model's seat cannot decide without a client.
        if models and client is None:
            rivals.missing[name] = f"a model is needed for {', '.join(models)}; {_HOW}"
            continue
        seats: dict[str, object] = {}
        for person in people:
            # The rule in a person's seat has the inflation target of the person's nation.
            seats[person] = _ruled(simulation, rule, targets[person])
        if simulation.checks_actions and not models:
            # Rules propose policy, so that no model need judge actions.
            seats["validator"] = "rule"
        rivals.runs[name] = simulation.counterfactual(seats, llm_client=client)
    if client is not None:
        seated = dict.fromkeys(people, "model")
        played = simulation.counterfactual(seated, llm_client=client)
        rivals.runs[f"language model ({client.config.model})"] = played
    elif model is None:
        rivals.missing["language model"] = f"not played: {_HOW}"
    elif not isinstance(model, Simulation):
        raise ConfigError(
            f"model={brief(model, 120)} is neither a client nor an economic run; {_HOW}"
        )
    else:
        difference = world_differs(simulation, model)
        if difference:
            raise ConfigError(f"the model's run cannot be compared: {difference}")
        rivals.runs[f"language model ({_model_of(model)})"] = model
    return rivals


def _is_model(
    simulation: Simulation,
    nation: str,
) -> bool:
    return bool(seat_of(simulation, nation) == "model")


def _ruled(
    simulation: Simulation,
    rule: Rule,
    target: float,
) -> TaylorRuleAgent:
    """Return a player that follows a rule; a Taylor rule gets the target of the seat's nation."""
    # The rule that holds the rate has no target.
    if isinstance(rule, TaylorRule):
        rule = replace(rule, inflation_target=target)
    return TaylorRuleAgent(
        rule=rule,
        limits=simulation.engine,
        moves_bp=simulation.moves_bp,
    )


def _model_of(run: Simulation) -> str:
    """Return the name of the model that was asked in a recorded run."""
    for call in run.calls:
        site = call.request.site
        # Agents only, since validator and engine may be other models.
        if site and site.component == "agent":
            return call.request.model
    return "no model"


def _targets(simulation: Simulation) -> dict[str, float]:
    return {nation.name: nation.inflation_target for nation in simulation.nations}


def people_in(simulation: Simulation) -> list[str]:
    """Return the nations that people decide for."""
    names = [nation.name for nation in simulation.nations]
    return [name for name in names if _is_person(seat_of(simulation, name))]


def _is_person(player: object) -> bool:
    return isinstance(getattr(player, "backend", None), Person)


def world_differs(simulation: Simulation, other: Simulation) -> str:
    """Return how two runs differ, except for the players; empty if they do not.

    Start, economy, shocks, limits of the rate and interventions are compared, over the turns that
    the first run has played.

    Args:
        simulation: the first run.
        other: the second run, which must have at least as many turns.
    """
    turns = simulation.turn_number
    # A loss is a mean over turns, so that fewer turns make another loss.
    if other.turn_number < turns:
        return f"it has {other.turn_number} turns, and {turns} are compared"
    compared: dict[str, Callable[[Simulation], object]] = {
        "starting state": lambda run: run.turns[0].state,
        "economy": lambda run: run.economy,
        "limits of the rate": lambda run: run.engine,
        # Without shocks the seed has no effect.
        "seed of the shocks": lambda run: run.seed if run.economy.shock_scale else None,
        "list of interventions": lambda run: _interventions(run, turns),
    }
    for name, read in compared.items():
        first = read(simulation)
        second = read(other)
        # The first difference is enough, since others may follow from it.
        if first != second:
            return f"its {name} is another: {brief(second, 120)}, not {brief(first, 120)}"
    return ""


def _interventions(
    run: Simulation,
    turns: int,
) -> list[list[object]]:
    """Return the values that were set from outside, turn by turn."""
    # Without turn 0, the initial state, which is compared by itself.
    played = run.turns[1 : turns + 1]
    return [_values_set(turn) for turn in played]


def _values_set(turn: Turn) -> list[object]:
    return [change.set for change in turn.interventions]


def _continued(
    run: Simulation,
    turns: int,
    target: float,
    quarters: int,
) -> pd.DataFrame:
    """Return a run's frame, continued by the quarters of a successor who follows the rule."""
    import pandas as pd

    # As many turns as the people played, since a loss is a mean over turns.
    frame = run.to_frame().iloc[: turns + 1]
    if not quarters:
        return frame
    # A term's effects show only later: a rate needs three quarters to reach prices.
    successor = Simulation(
        nations=(Nation(name="Successor", inflation_target=target),),
        players="rule",
        moves_bp=None,
        engine=run.engine,
        economy=run.economy.model_copy(update={"mirrored": False, "shock_scale": 0}),
        state=run.turns[turns].state.replace(shock=NO_SHOCKS),
    )
    # Warnings about the successor's moves do not concern the people.
    leave_out_warnings(successor)
    later = successor.run(quarters)
    later["turn"] += frame["turn"].iloc[-1]
    return pd.concat(
        [frame, later.iloc[1:]],
        ignore_index=True,
    )


def of_class(
    folder: Path,
    loss: QuadraticLoss | None,
    *,
    after: int,
) -> pd.DataFrame:
    """Return the runs of people on all tapes in a folder, the best compared with the rule first.

    Raises:
        ConfigError: there are no tapes in it.
    """
    tapes = sorted(folder.glob("*.tape"))
    if not tapes:
        raise ConfigError(f"there are no tapes in {folder}; give a folder of .tape files")
    rows: list[dict[str, object]] = []
    for path in tapes:
        try:
            rows += _games_on(path, loss, after)
        except TapeError as error:
            # A damaged tape of one student leaves the other students' games.
            rows.append({"tape": path.name, "note": str(error)})
    frame = frame_of(rows, _CLASS_COLUMNS)
    return frame.sort_values(
        "against_rule_pct",
        kind="stable",
        ignore_index=True,
    )


def _games_on(
    path: Path,
    loss: QuadraticLoss | None,
    after: int,
) -> Iterator[dict[str, object]]:
    """Yield a row for each run of people on a tape."""
    with Tape(path, read_only=True) as tape:
        for info in tape.runs():
            run = load(tape, info.id)
            # A tape may have other worlds, and runs without people.
            if isinstance(run, Simulation) and people_in(run):
                row = _in_class(run, loss, after)
                # The date without the time.
                row["date"] = info.started[:10]
                row["tape"] = path.name
                yield row


def _in_class(
    run: Simulation,
    loss: QuadraticLoss | None,
    after: int,
) -> dict[str, object]:
    """Return the row of a game in a class: its people and their losses."""
    people = people_in(run)
    row: dict[str, object] = {
        "name": ", ".join(people),
        "seed": run.seed,
        "turns": run.turn_number,
        "note": "",
        "advice_asked": advice_asked(run),
    }
    try:
        compared = Losses(run, None, loss, after=after)
    except ConfigError as error:
        # A game without a turn has no loss, but its student has a row.
        row["note"] = str(error)
        return row
    losses = compared.frame.set_index("who")["loss"]
    peoples = losses[_who(people)]
    row["loss"] = peoples
    row["against_rule_pct"] = 100 * (peoples / losses[_RULE] - 1)
    return row


def advice_asked(run: Run) -> int:
    """Return before how many answers people asked for the rule's advice, by the tape."""
    replies = map(reply_of, run.calls)
    return sum(bool(reply.get("advice_asked")) for reply in replies)


def _who(people: Sequence[str]) -> str:
    """Return the name of a run's people in a table."""
    if len(people) == 1:
        return f"you ({people[0]})"
    return f"people ({', '.join(people)})"
