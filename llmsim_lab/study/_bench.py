"""A turn of a recorded run, played again with another prompt for one of its components.

What comes before the component in the turn is taken from the recording; the component, and what
comes after it, are asked. So all variants get the same state. What an experiment is set up with is
checked here before anything is asked.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from llmsim_lab._util.checks import plain_text, real_number, whole_number
from llmsim_lab._util.text import clip
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.economy._shocks import NO_SHOCKS
from llmsim_lab.engines import EconomicEngine
from llmsim_lab.errors import ConfigError, FailureReason, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, Tape
from llmsim_lab.llm._scope import CallLog, Recorder, recording
from llmsim_lab.models import Action, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import RenderedPrompt
from llmsim_lab.run._registry import kind_name
from llmsim_lab.run._run import CLIENT_SETTINGS
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation._simulation import Turn, brief
from llmsim_lab.tape._codec import RunInfo
from llmsim_lab.types import CallRecord, CallSite, LLMReasoningChain

Variant = Prompt | str | None
"""A prompt, a prompt's text, or None for the prompt as the run used it."""

Stage = Literal["agent", "validator", "engine"]
"""The parts of a turn, in the order in which they work."""

NO_SAMPLE: frozenset[FailureReason] = frozenset(
    ("connection_error", "rate_limited", "server_error", "client_error", "model_not_found")
)
"""Failures that say nothing about a prompt: the server's, not the model's."""

_MOST_RUNS = 20
"""How many runs a message lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One playing of a turn with one variant.

    Attributes:
        number: in the order of playing, from 1.
        variant: the variant's name.
        turn: the turn that is played again.
        sample: which of the variant's samples at this turn, from 1.
        seed: of the model's sampler; the same for all variants.
    """

    number: int
    variant: str
    turn: int
    sample: int
    seed: int


