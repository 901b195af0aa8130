// Small charts in SVG by hand: on an axis of turns with hover, zoom by dragging and click for a
// turn, or, as `Plot`, on any axis.

import { h } from "./dom.js";
import { unfold } from "./fold.js";
import { groupBy } from "./reading.js";
import {
  clip, facts, figure, flatten, inWords, isNumber, plural, sayValue,
} from "./text.js";

const HEIGHT = 132, TALLER = 220; // of a chart, of one that stands alone
const TOP = 8, BOTTOM = 22, LEFT = 38, RIGHT = 10;
const NARROWEST = 280, GAP = 28, MOST_ACROSS = 3; // of a chart, between charts, beside each other
const LEAST_CHARTS = 3, FEW_CHARTS = 6; // at first: those of what changes
const FEW_FAINT = 12, MOST_LINES = 40, MANY_LINES = 6, TIP_LINES = 5, DRAG_PX = 6;
const FEW_BESIDE = 4; // runs whose values stand beside each other
const NARROW_CHART = 420; // a chart in which three of them have a line of their own below the unit
const NAME_HEIGHT = 12, NAME_LETTERS = 13, NAME_LETTER = 6; // of a line's name at its end, pixels
// The same three as in run/charts.py.
const WHOLE_SHARE_FROM = 0.2; // values from 0 to 1 that reach this are on the whole axis of a share
const LEAST_POINTS = 2; // the least span of an axis in percent
const LEAST_SHARE = 0.1; // of any other axis, as a share of its largest value

/** How a run is drawn: one of six colours, then the same ones dashed. */
export const look = (run) => `k${run.look % 6} dash${Math.floor(run.look / 6) % 4}`;

export const Swatch = ({ run }) => h("svg",
  { class: "swatch", viewBox: "0 0 18 8", "aria-hidden": "true" },
  h("path", { class: `curve main ${look(run)}`, d: "M1 4H17" }));

export const plain = (text, onclick, props) => h("button",
  { class: "plain", type: "button", onclick, ...props }, text);

/** How many of `all` things are shown, at first `most`, and a button for more. */
export function limited(store, id, all, most, word) {
  const count = store.ui.shown?.[id] ?? most;
  const more = () => unfold(store, id, 10 * count || Infinity);
  return [count, all > count && plain(plural(all - count, word), more, { key: "more" })];
}

/** What a run is called in a list: where it left its parent and what it changed, or its name. */
export function runLabel(reading, run, changes = reading.changes(run)) {
  const words = changes.map(promptWords).join("; ");
  const origin = run.fork == null ? run.verb : `${run.verb} at ${run.fork}`;
  if (!reading.runs.has(run.parent)) return facts(run.name, words);
  if (!words) return `${origin} of run ${run.parent}`;
  return run.fork == null ? words : facts(origin, words);
}

/** Of a changed prompt only what is new in it: "prompt offer: “You are greedy”". */
function promptWords(words) {
  const [, name, edits] = /^(prompt [^:]+): (.*)/s.exec(words) ?? [];
  const added = [...(edits ?? "").matchAll(/\{\+(.*?)(?:\+\}|$)/gs)].map(([, text]) => text.trim());
  return added.length > 0 ? `${name}: “${added.join(" … ")}”` : words;
}

/** "Turn 4 · 1980Q3". */
export function turnName(reading, run, n) {
  const period = reading.valueAt(run, "period", n);
  return facts(n === 0 ? "Start" : `Turn ${n}`, period != null && figure(period));
}

/** A turn's decisions by player: its own first, then what others made of it. */
export const playersOf = ({ decisions }) => [
  ...groupBy(decisions, (made) => made.player).values()];
export const nameOf = (made) => clip(made.player || made.component, 80);

/** A decision's answer on one line, but for its reason. */
function answerIn(reading, { answer, reasoning }) {
  const why = reading.text(reasoning);
  const fields = [...flatten(answer)].filter(([, value]) => value !== why);
  const action = fields.filter(([name]) => name === "action");
  return inWords(action.length > 0 ? action : fields);
}

/** Show a turn; the latest of a live run is followed while it is played. */
export const toTurn = (store, run, n, more) => store.go({
  turn: store.commands && n >= store.reading.last(run) ? null : n, ...more,
});
export const openTurn = (store, run, n) => (
  toTurn(store, run, n, store.panels.includes("turn") && { view: "turn" }));

