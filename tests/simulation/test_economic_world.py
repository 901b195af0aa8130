"""The economic world as a turn: equal to what is recorded, and every seat can be taken."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from builders import make_client, policy, rate_update, requests_of

from llmsim_lab.agents import Agent, NationAgent, TaylorRuleAgent
from llmsim_lab.agents._briefing import PolicyBriefing
from llmsim_lab.agents._human import HumanAgent
from llmsim_lab.assistant import FunctionTools, ToolUsingNationAgent
from llmsim_lab.economy import load_us_macro
from llmsim_lab.engines import EconomicEngine
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, Person, Tape
from llmsim_lab.llm._human import OpenQuestion
from llmsim_lab.models import Action, GlobalState, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Question
from llmsim_lab.run._records import llm_config_of, prompts_of
from llmsim_lab.simulation import Simulation, SimulationConfig, lint
from llmsim_lab.simulation._simulation import Economy, Hit
from llmsim_lab.types import ChatReply, ChatRequest
from llmsim_lab.validators import EconLLMValidator

TAPES = Path(__file__).parents[2] / "data" / "tapes"
FIGURES = (
    *("interest_rate", "inflation", "output_gap", "unemployment", "gdp_growth"),
    *("total_economic_value", "lags"),
)


# --- answers from what is recorded ----------------------------------------------------------------


@dataclass
class Recorded:
    """Answers as a run on a tape: by turn, attempt and the text of every message."""

    name: str
    run: int
    max_top_logprobs: int = 100
    schemas: int = 0
    known: dict[Any, list[Any]] = field(default_factory=lambda: defaultdict(list))
    asked: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tape = Tape(TAPES / self.name, read_only=True)
        self.info = self.tape.run(self.run)
        for part, last in self.tape.line(self.run):
            for call in self.tape.calls(part):
                request = call.attempt.request
                assert request.site is not None
                if request.site.component != "tool" and (request.site.turn or 0) <= last:
                    self.known[self._key(request)].append(call.attempt)

    def _key(self, request: ChatRequest) -> Any:
        site = request.site
        assert site is not None
        said = tuple((message.role, message.content) for message in request.messages)
        return site.turn, request.attempt, said, request.top_logprobs

    async def chat(self, request: ChatRequest) -> ChatReply:
        key = self._key(request)
        assert key in self.known, f"{request.site}: {request.prompt}"
        self.asked.append(key)
        [attempt, *later] = self.known[key]
        if later:
            del self.known[key][0]
        self.schemas += dict(attempt.request.schema or {}) == dict(request.schema or {})
        if attempt.reply is None:
            raise TimeoutError
        return attempt.reply

    @property
    def client(self) -> LLMClient:
        config = llm_config_of(self.info.manifest, retry_wait_s=0, timeout_s=60)
        assert config is not None
        return LLMClient(config, self)

    @property
    def prompts(self) -> dict[str, Prompt]:
        """The recorded prompts, by the name of the shipped one whose place they take."""
        shipped = {"validator": "validator_economic", "engine": "engine_interest_rate"}
        recorded = prompts_of(self.info.manifest).items()
        return {shipped.get(place, it.name): it for place, it in recorded}

    def states(self) -> dict[int, Any]:
        return {it["turn"]: it["state"] for it in self.tape.turn_records(self.run)}


def world_of(recorded: Recorded, **more: Any) -> Simulation:
    """The world with the parameters of a recorded run."""
    config = SimulationConfig.recorded(recorded.info.manifest["config"])
    profile = {"name", "mandate", "inflation_target", "temperament"}
    same = ("committee", "moves_bp", "briefing", "masked", "decide", "engine", "economy")
    placed = {
        f"{name}#{Prompt.load(name).digest[:8]}": prompt
        for name, prompt in recorded.prompts.items()
    }
    return Simulation(
        start_at=config.start,
        nations=[nation.model_dump(include=profile) for nation in config.nations],
        validator="asked" if config.validator.kind == "llm" else "none",
        domain=config.validator.domain,
        permissive=config.validator.permissive,
        **{name: getattr(config, name) for name in same},
        **{name: getattr(config, name) for name in ("seed", "turns", "replicate")},
        prompts=placed,
        **{"llm_client": recorded.client, **more},
    )


def check_states(recorded: Recorded, world: Simulation) -> int:
    """Compare every state, exactly; returns how many."""
    states = recorded.states()
    for turn in world.turns:
        theirs, ours = states[turn.number], turn.state.model_dump(mode="json")
        assert ours["period"] == theirs["period"]
        for name in FIGURES:
            assert ours[name] == theirs["global_state"][name], (turn.number, name)
    return len(world.turns)


def played(recorded: Recorded, **more: Any) -> Simulation:
    """Play a recorded run with its answers; compare prompts, schemas and states."""
    world = world_of(recorded, **more)
    last = max(recorded.states())
    if recorded.info.fork_turn is None:
        world.run(last, progress=False)
    else:
        parent = Recorded(recorded.name, recorded.info.parent or 0)
        before = world_of(parent)
        before.run(at := recorded.info.fork_turn, progress=False)
        recorded.asked += parent.asked
        recorded.schemas += parent.schemas
        edited = [it for name, it in recorded.prompts.items() if it != parent.prompts[name]]
        # What hit the way to a turn is now set at the one before.
        shocks = [
            (item["turn"] - 1, {f"shock.{name}": by for name, by in item["shock"].items()})
            for record in recorded.tape.turn_records(recorded.run)
            for item in record["interventions"]
        ]
        set_then = [{"turn": turn, "set": values} for turn, values in shocks]
        world = before.fork(at, prompt=edited, intervene=set_then, llm_client=recorded.client)
        world.run(last - at, progress=False)
    assert check_states(recorded, world) == last + 1
    assert recorded.schemas == len(recorded.asked)
    assert set(recorded.asked) == set(recorded.known)
    return world


@pytest.mark.parametrize(
    ("name", "run"),
    [
        *(("first_run.tape", run) for run in (1, 2, 3)),
        ("two_nations.tape", 1),
        ("prompt_experiment.tape", 1),
    ],
)
def test_prompts_schemas_and_states_are_those_of_the_recorded_runs(name: str, run: int) -> None:
    played(Recorded(name, run))


@pytest.mark.parametrize("run", [1, 3])
def test_a_first_briefing_and_its_choice_are_those_recorded_mirrored_too(run: int) -> None:
    recorded = Recorded("demo.tape.gz", run)
    world = world_of(recorded)
    world.run(1, progress=False)
    assert len(recorded.asked) == recorded.schemas == 5  # the draw itself is this run's own


def test_a_nation_that_looks_things_up_first_sits_in_a_seat() -> None:
    recorded = Recorded("lookup.tape", 1)

    def past_values(
        series: Literal["inflation", "unemployment", "interest_rate", "gdp_growth"],
    ) -> dict[str, float]:
        """Look up a series in the four quarters before the simulation began, in percent."""
        values = load_us_macro()[series]
        return {
            str(q): round(float(values[q]), 2) for q in values.index[values.index < "1979Q3"][-4:]
        }

    agent = ToolUsingNationAgent("United States", recorded.client, tools=FunctionTools(past_values))
    played(recorded, players={agent.name: agent})


def test_the_contracts_classes_sit_in_seats_and_a_replay_asks_none(tmp_path: Path) -> None:
    recorded = Recorded("two_nations.tape", 1)
    config = SimulationConfig.recorded(recorded.info.manifest["config"])
    client, prompts = recorded.client, recorded.prompts
    seats: dict[str, Any] = {
        nation.name: NationAgent(
            nation.name, client, profile=nation.profile, prompt=prompts["agent_policy"]
        )
        for nation in config.nations
    }
    seats["validator"] = EconLLMValidator(client, prompt=prompts["validator_economic"])
    seats["engine"] = EconomicEngine(config, client, prompt=prompts["engine_interest_rate"])
    tape = tmp_path / "seats.tape"
    world = played(recorded, players=seats, llm_client=None, tape=tape)
    judged = int(world.to_frame()["actions"].sum())
    assert seats["validator"].get_stats()["total_validated"] == judged
    world.close()
    asked = len(recorded.asked)
    replayed = Simulation.replay(tape, players=seats)
    assert replayed.turns == world.turns
    assert len(recorded.asked) == asked


# --- seats ----------------------------------------------------------------------------------------


def ruled(**more: Any) -> Simulation:
    """A run by rules, without shocks."""
    return Simulation(**{"players": "rule", "economy": {"shock_scale": 0}, **more})


def asked_of(world: Simulation, player: str = "agent") -> list[ChatRequest]:
    calls = [call.request for turn in world.turns for call in turn.calls]
    return [it for it in calls if it.site is not None and it.site.component == player]


def test_a_person_reads_the_briefing_and_chooses_a_move_on_offer() -> None:
    read: list[Any] = []

    def person(question: OpenQuestion) -> dict[str, Any]:
        read.append(question)
        words = {"action": "Raise it", "reasoning": "It is time.", "confidence": 0.5}
        return {**words, "rate_change_bp": 50}

    world = ruled(players={"Aland": Person(person)}, nations=["Aland"], turns=2)
    rates = world.run(progress=False)["interest_rate"]
    assert rates.tolist() == [4, 4.5, 5]
    assert "The policy rate is 4.5% per year." in read[1].request.prompt
    assert world.decisions()["model"].unique().tolist() == ["human"]


def test_a_human_agent_names_the_rate_in_a_seat() -> None:
    def person(question: OpenQuestion) -> dict[str, Any]:
        words = {"action": "Set the rate", "reasoning": "It is time.", "confidence": 0.5}
        return {**words, "proposed_rate": 4.75}

    for moves, there in (((-75, 0, 75), 4.75), (None, 4.75)):
        agent = HumanAgent("Aland", moves_bp=moves, ask=person)
        world = ruled(
            players={"Aland": agent, "*": "rule"}, nations=["Aland"], moves_bp=moves, turns=1
        )
        assert world.people == [agent.person]
        assert world.run(progress=False)["interest_rate"].tolist() == [4, there]


class Cutting(Agent):
    """An agent of one's own, without words beside the action."""

    async def decide_action(self, state: SimulationState) -> Action:
        assert state.turn == 0
        return Action(agent_name=self.name, action_string="Cut the rate", rate_change_bp=-25)


