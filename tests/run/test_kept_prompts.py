"""A recorded prompt is read back to the last blank, whatever its text is."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, recorded
from tape_text import changed_manifest, rewrite
from worlds import Gift, Pot

from llmsim_lab import Ask, LLMClient, Prompt, Run
from llmsim_lab.errors import PromptError, TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.prompts.prompt import digest_of
from llmsim_lab.run import fork, load, replay, rerun, resume
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import verify

ODD = [
    Prompt("\nYou have {{ state.coins.Ann }}.\nGive?  \n", name="gift"),
    Prompt("Give {{ state.coins.Ann }}? ", system=" Be brief.\n", name="gift"),
    Prompt("Of a user.\n## User\nhas {{ state.coins.Ann }}. Give?", name="gift"),
    Prompt("## System\nYou play.\n\n## User\n\nGive {{ state.coins.Ann }}?", name="gift"),
    Prompt("Give {{ name }}?\n## System", system="A\n\n## User\n\nB\n## System\n", name="gift"),
    "Of a user.\n## User\nhas {{ state.coins.Ann }}.\n## System\nGive?",
]


def client() -> LLMClient:
    return make_client({"reasoning": "r", "amount": 1, "confidence": 1})


def asking(prompt: Prompt | str) -> type[Run[Pot]]:
    class Asking(Run[Pot]):
        async def turn(self, state: Pot, ask: Ask) -> Pot:
            await ask("Ann", Gift, prompt)
            return state

    return Asking


def sent(run: Any) -> list[str]:
    return [call.request.prompt for call in run.calls]


@pytest.mark.parametrize("prompt", ODD)
def test_a_run_with_any_prompt_can_be_read_continued_and_shown(
    path: Path, prompt: Prompt | str
) -> None:
    run = recorded(asking(prompt)(llm_client=client(), tape=path), 2)
    run.close()
    [used] = run.prompts.values()
    others = [
        load(path),
        replay(path),
        recorded(fork(path, 1, turn=1, llm_client=client()), 1),
        recorded(rerun(path, 1, llm_client=client()), 2),
        recorded(resume(path, 1, llm_client=client()), 1),
    ]
    for other in others:
        [kept] = other.prompts.values()
        assert (kept.user, kept.system, kept.digest) == (used.user, used.system, used.digest)
        assert set(sent(other)) == set(sent(run))
    assert run.page(path.with_suffix(".html")).exists()


@pytest.mark.parametrize("prompt", ODD[:5])
def test_an_edited_prompt_keeps_blank_ends_and_lines_that_a_file_takes_for_headings(
    prompt: Prompt,
) -> None:
    as_a_whole, as_a_message = prompt.edit(prompt.text), prompt.edit(prompt.user)
    assert as_a_whole == as_a_message == prompt
    shorter = prompt.replace("Give", "Pay")
    assert shorter.user == prompt.user.replace("Give", "Pay")
    assert (shorter.system, shorter.parent) == (prompt.system, prompt.digest)


def test_a_manifest_from_before_system_messages_stood_by_themselves_is_read(path: Path) -> None:
    recorded(asking(ODD[0])(llm_client=client(), tape=path), 1).close()
    [(place, entry)] = Tape(path).run(1).manifest["prompts"].items()
    older = {name: value for name, value in entry.items() if name != "system"}
    changed_manifest(path, 1, prompts={place: older})
    assert replay(path).prompts == {place: ODD[0]}
    changed_manifest(path, 1, prompts={place: {**entry, "system": "Be brief."}})
    with pytest.raises(TapeError, match=r"the recorded prompt of gift#.* is damaged") as caught:
        load(path)
    assert [str(finding) for finding in verify(path)] == [f"run 1: {caught.value}"]


def test_a_mistake_in_a_recorded_template_is_an_error_where_the_prompt_is_used(path: Path) -> None:
    recorded(asking(ODD[0])(llm_client=client(), tape=path), 1).close()
    [(place, entry)] = Tape(path).run(1).manifest["prompts"].items()
    wrong = {**entry, "text": "## User\n\n{{", "digest": digest_of("", "{{")}
    changed_manifest(path, 1, prompts={place: wrong})
    [prompt] = load(path).prompts.values()
    assert repr(pickle.loads(pickle.dumps(prompt))).startswith("RecordedPrompt('gift', digest='")
    for use in (prompt.render, lambda: prompt.edit("{{ "), lambda: replay(path)):
        with pytest.raises(PromptError, match="prompt 'gift', user message, line 1"):
            use()


@pytest.mark.parametrize("of_own", [True, False])
def test_a_recorded_committee_keeps_the_prompts_that_it_had(path: Path, of_own: bool) -> None:
    """Of a tape from before committees had a prompt of their own."""
    banks = Prompt.load("agent_briefing").text if of_own else None
    nations = [{"name": name, "prompt": banks} for name in ("Ann", "Bob")]
    decision = {"reasoning": "r", "rate_change_bp": 0, "action": "Hold", "confidence": 1}
    recorded(Simulation(nations=nations, llm_client=make_client(decision), tape=path), 2).close()

    def older(line: Any) -> Any:
        return json.loads(json.dumps(line).replace("committee_briefing", "agent_briefing"))

    rewrite(path, older)
    names = {name.partition("#")[0] for name in replay(path).prompts}
    ends = (" of Ann", " of Bob") if of_own else ("",)
    assert names == {f"agent_briefing{end}" for end in ends}
