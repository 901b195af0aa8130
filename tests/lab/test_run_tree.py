"""The tree of runs as its user has it: choose, compare, open, check."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, make_config
from counter_kit import CounterSimulation, Total
from counter_kit import answer as count
from tape_text import rewrite

from llmsim_lab._util.files import data_path
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.lab import RunTree
from llmsim_lab.lab._run_tree import nodes_of, prompt_changes
from llmsim_lab.llm import Tape
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape._changes import TextTree
from llmsim_lab.tape._lines import RunInfo

pytestmark = pytest.mark.usefixtures("undrawn")
RECORDED = "tapes/first_run.tape"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A tape of a run and two forks that may be written to."""
    path = tmp_path / "copy.tape"
    path.write_bytes(data_path(RECORDED).read_bytes())
    return path


def test_the_tree_shows_forks_below_what_they_came_from() -> None:
    tree = RunTree(data_path(RECORDED))
    assert tree.static_text().splitlines()[:4] == [
        "RunTree of first_run.tape",
        "1 one nation · run · turns 1 to 8 · done · qwen2.5-coder-1.5b",
        "├─ 2 one nation · fork at turn 3 · turn 4: shock supply 4, note oil · turns 4 to 8 · done "
        "· qwen2.5-coder-1.5b",
        '└─ 3 one nation · fork at turn 3 · prompt agent_policy: - "an economic policy advisor '
        'for", "nation." → "central banker who fears inflation above all else." · turns 4 to 8 '
        "· done · qwen2.5-coder-1.5b",
    ]
    assert [node.description for node in tree.nodes.values()] == [
        "● 1 one nation",
        "2 one nation",
        "3 one nation",
    ]
    assert [number for _, number in tree.run_box.options] == [1, 2, 3]
    assert [number for _, number in tree.other_box.options] == [0, 1, 2, 3]


def test_the_tree_of_the_terminal_and_the_widget_have_the_same_lines() -> None:
    with Tape(data_path(RECORDED), read_only=True) as tape:
        text = tape.tree()
        assert [run.id for run in text.runs] == [1, 2, 3]
        assert RunTree(tape).static_text().splitlines()[1:4] == text.lines[1:]


async def test_one_run_pressed_is_shown_and_two_are_compared() -> None:
    tree = RunTree(data_path(RECORDED))

    async def press(run: int) -> tuple[int, int]:
        tree.nodes[run].value = not tree.nodes[run].value
        await tree.idle()
        pressed = {number for number, node in tree.nodes.items() if node.value}
        assert pressed == {tree.selected, tree.other_box.value} - {0}
        return tree.selected, tree.other_box.value

    assert await press(2) == (1, 2)
    assert "They part at turn 4" in tree.differences.value
    assert [node.description[0] for node in tree.nodes.values()] == ["●", "○", "3"]
    assert await press(3) == (1, 3)
    assert await press(1) == (3, 0)
    assert "Run 3" in tree.facts.value
    assert tree.differences.value == ""
    assert await press(3) == (3, 0)


def test_edges_say_what_was_changed_also_where_styles_and_scripts_are_gone() -> None:
    tree = RunTree(data_path(RECORDED))
    graph, *_ = tree.tree.children
    for said in (
        "turn 4: shock supply 4, note oil",
        "after turn 3: prompt",
        "fears inflation above",
    ):
        assert said in html.unescape(graph.value)
    assert "turn 4: shock supply 4, note oil" in str(tree.static_html())
    assert [(n.column, n.row) for n in nodes_of(tree.tape.tree(), title="")] == [
        (0, 0),
        (1, 0),
        (1, 1),
    ]


async def test_a_sweep_of_seeds_is_one_node_until_it_is_pressed(tmp_path: Path) -> None:
    tape = Tape(tmp_path / "sweep.tape")
    for seed in range(1, 7):
        Simulation(make_config(seed=seed), tape=tape).run(1)
    tree = RunTree(tape)
    nodes = nodes_of(tape.tree(), title="sweep.tape")
    assert [node.name for node in nodes] == ["sweep.tape", "6 runs: 1 to 6"]
    assert nodes[1].words == "seed 1 … 6"
    assert "seed 1 … 6" in tree.tree.children[0].value
    assert tree.nodes == {}
    tree.tree.children[1].click()
    assert list(tree.nodes) == [1, 2, 3, 4, 5, 6]
    assert [node.words for node in nodes_of(tape.tree(), title="", unfolded={1})][1:3] == [
        "seed 1",
        "seed 2",
    ]


