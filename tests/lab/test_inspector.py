"""The reasoning inspector, driven as a user does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from builders import answer, make_simulation
from viewer_kit import HOSTILE, bumpy, hostile_run, played

from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import ReasoningInspector
from llmsim_lab.lab._inspector import COLUMNS, Filter, decisions_by_agent
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.run._turn import RunTurn
from llmsim_lab.types import Attempt, CallRecord, ChatReply, ChatRequest, Message

TWO_NATIONS = Path(__file__).parents[2] / "data" / "tapes" / "two_nations.tape"


def options(box: Any) -> list[str]:
    return [label for label, _ in box.options]


# What is shown


def test_the_chain_of_each_agent_is_shown_side_by_side() -> None:
    inspector = ReasoningInspector(played())
    page = inspector.body.value
    assert "Turn 2" in inspector.heading.value
    assert page.count(">agent</div>") == 2
    assert page.count(">→ validator</div>") == 2
    assert page.count(">→ engine</div>") == 2
    assert "display:flex;flex-wrap:wrap" in page
    assert page.index("Aland") < page.index("Borduria")


def test_a_step_says_what_was_decided_why_and_at_what_cost() -> None:
    inspector = ReasoningInspector(str(TWO_NATIONS))
    page = inspector.body.value
    assert "new_interest_rate: 25" in page
    assert "is_valid: true" in page
    assert "confidence 0.8" in page
    assert " tokens" in page
    assert " s</span>" in page
    assert ">ok</span>" in page


def test_a_rules_step_says_so_and_what_it_proposed() -> None:
    inspector = ReasoningInspector(played(names=({"name": "Rule", "kind": "taylor"}, "Aland")))
    inspector.show(agent="Rule")
    assert "by rule" in inspector.body.value
    assert "Set the interest rate to" in inspector.body.value
    assert "agent (by rule, confidence 1): Set the interest rate to" in inspector.static_text()


def test_the_initial_state_has_no_decisions() -> None:
    inspector = ReasoningInspector(make_simulation())
    assert "Nothing was decided in this turn" in inspector.body.value
    assert "nothing to show" in inspector.static_text()


def test_attempts_are_counted_where_there_were_several(tmp_path: Path) -> None:
    inspector = ReasoningInspector(bumpy(tmp_path / "x.tape"))
    inspector.show(agent="Borduria", component="agent")
    assert "2 attempts" in inspector.body.value
    assert ">repaired</span>" in inspector.body.value


def test_long_reasoning_is_folded() -> None:
    inspector = ReasoningInspector(hostile_run())
    assert (
        f"<summary>reasoning, {len(HOSTILE.strip()):,} characters</summary>" in inspector.body.value
    )
    assert len(inspector.body.value) < 20_000


# Turns


def test_back_and_forth_go_through_the_turns() -> None:
    inspector = ReasoningInspector(played(turns=3))
    inspector.previous_button.click()
    assert inspector.turn_box.value == 2
    inspector.next_button.click()
    inspector.next_button.click()
    assert "nothing to show after turn 3" in inspector.status.value
    inspector.turn_box.value = 1
    assert "Turn 1" in inspector.heading.value
    inspector.latest_button.click()
    assert inspector.turn_box.value == 3


async def test_a_running_simulation_is_followed_by_who_looks_at_the_latest_turn() -> None:
    simulation = make_simulation()
    inspector, behind = ReasoningInspector(simulation), ReasoningInspector(simulation)
    await simulation.arun(1)
    behind.turn_box.value = 0
    await simulation.arun(2)
    assert (inspector.turn_box.value, behind.turn_box.value, behind.turn_box.max) == (3, 0, 3)


# The matrix


def test_a_cell_of_the_matrix_shows_its_agent_and_turn_and_a_second_click_all_again() -> None:
    inspector = ReasoningInspector(played(turns=3))
    aland, borduria = inspector.matrix.children
    assert [cell.description for cell in aland.children[1:]] == ["1", "2", "3"]
    assert "Borduria, turn 2: ok." in borduria.children[2].tooltip
    borduria.children[2].click()
    assert (inspector.turn_box.value, inspector.agent_box.value) == (2, "Borduria")
    assert "Aland" not in inspector.body.value
    assert len(inspector.matrix.children) == 2
    inspector.matrix.children[1].children[2].click()
    assert (inspector.turn_box.value, inspector.agent_box.value) == (2, "")
    assert "Aland" in inspector.body.value


def test_the_matrix_tells_statuses_without_colour_and_marks_the_turn_shown(tmp_path: Path) -> None:
    inspector = ReasoningInspector(bumpy(tmp_path / "x.tape"))
    cells = [cell for line in inspector.matrix.children for cell in line.children[1:]]
    assert any(cell.description.endswith("r") for cell in cells)
    assert all("repaired" in c.tooltip for c in cells if c.description.endswith("r"))
    bold = {cell.description.rstrip("rf!·-") for cell in cells if cell.style.font_weight == "bold"}
    assert bold == {str(inspector.turn_box.value)}
    rule = ReasoningInspector(played(names=({"name": "Rule", "kind": "taylor"},)))
    assert "by rule" in rule.matrix.children[0].children[1].tooltip


def test_the_matrix_uses_its_buttons_again() -> None:
    inspector = ReasoningInspector(played(turns=3))
    before = inspector.matrix.children[0].children
    inspector.previous_button.click()
    assert inspector.matrix.children[0].children == before


# Filters


def test_component_and_agent_leave_only_their_steps() -> None:
    inspector = ReasoningInspector(played())
    assert options(inspector.agent_box) == ["all", "Aland", "Borduria"]
    assert options(inspector.component_box) == ["all", "agent", "validator", "engine"]
    inspector.component_box.value = "engine"
    inspector.agent_box.value = "Borduria"
    assert inspector.body.value.count("confidence") == 1
    assert "Aland" not in inspector.body.value
    frame = inspector.to_frame()
    assert frame[["turn", "component", "agent"]].to_numpy().tolist() == [
        [1, "engine", "Borduria"],
        [2, "engine", "Borduria"],
    ]
    assert len(inspector.to_frame(turn=2)) == 1


def test_a_text_marks_the_steps_that_have_it_and_keeps_the_chain() -> None:
    inspector = ReasoningInspector(played())
    inspector.text_box.value = "BORDURIA SEES"
    assert "Aland" not in inspector.body.value
    assert ">agent (found)</div>" in inspector.body.value
    assert ">→ engine</div>" in inspector.body.value
    assert inspector.to_frame().reasoning.tolist() == [
        "Borduria sees turn 1.",
        "Borduria sees turn 2.",
    ]


def test_a_status_filter_skips_turns_without_it(tmp_path: Path) -> None:
    inspector = ReasoningInspector(bumpy(tmp_path / "x.tape"))
    inspector.status_box.value = "repaired"
    assert inspector.to_frame().agent.unique().tolist() == ["Borduria"]
    inspector.status_box.value = "failed"
    assert "Nothing passes the filter in this turn" in inspector.body.value
    inspector.previous_button.click()
    assert "nothing to show before turn 3" in inspector.status.value
    assert list(inspector.to_frame().columns) == list(COLUMNS)
    assert inspector.to_frame().empty


def test_what_was_decided_is_searched_too() -> None:
    inspector = ReasoningInspector(played())
    inspector.show(text="new_interest_rate: 4.5", turn=1)
    assert inspector.to_frame().component.tolist() == ["engine"]


def test_a_chosen_agent_stays_on_offer_in_turns_without_it() -> None:
    inspector = ReasoningInspector(played())
    inspector.agent_box.value = "Borduria"
    inspector.turn_box.value = 0
    assert options(inspector.agent_box) == ["all", "Borduria"]
    assert inspector.agent_box.value == "Borduria"


def test_show_says_what_there_is_instead() -> None:
    inspector = ReasoningInspector(played())
    with pytest.raises(ConfigError, match="no turn 9; it has turns 0 to 2"):
        inspector.show(turn=9)
    with pytest.raises(ConfigError, match="no agent 'X'; it has: Aland, Borduria"):
        inspector.show(agent="X")
    with pytest.raises(ConfigError, match="no component 'judge'; it has: agent, validator, engine"):
        inspector.show(component="judge")
    with pytest.raises(ConfigError, match="no status 'good'"):
        inspector.show(status="good")


# Changes


def test_what_changed_since_the_turn_before_is_shown() -> None:
    def reply(request: ChatRequest) -> Any:
        given = answer(request)
        assert request.site is not None
        if request.site.component == "agent" and request.site.turn == 2:
            return given.model_copy(update={"confidence": 0.5})
        return given

    inspector = ReasoningInspector(played(reply, names=("Aland",)))
    assert "Changes" not in inspector.body.value
    inspector.changes_box.value = True
    page = inspector.body.value
    assert "confidence: 0.8 → 0.5" in page
    assert "<del>1.</del> <ins>2.</ins>" in re.sub(' style="[^"]*"', "", page)
    assert "<em>Changes</em></div>none" in page
    inspector.turn_box.value = 1
    assert "there was none in the turn before" in inspector.body.value


@pytest.mark.parametrize(("length", "cut"), [(1_000, False), (1_001, True)])
def test_of_long_reasoning_only_the_beginning_is_compared(length: int, cut: bool) -> None:
    def reply(request: ChatRequest) -> Any:
        given = answer(request)
        assert request.site is not None
        if request.site.component != "agent":
            return given
        return given.model_copy(update={"reasoning": f"{request.site.turn}".ljust(length, ".")})

    inspector = ReasoningInspector(played(reply, names=("Aland",)))
    inspector.changes_box.value = True
    note = "Only the first 1,000 characters were compared."
    assert (note in inspector.body.value) is cut


# Other kinds of simulation


class Other:
    """A run of another kind, with components of its own and no confidence."""

    tape = None

    def __init__(self) -> None:
        self.config = type("Config", (), {"name": "other"})()
        chains = (
            self.chain("reasoner", "chooses", reply="free words"),
            self.chain("reasoner", "chooses again", reply=None),
        )
        self.turns: list[RunTurn[Any, Any]] = [
            RunTurn(number=0, state=None),
            RunTurn(number=1, state=None, chains=chains),
        ]

    @staticmethod
    def chain(component: str, reasoning: str, *, reply: str | None) -> LLMReasoningChain:
        request = ChatRequest(model="m", messages=(Message("user", "?"),))
        answered = ChatReply(text=reply) if reply is not None else None
        attempt = Attempt(request=request, reply=answered, seconds=0)
        return LLMReasoningChain(
            component=component,
            agent="Ada",
            turn=1,
            reasoning=reasoning,
            confidence=None,
            call=CallRecord(history=(attempt,), status="ok"),
        )

    async def step(self) -> None: ...

    def to_frame(self) -> None: ...

    @property
    def chains(self) -> list[LLMReasoningChain]:
        return list(self.turns[-1].chains)


def test_components_of_any_name_are_shown() -> None:
    other: Any = Other()
    inspector = ReasoningInspector(other)
    assert options(inspector.component_box) == ["all", "reasoner"]
    assert "confidence not asked" in inspector.body.value
    assert "confidence not asked" in inspector.static_text()
    assert ">→ reasoner</div>" in inspector.body.value
    assert inspector.to_frame().confidence.isna().all()


# Many agents


def test_many_agents_come_ten_to_a_page() -> None:
    inspector = ReasoningInspector(played(names=tuple(f"N{number:02}" for number in range(23))))
    assert "23 agents" in inspector.heading.value
    assert (inspector.page_box.max, inspector.page_box.layout.display) == (3, "")
    assert "N09" in inspector.body.value
    assert "N10" not in inspector.body.value
    inspector.page_box.value = 3
    assert "N22" in inspector.body.value
    assert "… and 13 more agents" in inspector.static_text()
    inspector.agent_box.value = "N05"
    assert (inspector.page_box.value, inspector.page_box.layout.display) == (1, "none")


def test_the_page_does_not_grow_with_the_turns() -> None:
    short, long = (ReasoningInspector(played(turns=turns)) for turns in (2, 12))
    assert len(long.body.value) < 1.1 * len(short.body.value)


# Untrusted text, static view


def test_hostile_text_is_shown_and_does_nothing() -> None:
    inspector = ReasoningInspector(hostile_run())
    inspector.changes_box.value = True
    page = inspector.body.value + inspector.heading.value + str(inspector.static_html())
    for wrong in ("<script", "<img", "</style", "<b>", "\x1b", "\u202e"):
        assert wrong not in page
    assert "&lt;script&gt;" in page
    assert "\u202e" not in inspector.static_text()
    assert "\x1b" not in inspector.static_text()


def test_the_static_view_is_the_same_for_the_same_run() -> None:
    [first, second] = [ReasoningInspector(str(TWO_NATIONS))._repr_mimebundle_() for _ in range(2)]
    for kind in ("text/plain", "text/html"):
        assert first[kind] == second[kind]
    assert "Reasoning of 'model', Turn 12 (1982Q3)" in first["text/plain"]
    assert " s</div>" not in first["text/html"]


def test_an_empty_filter_wants_everything() -> None:
    assert not Filter()
    assert Filter(text="a")
    assert decisions_by_agent(RunTurn(number=0, state=None)) == {}
