"""The chat with the assistant, used as a person does: by mouse, and by keyboard alone."""

from __future__ import annotations

import re

import pytest
from lab_page import LOOKS, LabPage, Notebook, Theme
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
    expect(notebook.button("Send", cell=WIDGET)).to_be_enabled()
    return notebook


def message(notebook: Notebook) -> Locator:
    return notebook.output(WIDGET).get_by_label("Message", exact=True)


def send(notebook: Notebook, text: str) -> None:
    message(notebook).fill(text)
    notebook.click("Send", cell=WIDGET)


def shows(notebook: Notebook, text: str) -> None:
    expect(notebook.output(WIDGET)).to_contain_text(text)


def test_markup_in_a_message_is_text(notebook: Notebook) -> None:
    title = notebook.page.title()
    send(notebook, HOSTILE)
    shows(notebook, f"You wrote: {HOSTILE}")
    talk = notebook.output(WIDGET).locator(".widget-html")
    assert talk.locator("script, img, b").count() == 0
    assert notebook.page.title() == title


def test_the_keyboard_alone_reaches_everything(notebook: Notebook) -> None:
    press = notebook.page.keyboard.press

    def tab_to(target: Locator, *, key: str = "Tab") -> None:
        for _ in range(12):
            press(key)
            if target.evaluate("element => element === document.activeElement"):
                return
        raise AssertionError(f"Tab does not reach {target}")

    def button(name: str) -> Locator:
        return notebook.button(name, cell=WIDGET)

    message(notebook).focus()
    notebook.page.keyboard.type("Add water the plants")
    tab_to(button("Send"))
    press("Enter")
    shows(notebook, "I have added it.")
    expect(message(notebook)).to_be_focused()  # the next message can be written at once
    notebook.page.keyboard.type("Delete task 1")
    tab_to(button("Send"))
    press("Space")
    notebook.says(WIDGET, "The assistant waits for a yes or a no.")
    expect(button("Yes")).to_be_enabled()  # until then what is shown may be shown anew
    tab_to(notebook.output(WIDGET).locator("summary"), key="Shift+Tab")
    press("Space")  # JupyterLab takes Enter for itself
    expect(notebook.output(WIDGET).locator("details")).to_have_attribute("open", "")
    tab_to(button("Yes"))
    press("Enter")
    shows(notebook, "delete_task: done")
    tab_to(button("New conversation"))
    press("Space")
    shows(notebook, "Nothing was said yet.")


def test_the_conversation_is_there_after_the_page_was_loaded_anew(notebook: Notebook) -> None:
    send(notebook, "Good morning")
    shows(notebook, "You wrote: Good morning")
    send(notebook, "Delete task 1")
    notebook.says(WIDGET, "The assistant waits for a yes or a no.")
    message(notebook).fill("not sent yet")
    notebook.until("chat.message.value == 'not sent yet'")
    notebook.reload()
    shows(notebook, "You wrote: Good morning")
    expect(message(notebook)).to_have_value("not sent yet")
    notebook.click("Yes", cell=WIDGET)
    shows(notebook, "delete_task: done")
    assert notebook.evaluate("assistant.tasks") == ["Call mum"]


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_it_reads_in_both_colours_and_on_a_narrow_page(
    notebook: Notebook, lab: LabPage, theme: Theme, width: int
) -> None:
    send(notebook, "Add water the plants and go shopping")
    shows(notebook, "I have added it.")
    send(notebook, "Delete task 1")
    notebook.says(WIDGET, re.compile("yes or a no"))
    with lab.looking(theme, width=width):
        name = f"chat_{theme.split()[-1].lower()}_{width}"
        notebook.screenshot(name, of=notebook.output(WIDGET))
        assert notebook.axe_faults() == []
        assert notebook.cut_off(WIDGET) == []
        assert not notebook.moves_sideways()
