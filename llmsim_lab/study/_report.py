"""A study as one HTML page: what a referee reads, and the window with every run.

The print view is plain HTML, for paper and where no script runs. ``Study.report`` writes it alone,
``Study.page`` below the window. All texts are untrusted and go through ``_util/html``. The page's
policy forbids inline styles, so that all styles are in ``run/front/report.css``. The same runs give
the same file, whenever it is written.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from markupsafe import Markup

from llmsim_lab._util.drawing import figure_bytes, small_png
from llmsim_lab._util.html import join, safe, styled
from llmsim_lab._util.text import MINUS, clip, counted, number
from llmsim_lab.errors import LabError
from llmsim_lab.run.page import write_page
from llmsim_lab.run.reading import Reading
from llmsim_lab.run.recorded import about
from llmsim_lab.study.estimates import Effects, Estimate
from llmsim_lab.study.playing import Key, StudyRun
from llmsim_lab.study.view import put_study
from llmsim_lab.tape import RunInfo

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Study = Any
"""A ``Study``; importing the class would be a circle, since its module imports this one."""
_LONGEST = 2_000
"""Characters of an error that are shown."""
_WIDE = Markup('<div class="wide" tabindex="0" role="group" aria-label="{}">{}</div>')
"""A scrolling region, which the keyboard can reach."""
_SECTION = Markup("<section><h2>{}</h2>{}</section>")
_FOLDED = Markup("<details><summary>{}</summary><pre>{}</pre></details>")
_HEADS = (
    "effect",
    "outcome",
    "estimate",
    "interval",
    "p",
    "units",
    "holds for",
    "method",
    "notes",
)

Entries = Sequence[tuple[StudyRun, Sequence[RunInfo]]]
"""The runs that were begun, each with the entries of its tape."""


def write_study(
    study: Study,
    path: str | Path,
    *,
    with_window: bool,
) -> Path:
    """Write a study as one HTML file, and return its path.

    Args:
        study: the study.
        path: the file, which ends in ``.html``; an existing one is replaced.
        with_window: whether the file has the window with all runs, or only the print view.

    Raises:
        ConfigError: the file cannot be written, or is a tape.
    """
    title = f"Study {study.name}"
    print_view = _print_view(study)
    if not with_window:
        return write_page(
            path,
            None,
            title=title,
            print_view=print_view,
        )
    reading = Reading(study.name)
    numbers: dict[Key, int] = {}
    for entry in study.progress():
        # A run without a turn has nothing to show.
        if entry.turns:
            run = study.simulation(entry.arm, entry.unit)
            place = len(numbers) + 1
            numbers[entry.key] = place
            reading.add(about(run, place), run)
    put_study(reading, study, numbers)
    return write_page(
        path,
        reading,
        title=title,
        print_view=print_view,
    )


def _print_view(study: Study) -> Markup:
    """Return the print view: a section for each of a referee's questions."""
    begun = [run for run in study.progress() if run.tape and run.turns]
    entries = []
    for run in begun:
        contents = study.contents(run)
        infos = [of_play.info for of_play in contents.values()]
        entries.append((run, infos))
    # In the order of the questions; digests, which are for checking, come last.
    sections = {
        "Effects": _effects(study),
        "Registration": _registration(study),
        "Charts": _charts(study),
        "Design": _design(study, entries),
        "What failed": _failures(study),
        "Runs": _runs(study, begun),
    }
    parts = [
        styled(study.name, tag="h1"),
        _paragraph(_summary(study, entries)),
    ]
    for title, content in sections.items():
        section = _SECTION.format(title, join(content))
        parts.append(section)
    parts.append(_paragraph(f"Written by llmsim-lab {version('llmsim-lab')}."))
    return join(parts, between="\n")


def _summary(study: Study, entries: Entries) -> str:
    """Return a sentence on how far the study is and which models it asks."""
    models = set()
    for _, infos in entries:
        for info in infos:
            model = info.manifest["model"]
            # None where only rules or people answer.
            if model:
                models.add(str(model["name"]))
    # Sorted, so that the same runs give the same page.
    names = ", ".join(sorted(models)) or "no model"
    return f"{study.about()}; it asks {names}."


# --- effects --------------------------------------------------------------------------------------


def _effects(study: Study) -> Iterator[Markup]:
    """Yield the registered effects, the main effects, and each arm minus the reference."""
    is_compared = len(study.arms) > 1 and study.counts["done"] > 0
    if not is_compared:
        yield _paragraph("Nothing is compared: it takes two arms, and runs that are done.")
        return
    registered = Effects()
    if study.registration is not None:
        try:
            registered = study.registered_effects()
        except LabError as error:  # an arm or an outcome is not in the study any more
            yield _paragraph(f"Not known, what was registered: {error}.")
        else:
            caption = f"registered: {study.registration.claims.family}"
            if registered.label:
                caption = f"{caption}; {registered.label}"
            yield _effects_table(study, registered, caption)
    claimed = {(effect.contrast, effect.outcome) for effect in registered}
    for label, formula in _shown_formulas(study).items():
        try:
            effects = study.effects(formula)
        except LabError as error:  # of a user's function
            yield _paragraph(f"Not known, {label}: {error}.")
            continue
        caption = f"{label}; {effects.label}" if effects.label else label
        if study.registration is not None:
            caption = f"not registered: {caption}"
        # Each effect once: claimed effects are in the table above, in a family of their own.
        rest = [effect for effect in effects if (effect.contrast, effect.outcome) not in claimed]
        if rest:
            yield _effects_table(study, rest, caption)


