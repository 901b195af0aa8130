// A study: effects first, then charts of an outcome, its runs by arm, and what failed.
import { Choice, Fold, Passage, soft, Table } from "./calls.js";
import { limited, look, Panels, pathOf, plain, Plot, Swatch, turnNames } from "./chart.js";
import { h } from "./dom.js";
import { groupBy } from "./reading.js";
import { clip, facts, figure, plural } from "./text.js";
import { addView } from "./view.js";

const STATES = ["done", "running", "failed", "stopped", "left"];
const MOST_EFFECTS = 6, MOST_UNITS = 60, MOST_FAILED = 5, MOST_BANDS = 4, LINE = 16;

const partOf = (store, key) => store.reading.partsOf("study").get(key);
const isNumber = (value) => typeof value === "number";
const meanOf = (values) => values.reduce((sum, it) => sum + it, 0) / values.length;

/** The outcome that is chosen, if the study still has it. */
function outcomeOf(store) {
  const { outcomes } = partOf(store, "design"), { outcome } = store.ui;
  return outcomes.includes(outcome) ? outcome : outcomes[0];
}

/** The runs by their places: `{arm, unit, status, turns, error, run}`. */
function cellsOf(store) {
  const { arms, units } = partOf(store, "design");
  return arms.flatMap((arm, row) => units.map((unit, column) => {
    const place = row * units.length + column;
    const [status, turns, error, run] = partOf(store, place);
    return { place, arm, unit, status, turns, error, run };
  }));
}

/** Show a run, which a window opens first. */
function openCell(store, { place, turns, run }) {
  const view = store.panels.includes("overview") ? "overview" : "turn";
  if (run != null) store.go({ run, view, turn: null, call: null });
  else if (turns > 0) store.commands?.({ do: "open", place });
}

const Study = ({ store }) => {
  const { name, arms, units, of } = partOf(store, "design"), { live, commands, gone } = store;
  const button = (words, off, act, kind) => h("button", {
    class: kind, "aria-disabled": gone || off,
    onclick: () => gone || off || commands({ do: act }) }, words);
  return h("div", { class: "study" },
    h("div", { class: "row mid" },
      h(commands ? "h3" : "h1", { class: "name" }, name),
      h("span", { class: "soft" }, facts(plural(arms.length, "arm"), plural(units.length, of))),
      commands && h("div", { class: "row mid buttons" },
        button("Run", live.running, "run", "primary"),
        button("Stop", !live.running, "halt"))),
    h(Results, { store }), h(RunsByArm, { store }));
};

/** Effects and charts of an outcome. */
export function Results({ store }) {
  const { outcomes } = partOf(store, "design"), outcome = outcomeOf(store);
  const { label, rows = [] } = partOf(store, "effects") ?? {};
  const pick = (it) => {
    store.show({ outcome: it });
    store.commands?.({ do: "outcome", outcome: it });
  };
  return [
    h("section", { "aria-label": "Effects" },
      h("div", { class: "row mid" }, h("h3", null, "Effects"),
        outcomes.length > 1 && h(Choice, { label: "Outcome", value: outcome, pick,
          options: outcomes.map((it) => [it, clip(it, 60)]) })),
      h(Sentences, { store }),
      label && soft(label),
      rows.length > 0 && h(Fold, { store, id: "effects", title: "All effects, and their methods" },
        () => h(Table, { heads: ["effect", "speaks of", "method", "note"],
          rows: rows.map(([of, words, ...more], at) => [at, `${of}: ${words}`, ...more]) }))),
    h(Outcome, { store, outcome, made: partOf(store, `of ${outcome}`) }),
  ];
}

/** The effects in the chosen outcome, a sentence each. */
export function Sentences({ store }) {
  const { rows = [] } = partOf(store, "effects") ?? {}, outcome = outcomeOf(store);
  const its = rows.filter(([of]) => of === outcome);
  const [count, more] = limited(store, "effects", its.length, MOST_EFFECTS, "more effect");
  if (!its.length) return soft("Effects come with the first runs of two arms that are done.");
  const sentence = ([, words, , , note], at) => {
    const [contrast, ...rest] = words.split(/(?=: [+−]|: not known)/);
    return h("li", { key: at }, h("b", null, contrast), rest, note && h("small", null, note));
  };
  return [h("ul", { class: "effects" }, its.slice(0, count).map(sentence)), more];
}

