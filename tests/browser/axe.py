"""Looking for accessibility faults with axe-core, fetched once by npm and checked by its hash."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["axe_source", "faults_of"]

VERSION = "4.14.1"
SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
GRAVE = ("serious", "critical")
# JupyterLab has no way to give an output of type image/png an alternative text, and the numbers
# beside outputs are pale on a narrow page. ipywidgets 8 names no slider's handle; ours stand beside
# a named box that does the same.
NOT_OURS = (".jp-RenderedImage", ".jp-OutputPrompt", ".noUi-handle")

# JupyterLab's own menus, toolbars and editors are not ours to fix: only what our cells put out is
# looked at. The rules "region" and "page-has-heading-one" judge whole pages, so they say nothing
# about a part of one. JupyterLab's body hides what overflows and has no height, its contents being
# positioned; axe-core takes all of them for hidden and finds nothing unless the body has a height.
RUN = """
async ([include, exclude]) => {
    document.body.style.height = "100vh";
    const found = await axe.run(
        {include: [[include]], exclude: exclude.map(one => [one])},
        {resultTypes: ["violations"], rules: {region: {enabled: false},
         "page-has-heading-one": {enabled: false}}},
    );
    document.body.style.height = "";
    const seen = [...found.passes, ...found.violations].map(rule => rule.id);
    return {seen, violations: found.violations};
}
"""


def axe_source() -> str:
    """Return the script of the pinned axe-core, out of the user's cache or by npm.

    Raises:
        RuntimeError: npm is missing or fails, or the package is not the one that was pinned.
    """
    cache = platformdirs.user_cache_path("llmsim-lab")
    package = cache / f"axe-core-{VERSION}.tgz"
    if not package.exists() or _hash(package) != SHA512:
        _fetch(cache)
    if (found := _hash(package)) != SHA512:
        raise RuntimeError(f"{package} has sha512 {found}, not {SHA512}; delete it and try again")
    with tarfile.open(package) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


def _hash(path: Path) -> str:
    return base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()


def _fetch(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("npm is needed to fetch axe-core: install it (Debian: apt install npm)")
    folder.mkdir(parents=True, exist_ok=True)
    command = [npm, "pack", "--silent", f"axe-core@{VERSION}", "--pack-destination", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"npm could not fetch axe-core {VERSION}:\n{done.stderr[-2000:]}")


def faults_of(page: Page, include: str) -> list[str]:
    """Return the serious and critical faults of what a CSS selector finds, one line each.

    Only what is on the screen is judged.
    """
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(axe_source())
    done: dict[str, Any] = page.evaluate(RUN, [include, list(NOT_OURS)])
    assert "color-contrast" in done["seen"], "axe-core saw no readable text in the outputs"
    return [
        f"{fault['id']} ({fault['impact']}): {fault['help']}: {node['html'][:300]} "
        f"| {node['failureSummary']}"
        for fault in done["violations"]
        if fault["impact"] in GRAVE
        for node in fault["nodes"]
    ]