/** Round places for an axis, about `most` of them. */
export function ticks(from, to, most, whole = false) {
  const rough = Math.max((to - from) / most || 1, whole ? 1 : 0);
  const power = 10 ** Math.floor(Math.log10(rough));
  const steps = whole ? [1, 2, 4, 5, 10] : [1, 2, 5, 10];
  const step = steps.map((it) => it * power).find((it) => it >= rough * 0.999);
  const first = Math.ceil(from / step - 1e-9), last = Math.floor(to / step + 1e-9);
  return Array.from({ length: Math.min(last - first, most) + 1 }, (_, at) => (
    Number(((first + at) * step).toPrecision(12))));
}

export const pathOf = (points, x, y) => points.map(([n, value], at) => {
  if (value == null) return "";
  const isFirst = points[at - 1]?.[1] == null;
  const isAlone = isFirst && points[at + 1]?.[1] == null; // a short line, else nothing is seen
  const across = isAlone ? x(n) - 3 : x(n);
  return `${isFirst ? "M" : "L"}${across.toFixed(1)} ${y(value).toFixed(1)}${isAlone ? "h6" : ""}`;
}).join("");

/** Where a chart's axis begins and ends; `axis_of` in run/charts.py is the same.
 * Yes and no, shares and close bounds have their whole axis; elsewhere a least span keeps noise
 * from looking like news. There may be too many values for arguments of Math.min. */
export function axisOf(values, { low: least, high: most, unit = "", yesNo, span } = {}) {
  if (!values.length || yesNo) return [0, 1];
  const low = values.reduce((a, b) => Math.min(a, b), values[0]);
  const high = values.reduce((a, b) => Math.max(a, b), values[0]);
  const isBounded = isNumber(least) && isNumber(most) && least <= low && high <= most;
  if (isBounded && most - least <= Math.max(1, 2 * (high - low))) return [least, most];
  const isWhole = values.every(Number.isInteger);
  const isShare = !unit && !isWhole && low >= 0 && high >= WHOLE_SHARE_FROM && high <= 1;
  if (isShare && span == null) return [0, 1];
  const size = Math.max(Math.abs(low), Math.abs(high));
  const shortest = span ?? (unit.startsWith("%") ? LEAST_POINTS : LEAST_SHARE * size || 1);
  const differs = high - low > 1e-9 * size; // by more than rounding
  let room = Math.max(0.08 * (high - low), (shortest - (high - low)) / 2);
  if (!differs && !room) room = size * 0.1 || 1;
  let [start, end] = [low - room, high + room];
  if (start < 0 && low >= 0 && span == null) start = 0; // never negative: no axis below zero
  if (end > 0 && high <= 0 && high > start && span == null) end = 0;
  return [start, end];
}

const upright = (kind, at, { x, tall }) => h("line", {
  key: kind, class: kind, x1: x(at), x2: x(at), y1: 2, y2: tall - BOTTOM,
});

/** Where values are in a chart, level lines, and the grid behind. */
function scaleOf(values, { wide, tall = HEIGHT, left = LEFT, right = RIGHT }, item) {
  const [low, high] = axisOf(values, item);
  const y = (value) => TOP + ((high - value) / (high - low)) * (tall - TOP - BOTTOM);
  const level = (kind, value) => h("line", {
    class: kind, x1: left, x2: wide - right, y1: y(value), y2: y(value),
  });
  const wordsOf = (value) => {
    if (item.yesNo) return value ? "yes" : "no";
    const text = Math.abs(value) >= 1e6 ? value.toPrecision(2) : `${value}`;
    return text.replaceAll("-", "−");
  };
  const isWhole = item.yesNo || values.every(Number.isInteger);
  const grid = ticks(low, high, 5, isWhole).map((value) => (
    h("g", { key: value },
      level(value === 0 ? "grid zero" : "grid", value),
      h("text", { x: left - 7, y: y(value) + 3.5, "text-anchor": "end" }, wordsOf(value)))));
  return { low, high, y, level, grid };
}