def info(number: int, parent: int | None = None, **more: Any) -> RunInfo:
    given = {
        "name": "one",
        "verb": "run" if parent is None else "fork",
        "fork_turn": None if parent is None else 2,
        "started": "",
        "ended": None,
        "outcome": "done",
        "manifest": {},
        "turns": 3,
        "calls": 0,
    }
    return RunInfo(id=number, parent=parent, **given | more)


def test_forks_stand_beside_their_parents_and_below_each_other() -> None:
    runs = [info(1), info(2, 1), info(3, 1), info(4, 2), info(5, 2), info(6, 3)]
    tree = TextTree(runs, title="", changed={run.id: [f"prompt {run.id}"] for run in runs})
    places = {
        node.runs[0].id: (node.column, node.row, node.parent) for node in nodes_of(tree, title="")
    }
    assert places == {
        1: (0, 0, None),
        2: (1, 0, 0),
        4: (2, 0, 0),
        5: (2, 1, 0),
        3: (1, 2, 0),
        6: (2, 2, 2),
    }


def test_very_many_runs_that_differ_in_anything_stay_few_nodes() -> None:
    runs = [info(number) for number in range(1, 301)]
    words = [f"factor {number % 10}, seed {number}" for number in range(301)]
    tree = TextTree(runs, title="", changed={run: [word] for run, word in enumerate(words)})
    assert len(nodes_of(tree, title="study")) == 1 + 10
    tree = TextTree(
        runs, title="", changed={run.id: [f"factor {run.id}.5, nation {run.id}"] for run in runs}
    )
    assert len(nodes_of(tree, title="study")) == 2
    deep = [info(1), *(info(number, number - 1) for number in range(2, 2000))]
    tree = TextTree(deep, title="", changed={run.id: [] for run in deep})
    assert {node.row for node in nodes_of(tree, title="")} == {0}


async def test_a_run_that_is_chosen_shows_what_it_was() -> None:
    tree = RunTree(data_path(RECORDED))
    tree.run_box.value = 2
    await tree.idle()
    assert tree.selected == 2
    for text in (
        "fork of run 1 at turn 3",
        "qwen2.5-coder-1.5b, embedded, digest cc324af070c2",
        "supply shock +4 (oil)",
        "Its prompts are those of run 1.",
        "United States",
    ):
        assert text in tree.facts.value, text
    assert "fork of run 1 at turn 3" in tree.static_text()


async def test_a_fork_with_another_prompt_shows_the_words_that_changed() -> None:
    tree = RunTree(data_path(RECORDED))
    tree.select(3)
    await tree.idle()
    assert "The prompt of agent:United States is another than in run 1" in tree.facts.value
    assert ">central banker who fears inflation above all else.</ins>" in tree.facts.value


@pytest.mark.usefixtures("drawn")
async def test_two_runs_are_held_against_each_other_in_numbers_and_as_a_chart() -> None:
    tree = RunTree(data_path(RECORDED))
    tree.other_box.value = 3
    await tree.idle()
    assert "They part at turn 4" in tree.differences.value
    assert "16.75 → 17.5" in tree.differences.value
    assert 'alt="Chart of Policy rate: run 1 and run 3, turns 0 to 8.' in tree.chart.value
    assert "run 1: Policy rate 16.75, " in tree.chart.value
    assert "run 3: Policy rate 17.5, " in tree.chart.value
    assert tree.comparison is not None
    assert tree.comparison["interest_rate", "difference"].iloc[-1] == 0.75
    assert "Run 1 and run 3 part at turn 4" in tree.static_text()
    assert "They part at turn 4" in str(tree.static_html())
    tree.other_box.value = 0
    await tree.idle()
    assert tree.differences.value == tree.chart.value == ""
    assert tree.comparison is None


async def test_a_run_is_not_compared_with_itself() -> None:
    tree = RunTree(data_path(RECORDED))
    tree.other_box.value = 1
    await tree.idle()
    assert "does not differ from itself" in tree.status.value


async def test_runs_that_went_the_same_way_are_said_to(tmp_path: Path) -> None:
    tape = Tape(tmp_path / "two.tape")
    for _ in range(2):
        Simulation(make_config(), tape=tape).run(2)
    tree = RunTree(tape)
    tree.select(1, compare_with=2)
    await tree.idle()
    assert "took the same way" in tree.differences.value
    assert "part nowhere" in tree.static_text()


