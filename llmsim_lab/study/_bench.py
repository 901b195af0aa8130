"""A turn of a recorded run, played again from its recorded state with something changed.

The run plays it itself: a branch of it makes one step. What was asked before the component, or
beside it, is answered from the recording; the component, and what comes after it, are asked. So all
variants get the same state. What a comparison is set up with is checked here before anything is
asked.
"""

from __future__ import annotations

import copy
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from llmsim_lab._util.checks import plain_text, real_number, whole_number
from llmsim_lab._util.text import clip, few
from llmsim_lab.errors import ConfigError, FailureReason, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, Tape
from llmsim_lab.llm._choose import Choice
from llmsim_lab.llm._scope import CallLog, Recorder, scope
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import RenderedPrompt
from llmsim_lab.run._run import CLIENT_SETTINGS, AnyRun, at_once, placed_in
from llmsim_lab.run._session import Session
from llmsim_lab.run._turn import Answer, RunTurn, decided
from llmsim_lab.run._turn import Turn as AnyTurn
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape._lines import RunInfo
from llmsim_lab.tape._recorder import Known
from llmsim_lab.types import Attempt, CallRecord, CallSite, ChatRequest, LLMReasoningChain

Turn = AnyTurn | RunTurn[Any, Any]
Change = Callable[[str], str]
Variant = Prompt | str | Change | LLMClient | None
"""A prompt, a prompt's text, a function of it, another model, or None for what the run used."""

Wordings = Variant | Sequence[Variant] | Mapping[str, Variant]
"""One variant, or several wordings of it."""

NO_SAMPLE: frozenset[FailureReason] = frozenset(
    ("connection_error", "rate_limited", "server_error", "client_error", "model_not_found")
)
"""Failures that say nothing about a prompt: the server's, not the model's."""

_SLOT = re.compile(r"\{[{%#].*?[}%#]\}", re.DOTALL)
_TELLING = 16
"""Characters of a line by which a template is known again in a prompt."""
_MOST_RUNS = 20
"""How many runs a message lists."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One playing of a turn with one variant.

    Attributes:
        number: in the order of playing, from 1; in a run's own turns, where there are several.
        variant: the variant's name; of an arm with several wordings, the wording's.
        turn: the turn that is played again.
        sample: which of the variant's samples at this turn, from 1.
        seed: of the model's sampler; the same for all variants, but not for wordings of one arm.
        run: the number of the run, where turns of several runs are played.
    """

    number: int
    variant: str
    turn: int
    sample: int
    seed: int
    run: int | None = None


