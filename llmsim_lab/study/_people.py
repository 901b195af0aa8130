"""``compare_with_people``: what players did beside what people did in published studies.

A world says with ``people()`` which figures its columns stand beside. Here runs are sorted by world
and arm, the altered twin of a world apart, and each column is compared. Of an exact law each column
has its distribution instead of a sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

import numpy as np

from llmsim_lab._util.checks import real_number
from llmsim_lab._util.files import as_path
from llmsim_lab._util.html import join, scrolling, styled
from llmsim_lab._util.html import table as html_table
from llmsim_lab._util.text import brief, counted, wrapped
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Tape
from llmsim_lab.people import Population, PublishedFigure
from llmsim_lab.people.figures import (
    MARGIN,
    TWIN,
    PeopleMeasure,
    check_margin,
    is_changed,
    measured_people,
)
from llmsim_lab.run import Run, Turn, load
from llmsim_lab.study._exact import Exact, Law
from llmsim_lab.study._study import Study
from llmsim_lab.study.estimates.numeric import Numbers
from llmsim_lab.study.estimates.people import (
    SPREAD_MARGIN,
    Closeness,
    Margins,
    PeopleParts,
    Verdict,
    Weighted,
    compare_law,
    compare_numbers,
    family_verdicts,
)
from llmsim_lab.study.people import answers_of_people
from llmsim_lab.types import HUMAN

if TYPE_CHECKING:
    import pandas as pd

_UNRECORDED_MODEL = "rules"
# Not "model": a class or a rule may have played in its place.
PLAYERS = "players"
CLASS = "class"
_OTHER_COLUMNS = ("difference", "spread", "distance")


class ArmKey(NamedTuple):
    """What runs have in common that are compared as one.

    Attributes:
        world: the name of the class.
        arm: of a study, its levels but for the twin; else who answers.
        twin: whether it is the altered twin.
    """

    world: str
    arm: str
    twin: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """One measure of one arm beside what people did.

    Attributes:
        world: the name of its class.
        arm: of a study, its levels; else who answers.
        twin: whether it is the altered twin.
        measure: a column of ``decisions()``, with ``@turn`` where it is of one turn.
        people: what people did.
        groups: how many runs; 0 where the probabilities are exact.
        decisions: how many decisions in them; likewise.
        mean: of the decisions, each run counting once.
        sd: of the decisions.
        answers: the effective number of different answers: if all were equally frequent, so many
            would come as often together (inverse Simpson).
        parts: difference, spread, distance and halves, with intervals.
        margins: what counts as near.
        mass: of exact probabilities, the least share of the model's answers that are options at
            all; None of samples.
        decided_by: what its decisions are called, ``players``, or ``class`` where people were
            asked for all of them.
    """

    world: str
    arm: str
    twin: bool
    measure: str
    people: PublishedFigure
    groups: int
    decisions: int
    mean: float
    sd: float
    answers: float
    parts: PeopleParts
    margins: Margins
    mass: float | None = None
    decided_by: str = PLAYERS

    @property
    def is_exact(self) -> bool:
        """Whether the model's probabilities are known, so that nothing of it was sampled."""
        return self.mass is not None

    @property
    def verdict(self) -> Verdict:
        """``like people``, ``unlike people``, ``undecided``, or ``not judged``."""
        return self.parts.verdict

    def __str__(self) -> str:
        name = f"{self.world}, altered twin" if self.twin else self.world
        line = f"{name} · {self.arm} · {self.measure}: {self.verdict}; {self.in_words()}"
        return "\n  note: ".join([line, *self.parts.notes])

    def in_words(self) -> str:
        """Return its figures in words; of what is not judged the means alone."""
        words = [
            f"{self.decided_by} {self.mean:.3f}, people {self.people.mean:.3f}",
            f"difference {_worded(self.parts.difference, '+.3f')}",
        ]
        if self.verdict != "not judged":
            if self.parts.spread.value is not None:
                words.append(f"ratio of spreads {_worded(self.parts.spread, '.2f')}")
            if self.parts.distance.value is not None:
                words.append(f"distance {self.parts.distance.value:.3f}{self._ceiling()}")
        if self.mass is None:
            words.append(f"{self.answers:.1f} different answers of {self.decisions}")
        else:
            words.append(f"answers as varied as {self.answers:.1f} equally likely ones")
        return f"{'; '.join(words)} ({self.basis()})"

    def basis(self) -> str:
        """Return in words how much its figures rest on."""
        basis = counted(self.groups, "group")
        if self.mass is not None:
            basis = f"exact, mass {self.mass:.2f}"
        return f"{basis}, {counted(self.people.n, 'person')}"

    def _ceiling(self) -> str:
        if self.parts.halves is None:
            return ""
        return f" (halves of the people: {self.parts.halves.median:.3f})"


