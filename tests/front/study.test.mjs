import assert from "node:assert/strict";
import { test } from "node:test";

import { ALL, makeWindow, run, turn } from "./view_kit.mjs";

const put = (kind, parts) => Object.entries(parts).map(([key, value]) => (
  { part: { kind, key: /^\d+$/.test(key) ? Number(key) : key, value } }));
/** The numbers of an effect, as Python sends them. */
const effect = (more) => ({ outcome: "given", contrast: "rich − poor", arm: "rich", look: 1,
  kind: "mean difference", value: null, low: null, high: null, level: 0.95, p: null,
  p_family: null, margin: null, verdict: "", n: 2, unit: "run", scale: "difference in given",
  sentence: "rich − poor", generalises_to: "new runs", method: "t", note: "", ...more });
const DESIGN = { name: "Coins", arms: ["poor", "rich"], units: [7, 8], of: "seed",
  outcomes: ["given", "left"] };
const STUDY = put("study", {
  design: DESIGN, 0: ["done", 4, "", null], 1: ["failed", 2, "No <b>.", null],
  2: ["running", 1, "", null], 3: ["left", 0, "", null],
  effects: { label: "3 of 4 runs so far", reference: "poor", family: { size: 2, outcomes: 2 },
    rows: [
      effect({ value: 0.5, low: 0.1, high: 0.9, p: 0.01, p_family: 0.02, note: "1 left out" }),
      effect({ outcome: "left", value: -1, p: 0.5 })] },
  "of given": { units: [[1, 2], [3, null]], turns: [[1, 1, 2], [2, 3, 4]],
    bands: [["rich", [[1, 1, 0, 2], [2, 1, null, null]]]],
    curves: [{ factor: "taste", finding: "a − b", same_sign: 1, holds: 0.5, choices: ["order"],
      chance: { p: 0.031, same_sign: 0.7, holds: 0.04 },
      rows: [[0.5, 0.1, 0.9, "up"], [1, null, null, "down"]] }] } });
const studied = (more = [], given = {}) => (
  makeWindow([...STUDY, ...more], { panels: ["study", ...ALL], ...given }));

test("effects come first, drawn and in numbers, and another outcome can be chosen", () => {
  const { text, texts, find } = studied();
  assert.match(texts("forest")[0], /arm − poor.*rich1\+0\.500\.10 to 0\.90\.0202/);
  assert.match(text(), /95 % interval.*one family of 2 comparisons in 2 outcomes.*1 left out/);
  assert.ok(text().indexOf("+0.50") < text().indexOf("by turn"));
  const choice = find((it) => it.localName === "select");
  choice.value = "left";
  choice.fire("change");
  assert.match(texts("forest")[0], /rich−1\.00no interval\.500/);
});

const studyOf = (...rows) => studied(put("study", {
  effects: { label: "", reference: "poor", family: { size: rows.length, outcomes: 1 }, rows } }));

test("effects are sorted by a click on a head, and as the design has them by the first", () => {
  const { find, button } = studyOf(
    effect({ arm: "b", value: 2, p: 0.3 }), effect({ arm: "a" }),
    effect({ arm: "c", value: -1, p: 0.04 }));
  const inOrder = () => find((it) => it.localName === "tbody").childNodes
    .map((row) => row.childNodes[0].textContent).join("");
  const sorts = () => find((it) => it.localName === "thead").childNodes[0].childNodes
    .map((head) => head.attributes["aria-sort"]);
  assert.equal(inOrder(), "bac");
  button("difference").fire("click");
  assert.equal(inOrder(), "cba"); // what is not known comes last
  assert.deepEqual(sorts(), ["none", undefined, "ascending", "none", undefined]);
  button("difference").fire("click");
  assert.equal(inOrder(), "bca");
  button("p").fire("click");
  assert.equal(inOrder(), "cba");
  button("arm − poor").fire("click");
  assert.equal(inOrder(), "bac");
});

test("an interval and the equivalence bounds are drawn to scale, zero included", () => {
  const { text, texts, find } = studyOf(
    effect({ value: 1, low: 0, high: 2, margin: 0.5, verdict: "undecided" }));
  const styles = find((it) => it.attributes.class === "interval k1").childNodes
    .map((it) => [it.attributes.class, it.style.cssText]);
  assert.deepEqual(styles, [["within", "left: 5.36%; width: 35.71%"], ["none", "left: 23.21%"],
    ["reach", "left: 23.21%; width: 71.43%"], ["point", "left: 58.93%"]]);
  assert.match(texts("forest")[0], /undecided/);
  assert.match(text(), /smaller than ±0\.5, the smallest effect of interest/);
});