class Bench:
    """A run's turns and what was asked in them, to be played again.

    Args:
        simulation: the run; it is not changed.
        component: who is asked otherwise, as the run's calls name it: ``agent``, ``agent:NAME``,
            ``engine``, ``player``, ...; ``agent``, or else the first that was asked, if empty.
        only_component: whether to ask this component alone, and leave the rest of the turn out.

    Attributes:
        stage: the component's name without the agent's.
        agent: the agent's name, or empty for all.
        stages: all components that were asked, in the order in which they work.
        prompt: the template that the component fills; None where it has none, or has several.

    Raises:
        ConfigError: the run has no such component, or its agents use different prompts.
    """

    def __init__(
        self, simulation: AnyRun, component: str = "", *, only_component: bool = False
    ) -> None:
        self.simulation = simulation
        self.only_component = only_component
        self._earlier: dict[int, dict[tuple[object, ...], list[Attempt]]] = {}
        self._asked: dict[int, list[tuple[str, str]]] = {
            turn.number: [
                (site.component, site.agent or "")
                for call in turn.calls
                if (site := call.request.site) is not None
            ]
            for turn in simulation.turns[1:]
        }
        sites = dict.fromkeys(site for turn in self._asked.values() for site in turn)
        # A place with a # is that of a template in a world's own ``turn``.
        of_parts = [place for place in simulation.prompts if "#" not in place]
        parts = [place.partition(":")[0] for place in of_parts]
        self.stages = list(dict.fromkeys([stage for stage, _ in sites] or parts))
        first = "agent" if "agent" in self.stages or not self.stages else self.stages[0]
        self.component = plain_text("component", component) or first
        parted = self.component.partition(":")
        self.stage, self.agent = parted[0], parted[2]
        of_agents = [f"{stage}:{agent}" for stage, agent in sites if agent]
        named = dict.fromkeys([*self.stages, *of_agents, *of_parts])
        if self.component not in named:
            if not named:
                raise ConfigError(
                    f"component={self.component!r}: {simulation!r} reads no prompt and asked no "
                    "model (all are rules); there is nothing to ask again"
                )
            raise ConfigError(
                f"component={component!r} is not a part of this run that reads a prompt; it has: "
                f"{', '.join(named)}"
            )
        self.places: dict[str, Prompt] = {
            place: prompt
            for place, prompt in simulation.prompts.items()
            if place == self.component
            or (not self.agent and (place.partition(":")[0] == self.stage or "#" in place))
        }
        if len(self.stages) > 1:
            self.places = {at: it for at, it in self.places.items() if self._reads(at, it)}
        different = set(self.places.values())
        if len(different) > 1 and not any("#" in place for place in self.places):
            raise ConfigError(
                f"the agents of {self.component} use different prompts; compare one agent's: "
                f"component={next(iter(self.places))!r}"
            )
        self.prompt = different.pop() if len(different) == 1 else None

    @property
    def _at_once(self) -> bool:
        # Parts of one kind are asked at once, and so are those who are asked under a tag or by one
        # player. Players without may be asked one after another.
        own_kind = isinstance(self.simulation.turns[0], AnyTurn) and self.stage != "player"
        return own_kind or at_once(self.simulation, self.stage)

    def _reads(self, place: str, prompt: Prompt) -> bool:
        """Return True if the component was asked with a world's template, by the words of it."""
        lines = [line.strip() for part in _SLOT.split(prompt.text) for line in part.split("\n")]
        words = [line for line in lines if len(line) >= _TELLING]
        calls = (c for turn in self.simulation.turns[1:] for c in turn.calls)
        asked = (c.request.prompt for c in calls if self.tests(c.request.site))
        return "#" not in place or not words or any(any(w in t for w in words) for t in asked)

    @property
    def turns(self) -> list[int]:
        """The turns in which the run asked the component, oldest first."""
        return [number for number in self._asked if self.subjects(number)]

    @property
    def measures_turn(self) -> bool:
        """True if samples are played to the turn's end, so that its outcome is the variant's."""
        return not self.only_component or self.stage == self.stages[-1]

    def turn(self, number: int) -> Any:
        """Return the run's own record of a turn."""
        return self.simulation.turns[number - self.simulation.turns[0].number]

    def recorded(self, number: int) -> set[int]:
        """Return what tells the calls of the run's own record of a turn from a sample's."""
        return {identity_of(call) for call in self.turn(number).calls}

    def subjects(self, number: int) -> list[str]:
        """Return for whom the component was asked in a turn, by name."""
        sites = self._asked.get(number, ())
        return list(dict.fromkeys(agent for site in sites if self._is(*site) for agent in site[1:]))

    def _is(self, stage: str, agent: str) -> bool:
        return stage == self.stage and (not self.agent or agent == self.agent)

    def tests(self, site: CallSite | None) -> bool:
        """Return True if a call of this site is the component's."""
        return site is not None and self._is(site.component, site.agent or "")

    def decided(self, turn: Turn) -> list[LLMReasoningChain]:
        """Return what the component decided in a turn."""
        return [chain for chain in decided(turn) if self._is(chain.component, chain.agent)]

    def calls_of(self, number: int, *, whole: bool) -> Counter[str]:
        """Return how many calls a sample of a turn makes, by component, if it goes as recorded."""
        after = self.stages[self.stages.index(self.stage) + 1 :]
        counts: Counter[str] = Counter()
        for stage, agent in self._asked[number]:
            mine = self._is(stage, agent)
            follows = stage in after or (counts[self.stage] > 0 and not self._at_once)
            if whole or mine or (follows and not self.only_component):
                counts[stage] += 1
        return counts

    def earlier(self, number: int) -> dict[tuple[object, ...], list[Attempt]]:
        """Return what a turn recorded that does not depend on the component, by what was asked."""
        if number in self._earlier:
            return self._earlier[number]
        attempts = [a for call in self.turn(number).calls for a in call.history]
        attempts.sort(key=lambda attempt: attempt.number or 0)
        stages = dict.fromkeys(a.request.site.component for a in attempts if a.request.site)
        before = list(stages)[: list(stages).index(self.stage)] if self.stage in stages else []
        found: dict[tuple[object, ...], list[Attempt]] = {}
        reached = False
        for attempt in attempts:
            site = attempt.request.site
            if site is None:
                continue
            if self.tests(site):
                reached = True
                continue
            beside = site.component == self.stage and self._at_once
            is_before = not reached and site.component in (*before, self.stage)
            if beside or is_before:
                found.setdefault(_question(attempt.request), []).append(attempt)
        self._earlier[number] = found
        return found

    def check(self, prompt: Prompt, *, name: str) -> None:
        """Raise ConfigError if a variant's slots are not the component's; it names the slots."""
        old = next((it for it in self.places.values() if it.name == prompt.name), self.prompt)
        if old is None:
            names = ", ".join(dict.fromkeys(it.name for it in self.places.values()))
            raise ConfigError(
                f"variant {name!r}: the {self.component} has several templates ({names}); give an "
                "edited Prompt of one, run.prompts[...].edit(...), or a function of the text"
                if names
                else f"variant {name!r}: the {self.component} has no template to replace; give a "
                "function of the text that the model gets: lambda text: text + '...'"
            )
        wanted, has = set(old.slots), set(prompt.slots)
        both = {"unknown": has - wanted, "missing": wanted - has}
        if faults := [f"{it} slots {', '.join(sorted(of))}" for it, of in both.items() if of]:
            raise ConfigError(
                f"variant {name!r}: {'; '.join(faults)}; the {self.stage} fills exactly: "
                f"{', '.join(old.slots) or 'none'}"
            )

    def render(self, prompt: Prompt, turn: int, *, agent: str | None = None) -> RenderedPrompt:
        """Return a variant rendered for a turn of an economic run, as the model would get it.

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
        before = self.turn(turn - 1).state
        if self.stage == "agent":
            part = _with(next(p for p in self.simulation.agents if p.name == name), prompt)
            text = part._construct_prompt(before)
        else:
            part = _with(getattr(self.simulation, self.stage), prompt)
            action = next(a for a in self.turn(turn).actions if a.agent_name == name)
            if self.stage == "validator":
                text = part._construct_validation_prompt(action)
            else:
                text = part._construct_state_update_prompt(action, before.global_state)
        if not isinstance(text, RenderedPrompt):
            raise ConfigError(f"{part!r} does not render its prompt; it cannot be shown")
        return text

    def branch(self, turn: int, variant: Variant, client: LLMClient | None) -> AnyRun:
        """Return a run that is about to play a turn again, with a variant."""
        run = self.simulation
        first = run.turns[0].number
        new = run.branch(turn - 1, client)
        new.take_over(run.turns[: turn - first], self.turn(turn).interventions, None)
        if isinstance(variant, Prompt):
            places = [
                place
                for place, prompt in self.places.items()
                if "#" not in place or prompt.name == variant.name or prompt == self.prompt
            ]
            for place, part in placed_in(new.parts):
                if place in places:
                    part.prompt = variant
            new.put_prompts({place: variant for place in places if "#" in place})
        return new

    def view(self, turn: int, sample: Turn, variant: Variant) -> AnyRun:
        """Return the run with a sample as its last turn: to look at, without its tape."""
        new = self.branch(turn, variant, self.simulation.llm_client)
        return new.take_over([*new.turns, sample], [], None)

    async def play(
        self,
        sample: Sample,
        variant: Variant,
        client: LLMClient,
        session: Session | None,
        *,
        by_replicate: bool,
    ) -> tuple[Turn, Mapping[str, Choice[Any]]]:
        """Play a sample and return what came of it, as a turn with the sample's number.

        If the model failed, the state is that from before the turn, and there is a chain of status
        ``failed`` that says why. With the turn comes what was chosen by probabilities, by agent.

        Raises:
            LLMFailureException: the server failed, which says nothing about the prompt.
        """
        # The sample's seed, or the run's replicate below, from which each call's seed follows.
        asked = _Noting(client, None if by_replicate else sample.seed, self)
        run = self.branch(sample.turn, variant, asked)
        if by_replicate:
            run.config = run.config.model_copy(update={"replicate": sample.seed})
        own = _SampleSession(self, sample, session, variant)
        run._session = own
        began = time.perf_counter()
        try:
            return await run.step(progress=False), asked.choices
        except (_EnoughError, LLMFailureException) as error:
            failure = error if isinstance(error, LLMFailureException) else None
            if failure is not None and failure.reason in NO_SAMPLE:
                raise
        calls = tuple(call for call in (own.log.close() if own.log else ()) if call.history)
        turn = run.turn_type(
            number=sample.number,
            state=run.state,
            seconds=time.perf_counter() - began,
            calls=calls,
            **_failed(run.turn_type, failure, calls, sample.turn),
        )
        return (turn if session is None else session.done(turn, {})), asked.choices


class _EnoughError(Exception):
    """All that is wanted of a sample was asked."""


class _Noting(LLMClient):
    """A client that asks with a sample's seed, and notes what was chosen by probabilities."""

    def __init__(self, client: LLMClient, seed: int | None, bench: Bench) -> None:
        config = client.config.model_copy(update={"seed": seed})
        # All that it shares with the client: limits, and what it knows of the server.
        vars(self).update(vars(client.with_config(config)))
        self._bench = bench
        self.choices: dict[str, Choice[Any]] = {}

    async def choose(self, prompt: str, options: Any, **how: Any) -> Choice[Any]:
        """Choose, and note what was chosen."""
        choice = await super().choose(prompt, options, **how)
        site = how.get("site")
        if self._bench.tests(site):
            self.choices[(site.agent if site else "") or ""] = choice
        return choice


