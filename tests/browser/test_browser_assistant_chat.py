"""The chat with the assistant, used as a person does: by mouse, and by keyboard alone."""

from __future__ import annotations

import pytest
from lab_page import LabPage, Notebook
from playwright.sync_api import Locator, expect
from scenes import HOSTILE

SETUP = """
from llmsim_lab.lab import AssistantChat
from scenes import Assistant
assistant = Assistant()
"""
CHAT = "chat = AssistantChat(assistant.engine(), user_id='ann'); chat"
WIDGET = 1


@pytest.fixture
def notebook(lab: LabPage) -> Notebook:
    notebook = lab.write("assistant_chat", [SETUP, CHAT])
    notebook.run_cell(0)
    notebook.run_cell(1)
    shows(notebook, "No messages yet.")
    return notebook


def message(notebook: Notebook) -> Locator:
    return notebook.output(WIDGET).get_by_label("Message", exact=True)


def shows(notebook: Notebook, text: str) -> None:
    expect(notebook.output(WIDGET)).to_contain_text(text)


def test_the_keyboard_alone_reaches_everything_and_markup_is_text(notebook: Notebook) -> None:
    press, output, title = (
        notebook.page.keyboard.press,
        notebook.output(WIDGET),
        notebook.page.title(),
    )

    def tab_to(target: Locator, *, key: str = "Tab") -> None:
        for _ in range(12):
            press(key)
            if target.evaluate("it => it === it.getRootNode().activeElement"):
                return
        raise AssertionError(f"Tab does not reach {target}")

    message(notebook).focus()
    notebook.page.keyboard.type(HOSTILE)
    press("Shift+Enter")
    notebook.page.keyboard.type("a second line")
    press("Enter")
    shows(notebook, f"You wrote: {HOSTILE}")
    assert output.locator(".bubble").locator("script, img, b").count() == 0
    assert notebook.page.title() == title
    expect(message(notebook)).to_be_focused()  # the next message can be written at once
    notebook.page.keyboard.type("Delete task 1")
    tab_to(notebook.button("Send", cell=WIDGET))
    press("Space")
    shows(notebook, "Only ann can say yes.")
    tab_to(notebook.button("Yes, delete task 1", cell=WIDGET), key="Shift+Tab")
    press("Enter")
    shows(notebook, "delete_task: done")
    expect(message(notebook)).to_be_focused()
    tab_to(output.locator("summary"), key="Shift+Tab")
    press("Space")
    shows(notebook, "asked for")
    assert notebook.evaluate("assistant.tasks") == ["Call mum"]


def test_it_reads_in_both_colours_and_is_there_after_the_page_was_loaded_anew(
    notebook: Notebook,
) -> None:
    for text in ("Add water the plants and go shopping", "Delete task 1"):
        message(notebook).fill(text)
        notebook.click("Send", cell=WIDGET)
        expect(message(notebook)).to_have_value("")
        shows(notebook, "I have added it.")
    shows(notebook, "Only ann can say yes.")
    notebook.check_looks(WIDGET, "chat")
    notebook.reload()
    shows(notebook, "I have added it.")
    notebook.click("No", cell=WIDGET)
    shows(notebook, "I will not delete task 1")
    assert notebook.evaluate("assistant.tasks")[0] == "Buy milk"
