"""Players beside people: which runs are compared as one, and how a comparison reads."""

from __future__ import annotations

import html
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pytest

from llmsim_lab import Ask, LLMClient, LLMConfig, Question, Reply, Run, ScriptedBackend, State
from llmsim_lab.errors import ConfigError
from llmsim_lab.people import PublishedFigure
from llmsim_lab.study import PeopleComparison, Study, compare_with_people, exact
from llmsim_lab.study._people import Likeness, effective_number
from llmsim_lab.study.estimates.estimate import Interval
from llmsim_lab.study.estimates.people import Closeness, Halves, Margins, PeopleParts, Verdict
from llmsim_lab.types import ChatReply, ChatRequest

NONE = Closeness(None, None, "not judged")
PAPER = PublishedFigure(
    study="paper",
    condition="in spring",
    source="https://doi.org/1",
    place="table 2",
    n=45,
    mean=0.3,
    sd=0.2,
)


def likeness(verdict: Verdict, *, twin: bool = False, **known: Any) -> Likeness:
    parts = PeopleParts(
        difference=Closeness(-0.05, Interval(-0.1, 0.0), "near"),
        spread=Closeness(0.5, Interval(0.4, 0.6), "near"),
        distance=Closeness(0.07, None, "near"),
        halves=Halves(0.01, 0.05),
        verdict=verdict,
        notes=("skewed",),
    )
    fields = {
        "world": "Gift",
        "arm": "rules",
        "twin": twin,
        "measure": "share",
        "people": PAPER,
        "groups": 20,
        "decisions": 40,
        "mean": 0.25,
        "sd": 0.1,
        "answers": 2.46,
        "parts": parts,
        "margins": Margins(),
        **known,
    }
    return Likeness(**fields)


LIKE = likeness("like people")
IN_WORDS = "players 0.250, people 0.300; difference -0.050 (-0.100 to +0.000)"
OF_SPREAD = "ratio of spreads 0.50 (0.40 to 0.60); distance 0.070"
OF_SAMPLE = "2.5 different answers of 40 (20 groups, 45 persons)"


def with_parts(one: Likeness, **changes: Any) -> Likeness:
    return replace(one, parts=replace(one.parts, **changes))


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (LIKE, f"{IN_WORDS}; {OF_SPREAD} (halves of the people: 0.010); {OF_SAMPLE}"),
        (with_parts(LIKE, halves=None), f"{IN_WORDS}; {OF_SPREAD}; {OF_SAMPLE}"),
        (with_parts(LIKE, spread=NONE, distance=NONE), f"{IN_WORDS}; {OF_SAMPLE}"),
        (likeness("not judged"), f"{IN_WORDS}; {OF_SAMPLE}"),
        (
            likeness("undecided", mass=0.966, people=replace(PAPER, n=1, sd=None)),
            f"{IN_WORDS}; {OF_SPREAD} (halves of the people: 0.010); answers as varied as 2.5 "
            "equally likely ones (exact, mass 0.97, 1 person)",
        ),
        (
            with_parts(likeness("not judged"), difference=Closeness(0.2, None, "not judged")),
            f"players 0.250, people 0.300; difference +0.200; {OF_SAMPLE}",
        ),
    ],
)
def test_a_measure_in_words_has_what_is_judged_and_what_it_rests_on(
    one: Likeness, words: str
) -> None:
    assert one.in_words() == words
    line = f"Gift · rules · share: {one.verdict}; {words}\n  note: skewed"
    assert str(one) == line
    twin = with_parts(replace(one, twin=True), notes=())
    assert str(twin) == f"Gift, altered twin · rules · share: {one.verdict}; {words}"
    assert one.is_exact == (one.mass is not None)


@pytest.mark.parametrize(
    ("original", "twin", "recital"),
    [
        ("like people", "unlike people", "recites"),
        ("like people", "like people", "like people in both"),
        ("unlike people", "unlike people", "unlike people in both"),
        ("not judged", "unlike people", "not judged"),
        ("like people", "undecided", "undecided"),
        ("unlike people", "like people", "undecided"),
        ("undecided", "not judged", "undecided"),
    ],
)
def test_an_original_and_its_twin_say_something_together(
    original: Verdict, twin: Verdict, recital: str
) -> None:
    others = [
        likeness("undecided", twin=True, **{name: "other"}) for name in ("world", "arm", "measure")
    ]
    both = PeopleComparison([likeness(original), likeness(twin, twin=True), *others])
    assert [both.recital(one) for one in both] == [recital, "", "", "", ""]
    assert both.twin_of(both[0]) is both[1]
    assert both.twin_of(both[1]) is None
    assert PeopleComparison(others).recital(likeness(original)) == ""


