// Small charts of one axis of turns, drawn by hand as SVG: hover, zoom by dragging, click for a turn.

import { h } from "./dom.js";
import { clip, figure, oneLine, visible } from "./text.js";

const HEIGHT = 124, TOP = 8, BOTTOM = 22, LEFT = 38, RIGHT = 10;
const NARROWEST = 300, GAP = 28; // of a chart, between charts
const FEW_CHARTS = 6, MOST_CHARTS = 60, MOST_LINES = 40, MANY_LINES = 6;
const DRAG_PX = 6, DOUBLE_CLICK_MS = 220;

/** How a run is drawn: one of six colours, then the same ones dashed. */
export const look = (run) => `k${run.look % 6} dash${Math.floor(run.look / 6) % 4}`;

export function Swatch({ run }) {
  return h("svg", { class: "swatch", viewBox: "0 0 18 8", "aria-hidden": "true" },
    h("path", { class: `curve main ${look(run)}`, d: "M1 4H17" }));
}

/** "Turn 4 · 1980Q3". */
export function turnName(reading, run, n) {
  const turn = reading.turn(run, n), period = turn && reading.value(turn, "period");
  return `${n === 0 ? "Start" : `Turn ${n}`}${period == null ? "" : ` · ${figure(period)}`}`;
}

/** Follow an element's width in `store.ui`. */
export function followWidth(store, name) {
  let watch;
  return {
    ref: (el) => {
      watch = new ResizeObserver(([entry]) => {
        const width = Math.round(entry.contentRect.width);
        if (width && width !== store.ui[name]) store.show({ [name]: width });
      });
      watch.observe(el);
    },
    gone: () => watch?.disconnect(),
  };
}

// --- scales ------------------------------------------------------------------------------------

/** Round places for an axis, at most about `most` of them. */
export function ticks(from, to, most, whole = false) {
  const rough = Math.max((to - from) / most || 1, whole ? 1 : 0);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((it) => it * power).find((it) => it >= rough * 0.999);
  const places = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to + step * 1e-9; at += 1) {
    places.push(Number((at * step).toPrecision(12)));
  }
  return places;
}

const short = (value) => (Math.abs(value) >= 1e6 ? value.toPrecision(2) : `${value}`).replace("-", "−");

