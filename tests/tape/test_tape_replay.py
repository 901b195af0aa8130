"""A replay equals the original run to the last bit, and asks nobody."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from tape_kit import asked, make_recorded

from llmsim_lab.run import load, replay


def test_rules_models_their_faults_shocks_and_interventions_replay_to_the_last_bit(
    path: Path,
) -> None:
    simulation = make_recorded(path, turns=6, faulty=True)
    statuses = {status for turn in simulation.turns for status in turn.statuses}
    assert {"ok", "repaired"} <= statuses <= {"ok", "repaired", "fallback"}
    assert simulation.tape is not None
    faults = {call.attempt.reason for call in simulation.tape.calls(1)}
    assert faults == {None, "timeout", "connection_error", "invalid_response"}
    assert {answer.call is None for answer in simulation.turns[1].answers} == {True, False}
    assert [len(turn.interventions) for turn in simulation.turns][:5] == [0, 0, 2, 0, 0]
    before = len(asked(simulation))
    replayed = replay(path)
    assert replayed.turns == simulation.turns == load(path).turns
    for same in ("state", "calls"):
        assert getattr(replayed, same) == getattr(simulation, same)
    for frame in ("to_frame", "decisions"):
        frames = [getattr(run, frame)() for run in (replayed, simulation)]
        pd.testing.assert_frame_equal(*frames, check_exact=True)
    assert (asked(replayed), len(asked(simulation))) == ([], before)
