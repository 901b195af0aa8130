"""The demonstration: one central bank, the same quarters mirrored, and an oil shock.

It reads the recording of ``data/tapes/record_demo.py``. The Taylor rule, the same rule with
inertia, and two players that ignore the economy play beside the recorded model, with the same
start and shocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from llmsim_lab._util.checks import known_names
from llmsim_lab._util.files import data_path
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import counted
from llmsim_lab.agents.agents import TaylorRuleAgent, moves_to_choose, rule_proposal
from llmsim_lab.economy.macro import STATE, Rule, TaylorRule, rate_by
from llmsim_lab.economy.response import PolicyResponse, response_of
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Tape
from llmsim_lab.llm.choice import by_letters, orders_of
from llmsim_lab.run import Answer
from llmsim_lab.run.guided import leave_out_warnings
from llmsim_lab.simulation.gate import rest_at
from llmsim_lab.simulation.world import Simulation

if TYPE_CHECKING:
    import pandas as pd

    from llmsim_lab.study.estimates.estimate import Estimate

World = Literal["plain", "mirrored", "oil"]

OIL_TURN = 4
"""The quarter that the oil shock hits."""
FAR = 3.0
"""Percentage points from the rate in force; no move on offer comes close to a rate beyond."""

RULE = "Taylor rule"
INERTIA = "rule, inertia .85"
PLAYERS: Mapping[str, Rule] = {
    RULE: TaylorRule(),
    INERTIA: TaylorRule(inertia=0.85),
    "no change": lambda *, previous_rate, **_: previous_rate,
    "always +75 bp": lambda *, previous_rate, **_: previous_rate + 0.75,
}
"""The rules of the other players; US estimates of inertia are .8 to .9."""
_COLUMNS = ["inflation", "in the end", "drift", "verdict", "rate after oil"]


def demo_runs(tape: Tape) -> dict[int, dict[World, Simulation]]:
    """Return a recording's runs, by seed and world."""
    runs: dict[int, dict[World, Simulation]] = {}
    for info in tape.runs():
        run = Simulation.load(tape, info.id)
        world: World = "plain"
        if run.economy.mirrored:
            world = "mirrored"
        # The run with the shock is a fork of the plain run, which has the quarters before it.
        elif info.fork_turn is not None:
            world = "oil"
        runs.setdefault(run.seed, {})[world] = run
    return runs


