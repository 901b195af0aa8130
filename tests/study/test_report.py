"""The report of a study for a referee."""

from __future__ import annotations

import hashlib
import json
import re
from functools import partial
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import study_kit
from page_kit import PageData
from study_kit import Basin, Water, played

from llmsim_lab import Ask, Run, Tape
from llmsim_lab.errors import ConfigError
from llmsim_lab.study import Study

pytestmark = pytest.mark.usefixtures("undrawn")
MINUS = "\N{MINUS SIGN}"
EVIL = "<script>alert(1)</script> \u202e $x$ #ff0000"

study_of = partial(study_kit.study_of, seeds=9, turns=3)


class Dry(Water):
    async def turn(self, state: Basin, ask: Ask) -> Basin:
        if self.factor > 1 and ask.turn == 2 and self.config.seed < 2:
            raise RuntimeError(f"the basin is dry {EVIL}")
        return await super().turn(state, ask)


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


def test_a_report_begins_with_the_effects_and_says_what_was_played(tmp_path: Path) -> None:
    study = played(study_of(tape=tmp_path / "study", turns=2))
    page, effect = page_of(study, tmp_path), study.effects()[0]
    interval = f"95 %: {effect.low:.2f} to {effect.high:.2f}".replace("-", MINUS)
    numbers = f"{effect.value:+.2f} {interval} < .001 9 runs"
    told = [f"{effect.contrast} level {numbers}", f"9 runs {effect.generalises_to}", effect.method]
    told += ["9: 0, 1, 2, 3, 4, 5, 6, 7, 8", "it asks instant", "calls of complete runs"]
    told += ["0 runs failed", "The study was not registered"]
    for words in (*told, study.tape_of("factor=2", 8).name):
        assert words in page.text
    parents = [before for before, (tag, _) in pairwise(page.tags) if tag == "table"]
    assert len(parents) == 5
    assert all(its["tabindex"] == "0" and its["aria-label"] for _, its in parents)
    heads = ("Effects", "Registration", "Charts", "Design", "What failed", "Runs")
    places = [page.text.index(f" {head} ") for head in heads]
    assert places == sorted(places)
    images = [re.split("[,:]", str(its["alt"]))[0] for tag, its in page.tags if tag == "img"]
    assert images == ["level by arm. factor=1", f"factor=2 {MINUS} factor=1"]


def test_a_report_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    world = {"factor": [1.0, 2.0], "taste": {"plain": "plain", EVIL: f"{EVIL}, and rude"}}
    page = page_of(played(study_of(Dry, world, name=EVIL, seeds=3)), tmp_path)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "base"}
    attributes = [pair for _, its in page.tags for pair in its.items()]
    loaded = [it or "" for name, it in attributes if name in ("href", "src", "action")]
    assert loaded
    assert all(it.startswith("data:image/png;base64,") for it in loaded)
    assert not any(name.startswith("on") for name, _ in attributes)
    html = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in html
    assert not re.search(r"@import|url\(|\u202e", html)
    assert "alert(1)</script>" in page.text  # shown, as text


def test_a_page_has_the_report_for_print_and_for_where_no_script_runs(tmp_path: Path) -> None:
    study = played(study_of(seeds=2, name=EVIL))
    report, whole = (
        write(tmp_path / "study.html").read_text(encoding="utf-8")
        for write in (study.report, study.page)
    )
    print_view = report[report.index('<main id="report">') : report.index("</main>")]
    assert print_view in whole
    assert list(PageData(tmp_path / "study.html").runs) == [1, 2, 3, 4]
    assert '<div id="page"></div>' in whole
    assert "<script" not in report
    # The page's policy forbids inline styles.
    assert not [tag for tag, its in Page(whole).tags if "style" in its]


def test_a_report_replaces_an_older_one_and_never_a_tape(tmp_path: Path) -> None:
    study = played(study_of(tape=tmp_path / "s", seeds=2))
    tape = study.tape_of("factor=1", 0)
    before = tape.read_bytes()
    (tmp_path / "run.html").write_bytes(before)
    with pytest.raises(ConfigError, match=r"run\.html is a tape, and"):
        study.report(tmp_path / "run.html")
    assert (tmp_path / "run.html").read_bytes() == before
    (tmp_path / "a.html").write_text("older")
    written = study.report(tmp_path / "a.html").read_bytes()
    # Two reports of the same runs are the same file.
    again = study_of(tape=tmp_path / "s", seeds=2).report(tmp_path / "b.html")
    assert again.read_bytes() == written
    run: Run = Water.replay(tape)
    rows = run.to_frame().drop(columns="seconds").to_dict("records")
    digest = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:32]
    assert digest in written.decode()


