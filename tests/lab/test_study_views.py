"""A study's board and compared prompts: what the browser is sent, and what it asks for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from builders import recorded, until
from lab_kit import Browser
from page_kit import Log, PageData
from study_kit import Basin, Water, Wish, asked, instant_client, kind, study_of

from llmsim_lab import Ask, LLMClient, LLMConfig, Person, ScriptedBackend
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import PromptComparer, StudyBoard
from llmsim_lab.study import Study

pytestmark = pytest.mark.usefixtures("undrawn")
HOSTILE = "<img src=x onerror=alert(1)>"


def make_study(**more: Any) -> Study:
    given: dict[str, Any] = {"vary": {"taste": ["plain", "fancy"]}, "turns": 2}
    return study_of(**{**given, "llm_client": instant_client(pause_s=0.001), **more})


def part(browser: Browser, key: str | int, kind: str = "study") -> Any:
    """Return what a browser knows of a view's part."""
    its = [it["part"] for it in browser.records if "part" in it]
    return next(
        (it["value"] for it in reversed(its) if it["kind"] == kind and it["key"] == key), None
    )


def words(browser: Browser) -> str:
    """Return how far a study is said to be, once it is not played any more."""
    live = browser.latest("live")
    return "" if live.get("running") else live.get("says", "")


async def test_groups_of_people_are_not_joined_and_may_be_of_unequal_number() -> None:
    people = Person(ask=lambda question: Wish(amount=3, reasoning="", confidence=1))
    study = make_study(players=people, llm_client=None)
    await study.arun(only=[("plain", 0), ("plain", 1), ("fancy", 2)], progress=False)
    browser = Browser(StudyBoard(study))
    assert part(browser, "design")["paired"] is False
    plain, fancy = zip(*part(browser, "of level")["units"], strict=True)
    assert [value is None for value in plain] == [False, False, True]
    assert [value is None for value in fancy] == [True, True, False]


async def test_a_study_is_played_and_its_effects_come_as_numbers_and_a_sentence() -> None:
    browser = Browser(StudyBoard(make_study(), parallel=2))
    assert browser.latest("live")["says"] == "0 of 6 runs done"
    assert part(browser, 0) == ["left", 0, "", None]
    browser.send("run")
    await until(lambda: words(browser) == "6 of 6 runs done")

    def effects() -> list[dict[str, Any]]:
        return (part(browser, "effects") or {"rows": []})["rows"]

    await until(lambda: [effect["n"] for effect in effects()] == [3])
    assert part(browser, 5) == ["done", 2, "", None]
    [effect] = effects()
    assert (effect["outcome"], effect["arm"], effect["generalises_to"]) == (
        "level",
        "fancy",
        "new runs",
    )
    assert (effect["value"], effect["unit"]) == (0, "run")
    assert effect["sentence"].startswith("fancy \N{MINUS SIGN} plain: ")
    assert part(browser, "effects")["family"] == {"size": 0, "outcomes": 0}  # all are equal
    assert [len(row) for row in part(browser, "of level")["units"]] == [2, 2, 2]
    assert [row[0] for row in part(browser, "of level")["turns"]] == [1, 2]


async def test_the_smallest_effect_that_was_registered_is_drawn_as_bounds(tmp_path: Path) -> None:
    study = make_study(vary={"factor": [1.0, 2.0]}, seeds=5)
    study.register(tmp_path / "plan.json", sesoi=0.5, level=0.9)
    browser = Browser(StudyBoard(await study.arun(progress=False)))
    [effect] = part(browser, "effects")["rows"]
    assert (effect["margin"], effect["level"]) == (0.5, 0.9)
    assert effect["verdict"]


async def test_it_follows_a_study_that_a_cell_plays_and_stops_it() -> None:
    study = make_study(turns=5_000)
    browser = Browser(StudyBoard(study))
    task = asyncio.create_task(study.arun(progress=False))
    await until(lambda: browser.latest("live")["running"])
    browser.send("halt")
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: "6 stopped" in words(browser))