function Outcome({ store, outcome, made }) {
  if (!made || made.fault) return made && soft(made.fault);
  const { arms, of } = partOf(store, "design"), { units, turns, bands, curves } = made;
  const [count, more] = limited(store, "bands", bands.length, MOST_BANDS, "more difference");
  const label = outcome.replaceAll("_", " "), [from, to] = [turns[0]?.[0], turns.at(-1)?.[0]];
  const lines = (x, y, rows, at) => pathOf(rows.map((row) => [row[0], row[at]]), x, y);
  const band = ([arm, rows], wide) => h(Plot, { key: arm, wide, from, to, label: `${arm}, by turn`,
    title: `${arm} − ${arms[0]}`, note: "by turn, with a band for all turns",
    values: [0, ...rows.flatMap((row) => row.slice(1)).filter(isNumber)],
    names: turnNames(from, to, wide),
    draw: ({ x, y }) => [h("path", { class: `band ${look({ look: arms.indexOf(arm) })}`,
      d: `${lines(x, y, rows, 2)}${lines(x, y, [...rows].reverse(), 3).replace("M", "L")}Z` }),
    h("path", { class: `curve main ${look({ look: arms.indexOf(arm) })}`,
      d: lines(x, y, rows, 1) })] });
  return [
    h("div", { class: "row mid legend" }, arms.map((arm, at) => h("span",
      { key: arm, class: "row mid" }, h(Swatch, { run: { look: at } }), clip(arm, 60)))),
    h(Panels, { store, label: "Charts", count: 1 + (turns.length > 0) + count }, (wide) => [
      h(Dots, { store, wide, label, of, arms, units }),
      turns.length > 0 && h(Plot, { wide, from, to, title: label, note: `by turn, mean over ${of}s`,
        label: `${label} by turn`, values: turns.flatMap((row) => row.slice(1)).filter(isNumber),
        names: turnNames(from, to, wide),
        draw: ({ x, y }) => arms.map((arm, at) => h("path", { key: arm,
          class: `curve main ${look({ look: at })}`, d: lines(x, y, turns, at + 1) })) }),
      bands.slice(0, count).map((it) => band(it, wide)),
    ], more),
    curves.map((curve) => h(Panels, { key: curve[0], store, label: "Specifications", count: 1 },
      (wide) => h(Curve, { curve, wide }))),
  ];
}

/** A point a unit in each arm, joined, and each arm's mean; a point is a run to open. */
function Dots({ store, wide, label, of, arms, units }) {
  const cells = cellsOf(store), values = units.flat().filter(isNumber);
  const room = Math.floor((wide - 50) / arms.length / 6.5);
  const words = arms.map((arm, at) => {
    const own = units.map((row) => row[at]).filter(isNumber);
    return `${arm}: mean ${figure(meanOf(own))} of ${plural(own.length, of)}`;
  });
  return h(Plot, { wide, from: -0.5, to: arms.length - 0.5, values, title: label,
    note: `a line is a ${of}, a bar a mean`, label: `${label} by arm. ${words.join("; ")}`,
    names: arms.map((arm, at) => [at, clip(arm, room)]),
    draw: ({ x, y }) => [
      units.length <= MOST_UNITS && h("path", { class: "curve dim", d: units.map((row) => (
        pathOf(row.map((value, at) => [at, value]), x, y))).join("") }),
      arms.map((arm, at) => {
        const own = units.map((row) => row[at]).filter(isNumber), name = look({ look: at });
        return h("g", { key: arm }, units.map((row, unit) => isNumber(row[at]) && h("circle", {
          key: unit, class: `dot ${name}`, cx: x(at), cy: y(row[at]), r: 4,
          onclick: () => openCell(store, cells[at * units.length + unit]) },
        h("title", null, `${arm}, ${of} ${cells[unit].unit}: ${figure(row[at])}`))),
        own.length > 0 && h("path", { class: `curve mean ${name}`,
          d: `M${x(at - 0.2)} ${y(meanOf(own))}H${x(at + 0.2)}` }));
      })] });
}

