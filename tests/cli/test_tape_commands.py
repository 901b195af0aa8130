"""The commands around tapes, as users meet them: record, replay, continue, look, carry, check."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import in_words, make_client, played, policy, recorded
from cli_kit import Run, fails, reply, succeeds
from fake_ollama import FakeOllama, Fault

from llmsim_lab.cli import _tape, main
from llmsim_lab.llm import Tape
from llmsim_lab.llm.asked_again import AskedAgain, Audit
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import fork, resume
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import digest
from llmsim_lab.tape.recorder import LiveRecorder
from llmsim_lab.types import Attempt, CallSite, ChatReply, ChatRequest, Message, ToolCall

HOSTILE = "\x1b[2J$x^{ [bold]taxes up\u202e"
CONFIG = {
    "name": "mine",
    "start_at": "1979Q3",
    "turns": 4,
    "nations": ["Aland"],
    "moves_bp": None,  # so that three components ask the model
    "economy": {"shock_scale": 0},
    "llm": {"model": "ollama:llama3.2", "retry_wait_s": 0},
}


@pytest.fixture
def server() -> Iterator[FakeOllama]:
    with FakeOllama(reply=reply) as server:
        yield server


@pytest.fixture(scope="session")
def recorded_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tape with a run of four turns; its results lie beside it in ``out/run``."""
    folder = tmp_path_factory.mktemp("recorded")
    with FakeOllama(reply=reply) as server, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "run.yaml").write_text(json.dumps(CONFIG))
        arguments = ["run", "run.yaml", "--tape", "a.tape", "--host", server.host]
        patch.setattr(sys, "argv", ["llmsim-lab", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
    assert not end.value.code
    return folder / "a.tape"


@pytest.fixture
def tape(recorded_once: Path, llmsim_lab: Run, tmp_path: Path) -> Path:
    """A copy of it in the folder that the command runs in, as ``a.tape``."""
    return Path(shutil.copy(recorded_once, tmp_path / "a.tape"))


def frame(folder: str) -> pd.DataFrame:
    return pd.read_csv(f"{folder}/turns.csv")


def test_a_replay_gives_the_same_files_and_asks_no_model(
    llmsim_lab: Run, tape: Path, recorded_once: Path
) -> None:
    before = tape.read_bytes()
    out = succeeds(llmsim_lab, "replay", "a.tape", "--out", "again")
    assert "All 4 turns are from run 1 of a.tape, replayed. No model was asked." in out
    assert "12 model calls: ok 100%" in out
    for name in ("turns.csv", "decisions.csv", "config.yaml"):
        original = recorded_once.parent / "out" / "run" / name
        assert Path("again", name).read_text() == original.read_text()
    assert tape.read_bytes() == before


def test_a_fork_continues_live_with_the_recorded_model_and_says_which_turns_are_which(
    llmsim_lab: Run, tape: Path, server: FakeOllama
) -> None:
    out = succeeds(
        llmsim_lab,
        *("fork", "a.tape", "--turn", "2", "--set", "inflation=15", "--set", "shock.supply=2"),
        *("--set", "shock.demand=-1", "--host", server.host),
    )
    assert "Using llama3.2" in out
    assert "Turns up to 2 are from the tape; those after it are live." in out
    assert "All of it is recorded as run 2 of a.tape." in out
    assert len(server.requests) == 6
    rows = frame("out/fork")
    assert rows["turn"].tolist() == [0, 1, 2, 3, 4]
    assert rows["inflation"][2] == pytest.approx(15)
    assert "turn 2: inflation = 15, shock.supply = 2, shock.demand = -1" in rows["interventions"][2]
    with Tape("a.tape", read_only=True) as recorded:
        assert (recorded.run(2).parent, recorded.run(2).fork_turn) == (1, 2)


def test_a_fork_with_an_edited_prompt_knows_what_it_was_edited_from(
    llmsim_lab: Run, tape: Path, server: FakeOllama
) -> None:
    text = Prompt.load("agent_policy").text.replace("ONE", "exactly one")
    Path("agent_policy.md").write_text(text)
    succeeds(
        llmsim_lab,
        *("fork", "a.tape", "--turn", "3", "--prompt", "agent_policy.md", "--turns", "1"),
        *("--host", server.host),
    )
    assert "exactly one" in str(server.requests[0].body["messages"])
    with Tape("a.tape", read_only=True) as recorded:
        prompts = recorded.run(2).manifest["prompts"].values()
    [edited] = (it for it in prompts if it["name"] == "agent_policy")
    assert edited["parent"] == Prompt.load("agent_policy").digest


def test_a_run_that_broke_off_is_resumed_to_its_end(llmsim_lab: Run, server: FakeOllama) -> None:
    Path("run.yaml").write_text(json.dumps(CONFIG))
    run = ("run", "run.yaml", "--tape", "a.tape", "--host", server.host)

    def then_fail(body: dict[str, Any]) -> dict[str, Any]:
        if len(broken.requests) >= 4:
            broken.fail_next(Fault.status(400, "no more"), times=9)
        return reply(body)

    with FakeOllama(reply=then_fail) as broken:
        status, out, err = llmsim_lab(*run[:-1], broken.host)
    assert status == 1
    assert "The run ended early, at turn 1." in err
    assert "'llmsim-lab resume a.tape --run 1' continues it." in err
    assert "All of it is recorded as run 1 of a.tape." in out
    assert re.search(
        r"(?m)^3 model calls: .*; 2 requests in the turn that failed, 1 answered; ", out
    )
    out = succeeds(llmsim_lab, "resume", "a.tape", "--host", server.host)
    assert "Turns up to 1 are from the tape; those after it are live" in out
    assert frame("out/resume")["turn"].tolist() == [0, 1, 2, 3, 4]


def test_a_finished_run_is_resumed_only_by_so_many_turns(
    llmsim_lab: Run, tape: Path, server: FakeOllama
) -> None:
    err = fails(llmsim_lab, "resume", "a.tape", "--host", server.host)
    assert "turn 4 is the last that run 1's configuration has (turns: 4); say how many more" in err
    wrong = ("--turns", "1", "--set", "llm.seed=x")
    err = fails(llmsim_lab, "resume", "a.tape", "--host", server.host, *wrong)
    assert err.startswith("error: --set llm.seed: ")
    assert server.requests == []
    assert llmsim_lab("resume", "a.tape", "--turns", "1", "--host", server.host)[0] == 0
    assert frame("out/resume")["turn"].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.fixture
def rules(llmsim_lab: Run) -> Path:
    """A tape of a run without a model, ``rules.tape``."""
    config = in_words(name="rule", turns=3, nations=["Aland"], players="rule")
    with Tape("rules.tape") as tape:
        recorded(Simulation(config, tape=tape), 2)
    return Path("rules.tape")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("replay", "nowhere.tape"), "/nowhere.tape"),
        (("tape", "ls", "run.txt"), "run.txt is not a tape"),
        (("replay", "rules.tape", "--run", "7"), "has no run 7; it has: 1"),
        (
            ("fork", "rules.tape", "--turn", "3", "--turns", "1"),
            "rules.tape has turns 0 to 2, and no turn 3 to fork; --turn 2",
        ),
        (("fork", "rules.tape", "--set", "inflation"), "'inflation' is not a name and a value"),
        (("fork", "rules.tape", "--set", "luck=9"), "luck"),
        (("fork", "rules.tape", "--prompt", "mine.md"), "the run uses no prompt named mine"),
        (("tape", "show", "rules.tape", "--turn", "9"), "it has turns 0 to 2"),
    ],
)
def test_bad_input_ends_with_one_message_and_status_1(
    llmsim_lab: Run, rules: Path, arguments: tuple[str, ...], message: str
) -> None:
    Path("run.txt").write_text("no tape")
    Path("mine.md").write_text("## User\n\nHi\n")
    before = rules.read_bytes()
    err = fails(llmsim_lab, *arguments)
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err
    assert rules.read_bytes() == before
    assert not Path("nowhere.tape").exists()