function axisText(n, words, { x, wide, tall = HEIGHT, right = RIGHT }) {
  const end = wide - right;
  let anchor = "middle";
  if (x(n) > end - 24) anchor = "end";
  else if (x(n) < LEFT + 20) anchor = "start";
  return h("text", { key: `turn ${n}`, x: x(n), y: tall - 6, "text-anchor": anchor }, words);
}

/** A chart of values over places from one to another, turns unless they have names. */
export function Plot({
  title, note, label = title, wide, left = LEFT, below = 0, values, span, names, draw, least = 0,
}) {
  const { y, grid } = scaleOf(values.filter(isNumber), { wide, left }, { span: least });
  const [from, to] = span;
  const room = Math.max(2, Math.floor((wide - LEFT) / 44));
  const x = (n) => left + ((n - from) / (to - from || 1)) * (wide - left - RIGHT);
  const places = names ?? ticks(from, to, room, true).map((n) => [n, `${n}`]);
  return h("figure", { class: "panel plot" },
    h("figcaption", null, h("b", { title }, title), h("span", { class: "unit soft" }, note)),
    h("svg", { width: wide, height: HEIGHT + below, role: "img", "aria-label": label },
      grid,
      draw(x, y, HEIGHT),
      places.map(([n, words]) => axisText(n, words, { x, wide }))));
}

/** Charts beside each other, as many as fit; `draw` is given the width of one. */
export function Panels({ store, label, count, most = MOST_ACROSS }, [draw, end]) {
  const { width = 0 } = store.ui;
  const fit = Math.floor((width + GAP) / (NARROWEST + GAP));
  const across = Math.max(1, Math.min(most, count, fit));
  const wide = Math.floor((width - GAP * (across - 1)) / across);
  const sizes = store.keep("sizes", [], () => new ResizeObserver(([{ target }]) => (
    target.clientWidth && store.show({ width: target.clientWidth }))));
  return h("section", {
    class: "charts", "aria-label": label,
    ref: (el) => sizes.observe(el),
    gone: (el) => sizes.unobserve(el),
  },
  h("div", { class: "panels", style: `--across: ${across}` },
    width > 0 && draw(wide, across)),
  end);
}

/** Charts of a run and its relatives, or of given runs, the last of them drawn strong.
 * `beside` are further panels, drawn after the charts by functions of a width. */
export function Charts({ store, runs, run = runs.at(-1), turn, items, beside = [] }) {
  const { reading, ui } = store;
  const all = items ?? reading.charted(run);
  const moving = all.filter((item) => !item.isFlat).length;
  const few = Math.min(FEW_CHARTS, Math.max(LEAST_CHARTS, moving));
  const [count, more] = limited(store, "charts", all.length, few, "more chart");
  const shown = all.slice(0, count);
  const lines = runs ?? reading.relatives(run, MOST_LINES);
  const [from, to] = spanOf(store, lines);
  const tall = shown.length + beside.length === 1 ? TALLER : HEIGHT;
  const panels = (wide, across) => {
    const drawn = shown.map((item) => {
      const isMany = item.column.includes("*");
      const names = isMany ? reading.linesOf(run, item).map((line) => line.name.length) : [];
      const right = isMany && !runs
        ? 12 + NAME_LETTER * Math.min(NAME_LETTERS, Math.max(0, ...names)) : RIGHT;
      return h(isMany ? LinesPanel : Panel, {
        key: item.column, item, store, reading, run, turn, lines, whole: Boolean(runs),
        wide, tall, right, from, to,
        inside: (n) => n != null && n >= from && n <= to,
        x: (n) => LEFT + ((n - from) / (to - from)) * (wide - LEFT - right),
      });
    });
    // High ones in the last column, so that charts fill the places beside them.
    const place = run.limited || across === 1 ? drawn.length : across - 1;
    drawn.splice(place, 0, ...beside.map((draw) => draw(wide)));
    return drawn;
  };
  const drawnCount = shown.length + beside.length;
  // Four stand two by two, where a high one does not fill the places beside the fourth.
  const isSquare = drawnCount === 4 && (beside.length === 0 || run.limited);
  const most = isSquare ? 2 : MOST_ACROSS;
  return h(Panels, { store, label: "Charts", count: drawnCount, most }, panels,
    h("div", { class: "row end" },
      ui.zoom && plain("Show all turns", () => store.show({ zoom: null })), more));
}

