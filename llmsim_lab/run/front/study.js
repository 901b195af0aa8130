// A study: effects first, then charts of an outcome, what failed, and its runs by arm.
import { Choice, Passage, soft, Table } from "./calls.js";
import { limited, look, Panels, pathOf, plain, Plot, Swatch } from "./chart.js";
import { Curve } from "./curve.js";
import { h } from "./dom.js";
import { Fold } from "./fold.js";
import { Forest } from "./forest.js";
import { groupBy } from "./reading.js";
import { clip, facts, figure, isNumber, nameInWords, plural } from "./text.js";
import { addView, Button, liveWords } from "./view.js";

const MOST_UNITS = 60;
const MOST_FAILED = 5;
const MOST_BANDS = 4;
const AXIS_NAME = 16; // height of an axis's name, pixels
const AXIS_LETTER = 6.5; // width, pixels
const MOST_NAME = 60;
const MOST_IN_LEGEND = 200;

const designOf = (store) => store.reading.part("study", "design");
const lookAt = (at) => look({ look: at });

/** What an arm is called where there is little room: its letter, if names are long. */
const shortName = ({ arms, letters = [] }, at) => letters[at] ?? arms[at];

export const outcomeOf = (store) => {
  const { outcomes } = designOf(store);
  return outcomes.includes(store.ui.outcome) ? store.ui.outcome : outcomes[0];
};

/** The runs by their places, arm by arm. */
function cellsOf(store) {
  const { arms, units } = designOf(store);
  const cells = arms.flatMap((arm, at) => units.map((unit) => ({ arm, at, unit })));
  return cells.map((cell, place) => {
    const [status, turns, error, run] = store.reading.part("study", place);
    return { ...cell, place, status, turns, error, run };
  });
}

/** Show a run, which a window opens first. */
function openCell(store, { place, turns, run }) {
  if (run != null) store.go({ run, view: "overview", turn: null, call: null });
  else if (turns > 0) store.commands?.({ do: "open", place });
}

function Study({ store }) {
  const { name, arms, units, of } = designOf(store);
  const { live, commands } = store;
  const run = () => commands({ do: "run" });
  return h("div", { class: "study" },
    h("div", { class: "row mid" },
      h(commands ? "h3" : "h1", { class: "name" }, name),
      h("span", { class: "soft" }, facts(plural(arms.length, "arm"), plural(units.length, of))),
      commands && h(Controls, { store, off: live.running, run })),
    h(Results, { store }),
    h(RunsByArm, { store }));
}

/** How far the study is, and what plays and stops it, in one strip. */
export const Controls = ({ store, off, run }) => h("div", { class: "row mid buttons strip" },
  h("p", { class: `says fine${store.gone ? " gone" : ""}`, role: "status" }, liveWords(store)),
  h(Button, { store, off, act: run, kind: "primary" }, "Run"),
  h(Button, { store, off: !store.live.running, act: () => store.commands({ do: "halt" }) },
    "Stop"));

/** An arm in a legend or a list: how its lines are drawn, its letter and its name. */
const ArmName = ({ design, at }) => h("span", { class: "row mid arm" },
  h(Swatch, { run: { look: at } }),
  design.letters?.[at] && h("b", null, design.letters[at]),
  h("span", null, clip(design.arms[at], MOST_IN_LEGEND)));

/** Effects and charts of an outcome. */
export function Results({ store, told }) {
  const { outcomes } = designOf(store);
  const outcome = outcomeOf(store);
  const { label, rows = [] } = store.reading.part("study", "effects") ?? {};
  const choice = outcomes.length > 1 && h(Choice, {
    label: "Outcome",
    value: outcome,
    options: outcomes.map((name) => [name, clip(name, MOST_NAME)]),
    pick: (name) => store.show({ outcome: name }) });
  const methods = rows.map((row, place) => (
    [place, `${row.outcome}: ${row.sentence}`, row.generalises_to, row.method, row.note]));
  const heads = ["effect", "generalises to", "method", "note"];
  return [
    h("section", { "aria-label": "Effects" },
      h("div", { class: "row mid" }, h("h3", null, "Effects"), choice),
      label && soft(label),
      !told && h(Effects, { store }),
      rows.length > 0 && h(Fold, {
        store, id: "effects", title: "All effects in words, and their methods" },
      () => h(Table, { heads, rows: methods }))),
    h(Outcome, { store, outcome, made: store.reading.part("study", `of ${outcome}`) }),
  ];
}

