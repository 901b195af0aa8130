"""The demonstration: one central bank, the same quarters mirrored, and an oil shock.

One set-up for the command, the notebook and the recording that both show
(``data/tapes/record_demo.py``). Beside the recorded model the Taylor rule, the same with inertia,
and two players that do not look at the economy have the same start and shocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from llmsim_lab._util.files import data_path
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import counted
from llmsim_lab.agents._agents import moves_to_choose, rule_proposal
from llmsim_lab.economy._macro import STATE, STEADY_STATE, TaylorRule, rate_by
from llmsim_lab.economy._response import PolicyResponse, response_of
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMConfig, Tape
from llmsim_lab.llm._choose import by_letters, options_of, orders_of
from llmsim_lab.run import load
from llmsim_lab.run._turn import Answer
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.simulation._gate import GATE_MOVES_BP
from llmsim_lab.simulation._scores import player_by

if TYPE_CHECKING:
    import pandas as pd

World = Literal["plain", "mirrored", "oil"]

DEMO_START = "2000Q2"
"""Inflation and output gap are above their steady state there, unemployment and a real rate that
is too low for it agree, and the mirror image of the rate is far enough from its lower bound."""
DEMO_TURNS = 20
DEMO_SEEDS = range(1, 9)
OIL_TURN, OIL_END = 4, 12
OIL = {"turn": OIL_TURN - 1, "set": {"shock.supply": 4.0}, "note": "oil"}
"""Four points of inflation in a quarter, at an annual rate: a state says what hits the next."""

FAR = 3.0
"""Percentage points."""
_COLUMNS = (*STATE, "unemployment")


def demo_config(*, model: str = "auto", seed: int = 1, mirrored: bool = False) -> SimulationConfig:
    """Return the configuration of one central bank with a model in it.

    Args:
        model: as ``connect`` takes it.
        seed: of the shocks and of the model's draws.
        mirrored: whether all is as far on the other side of the steady state.
    """
    return SimulationConfig(
        name=f"seed {seed}, mirrored" if mirrored else f"seed {seed}",
        seed=seed,
        turns=DEMO_TURNS,
        start_at=DEMO_START,
        moves_bp=GATE_MOVES_BP,
        decide="sample",
        llm=LLMConfig(model=model, num_ctx=2048, max_tokens=256, timeout_s=600),
        economy={"mirrored": mirrored, "fiscal_backstop": True},
    )


def demo_runs(tape: Tape) -> dict[int, dict[World, int]]:
    """Return the numbers of a recording's runs, by seed and by what each shows."""
    found: dict[int, dict[World, int]] = {}
    for run in tape.runs():
        config = run.manifest["config"]
        mirrored = config["economy"].get("mirrored", False)
        world: World = "oil" if run.fork_turn is not None else "plain"
        found.setdefault(config["seed"], {})["mirrored" if mirrored else world] = run.id
    return found


RULE, INERTIA = "Taylor rule", "rule, inertia .85"
PLAYERS: Mapping[str, TaylorRule | int] = {
    RULE: TaylorRule(),
    INERTIA: TaylorRule(inertia=0.85),
    "no change": 0,
    "always +75 bp": 75,
}
"""Rules, and players that always make one move, basis points. US estimates of inertia are .8 to
.9."""