/** The turns that are shown: all of them, or those that were zoomed to. */
function spanOf({ reading, ui }, runs) {
  const first = Math.min(...runs.map((run) => reading.first(run)));
  const last = Math.max(first + 1, ...runs.map((run) => reading.last(run)));
  const [from, to] = ui.zoom?.[0] < last ? ui.zoom : [first, last];
  return [Math.max(from, first), Math.min(to, last)];
}

/** The turn that a panel tells of: the one that is pointed at, else the one that is shown. */
function turnOf({ store, turn, to, inside }) {
  const { over } = store.ui;
  return inside(over?.n) ? over.n : Math.min(turn ?? to, to);
}

/** A chart of one column: a line for each run. */
function Panel(view) {
  const { store, reading, item, run, turn, lines, wide, tall, from, to, inside, x } = view;
  const { over } = store.ui;
  const n = turnOf(view);
  const drawn = store.keep(`chart ${item.column}`,
    [reading.size, run, turnsOf(lines), wide, tall, from, to], () => drawPanel(view));
  const value = reading.valueAt(run, item.column, n);
  const others = besideOf(lines, run);
  const hasDots = run.people?.some(({ column, n: at }) => column === item.column && at != null);
  const place = reading.points(run, item.column).find(([at]) => at === n)?.[1];
  const otherValues = others.map((line) => h("i", { key: line.id, class: look(line) },
    sayValue(reading.valueAt(line, item.column, n))));
  return h("figure", { class: "panel" },
    h(Caption, { item, note: hasDots && "○ people", isHigh: hasHighCaption(wide, others) },
      otherValues, h("strong", { class: look(run) }, sayValue(value))),
    h(Drawing, { view, drawn, n },
      isNumber(place) && inside(n) && h("circle", {
        key: "dot", class: `dot ${look(run)}`, cx: x(n), cy: drawn.y(place), r: 4 })),
    over?.column === item.column && !store.ui.drag && h(Tip, { ...view, n, turn }));
}

/** A chart of a dict of numbers: a line for each key, named at its end; of several runs means. */
function LinesPanel(view) {
  const { store, reading, item, run, lines, whole, wide, tall, from, to } = view;
  const { over } = store.ui;
  const n = turnOf(view);
  const drawn = store.keep(`chart ${item.column}`,
    [reading.size, run, turnsOf(lines), wide, tall, from, to], () => drawLines(view));
  const others = besideOf(lines, run);
  const runs = whole ? lines : [...others, run];
  const lit = over?.column === item.column && drawn.nearest(over.n, over.value);
  return h("figure", { class: "panel" },
    h(Caption, { item, isHigh: hasHighCaption(wide, others) },
      h("small", null, sumWords(item, runs.length)),
      runs.map((line) => h(line === run ? "strong" : "i",
        { key: line.id, class: runs.length > 1 ? look(line) : null },
        sumUp(reading, line, item, n)))),
    h(Drawing, { view, drawn, n },
      lit && h("path", { key: "lit", class: "curve main lit", d: drawn.pathOf(lit) })),
    lit && !store.ui.drag && h(LinesTip, { ...view, n, lit }));
}

const sumWords = ({ yesNo }, runs) => {
  if (yesNo) return "yes";
  return runs > 1 ? "means" : "mean";
};

/** The mean of a chart's lines in a turn; of truth values how many are true. */
function sumUp(reading, run, item, n) {
  const values = reading.linesOf(run, item)
    .map(({ column }) => reading.valueAt(run, column, n))
    .filter((value) => value != null);
  const sum = values.reduce((all, value) => all + Number(value), 0);
  if (item.yesNo) return `${sum} of ${values.length}`;
  return values.length ? figure(sum / values.length) : "";
}

/** The runs beside the one that is shown, where they are few. */
const besideOf = (lines, run) => (
  lines.length > FEW_BESIDE ? [] : lines.filter((line) => line !== run));

const turnsOf = (lines) => lines.map((line) => line.id).join();

const hasHighCaption = (wide, others) => others.length > 1 && wide < NARROW_CHART;

const Caption = ({ item, note, isHigh }, now) => h("figcaption", { class: isHigh && "high" },
  h("b", { title: item.label }, item.label),
  h("span", { class: "unit soft" }, facts(item.unit, note)),
  h("span", { class: "now" }, now));