class _SampleSession(Session):
    """What a branch tells while it plays a sample; it answers from the recording what it may.

    It is the branch's session and recorder in one.
    """

    def __init__(
        self, bench: Bench, sample: Sample, inner: Session | None, variant: Variant
    ) -> None:
        self.recorder = self
        self.is_replay = inner is not None and inner.is_replay
        # A run without a tape is a run in memory, also for what its class does otherwise then.
        self.tape = inner.tape if inner is not None else None  # type: ignore[assignment]
        self.run = inner.run if inner is not None else 0
        self.log: CallLog | None = None
        self._bench = bench
        self._sample = sample
        self._inner = inner
        self._writer: Recorder | None = inner.recorder if inner is not None else None
        is_model = isinstance(variant, LLMClient)
        self._change = variant if callable(variant) and not is_model else None
        # Another model is asked the whole turn.
        known = {} if is_model else bench.earlier(sample.turn)
        self._earlier = {question: list(answers) for question, answers in known.items()}
        self._changed: dict[CallSite, int] = {}
        self._outside: Known | None = None

    # --- of a session ------------------------------------------------------------------------

    def planned(self, turn: int, planned: Sequence[Any]) -> Sequence[Any]:
        """Do from outside what was done at the recorded turn."""
        del turn
        if self._inner is not None:
            self._inner.planned(self._sample.number, ())
        return planned

    def done(self, turn: Any, planned: Any) -> Any:
        """Record or compare the sample."""
        del planned
        turn = replace(turn, number=self._sample.number)
        return turn if self._inner is None else self._inner.done(turn, {})

    # --- of a recorder -----------------------------------------------------------------------

    def place(self, request: ChatRequest) -> ChatRequest:
        """Return the request with its turn, and changed where it is the component's."""
        if self._writer is not None:
            request = self._writer.place(request)
        site = request.site
        if self._change is None or site is None or not self._bench.tests(site):
            return request
        messages = list(request.messages)
        asked = [n for n, message in enumerate(messages) if message.role == "user"]
        # A second attempt has a message more, which is not the prompt.
        at = self._changed.setdefault(site, asked[-1]) if asked else 0
        changed = self._change(messages[at].content)
        if not isinstance(changed, str):
            raise ConfigError(
                f"variant {self._sample.variant!r} returned {changed!r:.60}; a function of a "
                "prompt returns the text to ask with: lambda text: text + '...'"
            )
        messages[at] = replace(messages[at], content=changed)
        return replace(request, messages=tuple(messages), origin=None)

    def find(self, request: ChatRequest, previous: Attempt | None = None) -> Attempt | None:
        """Return the recorded answer of an earlier question, or what the sample was answered."""
        # Here, within the step: its scope is gone when ``play`` asks what a failed step had called.
        self.log = scope().log
        if not self._bench.tests(request.site):
            if known := self._earlier.get(_question(request)):
                return known.pop(0)
            if self._bench.only_component and request.site:
                raise _EnoughError
        return self._writer.find(request, previous) if self._writer is not None else None

    def keep(self, attempt: Attempt) -> Attempt:
        """Record an answer."""
        return attempt if self._writer is None else self._writer.keep(attempt)

    def find_outside(self, what: str, key: Any) -> Any:
        """Return what the recorded turn had from outside.

        Raises:
            ConfigError: it had nothing of the kind.
        """
        run, tape, known = self._bench.simulation.run_id, self._bench.simulation.tape, self._outside
        if known is None and tape is not None and run is not None:
            part = next(part for part, last in tape.line(run) if self._sample.turn <= last)
            known = self._outside = Known(outside=tape.outside(part, self._sample.turn))
        found = None if known is None else known.next_outside(what, key)
        if found is None or not found.is_done:
            raise ConfigError(
                f"a sample asks for {what} {key!r:.80}, which turn {self._sample.turn} did not: a "
                "comparison does nothing outside; compare whole runs with a Study"
            )
        return found


