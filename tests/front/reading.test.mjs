import assert from "node:assert/strict";
import { test } from "node:test";

import { Reading } from "../../llmsim_lab/run/front/reading.js";
import { runLabel, ticks } from "../../llmsim_lab/run/front/chart.js";

const turn = (run, n, row, more) => ({ turn: { run, n, row, decisions: [], calls: [], ...more } });

function makeReading(records) {
  const reading = new Reading();
  assert.equal(reading.take(0, records), true);
  return reading;
}

/** A run of four turns, a fork of it at turn 2 with other columns, and a fork of that at 3. */
function makeFamily() {
  return makeReading([
    { run: { id: 1, columns: ["rate", "note"], series: [{ column: "rate", label: "Rate" }] } },
    ...[0, 1, 2, 3].map((n) => turn(1, n, [n, "text"])),
    { run: { id: 2, parent: 1, fork: 2, columns: ["note", "rate"] } },
    turn(2, 3, ["other", 30]),
    { run: { id: 3, parent: 2, fork: 3, columns: [] } },
  ]);
}

const at = (reading, id) => reading.runs.get(id);

test("a gap is refused, and what is known already is passed over", () => {
  const reading = new Reading();
  assert.equal(reading.take(1, [{}]), false);
  assert.equal(reading.take(0, [{ lines: ["a"] }, { lines: ["b"] }]), true);
  assert.equal(reading.take(1, [{ lines: ["b"] }, { lines: ["c"] }]), true);
  assert.deepEqual([reading.size, reading.lines], [3, ["a", "b", "c"]]);
});

test("a text is its lines", () => {
  const reading = makeReading([{ lines: ["one", ""], texts: [[0, 1, -1]] }]);
  assert.equal(reading.text(0), "one\n\none");
  assert.equal(reading.text(null), "");
});

test("a fork has its ancestors' turns up to where it left them, by their own columns", () => {
  const reading = makeFamily(), [first, fork, deep] = [1, 2, 3].map((id) => at(reading, id));
  assert.deepEqual(reading.points(fork, "rate"), [[0, 0], [1, 1], [2, 2], [3, 30]]);
  assert.deepEqual(reading.points(deep, "rate"), reading.points(fork, "rate"));
  assert.deepEqual([...reading.lineOf(deep)], [[3, Infinity], [2, 3], [1, 2]]);
  assert.deepEqual([reading.first(deep), reading.last(deep), reading.last(first)], [0, 3, 3]);
  assert.equal(reading.turn(deep, 3).run, 2);
  assert.deepEqual([...reading.columns(deep)], ["rate", "note"]);
});

test("what a fork changed in the turn it left from is its own, and its children's", () => {
  const reading = makeFamily(), [first, fork, deep] = [1, 2, 3].map((id) => at(reading, id));
  reading.take(reading.size, [turn(2, 2, ["set", 20]), turn(3, 3, [])]);
  assert.deepEqual([first, fork, deep].map((run) => reading.valueAt(run, "rate", 2)), [2, 20, 20]);
  assert.deepEqual(reading.points(fork, "rate"), [[0, 0], [1, 1], [2, 20], [3, 30]]);
  assert.deepEqual(reading.ownPoints(fork, "rate"), [[2, 2], [2, 20], [3, 30]]); // it drops there
  assert.deepEqual(reading.ownPoints(first, "rate"), [[0, 0], [1, 1], [2, 2], [3, 3]]);
});

/** Each run is a fork of the one before at a turn earlier than where that one left its own. */
function makeBacktracks() {
  const records = [{ run: { id: 1, columns: ["rate"] } },
    ...[0, 1, 2, 3, 4].map((n) => turn(1, n, [n])),
    { run: { id: 2, parent: 1, fork: 3, columns: ["rate"] } }, turn(2, 4, [24]), turn(2, 5, [25]),
    { run: { id: 3, parent: 2, fork: 1, columns: ["rate"] } }, turn(3, 2, [32]),
    { run: { id: 4, parent: 3, fork: 2, columns: ["rate"] } }, turn(4, 3, [43])];
  return makeReading(records);
}

