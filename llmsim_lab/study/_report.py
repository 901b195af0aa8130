"""A study's report for a referee: one HTML file, which loads nothing and runs nothing.

All texts are untrusted and go through ``_util/html``. Nothing in it depends on when it is written,
so that the same runs give the same file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

from markupsafe import Markup

from llmsim_lab._util.drawing import figure_html
from llmsim_lab._util.html import details, join, pairs, pre, safe, styled, table
from llmsim_lab._util.text import clip
from llmsim_lab.errors import LabError
from llmsim_lab.study.estimates.estimate import Effects

_PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none';style-src 'unsafe-inline';img-src data:">
<title>{title}</title><style>
:root{{color-scheme:light dark}}
body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:auto;padding:1rem;
overflow-wrap:break-word}}h2{{padding-top:.9rem;border-top:1px solid}}
.wide{{overflow-x:auto}}pre{{white-space:pre-wrap}}
</style></head><body><main>
{body}
</main></body></html>
"""


def report_html(study: Any) -> str:
    """Return a study's report as a page."""
    # Each with what its file says, and the rows of its frames.
    begun = [(it, study.contents(it)) for it in study.progress() if it.tape and it.turns]
    infos = [info for _, plays in begun for info, _ in plays.values()]
    models = sorted({str(it.manifest["model"]["name"]) for it in infos if it.manifest["model"]})
    sections = {
        "Effects": _effects(study),
        "Registration": _registration(study),
        "Charts": _charts(study),
        "Design": _design(study, begun),
        "What failed": _failures(study),
        "Runs": _runs(study, begun),
    }
    parts = [
        styled(study.name, tag="h1"),
        safe(f"{study._about()}; it asks {', '.join(models) or 'no model'}"),
    ]
    for title, content in sections.items():
        # A keyboard reaches what scrolls.
        wide = Markup('<div class="wide" tabindex="0" role="group" aria-label="{}"><table ')
        shown = join(content).replace("<table ", wide.format(title))
        shown = shown.replace("</table>", Markup("</table></div>"))
        parts.append(Markup("<section><h2>{}</h2>{}</section>").format(title, shown))
    parts.append(styled(f"Written by llmsim-lab {version('llmsim-lab')}.", tag="p"))
    return _PAGE.format(title=safe(f"Study {study.name}"), body=join(parts, between="\n"))


def _effects(study: Any) -> Iterator[Markup]:
    """Yield a factorial's main effects, and each arm minus the reference."""
    if len(study.arms) < 2 or not study.counts["done"]:
        yield safe("Nothing is compared: it takes two arms, and runs that are done.")
        return
    claimed = set[tuple[str, str]]()
    if study.registration is not None:
        try:
            registered = study.registered_effects()
        except LabError as error:  # an arm or an outcome is not in the study any more
            yield safe(f"Not known, what was registered: {error}. ", limit=2_000)
        else:
            registered.label = f"registered: {study.registration.claims.family}"
            claimed = {(it.contrast, it.outcome) for it in registered}
            yield Markup(registered._repr_html_())
    formulas = {"main effects": f"~ {' + '.join(study.factors)}"} if len(study.factors) > 1 else {}
    for what, formula in {**formulas, f"each arm minus {study.reference}": None}.items():
        try:
            found = study.effects(formula)
        except LabError as error:  # of a user's function
            yield safe(f"Not known, {what}: {error}. ", limit=2_000)
        else:
            label = "; ".join(filter(None, [what, found.label]))
            if study.registration is not None:
                found = Effects(it for it in found if (it.contrast, it.outcome) not in claimed)
                label = f"not registered: {label}"
            found.label = label
            if found or study.registration is None:
                yield Markup(found._repr_html_())


def _registration(study: Any) -> Iterator[Markup]:
    """Yield what was written down before the study was played, and what was kept of it."""
    if study.registration is None:
        yield safe("The study was not registered; study.register('plan.json') does so.")
        return
    yield safe(study.registration)
    rows = [(it.name, it.registered, it.played, it.status) for it in study.registered_parts()]
    yield table(("part", "registered", "played", ""), rows)


def _charts(study: Any) -> Iterator[Markup]:
    """Yield each outcome by arm, and by turn how arms differ from the reference."""
    others = [arm for arm in study.arms if arm != study.reference]
    for outcome in study.outcome:
        try:
            turns = study.results[study.results["outcome"] == outcome]["turn"].nunique()
            for arm in [None, *others] if turns > 1 else [None]:
                yield styled(figure_html(study.chart(outcome, arm), dpi=110), tag="figure")
        except LabError as error:  # it has texts, or there are too many arms
            yield safe(f"No chart of {outcome}: {error}")


def _design(study: Any, begun: Sequence[Any]) -> Iterator[Markup]:
    """Yield the arms; under lines, the settings of each arm's first run, and each prompt once."""
    units = f"{len(study.units)}: {clip(', '.join(map(str, study.units)), 200)}"
    yield pairs([("reference", study.reference), ("units", units)])
    yield study.arms_table()
    settings, prompts = dict[str, Any](), dict[str, Any]()
    for entry, plays in begun:
        for manifest in (info.manifest for info, _ in plays.values()):
            settings.setdefault(entry.arm, {**manifest["config"], "model": manifest["model"]})
            prompts |= {it["digest"]: it for it in (manifest.get("prompts") or {}).values()}
    for arm, own in settings.items():
        yield details(f"settings of {arm}", pre(json.dumps(own, indent=1, ensure_ascii=False)))
    for digest, prompt in prompts.items():
        yield details(f"prompt {prompt['name']}, {digest[:12]}", pre(prompt["text"]))


def _failures(study: Any) -> Iterator[Markup]:
    if left := study.counts["stopped"] + study.counts["left"]:
        yield safe(f"{left} runs are not done yet. ")
    failed = [it for it in study.progress() if it.status == "failed"]
    yield safe(f"{len(failed)} runs failed, and are left out of all effects with their partners.")
    if failed:
        rows = [(it.arm, it.unit, it.turns, safe(it.error, limit=2_000)) for it in failed]
        yield table(("arm", "unit", "turns", "error"), rows)


def _runs(study: Any, begun: Sequence[Any]) -> Iterator[Markup]:
    """Yield how the calls of complete runs ended, and the digest of each run's frame."""
    names, files = ["calls", "repaired", "fallback", "failed"], []
    counts = study.to_frame().reindex(columns=names).sum().astype(int)
    yield pairs(counts.items(), caption="calls of complete runs")
    for entry, plays in begun:
        rows = [row for _, its in plays.values() for row in its.values()]
        plain = [{name: it for name, it in row.items() if name != "seconds"} for row in rows]
        text = json.dumps(plain, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        files.append((entry.arm, entry.unit, entry.status, digest, entry.tape.name))
    yield table(("arm", "unit", "status", "digest", "tape"), files)
    yield safe("Digest: SHA-256 of the frame as sorted JSON without seconds, as a replay has it.")
