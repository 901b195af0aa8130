"""Build the documentation site into ``build/site``: ``make docs``.

Pages are those of the repository as they stand (``docs``, ``notebooks``, CONTRIBUTING, CHANGELOG),
so that a host of the repository shows the same. The reference is written here: names from
docstrings, settings from the classes that read them, commands from their own help. At the end each
link within the site is followed, and nothing may come from another machine.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shutil
import sys
from collections.abc import Collection, Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import TypeAliasType

import llmsim_lab

REPO = Path(__file__).resolve().parents[1]
BUILD = REPO / "build" / "docs"
SITE = REPO / "build" / "site"
SETTINGS = REPO / "docs" / "site"
PAGES_ELSEWHERE = (
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "CITATION.cff",
    "LICENSE",
    "benchmarks/README.md",
    "data/README.md",
    "data/people/README.md",
)
LONGEST_VALUE = 200
"""Characters of a constant's value that its page shows."""


def main() -> int:
    """Build and check the site; return 0 if all is well."""
    source = assemble(BUILD / "source")
    # Here, since the reference can be written without it.
    from sphinx.cmd.build import build_main

    shutil.rmtree(SITE, ignore_errors=True)
    arguments = ["-b", "html", "-c", str(SETTINGS), "-d", str(BUILD / "doctrees"), "-j", "auto"]
    arguments += ["--fail-on-warning", "--keep-going", "--quiet", str(source), str(SITE)]
    status = build_main(arguments)
    if status:
        return int(status)
    faults = [*faults_of(SITE), *names_without_a_place(SITE)]
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    pages = len(list(SITE.rglob("*.html")))
    sys.stdout.write(f"{pages} pages, {len(faults)} broken links: {SITE / 'index.html'}\n")
    return 1 if faults else 0


# --- the pages ------------------------------------------------------------------------------------


def assemble(source: Path) -> Path:
    """Lay out all that the site is made of in a folder, as links between its pages expect it."""
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    kept_out = shutil.ignore_patterns("site", "__pycache__", ".ipynb_checkpoints", "*.cfg")
    shutil.copytree(REPO / "docs", source / "docs", ignore=kept_out)
    shutil.copytree(REPO / "notebooks", source / "notebooks", ignore=kept_out)
    # Pages link to programs that ship with the package.
    # A template's notebook is a file to copy and no page.
    templates = source / "data" / "templates"
    shutil.copytree(REPO / "data" / "templates", templates, ignore=kept_out)
    for notebook in templates.glob("*.ipynb"):
        notebook.unlink()
    for name in PAGES_ELSEWHERE:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, source / name)
    write_index(source)
    decisions = source / "docs" / "decisions" / "README.md"
    with decisions.open("a", encoding="utf-8") as page:
        page.write("\n```{toctree}\n:hidden:\n:glob:\n\n[a-z]*\n```\n")
    write_reference(source / "reference")
    return source


def write_index(source: Path) -> None:
    """Write the first page, with the tutorials, and pages that it does not name under *How to*."""
    index = (SETTINGS / "index.md.in").read_text(encoding="utf-8")
    pages = [f"docs/{page.stem}" for page in sorted((source / "docs").glob("*.md"))]
    pages += [page.stem for page in sorted(source.glob("*.md"))]
    unnamed = [page for page in pages if not re.search(rf"^{page}$", index, re.MULTILINE)]
    index = index.replace("docs/people\n", "\n".join(["docs/people", *unnamed]) + "\n")
    # By number and a word or two; their own titles are sentences.
    tutorials = []
    for notebook in sorted((source / "notebooks").glob("[0-9]*.ipynb")):
        number, _, words = notebook.stem.partition("_")
        title = words.replace("_", " ").capitalize()
        tutorials.append(f"{number} {title} <notebooks/{notebook.stem}>")
    index = index.replace("notebooks/[0-9]*", "\n".join(tutorials))
    (source / "index.md").write_text(index, encoding="utf-8")


# --- the reference --------------------------------------------------------------------------------


