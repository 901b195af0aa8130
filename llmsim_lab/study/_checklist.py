"""What a referee of a study would ask, answered from its tape and its design.

Each answer is ``ok``, ``missing``, or ``unknown`` where the study does not hold what would tell. It
is never a guess: what was done elsewhere, such as a check of the model that is not kept on this
machine, is unknown. Questions that a study does not raise, such as those about models in one that
asked none, are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from llmsim_lab._util.html import badge, table
from llmsim_lab._util.text import clip
from llmsim_lab.errors import LabError
from llmsim_lab.run._config import idle_seeds
from llmsim_lab.simulation import SimulationConfig
from llmsim_lab.study._design import AA, AnyStudy
from llmsim_lab.study._gate import kept_economics_cards
from llmsim_lab.study._memory import recorded_recalls
from llmsim_lab.tape import verify
from llmsim_lab.types import ModelInfo

if TYPE_CHECKING:
    import pandas as pd

Answer = Literal["ok", "missing", "unknown"]
STATUSES = ("ok", "repaired", "fallback", "failed")
_SHOWN = 3
_ON_THE_GRID = 1e-6
"""How far off a grid a value may lie, in steps."""
LIKE = {"ok": "ok", "missing": "failed", "unknown": "repaired"}
"""The status of a decision that has the answer's colour."""
_MARKS = {"ok": "✓", "missing": "✗", "unknown": "?"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistItem:
    """One question of a referee.

    Attributes:
        question: in a few words.
        answer: whether it is in order; ``unknown`` where the study does not tell.
        found: what there is.
        remedy: what to do about it; empty where it is in order.
    """

    question: str
    answer: Answer
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{_MARKS[self.answer]} {self.question}: {self.found}"
        return f"{line}\n    {self.remedy}" if self.remedy else line


class Checklist(list[ChecklistItem]):
    """A referee's questions with their answers, as text, frame and table."""

    @property
    def counts(self) -> Counter[str]:
        """How many answers are ``ok``, ``missing`` and ``unknown``."""
        return Counter(item.answer for item in self)

    def to_frame(self) -> pd.DataFrame:
        """Return a row a question; columns ``question``, ``answer``, ``found``, ``remedy``."""
        import pandas as pd

        return pd.DataFrame([asdict(item) for item in self])

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            (it.question, badge(it.answer, like=LIKE[it.answer]), it.found, it.remedy)
            for it in self
        ]
        return str(table(("question", "answer", "found", "what to do"), rows, caption=self.summary))

    @property
    def summary(self) -> str:
        """How many are in order, in words."""
        counts = self.counts
        return ", ".join(f"{counts[it]} {it}" for it in _MARKS if counts[it])


def checklist(study: AnyStudy) -> Checklist:
    """Return what a referee would ask of a study, and what the study answers.

    Nothing is played, no model is asked, and no effect is looked at. The tape is verified, which
    takes a second for some thousand calls.

    Args:
        study: as far as it was played.
    """
    evidence = Evidence(study)
    return Checklist(item for ask in _QUESTIONS for item in ask(evidence))


class Evidence:
    """What is known of a study's runs, read once.

    Args:
        study: whose.

    Attributes:
        study: whose.
        begun: the runs that have a turn, arm by arm.
    """

    def __init__(self, study: AnyStudy) -> None:
        self.study = study
        self.begun = [
            it
            for it in study._in_order()
            if it.run is not None or (it.arm, it.seed) in study._player.kept
        ]

    @cached_property
    def manifests(self) -> dict[tuple[str, int], Mapping[str, Any]]:
        """What defines each run that is on the tape, by arm and seed."""
        tape = self.study.tape
        if tape is None:
            return {}
        infos = {info.id: info for info in tape.runs()}
        return {
            (it.arm, it.seed): infos[it.run].manifest for it in self.begun if it.run is not None
        }

    @cached_property
    def statuses(self) -> dict[str, Counter[str]]:
        """How many decisions of each status an arm's runs have, those of failed runs included."""
        found: dict[str, Counter[str]] = {arm: Counter() for arm in self.study.arms}
        for entry in self.begun:
            for row in self.study._rows(entry):
                found[entry.arm] += Counter({name: row.get(name) or 0 for name in STATUSES})
                found[entry.arm]["calls"] += row.get("calls") or 0
        return found

    @property
    def calls(self) -> int:
        """How many times a model was asked."""
        return sum(counts["calls"] for counts in self.statuses.values())

    @cached_property
    def models(self) -> dict[str, list[Mapping[str, Any]]]:
        """Which models answered each arm's runs, as they said who they are."""
        found: dict[str, list[Mapping[str, Any]]] = {arm: [] for arm in self.study.arms}
        for (arm, _), manifest in self.manifests.items():
            model = manifest.get("model")
            if isinstance(model, Mapping) and model not in found[arm]:
                found[arm].append(model)
        return found

    def settings(self, arm: str) -> Mapping[str, Any]:
        """Return the settings that an arm's model was asked with; empty where it has none."""
        for (which, _), manifest in self.manifests.items():
            if which == arm and isinstance(manifest.get("llm"), Mapping):
                return dict(manifest["llm"])
        for entry in self.begun:
            run = self.study._player.kept.get((entry.arm, entry.seed))
            if entry.arm == arm and run is not None and run.llm_client is not None:
                return dict(run.llm_client.config.model_dump(mode="json"))
        return {}

    def config(self, arm: str) -> Any:
        """Return an arm's configuration, of the first seed."""
        study = self.study
        return study._world.trial(study._by_name[arm], study.seeds[0]).config