def _question(request: ChatRequest) -> tuple[object, ...]:
    """Return what was asked, without what differs between a recording and a sample of it."""
    site = request.site
    who = (site.component, site.agent, site.replicate) if site else ()
    return (*who, request.attempt, request.messages, request.top_logprobs)


def identity_of(call: CallRecord) -> int:
    """Return what tells a call from others: its number on the tape, or else its place in memory."""
    first = call.history[0]
    # Below zero, so that no place in memory is taken for a number on the tape.
    return -id(first) if first.number is None else first.number


def _with(part: Any, prompt: Prompt) -> Any:
    new = copy.copy(part)
    new.prompt = prompt
    return new


def _failed(
    turn_type: type[Any],
    failure: LLMFailureException | None,
    calls: Sequence[CallRecord],
    turn: int,
) -> dict[str, Any]:
    """Return what a turn has of a failure: in answers, or in chains where its class has those."""
    chains = () if failure is None else _failed_chains(failure, calls, turn)
    if not issubclass(turn_type, AnyTurn):
        return {"chains": chains}
    return {
        "by_code": tuple(
            Answer(
                player=chain.agent,
                component=chain.component,
                status="failed",
                calls=(chain.call,) if chain.call else (),
                why=chain.reasoning,
                sure=0.0,
            )
            for chain in chains
        )
    }


