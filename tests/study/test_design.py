"""What is varied, what its names stand for, and which arms come of it."""

from __future__ import annotations

import copy
import math
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import study_kit
from fake_ollama import FakeOllama
from study_kit import Basin, Drought, Water, Weather, Wish, asked, instant_client, kind, played

from llmsim_lab import Budget, LLMConfig, Prompt
from llmsim_lab._util.config import Settings
from llmsim_lab.economy import TaylorRule
from llmsim_lab.errors import ConfigError
from llmsim_lab.study import Study
from llmsim_lab.study.design import labelled, stable_json

study_of = partial(study_kit.study_of, seeds=2, turns=2)


def config_in(study: Study, arm: str) -> Any:
    return study.simulation(arm, 0).config


def adding(text: str, *, times: int = 1) -> Any:
    return lambda old: old + text * times


class Plain:
    def __init__(self, amount: float) -> None:
        self.amount = amount


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (adding("Be kind."), adding("Be harsh.")),
        (adding("Be kind."), adding("Be kind.", times=2)),
        (lambda old, more="a": old + more, lambda old, more="b": old + more),
        (lambda old, *, more="a": old + more, lambda old, *, more="b": old + more),
        (lambda _: (lambda: 1)(), lambda _: (lambda: 2)()),
        (partial(adding, times=1), partial(adding, times=2)),
        (TaylorRule(inflation_target=2.0), TaylorRule(inflation_target=3.0)),
        (Plain(1.0), Plain(2.0)),
        (np.int64(1), np.int64(2)),
        (math.inf, -math.inf),
    ],
)
def test_levels_that_play_differently_are_told_apart_on_a_tape(one: Any, other: Any) -> None:
    assert stable_json(one) != stable_json(other)
    assert stable_json(one) == stable_json(copy.deepcopy(one))


class Noted(Plain):
    def __init__(self) -> None:
        super().__init__(1.0)
        self._seen = 3
        self.notes = ["what was asked"]


class Addressed:
    def __repr__(self) -> str:
        return "<Addressed at 0x7f12ab of 3>"


@pytest.mark.parametrize(
    ("level", "identity"),
    [
        (True, True),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (b"ab", "bytes b'ab'"),
        (frozenset("ba"), ["a", "b"]),
        ({1: {2.0}, "b": (1, "x")}, {"1": [2.0], "b": [1, "x"]}),
        (instant_client(), "client instant on Instant"),
        (Prompt("Hi", name="a"), f"prompt a {Prompt('Hi', name='a').digest[:12]}"),
        (Basin(level=2.0), {"level": 2.0, "shares": {"Ann": 5.0, "Bob": 5.0}}),
        # What may change as runs are played, and what is an object's own, identifies nothing.
        (Noted(), 'Noted {"amount":1.0}'),
        (Addressed(), "Addressed <Addressed of 3>"),
        (object(), "object"),
    ],
)
def test_a_level_is_identified_by_what_it_is_in_every_process(level: Any, identity: Any) -> None:
    assert stable_json(level) == identity


def measured(run: Any) -> float:
    return 1.0


class Measure:
    def __call__(self, run: Any) -> float:
        return 1.0

    def __repr__(self) -> str:
        return "Measure at 0x12"


def test_levels_without_labels_are_called_after_what_they_are() -> None:
    outcome = [
        lambda run: (
            run.state.level
            + 1
        ),
        ("\u00e9", lambda run: run.seed)[1],
        lambda run, more=2: run.state.shares["Ann"] + run.state.shares["Bob"] + more,
        eval("lambda run: 3"),
        measured,
        Measure(),
    ]  # fmt: skip
    assert list(study_of(outcome=outcome).outcome) == [
        "run.state.level + 1",
        "run.seed",
        'run.state.shares["Ann"] + run.state.sha…',
        "function",
        "measured",
        "Measure",
    ]
    million = 10**6
    values = [
        True,
        2.5,
        1e-7,
        999_999,
        million + 1,
        million + 2.0,
        2e6 + 0.25,
        "z" * 50,
        Prompt("Hi", name="q" * 40),
        Prompt("Hi", name="p" * 41),
    ]
    labels = [
        "True",
        "2.5",
        "1e-07",
        "999999",
        "1000001",
        "1000002",
        "2000000.25",
        "z" * 50,
        "q" * 40,
        f"{'p' * 39}…",
    ]
    assert list(labelled("levels", values)) == labels
    assert list(labelled("levels", values).values()) == values
    # Alike in six digits.
    close = [0.5, 0.1 + 0.2, 0.3, 3.0000001]
    assert list(labelled("levels", close)) == ["0.5", "0.30000000000000004", "0.3", "3"]