async def test_what_failed_is_told_and_run_plays_it_again() -> None:
    def broken(request: Any) -> Any:
        if failing:
            raise ConnectionError(HOSTILE)
        return {"amount": 1, "reasoning": "", "confidence": 1}

    failing = [True]
    client = LLMClient(LLMConfig(model="s", retry_wait_s=0), ScriptedBackend(broken))
    board = StudyBoard(make_study(llm_client=client, vary={}))
    browser = Browser(board)
    browser.send("run")
    await until(lambda: "3 failed" in words(browser))
    assert part(browser, 0)[0] == "failed"
    assert HOSTILE in part(browser, 0)[2]
    assert "<img" not in str(board.static_html())
    failing.clear()
    browser.send("run")
    await until(lambda: "3 of 3 runs done" in words(browser))


async def test_a_run_is_opened_beside_the_study() -> None:
    board = StudyBoard(await make_study().arun(progress=False))
    browser = Browser(board)
    browser.send("open", place=4)
    await until(lambda: (part(browser, 4) or [None])[-1])
    number = part(browser, 4)[-1]
    assert browser.latest("show") == {"run": number, "turn": None, "view": "overview"}
    assert "fancy, seed 1" in next(it["run"]["name"] for it in browser.records if "run" in it)


async def test_a_factorial_has_a_specification_curve_and_a_page_has_all_runs(
    tmp_path: Path,
) -> None:
    study = make_study(vary={"taste": ["plain", "fancy"], "factor": [1.0, 2.0]}, seeds=2)
    browser = Browser(StudyBoard(await study.arun(progress=False)))
    curves = part(browser, "of level")["curves"]
    findings = [(curve["factor"], curve["choices"], len(curve["rows"])) for curve in curves]
    assert findings == [("taste", ["factor"], 2), ("factor", ["taste"], 2)]
    assert len(PageData(study.page(tmp_path / "study.html")).runs) == 8


async def test_the_static_view_has_the_effects_and_nothing_of_a_models_is_markup() -> None:
    study = make_study(vary={"taste": {"plain": "plain", HOSTILE: "fancy"}})
    board = StudyBoard(await study.arun(progress=False))
    assert "plain: +0.00" in board.static_text()
    assert "<img src=x" not in str(board.static_html())
    with pytest.raises(ConfigError, match="Water is not a study"):
        StudyBoard(Water())  # type: ignore[arg-type]
    board.close()
    assert not study._listeners


# --- prompts --------------------------------------------------------------------------------------


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    recorded(Water(llm_client=instant_client(), tape=tmp_path / "water.tape", turns=2))
    return tmp_path / "water.tape"


def comparer(tape: Path, **more: Any) -> PromptComparer:
    given = {"llm_client": instant_client(), "samples": 2, "outcome": "amount"}
    return PromptComparer(Water.load(tape, 1), {"kind": kind}, **given | more)


async def test_slots_are_checked_while_one_types_and_a_preview_is_filled(tape: Path) -> None:
    made = comparer(tape)
    browser = Browser(made)
    assert list(made.texts) == ["as it was", "kind"]
    browser.send("write", place=1, text="You are {{ wealth }}.", turn=0)
    await until(lambda: part(browser, 1, "prompts")["fault"])
    assert "{{ wealth }}: the run gives this" in part(browser, 1, "prompts")["fault"]
    browser.send("run")
    assert "wealth" in (await fault(browser))
    browser.send("write", place=1, text=f"You, {{{{ name }}}}, are kind. {HOSTILE}", turn=1)
    await until(lambda: part(browser, "filled 1", "prompts"))
    assert part(browser, 1, "prompts")["fault"] == ""
    [[role, number]] = part(browser, "filled 1", "prompts")["messages"]
    assert (role, Log(made.reading.records).text(number)) == (
        "user",
        f"You, Ann, are kind. {HOSTILE}",
    )
    browser.send("add")
    await until(lambda: "variant 2" in made.texts)


class Spoken(Water):
    async def turn(self, state: Basin, ask: Ask) -> Basin:
        for name in state.shares:
            await ask(name, Wish, f"You are {name}. How much?")
        return state