test("a fork of a fork has of each ancestor only the turns that led to its own", () => {
  const reading = makeBacktracks();
  const rates = (id) => reading.points(at(reading, id), "rate");
  assert.deepEqual(rates(2), [[0, 0], [1, 1], [2, 2], [3, 3], [4, 24], [5, 25]]);
  assert.deepEqual(rates(3), [[0, 0], [1, 1], [2, 32]]); // none of run 2's own turns
  assert.deepEqual(rates(4), [[0, 0], [1, 1], [2, 32], [3, 43]]);
  assert.deepEqual([...reading.lineOf(at(reading, 4))], [[4, Infinity], [3, 2], [2, 1], [1, 1]]);
  assert.deepEqual(reading.ownPoints(at(reading, 4), "rate"), [[2, 32], [2, 32], [3, 43]]);
});

test("calls of a fork of a fork are those of the turns that led to it", () => {
  const reading = makeBacktracks();
  const call = (k, run, n) => ({ k, run, n, status: "ok" });
  const calls = [call(1, 1, 1), call(2, 1, 2), call(3, 2, 4), call(4, 3, 2), call(5, 4, 3)];
  reading.take(reading.size, [{ calls }]);
  const numbers = (id) => reading.callsOf(at(reading, id)).map((it) => it.k);
  assert.deepEqual([numbers(2), numbers(3), numbers(4)], [[1, 2, 3], [1, 4], [1, 4, 5]]);
});

test("runs without a parent are told by what their configurations do not share", () => {
  const manifest = (config) => JSON.stringify({ config: { name: "Fishing", ...config }, git: "x" });
  const root = (id, line) => ({ run: { id, name: "Fishing", manifest: line } });
  const configs = [{ growth: 0.8, sea: { depth: 3 }, seed: 1, llm: { seed: 1 } },
    { growth: 0.9, sea: { depth: 3 }, seed: 1, llm: { seed: 1 } },
    ...[2, 3].map((seed) => ({ growth: 0.8, sea: { depth: 3 }, seed, llm: { seed } }))];
  const lines = configs.map(manifest), texts = lines.map((_, n) => [n]);
  const reading = makeReading([{ lines, texts }, root(1, 0), root(2, 1)]);
  const labels = () => [...reading.runs.values()].map((run) => runLabel(reading, run));
  assert.deepEqual(labels(), ["Fishing · growth = 0.8", "Fishing · growth = 0.9"]);
  reading.take(reading.size, [{ run: { id: 2, changes: ["growth 0.9"], parent: 1 } }]);
  assert.deepEqual(labels(), ["Fishing", "growth 0.9"]); // here known as made from the first
  const alone = { run: { id: 2, changes: [], parent: null } };
  reading.take(reading.size, [alone, root(3, 2), root(4, 3)]);
  const rows = reading.tree().map(({ run, runs, changes }) => (
    [runs?.length, runLabel(reading, run, changes)]));
  assert.deepEqual(rows, [[3, "Fishing · growth = 0.8"],
    [undefined, "Fishing · growth = 0.9; seed = 1; llm seed = 1"]]);
});

test("a fork is told by its turn and what it changed, one without changes by its parent", () => {
  const more = [{ fork: 2, changes: ["rate 5"] }, { fork: 2 }, {}, { changes: ["rate 5"] }];
  const reading = makeReading([{ run: { id: 1, name: "Fishing" } }, ...more.map((it, at) => ({
    run: { id: at + 2, parent: 1, verb: it.fork ? "fork" : "restart", ...it } }))]);
  assert.deepEqual([...reading.runs.values()].map((run) => runLabel(reading, run)), ["Fishing",
    "fork at 2 · rate 5", "fork at 2 of run 1", "restart of run 1", "rate 5"]);
});

