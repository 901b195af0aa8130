import assert from "node:assert/strict";
import { test } from "node:test";

import { makeWindow, run, turn } from "./view_kit.mjs";

const RATE = { column: "rate", label: "Rate", unit: "%", low: 0, high: 7 };
const RATES = [2, 4, 8, 6, 3];
const rates = (more, values = RATES) => [
  run(1, { columns: ["rate"], series: [RATE], ...more }),
  ...values.map((value, n) => turn(1, n, [value], n === 2 && { done: ["a storm"] })),
];
const isOf = (name) => (node) => node.attributes.class?.split(" ").includes(name);
const numbers = (node, ...names) => names.map((name) => Number(node.attributes[name]));
const pointsOf = (path) => [...path.attributes.d.matchAll(/[ML](\S+) ([\d.]+)/g)]
  .map(([, x, y]) => [Number(x), Number(y)]);
const near = (one, other) => assert.ok(Math.abs(one - other) < 0.2, `${one} is not ${other}`);

/** The value at a height of a chart, from two points of its curve. */
function scaleFrom([[, low], , [, high]]) {
  return (y) => RATES[0] + ((y - low) / (high - low)) * (RATES[2] - RATES[0]);
}

test("curve, grid, bound, prediction and turns of a chart stand at the same scale", () => {
  const { find, nodes } = makeWindow(rates({ prediction: { rate: 5 } }));
  const points = pointsOf(find(isOf("curve"))), valueAt = scaleFrom(points);
  const level = (node) => valueAt(numbers(node, "y1")[0]);
  RATES.forEach((rate, n) => near(valueAt(points[n][1]), rate));
  const labelled = nodes((it) => it.localName === "g" && it.find("line") && it.find("text")
    && it.childNodes.length === 2);
  assert.deepEqual(labelled.map((it) => it.textContent), ["2", "4", "6", "8"]);
  for (const it of labelled) near(level(it.find("line")), Number(it.textContent));
  near(valueAt(8), 8 + 0.08 * 6); // some room above the highest value
  near(valueAt(198), 2 - 0.08 * 6); // a chart that stands alone is taller
  const bounds = nodes(isOf("bound")).map((it) => Math.round(level(it)));
  assert.deepEqual(bounds, [7]); // 0 is not in sight
  near(level(nodes(isOf("told"))[0]), 5);
  const turns = nodes((it) => it.localName === "text" && numbers(it, "y")[0] === 214);
  assert.deepEqual(turns.map((it) => it.textContent), ["0", "1", "2", "3", "4"]);
  turns.forEach((it, n) => near(numbers(it, "x")[0], points[n][0]));
  assert.match(find(isOf("outside")).attributes.d, new RegExp(`^M${points[2][0] - 4} `));
});

test("values that are all the same have room around them", () => {
  const { find } = makeWindow(rates({}, [5, 5, 5]));
  for (const [, y] of pointsOf(find(isOf("curve")))) near(y, 103); // the middle
});

test("a pointer over a chart shows a turn, a click opens it, dragging zooms to a range", () => {
  const { store, find, texts, button } = makeWindow(rates());
  const x = pointsOf(find(isOf("curve"))).map(([at]) => at);
  const svg = () => find((it) => it.attributes.role === "img");
  const point = (type, n, more) => svg().fire(type, { clientX: x[n] + 3, buttons: 0, ...more });
  point("pointermove", 2);
  assert.match(texts("tip")[0], /^Turn 2.*8a storm/);
  near(numbers(find(isOf("over")), "x1")[0], x[2]);
  assert.match(texts("now")[0], /^8/);
  point("pointerdown", 3);
  point("pointerup", 3);
  assert.deepEqual([store.at.turn, store.at.view], [3, "turn"]);
  store.go({ view: "overview" });
  point("pointerleave", 3);
  point("pointerdown", 4);
  point("pointerup", 4);
  assert.equal(store.at.turn, null); // the latest turn is followed
  store.go({ view: "overview" });
  point("pointerdown", 3);
  point("pointermove", 1, { buttons: 1 });
  assert.ok(find(isOf("drag")));
  point("pointerup", 1);
  assert.deepEqual(store.ui.zoom, [1, 3]);
  assert.equal(pointsOf(find(isOf("curve"))).length, 3);
  button("Show all turns").fire("click");
  assert.equal(pointsOf(find(isOf("curve"))).length, 5);
});

test("as many charts as are shown at once need no button for more", () => {
  const columns = Array.from({ length: 6 }, (_, n) => `v${n}`);
  const { texts, text } = makeWindow([run(1, { columns }),
    ...[0, 1].map((n) => turn(1, n, columns.map(() => n)))]);
  assert.equal(texts("panel").length, 6);
  assert.doesNotMatch(text(), /more chart/);
});

test("the axis of turns has the periods' names where a world has some", () => {
  const { nodes } = makeWindow([run(1, { columns: ["rate", "period"], series: [RATE] }),
    ...[2, 3, 4].map((rate, n) => turn(1, n, [rate, `2001Q${n + 1}`]))]);
  const axis = nodes((it) => it.localName === "text" && it.attributes.y === "214");
  assert.deepEqual(axis.map((it) => it.textContent), ["2001Q1", "2001Q2", "2001Q3"]);
});

test("what people did is a line, or in one turn a hollow dot, at the chart's scale", () => {
  const people = [
    { column: "rate", mean: 4, count: 45 }, { column: "rate", mean: 8, n: 1, count: 0 }];
  const { nodes, find, text } = makeWindow(rates({ people }));
  const points = pointsOf(find(isOf("curve")));
  near(numbers(nodes(isOf("told"))[0], "y1")[0], points[1][1]);
  near(numbers(find(isOf("people")), "cy")[0], points[2][1]);
  near(numbers(find(isOf("people")), "cx")[0], points[1][0]);
  assert.match(text(), /people 4 \(n = 45\)/);
});
