"""Checks of an economic simulation for mistakes that published ones have made.

Each finding has a number of its own, says what was computed, and how to fix it. What costs less
than a hundredth of a second is also checked when a run starts, where a finding is a WARNING.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log, sqrt
from statistics import fmean, stdev

from llmsim_lab._util.text import clip, number
from llmsim_lab.agents._briefing import Dated
from llmsim_lab.economy import TaylorRule, history
from llmsim_lab.economy._analysis import closed_loop, long_run_response
from llmsim_lab.economy._macro import (
    STEADY_STATE,
    FiscalBackstop,
    MacroModel,
    RateLimits,
    Rule,
    ShockGenerator,
    Shocks,
    StaticEconomy,
    rate_by,
)
from llmsim_lab.errors import ConfigError, EconomyError
from llmsim_lab.models import GlobalState

RUNS = 500
"""How many runs of a rule the shares at a bound and of spirals are taken from."""
MOST_AT_BOUND = 0.10
MOST_SPIRALS = 0.01
LEAST_LEVERAGE = 0.25
_LONG = 40
"""Quarters. Of 500 runs of the Taylor rule from the steady state 3 % spiral by then, of 30 quarters
at most 1 %."""
_MOST_QUARTERS_TO_RULE = 4
_SAME_RATE = 0.25
"""Percentage points; neutral rates that are closer count as one."""
_FRACTION = 0.25
"""Targets and neutral rates between 0 and this are fractions: 0.02 for 2 percent."""
_SPIRAL = 15.0
"""Percent; an output gap or a distance from target beyond it has left what the model describes."""

_DATE = re.compile(r"\b(?:19|20)\d\d(?:[- ]?Q[1-4])?\b")
_NAME = re.compile(
    r"\b(?:Argentina|Australia|Brazil|Canada|China|France|Germany|India|Indonesia|Italy|Japan"
    r"|Mexico|Russia|Saudi Arabia|South Africa|Korea|Turkey|United Kingdom|United States|USA|UK"
    r"|England|Britain|Sweden|Norway|Switzerland|Spain|Euro area|Federal Reserve|Bank of England"
    r"|European Central Bank|ECB|Bundesbank|Bank of Japan|Volcker|Greenspan|Bernanke)\b"
)
_FIGURE = re.compile(r"-?\d+(?:\.\d+)?")
_HORIZON = re.compile(
    r"annual|per year|a year|year-on-year|quarter|12 months|per cent per|month", re.IGNORECASE
)
_RATE_OF_CHANGE = re.compile(r"\b(?:inflation|growth|prices)\b", re.IGNORECASE)
_RATE = re.compile(r"\b(?:interest|policy|real|bank) rate\b", re.IGNORECASE)
_UNIT = r"(?:%|percent|per cent|basis point|bp\b|points?\b|quarters?\b|members\b|billion|million)"
_WITHOUT_UNIT = re.compile(rf"(?<![\w.-])-?\d+(?:\.\d+)?(?![\d.]|\w| ?{_UNIT})", re.IGNORECASE)
_NEUTRAL = re.compile(r"\bneutral\b[^.\n|]{0,60}?(-?\d+(?:\.\d+)?) ?(?:%|percent)", re.IGNORECASE)
_STATED_MOVE = re.compile(r"(\d+)(?:-| )?(?:basis points?|bp)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One thing that is probably wrong.

    Attributes:
        rule: its number and name, such as ``L1 Taylor principle``.
        what: what was found, with its numbers.
        remedy: what to do.
    """

    rule: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}; {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is checked.

    Attributes:
        state: the run's first state.
        turns: how many quarters are planned.
        model: the economy.
        rules: the policy rules, by whose they are.
        targets: inflation targets, percent, by whose they are.
        limits: of the rate.
        moves_bp: the changes on offer, basis points; empty where a rate is named instead.
        shock_scale: of the economy's shocks.
        fiscal_backstop: what the budget adds at the lower bound.
        prompts: as they read at the first turn, by their place in the run.
        one_after_another: who set one rate, each changing what the one before left.
    """

    state: Dated
    turns: int
    model: MacroModel
    rules: Mapping[str, TaylorRule | Rule] = field(default_factory=dict)
    targets: Mapping[str, float] = field(default_factory=dict)
    limits: RateLimits = field(default_factory=RateLimits)
    moves_bp: Sequence[int] = ()
    shock_scale: float = 1.0
    fiscal_backstop: FiscalBackstop | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    one_after_another: Sequence[str] = ()


def _quick_findings(subject: Subject) -> list[LintFinding]:
    """Return what is wrong that can be told without playing the economy."""
    found = [*_of_targets(subject), *_of_model(subject), *_of_moves(subject)]
    for who, rule in subject.rules.items():
        found += _of_rule(who, rule, subject)
    for place, text in subject.prompts.items():
        found += _of_prompt(place, text, subject)
    if len(subject.one_after_another) > 1:
        names = ", ".join(subject.one_after_another)
        found.append(
            LintFinding(
                "L14 several set one rate",
                f"{names} change the same rate one after another, so that their order matters",
                "make them a committee, which votes, or give each an economy of its own",
            )
        )
    return found


def findings(subject: Subject) -> list[LintFinding]:
    """Return all that is wrong; some of it takes a second, for it plays the economy."""
    return [*_quick_findings(subject), *_of_horizon(subject, RUNS)]


def findings_at_start(subject: Subject) -> list[LintFinding]:
    """Return what a run warns of: what is found quickly, and spirals where it is a long one."""
    long = subject.turns >= _LONG and subject.fiscal_backstop is None
    played = _of_horizon(subject, RUNS // 5) if long else ()
    return [*_quick_findings(subject), *(found for found in played if "spiral:" in found.what)]


def _of_targets(subject: Subject) -> Iterator[LintFinding]:
    numbers = {f"the inflation target of {who}": value for who, value in subject.targets.items()}
    for who, rule in subject.rules.items():
        if isinstance(rule, TaylorRule):
            numbers[f"the inflation target of {who}'s rule"] = rule.inflation_target
            numbers[f"the neutral real rate of {who}'s rule"] = rule.neutral_real_rate
    for name, value in numbers.items():
        if 0 < abs(value) < _FRACTION:
            yield LintFinding(
                "L4 percent and fraction",
                f"{name} is {value:g} percent",
                f"rates are in percent here: write {100 * value:g} if you mean {100 * value:g}%",
            )


def _of_rule(who: str, rule: TaylorRule | Rule, subject: Subject) -> Iterator[LintFinding]:
    try:
        response = long_run_response(rule)
    except ConfigError as error:
        yield LintFinding(
            "L1 Taylor principle", f"{who}: {error}", "lower the weight on the last rate"
        )
        return
    if response <= 1:
        yield LintFinding(
            "L1 Taylor principle",
            f"{who} raises the rate by {response:.2f} points in the end for each point of "
            "inflation, so that the real rate falls when inflation rises",
            "let the total response, divided by 1 - inertia, exceed 1; Taylor (1993) has 1.5",
        )
    neutral = rate_by(rule, STEADY_STATE)
    steady = STEADY_STATE.interest_rate
    if 0 < abs(neutral) < _FRACTION or abs(neutral) > 25:
        yield LintFinding(
            "L4 percent and fraction",
            f"{who} asks for {number(neutral)}% where inflation is 2%, the gap 0 and the rate "
            f"{number(steady)}%",
            "use percent for all of it, targets and neutral rates too",
        )
    elif abs(neutral - steady) > _SAME_RATE:
        yield LintFinding(
            "L8 neutral rates differ",
            f"{who} asks for {number(neutral)}% at 2% inflation and no gap, where the economy "
            f"rests at {number(steady)}%",
            "give rule, economy and prompt one neutral rate",
        )
    if isinstance(subject.model, StaticEconomy) or response <= 1:
        return
    for delay, title in enumerate(("L2 unstable", "L3 unstable if late")):
        try:
            root = closed_loop(rule, model=subject.model, delay=delay).spectral_radius
        except (ConfigError, EconomyError):
            return  # the model itself is at fault, which has findings of its own
        if root >= 1:
            late = " if it sees the economy a quarter later than it does" if delay else ""
            yield LintFinding(
                title,
                f"under {who} shocks grow by {100 * (root - 1):.2f}% a quarter{late}",
                "weaken its response to inflation, or answer the output gap more",
            )
            return


def _of_model(subject: Subject) -> Iterator[LintFinding]:
    model = subject.model
    rest, rate = STEADY_STATE, STEADY_STATE.interest_rate
    quarter = model.advance(rest, interest_rate=rate)
    moved = [
        f"{name} from {number(getattr(rest, name))} to {number(getattr(quarter, name))}"
        for name in ("interest_rate", "inflation", "output_gap", "unemployment")
        if abs(getattr(quarter, name) - getattr(rest, name)) > 1e-6
    ]
    if moved:
        yield LintFinding(
            "L7 steady state moves",
            f"where nothing happens the economy moves {', '.join(moved)} in a quarter",
            "see whether a level is used as a rate, or a logarithm as a level",
        )
    change = 100 * log(quarter.total_economic_value / rest.total_economic_value)
    growth = quarter.gdp_growth
    compounded = 100 * ((1 + change / 100) ** 4 - 1)
    if isinstance(model, StaticEconomy) or abs(4 * change - growth) < 1e-6:
        return
    if abs(change - growth) < 0.02 * abs(growth) or abs(compounded**0.25 - growth) < 1e-9:
        yield LintFinding(
            "L5 annual rate in a quarter",
            f"growth of {number(growth)}% per year raises output by {number(change)}% in a quarter",
            "divide annual rates by 4 where a turn is a quarter",
        )
    elif abs(4 * change - growth) < 0.05 * abs(growth):
        yield LintFinding(
            "L6 annualisation",
            f"output rises by {change:.4f}% in a quarter, 4 times which is {4 * change:.4f}, and "
            f"growth says {growth:.4f}",
            "annualise all rates one way: 400 times the log change, as inflation is here",
        )
    else:
        yield LintFinding(
            "L7 steady state moves",
            f"output rises by {number(change)}% in a quarter where growth is {number(growth)}% "
            "per year",
            "see whether a level is used as a rate, or a logarithm as a level",
        )


def _of_moves(subject: Subject) -> Iterator[LintFinding]:
    state, offered = subject.state, {abs(move) for move in subject.moves_bp}
    largest = max(offered) / 100 if offered else subject.limits.max_move
    for place, text in subject.prompts.items():
        # Where moves are listed with their signs, the list itself is not a statement about others.
        stated = {int(size) for size in _STATED_MOVE.findall(text)} - {0, 100}
        if offered and (missing := sorted(stated - offered)):
            yield LintFinding(
                "L9 moves",
                f"the prompt of {place} speaks of {missing[0]} basis points, and the moves on "
                f"offer are {', '.join(map(str, sorted(offered)))} up or down",
                "offer what the prompt speaks of, or leave it out",
            )
    if state.period is None:
        return
    rates = history(state.period, subject.turns + 1)["interest_rate"].tolist()
    moved = max((abs(after - before) for before, after in pairwise(rates)), default=0.0)
    if moved > largest + 0.125:
        yield LintFinding(
            "L9 moves",
            f"in these quarters the rate moved by {number(moved)} points once, and one turn may "
            f"move it by {number(largest)}",
            "offer larger moves, or the run cannot do what was done",
        )
    economy = state.global_state
    for who, rule in subject.rules.items():
        asked = rate_by(rule, economy)
        quarters = abs(asked - economy.interest_rate) / largest
        if quarters > _MOST_QUARTERS_TO_RULE:
            yield LintFinding(
                "L9 moves",
                f"{who} asks for {number(asked)}% at the start, and from "
                f"{number(economy.interest_rate)}% the moves on offer take {quarters:.0f} quarters "
                "to get there",
                "offer larger moves",
            )


def _of_prompt(place: str, text: str, subject: Subject) -> Iterator[LintFinding]:
    def finding(rule: str, what: str, remedy: str) -> LintFinding:
        return LintFinding(rule, f"the prompt of {place} {what}", remedy)

    title = ""  # of the table whose lines follow
    for line in text.splitlines():
        if "|" in line:
            title = title or line
            line_in_full = f"{title} {line}"
        else:
            title, line_in_full = "", line
        if not _FIGURE.search(line) or not (
            _RATE_OF_CHANGE.search(line_in_full) or _RATE.search(line_in_full)
        ):
            continue
        # A table's units are in its title.
        no_unit = not re.search(_UNIT, title) if title else _WITHOUT_UNIT.search(line)
        lacks = ["unit"] if no_unit else []
        lacks += [] if _HORIZON.search(line_in_full) else ["horizon"]
        if lacks:
            yield finding(
                "L12 units in prompts",
                f"gives a number without {' and '.join(lacks)}: {clip(line, 80)!r}",
                "say percent of what, per year or over which quarters",
            )
            break
    gap = subject.state.global_state.output_gap
    if subject.state.period and re.search(rf"\bgap\b[^\n|]{{0,60}}?{number(gap)}\b", text):
        yield finding(
            "L13 what agents may not know",
            f"gives the ex-post output gap of {number(gap)}%, which took later quarters to know",
            "show the one-sided gap: output_gap_one_sided",
        )
    for form, what in ((_DATE, "date"), (_NAME, "name")):
        if shown := form.search(text):
            yield finding(
                "L13 what agents may not know",
                f"gives a {what}, {shown[0]!r}, by which a model may recall what happened",
                "mask dates and names (masked: true)",
            )
    if stated := _NEUTRAL.search(text):
        neutral = STEADY_STATE.interest_rate - STEADY_STATE.inflation
        if abs(float(stated[1]) - neutral) > _SAME_RATE:
            yield finding(
                "L8 neutral rates differ",
                f"says that {stated[1]}% is neutral, and the economy's neutral real rate is "
                f"{number(neutral)}%",
                "give rule, economy and prompt one neutral rate",
            )


def _of_horizon(subject: Subject, runs: int) -> Iterator[LintFinding]:
    """Play the first rule, or Taylor's where there is none, and no change at all."""
    if isinstance(subject.model, StaticEconomy) or not subject.turns:
        return
    who, rule = next(iter(subject.rules.items()), ("the Taylor rule", TaylorRule()))
    scale = subject.shock_scale or 1.0
    start = subject.state.global_state
    at_bound = spirals = quarters = 0
    last: list[float] = []
    differences: list[float] = []
    for seed in range(runs):
        shocks = ShockGenerator(seed, scale=scale)
        ruled = _played(rule, start, subject, shocks)
        rates = [state.interest_rate for state in ruled]
        quarters += len(rates)
        at_bound += sum(rate in (subject.limits.lower, subject.limits.upper) for rate in rates)
        if len(ruled) < subject.turns or _spirals(ruled[-1]):
            spirals += 1
            continue
        held = _played(None, start, subject, shocks)
        last.append(ruled[-1].inflation)
        if len(held) == len(ruled):
            differences.append(ruled[-1].inflation - held[-1].inflation)
    if at_bound > MOST_AT_BOUND * quarters:
        yield LintFinding(
            "L10 bounds and spirals",
            f"in {runs} runs of {who} {at_bound / quarters:.0%} of the quarters are at a bound of "
            "the rate",
            "start further from the bounds, or play fewer turns",
        )
    if spirals > MOST_SPIRALS * runs:
        yield LintFinding(
            "L10 bounds and spirals",
            f"{spirals / runs:.0%} of {runs} runs of {who} end in a spiral: at the bound the real "
            "rate rises as prices fall",
            "play fewer turns, or set economy.fiscal_backstop",
        )
    if len(differences) > 1 and len(last) > 1:
        effect, noise = sqrt(fmean(d * d for d in differences)), stdev(last)
        if effect < LEAST_LEVERAGE * noise:
            yield LintFinding(
                "L11 horizon",
                f"after {subject.turns} quarters inflation under {who} and under no change differ "
                f"by {number(effect)} points, where shocks alone have a standard deviation of "
                f"{number(noise)}",
                "play more turns: policy takes three quarters to touch inflation",
            )


def _spirals(state: GlobalState) -> bool:
    return abs(state.output_gap) > _SPIRAL or state.inflation < STEADY_STATE.inflation - _SPIRAL


def _played(
    rule: TaylorRule | Rule | None, start: GlobalState, subject: Subject, shocks: ShockGenerator
) -> list[GlobalState]:
    """Return the quarters under a rule, or under no change; they end early where the model does."""
    model = subject.model
    states: list[GlobalState] = []
    now = start
    for turn in range(1, subject.turns + 1):
        asked = now.interest_rate if rule is None else rate_by(rule, now)
        asked, lower = subject.limits.inside(asked), subject.limits.lower
        hit = shocks.at(turn)
        if subject.fiscal_backstop and asked == lower:
            demand = subject.fiscal_backstop.demand(now, lower_bound=lower, model=model)
            hit += Shocks(demand=demand)
        try:
            now = model.advance(now, interest_rate=asked, shocks=hit)
        except EconomyError:
            break
        states.append(now)
    return states