class Demonstration:
    """Recorded runs of one central bank, and other players in the same quarters.

    Attributes:
        model: the name of the model that decides in the runs.
        runs: the recorded runs, by seed and ``plain``, ``mirrored`` or ``oil``.
        players: the players that are shown, the model first.
        paths: one row for each player, run and quarter: ``player``, ``world``, ``seed``,
            ``turn``, ``inflation``, ``output_gap``, ``interest_rate``, ``unemployment``.
        moves: one row for each judged quarter of the model, one column for each player: the move
            that the player made or would have made there, basis points. If the model's move was
            drawn from probabilities, it is their mean, which is more precise than one draw. Not
            judged are quarters after the oil shock, quarters in which a bound keeps the Taylor
            rule from its rate, there or in the mirror image, and quarters in which that rate is
            more than ``FAR`` points away.

    Example:
        >>> from llmsim_lab.simulation import Demonstration
        >>> found = Demonstration.read()
        >>> print(found.verdict)
    """

    def __init__(
        self,
        model: str,
        runs: Mapping[int, Mapping[World, Simulation]],
    ) -> None:
        """Play the other players in the quarters of recorded runs.

        Args:
            model: the name of the model that decides in the runs.
            runs: by seed and world; each seed has ``plain`` and ``mirrored``, at least one ``oil``.
        """
        import pandas as pd  # here, since most commands do not need it

        self.model = model
        self.runs = runs
        self.players = [model, *PLAYERS]
        paths: list[pd.DataFrame] = []
        moves: list[pd.DataFrame] = []
        for seed, worlds in runs.items():
            for world, run in worlds.items():
                frames = {model: run.to_frame()}
                for name, rule in _rules_beside(run).items():
                    frames[name] = _played(run, rule)
                for player, frame in frames.items():
                    quarters = frame[["turn", *STATE, "unemployment"]]
                    paths.append(
                        quarters.assign(
                            player=player,
                            world=world,
                            seed=seed,
                        )
                    )
                # Quarters after the oil shock are not judged.
                if world != "oil":
                    judged = _judged(run, model)
                    moves.append(judged.assign(world=world, seed=seed))
        self.paths = pd.concat(paths, ignore_index=True)
        self.moves = pd.concat(moves, ignore_index=True)

    @classmethod
    def read(cls, tape: str | Path | None = None) -> Demonstration:
        """Read a recording, and play the other players beside it; no model is asked.

        Args:
            tape: a recording of ``data/tapes/record_demo.py``; the shipped one if not given.

        Raises:
            ConfigError: the tape has no seed with all three runs.
        """
        path = data_path("tapes/demo.tape.gz")
        if tape is not None:
            path = Path(tape)
        # The tape stays open, since the runs may read calls from it later.
        recorded = demo_runs(Tape(path, read_only=True))
        runs = {}
        has_oil = False
        for seed, worlds in sorted(recorded.items()):
            # A recording that was stopped may lack one of the two.
            if {"plain", "mirrored"} <= worlds.keys():
                runs[seed] = worlds
                has_oil |= "oil" in worlds
        if not has_oil:
            raise ConfigError(
                f"{path} has no seed with the runs plain, mirrored, oil; record them: python "
                "data/tapes/record_demo.py"
            )
        first, *_ = runs.values()
        manifest = first["plain"].manifest()
        return cls(manifest["model"]["name"], runs)

    def responds(self, player: str | None = None) -> PolicyResponse:
        """Return whether a player, the model if not given, responds to the economy.

        This is ``economy.response_of``, as in the economic gate, on the model's quarters and their
        mirror images; the other players are asked what they would have done there. (On its own
        path, a rule's rate follows from inflation and gap, so that no regression can separate
        them.) The quarters of a seed are not independent, so that seeds are the units; with too few
        seeds nothing is decided.
        """
        first, *_ = self.runs.values()
        bank = first["plain"].nations[0]
        rest = rest_at(bank.inflation_target)
        at_rest = [getattr(rest, name) for name in STATE]
        deviations = self.moves[list(STATE)] - at_rest
        # From basis points to percentage points.
        moves = self.moves[self._known(player)] / 100
        return response_of(
            deviations,
            moves,
            groups=self.moves["seed"].to_numpy(),
        )

    def response(self, player: str | None = None) -> Estimate:
        """Return the effect of the oil shock on a player's rate, the model's if not given.

        In percentage points, over the quarters after the shock. The units are pairs of runs with
        the same seed.
        """
        from llmsim_lab.study.estimates import effects  # here, since it imports scipy

        is_of_player = self.paths["player"] == self._known(player)
        is_after = self.paths["turn"] > OIL_TURN
        is_compared = self.paths["world"] != "mirrored"
        after = self.paths[is_of_player & is_after & is_compared]
        # Only seeds and quarters that both runs have.
        is_in_both = after.duplicated(["seed", "turn"], keep=False)
        table = after[is_in_both].rename(
            columns={
                "world": "arm",
                "seed": "unit",
                "interest_rate": "value",
            }
        )
        table = table.assign(
            run=table["unit"],
            wording="",
            replicate=1,
            outcome="interest_rate",
        )
        [effect] = effects(table, contrasts=[("oil", "plain")])
        return effect

    def responses(
        self,
        player: str,
        column: str = "interest_rate",
    ) -> pd.DataFrame:
        """Return the effect of the oil shock, with minus without: a row a quarter, a column a seed.

        Args:
            player: one of ``players``.
            column: ``interest_rate``, ``inflation``, ``output_gap`` or ``unemployment``.
        """
        oil = self.path(player, "oil", column)
        plain = self.path(player, "plain", column)
        difference = (oil - plain).reindex_like(oil)
        # From the quarter before the shock, which both runs share, so that lines begin at 0.
        return difference.loc[OIL_TURN - 1 :]

    def path(
        self,
        player: str,
        world: str,
        column: str = "interest_rate",
    ) -> pd.DataFrame:
        """Return a player's quarters: a row a quarter, a column a seed.

        Args:
            player: one of ``players``.
            world: ``plain``, ``mirrored`` or ``oil``.
            column: ``interest_rate``, ``inflation``, ``output_gap`` or ``unemployment``.
        """
        is_of_player = self.paths["player"] == self._known(player)
        is_of_world = self.paths["world"] == world
        quarters = self.paths[is_of_player & is_of_world]
        return quarters.pivot(
            index="turn",
            columns="seed",
            values=column,
        )

    def _known(self, player: str | None) -> str:
        """Return a player's name, the model's if not given."""
        [name] = known_names(
            "player",
            player or self.model,
            self.players,
        )
        return name

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each player: its responses, the verdict, the rate after the oil shock.

        Responses are percentage points for each point of inflation, in a quarter and in the long
        run. Drift is the mean move, whatever the economy does. Intervals are 95 %.
        """
        rows = {player: self._row(player) for player in self.players}
        # Players are columns here, and rows after transposing.
        frame = frame_of(rows).reindex(_COLUMNS)
        return frame.T.rename_axis("player")

    def _row(self, player: str) -> dict[str, str]:
        """Return a player's row of ``to_frame``; it may have more criteria than the frame shows."""
        response = self.responds(player)
        # With too few seeds there are no criteria, and the row lacks them.
        row = {criterion.name: criterion.interval for criterion in response.criteria}
        in_the_end = "none"
        if response.in_the_end is not None:
            value, low, high = response.in_the_end
            in_the_end = f"{value:.1f} ({low:.1f} to {high:.1f})"
        row["in the end"] = in_the_end
        row["verdict"] = response.outcome
        row["rate after oil"] = effect_in_short(self.response(player))
        return row

    @property
    def verdict(self) -> str:
        """The conclusion about the model, in one sentence."""
        response = self.responds()
        words = {
            "pass": "responds to the economy",
            "fail": "does not respond to the economy",
            "undecided": "is undecided",
        }[response.outcome]
        # A model that is asked to write a sentence first may decide differently.
        if self.by_letter:
            words += " when asked by letter"
        first_letter = response.sentence[0]
        sentence = first_letter.lower() + response.sentence[1:]
        return f"{self.model} {words}: {sentence}"

    @property
    def by_letter(self) -> bool:
        """Whether the model was asked for the letter of a move, not to write its decision."""
        decides = []
        for worlds in self.runs.values():
            decides += [run.decide for run in worlds.values()]
        return all(decides)

    @property
    def judged(self) -> str:
        """How many quarters are judged, and why not all of them, in one sentence."""
        quarters = 0
        for worlds in self.runs.values():
            quarters += worlds["plain"].turn_number + worlds["mirrored"].turn_number
        return (
            f"{len(self.moves)} of {quarters} quarters are judged: those in which the {RULE} asks "
            "for a rate that no bound stands in the way of (there and in the mirror image) and "
            f"that is at most {FAR:g} points from the one in force, since no move on offer comes "
            "near one farther away. Whether a quarter is judged follows from the economy before "
            "the move, not from the move."
        )

    @property
    def headline(self) -> str:
        """The effect of the oil shock on the model's rate and on the rule's, in one sentence."""
        rule = self.response(RULE)
        model = self.response()
        quarters = len(self.responses(self.model).loc[OIL_TURN + 1 :])
        return (
            f"An oil shock moves the rate, on average over the {quarters} quarters after it, by "
            f"{_points(rule)} under the {RULE} and by {_points(model)} under {self.model} "
            f"({counted(model.n, 'seed')})."
        )

    def __repr__(self) -> str:
        return f"<Demonstration, {counted(len(self.runs), 'seed')}: {self.verdict}>"


