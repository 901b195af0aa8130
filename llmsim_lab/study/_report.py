"""A study's report for a referee: one HTML file, which loads nothing and runs nothing.

All texts are untrusted and go through ``_util/html``. Nothing in it depends on when it is written,
so that the same runs give the same file.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from markupsafe import Markup

from llmsim_lab._util.drawing import figure_bytes
from llmsim_lab._util.html import details, join, pairs, safe, styled, table
from llmsim_lab._util.jsontext import dumps
from llmsim_lab.errors import LabError
from llmsim_lab.llm import Tape

_MOST_ROWS = 12
"""Rows of a table that is not folded."""

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


def report_html(study: Any) -> str:
    """Return a study's report as a page."""
    body = [
        Markup("<h1>{}</h1>").format(safe(study.name)),
        styled(f"The world {study._world.cls.kind}. {study._about()}.", tag="p"),
        _section("What was varied", _varied(study)),
        _section("Effects", _effects(study)),
        _section("Charts", *(_chart(study, outcome) for outcome in study.outcome)),
        _section("What failed", *(study.errors or ["No run failed."])),
        _section("Runs", _runs(study)),
        styled(f"Written by llmsim-lab {version('llmsim-lab')}.", tag="p"),
    ]
    title = safe(f"Study {study.name}")
    return _PAGE.format(title=title, css=_CSS, body=join(body, between="\n"))


def _section(title: str, *parts: object) -> Markup:
    return Markup("<section><h2>{}</h2>{}</section>").format(title, join(parts))


def _varied(study: Any) -> Markup:
    fixed = {name: dumps(str(it)) for name, it in study._world.fixed.items()}
    facts: list[tuple[object, object]] = [
        ("design", study.design),
        ("units", ", ".join(map(str, study.units))),
        ("outcomes", ", ".join(study.outcome)),
        *fixed.items(),
    ]
    rows = [[arm, *levels.values()] for arm, levels in study.arms.items()]
    return join([pairs(facts), table(["arm", *study.arms[study.reference]], rows)])


def _effects(study: Any) -> object:
    try:
        return Markup(study.effects()._repr_html_())
    except LabError as error:
        return str(error)


def _chart(study: Any, outcome: str) -> object:
    try:
        svg = figure_bytes(study.chart(outcome), "svg", salt=outcome).decode()
    except (LabError, TypeError) as error:  # a text has no chart
        return f"No chart of {outcome}: {error}"
    return Markup("<figure>{}</figure>").format(Markup(svg[svg.index("<svg") :]))


def _runs(study: Any) -> Markup:
    rows = []
    for entry in study.progress():
        job, model = study._jobs[entry.key], "none"
        if entry.tape is not None:
            with Tape(entry.tape, read_only=True) as tape:
                manifests = [info.manifest for info in job.runs_on(tape).values()]
            model = ", ".join({str((it["model"] or {}).get("name", "none")) for it in manifests})
        rows.append([entry.arm, entry.unit, entry.status, entry.turns, model, job.digest])
    shown = table(["arm", "unit", "status", "turns", "model", "digest"], rows)
    return shown if len(rows) <= _MOST_ROWS else details(f"runs: {len(rows)}", shown)