test("a distance of texts has no sign, and a typical difference stands below its mean", () => {
  const typical = { kind: "typical difference", value: 0.2, low: 0.1, high: 0.3, p: 0.03 };
  const { texts } = studyOf(effect({ kind: "text distance", value: 0.31, scale: "distance" }),
    effect({ value: 4, low: -1, high: 9, p: 0.09, p_family: 0.2, n: 0, typical }));
  assert.match(texts("forest")[0], /rich0\.31no interval/);
  assert.equal(texts("forest").length, 2); // no axis has both
  assert.match(texts("beside")[0], /^typical difference\+0\.200\.10 to 0\.30$/);
});

test("charts are of units, turns, bands and specifications, and a point opens its run", () => {
  const { text, find, texts, sent, store } = studied([run(5), turn(5, 0, [])]);
  assert.equal(texts("plot").length, 4);
  assert.match(text(),
    /2 specifications · interval without 0 in 50 % \(4 % by chance\).*joint p \.031/);
  assert.ok(find((it) => /rich: mean 2 of 1 seed/.test(it.attributes["aria-label"])));
  find((it) => it.localName === "circle").fire("click");
  assert.deepEqual(sent, [{ do: "open", place: 0 }]);
  store.reading.take(store.reading.size, put("study", { 0: ["done", 4, "", 5] }));
  find((it) => it.localName === "circle").fire("click");
  assert.equal(sent.length, 1);
  assert.deepEqual([store.at.view, store.at.run], ["overview", 5]);
});

test("arms with long names have letters, in the effects, the charts and the runs", () => {
  const design = { ...DESIGN, letters: ["A", "B"] };
  const { text, texts } = studied(put("study", { design }));
  assert.match(texts("forest")[0], /arm − A: poor.*B rich/);
  assert.match(texts("legend")[0], /Apoor.*Brich/);
  assert.match(text(), /B − A by turn/);
  assert.match(texts("arms")[0], /Apoor.*Brich/);
});

test("units that are not paired are not joined, and n is of runs", () => {
  const joined = (given) => studied(put("study", { design: { ...DESIGN, ...given } }))
    .texts("dim").length;
  assert.deepEqual([joined({}), joined({ paired: false })], [1, 0]);
  const { text } = studied(put("study", { design: { ...DESIGN, paired: false } }));
  assert.match(text(), /dot: a run, bar: the mean/);
  assert.match(text(), /n: runs/);
});

test("a difference that is zero in every turn is a sentence, not an empty chart", () => {
  const alike = { units: [[1, 1]], turns: [[1, 1, 1], [2, 3, 3]],
    bands: [["rich", [[1, 0, 0, 0], [2, 0, null, null]]]], curves: [] };
  const { text, texts } = studied(put("study", { "of given": alike }));
  assert.match(text(), /rich − poor: exactly 0 in every turn\./);
  assert.equal(texts("plot").length, 2);
});

test("runs are squares by arm, and what failed says why", () => {
  const { text, texts, find, sent } = studied();
  assert.match(text(), /Failed runs.*poor8No <b>\.open/);
  assert.match(texts("arms")[0], /1 done · 1 failed.*1 running · 1 left/);
  const squares = ["poor, seed 7: done", "rich, seed 8: left"].map((label) => (
    find((it) => it.attributes.title === label)));
  for (const square of squares) square.fire("click");
  assert.deepEqual(sent, [{ do: "open", place: 0 }]); // there is nothing yet of a run that is left
  assert.deepEqual(squares.map((it) => it.attributes.tabindex), ["0", "-1"]);
});

test("Run and Stop are for a window, where they can be", () => {
  const { button, sent } = studied([], { live: { running: true, says: "1 of 4 runs done" } });
  for (const words of ["Run", "Stop"]) button(words).fire("click");
  assert.deepEqual(sent, [{ do: "halt" }]);
});

const ABOUT = { name: "wish", slots: ["name"], samples: 5, turns: [0, 1], fault: "" };
const PROMPTS = [{ lines: ["You are {{ name }}.", "You are kind, {{ name }}."], texts: [[0], [1]] },
  ...put("prompts", { about: ABOUT, 0: { name: "as it was", text: 0, fault: "" },
    1: { name: "kind", text: 1, fault: "no slot" } })];