/** The effects in the chosen outcome, as a forest plot for each scale. */
export function Effects({ store }) {
  const design = designOf(store);
  const { family, reference, rows = [] } = store.reading.part("study", "effects") ?? {};
  const outcome = outcomeOf(store);
  if (design.arms.length < 2) return soft("One arm: there is nothing to compare.");
  const inOutcome = rows.filter((row) => row.outcome === outcome);
  if (!inOutcome.length) return soft("No effects yet: they need finished runs of two arms.");
  const placed = inOutcome.map((row, place) => ({ ...row, place }));
  const byScale = groupBy(placed, (row) => row.scale); // texts: their distance, and their lengths
  return [...byScale].map(([scale, ofScale]) => (
    h(Forest, { key: scale, store, design, family, reference, scale, rows: ofScale })));
}

function Outcome({ store, outcome, made }) {
  if (!made) return null;
  if (made.fault) return soft(made.fault);
  const design = designOf(store);
  const { arms, of } = design;
  const { units, turns, bands, curves } = made;
  const differing = bands.filter(([, rows]) => rows.some(([, estimate]) => estimate !== 0));
  const alike = bands.filter((each) => !differing.includes(each)).map(([arm]) => arm);
  const [count, more] = limited(
    store, "bands", differing.length, MOST_BANDS, "more difference");
  const label = clip(nameInWords(outcome), MOST_NAME);
  const looks = arms.map((_, at) => at);
  const legend = arms.map((arm, at) => h(ArmName, { key: arm, design, at }));
  const byTurn = (wide) => turns.length > 0 && h(ByTurn, {
    wide, looks, rows: turns, title: `${label} by turn`, note: `mean over ${of}s` });
  const contrast = (arm) => `${shortName(design, arms.indexOf(arm))} − ${shortName(design, 0)}`;
  const band = (wide, [arm, rows]) => h(ByTurn, {
    key: arm,
    wide,
    rows,
    looks: [arms.indexOf(arm)],
    band: true,
    title: `${contrast(arm)} by turn`,
    note: "simultaneous 95 % band" });
  return [
    h("div", { class: "row mid legend" }, legend),
    h(Panels, { store, label: "Charts", count: 1 + (turns.length > 0) + count }, (wide) => [
      h(Dots, { store, wide, label, units }),
      byTurn(wide),
      differing.slice(0, count).map((each) => band(wide, each)),
    ], more),
    alike.length > 0 && soft(`${alike.map(contrast).join(", ")}: exactly 0 in every turn.`),
    curves.map((curve) => h(Panels, {
      key: curve.factor, store, label: `Specifications of ${curve.finding}`, count: 1 },
    (wide) => h("div", null, h(Curve, { store, curve, wide })))),
  ];
}

/** A plot whose axis below has a name. */
const NamedPlot = ({ axis, wide, draw, ...plot }) => h(Plot, {
  ...plot,
  wide,
  below: AXIS_NAME,
  draw: (x, y, bottom) => [
    draw(x, y),
    h("text", { key: "axis", x: wide / 2, y: bottom + AXIS_NAME - 6, "text-anchor": "middle" },
      axis),
  ] });

/** Lines over turns, of rows with the turn first; of one line low and high come after it. */
function ByTurn({ rows, looks, band, ...plot }) {
  const values = rows.flatMap((row) => row.slice(1));
  const span = [rows[0][0], rows.at(-1)[0]];
  const path = (ofRows, column, x, y) => (
    pathOf(ofRows.map((row) => [row[0], row[column]]), x, y));
  const bandPath = (x, y) => {
    const back = path([...rows].reverse(), 3, x, y).replace("M", "L");
    return `${path(rows, 2, x, y)}${back}`;
  };
  return h(NamedPlot, {
    ...plot,
    axis: "turn",
    span,
    values: band ? [0, ...values] : values,
    draw: (x, y) => [
      band && h("path", { class: `band ${lookAt(looks[0])}`, d: bandPath(x, y) }),
      looks.map((at, index) => h("path", {
        key: at, class: `curve main ${lookAt(at)}`, d: path(rows, index + 1, x, y) })),
    ] });
}

/** An arm's units and their mean, as the charts have them. */
const armValues = (units, at) => {
  const values = units.map((row) => row[at]).filter(isNumber);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return { at, values, mean };
};

