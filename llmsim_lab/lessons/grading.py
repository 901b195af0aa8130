"""Hand-ins that are judged: tapes verified and replayed, manifests compared, notebooks run.

What reads tapes and compares answers runs here; what runs code of a hand-in, its worlds and its
notebooks, does so in a process with limits and no network, in a copy of its folder.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup
from pydantic import BaseModel, ConfigDict

from llmsim_lab._util.files import (
    as_path,
    make_folder,
    resolved_path,
    temporary_folder,
    write_file,
)
from llmsim_lab._util.html import join, styled, table
from llmsim_lab._util.jsontext import checked, dumps, flat, plain
from llmsim_lab._util.results import Results
from llmsim_lab._util.tables import columns_of, csv_text, frame_of
from llmsim_lab._util.text import clip, counted, error_text, few, listed, number, whole_text
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.lessons.answers import AnswerKey, Graded
from llmsim_lab.lessons.limits import (
    HandInFault,
    LimitedProcess,
    ProcessLimits,
    entries_in,
    paths_in,
    size_of,
    stopping,
)
from llmsim_lab.lessons.notebooks import NotebookResult, run_notebook
from llmsim_lab.lessons.pages import file_stem, link_to, reading_of, shown_name, table_of
from llmsim_lab.llm import Tape
from llmsim_lab.run.page import write_page
from llmsim_lab.tape import RunInfo, verify

if TYPE_CHECKING:
    import pandas as pd

_MOST_BYTES = 5 * 10**8
_MOST_FILES = 10_000
"""Of a hand-in, which is copied to be played."""
_MOST_TAPE_BYTES = 2 * 10**8
_MOST_TAPES = 200
_MOST_WAITS = 5
"""Of a hand-in's notebooks together: so often the time of one."""
_MOST_FAULTS = 20
_LONGEST_FAULT = 1_000
HAND_IN = ProcessLimits(
    cpu_s=60,
    wall_s=300,
    memory_mb=2_048,
    printed=20_000_000,
)
"""Of a hand-in's tapes together, and of each of its notebooks."""
RESULTS = ("grades.csv", "index.html", "pages")
_NOT_OF_AN_ARM = ("seed", "replicate", "name", "llm")
"""Of a configuration: what differs between runs of one arm, and the model's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What hand-ins are compared with.

    Attributes:
        key: the file of the lesson's key.
        answers: the key itself; no answers are compared if None.
        world: the file that all play; their own if None.
        arms: how many conditions.
        seeds: how many runs each has.
    """

    key: Path | None = None
    answers: AnswerKey | None = None
    world: Path | None = None
    arms: int | None = None
    seeds: int | None = None


@dataclass(slots=True, kw_only=True)
class HandIn:
    """What was found of a hand-in.

    Attributes:
        name: of its folder.
        faults: what is wrong.
        tapes: those that are sound, by their place in the folder.
        tape_count: how many there are.
        replayed: how many runs a replay gave again.
        runs: of the sound tapes.
        notebooks: what came of each.
        graded: the answers.
        points: for right answers; half for those that are nearly right.
        most_points: what all right answers are worth; None if there is no key.
    """

    name: str
    faults: list[str] = field(default_factory=list)
    tapes: dict[str, Path] = field(default_factory=dict)
    tape_count: int = 0
    replayed: int = 0
    runs: list[RunInfo] = field(default_factory=list)
    notebooks: dict[str, NotebookResult] = field(default_factory=dict)
    graded: list[Graded] = field(default_factory=list)
    points: float = 0
    most_points: float | None = None

    def row(self) -> dict[str, Any]:
        """Return its line of the table."""
        arms = arms_of(self.runs)
        sizes = sorted({len(runs) for runs in arms.values()})
        faults = [result.fault for result in self.notebooks.values()]
        models = {_model_of(run).words for run in self.runs}
        points: dict[str, Any] = {"points": self.points}
        if self.most_points is not None:
            points["of points"] = self.most_points
        return {
            "hand-in": self.name,
            **points,
            "sound": not self.faults,
            "tapes": f"{len(self.tapes)} of {self.tape_count}",
            "replayed": f"{self.replayed} of {len(self.runs)}",
            "models": ", ".join(sorted(models)),
            "arms": len(arms),
            "runs an arm": " or ".join(map(str, sizes)),
            "notebooks": f"{faults.count('')} of {len(faults)}",
            "faults": "; ".join(self.faults),
        }


