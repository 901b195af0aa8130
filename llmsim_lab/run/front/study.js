// A study: effects first, then charts of an outcome, what failed, and its runs by arm.
import { Choice, Fold, Passage, soft, Table } from "./calls.js";
import { limited, look, Panels, pathOf, plain, Plot, Swatch } from "./chart.js";
import { Curve } from "./curve.js";
import { h } from "./dom.js";
import { Forest } from "./forest.js";
import { groupBy } from "./reading.js";
import { clip, facts, figure, isNumber, plural } from "./text.js";
import { addView, Button } from "./view.js";

const MOST_UNITS = 60, MOST_FAILED = 5, MOST_BANDS = 4;

const designOf = (store) => store.reading.part("study", "design");
const lookAt = (at) => look({ look: at });

export const outcomeOf = (store) => (
  designOf(store).outcomes.find((it) => it === store.ui.outcome) ?? designOf(store).outcomes[0]);

/** The runs by their places, arm by arm. */
function cellsOf(store) {
  const { arms, units } = designOf(store);
  return arms.flatMap((arm) => units.map((unit) => ({ arm, unit }))).map((it, place) => {
    const [status, turns, error, run] = store.reading.part("study", place);
    return { ...it, place, status, turns, error, run };
  });
}

/** Show a run, which a window opens first. */
function openCell(store, { place, turns, run }) {
  if (run != null) store.go({ run, view: "overview", turn: null, call: null });
  else if (turns > 0) store.commands?.({ do: "open", place });
}

function Study({ store }) {
  const { name, arms, units, of } = designOf(store), { live, commands } = store;
  return h("div", { class: "study" },
    h("div", { class: "row mid" },
      h(commands ? "h3" : "h1", { class: "name" }, name),
      h("span", { class: "soft" }, facts(plural(arms.length, "arm"), plural(units.length, of))),
      commands && h(Controls, { store, off: live.running, run: () => commands({ do: "run" }) })),
    h(Results, { store }), h(RunsByArm, { store }));
}

export const Controls = ({ store, off, run }) => h("div", { class: "row mid buttons" },
  h(Button, { store, off, act: run, kind: "primary" }, "Run"),
  h(Button, { store, off: !store.live.running, act: () => store.commands({ do: "halt" }) },
    "Stop"));

/** Effects and charts of an outcome. */
export function Results({ store, told }) {
  const { outcomes } = designOf(store);
  const outcome = outcomeOf(store);
  const { label, rows = [] } = store.reading.part("study", "effects") ?? {};
  const choice = outcomes.length > 1 && h(Choice, {
    label: "Outcome", value: outcome, options: outcomes.map((name) => [name, name]),
    pick: (name) => store.show({ outcome: name }) });
  const methods = rows.map((row, place) => (
    [place, `${row.outcome}: ${row.sentence}`, row.generalises_to, row.method, row.note]));
  return [
    h("section", { "aria-label": "Effects" },
      h("div", { class: "row mid" }, h("h3", null, "Effects"), choice),
      label && soft(label),
      !told && h(Effects, { store }),
      rows.length > 0 && h(Fold, {
        store, id: "effects", title: "All effects in words, and their methods" },
      () => h(Table, { heads: ["effect", "generalises to", "method", "note"], rows: methods }))),
    h(Outcome, { store, outcome, made: store.reading.part("study", `of ${outcome}`) }),
  ];
}

/** The effects in the chosen outcome, as a forest plot for each scale. */
export function Effects({ store }) {
  const { arms } = designOf(store);
  const { family, reference, rows = [] } = store.reading.part("study", "effects") ?? {};
  const outcome = outcomeOf(store);
  if (arms.length < 2) return soft("One arm: there is nothing to compare.");
  const inOutcome = rows.filter((row) => row.outcome === outcome);
  if (!inOutcome.length) return soft("No effects yet: they need finished runs of two arms.");
  const placed = inOutcome.map((row, place) => ({ ...row, place }));
  const byScale = groupBy(placed, (row) => row.scale); // texts: their distance, and their lengths
  return [...byScale].map(([scale, some]) => (
    h(Forest, { key: scale, store, family, reference, scale, rows: some })));
}

function Outcome({ store, outcome, made }) {
  if (!made || made.fault) return made && soft(made.fault);
  const { arms, of } = designOf(store), { units, turns, bands, curves } = made;
  const [count, more] = limited(store, "bands", bands.length, MOST_BANDS, "more difference");
  const label = outcome.replaceAll("_", " ");
  return [
    h("div", { class: "row mid legend" }, arms.map((arm, at) => h("span",
      { key: arm, class: "row mid" }, h(Swatch, { run: { look: at } }), clip(arm, 60)))),
    h(Panels, { store, label: "Charts", count: 1 + (turns.length > 0) + count }, (wide) => [
      h(Dots, { store, wide, label, units }),
      turns.length > 0 && h(ByTurn, { wide, title: label, note: `by turn, mean over ${of}s`,
        rows: turns, looks: arms.map((_, at) => at) }),
      bands.slice(0, count).map(([arm, rows]) => h(ByTurn, { key: arm, wide, rows, band: true,
        title: `${arm} − ${arms[0]}`, note: "by turn, simultaneous 95 % band",
        looks: [arms.indexOf(arm)] })),
    ], more),
    curves.map((curve) => h(Panels, {
      key: curve.factor, store, label: `Specifications of ${curve.finding}`, count: 1 },
    (wide) => h("div", null, h(Curve, { store, curve, wide })))),
  ];
}

