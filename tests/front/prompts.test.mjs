import assert from "node:assert/strict";
import { test } from "node:test";

import { ALL, makeWindow } from "./view_kit.mjs";
import "../../llmsim_lab/run/front/prompts.js";

const put = (parts) => parts.map(([key, value]) => ({ part: { kind: "prompts", key, value } }));
const FILLED = { messages: [["user", 2]] };
const variants = (about = {}) => [
  { lines: ["You are {{ name }}.", "Be kind.", "You are Ann."], texts: [[0], [1], [2]] },
  ...put([["about", { name: "wish", slots: [], samples: 5, turns: [0, 1], fault: "", ...about }],
    [0, { name: "as it was", text: 0, fault: "" }], [1, { name: "kind", text: 1, fault: "" }],
    ["filled 1", FILLED]])];
const open = (about, live) => makeWindow(variants(about), { panels: ["prompts", ...ALL], live });

test("another turn to preview, and how many samples are taken, go with what is sent", () => {
  const { find, sent, button, text } = open();
  assert.match(text(), /slots none/);
  const turn = find((it) => it.attributes["aria-label"] === "Preview after");
  assert.deepEqual(turn.childNodes.map((it) => it.textContent), ["turn 0", "turn 1"]);
  turn.value = "1";
  turn.fire("change");
  assert.deepEqual(sent.splice(0).map((it) => [it.do, it.place, it.turn]),
    [["write", 0, 1], ["write", 1, 1]]);
  const samples = find((it) => it.attributes.type === "number");
  for (const [typed, taken] of [["7.6", 8], ["0", 1], ["x", 1]]) {
    samples.value = typed;
    samples.fire("change");
    button("Run").fire("click");
    assert.deepEqual(sent.splice(0).at(-1), { do: "run", samples: taken });
  }
});

test("a variant is added where nothing is played, and one turn leaves nothing to choose", () => {
  const { button, sent, find, texts } = open({ turns: [] });
  button("Add a variant").fire("click");
  assert.deepEqual(sent, [{ do: "add" }]);
  assert.equal(find((it) => it.attributes["aria-label"] === "Preview after"), undefined);
  assert.match(texts("marked")[0], /^You are \{\{ name \}\}\.\nBe kind\.\n$/);
  assert.equal(texts("mono").length, 3);
  const { button: other, sent: none } = open({}, { running: true });
  other("Add a variant").fire("click");
  assert.deepEqual(none, []);
});