def _shown_formulas(study: Study) -> dict[str, str | None]:
    """Return the formulas of the effects that are always shown, by caption.

    The formula of "each arm minus the reference" is None.
    """
    formulas: dict[str, str | None] = {}
    # With one factor, the main effect is the same as the arms' differences.
    if len(study.factors) > 1:
        formulas["main effects"] = f"~ {' + '.join(study.factors)}"
    formulas[f"each arm minus {study.reference}"] = None
    return formulas


def _effects_table(
    study: Study,
    effects: Iterable[Estimate],
    caption: str,
) -> Markup:
    rows = []
    for effect in effects:
        unit = study.in_unit(effect.outcome)
        rows.append(_effect_row(effect, unit))
        # The typical difference, for a mean whose interval is too narrow, has its own row.
        if effect.typical is not None:
            rows.append(_effect_row(effect.typical, unit))
    return _table(_HEADS, rows, caption=caption)


def _effect_row(effect: Estimate, unit: str) -> list[object]:
    interval = ""
    if effect.low is not None and effect.high is not None:
        interval = f"{100 * effect.level:g} %: {number(effect.low)} to {number(effect.high)}"
    # In the order of the heads.
    return [
        effect.contrast,
        effect.outcome,
        _Number.of(_value_in_words(effect, unit)),
        _Number.of(interval),
        _Number(_p_in_words(effect)),
        _Number(counted(effect.n, effect.unit)),
        effect.generalises_to,
        _joined(effect.method, effect.family),
        _joined(effect.verdict, effect.note),
    ]


def _joined(*sentences: str) -> str:
    return "; ".join(filter(None, sentences))


def _value_in_words(effect: Estimate, unit: str) -> str:
    if effect.value is None:
        return "not known"
    if effect.kind == "text distance":
        return f"distance {effect.value:.2f}"
    if effect.kind == "length difference":
        return f"{effect.value:+.2f} words a text"
    words = f"{effect.value:+.2f} {unit}".rstrip()
    return f"typical {words}" if effect.kind == "typical difference" else words


def _p_in_words(effect: Estimate) -> str:
    p = effect.p if effect.p_family is None else effect.p_family
    if p is None:
        return ""
    words = f"{p:.3f}".removeprefix("0")
    if p < 0.0005:
        # A p-value is never 0, and its third decimal is the last that sign flips can tell.
        words = "< .001"
    return words if p == effect.p else f"{words}, adjusted"


def _registration(study: Study) -> Iterator[Markup]:
    """Yield the registration, and which of its parts were kept."""
    if study.registration is None:
        yield _paragraph("The study was not registered; study.register('plan.json') does so.")
        return
    yield _paragraph(study.registration)
    parts = study.registered_parts()
    rows = [(part.name, part.registered, part.played, part.status) for part in parts]
    yield _table(("part", "registered", "played", ""), rows)


# --- the rest -------------------------------------------------------------------------------------


def _charts(study: Study) -> Iterator[Markup]:
    """Yield a chart of each outcome by arm, and charts by turn of how arms differ."""
    compared = [arm for arm in study.arms if arm != study.reference]
    for outcome in study.outcome:
        try:
            yield _picture(study.chart(outcome))
            results = study.results
            is_outcome = results["outcome"] == outcome
            turns = results.loc[is_outcome, "turn"]
            # An outcome with a value at one turn, such as a loss, has no curve.
            if turns.nunique() > 1:
                for arm in compared:
                    yield _picture(study.chart(outcome, arm))
        except LabError as error:  # it has texts, or there are too many arms
            yield _paragraph(f"No chart of {outcome}: {error}")


def _design(study: Study, entries: Entries) -> Iterator[Markup]:
    """Yield the arms, and folded the settings of each arm's first run and each prompt once."""
    units = clip(", ".join(map(str, study.units)), 200)
    yield _table(
        (),
        [
            ("reference", study.reference),
            (f"{study.unit_name}s", f"{len(study.units)}: {units}"),
        ],
    )
    heads, rows = study.arms_rows()
    yield _table(heads, rows)
    settings: dict[str, Mapping[str, Any]] = {}
    prompts: dict[str, Mapping[str, Any]] = {}
    for entry, infos in entries:
        for info in infos:
            manifest = info.manifest
            settings_of_run = {**manifest["config"], "model": manifest["model"]}
            # The other runs of an arm differ only in their seeds.
            settings.setdefault(entry.arm, settings_of_run)
            recorded_prompts = manifest.get("prompts") or {}
            for prompt in recorded_prompts.values():
                # By digest, so that a prompt that arms share is shown once.
                prompts[prompt["digest"]] = prompt
    for arm, values in settings.items():
        text = json.dumps(
            values,
            indent=1,
            ensure_ascii=False,
        )
        yield _FOLDED.format(safe(f"settings of {arm}"), safe(text))
    for digest, prompt in prompts.items():
        title = f"prompt {prompt['name']}, {digest[:12]}"
        yield _FOLDED.format(safe(title), safe(prompt["text"]))


