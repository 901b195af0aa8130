import assert from "node:assert/strict";
import { test } from "node:test";

import { ALL, makeWindow, run, turn } from "./view_kit.mjs";

const put = (kind, parts) => Object.entries(parts).map(([key, value]) => (
  { part: { kind, key: /^\d+$/.test(key) ? Number(key) : key, value } }));
const DESIGN = { name: "Coins", arms: ["poor", "rich"], units: [7, 8], of: "seed",
  outcomes: ["given", "left"] };
const STUDY = put("study", {
  design: DESIGN, 0: ["done", 4, "", null], 1: ["failed", 2, "No <b>.", null],
  2: ["running", 1, "", null], 3: ["left", 0, "", null],
  effects: { label: "3 of 4 runs so far", rows: [
    ["given", "rich − poor: +0.50 coins, p = .020", "new runs", "t", "1 left out"],
    ["left", "rich − poor: −1.00, p = .500", "new runs", "t", ""]] },
  "of given": { units: [[1, 2], [3, null]], turns: [[1, 1, 2], [2, 3, 4]],
    bands: [["rich", [[1, 1, 0, 2], [2, 1, null, null]]]],
    curves: [["taste", "a − b: holds in 50%", ["order"],
      [[0.5, 0.1, 0.9, "up"], [1, null, null, "down"]]]] } });
const studied = (more = [], given = {}) => (
  makeWindow([...STUDY, ...more], { panels: ["study", ...ALL], ...given }));

test("effects come first, a sentence each, and another outcome can be chosen", () => {
  const { text, texts, find } = studied();
  assert.deepEqual(texts("effects"), ["rich − poor: +0.50 coins, p = .0201 left out"]);
  assert.ok(text().indexOf("+0.50") < text().indexOf("by turn"));
  const choice = find((it) => it.localName === "select");
  choice.value = "left";
  choice.fire("change");
  assert.match(texts("effects")[0], /−1\.00/);
});

test("charts are of units, turns, bands and specifications, and a point opens its run", () => {
  const { text, find, texts, sent, store } = studied([run(5), turn(5, 0, [])]);
  assert.equal(texts("plot").length, 4);
  assert.match(text(), /holds in 50%/);
  assert.ok(find((it) => /rich: mean 2 of 1 seed/.test(it.attributes["aria-label"])));
  find((it) => it.localName === "circle").fire("click");
  assert.deepEqual(sent, [{ do: "open", place: 0 }]);
  store.reading.take(store.reading.size, put("study", { 0: ["done", 4, "", 5] }));
  find((it) => it.localName === "circle").fire("click");
  assert.equal(sent.length, 1);
  assert.deepEqual([store.at.view, store.at.run], ["overview", 5]);
});

test("runs are squares by arm, and what failed says why", () => {
  const { text, texts, find, sent } = studied();
  assert.match(text(), /What failed.*poor8No <b>\.open/);
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
  assert.match(text(), /The same as it was\./);
  await new Promise((done) => setTimeout(done, 400));
  assert.deepEqual(sent.splice(0), [
    { do: "write", place: 1, text: "You are {{ name }}.", turn: 0 }]);
  button("Run").fire("click");
  assert.deepEqual(sent.map((it) => it.do), ["write", "run"]);
});

test("without a model it says how to attach one; results are a sentence, details folded", () => {
  const without = put("prompts", { about: { ...ABOUT, fault: "no model to ask" } });
  const { text, texts, button, sent } = makeWindow([...PROMPTS, ...without, ...STUDY],
    { panels: ["prompts", "study", ...ALL] });
  assert.match(text(), /No model to ask/);
  button("Run").fire("click");
  assert.deepEqual(sent, []);
  assert.equal(texts("effects").length, 1);
  assert.equal(texts("plot").length, 0);
});