def test_a_turn_and_its_calls_are_shown(llmsim_lab: Run, tape: Path) -> None:
    out = succeeds(llmsim_lab, "tape", "show", "a.tape", "--turn", "2")
    assert "Aland proposed (accepted): Raise the interest rate" in out
    assert "agent of Aland: ok, from call 4, confidence 0.8" in out
    assert "Propose ONE specific economic policy action." in out
    assert '"reasoning": "It is monetary."' in out
    assert "Call 6 of run 1: engine of Aland, turn 2" in out
    assert '"num_ctx":4096' in out


def test_the_calls_of_a_turn_that_broke_off_are_shown(llmsim_lab: Run, tmp_path: Path) -> None:
    replies = [policy(), TimeoutError(), TimeoutError()]
    with Tape("broken.tape") as tape:
        simulation = Simulation(in_words(), llm_client=make_client(replies), tape=tape)
        with pytest.raises(Exception, match="timeout"):
            simulation.run(1, progress=False)
        simulation.close()
    out = succeeds(llmsim_lab, "tape", "show", "broken.tape", "--turn", "1")
    assert "Turn 1 of run 1 was not finished; its calls:" in out
    assert "--- timeout: " in out
    assert out.count("its call failed for good and was made anew") == 2  # of its two attempts
    assert out.count("second attempt") == 1
    assert "Turn 0" in llmsim_lab("tape", "show", "broken.tape", "--turn", "0")[1]