/** A chart's drawing, and what moves over it. */
function Drawing({ view, drawn, n }, marks) {
  const { store, turn, wide, tall, inside, x } = view;
  const { over, drag } = store.ui;
  return h("svg", {
    width: wide, height: tall, role: "img", "aria-label": drawn.label, ...pointing(view, drawn),
  },
  drawn.still,
  inside(turn) && upright("here", turn, view),
  over && upright("over", n, view),
  drag && h("rect", {
    key: "drag", class: "drag", y: 2, height: tall - BOTTOM - 2, x: x(Math.min(...drag)),
    width: Math.abs(x(drag[1]) - x(drag[0])) }),
  marks);
}

/** What of a chart of runs does not change while one points at it. */
function drawPanel(view) {
  const { item, run, lines, wide, tall, x, inside } = view;
  const strongLast = [...lines].sort((a, b) => (a === run) - (b === run));
  const curves = strongLast.flatMap((line) => curvesOf(view, line));
  for (const curve of curves) curve.points = curve.points.filter(([n]) => inside(n));
  const predicted = run.prediction?.[item.column];
  const drawn = curves.flatMap((curve) => curve.points.map(([, value]) => value));
  const people = (run.people ?? []).filter(({ column, n }) => (
    column === item.column && (n == null || inside(n))));
  const known = [...drawn, predicted, ...people.map(({ mean }) => mean)].filter(isNumber);
  const scale = scaleOf(known, view, item);
  const { low, high, y, level } = scale;
  const bounds = [item.low, item.high].filter((value) => (
    isNumber(value) && value > low && value < high));
  const still = h("g", null, ground(view, scale),
    bounds.map((value) => level("bound", value)),
    curves.map(({ kind, points }) => h("path", { class: kind, d: pathOf(points, x, y) })),
    isNumber(predicted) && h(Predicted, { value: predicted, end: wide - RIGHT, y, level }),
    people.map((figures) => h(People, { figures, x, y, level })),
    interventionsIn(view).map((n) => h("path", {
      class: "outside", d: `M${x(n) - 4} ${tall - BOTTOM}h8l-4-7z`,
    })));
  return { ...scale, still, label: panelInWords(view) };
}

/** What theory says of a column: a line across. */
const Predicted = ({ value, end, y, level }) => [level("told", value), h("text", {
  class: "told", x: end, y: y(value) - 4, "text-anchor": "end",
}, `predicted ${figure(value)}`)];

/** What people did in a published study: in one turn a hollow dot, else a line. */
function People({ figures: { n, mean, count }, x, y, level }) {
  const of = count > 0 ? ` (n = ${count})` : "";
  const words = `people ${figure(mean)}${of}`;
  if (n != null) {
    return h("circle", { class: "people", cx: x(n), cy: y(mean), r: 4 }, h("title", null, words));
  }
  return [level("told", mean), h("text", { class: "told", x: LEFT + 4, y: y(mean) - 4 }, words)];
}

/** The grid, the turns, and where runs were forked. */
function ground(view, { grid }) {
  const { lines, inside } = view;
  const forks = [...new Set(lines.map((line) => line.fork).filter(inside))];
  return [grid, turnAxis(view),
    forks.length <= MANY_LINES && forks.map((n) => upright("fork", n, view))];
}

/** Truth values by key: a row each, filled in the turns in which it is true. */
function drawRows(view) {
  const { reading, item, run, wide, tall, right, from, to, inside } = view;
  const rows = reading.linesOf(run, item).map(({ name, column }) => (
    { name, run, points: reading.points(run, column).filter(([n]) => inside(n)) }));
  const high = (tall - TOP - BOTTOM) / rows.length;
  const across = (wide - LEFT - right) / (to - from + 1);
  const start = (n) => LEFT + (n - from) * across;
  const isNamed = high >= NAME_HEIGHT - 3;
  const still = h("g", null, turnAxis({ ...view, x: (n) => start(n) + across / 2 }),
    rows.map(({ name, points }, index) => h("g", { key: name },
      points.filter(([, value]) => value != null).map(([n, value]) => h("rect", {
        key: n, class: value ? "yes" : "no", x: start(n) + 0.5, width: Math.max(1, across - 1),
        y: TOP + index * high + 0.5, height: Math.max(1, high - 1) })),
      isNamed && h("text", {
        class: "name", x: wide - right + 6, y: TOP + (index + 0.5) * high + 3.5,
      }, clip(name, NAME_LETTERS)))));
  const nearest = (n, value) => rows[Math.floor((1 - value) * rows.length)];
  return { low: 0, high: 1, still, nearest, pathOf: () => "",
    label: `${item.label}: ${plural(rows.length, "row")}` };
}

