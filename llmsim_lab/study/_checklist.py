"""What a referee of a study would ask, answered from its tape and its design.

Each answer is ``ok``, ``missing``, or ``unknown`` where the study does not hold what would tell. It
is never a guess: what was done elsewhere, such as a check of the model that is not kept on this
machine, is unknown. Questions that a study does not raise, such as those about models in one that
asked none, are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from llmsim_lab._util.html import badge, table
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import clip, counted
from llmsim_lab.errors import LabError
from llmsim_lab.simulation import SimulationConfig
from llmsim_lab.study._design import AA, AnyStudy
from llmsim_lab.study._gate import kept_economics_cards
from llmsim_lab.study._memory import recorded_recalls
from llmsim_lab.tape import verify
from llmsim_lab.types import ModelInfo

if TYPE_CHECKING:
    import pandas as pd

    from llmsim_lab.study._statistics import Effect

Answer = Literal["ok", "missing", "unknown"]
STATUSES = ("ok", "repaired", "fallback", "failed")
_SHOWN = 3
LIKE = {"ok": "ok", "missing": "failed", "unknown": "repaired"}
"""The status of a decision that has the answer's colour."""
_MARKS = {"ok": "✓", "missing": "✗", "unknown": "?"}


@dataclass(frozen=True, slots=True)
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
        return frame_of([asdict(item) for item in self])

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
    return Checklist(
        ChecklistItem(question, *found) for question, ask in _QUESTIONS for found in ask(evidence)
    )


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
        kept = study._player.kept
        self.begun = [it for it in study._in_order() if it.run is not None or it.key in kept]

    @cached_property
    def manifests(self) -> dict[tuple[str, int], Mapping[str, Any]]:
        """What defines each run that is on the tape, by arm and seed."""
        tape = self.study.tape
        if tape is None:
            return {}
        infos = {info.id: info for info in tape.runs()}
        return {it.key: infos[it.run].manifest for it in self.begun if it.run is not None}

    @cached_property
    def statuses(self) -> dict[str, Counter[str]]:
        """How many decisions of each status an arm's runs have, those of failed runs included."""
        found: dict[str, Counter[str]] = {arm: Counter() for arm in self.study.arms}
        for entry in self.begun:
            for row in self.study._rows(entry):
                found[entry.arm] += Counter({name: row.get(name) or 0 for name in STATUSES})
                found[entry.arm]["calls"] += row.get("calls") or 0
        return found

    @cached_property
    def effects(self) -> list[Effect] | LabError:
        """What is compared, or what is wrong with the outcomes; none where nothing is.

        Only what makes an interval possible is read of them, and no estimate: it is not a look.
        """
        study, plan = self.study, self.study._registered
        if not study.counts["done"] or not study.outcome or (plan or study.reference) is None:
            return []
        from llmsim_lab.study._statistics import run_effects  # here, since it imports numpy

        contrasts = [(a, b) for a, b in plan["contrasts"]] if plan else None
        try:
            values = study.outcomes()
            values = values if contrasts else values[values["arm"] != AA]
            return run_effects(values, reference=study.reference, contrasts=contrasts)
        except LabError as error:
            return error

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

    @property
    def every_model(self) -> list[Mapping[str, Any]]:
        """The same of all arms, one after another."""
        return [it for models in self.models.values() for it in models]

    def settings(self, arm: str) -> Mapping[str, Any]:
        """Return the settings that an arm's model was asked with; empty where it has none."""
        for (which, _), manifest in self.manifests.items():
            if which == arm and isinstance(manifest.get("llm"), Mapping):
                return dict(manifest["llm"])
        for entry in self.begun:
            run = self.study._player.kept.get(entry.key)
            if entry.arm == arm and run is not None and run.llm_client is not None:
                return dict(run.llm_client.config.model_dump(mode="json"))
        return {}

    def config(self, arm: str) -> Any:
        """Return an arm's configuration, of the first seed."""
        study = self.study
        return study._world.trial(study._by_name[arm], study.seeds[0]).config


_Answers = Iterator[tuple[Answer, str] | tuple[Answer, str, str]]
"""What is answered to one question: how, what there is, and what to do about it."""
_Ask = Callable[[Evidence], _Answers]
_QUESTIONS: list[tuple[str, _Ask]] = []


def _asks(question: str) -> Callable[[_Ask], _Ask]:
    """Put a function on the list as what answers this question; in the order of this file."""

    def on_the_list(ask: _Ask) -> _Ask:
        _QUESTIONS.append((question, ask))
        return ask

    return on_the_list