def _worded(closeness: Closeness, form: str) -> str:
    if closeness.value is None:
        return ""
    value = format(closeness.value, form)
    if closeness.interval is None:
        return value
    low, high = closeness.interval
    return f"{value} ({low:{form}} to {high:{form}})"


class Pair(NamedTuple):
    """An original and its altered twin, if it has one."""

    original: Likeness
    twin: Likeness | None

    @property
    def is_judged(self) -> bool:
        """Whether one of the two has a verdict."""
        verdicts = [self.original.verdict]
        if self.twin is not None:
            verdicts.append(self.twin.verdict)
        return verdicts.count("not judged") < len(verdicts)


class PeopleComparison(list[Likeness]):
    """Likenesses in the order of worlds, arms and measures; the twins after their originals.

    ``label`` says how many runs count nowhere: as they failed, were not played, or were played
    with parameters that people did not play with.
    """

    label: str = ""

    def recital(self, likeness: Likeness) -> str:
        """Return what a measure and its altered twin say together; empty without a twin.

        ``recites``: like people in the original, and shown to be unlike them in the twin, which has
        the same structure and is in no paper. People were not asked the twin: that they would
        answer as in the original is an assumption.
        """
        twin = self.twin_of(likeness)
        if twin is None:
            return ""
        match likeness.verdict, twin.verdict:
            case "like people", "unlike people":
                return "recites"
            case "like people", "like people":
                return "like people in both"
            case "unlike people", "unlike people":
                return "unlike people in both"
            case "not judged", _:
                return "not judged"
            # Like people in the twin alone is nothing that reciting would explain.
            case _:
                return "undecided"

    def twin_of(self, likeness: Likeness) -> Likeness | None:
        """Return the same measure of the altered twin; None without one, and of a twin itself."""
        if likeness.twin:
            return None
        twins = [other for other in self if other.twin and _is_of_same(other, likeness)]
        return twins[-1] if twins else None

    def _has_original(self, twin: Likeness) -> bool:
        return any(not other.twin and _is_of_same(other, twin) for other in self)

    def adjusted(self) -> PeopleComparison:
        """Return the same with verdicts that count how many measures are judged together.

        By Holm's method: of all of them, one or more are called like people wrongly in at most one
        comparison of twenty, and one or more unlike. By itself each verdict may be wrong as often.
        """
        # Twins count too: "recites" rests on both verdicts.
        verdicts = family_verdicts([likeness.parts for likeness in self])
        together = PeopleComparison()
        for likeness, verdict in zip(self, verdicts, strict=True):
            parts = replace(likeness.parts, verdict=verdict)
            together.append(replace(likeness, parts=parts))
        judged = len(verdicts) - verdicts.count("not judged")
        family = f"verdicts adjusted for {counted(judged, 'measure')} (Holm)"
        together.label = "; ".join(filter(None, [self.label, family]))
        return together

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each measure of each arm."""
        import pandas as pd

        rows = []
        for likeness in self:
            difference = likeness.parts.difference
            spread = likeness.parts.spread
            halves = likeness.parts.halves
            rows.append(
                {
                    "world": likeness.world,
                    "arm": likeness.arm,
                    "twin": likeness.twin,
                    "measure": likeness.measure,
                    "groups": likeness.groups,
                    "decisions": likeness.decisions,
                    "mass": likeness.mass,
                    "model": likeness.mean,
                    "people": likeness.people.mean,
                    "n_people": likeness.people.n,
                    "difference": difference.value,
                    "low": difference.interval.low if difference.interval else None,
                    "high": difference.interval.high if difference.interval else None,
                    "spread_ratio": spread.value,
                    "distance": likeness.parts.distance.value,
                    "distance_of_halves": halves.median if halves else None,
                    "answers": likeness.answers,
                    "verdict": likeness.verdict,
                    "recital": self.recital(likeness),
                    "source": likeness.people.source,
                    "place": likeness.people.place,
                    "note": "; ".join(likeness.parts.notes),
                }
            )
        return pd.DataFrame(rows)

    def _margins_in_words(self) -> list[str]:
        # In the order of the measures, each once: most often there is one.
        margins = dict.fromkeys(f"{likeness.margins.mean:g}" for likeness in self)
        return [f"near: a difference and a distance inside {margin}" for margin in margins]

    def pairs(self) -> dict[str, list[Pair]]:
        """Return each original with its twin, or a twin that has none alone, by world and arm."""
        paired: dict[str, list[Pair]] = {}
        for likeness in self:
            twin = self.twin_of(likeness)
            # It stands beside its original.
            if likeness.twin and self._has_original(likeness):
                continue
            of_arm = paired.setdefault(f"{likeness.world} · {likeness.arm}", [])
            of_arm.append(Pair(likeness, twin))
        return paired

    def __str__(self) -> str:
        lines = [self.label] if self.label else []
        notes = _Notes()
        for arm, of_arm in self.pairs().items():
            lines += ["", arm]
            judged = [pair for pair in of_arm if pair.is_judged]
            for likeness, twin in judged:
                name = f"{likeness.measure} of the twin" if likeness.twin else likeness.measure
                lines.append(
                    f"  {name}: {likeness.verdict}; {likeness.in_words()}{notes.of(likeness)}"
                )
                if twin is not None:
                    lines.append(f"    its twin: {twin.verdict}; {twin.in_words()}{notes.of(twin)}")
                    if likeness.verdict != "not judged":
                        lines.append(f"    original and altered twin: {self.recital(likeness)}")
            unjudged = [pair for pair in of_arm if not pair.is_judged]
            if unjudged:
                lines += _unjudged_lines(unjudged, notes)
        lines += ["", *self._margins_in_words(), *notes.legend()]
        return "\n".join(map(wrapped, lines)).strip("\n") or "nothing to compare"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        # What is read first stands first: a telephone shows the first columns.
        notes = _Notes()
        parts = [styled(f"compared with people; {self.label}".rstrip("; "), tag="p")]
        for arm, of_arm in self.pairs().items():
            rows = []
            for likeness, twin in of_arm:
                name = f"{likeness.measure} of the twin" if likeness.twin else likeness.measure
                rows.append(_cells(f"{name}{notes.of(likeness)}", likeness, likeness.verdict))
                if twin is not None:
                    verdict: str = twin.verdict
                    if likeness.verdict != "not judged":
                        verdict = f"{verdict}; both: {self.recital(likeness)}"
                    rows.append(_cells(f"its twin{notes.of(twin)}", twin, verdict))
            # Above what scrolls, whose end a telephone does not show.
            parts.append(styled(styled(arm, tag="strong"), tag="p"))
            decided_by = of_arm[0].original.decided_by
            header = ("measure", "verdict", decided_by, "people", *_OTHER_COLUMNS)
            parts.append(scrolling(html_table(header, rows), arm))
        below = [*self._margins_in_words(), *notes.legend()]
        parts += [styled(line, tag="p") for line in below]
        return str(join(parts, between="\n"))


def _is_of_same(one: Likeness, other: Likeness) -> bool:
    # A twin has its original's arm: who answers, and which people it is set beside.
    measured = (one.world, one.arm, one.measure)
    return measured == (other.world, other.arm, other.measure)


class _Notes:
    """Numbers notes, each of which stands once below, however many measures it is of."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, likeness: Likeness) -> str:
        """Return the numbers of a measure's notes, as they stand behind it."""
        # In the order in which a reader meets them.
        marks = []
        for note in likeness.parts.notes:
            number = self._numbers.setdefault(note, len(self._numbers) + 1)
            marks.append(f"[{number}]")
        return f" {' '.join(marks)}" if marks else ""

    def legend(self) -> list[str]:
        """Return a line for each note."""
        return [f"[{number}] {note}" for note, number in self._numbers.items()]


