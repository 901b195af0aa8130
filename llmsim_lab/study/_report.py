"""A study's report for a referee: one HTML file, which loads nothing and runs nothing.

All texts are untrusted and go through ``_util/html``. Nothing in it depends on when it is written,
so that the same runs give the same file.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from llmsim_lab._util.drawing import figure_bytes
from llmsim_lab._util.html import details, join, pairs, pre, safe, styled, table
from llmsim_lab._util.jsontext import flat
from llmsim_lab._util.text import clip
from llmsim_lab.errors import LabError
from llmsim_lab.tape import Tape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AnyStudy = Any
"""A ``Study``, whose module imports this one."""
_STATES = ("done", "failed", "stopped", "left")
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
    tapes = list(_tapes_of(study))
    parts = [
        Markup("<h1>{}</h1>").format(safe(study.name)),
        safe(_about(study, tapes)),
        _section("Effects", _effects(study)),
        _section("Charts", *_charts(study)),
        _section("Design", _design(study), _settings(study, tapes), *_prompts(tapes)),
        _section("What failed", _failures(study)),
        _section("Runs", _runs(tapes)),
        styled(f"Written by llmsim-lab {version('llmsim-lab')}.", tag="p"),
    ]
    body = join(parts, between="\n")
    return _PAGE.format(title=safe(f"Study {study.name}"), css=_CSS, body=body)


class _Kept:
    """What the file of one arm and unit says."""

    def __init__(self, study: AnyStudy, entry: Any) -> None:
        self.entry = entry
        with Tape(entry.tape, read_only=True) as tape:
            infos = tape.runs()
            self.info = infos[-1]
            self.manifest: Mapping[str, Any] = self.info.manifest
            self.rows = [row for it in infos for row in tape.frame_rows(it.id).values()]

    @property
    def digest(self) -> str:
        """SHA-256 of the rows without what depends on the machine's speed."""
        plain = [{name: it for name, it in row.items() if name != "seconds"} for row in self.rows]
        text = json.dumps(plain, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _tapes_of(study: AnyStudy) -> Iterator[_Kept]:
    yield from (_Kept(study, it) for it in study.progress() if it.tape is not None and it.turns)


def _section(title: str, *parts: object) -> Markup:
    return Markup("<section><h2>{}</h2>{}</section>").format(title, join(parts))


def _wide(header: Sequence[object], rows: Iterable[Sequence[object]], name: str) -> Markup:
    return styled(
        table(header, rows), **{"class": "wide"}, tabindex="0", role="region", aria_label=name
    )


def _about(study: AnyStudy, tapes: Sequence[_Kept]) -> str:
    models = dict.fromkeys(str((it.manifest["model"] or {}).get("name", "")) for it in tapes)
    asked = ", ".join(filter(None, models))
    days = sorted({it.info.started[:10] for it in tapes})
    when = f" Played {' to '.join(dict.fromkeys([days[0], days[-1]]))}." if days else ""
    return f"{study._about()}; it asks {asked or 'no model'}.{when}"


def _effects(study: AnyStudy) -> Markup:
    if len(study.arms) < 2 or not study.counts["done"]:
        return safe("Nothing is compared: it takes two arms, and runs that are done.")
    try:
        return Markup(study.effects()._repr_html_())
    except LabError as error:  # of an outcome that is a function, such as a user's mistake
        return safe(f"No effects can be shown. {error}")


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
    words = figure.alt  # type: ignore[attr-defined]
    return Markup('<figure><img src="data:image/png;base64,{}" alt="{}"></figure>').format(
        data, words
    )


def _design(study: AnyStudy) -> Markup:
    by_arm = Counter[tuple[str, str]]((it.arm, it.status) for it in study.progress())
    header = ["arm", *study.arms[study.reference], *_STATES]
    rows = [
        [arm, *levels.values(), *(by_arm[arm, state] for state in _STATES)]
        for arm, levels in study.arms.items()
    ]
    facts = [
        ("reference", study.reference),
        ("units", f"{len(study.units)}: {clip(', '.join(map(str, study.units)), 200)}"),
        ("outcomes", ", ".join(study.outcome)),
    ]
    return join([pairs(facts), _wide(header, rows, "arms")])


def _settings(study: AnyStudy, tapes: Sequence[_Kept]) -> Markup:
    """Return the settings that differ between arms, and, folded, all the others."""
    of_arm = {
        it.entry.arm: flat({**it.manifest["config"], "model": it.manifest["model"]}) for it in tapes
    }
    names = dict.fromkeys(
        name for its in of_arm.values() for name in its if name not in ("name", "seed")
    )
    rows = [
        (name, *(clip(str(its.get(name, "")), 200) for its in of_arm.values())) for name in names
    ]
    differ = [row for row in rows if len(set(row[1:])) > 1]
    same = [row[:2] for row in rows if len(set(row[1:])) == 1]
    differing = _wide(["setting", *of_arm], differ, "settings that differ") if differ else ""
    return join([differing, details("The same in all arms", table(("setting", "value"), same))])


def _prompts(tapes: Sequence[_Kept]) -> Iterator[Markup]:
    """Yield each prompt that was asked with, once, under a line."""
    entries = (entry for it in tapes for entry in (it.manifest.get("prompts") or {}).values())
    for digest, entry in {entry["digest"]: entry for entry in entries}.items():
        yield details(f"prompt {entry['name']}, {digest[:12]}", pre(entry["text"]))


def _failures(study: AnyStudy) -> Markup:
    failed = [it for it in study.progress() if it.status == "failed"]
    left = study.counts["stopped"] + study.counts["left"]
    parts = [safe(f"{left} runs are not done yet. ")] if left else []
    if not failed:
        return join([*parts, safe("No run failed.")])
    above = "Left out of all effects, with their partners in other arms."
    rows = [(it.arm, it.unit, it.turns, safe(it.error, limit=2_000)) for it in failed]
    return join(
        [*parts, safe(above), _wide(("arm", "unit", "turns", "error"), rows, "failed runs")]
    )


def _runs(tapes: Sequence[_Kept]) -> Markup:
    rows = [
        (it.entry.arm, it.entry.unit, it.entry.status, it.digest, it.entry.tape.name)
        for it in tapes
    ]
    counts = Counter[str]()
    for it in tapes:
        for row in it.rows:
            counts.update(
                {name: row.get(name) or 0 for name in ("calls", "repaired", "fallback", "failed")}
            )
    facts = [("model calls", counts["calls"])]
    facts += [(f"decisions {name}", counts[name]) for name in ("repaired", "fallback", "failed")]
    made = {f"{it.manifest['package']}, Python {it.manifest['python']}" for it in tapes}
    about = (
        "Digest: SHA-256 of the frame as JSON with sorted keys, without its column seconds; a "
        "replay of the tape gives the same."
    )
    shown = _wide(("arm", "unit", "status", "digest", "tape"), rows, "runs")
    return join([pairs([*facts, ("played with", "; ".join(sorted(made)))]), shown, safe(about)])