def write_reference(folder: Path) -> None:
    """Write the pages that are made of the code."""
    folder.mkdir()
    modules = public_modules()
    pages = ["settings", "commands", *(module.__name__ for module in modules)]
    (folder / "settings.md").write_text(settings_page(), encoding="utf-8")
    (folder / "commands.md").write_text(commands_page(), encoding="utf-8")
    at_home = homes(modules)
    for module in modules:
        text = module_page(module, at_home)
        (folder / f"{module.__name__}.md").write_text(text, encoding="utf-8")
    lines = ["# Reference", "", "Made from the code: what stands here is what it does.", ""]
    lines += ["- [Every setting](settings.md): files of runs and studies, the environment"]
    lines += ["- [Every command](commands.md)"]
    lines += ["", "| module | |", "|---|---|"]
    for module in modules:
        lines.append(f"| [`{module.__name__}`]({module.__name__}.md) | {summary(module)} |")
    lines += ["", "Modules whose name begins with `_` may change without notice.", ""]
    lines += ["```{toctree}", ":hidden:", "", *pages, "```", ""]
    (folder / "index.md").write_text("\n".join(lines), encoding="utf-8")


def public_modules() -> list[ModuleType]:
    """Return the modules that offer something to users, the front page first."""
    found = pkgutil.walk_packages(llmsim_lab.__path__, "llmsim_lab.")
    # Modules of behaviour are loaded by name from their folder, as a user's own are.
    internal = re.compile(r"\._|\.definitions|__main__")
    names = [module.name for module in found if not internal.search(module.name)]
    modules = [importlib.import_module(name) for name in ("llmsim_lab", *names)]
    return [module for module in modules if getattr(module, "__all__", None)]


def homes(modules: list[ModuleType]) -> dict[int, str]:
    """Return the module that describes a thing, by the thing's id: the first but the front page."""
    found: dict[int, str] = {}
    for module in [*modules[1:], modules[0]]:
        for name in module.__all__:
            found.setdefault(id(getattr(module, name)), module.__name__)
    return found


def module_page(module: ModuleType, at_home: dict[int, str]) -> str:
    """Return the page of a module: a table of its names, then what is described here."""
    own_name = module.__name__
    lines = [f"# `{own_name}`", "", summary(module), "", "| name | |", "|---|---|"]
    described: list[str] = []
    for name in sorted(module.__all__, key=str.casefold):
        item = getattr(module, name)
        home = at_home[id(item)]
        lines.append(f"| {{py:obj}}`{name} <{home}.{name}>` | {summary(item)} |")
        if home == own_name:
            described.append(name)
    if described:
        lines += ["", "```{eval-rst}", f".. currentmodule:: {own_name}", ""]
        for name in described:
            lines += [*directive_for(name, getattr(module, name)), ""]
        lines += ["```"]
    return "\n".join([*lines, ""])


def directive_for(name: str, item: object) -> list[str]:
    """Return what describes a thing: from its docstring, or, of a constant, from its value."""
    if inspect.isclass(item) and issubclass(item, BaseException):
        return [f".. autoexception:: {name}"]
    if inspect.isclass(item):
        return [f".. autoclass:: {name}"]
    if inspect.isroutine(item):
        return [f".. autofunction:: {name}"]
    value = repr(item)
    if len(value) > LONGEST_VALUE:
        value = f"{value[:LONGEST_VALUE]} ..."
    return [f".. py:data:: {name}", "", f"   ``{value}``"]


def summary(item: object) -> str:
    """Return the first sentence of a docstring, as one cell of a table."""
    if not (inspect.isclass(item) or inspect.isroutine(item) or inspect.ismodule(item)):
        return ""
    first = (inspect.getdoc(item) or "").partition("\n\n")[0]
    return " ".join(first.split()).replace("``", "`").replace("|", "\\|")


# --- settings -------------------------------------------------------------------------------------


UNITS = {
    "seconds": r"\bseconds\b",
    "tokens": r"\btokens\b",
    "characters": r"\bcharacters\b",
    "percent a year": r"percent (a|per) year",
    "percent": r"\bpercent\b|percentage points",
    "basis points": r"basis points",
    "quarters": r"\bquarters\b",
    "turns": r"\bturns\b",
    "requests": r"\brequests\b",
    "0 to 1": r"\b0 to 1\b|\b(chance|share) (of|that)\b",
}
"""How a docstring names the unit of a number; the first that fits is the one."""


