"""A folder of hand-ins, three of them broken on purpose."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from lessons_kit import WORLD, hand_in, play_class_exercise

from llmsim_lab.cli import main
from llmsim_lab.errors import ConfigError
from llmsim_lab.lessons import ProcessLimits, grade
from llmsim_lab.lessons.answers import LessonQuestion, key_of

GOOD = ("ann", "bob", "cy", "di", "ed", "flo", "gus")
ANSWERS = dict(zip(GOOD, ("0.33", "1/3", "33", "0.5", "0.333", "'none'", "0.334"), strict=True))


@pytest.fixture(scope="module")
def world() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(WORLD.parent)
        yield importlib.import_module("contract_net").ContractNet
        sys.modules.pop("contract_net", None)


@pytest.fixture(scope="module")
def hand_ins(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("class")
    played = folder / "played"
    play_class_exercise(world, played)
    in_ = folder / "in"
    for name, answer in ANSWERS.items():
        hand_in(in_ / name, played, answer)
    # As ``llmsim-lab new`` puts it beside the world: a recorded run that is not the student's.
    shutil.copy(WORLD.with_suffix(".tape"), in_ / "ann")
    edited = hand_in(in_ / "edited", played, "1/3")
    tape = next((edited / "study").glob("baseline_seed0*.tape"))
    tape.write_text(tape.read_text().replace('"share_right":0.', '"share_right":1.', 1))
    mixed = hand_in(in_ / "mixed", played, "1/3")
    for path in (mixed / "study").glob("overconfident*.tape"):
        path.unlink()
    for path in (played / "other").glob("*.tape"):
        shutil.copy(path, mixed / "study")
    hand_in(in_ / "never_ends", played, "1/3", more="while True:\n    pass")
    question = LessonQuestion(name="1", answer=1 / 3, tolerance=0.005, hint="look at the last turn")
    (folder / "lesson.key").write_text(key_of([question]).model_dump_json())
    return folder


@pytest.mark.process
def test_ten_hand_ins_are_judged_and_three_broken_ones_are_named(
    hand_ins: Path, tmp_path: Path
) -> None:
    limits = ProcessLimits(cpu_s=4, wall_s=200, memory_mb=2_048)
    grades = grade(
        hand_ins / "in",
        key=hand_ins / "lesson.key",
        world=WORLD,
        arms=3,
        seeds=2,
        limits=limits,
    )
    faults = {hand_in.name: hand_in.faults for hand_in in grades}
    assert [faults[name] for name in GOOD] == [[]] * len(GOOD)
    [edited] = [fault for fault in faults["edited"] if "was changed" in fault]
    assert edited.startswith("study/baseline_seed0-")
    assert "was changed: line " in edited
    [mixed] = faults["mixed"]
    assert mixed.startswith("not the same model in all arms (condition=baseline: scripted (small)")
    assert mixed.endswith("condition=overconfident: scripted (large))")
    [endless] = faults["never_ends"]
    assert endless == "bids.ipynb, cell 2: it used more than 4 s of the processor"
    points = {hand_in.name: hand_in.points for hand_in in grades}
    assert [points[name] for name in GOOD] == [1, 1, 0.5, 0, 1, 0, 1]
    assert points["never_ends"] == 0
    table = grades.to_frame().set_index("hand-in")
    columns = ["tapes", "replayed", "models", "runs an arm", "notebooks"]
    ann = table.loc["ann", columns].to_list()
    assert ann == ["6 of 6", "6 of 6", "scripted (small)", "2", "1 of 1"]
    index = grades.write(tmp_path / "out").read_text()
    assert 'href="pages/mixed.html"' in index
    pages = tmp_path / "out" / "pages"
    assert len(list(pages.iterdir())) == 10
    assert "was changed" in (pages / "edited.html").read_text()
    assert len(pd.read_csv(tmp_path / "out" / "grades.csv")) == 10


def test_a_folder_without_hand_ins_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no hand-ins: a folder each, "):
        grade(tmp_path)
    with pytest.raises(ConfigError, match="is not a folder; name the one with the hand-ins"):
        grade(tmp_path / "nowhere")
    (tmp_path / "_ann").mkdir()
    (tmp_path / "bob.zip").touch()
    assert "it has no runs, and 3 arms were asked for" in grade(tmp_path, arms=3)[0].faults
    ann, bob = grade(tmp_path)
    assert ann.faults == ["it has neither tapes nor notebooks of its own"]
    assert bob.faults == ["it is not a folder; unpack it, or put it into one"]
    for name in ("lesson.key", "lesson.ipynb"):
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match="has no hand-ins: a folder each, "):
        grade(tmp_path)


def test_a_second_class_does_not_overwrite_the_grades_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    question = LessonQuestion(name="1", answer=3, points=5.5)
    Path("lesson.key").write_text(key_of([question]).model_dump_json())
    for name in ("one/ann", "two/bob"):
        Path(name).mkdir(parents=True)
    for folder, status in (("one", 0), ("one", 0), ("two", 1)):
        monkeypatch.setattr("sys.argv", ["llmsim-lab", "grade", folder, "--key", "lesson.key"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == status
    printed = capsys.readouterr()
    assert "ann: 0 of 5.5 points, it has neither" in printed.out
    assert "would be overwritten: choose another --out" in " ".join(printed.err.split())
    table = pd.read_csv("out/grades/grades.csv")
    assert table[["hand-in", "of points"]].to_numpy().tolist() == [["ann", 5.5]]


@pytest.mark.usefixtures("same_process")
def test_a_link_in_a_hand_in_leads_nowhere(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("precious")
    folder = tmp_path / "in" / "ann"
    folder.mkdir(parents=True)
    for name, target in (("contract_net.py", mine), ("x.tape", "/dev/zero"), ("y.ipynb", mine)):
        (folder / name).symlink_to(target)
    [ann] = grade(tmp_path / "in", world=WORLD)
    assert ann.faults == ["x.tape is not a file"]
    assert mine.read_text() == "precious"
