// A specification curve: a finding in each combination of the other choices, by its size.
import { soft, Table } from "./calls.js";
import { Plot } from "./chart.js";
import { h } from "./dom.js";
import { Fold } from "./fold.js";
import { pWords } from "./forest.js";
import { clip, decimals, facts, isNumber, plural, signed } from "./text.js";

const LINE = 17; // height of a choice, pixels
const LETTER = 6.5;
const WIDEST_NAMES = 170;

const percent = (share) => `${Math.round(100 * share)} %`;

/** A share of the specifications, beside what chance alone gives. */
const beside = (words, share, chance) => (
  `${words} in ${percent(share)}${isNumber(chance) ? ` (${percent(chance)} by chance)` : ""}`);

/** What the specifications say together, from their numbers. */
export function curveWords({ rows, holds, same_sign: sameSign, chance }) {
  return facts(
    plural(rows.length, "specification"),
    beside("interval without 0", holds, chance?.holds),
    beside("same sign", sameSign, chance?.same_sign),
    chance && `joint p ${pWords(chance.p)}`);
}

/** The levels of each choice, a line each: `{name, level, column}`. */
const linesOf = ({ choices, rows }) => choices.flatMap((name, place) => {
  const column = 3 + place; // after estimate, low and high
  const levels = [...new Set(rows.map((row) => row[column]))];
  return levels.map((level) => ({ name, level, column }));
});

/** The curve, and its specifications as a table. */
export function Curve({ store, curve, wide }) {
  const { factor, finding, rows } = curve;
  if (rows.every(([estimate]) => estimate === 0)) {
    return soft(`${finding}: exactly 0 in all ${plural(rows.length, "specification")}.`);
  }
  return [
    h(CurvePlot, { key: "plot", curve, wide }),
    h("p", { key: "words", class: "fine soft" }, curveWords(curve)),
    h(Fold, { key: "rows", store, id: `curve ${factor}`, title: "Specifications as a table" },
      () => h(CurveTable, { curve })),
  ];
}

function CurvePlot({ curve, wide }) {
  const { finding, rows } = curve;
  const lines = linesOf(curve);
  const values = [0, ...rows.flatMap((row) => row.slice(0, 3))];
  return h(Plot, {
    title: finding,
    note: "each specification, by its size",
    label: `Specification curve of ${finding}. ${curveWords(curve)}`,
    wide,
    left: Math.min(WIDEST_NAMES, wide / 3),
    below: LINE * lines.length,
    span: [-0.5, rows.length - 0.5],
    values,
    names: [],
    draw: (x, y, bottom) => [
      rows.map((row, place) => h(CurvePoint, { key: place, row, x: x(place), y })),
      lines.map((line, place) => h(ChoiceLine, {
        key: `${line.name} ${line.level}`, line, rows, x, y: bottom + LINE * place,
        isFirst: line.name !== lines[place - 1]?.name })),
    ],
  });
}

/** An estimate with its interval; hollow where the interval has 0 in it. */
function CurvePoint({ row: [estimate, low, high], x, y }) {
  const leavesOutZero = isNumber(low) && (low > 0 || high < 0);
  return h("g", null,
    isNumber(low) && h("path", { class: "curve k0", d: `M${x} ${y(low)}V${y(high)}` }),
    isNumber(estimate) && h("circle", {
      class: leavesOutZero ? "dot k0" : "dot k0 hollow", cx: x, cy: y(estimate), r: 4 }));
}

/** A level of a choice: its name, and a mark below each specification that was made with it. */
function ChoiceLine({ line: { name, level, column }, rows, x, y, isFirst }) {
  const words = clip(`${name}: ${level}`, Math.floor(x(-0.5) / LETTER));
  const made = rows.flatMap((row, place) => (row[column] === level ? [place] : []));
  return h("g", null,
    isFirst && h("path", { class: "grid", d: `M0 ${y - LINE / 2}H${x(rows.length - 0.5)}` }),
    h("text", { x: x(-0.5) - 7, y: y + 4, "text-anchor": "end" }, words),
    made.map((place) => h("circle", { key: place, class: "tick", cx: x(place), cy: y, r: 3 })));
}

function CurveTable({ curve: { choices, rows } }) {
  const interval = ([, low, high]) => (
    isNumber(low) ? `${decimals(low)} to ${decimals(high)}` : "no interval");
  const cells = (row, place) => [
    place,
    isNumber(row[0]) ? signed(row[0]) : "not known",
    interval(row),
    ...row.slice(3).map(String),
  ];
  return h(Table, { heads: ["difference", "interval", ...choices], rows: rows.map(cells) });
}