test("variants are side by side with what differs, what is wrong and what is typed", async () => {
  const { texts, text, find, sent, button } = makeWindow(PROMPTS, { panels: ["prompts", ...ALL] });
  assert.deepEqual(texts("marked"), ["You are kind, {{ name }}.\n"]);
  assert.match(text(), /no slot/);
  const field = find((it) => it.attributes["aria-label"] === "Text of kind");
  field.value = "You are {{ name }}.";
  field.fire("input");
  assert.match(text(), /Same as recorded\./);
  await new Promise((done) => setTimeout(done, 400));
  assert.deepEqual(sent.splice(0), [
    { do: "write", place: 1, text: "You are {{ name }}.", turn: 0 }]);
  button("Run").fire("click");
  assert.deepEqual(sent.map((it) => it.do), ["write", "run"]);
});

test("without a model it says how to attach one; results are a forest plot, details folded", () => {
  const without = put("prompts", { about: { ...ABOUT, fault: "no model to ask" } });
  const { text, texts, button, sent } = makeWindow([...PROMPTS, ...without, ...STUDY],
    { panels: ["prompts", "study", ...ALL] });
  assert.match(text(), /No model to ask/);
  button("Run").fire("click");
  assert.deepEqual(sent, []);
  assert.equal(texts("forest").length, 1);
  assert.equal(texts("plot").length, 0);
});

const isOf = (name) => (node) => node.attributes?.class?.split(" ").includes(name);
const numbers = (node, ...names) => names.map((name) => Number(node.attributes[name]));
const pointsOf = (path) => [...path.attributes.d.matchAll(/[ML]([\d.]+) ([\d.]+)/g)]
  .map(([, x, y]) => [Number(x), Number(y)]);
const near = (one, other) => assert.ok(Math.abs(one - other) < 0.2, `${one} is not ${other}`);
const chartsOf = (made, design = DESIGN) => studied(put("study", {
  design, effects: null, "of given": { turns: [], bands: [], curves: [], ...made } }));

test("arrow keys go from square to square: in an arm's row, and to the arm above or below", () => {
  const { press } = studied();
  const focused = [], row = { children: { length: 2 } };
  const squares = ["a", "b", "c", "d"].map((name) => ({
    parentNode: row,
    focus: () => focused.push(name),
    closest: (kind) => (kind === ".cell" ? squares.find((it) => it.name === name)
      : kind === "table" ? { querySelectorAll: () => squares } : null),
    name,
  }));
  const keys = [["ArrowRight", 0], ["ArrowLeft", 1], ["ArrowDown", 0], ["ArrowUp", 3],
    ["ArrowLeft", 0], ["ArrowDown", 3], ["Home", 1]];
  for (const [key, at] of keys) press(key, squares[at]);
  assert.deepEqual(focused, ["b", "a", "c", "b"]); // and nowhere beyond the ends
});

test("dots, lines between pairs and the bars of means stand at the same scale", () => {
  const { nodes, find } = chartsOf({ units: [[1, 2], [3, 6]] });
  const dots = nodes(isOf("dot")).map((dot) => numbers(dot, "cx", "cy"));
  assert.equal(dots.length, 4);
  const [[x0, y1], [, y3], [x1, y2], [, y6]] = dots; // arm by arm
  for (const [value, y] of [[2, y2], [6, y6]]) near(y, y1 + ((value - 1) / 2) * (y3 - y1));
  assert.ok(y6 < y3 && y3 < y2 && y2 < y1);
  const joined = pointsOf(find(isOf("dim")));
  for (const [place, [x, y]] of [[x0, y1], [x1, y2], [x0, y3], [x1, y6]].entries()) {
    near(joined[place][0], x);
    near(joined[place][1], y);
  }
  const bars = nodes(isOf("mean")).map((bar) => bar.attributes.d.match(/[\d.]+/g).map(Number));
  for (const [arm, [from, y, to]] of bars.entries()) {
    near((from + to) / 2, [x0, x1][arm]);
    near((to - from) / (x1 - x0), 0.4);
    near(y, [(y1 + y3) / 2, (y2 + y6) / 2][arm]);
  }
});

