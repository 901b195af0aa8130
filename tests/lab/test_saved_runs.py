"""What stays of a window in a saved notebook: its runs as a tree, a call, picture and text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter

from llmsim_lab import Ask, LLMClient, LLMConfig, Reply, Run, ScriptedBackend, State, Tape
from llmsim_lab.lab import Lab, PromptViewer, RateChart, RunTree, TurnStepper, _saved_view

pytestmark = pytest.mark.usefixtures("undrawn")
M = "m" * 400
N = "n" * 200


class Level(State):
    level: float = 0.0


class Amount(Reply):
    amount: int


class Climb(Run[Level]):
    async def turn(self, state: Level, ask: Ask) -> Level:
        step = await ask("Ann", Amount, "You are {{ name }}, at {{ state.level }}. How much now?")
        return Level(level=state.level + step.amount)


def model(name: str = "script", amount: int = 4) -> LLMClient:
    answer = {"amount": amount, "reasoning": "", "confidence": 1}
    backend = ScriptedBackend(lambda _: answer)
    return LLMClient(LLMConfig(model=name, retry_wait_s=0), backend)


def forked(run: Run[Any], name: str = "script", **changes: Any) -> Run[Any]:
    """Play a turn of a fork after turn 1, in which two more are climbed."""
    made = run.fork(1, llm_client=model(name, 2), **changes)
    made.run(1, progress=False)
    return made


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tape with a run, forks of it, a fork of a fork, and a run of its own."""
    path = tmp_path_factory.mktemp("tree") / "tree.tape"
    with Tape(path) as tape:
        first = Climb(llm_client=model(), tape=tape, turns=3)
        first.run(1, progress=False)
        [prompt] = {prompt.name: prompt for prompt in first.prompts.values()}.values()
        other = forked(first, intervene={"level": 7})
        words = prompt.text.replace("You are", "Dear").replace("now?", "at once, please?")
        forked(first, prompt=prompt.edit(words))
        forked(first, "other")
        forked(first)
        forked(other, intervene=[{"turn": 1, "set": {"level": 1}, "note": M}])
        rule = Climb(name=N, players="random", tape=tape, turns=3)
        rule.run(1, progress=False)
        forked(first)
        forked(first)
        first.close()
    return path


FAMILY = [
    "1 Climb, turns 0 to 1: level 0 → 4",
    "2 fork, turn 1: level = 7, turns 0 to 2: level 0 → 9",
    "3 fork, prompt amount: “Dear … at once, please?”, turns 0 to 2: level 0 → 6",
    '4 fork, llm.model "script" → "other", turns 0 to 2: level 0 → 6',
    "5 fork, of run 1, turns 0 to 2: level 0 → 6",
    f"6 fork, turn 1: level = 1 ({'m' * 32}…, turns 0 to 2: level 0 → 3",
    "8 fork, of run 1, turns 0 to 2: level 0 → 6",
    "9 fork, of run 1, turns 0 to 2: level 0 → 6",
]
DONE = f"turn 1: level = 7; level = 7; level = 1 ({'m' * 86}…"
LINES = [
    "1 Climb · run · scripted",
    "   2 Climb · fork at turn 1 · turn 1: level = 7 · scripted",
    f"      6 Climb · fork at turn 1 · turn 1: level = 1 ({'m' * 90}",
    "   3 Climb · fork at turn 1 · prompt amount: [-You are-]{+Dear+} … scripted",
    '   4 Climb · fork at turn 1 · llm.model "script" → "other" · scripted',
    *(f"   {number} Climb · fork at turn 1 · scripted" for number in (5, 8, 9)),
    f"7 {'n' * 150}",
]


def test_runs_are_a_tree_of_which_a_text_has_eight_and_a_page_all(tree: Path) -> None:
    window = RunTree(tree)
    alone = next(line for line in window.static_text().splitlines() if line.startswith("7 n"))
    shown = window.static_text().splitlines()
    heading, chart, *rest = shown
    assert (heading, chart) == ("RunTree of tree.tape", "Chart: Climb")
    assert alone.startswith(f"7 {'n' * 57}…, turns 0 to 1: level 0 → ")
    assert rest[:10] == [*FAMILY[:6], alone, *FAMILY[6:], DONE]
    assert rest[10] == "9 runs"
    assert rest[-1] == "and 1 more"
    assert len(rest) == 11 + 8 + 1
    html = str(window.static_html())
    assert html.count("<details>") == 2
    listed = re.findall(r"<pre[^>]*>(.*?)</pre>", html, re.DOTALL)[-1]
    lines = listed.replace("&#34;", '"').splitlines()
    assert len(lines) == 9
    for line, wanted in zip(lines, LINES, strict=True):
        start, _, end = wanted.partition(" … ")
        assert line.startswith(start)
        assert line.endswith(end)
    assert {len(lines[at].lstrip()) for at in (2, 8)} == {len("6 ") + 160}
    assert rest[11:19] == lines[:8]


