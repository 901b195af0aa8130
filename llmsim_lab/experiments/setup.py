"""What an experiment is set up with, checked before anything is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from llmsim_lab.checks import real_number, whole_number
from llmsim_lab.errors import ConfigError
from llmsim_lab.experiments.bench import Bench
from llmsim_lab.llm import LLMClient, LLMConfig, Tape
from llmsim_lab.llm.tape import RunInfo
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs._registry import kind_name
from llmsim_lab.simulation import Simulation
from llmsim_lab.text import clip

__all__ = [
    "Variant",
    "check_rendering",
    "check_variants",
    "config_of",
    "prompt_of",
    "prompts_of",
    "run_on",
    "seed_of",
    "source_of",
    "turn_numbers",
    "turns_of",
]

Variant = Prompt | str | None
"""A prompt, a prompt's text, or None for the prompt as the run used it."""

_THE_CLIENTS_OWN = ("model", "timeout_s", "retry_wait_s", "max_concurrency", "keep_alive")
"""Settings that say where and how patiently to ask, not what."""

_MOST_RUNS = 20
"""How many runs a message lists."""


def run_on(tape: Tape, run: int | None) -> int:
    """Return the number of the run to experiment on.

    Args:
        tape: the tape.
        run: the run's number; may be left out where the tape holds one economic run.

    Raises:
        ConfigError: there are several, or none; the message lists them.
        TapeError: there is no run of that number.
    """
    if run is not None:
        return tape.run(run).id
    infos = {info.id: info for info in tape.runs()}
    there = [
        info
        for info in infos.values()
        if info.verb != "experiment" and kind_name(info.manifest) == Simulation.kind
    ]
    if len(there) == 1:
        return there[0].id
    if not there:
        raise ConfigError(
            f"{tape.path} holds no run of the kind {Simulation.kind!r}, which a comparison of "
            "prompts needs; PromptViewer shows the prompts of any"
        )
    listed = "; ".join(_in_words(info, infos) for info in there[:_MOST_RUNS])
    more = f"; and {len(there) - _MOST_RUNS} more" if len(there) > _MOST_RUNS else ""
    raise ConfigError(
        f"{tape.path} holds {len(there)} runs, and a comparison of prompts is about one: "
        f"{listed}{more}"
    )


def _in_words(info: RunInfo, others: Mapping[int, RunInfo]) -> str:
    words = [f"{info.name!r:.80}", f"turns to {info.turns}"]
    parent = others.get(info.parent or 0)
    if parent is not None:
        at = "" if info.fork_turn is None else f" at turn {info.fork_turn}"
        mine, theirs = (each.manifest.get("prompts") or {} for each in (info, parent))
        edited = [place for place in mine if place in theirs and mine[place] != theirs[place]]
        other = f" with another prompt of {clip(', '.join(edited), 80)}" if edited else ""
        words.append(f"a {info.verb} of run {parent.id}{at}{other}")
    return f"run={info.id} ({', '.join(words)})"


def source_of(simulation: Simulation) -> str:
    """Return which run a simulation is, in words: its number, its name, its tape."""
    name = f"{simulation.config.name!r:.80}"
    if simulation.tape is None:
        return f"{name}, which is on no tape"
    return f"run {simulation.run_id} {name} of {simulation.tape.path.name}"


def prompts_of(variants: Mapping[str, Variant], bench: Bench) -> dict[str, Prompt]:
    """Return the variants as prompts that the component can fill.

    Raises:
        ConfigError: there are fewer than two, or one is wrong.
    """
    check_variants(variants)
    if len(variants) < 2:
        raise ConfigError(
            f"variants={dict(variants)!r:.80}: an experiment compares two or more; "
            "{'as it was': None, 'mine': prompt.replace('old words', 'new words')}"
        )
    prompts = {}
    for name, variant in variants.items():
        prompts[name] = prompt_of(name, variant, bench)
        bench.check(prompts[name], name=name)
    return prompts