/** The same of a chart with a line for each key. Of runs beside the one that is shown there are
 * the same keys, dotted; where keys are many, their means. */
function drawLines(view) {
  if (view.item.yesNo && !view.whole) return drawRows(view);
  const { reading, item, run, lines, whole, wide, tall, right, x, inside } = view;
  const keysOf = (line) => reading.linesOf(line, item).map(({ name, column }) => ({
    name, run: line, points: reading.points(line, column).filter(([n]) => inside(n)),
  })).filter(({ points }) => points.some(([, value]) => value != null));
  const curves = (whole ? lines : [run]).flatMap(keysOf);
  const isMany = curves.length > MANY_LINES;
  const others = whole ? [] : besideOf(lines, run);
  const otherCurves = others.flatMap(keysOf);
  const columns = reading.linesOf(run, item).map(({ column }) => column);
  // Each once: theory often says the same of all keys.
  const theory = new Set(columns.map((column) => run.prediction?.[column]));
  const predicted = [...theory].filter(isNumber);
  const all = isMany ? curves : [...curves, ...otherCurves];
  const drawn = all.flatMap(({ points }) => points.map(([, value]) => value)).filter(isNumber);
  const scale = scaleOf([...drawn, ...predicted], view, item);
  const { y, level } = scale;
  const path = ({ points }) => pathOf(points, x, y);
  const ends = whole ? [] : namesAtEnds(curves, y, tall);
  let averaged = whole ? lines : [];
  if (isMany && others.length > 0) averaged = [...others, run];
  if (whole) markRuns(curves);
  else markKeys(curves, averaged.length > 0 ? [] : ends);
  const means = averaged.map((line) => meanCurve(line, [...curves, ...otherCurves]));
  const colours = new Map(curves.map(({ name, colour }) => [name, colour]));
  const dotted = isMany ? [] : otherCurves.map((curve) => (
    { ...curve, kind: `curve dotted ${colours.get(curve.name) ?? ""}` }));
  const faint = !whole || curves.length <= FEW_FAINT ? curves : [];
  const paths = [...dotted, ...faint, ...means].map((curve) => (
    h("path", { class: curve.kind, d: path(curve) })));
  const still = h("g", null, ground(view, scale),
    predicted.map((value) => h(Predicted, {
      key: `predicted ${value}`, value, end: wide - right, y, level })),
    paths,
    ends.map(({ curve, at }) => h("text", {
      key: `name ${curve.name}`, class: `name ${curve.colour ?? ""}`, x: wide - right + 6, y: at,
    }, clip(curve.name, NAME_LETTERS))));
  const nearest = (n, value) => nearestCurve(curves, n, value);
  const count = plural(reading.linesOf(run, item).length, "line");
  return { ...scale, still, nearest, pathOf: path, label: `${item.label}: ${count}` };
}

function markRuns(curves) {
  for (const curve of curves) curve.kind = `curve faint ${look(curve.run)}`;
}

/** Few lines have a colour each; of many, the highest and the lowest, and the rest are grey. */
function markKeys(curves, ends) {
  const outermost = ends.length > 1 ? [ends[0].curve, ends.at(-1).curve] : [];
  curves.forEach((curve, index) => {
    if (curves.length <= MANY_LINES) curve.colour = `k${index % 6}`;
    else if (outermost.includes(curve)) curve.colour = `k${outermost.indexOf(curve)}`;
    curve.kind = curve.colour ? `curve solid ${curve.colour}` : "curve dim";
  });
}

