"""What turns of a study take: calls, tokens and seconds, as far as is known."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from llmsim_lab._util.files import is_there, temporary_folder
from llmsim_lab._util.text import counted, error_text
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.llm import Tape
from llmsim_lab.run import Run
from llmsim_lab.study._files import StudyFiles
from llmsim_lab.study.cost import Costs, Count, any_client, cost_of_call, seconds_of_calls
from llmsim_lab.study.design import Arm
from llmsim_lab.study.playing import Job, copy_runs


class PricedTurns(NamedTuple):
    """The costs of turns or of a call, and in words what the estimate is based on."""

    costs: Costs
    based_on: str


@dataclass(frozen=True, slots=True)
class Prices:
    """Estimates what turns of a study take.

    Attributes:
        files: the files of the study's runs; their turns so far are measured.
        source: the tape whose situations are asked again; None in a study of new runs.
    """

    files: StudyFiles
    source: Tape | None

    def turns_left(self, jobs: Iterable[Job]) -> Counter[str]:
        """Return how many turns of some jobs are left to play, by arm."""
        turns = Counter[str]()
        for job in jobs:
            # The turns that a job forks are played already.
            begin = job.start_turn if job.forks else 0
            turns_of_play = job.end_turn - begin
            to_play = len(job.plays) * turns_of_play
            turns[job.arm] += to_play - self._played(job)
        return turns

    def _played(self, job: Job) -> int:
        """Return how many turns a job has played itself."""
        entry = self.files.entries[job.key]
        if not job.forks or not entry.turns or self.files.player.world.asks_again:
            # ``turns`` counts the job's own turns, except for a run that continues another one.
            return entry.turns
        # There it counts the shared turns too.
        with Tape(self.files.paths[job.key], read_only=True) as tape:
            runs = job.runs_on(tape)
        return sum(info.turns - job.start_turn for info in runs.values())

    def of_turns(
        self,
        turns: Mapping[str, int],
        pilot: Prices,
    ) -> PricedTurns:
        """Return what turns cost.

        Args:
            turns: how many, by arm.
            pilot: the prices of the study whose turns are measured.
        """
        spent = pilot.spent()
        one_call = self._of_a_call(pilot, spent)
        costs: list[Costs] = []
        counts: list[Count] = []
        for arm, number in turns.items():
            if arm in spent:
                # The arm's own turns count: their calls may be longer than those of other arms.
                of_turns = spent[arm]
                one_turn = Costs.total(of_turns).times(1 / len(of_turns))
                costs.append(one_turn.times(number))
            elif number:
                try:
                    count = run_sync(self._calls_of(self.files.player.arms[arm]))
                except Exception as error:  # noqa: BLE001 - a world raises anything, and a plan is made
                    failed = f"a turn that chance answered failed: {error_text(error)}"
                    return PricedTurns(Costs(), failed)
                counts.append(count)
                calls = count.each * number
                costs.append(one_call.costs.times(calls))
        sources = []
        if spent:
            sources.append("the mean of the turns so far")
        most_tried = max((count.turns for count in counts), default=0)
        if most_tried:
            sources.append(f"counted in {counted(most_tried, 'turn')} that chance answered")
            if not math.isnan(one_call.costs.tokens):
                sources.append(one_call.based_on)
        if any(count.chooses for count in counts):
            # Chance measures no probabilities, so that the calls for that are not counted.
            sources.append(
                "a choice takes a call for each option, and about 100 more where the server tells "
                "no log-probabilities"
            )
        return PricedTurns(Costs.total(costs), "; ".join(sources))

    def _of_a_call(
        self,
        pilot: Prices,
        spent: Mapping[str, Sequence[Costs]],
    ) -> PricedTurns:
        """Return what one call costs, from the most similar calls that were measured.

        Args:
            pilot: the prices of the study whose turns are measured.
            spent: what each turn took, by arm.
        """
        measured = list(chain.from_iterable(spent.values()))
        based_on = "calls like those of the turns so far"
        if not measured and self.source is not None:
            measured = self._recorded()
            based_on = "calls like those on the tape"
        if not measured:
            # No turn has ended, and the first may take an hour.
            measured = pilot.under_way()
            based_on = "calls like those answered so far"
        return PricedTurns(cost_of_call(measured), based_on)

    def spent(self) -> dict[str, list[Costs]]:
        """Return what each turn took, by arm, including turns of incomplete runs."""
        spent: defaultdict[str, list[Costs]] = defaultdict(list)
        for key, entry in self.files.entries.items():
            job = self.files.jobs[key]
            file = self.files.paths[key]
            if entry.status != "done":
                # The file may have more turns than the entry, which was noted earlier.
                entry = self.files.player.read(job, file)
            if not entry.turns:
                continue
            # The turns that a job forks were paid for by another job.
            before = job.start_turn if job.forks else 0
            with Tape(file, read_only=True) as tape:
                for info, rows in self.files.contents(entry).values():
                    asked_s = seconds_of_calls(tape, info.id)
                    for turn, row in rows.items():
                        if turn > before:
                            spent[job.arm].append(Costs.of_turn(row, asked_s[turn]))
        return dict(spent)

    def _recorded(self) -> list[Costs]:
        """Return what the turns of the recorded runs took."""
        assert self.source is not None
        costs = []
        runs = {job.run for job in self.files.jobs.values()}
        for run in runs:
            rows = self.source.frame_rows(run)
            asked_s = seconds_of_calls(self.source, run)
            for turn, row in rows.items():
                # Turn 0, the initial state, took nothing.
                if turn:
                    costs.append(Costs.of_turn(row, asked_s[turn]))
        return costs

    def under_way(self) -> list[Costs]:
        """Return what the answered calls took in files of runs, also before a first turn ends."""
        costs = []
        for key, file in self.files.paths.items():
            if not is_there(file):
                continue
            job = self.files.jobs[key]
            with Tape(file, read_only=True) as tape:
                for info in job.runs_on(tape).values():
                    calls = tape.calls(info.id)
                    costs += [Costs.of_attempt(call.attempt) for call in calls]
        return costs

    async def _calls_of(self, arm: Arm) -> Count:
        """Count the calls in an arm's turns; chance answers in place of models and people."""
        # The more arms there are, the shorter each is played.
        count = Count(len(self.files.player.arms))
        with temporary_folder() as folder:
            for run in self.trials(arm, folder):
                await self.count_turns(run, count)
        return count

    async def count_turns(self, run: Run, count: Count) -> None:
        """Play a run by chance to its end, or until enough calls are counted."""
        world = self.files.player.world
        end = world.turns
        if world.asks_again:
            end = run.turn_number + 1
        while run.turn_number < end and not run.done(run.state):
            if count.is_enough:
                return
            await count.play(run)

    def trials(
        self,
        arm: Arm,
        folder: Path,
    ) -> Iterator[Run]:
        """Yield runs of an arm that are on no tape: the first, or one for each situation."""
        jobs = [job for job in self.files.jobs.values() if job.arm == arm.name]
        world = self.files.player.world
        client = world.level(arm, "model") or self.files.player.models.given
        # A client's settings decide how many calls there are. A model that is given by name has no
        # client yet, and none is made for a plan.
        if not hasattr(client, "call_with_retry"):
            client = any_client()
        play = jobs[0].plays[0]
        if self.source is None:
            yield world.begin(
                arm,
                client,
                jobs[0].run,
                play,
            )
            return
        for number, job in enumerate(jobs):
            file = folder / f"{number}.tape"
            copy_runs(
                self.source,
                [job.run],
                job.start_turn,
                file,
            )
            with Tape(file, read_only=True) as tape:
                yield world.begin(
                    arm,
                    client,
                    job.run,
                    play,
                    tape,
                )
