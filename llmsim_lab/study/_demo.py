"""The demonstration: one central bank, the same quarters mirrored, and an oil shock.

One set-up for the command, the notebook and the recording that both show
(``data/tapes/record_demo.py``). Beside the recorded model the Taylor rule and two players that do
not look at the economy have the same quarters, with the same shocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import inf, nan
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, get_args

from llmsim_lab._util.files import data_path
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import counted
from llmsim_lab.agents._agents import moves_to_choose
from llmsim_lab.economy import TaylorRule
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMConfig, Tape
from llmsim_lab.llm._choose import Options, by_letters
from llmsim_lab.run import Question, load
from llmsim_lab.run._turn import Answer
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.study._gate import CLEAR, GATE_MOVES_BP, RIGHT, mean_interval

if TYPE_CHECKING:
    import pandas as pd

World = Literal["plain", "mirrored", "oil"]
Player = Callable[[Question], Any] | Literal["rule"]
"""As ``players=`` takes it."""

DEMO_START = "2000Q2"
"""Inflation and output gap are above their steady state there, unemployment and a real rate that
is too low for it agree, and the mirror image of the rate is far enough from its lower bound."""
DEMO_TURNS = 20
DEMO_SEEDS = range(1, 9)
DEMO_MOVES_BP = GATE_MOVES_BP
OIL_TURN, OIL_END = 4, 12
OIL = {"turn": OIL_TURN - 1, "set": {"shock.supply": 4.0}, "note": "oil"}
"""Four points of inflation in a quarter, at an annual rate: a state says what hits the next."""

ANSWERS = 2 * RIGHT - 1
"""The least by which a player that answers the economy raises more often where the rate is too low
than where it is too high: what is left of the gate's cut for the right direction, on both sides."""
_NOTHING = 0.1
"""A difference that may be as small is called none, however well it is known."""

_COLUMNS = ("interest_rate", "inflation", "output_gap", "unemployment")


def demo_config(
    *,
    model: str = "auto",
    seed: int = 1,
    start: str = DEMO_START,
    turns: int = DEMO_TURNS,
    mirrored: bool = False,
) -> SimulationConfig:
    """Return the configuration of one central bank with a model in it.

    Args:
        model: as ``connect`` takes it.
        seed: of the shocks and of the model's draws.
        start: the quarter whose data come first.
        turns: how many quarters.
        mirrored: whether all is as far on the other side of the steady state.
    """
    return SimulationConfig(
        name=f"seed {seed}, mirrored" if mirrored else f"seed {seed}",
        seed=seed,
        turns=turns,
        start_at=start,
        moves_bp=DEMO_MOVES_BP,
        decide="sample",
        llm=LLMConfig(model=model, num_ctx=2048, max_tokens=256, timeout_s=600),
        economy={"mirrored": mirrored, "fiscal_backstop": True},
    )


def demo_runs(tape: Tape | str | Path) -> dict[int, dict[World, int]]:
    """Return the numbers of a recording's runs, by seed and by what each shows."""
    found: dict[int, dict[World, int]] = {}
    with nullcontext(tape) if isinstance(tape, Tape) else Tape(tape, read_only=True) as opened:
        for run in opened.runs():
            config = run.manifest["config"]
            mirrored = config["economy"].get("mirrored", False)
            world: World = "oil" if run.fork_turn is not None else "plain"
            found.setdefault(config["seed"], {})["mirrored" if mirrored else world] = run.id
    return found


def _always(change_bp: int) -> Callable[[Question], dict[str, int]]:
    return lambda question: {"rate_change_bp": change_bp}


