"""What the browser tests rely on: faults are seen, and nothing leaves this machine."""

from __future__ import annotations

from lab_page import LabPage


def test_an_error_and_a_warning_in_a_cell_are_seen(lab: LabPage) -> None:
    notebook = lab.write("faults", ["1 / 0", "import sys; print('careful', file=sys.stderr)"])
    notebook.run_cell(0)
    notebook.run_cell(1)
    assert notebook.faults() == ["cell 0: ZeroDivisionError: division by zero", "cell 1: careful\n"]


def test_a_picture_without_a_text_and_a_pale_text_are_accessibility_faults(lab: LabPage) -> None:
    pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACADs="
    html = f'<img src="{pixel}"><p style="color:#ccc;background:#fff">pale</p><p>clear</p>'
    notebook = lab.write("pale", [f"import ipywidgets; ipywidgets.HTML({html!r})"])
    notebook.run_all()
    notebook.output(0).get_by_text("pale").wait_for()
    faults = notebook.axe_faults()
    assert [fault.split(" ")[0] for fault in faults] == ["color-contrast", "image-alt"]


def test_a_page_cannot_reach_another_machine(lab: LabPage) -> None:
    notebook = lab.write("fetch", [])
    fetched = notebook.page.evaluate("fetch('http://example.org/').then(() => 'yes', () => 'no')")
    assert fetched == "no"
    assert lab.foreign == ["http://example.org/"]
    lab.foreign.clear()
    lab.complaints.clear()
