"""Figures of studies: effects, runs by arm, arms and differences by turn, a specification curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.drawing import STYLES, drawable, new_figure, plain_axes, told
from llmsim_lab._util.html import SERIES_COLOURS
from llmsim_lab._util.text import MINUS, contrast_name, number
from llmsim_lab.errors import ConfigError
from llmsim_lab.run.charts import name_in_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from llmsim_lab.study.estimates.estimate import Estimate

MOST_ARMS = 12
"""The most arms in one chart."""
_MOST_LINES = 60
"""The most units that are drawn with a line between their arms."""
_MOST_LETTERS = 44
"""Letters of all arms' names that fit side by side on a phone; longer names become letters."""


def _colour(place: int) -> str:
    """Return the colour of the arm at a place; the six colours repeat."""
    return SERIES_COLOURS[place % len(SERIES_COLOURS)]


def numbers_of(
    results: pd.DataFrame,
    outcome: str,
) -> pd.DataFrame:
    """Return the rows of an outcome that have a number."""
    # Imported here, so that importing the package does not import pandas.
    from pandas import to_numeric

    rows = results[results["outcome"] == outcome]
    # Texts become NaN; a column with numbers and texts has the type object.
    numbers = to_numeric(rows["value"], errors="coerce")
    return rows.assign(value=numbers).dropna(subset=["value"])


def letters_of(arms: Sequence[str]) -> list[str]:
    """Return a letter for each arm if the names are too long for an axis; else an empty list."""
    longest = max(map(len, arms))
    is_short = len(arms) * longest <= _MOST_LETTERS
    # There is no chart of so many arms.
    has_too_many = len(arms) > len(ascii_uppercase)
    if is_short or has_too_many:
        return []
    return list(ascii_uppercase[: len(arms)])


def arms_figure(
    results: pd.DataFrame,
    outcome: str,
    *,
    arms: Sequence[str],
    effects: Sequence[Estimate] = (),
    unit_name: str = "unit",
    paired: bool = True,
) -> Figure:
    """Draw an outcome as the window does: effects, each unit by arm, means by turn.

    Arms with long names have letters, which the legend below explains.

    Args:
        results: the study's table of results.
        outcome: the outcome that is drawn.
        arms: the names of all arms in the order of the design, which decides their colours.
        effects: each arm minus the first in this outcome; drawn as a forest plot above the rest.
        unit_name: what a dot and its line stand for.
        paired: False where units of different arms have nothing in common.

    Raises:
        ConfigError: there is nothing to draw, or there are too many arms.
    """
    rows = numbers_of(results, outcome)
    arms_with_numbers = set(rows["arm"])
    shown = [arm for arm in arms if arm in arms_with_numbers]
    if not 0 < len(shown) <= MOST_ARMS:
        raise ConfigError(
            f"{outcome!r} has numbers of {len(shown)} arms, and a chart has 1 to {MOST_ARMS}; "
            "study.results has all of them"
        )
    letters = letters_of(arms)
    short_names = dict(
        zip(
            arms,
            letters or arms,
            strict=True,
        )
    )
    by_turn = rows["turn"].nunique() > 1
    forest_height = 0.0
    if effects:
        typical_rows = sum(effect.typical is not None for effect in effects)
        # The plot grows with its rows, each as high as a line of text.
        forest_height = 0.9 + 0.36 * (len(effects) + typical_rows)
    width = 10 if by_turn or effects else 6
    figure = new_figure(width, 4 + forest_height)
    lower: Any = figure
    if effects:
        # Subfigures, since the forest plot is as wide as both charts below it.
        halves: Any = figure.subfigures(
            2,
            1,
            height_ratios=[forest_height, 4],
        )
        upper, lower = halves
        draw_forest(
            upper.subplots(),
            effects,
            arms=arms,
            short_names=short_names,
        )
    label = drawable(name_in_words(outcome))
    # A list of one row, also for a single panel.
    [panels] = lower.subplots(
        1,
        2 if by_turn else 1,
        squeeze=False,
    )
    means = _draw_units(
        panels[0],
        rows,
        shown,
        arms=arms,
        short_names=short_names,
        paired=paired,
    )
    what_dots_are = f"line: a {unit_name}" if paired else "dot: a run"
    panels[0].set_title(
        f"{what_dots_are}, bar: the mean",
        loc="left",
        size="small",
    )
    panels[0].set_ylabel(label)
    if by_turn:
        _draw_turns(
            panels[1],
            rows,
            shown,
            arms=arms,
        )
        panels[1].set_title(
            f"mean over {unit_name}s",
            loc="left",
            size="small",
        )
        panels[1].set_ylabel(label)
    if by_turn or letters:
        _explain_arms(
            lower,
            shown,
            arms=arms,
            letters=letters,
        )
    # The alternative text for screen readers.
    lines = [f"{outcome} by arm. {'; '.join(means)}."]
    lines += [effect.sentence() for effect in effects]
    return told(figure, "\n".join(lines))