function path(points, x, y) {
  let text = "", pen = "M";
  for (const [n, value] of points) {
    if (value == null) pen = "M";
    else {
      text += `${pen}${x(n).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
    }
  }
  return text;
}

function rangeOf(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (low > high) return [0, 1];
  const pad = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
  return [low - pad, high + pad];
}

// --- the charts --------------------------------------------------------------------------------

/** Charts of a run and its relatives, or of given runs, the last of them drawn strong. */
export function Charts({ store, runs: beside, run = beside.at(-1), turn = null, columns }) {
  const { reading, ui } = store, width = ui.chartWidth ?? 0;
  const measure = store.keep("chart width", [], () => followWidth(store, "chartWidth"));
  const all = (columns ?? reading.charted(run)).slice(0, MOST_CHARTS);
  const shown = ui.allCharts ? all : all.slice(0, FEW_CHARTS);
  const across = Math.max(1, Math.min(3, shown.length, Math.floor((width + GAP) / (NARROWEST + GAP))));
  const view = {
    store, run, turn, beside, across,
    lines: beside ?? reading.relatives(run, MOST_LINES),
    wide: Math.floor((width - GAP * (across - 1)) / across),
    ...spanOf(store, run, beside),
  };
  return h("section", { class: "charts", "aria-label": "Charts", ...measure },
    h("div", { class: "panels", style: `--across: ${across}` },
      width > 0 && shown.map((item) => h(Panel, { key: item.column, item, ...view }))),
    h("div", { class: "row end" },
      ui.zoom && h("button", { class: "small", onclick: () => store.show({ zoom: null }) },
        "Show all turns"),
      all.length > FEW_CHARTS && h("button", {
        class: "plain", onclick: () => store.show({ allCharts: !ui.allCharts }),
      }, ui.allCharts ? `Show ${FEW_CHARTS} charts` : `Show all ${all.length} charts`)));
}

function spanOf({ reading, ui }, run, beside) {
  const runs = beside ?? [run];
  const first = Math.min(...runs.map((it) => reading.first(it)));
  const last = Math.max(first + 1, ...runs.map((it) => reading.last(it)));
  const [from, to] = ui.zoom ?? [first, last];
  return from < to && from < last ? { from: Math.max(from, first), to: Math.min(to, last) }
    : { from: first, to: last };
}

function Panel({ store, item, run, turn, lines, wide, from, to, beside }) {
  const { reading, ui } = store, over = ui.over;
  const x = (n) => LEFT + ((n - from) / (to - from)) * (wide - LEFT - RIGHT);
  const still = store.keep(`chart ${item.column}`,
    [reading.size, run, lines.map((it) => it.id).join(), wide, from, to],
    () => drawPanel({ reading, item, run, lines, wide, from, to, x, beside }));
  const shown = over && over.n >= from && over.n <= to ? over.n : Math.min(turn ?? to, to);
  const value = valueAt(reading, run, item.column, shown);
  const name = visible(item.label);
  return h("figure", { class: "panel" },
    h("figcaption", null, h("b", { dir: "auto", title: name }, name),
      h("span", { class: "unit" }, visible(item.unit ?? "")),
      h("span", { class: "now" }, others(run, lines).map((it) => h("i", { key: it.id, class: look(it) },
        figure(valueAt(reading, it, item.column, shown)))),
      h("strong", { class: look(run) }, figure(value)))),
    h("svg", { width: wide, height: HEIGHT, role: "img", "aria-label": still.label,
      ...pointing({ store, item, from, to, wide }) },
    still.drawn,
    turn != null && turn >= from && turn <= to && h("line", { key: "here", class: "here", x1: x(turn), x2: x(turn), y1: 2, y2: HEIGHT - BOTTOM }),
    over && h("line", { key: "over", class: "over", x1: x(shown), x2: x(shown), y1: 2, y2: HEIGHT - BOTTOM }),
    ui.drag && h("rect", { key: "drag", class: "drag", y: 2, height: HEIGHT - BOTTOM - 2,
      x: x(Math.min(...ui.drag)), width: Math.abs(x(ui.drag[1]) - x(ui.drag[0])) }),
    typeof value === "number" && shown >= from
      && h("circle", { key: "dot", class: `dot ${look(run)}`, cx: x(shown), cy: still.y(value), r: 4 })),
    over?.column === item.column && !ui.drag
      && h(Tip, { store, item, run, lines, n: shown, left: x(shown), wide }));
}

const others = (run, lines) => lines.filter((it) => it !== run).slice(0, lines.length > 4 ? 0 : 3);

function valueAt(reading, run, column, n) {
  const turn = reading.turn(run, n);
  return turn ? reading.value(turn, column) : null;
}

/** What of a chart does not change while one points at it. */
function drawPanel({ reading, item, run, lines, wide, from, to, x, beside }) {
  const inside = ([n]) => n >= from && n <= to;
  const curves = lines.flatMap((it) => curvesOf({ reading, it, run, item, lines, beside }))
    .map((it) => ({ ...it, points: it.points.filter(inside) }));
  const values = curves.flatMap((it) => it.points.map(([, value]) => value));
  const told = run.prediction?.[item.column];
  const known = [...values, told].filter((value) => typeof value === "number");
  const [low, high] = rangeOf(known);
  const y = (value) => TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const level = (kind, value) => h("line", { class: kind, x1: LEFT, x2: wide - RIGHT, y1: y(value), y2: y(value) });
  const near = (value) => typeof value === "number" && value > low && value < high;
  const forks = [...new Set(lines.map((it) => it.fork))].filter((n) => n != null && n >= from && n <= to);
  const own = reading.points(run, item.column).filter(([n, value]) => inside([n]) && value != null);
  return {
    y,
    label: `${visible(item.label)}: ${own.length ? `from ${figure(own[0][1])} in turn ${own[0][0]} to `
      + `${figure(own.at(-1)[1])} in turn ${own.at(-1)[0]}` : "no values"}`,
    drawn: h("g", null,
      ticks(low, high, 3, known.every(Number.isInteger)).map((value) => h("g", { key: value },
        level(value === 0 ? "grid zero" : "grid", value),
        h("text", { x: LEFT - 7, y: y(value) + 3.5, "text-anchor": "end" }, short(value)))),
      axis({ reading, run, wide, from, to, x }),
      [item.low, item.high].filter(near).map((value) => level("bound", value)),
      forks.map((n) => h("line", { class: "fork", x1: x(n), x2: x(n), y1: TOP - 6, y2: HEIGHT - BOTTOM })),
      curves.map((it) => h("path", { class: it.kind, d: path(it.points, x, y) })),
      typeof told === "number" && [level("told", told), h("text", { class: "told", x: wide - RIGHT,
        y: y(told) - 4, "text-anchor": "end" }, `predicted ${figure(told)}`)],
      [...reading.turns(run)].filter(([n, it]) => inside([n]) && it.done?.length).map(([n]) => (
        h("path", { class: "outside", d: `M${x(n)} ${HEIGHT - BOTTOM - 7}l4 7h-8z` })))),
  };
}

/** The curves of one run: the one that is shown is strong, in its ancestors' colours before it. */
function curvesOf({ reading, it, run, item, lines, beside }) {
  if (!it.place.has(item.column)) return [];
  const points = reading.points(it, item.column);
  if (it !== run) {
    const branches = !beside && it.fork != null && lines.some((other) => other.id === it.parent);
    const kind = lines.length > MANY_LINES ? "curve dim" : `curve ${look(it)}`;
    return [{ kind, points: branches ? points.filter(([n]) => n >= it.fork) : points }];
  }
  let end = Infinity;
  const parts = [...reading.lineOf(run)].map(([id, last], at, line) => {
    const start = line[at + 1]?.[1] ?? -Infinity;
    [end] = [last];
    return { kind: `curve main ${look(reading.runs.get(id))}`,
      points: points.filter(([n]) => n >= start && n <= end) };
  });
  return parts;
}

function axis({ reading, run, wide, from, to, x }) {
  const named = run.place.has("period");
  const most = Math.max(2, Math.floor((wide - LEFT) / (named ? 76 : 56)));
  return ticks(from, to, most, true).map((n) => {
    const period = named ? valueAt(reading, run, "period", n) : n;
    const anchor = x(n) > wide - 34 ? "end" : x(n) < LEFT + 20 ? "start" : "middle";
    return h("text", { key: `x${n}`, x: x(n), y: HEIGHT - 6, "text-anchor": anchor }, figure(period ?? n));
  });
}

// --- pointing ----------------------------------------------------------------------------------

/** What a pointer does over a chart. */
function pointing({ store, item, from, to, wide }) {
  const { ui } = store;
  const turnAt = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const part = ((event.clientX - box.left) * (wide / box.width) - LEFT) / (wide - LEFT - RIGHT);
    return Math.round(Math.min(Math.max(from + part * (to - from), from), to));
  };
  return {
    onpointermove: (event) => {
      const n = turnAt(event), pressed = ui.press && event.buttons === 1;
      if (pressed && Math.abs(event.clientX - ui.press.x) > DRAG_PX) ui.drag = [ui.press.n, n];
      if (pressed || ui.over?.n !== n || ui.over.column !== item.column) {
        store.show({ over: { n, column: item.column } });
      }
    },
    onpointerleave: () => store.show({ over: null, drag: null, press: null }),
    onpointerdown: (event) => { ui.press = { x: event.clientX, n: turnAt(event) }; },
    onpointerup: (event) => {
      const { drag, press } = ui, n = turnAt(event);
      ui.press = ui.drag = null;
      if (drag && drag[0] !== drag[1]) store.show({ zoom: [Math.min(...drag), Math.max(...drag)] });
      else if (press) {
        clearTimeout(ui.opening);
        ui.opening = setTimeout(() => openTurn(store, n), ui.zoom ? DOUBLE_CLICK_MS : 0);
      }
    },
    ondblclick: () => {
      clearTimeout(ui.opening);
      store.show({ zoom: null });
    },
  };
}

export const openTurn = (store, n) => store.go(
  store.panels.includes("turn") ? { view: "turn", turn: n } : { turn: n });

function Tip({ store, item, run, lines, n, left, wide }) {
  const { reading } = store, turn = reading.turn(run, n);
  const values = [run, ...lines.filter((it) => it !== run)].slice(0, MANY_LINES)
    .map((it) => [it, valueAt(reading, it, item.column, n)]).filter(([, value]) => value != null);
  const side = left > wide / 2 ? `right: ${wide - left + 12}px` : `left: ${left + 12}px`;
  return h("div", { class: "tip", style: side },
    h("b", null, turnName(reading, run, n)),
    values.map(([it, value]) => h("div", { key: it.id }, h(Swatch, { run: it }),
      h("span", { dir: "auto" }, clip(runLabel(reading, it), 28)), h("b", null, figure(value)))),
    turn?.done?.map((words) => h("p", { dir: "auto" }, clip(oneLine(words), 120))),
    (turn?.decisions ?? []).slice(0, 5).map((made) => h("div", { class: "soft" },
      h("span", { dir: "auto" }, clip(oneLine(made.player || made.component), 24)),
      h("span", { dir: "auto" }, clip(answerIn(made), 30)))));
}

/** A decision's answer on one line. */
export function answerIn(made) {
  const answer = Object.entries(made.answer ?? {});
  if (answer.length === 1) return oneLine(figure(answer[0][1]));
  return answer.map(([name, value]) => `${name.replaceAll("_", " ")} ${oneLine(figure(value))}`).join(", ");
}

/** What a run is called in a list: what it changed, or its name. */
export function runLabel(reading, run) {
  if (run.parent == null || !reading.runs.has(run.parent)) return oneLine(run.name);
  return oneLine(run.changes.join("; ")) || `${run.verb} of ${run.parent}`;
}