def _failed_chains(
    failure: LLMFailureException, calls: Sequence[CallRecord], turn: int
) -> tuple[LLMReasoningChain, ...]:
    """Return chains for the call that failed, and for those of its kind that it made useless."""
    nowhere = CallSite(component="call", turn=turn)
    found: list[tuple[CallSite, str, CallRecord | None]] = []
    for call in calls:
        site = call.request.site or nowhere
        if call.history[-1].reason:
            found.append((site, str(failure), call))
        elif call.request.site and site.component == failure.component:
            found.append((site, "answered, but another call failed", call))
    if not any(call.history[-1].reason for call in calls):
        # The failed call was not noted: a chain without a call still says what went wrong.
        found.append((replace(nowhere, component=failure.component or "call"), str(failure), None))
    failed = partial(LLMReasoningChain, turn=turn, confidence=0.0, status="failed")
    return tuple(
        failed(component=site.component, agent=site.agent or "", reasoning=why, call=call)
        for site, why, call in found
    )


# --- what a comparison is set up with -------------------------------------------------------------


def run_on(tape: Tape, run: int | None, *, kind: str | None = None) -> int:
    """Return the number of the run to ask again.

    Args:
        tape: the tape.
        run: the run's number; optional where the tape holds one run.
        kind: of the runs to choose from; all if not given.

    Raises:
        ConfigError: there are several, which the message lists, or none.
        TapeError: there is no run of that number.
    """
    if run is not None:
        return tape.run(run).id
    infos = {info.id: info for info in tape.runs()}
    there = [info for info in infos.values() if info.verb != "experiment"]
    runs = [info for info in there if kind in (None, info.manifest.get("kind", kind))]
    if len(runs) == 1:
        return runs[0].id
    if not runs:
        what = f"run of the kind {kind!r}, which a comparison of prompts needs" if kind else "run"
        raise ConfigError(f"{tape.path} holds no {what}; PromptViewer shows the prompts of any")
    listed = "; ".join(few([_in_words(info, infos) for info in runs], _MOST_RUNS))
    raise ConfigError(
        f"{tape.path} holds {len(runs)} runs, and a comparison of prompts is about one: {listed}"
    )