_Items = Iterator[ChecklistItem]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _ok(question: str, found: str) -> ChecklistItem:
    return ChecklistItem(question=question, answer="ok", found=found)


def _missing(question: str, found: str, remedy: str) -> ChecklistItem:
    return ChecklistItem(question=question, answer="missing", found=found, remedy=remedy)


def _unknown(question: str, found: str, remedy: str) -> ChecklistItem:
    return ChecklistItem(question=question, answer="unknown", found=found, remedy=remedy)


# --- the plan ------------------------------------------------------------------------------------


def _registered(evidence: Evidence) -> _Items:
    study, question = evidence.study, "registered before it was played"
    begun, noted = len(evidence.begun), study._registrations
    named = {digest for digest in noted.values() if digest is not None}
    plan = study._registered
    if study.tape is None and plan is not None and begun:
        why = "the runs are on no tape, which would say what was registered when they began"
        yield _unknown(question, why, "Study(..., tape='study.tape')")
    elif plan is not None and begun and named != {plan["digest"]}:
        before = sum(digest != plan["digest"] for digest in noted.values())
        found = f"{before} of {begun} runs were begun before, or under another plan"
        yield _missing(question, found, "say so in the text; register the next study first")
    elif plan is not None:
        whole = f", and all {begun} runs were begun after it" if begun else ""
        yield _ok(question, f"plan {plan['digest'][:12]}{whole}")
    elif named:
        digests = ", ".join(sorted(it[:12] for it in named))
        found = f"runs name the plan {digests}, which was not read here"
        yield _unknown(question, found, "study.register(path) with that file compares them")
    else:
        remedy = "before the next study: study.register('plan.yaml', hypotheses=[...])"
        yield _missing(question, "no plan", remedy)


def _stop_rule(evidence: Evidence) -> _Items:
    study, question = evidence.study, "number of runs and the rule for stopping"
    total = len(study._entries)
    early = sorted(it for it in study._looks if it < total)
    looks = f"; effects were looked at after {', '.join(map(str, early))} of {total} runs"
    if study._registered is None:
        found = f"{len(study.seeds)} seeds in each of {len(study.arms)} arms, not fixed beforehand"
        remedy = "register n and the rule, or effects(watched=True), which may be watched"
        yield _missing(question, found + looks * bool(early), remedy)
    elif early:
        remedy = "report effects(watched=True), or say that it did not decide when to stop"
        yield _missing(question, study._registered["stop"] + looks, remedy)
    else:
        yield _ok(question, f"{study._registered['stop']}; no look before")


def _seeds(evidence: Evidence) -> _Items:
    study, question = evidence.study, "same seeds in all arms"
    done = {arm: set[int]() for arm in study.arms}
    for entry in study._entries.values():
        if entry.status == "done":
            done[entry.arm].add(entry.seed)
    shared = set.intersection(*done.values())
    if len(study.arms) < 2:
        yield _missing(question, "one arm, so nothing is compared", "vary={'factor': [...]}")
    elif len(shared) == len(study.seeds):
        yield _ok(question, f"{len(shared)} seeds, complete in each of {len(study.arms)} arms")
    else:
        found = f"{len(shared)} of {len(study.seeds)} seeds are complete in all arms"
        yield _missing(question, found, "study.run() plays what is left")
    one, other = study._arms[0], study.seeds[:2]
    configs = [study._world.trial(one, seed).config for seed in other]
    if why := idle_seeds(configs, model_seed=evidence.settings(one.name).get("seed")):
        remedy = "without draws there is no interval: vary what is random, or report one run an arm"
        yield _missing("seeds change something", why, remedy)