class Grades(list[HandIn]):
    """Hand-ins in the order of their names.

    Args:
        hand_ins: each with what was found.
        source: the folder that they were handed in to.
    """

    def __init__(
        self,
        hand_ins: Iterable[HandIn] = (),
        *,
        source: Path | None = None,
    ) -> None:
        super().__init__(hand_ins)
        self._source = source

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each hand-in."""
        return frame_of([hand_in.row() for hand_in in self])

    def __str__(self) -> str:
        lines = []
        for hand_in in self:
            verdict = "; ".join(hand_in.faults) or "sound"
            points = ""
            if hand_in.most_points is not None:
                most = number(hand_in.most_points)
                points = f"{number(hand_in.points)} of {most} points, "
            lines.append(f"{hand_in.name}: {points}{verdict}")
        return "\n".join(lines)

    __repr__ = __str__

    def write(self, folder: str | Path) -> Path:
        """Write ``grades.csv``, ``index.html``, whose path is returned, and ``pages``, one each.

        Raises:
            ConfigError: the folder has a file of such a name that is not of these hand-ins, or is
                in the folder that they were handed in to.
        """
        folder = as_path("folder", folder)
        if self._source is not None:
            check_apart(folder, self._source)
        results = Results(
            folder=folder,
            kind="grades",
            source=self._source,
        )
        results.note(*RESULTS)
        make_folder(folder / "pages")
        frame = self.to_frame()
        write_file(folder / "grades.csv", csv_text(frame).encode())
        parts = [
            styled("Hand-ins", tag="h1"),
            table_of(frame, "all hand-ins"),
        ]
        for hand_in in self:
            try:
                reading = reading_of(hand_in.name, hand_in.tapes)
            except Exception as error:  # noqa: BLE001 - it must not cost the others their pages
                hand_in.faults.append(f"its runs cannot be shown: {clip(error_text(error), 200)}")
                reading = None
            view = join(_parts_of(hand_in), between="\n")
            write_page(
                folder / "pages" / f"{file_stem(hand_in.name)}.html",
                reading,
                title=hand_in.name,
                print_view=view,
            )
            parts.append(link_to(hand_in.name))
        view = join(parts, between="\n")
        return write_page(
            folder / "index.html",
            None,
            title="Hand-ins",
            print_view=view,
        )


def _parts_of(hand_in: HandIn) -> Iterator[Markup]:
    yield styled(hand_in.name, tag="h1")
    facts = [(name, str(value)) for name, value in hand_in.row().items()]
    yield table((), facts)
    if hand_in.faults:
        yield table(("what is wrong",), [[fault] for fault in hand_in.faults])
    answers = [(graded.question, graded.verdict, graded.text) for graded in hand_in.graded]
    if answers:
        yield table(("question", "answer", ""), answers)
    arms = []
    for arm, runs in arms_of(hand_in.runs).items():
        seeds = listed(_seeds_of(runs))
        arms.append((arm or "all", seeds, _model_of(runs[0]).words))
    if arms:
        yield table(("arm", "seeds", "model"), arms)


def check_apart(folder: Path, hand_ins: Path) -> None:
    """Raise ConfigError if results in a folder would be taken for a hand-in the next time."""
    if resolved_path("folder", folder).is_relative_to(resolved_path("folder", hand_ins)):
        beside = os.path.normpath(hand_ins / ".." / "grades")
        raise ConfigError(
            f"{folder} is in the folder of the hand-ins, {hand_ins}, and the results would be "
            f"judged as one of them the next time: choose another folder, such as --out {beside}"
        )


# --- grading --------------------------------------------------------------------------------------


def grade(
    folder: str | Path,
    *,
    key: str | Path | None = None,
    world: str | Path | None = None,
    arms: int | None = None,
    seeds: int | None = None,
    limits: ProcessLimits = HAND_IN,
    parallel: int | None = None,
) -> Grades:
    """Judge hand-ins: a folder each, with notebooks, tapes and the worlds of these.

    Tapes that are the same as one beside the key or the world were handed out, and are left out.
    The others are verified, and replayed with the hand-in's own world or the one that is given.
    Runs of all conditions are compared: the same model, the same seeds, one version of the code,
    all turns played. Notebooks run in a process with limits and without a network, and their
    answers are compared with the key here, not there.

    Args:
        folder: with a folder for each hand-in.
        key: of the lesson; without it no answers are compared.
        world: the file of the world that all are to have played, with the very same code.
        arms: how many conditions each has.
        seeds: how many runs each condition has.
        limits: of a hand-in's tapes together, and of each notebook.
        parallel: how many at once; as many as there are cores if not given.

    Raises:
        ConfigError: there is no such folder or file, or it has no hand-ins.
    """
    folder = as_path("folder", folder)
    paths = paths_in(folder)
    # Such as out/student, or one hand-in in place of the folder with all of them.
    is_hand_in = {".key", ".ipynb"} <= {path.suffix for path in paths}
    if is_hand_in or not any(path.is_dir() for path in paths):
        raise ConfigError(
            f"{folder} has no hand-ins: a folder each, {folder / 'ann'}; name the folder in which "
            "those are, and unpack archives"
        )
    names = [path.name for path in paths]
    for name, file in (("key", key), ("world", world)):
        if file is not None and not as_path(name, file).is_file():
            raise ConfigError(f"there is no file {file}")
    expected = Expected(
        key=Path(key) if key is not None else None,
        answers=AnswerKey.read(key) if key is not None else None,
        world=Path(world) if world is not None else None,
        arms=arms,
        seeds=seeds,
    )
    handed_out = [
        path
        for file in (expected.key, expected.world)
        if file is not None
        for path in _tapes_of(file.parent.iterdir())
        if path.is_file()
    ]
    judge = partial(
        _judged,
        folder,
        expected=expected,
        handed_out=handed_out,
        limits=limits,
    )
    stop = threading.Event()
    # Threads, since each waits for a process that does the work.
    with ThreadPoolExecutor(
        parallel or os.cpu_count(),
        initializer=stopping.set,
        initargs=(stop,),
    ) as threads:
        try:
            return Grades(threads.map(judge, names), source=folder)
        except BaseException:
            # Else a Ctrl-C would wait for the notebooks that are run.
            stop.set()
            raise


def _judged(
    folder: Path,
    name: str,
    *,
    expected: Expected,
    handed_out: Sequence[Path],
    limits: ProcessLimits,
) -> HandIn:
    hand_in = HandIn(name=shown_name(name), most_points=_most_points(expected.answers))
    try:
        _judge(
            hand_in,
            folder / name,
            expected=expected,
            handed_out=handed_out,
            limits=limits,
        )
        hand_in.row()
    except HandInFault as fault:
        hand_in.faults.append(str(fault))
    except Exception as error:  # noqa: BLE001 - one hand-in must not cost all others their points
        hand_in.faults.append(f"it cannot be judged: {error_text(error)}")
        # Its line of the table may be what failed, by what its runs say of themselves.
        hand_in.runs.clear()
        hand_in.tapes.clear()
    # As a line of a table can hold them: some have words of tapes and of code.
    hand_in.faults = [
        clip(whole_text(fault), _LONGEST_FAULT) for fault in few(hand_in.faults, _MOST_FAULTS)
    ]
    return hand_in


def _judge(
    hand_in: HandIn,
    source: Path,
    *,
    expected: Expected,
    handed_out: Sequence[Path],
    limits: ProcessLimits,
) -> None:
    if not source.is_dir():
        raise HandInFault("it is not a folder; unpack it, or put it into one")
    entries = list(entries_in(source, _MOST_FILES))
    if sum(map(size_of, entries)) > _MOST_BYTES:
        raise HandInFault(f"it has more than {_MOST_BYTES // 10**6:,} MB")
    tapes = _tapes_of(Path(entry.path) for entry in entries)
    if len(tapes) > _MOST_TAPES:
        raise HandInFault(f"it has {len(tapes):,} tapes; at most {_MOST_TAPES} are looked at")
    for path in tapes:
        _verify(
            hand_in,
            path,
            shown_name(str(path.relative_to(source))),
            handed_out,
        )
    hand_in.faults += design_faults(hand_in.runs, expected)
    with temporary_folder() as temporary:
        copy = temporary / "hand-in"
        try:
            shutil.copytree(source, copy, symlinks=True)
            for file in (expected.key, expected.world):
                if file is not None:
                    # A link of this name would have it written to where that leads.
                    (copy / file.name).unlink(missing_ok=True)
                    shutil.copy(file, copy)
        except (OSError, shutil.Error) as error:
            raise HandInFault(f"its folder cannot be read: {error!s:.200}") from error
        # Before the notebooks, which may write over what was handed in.
        _replay(hand_in, source, copy, limits)
        _run_notebooks(hand_in, copy, limits)
    if not hand_in.tape_count and not hand_in.notebooks and not hand_in.faults:
        hand_in.faults.append("it has neither tapes nor notebooks of its own")
    if expected.answers is not None:
        _grade_answers(hand_in, expected.answers)


def _files_in(copy: Path, suffix: str) -> list[Path]:
    """Return the files of a kind, without links, by name."""
    paths = [
        Path(entry.path)
        for entry in entries_in(copy)
        if entry.name.endswith(suffix) and not entry.is_symlink()
    ]
    return sorted(paths)


def _tapes_of(paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if path.name.endswith((".tape", ".tape.gz")))


def _verify(
    hand_in: HandIn,
    path: Path,
    place: str,
    handed_out: Sequence[Path],
) -> None:
    """Take up a tape that is sound, or what is wrong with it."""
    # What a link or a fifo leads to is not theirs, or has no end.
    if path.is_symlink() or not path.is_file():
        hand_in.tape_count += 1
        hand_in.faults.append(f"{place} is not a file")
        return
    # A template's recorded run, which students got with the world, is none of theirs.
    if any(filecmp.cmp(path, other, shallow=False) for other in handed_out):
        return
    hand_in.tape_count += 1
    size = path.stat().st_size
    if size > _MOST_TAPE_BYTES:
        hand_in.faults.append(
            f"{place} has {size / 10**6:,.0f} MB; a tape has at most {_MOST_TAPE_BYTES / 10**6:g}"
        )
        return
    try:
        findings = verify(path)
        if findings:
            shown = few([str(finding) for finding in findings], 1)
            hand_in.faults.append(f"{place} was changed: {' '.join(shown)}")
            return
        with Tape(path, read_only=True) as tape, checked("its runs do not say how they were made"):
            runs = tape.runs()
            for run in runs:
                _Used(**{name: run.manifest[name] for name in _Used.model_fields})
        hand_in.runs += runs
    except (LabError, OSError) as error:
        hand_in.faults.append(f"{place}: {error}")
    else:
        hand_in.tapes[place] = path


def _replay(
    hand_in: HandIn,
    source: Path,
    copy: Path,
    limits: ProcessLimits,
) -> None:
    """Play what the sound tapes have again, in the copy."""
    if not hand_in.tapes:
        return
    # A tape names a world by its file: "contract_net:ContractNet".
    stems = {run.manifest["kind"].partition(":")[0] for run in hand_in.runs}
    worlds: dict[str, str] = {}
    # Of two files with one name the upper one counts, where the teacher's was put.
    deepest_first = sorted(_files_in(copy, ".py"), key=_depth, reverse=True)
    for path in deepest_first:
        if path.stem in stems:
            worlds[path.stem] = str(path)
    with LimitedProcess(copy, limits) as process:
        for place, path in hand_in.tapes.items():
            try:
                replayed = process.ask(
                    "replay",
                    tape=str(copy / path.relative_to(source)),
                    files=list(worlds.values()),
                )
                # What a hand-in's process says is not to be trusted.
                if not isinstance(replayed, int):
                    raise HandInFault("its world answered in place of the replay")
                hand_in.replayed += replayed
            except HandInFault as fault:
                hand_in.faults.append(f"{place} cannot be replayed: {fault}")
                if not process.alive:
                    return


def _depth(path: Path) -> int:
    return len(path.parts)


def _run_notebooks(
    hand_in: HandIn,
    copy: Path,
    limits: ProcessLimits,
) -> None:
    until = time.monotonic() + _MOST_WAITS * limits.wall_s
    for notebook in _files_in(copy, ".ipynb"):
        if ".ipynb_checkpoints" in notebook.parts:
            continue
        # There may be thousands. What was answered until then counts.
        if time.monotonic() > until:
            hand_in.faults.append(
                f"its notebooks took {_MOST_WAITS} times what one of them may take"
            )
            return
        _run(
            hand_in,
            notebook,
            shown_name(str(notebook.relative_to(copy))),
            limits,
        )


def _run(
    hand_in: HandIn,
    notebook: Path,
    place: str,
    limits: ProcessLimits,
) -> None:
    # One that ran before may have put a link in its place, or in that of its folder.
    if os.path.realpath(notebook) != str(notebook) or not notebook.is_file():
        hand_in.faults.append(f"{place} is not a file")
        return
    with LimitedProcess(notebook.parent, limits) as process:
        result = run_notebook(process, notebook)
    hand_in.notebooks[place] = result
    if result.fault:
        hand_in.faults.append(f"{place}, {result.fault}")


def _most_points(key: AnswerKey | None) -> float | None:
    if key is None:
        return None
    return sum(question.points for question in key.questions.values())


def _grade_answers(hand_in: HandIn, key: AnswerKey) -> None:
    """Compare the answers of the notebooks with the key; the last of a question counts."""
    answers: dict[str, Any] = {}
    for result in hand_in.notebooks.values():
        answers |= result.answers
    worth = {
        "right": 1.0,
        "nearly": 0.5,
        "wrong": 0.0,
    }
    for question, key_question in key.questions.items():
        if question not in answers:
            hand_in.graded.append(
                Graded(
                    question=question,
                    verdict="wrong",
                    text="no answer",
                )
            )
            continue
        graded = key.grade(question, answers[question])
        hand_in.points += key_question.points * worth[graded.verdict]
        hand_in.graded.append(graded)


# --- what runs must have in common ----------------------------------------------------------------


class _UsedPrompt(BaseModel):
    digest: str


class _Used(BaseModel):
    """The parts of a manifest that are compared, with their types: a tape may be made up."""

    # The manifest itself is used after: no "1" may stand for a number.
    model_config = ConfigDict(strict=True)

    kind: str
    seed: int | None
    config: dict[str, Any]
    llm: dict[str, Any] | None
    model: dict[str, Any] | None
    prompts: dict[str, _UsedPrompt]
    code: dict[str, str]


class _Model(NamedTuple):
    """A run's model in words, and all of it that must be the same in all arms."""

    words: str
    identity: str