class OilResponse(NamedTuple):
    """What an oil shock does to a player's rate: the difference of two runs with the same seed.

    Attributes:
        mean: percentage points, over the quarters after the shock and over seeds.
        low: of Student's 95 % interval over the seeds; not a number with one seed.
        high: likewise.
    """

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        wide = self.high - self.low > 0.005
        around = f" (95 % interval {self.low:+.2f} to {self.high:+.2f})" if wide else ""
        return f"{self.mean:+.2f} points{around}"


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """Recorded runs of one central bank, and those of other players in the same quarters.

    Attributes:
        model: the model's name.
        runs: what was recorded, by seed and ``plain``, ``mirrored`` or ``oil``.
        paths: a row a quarter of each run of each player: ``player``, ``world``, ``seed``,
            ``turn``, ``inflation``, ``output_gap``, ``interest_rate``, ``unemployment``.
        moves: a row for each quarter of the model's, a column for each player: what it decided, or
            would have decided, there, basis points. Where the model's move was drawn from its
            probabilities it is their mean, which is known more exactly than one draw.

    Example:
        >>> from llmsim_lab.study import Demonstration
        >>> found = Demonstration.read()
        >>> print(found.verdict)
    """

    model: str
    runs: Mapping[int, Mapping[World, Simulation]]
    paths: pd.DataFrame
    moves: pd.DataFrame

    config = staticmethod(demo_config)

    @classmethod
    def read(cls, tape: str | Path | None = None) -> Demonstration:
        """Read a recording, and play the others beside it; no model is asked.

        Args:
            tape: one of ``data/tapes/record_demo.py``; the shipped one if not given.

        Raises:
            ConfigError: the tape has no seed with all three runs.
        """
        path = data_path("tapes/demo.tape.gz") if tape is None else Path(tape)
        opened = Tape(path, read_only=True)  # for as long as calls may be read of the runs
        runs: dict[int, dict[World, Simulation]] = {
            seed: {world: load(opened, run) for world, run in found.items()}
            for seed, found in sorted(demo_runs(opened).items())
            if {"plain", "mirrored"} <= found.keys()
        }
        if not any("oil" in found for found in runs.values()):
            raise ConfigError(
                f"{path} has no seed with the runs {', '.join(get_args(World))}; record them: "
                "python data/tapes/record_demo.py"
            )
        first = next(iter(runs.values()))["plain"]
        return cls.of(first.manifest()["model"]["name"], runs)

    @classmethod
    def of(cls, model: str, runs: Mapping[int, Mapping[World, Simulation]]) -> Demonstration:
        """Play the other players beside runs.

        Args:
            model: the name of who decides in the runs.
            runs: by seed, and for each seed ``plain`` and ``mirrored``; ``oil`` of one or more.
        """
        import pandas as pd

        paths, moves = [], []
        for seed, found in runs.items():
            for world, run in found.items():
                played = {model: run, **{name: _played(run, by) for name, by in PLAYERS.items()}}
                place = {"world": world, "seed": seed}
                for name, one in played.items():
                    quarters = one.to_frame()[["turn", *_COLUMNS]]
                    paths.append(quarters.assign(player=name, **place))
                moves.append(_moves(run, model).assign(**place))
        whole = [pd.concat(frames, ignore_index=True) for frames in (paths, moves)]
        return cls(model=model, runs=runs, paths=whole[0], moves=whole[1])

    @property
    def players(self) -> list[str]:
        """The model first."""
        return [self.model, *PLAYERS]

    def responds(self, player: str | None = None) -> PolicyResponse:
        """Return whether a player, the model if not given, responds to the economy.

        ``economy.response_of``, as in the economic gate, on the model's quarters as they were and
        mirrored: what the others would have done there. (On a path of its own a rule's rate follows
        from inflation and gap, so that no regression can tell them apart.) Left out are quarters in
        which a bound of the rate stands in the way of the Taylor rule, there or in the mirror
        image, or the rule is more than ``FAR`` points away, which no move on offer comes near. The
        quarters of one seed are no independent cases, so seeds are the units.

        Raises:
            ConfigError: there are too few seeds.
        """
        moves, rest = self.moves, [getattr(STEADY_STATE, name) for name in STATE]
        asked = moves["taylor_rate"]
        free = asked.between(0, 2 * STEADY_STATE.interest_rate)
        near = (asked - moves["interest_rate"]).abs() <= FAR
        judged = moves[(moves["world"] != "oil") & free & near]
        there = judged[player or self.model] / 100
        return response_of(judged[list(STATE)] - rest, there, groups=judged["seed"].to_numpy())

    def response(self, player: str | None = None) -> OilResponse:
        """Return what the oil shock does to a player's rate, the model's if not given."""
        from scipy.special import stdtrit  # quantiles of Student's t

        found = self.responses(player or self.model)
        by_seed = found[found.index > OIL_TURN].mean()
        mean, reach = by_seed.mean(), by_seed.sem() * stdtrit(len(by_seed) - 1, 0.975)
        return OilResponse(float(mean), float(mean - reach), float(mean + reach))

    def responses(self, player: str, column: str = "interest_rate") -> pd.DataFrame:
        """Return what the oil shock does: with it minus without, a row a quarter, a column a seed.

        Args:
            player: one of ``players``.
            column: ``interest_rate``, ``inflation``, ``output_gap`` or ``unemployment``.
        """
        with_oil = self.path(player, "oil", column)
        without = self.path(player, "plain", column)
        return (with_oil - without.loc[with_oil.index, with_oil.columns]).loc[OIL_TURN - 1 :]

    def path(self, player: str, world: World, column: str = "interest_rate") -> pd.DataFrame:
        """Return a player's quarters: a row a quarter, a column a seed.

        Args:
            player: one of ``players``.
            world: ``plain``, ``mirrored`` or ``oil``.
            column: ``interest_rate``, ``inflation``, ``output_gap`` or ``unemployment``.
        """
        here = self.paths.groupby(["player", "world"]).get_group((player, world))
        return here.pivot_table(index="turn", columns="seed", values=column)

    def to_frame(self) -> pd.DataFrame:
        """Return a row a player: how its moves respond, the verdict, the rate after the oil shock.

        Responses are in percentage points a quarter for each point of inflation, and in the end;
        drift is what is moved whatever happens. Intervals are 95 %.
        """
        rows = []
        for player in self.players:
            found, row = self._judged(player), {"player": player}
            if not isinstance(found, str):
                ends = found.in_the_end
                row["inflation"] = found["inflation"].interval
                row["in the end"] = "{:.1f} ({:.1f} to {:.1f})".format(*ends) if ends else "none"
                row["drift"] = found["drift"].interval
            row["verdict"] = "undecided" if isinstance(found, str) else found.outcome
            rows.append({**row, "rate after oil": f"{self.response(player).mean:+.2f}"})
        return frame_of(rows).set_index("player")

    def _judged(self, player: str) -> PolicyResponse | str:
        """Return how a player responds; of too few seeds, why that is not known."""
        try:
            return self.responds(player)
        except ConfigError as error:
            return str(error)

    @property
    def verdict(self) -> str:
        """What the recording says of the model, in one sentence."""
        found = self._judged(self.model)
        if isinstance(found, str):
            return f"{self.model} is undecided: {found}."
        words = {"pass": "responds to the economy", "fail": "does not respond to the economy"}
        sentence = found.sentence[0].lower() + found.sentence[1:]
        return f"{self.model} {words.get(found.outcome, 'is undecided')}: {sentence}"

    @property
    def headline(self) -> str:
        """What the oil shock does to the model's rate and to the rule's, in one sentence."""
        found = self.responses(self.model)
        return (
            "An oil shock moves the rate, on average over the "
            f"{sum(found.index > OIL_TURN)} quarters after it, by {self.response(RULE)} under the "
            f"{RULE} and by {self.response()} under {self.model} "
            f"({counted(found.shape[1], 'seed')})."
        )

    def __repr__(self) -> str:
        return f"<Demonstration, {counted(len(self.runs), 'seed')}: {self.verdict}>"


