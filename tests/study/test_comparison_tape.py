"""Comparisons on tapes: recorded beside their run, resumed, loaded, replayed without a call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from builders import requests_of
from comparison_kit import SEED, hawk_of, make_comparison, make_run, opinions, seeded_client
from tape_text import changed_manifest

from llmsim_lab._util.files import data_path
from llmsim_lab.errors import BackendError, LLMFailureException, TapeError, TapeMiss
from llmsim_lab.llm import Tape
from llmsim_lab.run import fork, load, replay, rerun, resume
from llmsim_lab.study import Comparison
from llmsim_lab.study._comparison import Progress
from llmsim_lab.study._keeping import storage_of
from llmsim_lab.tape import verify
from llmsim_lab.types import ChatRequest


async def recorded(path: Path, **arguments: Any) -> Comparison:
    """A finished comparison on a tape."""
    simulation = await asyncio.to_thread(make_run, tape=path)
    experiment = make_comparison(simulation, **arguments)
    await experiment.arun()
    return experiment


def rebuilt(path: Path) -> Comparison:
    """The comparison on a tape with a model that answers, to continue it."""
    return Comparison.load(Tape(path), llm_client=seeded_client())


async def test_a_comparison_is_one_run_below_the_one_it_plays_again(tmp_path: Path) -> None:
    experiment = await recorded(tmp_path / "x.tape")
    tape = experiment.tape
    assert tape is not None
    lines = str(tape.tree()).splitlines()[1:]
    assert [line.split(" · ")[:4] for line in lines] == [
        ["1 run", "run", "turns 1 to 3", "done"],
        ["└─ 2 prompts of agent", "experiment", "12 samples", "done"],
    ]
    assert verify(tape) == []
    assert "Results are recorded on x.tape." in make_comparison(experiment.simulation).storage


async def test_a_loaded_comparison_equals_the_one_that_was_run(tmp_path: Path) -> None:
    experiment = await recorded(tmp_path / "x.tape")
    loaded = Comparison.load(tmp_path / "x.tape")
    assert loaded.frame.equals(experiment.frame)
    assert loaded.summary.equals(experiment.summary)
    assert loaded.variants == experiment.variants
    assert loaded.turns == (1, 2, 3)
    assert (loaded.seed, loaded.samples, loaded.component) == (SEED, 2, "agent")


async def test_a_replay_asks_nobody_and_comes_out_the_same(tmp_path: Path) -> None:
    experiment = await recorded(tmp_path / "x.tape")
    loaded = Comparison.load(tmp_path / "x.tape")
    assert loaded.replay().equals(experiment.frame)


async def test_failed_samples_are_replayed_as_failed(tmp_path: Path) -> None:
    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        odd = request.options["seed"] == SEED + 1 and request.site.component == "engine"
        return "no idea" if odd and request.site.agent == "Borduria" else opinions(request)

    simulation = await asyncio.to_thread(
        make_run, tape=tmp_path / "x.tape", nations=["Aland", "Borduria"]
    )
    experiment = make_comparison(simulation, llm_client=seeded_client(reply), turns=(1,))
    frame = await experiment.arun()
    assert frame["completed"].tolist() == [False] * 4 + [True] * 4
    loaded = Comparison.load(tmp_path / "x.tape")
    assert loaded.frame.equals(frame)
    assert loaded.replay().equals(frame)


async def test_other_prompts_than_the_recorded_ones_are_a_miss(tmp_path: Path) -> None:
    await recorded(tmp_path / "x.tape")
    loaded = Comparison.load(tmp_path / "x.tape")
    loaded.variants["hawk"] = loaded.variants["hawk"].replace("hawk", "dove")
    with pytest.raises(TapeMiss, match="dove"):
        loaded.replay()


async def test_an_interrupted_comparison_continues_in_another_process(tmp_path: Path) -> None:
    simulation = await asyncio.to_thread(make_run, tape=tmp_path / "x.tape")
    experiment = make_comparison(simulation)

    def stop(progress: Progress) -> None:
        if progress.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await experiment.arun(on_progress=stop)
    assert experiment.tape is not None
    assert experiment.tape.run(2).outcome == "interrupted"
    again = rebuilt(tmp_path / "x.tape")
    assert len(again.played) == 5
    await again.arun()
    assert again.tape is not None
    assert again.tape.run(2).outcome == "done"
    assert len(again.tape) == 2
    assert verify(again.tape) == []
    whole = await make_comparison().arun()
    same = ["variant", "turn", "sample", "decision", "confidence", "interest_rate", "accepted"]
    assert again.frame[same].equals(whole[same])


async def test_what_a_broken_sample_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    down = [BackendError("gone", reason="connection_error")]

    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.component == "engine" and down:
            raise down.pop()
        return opinions(request)

    simulation = await asyncio.to_thread(make_run, tape=tmp_path / "x.tape")
    client = seeded_client(reply)
    experiment = make_comparison(simulation, llm_client=client, turns=(1,), samples=1)
    with pytest.raises(LLMFailureException, match="connection_error"):
        await experiment.arun()
    assert experiment.tape is not None
    assert str(experiment.tape.run(2).outcome).startswith("failed: ")
    again = Comparison.load(Tape(tmp_path / "x.tape"), llm_client=client)
    before = len(requests_of(client))
    await again.arun()
    components = [r.site.component for r in requests_of(client)[before:] if r.site]
    assert components == ["engine", "agent", "validator", "engine"]


async def test_on_a_read_only_tape_results_are_kept_in_memory_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(make_run, tape=tmp_path / "x.tape")
    experiment = Comparison(
        tmp_path / "x.tape", prompt={"a": None, "b": None}, llm_client=seeded_client(), samples=1
    )
    assert "in memory only: x.tape is open for reading only" in str(experiment.plan())
    assert len(await experiment.arun()) == 6
    assert "comparison_not_recorded" in caplog.text
    assert len(Tape(tmp_path / "x.tape", read_only=True)) == 1
    with pytest.raises(TapeError, match="nothing to replay"):
        experiment.replay()


async def test_a_loaded_run_without_a_model_cannot_be_compared_on(tmp_path: Path) -> None:
    await asyncio.to_thread(make_run, tape=tmp_path / "x.tape")
    experiment = make_comparison(load(tmp_path / "x.tape"))
    assert experiment.plan().calls == 36
    with pytest.raises(ValueError, match=r"llm_client=connect\('auto'\)"):
        await experiment.arun()


async def test_samples_are_asked_with_the_recorded_settings_on_the_given_model(
    tmp_path: Path,
) -> None:
    client = seeded_client(temperature=0.2, num_ctx=1024, max_tokens=99)
    await asyncio.to_thread(make_run, tape=tmp_path / "x.tape", client=client)
    other = seeded_client(model="other", temperature=1.5)
    experiment = make_comparison(load(tmp_path / "x.tape"), llm_client=other, samples=1)
    await experiment.arun()
    request = requests_of(other)[0]
    assert request.model == "other"
    assert request.options["temperature"] == 0.2
    assert request.options["num_ctx"] == 1024
    hotter = make_comparison(load(tmp_path / "x.tape"), llm_client=other, temperature=1.0)
    assert hotter.config.temperature == 1.0


async def test_a_comparison_is_copied_with_the_run_that_it_is_of(tmp_path: Path) -> None:
    experiment = await recorded(tmp_path / "x.tape", samples=1)
    assert experiment.tape is not None
    other = Tape(tmp_path / "y.tape")
    other.take(experiment.tape, [2])
    assert verify(other) == []
    assert Comparison.load(other).replay().equals(experiment.frame)


async def test_the_latest_run_is_the_latest_that_is_not_a_comparison(tmp_path: Path) -> None:
    experiment = await recorded(tmp_path / "x.tape", samples=1)
    assert experiment.tape is not None
    assert experiment.tape.run().id == 1
    assert load(tmp_path / "x.tape").run_id == 1


@pytest.mark.parametrize("verb", [load, replay, resume, rerun, fork])
async def test_operations_on_runs_are_errors_for_comparisons(tmp_path: Path, verb: Any) -> None:
    experiment = await recorded(tmp_path / "x.tape", samples=1)
    with pytest.raises(TapeError, match=r"Comparison.load\(tape, run\) shows it"):
        await asyncio.to_thread(verb, experiment.tape, 2)


def test_a_tape_without_comparisons_says_so(tmp_path: Path) -> None:
    make_run(tape=tmp_path / "x.tape", turns=1)
    with pytest.raises(TapeError, match="holds no comparison of prompts"):
        Comparison.load(tmp_path / "x.tape")
    with pytest.raises(
        TapeError, match=r"run 1 on .* is not a comparison of prompts; .* there: none"
    ):
        Comparison.load(tmp_path / "x.tape", 1)


def changed(path: Path, **changes: Any) -> None:
    """Write other settings into the comparison's manifest."""
    manifest = dict(Tape(path).run(2).manifest)
    for key, value in changes.items():
        if key not in manifest:
            changes = {"experiment": manifest["experiment"] | {key: value}}
    changed_manifest(path, 2, **changes)


