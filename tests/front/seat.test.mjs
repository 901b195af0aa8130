import assert from "node:assert/strict";
import { test } from "node:test";

import { makeWindow, run, turn } from "./view_kit.mjs";
import "../../llmsim_lab/run/front/chat.js";
import "../../llmsim_lab/run/front/seat.js";
import { onKey } from "../../llmsim_lab/run/front/view.js";

const part = (kind, key, value) => ({ part: { kind, key, value } });
const item = (column, label) => ({ column, label, unit: "%" });
const ECONOMY = [
  run(1, { columns: ["rate"], planned: 4, series: [item("rate", "Policy rate")] }),
  turn(1, 0, [5]), turn(1, 1, [5.5]),
];
const says = [4, 4.5, 5, 5.5, 6, 6.5].map((it) => `Set ${it}`);
const FIELDS = [
  { place: ["rate"], label: "Rate", value: 5.5,
    schema: { enum: [4, 4.5, 5, 5.5, 6, 6.5], says } },
  { place: ["reasoning"], label: "Reasoning", value: null, schema: { optional: true } },
];
const ask = (seat, more) => ({ seat, id: `2 ${seat}`, draft: `2 ${seat}`, who: seat, turn: 2,
  fields: FIELDS, text: "The rate?", fault: "", ...more });
const seated = (more, options) => makeWindow([...ECONOMY, part("seat", "now", {
  people: ["Ann"], asks: [ask("Ann")], waiting: [],
  columns: ["rate"], advice: {}, over: false, score: null, ...more })],
{ panels: ["seat"], ...options });

test("a quarter is a slider that says what its button does, and one click", () => {
  const { find, button, sent, text, texts, store } = seated();
  assert.match(text(), /Turn 1 of 4\./);
  assert.deepEqual(texts("quarter"), ["Policy rate5.50 % +0.50"]);
  const slider = find((it) => it.attributes?.["aria-label"] === "Rate");
  assert.equal(slider.attributes["aria-valuetext"], "Set 5.5");
  slider.value = "5";
  slider.fire("input");
  assert.ok(button("Set 6.5"));
  find((it) => it.localName === "form").fire("submit");
  assert.deepEqual(JSON.parse(JSON.stringify(sent)),
    [{ do: "answer", id: "2 Ann", values: { rate: "6.5" } }]);
  button("Ask the rule").fire("click");
  button("Score so far").fire("click");
  assert.deepEqual(sent.slice(1), [{ do: "advise", who: "Ann" }, { do: "score" }]);
  store.reading.partsOf("seat").get("now").advice = { Ann: "The rule says 7." };
  assert.deepEqual(texts("advice"), ["The rule says 7."]);
});

test("an answer that a busy kernel has not read yet is said to be on its way", () => {
  const { text, store } = seated({ waiting: ["Ann"] });
  store.slow = true;
  store.changed();
  assert.match(text(), /Sent; waiting for the kernel, which is busy\./);
  store.gone = true;
  store.changed();
  assert.match(text(), /The kernel is gone: run the cell again\./);
});

test("a draft stays when the answer comes back with a complaint, not in the next turn", () => {
  const { find, store, text } = seated(), now = store.reading.partsOf("seat").get("now");
  const value = () => find((it) => it.attributes?.["aria-label"] === "Rate").value;
  const slider = find((it) => it.attributes?.["aria-label"] === "Rate");
  slider.value = "0";
  slider.fire("input");
  now.asks = [ask("Ann", { id: "2 Ann again", fault: "too low." })];
  assert.equal(value(), 0);
  assert.match(text(), /Too low\./);
  now.asks = [ask("Ann", { id: "3 Ann", draft: "3 Ann", turn: 3 })];
  assert.equal(value(), 3);
});

test("what was typed for one question of another world is not in the next", () => {
  const words = [{ place: ["why"], label: "Why", value: null, schema: { type: "string" } }];
  const first = ask("Ann", { fields: words });
  const { find, store } = seated({ columns: [], asks: [first] });
  const box = () => find((it) => it.localName === "input");
  box().value = "Because.";
  box().fire("input");
  box().focus();
  const next = ask("Ann", { fields: words, id: "2 Bob", draft: "2 Bob" });
  store.reading.partsOf("seat").get("now").asks = [next];
  assert.equal(box().value ?? "", "");
});

test("several people choose whose form is shown, and see who is waited for", () => {
  const both = { people: ["Ann", "Bob"], asks: [ask("Ann"), ask("Bob")], waiting: ["Ann", "Bob"] };
  const { button, find, text } = seated(both, { live: { busy: true, turn: 2 } });
  assert.match(text(), /Turn 2 waits for Ann, Bob\./);
  const label = () => find((it) => it.localName === "form").attributes["aria-label"];
  assert.equal(label(), "Ann, turn 2");
  button("Bob is asked").fire("click");
  assert.equal(label(), "Bob, turn 2");
  assert.ok(button("Stop"));
});

