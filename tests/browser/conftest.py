"""One JupyterLab and one browser for all tests of this folder.

The tests here use the widgets as a person does, in the system's Chromium. They run with
``make check-browser``. Screenshots are kept in ``out/screenshots``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chromium import chromium
from lab_page import LabPage
from lab_server import LabServer, lab_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HERE = Path(__file__).parent
SCREENSHOTS = HERE.parents[1] / "out" / "screenshots"
PATIENCE_MS = 20_000


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Not even import these tests where they do not run: Playwright need not be there then."""
    left_out = collection_path != HERE and "browser" not in config.option.markexpr
    return True if left_out else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("browser")


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    with lab_server(tmp_path_factory.mktemp("jupyter")) as running:
        yield running


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE_MS)
    with chromium() as running:
        yield running


@pytest.fixture(scope="package")
def lab_page(browser: Browser, server: LabServer) -> Iterator[LabPage]:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = LabPage(context.new_page(), server, SCREENSHOTS)
    yield page
    page.close()
    context.close()
    assert page.foreign == [], "the page asked for something outside this machine"


@pytest.fixture
def lab(lab_page: LabPage) -> Iterator[LabPage]:
    """Give the page, and fail the test if the page's scripts reported an error."""
    yield lab_page
    assert lab_page.complaints == [], "the page's scripts reported errors"