def _points(effect: Estimate) -> str:
    """Return an effect with its interval and its note."""
    parts = []
    if effect.low is not None:
        parts.append(f"95 % interval {effect.low:+.2f} to {effect.high:+.2f}")
    if effect.note:
        parts.append(effect.note)
    if effect.typical is not None:
        parts.append(f"typical difference {effect_in_short(effect.typical)}")
    words = f"{effect.value:+.2f} points"
    if parts:
        words += f" ({'; '.join(parts)})"
    return words


def effect_in_short(effect: Estimate) -> str:
    """Return an effect with its interval, ``+3.11 (+3.01 to +3.20)``."""
    if effect.low is None:
        return f"{effect.value:+.2f}"
    return f"{effect.value:+.2f} ({effect.low:+.2f} to {effect.high:+.2f})"


def _rules_beside(recorded: Simulation) -> dict[str, Rule]:
    """Return the other players' rules, with the recorded bank's target."""
    target = recorded.nations[0].inflation_target
    rules: dict[str, Rule] = {}
    for name, rule in PLAYERS.items():
        rules[name] = rule
        # A player that ignores the economy has no target.
        if isinstance(rule, TaylorRule):
            rules[name] = replace(rule, inflation_target=target)
    return rules


def _played(
    recorded: Simulation,
    rule: Rule,
) -> pd.DataFrame:
    """Return the path of another player with a recorded run's start and shocks."""
    agent = TaylorRuleAgent(
        rule=rule,
        limits=recorded.engine,
        moves_bp=recorded.moves_bp,
    )
    run = recorded.counterfactual(agent)
    # Warnings about these quarters came when the run was recorded.
    leave_out_warnings(run)
    return run.run(recorded.turn_number, progress=False)