class Bench:
    """A run's turns and parts, to be played again.

    Args:
        simulation: the run; it is not changed.
        component: ``agent``, ``agent:NAME``, ``validator`` or ``engine``.
        only_component: whether to ask this component alone, and leave the rest of the turn out.

    Attributes:
        stage: the component's part of a turn.
        tested: the agents whose prompt is under test; empty for validator and engine.
        prompt: the component's prompt as the run used it.

    Raises:
        ConfigError: the run has no such component, or the component has no prompt.
    """

    def __init__(
        self, simulation: Simulation, component: str, *, only_component: bool = False
    ) -> None:
        self.simulation = simulation
        self.component = plain_text("component", component)
        self.only_component = only_component
        self.stage, self.tested = _part_tested(simulation, component)
        self.prompt = self._prompt()

    @property
    def _parts(self) -> list[Any]:
        if self.stage == "agent":
            return [agent for agent in self.simulation.agents if agent.name in self.tested]
        return [getattr(self.simulation, self.stage)]

    def _prompt(self) -> Prompt:
        prompts = []
        for part in self._parts:
            prompt = getattr(part, "prompt", None)
            if not isinstance(prompt, Prompt):
                raise ConfigError(
                    f"component={self.component!r}: {part!r} reads no prompt (a rule, or a part "
                    "with a prompt of its own making); choose a component that has one"
                )
            prompts.append(prompt)
        if len(set(prompts)) > 1:
            raise ConfigError(
                f"the agents {', '.join(self.tested)} use different prompts; compare one agent's: "
                f"component='agent:{self.tested[0]}'"
            )
        return prompts[0]

    @property
    def turns(self) -> list[int]:
        """The turns in which the run asked the component, oldest first."""
        return [turn.number for turn in self.simulation.turns[1:] if self.subjects(turn.number)]

    def turn(self, number: int) -> Turn:
        """Return the run's own record of a turn."""
        return self.simulation.turns[number - self.simulation.turns[0].number]

    def before(self, number: int) -> SimulationState:
        """Return the state that a turn was played from."""
        return self.turn(number - 1).state

    def subjects(self, number: int) -> list[str]:
        """Return the agents that the component decided for in a turn, by name."""
        if self.stage == "agent":
            return list(self.tested)
        actions = self.turn(number).actions
        if self.stage == "validator":
            return [action.agent_name for action in actions if action.status != "failed"]
        return [action.agent_name for action in actions if action.validated]

    def check(self, prompt: Prompt, *, name: str) -> None:
        """Raise ConfigError if a variant's slots are not the component's; it names the slots."""
        wanted, has = set(self.prompt.slots), set(prompt.slots)
        faults = []
        if unknown := sorted(has - wanted):
            faults.append(f"unknown slots {', '.join(unknown)}")
        if missing := sorted(wanted - has):
            faults.append(f"missing slots {', '.join(missing)}")
        if faults:
            raise ConfigError(
                f"variant {name!r}: {'; '.join(faults)}; the {self.stage} fills exactly: "
                f"{', '.join(self.prompt.slots) or 'none'}"
            )

    def render(self, prompt: Prompt, turn: int, *, agent: str | None = None) -> RenderedPrompt:
        """Return a variant rendered for a turn, as the model would get it.

        Args:
            prompt: the variant.
            turn: the turn.
            agent: who decides, or whose action is judged or applied; the first if not given.

        Raises:
            ConfigError: the component was not asked for that agent in that turn.
            PromptError: the variant cannot be rendered there.
        """
        names = self.subjects(turn)
        name = agent or (names[0] if names else "")
        if name not in names:
            raise ConfigError(
                f"the {self.stage} was not asked for {name!r} in turn {turn}, but for: "
                f"{', '.join(names) or 'no agent'}"
            )
        # These methods are private but named in the contracts, so any agent or engine has them.
        if self.stage == "agent":
            part = next(part for part in self._parts if part.name == name)
            text = _with(part, prompt=prompt)._construct_prompt(self.before(turn))
        else:
            part = _with(self._parts[0], prompt=prompt)
            action = next(a for a in self.turn(turn).actions if a.agent_name == name)
            if self.stage == "validator":
                text = part._construct_validation_prompt(action)
            else:
                state = self.before(turn).global_state
                text = part._construct_state_update_prompt(action, state)
        if not isinstance(text, RenderedPrompt):
            raise ConfigError(f"{part!r} does not render its prompt; it cannot be shown")
        return text

    def view(self, turns: Sequence[Turn], prompt: Prompt) -> Simulation:
        """Return the run with other turns and another prompt: to look at, without its tape."""
        view = copy.copy(self.simulation)
        # ``take_over`` counts the validator's actions anew; the run's own counts must stay.
        view.validator = copy.copy(view.validator)
        if self.stage == "agent":
            view.agents = tuple(
                _with(agent, prompt=prompt) if agent.name in self.tested else agent
                for agent in view.agents
            )
        else:
            setattr(view, self.stage, _with(self._parts[0], prompt=prompt))
        return view.take_over(turns, [], None)

    async def play(
        self, sample: Sample, prompt: Prompt, client: LLMClient, recorder: Recorder | None
    ) -> Turn:
        """Play a sample and return what came of it, as a turn with the sample's number.

        It has chains only of what was asked now. If the model failed, there is a chain of status
        ``failed`` that says why, and the state is that from before the turn.

        Raises:
            LLMFailureException: the server failed, which says nothing about the prompt.
        """
        log = CallLog(f"an experiment on {self.simulation.config.name}", sample.turn)
        state = before = self.before(sample.turn)
        work = _Work([_without_chains(action) for action in self.turn(sample.turn).actions])
        began = time.perf_counter()
        failed = None
        with recording(recorder, log):
            try:
                state = await self._play(work, before, prompt, client)
            except LLMFailureException as failure:
                if failure.reason in NO_SAMPLE:
                    raise
                failed = failure
        calls = log.close()
        chains = [*work.chains]
        if failed is None:
            chains += state.reasoning_chains
        else:  # the state is that from before, whose chains are not the sample's
            chains += _failed_chains(failed, calls, sample.turn, work.chains)
        return Turn(
            number=sample.number,
            state=state.model_copy(update={"reasoning_chains": tuple(chains)}),
            chains=tuple(chains),
            actions=tuple(work.actions),
            seconds=time.perf_counter() - began,
            calls=calls,
        )

    async def _play(
        self, work: _Work, before: SimulationState, prompt: Prompt, client: LLMClient
    ) -> SimulationState:
        simulation, turn = self.simulation, before.turn + 1
        asked: list[Action] = []
        if self.stage == "agent":
            agents = [
                _with(agent, prompt=prompt, client=client)
                for agent in simulation.agents
                if agent.name in self.tested
            ]
            first = simulation.turns[0].number
            dated = simulation.config.start is not None
            brief(agents, simulation.turns[: before.turn - first], us_past=dated)
            asked = await gather_all([agent.decide_action(before) for agent in agents])
            work.put(asked, (action.chain for action in asked))
        elif self.stage == "validator":
            plain = {"validated": False, "validation_result": None}
            asked = [action.model_copy(update=plain) for action in work.actions]
        if asked and not (self.only_component and self.stage == "agent"):
            changed = prompt if self.stage == "validator" else None
            validator = _with(simulation.validator, prompt=changed, client=client)
            marked = await validator.validate_actions(asked, before)
            verdicts = (action.validation_result for action in marked)
            work.put(marked, (verdict.chain for verdict in verdicts if verdict))
        if self.only_component and self.stage != "engine":
            return before.model_copy(update={"turn": turn, "reasoning_chains": ()})
        engine = _with(
            simulation.engine, prompt=prompt if self.stage == "engine" else None, client=client
        )
        if isinstance(engine, EconomicEngine):
            # A shock from outside hits on the way to the turn, so it is needed again.
            done = self.turn(turn).interventions
            engine.extra_shocks = {turn: sum((item.shocks for item in done), start=NO_SHOCKS)}
        engine.current_state = before
        state: SimulationState = await engine.run_turn(work.actions)
        return state