def test_a_picture_is_of_the_family_of_the_run_shown(tree: Path) -> None:
    for number in (1, 3, 6):
        lines = Lab(tree, run=number).static_text().splitlines()
        assert lines[1:10] == ["Chart: Climb", *FAMILY]
    alone = Lab(tree, run=7).static_text().splitlines()
    assert alone[1] == f"Chart: {'n' * 99}…"
    assert alone[2].startswith(f"7 {'n' * 57}…, turns 0 to 1: ")
    assert alone[3] == "Turn 1"


async def test_a_fork_in_memory_is_named_by_what_differs_from_its_parent() -> None:
    run = Climb(llm_client=model(), turns=9)
    lab = Lab(run)
    await lab.play(1)
    lab.fork(1, llm_client=model("other"))
    lab.fork(1, run=1)
    lab.fork(1, run=1, intervene=[{"turn": 2, "set": {"level": 3}}])
    [prompt] = {prompt.name: prompt for prompt in run.prompts.values()}.values()
    lab.fork(1, run=1, prompt=prompt.edit(f"{prompt.text} Now!"))
    names = [line.partition(", turns")[0] for line in lab.static_text().splitlines()[2:7]]
    assert names == [
        "1 Climb",
        "2 fork, other",
        "3 fork, of run 1",
        "4 fork, turn 2: level = 3",
        "5 fork, prompt amount edited",
    ]


def test_a_call_is_shown_with_its_turn_and_before_the_first_one_the_latest(tree: Path) -> None:
    viewer = PromptViewer(tree, run=2)
    asked = "[user]\nYou are Ann, at 7.0. How much now?\n[reply]\n"
    assert viewer.static_text().startswith(f"PromptViewer of tree.tape\n{' '.join(asked.split())}")
    html = str(viewer.static_html())
    assert html.startswith("<p>Turn 2 · Ann</p><details open><summary>The prompt</summary>")
    viewer.show(0)
    assert "at 7.0. How much" in viewer.static_text()
    nobody = PromptViewer(tree, run=7)
    assert nobody.static_text().splitlines()[:2] == ["PromptViewer of tree.tape", "9 runs"]


def test_a_call_that_was_not_answered_shows_what_went_wrong_and_a_long_one_is_cut() -> None:
    def late(_: object) -> Any:
        raise TimeoutError

    class Long(Climb):
        async def turn(self, state: Level, ask: Ask) -> Level:
            await ask("Ann", Amount, "x" * 5_000, fallback=lambda _: Amount.model_construct())
            return state

    run = Long(llm_client=LLMClient(LLMConfig(retry_wait_s=0), ScriptedBackend(late)))
    run.run(1, progress=False)
    viewer = PromptViewer(run)
    assert str(viewer.static_html()).endswith(">timeout</pre>")
    [line] = viewer.static_text().splitlines()[1:]
    assert line == f"[user] {'x' * 3_992}…"


class Talk(State):
    words: str = "w" * 90
    is_open: bool = True
    is_shut: bool = False
    nothing: str | None = None
    share: float = 0.5


class Speech(Reply):
    action: str
    to: str


class Talks(Run[Talk]):
    async def turn(self, state: Talk, ask: Ask) -> Talk:
        await ask("Ann", Speech, "Speak.")
        await ask("Ann", Speech, "Speak.", tag="second")
        return state.replace(share=state.share + 0.25)