def _model_of(run: RunInfo) -> _Model:
    settings = dict(run.manifest["llm"] or {})
    settings.pop("seed", None)
    words = run.model or "none"
    asked_for = str(settings.get("model", words))
    # A script, and a server's model under another name, are asked for by theirs.
    if asked_for not in (words, "auto"):
        words = f"{words} ({asked_for})"
    # By its weights' digest and all settings but the seed: names are not enough.
    identity = [run.manifest["model"], settings]
    return _Model(whole_text(words), dumps(plain(identity)))


def _seeds_of(runs: Iterable[RunInfo]) -> list[str]:
    seeds = [run.manifest["seed"] for run in runs]
    numbers = sorted(seed for seed in seeds if seed is not None)
    return [str(seed) for seed in numbers] + ["none"] * seeds.count(None)


def arms_of(runs: Sequence[RunInfo]) -> dict[str, list[RunInfo]]:
    """Return the runs of each condition, by the values in which conditions differ."""
    values_by_run: list[dict[str, str]] = []
    for run in runs:
        config = dict(run.manifest["config"])
        for name in _NOT_OF_AN_ARM:
            config.pop(name, None)
        # A condition may differ in nothing but what is asked.
        prompts = sorted(entry["digest"][:8] for entry in run.manifest["prompts"].values())
        values_by_run.append({**flat(config), "prompts": listed(prompts)})
    values_by_name: dict[str, set[str | None]] = {}
    for name in columns_of(values_by_run):
        values_by_name[name] = {values.get(name) for values in values_by_run}
    differing = [name for name, values in values_by_name.items() if len(values) > 1]
    arms: dict[str, list[RunInfo]] = {}
    for run, values in zip(runs, values_by_run, strict=True):
        parts = [f"{name}={values.get(name, 'none')}" for name in differing]
        label = whole_text(", ".join(parts).replace('"', ""))
        arms.setdefault(label, []).append(run)
    return arms