VARIANT = {"variant": "a", "name": "p", "text": "## User\n\nHi", "parent": None, "digest": "0"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": "many"}, "samples is 'many'"),
        ({"samples": 1}, "12 samples where 6 were planned"),
        ({"variants": [VARIANT]}, "does not have its recorded digest"),
        ({"variants": [{"variant": "a"}]}, "is damaged"),
        ({"variants": 7}, "is damaged"),
        ({"llm": {"model": 7}}, "is damaged"),
    ],
)
async def test_a_damaged_comparison_is_an_error_with_what_is_wrong(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    experiment = await recorded(tmp_path / "x.tape")
    assert experiment.tape is not None
    experiment.tape.close()
    changed(tmp_path / "x.tape", **changes)
    with pytest.raises(TapeError, match=message):
        Comparison.load(tmp_path / "x.tape")


async def test_the_committed_recording_replays_without_a_model() -> None:
    experiment = Comparison.load(data_path("tapes/prompt_experiment.tape"))
    recorded_frame = experiment.frame
    assert len(experiment.played) == len(experiment.schedule)
    assert experiment.replay().equals(recorded_frame)
    assert hawk_of(experiment.simulation).slots == experiment.variants["hawkish"].slots


@pytest.mark.parametrize(
    ("loaded", "said"),
    [
        (None, "Results are kept in memory only: x.tape is open for reading only"),
        (3, "3 samples are recorded on x.tape; further ones are kept in memory only"),
        (8, "All 8 samples are recorded on x.tape."),
    ],
)
def test_where_a_tape_is_read_only_it_is_said_what_is_on_it(
    tmp_path: Path, loaded: int | None, said: str
) -> None:
    Tape(tmp_path / "x.tape").close()
    with Tape(tmp_path / "x.tape", read_only=True) as tape:
        assert storage_of(tape, loaded, total=8).startswith(said)


def test_without_a_tape_results_are_in_memory_only() -> None:
    assert storage_of(None, None, total=8).endswith("the run is on no tape.")
