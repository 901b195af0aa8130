"""A study's report for a referee: one HTML file, which loads nothing and runs nothing.

All texts are untrusted and go through ``_util/html``. Nothing in it depends on when it is written,
so that the same runs give the same file.
"""

from __future__ import annotations

import colorsys
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from llmsim_lab._util.drawing import figure_bytes
from llmsim_lab._util.html import details, join, pairs, pre, safe, styled, table
from llmsim_lab._util.jsontext import dumps, flat
from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.run._run import CLIENT_SETTINGS
from llmsim_lab.study._charts import runs_chart
from llmsim_lab.study._design import LAST, AnyStudy, said
from llmsim_lab.study._playing import RUN
from llmsim_lab.tape import Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from llmsim_lab.study._statistics import Effect
    from llmsim_lab.tape._lines import RunInfo

_MOST_COLUMNS = 4
"""Arms that stand side by side; more stand one below the other."""
_MOST_ROWS = 12
"""Rows of a table that is not folded."""
_MOST_SEEDS = 20
_STATUSES = ("ok", "repaired", "fallback", "failed")
_PLAYED_WITH = {
    "llmsim-lab": "package",
    "Python": "python",
    "platform": "platform",
}
"""Titles of what the runs' manifests say, and its names there."""
_SIZE = (7.0, 3.9)
"""Of a chart, inches."""
_BACKGROUNDS = "#ffffff", "#0d1117"
_TEXT_CONTRAST, _LINE_CONTRAST = 4.5, 3.0

_CSS = """
:root{color-scheme:light dark;--text:#1f2328;--soft:#59636e;--line:#d1d9e0;--back:#fff;
--box:#f6f8fa}
@media(prefers-color-scheme:dark){:root{--text:#e6edf3;--soft:#a9b4c0;--line:#3d444d;
--back:#0d1117;--box:#161b22}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);
max-width:60rem;margin:0 auto;padding:1.5rem 1rem 4rem;overflow-wrap:break-word}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .3rem}
h2{font-size:1.15rem;margin:2.2rem 0 .5rem;padding-top:.9rem;border-top:1px solid var(--line)}
p,ul{margin:.5rem 0}ul{padding-left:1.2rem}
.soft,caption{color:var(--soft);font-size:.9rem}
table{border-collapse:collapse;font-size:.92rem;margin:.4rem 0}
caption{padding-bottom:.2rem}
th{font-weight:600}tbody tr{border-top:1px solid var(--line)}
th,td{padding:.3rem .9rem .3rem 0!important}th:last-child,td:last-child{padding-right:0!important}
td ul{margin:0}tbody th{font-weight:400}.wide tbody th{min-width:8.5rem}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.wide{overflow-x:auto}
.say{background:var(--box);border-left:3px solid var(--line);padding:.5rem .8rem;margin:.6rem 0}
code,.mono{font-family:ui-monospace,monospace;font-size:.86em;overflow-wrap:anywhere}
pre{font-size:.82rem;background:var(--box);padding:.7rem!important}
details{margin:.5rem 0}summary{cursor:pointer}
figure{margin:.8rem 0}figure svg{width:100%;max-width:44rem;height:auto;display:block}
svg text{font-family:system-ui,sans-serif!important}
@media print{body{max-width:none}details>*{display:block}}
"""
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none';style-src 'unsafe-inline'">
<title>{title}</title><style>{css}</style></head>
<body><main>
{body}
</main></body></html>
"""


class _Evidence:
    """What is known of a study's runs, read once.

    Args:
        study: whose.

    Attributes:
        study: whose.
        begun: the runs that have a turn, arm by arm.
    """

    def __init__(self, study: AnyStudy) -> None:
        self.study = study
        kept = study._player.kept
        self.begun = [it for it in study._in_order() if it.tape is not None or it.key in kept]

    @cached_property
    def infos(self) -> dict[tuple[str, int], RunInfo]:
        """What the tapes say of each run that is on one, by arm and seed."""
        found = {}
        for entry in self.begun:
            if entry.tape is not None:
                with Tape(entry.tape, read_only=True) as tape:
                    found[entry.key] = tape.run(RUN)
        return found

    @cached_property
    def manifests(self) -> dict[tuple[str, int], Mapping[str, Any]]:
        """What defines each run that is on a tape, by arm and seed."""
        return {key: info.manifest for key, info in self.infos.items()}

    @cached_property
    def counts(self) -> Counter[str]:
        """How many decisions of each status there are, failed runs included, and how many calls."""
        found = Counter[str]()
        for entry in self.begun:
            for row in self.study._rows(entry):
                found.update({name: row.get(name) or 0 for name in (*_STATUSES, "calls")})
        return found

    @property
    def calls(self) -> int:
        """How many times a model was asked."""
        return self.counts["calls"]

    @cached_property
    def models(self) -> dict[str, list[Mapping[str, Any]]]:
        """Which models answered each arm's runs, as they said who they are."""
        found: dict[str, list[Mapping[str, Any]]] = {arm: [] for arm in self.study.arms}
        for (arm, _), manifest in self.manifests.items():
            model = manifest.get("model")
            if isinstance(model, Mapping) and model not in found[arm]:
                found[arm].append(model)
        return found

    def settings(self, arm: str) -> Mapping[str, Any]:
        """Return the settings that an arm's model was asked with; empty where it has none."""
        for (which, _), manifest in self.manifests.items():
            if which == arm and isinstance(manifest.get("llm"), Mapping):
                return dict(manifest["llm"])
        for entry in self.begun:
            run = self.study._player.kept.get(entry.key)
            if entry.arm == arm and run is not None and run.llm_client is not None:
                return dict(run.llm_client.config.model_dump(mode="json"))
        return {}

    def config(self, arm: str) -> Any:
        """Return an arm's configuration, of the first seed."""
        study = self.study
        return study._world.trial(study._by_name[arm], study.seeds[0]).config


