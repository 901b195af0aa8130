"""A study's plan on file: what it says, what was kept of it, and what came after."""

from __future__ import annotations

import json
import logging
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import study_kit
from builders import recorded
from study_kit import Basin, Water, Wish, instant_client, kind, played

from llmsim_lab import Ask, LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.errors import ConfigError
from llmsim_lab.study import Study

study_of = partial(study_kit.study_of, turns=2)
PROMPTS = {"prompt": {"as it is": None, "kind": kind}}


def parts_of(study: Any, path: Path) -> dict[str, str]:
    """Register again, as a script that is run again does; the parts by their status."""
    study.register(path)
    return {part.name: part.status for part in study.registered_parts()}


def test_a_plan_on_file_says_what_is_claimed_and_with_which_model_prompts_and_code(
    tmp_path: Path,
) -> None:
    study = study_of(vary=PROMPTS, tape=tmp_path / "s")
    registration = study.register(tmp_path / "plan.json", sesoi=0.5)
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["claims"]["family"] == "1 comparison: kind \N{MINUS SIGN} as it is, in level"
    assert (plan["claims"]["sesoi"], plan["runs_before"]) == (0.5, 0)
    # A later format is another number, so that no session reads a file otherwise than it was meant.
    assert plan["registration"] == 1
    (tmp_path / "later.json").write_text(json.dumps({**plan, "registration": 2}))
    with pytest.raises(ConfigError, match="is of format 2, not 1"):
        study.register(tmp_path / "later.json")
    design = plan["design"]
    assert (design["units"], design["turns"]) == ([0, 1, 2], 2)
    assert design["models"]["kind"]["the model"]["name"] == "instant"
    [[as_it_is], [edited]] = (design["prompts"][arm]["wish"] for arm in ("as it is", "kind"))
    assert as_it_is != edited
    assert design["code"].keys() == {"file", "llmsim-lab"}
    assert plan["sha256"] in str(registration)
    assert "before any run" in str(registration)


def test_a_study_without_a_model_is_not_registered(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="may ask a model, and the study has none"):
        study_of(llm_client=None).register(tmp_path / "plan.json")
    assert not (tmp_path / "plan.json").exists()