def _unjudged_lines(
    pairs: Sequence[Pair],
    notes: _Notes,
) -> list[str]:
    """Return a table of what is not judged: ten rounds in sentences would not fit a wall."""
    rows: list[tuple[str, Likeness]] = []
    for original, twin in pairs:
        name = f"{original.measure} of the twin" if original.twin else original.measure
        rows.append((name, original))
        if twin is not None:
            rows.append(("  its twin", twin))
    bases = {likeness.basis() for _, likeness in rows}
    # Said once above, where it is the same for all.
    heading = "not judged"
    if len(bases) == 1:
        heading = f"not judged ({min(bases)})"
    width = max(len(name) for name, _ in rows)
    decided_by = pairs[0].original.decided_by
    lines = [
        f"  {heading}",
        f"    {'':{width}}  {decided_by:>7}  people  difference  different answers",
    ]
    for name, likeness in rows:
        answers = f"{likeness.answers:.1f}"
        if likeness.mass is None:
            answers = f"{answers} of {likeness.decisions}"
        if len(bases) > 1:
            answers = f"{answers} ({likeness.basis()})"
        lines.append(
            f"    {name:{width}}  {likeness.mean:7.3f}  {likeness.people.mean:6.3f}  "
            f"{_worded(likeness.parts.difference, '+.3f'):>10}  {answers}{notes.of(likeness)}"
        )
    return lines


