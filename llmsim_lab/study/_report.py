"""A study's report for a referee: one HTML file, which loads nothing and runs nothing.

All texts are untrusted and go through ``_util/html``. Nothing in it depends on when it is written,
so that the same runs give the same file.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from llmsim_lab._util.drawing import figure_bytes
from llmsim_lab._util.html import details, join, pairs, pre, safe, styled, table
from llmsim_lab._util.text import clip
from llmsim_lab.errors import LabError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AnyStudy = Any
"""A ``Study``, whose module imports this one."""
Begun = Sequence[tuple[Any, Any, Any]]
"""Runs that were begun, each with what its file says, and the rows of its frames."""
_MOST_DIFFERENCES = 12
"""Differences by turn that are drawn."""
_CSS = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1.5rem 1rem 4rem;
overflow-wrap:break-word;color:#1f2328;background:#fff}
h2{font-size:1.15rem;margin:2.2rem 0 .5rem;padding-top:.9rem;border-top:1px solid #8c959f}
table{border-collapse:collapse;font-size:.92rem}caption{text-align:left}
th,td{padding:.3rem .9rem .3rem 0!important;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}pre{font-size:.82rem;white-space:pre-wrap}
figure{margin:.8rem 0;background:#fff}figure img{max-width:100%;height:auto}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}}
"""
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none';style-src 'unsafe-inline';img-src data:">
<title>{title}</title><style>{css}</style></head>
<body><main>
{body}
</main></body></html>
"""


def report_html(study: AnyStudy) -> str:
    """Return a study's report as a page."""
    begun = [(it, *study.contents(it)) for it in study.progress() if it.tape and it.turns]
    infos = [info for _, its, _ in begun for info in its.values()]
    parts = [
        Markup("<h1>{}</h1>").format(safe(study.name)),
        safe("; ".join([study._about(), *_facts(infos)])),
        _section("Effects", *_effects(study)),
        _section("Charts", *_charts(study)),
        _section("Design", *_design(study), *_settings(begun), *_prompts(infos)),
        _section("What failed", *_failures(study)),
        _section("Runs", *_runs(begun)),
        styled(f"Written by llmsim-lab {version('llmsim-lab')}.", tag="p"),
    ]
    return _PAGE.format(title=safe(f"Study {study.name}"), css=_CSS, body=join(parts, between="\n"))


def _section(title: str, *parts: object) -> Markup:
    return Markup("<section><h2>{}</h2>{}</section>").format(title, join(parts))


def _wide(content: object, name: str) -> Markup:
    return styled(content, **{"class": "wide"}, tabindex="0", role="region", aria_label=name)


def _facts(infos: Sequence[Any]) -> Iterator[str]:
    """Yield which models were asked, when, and with which versions."""
    models = {str((it.manifest["model"] or {}).get("name", "")) for it in infos}
    yield f"it asks {', '.join(sorted(filter(None, models))) or 'no model'}"
    if days := sorted({it.started[:10] for it in infos}):
        yield f"played {' to '.join(dict.fromkeys([days[0], days[-1]]))}"
    made = {f"with {it.manifest['package']}, Python {it.manifest['python']}" for it in infos}
    yield from sorted(made)


def _effects(study: AnyStudy) -> Iterator[Markup]:
    """Yield a factorial's main effects, and each arm minus the reference."""
    if len(study.arms) < 2 or not study.counts["done"]:
        yield safe("Nothing is compared: it takes two arms, and runs that are done.")
        return
    formulas = {"main effects": f"~ {' + '.join(study.factors)}"} if len(study.factors) > 1 else {}
    for what, formula in {**formulas, f"each arm minus {study.reference}": None}.items():
        try:
            found = study.effects(formula)
        except LabError as error:  # of an outcome that has texts, or of a user's function
            yield safe(f"Not known, {what}: {error}. ", limit=2_000)
            continue
        found.label = "; ".join(filter(None, [what, found.label]))
        yield Markup(found._repr_html_())


def _charts(study: AnyStudy) -> Iterator[Markup]:
    for outcome in study.outcome:
        try:
            yield _figure(study.chart(outcome))
            by_turn = study.results[study.results["outcome"] == outcome]["turn"].nunique() > 1
            others = [arm for arm in study.arms if arm != study.reference][:_MOST_DIFFERENCES]
            for arm in others if by_turn else ():
                yield _figure(study.chart(outcome, arm))
        except LabError as error:  # one that has texts, or too many arms
            yield safe(f"No chart of {outcome}: {error}")


def _figure(figure: Figure) -> Markup:
    data = base64.b64encode(figure_bytes(figure, "png", dpi=110)).decode()
    image = Markup('<figure><img src="data:image/png;base64,{}" alt="{}"></figure>')
    return image.format(data, figure.alt)  # type: ignore[attr-defined]


def _design(study: AnyStudy) -> Iterator[Markup]:
    units = f"{len(study.units)}: {clip(', '.join(map(str, study.units)), 200)}"
    yield pairs([("reference", study.reference), ("units", units)])
    yield _wide(study.arms_table(), "arms")


def _settings(begun: Begun) -> Iterator[Markup]:
    """Yield the settings of each arm's first run, under a line."""
    first = {it.arm: next(iter(infos.values())).manifest for it, infos, _ in reversed(begun)}
    for arm, manifest in reversed(first.items()):
        settings = {**manifest["config"], "model": manifest["model"]}
        yield details(f"settings of {arm}", pre(json.dumps(settings, indent=1, ensure_ascii=False)))


def _prompts(infos: Sequence[Any]) -> Iterator[Markup]:
    """Yield each prompt that was asked with, once, under a line."""
    entries = [it for info in infos for it in (info.manifest.get("prompts") or {}).values()]
    for digest, entry in {entry["digest"]: entry for entry in entries}.items():
        yield details(f"prompt {entry['name']}, {digest[:12]}", pre(entry["text"]))


def _failures(study: AnyStudy) -> Iterator[Markup]:
    if left := study.counts["stopped"] + study.counts["left"]:
        yield safe(f"{left} runs are not done yet. ")
    rows = [
        (it.arm, it.unit, it.turns, safe(it.error, limit=2_000))
        for it in study.progress()
        if it.status == "failed"
    ]
    yield safe(f"{len(rows)} runs failed, and are left out of all effects with their partners.")
    yield _wide(table(("arm", "unit", "turns", "error"), rows), "failed runs") if rows else safe("")


def _runs(begun: Begun) -> Iterator[Markup]:
    rows = [row for *_, frames in begun for its in frames.values() for row in its.values()]
    names = ("calls", "repaired", "fallback", "failed")
    yield pairs((name, sum(row.get(name) or 0 for row in rows)) for name in names)
    files = [(it.arm, it.unit, it.status, _digest(its), it.tape.name) for it, _, its in begun]
    yield _wide(table(("arm", "unit", "status", "digest", "tape"), files), "runs")
    yield safe(
        "Digest: SHA-256 of the frame as JSON with sorted keys, without its column seconds; a "
        "replay of the tape gives the same."
    )


def _digest(frames: Any) -> str:
    rows = [row for its in frames.values() for row in its.values()]
    plain = [{name: it for name, it in row.items() if name != "seconds"} for row in rows]
    text = json.dumps(plain, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
