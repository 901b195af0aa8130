import assert from "node:assert/strict";
import { test } from "node:test";

import { makeWindow, run, turn } from "./view_kit.mjs";
import { search } from "../../llmsim_lab/run/front/calls.js";
import { Reading } from "../../llmsim_lab/run/front/reading.js";

function makeReading(...records) {
  const reading = new Reading();
  reading.take(0, records);
  return reading;
}

test("a search finds texts by their lines and counts hits in any case", () => {
  const lines = ["The Rate", "rate, rate", "none"];
  const reading = makeReading({ lines, texts: [[0, 1], [2], [2, -2]] });
  assert.deepEqual([...search(reading, "rate")], [[0, 3], [2, 1]]);
  assert.deepEqual([...search(reading, "nothing")], []);
});

test("a search goes on as the log grows, and each line is searched once", () => {
  const reading = makeReading({ lines: ["a rate"], texts: [[0]] });
  let searched = 0;
  const counted = (text) => Object.assign(Object(text), {
    toLowerCase: () => { searched += 1; return text.toLowerCase(); },
  });
  search(reading, "rate");
  reading.lines.push(counted("the Rate again"));
  reading.texts.push([0, 1], [1]);
  assert.deepEqual([...search(reading, "rate")], [[0, 1], [1, 2], [2, 1]]);
  assert.equal(search(reading, "again").get(1), 1);
  search(reading, "rate");
  assert.equal(searched, 1);
});

test("ten thousand calls are searched at once", () => {
  const lines = Array.from({ length: 60000 }, (_, n) => `Inflation is ${n} percent`);
  const texts = lines.map((_, n) => [n, (n * 7) % 60000, (n * 13) % 60000]);
  const reading = makeReading({ lines, texts });
  assert.ok(search(reading, "is 77").size > 0);
});

const call = (k, id, n, text, more) => ({ k, run: id, n, player: "Ann", component: "player",
  status: "ok", tries: [{ messages: [["user", text]], ...more }] });
const CALLS = [
  { lines: ["The rate is 5", "rate up, rate down", "nothing", '{"vote": "yes", "why": "x"}'],
    texts: [[0], [1], [2], [3]] },
  run(1), turn(1, 1, []), turn(1, 2, []),
  { calls: [call(1, 1, 1, 0), call(2, 1, 2, 1, { reply: 3 }), call(3, 1, 2, 2)] },
];
const OTHER = [run(2, { parent: 1, fork: 1 }), turn(2, 2, []), { calls: [call(4, 2, 2, 1)] }];
const openCalls = (records, at) => makeWindow(records, { at: { view: "calls", run: 1, ...at } });
const field = ({ find }) => find((it) => it.attributes.type === "search");

test("a search narrows the list, counts and marks hits, and Escape ends it", () => {
  const window = openCalls(CALLS), { texts, press, nodes } = window;
  assert.deepEqual(texts("calls-count"), ["3 calls"]);
  field(window).value = "RATE";
  field(window).fire("input");
  assert.deepEqual(texts("calls-count"), ["2 of 3 calls · 3 hits"]);
  assert.deepEqual(texts("hit"), ["rate"]);
  assert.equal(nodes((it) => it.attributes.role === "option").length, 2);
  press("Escape", field(window));
  assert.deepEqual([field(window).value, texts("calls-count")[0]], ["", "3 calls"]);
});

test("only the raw reply is folded away from a search, and a search that fails says so", () => {
  const window = openCalls(CALLS, { call: 2 }), { nodes, text } = window;
  const open = () => nodes((it) => it.localName === "details").map((it) => Boolean(it.open));
  assert.deepEqual(open(), [false, false]);
  field(window).value = "yes";
  field(window).fire("input");
  assert.deepEqual(open(), [false, false]);
  field(window).value = "elsewhere";
  field(window).fire("input");
  assert.match(text(), /No call matches these filters/);
});

test("calls of all runs can be listed, and compared with the one before and other runs", () => {
  const scopes = ({ find }) => find((it) => it.attributes["aria-label"] === "Which calls")
    .childNodes.map((it) => it.textContent);
  assert.deepEqual(scopes(openCalls(CALLS)), ["This run", "This turn"]);
  const window = openCalls([...CALLS, ...OTHER], { call: 3 }), { texts, find, store } = window;
  assert.deepEqual(scopes(window), ["This run", "This turn", "All runs"]);
  assert.deepEqual(texts("call-near"), ["Compare withthe one beforeturn 1run 2"]);
  const chosen = find((it) => it.attributes["aria-label"] === "Which calls");
  chosen.value = "all";
  chosen.fire("change");
  assert.deepEqual(texts("calls-count"), ["4 calls"]);
  assert.deepEqual(texts("call-when"),
    ["run 1 · turn 1", "run 1 · turn 2", "run 1 · turn 2", "run 2 · turn 2"]);
  assert.equal(store.at.call, null);
});

test("keys go through the list, to the call and back", () => {
  const many = Array.from({ length: 40 }, (_, k) => call(k + 1, 1, 1, 0));
  const window = openCalls([CALLS[0], run(1), turn(1, 1, []), { calls: many }]);
  const { find, press, store, nodes } = window;
  const list = () => find((it) => it.attributes.role === "listbox");
  list().clientHeight = 216; // four rows
  list().scrollTop = 0;
  store.changed();
  const at = (key, target = list()) => { press(key, target); window.draw(); return store.at.call; };
  const moves = ["j", "ArrowDown", "k", "End", "Home", "PageDown", "PageUp"];
  assert.deepEqual(moves.map((key) => at(key)),
    [2, 3, 2, 40, 1, 4, 1]);
  at("End");
  assert.equal(list().scrollTop, 40 * 54 - 216);
  list().fire("scroll"); // as a browser does
  assert.equal(nodes((it) => it.attributes.role === "option").length, 4 + 12);
  assert.equal(find((it) => it.attributes["aria-selected"] === "true").attributes["aria-posinset"],
    "40");
  at("Home");
  press("Escape");
  assert.equal(store.at.call, null);
});

test("a call shows its messages, its slots with their sources, its fields and its attempts", () => {
  const lines = ["You are Ann.", '{"reasoning": "It rains.", "vote": {"yes": -1}}', "no JSON",
    "bad"];
  const tries = [{ messages: [["user", 0]], reply: 2, fault: "invalid_response", detail: 3 },
    { messages: [["user", 0]], reply: 1, slots: [0, 8, 3], settings: 4, seed: 7, read: 5 }];
  const records = [{ lines: [...lines, '{"model": "tiny", "temperature": 0.5}'],
    texts: [[0], [1], [2], [3], [4]], forms: [[[0, "name", "state.name", 2]]] },
  run(1), turn(1, 1, []), { calls: [{ ...call(1, 1, 1, 0), status: "repaired", tries }] }];
  const { text, texts, find, button } = openCalls(records, { call: 1 });
  assert.deepEqual(texts("slot"), ["Ann"]);
  assert.match(text(), /1 slot filled in/);
  find((it) => it.localName === "mark").fire("focus");
  assert.match(texts("call-source")[0], /^name state\.name · 2 tokens$/);
  assert.deepEqual(texts("call-why"), ["It rains."]);
  assert.match(texts("call-reply")[0], /voteyes−1/);
  assert.match(texts("call-head")[0], /tiny · prompt 5 tokens · 0 s/);
  assert.doesNotMatch(texts("call-head")[0], /sample|run 1/);
  button("1 · invalid_response").fire("click");
  assert.match(texts("call-fault")[0], /invalid_responsebad/);
  assert.match(texts("call-reply")[0], /no JSON/);
});