def report_html(study: AnyStudy) -> str:
    """Return a study's report as a page."""
    evidence = _Evidence(study)
    palette = _Palette()
    parts = [
        _head(study, evidence),
        _section("What was varied", _design(study)),
        _section("Effects", _effects(study)),
        _section("Turn by turn", _charts(study, palette)),
        _section("Settings", _settings(evidence)),
        _section("What failed", _failures(study)),
        _section("Runs", _runs(evidence)),
        _p(f"Written by llmsim-lab {version('llmsim-lab')}.", kind="soft"),
    ]
    title = safe(f"Study {study.name}")
    return _PAGE.format(title=title, css=_CSS + palette.css, body=join(parts, between="\n"))


def _section(title: str, *parts: object) -> Markup:
    return Markup("<section><h2>{}</h2>{}</section>").format(title, join(parts))


def _p(text: object, *, kind: str = "") -> Markup:
    return _of(kind, text, tag="p")


def _n(value: object) -> Markup:
    """Return a cell's number, aligned with those above and below."""
    return _of("n", value)


def _mono(text: object) -> Markup:
    return _of("mono", text, tag="span")


def _wide(content: object, name: str) -> Markup:
    """Return a table with a scroll bar of its own where the page is too narrow for it."""
    return _of("wide", content, tabindex="0", role="region", aria_label=name)


def _of(kind: str, content: object, **how: Any) -> Markup:
    """Return content in an element of a class of ``_CSS``."""
    return styled(content, **{"class": kind or None, **how})


def _folded(name: str, rows: Sequence[Sequence[object]], header: Sequence[object]) -> Markup:
    """Return a table, under a line if it is long."""
    shown = _wide(table(header, rows), name)
    return shown if len(rows) <= _MOST_ROWS else details(f"{name}: {len(rows)}", shown)


# --- what it is, and what was asked --------------------------------------------------------------


def _head(study: AnyStudy, evidence: _Evidence) -> Markup:
    world = study._cls.kind
    when = _played(evidence.infos.values())
    every = (model for models in evidence.models.values() for model in models)
    models = dict.fromkeys(str(model.get("name")) for model in every)
    who = f"asks {', '.join(models) or 'a model'}" if evidence.calls else "asks no model"
    about = f"The world {world}; it {who}. {study._about()}."
    title = Markup("<h1>{}</h1>").format(safe(study.name))
    return join([title, _p(f"{about} {when}".strip(), kind="soft")])