def _judged(
    recorded: Simulation,
    model: str,
) -> pd.DataFrame:
    """Return each player's decisions in the judged quarters of a recorded run."""
    import numpy as np

    # Without the last state, after which nothing was decided.
    economies = [turn.state.global_state for turn in recorded.turns[:-1]]
    figures = [dict(economy) for economy in economies]
    quarters = frame_of(figures)[list(STATE)]
    # Each turn has one answer, the bank's.
    answers = [turn.answers[0] for turn in recorded.turns[1:]]
    quarters[model] = [_expected(recorded, answer) for answer in answers]
    rules = _rules_beside(recorded)
    for name, rule in rules.items():
        moves = []
        for economy in economies:
            proposal = rule_proposal(
                rule,
                economy,
                recorded.engine,
                moves_bp=recorded.moves_bp,
            )
            moves.append(proposal.rate_change_bp)
        quarters[name] = moves
    rest = rest_at(recorded.nations[0].inflation_target)
    asked_for = np.array([rate_by(rules[RULE], economy) for economy in economies])
    # At the lower bound the rule asks for 0, in the mirror image for twice the steady state's rate.
    is_free = (asked_for > 0) & (asked_for <= 2 * rest.interest_rate)
    distance = np.abs(asked_for - quarters["interest_rate"])
    judged: pd.DataFrame = quarters[is_free & (distance <= FAR)]
    return judged


def _expected(recorded: Simulation, answer: Answer) -> float:
    """Return the move of an answer; if it was drawn, the mean of its probabilities."""
    # In the order of the offer, since answers are found by their questions.
    options = moves_to_choose(recorded.moves_bp or ())
    measured = []
    # Each order of the letters was a question of its own, with its own recorded answer.
    for question, _ in orders_of(options):
        for call in answer.calls:
            reply = call.reply
            if reply is None or not reply.top_logprobs:
                continue
            text = call.request.messages[-1].content
            if text.endswith(question):
                measured.append((reply, call))
    # The models' preference for letters cancels only with the answers to all orders.
    is_complete = len(measured) == len(options)
    if recorded.decide == "sample" and is_complete:
        return by_letters(options, measured).expectation
    return float(answer.fields["rate_change_bp"])