def scale_of(
    effect: Estimate,
    unit: str = "",
) -> str:
    """Return the label of a forest plot's axis.

    Args:
        effect: one of the effects that are drawn.
        unit: the unit of its outcome.
    """
    outcome = name_in_words(effect.outcome)
    if effect.kind == "text distance":
        return f"distance between texts of {outcome}: 0 if alike"
    if effect.kind == "length difference":
        return f"difference in words a text of {outcome}"
    return f"difference in {outcome}, {unit}" if unit else f"difference in {outcome}"


def draw_forest(
    axes: Axes,
    effects: Sequence[Estimate],
    *,
    arms: Sequence[str],
    short_names: Mapping[str, str],
) -> None:
    """Draw effects as a forest plot: one row each, with the interval drawn and in numbers.

    The typical difference is below a skewed mean. A grey band marks differences below the smallest
    effect of interest.

    Args:
        axes: the axes to draw on.
        effects: the effects of one outcome.
        arms: the names of all arms; an arm minus the first has the arm's colour.
        short_names: the arms' names in this plot, by name.
    """
    plain_axes(axes)
    margin = None
    family = ""
    # All effects of an outcome have the same margin and level, except those without an interval.
    for effect in effects:
        margin = margin or effect.margin
        family = family or effect.family
    if margin:
        axes.axvspan(
            -margin,
            margin,
            color="#eeeeee",
            zorder=0,
        )
    axes.axvline(
        0,
        color="#999999",
        linewidth=1,
    )
    _draw_rows(
        axes,
        effects,
        arms=arms,
        short_names=short_names,
    )
    title = f"{100 * effects[0].level:g} % interval, each comparison alone"
    if family:
        title += f" · p adjusted: {family}"
    if margin:
        title += f" · grey: smaller than ±{margin:g}, the smallest effect of interest"
    axes.set_title(
        drawable(title, 160),
        loc="left",
        size="small",
    )
    axes.set_xlabel(
        drawable(scale_of(effects[0]), 80),
        size="small",
    )


def _draw_rows(
    axes: Axes,
    effects: Sequence[Estimate],
    *,
    arms: Sequence[str],
    short_names: Mapping[str, str],
) -> None:
    """Draw the rows of a forest plot, each in its arm's colour and with its name."""
    colours: dict[str, str] = {}
    short_contrasts: dict[str, str] = {}
    reference = arms[0]
    for place, arm in enumerate(arms):
        # By the contrast's name, since an estimate does not have its arms.
        contrast = contrast_name(arm, reference)
        colours[contrast] = _colour(place)
        short_contrasts[contrast] = contrast_name(short_names[arm], short_names[reference])
    names: list[str] = []
    for effect in effects:
        colour = colours.get(effect.contrast, SERIES_COLOURS[0])
        _draw_interval(
            axes,
            effect,
            len(names),
            colour=colour,
        )
        # A main effect or an interaction is not a contrast of two arms, and has its own name.
        name = short_contrasts.get(effect.contrast, effect.contrast)
        names.append(drawable(name, 48))
        if effect.typical is not None:
            typical = replace(effect.typical, p=None)  # it does not belong to the family
            _draw_interval(
                axes,
                typical,
                len(names),
                colour=colour,
                fill="white",
            )
            names.append("typical difference")
    axes.set_yticks(
        range(len(names)),
        names,
        size="small",
    )
    # The first effect is at the top, as in the table.
    axes.set_ylim(len(names) - 0.5, -0.5)