def test_a_call_with_tools_and_thinking_is_shown_whole(llmsim_lab: Run, rules: Path) -> None:
    call = ToolCall(name="look", arguments={"at": "rates"})
    tool = {"type": "function", "function": {"name": "look"}}
    site = CallSite(turn=3, component="agent")
    asked = {"model": "m", "messages": (Message("user", "Look."),), "tools": (tool,)}
    request = ChatRequest(**asked, site=site)  # type: ignore[arg-type]
    tokens = {"prompt_tokens": 7, "cached_tokens": 5, "reply_tokens": 3}
    reply = ChatReply(text="", thinking="Hm.", tool_calls=(call,), done_reason="length", **tokens)
    with Tape(rules) as tape:
        recorder = LiveRecorder(tape, 1)
        attempt = Attempt(request=request, reply=reply, seconds=1.5, cut=("why",))
        recorder.keep(recorder.find(request), attempt)
        recorder.close()
    out = succeeds(llmsim_lab, "tape", "show", str(rules), "--turn", "3")
    assert 'tools: [{"type":"function","function":{"name":"look"}}]' in out
    how = "1.50 s · prompt 7 tokens, 2 of them read anew · 3 written; ended by: length; why cut"
    assert f"--- answered ({how} at the limit of texts)\nHm.\n" in out
    assert 'look({"at":"rates"})' in out


def test_runs_are_pruned_by_their_numbers(llmsim_lab: Run, tape: Path) -> None:
    with Tape(tape) as recorded:
        fork(recorded, 1, turn=2, llm_client=make_client()).close()
        fork(recorded, 1, turn=1, llm_client=make_client()).close()
    prune = ("tape", "prune", "a.tape")
    assert llmsim_lab(*prune, "--run", "3")[1] == "Removed from a.tape: run 3\n"
    err = fails(llmsim_lab, *prune, "--run", "1")
    assert "name that one as well" in err
    assert "--run" in llmsim_lab(*prune)[2]
    assert "/b.tape" in llmsim_lab("tape", "prune", "b.tape", "--run", "1")[2]
    assert not Path("b.tape").exists()


def test_a_damaged_tape_ends_with_status_1(llmsim_lab: Run, tape: Path) -> None:
    whole = tape.read_bytes()
    tape.write_bytes(
        whole.replace(b'"validator","agent":"Aland"', b'"validator","agent":"Eland"', 1)
    )
    status, out, _ = llmsim_lab("tape", "verify", "a.tape")
    assert status == 1
    [line] = out.splitlines()
    assert re.match(r"line \d+, run 1: it was changed, or a line of its run before it", line)
    status, out, _ = llmsim_lab("tape", "repair", "a.tape", "b.tape")
    assert (status, out) == (0, "Run 1 is whole up to turn 0 of 4.\nWritten: b.tape\n")
    assert llmsim_lab("tape", "verify", "b.tape")[0] == 0


def test_asking_again_says_in_a_sentence_whether_the_replies_are_the_models(
    llmsim_lab: Run, tape: Path, server: FakeOllama
) -> None:
    ask = ("tape", "verify", "a.tape", "--ask", "5", "--seed", "3", "--host", server.host)
    status, out, err = llmsim_lab(*ask)
    assert status == 0
    assert "5 of 12 calls, drawn with --seed 3\n" in out
    assert "5 of 5: at most 45 % of the replies are not llama3.2's, 95 %\n" in out
    assert "It does not show that a run was not repeated until its replies pleased" in out
    assert "5 of 5" in err.splitlines()[-1]
    assert len(server.requests) == 5
    with FakeOllama(reply=lambda body: {**reply(body), "confidence": 0.1}) as other:
        status, out, _ = llmsim_lab(*ask[:-1], other.host)
    assert status == 1
    assert "differs: recorded" in out
    assert "0 of 5 replies are equal; 5 are not, and this server cannot show whether" in out