def several() -> PeopleComparison:
    """Two arms: an original with its twin and a measure that is not judged; a twin alone."""
    parts = likeness("not judged").parts
    late = replace(parts, notes=("skewed", "mean only"), spread=NONE, distance=NONE, halves=None)
    compared = PeopleComparison(
        [
            LIKE,
            likeness("not judged", measure="late", parts=late, margins=Margins(mean=0.2)),
            likeness("unlike people", arm="other", twin=True),
            likeness("unlike people", twin=True),
            likeness("unlike people", twin=True, measure="late"),
        ]
    )
    compared.label = "1 of 8 runs failed"
    return compared


def test_a_comparison_has_a_block_for_each_arm_and_each_note_once_below() -> None:
    long = f"{IN_WORDS}; {OF_SPREAD} (halves of the people: 0.010); {OF_SAMPLE}"
    lines = [" ".join(line.split()) for line in str(several()).split("\n")]
    expected = f"""
        1 of 8 runs failed

        Gift · rules
        share: like people; {long} [1]
        its twin: unlike people; {long} [1]
        original and altered twin: recites
        late: not judged; {IN_WORDS}; {OF_SAMPLE} [1] [2]
        its twin: unlike people; {long} [1]

        Gift · other
        share of the twin: unlike people; {long} [1]

        near: a difference and a distance inside 0.15
        near: a difference and a distance inside 0.2
        [1] skewed
        [2] mean only
    """
    assert " ".join(lines).split() == expected.split()
    assert (lines[1], lines[2]) == ("", "Gift · rules")
    assert max(map(len, str(several()).split("\n"))) <= 80
    assert repr(several()) == str(several())
    assert str(PeopleComparison()) == "nothing to compare"


def test_a_page_has_a_table_for_each_arm() -> None:
    page = several()._repr_html_()
    rows = [
        [html.unescape(re.sub("<.*?>", "", cell)) for cell in re.findall("<t[dh].*?</t[dh]>", row)]
        for row in re.findall("<tr.*?</tr>", page, re.DOTALL)
    ]
    head = ["measure", "verdict", "players", "people", "difference", "spread", "distance"]
    means = ["0.250", "0.300", "-0.050 (-0.100 to +0.000)"]
    numbers = [*means, "0.50 (0.40 to 0.60)", "0.070"]
    assert rows == [
        head,
        ["share [1]", "like people", *numbers],
        ["its twin [1]", "unlike people; both: recites", *numbers],
        ["late [1] [2]", "not judged", *means, "", ""],
        ["its twin [1]", "unlike people", *numbers],
        head,
        ["share of the twin [1]", "unlike people", *numbers],
    ]
    paragraphs = [re.sub("<.*?>", "", line) for line in re.findall("<p.*?</p>", page)]
    assert paragraphs == [
        "compared with people; 1 of 8 runs failed",
        "Gift · rules",
        "Gift · other",
        "near: a difference and a distance inside 0.15",
        "near: a difference and a distance inside 0.2",
        "[1] skewed",
        "[2] mean only",
    ]
    assert "compared with people</p>" in PeopleComparison([LIKE])._repr_html_()


def test_a_frame_has_a_row_for_each_measure() -> None:
    first, late, *_ = several().to_frame().to_dict("records")
    assert list(first.values()) == [
        *("Gift", "rules", False, "share", 20, 40, None),
        *(0.25, 0.3, 45, -0.05, -0.1, 0.0, 0.5, 0.07, 0.01, 2.46),
        *("like people", "recites", "https://doi.org/1", "table 2", "skewed"),
    ]
    assert " ".join(first) == (
        "world arm twin measure groups decisions mass model people n_people difference low high "
        "spread_ratio distance distance_of_halves answers verdict recital source place note"
    )
    assert (late["note"], late["recital"]) == ("skewed; mean only", "not judged")
    assert pd.isna([late["spread_ratio"], late["distance"], late["distance_of_halves"]]).all()
    none = with_parts(LIKE, difference=Closeness(0.1, None, "not judged"))
    [row] = PeopleComparison([none]).to_frame().to_dict("records")
    assert (row["low"], row["high"]) == (None, None)