def _played(infos: Iterable[RunInfo]) -> str:
    dates = [date for info in infos for date in (info.started, info.ended)]
    days = sorted({date[:10] for date in dates if date})
    return f"Played {' to '.join(dict.fromkeys([days[0], days[-1]]))}." if days else ""


def _design(study: AnyStudy) -> Markup:
    factors = [(name, _level_names(levels)) for name, levels in study._factors.items()]
    kind = {"full": "every combination of levels"}.get(study._design, study._design)
    seeds = study.seeds
    which = clip(", ".join(map(str, seeds)), 200)
    if len(seeds) > 1 and seeds == list(range(seeds[0], seeds[0] + len(seeds))):
        which = f"{seeds[0]} to {seeds[-1]}"
    outcomes = ", ".join(_outcome_name(label, it) for label, it in study.outcome.items())
    facts: list[tuple[object, object]] = [
        ("design", f"{kind}: {len(study.arms)} arms"),
        ("reference", study.reference),
        ("seeds", f"{len(seeds)}, the same in all arms: {which}"),
        ("turns", f"{study.turns} in each run"),
        ("outcomes", outcomes or "none"),
    ]
    by_arm = Counter[tuple[str, str]]((it.arm, it.status) for it in study._entries.values())
    states = [it for it in ("done", "failed", "stopped", "left") if study.counts[it]]
    arms = [
        [arm, *levels.values(), *(_n(by_arm[arm, state]) for state in states)]
        for arm, levels in study.arms.items()
    ]
    header = ["arm", *next(iter(study.arms.values())), *(_n(state) for state in states)]
    varied = _wide(table(("factor", "levels"), factors), "factors") if factors else ""
    return join([pairs(facts), varied, _folded("arms", arms, header)])


def _level_names(levels: Mapping[str, Any]) -> Markup:
    shown = []
    for label, level in levels.items():
        what = said(level)
        text = what if isinstance(what, str) else dumps(what)
        # The level itself where the label does not say it: a text is shown whole, under a line.
        if text in (label, label.lower(), f"{label}.0") or level is None:
            shown.append(safe(label))
        elif len(text) <= 60:
            shown.append(safe(f"{label}: {text}"))
        else:
            shown.append(details(label, pre(text)))
    return join(shown, between=", ") if not any("<details" in it for it in shown) else join(shown)


def _outcome_name(label: str, item: Any) -> str:
    if not isinstance(item, str):
        return f"{label} (a function of the run)"
    column = item.removesuffix(LAST)
    how = f"{column} at the last turn" if column != item else item
    return how if label in (item, how) else f"{label} ({how})"


# --- what came of it -----------------------------------------------------------------------------


def _effects(study: AnyStudy) -> Markup:
    if not study.counts["done"]:
        return _p("No run is complete.")
    if not study.outcome:
        return _p("No outcome is named, so nothing is compared.")
    try:
        return _compared(study, _by_arm(study))
    except LabError as error:  # of an outcome that is a function, such as a user's mistake
        return _p(f"No effects can be shown. {error}")


def _compared(study: AnyStudy, by_arm: Markup) -> Markup:
    if len(study.arms) < 2:
        return join([_p("No arms are compared: there is one."), by_arm])
    from llmsim_lab.study._statistics import short_p  # here, since it imports numpy

    effects = study.effects()
    level = f"{100 * (effects[0].level if effects else 0.95):g} %"
    header = ["contrast", "outcome"]
    header += [_n(it) for it in ("difference", f"{level} interval", "p", "p in family", "n")]
    marks, remarks = _remarks(effects)
    rows = [
        [
            effect.contrast,
            effect.outcome,
            *(_n(it) for it in _numbers(effect)),
            *(_n("" if p is None else short_p(p)) for p in (effect.p, effect.p_family)),
            _n(f"{effect.n} {effect.unit}"),
            *([",".join(marks[place])] if any(marks) else []),
        ]
        for place, effect in enumerate(effects)
    ]
    header += ["see"] * any(marks)
    label = [_p(effects.label, kind="say")] if effects.label else []
    below = (_p(text, kind="soft") for text in remarks)
    return join([*label, _wide(table(header, rows), "effects"), *below, by_arm])


