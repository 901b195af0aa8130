"""The demonstration's picture, in words and in what it draws."""

from __future__ import annotations

from llmsim_lab.lab.figures import demo_figure
from llmsim_lab.simulation import Demonstration
from llmsim_lab.simulation.demonstration import effect_in_short


def test_the_picture_says_the_verdict_and_names_every_player_in_full(
    shipped: Demonstration,
) -> None:
    figure = demo_figure(shipped)
    words = f"{shipped.verdict} {shipped.judged} {shipped.headline}"
    assert figure.alt == words  # type: ignore[attr-defined]
    assert " ".join(figure.get_suptitle().split()) == shipped.verdict
    oil, slopes, plain, mirrored = figure.axes
    [legend] = figure.legends
    first, *names = [text.get_text() for text in legend.get_texts()]
    assert first == f"{shipped.model}: mean and range of {len(shipped.runs)} seeds"
    assert names == [*shipped.players[1:], "history, its own shocks"]
    assert [tick.get_text() for tick in slopes.get_yticklabels()] == shipped.players
    said = {"pass": "responds", "fail": "does not respond", "undecided": "undecided"}
    outcomes = [said[it] for it in shipped.to_frame()["verdict"]]
    assert [text.get_text() for text in slopes.texts] == outcomes
    assert "inflation below target, slump" in mirrored.get_title(loc="left")
    assert f"{effect_in_short(shipped.response())} under the model" in oil.get_title(loc="left")
    bounds = [text.get_text() for text in plain.texts]
    assert bounds == [f"{which} bound of the rate" for which in ("lower", "upper")]


def test_means_are_over_seeds_and_end_where_one_does(shipped: Demonstration) -> None:
    *_, plain, mirrored = demo_figure(shipped).axes
    paths = shipped.path(shipped.model, "mirrored").dropna()
    assert list(mirrored.get_lines()[0].get_ydata()) == paths.mean(axis=1).tolist()
    last = min(found["plain"].turn_number for found in shipped.runs.values())
    assert max(plain.get_lines()[0].get_xdata()) == last