test("a record of the same run, turn or call replaces what it says, and answers follow", () => {
  const reading = makeFamily(), run = at(reading, 1);
  assert.equal(reading.last(run), 3);
  reading.take(reading.size, [
    { run: { id: 1, outcome: "done" }, ...turn(1, 4, [4]) },
    { ...turn(1, 4, [5]), calls: [{ k: 7, run: 1, n: 4, status: "" }] },
    { calls: [{ k: 7, run: 1, n: 4, status: "ok" }] },
  ]);
  assert.equal(at(reading, 1), run);
  assert.deepEqual([run.outcome, run.columns.length, reading.last(run)], ["done", 2, 4]);
  assert.equal(reading.value(reading.turn(run, 4), "rate"), 5);
  assert.deepEqual(reading.callsOf(run, 4).map((call) => call.status), ["ok"]);
});

test("calls of a run are those of its line; one without a turn is its own run's", () => {
  const reading = makeFamily(), call = (k, run, n) => ({ k, run, n, status: "ok" });
  const calls = [call(9, 2, null), call(4, 2, 3), call(2, 1, 3), call(1, 1, 2)];
  reading.take(reading.size, [{ calls }]);
  const numbers = (id, n) => reading.callsOf(at(reading, id), n).map((it) => it.k);
  assert.deepEqual([numbers(1), numbers(2), numbers(3)], [[1, 2], [1, 4, 9], [1, 4]]);
  assert.deepEqual([numbers(2, 2), numbers(2, 3)], [[1], [4]]);
});

test("forks that differ only in their seed are one row, and others are not", () => {
  const fork = (id, changes) => ({ run: { id, parent: 1, fork: 2, changes, seed: id } });
  const reading = makeReading([
    { run: { id: 1 } }, { run: { id: 2, parent: 1, fork: 2, changes: ["prompt"] } },
    ...[3, 4, 5].map((id) => fork(id, [`seed ${id}`, "shock 4"])),
    fork(6, ["shock 5"]), fork(7, ["shock 5"]), { run: { id: 8, parent: 7, fork: 3 } },
  ]);
  const rows = reading.tree().map(({ run, runs, depth }) => [runs?.length ?? run.id, depth]);
  assert.deepEqual(rows, [[1, 0], [2, 1], [3, 1], [6, 1], [7, 1], [8, 2]]);
  assert.deepEqual(reading.tree()[2].changes, ["shock 4"]);
});

test("charts are those with something to draw, a dict's with a line for each of its keys", () => {
  const reading = makeReading([
    { run: { id: 1, columns: ["price", "belief.Ann", "belief.Bob", "ban"], charts: [
      { column: "x", label: "x" }, { column: "belief.*", label: "belief" },
      { column: "ban", label: "ban" }] } },
    turn(1, 0, [1, 0.5, null, true]),
  ]);
  const [belief, ban, ...rest] = reading.charted(at(reading, 1));
  assert.deepEqual(reading.linesOf(at(reading, 1), belief), [
    { name: "Ann", column: "belief.Ann" }, { name: "Bob", column: "belief.Bob" }]);
  assert.deepEqual([belief.yesNo, ban.yesNo, rest], [false, true, []]);
  assert.deepEqual(reading.points(at(reading, 1), "ban"), [[0, 1]]); // yes is 1
});

test("ticks are round and within the range", () => {
  assert.deepEqual(ticks(0, 1, 4), [0, 0.5, 1]);
  assert.deepEqual(ticks(-1.5, 2.4, 4), [-1, 0, 1, 2]);
  assert.deepEqual(ticks(0, 3, 9, true), [0, 1, 2, 3]);
  assert.deepEqual(ticks(5, 5, 4), [5]);
});

test("numbers too large to count by one have ticks, few and in order", () => {
  for (const most of [1, 4]) {
    const places = ticks(2 ** 60, 2 ** 60 + 256, most);
    assert.ok(places.length <= most + 1);
    assert.deepEqual(places, [...places].sort((a, b) => a - b));
  }
});
