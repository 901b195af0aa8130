"""Studies of runs: playing many, finding them again, and what comes of them."""

from __future__ import annotations

import asyncio
import gc
import gzip
import math
import re
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Literal

import pandas as pd
import pytest
from builders import recorded
from crisis_kit import make_scenario
from pydantic import Field
from scipy import stats
from study_kit import (
    Basin,
    Drought,
    Water,
    Weather,
    asked,
    greedy,
    instant_client,
    kind,
    played,
    study_of,
    timeless,
)

from llmsim_lab import (
    Ask,
    Budget,
    LLMClient,
    LLMConfig,
    Question,
    Reply,
    Run,
    Simulation,
    State,
    Tape,
    fork,
    resume,
)
from llmsim_lab.context import CrisisSimulation
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import ScriptedBackend
from llmsim_lab.run.chance import chance_reply
from llmsim_lab.statechart import SocialSimulation
from llmsim_lab.study import Study
from llmsim_lab.study.estimates.parts import Spread
from llmsim_lab.study.estimates.student import at_upper_limit, smallest_detectable
from llmsim_lab.tape import verify
from llmsim_lab.types import ChatRequest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study"


# --- playing -------------------------------------------------------------------------------------


def test_each_run_is_what_the_world_itself_plays() -> None:
    study = played(study_of())
    alone = Water(factor=2.0, seed=1, turns=4, llm_client=instant_client())
    alone.run(progress=False)
    there = study.simulation("factor=2", 1)
    pd.testing.assert_frame_equal(timeless(there), timeless(alone))