# --- the plan ------------------------------------------------------------------------------------


@_asks("registered before it was played")
def _registered(evidence: Evidence) -> _Answers:
    study, begun, noted = evidence.study, len(evidence.begun), evidence.study._registrations
    named = {digest for digest in noted.values() if digest is not None}
    plan = study._registered
    if study.tape is None and plan is not None and begun:
        why = "the runs are on no tape, which would say what was registered when they began"
        yield "unknown", why, "Study(..., tape='study.tape')"
    elif plan is not None and begun and named != {plan["digest"]}:
        before = sum(digest != plan["digest"] for digest in noted.values())
        found = f"{before} of {begun} runs were begun before, or under another plan"
        yield "missing", found, "say so in the text; register the next study first"
    elif plan is not None:
        whole = f", and all {begun} runs were begun after it" if begun else ""
        yield "ok", f"plan {plan['digest'][:12]}{whole}"
    elif named:
        digests = ", ".join(sorted(it[:12] for it in named))
        found = f"runs name the plan {digests}, which was not read here"
        yield "unknown", found, "study.register(path) with that file compares them"
    else:
        remedy = "before the next study: study.register('plan.yaml', hypotheses=[...])"
        yield "missing", "no plan", remedy


@_asks("number of runs and the rule for stopping")
def _stop_rule(evidence: Evidence) -> _Answers:
    study = evidence.study
    total = len(study._entries)
    early = sorted(it for it in study._looks if it < total)
    looks = f"; effects were looked at after {', '.join(map(str, early))} of {total} runs"
    if study._registered is None:
        found = f"{len(study.seeds)} seeds in each of {len(study.arms)} arms, not fixed beforehand"
        remedy = "register n and the rule, or effects(watched=True), which may be watched"
        yield "missing", found + looks * bool(early), remedy
    elif early:
        remedy = "report effects(watched=True), or say that it did not decide when to stop"
        yield "missing", study._registered["stop"] + looks, remedy
    else:
        yield "ok", f"{study._registered['stop']}; no look before"


@_asks("same seeds in all arms")
def _seeds(evidence: Evidence) -> _Answers:
    study = evidence.study
    done = [it for it in study._entries.values() if it.status == "done"]
    shared = set.intersection(*({it.seed for it in done if it.arm == arm} for arm in study.arms))
    if len(study.arms) < 2:
        yield "missing", "one arm, so nothing is compared", "vary={'factor': [...]}"
    elif len(shared) == len(study.seeds):
        yield "ok", f"{len(shared)} seeds, complete in each of {len(study.arms)} arms"
    else:
        found = f"{len(shared)} of {len(study.seeds)} seeds are complete in all arms"
        yield "missing", found, "study.run() plays what is left"


@_asks("an A/A arm")
def _same_twice(evidence: Evidence) -> _Answers:
    study = evidence.study
    if AA in study.arms:
        done = sum(it.status == "done" for it in study._entries.values() if it.arm == AA)
        yield "ok", f"the reference again with other call seeds, {done} runs"
    elif evidence.calls:
        yield "missing", "none", "Study(..., aa=True) shows what chance alone does"


# --- the effects ---------------------------------------------------------------------------------


@_asks("contrasts and outcomes are one family")
def _family(evidence: Evidence) -> _Answers:
    study, plan = evidence.study, evidence.study._registered
    if plan is None and study.reference is None:
        found = "no contrasts: a Latin hypercube has no reference arm"
        yield "unknown", found, "say how the factors were fitted, and how many fits"
        return
    pairs = len(plan["contrasts"]) if plan else len([it for it in study.arms if it != AA]) - 1
    size = pairs * len(study.outcome)
    if not study.outcome:
        yield "missing", "no outcome is named", "Study(..., outcome='a column')"
    elif size:
        what = f"{counted(pairs, 'contrast')} in {counted(len(study.outcome), 'outcome')}"
        yield "ok", f"{what}, p-values adjusted over all {size}" if size > 1 else "just one"


@_asks("the interval's unit")
def _units(evidence: Evidence) -> _Answers:
    found = evidence.effects
    if isinstance(found, LabError):
        yield "missing", str(found), "an outcome that is a number for every run"
        return
    without = {it.outcome: it.note for it in found if it.low is None}
    if without:
        whys = "; ".join(f"{name}: {note}" for name, note in list(without.items())[:_SHOWN])
        remedy = "more seeds, or an outcome that varies; report no interval for these"
        yield "missing", f"no interval for {whys}", remedy
    elif found:
        least = min(it.n for it in found)
        yield "ok", f"runs: n = {least} or more pairs; no calls or turns are counted"