def _same_twice(evidence: Evidence) -> _Items:
    study, question = evidence.study, "an A/A arm"
    if AA in study.arms:
        done = sum(it.status == "done" for it in study._entries.values() if it.arm == AA)
        yield _ok(question, f"the reference again with other call seeds, {done} runs")
    elif evidence.calls:
        yield _missing(question, "none", "Study(..., aa=True) shows what chance alone does")


# --- the effects ---------------------------------------------------------------------------------


def _family(evidence: Evidence) -> _Items:
    study, question = evidence.study, "contrasts and outcomes are one family"
    plan = study._registered
    if plan is None and study.reference is None:
        found = "no contrasts: a Latin hypercube has no reference arm"
        yield _unknown(question, found, "say how the factors were fitted, and how many fits")
        return
    pairs = len(plan["contrasts"]) if plan else len([it for it in study.arms if it != AA]) - 1
    size = pairs * len(study.outcome)
    if not study.outcome:
        yield _missing(question, "no outcome is named", "Study(..., outcome='a column')")
    elif size:
        what = f"{_count(pairs, 'contrast')} in {_count(len(study.outcome), 'outcome')}"
        yield _ok(
            question, f"{what}, p-values adjusted over all {size}" if size > 1 else "just one"
        )


def _units(evidence: Evidence) -> _Items:
    study = evidence.study
    plan = study._registered
    if not study.counts["done"] or len(study.arms) < 2 or not study.outcome:
        return
    contrasts = [(a, b) for a, b in plan["contrasts"]] if plan else None
    if contrasts is None and study.reference is None:
        return
    from llmsim_lab.study._statistics import run_effects  # here, since it imports numpy

    question = "the interval's unit"
    try:
        values = study.outcomes()
    except LabError as error:
        yield _missing(question, str(error), "an outcome that is a number for every run")
        return
    found = run_effects(
        values if contrasts else values[values["arm"] != AA],
        reference=study.reference,
        contrasts=contrasts,
    )
    # Of these, only what makes an interval possible is read, and no estimate.
    without = {it.outcome: it.note for it in found if it.low is None}
    least = min(it.n for it in found)
    if without:
        whys = "; ".join(f"{name}: {note}" for name, note in list(without.items())[:_SHOWN])
        remedy = "more seeds, or an outcome that varies; report no interval for these"
        yield _missing(question, f"no interval for {whys}", remedy)
    else:
        yield _ok(question, f"runs: n = {least} or more pairs; no calls or turns are counted")
    yield from _coarse(values, study)


def _coarse(values: pd.DataFrame, study: AnyStudy) -> _Items:
    question, too_coarse = "outcomes not coarser than a step", []
    for label in study.outcome:
        part = values[values["outcome"] == label].pivot_table(
            index="seed", columns="arm", values="value"
        )
        numbers = {float(it) for it in part.to_numpy().ravel() if it == it}
        # Of whether something happened there are intervals of another kind.
        step = None if numbers <= {0.0, 1.0} else _step(sorted(numbers))
        if step is None or study.reference not in part:
            continue
        spread = part.sub(part[study.reference], axis=0).drop(columns=[study.reference]).std()
        if (spread[spread > 0] < step).any():
            too_coarse.append(f"{label}: steps of {step:g}, standard deviation {spread.min():.2g}")
    if too_coarse:
        remedy = "take a mean over turns, or a finer outcome; Student's t does not hold here"
        yield _missing(question, "; ".join(too_coarse), remedy)
    else:
        yield _ok(question, "no outcome lies on a grid that is wider than its spread")


def _step(values: Sequence[float]) -> float | None:
    """Return the step of the grid that values lie on; None where they lie on none."""
    gaps = [high - low for low, high in pairwise(values)]
    if not gaps:
        return None
    step = min(gaps)
    off = max(abs(gap / step - round(gap / step)) for gap in gaps)
    return step if off < _ON_THE_GRID else None


def _failed(evidence: Evidence) -> _Items:
    study, question = evidence.study, "no run failed, none is left"
    by_arm = {arm: Counter[str]() for arm in study.arms}
    for entry in study._entries.values():
        by_arm[entry.arm][entry.status] += 1
    incomplete = {arm: it for arm, it in by_arm.items() if it["done"] < it.total()}
    if not incomplete:
        yield _ok(question, f"all {len(study._entries)} are done")
        return
    parts = []
    for arm, counts in incomplete.items():
        others = ", ".join(f"{n} {it}" for it, n in counts.items() if it != "done")
        share = counts["failed"] / counts.total()
        parts.append(f"{arm}: {others} of {counts.total()} ({share:.0%} failed)")
    remedy = "study.run() tries them again; else report the share by arm, and why"
    yield _missing(question, "; ".join(parts), remedy)