/** A run's mean over the keys that a turn has. */
function meanCurve(run, curves) {
  const byTurn = new Map();
  for (const curve of curves) {
    if (curve.run !== run) continue;
    for (const [n, value] of curve.points) {
      if (!byTurn.has(n)) byTurn.set(n, []);
      if (value != null) byTurn.get(n).push(value);
    }
  }
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const points = [...byTurn].sort(([a], [b]) => a - b).map(([n, values]) => (
    [n, values.length ? mean(values) : null]));
  return { kind: `curve main ${look(run)}`, points };
}

/** The lines that can be named at their ends, from the top down, and at which height each. */
export function namesAtEnds(curves, y, tall = HEIGHT) {
  const last = Math.max(...curves.map(({ points }) => points.at(-1)?.[0] ?? 0));
  const ends = curves.flatMap((curve) => {
    const [n, value] = curve.points.at(-1) ?? [];
    return n === last && value != null ? [{ curve, at: y(value) + 3.5 }] : [];
  }).sort((a, b) => a.at - b.at);
  if (ends.length <= MANY_LINES) return spread(ends, tall - BOTTOM + 3);
  const placed = [];
  const order = ends.flatMap((_, index) => [ends[index], ends[ends.length - 1 - index]]);
  for (const end of order.slice(0, ends.length)) { // from both sides to the middle
    if (placed.every((other) => Math.abs(other.at - end.at) >= NAME_HEIGHT)) placed.push(end);
  }
  return placed.sort((a, b) => a.at - b.at);
}

/** Move names apart, within the chart. */
function spread(ends, lowest) {
  ends.forEach((end, index) => {
    if (index > 0) end.at = Math.max(end.at, ends[index - 1].at + NAME_HEIGHT);
  });
  for (let index = ends.length - 1; index >= 0; index -= 1) {
    const below = index === ends.length - 1 ? lowest : ends[index + 1].at - NAME_HEIGHT;
    ends[index].at = Math.min(ends[index].at, below);
  }
  return ends;
}

function nearestCurve(curves, n, value) {
  let nearest = null, least = Infinity;
  for (const curve of curves) {
    const here = curve.points.find(([at]) => at === n)?.[1];
    const distance = here == null ? Infinity : Math.abs(here - value);
    if (distance < least) [nearest, least] = [curve, distance];
  }
  return nearest;
}

/** The turns that are shown in which something was set from outside. */
const interventionsIn = ({ reading, run, inside }) => [...reading.turns(run)]
  .filter(([n, turn]) => inside(n) && turn.done.length > 0)
  .map(([n]) => n);

/** "Rate: from 5 in turn 1 to 4.25 in turn 8". */
function panelInWords({ reading, item, run, inside }) {
  const known = reading.points(run, item.column)
    .filter(([n, value]) => inside(n) && value != null);
  if (!known.length) return `${item.label}: no values`;
  const inPanel = (value) => (item.yesNo ? sayValue(Boolean(value)) : figure(value));
  const words = ([n, value]) => `${inPanel(value)} in turn ${n}`;
  return `${item.label}: from ${words(known[0])} to ${words(known.at(-1))}`;
}

/** The curves of one run: the one that is shown is strong, in its ancestors' colours before it. */
function curvesOf({ reading, item: { column }, run, lines, whole }, it) {
  if (it === run) {
    return [...reading.lineOf(it)].map(([id, last]) => ({
      kind: `curve main ${look(reading.runs.get(id))}`,
      points: reading.ownPoints(reading.runs.get(id), column).filter(([n]) => n <= last),
    }));
  }
  const branches = !whole && it.fork != null && lines.some((other) => other.id === it.parent);
  const kind = lines.length > MANY_LINES ? "curve dim" : `curve ${look(it)}`;
  return [{ kind, points: reading[branches ? "ownPoints" : "points"](it, column) }];
}

function turnAxis(view) {
  const { reading, run, lines, wide, right, from, to } = view;
  const hasPeriods = reading.columns(run).has("period");
  const nameOfTurn = (n) => {
    if (!hasPeriods) return n;
    const periods = [run, ...lines].map((line) => reading.valueAt(line, "period", n));
    return periods.find(Boolean) ?? n;
  };
  const most = Math.max(2, Math.floor((wide - LEFT - right) / (hasPeriods ? 72 : 44)));
  return ticks(from, to, most, true).map((n) => (
    axisText(n, clip(figure(nameOfTurn(n)), 12), view)));
}