@pytest.mark.parametrize("moves", [None, (-25, 0)])
def test_an_agent_of_ones_own_states_its_size_in_either_world(moves: Any) -> None:
    world = ruled(
        players={"*": "rule", "Aland": Cutting("Aland")}, nations=["Aland"], moves_bp=moves
    )
    assert world.run(1, progress=False)["interest_rate"].tolist() == [4, 3.75]


def test_a_rule_that_is_exact_sets_the_very_rate_it_asks_for() -> None:
    rule = TaylorRuleAgent("Aland", exact=True)
    world = ruled(
        players={"*": "rule", "Aland": rule}, nations=["Aland"], moves_bp=None, start_at="1979Q3"
    )
    frame = world.run(3, progress=False)
    assert frame["interest_rate"].tolist()[1:] == pytest.approx(frame["taylor_rate"].tolist()[:-1])


def test_an_agent_whose_action_is_outside_its_domain_twice_changes_nothing() -> None:
    agent = NationAgent("Aland", make_client([policy("Sing a song"), policy("Dance")]))
    world = ruled(players={"*": "rule", "Aland": agent}, nations=["Aland"], moves_bp=None)
    assert world.run(1, progress=False)["interest_rate"].tolist() == [4, 4]
    [answer] = [it for it in world.turns[1].answers if it.component == "agent"]
    assert (answer.status, len(answer.calls)) == ("fallback", 1)