def _remarks(effects: Sequence[Effect]) -> tuple[list[list[str]], list[str]]:
    """Return what effects speak of, by which method, and their notes, each said once.

    Returns:
        the marks of each effect, for what is not said of all of them; and the lines.
    """
    marks: list[list[str]] = [[] for _ in effects]
    lines = []
    used = 0
    for title, name in (("Speaks of", "speaks_of"), ("Method", "method"), ("Note", "note")):
        places: dict[str, list[int]] = {}
        for place, effect in enumerate(effects):
            for text in filter(None, getattr(effect, name).split("; ")):
                places.setdefault(text, []).append(place)
        for text, where in places.items():
            mark = ""
            if len(where) < len(effects):
                mark, used = _letters(used), used + 1
                for place in where:
                    marks[place].append(mark)
            lines.append(f"{mark and f'{mark}: '}{title}: {text}.")
    return marks, lines


def _letters(number: int) -> str:
    """Return a, b and so on to z, then aa, ab and so on."""
    more, last = divmod(number, 26)
    return (_letters(more - 1) if more else "") + chr(ord("a") + last)


def _numbers(effect: Effect) -> tuple[str, str]:
    """Return difference and interval with as many decimals as the interval's width bears."""
    if effect.estimate is None:
        return "not known", ""
    if effect.low is None or effect.high is None:
        return _signed(effect.estimate, _decimals(abs(effect.estimate))), "none"
    # And no more than the difference's own four.
    width, size = (effect.high - effect.low) / 2, abs(effect.estimate)
    decimals = min(_decimals(width or size), 2 + _decimals(size) if size else 8)
    low, high = (_minus(f"{it:.{decimals}f}") for it in (effect.low, effect.high))
    return _signed(effect.estimate, decimals), f"{low} to {high}"


def _decimals(size: float) -> int:
    """Return how many decimals show two significant figures of a size."""
    if not size or not math.isfinite(size):
        return 2
    return min(8, max(0, 1 - math.floor(math.log10(size))))


def _signed(value: float, decimals: int) -> str:
    return _minus(f"{value:+.{decimals}f}") if value else "0"


def _minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")


def _by_arm(study: AnyStudy) -> Markup:
    """Return the outcomes' means by arm."""
    values = study.outcomes()
    rows = []
    for label in study.outcome:
        for arm in study.arms:
            of = values["value"][(values["outcome"] == label) & (values["arm"] == arm)].dropna()
            if of.empty:
                continue
            mean, spread = float(of.mean()), float(of.std()) if len(of) > 1 else None
            decimals = _decimals(spread or abs(mean))
            cells = ("" if it is None else _minus(f"{it:.{decimals}f}") for it in (mean, spread))
            rows.append([label, arm, *map(_n, cells), _n(len(of))])
    header = ["outcome", "arm", _n("mean"), _n("sd"), _n("runs")]
    return _folded("outcomes by arm", rows, header)


# --- charts --------------------------------------------------------------------------------------


def _charts(study: AnyStudy, palette: _Palette) -> Markup:
    """Return each outcome by run, and its column by turn where it has one.

    A study without an outcome shows the first column of its world by turn.
    """
    if not study.counts["done"]:
        return _p("No run is complete.")
    numbers = set(study.to_frame().select_dtypes("number").columns)
    items = study.outcome or {it.column: it.column for it in study._trial.series[:1]}
    columns = [it.removesuffix(LAST) for it in items.values() if isinstance(it, str)]
    by_turn = dict.fromkeys(name for name in columns if name in numbers)
    try:
        shown = [_figure(study.chart(name), f"turns {name}", palette) for name in by_turn]
        values, arms = study.outcomes(), list(study.arms)
        shown += [
            _figure(runs_chart(values, label, arms=arms), f"runs {label}", palette)
            for label in study.outcome
        ]
    except ConfigError as error:
        return _p(str(error), kind="soft")
    return join(shown)


