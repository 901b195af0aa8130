// A forest plot that is a table: a row an effect, its interval drawn and written, to be sorted.
// Places are percentages of the drawn column, so that a plot fits any width.
import { limited, ticks } from "./chart.js";
import { h } from "./dom.js";
import { decimals, facts, isNumber, plural, signed } from "./text.js";

const MOST_EFFECTS = 24;
const MOST_TICKS = 6;
const PADDING = 0.06; // of the range, on each side
const NEAR_END = 6; // percent of the axis

/** What a head sorts by; the design's order is that of the rows. */
const SORTS = {
  design: (row) => row.place,
  value: (row) => row.value,
  p: (row) => shownP(row),
};

const shownP = (row) => row.p_family ?? row.p;

/** A p-value as papers print it. */
export function pWords(p) {
  if (!isNumber(p)) return "";
  if (p < 0.0005) return "< .001";
  return p.toFixed(3).replace(/^0/, "");
}

/** Rows in the chosen order; those without a value come last. */
export function sorted(rows, { by = "design", down = false } = {}) {
  const value = SORTS[by];
  const sign = down ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a == null || b == null) return (a == null) - (b == null);
    return sign * (a - b) || one.place - other.place;
  });
}

/** From where to where values are drawn: all intervals, no effect, and the equivalence bounds. */
function drawnRange(rows) {
  const values = rows.flatMap(({ value, low, high }) => [value, low, high]);
  const bounds = rows.flatMap(({ margin }) => (isNumber(margin) ? [-margin, margin] : []));
  const all = [0, ...values, ...bounds].filter(isNumber);
  const low = Math.min(...all);
  const high = Math.max(...all);
  if (low === high) return [-1, 1]; // all differences are exactly 0
  const pad = (high - low) * PADDING;
  return [low - pad, high + pad];
}

/** An effect's interval and value, over the equivalence bounds and the line of no effect. */
function Interval({ row, at }) {
  const { value, low, high, margin, look } = row;
  const part = (kind, from, to) => h("i", {
    class: kind, style: `left: ${at(from)}%; width: ${at(to) - at(from)}%` });
  return h("div", { class: `interval k${look % 6}`, "aria-hidden": "true" },
    margin > 0 && part("within", -margin, margin),
    h("i", { class: "none", style: `left: ${at(0)}%` }),
    isNumber(low) && part("reach", low, high),
    isNumber(value) && h("i", { class: "point", style: `left: ${at(value)}%` }));
}

/** Where a number is at an end of the axis, it is written inwards, so that it is not cut. */
function endClass(place) {
  if (place < NEAR_END) return "at-start";
  return place > 100 - NEAR_END ? "at-end" : null;
}

function IntervalAxis({ range, at }) {
  const places = ticks(...range, MOST_TICKS);
  return h("div", { class: "interval axis", "aria-hidden": "true" }, places.map((value) => (
    h("span", { key: value, class: endClass(at(value)), style: `left: ${at(value)}%` },
      `${value}`.replace("-", "−")))));
}

/** A head that sorts: a first click upwards, another downwards; the first one as designed. */
function SortHead({ store, name }, words) {
  const { by = "design", down = false } = store.ui.effectOrder ?? {};
  const chosen = by === name;
  const sort = () => store.show({
    effectOrder: { by: name, down: chosen && !down && name !== "design" } });
  const direction = down ? "descending" : "ascending";
  const chosenWord = name === "design" ? "other" : direction;
  return h("th", { scope: "col", class: name, "aria-sort": chosen ? chosenWord : "none" },
    h("button", { class: "plain sort", type: "button", onclick: sort }, words));
}

/** Reasons and warnings, each once: `marks` has the number of each. */
function numbered(rows) {
  const marks = new Map();
  for (const { note } of rows) {
    if (note && !marks.has(note)) marks.set(note, marks.size + 1);
  }
  return marks;
}

/** A value in words: a distance between texts has no direction, so no sign. */
function valueWords({ kind, value }) {
  if (!isNumber(value)) return "not known";
  return kind === "text distance" ? decimals(value) : signed(value);
}