async def test_long_differences_are_cut_and_the_rest_is_named(tmp_path: Path) -> None:
    tape = Tape(tmp_path / "long.tape")
    first = Simulation(make_config(), tape=tape)
    first.run(60)
    first.fork(0, intervene=[{"turn": 1, "shock": {"demand": 1}}]).run(60)
    tree = RunTree(tape)
    tree.select(1, compare_with=2)
    await tree.idle()
    assert "The next 36 turns are in .comparison." in tree.differences.value


@pytest.mark.usefixtures("drawn")
async def test_runs_of_another_kind_are_compared_and_opened(tmp_path: Path) -> None:
    tape = Tape(tmp_path / "counted.tape")
    first = CounterSimulation(llm_client=make_client(count), tape=tape)
    await first.arun(3)
    await first.fork(1, state=Total(100)).arun(2)
    tree = RunTree(tape, llm_client=make_client(count))
    tree.select(1, compare_with=2)
    await tree.idle()
    assert tree.error.value == ""
    assert "They part at turn 1, in: total." in tree.differences.value
    assert 'alt="Chart of Total: run 1 and run 2, turns 0 to' in tree.chart.value
    tree.check_button.click()
    await tree.idle()
    assert "2 runs replayed to the same turns" in tree.status.value
    tree.open_button.click()
    await tree.idle()
    assert tree.stepper is not None
    assert "Total (points)" in tree.stepper.state.value
    tree.stepper.fork_button.click()
    await tree.stepper.idle()
    turn = await tree.stepper.step()
    assert turn.number == 4
    assert "Ann saw: " in tree.stepper.decisions.value


async def test_runs_whose_kind_charts_nothing_they_share_say_so(copy: Path) -> None:
    def edit(line: dict[str, Any]) -> dict[str, Any]:
        row = {"turn": line.get("turn"), "tokens": 7 * (line.get("turn") or 0)}
        return line | {"row": row} if "row" in line else line

    rewrite(copy, edit)
    tree = RunTree(copy)
    tree.select(2, compare_with=3)
    await tree.idle()
    assert "share no column that their kind charts" in tree.error.value


def test_a_run_that_cannot_be_read_says_so_in_place(copy: Path) -> None:
    tree = RunTree(copy)
    copy.unlink()
    tree.run_box.value = 2
    assert "TapeError" in tree.error.value


def test_prompts_too_long_to_compare_are_said_to_be(copy: Path) -> None:
    with Tape(copy) as tape:
        manifest = json.loads(json.dumps(tape.run(3).manifest))
        manifest["prompts"]["engine"]["text"] += "x" * 60_000
        tape.update_manifest(3, manifest)
        changes = dict(prompt_changes(tape.run(1), tape.run(3)))
    assert "Only the first 50,000 characters were compared." in changes["engine"]


async def test_a_run_opens_in_a_stepper_and_closes_again() -> None:
    tree = RunTree(data_path(RECORDED))
    tree.select(3)
    await tree.idle()
    tree.open_button.click()
    await tree.idle()
    assert tree.stepper is not None
    assert tree.opened.children == (tree.stepper,)
    assert tree.stepper.simulation.run_id == 3
    assert tree.stepper.shown == 8
    tree.close_button.click()
    assert tree.stepper is None
    assert tree.opened.children == ()
    tree.close_button.click()


async def test_a_fork_made_in_the_opened_stepper_joins_the_tree(copy: Path) -> None:
    tree = RunTree(Tape(copy), llm_client=make_client())
    tree.open_button.click()
    await tree.idle()
    assert tree.stepper is not None
    tree.stepper.show(5)
    tree.stepper.fork_button.click()
    await tree.stepper.idle()
    assert tree.stepper.error.value == ""
    assert "4 one nation · fork at turn 5" in tree.static_text()
    assert [number for _, number in tree.run_box.options] == [1, 2, 3, 4]
    assert tree.selected == 1


async def test_refresh_shows_what_others_recorded_meanwhile(copy: Path) -> None:
    tree = RunTree(copy)
    with Tape(copy) as other:
        Simulation(make_config(name="late"), tape=other).run(1)
    tree.refresh_button.click()
    await tree.idle()
    assert tree.nodes[4].tooltip.startswith("4 late · run")
    assert ">The tape was read again.<" in tree.status.value
    assert tree.error.value == ""


