"""Make the playground: a folder for any static host, in which a browser plays worlds by itself.

    python playground/build.py [FOLDER]

Python for browsers (Pyodide) comes as its npm package, checked by its hash; Python's packages are
those of ``uv.lock``, checked by theirs; the rest is this checkout. Nothing of it is committed.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import platformdirs

from llmsim_lab.run.page import module

HERE = Path(__file__).parent
REPO = HERE.parent

PYODIDE = "314.0.7"
PYODIDE_SHA512 = (
    "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
)
RUNTIME = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
    "package.json",
)
"""Of its package; ``package.json`` names its licence."""
PYTHON = "3.14"
ABI = "cp314"
PLATFORM = "pyemscripten_2026_0_wasm32"
"""What this Pyodide's Python is called in names of wheels."""
PACKAGES = (
    "annotated-types",
    "filelock",
    "jinja2",
    "markupsafe",
    "pydantic",
    "pydantic-core",
    "typing-extensions",
    "typing-inspection",
)
"""All that a world needs to be played, without what llmsim-lab requires for anything else."""
ELSEWHERE = "manylinux2014_x86_64"
"""For packages without a wheel for browsers: their Python is taken, without what is compiled."""
OWN = {"llmsim_lab": "llmsim_lab", "data/people": "llmsim_lab/_data/people"}
"""Of this checkout, and where it is in an installed package."""
TEMPLATES = (
    "prisoners_dilemma",
    "public_goods",
    "ultimatum",
    "beauty_contest",
    "opinion_dynamics",
    "double_auction",
    "contract_net",
)
PAGE = ("index.html", "page.css", "page.js", "store.js", "worker.js")


def build(folder: Path) -> None:
    """Make the playground in a folder, which is made anew.

    Raises:
        FileExistsError: the folder has something else in it.
    """
    has_files = folder.exists() and any(folder.iterdir())
    is_playground = (folder / "worlds.json").exists()
    # Any other folder is somebody's, and must not be deleted by a slip of the hand.
    if has_files and not is_playground:
        raise FileExistsError(
            f"{folder} is not a playground and has files in it; name a new folder"
        )
    shutil.rmtree(folder, ignore_errors=True)
    # In a folder of its own, which a host can cache for longer than our files.
    runtime = folder / "pyodide"
    runtime.mkdir(parents=True)
    with tarfile.open(runtime_package()) as package:
        # File by file: the package has its types and consoles too, which no page needs.
        for name in RUNTIME:
            content = package.extractfile(f"package/{name}")
            assert content is not None
            (runtime / name).write_bytes(content.read())
    with tempfile.TemporaryDirectory() as wheels:
        fetch_wheels(Path(wheels))
        join_site(Path(wheels), folder / "site.zip")
    for name in PAGE:
        shutil.copy(HERE / name, folder)
    # The same front end as in notebooks, as one module.
    (folder / "window.js").write_text(module(), encoding="utf-8")
    (folder / "worlds.json").write_text(
        json.dumps(worlds()),
        encoding="utf-8",
    )