def test_a_function_is_known_by_its_source_whatever_its_layout_and_comments() -> None:
    def first(text: str) -> str:
        return f"{text} Be kind."

    one = stable_json(first)

    def first(text: str) -> str:  # type: ignore[no-redef]
        # the same
        return (
            f"{text} Be kind."
        )  # fmt: skip

    assert stable_json(first) == one


def test_a_function_that_calls_itself_identifies_a_level() -> None:
    def down(count: int) -> int:
        return down(count - 1) if count else 0

    assert re.fullmatch("function down [0-9a-f]{12}", stable_json(down))


# --- arms ----------------------------------------------------------------------------------------


def test_a_full_design_has_every_combination_and_the_first_is_the_reference() -> None:
    study = study_of(vary={"factor": [1.0, 2.0], "taste": ["plain", "fine"]})
    arms = [f"factor={factor} · {taste}" for factor in (1, 2) for taste in ("plain", "fine")]
    assert list(study.arms) == arms
    assert study.arms[arms[1]] == {"factor": "1", "taste": "fine"}
    assert study.reference == arms[0]


class Unshown:
    def __repr__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("vary", "more", "message"),
    [
        ({"factr": [1.0]}, {}, "nothing called 'factr' to vary (did you mean 'factor'?)"),
        ({"llm.temprature": [0.1]}, {}, "(did you mean 'llm.temperature'?)"),
        ({"rationle": [False]}, {}, "(did you mean 'rationale'?)"),
        ({"sedes": [1]}, {}, "(did you mean 'seeds'?)"),
        ({"llm.model": ["a", "b"]}, {}, "nothing called 'llm.model' to vary"),
        ({"factor": 2.0}, {}, "vary['factor']=2.0 is not a list; write [2.0] for one"),
        ({"factor": [1.0, math.nan]}, {}, "arm 'factor=nan': Water: factor: Input"),
        ({"interventions": {"a": [{"turn": 9, "set": {}}]}}, {}, "turn 9 is never reached"),
        ({"factor": [1.0, "much"]}, {}, "arm 'much': Water: factor"),
        ({"factor": {1: 1.0, "1": 2.0}}, {}, "two called '1'"),
        ({}, {"outcome": [lambda _: 1.0, lambda _: 1.0]}, "outcome has two called '1.0'"),
        ({}, {"outcome": ""}, "outcome '' is not a column"),
        ({}, {"outcome": "levle@last"}, "(did you mean 'level'?)"),
        ({}, {"outcome": "level@lst"}, "outcome 'level@lst' is not a column"),
        ({}, {"outcome": {"one": 3}}, "outcome 3 is not a column"),
        ({"seed": [1, 2]}, {}, "is not a factor; a study takes seeds="),
        ({"llm": [{"temperature": -1}]}, {}, "temperature"),
        ({"factor": [1.0, 2.0]}, {"factor": 2.0}, "both fixed and varied"),
        ({"factor": [1.0, 2.0]}, {"seeds": [1, 1]}, "names seed 1 twice"),
        ({}, {"seeds": range(10**12)}, "seeds=range(0, 1000000000000) are more than 50,000"),
        ({}, {"seeds": [10**5000]}, "a seed=<a number of 5,001 digits> must be a whole number"),
        ({"factor": range(10**12)}, {}, "has more than 1,000 levels"),
        ({"prompt": [3]}, {}, "prompt=3 is not an edit; give a text"),
        ({"interventions": {"a": repeat({})}}, {}, "has more than 100,000 items"),
        ({"interventions": {"a": {"level": {"x": repeat(1)}}}}, {}, "set has repeat(1) in it"),
        ({"factor": [Unshown()]}, {}, "arm '<Unshown"),
        ({10**5000: [1]}, {}, "a factor in vary=<a number of 5,001 digits> must be a text"),
        ({}, {"outcome": np.arange(2)}, "outcome 0 is not a column"),
        ({}, {"tape": np.ones(2)}, "must be a path"),
        ({"players": ["ruel"]}, {}, "players"),
        ({"interventions": {"typo": {"levle": 1}}}, {}, "did you mean 'level'"),
        ({"state": [3]}, {}, "starts from 3"),
    ],
)
def test_a_wrong_name_or_level_raises_before_anything_is_played(
    vary: Any, more: Any, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        study_of(vary=vary, **more)
    assert message in str(caught.value)


def test_a_wrong_model_raises_before_anything_is_played() -> None:
    study = study_of(vary={"model": {"real": instant_client(), "typo": "olama:x"}})
    with pytest.raises(ConfigError, match="olama:x"):
        study.run(progress=False)
    assert study.counts == {"left": 4}


@pytest.mark.parametrize(
    ("world", "message"),
    [
        (len, "give a Run class"),
        ("Water", "give a Run class"),
        (Water(llm_client=instant_client()), "give the class, Water, not a run of it"),
    ],
)
def test_what_cannot_be_played_is_named(world: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study_of(world)


# --- what names stand for ------------------------------------------------------------------------


def test_a_nested_setting_is_named_by_its_path_and_reaches_the_model() -> None:
    study = played(study_of(vary={"llm.temperature": [0.1, 0.9]}))
    assert {it.options["temperature"] for it in asked(study)} == {0.1, 0.9}
    assert config_in(study, "llm.temperature=0.9").llm.temperature == 0.9


def test_settings_of_the_model_are_varied_together_and_a_long_label_is_cut() -> None:
    settings = [{"temperature": 0.1, "max_tokens": 50}, {"temperature": 0.9, "max_tokens": 60}]
    study = played(study_of(vary={"llm": settings}, seeds=1, turns=1))
    sent = {(it.options["temperature"], it.options["num_predict"]) for it in asked(study)}
    assert sent == {(0.1, 50), (0.9, 60)}
    taste = "as sweet as the water of a mountain lake"
    labels = study_of(vary={"soil": [{taste: 0.5}, {taste[:31]: 0.5}]}, world=Farm).arms
    assert list(labels) == [f"{{'{taste[:37]}…", f"{{'{taste[:31]}': 0.5}}"]


class Named(Water):
    outcome: str = "blue"


def test_a_parameter_may_have_the_name_of_a_setting_of_studies() -> None:
    study = played(study_of(Named, {"outcome": ["blue", "red"]}))
    assert config_in(study, "red").outcome == "red"


class Fields(Settings):
    size: float = 1.0
    wet: bool = False


class Farm(Water):
    fields: tuple[Fields, ...] = (Fields(), Fields(size=2.0))
    soil: dict[str, float] = {"clay": 0.5}  # noqa: RUF012 - a parameter
    rain: dict[int, float] = {2024: 0.5}  # noqa: RUF012 - a parameter


def test_a_path_names_a_place_in_a_parameter() -> None:
    vary = {"fields.1.size": [3.0, 4.0], "soil.sand": [0.1], "soil.7": [1], "rain.2024": [2]}
    study = played(study_of(Farm, vary))
    config = config_in(study, "fields.1.size=4")
    assert [it.size for it in config.fields] == [1.0, 4.0]
    assert config.soil == {"clay": 0.5, "sand": 0.1, "7": 1}
    assert config.rain == {2024: 2}
    with pytest.raises(ConfigError, match="there is no place 5 among 2"):
        study_of(Farm, {"fields.5.size": [3.0]})
    with pytest.raises(ConfigError, match="there is no place 2 among 2"):
        study_of(Farm, {"fields.2.size": [3.0]})
    with pytest.raises(ConfigError, match="there is no place last among 2"):
        study_of(Farm, {"fields.last.size": [3.0]})


# --- prompts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edit",
    [
        kind,
        {"wish": kind},
        "You are {{ name }}, {{ run.taste }}. The basin holds {{ state.level }}. Be kind.",
        Prompt("You are {{ name }}. The basin holds {{ state.level }}. Be kind.", name="wish"),
    ],
)
def test_a_prompt_of_ones_own_world_is_edited(edit: Any) -> None:
    study = played(study_of(vary={"prompt": {"as it is": None, "kind": edit}}))
    for arm, edited in (("as it is", False), ("kind", True)):
        calls = study.simulation(arm, 0).calls
        assert {call.request.prompt.endswith("Be kind.") for call in calls} == {edited}


class TwoMinds(Water):
    """Asks with another prompt once it was answered, of the same name or of another."""

    second: str = "wish"

    async def turn(self, state: Basin, ask: Any) -> Basin:
        if state.level == 10:
            wishes = await ask.each(state.shares, Wish, "{{ name }}?")
        else:
            prompt = Prompt("Now what, {{ name }}?", name=self.second)
            wishes = await ask.each(state.shares, Wish, prompt)
        return state.replace(level=1.0 + sum(wish.amount for wish in wishes.values()))


def test_a_prompt_is_edited_when_it_is_first_asked_with_and_recorded_as_it_was_asked(
    tmp_path: Path,
) -> None:
    what: dict[str, Any] = {"vary": {"prompt": {"kind": kind}}, "seeds": 1, "tape": tmp_path}
    stopped = played(study_of(TwoMinds, **what), budget=Budget(calls=2))
    assert len(asked(stopped)) == 2  # the other prompt is first asked when it is resumed
    study = played(study_of(TwoMinds, **what))
    run = study.simulation("kind", 0)
    texts = [call.request.prompt for call in run.calls]
    assert {text[text.index("? ") :] for text in texts} == {"? Be kind."}
    assert len({prompt.digest for prompt in run.prompts.values()}) == 2
    again = TwoMinds.replay(study.tape_of("kind", 0))
    assert again.to_frame().equals(run.to_frame())


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"wsh": kind}, r"no prompt is called 'wsh' \(did you mean 'wish'\?\); there are"),
        (lambda text: 3, " 'wish': .*lambda.* gives none: .*edited with its new text, not with 3"),
        (lambda text: text[999], " 'wish': .*lambda.* gives none: IndexError: string index"),
    ],
)
def test_an_edit_that_fits_no_prompt_raises_before_anything_is_played(
    edit: Any, message: str
) -> None:
    vary = {"prompt": {"as it is": None, "new": edit}}
    study = study_of(TwoMinds, vary)
    with pytest.raises(ConfigError, match=f"^arm 'new': prompt.*{message}"):
        played(study)
    assert study.counts == {"left": 4}


