"""What is played in a room: one run, or the runs of a study, each by a group of people."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmsim_lab._util.checks import known_names
from llmsim_lab.errors import ConfigError
from llmsim_lab.room._journal import RoomJournal
from llmsim_lab.run import Run
from llmsim_lab.run.people import OTHERS, People
from llmsim_lab.run.playing import play_turns
from llmsim_lab.study import Study


@dataclass(frozen=True)
class GroupPlan:
    """A group that may play.

    Attributes:
        name: for the teacher.
        arm: the arm of a study; empty for a run alone.
        block: groups of one block differ in their arm only. People are dealt block by block, so
            that arms have about the same number of groups.
        seats: the names of the seats that people take.
    """

    name: str
    arm: str
    block: int
    seats: tuple[str, ...]


class RunSource:
    """One run, whose people are one group.

    Args:
        run: the run.
        seats: those that people take; all of its people if not given.

    Raises:
        ConfigError: it has no people, or no such seat.
    """

    def __init__(
        self,
        run: Run,
        seats: Sequence[str] | None = None,
    ) -> None:
        self._run = run
        self._chosen_seats = seats
        self.title = type(run).__name__
        # Foreseen by playing the turn's beginning: nobody is asked.
        people = list(People(run).seats)
        if "*" in run.players and seats is not None:
            people = [*people, OTHERS]  # foreseen are those alone who are asked first
        taken = _taken(seats, people)
        self.plans = [GroupPlan(run.name, "", 0, taken)]

    @property
    def item(self) -> Run:
        """The run."""
        return self._run

    @property
    def key(self) -> str:
        """Its number on its tape."""
        if self._run.run_id is None:
            return ""
        return str(self._run.run_id)

    @property
    def seed(self) -> str:
        """The run's."""
        return str(self._run.seed)

    def journal(self, folder: Path | None) -> RoomJournal:
        """Return the files beside the run's tape; none are written for one on no tape."""
        tape = self._run.tape
        # Several runs may be recorded side by side: the journal has the tape's name.
        if tape is None or folder is not None:
            return RoomJournal(folder)
        path = Path(tape.path)
        return RoomJournal(path.parent, f"{path.stem}.room")

    def runs(self, missing: Collection[int]) -> dict[int, Run]:
        """Return the run."""
        return {0: self._run}

    def faults(self) -> dict[int, str]:
        """Return nothing: what goes wrong is raised where the run is played."""
        return {}

    def listen(self, callback: Callable[[], object]) -> Callable[[], object]:
        """Return at once: the run is there already."""
        return lambda: None

    async def play(self, groups: Sequence[int]) -> None:
        """Play the turns that are left."""
        run = self._run
        await play_turns(
            run,
            max(0, run.config.turns - run.turn_number),
            progress=False,
        )

    def of_round(self, number: int, key: str) -> RunSource:
        """Return a run of the same world on the same tape, with a seed of its own each round.

        Args:
            number: of the round; 1 is this one.
            key: of a round that another process began; empty for one that begins.
        """
        run = self._run
        # A cell that is run again makes a new run; the one that people began is on its tape.
        if key and key != self.key and run.tape is not None:
            run = type(run).resume(run.tape, int(key), llm_client=run.llm_client)
        elif number > 1:
            # With the same seed another round would have the first one's luck.
            seed = run.config.seed + number - 1
            config = run.config.model_copy(update={"seed": seed})
            run = type(run)(
                config,
                llm_client=run.llm_client,
                tape=run.tape,
            )
        return RunSource(run, self._chosen_seats)