async def test_verify_says_that_all_runs_came_out_the_same() -> None:
    tree = RunTree(data_path(RECORDED))
    tree.check_button.click()
    await tree.idle()
    assert "The tape is sound; 3 runs replayed to the same turns." in tree.status.value
    assert tree.checked is not None
    assert tree.checked.findings == ()


def damaged_in_call_5(copy: Path) -> int:
    lines = copy.read_bytes().split(b"\n")
    at = next(n for n, line in enumerate(lines) if b'"no":5,' in line)
    lines[at] = lines[at].replace(b'"seconds":', b'"seconds":1')
    copy.write_bytes(b"\n".join(lines))
    return at + 1


async def test_verify_names_a_damaged_call(copy: Path) -> None:
    line = await asyncio.to_thread(damaged_in_call_5, copy)
    tree = RunTree(copy)
    tree.check_button.click()
    await tree.idle()
    assert f"line {line}, run 1: it was changed" in tree.error.value
    assert 'role="alert"' in tree.error.value
    assert tree.checked is not None
    assert tree.checked.same == 0


async def test_verify_names_a_run_that_cannot_be_replayed(tmp_path: Path) -> None:
    tape = Tape(tmp_path / "own.tape")
    own = Simulation(make_config(), agents=Simulation(make_config()).agents, tape=tape)
    await own.step()
    tree = RunTree(tape)
    tree.check_button.click()
    await tree.idle()
    assert "run 1: it cannot be replayed" in tree.error.value
    assert "agents" in tree.error.value


async def test_stop_breaks_off_a_check() -> None:
    tree = RunTree(data_path(RECORDED))
    tree.check_button.click()
    tree.stop_button.click()
    await tree.idle()
    assert "Stopped." in tree.status.value
    assert tree.checked is None


async def test_work_under_way_refuses_another_choice() -> None:
    tree = RunTree(data_path(RECORDED))
    tree.check_button.click()
    with pytest.raises(ConfigError, match="at work"):
        tree.select(2)
    await tree.idle()


def test_a_run_that_is_not_there_cannot_be_chosen() -> None:
    with pytest.raises(TapeError, match="no run 9"):
        RunTree(data_path(RECORDED)).select(9)


def test_an_empty_tape_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TapeError, match="holds no run yet; record one first"):
        RunTree(Tape(tmp_path / "empty.tape"))


def test_the_static_view_is_the_same_for_the_same_tape_and_names_no_folder(copy: Path) -> None:
    views = [RunTree(path)._repr_mimebundle_() for path in (copy, copy)]
    assert views[0]["text/plain"] == views[1]["text/plain"]
    assert views[0]["text/html"] == views[1]["text/html"]
    assert str(copy.parent) not in views[0]["text/plain"] + views[0]["text/html"]


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)></pre>\x1b[31m\u202e"


async def test_hostile_texts_on_a_tape_are_shown_and_do_nothing(copy: Path) -> None:
    with Tape(copy) as tape:
        manifest = json.loads(json.dumps(tape.run(3).manifest))
        [entry] = [e for place, e in manifest["prompts"].items() if place.startswith("agent")]
        entry["text"] = HOSTILE + entry["text"]
        manifest["model"]["name"] = HOSTILE
        tape.update_manifest(3, manifest)
    tree = RunTree(copy)
    tree.select(3)
    await tree.idle()
    static = str(tree.static_html())
    graph = tree.tree.children[0].value
    [[_, drawn]] = re.findall(r'<img alt="([^"]*)" src="data:image/svg.xml;base64,([^"]*)"', static)
    svg = base64.b64decode(drawn).decode()
    seen = graph + tree.facts.value + svg + re.sub("<img alt=[^>]*>", "", static)
    for text in ("<script", "<img", "\x1b", "\u202e"):
        assert text not in seen
        assert text not in tree.static_text() or text.startswith("<")
    assert "&lt;script&gt;" in seen


@pytest.mark.parametrize(
    "damage", [{"prompts": 7}, {"config": None}, {"model": "none"}, {"llm": []}, {"given": None}]
)
async def test_a_damaged_manifest_is_shown_as_far_as_it_goes(
    copy: Path, damage: dict[str, Any]
) -> None:
    with Tape(copy) as tape:
        tape.update_manifest(3, {**tape.run(3).manifest, **damage})
    tree = RunTree(copy)
    tree.select(3)
    await tree.idle()
    assert "fork of run 1 at turn 3" in tree.facts.value
