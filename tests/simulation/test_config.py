"""A run's configuration: from Python, from YAML, and what is said when something is wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, make_config, requests_of
from pydantic import ValidationError

from llmsim_lab.errors import ConfigError
from llmsim_lab.prompts import Prompt
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.simulation._config import NationConfig


def read(folder: Path, text: str) -> SimulationConfig:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return SimulationConfig.from_yaml(path)


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    return str(caught.value).replace(str(folder), "HERE")


# Good ones


def test_any_economic_run_can_be_played_by_rules() -> None:
    config = SimulationConfig.model_validate(
        {
            "nations": [
                {"name": "Aland", "inflation_target": 4, "temperament": "bold", "mandate": "jobs"},
                {"name": "Ann", "kind": "human", "names_rate": False},
            ],
            "validator": {"permissive": False},
            "turns": 3,
        }
    )
    rules = config.by_rules()
    assert not rules.needs_model
    assert [(n.name, n.kind) for n in rules.nations] == [("Aland", "taylor"), ("Ann", "human")]
    assert (rules.nations[0].inflation_target, rules.turns) == (4, 3)
    assert SimulationConfig.model_validate(rules.model_dump()) == rules


def test_a_configuration_needs_no_arguments() -> None:
    config = SimulationConfig()
    assert (config.turns, config.seed, config.start) == (8, 0, None)
    assert [nation.name for nation in config.nations] == ["United States"]
    assert config.needs_model


def test_nations_may_be_given_by_name_alone() -> None:
    config = SimulationConfig(nations=["Aland", {"name": "Borduria", "kind": "taylor"}])
    assert [(n.name, n.kind) for n in config.nations] == [("Aland", "llm"), ("Borduria", "taylor")]


def test_a_run_of_rules_needs_no_model() -> None:
    assert not make_config().needs_model
    assert make_config(validator={"kind": "llm"}).needs_model


def test_a_whole_yaml_file_is_read(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
        name: oil
        seed: 7
        turns: 12
        start: 1973Q3
        nations:
          - Aland
          - {name: Borduria, inflation_target: 4, temperament: bold, mandate: jobs}
        llm: {model: "ollama:llama3.2", temperature: 0.2, retry_wait_s: 0}
        validator: {permissive: false}
        engine: {rate_bounds: [0, 20], max_move: 1.5}
        economy: {shock_scale: 0.5}
        interventions:
          - {turn: 2, shock: {supply: 4}, note: embargo}
          - {turn: 4, set: {inflation: 8}}
        """,
    )
    assert (config.name, config.seed, config.turns, config.start) == ("oil", 7, 12, "1973Q3")
    assert config.nations[1].profile.mandate == "jobs"
    assert config.llm.retry_wait_s == (0, 0)
    assert config.engine.rate_bounds == (0, 20)
    assert [i.turn for i in config.interventions] == [2, 4]
    assert config.interventions[1].set_to == {"inflation": 8}


def test_a_configuration_comes_back_from_json_as_it_was() -> None:
    config = make_config(interventions=[{"turn": 1, "set": {"inflation": 3}}], llm={"seed": 1})
    assert SimulationConfig.model_validate_json(config.model_dump_json()) == config


def test_a_configuration_is_immutable() -> None:
    config = SimulationConfig()
    with pytest.raises(ValidationError, match="frozen"):
        config.turns = 3  # type: ignore[misc]


def test_prompt_files_are_found_beside_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "mine.md").write_text(
        "## User\nAct on {{ gdp_growth }} {{ inflation }} {{ unemployment }} {{ interest_rate }} "
        "{{ profile }}"
    )
    config = read(folder, "moves_bp: null\nnations:\n  - {name: Aland, prompt: mine.md}\n")
    monkeypatch.chdir(tmp_path)
    client = make_client()
    Simulation(config, llm_client=client).run(1)
    assert requests_of(client, "agent")[0].prompt.startswith("Act on 2.2 2 5 4 You advise Aland.")


@pytest.mark.parametrize(
    "text",
    [
        "nations: [{name: Aland, prompt: none.md}]",
        "validator: {prompt: none.md}",
        "engine_prompt: none.md",
    ],
)
def test_a_prompt_file_that_is_not_there_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"line 1: .*prompt: cannot read .* file .*none\.md"):
        read(tmp_path, text)


