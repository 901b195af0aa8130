"""Worlds of one's own on the command line: run from their file, replayed, forked, looked at."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from cli_kit import Run, fails, succeeds

from llmsim_lab import Tape

RULED = """
from pathlib import Path

from llmsim_lab import Run, State
from pot import Gift, PublicGoods


class Ruled(PublicGoods):
    bonus: int = 0

    def rule(self, question):
        return Gift(amount=3)


class Solo(State):
    coins: float = 20.0


class Early(Run[Solo]):
    async def turn(self, state, ask):
        ask.note(**{f"at_{state.coins:.0f}": 7})
        return Solo(coins=1.0)


class Failing(PublicGoods):
    async def turn(self, state, ask):
        return 1 / (state.coins["Ann"] - 20)


if __name__ == "__main__":
    Path("ran").touch()
"""


@pytest.fixture(autouse=True)
def _ruled(lab: Run) -> None:
    Path("ruled.py").write_text(RULED)


def turns(folder: str) -> pd.DataFrame:
    return pd.read_csv(f"out/{folder}/turns.csv")


# --- run ---------------------------------------------------------------------------------------


def test_a_world_is_played_by_chance_with_its_parameters_and_recorded(lab: Run) -> None:
    Path("p.yaml").write_text("factor: 2\nllm: {seed: 4}\n")
    out = succeeds(
        lab,
        *("run", "pot.py:PublicGoods", "--config", "p.yaml", "--model", "random", "--turns", "3"),
        *("--tape", "t.tape"),
    )
    assert "coins.Ann" in out
    assert "recorded as run 1 of t.tape" in out
    assert turns("run")["turn"].tolist() == [0, 1, 2, 3]
    written = {line.strip() for line in Path("out/run/config.yaml").read_text().splitlines()}
    assert {"factor: 2.0", "'*': random", "seed: 4"} <= written


RUN = ("run", "pot.py", "--model", "random", "--turns", "1")


@pytest.mark.posix
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ((*RUN, "--out", "."), "config.yaml"),
        ((*RUN, "--out", "."), ".made-from"),
        (("demo", "--out", "."), "turns.csv"),
        (("demo", "--no-live", "--out", "."), "demo.png"),
        (("people", "--model", "random", "--out", "."), "people.csv"),
        (("grade", "mine", "--out", "."), "pages"),
        (("tournament", ".", "--world", "pot.py", "--out", "."), "matches"),
        (("lesson", "mine.ipynb", "--to", "."), "student"),
        (("study", "mine.yaml", "report"), "mine.html"),
    ],
)
def test_results_replace_no_file_of_a_user_and_are_not_written_through_links(
    lab: Run, command: tuple[str, ...], name: str
) -> None:
    Path("mine").mkdir()
    Path("mine.yaml").write_text("world: economic\n")
    Path(name).write_text("mine")
    assert re.search(rf"{name} (is there already|does not say)", fails(lab, *command))
    Path(name).rename("mine/own")
    Path(name).symlink_to("mine/own")
    assert f"{name} is a link, and results would be written where" in fails(lab, *command)
    Path(name).unlink()
    Path(name).mkdir()
    (Path(name) / "x").symlink_to("../mine/own")
    assert re.search("x is a link|cannot read", fails(lab, *command))
    (Path(name) / "x").unlink()
    os.mkfifo(Path(name) / "x")
    assert re.search("x is a pipe|cannot read", fails(lab, *command))
    assert Path("mine/own").read_text() == "mine"


def test_results_of_a_run_are_replaced_by_the_next_but_not_the_one_that_is_played(lab: Run) -> None:
    for _ in range(2):
        succeeds(lab, *RUN, "--out", "here")
    again = ("run", "pot.py", "--config", "here/config.yaml", "--out", "here")
    assert "here/config.yaml describes this run" in fails(lab, *again)


def test_a_world_is_played_by_its_rule_and_the_file_run_as_an_import(lab: Run) -> None:
    succeeds(lab, "run", "ruled.py:Ruled", "--model", "rule", "--turns", "1")
    assert turns("run")["given.Ann"].tolist()[1] == 3
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ruled.py",), "has 3 worlds, Ruled, Early, Failing; say which: ruled.py:Ruled"),
        (
            ("pot.py:PublicGood",),
            "has no world 'PublicGood' (did you mean 'PublicGoods'?); it has Pu",
        ),
        (("pot.py:Nothing",), "pot.py has no world 'Nothing'; it has PublicGoods"),
        (("empty.py",), "empty.py has no world: a class derived from Run"),
        (("ends.py",), "ends.py ends the program while it is imported; put that below if __na"),
        (("pot.txt",), "cannot read the configuration pot.txt"),
        (("pot.py", "--set", "facter=2"), "no parameter 'facter' (did you mean 'factor'?); it has"),
        (("pot.py", "--set", "coins.An=2"), "has nothing called 'coins.An' (did you mean 'coins.A"),
        (("pot.py", "--set", "factor=x"), "--set factor='x': factor: Input should be a valid num"),
        (("pot.py", "--set", "factor"), "'factor' is not a name and a value, like --set"),
        (("pot.py", "--set", "factor=2", "--set", "factor=3"), "--set factor is there twice"),
        (
            ("pot.py", "--set", "players=rule", "--set", "coins.Ann=2"),
            "PublicGoods has no rule; define def rule",
        ),
        (("none.py",), "there is no file none.py"),
        (("broken.py",), "broken.py cannot be imported: '(' was never closed"),
        (("csv.py",), "csv.py has the name of another module"),
        (("taken.py",), "taken.py, line 2: Taken.turns: the name 'turns' is taken"),
        (("pot.py", "--config", "wrong.yaml"), "wrong.yaml, line 2: factr: unknown key; known"),
        (
            ("pot.py", "--model", "randm"),
            "--model randm is neither a model nor a player (did you mean 'random'?)",
        ),
        (("wrong.yaml", "--config", "wrong.yaml"), "wrong.yaml is a configuration itself"),
        (("kind.yaml",), "kind.yaml, line 1: kind: no kind of simulation is called 'ran.py:P"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    lab: Run, arguments: tuple[str, ...], message: str
) -> None:
    Path("empty.py").write_text("x = 1\n")
    Path("ends.py").write_text("raise SystemExit(0)\n")
    Path("csv.py").write_text("x = 1\n")
    Path("taken.py").write_text("from pot import PublicGoods\nclass Taken(PublicGoods): turns = 3")
    Path("broken.py").write_text("x = (\n")
    Path("wrong.yaml").write_text("turns: 1\nfactr: 2\n")
    Path("kind.yaml").write_text("kind: ran.py:PublicGoods\n")
    Path("ran.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    err = fails(lab, "run", *arguments)
    assert not Path("ran").exists()
    assert message in err
    assert "Traceback" not in err


def test_an_error_in_the_code_is_raised_as_it_is_once_what_was_played_is_written(lab: Run) -> None:
    with pytest.raises(ZeroDivisionError):
        lab("run", "ruled.py:Failing", "--model", "random", "--tape", "t.tape")
    assert turns("run")["turn"].tolist() == [0]


# --- people ------------------------------------------------------------------------------------


def test_a_person_is_asked_for_the_fields_of_the_reply_and_it_is_replayed(
    lab: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("p.yaml").write_text("turns: 1\nplayers: {Bob: person}\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("I like them.\n2.5\n30\n1,000\n7\n0,8\n"))
    arguments = ("--config", "p.yaml", "--model", "random", "--tape", "t.tape")
    out = succeeds(lab, "run", "pot.py", *arguments)
    assert "Turn 1 · Bob" in out
    assert "You are Bob and have 20" in out
    assert "amount, coins for the pot (a whole number from 0 to 20):" in out
    assert "That is 2.5; it must be a whole number from 0 to 20." in out
    assert "That is 30; it must be a whole number from 0 to 20." in out
    assert "That is '1,000', which may be 1000 or 1; write 1000 or 1." in out
    assert turns("run")["given.Bob"].tolist()[1] == 7
    decision = pd.read_csv("out/run/decisions.csv").query("player == 'Bob'")
    assert decision["model"].tolist() == ["human"]
    assert decision["confidence"].tolist() == [0.8]
    assert lab("replay", "t.tape", "--import", "pot.py")[0] == 0
    assert turns("replay").equals(turns("run"))


def test_a_refused_action_is_asked_for_once_more_and_an_end_of_input_ends_the_run(
    lab: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("chair.yaml").write_text(
        "turns: 1\nnations: [Aland]\nplayers: {Aland: person, '*': rule}\nmoves_bp: null\n"
    )
    typed = "Plant tulips\nThey are pretty.\n0.5\nRaise the rate\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{typed}Prices rise.\n0.8\n"))
    out = succeeds(lab, "run", "chair.yaml")
    assert "Not accepted: the action names nothing of economic policy" in out
    decisions = pd.read_csv("out/run/decisions.csv").query("component == 'agent'")
    assert decisions["status"].tolist() == ["ok"]  # nothing was sent before it was right
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert "no one answers for agent of Aland: standard" in fails(lab, "run", "chair.yaml")


# --- recorded runs -------------------------------------------------------------------------------


@pytest.fixture
def taped(lab: Run) -> Run:
    """The command beside a tape of a run of three turns."""
    lab("run", "pot.py", "--model", "random", "--turns", "3", "--tape", "t.tape")
    return lab


@pytest.mark.parametrize("verb", ["replay", "resume", "rerun", "fork"])
def test_without_the_file_the_error_names_class_and_option(taped: Run, verb: str) -> None:
    err = fails(taped, verb, "t.tape")
    assert "it is one of pot:PublicGoods, which is not known here" in err
    assert "(from pot import PublicGoods; on the command line --import pot.py)" in err


def test_parameters_settings_and_the_first_state_are_set_on_the_command_line(lab: Run) -> None:
    sets = ("factor=2", "coins.Ann=5", "players.Bob=rule", "llm.num_ctx=8192", "given={Bob: 7}")
    more = [part for one in sets for part in ("--set", one)]
    ruled = ("run", "ruled.py:Ruled", "--model", "random", "--tape", "s.tape", "--turns", "1")
    succeeds(lab, *ruled, *more)
    info = Tape("s.tape", read_only=True).run()
    config = info.manifest["config"]
    assert (config["factor"], config["llm"]["num_ctx"]) == (2, 8192)
    assert config["players"] == {"Bob": "rule", "*": "random"}
    first, last = turns("run").to_dict("records")
    assert (first["coins.Ann"], first["given.Bob"], last["given.Bob"]) == (5, 7, 3)


def test_every_run_of_a_tape_is_replayed_by_verify(taped: Run) -> None:
    said = taped("tape", "verify", "t.tape", "--replay")
    assert (said[0], "import it (from pot import PublicGoods" in said[1]) == (1, True)
    out = succeeds(taped, "tape", "verify", "t.tape", "--replay", "--import", "pot.py")
    assert "is sound: 1 run, 0 calls; each was replayed to the same turns" in out
    Path("pot.py").write_text(Path("pot.py").read_text().replace("self.factor *", "2 *"))
    sys.modules.pop("pot", None)
    status, out, _ = taped("tape", "verify", "t.tape", "--replay", "--import", "pot.py")
    assert (status, "run 1: it cannot be replayed: turn 1 of run 1 came out" in out) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("resume", "--set", "coins.Ann=5"),
            "--set coins.Ann=5: resume keeps parameters and state",
        ),
        (("resume", "--set", "factor=5"), "factor is a parameter: llmsim-lab run ... --set factor"),
        (("rerun", "--set", "rationale=after"), "llmsim-lab run ... --set rationale=after starts"),
        (
            ("fork", "--turn", "1", "--set", "rationale=after"),
            "(rationale='after'), or llmsim-lab run ... --set rationale=..., or let start()",
        ),
        (("fork", "--set", "factor=5", "--turn", "1"), "factor is a parameter of PublicGoods"),
        (("fork", "--turn", "7"), "t.tape has turns 0 to 3, and no turn 7 to fork; --turn 3 cont"),
        (
            ("rerun", "--turns", "1", "--set", "llm.seed=1", "--set", "llm.numctx=5"),
            "run 1 asks no model, so leave out --set llm.seed=... --set llm.numctx=...",
        ),
        (("resume", "--turns", "1", "--model", "rule"), "leave out --model rule"),
    ],
)
def test_what_cannot_be_set_of_a_recorded_run_is_said(
    taped: Run, arguments: tuple[str, ...], message: str
) -> None:
    verb, *more = arguments
    assert message in fails(taped, verb, "t.tape", "--import", "pot.py", *more)


def test_a_recorded_run_continues_and_begins_anew(taped: Run) -> None:
    status, out, _ = taped("resume", "t.tape", "--import", "pot.py", "--turns", "2")
    assert status == 0
    # The turn that the new ones follow on is listed with them.
    listed = [line.split()[0] for line in out.splitlines()[1:4]]
    assert listed == ["3", "4", "5"]
    assert taped("rerun", "t.tape", "--import", "pot.py", "--turns", "5")[0] == 0
    assert turns("resume")["turn"].tolist() == [0, 1, 2, 3, 4, 5]
    assert turns("rerun")["turn"].tolist() == [0, 1, 2, 3, 4, 5]
    gifts = [turns(verb).filter(like="given") for verb in ("resume", "rerun")]
    assert not gifts[0].equals(gifts[1])  # a rerun is a new replicate, and chance draws anew


def test_a_column_that_only_one_turn_or_run_noted_is_shown(lab: Run) -> None:
    succeeds(lab, "run", "ruled.py:Early", "--model", "random", "--turns", "2", "--tape", "e.tape")
    assert "at_20" in succeeds(lab, "tape", "show", "e.tape", "--import", "ruled.py")
    fork = ("fork", "e.tape", "--import", "ruled.py", "--turn", "1", "--set", "coins=20")
    assert "run 1 asks no model, so leave out --model" in fails(lab, *fork, "--model", "ollama:x")
    succeeds(lab, *fork)
    assert "in: coins, interventions, at_1, at_20" in lab("tape", "diff", "e.tape", "1", "2")[1]


def test_a_tape_is_looked_at_without_its_code(taped: Run) -> None:
    taped("fork", "t.tape", "--import", "pot.py", "--turn", "2", "--set", "coins.Ann=5")
    assert "PublicGoods" in succeeds(taped, "tape", "ls", "t.tape")
    assert "coins.Ann" in succeeds(taped, "tape", "show", "t.tape")
    assert "t.tape is sound: 2 runs, 0 calls\nsha256 " in taped("tape", "verify", "t.tape")[1]
    out = taped("tape", "show", "t.tape", "--turn", "2")[1]
    assert "Run 2 is shown as it was recorded, without its class" in " ".join(out.split())
    assert "coins.Ann 5" in out
    out = taped("tape", "show", "t.tape", "--turn", "2", "--import", "pot.py")[1]
    assert re.search(r"player of Bob: ok, without a model\namount \d+; A random answer", out)
    out = taped("tape", "diff", "t.tape", "1", "2")[1]
    assert re.search(r"(?s)They diverge at turn 2, in: coins\.Ann.*variable coins\.Ann", out)