def _cells(
    name: str,
    likeness: Likeness,
    verdict: str,
) -> tuple[str, ...]:
    parts = likeness.parts
    return (
        name,
        verdict,
        f"{likeness.mean:.3f}",
        f"{likeness.people.mean:.3f}",
        _worded(parts.difference, "+.3f"),
        _worded(parts.spread, ".2f"),
        _worded(parts.distance, ".3f"),
    )


@dataclass(slots=True)
class _Arm:
    """The decisions of one arm, a list of runs for each measure."""

    figures: dict[str, PublishedFigure] = field(default_factory=dict)
    groups: dict[str, list[Numbers]] = field(default_factory=dict)
    is_of_people: bool = True


Played = Study | Run | Exact | Sequence[Run | Exact] | Tape | str | Path
"""What can be compared with people."""


def compare_with_people(
    played: Played,
    *,
    margin: float = MARGIN,
    spread_margin: float = SPREAD_MARGIN,
    level: float = 0.95,
) -> PeopleComparison:
    """Return how decisions compare with those of people in published studies.

    The world says which with ``people()``. The unit is a run, a group of players; below five there
    is no interval. ``like people`` is said only where the difference of means is shown to be inside
    the margin, and where people's values are known the ratio of spreads and the distance of
    distributions are too: a difference that is not significant shows nothing.

    Args:
        played: a study, whose arms are compared one by one; runs; a tape with runs; or exact laws
            of runs, ``exact(run, turns=1)``, in which nothing of the model is sampled: the interval
            is of the people alone, and no number of groups is needed.
        margin: the difference of means, and the distance of distributions, that counts as near, in
            the measure's unit: worlds here have shares of what was at stake, 0.15 for 15 %.
        spread_margin: the ratio of standard deviations that counts as near; likewise its inverse.
        level: of the intervals.

    Raises:
        ConfigError: no run has figures of people, a measure names no column of numbers, or an
            argument is of the wrong kind.
        TapeError: there is no such tape.
    """
    margins = _margins(margin, spread_margin, level)
    # Runs are read one after another and let go: of a tape of thousands the values alone are kept.
    compared = PeopleComparison()
    arms: dict[ArmKey, _Arm] = {}
    worlds: set[str] = set()
    remarks = _Remarks()
    with _runs_of(played) as runs:
        for key, run in runs:
            worlds.add(key.world)
            if not remarks.admit(key, run):
                continue
            measures = _people_of(run.run_of if isinstance(run, Exact) else run)
            check_margin(
                margin,
                of_shares=any(measured.figure.is_of_shares for measured in measures),
            )
            if isinstance(run, Exact):
                compared += _likenesses_of_law(key, run, margins)
                continue
            arm = arms.setdefault(key, _Arm())
            arm.is_of_people &= _is_of_people(run)
            for measured in measures:
                values = _values_of(run, measured)
                # A run that is too short for a measure of a late turn says nothing of it.
                if len(values):
                    arm.figures[measured.measure] = measured.figure
                    arm.groups.setdefault(measured.measure, []).append(values)
    labels = remarks.in_words()
    # Said, since runs that fail may be those that would have been unlike people.
    if isinstance(played, Study):
        missing = sum(entry.status != "done" for entry in played.progress())
        if missing:
            labels.insert(
                0, f"{missing} of {len(played.progress())} runs failed or were not played"
            )
    compared.label = "; ".join(labels)
    for key in sorted(arms):
        arm = arms[key]
        for measure, groups in arm.groups.items():
            compared.append(
                _likeness(
                    key,
                    measure,
                    arm.figures[measure],
                    groups,
                    margins,
                    decided_by=CLASS if arm.is_of_people else PLAYERS,
                )
            )
    if not compared:
        raise _nothing_to_compare(played, worlds, compared.label)
    return compared