class Counted(Water):
    """Asks with another prompt from a turn on, and counts the turns of all runs."""

    late: int = 99
    turns_played: ClassVar[list[int]] = []

    async def turn(self, state: Basin, ask: Any) -> Basin:
        self.turns_played.append(ask.turn)
        prompt = Prompt("{{ name }}?", name="another" if ask.turn >= self.late else "wish")
        await ask.each(state.shares, Wish, prompt)
        return state


@pytest.mark.parametrize(
    ("edit", "late", "turns_on_trial"),
    [
        # A second kind of question would have to be named; it comes early or never.
        (kind, 99, 10),
        ({"wish": kind}, 99, 1),
        ({"another": kind}, 12, 12),
        ({"another": kind, "wish": kind}, 3, 3),
    ],
)
def test_an_edit_is_tried_in_as_many_turns_as_tell_whether_it_fits(
    edit: Any, late: int, turns_on_trial: int
) -> None:
    vary = {"prompt": {"as it is": None, "new": edit}}
    study = study_of(Counted, vary, late=late, turns=14, seeds=1)
    Counted.turns_played.clear()
    played(study)
    assert study.counts == {"done": 2}
    assert len(Counted.turns_played) == 2 * 14 + turns_on_trial


@pytest.mark.parametrize("edit", [kind, "{{ name }}, be kind."])
def test_an_edit_without_a_name_of_two_kinds_of_questions_is_refused_once_before_playing(
    edit: Any,
) -> None:
    study = study_of(TwoMinds, {"prompt": {"as it is": None, "new": edit}}, second="another")
    message = "arm 'new': prompt: there are several, another, wish, …; say which is edited: "
    with pytest.raises(ConfigError, match=message):
        played(study)
    assert study.counts == {"left": 4}
    assert asked(study) == []


