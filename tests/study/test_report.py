"""The report of a study for a referee, and the list of what one would ask."""

from __future__ import annotations

import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from study_kit import Basin, Water, instant_client

from llmsim_lab import Ask, LLMClient, LLMConfig, Run, ScriptedBackend, Simulation, replay
from llmsim_lab.errors import ConfigError
from llmsim_lab.study import Study, _checklist, checklist
from llmsim_lab.study._file import read_study
from llmsim_lab.study._report import _Palette, _seen_on
from llmsim_lab.types import ModelInfo

EVIL = "<script>alert(1)</script> \u202e $x$ #ff0000"
RULES = {
    "nations": [{"kind": "taylor", "name": "Rule"}],
    "validator": {"kind": "always_valid"},
}


def study_of(world: Any = Water, vary: Any = None, **more: Any) -> Study:
    settings = {"seeds": 9, "turns": 3, "outcome": "level", "llm_client": instant_client(), **more}
    return Study(world, {"factor": [1.0, 2.0]} if vary is None else vary, **settings)


def played(study: Study) -> Study:
    return study.run(progress=False)


class Dry(Water):
    async def turn(self, state: Basin, ask: Ask) -> Basin:
        if self.factor > 1 and ask.turn == 2 and self.config.seed < 2:
            raise RuntimeError(f"the basin is dry {EVIL}")
        return await super().turn(state, ask)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.tape"