def runs_on(tape: Tape, run: int | str | Sequence[int] | None) -> list[int]:
    """Return the numbers of the runs to ask again; "all" are those that began by themselves.

    Raises:
        ConfigError: there are several and none is named, or they are not independent of each other.
        TapeError: there is no run of such a number.
    """
    if run is None or isinstance(run, int):
        return [run_on(tape, run)]
    if run == "all":
        runs = [info.id for info in tape.runs() if info.parent is None]
    elif isinstance(run, str) or not isinstance(run, Iterable):
        raise ConfigError(f"run={run!r:.80} must be a run's number, several ([1, 2, 3]), or 'all'")
    else:
        runs = [tape.run(number).id for number in dict.fromkeys(run)]
    if not runs:
        raise ConfigError(f"run={run!r:.80} names no run of {tape.path}")
    roots: dict[int, int] = {}
    for number in runs:
        root = tape.line(number)[0][0]
        if (other := roots.setdefault(root, number)) != number:
            raise ConfigError(
                f"run={run!r:.80}: runs {other} and {number} share turns, as forks do, and are not "
                "independent; choose one of them"
            )
    return runs


def check_independent(simulations: Sequence[AnyRun]) -> None:
    """Raise ConfigError if runs are of different worlds, or had the same luck."""
    known: dict[tuple[object, ...], AnyRun] = {}
    first = simulations[0]
    for simulation in simulations:
        if type(simulation) is not type(first):
            raise ConfigError(
                f"run {first.run_id} is a {type(first).__name__} and run {simulation.run_id} a "
                f"{type(simulation).__name__}; compare runs of one world"
            )
        config, client = simulation.config, simulation.llm_client
        sampling = (config.replicate, client.config.seed if client else None)
        luck = (config.seed, *(sampling if config.seed_idle else ()))
        other: AnyRun = known.setdefault(luck, simulation)
        if other is not simulation:
            raise ConfigError(
                f"runs {other.run_id} and {simulation.run_id} have the same seed, {config.seed}, "
                "and are not independent; choose runs with different seeds"
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


def source_of(simulation: AnyRun) -> str:
    """Return a run's number, name and tape in words."""
    name = f"{simulation.config.name!r:.80}"
    if simulation.tape is None:
        return f"{name}, which is on no tape"
    return f"run {simulation.run_id} {name} of {simulation.tape.path.name}"


def wordings_of(prompts: object) -> dict[str, dict[str, Any]]:
    """Return each arm's wordings by name; one arm alone is compared with the prompt of the run.

    Raises:
        ConfigError: these are not prompts by name, or an arm has no wording.
    """
    check_variants(prompts)
    assert isinstance(prompts, Mapping)
    found: dict[str, dict[str, Any]] = {}
    for arm, given in prompts.items():
        check_name(arm)
        if isinstance(given, Sequence) and not isinstance(given, str):
            given = dict(enumerate(given, 1))
        wordings = given if isinstance(given, Mapping) else {"": given}
        if not wordings:
            raise ConfigError(
                f"prompt {arm!r} has no wording; give one, or several: ['...', '...']"
            )
        single = len(wordings) == 1
        found[arm] = {arm if single else f"{arm}: {name}": it for name, it in wordings.items()}
    labels = [label for arm in found.values() for label in arm]
    if twice := [label for label, count in Counter(labels).items() if count > 1]:
        raise ConfigError(f"prompt={prompts!r:.80}: two are called {twice[0]!r}")
    if len(found) == 1:
        [wordings] = found.values()
        if list(wordings.values()) == [None]:
            raise ConfigError(
                f"prompt={prompts!r:.80} is the prompt as it was; give another to compare it with: "
                "{'mine': prompt.replace('old words', 'new words')}"
            )
        found = {"as it was": {"as it was": None}, **found}
    return found


def variants_of(arms: Mapping[str, Mapping[str, Any]], bench: Bench) -> dict[str, Variant]:
    """Return all wordings of all arms as the component can use them.

    Raises:
        ConfigError: one is wrong, or two of an arm are the same.
    """
    found: dict[str, Variant] = {}
    for arm, wordings in arms.items():
        mine: dict[object, str] = {}
        for name, prompt in wordings.items():
            found[name] = variant = variant_of(name, prompt, bench)
            if isinstance(variant, Prompt):
                bench.check(variant, name=name)
            same = variant.digest if isinstance(variant, Prompt) else id(variant)
            if (other := mine.setdefault(same, name)) != name:
                raise ConfigError(
                    f"prompt {arm!r}: {other!r} and {name!r} are the same wording; ask more "
                    "samples= of one, and give wordings that differ"
                )
    return found


def check_variants(variants: object, *, called: str = "prompt") -> None:
    """Raise ConfigError if this is not a mapping of names to prompts; it shows one."""
    if not isinstance(variants, Mapping) or not variants:
        raise ConfigError(
            f"{called}={variants!r:.80} must be prompts by name, such as "
            "{'mine': prompt.replace('old words', 'new words')}"
        )


def check_name(name: object) -> None:
    """Raise ConfigError if a variant's name is empty or not a text."""
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"a variant needs a name that is not empty, not {name!r:.80}")