def _draw_interval(
    axes: Axes,
    effect: Estimate,
    place: int,
    *,
    colour: str,
    fill: str | None = None,
) -> None:
    """Draw a row of a forest plot."""
    if effect.low is not None and effect.high is not None:
        axes.hlines(
            place,
            effect.low,
            effect.high,
            linewidth=2.5,
            color=colour,
        )
    if effect.value is not None:
        axes.plot(
            effect.value,
            place,
            "o",
            markersize=6,
            color=colour,
            markerfacecolor=fill,
        )
    # Beside the axes, where no interval can cross the text.
    axes.annotate(
        _in_numbers(effect),
        (1.01, place),
        xycoords=("axes fraction", "data"),
        va="center",
        size="small",
    )


def _in_numbers(effect: Estimate) -> str:
    """Return an effect's value, interval and p-value."""
    if effect.value is None:
        return "not known"
    text = f"{effect.value:+.2f}"
    if effect.low is not None:
        text += f" ({effect.low:.2f} to {effect.high:.2f})"
    p = effect.p if effect.p_family is None else effect.p_family
    # A p-value is never 0, as three decimals would show it.
    if p is not None and p < 0.0005:
        text += ", p < .001"
    elif p is not None:
        text += f", p {p:.3f}".replace("p 0.", "p .")
    return text.replace("-", MINUS)


def _draw_units(
    axes: Axes,
    rows: pd.DataFrame,
    shown: Sequence[str],
    *,
    arms: Sequence[str],
    short_names: Mapping[str, str],
    paired: bool,
) -> list[str]:
    """Draw each unit by arm and each arm's mean, and return the means in words."""
    by_arm = rows.pivot_table(
        index="unit",
        columns="arm",
        values="value",
    )
    # In the order of the design, since a pivot sorts the arms by name.
    wide = by_arm[list(shown)]
    # No lines between groups that share nothing, and no more than a reader can tell apart.
    if paired and len(wide) <= _MOST_LINES:
        axes.plot(
            wide.to_numpy().T,
            color="#bbbbbb",
            linewidth=0.8,
            zorder=1,
        )
    words = []
    for place, arm in enumerate(shown):
        values = wide[arm].dropna()
        mean = float(values.mean())
        colour = _colour(arms.index(arm))
        axes.scatter(
            [place] * len(values),
            values,
            s=26,
            alpha=0.75,
            zorder=2,
            color=colour,
        )
        axes.hlines(
            mean,
            place - 0.22,
            place + 0.22,
            linewidth=4,
            zorder=3,
            color=colour,
        )
        words.append(f"{arm}: mean {number(mean)} of {len(values)}")
    plain_axes(axes)
    labels = [drawable(short_names[arm]) for arm in shown]
    axes.set_xticks(range(len(shown)), labels)
    # Half a place on both sides, for the bars of the means.
    axes.set_xlim(-0.5, len(shown) - 0.5)
    axes.set_xlabel("arm")
    return words


def _draw_turns(
    axes: Axes,
    rows: pd.DataFrame,
    shown: Sequence[str],
    *,
    arms: Sequence[str],
) -> None:
    """Draw each arm's mean by turn."""
    by_turn = rows.groupby(["turn", "arm"])["value"]
    means = by_turn.mean().unstack("arm")
    for arm in shown:
        # A run may end early, and an arm may have fewer turns.
        line = means[arm].dropna()
        place = arms.index(arm)
        axes.plot(
            line.index,
            line,
            STYLES[place % len(STYLES)],
            color=_colour(place),
            linewidth=2,
        )
    _turns(axes)


def _explain_arms(
    figure: Any,
    shown: Sequence[str],
    *,
    arms: Sequence[str],
    letters: Sequence[str],
) -> None:
    """Write a legend below the charts with each arm's line and letter."""
    from matplotlib.lines import Line2D

    # Lines for the legend alone, since dots have none.
    handles = []
    for arm in shown:
        place = arms.index(arm)
        handles.append(
            Line2D(
                [],
                [],
                color=_colour(place),
                linestyle=STYLES[place % len(STYLES)],
                linewidth=2,
                label=drawable(f"{letters[place]}: {arm}" if letters else arm, 60),
            )
        )
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=2 if letters else len(handles),
        frameon=False,
        fontsize="small",
    )