def _nothing_to_compare(
    played: Played,
    worlds: set[str],
    label: str,
) -> ConfigError:
    """Return the error of a comparison without any measure.

    Args:
        played: what was to be compared.
        worlds: the names of the classes that were played.
        label: why runs were left out; empty where none was.
    """
    if not worlds:
        return ConfigError(
            f"nothing to compare with people: {brief(played)} has no run that was "
            f"played{_first_failure(played)}"
        )
    if label:
        return ConfigError(f"nothing to compare with people: {label}")
    return ConfigError(
        f"nothing to compare with people: {', '.join(sorted(worlds))} has no "
        "figures of them, or no turn was played. A world names them in people(self): "
        "{'share': published('forsythe_1994', ...)}"
    )


class _Remarks:
    """What is said of runs that people did not play so, counted as they are read."""

    def __init__(self) -> None:
        self._played_otherwise: Counter[tuple[str, str]] = Counter()
        # Weak, since runs are let go, and a later one may have the same id.
        self._seen: WeakSet[Run | Exact] = WeakSet()
        self._seen_on_tapes: set[tuple[Path, int]] = set()
        self._begun: dict[tuple[ArmKey, object], Turn] = {}
        """First turns by arm and identity; kept, so that no later one gets the same id."""
        self._first_runs: dict[tuple[Path, int], int] = {}
        self._repeated = 0
        self._forked = 0
        self._without_people = 0
        self._of_people = 0
        self._filled = 0
        self._changed = 0

    def admit(self, key: ArmKey, played: Run | Exact) -> bool:
        """Count a run, and return False if it has nothing that can stand beside people."""
        # The unit is a run: the same one again is no evidence more.
        if self._is_repeated(played):
            self._repeated += 1
            return False
        # Nor is a fork: its first turns are another's, and what follows depends on them.
        if isinstance(played, Run) and self._is_begun(key, played):
            self._forked += 1
            return False
        if isinstance(played, Exact):
            run = played.run_of
            differences = run.played_otherwise(turns=played.turns)
        else:
            run = played
            differences = run.played_otherwise()
        if differences:
            self._played_otherwise[type(run).__name__, "; ".join(differences)] += 1
            return False
        # As in a study's effects: what chance did in a group that nobody played is not the class's.
        answers = answers_of_people(run)
        filled = sum(answer.status == "fallback" for answer in answers)
        if answers and filled == len(answers):
            self._without_people += 1
            return False
        self._of_people += len(answers)
        self._filled += filled
        if is_changed(run):
            self._changed += 1
        return True

    def _is_repeated(self, played: Run | Exact) -> bool:
        if isinstance(played, Run) and played.tape is not None and played.run_id is not None:
            place = (Path(played.tape.path).resolve(), played.run_id)
            is_repeated = place in self._seen_on_tapes
            self._seen_on_tapes.add(place)
            return is_repeated
        is_repeated = played in self._seen
        self._seen.add(played)
        return is_repeated

    def _is_begun(self, key: ArmKey, run: Run) -> bool:
        """Return whether a run's first turn is that of another run of its arm, as a fork's is."""
        if len(run.turns) < 2:
            return False
        first_turn = run.turns[1]
        beginning: object = id(first_turn)
        if run.tape is not None and run.run_id is not None:
            beginning = self._first_run(run.tape, run.run_id)
        is_begun = (key, beginning) in self._begun
        self._begun[key, beginning] = first_turn
        return is_begun

    def _first_run(self, tape: Tape, number: int) -> tuple[Path, int]:
        """Return which run of a tape played the first turn of one of its runs."""
        path = Path(tape.path).resolve()
        first = number
        # A run is looked up once, since forks of forks may be many.
        while (path, first) not in self._first_runs:
            info = tape.run(first)
            # A fork at turn 0 plays its first turn itself.
            if info.parent is None or not info.fork_turn:
                self._first_runs[path, first] = first
            else:
                first = info.parent
        first = self._first_runs[path, first]
        self._first_runs[path, number] = first
        return path, first

    def in_words(self) -> list[str]:
        """Return a line for each kind of remark."""
        lines = []
        if self._repeated:
            lines.append(
                f"{counted(self._repeated, 'run')} left out: the same as another in the list"
            )
        if self._forked:
            lines.append(
                f"{counted(self._forked, 'run')} left out: forks, whose first turns are those of "
                "another in the list"
            )
        for (world, differences), runs in self._played_otherwise.items():
            lines.append(f"{counted(runs, 'run')} of {world} left out: {differences}")
        if self._without_people:
            lines.append(f"{counted(self._without_people, 'group')} without people left out")
        if self._filled:
            lines.append(f"{self._filled} of {self._of_people} decisions of people were filled in")
        if self._changed:
            lines.append(
                f"{counted(self._changed, 'run')} with edited prompts or interventions, beside "
                "people of the design without them"
            )
        return lines