def _decisions(evidence: Evidence) -> _Items:
    question, parts, bad = "decisions as they were made", [], False
    for arm, counts in evidence.statuses.items():
        decided = sum(counts[name] for name in STATUSES)
        if decided:
            shares = {name: counts[name] / decided for name in STATUSES[1:] if counts[name]}
            bad = bad or bool(counts["fallback"] or counts["failed"])
            said = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
            parts.append(f"{arm}: {said or 'all ok'} of {decided:,}")
    found = "; ".join(parts)
    if not parts or not evidence.calls:  # what rules decide is not counted by status
        return
    if bad:
        remedy = "report the shares by arm: a fallback is a default that nobody chose"
        yield _missing(question, found, remedy)
    else:
        yield _ok(question, found)


# --- the model -----------------------------------------------------------------------------------


def _digest(evidence: Evidence) -> _Items:
    question = "the model is known by digest, and is the same in all runs of an arm"
    if not evidence.calls:
        yield _ok("which model", "no model was asked: rules or chance play everybody")
        return
    if not evidence.manifests:
        yield _unknown(question, "the runs are on no tape", "Study(..., tape='study.tape')")
        return
    several = [arm for arm, models in evidence.models.items() if len(models) > 1]
    every = [model for models in evidence.models.values() for model in models]
    names = ", ".join(dict.fromkeys(_model_name(model) for model in every))
    if several:
        found = f"{several[0]} was answered by {names}"
        yield _missing(question, found, "play that arm again with one model, on a new tape")
    elif every and all(model.get("digest") for model in every):
        yield _ok(question, names)
    else:
        remedy = "name version and date in the text; Ollama and the embedded model give digests"
        yield _unknown(question, f"{names or 'none'}: no digest of the weights is given", remedy)


def _model_name(model: Mapping[str, Any]) -> str:
    digest = model.get("digest")
    return f"{model.get('name')} ({model.get('backend')}{f', {digest[:12]}' if digest else ''})"


def _sampling(evidence: Evidence) -> _Items:
    question = "temperature and seeds of the model's draws are recorded"
    if not evidence.calls:
        return
    said, unseeded = dict[str, None](), []
    for arm in evidence.study.arms:
        settings = evidence.settings(arm)
        if not settings:
            continue
        seed, drawn = settings.get("seed"), evidence.config(arm).replicate is None
        if seed is None and drawn:
            unseeded.append(arm)
        how = "each call's own, from the run's" if seed is None else f"{seed} in every call"
        said[f"temperature {settings.get('temperature')}, seed {how}"] = None
    if unseeded:
        remedy = "leave replicate at 0, so that calls have seeds"
        yield _missing(question, f"the server draws anew in {', '.join(unseeded)}", remedy)
    elif said:
        yield _ok(question, "; ".join(said))
    else:
        yield _unknown(question, "no settings are recorded", "Study(..., tape='study.tape')")


def _paraphrases(evidence: Evidence) -> _Items:
    question = "other wordings of the prompt"
    if not evidence.calls:
        return
    levels = evidence.study._factors.get("prompt", {})
    if len(levels) > 1:
        found = (
            f"{len(levels)} prompts, {', '.join(levels)}; whether they mean the same is not told"
        )
        yield _unknown(question, found, "say which of them are paraphrases, and show their spread")
    else:
        remedy = "vary={'prompt': {'as it is': None, 'reworded': '...'}}: a wording is one draw"
        yield _missing(question, "one wording", remedy)


def _models(evidence: Evidence) -> _Items:
    question = "more than one model"
    if not evidence.calls:
        return
    names = {
        (it.get("backend"), it.get("name"), it.get("digest"))
        for models in evidence.models.values()
        for it in models
    }
    if len(names) > 1:
        yield _ok(question, ", ".join(sorted(str(name[1]) for name in names)))
    else:
        remedy = "vary={'model': ['ollama:a', 'ollama:b']}: the effect is this model's"
        yield _missing(question, "one", remedy)


# --- the economy ---------------------------------------------------------------------------------


