"""A page of runs: whole, small, and without a word that a browser would obey."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from builders import make_client
from page_kit import PageData, hostile_game, long_run
from tape_text import changed_manifest
from worlds import Gift, Pot, PublicGoods

from llmsim_lab import Ask, data_path
from llmsim_lab._util.html import SERIES_COLOURS, STATUS_COLOURS
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.run import load
from llmsim_lab.run.page import module, write_page
from llmsim_lab.run.recorded import page

TAPES = [*sorted(data_path("tapes").glob("*.tape")), *sorted(data_path("templates").glob("*.tape"))]
RECORDED = data_path("tapes/first_run.tape")


SMILE = "\N{SLIGHTLY SMILING FACE}"
"""A letter that JavaScript counts as two."""


class Smiling(PublicGoods):
    """Asks one player, with values behind letters that a browser takes for two."""

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        prompt = f"Dear {SMILE}{SMILE}, to {{{{ who }}}} {SMILE} {{{{ more }}}}!"
        gift = await ask("Ann", Gift, prompt, who=f"A{SMILE}nn", more="x")
        return state.replace(given={"Ann": gift.amount})


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> PageData:
    return PageData(page(RECORDED, tmp_path_factory.mktemp("pages") / "first.html"))


@pytest.mark.parametrize("tape", TAPES, ids=lambda path: path.stem)
def test_every_world_has_a_page_with_each_request_word_for_word(tape: Path, tmp_path: Path) -> None:
    shown = PageData(page(tape, tmp_path / "run.html"))
    assert shown.title == tape.name
    with Tape(tape, read_only=True) as read:
        recorded = [it for run in read.runs() for it in read.calls(run.id, forgotten=True)]
        assert list(shown.runs) == [run.id for run in read.runs()]
    tries = [(call, tried) for call in shown.calls.values() for tried in call["tries"]]
    assert len(tries) == len(recorded) > 0

    def words(messages: Any, reply: str | None) -> str:
        return repr((list(messages), reply))

    asked = sorted(
        words(
            (message.content for message in it.attempt.request.messages if not message.tool_calls),
            it.attempt.reply.text if it.attempt.reply else None,
        )
        for it in recorded
    )
    told = sorted(
        words(
            (text for _, at in tried["messages"] if "→ " not in (text := shown.text(at))),
            shown.text(tried["reply"]) if "reply" in tried else None,
        )
        for _, tried in tries
    )
    assert told == asked
    assert {call.get("status", "") for call, _ in tries} <= {*STATUS_COLOURS, "lost", ""}


def test_the_runs_say_what_each_fork_changed(first_run: PageData) -> None:
    runs = first_run.runs
    assert [(at, run["parent"], run["fork"]) for at, run in runs.items()] == [
        (1, None, None),
        (2, 1, 3),
        (3, 1, 3),
    ]
    assert runs[2]["changes"] == ["turn 3: shock.supply = 4 (oil)"]
    assert "central banker who fears inflation" in runs[3]["changes"][0]
    assert first_run.start == 3
    assert [run["series"][0]["label"] for run in runs.values()] == ["Policy rate"] * 3


def test_a_page_of_a_class_that_is_not_known_here_lacks_only_what_became_of_decisions(
    tmp_path: Path,
) -> None:
    tape = tmp_path / "other.tape"
    game = hostile_game(tape=tape)
    known = PageData(game.page(tmp_path / "known.html"))
    kind = Tape(tape).run().manifest["kind"]
    changed_manifest(tape, 1, kind=kind.replace("worlds:", "gone:"))
    unknown = PageData(page(tape, tmp_path / "unknown.html"))
    assert "without its class, gone:PublicGoods" in unknown.runs[1]["notes"][0]
    assert known.runs[1]["notes"] == []
    assert unknown.calls.keys() == known.calls.keys()
    made = [turn["decisions"] for turn in unknown.turns.values()]
    assert made == [turn["decisions"] for turn in known.turns.values()]


def test_slots_are_where_a_browser_counts_them_also_behind_letters_it_takes_for_two(
    tmp_path: Path,
) -> None:
    run = Smiling(llm_client=make_client([{"reasoning": "r", "amount": 1, "confidence": 1}]))
    run.run(1)
    shown = PageData(run.page(tmp_path / "names.html"))
    [call] = shown.calls.values()
    assert shown.slots(call["tries"][0]) == {"who": f"A{SMILE}nn", "more": "x"}


def test_a_run_is_shown_with_its_family_and_first(tmp_path: Path) -> None:
    tape = data_path("tapes/demo.tape.gz")
    family = PageData(page(tape, tmp_path / "two.html", run=3))
    assert list(family.runs) == [1, 3]
    assert family.start == 3
    assert PageData(load(tape, 1).page(tmp_path / "run.html")).start == 1


def test_no_text_of_a_run_is_in_the_page_as_html(tmp_path: Path) -> None:
    shown = PageData(hostile_game(tape=tmp_path / "a.tape").page(tmp_path / "poison.html"))
    # The data are letters and digits; what is left is the shell.
    shell = re.sub(r'id="reading">[^<]*<', "<", shown.html)
    for bad in ("<img", "window.hacked=1<", "onerror='", "\x1b", "\u202e", "<!--"):
        assert bad not in shell
    assert shell.count("</noscript>") == shell.count("</title>") == shell.count("</style>") == 1
    assert any("window.hacked=1" in line for line in shown.lines)


def test_the_page_allows_its_own_script_and_style_and_nothing_else(first_run: PageData) -> None:
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', first_run.html)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        [text] = re.findall(rf"<{tag}(?: type=.module.)?>(.*?)</{tag}>", first_run.html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    own = module()
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "DOMParser",
    ):
        assert way not in own


def test_the_same_runs_give_the_same_file(first_run: PageData, tmp_path: Path) -> None:
    again = page(RECORDED, tmp_path / "again.html")
    assert again.read_text("utf-8") == first_run.html


def test_a_line_that_many_prompts_share_is_kept_once(tmp_path: Path) -> None:
    path = write_page(tmp_path / "long.html", long_run(turns=20, players=10), start=1)
    shown = PageData(path)
    tries = [tried for call in shown.calls.values() for tried in call["tries"]]
    assert sum(len(shown.text(at)) for tried in tries for _, at in tried["messages"]) > 400_000
    assert len(shown.lines) == len(set(shown.lines))
    assert path.stat().st_size < 320_000


def test_the_front_ends_files_can_be_joined() -> None:
    own = re.findall(r"^(?:async )?(?:const|let|function|class) (\w+)", module(), re.MULTILINE)
    assert len(own) == len(set(own)), "they share one scope"
    assert "</script" not in module().lower()
    assert module().count("export ") == module().count("export default ") == 1


def test_the_page_has_the_colours_of_all_charts() -> None:
    for colour in SERIES_COLOURS:
        assert colour.lower() in module()


def test_a_page_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'run\.txt' does not end in \.html"):
        page(RECORDED, tmp_path / "run.txt")
    with pytest.raises(ConfigError, match="cannot write"):
        page(RECORDED, tmp_path / "nowhere" / "run.html")
    with pytest.raises(TapeError, match="no run 9"):
        page(RECORDED, tmp_path / "run.html", run=9)
    assert list(tmp_path.iterdir()) == []