def test_an_absolute_prompt_path_stays_as_it_is(tmp_path: Path) -> None:
    prompt = tmp_path / "elsewhere" / "mine.md"
    prompt.parent.mkdir()
    prompt.write_text("## User\n\nWell?\n")
    assert read(tmp_path, f"engine_prompt: {prompt}").engine_prompt == prompt


# Bad ones: every message names file, line, key, value and what is allowed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "turns: 3\nsede: 1",
            "HERE/run.yaml, line 2: sede: unknown key; known here are briefing, ",
        ),
        (
            "nations:\n  - name: Aland\n    tpye: llm",
            "line 3: nations.0.tpye: unknown key; known here are exact, inflation_target, kind, "
            "mandate, name, names_rate, prompt, temperament, timeout_s",
        ),
        (
            "engine:\n  max_moves: 1",
            "line 2: engine.max_moves: unknown key; known here are max_move, rate_bounds, rate_st",
        ),
        (
            "interventions:\n  - turn: 1\n    sets: {inflation: 3}",
            "line 3: interventions.0.sets: unknown key; known here are note, set, shock, turn",
        ),
        (
            "turns: -1",
            "HERE/run.yaml, line 1: turns: Input should be greater than or equal to 0 (it is -1)",
        ),
        ("turns: 2.5", "(it is 2.5)"),
        ("seed: -2", "line 1: seed: Input should be greater than or equal to 0 (it is -2)"),
        ("llm:\n  seed: 1\n  temperature: hot", "line 3: llm.temperature: Input should be a valid"),
        ("llm:\n", "line 1: llm: Input should be a valid dictionary"),
        ("llm: {max_tokens: 9000}", "llm: max_tokens=9000 leaves no room for a prompt in num_ctx"),
        ("validator:\n  kind: strict", "Input should be 'llm' or 'always_valid' (it is 'strict')"),
        ("economy: {shock_scale: .nan}", "economy.shock_scale: Input should be a finite number"),
        ("economy: {model: static, shock_scale: 1}", "line 1: economy: shock_scale=1 hits nothing"),
        ("engine: {rate_bounds: [9, 1]}", "engine: rate bounds [9.0, 1.0] are empty; swap th"),
        ("nations: [Aland, Aland]", "nations must have different names; twice: Aland"),
        ("nations: []", "nations is empty; name at least one"),
        ("nations: Aland", "line 1: nations: Input should be a valid tuple (it is 'Aland')"),
        ("nations:\n  - '  '", "line 2: nations.0.name: String should have at least 1 character"),
        (
            "interventions:\n  - {turn: 1}",
            "line 2: interventions.0: an intervention needs 'set' or 'shock'",
        ),
        (
            "interventions:\n  - turn: 1\n    set:\n      inflaton: 1",
            "line 4: interventions.0.set.inflaton: Input should be 'interest_rate', 'inflation'",
        ),
        ("start: 1979", "line 1: start: Input should be a valid string (it is 1979)"),
        ("start: 2021-13-45", "is not valid YAML: month must be in 1..12"),
    ],
)
def test_a_fault_in_a_file_is_explained(tmp_path: Path, text: str, message: str) -> None:
    assert message in complaint(tmp_path, text)


