"""Tapes as JSON lines and back, and as Parquet."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import make_client, make_config, policy
from llmsim_lab.tape._codec import RunInfo
from llmsim_lab.tape._file import TapeFile
from pandas.testing import assert_frame_equal
from tape_tools_kit import record, spoil

from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.run import replay
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import _transfer, verify
from llmsim_lab.tape._recorder import LiveRecorder
from llmsim_lab.types import Attempt, ChatReply, ChatRequest, Message, ToolCall


@pytest.fixture
def exported(recorded: Path, tmp_path: Path) -> Path:
    with Tape(recorded, read_only=True) as tape:
        [path] = tape.export(tmp_path / "runs.jsonl")
    return path


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rewrite(path: Path, lines: list[dict[str, Any]]) -> Path:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
    return path


def numbered(lines: list[dict[str, Any]], kind: str) -> int:
    """Return the number of the first line of a kind, counted from 1."""
    return next(n for n, line in enumerate(lines, 1) if line["kind"] == kind)


def test_what_was_exported_and_imported_again_has_equal_frames(
    recorded: Path, exported: Path, tmp_path: Path
) -> None:
    with Tape(recorded, read_only=True) as old, Tape(tmp_path / "new.tape") as new:
        assert new.import_jsonl(exported) == [1, 2, 3]
        for run in (1, 2, 3):
            assert_frame_equal(new.turns_frame(run), old.turns_frame(run), check_exact=True)
            assert_frame_equal(new.calls_frame(run), old.calls_frame(run), check_exact=True)
            origins = [[call.attempt.request.origin for call in it.calls(run)] for it in (new, old)]
            assert origins[0] == origins[1]
        assert new.runs() == old.runs()


def test_imported_runs_replay_to_the_original_turns(
    recorded: Path, exported: Path, tmp_path: Path
) -> None:
    with Tape(recorded, read_only=True) as old, Tape(tmp_path / "new.tape") as new:
        new.import_jsonl(exported)
        for run in (1, 2, 3):
            assert replay(new, run).turns == replay(old, run).turns


def test_runs_imported_beside_others_are_renumbered_with_their_parents_and_calls(
    exported: Path, tmp_path: Path
) -> None:
    with Tape(record(tmp_path / "other.tape", name="other")) as tape:
        assert tape.import_jsonl(exported) == [4, 5, 6]
        assert [(info.parent, info.fork_turn) for info in tape.runs()[3:]] == [
            (None, None),
            (4, 1),
            (5, 4),
        ]
        assert verify(tape) == []
        assert replay(tape, 6).turn_number == 5
        assert_frame_equal(tape.turns_frame(5), Tape(tape.path).turns_frame(5))


def test_one_run_is_exported_with_those_it_came_from(recorded: Path, tmp_path: Path) -> None:
    with Tape(recorded, read_only=True) as tape:
        [path] = tape.export(tmp_path / "two.jsonl", run=2)
    assert [line["id"] for line in lines_of(path) if line["kind"] == "run"] == [1, 2]
    with Tape(tmp_path / "new.tape") as new:
        new.import_jsonl(path)
        assert verify(new) == []


def test_the_header_says_what_follows(exported: Path) -> None:
    header, *rest = lines_of(exported)
    assert (header["kind"], header["format"]) == ("header", 2)
    assert header["package"] == version("llmsim-lab")
    for kind in ("text", "run", "call", "turn"):
        assert header[kind] == sum(line["kind"] == kind for line in rest) > 0


def test_two_exports_to_one_file_at_once_leave_one_of_them_whole(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.jsonl"
    other = Tape(recorded, read_only=True)
    header = _transfer._lines

    def lines(file: TapeFile, runs: Sequence[RunInfo]) -> Iterator[dict[str, Any]]:
        """Begin another export of fewer runs after the first line of this one."""
        monkeypatch.setattr(_transfer, "_lines", header)
        for number, line in enumerate(header(file, runs)):
            if number == 1:
                other.export(path, run=1)
            yield line

    monkeypatch.setattr(_transfer, "_lines", lines)
    with Tape(recorded, read_only=True) as tape:
        tape.export(path)
    with Tape(tmp_path / "new.tape") as new:
        assert new.import_jsonl(path) == [1, 2, 3]
    assert [file.name for file in tmp_path.iterdir() if "jsonl" in file.name] == ["runs.jsonl"]


def test_half_a_character_in_an_answer_survives_export_and_import(tmp_path: Path) -> None:
    with Tape(record(tmp_path / "one.tape")) as tape:
        [path] = tape.export(tmp_path / "one.jsonl", run=1)
        lines = lines_of(path)
        call = next(line for line in lines if line["kind"] == "call")
        call["reply"]["text"] = "broken \ud83d off"
        rewrite(path, lines)
        first = tape.import_jsonl(path)[0]
        assert tape.calls(first)[0].attempt.reply.text == "broken \ud83d off"
        assert tape.calls_frame(first)["reply"][0] == "broken ? off"
        [again] = tape.export(tmp_path / "two.jsonl", run=first)
        assert lines_of(again)[numbered(lines, "call") - 1]["reply"] == call["reply"]


def test_an_empty_tape_is_exported_and_imported_as_nothing(tmp_path: Path) -> None:
    with Tape(tmp_path / "empty.tape") as tape:
        [path] = tape.export(tmp_path / "empty.jsonl")
        assert tape.import_jsonl(path) == []


def change(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda line: line.update(values)


def change_in(part: str, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda line: line[part].update(values)


@pytest.mark.parametrize(
    ("kind", "spoil_line", "message"),
    [
        ("header", change(kind="text"), "not an export of a tape"),
        ("header", change(format=1), "format 1; this version of llmsim_lab reads 2"),
        ("header", change(run="many"), "'many' is not an integer"),
        ("text", change(text="{}"), "does not have its digest"),
        ("text", change(kind="virus"), "a line of the kind 'virus'"),
        ("run", change(verb="exec"), "the verb 'exec'"),
        ("run", change(name=7), "name is not a text"),
        ("run", change(outcome=7), "outcome is not a text"),
        ("run", change(parent=9), "9 is not there"),
        ("run", change(manifest={}), "the manifest has no package"),
        ("run", lambda line: line.pop("started"), "'started' is not there"),
        ("call", change(key="00"), ": the call's key is not that of its content; "),
        ("call", change(key="zz"), "non-hexadecimal"),
        ("call", change(component="engine"), "key is not that of its content"),
        ("call", change(turn="x"), "turn is str where it should be int"),
        ("call", change(messages=[{"role": "user", "content": 7}]), "0.content: Input should be"),
        ("call", change(messages=[{"role": "root", "content": "x"}]), "0.role: Input should be"),
        ("call", change(seconds=None), "seconds is NoneType where it should be float"),
        ("call", change(settings=99), "99 is not there"),
        ("call", change(run=99), "99 is not there"),
        ("call", change(origin=99), "99 is not there"),
        ("call", change(origin=None), "one of origin and spans without the other"),
        ("call", change(spans=[9999]), "where its values came from is damaged"),
        ("call", lambda line: line.pop("spans"), "'spans' is not there"),
        ("call", change(fault=["bored", "", None, False]), "0: Input should be 'timeout'"),
        ("call", change_in("reply", text=7), "text: Input should be a valid string (it is 7)"),
        (
            "call",
            change_in("reply", prompt_tokens="x"),
            "prompt_tokens: Input should be",
        ),
        ("turn", change(turn=7), "not that of the turn"),
        ("turn", change(row=[]), "not that of the turn"),
        ("turn", change_in("record", chains=[7]), "one of its chains is not an object"),
        ("turn", change_in("record", chains=[{"call": ["ok", [999]]}]), "999 is not there"),
        ("turn", change_in("record", chains=[{"call": ["[bold]", [1]]}]), "status and numbers"),
        ("turn", change_in("record", state=None), "it has no state"),
        ("turn", change_in("record", calls=None), "it has no calls"),
        ("turn", change_in("record", chains=[{"call": 99}]), "names the call at place 99"),
        ("turn", change(record=[]), "it is not a record of a turn"),
        ("turn", change(run=2**70), f"{2**70} is not there"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_imported(
    exported: Path, tmp_path: Path, kind: str, spoil_line: Any, message: str
) -> None:
    lines = lines_of(exported)
    number = numbered(lines, kind)
    spoil_line(lines[number - 1])
    rewrite(exported, lines)
    with Tape(tmp_path / "new.tape") as tape:
        with pytest.raises(TapeError) as failure:
            tape.import_jsonl(exported)
        assert f"runs.jsonl, line {number}: " in str(failure.value)
        assert message in str(failure.value)
        assert "nothing was imported" in str(failure.value)
        assert len(tape) == 0
        assert tape.file.query("SELECT count(*) FROM texts")[0][0] == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "Expecting property name"),
        (b"[1]", "a line is not a JSON object"),
        (b"\xff\xfe", "runs.jsonl, line 2: "),
        (b'{"kind": ' + b"[" * 200_000, "recursion"),
        (b'{"kind": ' + b"9" * 10_000 + b"}", "integer string conversion"),
        (b'{"kind": ["turn"]}', "unhashable"),
    ],
)
def test_a_line_that_is_no_json_object_is_named(
    exported: Path, tmp_path: Path, line: bytes, message: str
) -> None:
    first = exported.read_bytes().split(b"\n")[0]
    exported.write_bytes(first + b"\n" + line + b"\n")
    with (
        Tape(tmp_path / "new.tape") as tape,
        pytest.raises(TapeError, match="line 2: ") as failure,
    ):
        tape.import_jsonl(exported)
    assert message in str(failure.value)


def test_a_line_of_enormous_length_is_refused_without_being_read_whole(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_transfer, "_MAX_LINE_BYTES", 1_000)
    with (
        Tape(tmp_path / "new.tape") as tape,
        pytest.raises(TapeError, match="longer than 1,000 bytes"),
    ):
        tape.import_jsonl(exported)


def test_a_file_cut_off_is_refused(exported: Path, tmp_path: Path) -> None:
    lines = lines_of(exported)
    rewrite(exported, lines[:-1])
    with Tape(tmp_path / "new.tape") as tape, pytest.raises(TapeError) as failure:
        tape.import_jsonl(exported)
    turns = lines[0]["turn"]
    assert f"has {turns - 1} lines of the kind turn; its header says {turns}" in str(failure.value)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nothing.jsonl").touch()
    with (
        Tape(tmp_path / "new.tape") as tape,
        pytest.raises(TapeError, match="line 0: the file is empty; nothing"),
    ):
        tape.import_jsonl(tmp_path / "nothing.jsonl")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with Tape(tmp_path / "new.tape") as tape, pytest.raises(TapeError, match=r"nowhere\.jsonl"):
        tape.import_jsonl(tmp_path / "nowhere.jsonl")


def test_two_calls_of_one_key_are_refused(exported: Path, tmp_path: Path) -> None:
    lines = lines_of(exported)
    number = numbered(lines, "call")
    lines.insert(number, lines[number - 1] | {"id": 999})
    rewrite(exported, lines)
    with (
        Tape(tmp_path / "new.tape") as tape,
        pytest.raises(TapeError, match="has this key") as failure,
    ):
        tape.import_jsonl(exported)
    assert f"line {number + 1}: " in str(failure.value)


def test_a_tape_opened_for_reading_takes_no_runs(recorded: Path, exported: Path) -> None:
    with (
        Tape(recorded, read_only=True) as tape,
        pytest.raises(TapeError, match="opened for reading only"),
    ):
        tape.import_jsonl(exported)


def test_an_export_of_a_damaged_tape_fails_and_leaves_no_file(
    tape_file: Path, tmp_path: Path
) -> None:
    spoil(tape_file, "UPDATE turns SET record = '{' WHERE run = 3")
    target = tmp_path / "out.jsonl"
    with Tape(tape_file) as tape, pytest.raises(TapeError, match="turn 4 of run 3"):
        tape.export(target)
    assert not target.exists()
    assert not list(tmp_path.glob("*.part"))


def test_an_export_of_a_run_whose_parent_came_later_fails(tape_file: Path, tmp_path: Path) -> None:
    spoil(tape_file, "UPDATE runs SET parent = 3 WHERE id = 2")
    with Tape(tape_file) as tape, pytest.raises(TapeError, match=r"run 2 .* wrong parent"):
        tape.export(tmp_path / "out.jsonl", run=2)


def test_an_export_into_a_missing_folder_is_an_error(recorded: Path, tmp_path: Path) -> None:
    with (
        Tape(recorded, read_only=True) as tape,
        pytest.raises(TapeError, match=r"cannot write .*runs\.jsonl"),
    ):
        tape.export(tmp_path / "nowhere" / "runs.jsonl")


def test_a_name_that_says_no_format_is_refused(recorded: Path, tmp_path: Path) -> None:
    with (
        Tape(recorded, read_only=True) as tape,
        pytest.raises(
            ConfigError, match=r"end in \.jsonl or \.parquet; for CSV, tape\.calls_frame"
        ),
    ):
        tape.export(tmp_path / "runs.csv")


def test_parquet_holds_the_frames_of_all_runs(recorded: Path, tmp_path: Path) -> None:
    with Tape(recorded, read_only=True) as tape:
        paths = tape.export(tmp_path / "runs.parquet")
        assert [path.name for path in paths] == ["runs.calls.parquet", "runs.turns.parquet"]
        calls, turns = map(pd.read_parquet, paths)
        assert calls.groupby("run").size().to_dict() == {1: 18, 2: 18, 3: 6}
        second = turns[turns["run"] == 2].drop(columns="run").reset_index(drop=True)
        assert_frame_equal(second, tape.turns_frame(2), check_exact=True)


def test_parquet_of_runs_without_calls_is_written(tmp_path: Path) -> None:
    with Tape(tmp_path / "rule.tape") as tape:
        Simulation(make_config(), tape=tape).run(2)
        calls, turns = map(pd.read_parquet, tape.export(tmp_path / "rule.parquet"))
    assert len(calls) == 0
    assert turns["turn"].tolist() == [0, 1, 2]


def test_columns_that_fit_no_parquet_table_are_an_error(tape_file: Path, tmp_path: Path) -> None:
    spoil(tape_file, """UPDATE turns SET row = '{"turn": {"a": 1}}' WHERE run = 1 AND turn = 2""")
    with Tape(tape_file) as tape, pytest.raises(TapeError, match="turns make no Parquet table"):
        tape.export(tmp_path / "runs.parquet")


def test_parquet_without_pyarrow_says_what_to_install(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "llmsim_lab.tape._transfer.find_spec",
        lambda name: None if name == "pyarrow" else found(name),
    )
    with (
        Tape(recorded, read_only=True) as tape,
        pytest.raises(ConfigError, match=r"pip install 'llmsim-lab\[parquet\]'"),
    ):
        tape.export(tmp_path / "runs.parquet")


def test_attempts_that_failed_for_good_are_carried_over_as_such(tmp_path: Path) -> None:
    replies: list[Any] = [TimeoutError(), TimeoutError(), policy()]
    config = make_config(nations=["Aland"])
    with Tape(tmp_path / "old.tape") as old, Tape(tmp_path / "new.tape") as new:
        simulation = Simulation(config, llm_client=make_client(replies), tape=old)
        with pytest.raises(Exception, match="timeout"):
            simulation.run(1)
        with pytest.raises(Exception, match="script"):
            simulation.run(1)
        new.import_jsonl(old.export(tmp_path / "old.jsonl")[0])
        assert old.calls_frame(1)["forgotten"].tolist() == [True, True, False]
        assert_frame_equal(new.calls_frame(1), old.calls_frame(1))


def test_calls_with_tools_thinking_and_no_place_in_a_turn_are_carried_over(tmp_path: Path) -> None:
    call = ToolCall(name="look", arguments={"at": "rates"}, id="1")
    request = ChatRequest(
        model="m",
        messages=(
            Message("user", "Look."),
            Message("assistant", "", (call,)),
            Message("tool", "4", tool_name="look"),
        ),
        tools=({"type": "function", "function": {"name": "look"}},),
    )
    reply = ChatReply(text="", thinking="Hm.", tool_calls=(call,), done_reason="length")
    with Tape(tmp_path / "old.tape") as old, Tape(tmp_path / "new.tape") as new:
        Simulation(make_config(), tape=old).close()
        recorder = LiveRecorder(old, 1)
        recorder.keep_now(Attempt(request=request, reply=reply, seconds=1.5))
        recorder.close()
        assert verify(old) == []
        new.import_jsonl(old.export(tmp_path / "old.jsonl")[0])
        assert verify(new) == []
        assert new.call(1) == old.call(1)
        assert new.call(1).attempt.request == request
        assert new.call(1).attempt.reply == reply


def saying(**more: Any) -> dict[str, Any]:
    return {"role": "user", "content": "x", **more}


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([saying(tool_calls=[{"name": "look", "arguments": 7}])], "tool_calls.0.arguments: "),
        ([saying(tool_calls=[{"name": 7, "arguments": {}}])], "tool_calls.0.name: "),
        ([saying(tool_name=7)], "0.tool_name: Input should be a valid string (it is 7)"),
        ([saying(colour="red")], "0.colour: Unexpected keyword argument"),
        ([{"role": "user"}], "0.content: "),
        (7, "valid array"),
    ],
)
def test_messages_of_another_form_are_refused(
    exported: Path, tmp_path: Path, messages: Any, message: str
) -> None:
    lines = lines_of(exported)
    lines[numbered(lines, "call") - 1]["messages"] = messages
    rewrite(exported, lines)
    with Tape(tmp_path / "new.tape") as tape, pytest.raises(TapeError) as failure:
        tape.import_jsonl(exported)
    assert message in str(failure.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tools": [7]}, "tools.0: "),
        ({"schema": "x"}, "schema: "),
        ({"options": []}, "options: "),
        ({"model": None}, "model: "),
        ({"timeout_s": True}, "timeout_s: "),
        ({"think": 7}, "think.bool: "),
    ],
)
def test_settings_of_another_form_are_refused(
    exported: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    lines = lines_of(exported)
    text = lines[numbered(lines, "text") - 1]
    text["text"] = json.dumps(json.loads(text["text"]) | settings)
    text["digest"] = hashlib.sha256(text["text"].encode()).hexdigest()
    rewrite(exported, lines)
    with Tape(tmp_path / "new.tape") as tape, pytest.raises(TapeError) as failure:
        tape.import_jsonl(exported)
    assert message in str(failure.value)
