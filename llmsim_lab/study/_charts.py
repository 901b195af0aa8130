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
"""In one chart."""
_MOST_LINES = 60
"""Of units, between their arms."""
_MOST_LETTERS = 44
"""Of the arms' names beside each other, on a phone's screen: longer ones get a letter each."""


def _colour(place: int) -> str:
    """Return the colour of the arm at a place; after six they come again."""
    return SERIES_COLOURS[place % len(SERIES_COLOURS)]


def numbers_of(
    results: pd.DataFrame,
    outcome: str,
) -> pd.DataFrame:
    """Return the rows of an outcome that have a number."""
    # Here, since importing the package does not import pandas.
    from pandas import to_numeric

    rows = results[results["outcome"] == outcome]
    # A text is no number, and beside texts numbers are objects.
    numbers = to_numeric(rows["value"], errors="coerce")
    return rows.assign(value=numbers).dropna(subset=["value"])


def letters_of(arms: Sequence[str]) -> list[str]:
    """Return a letter for each arm where their names are too long for an axis; else none."""
    longest = max(map(len, arms))
    is_short = len(arms) * longest <= _MOST_LETTERS
    # So many arms have no chart either.
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
    """Draw an outcome in the order of the window: effects, each unit by arm, means by turn.

    Arms with long names have letters, which the legend below explains.

    Args:
        results: of a study.
        outcome: one of them.
        arms: all names, in the order of the design, so that each has its colour.
        effects: of this outcome, each arm minus the first; drawn as a forest plot above the rest.
        unit_name: what a dot and its line are.
        paired: False where a unit of one arm has nothing to do with one of another.

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
        # A row is as high as its line of text, so that the plot grows with its rows.
        forest_height = 0.9 + 0.36 * (len(effects) + typical_rows)
    width = 10 if by_turn or effects else 6
    figure = new_figure(width, 4 + forest_height)
    lower: Any = figure
    if effects:
        # Subfigures, since the forest is as wide as both charts below it.
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
    # One row of them, also where there is one alone.
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
    # What is read aloud in place of the picture.
    lines = [f"{outcome} by arm. {'; '.join(means)}."]
    lines += [effect.sentence() for effect in effects]
    return told(figure, "\n".join(lines))


def scale_of(
    effect: Estimate,
    unit: str = "",
) -> str:
    """Return what stands below the axis of a forest plot.

    Args:
        effect: one that is drawn.
        unit: of its outcome.
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
    """Draw effects as a forest plot: a row each, with its interval, drawn and in numbers.

    Below a skewed mean stands the typical difference; a grey band is smaller than the smallest
    effect of interest.

    Args:
        axes: where.
        effects: of one outcome.
        arms: all names; an effect that subtracts the first from another has the colour of that one.
        short_names: what the arms are called here, by their names.
    """
    plain_axes(axes)
    margin = None
    family = ""
    # Effects of one outcome share both; one without an interval has neither.
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
    colours: dict[str, str] = {}
    short_contrasts: dict[str, str] = {}
    reference = arms[0]
    for place, arm in enumerate(arms):
        # By the contrast's name, which is all that an estimate has of its arms.
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
        # A main effect or an interaction is of no two arms, and has its own name.
        name = short_contrasts.get(effect.contrast, effect.contrast)
        names.append(drawable(name, 48))
        if effect.typical is not None:
            typical = replace(effect.typical, p=None)  # it is not one of the family
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
    # The first effect stands above, as in the table.
    axes.set_ylim(len(names) - 0.5, -0.5)
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
    # Beside the axes, where no interval can run over it.
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
    # No p-value is 0, which three decimals would say.
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
    # In the order of the design: a pivot sorts them.
    wide = by_arm[list(shown)]
    # Groups that share nothing have no line between them, and sixty lines are a grey area.
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
    # Half a place on both sides, where the bars of the means end.
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
        # A run may end early, or an arm have fewer turns.
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
    """Write below the charts which line is which arm, and which letter."""
    from matplotlib.lines import Line2D

    # Drawn for the legend alone: dots have no line to be known by.
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
    # There is no turn 2.5.
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("turn")


def difference_figure(
    band: pd.DataFrame,
    *,
    outcome: str,
    contrast: str,
    units: str,
) -> Figure:
    """Draw a difference by turn, and the band that holds for all turns at once.

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
    # What is read aloud in place of the picture: the turn that stands out.
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
    """Draw a specification curve: estimates in order, and below what each was made with.

    Args:
        curve: a row for each specification, by its estimate: ``estimate``, ``low``, ``high``, and
            the choices made.
        title: above it.
    """
    numbers = ["estimate", "low", "high"]
    choices = curve.drop(columns=numbers)
    lines: list[tuple[str, object]] = []
    for name in choices:
        # Each level once, in the order in which it first comes.
        levels = dict.fromkeys(choices[name])
        lines += [(str(name), level) for level in levels]
    # Bottom up, as axes count.
    lines.reverse()
    # Both parts share the axis of specifications, so that a mark stands below its estimate.
    figure = new_figure(8, 3 + 0.22 * len(lines))
    above, below = figure.subplots(
        2,
        1,
        sharex=True,
        height_ratios=[3, 0.25 * len(lines) + 0.5],
    )
    estimate = curve["estimate"]
    # Error bars are lengths, not ends.
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
    # A specification has no number of its own: it stands where its estimate does.
    below.set_xticks([])
    below.set_xlabel(f"{len(curve)} specifications, by their estimates")
    plain_axes(above)
    plain_axes(below)
    least = estimate.min()
    most = estimate.max()
    return told(figure, f"{title}: {len(curve)} specifications, {least:+.2f} to {most:+.2f}.")
