// Small charts in SVG by hand: on an axis of turns with hover, zoom by dragging and click for a
// turn, or, as `Plot`, on any axis.

import { h } from "./dom.js";
import { unfold } from "./fold.js";
import { groupBy } from "./reading.js";
import { clip, facts, figure, flatten, inWords, isNumber, plural } from "./text.js";

const HEIGHT = 132, TOP = 8, BOTTOM = 22, LEFT = 38, RIGHT = 10;
const NARROWEST = 340, GAP = 28; // of a chart, between charts
const FEW_CHARTS = 6, MOST_LINES = 40, MANY_LINES = 6, TIP_LINES = 5, DRAG_PX = 6;

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
  const words = changes.join("; ");
  const origin = run.fork == null ? run.verb : `${run.verb} at ${run.fork}`;
  if (!reading.runs.has(run.parent)) return facts(run.name, words);
  if (!words) return `${origin} of run ${run.parent}`;
  return run.fork == null ? words : facts(origin, words);
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
  const pen = points[at - 1]?.[1] == null ? "M" : "L";
  return value == null ? "" : `${pen}${x(n).toFixed(1)} ${y(value).toFixed(1)}`;
}).join("");

/** The smallest and largest value with some room; as many as there are, so not as arguments. */
function rangeOf(values) {
  const first = values[0] ?? 0;
  const low = values.reduce((a, b) => Math.min(a, b), first);
  const high = values.reduce((a, b) => Math.max(a, b), first);
  const size = Math.max(Math.abs(low), Math.abs(high));
  const differ = high - low > 1e-9 * size; // by more than rounding
  const pad = differ ? (high - low) * 0.08 : size * 0.1 || 1;
  return [low - pad, high + pad];
}

const upright = (kind, at, x) => h("line", {
  key: kind, class: kind, x1: x(at), x2: x(at), y1: 2, y2: HEIGHT - BOTTOM,
});

/** Where values are in a chart, level lines, and the grid behind. */
function scaleOf(values, wide, left = LEFT) {
  const [low, high] = rangeOf(values);
  const y = (value) => TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const level = (kind, value) => h("line", {
    class: kind, x1: left, x2: wide - RIGHT, y1: y(value), y2: y(value),
  });
  const grid = ticks(low, high, 5, values.every(Number.isInteger)).map((value) => (
    h("g", { key: value },
      level(value === 0 ? "grid zero" : "grid", value),
      h("text", { x: left - 7, y: y(value) + 3.5, "text-anchor": "end" },
        (Math.abs(value) >= 1e6 ? value.toPrecision(2) : `${value}`).replaceAll("-", "−")))));
  return { low, high, y, level, grid };
}

const axisText = (n, words, x, wide) => h("text", {
  key: `turn ${n}`, x: x(n), y: HEIGHT - 6,
  "text-anchor": x(n) > wide - 34 ? "end" : x(n) < LEFT + 20 ? "start" : "middle",
}, words);

/** A chart of values over places from one to another, turns unless they have names. */
export function Plot({
  title, note, label = title, wide, left = LEFT, below = 0, values, span, names, draw,
}) {
  const { y, grid } = scaleOf(values.filter(isNumber), wide, left);
  const [from, to] = span;
  const room = Math.max(2, Math.floor((wide - LEFT) / 44));
  const x = (n) => left + ((n - from) / (to - from || 1)) * (wide - left - RIGHT);
  return h("figure", { class: "panel plot" },
    h("figcaption", null, h("b", { title }, title), h("span", { class: "unit soft" }, note)),
    h("svg", { width: wide, height: HEIGHT + below, role: "img", "aria-label": label }, grid,
      draw(x, y, HEIGHT), (names ?? ticks(from, to, room, true).map((n) => [n, `${n}`]))
        .map(([n, words]) => axisText(n, words, x, wide))));
}

