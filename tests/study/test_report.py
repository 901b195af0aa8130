"""The report of a study for a referee."""

from __future__ import annotations

import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from study_kit import Basin, Water, instant_client

from llmsim_lab import Ask, Run, replay
from llmsim_lab.errors import ConfigError
from llmsim_lab.study import Study
from llmsim_lab.study._report import _Palette, _seen_on

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
    text = page_of(played(study), tmp_path).text
    effect = study.effects()[0]
    for said in (
        "factor=2 \N{MINUS SIGN} factor=1",
        f"{effect.estimate:+.2f}"[:4],
        "95 % interval",
        effect.speaks_of,
        effect.method.partition(";")[0],
        "9 runs",
        "9, the same in all arms: 0 to 8",
        "instant",
        "study.tape",
        study._notes.digest,
        "No run failed.",
        "mean of 9 seeds",
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
    with pytest.raises(ConfigError, match=rf"{path.name} is a tape, and"):
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


def test_a_report_while_runs_are_left_says_so(tmp_path: Path, path: Path) -> None:
    played(study_of(tape=path, seeds=4))
    study = study_of(tape=path)
    assert "8 of 18 runs so far" in page_of(study, tmp_path).text


def test_an_outcome_function_that_raises_is_named_in_the_report(tmp_path: Path) -> None:
    def depth(run: Any) -> float:
        return float(run.state.depth)

    page = page_of(played(study_of(outcome={"depth": depth}, seeds=2)), tmp_path)
    fault = (
        "outcome 'depth' fails for arm 'factor=1', seed 0: AttributeError: 'Basin' object has no "
        "attribute 'depth'"
    )
    assert f"No effects can be shown. {fault}" in page.text
    assert "factor=2" in page.text


def test_an_outcome_that_is_a_function_is_drawn_by_run(tmp_path: Path) -> None:
    def ann(run: Any) -> float:
        return float(run.state.shares["Ann"])

    study = played(study_of(outcome=ann))
    labels = [found.get("aria-label") or "" for _, found in page_of(study, tmp_path).tags]
    assert any(label.startswith("ann by run. factor=1: mean") for label in labels)
    assert study.chart("ann").alt.startswith("ann by run. factor=1: mean")


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


def test_a_study_without_an_outcome_is_reported_without_effects(tmp_path: Path) -> None:
    study = played(study_of(outcome=[], seeds=2))
    assert "No outcome is named, so nothing is compared." in page_of(study, tmp_path).text