/** A specification curve: estimates in their order, and below what each was made with. */
function Curve({ curve: [, title, choices, rows], wide }) {
  const levels = choices.flatMap((name, at) => (
    [...new Set(rows.map((row) => row[3 + at]))].map((level) => [name, at, level])));
  return h(Plot, { wide, left: Math.min(170, wide / 3), from: -0.5, to: rows.length - 0.5, title,
    note: "", label: title, values: [0, ...rows.flatMap((row) => row.slice(0, 3)).filter(isNumber)],
    below: LINE * levels.length, names: [],
    draw: ({ x, y, bottom }) => [rows.map(([estimate, low, high], at) => h("g", { key: at },
      isNumber(low) && h("path", { class: "curve k0", d: `M${x(at)} ${y(low)}V${y(high)}` }),
      isNumber(estimate) && h("circle", { class: "dot k0", cx: x(at), cy: y(estimate), r: 4 }))),
    levels.map(([name, at, level], line) => h("g", { key: `${name} ${level}` },
      h("text", { x: x(-0.5) - 7, y: bottom + LINE * line + 4, "text-anchor": "end" },
        clip(`${name} ${level}`, Math.floor(x(-0.5) / 6.5))),
      rows.map((row, place) => row[3 + at] === level && h("path", { key: place, class: "tick",
        d: `M${x(place)} ${bottom + LINE * line - 5}v10` }))))] });
}

/** The runs, a row an arm and a square a unit, and why some failed. */
function RunsByArm({ store }) {
  const { arms, units, of } = partOf(store, "design"), cells = cellsOf(store);
  const [count, more] = limited(store, "units", units.length, MOST_UNITS, `more ${of}`);
  const failed = cells.filter((it) => it.error);
  const [most, others] = limited(store, "failed", failed.length, MOST_FAILED, "more that failed");
  const square = (cell) => h("button", { key: cell.place, class: `cell ${cell.status}`,
    "aria-label": `${cell.arm}, ${of} ${cell.unit}: ${cell.status}`,
    title: `${of} ${cell.unit}: ${cell.status}, ${plural(cell.turns, "turn")}`,
    tabindex: cell.place === (store.ui.cell ?? 0) ? "0" : "-1", "aria-disabled": !cell.turns,
    onfocus: () => store.show({ cell: cell.place }), onclick: () => openCell(store, cell) });
  const row = (arm) => {
    const own = cells.filter((it) => it.arm === arm), by = groupBy(own, (it) => it.status);
    return [arm, clip(arm, 80), h("div", { class: "row cells" }, own.slice(0, count).map(square)),
      facts(STATES.map((it) => by.has(it) && `${figure(by.get(it).length)} ${it}`))];
  };
  return [
    failed.length > 0 && h("section", { "aria-label": "What failed" }, h("h3", null, "What failed"),
      h(Table, { heads: ["arm", of, "reason", ""], rows: failed.slice(0, most).map((it) => (
        [it.place, clip(it.arm, 80), String(it.unit),
          h(Passage, { store, id: `failed ${it.place}`, text: it.error, most: 300 }),
          it.turns > 0 && plain("open", () => openCell(store, it))])) }), others),
    h("section", { "aria-label": "Runs by arm" },
      h(Table, { kind: "arms", heads: ["arm", `a square is a ${of}`, ""], rows: arms.map(row) }),
      more),
  ];
}

/** Arrow keys go from square to square. */
function cellKey(store, { key }, target) {
  const cell = target.closest(".cell"), across = cell?.parentNode.children.length;
  const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[key];
  if (!cell || !by) return false;
  const all = [...cell.closest("table").querySelectorAll(".cell")];
  all[all.indexOf(cell) + by]?.focus();
  return true;
}

addView("study", { draw: Study, onKey: cellKey });
