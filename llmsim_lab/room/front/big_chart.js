// A chart for the back row: thick lines, large figures, and each line's name at its end.

import { pathOf, ticks } from "../../run/front/chart.js";
import { h } from "../../run/front/dom.js";
import { clip, figure, nameInWords } from "../../run/front/text.js";
import { say } from "./words.js";

const NARROW = 520; // a chart below this many pixels has its names above it
const LONGEST = 26; // characters of a name

/** A piece of a line before its name: theory and people have one colour. */
const SAMPLE = h("svg", { class: "sample", width: 30, height: 8, "aria-hidden": "true" },
  h("path", { class: "curve", d: "M2 4H28" }));

/** What a line is called; the class and the theory in the words of the page. */
const nameOfLine = ({ kind, label }) => clip(
  kind === "class" || kind === "theory" ? say(kind) : label.replaceAll("_", " "), LONGEST);

/** The class and the arms in the colours of runs; what they are compared with in grey. */
function looks(lines) {
  let colours = 0;
  return lines.map(({ kind }) => {
    if (["theory", "beside", "people"].includes(kind)) return kind;
    colours += 1;
    return `k${(colours - 1) % 6}`;
  });
}

/** Places that lie at least `apart` from each other, as near to `wanted` as that allows. */
export function keepApart(wanted, apart, most) {
  const order = wanted.map((place, index) => [place, index]).sort(([a], [b]) => a - b);
  const places = [];
  let free = -Infinity;
  for (const [place, index] of order) {
    free = Math.max(place, free + apart);
    places[index] = free;
  }
  let limit = most;
  for (const [, index] of order.reverse()) { // what left at the bottom goes back up
    places[index] = Math.min(places[index], limit);
    limit = places[index] - apart;
  }
  return places;
}

/** From 0 where no value is negative, so that a small change looks small; else with some room. */
function range(values) {
  const low = Math.min(...values), high = Math.max(...values);
  if (low >= 0) return [0, high * 1.05 || 1];
  const room = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

/** A prediction holds for the turns to come as well. */
function toTheEnd(line, lastTurn) {
  const [turn, value] = line.values.at(-1);
  return turn < lastTurn ? { ...line, values: [...line.values, [lastTurn, value]] } : line;
}

/** `lines` are `{label, kind, values: [[turn, value], ...]}`; `wide` and `high` are pixels. */
export function BigChart({ name, lines: given, wide, high, planned }) {
  const turns = given.flatMap(({ values }) => values.map(([at]) => at));
  const firstTurn = Math.min(...turns), lastTurn = Math.max(planned, firstTurn + 1);
  const lines = given.map((it) => (it.kind === "theory" ? toTheEnd(it, lastTurn) : it));
  const text = Math.max(15, Math.min(28, wide / 30)), narrow = wide < NARROW;
  const kinds = looks(lines), names = lines.map(nameOfLine);
  const longest = Math.max(...names.map((it) => it.length));
  const left = 3.2 * text, bottom = 2.6 * text, top = 0.6 * text;
  const right = narrow ? 0.6 * text : (0.58 * longest + 1.2) * text;
  const [lowest, highest] = range(lines.flatMap(({ values }) => values.map(([, it]) => it)));
  const x = (turn) => left + ((turn - firstTurn) / (lastTurn - firstTurn)) * (wide - left - right);
  const y = (value) => (
    top + ((highest - value) / (highest - lowest)) * (high - top - bottom));
  const level = (value) => h("g", { key: value },
    h("line", { class: value === 0 ? "grid zero" : "grid",
      x1: left, x2: wide - right, y1: y(value), y2: y(value) }),
    h("text", { x: left - 0.6 * text, y: y(value) + 0.35 * text, "text-anchor": "end" },
      figure(value)));
  const turn = (at) => h("text",
    { key: at, x: x(at), y: high - 1.3 * text, "text-anchor": "middle" }, `${at}`);
  const ends = keepApart(lines.map(({ values }) => y(values.at(-1)[1])), 1.3 * text, high - bottom);
  const line = ({ values }, at) => h("g", { key: at, class: kinds[at] },
    h("path", { class: "curve", d: pathOf(values, x, y) }),
    values.length === 1 && h("circle", { cx: x(values[0][0]), cy: y(values[0][1]), r: 6 }),
    !narrow && h("text", { class: "name", x: x(values.at(-1)[0]) + 0.5 * text,
      y: ends[at] + 0.35 * text }, names[at]));
  return h("figure", { class: "big" },
    h("figcaption", null, nameInWords(name),
      narrow && names.map((it, at) => h("span", { key: it, class: `name ${kinds[at]}` },
        SAMPLE, it))),
    h("svg", { width: wide, height: high, "font-size": text.toFixed(1), role: "img",
      "aria-label": chartInWords(name, lines, names) },
    ticks(lowest, highest, 5).map(level), ticks(firstTurn, lastTurn, 10, true).map(turn),
    h("text", { x: (left + wide - right) / 2, y: high - 0.1 * text, "text-anchor": "middle" },
      say("turns")),
    lines.map(line)));
}

/** "given: the class 9.50 in turn 10; theory 0". */
function chartInWords(name, lines, names) {
  const ends = lines.map(({ values }, at) => {
    const [turn, value] = values.at(-1);
    return `${names[at]} ${figure(value)}, ${say("turns")} ${turn}`;
  });
  return `${name}: ${ends.join("; ")}`;
}