async def test_a_variant_of_a_prompt_without_slots_may_have_the_slots_of_every_prompt(
    path: Path,
) -> None:
    run = recorded(Spoken(llm_client=instant_client(), tape=path, turns=2))
    made = PromptComparer(run, {"kind": kind}, samples=1, outcome="amount.Ann")
    browser = Browser(made)
    assert made.texts == {
        "as it was": "You are Ann. How much?",
        "kind": "You are Ann. How much? Be kind.",
    }
    browser.send("write", place=1, text="{{ name }} in turn {{ turn }}, be kind.", turn=1)

    def filled() -> str:
        [[_, number]] = part(browser, "filled 1", "prompts")["messages"]
        return Log(made.reading.records).text(number)

    await until(lambda: part(browser, "filled 1", "prompts") and filled()[:5] == "Ann i")
    assert (part(browser, 1, "prompts")["fault"], filled()) == ("", "Ann in turn 2, be kind.")
    browser.send("run")
    await until(lambda: made.study and words(browser) == "4 of 4 runs done")
    assert {call.prompt[:3] for call in asked(made.study)} == {"You", "Ann", "Bob"}
    made = PromptComparer(run, {"kind": kind}, samples=1, outcome="amount.Ann")
    browser = Browser(made)
    browser.send("run")
    await until(lambda: made.study and words(browser) == "4 of 4 runs done")
    texts = {call.prompt for call in asked(made.study)}
    assert {"You are Bob. How much?", "You are Bob. How much? Be kind."} <= texts


class Ruled(Water):
    async def turn(self, state: Basin, ask: Ask) -> Basin:
        rules = "The basin fills {{ run.factor }}-fold."
        await ask("Ann", Wish, f"It holds {state.level}. How much?", system=rules)
        return state


async def test_a_system_message_is_part_of_a_variant_and_the_rest_may_have_any_slot(
    path: Path,
) -> None:
    run = recorded(Ruled(llm_client=instant_client(), tape=path, turns=2))
    made = PromptComparer(run, {"kind": kind}, samples=1, outcome="amount.Ann")
    rules = "## System\n\nThe basin fills {{ run.factor }}-fold.\n\n## User\n\n"
    assert made.texts["as it was"].startswith(rules)
    browser = Browser(made)
    browser.send("write", place=1, text=f"{rules}{{{{ name }}}}, be kind.", turn=1)

    def filled() -> list[str]:
        messages = part(browser, "filled 1", "prompts")["messages"]
        return [Log(made.reading.records).text(number) for _, number in messages]

    said = ["The basin fills 1.5-fold.", "Ann, be kind."]
    await until(lambda: part(browser, "filled 1", "prompts") and filled() == said)
    assert part(browser, 1, "prompts")["fault"] == ""


async def fault(browser: Browser) -> str:
    browser.heard.clear()
    await until(lambda: any("fault" in it for it in browser.heard))
    return str(browser.latest("fault"))


async def test_the_situations_are_asked_and_one_effect_says_what_came_of_it(tape: Path) -> None:
    made = comparer(tape)
    browser = Browser(made)
    browser.send("run", samples=1)
    await until(lambda: made.study and words(browser) == "4 of 4 runs done")
    await until(lambda: part(browser, "effects"))
    [effect] = part(browser, "effects")["rows"]
    assert effect["sentence"].startswith("kind \N{MINUS SIGN} as it was: ")
    assert "kind \N{MINUS SIGN} as it was: " in made.static_text()


async def test_a_recorded_run_has_no_model_and_says_how_to_attach_one(tape: Path) -> None:
    browser = Browser(comparer(tape, llm_client=None))
    assert "attach one" in part(browser, "about", "prompts")["fault"]
    browser.send("run")
    assert "llm_client=connect('auto')" in await fault(browser)
    with pytest.raises(ConfigError, match="on no tape"):
        PromptComparer(Water(llm_client=instant_client()))
    with pytest.raises(ConfigError, match=r"prompt='wsh': the run asked with .*; name one of"):
        comparer(tape, prompt="wsh")
