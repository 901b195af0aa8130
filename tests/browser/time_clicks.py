"""Measure what a click on *Step* costs a reader: ``python tests/browser/time_clicks.py``.

From the click until the browser has painted the new turn in words and in plotly's chart, in a
JupyterLab and Chromium of this machine, with central banks that decide by rule. The time of the
run's own turn is measured in the same kernel and printed beside it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from chromium import chromium
from lab_page import LabPage
from lab_server import lab_server

CLICKS = 15
RUN = """
import time
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.lab import Lab, TurnStepper, RateChart
from llmsim_lab.simulation import Simulation, SimulationConfig
import ipywidgets

def run_of(turns):
    bank = {"name": "Central bank", "kind": "taylor"}
    config = SimulationConfig(
        start="2000Q2", turns=turns + 40, nations=[bank], validator={"kind": "always_valid"})
    run = Simulation(config)
    run_sync(run.arun(turns))
    return run

async def own_ms(run):
    times = []
    for _ in range(15):
        begun = time.perf_counter()
        await run.step()
        times.append(1000 * (time.perf_counter() - begun))
    return sorted(times)[7]
"""
WIDGETS = {
    "Lab": "Lab(run)",
    "TurnStepper and RateChart": "ipywidgets.VBox([TurnStepper(run), RateChart(run)])",
}
# What a click has led to is on the screen two frames after the last of it was put into the page.
CLICK = """
async ([cell, turn]) => {
    const area = document.querySelector(
        `.jp-Notebook-cell[data-windowed-list-index='${cell}'] .jp-OutputArea`);
    const plot = area.querySelector(".js-plotly-plot");
    const step = [...area.querySelectorAll("button")].find(
        button => button.textContent.trim() === "Step");
    const line = () =>
        [...plot.querySelectorAll("path.js-line")].map(path => path.getAttribute("d")).join();
    const before = line(), begun = performance.now();
    const there = () => area.textContent.includes(`Turn ${turn} is played.`) && line() !== before;
    const frame = () => new Promise(requestAnimationFrame);
    step.click();
    while (!there()) {
        if (performance.now() - begun > 20000) throw Error("turn " + turn + " never came");
        await frame();
    }
    await frame();
    return performance.now() - begun;
}
"""


def main() -> None:
    """Print the medians as JSON, milliseconds."""
    found: dict[str, dict[str, float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        lab_server(Path(folder)) as server,
        chromium() as browser,
    ):
        lab = LabPage(
            browser.new_page(viewport={"width": 1180, "height": 1400}), server, Path(folder)
        )
        for name, widget in WIDGETS.items():
            for turns in (10, 100):
                notebook = lab.write(f"clicks {turns}", [RUN, f"run = run_of({turns}); {widget}"])
                notebook.run_cell(0)
                notebook.run_cell(1)
                notebook.outputs(1).locator(".js-plotly-plot path.js-line").first.wait_for()
                times = []
                for turn in range(turns + 1, turns + CLICKS + 1):
                    notebook.page.wait_for_timeout(300)
                    times.append(notebook.page.evaluate(CLICK, [1, turn]))
                found[f"{name}, {turns} turns"] = {
                    "click to screen": round(median(times), 1),
                    "slowest": round(max(times), 1),
                    "the run's own turn": round(
                        notebook.evaluate(f"run_sync(own_ms(run_of({turns})))"), 1
                    ),
                }
        lab.close()
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