def test_what_was_registered_and_played_so_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    study_of(vary=PROMPTS, tape=tmp_path / "s").register(path)
    before = path.read_bytes()
    study = played(study_of(vary=PROMPTS, tape=tmp_path / "s"))
    parts = parts_of(study, path)
    assert (len(parts), set(parts.values())) == (11, {"kept"})
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({"seeds": 4}, "seeds"),
        ({"turns": 3}, "turns of a run"),
        ({"outcome": {"level": "shares.Ann"}}, "outcomes"),
        ({"llm_client": instant_client(temperature=0.1)}, "models"),
        ({"vary": {"prompt": {"as it is": None, "kind": "Be kind to {{ name }}."}}}, "prompts"),
        ({"taste": "sour"}, "the same in all arms"),
    ],
)
def test_what_was_played_otherwise_is_named(
    tmp_path: Path, changes: dict[str, Any], changed: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "plan.json"
    study_of(vary=PROMPTS).register(path)
    study = played(study_of(**{"vary": PROMPTS, **changes}))
    with caplog.at_level(logging.WARNING):
        statuses = parts_of(study, path)
    expected = {changed, *({"arms and their levels"} if changed == "prompts" else ())}
    assert {name for name, status in statuses.items() if status == "changed"} == expected
    assert "REGISTRATION_NOT_KEPT" in caplog.text


def test_registering_after_runs_exist_says_how_many(tmp_path: Path) -> None:
    study = played(study_of(seeds=2))
    assert "after 4 runs had begun" in str(study.register(tmp_path / "plan.json"))
    [before] = [it for it in study.registered_parts() if it.name == "runs begun before it"]
    assert (before.registered, before.played, before.status) == ("4", "of 4 runs", "changed")


def test_situations_asked_again_are_registered_too(tmp_path: Path) -> None:
    tape, path = tmp_path / "water.tape", tmp_path / "plan.json"
    recorded(Water(llm_client=instant_client(), tape=tape, turns=2))
    study = Study.again(tape, PROMPTS, samples=2, llm_client=instant_client())
    assert study.register(path).design.samples == 2
    parts = parts_of(played(study), path)
    assert set(parts.values()) == {"kept"}
    assert {"situations", "samples of a situation"} <= parts.keys()


def test_a_changed_file_is_told_by_its_hash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "plan.json"
    study_of().register(path)
    path.write_text(path.read_text().replace('"turns": 2', '"turns": 3'))
    assert "THE FILE WAS CHANGED SINCE" in str(study_of(turns=3).register(path))
    assert "REGISTRATION_CHANGED" in caplog.text


def test_claims_that_differ_from_a_changed_file_are_told_that_it_was_changed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "plan.json"
    study_of().register(path, sesoi=2)
    path.write_text(path.read_text().replace('"sesoi": 2', '"sesoi": 1'))
    with pytest.raises(ConfigError, match=r"other claims \(the file was changed since\)"):
        study_of().register(path, sesoi=2)


def test_a_registration_is_not_replaced_by_other_claims_or_written_over_another_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "plan.json"
    study_of().register(path)
    with pytest.raises(ConfigError, match=r"registered other claims: 1 comparison: .*kept as it"):
        study_of().register(path, sesoi=1)
    path.write_text("{}")
    with pytest.raises(ConfigError, match=r"plan\.json is not a registration"):
        study_of().register(path)
    with pytest.raises(ConfigError, match="nothing to register"):
        study_of(vary={"factor": [1.0]}).register(tmp_path / "other.json")


def test_a_factorial_registers_the_effects_of_its_formula(tmp_path: Path) -> None:
    vary = {"factor": [1.0, 2.0], "taste": ["plain", "fine"]}
    study = study_of(vary=vary, outcome=["level", "shares.Ann"])
    claims = study.register(tmp_path / "plan.json", formula="level ~ factor * taste").claims
    assert (claims.outcomes, claims.contrasts) == (["level"], [])
    assert claims.family == "every effect of level ~ factor * taste in each of level"
    with pytest.raises(ConfigError, match=r"factor 'colour'.*there are factor, taste"):
        study.register(tmp_path / "other.json", formula="~ colour")


def test_contrasts_are_registered_with_how_they_are_compared_and_found_so(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    study = study_of(vary={"factor": [1.0, 2.0, 3.0]}, outcome=["level", "shares.Ann"])
    contrasts = [("factor=3", "factor=2"), ("factor=1", "factor=3")]
    claims = study.register(path, contrasts=contrasts, level=0.9, paired=False).claims
    assert claims.contrasts == [["factor=3", "factor=2"], ["factor=1", "factor=3"]]
    assert claims.family == (
        "4 comparisons: factor=3 \N{MINUS SIGN} factor=2, factor=1 \N{MINUS SIGN} factor=3, in "
        "level, shares.Ann, of runs that are not paired"
    )
    # A script that is run again need not say again what its file says.
    assert study.register(path, level=0.9).claims == claims
    effects = played(study).registered_effects()
    assert [(effect.contrast, effect.outcome) for effect in effects] == [
        (f"{upper} \N{MINUS SIGN} {lower}", outcome)
        for upper, lower in contrasts
        for outcome in ("level", "shares.Ann")
    ]
    assert {(effect.level, effect.n, effect.unit) for effect in effects} == {(0.9, 6, "run")}
    with pytest.raises(ConfigError, match="no arm 'factor=4'"):
        study_of().register(tmp_path / "other.json", contrasts=[("factor=4", "factor=1")])
    typical = study_of(seeds=9).register(tmp_path / "typical.json", typical=True)
    assert typical.claims.family.endswith(", in level, by typical differences")


class Unready(Water):
    async def turn(self, state: Basin, ask: Ask) -> Basin:
        raise ValueError("the gate is shut")


def test_a_world_that_chance_cannot_play_is_registered_without_prompts_and_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registration = study_of(Unready).register(tmp_path / "plan.json")
    assert registration.design.prompts == {"factor=1": {}, "factor=2": {}}
    lines = [line for line in caplog.messages if "NOT_PLAYED_BY_CHANCE" in line]
    assert ['arm="factor=1"' in line for line in lines] == [True, False]
    assert all("ValueError: the gate is shut" in line for line in lines)


@pytest.mark.usefixtures("undrawn")
def test_the_report_sets_what_was_not_registered_apart(tmp_path: Path) -> None:
    path, page = tmp_path / "plan.json", tmp_path / "out.html"
    study_of(outcome="level").register(path)
    study = played(study_of(outcome=["level", "shares.Ann"]))
    study.register(path)
    words = " ".join(re.sub("<[^>]*>", " ", study.report(page).read_text("utf-8")).split())
    registered, came_after = words.split("not registered: each arm minus factor=1")
    assert "registered: 1 comparison" in registered
    contrast = "factor=2 \N{MINUS SIGN} factor=1"
    assert f"{contrast} level" in registered
    assert f"{contrast} shares.Ann" in came_after
    assert f"{contrast} level" not in came_after.partition("Charts")[0]
    assert f"SHA-256 {study.registration.sha256}" in came_after
    assert "seeds 3: 0, 1, 2 the same kept" in came_after


def test_an_arm_that_came_later_and_another_order_of_arms_leave_no_part_that_says_the_same_twice(
    tmp_path: Path,
) -> None:
    path = tmp_path / "plan.json"
    study_of().register(path)
    study = played(study_of(vary={"factor": [2.0, 1.0, 3.0]}, players="rule", llm_client=None))
    parts_of(study, path)
    parts = {part.name: part for part in study.registered_parts() if part.status == "changed"}
    arms = parts["arms and their levels"]
    assert (arms.registered, arms.played) == ("factor=3: not registered", "factor=3: factor: 3.0")
    assert all(part.registered != part.played for part in parts.values())
    assert "prompts" not in parts


def test_models_and_prompts_of_arms_that_have_no_run_are_not_known_yet(tmp_path: Path) -> None:
    path, tape = tmp_path / "plan.json", tmp_path / "s"
    study_of(tape=tape).register(path)
    played(study_of(vary={"factor": [1.0]}, tape=tape))
    study = study_of(tape=tape)
    statuses = parts_of(study, path)
    assert (statuses["models"], statuses["prompts"]) == ("not known yet", "not known yet")
    [models] = [part for part in study.registered_parts() if part.name == "models"]
    assert models.played == "no run was begun of factor=2; else the same"


def test_effects_of_a_registered_formula_are_those_of_the_registered_arms(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    tastes = ["plain", "fine"]
    study_of(vary={"factor": [1.0, 2.0], "taste": tastes}).register(path, formula="~ factor")
    study = played(study_of(vary={"factor": [2.0, 1.0, 3.0], "taste": tastes}))
    study.register(path)
    [effect] = study.registered_effects()
    assert effect.contrast == "factor=2 \N{MINUS SIGN} factor=1"
    dropped = played(study_of())
    statuses = parts_of(dropped, path)
    assert statuses["family of comparisons"] == "changed"
    with pytest.raises(ConfigError, match=r"claims effects of factor=1 · plain, .*does not have"):
        dropped.registered_effects()


@pytest.mark.usefixtures("undrawn")
def test_the_report_says_that_a_registered_outcome_is_not_in_the_study(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    study_of(outcome="level").register(path)
    study = played(study_of(outcome="shares.Ann"))
    study.register(path)
    words = study.report(tmp_path / "out.html").read_text("utf-8")
    assert "claims effects of level, which the study does not have" in words
    assert "registered: 1 comparison" not in words


class Fallback(Water):
    """Takes an answer of its own if one is invalid."""

    async def turn(self, state: Basin, ask: Ask) -> Basin:
        wish = await ask("Ann", Wish, "How much?", fallback={"amount": 1})
        return state.replace(level=float(wish.amount))


def test_registered_effects_note_answers_that_stand_in_for_invalid_ones(tmp_path: Path) -> None:
    client = LLMClient(LLMConfig(model="mute", retry_wait_s=0), ScriptedBackend(lambda _: "no"))
    study = study_of(Fallback, llm_client=client)
    study.register(tmp_path / "plan.json")
    [effect] = played(study).registered_effects()
    assert "(fallback)" in effect.note