def settings_page() -> str:
    """Return the page of all keys that files and calls take, and of the environment."""
    from llmsim_lab.agents.briefing import NationProfile
    from llmsim_lab.cli._study import StudyFile
    from llmsim_lab.context import CrisisSimulation
    from llmsim_lab.context.scenario import CrisisScenario, Happening, ScenarioAgent
    from llmsim_lab.economy.macro import EngineConfig
    from llmsim_lab.engines.committee import Committee
    from llmsim_lab.llm import Budget, LLMConfig
    from llmsim_lab.run import StateChange, WorldConfig
    from llmsim_lab.simulation import Simulation
    from llmsim_lab.simulation.parameters import EconomyConfig
    from llmsim_lab.statechart import SocialSimulation
    from llmsim_lab.statechart.config import FeedConfig, PostConfig, ProfileConfig

    every_run = set(WorldConfig.model_fields)
    parts = [
        "# Every setting",
        "The keys of a run's file (`llmsim-lab run FILE.yaml`) are the arguments of its world in "
        "Python. A table says of each key its type, its unit where it is a number with one, its "
        "default, and what it does.",
        *settings_table("Of every run", WorldConfig),
        *settings_table("`interventions`", StateChange),
        *settings_table("`llm`: how to talk to a model", LLMConfig),
        *settings_table("The economic world", Simulation.config_type, Simulation, every_run),
        *settings_table("`nations` of the economic world", NationProfile),
        *settings_table("`committee` of the economic world", Committee),
        *settings_table("`economy` of the economic world", EconomyConfig),
        *settings_table("`economy.engine`", EngineConfig),
        *settings_table(
            "The crisis world", CrisisSimulation.config_type, CrisisSimulation, every_run
        ),
        *settings_table("A crisis's scenario", CrisisScenario),
        *settings_table("`agents` of a scenario", ScenarioAgent),
        *settings_table("`events` of a scenario", Happening),
        *settings_table(
            "The social world", SocialSimulation.config_type, SocialSimulation, every_run
        ),
        *settings_table("`profiles` of the social world", ProfileConfig),
        *settings_table("`posts` of the social world", PostConfig),
        *settings_table("`feed` of the social world", FeedConfig),
        *settings_table("A study's file", StudyFile),
        *settings_table("`Budget`", Budget),
        (SETTINGS / "environment.md").read_text(encoding="utf-8"),
    ]
    return "\n\n".join(parts)


def settings_table(
    heading: str,
    settings: type[BaseModel],
    documented: type | None = None,
    left_out: Collection[str] = (),
) -> Iterator[str]:
    """Yield a heading, what the class is for, and a row for each key.

    Args:
        heading: of the part.
        settings: the class that reads the keys.
        documented: the class whose docstring describes them; that one if not given.
        left_out: keys that have a table of their own.
    """
    meanings = attributes_of(documented or settings)
    meanings = attributes_of(settings) | meanings
    yield f"## {heading}"
    yield summary(documented or settings)
    rows = ["| key | type | unit | default | |", "|---|---|---|---|---|"]
    for name, field in settings.model_fields.items():
        if name in left_out:
            continue
        meaning = meanings.get(name, field.description or "")
        cells = [
            f"`{field.alias or name}`",
            type_of(field),
            unit_of(name, field, meaning),
            default_of(field),
            meaning,
        ]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    yield "\n".join(rows)


def attributes_of(documented: type) -> dict[str, str]:
    """Return what a class's docstrings say of each name: under *Attributes* and *parameters*."""
    meanings: dict[str, str] = {}
    for cls in reversed(documented.__mro__):
        text = cls.__dict__.get("__doc__") or ""
        for names, words in _entries(text):
            for name in names.split(","):
                meanings[name.strip()] = " ".join(words.split()).replace("``", "`")
    return meanings


def _entries(docstring: str) -> list[tuple[str, str]]:
    """Return the names and words of the entries in a docstring's sections."""
    return re.findall(r"^ {8}([\w, ]+): (.+(?:\n {10,}.+)*)", docstring, re.MULTILINE)