def runtime_package() -> Path:
    """Return Pyodide's npm package, out of the user's cache or by npm.

    Raises:
        RuntimeError: npm is missing or fails, or the package is not the one that is named here.
    """
    # Of the user and not of this checkout: it is 13 MB, and the same for years.
    cache = platformdirs.user_cache_path("llmsim-lab")
    package = cache / f"pyodide-{PYODIDE}.tgz"
    if not package.exists() or sha512_of(package) != PYODIDE_SHA512:
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError(
                "npm is needed to fetch Pyodide: install it (Debian: apt install npm)"
            )
        cache.mkdir(parents=True, exist_ok=True)
        # "pack" and not "install": no script of a package runs.
        command = [
            npm,
            "pack",
            "--silent",
            f"pyodide@{PYODIDE}",
            "--pack-destination",
            str(cache),
        ]
        result = subprocess.run(
            command,
            cwd=cache,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise RuntimeError(f"npm could not fetch pyodide {PYODIDE}:\n{result.stderr[-2000:]}")
    # npm has checked it against the registry. This is the digest of the file that was reviewed.
    digest = sha512_of(package)
    if digest != PYODIDE_SHA512:
        raise RuntimeError(f"{package} has sha512 {digest}, not {PYODIDE_SHA512}; delete it")
    return package


def sha512_of(path: Path) -> str:
    # In base64, as npm writes it.
    digest = hashlib.sha512(path.read_bytes()).digest()
    return base64.b64encode(digest).decode()


def fetch_wheels(folder: Path) -> None:
    """Fetch the wheels that the page needs into a folder, in the versions of uv.lock.

    Raises:
        RuntimeError: pip fails.
    """
    wanted = folder / "wanted.txt"
    wanted.write_text(
        "".join(map(locked, PACKAGES)),
        encoding="utf-8",
    )
    # With pip, since uv has no command that fetches the wheels of another platform.
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        # In this order: if a package has wheels for both, the one for browsers is taken.
        f"--platform={PLATFORM}",
        f"--platform={ELSEWHERE}",
        f"--python-version={PYTHON}",
        "--implementation=cp",
        f"--abi={ABI}",
        f"--dest={folder}",
        f"--requirement={wanted}",
    ]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise RuntimeError(f"pip could not fetch the page's packages:\n{result.stderr[-2000:]}")


def locked(name: str) -> str:
    """Return a package of uv.lock as a requirement with its hashes."""
    lock = (REPO / "uv.lock").read_text(encoding="utf-8")
    packages = tomllib.loads(lock)["package"]
    # There is exactly one; else this raises.
    [package] = [package for package in packages if package["name"] == name]
    hashes = [f" --hash={wheel['hash']}" for wheel in package["wheels"]]
    return f"{name}=={package['version']}{''.join(hashes)}\n"


def join_site(wheels: Path, path: Path) -> None:
    """Write all of Python's packages as one file, which a page fetches at once."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as site:
        for wheel in sorted(wheels.glob("*.whl")):
            with zipfile.ZipFile(wheel) as content:
                for name in content.namelist():
                    is_compiled = ELSEWHERE in wheel.name and name.endswith(".so")
                    # markupsafe has no wheel for browsers, and runs without its compiled part.
                    if not is_compiled:
                        add(site, name, content.read(name))
        for source, target in OWN.items():
            root = REPO / source
            for file in sorted(root.rglob("*")):
                # A browser's Python cannot read what this machine's Python compiled.
                if file.is_file() and file.parent.name != "__pycache__":
                    place = file.relative_to(root).as_posix()
                    add(site, f"{target}/{place}", file.read_bytes())
        # The version of the package, which tapes record.
        installed = distribution("llmsim-lab")
        for name in ("METADATA", "entry_points.txt"):
            text = installed.read_text(name) or ""
            add(site, f"llmsim_lab-{installed.version}.dist-info/{name}", text.encode())


def add(
    site: zipfile.ZipFile,
    name: str,
    content: bytes,
) -> None:
    """Add a file with a fixed date, so that the same checkout makes the same page."""
    site.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def worlds() -> list[dict[str, str]]:
    """Return the worlds that a page offers, each with name, title and code."""
    paths = sorted((HERE / "worlds").glob("*.py"))
    templates = REPO / "data" / "templates"
    paths += [templates / f"{stem}.py" for stem in TEMPLATES]
    offered = []
    for path in paths:
        code = path.read_text(encoding="utf-8")
        # Parsed and not imported: a world's code runs in the browser alone.
        docstring = ast.get_docstring(ast.parse(code)) or path.stem
        first_line, _, _ = docstring.partition("\n")
        title, _, _ = first_line.partition(":")
        offered.append({"name": path.stem, "title": title, "code": code})
    return offered


if __name__ == "__main__":
    target = REPO / "build" / "playground"
    if len(sys.argv) > 1:
        target = Path(sys.argv[1])
    build(target)
    files = [path for path in target.rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    print(f"{target}: {megabytes:.1f} MB")
    server = [sys.executable, "-m", "http.server", "--directory", str(target)]
    print(f"To look at it: {shlex.join(server)}")