@dataclass(slots=True)
class _Work:
    """A turn's actions and chains so far; kept apart, since a failure needs them too."""

    actions: list[Action]
    chains: list[LLMReasoningChain] = field(default_factory=list)

    def put(self, changed: Sequence[Action], chains: Iterable[LLMReasoningChain | None]) -> None:
        """Replace the same agents' earlier actions, and add the chains."""
        new = {action.agent_name: action for action in changed}
        self.actions = [new.get(action.agent_name, action) for action in self.actions]
        self.chains += [chain for chain in chains if chain is not None]


def _without_chains(action: Action) -> Action:
    """Return a recorded action without its chains, which are the run's, not the sample's."""
    verdict = action.validation_result
    if verdict is not None:
        verdict = verdict.model_copy(update={"chain": None})
    return action.model_copy(update={"chain": None, "validation_result": verdict})


def _with(part: Any, *, prompt: Prompt | None = None, client: LLMClient | None = None) -> Any:
    """Return a copy of a part with another prompt and model."""
    new = copy.copy(part)
    if prompt is not None:
        new.prompt = prompt
    if client is not None and hasattr(part, "llm_client"):
        new.llm_client = client
    return new


def _part_tested(simulation: Simulation, component: str) -> tuple[Stage, tuple[str, ...]]:
    part, _, name = component.partition(":")
    names = [agent.name for agent in simulation.agents]
    if component == "agent":
        # If none reads a prompt, all are taken, and the error names one and says why.
        reading = (a for a in simulation.agents if isinstance(getattr(a, "prompt", None), Prompt))
        return "agent", tuple(agent.name for agent in reading) or tuple(names)
    if part == "agent" and name in names:
        return "agent", (name,)
    if component == "validator":
        return "validator", ()
    if component == "engine":
        return "engine", ()
    parts = ", ".join(["agent", *(f"agent:{name}" for name in names), "validator", "engine"])
    raise ConfigError(f"component={component!r} is not a part of this run; it has: {parts}")


def _failed_chains(
    failure: LLMFailureException,
    calls: Sequence[CallRecord],
    turn: int,
    chains: Sequence[LLMReasoningChain],
) -> list[LLMReasoningChain]:
    """Return chains for the calls that have none: those that failed, and those that others ended.

    Args:
        failure: what ended the sample.
        calls: what was asked.
        turn: the turn that was played.
        chains: those that there are.
    """
    # By identity: two equal calls, such as two agents', are two.
    known = {id(chain.call) for chain in chains}
    left = [call for call in calls if id(call) not in known]
    found: list[tuple[CallSite | None, str, CallRecord | None]] = [
        (
            call.request.site,
            str(failure) if call.history[-1].reason else "answered, but another call failed",
            call,
        )
        for call in left
    ]
    if not any(call.history[-1].reason for call in left):
        # The failed call was not noted: a chain without a call still says what went wrong.
        site = CallSite(component=failure.component or "call", turn=turn)
        found.append((site, str(failure), None))
    return [
        LLMReasoningChain(
            component=site.component if site else "call",
            agent=(site.agent if site else None) or "",
            turn=turn,
            reasoning=why,
            confidence=0.0,
            status="failed",
            call=call,
        )
        for site, why, call in found
    ]