/** Charts beside each other, as many as fit; `draw` is given the width of one. */
export function Panels({ store, label, count }, [draw, end]) {
  const { width = 0 } = store.ui;
  const fit = Math.floor((width + GAP) / (NARROWEST + GAP));
  const across = Math.max(1, Math.min(3, count, fit));
  const wide = Math.floor((width - GAP * (across - 1)) / across);
  const sizes = store.keep("sizes", [], () => new ResizeObserver(([{ target }]) => (
    target.clientWidth && store.show({ width: target.clientWidth }))));
  return h("section", { class: "charts", "aria-label": label,
    ref: (el) => sizes.observe(el), gone: (el) => sizes.unobserve(el) },
    h("div", { class: "panels", style: `--across: ${across}` }, width > 0 && draw(wide)), end);
}

/** Charts of a run and its relatives, or of given runs, the last of them drawn strong. */
export function Charts({ store, runs, run = runs.at(-1), turn, items }) {
  const { reading, ui } = store;
  const all = items ?? reading.charted(run);
  const [count, more] = limited(store, "charts", all.length, FEW_CHARTS, "more chart");
  const shown = all.slice(0, count);
  const lines = runs ?? reading.relatives(run, MOST_LINES);
  const [from, to] = spanOf(store, lines);
  const panels = (wide) => shown.map((item) => h(Panel, {
    key: item.column, item, store, reading, run, turn, lines, whole: Boolean(runs), wide, from, to,
    inside: (n) => n != null && n >= from && n <= to,
    x: (n) => LEFT + ((n - from) / (to - from)) * (wide - LEFT - RIGHT),
  }));
  return h(Panels, { store, label: "Charts", count: shown.length }, panels,
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

function Panel(view) {
  const { store, reading, item, run, turn, lines, wide, from, to, inside, x } = view;
  const { over, drag } = store.ui;
  const n = inside(over?.n) ? over.n : Math.min(turn ?? to, to);
  const drawn = store.keep(`chart ${item.column}`,
    [reading.size, run, lines.map((it) => it.id).join(), wide, from, to], () => drawPanel(view));
  const value = reading.valueAt(run, item.column, n);
  const others = lines.length > 4 ? [] : lines.filter((it) => it !== run);
  return h("figure", { class: "panel" },
    h("figcaption", null, h("b", { title: item.label }, item.label),
      h("span", { class: "unit soft" }, item.unit),
      h("span", { class: "now" }, others.map((it) => h("i", { key: it.id, class: look(it) },
        figure(reading.valueAt(it, item.column, n)))),
      h("strong", { class: look(run) }, figure(value)))),
    h("svg", {
      width: wide, height: HEIGHT, role: "img", "aria-label": drawn.label, ...pointing(view),
    },
    drawn.still,
    inside(turn) && upright("here", turn, x),
    over && upright("over", n, x),
    drag && h("rect", {
      key: "drag", class: "drag", y: 2, height: HEIGHT - BOTTOM - 2, x: x(Math.min(...drag)),
      width: Math.abs(x(drag[1]) - x(drag[0])) }),
    isNumber(value) && inside(n) && h("circle", {
      key: "dot", class: `dot ${look(run)}`, cx: x(n), cy: drawn.y(value), r: 4 })),
    over?.column === item.column && !drag && h(Tip, { ...view, n }));
}

/** What of a chart does not change while one points at it. */
function drawPanel(view) {
  const { item, run, lines, wide, x, inside } = view;
  const strongLast = [...lines].sort((a, b) => (a === run) - (b === run));
  const curves = strongLast.flatMap((line) => curvesOf(view, line));
  for (const curve of curves) curve.points = curve.points.filter(([n]) => inside(n));
  const predicted = run.prediction?.[item.column];
  const drawn = curves.flatMap((curve) => curve.points.map(([, value]) => value));
  const { low, high, y, level, grid } = scaleOf([...drawn, predicted].filter(isNumber), wide);
  const bounds = [item.low, item.high].filter((value) => (
    isNumber(value) && value > low && value < high));
  const forks = [...new Set(lines.map((line) => line.fork).filter(inside))];
  const still = h("g", null, grid, turnAxis(view),
    bounds.map((value) => level("bound", value)),
    forks.length <= MANY_LINES && forks.map((n) => upright("fork", n, x)),
    curves.map(({ kind, points }) => h("path", { class: kind, d: pathOf(points, x, y) })),
    isNumber(predicted) && [level("told", predicted), h("text", {
      class: "told", x: wide - RIGHT, y: y(predicted) - 4, "text-anchor": "end",
    }, `predicted ${figure(predicted)}`)],
    interventionsIn(view).map((n) => h("path", {
      class: "outside", d: `M${x(n) - 4} ${HEIGHT - BOTTOM}h8l-4-7z`,
    })));
  return { y, still, label: panelInWords(view) };
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
  const words = ([n, value]) => `${figure(value)} in turn ${n}`;
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

function turnAxis({ reading, run, lines, wide, from, to, x }) {
  const hasPeriods = reading.columns(run).has("period");
  const nameOfTurn = (n) => {
    if (!hasPeriods) return n;
    const periods = [run, ...lines].map((line) => reading.valueAt(line, "period", n));
    return periods.find(Boolean) ?? n;
  };
  const most = Math.max(2, Math.floor((wide - LEFT) / (hasPeriods ? 72 : 44)));
  return ticks(from, to, most, true).map((n) => (
    axisText(n, clip(figure(nameOfTurn(n)), 12), x, wide)));
}

/** What a pointer does over a chart: a click opens a turn, dragging zooms to a range. */
function pointing({ store, item: { column }, run, from, to, wide }) {
  const { ui } = store;
  const turnAt = ({ currentTarget, clientX }) => {
    const px = clientX - currentTarget.getBoundingClientRect().left - LEFT;
    const n = from + (px / (wide - LEFT - RIGHT)) * (to - from);
    return Math.round(Math.min(Math.max(n, from), to));
  };
  return {
    onpointerdown: (event) => { ui.press = { x: event.clientX, n: turnAt(event) }; },
    onpointermove: (event) => {
      const n = turnAt(event), pressed = ui.press && event.buttons === 1;
      if (pressed && Math.abs(event.clientX - ui.press.x) > DRAG_PX) ui.drag = [ui.press.n, n];
      if (ui.over?.n !== n || ui.over.column !== column) store.show({ over: { n, column } });
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

function Tip({ reading, item, run, lines, n, x, wide }) {
  const turn = reading.turn(run, n);
  const many = lines.length > MANY_LINES;
  const values = [run, ...lines.filter((line) => line !== run)]
    .map((line) => [line, reading.valueAt(line, item.column, n)])
    .filter(([, value]) => value != null);
  const numbers = values.map(([, value]) => value);
  const ends = [Math.min(...numbers), Math.max(...numbers)].map(figure);
  const style = x(n) > wide / 2 ? `right: ${wide - x(n) + 12}px` : `left: ${x(n) + 12}px`;
  return h("div", { class: "tip", style },
    h("b", null, turnName(reading, run, n)),
    values.slice(0, many ? 1 : TIP_LINES).map(([it, value]) => h("div", { key: it.id },
      h(Swatch, { run: it }), h("span", null, runLabel(reading, it)), h("b", null, figure(value)))),
    many && h("div", null, h("span", null, `${values.length} runs`),
      h("b", null, ends.join(" to "))),
    turn?.done?.map((words) => h("p", null, clip(words, 120))),
    turn && playersOf(turn).slice(0, TIP_LINES).map(([made]) => (
      h("div", { key: made.player, class: "made" }, h("span", null, nameOf(made)),
        h("small", null, clip(answerIn(reading, made), 60))))));
}