def test_an_edit_that_changes_nothing_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    edits = {"as it is": None, "kind": kind, "typo": lambda text: text.replace("Yu are", "We are")}
    played(study_of(vary={"prompt": edits}))
    [warning] = caplog.messages
    assert "PROMPT_UNCHANGED" in warning
    assert "typo" in warning


def test_wordings_of_one_idea_are_runs_of_one_arm_with_seeds_of_their_own() -> None:
    words = [lambda text: f"{text} Be kind.", lambda text: f"{text} Be good."]
    vary = {"prompt": {"as it is": None, "kind": words}}
    study = played(study_of(vary=vary, outcome="level@last"))
    assert study.results["wording"].tolist() == ["", "", *["wording 1", "wording 2"] * 2]
    seeds = seeds_in(asked(study))
    assert len(set(seeds)) == 2 * len(set(seeds[::3])) == 16
    second = study.simulation("kind", 0, wording="wording 2")
    assert second.calls[0].request.prompt.endswith("Be good.")
    with pytest.raises(
        ConfigError, match=r"no wording 'wording 3'.*; there are wording 1, wording 2"
    ):
        study.simulation("kind", 0, wording="wording 3")
    with pytest.raises(ConfigError, match="no wording 'wording 1'; there are none"):
        study.simulation("as it is", 0, wording="wording 1")
    message = "^arm 'kind', seed 0 has no sample 2 of the wording 'wording 2'; there are .1.$"
    with pytest.raises(ConfigError, match=message):
        study.simulation("kind", 0, wording="wording 2", replicate=2)
    with pytest.raises(
        ConfigError, match=r"^arm 'as it is', seed 1 has no sample 2; there are .1.$"
    ):
        study.simulation("as it is", 1, replicate=2)