def test_texts_of_an_untrusted_tape_are_shown_as_texts(llmsim_lab: Run) -> None:
    def hostile(request: Any) -> dict[str, Any]:
        component = request.site.component
        if component == "agent":
            return {"action": HOSTILE, "reasoning": HOSTILE, "confidence": 1}
        if component == "validator":
            return {"is_valid": True, "reasoning": HOSTILE, "confidence": 1}
        rates = request.schema["properties"]["new_interest_rate"]["enum"]
        return {"new_interest_rate": rates[0], "reasoning": HOSTILE, "confidence": 1}

    config = in_words(name=HOSTILE, nations=(HOSTILE,), turns=2, start_at="1979Q3")
    with Tape("bad.tape") as tape:
        simulation = played(Simulation(config, llm_client=make_client(hostile), tape=tape), 2)
        simulation.fork(1).close()
        simulation.close()
    for arguments in (
        ("tape", "ls", "bad.tape"),
        ("tape", "show", "bad.tape", "--run", "1"),
        ("tape", "show", "bad.tape", "--run", "1", "--turn", "1"),
        ("tape", "diff", "bad.tape", "1", "2"),
        ("replay", "bad.tape", "--run", "1"),
    ):
        out = succeeds(llmsim_lab, *arguments)
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert "[2J$x^{ [bold]" in " ".join(out.split())


# --- whole outputs --------------------------------------------------------------------------------

SHOCK = {"turn": 2, "set": {"inflation": 15}, "note": "a shock"}
BEGINS = {"turn": 1, "set": {"unemployment": 6}}
LONG = "x" * 300