def _gate(evidence: Evidence) -> _Items:
    config = evidence.config(evidence.study._arms[0].name)
    if not isinstance(config, SimulationConfig) or not evidence.calls:
        return
    question = "the model passes the economic gate"
    models = [it for models in evidence.models.values() for it in models]
    for model in {str(it.get("name")): it for it in models}.values():
        info = ModelInfo(
            name=str(model.get("name")),
            backend=str(model.get("backend")),
            digest=model.get("digest"),
        )
        cards = [it for it in kept_economics_cards() if it.is_of(info)]
        cards = [it for it in cards if it.told == config.briefing]
        command = f"llmsim-lab doctor {info.backend}:{info.name} --economics"
        if not cards:
            found = f"no card of {info.name} is kept on this machine"
            yield _unknown(question, found, command)
        elif (outcome := cards[-1].outcome(config.decide or "sample")) == "pass":
            yield _ok(question, cards[-1].verdict)
        elif outcome == "fail":
            remedy = "another model: this one does not answer the economy"
            yield _missing(question, clip(cards[-1].verdict, 300), remedy)
        else:
            yield _unknown(question, clip(cards[-1].verdict, 300), command)


def _memory(evidence: Evidence) -> _Items:
    if not evidence.calls:
        return
    configs = [evidence.config(arm) for arm in evidence.study.arms]
    starts = {it.start for it in configs if isinstance(it, SimulationConfig) and it.start}
    if not starts:
        return
    masked = all(it.masked and it.briefing == "economist" for it in configs)
    told = "dates and names are masked" if masked else "dates or names are told"
    where = f"the runs start from {', '.join(sorted(starts))}, {told}"
    question, tape = "the model does not recall the history", evidence.study.tape
    recalls = list(recorded_recalls(tape)) if tape is not None else []
    asked = {_model_name(it): it for models in evidence.models.values() for it in models}
    for name in asked or {"": {}}:
        tests = [it for it in recalls if _model_name(it.model) == name and it.flagged is not None]
        if not tests:
            found = f"{where}; no whole test of {name or 'the model'} is on the tape"
            remedy = "study.memorisation(model, tape=the study's own), and report it"
            yield _unknown(question, found, remedy)
        elif tests[-1].flagged:
            found = f"{where}; {name} is closer to history when told which it is"
            remedy = "masked briefings and starts of your own; say how far effects rest on recall"
            yield _missing(question, found, remedy)
        else:
            found = f"{where}; no evidence that {name} does, asked at {tests[-1].starts} starts"
            yield _ok(question, found)


# --- the record ----------------------------------------------------------------------------------


def _code(evidence: Evidence) -> _Items:
    question = "one version of the code"
    if not evidence.manifests:
        return
    manifests = list(evidence.manifests.values())
    packages = {str(it.get("package")) for it in manifests}
    revisions = {str(it["git"]) for it in manifests if it.get("git")}
    digests = {str(sorted((it.get("code") or {}).items())) for it in manifests}
    said = f"llmsim-lab {', '.join(sorted(packages))}"
    if revisions:
        short = sorted(it[:12] + "+" * it.endswith("+") for it in revisions)
        said += f", revision {', '.join(short)}"
    if len(packages) > 1 or len(digests) > 1:
        found = f"runs were played by {max(len(packages), len(digests))} versions: {said}"
        yield _missing(question, found, "play the study again on a new tape")
    elif any(it.endswith("+") for it in revisions):
        yield _missing(question, f"{said}: the folder had changes", "commit, then play")
    elif len(revisions) > 1:
        yield _missing(question, said, "say what changed between them, or play it again")
    elif not revisions:
        yield _unknown(question, f"{said}; no git revision", "keep the study's code in git")
    else:
        yield _ok(question, said)


def _verified(evidence: Evidence) -> _Items:
    question, tape = "the tape is whole", evidence.study.tape
    if tape is None:
        remedy = "Study(..., tape='study.tape'): a referee can replay it without a model"
        yield _missing(question, "the runs are on no tape", remedy)
        return
    try:
        findings = [str(it) for it in verify(tape)]
    except LabError as error:
        findings = [str(error)]
    if findings:
        said = f"{len(findings)} findings: {'; '.join(findings[:_SHOWN])}"
        yield _missing(question, clip(said, 400), f"llmsim-lab tape verify {tape.path.name}")
    else:
        yield _ok(question, f"verify finds nothing in the {len(tape)} runs of {tape.path.name}")


_QUESTIONS: Sequence[Callable[[Evidence], _Items]] = (
    _registered,
    _stop_rule,
    _seeds,
    _same_twice,
    _family,
    _units,
    _failed,
    _decisions,
    _digest,
    _sampling,
    _models,
    _paraphrases,
    _gate,
    _memory,
    _code,
    _verified,
)
