"""The board and the stories of a social simulation, clicked, while a stepper plays it."""

from __future__ import annotations

import re

import pytest
from lab_page import LOOKS, LabPage, Notebook, Theme
from playwright.sync_api import Locator, expect

SETUP = """
from llmsim_lab.lab import AgentStory, SocialBoard, TurnStepper
from llmsim_lab.lab.figures import state_figure
from scenes import HOSTILE
from social_kit import make_social
posts = [{"author": "Press", "text": f"{HOSTILE} {n}", "topics": ["tea"]} for n in range(4)]
town = make_social(posts=posts, turns=30, reasoner={"kind": "llm", "rationale": True})
"""
CELLS = [
    SETUP,
    "board = SocialBoard(town); board",
    "story = AgentStory(town); story",
    "TurnStepper(town)",
    "state_figure(town.turns)",
]
BOARD, STORY, STEPPER, FIGURE = 1, 2, 3, 4


@pytest.fixture
def notebook(lab: LabPage) -> Notebook:
    notebook = lab.write("social", CELLS)
    for cell in range(4):
        notebook.run_cell(cell)
    expect(notebook.button("Step", cell=STEPPER)).to_be_enabled()
    return notebook


def field(notebook: Notebook, cell: int, label: str) -> Locator:
    return notebook.output(cell).get_by_label(label, exact=True)


def title(notebook: Notebook, text: str) -> None:
    expect(notebook.output(BOARD).locator("strong").first).to_contain_text(text)


def play(notebook: Notebook, *, to: int) -> None:
    for turn in range(notebook.evaluate("town.turn_number") + 1, to + 1):
        notebook.click("Step", cell=STEPPER)
        notebook.says(STEPPER, f"Turn {turn} is played.")


def test_the_board_follows_the_run_and_goes_back_and_forth(notebook: Notebook) -> None:
    picture = notebook.output(BOARD).locator("img")
    for turn in (1, 2, 3):
        play(notebook, to=turn)
        title(notebook, f"turn {turn}: 6 users")
        expect(picture).to_have_attribute("alt", re.compile(f"turns 0 to {turn}"))
    for turn in (2, 1, 0):
        notebook.click("Previous", cell=BOARD)
        title(notebook, f"turn {turn}: 6 users")
    play(notebook, to=4)
    title(notebook, "turn 0: 6 users")
    notebook.click("Next", cell=BOARD)
    title(notebook, "turn 1: 6 users")
    field(notebook, BOARD, "Turn shown").fill("3")
    field(notebook, BOARD, "Turn shown").press("Enter")
    title(notebook, "turn 3: 6 users")
    notebook.click("Latest", cell=BOARD)
    title(notebook, "turn 4: 6 users")
    assert notebook.faults() == []


def test_a_users_story_is_chosen_and_continues_with_the_run(notebook: Notebook) -> None:
    output = notebook.output(STORY)
    moves = output.get_by_role("listitem")
    expect(output).to_contain_text("Nothing has happened yet.")
    for turn in (1, 2, 3):
        play(notebook, to=turn)
        expect(moves).to_have_count(turn)
    for user in ("User 4", "User 2", "User 6"):
        field(notebook, STORY, "User").select_option(label=user)
        expect(output).to_contain_text(f"What {user} did")
        expect(moves.first).to_contain_text("idle → scrolling")
    reason = output.locator("details").filter(has_text="because of").first
    for _ in range(3):
        reason.locator("summary").click()
        expect(reason.locator("pre")).to_be_visible()
        reason.locator("summary").click()
        expect(reason.locator("pre")).to_be_hidden()
    assert notebook.faults() == []


def test_a_long_story_has_pages_the_latest_first(notebook: Notebook) -> None:
    field(notebook, STEPPER, "Turns to play").fill("22")
    notebook.click("Play", cell=STEPPER)
    notebook.says(STEPPER, "Turn 22 is played.")
    first = notebook.output(STORY).get_by_role("listitem").first.locator("strong")
    page = field(notebook, STORY, "Page (1 is the latest)")
    expect(first).to_have_text("2")  # the story has all turns now, and so its second page
    for number, shown in ((2, "1"), (1, "2"), (2, "1")):
        page.fill(str(number))
        page.press("Enter")
        expect(first).to_have_text(shown)


def test_markup_in_posts_is_text(notebook: Notebook) -> None:
    before = notebook.page.title()
    play(notebook, to=3)
    story = notebook.output(STORY)
    expect(story).to_contain_text("Press: <script>document.title")
    assert story.locator("script, img, b").count() == 0
    assert notebook.page.title() == before


def test_both_are_there_after_the_page_was_loaded_anew(notebook: Notebook) -> None:
    play(notebook, to=3)
    title(notebook, "turn 3: 6 users")
    notebook.click("Previous", cell=BOARD)
    title(notebook, "turn 2: 6 users")
    field(notebook, STORY, "User").select_option(label="User 4")
    expect(notebook.output(STORY)).to_contain_text("What User 4 did")
    notebook.reload()
    title(notebook, "turn 2: 6 users")
    expect(notebook.output(STORY)).to_contain_text("What User 4 did")
    notebook.click("Next", cell=BOARD)
    title(notebook, "turn 3: 6 users")
    play(notebook, to=4)
    title(notebook, "turn 4: 6 users")


def test_a_figures_text_is_kept_where_jupyterlab_would_have_to_look_for_it(
    notebook: Notebook,
) -> None:
    notebook.run_cell(FIGURE)
    image = notebook.output(FIGURE).locator("img")
    expect(image).to_be_visible()
    kept = notebook.page.evaluate(
        "(index) => window.panel.content.model.cells.get(index).outputs.toJSON()[0].metadata",
        FIGURE,
    )
    assert kept["image/png"]["alt"].startswith("What users are doing: stacked areas")
    # Once JupyterLab shows it, axe.py need not leave such pictures out any more.
    assert image.get_attribute("alt") is None


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_they_read_in_both_colours_and_on_a_narrow_page(
    notebook: Notebook, lab: LabPage, theme: Theme, width: int
) -> None:
    play(notebook, to=4)
    title(notebook, "turn 4: 6 users")
    expect(notebook.output(STORY).get_by_role("listitem")).to_have_count(4)
    with lab.looking(theme, width=width):
        colour = theme.split()[-1].lower()
        notebook.screenshot(f"social_board_{colour}_{width}", of=notebook.output(BOARD))
        notebook.screenshot(f"agent_story_{colour}_{width}", of=notebook.output(STORY))
        assert notebook.axe_faults() == []
        assert [notebook.cut_off(cell) for cell in (BOARD, STORY)] == [[], []]
        assert not notebook.moves_sideways()
