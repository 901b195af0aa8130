// A window without a browser: a store with a reading, drawn into a fake place.

import { makePlace } from "./dom_kit.mjs";
import { h, patch } from "../../llmsim_lab/run/front/dom.js";
import { makeStore } from "../../llmsim_lab/run/front/host.js";
import { Reading } from "../../llmsim_lab/run/front/reading.js";
import { App, onKey } from "../../llmsim_lab/run/front/view.js";

export const ALL = ["head", "transport", "overview", "turn", "calls", "compare"];

globalThis.ResizeObserver = class {
  observe() {}
  unobserve() {}
};
globalThis.requestAnimationFrame = () => 1;

/** A run's record, of which the tests name only what they are about. */
export function run(id, more) {
  const { series = [], columns = [] } = more ?? {};
  const named = series.map((item) => item.column);
  const other = columns.filter((name) => !named.includes(name) && name !== "period");
  const charts = [...series, ...other.map((column) => ({ column, label: column, unit: "" }))];
  return { run: {
    id, name: "Fishing", verb: more?.parent ? "fork" : "run", parent: null, fork: null,
    changes: [], notes: [], columns, series, charts, dicts: [], prediction: {}, ...more } };
}

export const turn = (id, n, row, more) => ({ turn: {
  run: id, n, row, words: [], done: [], decisions: [], calls: [], ...more } });

/** What a window shows of records: `text()` and `button(words)` after the last `draw()`. */
export function makeWindow(records, { panels = ALL, at = {}, live = {}, ...news } = {}) {
  const reading = new Reading(), sent = [], place = makePlace();
  reading.take(0, records);
  const store = makeStore({ reading, title: "", live, ...news },
    { panels, at, commands: (message) => sent.push(message) });
  store.ui.width = 900;
  const draw = () => { patch(place, h(App, { store })); return place; };
  store.draw = draw;
  const all = (node) => [node, ...node.childNodes.flatMap(all)];
  const find = (is) => all(draw()).find((node) => node.localName && is(node));
  /** All elements that are so. */
  const nodes = (is) => all(draw()).filter((node) => node.localName && is(node));
  return {
    store, sent, reading, draw, find, nodes,
    text: () => draw().textContent,
    button: (words) => find((it) => it.localName === "button" && it.textContent === words),
    /** All that has a class, as texts. */
    texts: (name) => all(draw()).filter((it) => it.attributes?.class?.split(" ").includes(name))
      .map((it) => it.textContent),
    press: (key, target = { closest: () => null }, more = {}) => (
      onKey(store, { key, preventDefault() {}, ...more }, target)),
  };
}