def test_verdicts_together_are_adjusted_for_those_that_are_judged() -> None:
    sure = with_parts(LIKE, difference=Closeness(0.0, None, "near", 0.001), spread=NONE)
    unsure = with_parts(LIKE, difference=Closeness(0.0, None, "near", 0.04), spread=NONE)
    compared = PeopleComparison([unsure, sure, likeness("not judged"), unsure])
    compared.label = "1 of 8 runs failed"
    together = compared.adjusted()
    verdicts = [one.verdict for one in together]
    assert verdicts == ["undecided", "like people", "not judged", "undecided"]
    assert together.label == "1 of 8 runs failed; verdicts adjusted for 3 measures (Holm)"
    assert [one.verdict for one in PeopleComparison([unsure]).adjusted()] == ["like people"]


# --- runs, studies, laws --------------------------------------------------------------------------


class Gift(Reply):
    share: float


class Nothing(State):
    """Decisions alone are compared."""


class Giving(Run[Nothing]):
    """Ann and Bob give a share in each turn; one of the arms ends early."""

    twin: bool = False
    size: int = 1

    async def turn(self, state: Nothing, ask: Ask) -> Nothing:
        await ask.each(["Ann", "Bob"], Gift, "How much?")
        ask.note("Ann", late=0.25 if ask.turn == 2 else None)
        return state

    def rule(self, question: Question) -> Gift:
        share = 0.5 if question.player == "Ann" else 0.1 * question.run.seed
        return Gift(share=share * self.size)

    def people(self) -> dict[str, PublishedFigure]:
        other = replace(PAPER, condition="in autumn")
        return {"share": PAPER, "share@2": other, "late": replace(PAPER, study="another")}


def test_arms_of_a_study_are_compared_without_the_level_of_the_twin_and_twins_beside_them() -> None:
    vary = {"size": [2, 1], "twin": [False, True]}
    study = Study(Giving, vary, seeds=3, turns=2, players="rule", outcome=lambda run: 0.0)
    found = compare_with_people(study.run(progress=False), margin=0.5, spread_margin=3, level=0.9)
    assert [(one.arm, one.twin, one.measure, one.groups, one.decisions) for one in found] == [
        (f"size={size}", twin, measure, 3, decisions)
        for size in (1, 2)
        for twin in (False, True)
        for measure, decisions in (("share", 12), ("share@2", 6), ("late", 3))
    ]
    first, at_2, late = found[:3]
    assert (first.world, first.people, at_2.people.condition) == ("Giving", PAPER, "in autumn")
    assert first.margins == Margins(mean=0.5, spread=3, level=0.9)
    # 0.5 and 0, 0.1, 0.2: three runs of four decisions.
    assert (first.mean, late.mean) == (pytest.approx(0.3), 0.25)
    assert first.sd == pytest.approx(pd.Series([0.5] * 6 + [0, 0, 0.1, 0.1, 0.2, 0.2]).std())
    assert first.answers == pytest.approx(1 / (1 / 4 + 3 / 36))
    assert (first.mass, found.label) == (None, "")
    one_arm = Study(Giving, seeds=2, turns=1, players="rule", outcome=lambda run: 0.0)
    [share] = compare_with_people(one_arm.run(progress=False))
    assert (share.arm, share.measure) == ("rules", "share")  # no turn is the second