def test_long_words_are_cut_and_a_second_answer_of_a_player_has_its_own_name() -> None:
    said = {"action": "a" * 90, "to": "t" * 90, "reasoning": "r" * 400, "confidence": 1}
    client = LLMClient(LLMConfig(retry_wait_s=0), ScriptedBackend(lambda _: said))
    changed = {"turn": 1, "set": {"share": 0.5}, "note": "s" * 400}
    run = Talks(llm_client=client, interventions=[changed])
    run.run(1, progress=False)
    stepper = TurnStepper(run)
    words = f"{'a' * 59}…, to {'t' * 34}…"
    lines = stepper.static_text().splitlines()
    assert lines[-3:] == [
        f"from outside: turn 1: share = 0.5 ({'s' * 178}…",
        f"  Ann: {words}",
        f"  second: {words}",
    ]
    html = str(stepper.static_html())
    assert f">{'a' * 59}…, to {'t' * 54}…<" in html
    assert f">{'r' * 299}…<" in html
    [outside] = re.findall(r"From outside: [^<]+", html)
    assert (outside[:36], len(outside)) == ("From outside: turn 1: share = 0.5 (s", 301)


# --- picture and text -----------------------------------------------------------------------------


class Handle:
    """What a notebook gives for an output, to write it anew."""

    def __init__(self) -> None:
        self.written: list[tuple[Any, dict[str, Any]]] = []

    def update(self, bundle: Any, **settings: Any) -> None:
        self.written.append((bundle, settings))


class Events:
    """A notebook's events, and who listens."""

    def __init__(self) -> None:
        self.listening: list[tuple[str, object]] = []

    def register(self, name: str, act: object) -> None:
        self.listening.append((name, act))

    def unregister(self, name: str, act: object) -> None:
        self.listening.remove((name, act))


async def test_picture_and_text_are_written_anew_when_what_is_shown_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs: list[tuple[Any, dict[str, Any], Handle]] = []

    def display(bundle: Any, **settings: Any) -> Handle:
        outputs.append((bundle, settings, Handle()))
        return outputs[-1][2]

    events = Events()
    monkeypatch.setattr(Lab, "_save_soon", lambda _: None)  # which does so after half a second
    monkeypatch.setattr(_saved_view, "display", display)
    monkeypatch.setattr(_saved_view, "get_ipython", lambda: SimpleNamespace(events=events))
    lab = Lab(Climb(llm_client=model(), turns=9))
    await lab.play(1)
    DisplayFormatter().format(lab)
    live, picture, text = outputs
    view = {"version_major": 2, "version_minor": 0, "model_id": lab.model_id}
    assert live[:2] == (
        {"application/vnd.jupyter.widget-view+json": view, "text/html": ""},
        {"raw": True},
    )
    alt = picture[1].pop("metadata")["image/png"]["alt"]
    assert alt.splitlines()[1] == "Climb, turns 0 to 1: level 0 → 4"
    assert picture[1] == text[1] == {"raw": True, "display_id": True}
    saved = lab._saved
    assert saved is not None
    assert events.listening == [("post_execute", saved.update)]

    ticks: Iterator[float] = iter([100.0, 102.0])
    saved.update()
    assert picture[2].written == text[2].written == []
    await lab.play(1)
    with monkeypatch.context() as patch:
        patch.setattr(_saved_view, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
        saved.update()
    assert saved.rests_until == 102 + 9 * 2, "an update may take a second of the kernel"
    [(_, how)] = picture[2].written
    assert (how["raw"], "turns 0 to 2" in how["metadata"]["image/png"]["alt"]) == (True, True)
    [(words, how)] = text[2].written
    assert (how, "Turn 2" in words["text/plain"]) == ({"raw": True}, True)
    assert re.search(r"^<style>.*</style><div class=.?llmsim-static", words["text/html"])
    saved.update()
    assert len(text[2].written) == 1, "nothing is new"
    lab.show(0)
    saved.update()
    assert "Start" in text[2].written[1][0]["text/plain"]
    lab.close()
    assert events.listening == []
    saved.close()  # again
    lab.first = {"run": 1, "turn": 1}
    saved.update()
    assert len(text[2].written) == 2, "a window that is closed is written no more"
    DisplayFormatter().format(lab)
    assert [next(iter(bundle)) for bundle, *_ in outputs[3:]] == ["image/png", "text/plain"]
    DisplayFormatter().format(Lab(Climb(llm_client=model())))
    assert outputs[6][0] == {"text/html": ""}, "the place of a picture that comes with a turn"


def test_a_chart_of_one_turn_has_no_picture(tree: Path) -> None:
    lab = Lab(Climb(llm_client=model()))
    assert lab.static_picture() is None
    assert lab.static_text().splitlines() == ["Lab of Climb", "Start", "  level: 0"]
    assert TurnStepper(tree, run=1).static_picture() is None
    chart = RateChart(tree, title="Climbs").static_text()
    assert chart.startswith("RateChart of Climbs\nChart: Climbs\n1 Climb")
