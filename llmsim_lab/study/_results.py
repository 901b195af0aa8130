"""What a comparison says: its samples as a frame, its effects in words, the answers given."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, product
from statistics import fmean
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import counted, number
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm._choose import Choice
from llmsim_lab.llm._extract import InvalidReply, reply_fields
from llmsim_lab.simulation import Simulation
from llmsim_lab.study._bench import Bench, Sample, Turn, identity_of
from llmsim_lab.types import LLMReasoningChain, Reply, Status

if TYPE_CHECKING:
    import pandas as pd

    from llmsim_lab.study._statistics import Effect

Outcome = str
"""A column of the run's frame, ``confidence``, ``accepted``, or ``answers``: what was decided."""

Outcomes = Mapping[str, Callable[[Turn], Any] | None]
"""What is measured of a sample's turn, by name; None for a column of the run's frame."""

Played = tuple[Sample, Turn]

OF_DECISIONS = ("confidence", "accepted")
ANSWERS = "answers"

_NAMES: Mapping[str, tuple[str, str]] = {
    "interest_rate": ("resulting interest rate", "points"),
    "confidence": ("confidence", "of 1"),
    "accepted": ("acceptance", "of 1"),
    ANSWERS: ("what was answered", "energy distance"),
}

_SMALLEST_MOVE = 0.005
"""A smaller change is not a move; percentage points, since rates are on a grid of hundredths."""

_ALPHA = 0.05
"""The limit of p-values: 1 minus the intervals' level."""

_MOST_OUTCOMES = 3
"""How many of a world's columns are compared if none is named: each makes the family larger."""

_MOST_ANSWERS = 5
"""How many of a variant's answers are listed: the commonest."""

_WORST_FIRST: tuple[Status, ...] = ("failed", "fallback", "repaired", "ok")

Place = tuple[str, Any, Any]
"""Of a sample: variant; turn, with its run; and number, with its wording's."""

_KEYS = ["variant", "turn", "sample"]


