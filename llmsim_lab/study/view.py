"""The view ``study`` of a ``Reading``, from which the window and its page draw a study."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.text import contrast_name
from llmsim_lab.errors import LabError
from llmsim_lab.run.reading import Reading
from llmsim_lab.study._charts import MOST_ARMS, letters_of, numbers_of, scale_of
from llmsim_lab.study._multiverse import multiverse
from llmsim_lab.study.playing import Key

if TYPE_CHECKING:
    from llmsim_lab.study.estimates.estimate import Effects, Estimate

VIEW = "study"
_BAND = ["turn", "estimate", "low", "high"]


def put_study(
    reading: Reading,
    study: Any,
    numbers: Mapping[Key, int],
) -> None:
    """Add the design, how far each run is, the effects so far, and the numbers of the charts.

    Args:
        reading: the log that the window reads.
        study: the study.
        numbers: the numbers of the runs that the log has, by arm and unit.
    """
    # The reading sends a part again only if it has changed.
    arms = list(study.arms)
    design = {
        "name": study.name,
        "arms": arms,
        "letters": letters_of(arms),
        "units": list(study.units),
        "of": study.unit_name,
        "paired": shown_as_pairs(study),
        "outcomes": list(study.outcome),
    }
    reading.put(VIEW, "design", design)
    put_runs(reading, study, numbers)
    any_done = study.counts["done"] > 0
    effects = None
    if any_done and len(arms) > 1:
        effects = _effects(study)
    reading.put(VIEW, "effects", effects)
    for outcome in study.outcome:
        charts = None
        if any_done:
            try:
                charts = _charts(study, outcome)
            except LabError as error:
                # An error in one outcome leaves the charts of the others.
                charts = {"fault": str(error)}
        # With a prefix, since a user may call an outcome "effects".
        reading.put(VIEW, f"of {outcome}", charts)


def put_runs(
    reading: Reading,
    study: Any,
    numbers: Mapping[Key, int],
) -> None:
    """Add how far each run is, by its place in the table, arm by arm."""
    for place, run in enumerate(study.progress()):
        # None for a run that the log does not have, so that the window cannot open it.
        number = numbers.get(run.key)
        reading.put(
            VIEW,
            place,
            [run.status, run.turns, run.error, number],
        )


def shown_effects(study: Any) -> Effects:
    """Return the effects that window, page and charts show.

    A registration decides the level, the smallest effect of interest, which is drawn as equivalence
    bounds, and how runs are compared.
    """
    level = 0.95
    sesoi: Any = None
    paired = None
    typical = False
    if study.registration is not None:
        claims = study.registration.claims
        level = claims.level
        sesoi = claims.sesoi
        paired = claims.paired
        typical = claims.typical
    if isinstance(sesoi, Mapping):
        # The study may have lost outcomes since.
        sesoi = {name: sesoi[name] for name in sesoi if name in study.outcome}
    effects: Effects = study.effects(
        level=level,
        sesoi=sesoi,
        paired=paired,
        typical=typical,
    )
    return effects


def shown_as_pairs(study: Any) -> bool:
    """Return whether window, page and charts draw a line between runs with the same seed."""
    if study.registration is not None:
        return bool(study.registration.claims.paired)
    return not study.arms_of_people


def _effects(study: Any) -> dict[str, Any]:
    """Return the effects as numbers and words with their family, or why there are none."""
    try:
        effects = shown_effects(study)
    except LabError as error:  # of an outcome that is a function, such as a user's mistake
        return {"label": str(error), "rows": []}
    # By the contrast's name, since an estimate does not have its arms.
    arms = {contrast_name(arm, study.reference): arm for arm in study.arms}
    rows = []
    outcomes_of_family = []
    for effect in effects:
        arm = arms.get(effect.contrast)
        rows.append(_effect_row(study, effect, arm))
        # An effect without a p-value belongs to no family.
        if effect.p is not None:
            outcomes_of_family.append(effect.outcome)
    return {
        "label": effects.label if effects else str(effects),
        "reference": study.reference,
        "rows": rows,
        "family": {
            "size": len(outcomes_of_family),
            "outcomes": len(set(outcomes_of_family)),
        },
    }


def _effect_row(
    study: Any,
    effect: Estimate,
    arm: str | None,
) -> dict[str, Any]:
    """Return an effect's numbers and words for the window.

    Args:
        study: the study.
        effect: the effect.
        arm: the arm that the reference is subtracted from; None for other contrasts.
    """
    unit = study.in_unit(effect.outcome)
    place = 0
    if arm is not None:
        place = list(study.arms).index(arm)
    typical = None
    if effect.typical is not None:
        typical = {
            "kind": effect.typical.kind,
            "value": effect.typical.value,
            "low": effect.typical.low,
            "high": effect.typical.high,
        }
    return {
        "outcome": effect.outcome,
        "contrast": effect.contrast,
        "arm": arm,
        # The number of the arm's colour, the same in all charts.
        "look": place,
        "kind": effect.kind,
        "value": effect.value,
        "low": effect.low,
        "high": effect.high,
        "level": effect.level,
        "p": effect.p,
        "p_family": effect.p_family,
        "margin": effect.margin,
        "verdict": effect.verdict,
        "n": effect.n,
        "unit": effect.unit,
        "scale": scale_of(effect, unit),
        "sentence": effect.sentence(unit),
        "generalises_to": effect.generalises_to,
        "method": effect.method,
        "note": effect.note,
        "typical": typical,
    }


def _charts(
    study: Any,
    outcome: str,
) -> dict[str, Any]:
    """Return an outcome by unit and arm, by turn, as bands, and in each specification."""
    arms = list(study.arms)
    rows = numbers_of(study.counted_results, outcome)
    if rows.empty:
        return {"fault": f"{outcome}: no numbers to chart; study.results has all values"}
    if len(arms) > MOST_ARMS:
        return {
            "fault": f"{outcome}: {len(arms)} arms are too many for a chart; study.results has all "
            "values"
        }
    wide = rows.pivot_table(
        index="unit",
        columns="arm",
        values="value",
    )
    # With units and arms that have no value yet, since the window finds them by their places.
    wide = wide.reindex(index=study.units, columns=arms)
    charts: dict[str, Any] = {
        "units": _listed(wide),
        "turns": [],
        "bands": [],
        "curves": [],
    }
    has_several_turns = rows["turn"].nunique() > 1
    # Situations are single turns, each from a state of its own.
    if study.unit_name == "seed" and has_several_turns:
        of_turns = rows.groupby(["turn", "arm"])["value"].mean()
        means = of_turns.unstack("arm").reindex(columns=arms)
        charts["turns"] = _listed(means.reset_index())
        charts["bands"] = _bands(study, outcome)
    # Only when all runs are done: a curve of a part would look like the whole curve.
    if study.counts["done"] == len(arms) * len(wide):
        factors = _factors_with_two_levels(study)
        charts["curves"] = [_curve(study, factor, outcome) for factor in factors]
    return charts


def _bands(
    study: Any,
    outcome: str,
) -> list[list[Any]]:
    """Return by arm and turn the difference from the reference, where it is known."""
    column = str(study.outcome[outcome])
    bands = []
    for arm in study.arms:
        if arm == study.reference:
            continue
        try:
            band = study.by_turn(column, arm)
        except LabError:  # not of a column, or no seed is done in both
            continue
        bands.append([arm, _listed(band[_BAND])])
    return bands


def _factors_with_two_levels(study: Any) -> list[str]:
    """Return the factors that a specification curve can be about; none if there is one factor."""
    factors = list(study.arms[study.reference])
    if len(factors) < 2:
        return []
    of_two = []
    for name in factors:
        levels = {of_arm[name] for of_arm in study.arms.values()}
        if len(levels) == 2:
            of_two.append(name)
    return of_two


def _curve(
    study: Any,
    factor: str,
    outcome: str,
) -> dict[str, Any]:
    """Return a specification curve as numbers."""
    curve = multiverse(study, factor, outcome=outcome)
    chance = None
    if curve.chance is not None:
        chance = {
            "p": curve.chance.p,
            "same_sign": curve.chance.same_sign,
            "holds": curve.chance.holds,
        }
    _, *numbers = _BAND
    columns = [*numbers, *curve.choices]
    return {
        "factor": factor,
        "finding": curve.finding,
        "same_sign": curve.same_sign,
        "holds": curve.holds,
        "chance": chance,
        "choices": curve.choices,
        "rows": _listed(curve.frame[columns]),
    }


def _listed(frame: Any) -> list[list[Any]]:
    """Return a frame's rows, with None for unknown numbers."""
    # JSON has no infinite numbers.
    infinite = [math.inf, -math.inf]
    finite = frame.replace(infinite, math.nan)
    # As objects, since a column of floats turns None into NaN.
    objects = finite.astype(object)
    known = objects.where(finite.notna(), None)
    rows: list[list[Any]] = known.to_numpy().tolist()
    return rows