def _first_failure(played: Played) -> str:
    if isinstance(played, Study):
        for entry in played.progress():
            if entry.error:
                return f"; the first failed: {entry.error}"
    return ""


def _margins(
    margin: float,
    spread_margin: float,
    level: float,
) -> Margins:
    """Return what counts as near.

    Raises:
        ConfigError: a number is of the wrong kind, or leaves nothing or everything near.
    """
    check_margin(margin)
    if real_number("spread_margin", spread_margin) <= 1:
        raise ConfigError(f"spread_margin={spread_margin} must be above 1, such as {SPREAD_MARGIN}")
    if not 0 < real_number("level", level) < 1:
        raise ConfigError(f"level={level} must be above 0 and below 1, such as 0.95")
    return Margins(
        mean=margin,
        spread=spread_margin,
        level=level,
    )


def _likeness(
    key: ArmKey,
    measure: str,
    figure: PublishedFigure,
    groups: list[Numbers],
    margins: Margins,
    *,
    decided_by: str,
) -> Likeness:
    decisions = np.concatenate(groups)
    return Likeness(
        world=key.world,
        arm=key.arm,
        twin=key.twin,
        measure=measure,
        people=figure,
        groups=len(groups),
        decisions=len(decisions),
        # Each run counts once: it is the unit, however many players it has.
        mean=float(np.mean([group.mean() for group in groups])),
        sd=float(decisions.std(ddof=1)) if len(decisions) > 1 else 0.0,
        answers=effective_number(decisions),
        parts=compare_numbers(groups, figure, margins),
        margins=margins,
        decided_by=decided_by,
    )


