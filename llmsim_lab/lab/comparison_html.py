"""A prompt experiment's results as tables for people, in HTML and as plain text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

from llmsim_lab.experiments import PromptExperiment
from llmsim_lab.experiments._results import UNITS
from llmsim_lab.lab.comparison_chart import chart_html
from llmsim_lab.markup import details, join, safe, table, visible
from llmsim_lab.text import clip, number

__all__ = ["answers_html", "charts_html", "differences_html", "results_html", "results_text"]

_MOST_CHARS = 200


def differences_html(experiment: PromptExperiment) -> Markup:
    """Return the differences and noise floors as a table."""
    return table(_HEADER, _rows(experiment), caption=_caption(experiment))


_HEADER = (
    "outcome",
    "variant",
    "difference",
    "95 % interval",
    "noise floor",
    "p (Holm)",
    "pairs used",
    "failed",
)


def _caption(experiment: PromptExperiment) -> str:
    return (
        f"Differences from {experiment.names[0]!r} in {experiment.source}, over pairs of the same "
        "turn and seed. Noise floor: by how much two single samples of one prompt differ; a mean "
        "over pairs is known better than that, as its interval says."
    )


def _rows(experiment: PromptExperiment) -> Iterable[list[object]]:
    for row in experiment.summary.to_dict("records"):
        name, unit = UNITS[row["outcome"]]
        low, high, floor, p = (row[key] for key in ("low", "high", "noise_floor", "p_holm"))
        yield [
            f"{name} ({unit})",
            row["variant"],
            _signed(row["estimate"]),
            "none" if _missing(low) else f"{_signed(low)} to {_signed(high)}",
            "not known" if _missing(floor) else number(floor),
            "none" if _missing(p) else f"{p:.3f}",
            row["pairs"],
            row["failed"],
        ]


def _missing(value: Any) -> bool:
    return value is None or value != value


def _signed(value: Any) -> str:
    return "none" if _missing(value) else f"{value:+.2f}"


def results_html(experiment: PromptExperiment) -> Markup:
    """Return how much was played, the differences as a table, and what they amount to."""
    return join([_played(experiment), differences_html(experiment), _verdicts(experiment)])


def _played(experiment: PromptExperiment) -> Markup:
    frame = experiment.frame
    failed = frame.loc[~frame["completed"].astype(bool), ["variant", "turn", "sample"]]
    return Markup("<p>{} of {} samples played, {} of them failed. {}</p>").format(
        len(experiment.played),
        len(experiment.schedule),
        len(failed.drop_duplicates()),
        safe(experiment.storage),
    )


def charts_html(experiment: PromptExperiment) -> Markup:
    """Return a chart for each outcome, the first unfolded."""
    return join(
        details(f"Chart: {UNITS[outcome][0]}", chart_html(experiment, outcome), open=place == 0)
        for place, outcome in enumerate(experiment.outcomes)
    )


def _verdicts(experiment: PromptExperiment) -> Markup:
    lines = join(Markup("<li>{}</li>").format(safe(text)) for text in experiment.verdicts)
    return Markup('<ul style="line-height:1.4">{}</ul>').format(lines)


def answers_html(experiment: PromptExperiment) -> Markup:
    """Return what was decided: directions, agreement and the commonest answers."""
    shares = table(
        ("variant", "raise", "hold", "lower", "samples used", "failed"),
        [
            [
                row["variant"],
                *(_share(row[way]) for way in ("raise", "hold", "lower")),
                row["used"],
                row["failed"],
            ]
            for row in experiment.directions.to_dict("records")
        ],
        caption="Which way the rate went",
    )
    same = table(
        ("samples of", "seeds", "same direction", "same answer", "pairs used", "failed"),
        [
            [
                row["of"],
                row["seeds"],
                _share(row["same_direction"]),
                _share(row["same_answer"]),
                row["pairs"],
                row["failed"],
            ]
            for row in experiment.agreement.to_dict("records")
        ],
        caption="How often two samples at the same turn agree. A variant with itself is the floor, "
        "for pairs of different seeds; a shared seed makes samples alike, whatever the prompts.",
    )
    common = table(
        ("variant", "answer", "times", "share"),
        [
            [
                row["variant"],
                safe(row["decision"], limit=_MOST_CHARS),
                row["count"],
                _share(row["share"]),
            ]
            for row in experiment.answers.to_dict("records")
        ],
        caption="Most common answers",
    )
    parts = [same, common]
    return join([shares, *parts] if "interest_rate" in experiment.outcomes else parts)


def _share(value: Any) -> str:
    return "none" if _missing(value) else f"{value:.0%}"


def results_text(experiment: PromptExperiment) -> list[str]:
    """Return the results as lines of plain text."""
    lines = [f"  {visible(text)}" for text in experiment.verdicts]
    answers = experiment.answers.to_dict("records")
    lines += [
        f"  {visible(row['variant'])}: {row['count']} times: {clip(visible(row['decision']), 70)}"
        for row in answers
    ]
    return lines
