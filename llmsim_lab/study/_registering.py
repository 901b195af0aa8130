"""How a study is registered: which effects it claims, and the facts that its file states.

The file itself is ``registration``'s.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from llmsim_lab._util.checks import known_names
from llmsim_lab._util.files import is_there, temporary_folder
from llmsim_lab._util.jsontext import as_mapping
from llmsim_lab._util.text import error_text, listed
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import ConfigError
from llmsim_lab.run import Run
from llmsim_lab.run.records import clients_of, entries_of
from llmsim_lab.run.registry import identity
from llmsim_lab.study._comparing import (
    EffectOptions,
    effects_of,
    label_of_effects,
    remarks_of,
)
from llmsim_lab.study._prices import Prices
from llmsim_lab.study._results import StudyResults
from llmsim_lab.study._running import check_models
from llmsim_lab.study._setup import StudySetup
from llmsim_lab.study.cost import Count
from llmsim_lab.study.design import Arm, stable_json
from llmsim_lab.study.estimates.effects import effects
from llmsim_lab.study.estimates.estimate import Effects
from llmsim_lab.study.registration import (
    MODEL,
    Claims,
    Design,
    RegisteredPart,
    Registration,
    RunFacts,
    model_facts,
    models_of,
    prompts_of,
    read_registration,
    together,
    write_registration,
)


def register_study(
    results: StudyResults,
    path: Path,
    options: EffectOptions,
) -> Registration:
    """Write down what a study claims, or read the file that does; see ``Study.register``."""
    claims = _claims_of(results, options)
    if not is_there(path):
        return _write_plan(results.setup, path, claims)
    registered = read_registration(path)
    filed = registered.claims
    # Claims that the call leaves out are the file's, so that a script that is run again need not
    # repeat them.
    claims = replace(claims, outcomes=filed.outcomes)
    if options.formula is None and options.contrasts is None:
        claims = replace(
            claims,
            formula=filed.formula,
            contrasts=filed.contrasts,
        )
    if options.sesoi is None:
        claims = replace(claims, sesoi=filed.sesoi)
    if options.paired is None:
        claims = replace(claims, paired=filed.paired)
    if claims != filed:
        changed_since = "" if registered.is_unchanged else " (the file was changed since)"
        raise ConfigError(
            f"{path} registered other claims{changed_since}: {filed.family}; level "
            f"{filed.level:g}, sesoi {filed.sesoi}, paired {filed.paired}, typical "
            f"{filed.typical}. It is kept as it is: show other effects by study.effects(...), "
            "or register under another name"
        )
    _warn_of_changes(results.setup, registered)
    return registered


def _write_plan(
    setup: StudySetup,
    path: Path,
    claims: Claims,
) -> Registration:
    """Write what a study claims to a new file."""
    # The model is part of the plan.
    check_models(setup)
    begun = [run for run in setup.files.progress() if run.status != "left"]
    design = _design(setup, _planned_facts(setup))
    return write_registration(
        path,
        design,
        claims,
        runs_before=len(begun),
    )


def _warn_of_changes(setup: StudySetup, registered: Registration) -> None:
    """Warn if the file was changed, or if the study differs from what was registered."""
    if not registered.is_unchanged:
        setup.warn(
            "REGISTRATION_CHANGED",
            file=registered.path,
            reason="its content has another hash",
        )
    # Not an error: a study may grow, and its report says what was registered.
    parts = parts_of_registration(setup, registered)
    changed = [part.name for part in parts if part.status == "changed"]
    if changed:
        setup.warn(
            "REGISTRATION_NOT_KEPT",
            file=registered.path,
            parts=", ".join(changed),
        )


def parts_of_registration(
    setup: StudySetup,
    registered: Registration,
) -> list[RegisteredPart]:
    """Return what was registered, each part beside what was played."""
    # From the tapes, not from the study as it is now.
    facts = _played_facts(setup)
    return registered.compared(_design(setup, facts), facts.started)


def effects_of_registration(
    results: StudyResults,
    registered: Registration,
) -> Effects:
    """Return the effects that were registered; see ``Study.registered_effects``."""
    setup = results.setup
    claims = registered.claims
    missing = [arm for arm in registered.claimed_arms if arm not in setup.arms]
    if not set(claims.outcomes) & setup.outcomes.keys():
        missing += claims.outcomes
    if missing:
        raise ConfigError(
            f"{registered.path} claims effects of {listed(missing)}, which the study "
            f"does not have; it has the arms {listed(list(setup.arms))} and the outcomes "
            f"{listed(list(setup.outcomes))}"
        )
    # In the registered order: a formula compares with the first level of each factor.
    arms = list(registered.design.arms)
    table = results.compared()
    is_claimed = table["outcome"].isin(claims.outcomes)
    is_registered = table["arm"].isin(arms)
    in_order = table[is_claimed & is_registered].sort_values(
        "arm",
        key=lambda names: names.map(arms.index),
        kind="stable",
    )
    contrasts = [(upper, lower) for upper, lower in claims.contrasts]
    estimates = effects(
        in_order,
        claims.formula,
        # A formula has no pairs of arms.
        contrasts=contrasts or None,
        generalises_to=setup.generalises_to,
        level=claims.level,
        sesoi=claims.sesoi,
        paired=claims.paired,
        typical=claims.typical,
        remarks=remarks_of(results),
    )
    estimates.label = label_of_effects(results, claims.paired)
    return estimates


def _claims_of(results: StudyResults, options: EffectOptions) -> Claims:
    """Return which effects are claimed, checked as ``Study.effects`` checks them."""
    setup = results.setup
    # Effects that cannot be computed cannot be claimed either.
    effects_of(results, options)
    outcomes = list(setup.outcomes)
    pairs: list[list[str]] = []
    if options.formula is not None:
        left, _, right = options.formula.rpartition("~")
        names = [name.strip() for name in re.split("[+*:]", right)]
        # Without runs, effects_of() does not notice a wrong name.
        known_names("factor", names, setup.factors)
        outcome = left.strip()
        if outcome:
            outcomes = list(known_names("outcome", outcome, outcomes))
    elif options.contrasts is not None:
        for upper, lower in options.contrasts:
            known_names("arm", [upper, lower], setup.arms)
            # Lists, since the file is JSON.
            pairs.append([upper, lower])
    else:
        pairs = [[arm, setup.reference] for arm in setup.arms if arm != setup.reference]
    if options.formula is None and not pairs:
        raise ConfigError("one arm: there is nothing to compare, and nothing to register")
    sesoi = options.sesoi
    if isinstance(sesoi, Mapping):
        sesoi = dict(sesoi)
    return Claims(
        formula=options.formula,
        contrasts=pairs,
        outcomes=outcomes,
        level=options.level,
        sesoi=sesoi,
        paired=setup.is_paired(options.paired),
        typical=options.typical,
    )


# --- the design, with models, prompts and code ---------------------------------------------------


def _design(setup: StudySetup, facts: RunFacts) -> Design:
    world = setup.world
    return Design(
        world=identity(world.cls),
        reference=setup.reference,
        arms={name: stable_json(arm.values) for name, arm in setup.arms.items()},
        fixed=stable_json(world.fixed),
        unit=setup.unit_name,
        units=list(setup.units),
        # A situation is continued by one turn.
        turns=1 if world.asks_again else world.turns,
        samples=setup.samples,
        outcomes=stable_json(setup.outcomes),
        models=facts.models,
        prompts=facts.prompts,
        code=facts.code,
    )


def _planned_facts(setup: StudySetup) -> RunFacts:
    """Return models, prompts and code as they are before anything is played."""
    models: dict[str, Any] = {}
    prompts: dict[str, Any] = {}
    for name, arm in setup.arms.items():
        trial = setup.trial(arm)
        trial.llm_client = setup.files.player.models.of(
            setup.world,
            arm,
            setup.world.recorded_llm,
        )
        models[name] = {}
        for seat, client in clients_of(trial).items():
            # From the server, which knows the digest of the weights.
            info = run_sync(client.model_info())
            settings = client.config.model_dump(mode="json")
            # The model that all others ask has no seat of its own.
            models[name][seat or MODEL] = model_facts(asdict(info), settings)
        # A world's own prompts are known only once they were asked with.
        played = run_sync(_played_by_chance(setup, arm))
        prompts[name] = prompts_of(entries_of(played.prompts))
    code = {**setup.world.code, "llmsim-lab": version("llmsim-lab")}
    return RunFacts(models, prompts, code)


async def _played_by_chance(setup: StudySetup, arm: Arm) -> Run:
    """Return a run of an arm in which chance answered some turns, so that it has prompts."""
    prices = Prices(setup.files, setup.source)
    with temporary_folder() as folder:
        run = next(prices.trials(arm, folder))
        try:
            await prices.count_turns(run, Count(len(setup.arms)))
        except Exception as error:  # noqa: BLE001 - a model may answer what chance does not
            setup.warn(
                "NOT_PLAYED_BY_CHANCE",
                arm=arm.name,
                error=error_text(error),
            )
    return run


def _played_facts(setup: StudySetup) -> RunFacts:
    """Return models and prompts of arms with a run, and code, as the tapes have them."""
    started: list[str] = []
    code: list[Mapping[str, Any]] = []
    # Arms without a run are left out: their models and prompts are not known yet.
    models: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    prompts: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in setup.files.entries.values():
        if entry.tape is None:
            continue
        for play, contents in setup.files.contents(entry).items():
            info = contents.info
            manifest = info.manifest
            started.append(info.started)
            models[entry.arm].append(models_of(manifest))
            code.append({**manifest["code"], "llmsim-lab": manifest["package"]})
            # Of the first wording alone, as in the plan.
            if play.wording == 0:
                entries = as_mapping(manifest.get("prompts"))
                prompts[entry.arm].append(prompts_of(entries))
    return RunFacts(
        {arm: together(of_runs) for arm, of_runs in models.items()},
        {arm: together(of_runs) for arm, of_runs in prompts.items()},
        together(code),
        started,
    )
