"""A study's board and compared prompts, used as people do: by buttons and by keys alone."""

from __future__ import annotations

import re

from lab_page import LabPage
from playwright.sync_api import expect

SETUP = """
from scenes import Givers
from study_kit import Water, instant_client
from llmsim_lab.lab import PromptComparer, StudyBoard
model = Givers()
model.set(waiting=True)
study = model.study(seeds=4, turns=4)
recorded = Water(llm_client=instant_client(), tape="water.tape", turns=3)
recorded.run(progress=False)
variants = {"kind": lambda text: text.strip() + " Be kind."}
"""
BOARD, COMPARER = 1, 2
CELLS = [
    SETUP,
    "board = StudyBoard(study); board",
    "comparer = PromptComparer(recorded, variants, samples=3, outcome='amount'); comparer",
]


def test_a_study_is_played_stopped_continued_and_a_run_opened(lab: LabPage) -> None:
    notebook = lab.write("study", CELLS)
    notebook.run_all()
    output, page = notebook.output(BOARD), notebook.page
    notebook.says(BOARD, "0 of 12 runs done")
    run = notebook.button("Run", cell=BOARD)
    run.focus()
    page.keyboard.press("Enter")
    notebook.says(BOARD, "0 of 12 runs done · 8 running")  # for as long as the model waits
    notebook.button("Stop", cell=BOARD).focus()
    page.keyboard.press("Enter")
    notebook.says(BOARD, re.compile("0 of 12 runs done( · 8 stopped)?$"))
    notebook.evaluate("model.set(waiting=False, broken=True, share=1)")
    run.click()
    notebook.says(BOARD, "0 of 12 runs done · 12 failed")
    expect(output.get_by_role("region", name="Failed runs")).to_contain_text("out of memory")
    notebook.evaluate("model.set(broken=False)")
    run.click()
    notebook.says(BOARD, "12 of 12 runs done")
    effects = output.get_by_role("region", name="Effects").get_by_role("row")
    thrifty = effects.filter(has=page.get_by_role("rowheader", name="thrifty"))
    numbers = re.compile(r"thrifty\d?.[\d.]+ ?.[\d.]+ to ")
    expect(thrifty).to_contain_text(numbers, timeout=60_000)  # which SciPy is loaded for
    expect(output.get_by_role("img", name=re.compile("given by arm. nobody: mean"))).to_be_visible()
    notebook.check_looks(BOARD, "study")
    output.get_by_role("button", name="difference").focus()
    for order in ("ascending", "descending"):
        page.keyboard.press("Enter")
        difference = output.get_by_role("columnheader", name="difference")
        expect(difference).to_have_attribute("aria-sort", order)
    output.get_by_role("button", name="nobody, seed 0: done").focus()
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(output.locator(".when")).to_contain_text("Turn 4")
    expect(output.get_by_role("heading", name="thrifty, seed 1")).to_be_visible()
    page.keyboard.press("1")
    expect(thrifty).to_be_visible()
    assert notebook.faults() == []


def test_prompts_are_edited_checked_asked_and_compared(lab: LabPage) -> None:
    notebook = lab.write("study", CELLS)
    notebook.run_all()
    output, page = notebook.output(COMPARER), notebook.page
    text = output.get_by_label("Text of kind")
    expect(output.get_by_role("group", name="What differs")).to_have_text(re.compile("Be kind"))
    text.focus()
    page.keyboard.press("Control+End")
    page.keyboard.type(" {{ wealth }}")
    expect(output.get_by_role("alert")).to_contain_text("the run gives this prompt no such value")
    notebook.check_looks(COMPARER, "prompts_wrong")
    for _ in range(len(" {{ wealth }}")):
        text.press("Backspace")
    expect(output.get_by_role("alert")).to_have_count(0)
    output.locator("summary", has_text="As it is sent after turn 0").last.click()
    expect(output.get_by_role("group", name="Prompt")).to_contain_text("You are Ann, plain.")
    notebook.click("Run", cell=COMPARER)
    effect = output.get_by_role("region", name="Results").get_by_role("row")
    effect = effect.filter(has=page.get_by_role("rowheader", name="kind"))
    expect(effect).to_contain_text(re.compile(r"kind\d?.[\d.]+"), timeout=60_000)
    output.get_by_text("Outcomes and charts").click()
    expect(output.get_by_role("img", name=re.compile("amount by arm"))).to_be_visible()
    notebook.check_looks(COMPARER, "prompts")
    assert notebook.faults() == []