/** What a pointer does over a chart: a click opens a turn, dragging zooms to a range. */
function pointing({ store, item: { column }, run, from, to, wide, tall, right }, { low, high }) {
  const { ui } = store;
  const isMany = column.includes("*"); // there a line is pointed at, not a turn alone
  const turnAt = ({ currentTarget, clientX }) => {
    const px = clientX - currentTarget.getBoundingClientRect().left - LEFT;
    const n = from + (px / (wide - LEFT - right)) * (to - from);
    return Math.round(Math.min(Math.max(n, from), to));
  };
  const valueAt = ({ currentTarget, clientY }) => {
    const px = clientY - currentTarget.getBoundingClientRect().top - TOP;
    return high - (px / (tall - TOP - BOTTOM)) * (high - low);
  };
  return {
    onpointerdown: (event) => { ui.press = { x: event.clientX, n: turnAt(event) }; },
    onpointermove: (event) => {
      const n = turnAt(event);
      const isPressed = ui.press && event.buttons === 1;
      if (isPressed && Math.abs(event.clientX - ui.press.x) > DRAG_PX) ui.drag = [ui.press.n, n];
      const isNew = ui.over?.n !== n || ui.over.column !== column;
      if (isNew || isMany) store.show({ over: { n, column, value: valueAt(event) } });
    },
    onpointerup: (event) => {
      const { drag, press } = ui;
      store.show({ press: null, drag: null });
      if (drag && drag[0] !== drag[1]) store.show({ zoom: drag.sort((a, b) => a - b) });
      else if (press) openTurn(store, run, turnAt(event));
    },
    onpointerleave: () => store.show({ over: null, drag: null, press: null }),
  };
}

/** A box beside the turn that is pointed at. */
function TipBox({ x, n, wide }, content) {
  const isRight = x(n) > wide / 2;
  const style = isRight ? `right: ${wide - x(n) + 12}px` : `left: ${x(n) + 12}px`;
  return h("div", { class: "tip", style }, content);
}

function Tip({ reading, item, run, lines, n, x, wide }) {
  const turn = reading.turn(run, n);
  const isMany = lines.length > MANY_LINES;
  const values = [run, ...lines.filter((line) => line !== run)]
    .map((line) => [line, reading.valueAt(line, item.column, n)])
    .filter(([, value]) => value != null);
  const numbers = values.map(([, value]) => value);
  const ends = [Math.min(...numbers), Math.max(...numbers)].map(figure);
  return h(TipBox, { x, n, wide },
    h("b", null, turnName(reading, run, n)),
    values.slice(0, isMany ? 1 : TIP_LINES).map(([line, value]) => h("div", { key: line.id },
      h(Swatch, { run: line }), h("span", null, runLabel(reading, line)),
      h("b", null, sayValue(value)))),
    isMany && h("div", null, h("span", null, `${values.length} runs`),
      h("b", null, ends.join(" to "))),
    turn?.done?.map((words) => h("p", null, clip(words, 120))),
    turn && playersOf(turn).slice(0, TIP_LINES).map(([made]) => (
      h("div", { key: made.player, class: "made" }, h("span", null, nameOf(made)),
        h("small", null, clip(answerIn(reading, made), 60))))));
}

/** The line that is pointed at, and those next to it by value. */
function LinesTip({ reading, item, run, whole, n, lit, x, wide }) {
  const values = reading.linesOf(lit.run, item)
    .map(({ name, column }) => [name, reading.valueAt(lit.run, column, n)])
    .filter(([, value]) => value != null)
    .sort(([, a], [, b]) => b - a);
  const place = values.findIndex(([name]) => name === lit.name);
  const first = Math.max(0, Math.min(place - 2, values.length - TIP_LINES));
  return h(TipBox, { x, n, wide },
    h("b", null, turnName(reading, run, n), whole && ` · run ${lit.run.id}`),
    values.slice(first, first + TIP_LINES).map(([name, value]) => h("div", { key: name },
      h("span", null, name === lit.name ? h("b", null, name) : name),
      h(name === lit.name ? "b" : "span", { class: "end" }, sayValue(value)))),
    values.length > TIP_LINES && h("div", null, h("small", null, `of ${values.length}`)));
}