def test_runs_are_compared_by_who_answers_and_which_people_they_stand_beside(
    tmp_path: Path,
) -> None:
    client = LLMClient(
        LLMConfig(model="one"), ScriptedBackend({"share": 0.4, "reasoning": "", "confidence": 1})
    )
    runs = []
    for twin, settings in ((True, {"players": "rule"}), (False, {"llm_client": client})):
        run = Giving(twin=twin, **settings)
        run.run(1, progress=False)
        runs.append(run)
    found = compare_with_people(runs)
    people = "another: in spring; paper: in autumn, in spring"
    assert [(one.arm, one.twin) for one in found] == [
        (f"one; {people}", False),
        (f"rules; {people}", True),
    ]
    single = compare_with_people(runs[0])[0]
    # Two decisions, of one run.
    assert (single.groups, single.decisions, single.mean) == (1, 2, 0.25)
    assert single.sd == pytest.approx(0.25 * math.sqrt(2))
    run = Giving(players="rule", tape=tmp_path / "gift.tape")
    run.run(2, progress=False)
    _, _, late = compare_with_people(run)
    assert (late.decisions, late.mean, late.sd, late.answers) == (1, 0.25, 0.0, 1)
    # Its tape is read while it is still open.
    assert str(compare_with_people(tmp_path / "gift.tape")) == str(compare_with_people(run))


class Option(Reply):
    share: Literal["0.2", "0.8"]


class Choosing(Giving):
    """Ann chooses; Bob only where she chose the larger share."""

    async def turn(self, state: Nothing, ask: Ask) -> Nothing:
        options = {"share": {"0.2": "little", "0.8": "much"}}
        ann = await ask("Ann", Option, "How much?", limits=options, decide="sample")
        late = None
        if ann.share == "0.8":
            await ask("Bob", Option, "And you?", limits=options, decide="sample")
            late = 0.75
        ask.note("Ann", late=late)
        return state


def test_of_a_law_each_decision_has_its_share_of_its_historys_probability() -> None:
    def answer(request: ChatRequest) -> ChatReply:
        share = 0.9 if "A: much" in request.prompt else 0.1
        shares = (("A", math.log(0.8 * share)), ("B", math.log(0.8 * (1 - share))))
        return ChatReply(text="A", top_logprobs=shares)

    client = LLMClient(LLMConfig(model="one"), ScriptedBackend(answer))
    law = exact(Choosing(llm_client=client), turns=1, outcome=lambda run: 0.0)
    found = compare_with_people([law])
    share, late = found
    # Little .1; much and little .09; much and much .81.
    of_little = 0.1 + 0.09 / 2
    mean = of_little * 0.2 + (1 - of_little) * 0.8
    assert (share.groups, share.decisions, share.mass) == (0, 0, pytest.approx(0.8))
    assert share.mean == pytest.approx(mean)
    assert share.sd == pytest.approx(0.6 * math.sqrt(of_little * (1 - of_little)))
    assert share.answers == pytest.approx(1 / (of_little**2 + (1 - of_little) ** 2))
    assert share.arm == "one; another: in spring; paper: in autumn, in spring"
    # Of the histories in which there is one.
    assert (late.measure, late.mean, late.answers) == ("late", pytest.approx(0.75), 1)
    assert share.parts.difference.value == pytest.approx(mean - 0.3)
    by_rule = exact(Choosing(players="random"), turns=1, outcome=lambda run: 0.0)
    assert compare_with_people(by_rule)[0].arm.startswith("rules; ")


@pytest.mark.parametrize(
    ("values", "number"),
    [(["a", "b", "c"], 3), ([1, 1, 1, 2], 1.6), ([1, "1"], 1), ([0.5] * 7, 1)],
)
def test_the_effective_number_of_answers_is_simpsons(values: list[object], number: float) -> None:
    assert effective_number(values) == pytest.approx(number)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"spread_margin": 1}, "spread_margin=1 must be above 1, such as 2"),
        ({"level": 0}, "level=0 must be above 0 and below 1"),
        ({"level": 1}, "level=1 must be above 0 and below 1"),
        ({"margin": 1.01}, "margin=1.01 is more than shares"),
        *(
            ({name: math.nan}, f"{name}=nan must be a finite number")
            for name in ("margin", "spread_margin", "level")
        ),
    ],
)
def test_a_margin_leaves_something_near_and_something_far(
    settings: dict[str, Any], message: str
) -> None:
    run = Giving(players="rule")
    run.run(1, progress=False)
    with pytest.raises(ConfigError, match=message):
        compare_with_people(run, **settings)
    assert compare_with_people(run, margin=1, spread_margin=1.01, level=0.01)