def test_a_function_is_the_validator_and_what_it_rejects_moves_nothing() -> None:
    def judge(question: Question) -> dict[str, Any]:
        return {
            "is_valid": "3" in question.values["action"],
            "reasoning": f"{question.player} said so.",
            "confidence": 1,
        }

    def propose(question: Question) -> dict[str, Any]:
        move = 50 if question.player == "Aland" else 25
        words = {"action": f"Change the rate by {move} of 3" if move == 25 else "Raise the rate"}
        return {**words, "reasoning": "r", "confidence": 1, "rate_change_bp": move}

    world = ruled(
        players={"agent": propose, "validator": judge},
        validator="asked",
        nations=["Aland", "Borduria"],
        turns=1,
    )
    frame = world.run(progress=False)
    assert frame["interest_rate"].tolist() == [4, 4.25]
    assert frame[["actions", "accepted"]].iloc[-1].tolist() == [2, 1]
    rows = world.decisions().set_index(["component", "player"])
    assert not rows.loc[("agent", "Aland"), "accepted"]
    assert rows.loc[("validator", "Borduria"), "vote_bp"] == 25


def test_what_is_no_economic_policy_twice_changes_nothing_and_is_not_judged() -> None:
    client = make_client([policy("Sing a song"), policy("Dance")])
    world = ruled(players={}, llm_client=client, moves_bp=None, turns=1)
    assert world.run(progress=False)["interest_rate"].tolist() == [4, 4]
    assert [it.site.component for it in requests_of(client) if it.site] == ["agent", "agent"]
    assert world.statuses == {"fallback": 1}
    assert "proposed (REJECTED)" in world.turns[1].story[1]