def type_of(field: FieldInfo) -> str:
    """Return a field's type, without what only pydantic reads."""
    return f"`{type_in_words(field.annotation)}`"


def type_in_words(annotation: Any) -> str:
    """Return a type as one writes it: ``list[int] | null``."""
    if isinstance(annotation, TypeAliasType):
        return type_in_words(annotation.__value__)
    origin = get_origin(annotation)
    parts = get_args(annotation)
    if origin is Annotated:
        return type_in_words(parts[0])
    if origin is Literal:
        return " | ".join(map(repr, parts))
    words = [type_in_words(part) for part in parts]
    if origin in (Union, UnionType):
        return " | ".join(words)
    if annotation is NoneType:
        return "null"
    if annotation is Ellipsis:
        return "..."
    name = getattr(origin or annotation, "__name__", str(annotation))
    return f"{name}[{', '.join(words)}]" if words else name


def unit_of(name: str, field: FieldInfo, meaning: str) -> str:
    """Return a number's unit, as its name or its description says it."""
    if not re.search(r"\b(int|float)\b", type_in_words(field.annotation)):
        return ""
    if name.endswith("_s"):
        return "seconds"
    if name in UNITS:
        return name
    for unit, words in UNITS.items():
        if re.search(words, meaning):
            return unit
    return ""


def default_of(field: FieldInfo) -> str:
    """Return a field's default as one writes it in a file."""
    if field.is_required():
        return "*required*"
    value: Any = field.get_default(call_default_factory=True)
    if value is PydanticUndefined or isinstance(value, BaseModel):
        return ""
    if value is None:
        return "null"
    text = repr(value)
    return f"`{text}`" if len(text) <= 60 else "see there"


# --- commands -------------------------------------------------------------------------------------


def commands_page() -> str:
    """Return the page of all commands, each with its own help."""
    parts = ["# Every command", "Each command's own help, as `--help` shows it."]
    for path, text in helps():
        if path:
            parts.append(f"## `llmsim-lab {' '.join(path)}`")
        parts.append(f"```text\n{text.strip()}\n```")
    return "\n\n".join([*parts, ""])


def helps() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the help of the program and of each of its commands, with the words that lead there."""
    import typer.main

    from llmsim_lab.cli._app import app

    def walk(command: Any, parent: Any, *path: str) -> Iterator[tuple[tuple[str, ...], str]]:
        name = path[-1] if path else "llmsim-lab"
        context = command.make_context(
            name,
            [],
            parent=parent,
            resilient_parsing=True,
            terminal_width=96,
        )
        yield path, context.get_help()
        for word, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, context, *path, word)

    yield from walk(typer.main.get_command(app), None)


# --- the finished site ----------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page links to, loads, and may be linked at."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what one element has."""
        values = {name: value or "" for name, value in attributes}
        self.anchors.update(filter(None, (values.get("id"), values.get("name"))))
        if tag == "a":
            self.links.append(values.get("href", ""))
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload", "search"):
            self.loaded.append(values.get("href", ""))
        elif tag in ("script", "img", "iframe", "source", "video"):
            self.loaded.append(values.get("src", ""))


def faults_of(site: Path) -> Iterator[str]:
    """Yield the links of a site that lead nowhere, and what its pages load from elsewhere."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        place = path.relative_to(site)
        for address in page.loaded:
            if urlsplit(address).netloc:
                yield f"{place}: loads {address} from another machine"
        for address in [*page.links, *page.loaded]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc or not address:
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                yield f"{place}: {address} is not there"
                continue
            fragment = unquote(parts.fragment)
            if fragment and target in pages and fragment not in pages[target].anchors:
                yield f"{place}: {address} has no such place"


def names_without_a_place(site: Path) -> Iterator[str]:
    """Yield the public names that the reference does not describe."""
    anchors: set[str] = set()
    for path in (site / "reference").glob("*.html"):
        anchors |= Page(path).anchors
    modules = public_modules()
    at_home = homes(modules)
    for module in modules:
        for name in module.__all__:
            if f"{at_home[id(getattr(module, name))]}.{name}" not in anchors:
                yield f"{module.__name__}.{name} is not in the reference"


if __name__ == "__main__":
    sys.exit(main())
