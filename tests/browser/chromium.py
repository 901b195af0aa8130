"""The browser of the system, without a screen and without a network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["chromium"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# The last makes every name outside this machine unknown, whatever a page asks for.
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the installed Chromium; Playwright brings none of its own.

    Raises:
        RuntimeError: there is none.
    """
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        raise RuntimeError(
            f"no browser found (tried: {', '.join(NAMES)}); install Chromium (Debian: apt install "
            "chromium), or leave the browser tests out: make test"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()