function EffectRow({ row, at, marks, letters }) {
  const { arm, contrast, kind, value, low, high, verdict, note, n, beside } = row;
  const interval = isNumber(low) ? `${decimals(low)} to ${decimals(high)}` : "no interval";
  const letter = !beside && arm != null && letters[row.look];
  const name = [letter && [h("b", null, letter), " "], beside ? kind : arm ?? contrast];
  return h("tr", { class: beside ? "beside" : null },
    h("th", { scope: "row" }, name, note && h("sup", null, marks.get(note))),
    h("td", { class: "drawn" }, h(Interval, { row, at })),
    h("td", { class: "value" },
      h("b", null, valueWords(row)),
      isNumber(value) && h("span", null, interval),
      verdict && h("small", null, verdict)),
    h("td", { class: "p" }, pWords(shownP(row))),
    h("td", { class: "n" }, n || ""));
}

/** The typical difference that stands below a skewed mean; it is not one of the family. */
const typicalRow = (row) => ({ ...row, ...row.typical, place: `${row.place} typical`,
  beside: true, p: null, p_family: null, verdict: "", note: "" });

const withTypical = (rows) => rows.flatMap((row) => (
  row.typical ? [row, typicalRow(row)] : [row]));

function familyWords({ size, outcomes }) {
  const where = outcomes > 1 ? ` in ${outcomes} outcomes` : "";
  return `p adjusted for one family of ${plural(size, "comparison")}${where}`;
}

/** What the plot shows, in words: its intervals, the bounds, and the family. */
function aboutPlot(rows, family, { of, paired = true }) {
  const { level } = rows[0];
  const percent = Number((100 * level).toFixed(2));
  // Pairs of runs have one seed, and that is what all the rest of a board calls them.
  const unitWord = (unit) => (unit === "run" && paired ? of : unit);
  const units = [...new Set(rows.map((row) => unitWord(row.unit)))];
  const bounds = rows.find((row) => row.margin > 0)?.margin;
  return facts(
    `${percent} % interval, each comparison alone`,
    family.size > 1 && familyWords(family),
    bounds && `grey: smaller than ±${bounds}, the smallest effect of interest`,
    `n: ${units.map((unit) => `${unit}s`).join(", ")}`);
}

/** Effects in one outcome. `rows` are the numbers that Python sent; `scale` names their axis. */
export function Forest({ store, design, rows, family, scale, reference }) {
  const { letters = [] } = design;
  const [count, more] = limited(store, "effects", rows.length, MOST_EFFECTS, "more effect");
  const ordered = sorted(rows, store.ui.effectOrder);
  const shown = withTypical(ordered.slice(0, count));
  const range = drawnRange(shown);
  const at = (value) => Number(((100 * (value - range[0])) / (range[1] - range[0])).toFixed(2));
  const marks = numbered(shown);
  const letter = letters[design.arms.indexOf(reference)];
  const base = letter ? `${letter}: ${reference}` : reference;
  const names = reference ? `arm − ${base}` : "effect";
  return [
    h("table", { class: letters.length > 0 ? "forest lettered" : "forest" },
      h("caption", { class: "hidden" }, "Effects: difference, interval and p-value of each"),
      h("thead", null, h("tr", null,
        h(SortHead, { store, name: "design" }, names),
        h("td", { class: "drawn" }),
        h(SortHead, { store, name: "value" }, "difference"),
        h(SortHead, { store, name: "p" }, "p"),
        h("th", { scope: "col", class: "n" }, "n"))),
      h("tbody", null, shown.map((row) => (
        h(EffectRow, { key: row.place, row, at, marks, letters })))),
      h("tfoot", null, h("tr", null,
        h("td", null),
        h("td", { class: "drawn" }, h(IntervalAxis, { range, at }),
          h("div", { class: "scale" }, scale))))),
    h("p", { class: "fine soft" }, aboutPlot(rows, family, design)),
    marks.size > 0 && h("ol", { class: "fine notes" }, [...marks].map(([note, number]) => (
      h("li", { key: number }, note)))),
    more,
  ];
}