def _likenesses_of_law(
    key: ArmKey,
    law: Exact,
    margins: Margins,
) -> list[Likeness]:
    """Return each measure of a law beside people."""
    likenesses = []
    for measured in _people_of(law.run_of):
        # A history of several decisions shares its probability among them.
        shares: dict[float, float] = {}
        law_of_measure = law.distribution(partial(_decided, measured=measured))
        for history, probability in law_of_measure.items():
            values: tuple[float, ...] = history  # type: ignore[assignment]  # as _decided has it
            for value in values:
                shares[value] = shares.get(value, 0.0) + probability / len(values)
        if not shares:  # in no history is there such a decision
            continue
        weights = np.array(list(shares.values()))
        # A law that was pruned lacks some of 1; where a measure is missing in some histories, as
        # what follows a refusal, the rest is what it is known of.
        model = Weighted(np.array(list(shares)), weights / weights.sum())
        likenesses.append(
            Likeness(
                world=key.world,
                arm=key.arm,
                twin=key.twin,
                measure=measured.measure,
                people=measured.figure,
                groups=0,
                decisions=0,
                mean=model.mean,
                sd=model.sd,
                answers=float(1 / (model.weights**2).sum()),  # as in effective_number
                parts=compare_law(model, measured.figure, margins),
                margins=margins,
                mass=law.mass,
            )
        )
    return likenesses


def _decided(run: Run, measured: PeopleMeasure) -> tuple[float, ...]:
    """Return a measure's values in one history."""
    return tuple(_values_of(run, measured).tolist())


def _people_of(run: Run) -> list[PeopleMeasure]:
    return measured_people(run.people(), type(run).__name__)


def effective_number(values: Iterable[object]) -> float:
    """Return the effective number of different values, the inverse of Simpson's index.

    It is the number of equally frequent values of which two random ones agree as often. Source:
    Hill (1973), "Diversity and evenness: a unifying notation and its consequences", Ecology 54.
    """
    # As texts, since answers may be of several types, which numpy cannot sort.
    _, counts = np.unique(
        [str(value) for value in values],
        return_counts=True,
    )
    shares = counts / counts.sum()
    return float(1 / (shares**2).sum())


@contextmanager
def _runs_of(
    played: Played,
) -> Iterator[Iterator[tuple[ArmKey, Run | Exact]]]:
    """Give runs and laws one after another, each with what it is compared as."""
    if isinstance(played, Study):
        yield _of_study(played)
    elif isinstance(played, Run | Exact):
        yield iter([(_key_of(played), played)])
    elif isinstance(played, Tape):
        yield _of_tape(played)
    elif isinstance(played, str | Path):
        # Open as long as its runs are read, which the caller does inside this context.
        with Tape(as_path("played", played), read_only=True) as tape:
            yield _of_tape(tape)
    # A class and a frame can be gone through as well, and give what is not a run.
    elif isinstance(played, Iterable) and not isinstance(played, type | bytes | Mapping):
        yield _of_several(played)
    else:
        raise _not_played(played)


def _of_several(several: Iterable[object]) -> Iterator[tuple[ArmKey, Run | Exact]]:
    for played in several:
        if not isinstance(played, Run | Exact):
            raise _not_played(played)
        yield _key_of(played), played