class StudySource:
    """The runs of a study that people play, a group each.

    Args:
        study: the study.
        seats: those that people take; all of its people if not given.

    Raises:
        ConfigError: no arm has people, or one lacks a seat.
    """

    def __init__(
        self,
        study: Study,
        seats: Sequence[str] | None = None,
    ) -> None:
        self._study = study
        self._chosen_seats = seats
        self.title = study.name
        # Unit by unit: the arms of one unit are a block, whose groups are dealt together.
        self._keys: list[tuple[str, int | str]] = []
        for unit in study.units:
            self._keys += [(arm, unit) for arm in study.arms_of_people]
        if not self._keys:
            raise ConfigError(
                f"no arm of {study!r:.60} has people; name them: "
                "Study(..., players={'Ann': 'person, else random', ...}), or "
                "Room(study, seats=['Ann', ...], fill='random')"
            )
        names = study.seats_of_people
        plans = []
        for arm, unit in self._keys:
            label = f"{study.unit_name} {unit}"
            if len(study.arms) > 1:
                label = f"{arm}, {label}"
            plans.append(
                GroupPlan(
                    label,
                    arm,
                    study.units.index(unit),
                    _taken(seats, names[arm]),
                )
            )
        self.plans = plans

    @property
    def item(self) -> Study:
        """The study."""
        return self._study

    @property
    def key(self) -> str:
        """Nothing: its folder has its runs."""
        return ""

    @property
    def seed(self) -> str:
        """The first of the study's."""
        return str(self._study.units[0])

    def journal(self, folder: Path | None) -> RoomJournal:
        """Return the files in the study's folder."""
        return RoomJournal(folder or self._study.tape)

    def runs(self, missing: Collection[int]) -> dict[int, Run]:
        """Return the runs that are under way, and those that were over before this process."""
        playing = dict(self._study.playing)
        progress = self._study.progress()
        ended = {entry.key for entry in progress if entry.status == "done"}
        runs: dict[int, Run] = {}
        for number in missing:
            key = self._keys[number]
            if key in playing:
                runs[number] = playing[key]
            # It is read from its tape: how the round ended is shown after a restart, too.
            elif key in ended:
                runs[number] = self._study.simulation(*key)
        return runs

    def faults(self) -> dict[int, str]:
        """Return why runs failed."""
        return {
            self._keys.index(entry.key): entry.error
            for entry in self._study.progress()
            if entry.status == "failed" and entry.key in self._keys
        }

    def listen(self, callback: Callable[[], object]) -> Callable[[], object]:
        """Have a callback run when a run begins, and after each of its turns."""
        return self._study.listen(callback)

    async def play(self, groups: Sequence[int]) -> None:
        """Play what is left of some groups, all at once: people wait at each table."""
        keys = [self._keys[number] for number in groups]
        # Eight at once, if not said otherwise: the ninth group would wait for one of them to end.
        await self._study.arun(
            only=keys,
            parallel=len(keys),
            progress=False,
        )

    def of_round(self, number: int, key: str) -> StudySource:
        """Return the same design with seeds that were not played, in a folder of its own."""
        if number == 1:
            return self
        study = self._study
        count = len(study.units)
        # A seed that was played is other people's: its runs are done, and nobody would be asked.
        highest = max(int(unit) for unit in study.units)
        first = highest + 1 + (number - 2) * count
        seeds = [first + place for place in range(count)]
        # Within the first round's, so that the same command finds all of them.
        folder = study.tape / f"round {number}"
        next_study = study.replace(seeds=seeds, tape=folder)
        return StudySource(next_study, self._chosen_seats)


def _taken(
    seats: Sequence[str] | None,
    people: Sequence[str],
) -> tuple[str, ...]:
    """Return the seats that people take.

    Raises:
        ConfigError: one is not a person's, or the names are not known.
    """
    if OTHERS not in people:
        if seats is None:
            return tuple(people)
        return known_names("seat", seats, people)
    if seats is None:
        raise ConfigError(
            "people have the seat '*', and whom this world asks first is not known before: name "
            "the seats, Room(..., seats=['Ann', 'Bob'])"
        )
    return tuple(seats)


Source = RunSource | StudySource
"""What a room plays in one round."""