# --- what is set from outside ---------------------------------------------------------------------


def shocked(level: float, turn: int) -> list[dict[str, Any]]:
    return [{"turn": turn, "set": {"level": level}}]


def levels_of(study: Study, arm: str, seed: int = 0) -> list[float]:
    return study.simulation(arm, seed).to_frame()["level"].tolist()  # type: ignore[no-any-return]


def test_arms_share_a_run_up_to_the_turn_where_something_else_is_set(tmp_path: Any) -> None:
    vary = {"interventions": {"late": shocked(90, 3), "none": [], "early": shocked(80, 1)}}
    settings = {"turns": 4, "outcome": "level", "tape": tmp_path / "s"}
    study = played(study_of(vary=vary, **settings))
    none, late, early = (levels_of(study, arm) for arm in ("none", "late", "early"))
    assert late[:3] == none[:3]
    assert early[0] == none[0]
    assert (late[3], early[1]) == (90, 80)
    # Two players: four turns of "none", one of "late", three of "early"; none of them twice.
    assert len(asked(study)) == 2 * 2 * (4 + 1 + 3)
    # A whole run of the arm is the same to the last bit, since seeds follow from the place.
    alone = played(study_of(vary={"interventions": {"late": shocked(90, 3)}}, turns=4))
    assert levels_of(alone, "late") == late
    replayed = Water.replay(study.tape_of("late", 1))
    assert replayed.to_frame()["level"].tolist() == levels_of(study, "late", 1)
    assert study_of(vary=vary, **settings).counts == {"done": 6}
    vary = {"interventions": {"none": [], "late": shocked(90, 3)}}
    pooled = study_of(vary=vary, **{**settings, "tape": None, "llm_client": instant_client})
    with ThreadPoolExecutor(2) as executor:
        pooled.run(executor=executor, progress=False)
    assert levels_of(pooled, "late") == late