def _not_played(value: object) -> ConfigError:
    return ConfigError(
        f"{brief(value)} cannot be compared with people; compare_with_people takes a study, a run, "
        "the exact law of one, a list of runs and laws, or a tape or its path"
    )


def _of_study(study: Study) -> Iterator[tuple[ArmKey, Run]]:
    for entry in study.progress():
        if entry.status != "done":
            continue
        run = study.simulation(entry.arm, entry.unit)
        # Without the twin's level, so that a twin and its original have one arm.
        levels = []
        for name, label in study.arms[entry.arm].items():
            if name != TWIN:
                levels.append(f"{name}={label}")
        arm = " · ".join(levels)
        key = ArmKey(
            type(run).__name__,
            arm or _answerers(run),
            _is_twin(run),
        )
        yield key, run


def _of_tape(tape: Tape) -> Iterator[tuple[ArmKey, Run | Exact]]:
    for info in tape.runs():
        run: Run | Exact = load(tape, info.id)
        # A law's tape has its questions alone: the histories are worked out again.
        if isinstance(run, Law):
            run = Exact.of_recording(run)
        yield _key_of(run), run


def _key_of(played: Run | Exact) -> ArmKey:
    if isinstance(played, Exact):
        run = played.run_of
        answerer = _UNRECORDED_MODEL
        if run.llm_client is not None:
            answerer = run.llm_client.config.model
    else:
        run = played
        answerer = _answerers(run)
    # Each study once, with all conditions: an arm is a heading.
    conditions: dict[str, set[str]] = {}
    for measured in _people_of(run):
        conditions.setdefault(measured.figure.study, set()).add(measured.figure.condition)
    studies = [f"{study}: {', '.join(sorted(of_study))}" for study, of_study in conditions.items()]
    personas = []
    population = run.config.population
    # Nobody in particular is another player than a table's people, whom a model is told to be.
    if isinstance(population, Population):
        personas.append(f"a population of {len(population.rows)}")
    arm = "; ".join([answerer, *personas, *sorted(studies)])
    return ArmKey(type(run).__name__, arm, _is_twin(run))


def _is_twin(run: Run) -> bool:
    # A world of one's own need not have a twin.
    return bool(getattr(run.config, TWIN, False))


def _is_of_people(run: Run) -> bool:
    answers = sum(len(turn.answers) for turn in run.turns)
    return answers == len(answers_of_people(run)) > 0


def _answerers(run: Run) -> str:
    """Return who answers in a run: models by name, rules and functions, chance."""
    words = run.config.players
    # In the order in which they were asked, each once.
    answerers: dict[str, None] = {}
    for turn in run.turns:
        for answer in turn.answers:
            if answer.calls:
                for call in answer.calls:
                    model = call.request.model
                    answerers[CLASS if model == HUMAN else model] = None
            elif words.get(answer.player, words.get("*")) == "random":
                answerers["chance"] = None
            else:
                answerers[_UNRECORDED_MODEL] = None
    return ", ".join(answerers) or _UNRECORDED_MODEL


def _values_of(run: Run, measured: PeopleMeasure) -> Numbers:
    """Return the values of a measure in a run's decisions; none where no turn has it."""
    column = measured.column
    decisions = run.decisions()
    if decisions.empty:  # which has no columns to look for
        return np.array([])
    if measured.turn is not None:
        decisions = decisions[decisions["turn"] == measured.turn]
    world = type(run).__name__
    if column not in decisions:
        raise ConfigError(
            f"people() of {world} names {measured.measure!r}, and its decisions have no column "
            f"{column!r}; they have {', '.join(map(str, decisions.columns))}"
        )
    # A note stands on one row of its player's; others of the turn have none.
    values = decisions[column].dropna()
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise ConfigError(
            f"people() of {world} names {measured.measure!r}, and {column!r} of its decisions is "
            f"not a column of numbers: it has {brief(values.iloc[0])}"
        ) from None