def check_variants(variants: object) -> None:
    """Refuse what is no mapping of names to prompts.

    Raises:
        ConfigError: it shows what one looks like.
    """
    if not isinstance(variants, Mapping) or not variants:
        raise ConfigError(
            f"variants={variants!r:.80} must be prompts by name, such as "
            "{'as it was': None, 'mine': prompt.replace('old words', 'new words')}"
        )


def prompt_of(name: str, variant: Variant, bench: Bench) -> Prompt:
    """Return a variant as a prompt; whether its slots are right is not looked at.

    Raises:
        ConfigError: the name is empty or no text, or the variant is none.
    """
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"a variant needs a name that is not empty, not {name!r:.80}")
    prompt = variant
    if prompt is None:
        prompt = bench.prompt
    elif isinstance(prompt, str):
        prompt = bench.prompt.edit(prompt)
    if not isinstance(prompt, Prompt):
        raise ConfigError(
            f"variant {name!r} is {type(variant).__name__}; give a Prompt, a prompt's text, or "
            "None for the prompt as the run used it"
        )
    return prompt


def turn_numbers(turns: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of turns, each once.

    Raises:
        ConfigError: they are no sequence of whole numbers.
    """
    if isinstance(turns, str) or not isinstance(turns, Iterable):
        raise ConfigError(f"turns={turns!r:.80} must be the turns' numbers, such as turns=(1, 3)")
    return tuple(dict.fromkeys(whole_number("turn", turn, least=1) for turn in turns))


def turns_of(turns: Sequence[int] | None, bench: Bench) -> tuple[int, ...]:
    """Return the turns to play again, all if none are named.

    Raises:
        ConfigError: they are no whole numbers, or the component was not asked in one of them.
    """
    there = bench.turns
    if not there:
        raise ConfigError(
            f"the run has no turn in which the {bench.stage} was asked; play some turns first"
        )
    if turns is None:
        return tuple(there)
    wanted = turn_numbers(turns)
    if not wanted:
        raise ConfigError(f"turns is empty; choose from {', '.join(map(str, there))}")
    if lost := [turn for turn in wanted if turn not in there]:
        raise ConfigError(
            f"turns={list(wanted)}: the {bench.stage} was not asked in turn "
            f"{', '.join(map(str, lost))}; choose from {', '.join(map(str, there))}"
        )
    return wanted


def config_of(
    simulation: Simulation, client: LLMClient | None, temperature: float | None
) -> LLMConfig:
    """Return the settings that samples are asked with: the recorded ones, on the given model.

    Raises:
        ConfigError: the client or the temperature is none.
    """
    if client is not None and not isinstance(client, LLMClient):
        raise ConfigError(
            f"llm_client={client!r:.80} is no LLMClient; llm_client=connect('auto') is one"
        )
    recorded = simulation.llm_client.config if simulation.llm_client else None
    asked = client.config if client else LLMConfig()
    values = (recorded or asked).model_dump()
    values |= {name: getattr(asked, name) for name in _THE_CLIENTS_OWN}
    if temperature is not None:
        values["temperature"] = real_number("temperature", temperature)
    try:
        return LLMConfig(**values)
    except ValueError as error:
        raise ConfigError(f"temperature={temperature!r}: {error}") from error


def seed_of(seed: int | None, config: LLMConfig) -> int:
    """Return the seed that the samples' seeds follow: the client's, else 0, if none is given.

    Raises:
        ConfigError: it is no whole number, or negative: servers take -1 for a random one.
    """
    return whole_number("seed", (config.seed or 0) if seed is None else seed, least=0)


def check_rendering(variants: Mapping[str, Prompt], turns: Sequence[int], bench: Bench) -> None:
    """Refuse variants that cannot be rendered on one of the states.

    Raises:
        ConfigError: it names variant and turn.
    """
    for name, prompt in variants.items():
        for turn in turns:
            for agent in bench.subjects(turn):
                try:
                    bench.render(prompt, turn, agent=agent)
                except ConfigError as error:
                    raise ConfigError(f"variant {name!r} at turn {turn}: {error}") from error