def _turns(axes: Axes) -> None:
    plain_axes(axes)
    # Whole numbers: there is no turn 2.5.
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("turn")


def difference_figure(
    band: pd.DataFrame,
    *,
    outcome: str,
    contrast: str,
    units: str,
) -> Figure:
    """Draw a difference by turn with the band that holds for all turns at once.

    Args:
        band: as ``Study.by_turn`` returns it.
        outcome: what differs.
        contrast: the arms, as effects name them.
        units: how many units there are, in words.
    """
    figure = new_figure(7, 3.2)
    axes: Axes = figure.subplots()
    axes.axhline(
        0,
        color="#999999",
        linewidth=1,
    )
    turns = band["turn"]
    mean = band["estimate"]
    colour = SERIES_COLOURS[0]
    axes.fill_between(
        turns,
        band["low"],
        band["high"],
        color=colour,
        alpha=0.2,
        linewidth=0,
    )
    axes.plot(
        turns,
        mean,
        color=colour,
        linewidth=2,
    )
    _turns(axes)
    axes.set_ylabel(f"{drawable(name_in_words(outcome))}, difference")
    title = f"{drawable(contrast, 80)} · mean of {units}, simultaneous 95 % band"
    axes.set_title(
        title,
        loc="left",
        size="small",
    )
    # The alternative text for screen readers names the turn with the largest difference.
    sizes = mean.abs().to_numpy()
    peak = band.iloc[int(sizes.argmax())]
    return told(
        figure,
        f"{contrast}, {outcome} by turn: largest at turn {int(peak['turn'])}, "
        f"{peak['estimate']:+.2f}, band {peak['low']:.2f} to {peak['high']:.2f}.",
    )


def curve_figure(
    curve: pd.DataFrame,
    *,
    title: str,
) -> Figure:
    """Draw a specification curve: estimates in order, and below each its choices.

    Args:
        curve: one row for each specification, ordered by estimate: ``estimate``, ``low``, ``high``,
            and the choices.
        title: the title above the curve.
    """
    numbers = ["estimate", "low", "high"]
    choices = curve.drop(columns=numbers)
    lines: list[tuple[str, object]] = []
    for name in choices:
        # Each level once, in the order of first appearance.
        levels = dict.fromkeys(choices[name])
        lines += [(str(name), level) for level in levels]
    # From the bottom up, since axes count that way.
    lines.reverse()
    # Both parts share the axis of specifications, so that marks are below their estimate.
    figure = new_figure(8, 3 + 0.22 * len(lines))
    above, below = figure.subplots(
        2,
        1,
        sharex=True,
        height_ratios=[3, 0.25 * len(lines) + 0.5],
    )
    estimate = curve["estimate"]
    # matplotlib takes the lengths of error bars, not their ends.
    reach = [estimate - curve["low"], curve["high"] - estimate]
    colour = SERIES_COLOURS[0]
    above.errorbar(
        curve.index,
        estimate,
        reach,
        fmt="o",
        color=colour,
        markersize=4,
    )
    above.axhline(
        0,
        color="#999999",
        linewidth=1,
    )
    above.set_ylabel("estimate")
    above.set_title(
        drawable(title, 90),
        loc="left",
        size="small",
    )
    for place, (name, level) in enumerate(lines):
        made_with = curve.index[choices[name] == level]
        below.plot(
            made_with,
            [place] * len(made_with),
            "|",
            color="black",
            markersize=8,
        )
    names = [drawable(f"{name}: {level}", 40) for name, level in lines]
    below.set_yticks(
        range(len(lines)),
        names,
        size="small",
    )
    # Specifications have no numbers, only the order of their estimates.
    below.set_xticks([])
    below.set_xlabel(f"{len(curve)} specifications, by their estimates")
    plain_axes(above)
    plain_axes(below)
    least = estimate.min()
    most = estimate.max()
    return told(figure, f"{title}: {len(curve)} specifications, {least:+.2f} to {most:+.2f}.")