test("a form that was answered stays while its turn is played", () => {
  const { store, button } = seated(), now = store.reading.partsOf("seat").get("now");
  assert.ok(button("Set 5.5"));
  Object.assign(now, { asks: [], stepping: true });
  assert.ok(button("Set 5.5"));
  Object.assign(now, { stepping: false });
  assert.equal(button("Set 5.5"), undefined);
});

test("a quarter is shown with the form for it, not beside the answered one", () => {
  const { store, button, texts, reading } = seated();
  const now = store.reading.partsOf("seat").get("now");
  assert.match(texts("when")[0], /^Turn 1/);
  reading.take(reading.size, [turn(1, 2, [6])]);
  Object.assign(now, { asks: [], stepping: true });
  assert.match(texts("when")[0], /^Turn 1/);
  assert.ok(button("Set 5.5"));
  Object.assign(now, { asks: [ask("Ann", { id: "3 Ann", turn: 3 })], stepping: false });
  assert.match(texts("when")[0], /^Turn 2/);
  assert.deepEqual(texts("quarter"), ["Policy rate6 % +0.50"]);
});

test("a form is not kept while a cell plays the turns after it", () => {
  const { store, button, reading } = seated(), now = store.reading.partsOf("seat").get("now");
  assert.ok(button("Set 5.5"));
  reading.take(reading.size, [turn(1, 2, [6]), turn(1, 3, [6])]);
  Object.assign(now, { asks: [], stepping: true });
  assert.equal(button("Set 5.5"), undefined);
});

test("where the question is not known before, Step begins the turn; other worlds show it", () => {
  const other = { columns: [] };
  const { button, sent, text } = seated({ asks: [], ...other });
  assert.match(text(), /Step starts the next\./);
  button("Step").fire("click");
  assert.deepEqual(sent, [{ do: "play", run: 1, turns: 1 }]);
  assert.match(seated(other).text(), /Ann, turn 2: your answer.*The rate\?/);
  assert.equal(seated(other).button("Ask the rule"), undefined);
});

test("the ending names who did how well, the people's path in their own colour", () => {
  const score = { verdict: "You win.", asked: 1, mine: 2, caption: "A mean.", notes: [],
    rows: [["you", 2, 4, 3, 1, 0, 4], ["Taylor rule", 3, 8, 6, 2, 0, 8]] };
  const { store, text, texts, reading } = seated({ asks: [], over: true });
  for (const id of [2, 3]) {
    reading.take(reading.size, [run(id, { columns: ["rate"] }), turn(id, 0, [5])]);
  }
  store.reading.partsOf("seat").get("now").score = score;
  assert.match(text(), /You win\.The rule was asked once\./);
  assert.match(texts("score")[0], /you43104.*Taylor rule8/);
  assert.deepEqual([2, 3].map((id) => reading.runs.get(id).look), [0, 1]);
  assert.equal(texts("quarter").length, 0);
});

const talk = (now, said = [], options = {}) => makeWindow([run(1), turn(1, 0, []),
  part("chat", "now", { user: "ann", count: said.length, inbox: "", pending: null, ...now }),
  ...said.map((one, at) => part("chat", at + 1, { tools: [], ...one }))],
{ panels: ["chat"], ...options });

test("what was said is in bubbles, with the tools below", () => {
  const tools = [["delete_task: done", [["asked for", "{}"]]]];
  const { texts, text } = talk({}, [{ message: "Hi <b>", answer: "Done.", tools }]);
  assert.deepEqual(texts("bubble"), ["You:Hi <b>", "Assistant:Done."]);
  assert.match(text(), /delete_task: done/);
  assert.doesNotMatch(text(), /asked for/);
});

test("a yes is asked of the one who was asked, with a button that says to what", () => {
  const pending = { id: "7", what: "delete task 1", who: "ann" };
  const { button, sent, text } = talk({ pending });
  assert.match(text(), /Shall I delete task 1\? Only ann can say yes\./);
  for (const words of ["Yes, delete task 1", "No"]) button(words).fire("click");
  assert.deepEqual(sent, [true, false].map((yes) => ({ do: "confirm", id: "7", yes })));
});

test("Enter sends, Shift and Enter do not; what was not answered can be sent again", () => {
  const { find, store, sent, button } = talk({ inbox: "Hello" });
  const box = find((it) => it.localName === "textarea");
  box.value = "Hi";
  const press = (more) => onKey(store, { key: "Enter", preventDefault() {}, ...more }, box);
  press({ shiftKey: true });
  assert.deepEqual(sent, []);
  press({});
  button("Send it again").fire("click");
  assert.deepEqual(sent, ["Hi", "Hello"].map((text) => ({ do: "send", text })));
});