def test_a_study_that_is_interrupted_says_what_is_kept_and_how_it_continues(path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    study = study_of(tape=path)
    study.listen(interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        played(study)
    assert caught.value.__notes__ == [f"All whole turns are kept in {path}; .run() plays the rest."]


def test_runs_are_played_so_many_at_once() -> None:
    study = study_of(llm_client=instant_client(pause_s=0.001))
    played(study, parallel=3)
    # Each run asks two players at once.
    assert study._setup.files.player.models.given.backend.most_at_once == 6


def test_without_a_folder_the_tapes_live_as_long_as_the_study() -> None:
    study = played(study_of())
    folder = study.tape
    assert len(files_in(folder)) == 6
    del study
    gc.collect()
    assert not folder.exists()


def test_a_study_is_continued_with_more_seeds_and_arms(path: Path) -> None:
    played(study_of(tape=path))
    more = played(study_of(tape=path, seeds=5))
    assert len(asked(more)) == 2 * 2 * 4 * 2
    whole = played(study_of(seeds=5))
    pd.testing.assert_frame_equal(more.results, whole.results)
    third = played(study_of(vary={"factor": [1.0, 2.0, 3.0]}, tape=path, name="with three"))
    assert len(asked(third)) == 3 * 4 * 2


def test_a_stopped_study_gives_what_an_undisturbed_one_gives(path: Path) -> None:
    vary = {
        "players": {"one": {"Ann": greedy}, "none": None},
        "prompt": {"new": kind, "old": None},
        "llm.temperature": [0.1, 0.9],
        "state": {"full": Basin(level=99.0), "empty": Basin(level=0.0)},
    }
    small = {"vary": vary, "seeds": 1, "turns": 2}
    first = played(study_of(**small, tape=path), budget=Budget(calls=30), parallel=16)
    stopped = study_of(**small, tape=path)
    assert stopped.counts["stopped"] > 0
    played(stopped)
    whole = played(study_of(**small))
    assert len(asked(first)) + len(asked(stopped)) == len(asked(whole))
    pd.testing.assert_frame_equal(timeless(stopped), timeless(whole))


async def test_a_cancelled_study_keeps_what_was_played(path: Path) -> None:
    study = study_of(tape=path, llm_client=instant_client(pause_s=0.001))

    def cancel() -> None:
        if study.counts["done"]:
            task.cancel()

    forget = study.listen(cancel)
    task = asyncio.create_task(study.arun(parallel=2, progress=False))
    with pytest.raises(asyncio.CancelledError):
        await task
    forget()
    assert study.counts["done"] in (1, 2)
    await study.arun(progress=False)
    assert study.counts == {"done": 6}
    assert len(asked(study)) <= 6 * 4 * 2 + 4  # what was in the air when it was cancelled


def test_a_failed_run_is_kept_with_its_error_and_the_others_are_played(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = played(study_of(Drought, tape=path))
    assert study.counts == {"done": 3, "failed": 3}
    failed = study.runs[study.runs["status"] == "failed"]
    [error] = set(failed["error"])
    assert error.startswith("RuntimeError: the basin is dry (study_kit.py, line ")
    assert study_of(Drought, tape=path).runs["error"].tolist() == study.runs["error"].tolist()
    assert set(failed["turns"]) == {2}
    assert "STUDY_RUN_FAILED" in caplog.text
    assert "turns_played=2" in caplog.text
    assert "3 failed: RuntimeError: the basin is dry" in str(study)
    valued = study.results.groupby("arm")["value"].count().to_dict()
    assert valued == {"factor=1": 3 * 4, "factor=2": 0}
    monkeypatch.setattr(Weather, "dry", False)
    before = len(asked(study))
    assert played(study).counts == {"done": 6}
    assert len(asked(study)) - before == 3 * 2 * 2  # the two turns that each lacked


class Faulty(Water):
    async def turn(self, state: Basin, ask: Ask) -> Basin:
        faults = {0: "dry", 1: "dry", 2: "dry", 3: "m" * 300, 4: "m" * 300, 5: "cold", 6: "dark"}
        raise ValueError(faults[self.seed])


def test_a_study_says_in_lines_and_in_a_table_what_became_of_its_runs() -> None:
    study = played(study_of(Faulty, seeds=7))
    first, *lines = str(study).splitlines()
    assert first == "Faulty: 2 arms, 7 seeds: 14 failed"
    # The most frequent of the faults, each once and in few words.
    assert [line[:27] for line in lines] == [
        "  6 failed: ValueError: dry",
        "  4 failed: ValueError: mmm",
        "  2 failed: ValueError: col",
    ]
    assert len(lines[1]) == len("  4 failed: ") + 200
    heads, rows = played(study_of(Drought)).arms_rows()
    assert heads == ["arm", "factor", "done", "running", "failed", "stopped", "left"]
    assert rows == [["factor=1", "1", 3, 0, 0, 0, 0], ["factor=2", "2", 0, 0, 3, 0, 0]]


def test_a_run_that_is_played_again_is_running_without_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = played(study_of(Drought, seeds=1))
    monkeypatch.setattr(Weather, "dry", False)
    seen: list[tuple[str, int, str]] = []

    def look() -> None:
        [_, run] = study.progress()
        seen.append((run.status, run.turns, run.error))

    study.listen(look)
    played(study)
    assert seen[0] == ("running", 2, "")
    assert {status for status, *_ in seen} == {"running", "done"}
    assert seen[-1] == ("done", 4, "")


@pytest.mark.parametrize("itself", [True, False])
async def test_in_one_folder_one_study_is_played_at_once(path: Path, itself: bool) -> None:
    one, other = (study_of(tape=path, llm_client=instant_client(pause_s=0.001)) for _ in range(2))
    first = asyncio.create_task(one.arun(progress=False))
    await asyncio.sleep(0)
    second, who = (one, "this study") if itself else (other, "another Study")
    with pytest.raises(ConfigError, match=f"{who} is being played"):
        await second.arun(progress=False)
    assert one.running
    await first
    await second.arun(progress=False)
    assert second.counts == {"done": 6}
    assert len(files_in(path)) == 6


def test_a_study_of_which_a_run_is_open_elsewhere_says_so_of_that_run(path: Path) -> None:
    played(study_of(tape=path), budget=Budget(calls=4))
    begun = study_of(tape=path)
    held = resume(begun.tape_of("factor=1", 0), llm_client=instant_client())
    study = played(study_of(tape=path))
    assert study.counts == {"done": 5, "failed": 1}
    assert "recorded by another simulation" in str(study.runs["error"].tolist())
    held.close()
    assert len(study.results) == 5 * 4 + 1  # a failed run has one row
    assert played(study).counts == {"done": 6}
    assert len(study.results) == 6 * 4


@pytest.mark.process
def test_finished_runs_on_a_tape_are_let_go(path: Path) -> None:
    def alive() -> int:
        gc.collect()
        return sum(type(it) is Water for it in gc.get_objects())

    before = alive()  # what tests before this one have left
    study = played(study_of(tape=path, seeds=4), parallel=2)
    study.effects()
    assert alive() <= before + 3  # those on trial


# --- the tape ------------------------------------------------------------------------------------


def files_in(path: Path) -> list[str]:
    """The names of a folder's files, with N for each digest."""
    return sorted(re.sub("-[0-9a-f]{16}", "-N", file.name) for file in path.glob("[!.]*"))


def test_each_run_has_a_file_that_names_arm_and_seed(path: Path) -> None:
    study = played(study_of(tape=path))
    assert files_in(path) == sorted(
        f"{arm}_seed{seed}-N.tape" for arm in ("factor=1", "factor=2") for seed in range(3)
    )
    with Tape(study.tape_of("factor=2", 1), read_only=True) as tape:
        assert [info.name for info in tape.runs()] == ["factor=2, seed 1"]
        assert verify(tape) == []
    assert study.runs["tape"].tolist()[4] == study.tape_of("factor=2", 1).name


def test_labels_become_names_that_every_file_system_takes(path: Path) -> None:
    labels = {"a/b": "1", "a\\b": "2", "CON: *?": "3", "é" * 200: "4", "..": "5"}
    played(study_of(vary={"taste": labels}, seeds=1, turns=1, tape=path))
    assert study_of(vary={"taste": labels}, seeds=1, turns=1, tape=path).counts == {"done": 5}
    names = [file.name for file in path.glob("*.tape")]
    assert len({name.lower() for name in names}) == 5
    assert all(re.fullmatch(r"[\w.=+-]+", name) and len(name) < 100 for name in names)


class Drained(Water):
    def done(self, state: Basin) -> bool:
        return state.level > 6


def test_a_run_that_ended_by_itself_is_done_and_one_that_was_played_by_hand_is_not(
    path: Path,
) -> None:
    early = played(study_of(Drained, tape=path, seeds=10))
    turns = early.runs["turns"].tolist()
    assert min(turns) < 4
    again = study_of(Drained, tape=path, seeds=10)
    assert again.counts == {"done": 20}
    assert again.runs["turns"].tolist() == turns

    started = study_of(tape=path)
    played(started, budget=Budget(calls=9), parallel=6)
    assert started.counts["stopped"] == 6
    recorded(resume(started.tape_of("factor=1", 0), llm_client=instant_client()), 1)
    assert study_of(tape=path).counts == {"stopped": 6}


def test_a_file_that_was_changed_or_is_another_runs_does_not_count(path: Path) -> None:
    study = played(study_of(tape=path))
    [first, second, *_] = sorted(path.glob("*.tape"))
    second.write_bytes(first.read_bytes())
    first.write_bytes(first.read_bytes().replace(b'"seconds":', b'"seconds":1', 1))
    again = study_of(tape=path)
    assert again.counts == {"done": 4, "failed": 2}
    told = " ".join(map(str, again.runs["error"]))
    assert "was changed since it was recorded; delete it, and the run is played again" in told
    assert "is not of arm " in told
    assert played(again).counts == {"done": 4, "failed": 2}
    first.unlink()
    second.unlink()
    assert played(study_of(tape=path)).counts == {"done": 6} == study.counts


def test_a_fork_that_was_added_to_a_runs_tape_is_not_the_studys_run(path: Path) -> None:
    study = played(study_of(tape=path))
    before = timeless(study)
    other = fork(study.tape_of("factor=1", 0), 1, turn=2, llm_client=instant_client())
    other.run(1, progress=False)
    again = study_of(tape=path)
    assert again.counts == {"done": 6}
    pd.testing.assert_frame_equal(timeless(again), before)
    assert again.simulation("factor=1", 0).turn_number == 4


@pytest.mark.parametrize(
    "changed",
    [{"turns": 5}, {"taste": "fine"}, {"vary": {"factor": {"factor=1": 1.5, "factor=2": 3.0}}}],
    ids=["turns", "what is fixed", "a level with the old label"],
)
def test_what_has_changed_is_played_anew_beside_what_is_there(changed: Any, path: Path) -> None:
    first = played(study_of(tape=path)).to_frame()
    other = study_of(tape=path, **changed)
    assert other.counts == {"left": 6}
    assert "6 left, 6 tapes of other settings, seeds or code not counted" in repr(other)
    played(other)
    assert len(list(path.glob("*.tape"))) == 12
    pd.testing.assert_frame_equal(study_of(tape=path).to_frame(), first)


def test_a_run_that_was_killed_before_its_first_line_is_begun_again(path: Path) -> None:
    study = played(study_of(tape=path))
    for arm, content in (("factor=1", b""), ("factor=2", None)):
        file = study.tape_of(arm, 0)
        first = file.read_bytes().splitlines(keepends=True)[0]
        file.write_bytes(first if content is None else content)
    again = study_of(tape=path)
    assert again.counts == {"done": 4, "left": 2}
    assert again.runs["tape"].tolist().count("") == 2
    pd.testing.assert_frame_equal(played(again).results, played(study_of()).results)


@pytest.mark.parametrize("place", ["notes", "notes/study"])
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "notes").write_text("mine")
    study = study_of(tape=tmp_path / place)
    with pytest.raises(ConfigError, match=f"cannot play in {tmp_path}.* or it is no folder to wr"):
        played(study)
    assert (tmp_path / "notes").read_text() == "mine"


# --- outcomes and effects ------------------------------------------------------------------------


def test_results_are_one_long_table() -> None:
    study = played(study_of(outcome=["level", "shares.Ann@last"]))
    table = study.results
    assert " ".join(table) == "arm factor unit run wording replicate turn outcome value"
    level = table.query("outcome == 'level' and arm == 'factor=2'")
    places = [[seed, turn] for seed in range(3) for turn in range(1, 5)]
    assert level[["unit", "turn"]].to_numpy().tolist() == places
    frame = study.to_frame()
    played_turns = frame.query("arm == 'factor=2' and turn > 0")
    assert level["value"].tolist() == played_turns["level"].tolist()
    last = table[table["outcome"] == "shares.Ann@last"]
    assert (last["turn"] == 4).all()
    assert last["value"].tolist() == frame.query("turn == 4")["shares.Ann"].tolist()
    effect, values = study.effects()[0], frame.query("turn > 0").groupby("arm")["level"].mean()
    assert effect.value == pytest.approx(values["factor=2"] - values["factor=1"])
    assert (effect.n, effect.generalises_to) == (3, "new runs")


class Measured(Water):
    @classmethod
    def measures(cls, config: Any) -> Any:
        return {"swing": lambda frame: frame["level"].max() / config.factor}


def test_a_world_names_its_own_measures() -> None:
    study = played(study_of(Measured, outcome="swing"))
    levels = study.simulation("factor=2", 0).to_frame()["level"]
    assert study.results["value"][3] == levels.max() / 2


def test_an_outcome_that_no_run_has_is_named_and_another_is_read_from_the_same_runs(
    path: Path,
) -> None:
    study = played(study_of(outcome="shares.An", tape=path))
    with pytest.raises(ConfigError, match=r"did you mean 'shares\.Ann'"):
        study.effects()
    assert len(study_of(outcome="shares.Ann", tape=path).results) == 6 * 4


class Empty(State):
    held: dict[str, float] = Field(default_factory=dict)


class Filling(Run[Empty]):
    async def turn(self, state: Empty, ask: Ask) -> Empty:
        return state.replace(held={"Ann": float(ask.turn)})


class Talk(State):
    words: str = ""


class Talking(Run[Talk]):
    async def turn(self, state: Talk, ask: Ask) -> Talk:
        return state.replace(words=f"turn {ask.turn}")


def test_a_study_without_an_outcome_has_frames_and_asks_for_one() -> None:
    study = played(study_of(Filling, {}, outcome=None, players="random"))
    assert study.to_frame()["held.Ann"].max() == 4
    with pytest.raises(ConfigError, match="say what is compared"):
        study.effects()
    filled = played(study_of(Filling, {}, outcome="held.Ann@last"))
    assert filled.results["value"].tolist() == [4, 4, 4]
    itself = [("base", "base")]
    for compare in (
        lambda: filled.effects(contrasts=itself),
        lambda: filled.compared(contrasts=itself, outcome="held.Ann@last"),
        lambda: filled.by_turn("held.Ann", "base", "base"),
    ):
        with pytest.raises(ConfigError, match="'base' is compared with itself"):
            compare()
    with pytest.raises(ConfigError, match="there is no outcome 'nope'"):
        filled.compared(contrasts=[], outcome="nope")
    for no_pairs in ([("base",)], "base", ["ab"], [7]):
        with pytest.raises(ConfigError, match="list of pairs of arms"):
            filled.effects(contrasts=no_pairs)
    for sesoi, message in {
        "lss": "sesoi: outcome 'lss' is unknown; there are held.Ann@last",
        -1: "sesoi=-1 must be a finite number from 0 on",
        math.nan: "sesoi=nan must be a finite number",
    }.items():
        with pytest.raises(ConfigError, match=message):
            filled.effects(sesoi={sesoi: 1} if isinstance(sesoi, str) else sesoi)
    with pytest.raises(ConfigError, match="sesoi=-1 must be a finite number from 0 on"):
        filled.effects(sesoi={"held.Ann@last": -1})
    filled.effects(sesoi={"held.Ann@last": None})
    filled.effects(sesoi={"held.Ann@last": 0})


def test_a_difference_in_percent_is_in_points_and_one_in_an_index_in_the_index() -> None:
    outcomes = ["inflation", "total_economic_value@last", "loss"]
    study = Study(Simulation, {"replicate": [0, 1]}, seeds=1, outcome=outcomes, players="rule")
    assert [study.in_unit(outcome) for outcome in outcomes] == ["points", "index", ""]
    with pytest.raises(ConfigError, match=r"^say what is compared: outcome='level', or a function"):
        study_of(outcome=[]).effects()


def test_chance_alone_takes_a_second_draw_of_each_run_and_says_what_that_costs() -> None:
    study = played(study_of())
    message = (
        r"^noise=True compares two draws of each run, and here each was drawn once; "
        r"vary=\{'replicate': \[0, 1\], \.\.\.\} draws them again: 6 more runs, about 48 calls$"
    )
    with pytest.raises(ConfigError, match=message):
        study.effects(noise=True)
    with pytest.raises(ConfigError, match="only replicate is varied here, so effects"):
        study_of(vary={"replicate": [0, 1]}).effects(noise=True)
    with pytest.raises(ConfigError, match="here each was drawn once"):
        study_of(vary={"factor": [1.0, 2.0], "replicate": [7]}).effects(noise=True)
    both = played(study_of(vary={"factor": [1.0, 2.0], "replicate": [0, 1]}, turns=1))
    effect, chance = both.effects(noise=True)
    assert effect.contrast == "factor=2 \N{MINUS SIGN} factor=1"
    assert str(chance).startswith(f"{effect.contrast}, by chance alone: ")
    table = both.results.groupby(["factor"])["value"].mean()
    assert effect.value == pytest.approx(table[2.0] - table[1.0])


# --- looking before all is played -----------------------------------------------------------------


def test_effects_while_runs_are_left_are_shown_on_demand_and_say_so(path: Path) -> None:
    study = study_of(tape=path, seeds=10)
    played(study, budget=Budget(calls=80), parallel=1)
    assert study.effects().label.startswith("10 of 20 runs so far")
    assert "factor=2 " not in str(study)
    assert "runs so far" not in study._repr_html_()
    plan = study.plan()
    assert (plan.left, plan.done, plan.calls) == (10, 10, 10 * 4 * 2)
    assert "the mean of the turns so far" in str(plan)
    assert played(study_of(tape=path, seeds=10)).effects().label == ""


# --- frames, charts and what is shown ------------------------------------------------------------


def test_the_frame_has_a_row_a_turn_of_each_complete_run() -> None:
    study = played(study_of(), budget=Budget(calls=21), parallel=2)
    assert len(study.to_frame()) == study.counts["done"] * 5
    assert list(study.to_frame())[:3] == ["arm", "factor", "unit"]
    assert study.plan().turns == 24 - int(study.runs["turns"].sum())


def test_arrays_are_made_of_the_results() -> None:
    study = played(study_of())
    data = study.to_xarray()
    assert data["level"].dims == ("arm", "unit", "wording", "replicate", "turn")
    assert data["arm"].values.tolist() == ["factor=1", "factor=2"]
    there = study.simulation("factor=2", 1).state
    assert data["level"].sel(arm="factor=2", unit=1, turn=4).item() == there.level
    assert data["factor"].sel(arm="factor=2").item() == 2


def test_a_curve_is_of_the_column_where_an_outcome_is_its_last_value() -> None:
    study = played(study_of(outcome={"level": "level@last", "rain": lambda run: 1.0}))
    assert list(study.by_turn("level")["turn"]) == [1, 2, 3, 4]
    pd.testing.assert_frame_equal(study.by_turn("level"), played(study_of()).by_turn("level"))
    with pytest.raises(ConfigError, match="is one number a run, and a curve takes a column"):
        study.by_turn("rain")
    starts = {"state": {"silent": Talk(), "loud": Talk(words="Hey")}}
    wordy = played(study_of(Talking, starts, outcome={"rain": lambda run: 1.0}, players="random"))
    with pytest.raises(ConfigError, match="a column of numbers; this world has none"):
        wordy.by_turn("rain")


def test_main_effects_are_named_by_the_levels_labels() -> None:
    vary = {"factor": {"dry": 1.0, "wet": 2.0}, "taste": ["plain", "fine"]}
    study = study_of(vary=vary)
    with pytest.raises(ConfigError, match=r"has no ~ .* write 'level ~ factor \* taste'"):
        study.effects("level")
    [effect] = played(study).effects("~ factor")
    assert effect.contrast == "factor=wet \N{MINUS SIGN} factor=dry"


def test_what_listens_to_a_study_is_called_when_it_has_ended_too() -> None:
    study = study_of(seeds=1)
    is_playing: list[bool] = []
    study.listen(lambda: is_playing.append(study.running))
    played(study)
    assert is_playing[0]
    assert is_playing[-1] is False


def test_a_plan_s_spread_is_of_conditions_not_of_draws_of_the_reference() -> None:
    study = played(study_of(vary={"factor": [1.0, 2.0], "replicate": [0, 1]}))
    by_chance, *conditions = study.effects()
    assert by_chance.contrast == "factor=1 · replicate=1 \N{MINUS SIGN} factor=1 · replicate=0"
    reach = [(one.high - one.low) / 2 for one in conditions if one.low and one.high]
    variance = fmean((half / stats.t.ppf(0.975, 2)) ** 2 for half in reach)
    spread = at_upper_limit(Spread(variance, 2))
    seen = study.plan().detectable["level"]
    assert seen.value == pytest.approx(smallest_detectable([spread], alpha=0.05 / 3))


def test_the_difference_by_turn_is_that_of_the_means() -> None:
    study = played(study_of(seeds=5, outcome="shares.Ann"))
    curve = study.by_turn("level")
    wide = study.to_frame().pivot_table(index="turn", columns="arm", values="level")
    apart = (wide["factor=2"] - wide["factor=1"])[1:]
    assert curve["turn"].tolist() == [1, 2, 3, 4]
    assert curve["estimate"].tolist() == pytest.approx(apart.tolist())
    with pytest.raises(ConfigError, match=r"say which arm: by_turn\('level', 'factor=2'\)"):
        study_of(vary={"factor": [1.0, 2.0, 3.0]}).by_turn("level")
    with pytest.raises(ConfigError, match=r"^there is no arm to compare with 'factor=1'$"):
        study_of(vary={"factor": [1.0]}).by_turn("level")
    turned = study.by_turn("level", "factor=1", "factor=2")
    assert turned["estimate"].tolist() == pytest.approx((-apart).tolist())
    for level in (0.4999, 0.99991):
        with pytest.raises(ConfigError, match="level"):
            study.by_turn("level", level=level)
    assert len(study.by_turn("level", level=0.5)) == len(study.by_turn("level", level=0.9999)) == 4


def test_a_study_that_is_watched_updates_its_table_and_shows_a_chart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []

    class Handle:
        def __init__(self, view: Any) -> None:
            self.update(view)

        def update(self, view: Any) -> None:
            shown.append(getattr(view, "alt", "") or view._repr_html_())

    study = study_of()
    study.watch()  # outside a notebook it is printed once
    monkeypatch.setattr("IPython.display.display", lambda view, **_: Handle(view))
    study.watch()
    assert "6 left" in shown[-1]
    assert "factor=2" in shown[-1]
    played(study)
    assert "2 arms, 3 seeds: 6 done" in shown[-2]
    assert f"\n{study.effects()}" in str(study)
    assert "factor=2" in shown[-1]
    assert capsys.readouterr().out.count("6 left") == 1


def test_a_chart_has_a_point_a_run_and_turns_where_there_are_any_or_a_difference() -> None:
    study = played(study_of(outcome={"asked": lambda run: len(run.calls), "level": "level"}))
    calls, level = map(study.chart, ("asked", "level"))
    assert "factor=2: mean 8 of 3" in getattr(calls, "alt", "")
    assert [len(figure.axes) for figure in (calls, level)] == [2, 3]
    difference = study.chart("level", "factor=2")
    said = "factor=2 \N{MINUS SIGN} factor=1, level by turn: largest at turn"
    assert getattr(difference, "alt", "").startswith(said)


def test_a_complete_studys_tapes_may_be_packed(path: Path) -> None:
    results = played(study_of(tape=path)).results
    for file in list(path.glob("*.tape")):
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    study = study_of(tape=path)
    assert study.counts == {"done": 6}
    assert study.results.equals(results)
    assert study.simulation("factor=2", 1).turn_number == 4
    assert asked(played(study)) == []


def test_a_design_is_replaced_in_part_and_keeps_the_rest(path: Path) -> None:
    study = study_of(seeds=[2, 5], turns=3, outcome={"it": "level"}, name="basins", tape=path)
    same = study.replace()
    assert (same.units, same.tape, same.name) == ([2, 5], path, "basins")
    assert (same.outcome, list(same.arms)) == ({"it": "level"}, list(study.arms))
    assert same.runs["tape"].tolist() == study.runs["tape"].tolist()
    other = study.replace(seeds=3, players="rule", tape=path / "more")
    assert (other.units, other.tape) == ([0, 1, 2], path / "more")
    played(other)
    assert other.simulation("factor=1", 2).turn_number == 3
    assert asked(other) == []
    # A folder that goes with its study is no other's.
    lone = study_of()
    assert lone.replace().tape != lone.tape
    varied = study_of(vary={"players": ["rule", "random"]})
    assert varied.replace(seeds=1).units == [0]
    with pytest.raises(ConfigError, match=r"^players='rule' cannot replace what is varied: vary="):
        varied.replace(players="rule")


@pytest.mark.parametrize(("arm", "unit"), [("factor=3", 2), ("factor=2", 3)])
def test_a_run_that_is_not_there_is_refused_by_what_is_wrong(arm: str, unit: int) -> None:
    what = f"^there is no arm '{arm}' with a unit {unit}; arms are factor=1, factor=2; units .2, 5"
    with pytest.raises(ConfigError, match=what):
        study_of(seeds=[2, 5]).simulation(arm, unit)


@pytest.mark.parametrize("only", [("factor=1", 0), "factor=1", 3, [("factor=1",)], [(1, 0)]])
def test_runs_that_are_no_pairs_of_an_arm_and_a_unit_are_refused(only: Any) -> None:
    with pytest.raises(ConfigError, match=r"must be a list of runs, .* only=\[\('factor=1', 0\)\]"):
        played(study_of(), only=only)
    with pytest.raises(ConfigError, match="no run of arm 'factor=1' with seed True"):
        played(study_of(), only=[("factor=1", True)])


# --- plans ---------------------------------------------------------------------------------------


def test_before_anything_was_played_calls_are_counted_without_asking_anyone() -> None:
    study = study_of()
    plan = study.plan()
    assert (plan.left, plan.turns, plan.calls, plan.hours) == (6, 24, 48, None)
    assert "Smallest detectable difference in level: not yet known" in str(plan)
    assert asked(study) == []
    broken = str(study_of(Broken).plan())
    assert "a turn that chance answered failed: ValueError: 1 / 0" in broken


class Vote(Reply):
    side: Literal["raise", "hold", "cut"]


class Council(Run[Basin]):
    """Asks one kind of question after another, and Dee once more each turn."""

    decide: Any = "sample"

    async def turn(self, state: Basin, ask: Ask) -> Basin:
        members = ["Ann", "Bob", "Cy"]
        await ask.each(members, Vote, "You are {{ name }}.", decide=self.decide, tag="vote")
        await ask.each(members, Vote, "In {{ turn }}?", decide=self.decide, tag="alike")
        for name in members:
            await ask(name, Vote, "Is {{ name }} right?", by="judge", tag="judged")
        for number in range(ask.turn):
            await ask("Dee", Vote, f"Number {number}?", fallback={"side": "cut"})
        return state

    def rule(self, question: Question) -> Vote:
        return Vote(side="hold")


def by_chance(*, probabilities: bool = True) -> LLMClient:
    backend = ScriptedBackend(partial(chance_reply, rng=Random(1)))
    backend.max_top_logprobs = 100 if probabilities else 0
    return LLMClient(LLMConfig(model="m", retry_wait_s=0), backend)


async def asks_by_itself(question: Question) -> Any:
    return await question.put_to(by_chance(), "What now?")


@pytest.mark.parametrize(
    ("world", "more", "calls"),
    [
        (Simulation, {}, 3),
        (Simulation, {"decide": "sample"}, 3 * 17),
        (Simulation, {"decide": "mode", "llm_client": by_chance(probabilities=False)}, 3 * 103),
        (Simulation, {"moves_bp": None, "nations": ["Ann", "Bob"]}, 3 * 2 * 3),
        (Simulation, {"moves_bp": None, "players": {"validator": "rule"}}, 3 * 2),
        (SocialSimulation, {"players": {"writer": "rule"}}, 3),
        (CrisisSimulation, {"scenario": make_scenario()}, 3 * 3),
        (Council, {}, 3 * (9 + 3 + 3) + 1 + 2 + 3),
        (Council, {"vary": {"decide": ["sample", None]}}, 3 * (15 + 9) + 2 * (1 + 2 + 3)),
        (Council, {"players": {"Dee": "rule", "judge": "random", "Ann": by_chance()}}, 3 * 15),
        (Council, {"players": {"Dee": asks_by_itself}}, 3 * 15 + 1 + 2 + 3),
    ],
)
def test_a_plan_counts_the_calls_that_are_made(world: Any, more: Any, calls: int) -> None:
    settings = {"vary": {"replicate": [0]}, "llm_client": by_chance(), "seeds": 1, "turns": 3}
    study = Study(world, **(settings | more))
    plan = study.plan()
    played(study)
    made = sum(len(study.simulation(arm, 0).calls) for arm in study.arms)
    assert (plan.calls, made) == (calls, calls)


def test_a_plan_takes_no_waiting_for_runs_that_are_played_beside_for_a_runs_own_time() -> None:
    async def answers(request: ChatRequest) -> Any:
        await asyncio.sleep(0.002)
        return chance_reply(request, Random(1))

    client = LLMClient(LLMConfig(model="m", max_concurrency=1), ScriptedBackend(answers))
    settings = {"vary": {"factor": [1.0]}, "llm_client": client}
    pilot = played(study_of(seeds=2, **settings), parallel=2)
    turns = [turn for unit in (0, 1) for turn in pilot.simulation("factor=1", unit).turns[1:]]
    asked_s = sum(call.seconds for turn in turns for call in turn.calls)
    hours = study_of(seeds=4, **settings).plan(pilot).hours
    assert hours == pytest.approx(2 * asked_s / 3600)
    assert asked_s < sum(turn.seconds for turn in turns) * 0.75


class Broken(Water):
    async def turn(self, state: Basin, ask: Ask) -> Basin:
        raise ValueError("1 / 0")


def test_a_pilot_tells_cost_and_power() -> None:
    pilot = played(study_of(seeds=4))
    plan, own = study_of(seeds=30).plan(pilot), pilot.plan()
    assert plan.calls == 60 * 4 * 2
    assert 0 < (plan.smallest["level"] or 0) < (own.smallest["level"] or 0)
    assert "with 30 runs and power .8" in str(plan)
    assert str(own).startswith("0 runs to play (8 done already), 0 turns in all.")


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [lambda run: 1 / run.seed, lambda run: run.calls])
def test_an_outcome_that_fails_says_of_which_run_and_the_study_is_still_shown(outcome: Any) -> None:
    study = played(study_of(outcome={"it": outcome}))
    with pytest.raises(ConfigError, match=r"'it' fails for arm 'factor=1', seed 0: .* a number or"):
        study.effects()
    assert "fails for arm" in study._repr_html_()


@pytest.mark.parametrize("level", [95, 0.4999, 0.99991, math.nan, ".9"])
def test_a_level_that_is_not_a_share_raises(level: Any) -> None:
    with pytest.raises(ConfigError, match="level"):
        study_of().effects(level=level)


def test_factors_called_arm_or_seed_do_not_take_the_places_of_the_columns() -> None:
    class Named(Water):
        arm: str = "left"
        status: float = 0.0

    study = played(study_of(Named, {"arm": ["left", "right"], "status": [1.0, 2.0]}))
    arms = ["left · status=1", "left · status=2", "right · status=1", "right · status=2"]
    for frame in (study.to_frame(), study.runs):
        assert list(frame["arm"].unique()) == arms
        assert list(frame["factor arm"].unique()) == ["left", "right"]
    assert list(study.runs["status"].unique()) == ["done"]
    assert list(study.runs["factor status"].unique()) == [1.0, 2.0]
    assert study.factors == ["factor arm", "status"]


def test_runs_that_other_code_played_are_played_anew_and_named(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(study_of(tape=path))

    async def turn(self: Any, state: Any, ask: Ask) -> Any:
        return state.replace(level=state.level + 100)

    monkeypatch.setattr(Water, "turn", turn)
    study = study_of(tape=path, seeds=5)
    assert study.counts == {"left": 10}
    assert "6 tapes of other settings, seeds or code not counted" in str(study)
    assert min(played(study).results["value"]) > 100
    assert "OTHER_RUNS" in caplog.text


def test_a_pilot_without_the_reference_is_named_in_the_plan() -> None:
    pilot = played(study_of(vary={"factor": [3.0, 4.0]}))
    text = str(study_of().plan(pilot=pilot))
    assert "level: not known: the pilot has no arm 'factor=1', the reference." in text


def test_a_curve_of_an_arm_that_no_run_has_played_says_what_plays_it() -> None:
    with pytest.raises(ConfigError, match=r"arm 'factor=2' has no run with 'level' yet; study.run"):
        study_of().by_turn("level")