class Page(HTMLParser):
    """What a browser makes of a page: its text, and its tags with their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def page_of(study: Study, tmp_path: Path) -> Page:
    return Page(study.report(tmp_path / "out.html").read_text(encoding="utf-8"))


# --- the report ----------------------------------------------------------------------------------


def test_a_report_says_what_was_varied_found_and_played(tmp_path: Path, path: Path) -> None:
    study = study_of(tape=path, aa=True)
    study.register(tmp_path / "plan.yaml", hypotheses=["more factor, more water"])
    text = page_of(played(study), tmp_path).text
    effect = study.effects()[0]
    for said in (
        "factor=2 \N{MINUS SIGN} factor=1",
        f"{effect.estimate:+.2f}"[:4],
        "95 % interval",
        effect.speaks_of,
        effect.method.partition(";")[0],
        "9 runs",
        "as registered",
        "more factor, more water",
        study._registered["digest"] if study._registered else "",
        "9, the same in all arms: 0 to 8",
        "instant",
        "study.tape",
        study._notes.digest,
        "No run failed.",
        "mean of 9 seeds",
        "more than one model",
    ):
        assert said in text


def test_a_report_loads_nothing_and_runs_nothing(tmp_path: Path, path: Path) -> None:
    world = {"factor": [1.0, 2.0], "taste": {"plain": "plain", EVIL: f"{EVIL}, and rude"}}
    study = played(study_of(Dry, world, tape=path, name=EVIL))
    page = page_of(study, tmp_path)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "image", "base"}
    loaded = [
        value
        for _, attributes in page.tags
        for name, value in attributes.items()
        if name in ("href", "src", "xlink:href", "action") or name.startswith("on")
    ]
    assert loaded
    assert all(value and value.startswith("#") for value in loaded)
    html = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in html
    assert "@import" not in html
    assert re.findall(r"url\((?!#)", html) == []
    assert "\u202e" not in html
    assert "alert(1)</script>" in page.text  # shown, as text


def test_two_reports_of_the_same_runs_are_the_same_file(tmp_path: Path, path: Path) -> None:
    first = played(study_of(tape=path)).report(tmp_path / "a.html")
    second = study_of(tape=path).report(tmp_path / "b.html")
    assert first.read_bytes() == second.read_bytes()


def test_a_report_replaces_an_older_one_and_never_a_tape(tmp_path: Path, path: Path) -> None:
    study = played(study_of(tape=path))
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=rf"{path.name} is a tape or another database, and"):
        study.report(path)
    assert path.read_bytes() == before
    with pytest.raises(ConfigError, match=r"cannot write .*; choose another file"):
        study.report(tmp_path / "no folder" / "a.html")
    (tmp_path / "a.html").write_text("older")
    assert study.report(tmp_path / "a.html").stat().st_size > 1000


def test_what_failed_is_reported_by_error_arm_and_seed(tmp_path: Path) -> None:
    text = page_of(played(study_of(Dry)), tmp_path).text
    assert "the basin is dry" in text
    assert "factor=2, seed 0, turn 2; factor=2, seed 1, turn 2" in text
    assert "factor=2: 2 of 9 (22%)" in text
    assert "2 of 9 pairs left out" in text


def test_settings_that_differ_are_shown_arm_by_arm(tmp_path: Path) -> None:
    study = played(study_of(vary={"llm.temperature": [0.0, 0.9]}, turns=1))
    text = page_of(study, tmp_path).text
    assert "llm.temperature 0.0 0.9" in text
    many = played(study_of(vary={"factor": [1, 2, 3, 4, 5]}, turns=1, seeds=2))
    assert "arm factor factor=1 1.0 factor=2 2.0" in page_of(many, tmp_path).text


def test_settings_that_are_alike_are_said_to_be(tmp_path: Path) -> None:
    # The label differs, and what the run is given does not.
    text = page_of(played(study_of(vary={"factor": {"one": 2.0}}, turns=1)), tmp_path).text
    assert "The arms have the same settings." in text
    assert "No arms are compared" in text


@pytest.mark.parametrize("kept", ["on a tape", "in memory"])
def test_a_replay_has_the_digest_that_the_report_names(
    kept: str, tmp_path: Path, path: Path
) -> None:
    study = played(study_of(tape=path if kept == "on a tape" else None, seeds=2))
    if study.tape is not None:
        run: Run = replay(study.tape, 1, kind=Water)
    else:
        run = study.simulation("factor=1", 0)
    rows = run.to_frame().drop(columns="seconds").to_dict("records")
    digest = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:32]
    assert digest in page_of(study, tmp_path).text


def test_a_study_that_was_not_played_has_a_report_too(tmp_path: Path) -> None:
    text = page_of(study_of(), tmp_path).text
    assert "No run is complete." in text
    assert "18 of 18 runs are not done yet." in text
    assert "Nothing was registered" in text


def test_a_report_while_runs_are_left_is_a_look(tmp_path: Path, path: Path) -> None:
    played(study_of(tape=path, seeds=4))
    study = study_of(tape=path)
    assert "look 1 of an unregistered sequence" in page_of(study, tmp_path).text


def test_a_latin_hypercube_has_no_effects_and_says_so(tmp_path: Path) -> None:
    study = study_of(vary={"factor": (0.5, 2.0)}, design={"latin hypercube": 3}, seeds=2)
    text = page_of(played(study), tmp_path).text
    assert "3 points of a Latin hypercube" in text
    assert "there is no reference" in text
    assert (
        "no reference arm" in checklist(study).to_frame().set_index("question")["found"].str.cat()
    )


def test_an_outcome_function_that_raises_is_named_in_the_report(tmp_path: Path) -> None:
    def depth(run: Any) -> float:
        return float(run.state.depth)

    page = page_of(played(study_of(outcome={"depth": depth}, seeds=2)), tmp_path)
    fault = (
        "outcome 'depth' fails for arm 'factor=1', seed 0: AttributeError: 'Basin' object has no "
        "attribute 'depth'"
    )
    assert f"No effects can be shown. {fault}" in page.text
    assert page.text.count(fault) == 2  # among what a referee would ask, too
    assert "factor=2" in page.text


def test_an_outcome_without_a_column_leaves_the_worlds_first_chart(tmp_path: Path) -> None:
    def ann(run: Any) -> float:
        return float(run.state.shares["Ann"])

    page = page_of(played(study_of(outcome=ann)), tmp_path)
    assert "No column by turn, so no chart: ann." in page.text
    assert "svg" in {tag for tag, _ in page.tags}


def test_small_effects_have_as_many_decimals_as_their_interval_bears(tmp_path: Path) -> None:
    def tiny(run: Any) -> float:
        return float(run.state.level) / 1e4

    study = played(study_of(outcome=tiny))
    [effect] = study.effects()
    assert effect.estimate is not None
    assert f"{effect.estimate:+.5f}"[:6] in page_of(study, tmp_path).text


@pytest.mark.parametrize("background", ["#ffffff", "#0d1117"])
@pytest.mark.parametrize("colour", ["#e69f00", "#0072b2", "#56b4e9", "#000080"])
def test_a_charts_texts_are_read_on_light_and_dark_pages(background: str, colour: str) -> None:
    def luminance(text: str) -> float:
        parts = [int(text[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [it / 12.92 if it <= 0.04045 else ((it + 0.055) / 1.055) ** 2.4 for it in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(_seen_on(background, colour, 4.5)), luminance(background)))
    assert (high + 0.05) / (low + 0.05) >= 4.5


def test_colours_are_changed_in_tags_and_black_becomes_the_texts() -> None:
    palette = _Palette()
    tag = '<path style="fill: #0072b2; stroke: #000000"/>'
    assert palette.on_any_background(tag) == (
        '<path style="fill: var(--line-0072b2); stroke: currentColor"/>'
    )
    assert "--line-0072b2:#0072b2" in palette.css


def test_an_arm_may_be_called_like_a_colour(tmp_path: Path) -> None:
    study = played(study_of(vary={"taste": {"plain": "plain", "a: #0072b2": "sweet"}}, turns=1))
    assert "a: #0072b2" in page_of(study, tmp_path).text


# --- the checklist -------------------------------------------------------------------------------


def asked(study: Study) -> dict[str, tuple[str, str]]:
    return {it.question: (it.answer, it.found) for it in checklist(study)}


def answer(study: Study, question: str) -> tuple[str, str]:
    [found] = [value for name, value in asked(study).items() if question in name]
    return found


def test_registration_is_read_from_the_runs(tmp_path: Path, path: Path) -> None:
    assert answer(played(study_of()), "registered")[0] == "missing"
    study = study_of(tape=path)
    plan = study.register(tmp_path / "plan.yaml")
    played(study)
    assert answer(study, "registered")[0] == "ok"
    assert answer(study, "rule for stopping") == (
        "ok",
        "after 9 seeds in every arm; no look before",
    )
    again = study_of(tape=path)
    state, found = answer(again, "registered")
    assert state == "unknown"
    assert "not read here" in found
    again.register(plan)
    assert answer(again, "registered")[0] == "ok"


def test_runs_from_before_the_registration_are_missing_it(tmp_path: Path, path: Path) -> None:
    study = played(study_of(tape=path, seeds=3))
    study.register(tmp_path / "plan.yaml")
    assert answer(study, "registered") == (
        "missing",
        "6 of 6 runs were begun before, or under another plan",
    )


def test_in_memory_nobody_knows_when_a_plan_was_registered(tmp_path: Path) -> None:
    study = played(study_of(seeds=2))
    study.register(tmp_path / "plan.yaml")
    assert answer(study, "registered")[0] == "unknown"


def test_the_checklist_itself_is_no_look_and_early_looks_are_told(path: Path) -> None:
    played(study_of(tape=path, seeds=3))
    study = study_of(tape=path)
    checklist(study)
    assert "looked at" not in answer(study, "rule for stopping")[1]
    study.effects()
    assert "effects were looked at after 6 of 18 runs" in answer(study, "rule for stopping")[1]


def test_failed_runs_are_counted_by_arm() -> None:
    study = played(study_of(Dry))
    assert answer(study, "no run failed") == ("missing", "factor=2: 2 failed of 9 (22% failed)")
    assert answer(study, "same seeds") == ("missing", "7 of 9 seeds are complete in all arms")
    assert answer(played(study_of()), "no run failed") == ("ok", "all 18 are done")


class Wavering(ScriptedBackend):
    """A model whose weights are exchanged while a study is played."""

    def __init__(self, digests: list[str | None], reply: Any) -> None:
        super().__init__(reply)
        self.digests = digests

    async def model_info(self) -> ModelInfo:
        digest = self.digests.pop(0) if len(self.digests) > 1 else self.digests[0]
        return ModelInfo(name="small", backend="ollama", digest=digest)


def client_with(*digests: str | None, bad: bool = False) -> LLMClient:
    def reply(_request: Any) -> Any:
        return "no JSON" if bad else {"reasoning": "so", "amount": 3, "confidence": 0.5}

    config = LLMConfig(model="small", retry_wait_s=0)
    return LLMClient(config, Wavering(list(digests), reply))


@pytest.mark.parametrize(
    ("digests", "expected"), [(("a" * 64,), "ok"), ((None,), "unknown")], ids=["known", "unknown"]
)
def test_the_models_digest_is_known_or_not(
    digests: tuple[str | None, ...], expected: str, path: Path
) -> None:
    study = played(study_of(tape=path, seeds=2, llm_client=client_with(*digests)))
    assert answer(study, "by digest")[0] == expected
    assert answer(study, "more than one model")[0] == "missing"


def test_a_model_that_changed_under_way_is_found(path: Path) -> None:
    played(study_of(tape=path, seeds=2, llm_client=client_with("a" * 64)))
    study = played(study_of(tape=path, seeds=4, llm_client=client_with("b" * 64)))
    state, found = answer(study, "by digest")
    assert state == "missing"
    assert "aaaaaaaaaaaa" in found
    assert "bbbbbbbbbbbb" in found


def test_in_memory_the_models_digest_is_not_known() -> None:
    assert answer(played(study_of(seeds=2)), "by digest") == ("unknown", "the runs are on no tape")


def test_two_models_side_by_side_are_enough(path: Path) -> None:
    models = {"one": client_with("a" * 64), "two": client_with("b" * 64)}
    study = played(study_of(vary={"model": models}, seeds=2, tape=path, llm_client=None))
    assert answer(study, "more than one model")[0] == "ok"


def test_temperature_and_seeds_are_told() -> None:
    found = answer(played(study_of(seeds=2)), "temperature")
    assert found == ("ok", "temperature 0.7, seed each call's own, from the run's")
    drawn = played(study_of(Water(replicate=None, llm_client=instant_client()).config, seeds=2))
    state, found = answer(drawn, "temperature")
    assert state == "missing"
    assert "the server draws anew in factor=1, factor=2" in found


def test_a_reworded_prompt_is_for_the_reader_to_judge() -> None:
    assert answer(played(study_of(seeds=2)), "wordings") == ("missing", "one wording")
    vary = {"prompt": {"as it is": None, "polite": lambda text: f"Please. {text}"}}
    study = played(study_of(vary=vary, seeds=2))
    state, found = answer(study, "wordings")
    assert state == "unknown"
    assert "as it is, polite" in found


def test_rules_are_not_asked_about_models() -> None:
    study = played(study_of(players="rule", llm_client=None))
    assert answer(study, "which model") == (
        "ok",
        "no model was asked: rules or chance play everybody",
    )
    assert not [name for name in asked(study) if "wording" in name or "temperature" in name]


def test_an_a_a_arm_is_missed_where_a_model_draws() -> None:
    assert answer(played(study_of(seeds=2)), "A/A")[0] == "missing"
    assert answer(played(study_of(seeds=2, aa=True)), "A/A")[0] == "ok"


def test_an_outcome_in_steps_is_coarse_and_a_mean_is_not() -> None:
    def steps(run: Any) -> float:
        return 0.25 * round(4 * run.state.level / 8) + (run.config.factor > 1) * 0.25 * (
            run.config.seed == 1
        )

    state, found = answer(played(study_of(outcome=steps)), "coarser")
    assert state == "missing"
    assert "factor=2 \N{MINUS SIGN} factor=1, steps" in found
    assert "steps of 0.25" in found
    assert answer(played(study_of()), "coarser")[0] == "ok"


def test_of_an_arm_and_its_repeat_alone_nothing_is_compared() -> None:
    questions = asked(played(study_of(Water, {}, aa=True)))
    assert "an A/A arm" in questions
    assert "the interval's unit" not in questions


def test_whether_something_happened_is_not_too_coarse() -> None:
    def happened(run: Any) -> float:
        return float(run.config.factor > 1 and run.config.seed % 2)

    assert answer(played(study_of(outcome=happened)), "coarser")[0] == "ok"


def test_a_study_without_an_outcome_is_reported_without_effects(tmp_path: Path) -> None:
    study = played(study_of(outcome=[], seeds=2))
    assert "No outcome is named, so nothing is compared." in page_of(study, tmp_path).text
    assert answer(study, "one family") == ("missing", "no outcome is named")


def test_one_run_an_arm_has_no_interval() -> None:
    state, found = answer(played(study_of(seeds=1)), "interval's unit")
    assert state == "missing"
    assert "an interval takes two" in found
    state, found = answer(played(study_of()), "interval's unit")
    assert (state, "n = 9" in found) == ("ok", True)


def test_a_tape_that_was_changed_is_found(path: Path) -> None:
    import sqlite3

    played(study_of(tape=path, seeds=2)).close()
    assert answer(study_of(tape=path, seeds=2), "tape is whole")[0] == "ok"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE turns SET row = replace(row, '0.5', '0.6') WHERE turn = 1")
        connection.execute("UPDATE turns SET record = record || ' ' WHERE run = 2 AND turn = 1")
    connection.close()
    assert answer(study_of(tape=path, seeds=2), "tape is whole")[0] == "missing"
    assert answer(played(study_of(seeds=2)), "tape is whole")[0] == "missing"


@pytest.mark.parametrize(("digests", "expected"), [("aa", "ok"), ("ab", "missing")])
def test_the_code_is_of_one_version(
    digests: str, expected: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seeds, digest in zip((1, 2), digests, strict=True):
        code = {"file": digest}
        monkeypatch.setattr(Water, "code_digests", code)
        study = played(study_of(tape=path, seeds=seeds))
    assert answer(study, "version of the code")[0] == expected


class Card:
    told = "economist"
    verdict = "Fails the economic gate; direction (fail)."

    def __init__(self, name: str, outcome: str) -> None:
        self.name, self.result = name, outcome

    def is_of(self, info: ModelInfo) -> bool:
        return info.name == self.name

    def outcome(self, _decide: str) -> str:
        return self.result


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        ([], "unknown"),
        ([Card("another", "pass")], "unknown"),
        ([Card("small", "pass")], "ok"),
        ([Card("small", "fail")], "missing"),
        ([Card("small", "undecided")], "unknown"),
        ([Card("small", "pass"), Card("small", "fail")], "ok"),  # the newest comes first
    ],
)
def test_the_gate_is_answered_from_the_card_that_is_kept(
    cards: list[Card], expected: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reply(request: Any) -> Any:
        return {"rate_change_bp": 25, "action": "Raise", "reasoning": "so", "confidence": 0.5}

    client = LLMClient(LLMConfig(model="small", retry_wait_s=0), Wavering(["a" * 64], reply))
    study = played(
        Study(
            Simulation,
            {"nations.0.inflation_target": [2.0, 2.5]},
            seeds=2,
            turns=1,
            outcome="inflation",
            tape=path,
            llm_client=client,
            start="1979Q3",
            nations=[{"name": "Bank"}],
            validator={"kind": "always_valid"},
        )
    )
    monkeypatch.setattr(_checklist, "kept_economics_cards", lambda: cards)
    assert answer(study, "economic gate")[0] == expected
    state, found = answer(study, "recall the history")
    assert state == "unknown"
    assert "1979Q3, dates and names are masked" in found


def test_a_checklist_is_a_text_a_frame_and_a_table() -> None:
    found = checklist(played(study_of(seeds=2)))
    assert "✗ registered before it was played: no plan" in str(found)
    frame = found.to_frame()
    assert list(frame) == ["question", "answer", "found", "remedy"]
    assert (frame["remedy"] != "").tolist() == (frame["answer"] != "ok").tolist()
    assert sum(found.counts.values()) == len(found)
    html = found._repr_html_()
    assert "missing</span>" in html
    assert found.summary in html


# --- one format for plans ------------------------------------------------------------------------


def test_a_registered_plan_is_the_study_as_a_file(tmp_path: Path, path: Path) -> None:
    study = study_of(tape=path, aa=True, taste="sweet")
    file, _ = read_study(study.register(tmp_path / "plan.yaml", hypotheses=["more"], alpha=0.01))
    assert file.is_registered
    assert file.world.endswith("study_kit.py:Water")
    assert (file.alpha, file.hypotheses, file.contrasts) == (
        0.01,
        ["more"],
        [("factor=2", "factor=1")],
    )
    same = Study(Water, **file.arguments(tmp_path / "plan.yaml"), **file.fixed)
    assert same._notes.digest == study._notes.digest
    assert same.tape is None
    assert same._path == path
    same.register(tmp_path / "plan.yaml")
    assert same._registered == study._registered


@pytest.mark.parametrize(
    "vary",
    [
        {"economy.shock_scale": [1.0, 2.0]},
        {"nations.0.inflation_target": {"low": 1.0, "high": 3.0}},
        {"start": {"now": "2009Q1", "then": None}},
    ],
)
def test_a_configuration_comes_back_from_the_plan(vary: Any, tmp_path: Path) -> None:
    config = Simulation.config_type(**RULES, economy={"fiscal_backstop": True})
    study = Study(config, vary, seeds=[3, 5], turns=2, outcome={"p": "inflation"})
    file, _ = read_study(study.register(tmp_path / "plan.yaml"))
    assert file.world == "economic"
    again = Simulation.config_type(**file.config)  # type: ignore[arg-type]
    same = Study(again, **{**file.arguments(tmp_path / "p.yaml"), "tape": None}, **file.fixed)
    assert (same._notes.digest, same.seeds) == (study._notes.digest, [3, 5])


def test_what_a_plan_cannot_hold_identifies_the_study_and_no_more(tmp_path: Path) -> None:
    def polite(text: str) -> str:
        return f"Please. {text}"

    study = study_of(vary={"prompt": {"as it is": None, "polite": polite}})
    plan = study.register(tmp_path / "plan.yaml")
    file, _ = read_study(plan)
    with pytest.raises(ConfigError, match="no prompt is called 'only in Python'"):
        Study(Water, **{**file.arguments(plan), "tape": None}, **file.fixed)
    plan.write_text(plan.read_text().replace("design_digest: ", "design_digest: other"))
    with pytest.raises(ConfigError, match="is a function or an object, which only Python has"):
        study.register(plan)
    plan.write_text(plan.read_text().replace("design_digest: other", "design_digest: "))
    study_of(vary={"prompt": {"as it is": None, "polite": polite}}).register(plan)


def test_other_contrasts_are_registered(tmp_path: Path) -> None:
    study = study_of(vary={"factor": [1.0, 2.0, 3.0]})
    study.register(tmp_path / "plan.yaml", contrasts=[("factor=3", "factor=2")])
    [effect] = played(study).effects()
    assert effect.contrast == "factor=3 \N{MINUS SIGN} factor=2"
    same = study_of(vary={"factor": [1.0, 2.0, 3.0]})
    same.register(tmp_path / "plan.yaml")
    assert same._registered == study._registered
    with pytest.raises(ConfigError, match="there is no arm 'factor=4'"):
        same.register(tmp_path / "other.yaml", contrasts=[("factor=4", "factor=2")])


def test_a_registered_study_shows_its_a_a_arm_too(tmp_path: Path) -> None:
    study = study_of(aa=True)
    study.register(tmp_path / "plan.yaml")
    effects = played(study).effects()
    assert [it.contrast.partition(" ")[0] for it in effects] == ["factor=2", "A/A"]
    assert effects.label.startswith("as registered")


def test_a_plan_with_a_wrong_key_says_its_line(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("world: economic\nalfa: 0.05\n")
    with pytest.raises(ConfigError, match=r"plan\.yaml, line 2: alfa: unknown key"):
        study_of().register(plan)