def design_faults(
    runs: Sequence[RunInfo],
    expected: Expected,
) -> list[str]:
    """Return why the runs of the conditions cannot be compared."""
    if not runs:
        # Else a hand-in without a tape would be as sound as one with all of them.
        if expected.arms is not None:
            return [f"it has no runs, and {counted(expected.arms, 'arm')} were asked for"]
        return ["it has no runs"] if expected.seeds is not None else []
    arms = arms_of(runs)
    faults: list[str] = []
    if expected.arms not in (None, len(arms)):
        faults.append(f"it has {counted(len(arms), 'arm')}, not {expected.arms}")
    models: dict[str, str] = {}
    identities = set()
    seeds: dict[str, str] = {}
    for arm, runs_of_arm in arms.items():
        models_of_arm = {_model_of(run) for run in runs_of_arm}
        models[arm] = listed(sorted(model.words for model in models_of_arm))
        identities.add(frozenset(model.identity for model in models_of_arm))
        seeds[arm] = listed(_seeds_of(runs_of_arm))
        count = len(set(_seeds_of(runs_of_arm)))
        if expected.seeds is not None and count < expected.seeds:
            faults.append(f"{arm or 'it'} has {counted(count, 'seed')}, not {expected.seeds}")
    # Where each arm was played by the same models, the model is a factor, and no fault.
    if len(identities) > 1:
        faults.append(f"not the same model in all arms ({_by_arm(models)})")
    if len(set(seeds.values())) > 1:
        faults.append(f"not the same seeds in all arms ({_by_arm(seeds)})")
    return [*faults, *_code_faults(runs, expected), *_unfinished(runs)]


def _by_arm(words: Mapping[str, str]) -> str:
    # Two arms may have models of one name, with other weights or settings.
    is_hidden = len(set(words.values())) == 1
    note = ", with other weights or settings" if is_hidden else ""
    return "; ".join(f"{arm}: {text}" for arm, text in words.items()) + note


def _code_faults(
    runs: Sequence[RunInfo],
    expected: Expected,
) -> Iterator[str]:
    # Digests of the files of the world, of its state and of its bases.
    codes = {dumps(plain(run.manifest["code"])) for run in runs}
    if len(codes) > 1:
        yield f"its runs are of {len(codes)} versions of the code"
    if expected.world is not None:
        digest = hashlib.sha256(expected.world.read_bytes()).hexdigest()
        digests = {run.manifest["code"].get("file") for run in runs}
        if digests != {digest}:
            yield f"its runs are not of the code in {expected.world.name}"


def _unfinished(runs: Sequence[RunInfo]) -> Iterator[str]:
    for run in runs:
        if run.verb == "run" and run.outcome != "done":
            reason = run.outcome or "it was cut off"
            yield f"seed {run.manifest['seed']} ended at turn {run.turns}: {reason}"