def name_of(outcome: Outcome) -> tuple[str, str]:
    """Return an outcome's name for people, and the unit of its differences; empty if not known."""
    return _NAMES.get(outcome, (outcome, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How much samples of the same prompt differ at the same state.

    Attributes:
        outcome: what is compared.
        variant: the prompt.
        floor: mean absolute difference of two samples (Gini's mean difference): the mean over all
            pairs of a turn's samples, then over turns; None with fewer than two samples a turn.
        sd_within: standard deviation within turns, pooled: the root of the sum of squares around
            the turns' means over the sum of their degrees of freedom.
        samples: how many were used.
        failed: how many were not, since they failed.
        turns: how many turns have two samples or more.
        note: what to keep in mind.
    """

    outcome: str
    variant: str
    floor: float | None
    sd_within: float | None
    samples: int
    failed: int
    turns: int
    note: str = ""


def came_off(bench: Bench, sample: Sample, played: Turn) -> bool:
    """Return True if a sample was played to its end; after a failure the turn is not made."""
    lost = any(chain.status == "failed" for chain in played.chains)
    return not lost or bool(played.state != bench.turn(sample.turn - 1).state)


def outcomes_of(
    bench: Bench, given: str | Iterable[str] | Callable[[Turn], Any] | None
) -> dict[str, Callable[[Turn], Any] | None]:
    """Return what is measured of each sample.

    Args:
        bench: the run.
        given: names of columns, or a function of the turn; if not given, what the component can
            move: of the economic world the rate, confidence and acceptance; else the first columns
            that the run charts.

    Raises:
        ConfigError: there is no such column of numbers, or the function gives none.
    """
    simulation = bench.simulation
    if callable(given):
        name = getattr(given, "__name__", "outcome")
        try:  # now, and not when all samples are played
            value = given(simulation.turns[-1])
            float(math.nan if value is None else value)
        except Exception as error:
            raise ConfigError(
                f"outcome {name!r} gives no number for the run's last turn: "
                f"{type(error).__name__}: {error}; return one, or float('nan') where there is none"
            ) from error
        return {name: given}
    numbers = [series.column for series in simulation.series]
    if given is not None:
        names = [given] if isinstance(given, str) else list(given)
        row = simulation.own_columns(simulation.turns[-1])
        known = [name for name, value in row.items() if isinstance(value, int | float)]
        if lost := [name for name in names if name not in (*known, *OF_DECISIONS)]:
            raise ConfigError(
                f"outcome={given!r:.80}: {lost[0]!r} is not a number of this run's turns; choose "
                f"from {', '.join([*known, *OF_DECISIONS])}, or give a function of the turn"
            )
    elif isinstance(simulation, Simulation):
        judged = bench.stage == "validator" or (bench.stage == "agent" and bench.measures_turn)
        names = ["interest_rate", "confidence", *(["accepted"] if judged else [])]
    else:
        # Those of the world as a whole before those of each player, such as ``coins.Ann``.
        names = sorted(numbers, key=lambda name: "." in name)[:_MOST_OUTCOMES]
    return {name: None for name in names if name in OF_DECISIONS or bench.measures_turn}


# --- the frame -----------------------------------------------------------------------------------


def samples_frame(
    benches: Mapping[int | None, Bench],
    results: Iterable[Played],
    outcomes: Outcomes,
    arms: Mapping[str, Sequence[str]],
) -> pd.DataFrame:
    """Return one row a decision of the component; ``Comparison.frame`` has the columns."""
    arm_of = {label: arm for arm, labels in arms.items() for label in labels}
    rows = [
        row | {"variant": arm_of[sample.variant], "wording": sample.variant, "run": sample.run}
        for sample, turn in results
        for row in _sample_rows(benches[sample.run], sample, turn, outcomes)
    ]
    bench = next(iter(benches.values()))
    of_turn = [name for name in outcomes if name not in OF_DECISIONS]
    columns = ["variant", *(["wording"] if len(arm_of) > len(arms) else [])]
    columns += ["run"] if len(benches) > 1 else []
    columns += ["turn", "sample", "seed", "agent", "decision", "reasoning", "confidence", "status"]
    columns += ["accepted"] if isinstance(bench.simulation, Simulation) else []
    columns += [*(["before", of_turn[0], "move"] if of_turn else []), *of_turn[1:]]
    columns += ["calls", "tokens", "seconds", "completed", "detail"]
    return frame_of(rows, columns=columns)


def _turn_cells(bench: Bench, sample: Sample, played: Turn, outcomes: Outcomes) -> dict[str, Any]:
    """Return what a sample's rows share: which it is, what the turn led to, what went wrong."""
    done = came_off(bench, sample, played)
    common: dict[str, Any] = {"turn": sample.turn, "sample": sample.sample, "seed": sample.seed}
    common["completed"] = done
    of_turn = [name for name in outcomes if name not in OF_DECISIONS]
    for name in of_turn:
        # Not the old value, which would count as a decision to hold.
        common[name] = _measured(bench, played, name, outcomes) if done else math.nan
    if of_turn:
        before = _measured(bench, bench.turn(sample.turn - 1), of_turn[0], outcomes)
        common |= {"before": before, "move": common[of_turn[0]] - before}
    failures = (
        # A failure of the client's begins with the component already.
        f"{chain.component}: {chain.reasoning.removeprefix(f'{chain.component}:').lstrip()}"
        for chain in played.chains
        if chain.status == "failed"
    )
    return common | {"detail": "; ".join(dict.fromkeys(failures))}


def _sample_rows(
    bench: Bench, sample: Sample, played: Turn, outcomes: Outcomes
) -> Iterable[dict[str, Any]]:
    """Yield a row for each agent that the component was asked for, or that decided."""
    common = _turn_cells(bench, sample, played, outcomes)
    done = common["completed"]
    actions = {action.agent_name: action for action in getattr(played, "actions", ())}
    found = bench.decided(played)
    # What was answered from the recording, beside the component, cost nothing.
    known = bench.recorded(sample.turn)
    asked = [call for call in played.calls if identity_of(call) not in known]
    # A rule's answer makes no call: its chain is the next one without, in the same order.
    fields = iter(getattr(played, "by_code", ()))
    words = {id(chain): next(fields, None) for chain in played.chains if chain.call is None}
    others = (chain.agent for chain in found if chain.agent)
    for agent in dict.fromkeys([*bench.subjects(sample.turn), *others]):
        chains = [chain for chain in found if chain.agent == agent]
        # A call that failed has no decision; one that the agent's own check rejected is one.
        decided = [chain for chain in chains if done or chain.status != "failed"]
        sure = [chain.confidence for chain in decided if chain.confidence is not None]
        worst = min((chain.status for chain in chains), key=_WORST_FIRST.index, default="ok")
        sites = ((call, call.request.site) for call in asked)
        calls = [call for call, site in sites if site is not None and (site.agent or "") == agent]
        action = actions.get(agent)
        judged = getattr(action, "validation_result", None) if done else None
        yield common | {
            "agent": agent,
            "decision": ", ".join(
                said
                for chain in decided
                if chain.status != "failed" or action is not None
                if (said := _in_words(bench, chain, action, words.get(id(chain))))
            ),
            "reasoning": " ".join(chain.reasoning for chain in decided),
            "confidence": fmean(sure) if sure else math.nan,
            "status": worst if done else "failed",
            "accepted": judged.is_valid if judged is not None else None,
            "calls": sum(call.attempts for call in calls),
            "tokens": sum(call.tokens for call in calls),
            "seconds": sum(call.seconds for call in calls),
        }


def _measured(bench: Bench, turn: Turn, name: str, outcomes: Outcomes) -> float:
    of = outcomes[name]
    value = bench.simulation.own_columns(turn).get(name) if of is None else of(turn)
    return math.nan if value is None else float(value)


def _in_words(bench: Bench, chain: LLMReasoningChain, action: Any, rule: Any) -> str:
    """Return what the component decided."""
    if bench.stage == "agent" and action is not None:
        return str(action.action_string)
    if bench.stage == "validator" and action is not None:
        return "accept" if action.validated else "reject"
    fields: Mapping[str, Any] = rule.fields if rule is not None else {}
    reply = chain.call.reply if chain.call else None
    if reply is not None:
        with suppress(InvalidReply):
            fields = reply_fields(reply.text)
    own = {n: value for n, value in fields.items() if n not in Reply.model_fields and value != ""}
    if len(own) == 1:
        return _plain_value(next(iter(own.values())))
    if own:
        return ", ".join(f"{name} {_plain_value(value)}" for name, value in own.items())
    return reply.text if reply is not None else chain.reasoning


def _plain_value(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return number(value) if is_number else str(value)


def _placed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame in which turns tell runs apart, samples wordings; these become numbers."""
    if "run" in frame:
        places: list[Any] = list(zip(frame["run"], frame["turn"], strict=True))
        frame = frame.assign(turn=places)
    if "wording" in frame:
        numbers = {
            label: number
            for _, labels in frame.groupby("variant", sort=False)["wording"]
            for number, label in enumerate(labels.unique())
        }
        wordings = frame["wording"].map(numbers)
        draws: list[Any] = list(zip(wordings, frame["sample"], strict=True))
        frame = frame.assign(sample=draws, wording=wordings)
    return frame


def sample_values(frame: pd.DataFrame, outcome: Outcome) -> pd.DataFrame:
    """Return the outcome by variant, turn and sample; NaN where a sample has none.

    A sample with several decisions counts once: with what the turn led to, and the mean of the
    agents' confidence or acceptance.
    """
    if outcome not in frame.columns:
        raise ConfigError(f"outcome={outcome!r} is not a number of this comparison's frame")
    keys = [*_KEYS, "seed", *(name for name in ("wording", "run") if name in frame)]
    values = _placed(frame)[keys].assign(value=frame[outcome].astype(float))
    groups = values.groupby(keys, sort=False)["value"]
    # Not ``groups.mean()``, which would leave out an agent that has no answer.
    return groups.agg(lambda group: float(group.mean(skipna=False))).reset_index()


def noise(frame: pd.DataFrame, outcome: Outcome, variants: Sequence[str]) -> list[Noise]:
    """Return each variant's noise floor; ``Noise`` has the formulas."""
    values = sample_values(frame, outcome)
    found = []
    for variant in variants:
        own = values[values["variant"] == variant]
        known = own.dropna()
        places = ["turn", "wording"] if "wording" in own else ["turn"]
        groups = [list(map(float, group)) for _, group in known.groupby(places)["value"]]
        repeated = [group for group in groups if len(group) > 1]
        floor = spread = None
        note = "two samples a turn are needed to tell noise from difference"
        if repeated:
            floor = fmean(fmean(abs(a - b) for a, b in combinations(g, 2)) for g in repeated)
            squares = math.fsum((value - fmean(g)) ** 2 for g in repeated for value in g)
            spread = math.sqrt(squares / sum(len(group) - 1 for group in repeated))
            note = "" if len(repeated) == len(groups) else "turns with one sample are left out"
            if floor == 0:
                note = "samples of a turn are all alike"
        found.append(
            Noise(
                outcome=outcome,
                variant=variant,
                floor=floor,
                sd_within=spread,
                samples=len(known),
                failed=len(own) - len(known),
                turns=int(known.groupby(places).size().gt(1).groupby("turn").any().sum()),
                note=note,
            )
        )
    return found


# --- effects -------------------------------------------------------------------------------------


def effects_of(
    frame: pd.DataFrame,
    outcomes: Sequence[Outcome],
    variants: Sequence[str],
    *,
    of_prompts: bool = False,
) -> list[Effect]:
    """Return how each variant differs from the first in each outcome, and in what was answered.

    They are one family: ``p_family`` is adjusted for all of them, by Holm's method. What prompts do
    is said of new wordings where a variant has several, and else of this wording only.
    """
    import pandas as pd

    from llmsim_lab.study._statistics import situation_effects  # here, since it imports numpy

    reference, *others = variants
    parts = [sample_values(frame, it).assign(outcome=it) for it in outcomes if not frame.empty]
    found = []
    if parts:
        names = {"variant": "arm", "turn": "situation", "sample": "replicate"}
        there = [(name, reference) for name in others if {name, reference} <= {*frame["variant"]}]
        values = pd.concat(parts, ignore_index=True).rename(columns=names)
        if "run" not in values:
            values["run"] = 1
        if of_prompts and "wording" not in values:
            values["wording"] = values["arm"]
        found = situation_effects(values, contrasts=there)
    only = these_wordings(frame) if of_prompts else ""
    found += [_answers_effect(frame, name, reference, only) for name in others]
    return one_family(found)


def these_wordings(frame: pd.DataFrame) -> str:
    """Return in words that something is said of the wordings that were asked alone."""
    return f", {'these wordings' if 'wording' in frame else 'this wording'} only"


def _answers_effect(frame: pd.DataFrame, variant: str, reference: str, only: str) -> Effect:
    """Return how far apart two variants' answers are, whatever they are about."""
    from llmsim_lab.study._statistics import Effect, energy_test

    texts = _texts(frame)
    sides = [
        [(place[1], text) for place, text in texts.items() if place[0] == name and text is not None]
        for name in (variant, reference)
    ]
    effect = Effect(
        contrast=f"{variant} \u2212 {reference}", outcome=ANSWERS, unit="situations", method="none"
    )
    if not all(sides):
        return replace(effect, note="no sample of both was played")
    x, y = ([text for _, text in side] for side in sides)
    blocks = [turn for turn, _ in sides[0]], [turn for turn, _ in sides[1]]
    situations = len({*blocks[0], *blocks[1]})
    where = f"these {situations} situations" if situations > 1 else "this situation"
    # Where few different answers were given, whether they are the same counts, else their words.
    # Both arms together decide it, so that the permutations share it.
    few = len({*x, *y}) <= (len(x) + len(y)) / 2
    statistic, p = energy_test(x, y, distance="labels" if few else "words", blocks=blocks)
    return replace(
        effect,
        n=situations,
        speaks_of=where + only,
        estimate=round(statistic, 12) + 0.0,  # never minus zero
        p=p,
        p_family=p,
        method=f"energy distance of {'answers' if few else 'their words'}, permuted by situation",
    )


def one_family(effects: Sequence[Effect]) -> list[Effect]:
    """Return effects with their p-values adjusted for all of them together, by Holm's method."""
    from llmsim_lab.study._statistics import holm

    adjusted = holm([effect.p for effect in effects])
    tested = sum(p is not None for p in adjusted)
    how = f"; Holm over {tested}" if tested > 1 else ""
    alone = (effect.method.partition("; Holm")[0] for effect in effects)
    return [
        replace(effect, p_family=p, method=method + how * (p is not None))
        for effect, p, method in zip(effects, adjusted, alone, strict=True)
    ]


Chances = Mapping[Sample, Mapping[str, Choice[Any]]]


def exact_effects(
    chances: Chances, arms: Mapping[str, Sequence[str]], *, only: str = ""
) -> list[Effect]:
    """Return how arms differ where the chance of each answer is known, without drawing any.

    Of numbers the difference of the means; else the difference of each answer's chance. An arm's
    wordings are taken together; ``only`` says that it is about these.
    """
    from llmsim_lab.study._statistics import exact_situation_effects

    arm_of = {label: arm for arm, labels in arms.items() for label in labels}
    # Every sample of a turn measures the same chances.
    known: dict[tuple[str, int | None, int, str], Choice[Any]] = {}
    for sample, choices in chances.items():
        for agent, choice in choices.items():
            known.setdefault((sample.variant, sample.run, sample.turn, agent), choice)
    rows: list[tuple[Any, ...]] = []
    for (label, run, turn, _), choice in known.items():
        options, place = choice.probabilities, (arm_of[label], run or 1, turn)
        if all(isinstance(it, int | float) and not isinstance(it, bool) for it in options):
            rows += [(*place, "choice", float(option), p) for option, p in options.items()]
            continue
        for option, p in options.items():
            name = f"chance of {getattr(option, 'value', option)}"
            rows += [(*place, name, 1.0, p), (*place, name, 0.0, 1 - p)]
    frame = frame_of(rows, columns=["arm", "run", "situation", "outcome", "value", "chance"])
    if not rows:
        return []
    found = exact_situation_effects(frame, reference=next(iter(arms)))
    return [replace(effect, speaks_of=effect.speaks_of + only) for effect in found]


def verdict(effect: Effect, floors: Sequence[float | None], *, pairs: int, failed: int) -> str:
    """Return an effect in words: interval, p-values, number of pairs, noise floors.

    Args:
        effect: the difference of the two variants.
        floors: the two variants' noise floors.
        pairs: how many pairs of samples were used.
        failed: how many were not, since one of the two failed.
    """
    name, unit = name_of(effect.outcome)
    what = f"{name}, {effect.contrast}"
    used = f"{counted(pairs, 'pair')} used, {failed} failed"
    if effect.estimate is None:
        return f"{what}: no number ({effect.note}); {used}."
    text = f"{what}: {effect.estimate:+.2f}{' ' if unit else ''}{unit}"
    if effect.low is not None and effect.high is not None:
        text += f", 95 % interval {effect.low:+.2f} to {effect.high:+.2f}"
    if effect.p is not None:
        text += f", p {_p(effect.p)}"
        if effect.p_family is not None and effect.p_family != effect.p:
            text += f", for all that is compared p {_p(effect.p_family)}"
    text += f" ({effect.method}); {used}."
    if effect.p is None:
        text += " No evidence either way."
    elif effect.p >= _ALPHA:
        text += " No evidence of a difference."
    elif effect.p_family is not None and effect.p_family >= _ALPHA:
        text += " Evidence of a difference by itself, but not once adjusted for all comparisons."
    else:
        text += f" Evidence of a difference at {effect.speaks_of}."
    if effect.outcome != ANSWERS and None in floors:
        text += " The noise floor is not known: it takes two samples a turn."
    elif effect.outcome != ANSWERS:
        one, other = (number(floor) for floor in floors if floor is not None)
        text += (
            f" Two single samples of one prompt at one state differ by {one} and {other}"
            f"{' ' if unit else ''}{unit} on average; that is about one answer, not about this "
            "mean."
        )
    return f"{text} Note: {effect.note}." if effect.note else text


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


# --- what was answered ---------------------------------------------------------------------------


def direction(move: float) -> str | None:
    """Return which way a rate went: ``raise``, ``hold`` or ``lower``; None where it is NaN."""
    if math.isnan(move):
        return None
    if abs(move) < _SMALLEST_MOVE:
        return "hold"
    return "raise" if move > 0 else "lower"


def directions(frame: pd.DataFrame, variants: Sequence[str]) -> pd.DataFrame:
    """Return each variant's shares of moves: ``raise``, ``hold``, ``lower``; ``used``, ``failed``.

    One row a variant. Shares are of the samples used; failed ones are only counted.
    """
    moves, frame = _moves(frame), _placed(frame)
    rows = []
    for variant in variants:
        counts = Counter(move for place, move in moves.items() if place[0] == variant and move)
        used = counts.total()
        shares = {it: counts[it] / used if used else math.nan for it in ("raise", "hold", "lower")}
        failed = frame[(frame["variant"] == variant) & ~frame["completed"].astype(bool)]
        # A sample has a row an agent, and fails once.
        count = len(failed[["turn", "sample"]].drop_duplicates())
        rows.append({"variant": variant, **shares, "used": used, "failed": count})
    return frame_of(rows)


def agreement(frame: pd.DataFrame, variants: Sequence[str]) -> pd.DataFrame:
    """Return how often two samples at the same turn go the same way, and say the same.

    One row a comparison. Each variant is compared with the first twice: over the pairs of the same
    seed, and over the pairs of different seeds. Each is also compared with itself, over all pairs
    of its samples at a turn, which have different seeds: the floor. Compare the floor only with
    rows of different seeds, since a shared seed makes samples alike, whatever the prompts;
    agreement below the floor may be due to the prompt.

    Columns: ``of``; ``seeds``, ``same`` or ``different``; ``same_direction`` and ``same_answer``
    (shares); ``pairs``, how many were used, and ``failed``, how many had a failed sample.
    """
    moves, texts = _moves(frame), _texts(frame)
    there: dict[tuple[str, Any], list[Place]] = {}
    for place in texts:
        there.setdefault(place[:2], []).append(place)
    turns = dict.fromkeys(turn for _, turn in there)
    compared: list[tuple[str, str, list[tuple[Place, Place]]]] = []
    for variant in variants[1:]:
        both = [
            pair
            for turn in turns
            for pair in product(there.get((variants[0], turn), []), there.get((variant, turn), []))
        ]
        of = f"{variants[0]} and {variant}"
        compared.append((of, "same", [(a, b) for a, b in both if a[2] == b[2]]))
        compared.append((of, "different", [(a, b) for a, b in both if a[2] != b[2]]))
    for variant in variants:
        pairs = [p for turn in turns for p in combinations(there.get((variant, turn), []), 2)]
        compared.append((f"{variant} and itself", "different", pairs))
    rows = []
    for of, seeds, pairs in compared:
        (direction_share, _), (answer_share, whole) = _same(pairs, moves), _same(pairs, texts)
        rows.append((of, seeds, direction_share, answer_share, whole, len(pairs) - whole))
    columns = ["of", "seeds", "same_direction", "same_answer", "pairs", "failed"]
    return frame_of(rows, columns=columns)


def _same(
    pairs: Sequence[tuple[Place, Place]], of: Mapping[Place, str | None]
) -> tuple[float, int]:
    """Return the share of pairs that are alike, of those in which both are known; and how many."""
    known = [(of[a], of[b]) for a, b in pairs if of[a] is not None and of[b] is not None]
    return sum(a == b for a, b in known) / len(known) if known else math.nan, len(known)


def common_answers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return each variant's commonest decisions: ``variant``, ``decision``, ``count``, ``share``.

    Answers that differ only in spaces or in capital letters count as the same. Shares are of the
    decisions that the variant gave; failed ones are in a row with the decision ``(failed)``.
    """
    rows = []
    for variant in dict.fromkeys(frame["variant"]):
        own = frame[frame["variant"] == variant]
        counts = Counter(_plain(text) for text in own["decision"] if text)
        total = counts.total()
        rows += [
            {"variant": variant, "decision": text, "count": count, "share": count / total}
            for text, count in counts.most_common(_MOST_ANSWERS)
        ]
        if silent := len(own) - total:
            failed = {"decision": "(failed)", "count": silent, "share": math.nan}
            rows.append({"variant": variant, **failed})
    return frame_of(rows, columns=["variant", "decision", "count", "share"])


def _plain(text: str) -> str:
    return " ".join(text.split()).lower()


def _moves(frame: pd.DataFrame) -> dict[Place, str | None]:
    moves = frame["move"] if "move" in frame else [math.nan] * len(frame)
    return {key: direction(move) for key, move in zip(_places(frame), moves, strict=True)}


def _places(frame: pd.DataFrame) -> Iterable[Place]:
    return zip(*(_placed(frame)[key] for key in _KEYS), strict=True)


def _texts(frame: pd.DataFrame) -> dict[Place, str | None]:
    """Return what was decided in each sample, all agents together; None where one failed."""
    texts: dict[Place, str | None] = {}
    for key, text in zip(_places(frame), frame["decision"], strict=True):
        before = texts.get(key, "")
        texts[key] = f"{before}\n{_plain(text)}" if text and before is not None else None
    return texts