def test_what_failed_is_reported_and_left_out_with_its_partner(tmp_path: Path) -> None:
    text = page_of(played(study_of(Dry)), tmp_path).text
    assert text.count("the basin is dry") == 2
    for seed in (0, 1):
        assert f" factor=2 {seed} 1 RuntimeError: the basin is dry" in text
    assert "2 runs failed, and are left out of all effects with their partners." in text
    assert "2 of 9 units left out" in text


def test_a_factorial_s_report_begins_with_the_main_effects(tmp_path: Path) -> None:
    vary = {"factor": [1.0, 2.0], "taste": ["plain", "fine", "sour"]}
    page = page_of(played(study_of(vary=vary, seeds=3, players="rule", llm_client=None)), tmp_path)
    captions = ["main effects", f"factor=2 {MINUS} factor=1 level"]
    captions += ["each arm minus factor=1 · plain", f"factor=1 · fine {MINUS} factor=1 · plain"]
    places = [page.text.index(words) for words in captions]
    assert places == sorted(places)


def test_a_row_of_effects_has_its_adjusted_p_and_a_typical_difference_beside_a_skewed_mean(
    tmp_path: Path,
) -> None:
    outcome = {"level": "level", "odd": lambda run: run.factor * (1 + run.seed) ** 4}
    study = played(study_of(outcome=outcome, llm_client=None, players="rule", turns=1))
    text = page_of(study, tmp_path).text
    level, odd = study.effects()
    assert (odd.value, odd.typical is not None) == (pytest.approx(15333 / 9), True)
    # The larger p of two is not adjusted; no p is so small that it is not said.
    assert level.p < level.p_family < odd.p == odd.p_family
    for p, words in ((level.p_family, ", adjusted"), (odd.p, "")):
        shown = "< .001" if p < 0.0005 else f"{p:.3f}".removeprefix("0")
        assert f" {shown}{words} 9 runs " in text
    assert f"{odd.contrast} odd {odd.value:+.2f} 95 %: " in text
    assert f"{odd.contrast} odd typical {odd.typical.value:+.2f} 95 %: " in text


def test_each_run_is_read_once_for_results_charts_plan_and_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(study_of(tape=tmp_path / "s", seeds=2))
    study = study_of(tape=tmp_path / "s", seeds=2)
    read, real = list[int](), Tape.frame_rows
    monkeypatch.setattr(Tape, "frame_rows", lambda tape, run: read.append(run) or real(tape, run))
    study.plan()
    study.chart("level")
    study.by_turn("shares.Ann")
    study.report(tmp_path / "out.html")
    assert len(study.to_frame()) == len(read) * 4 == 2 * 2 * 4


def test_the_settings_of_each_arm_are_folded(tmp_path: Path) -> None:
    vary = {"llm.temperature": [0.0, 0.9]}
    page = page_of(played(study_of(vary=vary, turns=1, seeds=2)), tmp_path)
    for part, degree in zip(page.text.split("settings of llm.")[1:], ("0.0", "0.9"), strict=True):
        assert f'"temperature": {degree}' in part


def test_a_study_that_is_not_complete_has_a_report_too(tmp_path: Path) -> None:
    text = page_of(study_of(), tmp_path).text
    assert "Nothing is compared" in text
    assert "18 runs are not done yet." in text
    many = page_of(study_of(seeds=80), tmp_path).text
    [units] = re.findall("seeds 80: (.*?…)", many)
    assert len(units) == 200
    played(study_of(tape=tmp_path / "s", seeds=4))
    assert "8 of 18 runs so far" in page_of(study_of(tape=tmp_path / "s"), tmp_path).text


def test_an_outcome_function_that_raises_is_named_in_the_report(tmp_path: Path) -> None:
    def depth(run: Any) -> float:
        return float(run.state.depth)

    page = page_of(played(study_of(outcome={"depth": depth}, seeds=2)), tmp_path)
    fault = "outcome 'depth' fails for arm 'factor=1', seed 0: AttributeError: 'Basin' object has"
    assert f"Not known, each arm minus factor=1: {fault}" in page.text