@_asks("outcomes not coarser than a step")
def _coarse(evidence: Evidence) -> _Answers:
    found = evidence.effects
    if isinstance(found, LabError) or not found:
        return
    # As the effects say it themselves, so that both say the same.
    coarse = {it.outcome: it for it in reversed(found) if "too coarse" in it.note}
    if coarse:
        steps = (f"{it.contrast}, {name}: {it.note}" for name, it in coarse.items())
        remedy = "take a mean over turns, or a finer outcome; Student's t does not hold here"
        yield "missing", "; ".join(steps), remedy
    else:
        yield "ok", "no outcome lies on a grid that is wider than its spread"


@_asks("no run failed, none is left")
def _failed(evidence: Evidence) -> _Answers:
    study = evidence.study
    entries = study._entries.values()
    by_arm = {arm: Counter(it.status for it in entries if it.arm == arm) for arm in study.arms}
    parts = [
        f"{arm}: {', '.join(f'{n} {it}' for it, n in counts.items() if it != 'done')} of "
        f"{counts.total()} ({counts['failed'] / counts.total():.0%} failed)"
        for arm, counts in by_arm.items()
        if counts["done"] < counts.total()
    ]
    if parts:
        remedy = "study.run() tries them again; else report the share by arm, and why"
        yield "missing", "; ".join(parts), remedy
    else:
        yield "ok", f"all {len(study._entries)} are done"


@_asks("decisions as they were made")
def _decisions(evidence: Evidence) -> _Answers:
    parts, bad = [], False
    for arm, counts in evidence.statuses.items():
        decided = sum(counts[name] for name in STATUSES)
        if decided:
            shares = {name: counts[name] / decided for name in STATUSES[1:] if counts[name]}
            bad = bad or bool(counts["fallback"] or counts["failed"])
            said = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
            parts.append(f"{arm}: {said or 'all ok'} of {decided:,}")
    if not parts or not evidence.calls:  # what rules decide is not counted by status
        return
    if bad:
        remedy = "report the shares by arm: a fallback is a default that nobody chose"
        yield "missing", "; ".join(parts), remedy
    else:
        yield "ok", "; ".join(parts)


# --- the model -----------------------------------------------------------------------------------


@_asks("which model")
def _nobody(evidence: Evidence) -> _Answers:
    if not evidence.calls:
        yield "ok", "no model was asked: rules or chance play everybody"


@_asks("the model is known by digest, and is the same in all runs of an arm")
def _digest(evidence: Evidence) -> _Answers:
    if not evidence.calls:
        return
    several = [arm for arm, models in evidence.models.items() if len(models) > 1]
    every = evidence.every_model
    names = ", ".join(dict.fromkeys(map(_model_name, every)))
    if not evidence.manifests:
        yield "unknown", "the runs are on no tape", "Study(..., tape='study.tape')"
    elif several:
        found = f"{several[0]} was answered by {names}"
        yield "missing", found, "play that arm again with one model, on a new tape"
    elif every and all(model.get("digest") for model in every):
        yield "ok", names
    else:
        remedy = "name version and date in the text; Ollama and the embedded model give digests"
        yield "unknown", f"{names or 'none'}: no digest of the weights is given", remedy


def _model_name(model: Mapping[str, Any]) -> str:
    digest = model.get("digest")
    return f"{model.get('name')} ({model.get('backend')}{f', {digest[:12]}' if digest else ''})"


@_asks("temperature and seeds of the model's draws are recorded")
def _sampling(evidence: Evidence) -> _Answers:
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
        yield "missing", f"the server draws anew in {', '.join(unseeded)}", remedy
    elif said:
        yield "ok", "; ".join(said)
    else:
        yield "unknown", "no settings are recorded", "Study(..., tape='study.tape')"


@_asks("more than one model")
def _models(evidence: Evidence) -> _Answers:
    names = {(it.get("backend"), it.get("name"), it.get("digest")) for it in evidence.every_model}
    if len(names) > 1:
        yield "ok", ", ".join(sorted(str(name[1]) for name in names))
    elif evidence.calls:
        remedy = "vary={'model': ['ollama:a', 'ollama:b']}: the effect is this model's"
        yield "missing", "one", remedy