def _failures(study: Study) -> Iterator[Markup]:
    """Yield how many runs are missing, and each failed run with its error."""
    counts = study.counts
    left = counts["stopped"] + counts["left"]
    if left:
        yield _paragraph(f"{left} runs are not done yet.")
    failed = [run for run in study.progress() if run.status == "failed"]
    yield _paragraph(
        f"{len(failed)} runs failed, and are left out of all effects with their partners."
    )
    if failed:
        rows = []
        for run in failed:
            # An error may quote what a model wrote.
            error = safe(run.error, limit=_LONGEST)
            rows.append((run.arm, run.unit, run.turns, error))
        yield _table(("arm", "unit", "turns", "error"), rows)


def _runs(
    study: Study,
    begun: Sequence[StudyRun],
) -> Iterator[Markup]:
    """Yield how the calls of complete runs ended, and the digest of each run's frame."""
    # Reindexed, since the frame of a study without a complete run has no columns.
    frame = study.to_frame().reindex(columns=["calls", "repaired", "fallback", "failed"])
    counts = frame.sum().astype(int)
    yield _table(
        (),
        counts.items(),
        caption="calls of complete runs",
    )
    rows = []
    for run in begun:
        digest = _digest_of(study, run)
        # Without its folder, so that the page is the same on another machine.
        tape = run.tape.name if run.tape else ""
        rows.append((run.arm, run.unit, run.status, digest, tape))
    yield _table(("arm", "unit", "status", "digest", "tape"), rows)
    yield _paragraph(
        "Digest: SHA-256 of the frame as sorted JSON without seconds, as a replay has it."
    )


def _digest_of(
    study: Study,
    run: StudyRun,
) -> str:
    """Return the digest of a run's frame, for comparing the run with its replay."""
    rows = []
    for contents in study.contents(run).values():
        for row in contents.rows.values():
            # A replay takes another time.
            timeless = {name: row[name] for name in row if name != "seconds"}
            rows.append(timeless)
    text = json.dumps(
        rows,
        sort_keys=True,
        default=str,
    )
    digest = hashlib.sha256(text.encode())
    return digest.hexdigest()[:32]


# --- shapes without inline styles -----------------------------------------------------------------


class _Number(str):
    """A number in words, which is aligned like a number in a table."""

    __slots__ = ()

    @classmethod
    def of(cls, words: str) -> Self:
        """Return words whose hyphens are replaced by minus signs."""
        return cls(words.replace("-", MINUS))


def _paragraph(text: object) -> Markup:
    return styled(safe(text, limit=_LONGEST), tag="p")


def _picture(figure: Figure) -> Markup:
    content = figure_bytes(
        figure,
        "png",
        dpi=110,
    )
    encoded = base64.b64encode(small_png(content))
    # Inside the page, which loads nothing.
    source = f"data:image/png;base64,{encoded.decode()}"
    words = getattr(figure, "alt", "")
    return Markup('<figure><img alt="{}" src="{}"></figure>').format(words, source)


def _table(
    heads: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    caption: str = "",
) -> Markup:
    """Return a table; the first cell of each row is the row's heading.

    Args:
        heads: the columns' names; empty for none.
        rows: their cells.
        caption: what the table shows.
    """
    parts = []
    if caption:
        parts.append(styled(caption, tag="caption"))
    if heads:
        cells = join(styled(head, tag="th", scope="col") for head in heads)
        row_of_heads = styled(cells, tag="tr")
        parts.append(styled(row_of_heads, tag="thead"))
    body = join(styled(join(_cells(row)), tag="tr") for row in rows)
    parts.append(styled(body, tag="tbody"))
    table = styled(join(parts), tag="table")
    # A screen reader needs a name for a scrolling region.
    words = caption or ", ".join(map(str, heads)) or "details"
    return _WIDE.format(clip(words, 80), table)


def _cells(row: Sequence[object]) -> Iterator[Markup]:
    first, *contents = row
    yield styled(first, tag="th", scope="row")
    for content in contents:
        is_number = isinstance(content, int | float | _Number)
        # A class, since the page's policy forbids inline styles.
        if is_number:
            yield Markup('<td class="number">{}</td>').format(safe(content))
        else:
            yield Markup("<td>{}</td>").format(safe(content))
