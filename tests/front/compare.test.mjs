import assert from "node:assert/strict";
import { test } from "node:test";

import { makeWindow, run, turn } from "./view_kit.mjs";

/** Two runs of two turns that part in the second, with the texts that both refer to. */
function makePair() {
  const lines = ["Why not.", "Since it rained.", '{"config": {"boats": 3}}',
    '{"config": {"boats": 4}}', "same", "old end", "new end"];
  const made = (fish, reasoning, k) => ({ player: "Ann", component: "player", status: "ok",
    reasoning, answer: { catch: fish }, became: { sold: fish }, calls: [k] });
  const call = (k, id, n, text) => ({ k, run: id, n, player: "Ann", component: "player",
    status: "ok", tries: [{ messages: [["user", text]] }] });
  const nine = [4, ...Array(8).fill(0)]; // nine lines "same": the numbers are steps
  return [
    { lines, texts: [[0], [1], [2], [3], [...nine, 1], [...nine, 2]] },
    run(1, { manifest: 2 }), run(2, { parent: 1, fork: 1, manifest: 3 }),
    turn(1, 1, [], { decisions: [made(5, 0, 1)] }),
    turn(1, 2, [], { decisions: [made(5, 0, 2)] }),
    turn(2, 2, [], { decisions: [made(7, 1, 3)] }),
    { calls: [call(1, 1, 1, 4), call(2, 1, 2, 4), call(3, 2, 2, 5)] },
  ];
}

test("two runs show what defines them and the decisions that differ", () => {
  const { texts, button, store } = makeWindow(makePair(), { at: { view: "compare", run: 2 } });
  assert.match(texts("compare-facts")[0], /^whatRun 1Run 2.*boats.*3.*4$/);
  assert.match(texts("compare-apart")[0],
    /^turnplayerRun 1Run 22Anncatch 5 · sold 5catch 7 · sold 7/);
  button("compare").fire("click");
  assert.deepEqual([store.at.of, store.at.a, store.at.b], ["calls", 2, 3]);
});

test("what was changed on the way to a fork stands first", () => {
  const fork = (id, parent, at, change) => run(id, { parent, fork: at, changes: [change] });
  const records = [...makePair().slice(0, 2),
    fork(2, 1, 1, "set fish 9"), fork(3, 2, 2, "set fish 8"),
    turn(1, 1, []), turn(1, 2, []), turn(2, 2, []), turn(3, 3, [])];
  const changes = (a, b) => makeWindow(records, { at: { view: "compare", a, b } })
    .texts("compare-changes");
  assert.deepEqual(changes(1, 3), ["Run 1noneRun 3fork at 1 · set fish 9, from run 1"
    + "fork at 2 · set fish 8, from run 2"]);
  assert.deepEqual(changes(2, 3), ["Run 2noneRun 3fork at 2 · set fish 8, from run 2"]);
});

test("a change after the turn at which the other run branched off is a difference", () => {
  const fork = (id, parent, at, change) => run(id, { parent, fork: at, changes: [change] });
  const turns = [1, 2, 3].map((n) => turn(1, n, []));
  const records = [...makePair().slice(0, 2), ...turns,
    fork(2, 1, 2, "set fish 9"), turn(2, 3, []), fork(3, 2, 1, "set fish 8"), turn(3, 2, [])];
  const changes = (a, b) => makeWindow(records, { at: { view: "compare", a, b } })
    .texts("compare-changes");
  const second = "fork at 2 · set fish 9, from run 1";
  const third = "fork at 1 · set fish 8, from run 2";
  assert.deepEqual(changes(2, 3), [`Run 2${second}Run 3${third}`]);
  assert.deepEqual(changes(1, 3), [`Run 1noneRun 3${third}`]);
});

test("decisions that are told alike differ in their reasons", () => {
  const records = makePair();
  records[5].turn.decisions[0] = { ...records[4].turn.decisions[0], reasoning: 1, calls: [3] };
  const { texts } = makeWindow(records, { at: { view: "compare", run: 2 } });
  assert.match(texts("compare-apart")[0],
    /Why not\.Since it rained\./);
});

test("two calls show the lines that differ, and long passages of equal ones folded", () => {
  const { texts, find } = makeWindow(makePair(),
    { at: { view: "compare", of: "calls", run: 2, a: 2, b: 3 } });
  assert.deepEqual(texts("diff-skip"), ["8 equal lines"]);
  assert.deepEqual([find((it) => it.localName === "del").textContent,
    find((it) => it.localName === "ins").textContent], ["old", "new"]);
  const more = find((it) => it.textContent === "8 equal lines" && it.localName === "button");
  more.fire("click");
  assert.equal(texts("same").length, 2 * 10); // nine lines and the role, on both sides
});
