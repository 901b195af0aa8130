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