def _figure(figure: Figure, name: str, palette: _Palette) -> Markup:
    figure.set_size_inches(*_SIZE)
    figure.patch.set_alpha(0)
    for axes in figure.axes:
        axes.patch.set_alpha(0)
    # A salt of its own: identifiers of several charts on one page must differ.
    svg = figure_bytes(figure, "svg", salt=name).decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    # In tags alone: an arm may be called like a colour.
    svg = re.sub(r"<[^>]*>", lambda tag: palette.on_any_background(tag[0]), svg)
    # Texts without a colour of their own have the page's.
    svg = svg.replace("<svg ", '<svg fill="currentColor" stroke-linejoin="round" ', 1)
    alt = str(getattr(figure, "alt", name))
    return Markup('<figure><div role="img" aria-label="{}">{}</div></figure>').format(
        alt, Markup(svg)
    )


class _Palette:
    """Colours of charts as names, each with a value for light and for dark pages."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[str, float]] = {}

    def on_any_background(self, tag: str) -> str:
        """Return a tag of a picture with its colours by name, black as the text's colour."""
        least = _TEXT_CONTRAST if tag.startswith("<text") else _LINE_CONTRAST

        def named(found: re.Match[str]) -> str:
            colour = found[0].lower()
            if colour == "#ffffff":
                return colour
            if colour == "#000000":
                return "currentColor"
            name = f"--{'text' if least == _TEXT_CONTRAST else 'line'}-{colour[1:]}"
            self._used[name] = colour, least
            return f"var({name})"

        return re.sub(r"(?<=: )#[0-9a-fA-F]{6}\b", named, tag)

    @property
    def css(self) -> str:
        """The names' values."""
        light, dark = (
            "".join(f"{name}:{_seen_on(back, *it)};" for name, it in self._used.items())
            for back in _BACKGROUNDS
        )
        if not light:
            return ""
        return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _seen_on(background: str, colour: str, least: float) -> str:
    """Return a colour, as much lighter or darker as makes it seen on a background."""
    from matplotlib.colors import to_hex, to_rgb  # here, since it takes long to import

    hue, light, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
    step = 0.02 if _luminance(background) < 0.2 else -0.02
    while 0 < light < 1 and _contrast(colour, background) < least:
        light = min(1.0, max(0.0, light + step))
        # Rounded as it is written, since its contrast is measured as it is seen.
        colour = to_hex(colorsys.hls_to_rgb(hue, light, saturation))
    return colour