def run_on(tape: Tape, run: int | None) -> int:
    """Return the number of the run to experiment on.

    Args:
        tape: the tape.
        run: the run's number; optional where the tape holds one economic run.

    Raises:
        ConfigError: there are several, which the message lists, or none.
        TapeError: there is no run of that number.
    """
    if run is not None:
        return tape.run(run).id
    infos = {info.id: info for info in tape.runs()}
    runs = [
        info
        for info in infos.values()
        if info.verb != "experiment" and kind_name(info.manifest) == Simulation.kind
    ]
    if len(runs) == 1:
        return runs[0].id
    if not runs:
        raise ConfigError(
            f"{tape.path} holds no run of the kind {Simulation.kind!r}, which a comparison of "
            "prompts needs; PromptViewer shows the prompts of any"
        )
    listed = "; ".join(_in_words(info, infos) for info in runs[:_MOST_RUNS])
    more = f"; and {len(runs) - _MOST_RUNS} more" if len(runs) > _MOST_RUNS else ""
    raise ConfigError(
        f"{tape.path} holds {len(runs)} runs, and a comparison of prompts is about one: "
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
    """Return a run's number, name and tape in words."""
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
    """Raise ConfigError if this is not a mapping of names to prompts; it shows one."""
    if not isinstance(variants, Mapping) or not variants:
        raise ConfigError(
            f"variants={variants!r:.80} must be prompts by name, such as "
            "{'as it was': None, 'mine': prompt.replace('old words', 'new words')}"
        )


def prompt_of(name: str, variant: Variant, bench: Bench) -> Prompt:
    """Return a variant as a prompt, without checking its slots.

    Raises:
        ConfigError: the name is empty or not a text, or the variant is not one.
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
        ConfigError: they are not a sequence of whole numbers.
    """
    if isinstance(turns, str) or not isinstance(turns, Iterable):
        raise ConfigError(f"turns={turns!r:.80} must be the turns' numbers, such as turns=(1, 3)")
    return tuple(dict.fromkeys(whole_number("turn", turn, least=1) for turn in turns))


def turns_of(turns: Sequence[int] | None, bench: Bench) -> tuple[int, ...]:
    """Return the turns to play again; if not given, all in which the component was asked.

    Raises:
        ConfigError: they are not whole numbers, or the component was not asked in one of them.
    """
    possible = bench.turns
    if not possible:
        raise ConfigError(
            f"the run has no turn in which the {bench.stage} was asked; play some turns first"
        )
    if turns is None:
        return tuple(possible)
    wanted = turn_numbers(turns)
    choose = f"choose from {', '.join(map(str, possible))}"
    if not wanted:
        raise ConfigError(f"turns is empty; {choose}")
    if lost := [turn for turn in wanted if turn not in possible]:
        raise ConfigError(
            f"turns={list(wanted)}: the {bench.stage} was not asked in turn "
            f"{', '.join(map(str, lost))}; {choose}"
        )
    return wanted


def config_of(
    simulation: Simulation, client: LLMClient | None, temperature: float | None
) -> LLMConfig:
    """Return the settings that samples are asked with: the recorded ones, on the given model.

    Raises:
        ConfigError: the client is not an ``LLMClient``, or the temperature is out of range.
    """
    if client is not None and not isinstance(client, LLMClient):
        raise ConfigError(
            f"llm_client={client!r:.80} is not an LLMClient; llm_client=connect('auto') is one"
        )
    recorded = simulation.llm_client.config if simulation.llm_client else None
    asked = client.config if client else LLMConfig()
    # What was asked stays as recorded (temperature, context size ...), so that samples compare.
    values = (recorded or asked).model_dump()
    values |= {name: getattr(asked, name) for name in CLIENT_SETTINGS}
    if temperature is not None:
        values["temperature"] = real_number("temperature", temperature)
    try:
        return LLMConfig(**values)
    except ValueError as error:
        raise ConfigError(f"temperature={temperature!r}: {error}") from error


def seed_of(seed: int | None, config: LLMConfig) -> int:
    """Return the seed from which the samples' seeds count; if not given the client's, or else 0.

    Raises:
        ConfigError: it is not a whole number, or negative: to servers, -1 means a random seed.
    """
    return whole_number("seed", (config.seed or 0) if seed is None else seed, least=0)


def check_rendering(variants: Mapping[str, Prompt], turns: Sequence[int], bench: Bench) -> None:
    """Raise ConfigError if a variant cannot be rendered for one of the turns; it names both."""
    for name, prompt in variants.items():
        for turn in turns:
            for agent in bench.subjects(turn):
                try:
                    bench.render(prompt, turn, agent=agent)
                except ConfigError as error:
                    raise ConfigError(f"variant {name!r} at turn {turn}: {error}") from error