@pytest.fixture
def family(llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tape with a run that was resumed with other settings, its fork, and one of no turn yet."""
    warm: dict[str, Any] = {"temperature": 1.2, "num_ctx": 8192}
    config: dict[str, Any] = {"nations": ["Aland"], "start_at": "1979Q3", "interventions": [BEGINS]}
    with Tape("t.tape") as tape:
        played(Simulation(in_words(**config), llm_client=make_client(), tape=tape), 2).close()
    with Tape("t.tape") as tape:
        first = resume(tape, 1, llm_client=make_client(**warm))
        played(first, 1).close()
        edited = Prompt.load("agent_policy")
        edited = edited.edit(edited.text.replace("ONE", "exactly one"))
        client = make_client(**warm)
        made = fork(tape, 1, turn=1, llm_client=client, intervene=[SHOCK], prompt=edited)
        played(made, 2).close()
        Simulation(in_words(**{**config, "name": LONG}), llm_client=make_client(), tape=tape)
    return Path("t.tape")


@pytest.mark.parametrize(
    ("run", "heading", "counts", "more"),
    [
        (
            1,
            "Run 1, economy: run",
            "3 turns, 9 calls, begun .*, ended .*: done",
            [
                "after turn 2 with other settings: temperature 0.7 → 1.2, num_ctx 4096 → 8192",
                *("prompt: agent_policy 42130c9424ef", "prompt: validator_economic 6f937110b608"),
                *("prompt: engine_interest_rate 13ffa589837d", "turn quarter rate infl. unem."),
                "0 1979Q3 9.67 11.09 5.90 0",
                "1 1979Q4 9.67 11.76 6.00 3 turn 1: unemployment = 6",
                *("2 1980Q1 9.67 12.30", "3 1980Q2 9.67 12.37"),
            ],
        ),
        (
            2,
            "Run 2, economy: fork of run 1",
            "3 turns, 6 calls, begun .*, ended .*: done",
            [
                *("prompt: agent_policy 8b335eefd3b4", "prompt: validator_economic 6f937110b608"),
                *("prompt: engine_interest_rate 13ffa589837d", "turn quarter rate infl. unem."),
                "0 1979Q3 9.67 11.09 5.90 0",
                "1 1979Q4 9.67 11.76 6.00 3 turn 1: unemployment = 6",
                "2 1980Q1 9.67 15.00",
                "3 1980Q2 9.67",
            ],
        ),
        (
            3,
            f"Run 3, {LONG}: run",
            "0 turns, 0 calls, begun .*, not ended",
            ["prompt: agent_policy 42130c9424ef", "turn quarter rate infl. unem.", "0 1979Q3 9.67"],
        ),
    ],
)
def test_a_run_is_shown_with_what_defines_it_its_settings_its_prompts_and_its_turns(
    llmsim_lab: Run, family: Path, run: int, heading: str, counts: str, more: list[str]
) -> None:
    shown, counted, *lines = succeeds(
        llmsim_lab, "tape", "show", "t.tape", "--run", str(run)
    ).splitlines()
    assert shown == heading
    assert re.fullmatch(counts, counted)
    place = next(number for number, line in enumerate(lines) if line.startswith("platform: ")) + 1
    rest = [" ".join(line.split()) for line in lines[place:]]
    assert len(rest) == len(more)
    for line, wanted in zip(rest, more, strict=True):
        assert line.startswith(wanted)
    defining = dict(line.split(": ", 1) for line in lines[:place])
    assert "null" not in defining.values()
    assert defining["config.turns"] == "8"
    assert defining["llm.num_ctx"] == ("4096" if run == 3 else "8192")
    assert ("model.name" in defining) is (run != 3)
    assert defining["config.name"] == {3: f'"{"x" * 198}…'}.get(run, '"economy"')


def test_a_fork_is_compared_with_the_settings_that_its_parent_had_when_it_was_made(
    llmsim_lab: Run,
) -> None:
    with Tape("t.tape") as tape:
        played(Simulation(in_words(), llm_client=make_client(), tape=tape), 1).close()
        played(fork(tape, 1, turn=1, llm_client=make_client()), 1).close()
    for temperature in (1.0, 1.2):
        with Tape("t.tape") as tape:
            client = make_client(temperature=temperature)
            played(resume(tape, 1, llm_client=client), 1).close()
    lines = succeeds(llmsim_lab, "tape", "diff", "t.tape", "1", "2").splitlines()
    assert lines[1:4] == [
        "Configuration, model, versions and prompts are the same.",
        "Run 1: after turn 1 with other settings: temperature 0.7 → 1",
        "Run 1: after turn 2 with other settings: temperature 1 → 1.2",
    ]
    assert "Run 2 changed" not in "\n".join(lines)


def test_how_two_runs_differ_is_said_from_what_defines_them_to_where_they_led(
    llmsim_lab: Run, family: Path
) -> None:
    lines = succeeds(llmsim_lab, "tape", "diff", "t.tape", "1", "2").splitlines()
    resumed = "after turn 2 with other settings: temperature 0.7 → 1.2, num_ctx 4096 → 8192"
    assert lines[:2] == [
        "Run 1 (economy) and run 2 (economy)",
        "The prompt agent_policy#42130c94 differs:",
    ]
    assert "propose [-ONE-]{+exactly one+} specific policy action" in str(lines)
    *_, prompt, given, diverge, variable, heads, _, second, third = lines
    assert (prompt, given) == (
        "Run 2 changed: prompt agent_policy: [-ONE-]{+exactly one+}",
        "Run 2 changed: turn 2: inflation = 15 (a shock)",
    )
    assert diverge.startswith("They diverge at turn 2, in: inflation, taylor_rate, interventions, ")
    assert variable.split()[:3] == ["variable", "inflation", "taylor_rate"]
    assert len(variable.split()) == 1 + 4, "of more series a table would not fit"
    assert heads.split() == ["of", *["a", "b", "difference"] * 4]
    assert second.split()[:4] == ["2", "12.3", "15", "2.7"]
    assert third.split()[0] == "3"

    other = succeeds(llmsim_lab, "tape", "diff", "t.tape", "1", "3").splitlines()
    assert other[:3] == [
        f"Run 1 (economy) and run 3 ({LONG})",
        f'config.name "economy" → "{"x" * 198}…',
        "llm.temperature 1.2 → 0.7",
    ]
    assert other[-6:] == [
        "Only run 1 has the prompt engine_interest_rate#13ffa589",
        "Only run 1 has the prompt validator_economic#6f937110",
        f"Run 1: {resumed}",
        "Run 1 changed: turn 1: unemployment = 6",
        "Run 3 changed: turn 1: unemployment = 6",
        "All columns are the same in turns 0 to 0; what was said may differ (show --turn).",
    ]
    same = succeeds(llmsim_lab, "tape", "diff", "t.tape", "2", "2").splitlines()
    assert same[1] == "Configuration, model, versions and prompts are the same."
    assert same[-1].startswith("All columns are the same in turns 0 to 3; ")


def test_a_packed_tape_can_be_looked_at_and_is_not_changed_by_it(
    llmsim_lab: Run, family: Path
) -> None:
    packed = Path("t.tape.gz")
    packed.write_bytes(gzip.compress(family.read_bytes()))
    family.unlink()
    before = packed.read_bytes()
    for arguments in (
        ("tape", "ls", "t.tape.gz"),
        ("tape", "show", "t.tape.gz", "--run", "1"),
        ("tape", "show", "t.tape.gz", "--run", "1", "--turn", "1"),
        ("tape", "diff", "t.tape.gz", "1", "2"),
        ("replay", "t.tape.gz", "--run", "1"),
        ("view", "t.tape.gz", "--out", "t.html"),
    ):
        succeeds(llmsim_lab, *arguments)
    assert succeeds(llmsim_lab, "tape", "verify", "t.tape.gz") == (
        f"t.tape.gz is sound: 3 runs, 15 calls\nsha256 {digest(packed)}\n"
    )
    assert packed.read_bytes() == before


def test_an_answer_from_probabilities_names_the_call_of_each_order(llmsim_lab: Run) -> None:
    def letters(_: ChatRequest) -> ChatReply:
        return ChatReply(text="A", top_logprobs=(("A", -0.5), ("B", -1.5), ("C", -2.0)))

    with Tape("t.tape") as tape:
        run = Simulation(
            nations=["Aland"], decide="sample", llm_client=make_client(letters), tape=tape
        )
        played(run, 1).close()
    lines = succeeds(llmsim_lab, "tape", "show", "t.tape", "--turn", "1").splitlines()
    head, _, calls = lines[4].partition(", from call ")
    assert head == "agent of Aland: ok"
    assert sorted(map(int, calls.split(", "))) == [*range(1, 18)], "one a move on offer"
    assert lines[5].endswith("; 96.5% of all answers are options")
    assert [line for line in lines if line.startswith("Call ")] == [
        f"Call {number} of run 1: agent of Aland, turn 1" for number in range(1, 18)
    ]


@pytest.mark.parametrize(
    "option",
    [("--model", "auto"), ("--seed", "0"), ("--host", "127.0.0.1:9")],
    ids=lambda it: it[0],
)
def test_what_only_asking_again_needs_is_refused_without_it(
    llmsim_lab: Run, rules: Path, option: tuple[str, str]
) -> None:
    status, _, err = llmsim_lab("tape", "verify", str(rules), *option)
    assert (status, "go with --ask 20, which asks a model" in " ".join(err.split())) == (2, True)


def test_what_asking_again_found_is_told_call_by_call(
    llmsim_lab: Run, tape: Path, server: FakeOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Tape(tape, read_only=True) as recorded_tape:
        first, second, third, *_ = recorded_tape.calls(1)
    found: Any = [
        AskedAgain(first, "equal"),
        AskedAgain(second, "within reach", "a word"),
        AskedAgain(third, "not this model's"),
    ]
    audit = Audit(
        model="m", seed=4, answers=found, eligible=7, left_out={"were cut": 2}, notes=["Note."]
    )
    asked: list[object] = []

    async def ask(_: Tape, client: Any, **settings: Any) -> Audit:
        asked.extend((client.config.model, client.config.timeout_s))
        asked.extend((settings["number"], settings["seed"]))
        return audit

    monkeypatch.setattr(_tape, "ask_again", ask)
    arguments = ("tape", "verify", "a.tape", "--ask", "3", "--host", server.host)
    status, out, _ = llmsim_lab(*arguments)
    assert (status, asked) == (1, ["llama3.2", 300, 3, None])
    lines = out.splitlines()
    assert lines[0] == "a.tape is sound: 1 run, 12 calls"
    assert lines[3:-1] == [
        *("3 of 7 calls, drawn with --seed 4", "left out: 2 calls were cut", "Note."),
        *map(str, [*found[1:], audit]),
    ]


def test_a_run_whose_beginning_is_damaged_is_left_out_of_the_repaired_tape(
    llmsim_lab: Run, family: Path
) -> None:
    family.write_bytes(family.read_bytes().replace(b"x" * 300, b"x" * 299 + b"y", 1))
    out = succeeds(llmsim_lab, "tape", "repair", "t.tape", "b.tape").splitlines()
    assert out[:2] == ["Run 1 is whole up to turn 3 of 3.", "Run 2 is whole up to turn 3 of 3."]
    assert out[2].startswith("Run 3 is left out: its beginning, a text, or a run that it came from")
    assert out[3:] == ["Written: b.tape"]
    family.write_bytes(family.read_bytes().replace(b'"run":', b'"ran":'))
    out = succeeds(llmsim_lab, "tape", "repair", "t.tape", "c.tape").splitlines()
    assert out[-2:] == ["No run is whole: c.tape is a tape without runs.", "Written: c.tape"]
