"""A round robin of hand-ins: a file each with a function, in processes with limits.

A score is points a round. Its unit is the seed, with which the whole round robin is played once:
matches of one seed share their random numbers, so that they are not independent of each other.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from markupsafe import Markup
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_jsonable_python

from llmsim_lab._util.checks import instance_of, items_of, known_names, whole_number
from llmsim_lab._util.files import (
    as_path,
    bounded_text,
    is_there,
    make_folder,
    temporary_folder,
    write_file,
)
from llmsim_lab._util.html import join, styled, table
from llmsim_lab._util.results import Results
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import brief, closest, counted, listed
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import ConfigError
from llmsim_lab.lessons.limits import (
    HandInFault,
    LimitedProcess,
    ProcessLimits,
    paths_in,
)
from llmsim_lab.lessons.pages import file_stem, link_to, reading_of, shown_name, table_of
from llmsim_lab.run import Question, Run
from llmsim_lab.run.page import write_page

if TYPE_CHECKING:
    import pandas as pd

    from llmsim_lab.study.estimates import Effects
    from llmsim_lab.study.estimates.estimate import Interval
    from llmsim_lab.study.estimates.numeric import Numbers

WORDS = ("random", "rule")
"""Who can play beside hand-ins."""
_TRIAL_TURNS = 3
_MOST = 100_000
"""Rounds, and seeds."""
_LEVEL = 0.95
_MOST_BYTES = 50_000_000
_KEPT = ("results.jsonl", "matches")
RESULTS = (*_KEPT, "index.html", "standings.csv", "pages")
"""What a folder has after the command."""


# --- a match --------------------------------------------------------------------------------------


class _Entry(NamedTuple):
    """Who plays: a file, or a word that the lab knows."""

    name: str
    file: Path | None

    @property
    def digest(self) -> str:
        """Of what decides its moves."""
        if self.file is None:
            return self.name
        content = self.file.read_bytes()
        return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Game:
    """What all pairs play.

    Attributes:
        world: the class.
        seats: the two players that it asks.
        both_ways: whether each seed is played twice, the second time in each other's seats.
        rounds: turns of a match.
        seeds: of the matches.
        limits: of a hand-in in a match.
        parameters: of the world.
        code: digest of the world's code.
    """

    world: type[Run]
    seats: tuple[str, str]
    both_ways: bool
    rounds: int
    seeds: tuple[int, ...]
    limits: ProcessLimits
    parameters: Mapping[str, Any]
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Two who meet, with all seeds, and the tape of their first match."""

    game: _Game
    entries: tuple[_Entry, _Entry]
    tape: Path | None = None

    @property
    def names(self) -> tuple[str, str]:
        """Who they are."""
        first, second = self.entries
        return (first.name, second.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forfeit:
    """Why a hand-in is out.

    Attributes:
        player: its name.
        against: whom it played.
        seed: of the match.
        turn: 0 if it could not begin.
        fault: what went wrong.
    """

    player: str
    against: str
    seed: int
    turn: int
    fault: str

    def __str__(self) -> str:
        return (
            f"{self.player}: {self.fault} (turn {self.turn} against {self.against}, "
            f"seed {self.seed})"
        )


class _PairResult(NamedTuple):
    """Scores of both by seed, in points a round; or why one of them is out."""

    scores: list[tuple[float, float]]
    forfeit: Forfeit | None


class _Player:
    """A hand-in in a seat, to a run a function like any other."""

    def __init__(self, process: LimitedProcess) -> None:
        self.process = process
        self.fault = ""
        self.answered: object = None

    def begin(
        self,
        seed: int,
        run: Mapping[str, object],
    ) -> None:
        self.process.begin_task()
        self._ask(
            "begin",
            seed=seed,
            run=run,
        )

    def __call__(self, question: Question) -> Any:
        question_parts = {
            "player": question.player,
            "turn": question.turn,
            "tag": question.tag,
            "values": question.values,
            "limits": question.limits,
            "state": question.state,
            # A generator does not travel; a number from which to make one does. It is drawn for
            # each question, whether or not the player uses it: the others draw the same then.
            "rng": question.rng.getrandbits(64),
        }
        self.answered = self._ask("answer", question=question_parts)
        return self.answered

    def _ask(self, task: str, **arguments: object) -> Any:
        try:
            return self.process.ask(task, **arguments)
        except HandInFault as fault:
            self.fault = str(fault)
            raise


class _Out(Exception):  # noqa: N818 - the result of a match
    """A player is out."""

    def __init__(
        self,
        place: int,
        turn: int,
        fault: str,
    ) -> None:
        super().__init__(fault)
        self.place = place
        self.turn = turn


def play_pair(pair: _Pair) -> _PairResult:
    """Play all matches of two, in any process; the first fault ends them."""
    # The table says who made mistakes, a line each; the log would say so for each match.
    with _without_warnings():
        return run_sync(_play_pair(pair))


async def _play_pair(pair: _Pair) -> _PairResult:
    game = pair.game
    scores: list[tuple[float, float]] = []
    with ExitStack() as stack:
        # One process for all matches of a pair: starting one takes longer than a match.
        players: list[_Player | str] = []
        for place, entry in enumerate(pair.entries):
            try:
                players.append(_seated(entry, game, stack))
            except HandInFault as fault:
                out = _Out(place, 0, str(fault))
                return _PairResult(scores, _forfeit(pair, game.seeds[0], out))
        for seed in game.seeds:
            # Nothing in a match waits, so a Ctrl-C from Python would end the pair only after all.
            await asyncio.sleep(0)
            # Of the first seed alone: with all of twenty a page would have twenty times as many.
            is_recorded = seed == game.seeds[0]
            try:
                score = await _match(
                    game,
                    seed,
                    players,
                    (0, 1),
                    pair.tape if is_recorded else None,
                )
                if game.both_ways:
                    swapped = await _match(
                        game,
                        seed,
                        players,
                        (1, 0),
                        None,
                    )
                    of_first = (score[0] + swapped[0]) / 2
                    of_second = (score[1] + swapped[1]) / 2
                    score = (of_first, of_second)
            except _Out as out:
                return _PairResult(scores, _forfeit(pair, seed, out))
            scores.append(score)
    return _PairResult(scores, None)


def _forfeit(
    pair: _Pair,
    seed: int,
    out: _Out,
) -> Forfeit:
    return Forfeit(
        player=pair.names[out.place],
        against=pair.names[1 - out.place],
        seed=seed,
        turn=out.turn,
        fault=str(out),
    )


def _seated(
    entry: _Entry,
    game: _Game,
    stack: ExitStack,
) -> _Player | str:
    """Return what a run takes for a player: a word, or a hand-in in a process of its own."""
    if entry.file is None:
        return entry.name
    matches = len(game.seeds)
    if game.both_ways:
        matches *= 2
    # An empty folder, and not that of the hand-ins: a player reads nobody else's code.
    folder = stack.enter_context(temporary_folder())
    process = LimitedProcess(
        folder,
        game.limits,
        file=str(entry.file.absolute()),  # resolve() fails for a link to itself
        tasks=matches,
    )
    return _Player(stack.enter_context(process))


async def _match(
    game: _Game,
    seed: int,
    players: Sequence[_Player | str],
    seating: tuple[int, int],
    tape: Path | None,
) -> tuple[float, float]:
    """Play one match; returns the points a round of both players, in their own order.

    Args:
        game: what is played.
        seed: of the match.
        players: the two.
        seating: who of them has the first seat and who the second.
        tape: where it is recorded.

    Raises:
        _Out: one of them made a mistake.
    """
    place_of = dict(
        zip(
            game.seats,
            seating,
            strict=True,
        )
    )
    run: Any = game.world(
        players={seat: players[place] for seat, place in place_of.items()},
        seed=seed,
        turns=game.rounds,
        tape=tape,
        # Not "raise": which of the two made the mistake is then to be read from the turn.
        on_error="fallback",
        **game.parameters,
    )
    parameters = {name: getattr(run.config, name) for name in _parameters_of(game.world)}
    for place, player in enumerate(players):
        if isinstance(player, _Player):
            try:
                # Its place, so that a file that plays itself does not draw the same twice.
                player.begin(2 * seed + place, parameters)
            except HandInFault as fault:
                raise _Out(place, 0, str(fault)) from fault
    # Turn by turn, and not by run(): the first mistake ends the match.
    while run.turn_number < game.rounds and not run.done(run.state):
        turn = await run.step()
        for answer in turn.answers:
            if answer.status == "fallback":
                place = place_of[answer.player]
                raise _Out(
                    place,
                    turn.number,
                    _fault_of(players[place], answer.reasoning),
                )
    # A round, since a world may end its matches before the last one.
    points: dict[int, float] = {}
    for seat, place in place_of.items():
        points[place] = run.payoff(seat) / run.turn_number
    # Its tape is one of hundreds that would stay open.
    run.close()
    return points[0], points[1]


def _fault_of(player: _Player | str, why: str) -> str:
    """Return what a player did wrong.

    Args:
        player: who.
        why: the run's reason for a stand-in.
    """
    reason = why.removeprefix("stands in: ")
    if not isinstance(player, _Player):
        return reason
    return player.fault or f"it answered {brief(player.answered, 80)}: {reason}"


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Leave it to the table to say who made mistakes."""
    logger = logging.getLogger("llmsim_lab.run")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


# --- the tournament -------------------------------------------------------------------------------


def tournament(
    players: str | Path | Mapping[str, str | Path],
    world: type[Run],
    *,
    rounds: int = 50,
    seeds: int = 20,
    also: Sequence[str] = (),
    self_play: bool = False,
    folder: str | Path | None = None,
    limits: ProcessLimits | None = None,
    executor: Executor | None = None,
    report: Callable[[str], object] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Standings:
    """Let functions of several files play each other, all pairs, and return the table.

    A file has a function ``play(question)``, or one function of any name. Each match runs the file
    anew, in a process with limits; what it prints is not kept. First each plays chance. A hand-in
    that raises, answers what is not allowed, ends its process or goes beyond a limit is out, with
    its error, and its matches do not count for anybody.

    Args:
        players: a folder with a file each, or files by name. What else is in the folder is left
            out, and reported.
        world: asks two players, and has ``payoff(self, player)``.
        rounds: turns of a match.
        seeds: how often all pairs play.
        also: who plays besides: ``random``, ``rule``, or both.
        self_play: whether each also plays itself, as in Axelrod's tournaments.
        folder: where results and the tapes of the first seed are kept; with the same again only
            pairs are played that are not there, or of which a file changed.
        limits: of a hand-in in a match.
        executor: plays pairs in other processes, such as a ``ProcessPoolExecutor``.
        report: is told how far it is.
        parameters: of the world, by their names, which may be ``rounds`` or ``seeds`` too.

    Raises:
        ConfigError: there are no two players, the world is not one for two, or the folder has
            something else in the place of results.
    """
    say = report or (lambda _: None)
    also = items_of("also", also, str, "names: ['random', 'rule']")
    if parameters is not None:
        instance_of("parameters", parameters, Mapping, "values by name: {'both_defect': 2}")
    source = None if isinstance(players, Mapping) else as_path("players", players)
    if folder is not None:
        folder = as_path("folder", folder)
        _results(folder, source).check(*_KEPT)
    entries = _entries(players, also, say)
    for name, value in (("rounds", rounds), ("seeds", seeds)):
        whole_number(name, value, least=1, most=_MOST)
    parameters = dict(parameters or {})
    known_names(f"parameter of {world.__name__} called", list(parameters), _parameters_of(world))
    seats, both_ways = _seats_of(world, parameters)
    # What is kept of an older tournament counts only for the very same world.
    trial_run = world(players="random", **parameters)
    game = _Game(
        world=world,
        seats=seats,
        both_ways=both_ways,
        rounds=rounds,
        seeds=tuple(range(seeds)),
        limits=limits or ProcessLimits(),
        parameters=parameters,
        code=json.dumps(trial_run.code_digests),
    )
    chance = _Entry("random", None)
    # Hand-ins that fail at once would cost their time in every match.
    trial = replace(game, seeds=game.seeds[:1])
    hand_ins = [entry for entry in entries if entry.file is not None]
    tried = [_Pair(game=trial, entries=(entry, chance)) for entry in hand_ins]
    # All of them, before the pairs are known: who is out has none.
    trials = list(_played(tried, executor))
    forfeits = [result.forfeit for result in trials if result.forfeit is not None]
    out = {forfeit.player for forfeit in forfeits}
    left = [entry for entry in entries if entry.name not in out]
    if folder is not None:
        _results(folder, source).note(*_KEPT)
    pairs = _pairs(
        game,
        left,
        self_play=self_play,
        folder=folder,
    )
    kept = _Kept(folder)
    to_play = [pair for pair in pairs if kept.scores_of(pair) is None]
    for pair in to_play:
        if pair.tape is not None:
            _remove_unfinished(pair.tape)
    players_left = counted(len(left), "player")
    say(f"{players_left}, {len(out)} out; {counted(len(to_play), 'pair')} to play")
    # In the order of the pairs, and kept one by one: what was played before Ctrl-C stays.
    results = _played(to_play, executor)
    for pair, result in zip(to_play, results, strict=True):
        if result.forfeit is None:
            kept.add(pair, result.scores)
        else:
            forfeits.append(result.forfeit)
    # One that meets three others may fail three times; the first time is enough.
    first_forfeits: dict[str, Forfeit] = {}
    for forfeit in forfeits:
        first_forfeits.setdefault(forfeit.player, forfeit)
    # Also those who failed later: nobody may gain points from a mistake of somebody else.
    out = set(first_forfeits)
    rows: list[dict[str, Any]] = []
    for pair in pairs:
        if out.isdisjoint(pair.names):
            rows += _rows(pair, kept.scores_of(pair) or [])
    return Standings(
        game=game,
        self_play=self_play,
        rows=rows,
        forfeits=tuple(first_forfeits.values()),
        pairs=tuple(pair for pair in pairs if out.isdisjoint(pair.names)),
        source=source,
    )


def _remove_unfinished(tape: Path) -> None:
    """Remove the tape of a match that was not finished."""
    try:
        tape.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot replace {tape}: {error.strerror or error}; move it away"
        ) from error


def _results(folder: Path, source: Path | None) -> Results:
    return Results(
        folder=folder,
        kind="tournament",
        source=source,
    )


def _parameters_of(world: type[Run]) -> list[str]:
    """Return what a world has besides what each run has; a match gets its seed from here."""
    every_field = world.config_type.model_fields.keys()
    return sorted(every_field - Run.config_type.model_fields.keys())


def _files_of(players: Mapping[str, str | Path]) -> dict[str, Path]:
    """Return files that a teacher named; a hand-in's own faults are found when it plays."""
    files = {name: as_path(f"players[{name!r}]", file) for name, file in players.items()}
    for name, file in files.items():
        if not file.is_file():
            raise ConfigError(f"there is no file {file} of player {name!r}")
        # Each player has a page and a folder of its name.
        if Path(name).name != name or name == ".." or "\0" in name or shown_name(name) != name:
            raise ConfigError(f"a player is called {name!r}, which no file can be; rename it")
    return files


def _files_in(
    folder: Path,
    say: Callable[[str], object],
) -> dict[str, Path]:
    """Return a folder's hand-ins by their names, and say what else is in it."""
    files: dict[str, Path] = {}
    left_out: list[str] = []
    for path in paths_in(folder):
        # Also a folder that is called so, or a link that leads nowhere: such a player is out.
        if path.suffix == ".py":
            files[shown_name(path.stem)] = path
        else:
            left_out.append(shown_name(path.name))
    if left_out:
        say(f"Left out of {folder}, since a hand-in is a file that ends in .py: {listed(left_out)}")
    return files


def _entries(
    players: str | Path | Mapping[str, str | Path],
    also: Sequence[str],
    say: Callable[[str], object],
) -> list[_Entry]:
    files = _files_of(players) if isinstance(players, Mapping) else _files_in(Path(players), say)
    for word in also:
        if word not in WORDS:
            raise ConfigError(f"also={word!r}{closest(word, WORDS)} must be one of {listed(WORDS)}")
        # Two of one name would share their scores.
        if word in files or list(also).count(word) > 1:
            raise ConfigError(
                f"there are two players called {word!r}: also={word!r} can be given once, and no "
                "file can have its name"
            )
    entries = [_Entry(name, file) for name, file in files.items()]
    entries += [_Entry(word, None) for word in also]
    if len(entries) < 2:
        raise ConfigError(
            f"{players} has {counted(len(files), 'player')}; it takes two to play, of whom one can "
            "be chance: --also random"
        )
    return entries


def _seats_of(
    world: type[Run],
    parameters: Mapping[str, Any],
) -> tuple[tuple[str, str], bool]:
    """Return the two seats of a world, as chance finds them; whether they are asked differently."""
    if not hasattr(world, "payoff"):
        raise ConfigError(
            f"{world.__name__} has no payoff; a tournament needs what a match was worth: def "
            "payoff(self, player) -> float"
        )
    # By playing it: a world says nowhere whom it asks.
    trial: Any = world(players={"*": "random"}, **parameters)
    trial.run(_TRIAL_TURNS, progress=False)
    kinds_by_player: dict[str, set[object]] = {}
    for turn in trial.turns:
        for answer in turn.answers:
            kind = (answer.component, *sorted(answer.fields))
            kinds_by_player.setdefault(answer.player, set()).add(kind)
    if len(kinds_by_player) != 2:
        raise ConfigError(
            f"{world.__name__} asks {listed(list(kinds_by_player)) or 'nobody'}; a round robin is "
            "of pairs, and takes a world that asks two players"
        )
    (first, of_first), (second, of_second) = kinds_by_player.items()
    return (first, second), of_first != of_second


def _pairs(
    game: _Game,
    entries: Sequence[_Entry],
    *,
    self_play: bool,
    folder: str | Path | None,
) -> list[_Pair]:
    met = list(combinations(entries, 2))
    if self_play:
        met += [(entry, entry) for entry in entries]
    pairs: list[_Pair] = []
    for first, second in met:
        tape = None
        if folder is not None:
            # Joined to one name, "Ann and Bob" who met Cy would be Ann who met "Bob and Cy".
            of_first = Path(folder) / "matches" / file_stem(first.name)
            make_folder(of_first)
            tape = of_first / f"{file_stem(second.name)}.tape"
        pairs.append(
            _Pair(
                game=game,
                entries=(first, second),
                tape=tape,
            )
        )
    return pairs


def _rows(
    pair: _Pair,
    scores: Sequence[Sequence[float]],
) -> Iterator[dict[str, Any]]:
    first, second = pair.names
    for seed, (of_first, of_second) in zip(pair.game.seeds, scores, strict=True):
        # One player, and so one score: its two seats are no two observations.
        if first == second:
            mean = (of_first + of_second) / 2
            yield {
                "player": first,
                "against": first,
                "seed": seed,
                "score": mean,
            }
            continue
        yield {
            "player": first,
            "against": second,
            "seed": seed,
            "score": of_first,
        }
        yield {
            "player": second,
            "against": first,
            "seed": seed,
            "score": of_second,
        }


def _played(
    pairs: Sequence[_Pair],
    executor: Executor | None,
) -> Iterator[_PairResult]:
    """Play pairs, here or by an executor; what came of them follows in their order."""
    if executor is not None:
        return executor.map(play_pair, pairs)
    # Lazily, as an executor does: each result can be kept before the next pair plays.
    return map(play_pair, pairs)


class _KeptRow(BaseModel):
    """A line of the file, which may be anybody's."""

    key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    scores: Annotated[list[tuple[float, float]], Field(min_length=1)]


class _Kept:
    """Scores of pairs by what decides them; in a file, if there is a folder."""

    def __init__(self, folder: str | Path | None) -> None:
        self._file = Path(folder) / "results.jsonl" if folder is not None else None
        self._scores: dict[str, list[tuple[float, float]]] = {}
        if self._file is None or not is_there(self._file):
            return
        try:
            lines = bounded_text(self._file, _MOST_BYTES).split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"cannot read {self._file}: {error}; give another folder, or move it away"
            ) from error
        # Half a line is the last one, where a process was killed.
        whole = lines[:-1]
        for line in whole:
            try:
                row = _KeptRow.model_validate_json(line)
            except ValidationError as error:
                raise ConfigError(
                    f"{self._file} has a line that no tournament wrote: {brief(line)}; give "
                    "another folder"
                ) from error
            self._scores[row.key] = row.scores
        if lines[-1]:
            write_file(self._file, "".join(f"{line}\n" for line in whole).encode())

    def scores_of(self, pair: _Pair) -> list[tuple[float, float]] | None:
        """Return scores by seed; None if they are not known."""
        scores = self._scores.get(_key(pair), [])
        return scores if len(scores) == len(pair.game.seeds) else None

    def add(
        self,
        pair: _Pair,
        scores: list[tuple[float, float]],
    ) -> None:
        """Keep the scores of a pair."""
        key = _key(pair)
        self._scores[key] = scores
        if self._file is not None:
            row = {
                "key": key,
                "players": pair.names,
                "scores": scores,
            }
            # A line at a time, so that a kill costs the last one at most.
            try:
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            except OSError as error:
                raise ConfigError(
                    f"cannot write to {self._file}: {error.strerror or error}; make room on the "
                    "disk, and the same call plays what is missing"
                ) from error