@_asks("other wordings of the prompt")
def _paraphrases(evidence: Evidence) -> _Answers:
    levels = evidence.study._factors.get("prompt", {})
    if evidence.calls and len(levels) > 1:
        found = (
            f"{len(levels)} prompts, {', '.join(levels)}; whether they mean the same is not told"
        )
        yield "unknown", found, "say which of them are paraphrases, and show their spread"
    elif evidence.calls:
        remedy = "vary={'prompt': {'as it is': None, 'reworded': '...'}}: a wording is one draw"
        yield "missing", "one wording", remedy


# --- the economy ---------------------------------------------------------------------------------


@_asks("the model passes the economic gate")
def _gate(evidence: Evidence) -> _Answers:
    config = evidence.config(evidence.study._arms[0].name)
    if not isinstance(config, SimulationConfig) or not evidence.calls:
        return
    models = {str(it.get("name")): it for it in evidence.every_model}
    kept = [it for it in kept_economics_cards() if it.told == config.briefing]
    for name, model in models.items():
        info = ModelInfo(name=name, backend=str(model.get("backend")), digest=model.get("digest"))
        cards = [it for it in kept if it.is_of(info)]
        command = f"llmsim-lab doctor {info.backend}:{info.name} --economics"
        if not cards:
            yield "unknown", f"no card of {info.name} is kept on this machine", command
        elif (outcome := cards[0].outcome(config.decide or "sample")) == "pass":
            yield "ok", cards[0].verdict
        elif outcome == "fail":
            remedy = "another model: this one does not answer the economy"
            yield "missing", clip(cards[0].verdict, 300), remedy
        else:
            yield "unknown", clip(cards[0].verdict, 300), command


@_asks("the model does not recall the history")
def _memory(evidence: Evidence) -> _Answers:
    configs = [evidence.config(arm) for arm in evidence.study.arms]
    starts = {it.start for it in configs if isinstance(it, SimulationConfig) and it.start}
    if not starts or not evidence.calls:
        return
    masked = all(it.masked and it.briefing == "economist" for it in configs)
    told = "dates and names are masked" if masked else "dates or names are told"
    where = f"the runs start from {', '.join(sorted(starts))}, {told}"
    tape = evidence.study.tape
    recalls = list(recorded_recalls(tape)) if tape is not None else []
    for name in dict.fromkeys(map(_model_name, evidence.every_model)) or {"": None}:
        tests = [it for it in recalls if _model_name(it.model) == name and it.flagged is not None]
        if not tests:
            found = f"{where}; no whole test of {name or 'the model'} is on the tape"
            remedy = "study.memorisation(model, tape=the study's own), and report it"
            yield "unknown", found, remedy
        elif tests[-1].flagged:
            found = f"{where}; {name} is closer to history when told which it is"
            remedy = "masked briefings and starts of your own; say how far effects rest on recall"
            yield "missing", found, remedy
        else:
            yield "ok", f"{where}; no evidence that {name} does, asked at {tests[-1].starts} starts"


# --- the record ----------------------------------------------------------------------------------


@_asks("one version of the code")
def _code(evidence: Evidence) -> _Answers:
    manifests = list(evidence.manifests.values())
    if not manifests:
        return
    packages = {str(it.get("package")) for it in manifests}
    digests = {str(sorted((it.get("code") or {}).items())) for it in manifests}
    said = f"llmsim-lab {', '.join(sorted(packages))}"
    if len(packages) > 1 or len(digests) > 1:
        found = f"runs were played by {max(len(packages), len(digests))} versions: {said}"
        yield "missing", found, "play the study again on a new tape"
    else:
        yield "ok", said


@_asks("the tape is whole")
def _verified(evidence: Evidence) -> _Answers:
    tape = evidence.study.tape
    if tape is None:
        remedy = "Study(..., tape='study.tape'): a referee can replay it without a model"
        yield "missing", "the runs are on no tape", remedy
        return
    try:
        findings = [str(it) for it in verify(tape)]
    except LabError as error:
        findings = [str(error)]
    if findings:
        said = f"{len(findings)} findings: {'; '.join(findings[:_SHOWN])}"
        yield "missing", clip(said, 400), f"llmsim-lab tape verify {tape.path.name}"
    else:
        yield "ok", f"verify finds nothing in the {len(tape)} runs of {tape.path.name}"
