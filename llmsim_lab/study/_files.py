"""A study's folder: how far each run is, and what its file says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Tape
from llmsim_lab.run.recorded import recorded_run
from llmsim_lab.study.design import AnyRun, Play
from llmsim_lab.study.playing import Job, Key, StudyPlayer, StudyRun
from llmsim_lab.tape import RunInfo


class RunContents(NamedTuple):
    """What a file says of one of its runs.

    Attributes:
        info: as its tape has it.
        rows: of its frame, by turn.
    """

    info: RunInfo
    rows: Mapping[int, Any]


Contents = Mapping[Play, RunContents]
"""What a file says of its runs."""


class StudyFiles:
    """The files of a study's runs.

    Args:
        folder: where they are; it need not be there.
        jobs: what is played, unit by unit.
        player: who plays it, and reads how far it is.
        keys: of the jobs, arm by arm.

    Attributes:
        folder: where they are.
        jobs: what is played, by key.
        player: who plays it.
        paths: the files, by key.
        entries: how far each is, arm by arm.
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
        self.paths = {key: _kept(folder / job.file_name) for key, job in self.jobs.items()}
        # Arm by arm, as tables list them; jobs stand unit by unit, as they are played.
        self.entries = {key: StudyRun(*key) for key in keys}
        self._contents: dict[Key, Contents] = {}
        # What an earlier session of the same study has played counts.
        self.read_progress()

    def read_progress(self) -> None:
        """Read from their files how far runs are that have not ended here."""
        for key, file in self.paths.items():
            # What failed here says why better than its file; what is done stays so.
            if self.entries[key].status in ("left", "stopped"):
                self.entries[key] = self.player.read(self.jobs[key], file)

    @property
    def others(self) -> int:
        """How many tapes in the folder are not this study's: of other settings, seeds or code."""
        in_folder = set(self.folder.glob("*.tape"))
        return len(in_folder.difference(self.paths.values()))

    def path_of(self, key: Key) -> Path:
        """Return the file of a run that was begun.

        Raises:
            ConfigError: it was not.
        """
        entry = self.entries[key]
        if entry.tape is None:
            raise ConfigError(f"arm {entry.arm!r} was not begun at {entry.unit}; run() plays it")
        return entry.tape

    def contents(self, entry: StudyRun) -> Contents:
        """Return what a run's file says; of one that is done it is read once."""
        contents = self._contents.get(entry.key)
        if contents is None:
            # Rows alone are kept: a run with its calls is megabytes.
            with Tape(entry.tape or "", read_only=True) as tape:
                runs = sorted(self.jobs[entry.key].runs_on(tape).items())
                contents = {
                    play: RunContents(info, tape.frame_rows(info.id)) for play, info in runs
                }
            if entry.status == "done":
                self._contents[entry.key] = contents
        return contents

    def load(self, job: Job, play: Play) -> AnyRun:
        """Return one of a job's runs, with its turns, calls and decisions.

        Raises:
            ConfigError: there is no such run, or it was not begun.
        """
        world = self.player.world
        arm = self.player.arms[job.arm]
        tape = Tape(self.path_of(job.key), read_only=True)
        info = job.runs_on(tape).get(play)
        if info is None:
            labels = list(world.wordings(arm))
            wording = f" of the wording {labels[play.wording]!r}" if len(labels) > 1 else ""
            raise ConfigError(
                f"arm {job.arm!r}, {job.where} has no sample {play.sample}{wording}; there are "
                f"{sorted({begun.sample for begun in job.runs_on(tape)})}"
            )
        # Functions are on no tape, and a replay needs them.
        players = {"players": world.level(arm, "players")}
        return recorded_run(
            tape,
            info,
            world.cls,
            arguments=players,
        )


def _kept(file: Path) -> Path:
    """Return a run's file, or the packed one that is in its place, which is only read."""
    packed = file.with_name(f"{file.name}.gz")
    return packed if packed.exists() and not file.exists() else file