RULE = "Taylor rule"
PLAYERS: Mapping[str, Player] = {
    RULE: "rule",
    "no change": _always(0),
    "always +75 bp": _always(75),
}
"""Who has the same quarters as the model, at no cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateAnswer:
    """How often a player raises the rate where it is too low, and where it is too high.

    A rate is too low, or too high, where the Taylor rule asks for one that differs by 0.75 points
    or more, its lower bound left out.

    Attributes:
        player: whose it is.
        raised_low: in how many quarters it raises a rate that is too low.
        low: how many such quarters there are, of the quarters as they were and mirrored.
        raised_high: in how many quarters it raises a rate that is too high.
        high: how many such quarters there are.
        chance_low: of raising a rate that is too low, the mean over these quarters. Where a model's
            move was drawn from its probabilities it is theirs, which are known more exactly than
            what was drawn from them; elsewhere 1 or 0.
        chance_high: of raising one that is too high.
        difference: between the two chances, the mean over seeds; None where no seed has both.
        interval: Student's over the seeds, 95 %; None of fewer than two.
        seeds: how many have quarters of both kinds.
    """

    player: str
    raised_low: int
    low: int
    raised_high: int
    high: int
    chance_low: float
    chance_high: float
    difference: float | None
    interval: tuple[float, float] | None
    seeds: int

    @property
    def verdict(self) -> str:
        """Whether it answers the economy, in words."""
        if self.interval is None:
            return "one seed does not decide whether it answers the economy"
        least, most = self.interval
        if least >= ANSWERS:
            return "it answers the economy"
        if most >= ANSWERS:
            return f"{counted(self.seeds, 'seed')} do not decide whether it answers the economy"
        if most <= -ANSWERS:
            return "it does the opposite of what the economy asks for"
        if least > _NOTHING:
            return "it answers the economy too little"
        return "it does not answer the economy"

    @property
    def reason(self) -> str:
        """What the verdict follows from, in a sentence; empty where nothing can be computed."""
        if self.difference is None:
            return ""
        low, high = (100 * value for value in self.interval or (0.0, 0.0))
        around = f", 95 % interval {low:+.1f} to {high:+.1f}" if self.interval else ""
        return (
            f"Its chance of a rise is {self.chance_low:.0%} where the rate is too low and "
            f"{self.chance_high:.0%} where it is too high (difference over "
            f"{counted(self.seeds, 'seed')} {100 * self.difference:+.1f} points{around}; to answer "
            f"the economy takes {100 * ANSWERS:.0f} or more, such as {RIGHT:.0%} and "
            f"{1 - RIGHT:.0%})."
        )

    def __str__(self) -> str:
        return (
            f"{self.player} raises the rate in {self.raised_low} of {self.low} quarters in which "
            f"it is clearly too low for the economy and in {self.raised_high} of {self.high} in "
            f"which it is clearly too high: {self.verdict}."
        )


@dataclass(frozen=True, slots=True)
class OilResponse:
    """What an oil shock does to a player's rate: the difference of two runs with the same seed.

    Attributes:
        player: whose it is.
        mean: percentage points, over the quarters after the shock and over seeds.
        interval: Student's over the seeds, 95 %; None with one seed.
        seeds: how many.
        quarters: how many quarters a seed's mean is over.
    """

    player: str
    mean: float
    interval: tuple[float, float] | None
    seeds: int
    quarters: int

    def __str__(self) -> str:
        around = ""
        if self.interval is not None and self.interval[1] - self.interval[0] > 0.005:
            around = f" (95 % interval {self.interval[0]:+.2f} to {self.interval[1]:+.2f})"
        return f"{self.player}: {self.mean:+.2f} points{around}"


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """Recorded runs of one central bank, and those of other players in the same quarters.

    Attributes:
        model: the model's name.
        runs: what was recorded, by seed and ``plain``, ``mirrored`` or ``oil``.
        paths: a row a quarter of each run of each player: ``player``, ``world``, ``seed``,
            ``turn``, ``interest_rate``, ``inflation``, ``output_gap``, ``unemployment``;
            ``asked``, by how much the Taylor rule, without its lower bound, would change the rate,
            percentage points; ``move_bp``, the change that the player decided on there; and
            ``chance``, how likely it was to raise the rate (both missing in a run's last quarter).

    Example:
        >>> from llmsim_lab.study import Demonstration
        >>> found = Demonstration.read()
        >>> print(found.answer())
    """

    model: str
    runs: Mapping[int, Mapping[World, Simulation]]
    paths: pd.DataFrame

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
        numbers = {
            seed: found
            for seed, found in sorted(demo_runs(opened).items())
            if {"plain", "mirrored"} <= found.keys()
        }
        if not any("oil" in found for found in numbers.values()):
            raise ConfigError(
                f"{path} has no seed with the runs {', '.join(get_args(World))}; record them: "
                "python data/tapes/record_demo.py"
            )
        runs = {
            seed: {world: load(opened, run) for world, run in found.items()}
            for seed, found in numbers.items()
        }
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

        frames = []
        for seed, found in runs.items():
            for world, simulation in found.items():
                frames.append(_path(simulation, model, world, seed))
                frames += [_path(_played(simulation, name), name, world, seed) for name in PLAYERS]
        return cls(model=model, runs=runs, paths=pd.concat(frames, ignore_index=True))

    @property
    def players(self) -> list[str]:
        """The model first."""
        return [self.model, *PLAYERS]

    @property
    def quarters(self) -> str:
        """How many the runs have, as they were and mirrored: ``20``, or ``12 to 20``."""
        both = [found[world] for found in self.runs.values() for world in ("plain", "mirrored")]
        counts = [run.turn_number for run in both]
        return " to ".join(map(str, sorted({min(counts), max(counts)})))

    def answer(self, player: str | None = None) -> RateAnswer:
        """Return how often a player, the model if not given, raises where it should and should not.

        The quarters as they were and mirrored count, those after the oil shock do not.
        """
        player = player or self.model
        paths = self.paths
        of_player = (paths["player"] == player) & (paths["world"] != "oil")
        decided = paths[of_player & paths["move_bp"].notna()]
        raised, chance = decided["move_bp"] > 0, decided["chance"]
        low, high = decided["asked"] >= CLEAR, decided["asked"] <= -CLEAR
        of_seeds = (decided["seed"] == seed for seed in self.runs)
        by_seed = [
            float(chance[low & here].mean() - chance[high & here].mean())
            for here in of_seeds
            if (low & here).any() and (high & here).any()
        ]
        return RateAnswer(
            player=player,
            raised_low=int(raised[low].sum()),
            low=int(low.sum()),
            raised_high=int(raised[high].sum()),
            high=int(high.sum()),
            chance_low=float(chance[low].mean()),
            chance_high=float(chance[high].mean()),
            difference=fmean(by_seed) if by_seed else None,
            interval=mean_interval(by_seed),
            seeds=len(by_seed),
        )

    def response(self, player: str | None = None) -> OilResponse:
        """Return what the oil shock does to a player's rate, the model's if not given."""
        player = player or self.model
        found = self.responses(player)
        after = found[found.index > OIL_TURN]
        by_seed = [float(value) for value in after.mean()]
        mean, interval = fmean(by_seed), mean_interval(by_seed)
        return OilResponse(player, mean, interval, seeds=len(by_seed), quarters=len(after))

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
        paths = self.paths
        here = paths[(paths["player"] == player) & (paths["world"] == world)]
        if here.empty or column not in _COLUMNS:
            raise ConfigError(
                f"no {column} of {player!r} in the world {world!r}; there are {', '.join(_COLUMNS)}"
                f" of {', '.join(self.players)} in {', '.join(get_args(World))}"
            )
        return here.pivot_table(index="turn", columns="seed", values=column)

    def to_frame(self) -> pd.DataFrame:
        """Return a row a player: how often it raises where it should and where it should not."""
        rows = [
            {
                "player": one.player,
                "raises, rate too low": f"{one.raised_low} of {one.low}",
                "raises, rate too high": f"{one.raised_high} of {one.high}",
                "rate after oil, points": round(self.response(one.player).mean, 2) + 0.0,
                "verdict": one.verdict,
            }
            for one in map(self.answer, self.players)
        ]
        return frame_of(rows).set_index("player")

    @property
    def verdict(self) -> str:
        """What the recording says of the model, in one sentence."""
        return str(self.answer())

    @property
    def headline(self) -> str:
        """What the oil shock does to the model's rate and to the rule's, in one sentence."""
        return (
            f"An oil shock moves the rate, on average over the {self.response().quarters} quarters "
            f"after it, by {_points(self.response(RULE))} under the {RULE} and by "
            f"{_points(self.response())} under {self.model} "
            f"({counted(self.response().seeds, 'seed')})."
        )

    def __repr__(self) -> str:
        seeds = counted(len(self.runs), "seed")
        return f"<Demonstration of {self.model}, {seeds}: {self.answer().verdict}>"


def _points(response: OilResponse) -> str:
    return str(response).removeprefix(f"{response.player}: ")


def _played(recorded: Simulation, player: str) -> Simulation:
    """Return the quarters of a recorded run as another player has them."""
    simulation = recorded.counterfactual(PLAYERS[player])
    simulation._quiet = True  # what is wrong with these quarters is the recording's
    simulation.run(recorded.turn_number, progress=False)
    return simulation


def _path(simulation: Simulation, player: str, world: World, seed: int) -> pd.DataFrame:
    frame = simulation.to_frame()
    rule = replace(TaylorRule(), lower_bound=-inf)
    now = frame[["interest_rate", "inflation", "output_gap"]].itertuples(index=False)
    asked = [
        rule.rate(inflation=inflation, output_gap=gap, previous_rate=rate) - rate
        for rate, inflation, gap in now
    ]
    decided = [turn.answers[0] for turn in simulation.turns[1:]]
    # A row a state, and one decision fewer: nothing was decided in the last.
    return frame_of(
        {
            "player": player,
            "world": world,
            "seed": seed,
            "turn": frame["turn"],
            **{name: frame[name] for name in _COLUMNS},
            "asked": asked,
            "move_bp": [*(float(answer.fields["rate_change_bp"]) for answer in decided), nan],
            "chance": [*(_chance(answer, simulation.config) for answer in decided), nan],
        }
    )


def _chance(answer: Answer, config: SimulationConfig) -> float:
    """Return how likely a move was to be a rise."""
    options = Options.of(moves_to_choose(config.moves_bp or ()))
    # Each order of the letters was a question of its own; its recorded answer is the one to it.
    measured = [
        (call.reply, call)
        for question, _ in options.orders()
        for call in answer.calls
        if call.reply and call.reply.top_logprobs
        if call.request.messages[-1].content.endswith(question)
    ]
    if config.decide == "sample" and len(measured) == len(options.values):
        chances = by_letters(options, measured).probabilities
        return sum(chance for move, chance in chances.items() if move > 0)
    return float(answer.fields["rate_change_bp"] > 0)