/** Lines over turns, of rows with the turn first; of one line low and high come after it. */
function ByTurn({ rows, looks, band, ...plot }) {
  const values = rows.flatMap((row) => row.slice(1)), ends = [rows[0][0], rows.at(-1)[0]];
  const path = (its, at, x, y) => pathOf(its.map((row) => [row[0], row[at]]), x, y);
  return h(Plot, { ...plot, span: ends, values: band ? [0, ...values] : values, draw: (x, y) => [
    band && h("path", { class: `band ${lookAt(looks[0])}`,
      d: `${path(rows, 2, x, y)}${path([...rows].reverse(), 3, x, y).replace("M", "L")}` }),
    looks.map((at, index) => h("path", { key: at, class: `curve main ${lookAt(at)}`,
      d: path(rows, index + 1, x, y) }))] });
}

/** A point a unit in each arm, joined, and each arm's mean; a point is a run to open. */
function Dots({ store, wide, label, units }) {
  const { arms, of } = designOf(store), cells = cellsOf(store);
  const all = arms.map((arm, at) => {
    const own = units.map((row) => row[at]).filter(isNumber);
    return { arm, own, mean: own.reduce((sum, it) => sum + it, 0) / own.length };
  });
  const dot = (row, unit, at, x, y) => isNumber(row[at]) && h("circle", {
    key: unit, class: `dot ${lookAt(at)}`, cx: x(at), cy: y(row[at]), r: 4,
    onclick: () => openCell(store, cells[at * units.length + unit]) },
  h("title", null, `${arms[at]}, ${of} ${cells[unit].unit}: ${figure(row[at])}`));
  const means = all.map((it) => (
    `${it.arm}: mean ${figure(it.mean)} of ${plural(it.own.length, of)}`));
  return h(Plot, { wide, span: [-0.5, arms.length - 0.5], values: units.flat(), title: label,
    note: `a dot and its line are one ${of}`, label: `${label} by arm. ${means.join("; ")}`,
    names: arms.map((arm, at) => [at, clip(arm, Math.floor((wide - 50) / arms.length / 6.5))]),
    draw: (x, y) => [
      units.length <= MOST_UNITS && h("path", { class: "curve dim", d: units.map((row) => (
        pathOf(row.map((value, at) => [at, value]), x, y))).join("") }),
      all.map(({ arm, own, mean }, at) => h("g", { key: arm },
        units.map((row, unit) => dot(row, unit, at, x, y)),
        own.length > 0 && h("path", { class: `curve mean ${lookAt(at)}`,
          d: `M${x(at - 0.2)} ${y(mean)}H${x(at + 0.2)}` })))] });
}

/** The runs, a row an arm and a square a unit, and why some failed. */
function RunsByArm({ store }) {
  const { arms, units, of } = designOf(store), cells = cellsOf(store);
  const [count, more] = limited(store, "units", units.length, MOST_UNITS, `more ${of}`);
  const failed = cells.filter((it) => it.error);
  const [most, others] = limited(store, "failed", failed.length, MOST_FAILED, "more that failed");
  const square = (cell) => h("button", { key: cell.place, class: `cell ${cell.status}`,
    title: `${cell.arm}, ${of} ${cell.unit}: ${cell.status}`,
    tabindex: cell.place === (store.ui.cell ?? 0) ? "0" : "-1", "aria-disabled": !cell.turns,
    onfocus: () => store.show({ cell: cell.place }), onclick: () => openCell(store, cell) });
  const row = (arm) => {
    const own = cells.filter((it) => it.arm === arm), by = groupBy(own, (it) => it.status);
    return [arm, clip(arm, 80), h("div", { class: "row cells" }, own.slice(0, count).map(square)),
      facts([...by].map(([status, its]) => `${figure(its.length)} ${status}`))];
  };
  const failure = (it) => [it.place, clip(it.arm, 80), String(it.unit),
    h(Passage, { store, id: `failed ${it.place}`, text: it.error, most: 300 }),
    it.turns > 0 && plain("open", () => openCell(store, it))];
  return [
    failed.length > 0 && h("section", { "aria-label": "Failed runs" }, h("h3", null, "Failed runs"),
      h(Table, { heads: ["arm", of, "reason", ""], rows: failed.slice(0, most).map(failure) }),
      others),
    h("section", { "aria-label": "Runs by arm" }, h(Table, { kind: "arms",
      heads: ["arm", `one square per ${of}`, ""], rows: arms.map(row) }), more),
  ];
}

/** Arrow keys go from square to square. */
function cellKey(store, { key }, target) {
  const cell = target.closest(".cell"), across = cell?.parentNode.children.length;
  const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[key];
  const all = [...cell?.closest("table").querySelectorAll(".cell") ?? []];
  all[all.indexOf(cell) + by]?.focus();
  return Boolean(cell && by);
}

addView("study", { draw: Study, onKey: cellKey });