test("a band is drawn around its line, with zero in sight", () => {
  const rows = [[1, 2, 1, 3], [2, 3, 2, 5]];
  const { find } = chartsOf({ units: [[1, 3]], bands: [["rich", rows]] });
  const beside = find(isOf("band")).parentNode.childNodes;
  const line = pointsOf(beside.find(isOf("main")));
  const around = pointsOf(beside.find(isOf("band")));
  const [[x1, at2], [x2, at3]] = line;
  const yOf = (value) => at2 + (value - 2) * (at3 - at2);
  const expected = [[x1, 1], [x2, 2], [x2, 5], [x1, 3]].map(([x, value]) => [x, yOf(value)]);
  for (const [place, [x, y]] of expected.entries()) {
    near(around[place][0], x);
    near(around[place][1], y);
  }
  assert.ok(beside.some((node) => node.textContent === "0"));
});

test("a specification's dot is hollow where its interval has zero in it, and ticks say how", () => {
  const curve = { factor: "taste", finding: "a − b", same_sign: 1, holds: 0.5, chance: null,
    choices: ["order", "words"], rows: [
      [-1, -2, -0.5, "up", "few"], [0.5, -1, 2, "down", "few"], [1, 0, 2, "up", "many"],
      [2, 1, 3, "down", "many"], [3, null, null, "up", "few"]] };
  const { nodes, text } = chartsOf({ units: [[1, 2]], curves: [curve] });
  const dots = nodes(isOf("dot")).slice(2);
  assert.deepEqual(dots.map(isOf("hollow")), [false, true, true, false, true]);
  const x = dots.map((dot) => numbers(dot, "cx")[0]);
  const lines = nodes((node) => node.localName === "g" && node.childNodes.some(isOf("tick")));
  const marked = lines.map((line) => [line.find("text").textContent,
    line.childNodes.filter(isOf("tick")).map((tick) => x.indexOf(numbers(tick, "cx")[0]))]);
  assert.deepEqual(marked, [["order: up", [0, 2, 4]], ["order: down", [1, 3]],
    ["words: few", [0, 1, 4]], ["words: many", [2, 3]]]);
  assert.deepEqual(lines.map((line) => line.find("path") != null), [true, false, true, false]);
  assert.match(text(), /interval without 0 in 50 % · same sign in 100 %/);
});

test("a curve that is zero everywhere is a sentence", () => {
  const curve = { factor: "taste", finding: "a − b", choices: ["order"],
    rows: [[0, 0, 0, "up"], [0, null, null, "down"]] };
  const { text } = chartsOf({ units: [[1, 2]], curves: [curve] });
  assert.match(text(), /a − b: exactly 0 in all 2 specifications\./);
});

test("sixty units are squares and joined dots; more are behind a button, and not joined", () => {
  const drawn = (count) => {
    const units = Array.from({ length: count }, (_, n) => n);
    const cell = ["left", 0, "", null];
    const cells = Object.fromEntries([...units, ...units].map((_, n) => [n, cell]));
    const window = studied(put("study", { ...cells, design: { ...DESIGN, units },
      "of given": { units: units.map((n) => [n, n]), turns: [], bands: [], curves: [] } }));
    return [window.nodes(isOf("cell")).length, window.nodes(isOf("dim")).length,
      /1 more seed/.test(window.text())];
  };
  assert.deepEqual(drawn(60), [120, 1, false]);
  assert.deepEqual(drawn(61), [120, 0, true]);
});

test("four bands and five failures are shown at once", () => {
  const arms = ["base", ..."abcdef"];
  const band = [[1, 1, 0, 2], [2, 1, 0, 2]];
  const bands = (count) => arms.slice(1, 1 + count).map((arm) => [arm, band]);
  const cells = (failed) => Object.fromEntries(arms.map((_, at) => (
    [at, at < failed ? ["failed", 1, "No.", null] : ["left", 0, "", null]])));
  const shown = (count, failed) => {
    const design = { ...DESIGN, arms, units: [1] };
    const { text, texts } = studied(put("study", { ...cells(failed), design,
      "of given": { units: [arms.map(() => 1)], turns: [], bands: bands(count), curves: [] } }));
    const shown = text();
    const isMore = (words) => shown.includes(`more ${words}`);
    return [texts("plot").length - 1, isMore("difference"), isMore("that failed")];
  };
  assert.deepEqual(shown(4, 5), [4, false, false]);
  assert.deepEqual(shown(5, 6), [4, true, true]);
});