def test_the_rule_needs_no_moves_and_takes_no_rate_from_words() -> None:
    by_rule = ruled(moves_bp=None, start_at="1979Q3", turns=2).run(progress=False)
    assert by_rule["interest_rate"].round(2).tolist()[1:] == [11.5, 13.5]
    worded = ruled(
        players={"agent": lambda _: dict(policy("Raise the rate")), "*": "rule"},
        moves_bp=None,
        turns=2,
    )
    assert worded.run(progress=False)["interest_rate"].tolist() == [4, 4, 4]


def test_chance_answers_for_all() -> None:
    world = Simulation(players="random", validator="asked", nations=["Ann", "Bo"], turns=3)
    world.run(progress=False)
    assert {answer.component for answer in world.turns[3].answers} == {"agent", "validator"}


def test_an_agent_with_a_briefing_is_told_that_it_would_see_one_quarter() -> None:
    agent = NationAgent("Ann", make_client(), moves_bp=[0, 25], briefing=PolicyBriefing())
    world = ruled(players={"Ann": agent}, nations=["Ann"], moves_bp=[0, 25])
    with pytest.raises(ConfigError, match="leave the seat to the run's model"):
        world.run(1, progress=False)


# --- the committee --------------------------------------------------------------------------------


def test_votes_become_one_rate_in_whatever_order_members_are_named() -> None:
    moves = {"Ann": 50, "Bo": 25, "Cy": -25}

    def vote(question: Question) -> dict[str, Any]:
        words = {"action": "Move the rate", "reasoning": "r", "confidence": 1}
        return {**words, "rate_change_bp": moves[question.player]}

    worlds = [ruled(players=vote, nations=names, turns=1) for names in ([*moves], [*moves][::-1])]
    first, second = (world.run(progress=False) for world in worlds)
    assert first["interest_rate"].tolist() == second["interest_rate"].tolist() == [4, 4.25]
    assert worlds[0].turns[1].answers == worlds[1].turns[1].answers
    assert worlds[0].turns[1].story[0] == (
        "Votes: Ann 4.5% (+50 bp), Bo 4.25% (+25 bp), Cy 3.75% (-25 bp). "
        "By the rule median: 4.25% (+25 bp); dissent: Ann, Cy."
    )
    rows = worlds[0].decisions().set_index("player")
    assert rows["dissent"].tolist() == [True, False, True]
    assert rows["outcome_bp"].tolist() == [25, 25, 25]