@pytest.mark.parametrize(
    ("first", "second", "asked_turns", "levels"),
    [
        # What both set before stands in the shared turns, once.
        (shocked(90, 1), shocked(90, 1) + shocked(80, 3), 4 + 1, {1: (90, 90), 3: (None, 80)}),
        (
            shocked(50, 2) + shocked(90, 3),
            shocked(50, 2) + shocked(1, 3),
            4 + 2,
            {2: (50, 50), 3: (90, 1)},
        ),
        # At the start nothing is shared.
        (shocked(50, 0), shocked(60, 0), 4 + 4, {0: (50, 60)}),
        (shocked(50, 1), shocked(60, 1), 4 + 4, {1: (50, 60)}),
        (shocked(50, 4), shocked(60, 4), 4 + 1, {4: (50, 60)}),
    ],
)
def test_arms_with_a_common_beginning_part_where_they_set_something_else(
    first: Any, second: Any, asked_turns: int, levels: dict[int, tuple[Any, Any]]
) -> None:
    vary = {"interventions": {"one": first, "two": second}}
    study = played(study_of(vary=vary, turns=4, seeds=1))
    alone = played(study_of(vary={"interventions": {"two": second}}, turns=4, seeds=1))
    one, two = (levels_of(study, arm) for arm in ("one", "two"))
    assert two == levels_of(alone, "two")
    for turn, values in levels.items():
        for path, value in zip((one, two), values, strict=True):
            assert value is None or path[turn] == value
    assert len(asked(study)) == 2 * asked_turns
    for arm, changes in (("one", first), ("two", second)):
        turns = study.simulation(arm, 0).turns
        assert sum(len(turn.interventions) for turn in turns) == len(changes)


def test_an_arm_that_shares_a_failed_run_follows_once_that_is_played(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    vary = {"interventions": {"none": [], "shock": shocked(90, 3)}}
    study = played(study_of(Drought, vary, turns=3))
    assert study.counts == {"failed": 4}
    why = str(study.runs["error"][3])
    assert "shares a run with arm 'none', which failed: RuntimeError: the basin" in why
    assert caplog.text.count("STUDY_RUN_FAILED") == 4
    monkeypatch.setattr(Weather, "dry", False)
    assert played(study).counts == {"done": 4}


def test_what_is_set_is_varied_with_other_factors() -> None:
    vary = {"interventions": {"none": [], "shock": shocked(90, 1)}, "factor": [1.0, 2.0]}
    study = played(study_of(vary=vary))
    assert levels_of(study, "shock · factor=2")[1] == 90
    assert len(asked(study)) == 2 * 2 * 2 * (2 + 1)


# --- models and call seeds -----------------------------------------------------------------------


def seeds_in(requests: list[Any]) -> list[int]:
    return sorted(request.options["seed"] for request in requests)


def test_models_are_varied_and_call_seeds_follow_from_seed_and_place_never_from_the_arm() -> None:
    one, two = instant_client(), instant_client()
    made: list[Any] = []

    def make() -> Any:
        made.append(two)
        return two

    vary = {"model": {"one": one, "two": make}, "factor": [1.0, 2.0]}
    played(study_of(vary=vary, llm_client=None))
    assert made == [two]  # arms of one model share its client
    seeds = seeds_in(one.backend.requests)
    assert seeds == seeds_in(two.backend.requests)
    assert (len(seeds), len(set(seeds))) == (16, 8)


class Terse(Water):
    defaults: ClassVar[dict[str, Any]] = {"llm": LLMConfig(max_tokens=77, temperature=0.25)}


def test_a_model_that_is_named_is_asked_with_the_world_s_own_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with FakeOllama(["llama3.2"], reply={"reasoning": "r", "amount": 1, "confidence": 1}) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.host)
        played(study_of(Terse, {}, seeds=1, turns=1, llm_client="ollama:llama3.2"))
    sent = [request.body["options"] for request in server.requests]
    assert [(it["num_predict"], it["temperature"]) for it in sent] == [(77, 0.25)] * 2


def test_a_replicate_is_the_same_world_with_other_call_seeds() -> None:
    twice = {"replicate": [0, 1]}
    seeds = seeds_in(asked(played(study_of(vary=twice))))
    assert len(seeds) == len(set(seeds)) == 16
    with pytest.raises(ConfigError, match=r"llm\.seed fixes them: leave it out"):
        played(study_of(vary=twice, llm_client=instant_client(seed=7)))