def _contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21. Source: WCAG 2.2, contrast ratio."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    from matplotlib.colors import to_rgb  # likewise

    linear = [
        it / 12.92 if it <= 0.04045 else ((it + 0.055) / 1.055) ** 2.4 for it in to_rgb(colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# --- settings and runs ---------------------------------------------------------------------------


def _settings(evidence: _Evidence) -> Markup:
    by_arm = {arm: _settings_of(evidence, arm) for arm in evidence.study.arms}
    names = dict.fromkeys(name for settings in by_arm.values() for name in settings)
    cells = {name: [settings.get(name) for settings in by_arm.values()] for name in names}
    shared = {name: each[0] for name, each in cells.items() if len(set(each)) == 1}
    grid: list[Any] = [
        [name, *map(_setting, each)] for name, each in cells.items() if name not in shared
    ]
    differing = _p("The arms have the same settings.")
    if grid:
        header: Sequence[object] = ["setting", *by_arm]
        if len(by_arm) > _MOST_COLUMNS:
            header, *grid = zip(["arm", *by_arm], *grid, strict=True)
        above = _p("What differs between the arms:")
        differing = join([above, _folded("settings", grid, header)])
    every = table(("setting", "all arms"), [(name, _setting(it)) for name, it in shared.items()])
    folded = details(f"what all arms share: {len(shared)} settings", _wide(every, "settings"))
    return join([differing, folded, *_prompts(evidence)])


def _setting(text: str | None) -> Markup:
    return _mono("" if text is None else text)


def _settings_of(evidence: _Evidence, arm: str) -> dict[str, str]:
    """Return what an arm's runs are configured with, as JSON, by dotted names."""
    study = evidence.study
    manifest: Mapping[str, Any] = next(
        (it for (which, _), it in evidence.manifests.items() if which == arm), {}
    )
    config = manifest.get("config") or evidence.config(arm).model_dump(mode="json")
    own = {name: value for name, value in config.items() if name not in ("name", "seed", "llm")}
    if llm := evidence.settings(arm):
        own["llm"] = {name: it for name, it in llm.items() if name not in CLIENT_SETTINGS[1:]}
    of_model = ("name", "backend", "version", "digest")
    own["model"] = [{name: it.get(name) for name in of_model} for it in evidence.models[arm]]
    own["prompts"] = {
        place: it["digest"][:12] for place, it in (manifest.get("prompts") or {}).items()
    }
    if not manifest:
        made = study._world.trial(study._by_name[arm], study.seeds[0])
        own["prompts"] = {place: prompt.digest[:12] for place, prompt in made.prompts.items()}
    # What is given beside the configuration, such as players as functions.
    own["given"] = {
        name: said(level)
        for name, level in study._world.values(study._by_name[arm]).items()
        if study._world.kind_of(name) not in ("config", "model", "prompt")
    }
    return {name: text for name, text in flat(own).items() if text not in ("{}", "[]")}


def _prompts(evidence: _Evidence) -> Iterator[Markup]:
    """Yield each prompt that was asked with, once, under a line."""
    texts: dict[str, tuple[str, str]] = {}
    for manifest in evidence.manifests.values():
        for entry in (manifest.get("prompts") or {}).values():
            texts.setdefault(entry["digest"], (entry["name"], entry["text"]))
    for digest, (name, text) in texts.items():
        yield details(f"prompt {name}, {digest[:12]}", pre(text))


def _failures(study: AnyStudy) -> Markup:
    failed = [it for it in study._in_order() if it.status == "failed"]
    left = study.counts["stopped"] + study.counts["left"]
    parts = [_p(f"{left} of {len(study._entries)} runs are not done yet.")] if left else []
    if not failed:
        return join([*parts, _p("No run failed.")])
    rows = []
    for error, count in Counter(it.error for it in failed).most_common():
        where = [
            f"{it.arm}, seed {it.seed}, turn {it.turns + 1}" for it in failed if it.error == error
        ]
        more = f" … and {count - _MOST_SEEDS} more" if count > _MOST_SEEDS else ""
        places = "; ".join(where[:_MOST_SEEDS]) + more
        rows.append((safe(error, limit=2_000), _n(count), places))
    shares = [
        f"{arm}: {count} of {len(study.seeds)} ({count / len(study.seeds):.0%})"
        for arm, count in Counter(it.arm for it in failed).items()
    ]
    above = f"Left out of all effects, with the runs of the same seed: {'; '.join(shares)}."
    header = ("error", _n("runs"), "where")
    return join([*parts, _p(above), _folded("errors", rows, header)])


def _runs(evidence: _Evidence) -> Markup:
    study, folder = evidence.study, evidence.study.tape
    manifests = list(evidence.manifests.values())

    def each(name: str) -> str:
        return ", ".join(sorted({str(it[name]) for it in manifests if it.get(name)}))

    counts = evidence.counts
    decided = [f"{counts[name]:,} {name}" for name in _STATUSES if counts[name]]
    facts: list[tuple[object, object]] = [
        ("tapes", f"in {folder.name}" if folder is not None else "none: kept in memory"),
        ("model calls", f"{evidence.calls:,}"),
        *([("decisions of models", ", ".join(decided) or "none")] if evidence.calls else []),
        *((title, each(name)) for title, name in _PLAYED_WITH.items() if each(name)),
    ]
    rows = [
        [
            f"{entry.arm}, seed {entry.seed}",
            entry.status,
            _n(entry.turns),
            _mono(digest_of(study._rows(entry))),
            _mono(entry.tape.name if entry.tape else ""),
        ]
        for entry in evidence.begun
    ]
    about = (
        "Digest: SHA-256 of the run's frame as JSON with sorted keys, without its column seconds; "
        "a replay of its tape gives the same."
    )
    header = ("run", "status", _n("turns"), "digest", "tape")
    return join([pairs(facts), _folded("runs", rows, header), _p(about, kind="soft")])


def digest_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the digest of a run's frame, without what depends on the machine's speed."""
    plain = [{name: it for name, it in row.items() if name != "seconds"} for row in rows]
    text = json.dumps(plain, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
