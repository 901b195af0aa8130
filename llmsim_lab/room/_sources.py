"""What a room plays: one run, or the runs of a study, each with a group of people."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmsim_lab._util.checks import known_names
from llmsim_lab._util.text import brief
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Person
from llmsim_lab.room._journal import RoomJournal
from llmsim_lab.run import Run
from llmsim_lab.run.people import OTHERS, People
from llmsim_lab.run.playing import play_turns
from llmsim_lab.run.recorded import anew, unrecorded_arguments
from llmsim_lab.study import Study


@dataclass(frozen=True)
class GroupPlan:
    """A group that may play.

    Attributes:
        name: the group's name, for the teacher.
        arm: the arm of a study; empty for a single run.
        block: groups of one block differ only in their arm. People are dealt to one block after
            another, so arms get about the same number of groups.
        seats: the names of the seats for people.
    """

    name: str
    arm: str
    block: int
    seats: tuple[str, ...]


class RunSource:
    """A single run, whose people are one group.

    Args:
        run: the run.
        seats: the seats for people; those of all its people if not given.

    Raises:
        ConfigError: the run has no people, or no such seat.
    """

    def __init__(
        self,
        run: Run,
        seats: Sequence[str] | None = None,
    ) -> None:
        self._run = run
        self._chosen_seats = seats
        self.title = type(run).__name__
        # Found by playing the beginning of a turn on trial; nobody is asked.
        people = list(People(run).seats)
        if "*" in run.players and seats is not None:
            people = [*people, OTHERS]  # the trial only finds the people who are asked first
        taken = _taken(seats, people)
        self.plans = [GroupPlan(run.name, "", 0, taken)]

    @property
    def item(self) -> Run:
        """The run."""
        return self._run

    @property
    def key(self) -> str:
        """The run's number on its tape."""
        if self._run.run_id is None:
            return ""
        return str(self._run.run_id)

    @property
    def seed(self) -> str:
        """The run's seed."""
        return str(self._run.seed)

    def journal(self, folder: Path | None) -> RoomJournal:
        """Return the files beside the run's tape; a run on no tape has none."""
        tape = self._run.tape
        # Named after the tape, since several runs may be recorded side by side.
        if tape is None or folder is not None:
            return RoomJournal(folder)
        path = Path(tape.path)
        return RoomJournal(path.parent, f"{path.stem}.room")

    def runs(self, missing: Collection[int]) -> dict[int, Run]:
        """Return the run."""
        return {0: self._run}

    def faults(self) -> dict[int, str]:
        """Return nothing: errors are raised where the run is played."""
        return {}

    def listen(self, callback: Callable[[], object]) -> Callable[[], object]:
        """Do nothing: the run is there already."""
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
        """Return a run of the same world, on the same tape, with another seed for each round.

        Args:
            number: the round's number; 1 is this one.
            key: the key of a round that another process began; empty for a new round.
        """
        run = self._run
        # A cell that is run again makes a new run, but people's run is the one on the tape.
        if key and key != self.key and run.tape is not None:
            run = type(run).resume(
                run.tape,
                int(key),
                llm_client=run.llm_client,
                **unrecorded_arguments(run),
            )
        elif number > 1:
            # With the same seed, the shocks of the first round would come again.
            seed = run.config.seed + number - 1
            config = run.config.model_copy(update={"seed": seed})
            run = anew(
                run,
                config,
                run.llm_client,
                _people_like(run),
            )
        return RunSource(run, self._chosen_seats)


class StudySource:
    """The runs of a study that people play, one for each group.

    Args:
        study: the study.
        seats: the seats for people; those of all its people if not given.

    Raises:
        ConfigError: no arm has people, or an arm lacks a seat.
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
                f"no arm of {brief(study)} has people; name them: Study(..., players={{'Ann': "
                "'person, else random', ...}), or Room(study, seats=['Ann', ...], fill='random')"
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
        """Empty: the study's folder has its runs."""
        return ""

    @property
    def seed(self) -> str:
        """The first seed of the study."""
        return str(self._study.units[0])

    def journal(self, folder: Path | None) -> RoomJournal:
        """Return the files in the study's folder."""
        return RoomJournal(folder or self._study.tape)

    def runs(self, missing: Collection[int]) -> dict[int, Run]:
        """Return the runs that are under way, and those that ended before this process began."""
        playing = dict(self._study.playing)
        progress = self._study.progress()
        done = [entry for entry in progress if entry.status == "done"]
        ended = {entry.key for entry in done}
        runs: dict[int, Run] = {}
        for number in missing:
            key = self._keys[number]
            if key in playing:
                runs[number] = playing[key]
            # Read from its tape, so that a round's end can be shown after a restart.
            elif key in ended:
                runs[number] = self._study.simulation(*key)
        return runs

    def faults(self) -> dict[int, str]:
        """Return the errors of runs that failed, by group."""
        return {
            self._keys.index(entry.key): entry.error
            for entry in self._study.progress()
            if entry.status == "failed" and entry.key in self._keys
        }

    def listen(self, callback: Callable[[], object]) -> Callable[[], object]:
        """Register a callback for the beginning of each run and the end of each turn."""
        return self._study.listen(callback)

    async def play(self, groups: Sequence[int]) -> None:
        """Play what is left of some groups, all at once, since people wait at each table."""
        keys = [self._keys[number] for number in groups]
        # By default a study plays eight at once, and the ninth group would have to wait.
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
        # The runs of a seed that was played are done, so nobody would be asked.
        highest = max(int(unit) for unit in study.units)
        first = highest + 1 + (number - 2) * count
        seeds = [first + place for place in range(count)]
        # Inside the first round's folder, so that the same command finds all rounds.
        folder = study.tape / f"round {number}"
        next_study = study.replace(seeds=seeds, tape=folder)
        return StudySource(next_study, self._chosen_seats)


def _people_like(run: Run) -> dict[str, Person]:
    """Return new people for a run's seats: the old ones still report to the round before."""
    people: dict[Person, Person] = {}
    seats: dict[str, Person] = {}
    for seat, player in run.players.items():
        person = getattr(player, "backend", None)
        if not isinstance(person, Person):
            continue
        # One person may have several seats.
        if person not in people:
            people[person] = Person(
                person.ask,
                timeout_s=person.timeout_s,
                stand_in=person.stand_in,
            )
        seats[seat] = people[person]
    return seats


def _taken(
    seats: Sequence[str] | None,
    people: Sequence[str],
) -> tuple[str, ...]:
    """Return the seats for people.

    Raises:
        ConfigError: a seat is not a person's, or the names of the seats are not known.
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