def test_one_after_the_other_each_meets_the_rate_that_the_last_one_left() -> None:
    world = ruled(
        players=lambda _: {**dict(policy()), "rate_change_bp": 25},
        nations=["Bo", "Ann"],
        committee="sequential",
        turns=1,
    )
    assert world.run(progress=False)["interest_rate"].tolist() == [4, 4.5]
    rows = world.decisions().set_index("player")
    assert rows.loc[["Bo", "Ann"], "new_rate"].tolist() == [4.25, 4.5]


# --- from outside ---------------------------------------------------------------------------------


def test_what_is_set_at_a_turn_acts_on_the_way_to_the_next() -> None:
    shocks = [{"turn": 1, "set": {"shock.supply": 4}}, {"turn": 1, "set": {"shock.demand": 1}}]
    world = ruled(interventions=shocks, turns=4)
    frame = world.run(progress=False)
    assert frame["inflation"].tolist()[:3] == [2, 2, 3]  # 4 points in one of four quarters
    assert frame["output_gap"].tolist()[:3] == [0, 0, 1]
    assert world.turns[1].state.shock.supply == 4
    assert world.turns[2].state.shock == Hit()


def test_inflation_that_is_set_is_what_the_last_four_quarters_had() -> None:
    world = ruled(turns=1)
    world.intervene(0, {"inflation": 9})
    assert world.state.lags.inflation == (9, 9, 9, 9)
    assert world.state.inflation == 9
    world.run(progress=False)
    assert world.state.inflation == 9


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"inflaton": 9}, r"'inflaton' \(did you mean 'inflation'\?\)"),
        ({"unemployment": 200}, "no economy has {'unemployment': 200}"),
        ({"inflation": float("nan")}, "inflation=nan"),
    ],
)
def test_what_no_economy_has_cannot_be_set(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ruled().intervene(0, values)


def test_a_static_economy_has_no_equation_for_a_shock() -> None:
    with pytest.raises(ConfigError, match="'static' has no equation for shock"):
        ruled(economy={"model": "static"}, interventions=[{"turn": 1, "set": {"shock.supply": 1}}])


# --- parameters and notes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nations": [{"name": "Ann", "kind": "taylor"}]}, r"players: \{Ann: rule\}"),
        ({"validator": {"kind": "always_valid"}}, r"players=\{'validator': ...\}"),
        ({"engine": EconomicEngine()}, r"players=\{'engine': ...\}"),
        ({"agents": [Cutting("Ann")]}, r"players={'Ann': NationAgent\(...\)}"),
        ({"start": "1979Q3"}, "write start_at"),
        ({"interventions": [{"turn": 4, "shock": {"supply": 1}}]}, "shock"),
        ({"nations": ["Ann", "Ann"]}, "twice: Ann"),
        ({"nations": []}, "name at least one"),
        ({"moves_bp": None, "decide": "mode"}, "decide: mode needs moves"),
        ({"moves_bp": None, "briefing": "economist"}, "an economist's briefing needs moves"),
        ({"briefing": "thin", "masked": False}, "masked: false has no effect"),
        ({"committee": {"rule": "chair", "chair": "Bob"}}, "chair 'Bob' is not one of"),
        ({"nations": [{"name": "Ann", "prompt": "## User\n\nHm."}]}, "no slot {{ moves }}"),
        ({"economy": {"mirrored": True}, "start_at": "1981Q3"}, "choose another start"),
    ],
)
def test_parameters_that_do_not_fit_are_errors_that_name_the_way_out(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Simulation(**values)


def test_an_engine_that_does_other_than_words_say_is_a_second_policymaker() -> None:
    world = ruled(
        players={
            "agent": lambda _: dict(policy("Raise the interest rate by 0.5 percentage points")),
            "validator": "rule",
            "engine": lambda question: {**dict(rate_update(4)), "new_interest_rate": 3},
        },
        moves_bp=None,
        turns=1,
    )
    world.run(progress=False)
    assert "of 1 actions whose words name a rate, 0 got it" in world.notes[0]
    assert world.decisions()["stated_rate"].unique().tolist() == [4.5]


def test_a_nations_own_prompt_is_used_and_kept_on_the_tape(tmp_path: Path) -> None:
    own = Prompt.load("agent_rate").replace("economic policy advisor", "fearful banker")
    client, tape = make_client(), tmp_path / "own.tape"
    nation = {"name": "Ann", "prompt": f"## System\n\n{own.system}\n\n## User\n\n{own.user}"}
    world = ruled(nations=[nation], players={}, llm_client=client, tape=tape, turns=1)
    world.run(progress=False)
    world.close()
    assert "fearful banker" in asked_of(world)[0].prompt
    assert Simulation.replay(tape).turns == world.turns


def test_prompts_come_from_the_recording_and_not_from_todays_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Prompt.load("agent_policy")
    nation = {"name": "Ann", "prompt": f"## System\n\n{own.system}\n\n## User\n\nHm? {own.user}"}
    client, tape = make_client(), tmp_path / "x.tape"
    world = ruled(
        nations=[nation, "Bo"], players={}, llm_client=client, moves_bp=None, tape=tape, turns=2
    )
    world.run(progress=False)
    world.close()
    load = Prompt.load

    def changed(name: str) -> Prompt:
        prompt = load(name)
        return prompt.edit(f"{prompt.text}\nAnd be quick.")

    monkeypatch.setattr(Prompt, "load", changed)
    replayed = Simulation.replay(tape)
    assert replayed.turns == world.turns
    assert replayed.prompts == world.prompts
    edited = world.prompts[f"agent_policy#{own.digest[:8]}"].replace("ONE", "exactly ONE")
    forked = replayed.fork(1, prompt=edited, llm_client=client)
    forked.run(1, progress=False)
    first, second = (it.prompt for it in asked_of(forked)[-2:])
    assert "Hm?" in first
    assert "exactly ONE" not in first
    assert "exactly ONE" in second


def test_charts_have_the_rates_bounds() -> None:
    world = ruled(engine={"rate_bounds": [0, 15]})
    assert world.to_frame().attrs["bounds"] == {"interest_rate": (0, 15)}
    assert next(iter(world.series)).label == "Policy rate"


def test_what_is_probably_wrong_is_said_of_rules_and_prompts_without_a_model() -> None:
    nations = ["Ann", {"name": "Bo", "inflation_target": 4}]
    world = ruled(nations=nations, players={"Ann": "rule"}, committee="sequential", briefing="thin")
    found = {finding.rule.split()[0] for finding in world.lint()}
    config = SimulationConfig(
        nations=[{"name": "Ann", "kind": "taylor"}, nations[1]],
        committee="sequential",
        briefing="thin",
        economy={"shock_scale": 0},
    )
    assert found == {finding.rule.split()[0] for finding in lint(config)} > {"L14"}


def test_the_budget_adds_demand_at_the_bound_where_the_parameters_say_so() -> None:
    slump = Economy().with_economy(GlobalState(interest_rate=0, inflation=-3, output_gap=-8))
    helped, alone = (
        ruled(economy={"shock_scale": 0, "fiscal_backstop": on}, state=slump).run(1, progress=False)
        for on in (True, False)
    )
    assert (helped["output_gap"] - alone["output_gap"]).tolist() == pytest.approx([0, 0.55])
