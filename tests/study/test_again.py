"""Recorded situations asked again: units, samples, wordings, several runs, and where it stopped."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import recorded
from crisis_kit import judged, said
from fake_ollama import FakeOllama
from social_kit import any_option
from study_kit import Basin, Water, asked, greedy, instant_client, kind, played

from llmsim_lab import Budget, LLMClient, LLMConfig, ScriptedBackend, Tape, connect
from llmsim_lab.errors import ConfigError
from llmsim_lab.run import Ask, fork
from llmsim_lab.study import Comparison, Study
from llmsim_lab.tape import verify
from llmsim_lab.types import Reply

TAPES = Path(__file__).parents[2] / "data" / "tapes"


VARY = {"prompt": {"as it is": None, "kind": kind}}


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    """A tape with two runs of four turns."""
    path = tmp_path / "water.tape"
    for seed in (1, 2):
        recorded(Water(llm_client=instant_client(), tape=path, turns=4, seed=seed))
    return path


def again(tape: Any, vary: Any = VARY, **more: Any) -> Study:
    settings = {"samples": 2, "llm_client": instant_client(), **more}
    return Study.again(tape, vary, **settings)


# --- units, samples, outcomes ---------------------------------------------------------------------


def test_each_continued_turn_is_a_unit_and_is_asked_so_many_times(tape: Path) -> None:
    before = tape.read_bytes()
    study = played(again(tape, run=1))
    assert tape.read_bytes() == before
    assert study.units == ["1:0", "1:1", "1:2", "1:3"]
    table = study.results
    assert len(table) == 2 * 4 * 2
    assert set(table["outcome"]) == {"amount"}
    assert table["replicate"].tolist() == [1, 2] * 8
    assert table["turn"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4] * 2
    assert set(table["run"]) == {1}
    assert len(asked(study)) == 2 * 4 * 2 * 2
    assert study.counts == {"done": 8}


def test_a_situation_whose_file_cannot_be_made_fails_and_the_others_are_played(
    tape: Path, tmp_path: Path
) -> None:
    before = tape.read_bytes()
    study = again(tape, run=1, to=tmp_path / "again")
    paths = study._setup.files.paths
    paths["kind", "1:0"].mkdir(parents=True)
    paths["kind", "1:1"].symlink_to(tape)
    assert played(study).counts == {"done": 6, "failed": 2}
    assert "is not a file; move it away" in str(study)
    assert "is a link, and a study plays into files of its own" in str(study)
    assert tape.read_bytes() == before


def test_a_situation_has_the_recorded_state_and_samples_have_seeds_of_their_own(tape: Path) -> None:
    study = played(again(tape, run=1, turns=[2]))
    run = Water.load(tape, 1)
    kind_ = [call for call in asked(study) if "kind" in call.prompt]
    assert all(f"The basin holds {run.turns[2].state.level:.10g}" in call.prompt for call in kind_)
    seeds, others = (
        {call.options["seed"] for call in asked(study) if (call in kind_) is there}
        for there in (True, False)
    )
    assert seeds == others  # never from the arm
    assert len(seeds) == 2 * 2
    assert not seeds & {call.request.options.get("seed") for call in run.turns[3].calls}
    fork = study.simulation("kind", "1:2", replicate=2)
    assert fork.turns[:2] == run.turns[:2]
    assert (fork.turn_number, fork.turns[2].state) == (3, run.turns[2].state)


def test_outcomes_are_columns_fields_of_replies_and_functions(tape: Path) -> None:
    turn = lambda run: run.turn_number  # noqa: E731
    names = {"level": "level", "amount": "amount", "Ann": "amount.Ann", "turn": turn}
    study = played(again(tape, run=2, turns=[1], outcome=names))
    values = study.results.query("arm == 'kind' and replicate == 1").set_index("outcome")["value"]
    state = study.simulation("kind", "2:1").state
    mean = sum(state.shares.values()) / 2
    assert values.to_dict() == {
        "level": state.level,
        "amount": mean,
        "Ann": state.shares["Ann"],
        "turn": 2,
    }


class Motion(Reply):
    vote: str


class Voting(Water):
    async def turn(self, state: Basin, ask: Ask) -> Basin:
        await ask.each(["Ann", "Bob"], Motion, "{{ name }}, yes or no?")
        return state


def test_a_text_is_an_outcome_of_one_player(path: Path) -> None:
    players = {"Ann": lambda _: Motion(vote="yes"), "Bob": lambda _: Motion(vote="no")}
    run = recorded(Voting(players=players, tape=path, turns=2))
    study = played(again(run, {}, players=players, outcome="vote.Bob"))
    assert set(study.results["value"]) == {"no"}
    with pytest.raises(ConfigError, match=r"a text of 2 players; name one: 'vote\.Ann'"):
        played(again(run, {}, players=players, outcome="vote")).effects()


def test_effects_of_one_run_speak_of_its_situations_and_of_several_of_new_runs(tape: Path) -> None:
    one, both = (played(again(tape, run=run, samples=1)) for run in (1, "all"))
    assert {it.generalises_to for it in one.effects()} == {"these situations"}
    assert [it.generalises_to for it in both.effects()] == ["new runs"]
    assert both.results["run"].unique().tolist() == [1, 2]
    good, fair = (lambda text: f"{text} Be good."), (lambda text: f"{text} Be fair.")
    words = {"prompt": {"as it is": None, "kind": [kind, good, fair]}}
    study, wider = (played(again(tape, words, run=run, turns=[1, 2])) for run in (1, "all"))
    assert {it.generalises_to for it in study.effects()} == {"new wordings"}
    assert study.results["wording"].unique().tolist() == ["", "kind", "wording 2", "wording 3"]
    [these], [new] = (it.plan().detectable.values() for it in (study, wider))
    assert (these.n, new.n) == (4, 4)  # wordings
    assert new.value > these.value  # since new runs differ as well


@pytest.mark.parametrize("option", [{"typical": True}, {"paired": False}])
def test_situations_of_one_run_are_not_compared_as_runs(tape: Path, option: Any) -> None:
    [name] = option
    message = f"^{name}={option[name]} compares runs, and this study's effects hold for these situ"
    with pytest.raises(ConfigError, match=message):
        again(tape, run=1).effects(**option)


def test_samples_of_a_situation_show_chance_alone_and_one_sample_says_what_two_cost(
    tape: Path,
) -> None:
    effect, chance = played(again(tape, run=1, turns=[2, 3])).effects(noise=True)
    assert str(chance).startswith(f"{effect.contrast}, by chance alone: ")
    message = r"samples=2 or more draws them again: 4 more runs, about 8 calls$"
    with pytest.raises(ConfigError, match=message):
        again(tape, run=1, turns=[2, 3], samples=1).effects(noise=True)


def test_players_settings_states_and_parameters_are_varied_too(tape: Path) -> None:
    vary: dict[str, Any] = {"players": {"model": None, "Ann": {"Ann": greedy, "*": "rule"}}}
    study = played(again(tape, vary, run=1, turns=[1], samples=1))
    assert study.results["value"].tolist()[1:] == [6.5]
    vary = {
        "llm.temperature": [0.1, 0.9],
        "state": {"recorded": None, "full": Basin(level=99.0)},
        "taste": ["plain", "fine"],
        "interventions": {"none": [], "set": {"level": 77.0}},
    }
    prompts = [
        f"{call.options['temperature']} {call.prompt}"
        for call in asked(played(again(tape, vary, run=1, turns=[1], samples=1)))
    ]
    for words, times in (("0.9 ", 16), ("holds 99", 8), ("Ann, fine", 8), ("holds 77", 16)):
        assert sum(words in text for text in prompts) == times


def test_a_recorded_call_seed_does_not_make_all_samples_one(path: Path) -> None:
    run = recorded(Water(llm_client=instant_client(seed=7), tape=path, turns=1))
    study = played(again(run, {}, samples=3, llm_client=instant_client(seed=7)))
    assert len({call.options["seed"] for call in asked(study)}) == 6


def test_a_client_asks_with_its_own_settings_and_a_named_model_with_the_recorded_ones(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reply = {"reasoning": "r", "amount": 1, "confidence": 1}
    with FakeOllama(["llama3.2"], reply=reply) as server:
        connected = partial(connect, host=server.host, quiet=True)
        client = connected(temperature=0.2, num_ctx=1024)
        recorded(Water(llm_client=client, tape=path, turns=1))
        vary = {"model": {"named": "ollama:llama3.2", "given": connected(temperature=1.5)}}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OLLAMA_HOST", server.host)
            played(again(path, vary, samples=1))
        played(again(path, {"llm.temperature": [0, 1]}, samples=1, llm_client=connected()))
    sent = [request.body["options"] for request in server.requests]
    degrees = [(options["temperature"], options["num_ctx"]) for options in sent]
    assert set(degrees[:2]) == {(0.2, 1024)}
    assert Counter(degrees[2:]) == dict.fromkeys(
        [(0.2, 1024), (1.5, 4096), (0, 4096), (1, 4096)], 2
    )
    lines = [it.getMessage() for it in caplog.records if "SETTINGS_CHANGED" in it.getMessage()]
    changes = [line.partition("changed=")[2] for line in lines]
    assert changes == [
        '"temperature 0.2 → 1.5, num_ctx 1024 → 4096"',
        '"temperature 0.2 → 0.7, num_ctx 1024 → 4096"',
    ]


# --- what is wrong raises before anything is played -----------------------------------------------


LATE = [{"turn": 9, "set": {"level": 77.0}}]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"vary": {"prompt": {"new": {"wsh": kind}}}}, r"no prompt is called 'wsh' \(did you mean"),
        ({"run": "every"}, r"several \(\[1, 2, 3\]\), or 'all'"),
        ({"run": [1, 3]}, "no run 3"),
        ({"turns": [4]}, r"turn 4 of run 2 was continued by it; \[0, 1, 2, 3\] were"),
        ({"samples": 0}, "samples"),
        ({"outcome": "levle"}, "did you mean 'level'"),
        ({"outcome": "amount.An"}, "did you mean 'amount.Ann'"),
        ({"vary": {"interventions": {"late": LATE}}}, "turn 9 is not the situation's: leave out"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_asked(
    tape: Path, more: dict[str, Any], message: str
) -> None:
    with pytest.raises((ConfigError, Exception), match=message):
        again(tape, **{"vary": VARY, **more})


def test_runs_that_are_not_independent_are_refused(tape: Path) -> None:
    Water.load(Tape(tape), 1).fork(2, llm_client=instant_client())
    with pytest.raises(
        ConfigError,
        match=r"runs \[1, 3\].* seeds \[1, 1\] and begin as 1 runs: they are not independent",
    ):
        again(tape, run=[1, 3])
    recorded(Water(llm_client=instant_client(), tape=tape, turns=1, seed=1))
    with pytest.raises(ConfigError, match=r"seeds \[1, 2, 1\]"):
        again(tape, run="all")


def test_of_a_fork_the_turns_are_asked_again_that_it_played_itself(tape: Path) -> None:
    branch = recorded(fork(tape, 1, turn=2, llm_client=instant_client()), 2)
    study = played(again(branch, samples=1))
    assert study.units == ["3:2", "3:3"]
    assert study.simulation("kind", "3:3").turns[:4] == branch.turns[:4]


def test_what_is_asked_again_needs_a_model(tape: Path) -> None:
    with pytest.raises(ConfigError, match="may ask a model, and the study has none"):
        played(again(tape, llm_client=None))
    run = Water(players="rule")
    with pytest.raises(ConfigError, match="the run is on no tape"):
        again(run)


# --- the folder -----------------------------------------------------------------------------------


def test_it_continues_where_it_stopped_and_more_samples_extend_it(
    tape: Path, tmp_path: Path
) -> None:
    first = again(tape, run=1, to=tmp_path / "again")
    played(first, budget=Budget(calls=7), parallel=2)
    assert first.counts["done"] < 8
    second = played(again(tape, run=1, to=tmp_path / "again"))
    assert second.counts == {"done": 8}
    assert len(asked(first)) + len(asked(second)) == 2 * 4 * 2 * 2
    more = again(tape, run=1, to=tmp_path / "again", samples=3)
    assert more.counts == {"stopped": 8}
    assert more.plan().turns == 8, "one more sample of each"
    assert len(asked(played(more))) == 2 * 4 * 2
    whole = played(again(tape, run=1, samples=3))
    assert whole.results.equals(more.results)
    assert verify(Tape(more.tape_of("kind", "1:2"), read_only=True)) == []
    moved = tape.rename(tmp_path / "moved.tape")  # a copy is the same, another run is not
    assert again(moved, run=1, to=tmp_path / "again", samples=3).counts == {"done": 8}
    assert again(moved, run=2, to=tmp_path / "again").counts == {"left": 8}


def test_an_executor_is_handed_what_is_forked(tape: Path, tmp_path: Path) -> None:
    study = again(tape, run=1, to=tmp_path / "again", llm_client=instant_client)
    with ThreadPoolExecutor(2) as executor:
        played(study, executor=executor)
    assert study.counts == {"done": 8}
    assert study.results.equals(played(again(tape, run=1)).results)


# --- a plan, and the short form -------------------------------------------------------------------


def test_a_comparison_is_the_short_form_for_a_prompt(tape: Path) -> None:
    with pytest.raises(ConfigError, match="has no labels; write prompt="):
        Comparison(tape, prompt=["a", "b"])  # type: ignore[arg-type]
    short = Comparison(tape, prompt={"kind": kind}, run=1, samples=2, llm_client=instant_client())
    assert played(short).results.equals(played(again(tape, run=1)).results)
    alone = Comparison(tape, prompt={"kind": kind, "bare": None}, llm_client=instant_client())
    assert list(alone.arms) == ["kind", "bare"]


# --- worlds that come with the package ------------------------------------------------------------


def crisis(request: Any) -> Any:
    return judged() if request.site.component == "engine" else said()


@pytest.mark.parametrize(
    ("name", "replies", "turns"),
    [("social", any_option, [2, 4]), ("crisis", crisis, [0, 1])],
    ids=["social", "crisis"],
)
def test_situations_of_shipped_worlds_are_asked_again(
    name: str, replies: Any, turns: list[int]
) -> None:
    def kinder(run: Any) -> int:
        return sum("Be kind." in str(call.request.messages) for call in run.turns[-1].calls)

    client = LLMClient(LLMConfig(model="scripted", retry_wait_s=0), ScriptedBackend(replies))
    settings = {"run": 1, "turns": turns, "samples": 1, "llm_client": client}
    study = played(again(TAPES / f"{name}.tape", outcome=kinder, **settings))
    assert study.counts == {"done": 4}, str(study)
    told = study.results.groupby("arm")["value"].sum()
    assert told["as it is"] == 0
    assert told["kind"] > 0