def variant_of(name: str, variant: Any, bench: Bench) -> Prompt | Change | None:
    """Return a variant as a prompt, or where there is no one template as a function of the text.

    Its slots are not checked.

    Raises:
        ConfigError: the name is empty or not a text, or the variant is not one.
    """
    check_name(name)
    prompt = bench.prompt
    if variant is None or isinstance(variant, Prompt):
        return prompt if variant is None else variant
    if callable(variant) and not isinstance(variant, LLMClient):
        if prompt is None:
            changed: Change = variant
            return changed
        variant = variant(prompt.text)
    if not isinstance(variant, str):
        raise ConfigError(
            f"variant {name!r} is {type(variant).__name__}; give a Prompt, a prompt's text, a "
            "function of the text, or None for the prompt as the run used it"
        )
    if prompt is None:
        bench.check(Prompt(variant or " ", name=""), name=name)
        raise AssertionError  # pragma: no cover - the check raises where there is no template
    return prompt.edit(variant)


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
            f"the run has no turn in which the {bench.stage} was asked; "
            + ("a rule reads no prompt" if bench.simulation.turns[1:] else "play some turns first")
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


def config_of(simulation: AnyRun, client: LLMClient | None, temperature: float | None) -> LLMConfig:
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


def check_rendering(variants: Mapping[str, Variant], turns: Sequence[int], bench: Bench) -> None:
    """Raise ConfigError if a variant cannot be rendered for one of the turns; it names both."""
    if not isinstance(bench.simulation, Simulation):
        return  # only the economic world can render a prompt without playing its turn
    prompts = {name: it for name, it in variants.items() if isinstance(it, Prompt)}
    for (name, prompt), turn in product(prompts.items(), turns):
        for agent in bench.subjects(turn):
            try:
                bench.render(prompt, turn, agent=agent)
            except ConfigError as error:
                raise ConfigError(f"variant {name!r} at turn {turn}: {error}") from error