def _played(recorded: Simulation, by: TaylorRule | int) -> Simulation:
    """Return a recorded run as another player has it."""
    simulation = recorded.counterfactual(player_by(recorded, by))
    simulation._quiet = True  # what is wrong with these quarters is the recording's
    simulation.run(recorded.turn_number, progress=False)
    return simulation


def _moves(recorded: Simulation, model: str) -> pd.DataFrame:
    """Return the quarters of a recorded run, and what each player decides there."""
    config, rows = recorded.config, []
    for before, turn in pairwise(recorded.turns):
        economy = before.state.global_state
        row = {name: getattr(economy, name) for name in STATE}
        row["taylor_rate"] = rate_by(TaylorRule(lower_bound=-inf), economy)
        row[model] = _expected(turn.answers[0], config)
        for name, by in PLAYERS.items():
            row[name] = by
            if isinstance(by, TaylorRule):
                said = rule_proposal(by, economy, config.engine, moves_bp=config.moves_bp)
                row[name] = said["rate_change_bp"]
        rows.append(row)
    return frame_of(rows)


def _expected(answer: Answer, config: SimulationConfig) -> float:
    """Return the move that was decided on, of a drawn one the mean that it was drawn from."""
    options = options_of(moves_to_choose(config.moves_bp or ()))
    # Each order of the letters was a question of its own; its recorded answer is the one to it.
    measured = [
        (call.reply, call)
        for question, _ in orders_of(options)
        for call in answer.calls
        if call.reply and call.reply.top_logprobs
        if call.request.messages[-1].content.endswith(question)
    ]
    if config.decide == "sample" and len(measured) == len(options):
        chances = by_letters(options, measured).probabilities
        return sum(move * chance for move, chance in chances.items())
    return float(answer.fields["rate_change_bp"])