/** A point a unit in each arm, joined where units are paired, and each arm's mean. */
function Dots({ store, wide, label, units }) {
  const design = designOf(store);
  const { arms, of, paired = true } = design;
  const cells = cellsOf(store);
  const byArm = arms.map((_, at) => armValues(units, at));
  const most = Math.floor((wide - 50) / arms.length / AXIS_LETTER);
  const isJoined = paired && units.length <= MOST_UNITS;
  const joined = (x, y) => units.map((row) => (
    pathOf(row.map((value, at) => [at, value]), x, y))).join("");
  const dot = (row, place, at, x, y) => isNumber(row[at]) && h("circle", {
    key: place,
    class: `dot ${lookAt(at)}`,
    cx: x(at),
    cy: y(row[at]),
    r: 4,
    onclick: () => openCell(store, cells[at * units.length + place]) },
  h("title", null, `${arms[at]}, ${of} ${cells[place].unit}: ${figure(row[at])}`));
  const inWords = byArm.map(({ at, values, mean }) => (
    `${arms[at]}: mean ${figure(mean)} of ${plural(values.length, paired ? of : "run")}`));
  const whatDotsAre = paired ? `line: a ${of}` : "dot: a run";
  return h(NamedPlot, {
    wide,
    span: [-0.5, arms.length - 0.5],
    values: units.flat(),
    title: `${label} by arm`,
    note: `${whatDotsAre}, bar: the mean`,
    label: `${label} by arm. ${inWords.join("; ")}`,
    axis: "arm",
    names: arms.map((_, at) => [at, clip(shortName(design, at), most)]),
    draw: (x, y) => [
      isJoined && h("path", { class: "curve dim", d: joined(x, y) }),
      byArm.map(({ at, values, mean }) => h("g", { key: at },
        units.map((row, place) => dot(row, place, at, x, y)),
        values.length > 0 && h("path", {
          class: `curve mean ${lookAt(at)}`, d: `M${x(at - 0.2)} ${y(mean)}H${x(at + 0.2)}` }))),
    ] });
}

/** The runs, a row an arm and a square a unit, and why some failed. */
function RunsByArm({ store }) {
  const design = designOf(store);
  const { arms, units, of } = design;
  const cells = cellsOf(store);
  const [count, more] = limited(store, "units", units.length, MOST_UNITS, `more ${of}`);
  const failed = cells.filter((cell) => cell.error);
  const [most, others] = limited(store, "failed", failed.length, MOST_FAILED, "more that failed");
  const square = (cell) => h("button", {
    key: cell.place,
    class: `cell ${cell.status} k${cell.at % 6}`,
    title: `${cell.arm}, ${of} ${cell.unit}: ${cell.status}`,
    tabindex: cell.place === (store.ui.cell ?? 0) ? "0" : "-1",
    "aria-disabled": !cell.turns,
    onfocus: () => store.show({ cell: cell.place }),
    onclick: () => openCell(store, cell) });
  const row = (arm, at) => {
    const ofArm = cells.filter((cell) => cell.arm === arm);
    const byStatus = groupBy(ofArm, (cell) => cell.status);
    const counts = [...byStatus].map(([status, same]) => `${figure(same.length)} ${status}`);
    return [
      arm,
      h(ArmName, { design, at }),
      h("div", { class: "row cells" }, ofArm.slice(0, count).map(square)),
      facts(counts),
    ];
  };
  const failure = (cell) => [
    cell.place,
    clip(cell.arm, 80),
    String(cell.unit),
    h(Passage, { store, id: `failed ${cell.place}`, text: cell.error, most: 300 }),
    cell.turns > 0 && plain("open", () => openCell(store, cell)),
  ];
  return [
    failed.length > 0 && h("section", { "aria-label": "Failed runs" },
      h("h3", null, "Failed runs"),
      h(Table, { heads: ["arm", of, "reason", ""], rows: failed.slice(0, most).map(failure) }),
      others),
    h("section", { "aria-label": "Runs by arm" },
      h("h3", null, "Runs"),
      h(Table, {
        kind: "arms", heads: ["arm", `one square per ${of}`, ""], rows: arms.map(row) }),
      more),
  ];
}

/** Arrow keys go from square to square. */
function cellKey(store, { key }, target) {
  const cell = target.closest(".cell");
  const step = {
    ArrowRight: 1,
    ArrowLeft: -1,
    ArrowDown: cell?.parentNode.children.length,
    ArrowUp: -cell?.parentNode.children.length,
  }[key];
  if (!cell || !step) return false;
  const cells = [...cell.closest("table").querySelectorAll(".cell")];
  cells[cells.indexOf(cell) + step]?.focus();
  return true;
}

addView("study", { draw: Study, onKey: cellKey, says: true });