def _key(pair: _Pair) -> str:
    """Return the digest of all that decides a pair's scores."""
    game = pair.game
    decisive = [
        [(entry.name, entry.digest) for entry in pair.entries],
        game.world.kind,
        game.code,
        to_jsonable_python(game.parameters, fallback=str),
        game.rounds,
        game.seeds,
    ]
    text = json.dumps(decisive, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Standings:
    """What came of a tournament.

    Attributes:
        game: what was played.
        self_play: whether each also played itself.
        rows: a score for each player, opponent and seed, in points a round.
        forfeits: who is out, and why.
        pairs: who met.
        source: the folder of the hand-ins; None if they were given by name.
    """

    game: _Game
    self_play: bool
    rows: Sequence[Mapping[str, Any]]
    forfeits: Sequence[Forfeit]
    pairs: Sequence[_Pair]
    source: Path | None = None

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Each player's score by seed, in points a round: the mean over its opponents."""
        frame = self._matches()
        # The mean over opponents comes first: matches of one seed are not independent.
        by_seed = frame.groupby(["player", "seed"])["score"]
        return by_seed.mean().reset_index()

    def _matches(self) -> pd.DataFrame:
        return frame_of(list(self.rows), ["player", "against", "seed", "score"])

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each player, the best first, with its 95 % interval over seeds."""
        rows = []
        for player, of_player in self.scores.groupby("player"):
            values = of_player["score"].to_numpy(dtype=float)
            interval = _interval(values)
            row = {
                "player": player,
                "score": float(values.mean()),
                "seeds": len(values),
            }
            if interval is not None:
                row |= {"low": interval.low, "high": interval.high}
            rows.append(row)
        frame = frame_of(rows, ["player", "score", "low", "high", "seeds"])
        # Rounded: sums in another order differ in the last digit, and would be no ties.
        rounded = frame["score"].round(9)
        places = rounded.rank(method="min", ascending=False)
        frame.insert(0, "place", places.astype(int))
        return frame.sort_values(["place", "player"], ignore_index=True)

    def against(self) -> pd.DataFrame:
        """Return the mean score of each row's player against each column's."""
        frame = self._matches()
        order = list(self.to_frame()["player"])
        means = frame.pivot_table("score", "player", "against")
        return means.reindex(index=order, columns=order)

    def effects(self) -> Effects:
        """Return how far each player is from the first, over the seeds that all share."""
        from llmsim_lab.study.estimates import effects

        order = list(self.to_frame()["player"])
        by_player = self.scores.set_index("player").loc[order].reset_index()
        long = by_player.rename(
            columns={
                "player": "arm",
                "seed": "unit",
                "score": "value",
            }
        )
        # The columns that effects() knows of a study; a tournament has one of each.
        long = long.assign(
            run=long["unit"],
            wording=0,
            replicate=0,
            turn=0,
            outcome="score",
        )
        return effects(long, reference=order[0])

    def __str__(self) -> str:
        lines = [self.label]
        if self.rows:
            frame = self.to_frame()
            lines.append(frame.to_string(index=False, float_format="{:.3f}".format))
        lines += [f"out: {forfeit}" for forfeit in self.forfeits]
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def label(self) -> str:
        """What was played, and what a number means."""
        game = self.game
        # Of those who are out nothing is counted.
        names: set[str] = set()
        for pair in self.pairs:
            names.update(pair.names)
        players = counted(len(names), "player")
        ways = ", each match in both seats" if game.both_ways else ""
        return (
            f"{game.world.__name__}, round robin of {players}, {counted(game.rounds, 'round')}, "
            f"{counted(len(game.seeds), 'seed')}{ways}, "
            f"{'with' if self.self_play else 'without'} self-play. A score is points a round, the "
            "mean over opponents; low and high: 95 % for new seeds against these opponents, none "
            "where all seeds give the same"
        )

    def _repr_html_(self) -> str:
        return str(join(self._tables()))

    def _tables(self) -> Iterator[Markup]:
        yield styled(f"{self.label}.", tag="p")
        if self.rows:
            yield table_of(self.to_frame(), "Standings")
        if self.forfeits:
            rows = [
                (forfeit.player, forfeit.fault, forfeit.against, forfeit.seed, forfeit.turn)
                for forfeit in self.forfeits
            ]
            yield table(("out", "fault", "against", "seed", "turn"), rows)

    def page(self, folder: str | Path) -> Path:
        """Write the tables as ``index.html``, and in ``pages`` each player's matches of one seed.

        Returns:
            The path of ``index.html``.

        Raises:
            ConfigError: the folder has a file of such a name that is not of this tournament.
        """
        folder = as_path("folder", folder)
        results = _results(folder, self.source)
        results.note("index.html", "pages")
        make_folder(folder / "pages")
        parts = [
            styled("Tournament", tag="h1"),
            *self._tables(),
        ]
        if self.rows:
            against = self.against().reset_index()
            parts.append(table_of(against, "Mean score of the row's player against the column's"))
            parts.append(styled("Behind the first", tag="h2"))
            effects = str(self.effects())
            parts += [styled(line, tag="p") for line in effects.splitlines()]
            for player in self.to_frame()["player"]:
                self._page_of(player, folder / "pages" / f"{file_stem(player)}.html")
                parts.append(link_to(player))
        view = join(parts, between="\n")
        return write_page(
            folder / "index.html",
            None,
            title="Tournament",
            print_view=view,
        )

    def _page_of(self, player: str, path: Path) -> None:
        """Write a player's results, and the window with its matches of the first seed."""
        tapes: dict[str, Path] = {}
        for pair in self.pairs:
            if player not in pair.names or pair.tape is None:
                continue
            if pair.tape.exists():
                tapes[" and ".join(pair.names)] = pair.tape
        frame = self._matches()
        of_player = frame[frame["player"] == player]
        scores = of_player.groupby("against", sort=False)["score"]
        rows = scores.agg(["mean", "min", "max"]).reset_index()
        head = styled(player, tag="h1")
        view = join([head, table_of(rows, "Points a round, over seeds")])
        write_page(
            path,
            reading_of(player, tapes),
            title=player,
            print_view=view,
        )


def _interval(values: Numbers) -> Interval | None:
    """Return Student's interval of a mean over seeds; None where all give the same."""
    # Here, since the command line starts where numpy is not installed yet.
    from llmsim_lab.study.estimates.student import Stratum, has_no_spread, spread_of, student

    strata = [Stratum(1.0, values)]
    spread = spread_of([strata])
    if len(values) < 2 or has_no_spread(spread, strata):
        return None
    estimate = student(float(values.mean()), [spread])
    return estimate.interval(_LEVEL)
