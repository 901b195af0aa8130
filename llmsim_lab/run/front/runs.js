// Above the views: which run and which turn is shown, and the runs there are.

import { soft, Status } from "./calls.js";
import { limited, look, plain, runLabel, Swatch, turnName } from "./chart.js";
import { h } from "./dom.js";
import { clip, facts, plural } from "./text.js";

const FEW_RUNS = 4, FEW_ROWS = 8, MOST_RUNS = 60; // as a line, as an open tree, at once
const MOST_LETTERS = 70; // of a run's label in the line

const small = (text) => h("small", null, text);

export function Head({ store, run, n }) {
  const { reading, title, panels } = store;
  const name = title || run.name;
  const isOnly = reading.runs.size === 1;
  const about = facts(
    isOnly && name !== run.name && run.name, run.model, run.started?.slice(0, 10));
  const isTree = !panels.includes("transport") && panels.includes("overview");
  return h("header", null,
    h("div", { class: "row" },
      h(store.commands ? "h2" : "h1", null, name),
      h("span", { class: "soft" }, about),
      h("span", { class: "when" }, turnName(reading, run, n))),
    isOnly ? isTree && soft("One run, no forks.") : h(Runs, { store, run }));
}

const openRun = (store, run) => store.go({ run: run.id, call: null });

/** The runs: a few in a line, more as a tree that can be folded away. */
export function Runs({ store, run }) {
  const { reading, ui, at, panels } = store;
  const rows = reading.tree();
  const isFew = reading.runs.size <= FEW_RUNS;
  const isWanted = at.view === "overview"
    && (rows.length <= FEW_ROWS || !panels.includes("transport"));
  const isOpen = !isFew && (ui.tree ?? isWanted);
  const pills = isFew ? rows.flatMap((row) => row.runs ?? row.run) : [run];
  const words = isOpen ? "Hide the runs" : `All ${plural(reading.runs.size, "run")}`;
  return h("div", { class: "row mid runs", role: "group", "aria-label": "Runs" },
    pills.map((pill) => h(Pill, { key: pill.id, store, run: pill, isShown: pill === run,
      label: labelIn(reading, pill, pills) })),
    !isFew && plain(words, () => store.show({ tree: !isOpen }), { "aria-expanded": isOpen }),
    isOpen && h(Tree, { store, run, rows }));
}

/** A run's label, with its number where the beginning is that of another one. */
function labelIn(reading, run, runs) {
  const label = runLabel(reading, run);
  const isLike = (other) => other !== run
    && clip(runLabel(reading, other), MOST_LETTERS) === clip(label, MOST_LETTERS);
  return runs.some(isLike) ? `run ${run.id} · ${label}` : label;
}

function Pill({ store, run, isShown, label }) {
  return h("button", {
    class: `run ${look(run)}`, "aria-pressed": isShown,
    title: label.length > MOST_LETTERS ? label : null,
    onclick: () => openRun(store, run),
  }, h(Swatch, { run }), clip(label, MOST_LETTERS));
}

/** A run's latest turn, and the one that it is to reach. */
export function reach(reading, run) {
  const last = reading.last(run);
  return run.planned > last ? `${last} of ${run.planned}` : `${last}`;
}

function Tree({ store, run, rows }) {
  const { reading, ui } = store;
  const wanted = (ui.treeSearch ?? "").toLowerCase();
  const all = rows.flatMap((row) => withSeeds(row, wanted || ui[`seeds ${row.run.id}`]));
  const words = (row) => `run ${row.run.id} ${runLabel(reading, row.run)}`.toLowerCase();
  const found = wanted ? all.filter((row) => !row.runs && words(row).includes(wanted)) : all;
  const [count, more] = limited(store, "runs", found.length, MOST_RUNS, "more run");
  const toChosen = (el) => { el.scrollTop = el.querySelector("[aria-current]")?.offsetTop - 60; };
  return h("div", { class: "tree", ref: toChosen },
    rows.length > 2 * FEW_ROWS && h("input", {
      type: "search", placeholder: "Find a run", "aria-label": "Find a run",
      oninput: (event) => store.show({ treeSearch: event.target.value }) }),
    h("ul", null, found.slice(0, count).map((row) => h(TreeRow, {
      key: `${row.run.id}${row.runs ? " seeds" : ""}`, store, ...row, shown: run }))),
    more);
}

/** A row, and, where it is unfolded, the runs that differ only in their seed. */
function withSeeds(row, isUnfolded) {
  if (!row.runs || !isUnfolded) return [row];
  return [row, ...row.runs.map((run) => ({ run, depth: row.depth + 1, isSeed: true }))];
}

/** A run, or runs that differ only in their seed, which a click folds out. */
function TreeRow({ store, run, runs, changes, isSeed, depth, shown }) {
  const { reading, ui } = store;
  const fold = `seeds ${run.id}`;
  const isOpen = runs && Boolean(ui[fold]);
  const label = isSeed ? `seed ${run.seed}` : clip(runLabel(reading, run, changes), 160);
  return h("li", { style: `--depth: ${depth}` },
    h("button", {
      class: "tree-row", "aria-expanded": isOpen,
      "aria-current": !runs && run === shown ? "true" : null,
      onclick: () => (runs ? store.show({ [fold]: !isOpen }) : openRun(store, run)),
    },
    h(Swatch, { run }),
    h("span", { class: "what" },
      runs && h("b", null, plural(runs.length, "seed"), " "), label),
    runs ? runs.includes(shown) && small(`run ${shown.id} is shown`)
      : aboutRun(reading, run)));
}

/** How a run's calls and the run itself ended, its number, and how far it came. */
function aboutRun(reading, run) {
  const bad = [...reading.statuses(run)].filter(([word]) => word && word !== "ok");
  return [
    bad.map(([word, calls]) => small([h(Status, { word }), ` ${calls.length}`])),
    run.outcome && run.outcome !== "done" && small(clip(run.outcome, 60)),
    small(`run ${run.id}`),
    small(`to turn ${reach(reading, run)}`),
  ];
}
