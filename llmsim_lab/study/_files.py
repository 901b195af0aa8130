"""A study's folder: how far each run is, and the rows of its file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from llmsim_lab._util.files import is_there
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Tape
from llmsim_lab.run import Run
from llmsim_lab.run.recorded import recorded_run
from llmsim_lab.study.design import Play
from llmsim_lab.study.playing import Job, Key, StudyPlayer, StudyRun
from llmsim_lab.tape import RunInfo


class RunContents(NamedTuple):
    """One run of a file, without its calls.

    Attributes:
        info: the run's entry on the tape.
        rows: the rows of its frame, by turn.
    """

    info: RunInfo
    rows: Mapping[int, Any]


Contents = Mapping[Play, RunContents]
"""The runs of a file."""


class StudyFiles:
    """The files of a study's runs.

    Args:
        folder: where the files are; it need not exist.
        jobs: what is played, unit by unit.
        player: plays the jobs, and reads how far they are.
        keys: the keys of the jobs, arm by arm.

    Attributes:
        folder: where the files are.
        jobs: what is played, by key.
        player: plays the jobs.
        paths: the files, by key.
        entries: how far each job is, by key, arm by arm.
    """

    def __init__(
        self,
        folder: Path,
        jobs: Iterable[Job],
        player: StudyPlayer,
        *,
        keys: Iterable[Key],
    ) -> None:
        self.folder = folder
        self.jobs = {job.key: job for job in jobs}
        self.player = player
        self.paths: dict[Key, Path] = {}
        for key, job in self.jobs.items():
            self.paths[key] = _kept(folder / job.file_name)
        self.entries: dict[Key, StudyRun] = {}
        # Arm by arm, as tables list them; jobs stand unit by unit, as they are played.
        for arm, unit in keys:
            self.entries[arm, unit] = StudyRun(arm, unit)
        self._contents: dict[Key, Contents] = {}
        # An earlier session may have played some of the study.
        self.read_progress()

    def read_progress(self) -> None:
        """Read how far the runs are that have not ended, from their files."""
        for key, file in self.paths.items():
            may_have_more = self.entries[key].status in ("left", "stopped")
            # A failed run's entry has the error, its file may not. A run that is done stays done.
            if may_have_more:
                job = self.jobs[key]
                self.entries[key] = self.player.read(job, file)

    @property
    def others(self) -> int:
        """How many tapes in the folder belong to other settings, seeds or code."""
        in_folder = set(self.folder.glob("*.tape"))
        return len(in_folder.difference(self.paths.values()))

    @property
    def counts(self) -> Counter[str]:
        """How many runs are ``done``, ``failed``, ``stopped`` and ``left``."""
        return Counter(entry.status for entry in self.entries.values())

    def progress(self) -> list[StudyRun]:
        """Return how far each run is, arm by arm; those that this process plays are ``running``."""
        turns = {key: run.turn_number for key, run in self.player.playing.items()}
        runs = []
        for entry in self.entries.values():
            if entry.key in turns:
                # Without the error of an earlier try.
                entry = replace(
                    entry,
                    status="running",
                    turns=turns[entry.key],
                    error="",
                )
            runs.append(entry)
        return runs

    def path_of(self, key: Key) -> Path:
        """Return the file of a run that was begun.

        Raises:
            ConfigError: the run was not begun.
        """
        entry = self.entries[key]
        if entry.tape is None:
            raise ConfigError(f"arm {entry.arm!r} was not begun at {entry.unit}; run() plays it")
        return entry.tape

    def contents(self, entry: StudyRun) -> Contents:
        """Return the rows of a run's file, which is read once if the run is done."""
        if entry.key in self._contents:
            return self._contents[entry.key]
        contents: dict[Play, RunContents] = {}
        # Only rows are kept: a run with its calls takes megabytes.
        with Tape(entry.tape or "", read_only=True) as tape:
            runs = self.jobs[entry.key].runs_on(tape)
            # In the order of plays, which need not be the order in which they were begun.
            for play in sorted(runs):
                info = runs[play]
                rows = tape.frame_rows(info.id)
                contents[play] = RunContents(info, rows)
        if entry.status == "done":
            self._contents[entry.key] = contents
        return contents

    def load(
        self,
        job: Job,
        play: Play,
    ) -> Run:
        """Return one of a job's runs, with its turns, calls and decisions.

        Raises:
            ConfigError: there is no such run, or it was not begun.
        """
        world = self.player.world
        arm = self.player.arms[job.arm]
        file = self.path_of(job.key)
        tape = Tape(file, read_only=True)
        runs = job.runs_on(tape)
        if play not in runs:
            labels = list(world.wordings(arm))
            wording = ""
            if len(labels) > 1:
                wording = f" of the wording {labels[play.wording]!r}"
            samples = {begun.sample for begun in runs}
            raise ConfigError(
                f"arm {job.arm!r}, {job.where} has no sample {play.sample}{wording}; there are "
                f"{sorted(samples)}"
            )
        return recorded_run(
            tape,
            runs[play],
            world.cls,
            # Functions are on no tape, and a replay needs them.
            arguments={"players": world.level(arm, "players")},
        )


def _kept(file: Path) -> Path:
    """Return a run's file, or the packed one in its place, which is only read."""
    packed = file.with_name(f"{file.name}.gz")
    # If both exist the unpacked file counts: it may have been continued.
    if is_there(packed) and not is_there(file):
        return packed
    return file
