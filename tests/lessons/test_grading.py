"""Folders of hand-ins that are none, links in them, and grades that are there already."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from llmsim_lab.cli import main
from llmsim_lab.errors import ConfigError
from llmsim_lab.lessons import grade
from llmsim_lab.lessons.answers import LessonQuestion, key_of


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


def test_grades_are_replaced_wherever_they_and_the_hand_ins_were_moved(tmp_path: Path) -> None:
    (tmp_path / "old" / "in" / "ann").mkdir(parents=True)
    grade(tmp_path / "old" / "in").write(tmp_path / "old" / "out")
    moved = (tmp_path / "old").rename(tmp_path / "new")
    grades = grade(moved / "in")
    grades.write(moved / "out")
    with pytest.raises(
        ConfigError, match=r"out is in the folder of the hand-ins, .*: choose anoth"
    ):
        grades.write(moved / "in" / "out")


def test_a_second_class_does_not_overwrite_the_grades_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    question = LessonQuestion(name="1", answer=3, points=5.5)
    Path("lesson.key").write_text(key_of([question]).model_dump_json())
    for name in ("one/ann", "two/bob"):
        Path(name).mkdir(parents=True)
    Path("loop").symlink_to("loop")
    for folder, status in (("one", 0), ("one", 0), ("two", 1), ("loop", 1)):
        monkeypatch.setattr("sys.argv", ["llmsim-lab", "grade", folder, "--key", "lesson.key"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == status
    printed = capsys.readouterr()
    assert "ann: 0 of 5.5 points, it has neither" in printed.out
    assert "would be replaced: choose another --out" in " ".join(printed.err.split())
    assert "folder='loop' is a link that leads back to itself" in printed.err
    table = pd.read_csv("out/grades/grades.csv")
    assert table[["hand-in", "of points"]].to_numpy().tolist() == [["ann", 5.5]]
