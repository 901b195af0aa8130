"""``llmsim-lab lab`` as somebody without Jupyter uses it: a recorded run in a page of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from llmsim_lab._util.files import data_path


def test_the_window_is_served_and_gone_when_the_command_is_ended(
    browser: Browser, tmp_path: Path
) -> None:
    tape = str(data_path("tapes/first_run.tape"))
    command = [str(Path(sys.executable).with_name("llmsim-lab")), "lab", tape, "--no-browser"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as served:
        assert served.stderr is not None
        try:
            address = re.compile(r"http://127\.0\.0\.1:\d+/\S*\?token=\w+")
            found = next(filter(None, map(address.search, served.stderr)), None)
            assert found is not None, "the server ended without an address"
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            complaints: list[str] = []
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(found[0])
            turn = page.get_by_label("Turn slider")
            expect(turn).to_have_value("8", timeout=60_000)
            page.get_by_role("button", name="Previous").first.click()
            expect(turn).to_have_value("7")
            for width in (1400, 400):
                page.set_viewport_size({"width": width, "height": 900})
                beyond = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert beyond <= 0, f"at {width} pixels the page moves sideways"
            page.close()
            assert complaints == []
        finally:
            served.send_signal(signal.SIGTERM)
            served.communicate(timeout=30)
    assert served.returncode == 143
    with pytest.raises(httpx.ConnectError):
        httpx.get(found[0])
