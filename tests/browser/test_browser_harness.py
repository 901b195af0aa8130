"""What the browser tests rely on: faults are seen, and nothing leaves this machine."""

from __future__ import annotations

from lab_page import LabPage

PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACADs="
HTML = f'<img src="{PIXEL}"><p style="color:#ccc;background:#fff">pale</p><p>clear</p>'


def test_errors_warnings_and_what_cannot_be_read_are_seen(lab: LabPage) -> None:
    warning = "import sys; print('careful', file=sys.stderr)"
    notebook = lab.write(
        "faults", ["1 / 0", warning, f"import ipywidgets; ipywidgets.HTML({HTML!r})"]
    )
    for cell in range(3):
        notebook.run_cell(cell)
    assert notebook.faults() == ["cell 0: ZeroDivisionError: division by zero", "cell 1: careful\n"]
    notebook.output(2).get_by_text("pale").wait_for()
    found = [fault.split(" ")[0] for fault in notebook.axe_faults()]
    assert {"color-contrast", "image-alt"} <= set(found)


def test_a_page_cannot_reach_another_machine(lab: LabPage) -> None:
    fetched = lab.page.evaluate("fetch('http://example.org/').then(() => 'yes', () => 'no')")
    assert fetched == "no"
    assert lab.foreign == ["http://example.org/"]
    lab.foreign.clear()
    lab.complaints.clear()