def test_a_kind_that_is_unknown_is_named_and_a_class_may_have_its_own_fields(
    tmp_path: Path,
) -> None:
    class Own(SimulationConfig):
        world: str = "flat"
        kind: str = "x"

    path = tmp_path / "own.yaml"
    path.write_text("world: round\nkind: econmic\n", encoding="utf-8")
    own = Own.from_yaml(path)
    assert isinstance(own, Own)
    assert (own.world, own.kind) == ("round", "econmic")
    path.write_text("kind: econmic\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no kind of simulation is called 'econmic'"):
        SimulationConfig.from_yaml(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"turns": -1}, r"turns: .*greater than or equal to 0 \(it is -1\)"),
        ({"turns": 200_000}, "turns: .*less than or equal to 100000"),
        ({"nations": []}, "name at least one"),
        ({"nations": ["A", " A"]}, "twice: A"),
        ({"nation": ["A"]}, r"nation: Extra inputs .* \(did you mean 'nations'\?\)"),
        ({"seed": 1.5}, "seed"),
    ],
)
def test_a_fault_in_python_is_a_config_error_that_names_the_field(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        SimulationConfig(**fields)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nstart: 2015Q1", "line 2: start: quarter=2015Q1 is outside the data"),
        (
            "nations:\n  - {name: A, kind: taylor, temperament: wild}",
            "temperament would have no effect: a Taylor rule reads no prompt",
        ),
        ("validator: {kind: always_valid, domain: sport}", "domain would have no effect"),
        (f"seed: {2**70}", "line 1: seed"),
    ],
)
def test_what_would_be_ignored_or_fail_later_is_an_error_in_the_file(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        read(tmp_path, text)


def test_values_may_be_changed_and_are_checked_again() -> None:
    config = SimulationConfig(turns=3)
    assert config.with_values(turns=5).turns == 5
    with pytest.raises(ConfigError, match=r"turns: .* less than or equal to 100000"):
        config.with_values(turns=999_999)


def test_prompts_that_no_part_uses_are_errors() -> None:
    prompts = {"agent:Nope": Prompt("Well?")}
    with pytest.raises(ConfigError, match=r"agent:Nope would not be used; .* agent:United States"):
        Simulation(llm_client=make_client(), prompts=prompts)


def test_a_wrong_client_is_an_error_with_the_way_to_one() -> None:
    with pytest.raises(ConfigError, match=r"is not a client; make one: connect\('auto'\)"):
        Simulation(llm_client="auto")  # type: ignore[arg-type]


# Mirror images


def mirrored_pair(**settings: Any) -> list[Simulation]:
    config = {
        "start": "2000Q2",
        "seed": 5,
        "nations": [{"name": "Rule", "kind": "taylor"}],
        "validator": {"kind": "always_valid"},
        # Far enough from the start for the bounds to be out of reach.
        "engine": {"rate_bounds": (-40, 48)},
        **settings,
    }
    return [
        Simulation(SimulationConfig.model_validate({**config, "economy": {"mirrored": mirrored}}))
        for mirrored in (False, True)
    ]


def test_a_mirrored_run_has_everything_on_the_other_side_of_the_steady_state() -> None:
    plain, mirrored = mirrored_pair()
    one, other = plain.run(12), mirrored.run(12)
    assert one["inflation"].std() > 0.3
    # The rule has a lower bound of its own, so the first quarters are compared.
    before = one["taylor_rate"].lt(8).idxmin() + 1
    assert before >= 1
    for column, twice in (("inflation", 4), ("output_gap", 0), ("unemployment", 10)):
        assert (one[column] + other[column])[: before + 1].tolist() == pytest.approx(
            [twice] * (before + 1)
        )
    assert mirrored.state.period is None


def test_an_agent_of_a_mirrored_run_is_told_the_mirrored_past() -> None:
    prompts = []
    for mirrored in (False, True):
        config = SimulationConfig.model_validate(
            {"start": "2000Q2", "economy": {"mirrored": mirrored}}
        )
        agent = Simulation(config, llm_client=make_client()).agents[0]
        prompts.append(agent.prompt_for(Simulation(config, llm_client=make_client()).state))
    assert "1.24 percentage points above the target" in prompts[0]
    assert "1.24 percentage points below the target" in prompts[1]
    assert "\n-7 | 1.58 | 2.05 | 0.75 | 4.50 | 4.82 | 3.24\n" in prompts[0]
    assert "\n-7 | 2.42 | 1.95 | -0.75 | 5.50 | 3.18 | 0.76\n" in prompts[1]


def test_a_start_whose_mirror_image_is_beyond_the_bounds_is_an_error(tmp_path: Path) -> None:
    found = complaint(tmp_path, "start: 1979Q3\neconomy: {mirrored: true}\n")
    assert "the mirror image of 1979Q3 has an interest rate of -1.67" in found
    assert "choose another start, such as 1973Q1" in found


def test_a_static_economy_has_no_mirror_image(tmp_path: Path) -> None:
    found = complaint(tmp_path, "economy: {model: static, mirrored: true}\n")
    assert "mirrored would have no effect" in found


def test_only_a_rule_can_be_exact() -> None:
    assert NationConfig(name="Rule", kind="taylor", exact=True).exact
    with pytest.raises(ConfigError, match="exact would have no effect"):
        NationConfig(name="Aland", exact=True)
