"""Comparisons over several wordings of a prompt, and over several runs: what they may speak of."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pandas as pd
import pytest
from comparison_kit import make_run
from worlds import PublicGoods

from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.lab import PromptComparer
from llmsim_lab.lab.figures import difference_figure
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.study import Comparison
from llmsim_lab.study._comparison import Progress
from llmsim_lab.study._keeping import arms_on, variants_on
from llmsim_lab.study._statistics import situation_effects
from llmsim_lab.tape import verify
from llmsim_lab.types import ChatRequest

GIFTS = {"be kind": 6, "be nice": 7, "be warm": 8, "be good": 9}
"""What a wording adds to a gift."""


def giver(request: ChatRequest) -> dict[str, Any]:
    """Give 0 to 3 coins, by prompt and seed, and what the wording adds."""
    rng = random.Random(crc32(f"{request.prompt}{request.options.get('seed')}".encode()))
    more = sum(amount for words, amount in GIFTS.items() if words in request.prompt)
    return {"reasoning": "Well.", "amount": more + rng.randrange(4), "confidence": 0.5}


def client() -> LLMClient:
    return LLMClient(LLMConfig(model="giver", retry_wait_s=0), ScriptedBackend(giver))


def taped(path: Path, *, seeds: tuple[int, ...] = (1, 2, 3), turns: int = 2) -> Tape:
    tape = Tape(path)
    for seed in seeds:
        PublicGoods(llm_client=client(), tape=tape, seed=seed).run(turns)
    return tape


def saying(words: str) -> Any:
    return lambda text: f"{text} Please {words}."


def kind(*, wordings: int = 4) -> dict[str, Any]:
    return {"kind": [saying(words) for words in list(GIFTS)[:wordings]]}


def compare(source: Any, run: Any = None, **given: Any) -> Comparison:
    values: dict[str, Any] = {"prompt": kind(), "samples": 3, "outcome": "given.Ann"}
    return Comparison(source, run, **{"llm_client": client()} | values | given)


def test_wordings_of_one_idea_are_units_and_the_effect_speaks_of_new_ones(tmp_path: Path) -> None:
    found = compare(taped(tmp_path / "x.tape"), 1)
    frame = found.run()
    assert found.names == ["as it was", "kind"]
    labels = ["kind: 1", "kind: 2", "kind: 3", "kind: 4"]
    assert found.arms == {"as it was": ["as it was"], "kind": labels}
    assert frame["wording"].unique().tolist() == ["as it was", *labels]
    effect, answers = found.effects()
    assert (effect.contrast, effect.wordings) == ("kind \u2212 as it was", 5)
    assert effect.method.startswith("t over 4 and 1 wordings")
    assert "new wordings of 'kind' and this one of 'as it was'" in effect.speaks_of
    assert str(effect).endswith("n = 2 situations of 1 run, 5 wordings")
    assert answers.speaks_of == "these 2 situations, these wordings only"
    # Four wordings that add 6, 7, 8, 9: their spread alone makes 7.5 ± 3.18 * 0.65.
    assert effect.low is not None
    assert effect.high is not None
    assert effect.high - effect.low > 2 * 3.18 * 0.5
    assert effect.low < 7.5 < effect.high


def test_with_one_wording_it_says_so_and_a_model_has_none(tmp_path: Path) -> None:
    tape = taped(tmp_path / "x.tape")
    prompts = compare(tape, 1, prompt={"kind": saying("be kind")})
    prompts.run()
    assert [effect.speaks_of for effect in prompts.effects()] == [
        "these 2 situations of one run, this wording only",
        "these 2 situations, this wording only",
    ]
    models = compare(tape, 1, prompt=None, model={"a": client(), "b": client()})
    models.run()
    assert [effect.speaks_of for effect in models.effects()] == [
        "these 2 situations of one run",
        "these 2 situations",
    ]


def test_wordings_of_an_arm_have_seeds_of_their_own_which_arms_share(tmp_path: Path) -> None:
    both = {"kind": kind()["kind"][:2], "warm": {"a": saying("be warm"), "b": saying("be good")}}
    found = compare(taped(tmp_path / "x.tape"), [1, 2], prompt=both, samples=2)
    seeds: dict[str, set[int]] = {label: set() for label in found.variants}
    for sample in found.schedule:
        seeds[sample.variant].add(sample.seed)
    assert {label: len(used) for label, used in seeds.items()} == dict.fromkeys(seeds, 2 * 2 * 2)
    assert seeds["kind: 1"] == seeds["warm: a"]
    assert seeds["kind: 2"] == seeds["warm: b"]
    assert not seeds["kind: 1"] & seeds["kind: 2"]
    found.run()
    assert found.effects()[0].speaks_of.endswith("new wordings of both")


def test_wordings_that_are_lucky_in_opposite_ways_by_seed_widen_the_interval() -> None:
    rows = [
        {"arm": arm, "run": 1, "situation": 1, "replicate": 0, "outcome": "x"}
        | {"wording": name, "seed": name, "value": value}
        for arm, sign in (("a", 1), ("b", -1))
        for name, value in enumerate((1.0 * sign, -1.0 * sign, 0.5 * sign, -0.5 * sign))
    ]
    [effect] = situation_effects(pd.DataFrame(rows))
    assert effect.high is not None
    # The wordings of one seed differ by 2, -2, 1, -1: t(3) * sd of these / 2.
    assert effect.high == pytest.approx(3.182 * (10 / 3) ** 0.5 / 2, abs=1e-3)


def test_a_wording_that_never_answers_is_not_counted(tmp_path: Path) -> None:
    def answer(request: ChatRequest) -> Any:
        return "no gift" if "be silent" in request.prompt else giver(request)

    quiet = LLMClient(LLMConfig(model="giver", retry_wait_s=0), ScriptedBackend(answer))
    prompt = {"kind": [saying(words) for words in ("be kind", "be nice", "be silent")]}
    found = compare(taped(tmp_path / "x.tape"), 1, prompt=prompt, llm_client=quiet)
    found.run()
    effect = found.effects()[0]
    assert effect.wordings == 3
    assert effect.method.startswith("t over 2 and 1 wordings")
    assert "1 of 3 wordings of 'kind' have no answer" in effect.note


def test_a_player_that_does_not_read_the_wording_differs_by_exactly_0(tmp_path: Path) -> None:
    tape = taped(tmp_path / "x.tape")
    deaf = {"reasoning": "", "amount": 3, "confidence": 0.5}
    silent = LLMClient(LLMConfig(model="deaf"), ScriptedBackend(lambda _: deaf))
    for run in (1, [1, 2, 3]):
        given: dict[str, Any] = {"prompt": kind(), "outcome": "given.Ann", "samples": 2}
        found = Comparison(tape, run, llm_client=silent, **given)
        found.run()
        effect = found.effects()[0]
        assert (effect.estimate, effect.low, effect.p) == (0, None, 1)
        assert "all differences are exactly 0" in effect.note


def test_turns_of_several_runs_speak_of_new_situations(tmp_path: Path) -> None:
    tape = taped(tmp_path / "x.tape")
    found = compare(tape, [1, 2, 3], prompt={"kind": saying("be kind")})
    assert (found.plan().samples, found.plan().calls) == (36, 36 * 4)
    frame = found.run()
    assert frame["run"].unique().tolist() == [1, 2, 3]
    effect = found.effects()[0]
    assert (effect.n, effect.runs, effect.unit) == (6, 3, "situations")
    assert effect.speaks_of == "new situations of such runs, from 6 of 3 runs, this wording only"
    assert effect.method.startswith("t over 3 run means")
    assert found.noise_frame["turns"].tolist() == [6, 6]
    assert verify(tape) == []
    assert found.source == "runs 1, 2, 3, the first of them run 1 'PublicGoods' of x.tape"


def test_each_run_has_its_samples_below_it_and_any_of_them_loads_all(tmp_path: Path) -> None:
    tape = taped(tmp_path / "x.tape")
    found = compare(tape, "all")
    frame = found.run()
    below = [info.parent for info in tape.runs() if info.verb == "experiment"]
    assert below == [1, 2, 3]
    for number in (4, 5, None):
        loaded = Comparison.load(tape, number, prompt=kind())
        assert loaded.frame.equals(frame)
        assert loaded.summary.equals(found.summary)
        assert loaded.arms == found.arms
    assert loaded.replay().equals(frame)
    view = loaded.sample("kind: 3", 2, 1, run=3)
    assert view.turns[-1].number == 2
    assert view.seed == 3


def test_wordings_that_are_functions_are_asked_for_when_loaded() -> None:
    entry = {"variant": "kind: 2", "arm": "kind", "as": "function"}
    info: Any = SimpleNamespace(id=4, manifest={"experiment": {"variants": [entry]}})
    with pytest.raises(ConfigError, match=r"again: load\(\.\.\., prompt=\{'kind': \[\.\.\.\]\}\)"):
        variants_on(info, {})
    assert variants_on(info, {"kind: 2": saying}) == {"kind: 2": saying}
    assert arms_on(info) == {"kind": ["kind: 2"]}


def test_a_comparison_over_runs_that_was_stopped_is_continued(tmp_path: Path) -> None:
    tape = taped(tmp_path / "x.tape")

    def stop(progress: Progress) -> None:
        if progress.done == 35:  # in the second run
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(tape, [1, 2, 3]).run(on_progress=stop)
    assert [tape.run(number).outcome for number in (4, 5, 6)] == [
        "done",
        "interrupted",
        "interrupted",
    ]
    again = Comparison.load(tape, prompt=kind(), llm_client=client())
    assert len(again.played) == 35
    again.run()
    whole = compare(taped(tmp_path / "y.tape"), [1, 2, 3])
    whole.run()
    same = ["variant", "wording", "run", "turn", "sample", "seed", "decision", "given.Ann"]
    assert again.frame[same].equals(whole.frame[same])
    assert verify(tape) == []


def test_on_another_tape_with_other_numbers_it_is_the_same(tmp_path: Path) -> None:
    tape = taped(tmp_path / "x.tape")
    found = compare(tape, [1, 2, 3], samples=1)
    found.run()
    other = taped(tmp_path / "y.tape", seeds=(9,))
    other.take(tape, [info.id for info in tape.runs()])
    assert verify(other) == []
    loaded = Comparison.load(other, prompt=kind())
    columns = [name for name in found.frame if name != "run"]
    assert loaded.frame[columns].equals(found.frame[columns])
    assert set(loaded.frame["run"]) == {2, 3, 4}


def test_a_part_that_is_not_on_the_tape_is_missed(tmp_path: Path) -> None:
    tape = taped(tmp_path / "x.tape")
    compare(tape, [1, 2], samples=1).run()
    other = Tape(tmp_path / "y.tape")
    other.take(tape, [4])
    with pytest.raises(TapeError, match=r"is about 2 runs, and .* holds its samples of 1"):
        Comparison.load(other, prompt=kind())


def test_runs_that_are_not_independent_are_an_error(tmp_path: Path) -> None:
    tape = taped(tmp_path / "x.tape", seeds=(1, 1))
    with pytest.raises(ConfigError, match="runs 1 and 2 have the same seed, 1"):
        compare(tape, [1, 2])
    PublicGoods.load(tape, 1).fork(1, llm_client=client()).run(1)
    with pytest.raises(ConfigError, match="runs 1 and 3 share turns, as forks do"):
        compare(tape, [1, 3])
    make_run(tape=tape, turns=1, seed=5)
    with pytest.raises(ConfigError, match="run 1 is a PublicGoods and run 4 a Simulation"):
        compare(tape, [1, 4])
    with pytest.raises(ConfigError, match="run='some' must be a run's number, several"):
        compare(tape, "some")
    with pytest.raises(ConfigError, match="names no run"):
        compare(tape, [])


def test_what_is_wrong_with_one_of_several_runs_is_said_of_it(tmp_path: Path) -> None:
    tape = taped(tmp_path / "x.tape", seeds=(1,))
    PublicGoods(llm_client=client(), tape=tape, seed=2).run(1)
    with pytest.raises(ConfigError, match=r"in run 2: turns=\[1, 2\]: the player was not asked in"):
        compare(tape, [1, 2], turns=[1, 2])
    compare(tape, [1, 2], samples=1).run()
    for run in (3, [1, 3]):
        with pytest.raises(TapeError, match=r"run 3 is a comparison of prompts"):
            compare(tape, run)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ({"kind": []}, "prompt 'kind' has no wording"),
        ({"kind": ["a", 7], "b": None}, "variant 'kind: 2' is int"),
        ({"kind": [None, None]}, "'kind: 1' and 'kind: 2' are the same wording"),
        ({"kind": [None, "x"], "kind: 2": None}, "two are called 'kind: 2'"),
        ({"kind": [None]}, "is the prompt as it was; give another to compare it with"),
    ],
)
def test_wrong_wordings_are_errors_with_the_way_out(prompt: Any, message: str) -> None:
    run = make_run(turns=1)
    text = run.agents[0].prompt  # type: ignore[attr-defined]
    given = {
        name: [text.edit(text.text + it) if it in ("a", "x") else it for it in wordings]
        if wordings
        else wordings
        for name, wordings in prompt.items()
    }
    with pytest.raises(ConfigError) as caught:
        Comparison(run, prompt=given)
    assert message in str(caught.value)


def test_what_shows_a_comparison_shows_one_of_wordings_and_runs(tmp_path: Path) -> None:
    tape = Tape(tmp_path / "x.tape")
    for seed in (1, 2):
        make_run(tape=tape, seed=seed, economy={"shock_scale": 1})
    prompt: Prompt = Comparison(tape, 1, prompt={"a": None, "b": None}).bench.prompt  # type: ignore[assignment]
    hawks = [
        prompt.replace("economic policy advisor", f"economic policy advisor: a {word}")
        for word in ("hawk", "falcon")
    ]
    found = Comparison(
        tape, [1, 2], prompt={"as it was": None, "hawk": hawks}, samples=2, turns=(1, 2)
    )
    found.llm_client = make_run(turns=0).llm_client
    found.run()
    loaded = Comparison.load(tape)
    assert loaded.frame.equals(found.frame)
    assert "hawk (2 wordings)" in repr(loaded)
    assert "hawk" in difference_figure(loaded).alt  # type: ignore[attr-defined]
    widget = PromptComparer.from_results(tape)
    assert "hawk \u2212 as it was" in widget.static_text()
    assert [editor.name for editor in widget.editors] == ["as it was", "hawk: 1", "hawk: 2"]
