import assert from "node:assert/strict";
import { test } from "node:test";

import { makeWindow, run, turn } from "./view_kit.mjs";
import { placesOf, tiesIn } from "../../llmsim_lab/run/front/network.js";

const COLUMNS = ["believers", "belief.Ann", "belief.Bob", "vote.Ann", "vote.Bob"];
const CHARTS = [
  { column: "believers", label: "Believers", unit: "" },
  { column: "belief.*", label: "belief", unit: "" },
  { column: "vote.*", label: "vote", unit: "" },
];
const LINES = ['{"Ann":["Bob"]}', '{"Bob":[]}', '{"Ann":"hello"}', '"Cy"'];
const TABLES = { ties: 0, said: 1, left: 2 };

/** A rumour among two people, of so many turns. */
const rumour = (turns, more) => [
  { lines: LINES, texts: [[0, 1], [2], [3]] },
  run(1, { columns: COLUMNS, charts: CHARTS, dicts: ["belief.*", "vote.*"], ...more }),
  ...Array.from({ length: turns }, (_, n) => (
    turn(1, n, [0.5, 0.25 * n, 1, n > 0, false], { tables: TABLES }))),
];
const captions = ({ texts }) => texts("panel").map((text) => text.split(/[\d.]/)[0]);

test("a dict is one chart with named lines, yes and no are rows, ties a network beside", () => {
  const window = makeWindow(rumour(3));
  assert.deepEqual(captions(window),
    ["Believers", "beliefmean", "tiesdarker: more belief", "voteyes"]);
  const names = window.nodes((it) => it.attributes.class?.startsWith("name"));
  assert.deepEqual(names.map((it) => it.textContent), ["Bob", "Ann", "Ann", "Bob"]); // by height
  assert.equal(window.texts("yes").length, 2); // Ann's, in turns 1 and 2
  assert.match(window.texts("now")[3], /yes1 of 2/);
});

test("what theory says of a dict's keys is a line in its chart, each value once", () => {
  const prediction = { "belief.Ann": 0.5, "belief.Bob": 0.5 };
  const { texts } = makeWindow(rumour(3, { prediction }));
  assert.deepEqual(texts("told"), ["", "predicted 0.50"]); // the line, and its words
});

test("a dict's chart of a fork has its parent's lines too, of many keys the means", () => {
  const few = makeWindow([...rumour(3), run(2, {
    parent: 1, fork: 1, columns: COLUMNS, charts: CHARTS, dicts: ["belief.*", "vote.*"] }),
  turn(2, 2, [0.5, 0.1, 1, true, true])], { at: { run: 2 } });
  assert.match(few.texts("now")[1], /^means0\.750\.55$/); // the parent's 0.5 and 1, then its own
  assert.equal(few.texts("dotted").length, 2);
  const columns = Array.from({ length: 8 }, (_, n) => `belief.p${n}`);
  const more = { columns, charts: [CHARTS[1]], dicts: ["belief.*"] };
  const row = (id, n) => turn(id, n, columns.map((_, at) => n * at * id));
  const many = makeWindow([run(1, more), run(2, { parent: 1, fork: 0, ...more }),
    ...[1, 2].flatMap((id) => [row(id, 0), row(id, 1)])], { at: { run: 2 } });
  assert.deepEqual([many.texts("dotted").length, many.texts("main").length], [0, 4]);
  assert.match(many.texts("now")[0], /^means3\.507$/);
});

test("a class that names its charts has no others", () => {
  const charts = [CHARTS[1]];
  assert.deepEqual(captions(makeWindow(rumour(3, { charts, limited: true }))), ["beliefmean"]);
  const withTies = [{ column: "ties", label: "Who knows whom" }, ...charts];
  assert.match(makeWindow(rumour(3, { charts: withTies, limited: true })).text(), /Who knows whom/);
});

test("a pointer names the nearest line and those next to it", () => {
  const { nodes, texts } = makeWindow(rumour(3));
  const belief = nodes((it) => it.attributes.role === "img")[1];
  belief.fire("pointermove", { clientX: 40, clientY: 10 });
  assert.match(texts("tip")[0], /^StartBob1Ann0$/);
  assert.equal(texts("lit").length, 1);
});

test("before the first turn there are values and no empty charts", () => {
  const { texts, text } = makeWindow(rumour(1));
  assert.match(texts("quarter")[0], /^Believers 0\.50$/);
  assert.deepEqual(texts("players"), ["beliefvotesaidAnn0nohelloBob1no"]);
  assert.doesNotMatch(text(), /from/);
});

test("a turn's state is figures, a table by player, and lists", () => {
  const { texts } = makeWindow(rumour(2), { at: { view: "turn" } });
  assert.deepEqual(texts("facts"), ["Statevaluechangebelievers 0.50"]);
  assert.deepEqual(texts("players"), ["beliefvotesaidAnn0.25+0.25yeshelloBob1no"]);
  assert.deepEqual(texts("list"), ["left Cy"]);
});

test("a network is a dict of lists of its own keys, or a list of pairs", () => {
  const dict = (of) => Object.entries(of).map(([name, tied]) => ({ [name]: tied }));
  const both = tiesIn(dict({ a: ["b"], b: ["a"] }));
  const names = ["a", "b"];
  assert.deepEqual(both, { names, pairs: [["b", "a"]], hasArrows: false }); // each pair once
  assert.deepEqual(tiesIn([["a", "b"]]), { names, pairs: [["a", "b"]], hasArrows: true });
  for (const other of [dict({ a: ["apple"] }), dict({ a: "b" }), ["a", "b"]]) {
    assert.equal(tiesIn(other), null);
  }
});

test("players are apart, friends nearer, and nobody moves when somebody comes", () => {
  const names = Array.from({ length: 9 }, (_, n) => `p${n}`);
  const pairs = names.map((name, n) => [name, names[(n + 1) % 9]]);
  const places = placesOf([{ names, pairs }]);
  const far = (a, b, all = places) => (
    Math.hypot(...[0, 1].map((at) => all.get(a)[at] - all.get(b)[at])));
  assert.ok(far("p0", "p1") > 0.1 && far("p0", "p1") < far("p0", "p4"));
  const later = { names: [...names.slice(1), "new"], pairs: [["new", "p1"], ["new", "p2"]] };
  const after = placesOf([{ names, pairs }, later]);
  for (const name of names) assert.deepEqual(after.get(name), places.get(name));
  assert.ok(far("new", "p1", after) > 0.05 && far("new", "p1", after) < far("new", "p5", after));
  assert.ok([...after.values()].flat().every((at) => at >= 0 && at <= 1));
});

test("what a field was cut at is said beside it, also where an old tape has only the limit", () => {
  const settings = JSON.stringify({ schema: { properties: { why: { maxLength: 5 } } } });
  const records = [{ lines: [settings, '{"why": "Since"}'], texts: [[0], [1]] },
    run(1, {}), turn(1, 1, [])];
  const made = { player: "Ann", component: "player", status: "ok", reasoning: null, calls: [7],
    answer: { why: "Since", move_bp: 25, agreed: true }, became: {} };
  records.push(turn(1, 2, [], { decisions: [made] }),
    { calls: [{ k: 7, run: 1, n: 2, player: "Ann", component: "player", status: "ok",
      tries: [{ messages: [], settings: 0, reply: 1 }] }] });
  const { texts } = makeWindow(records, { at: { view: "turn" } });
  assert.match(texts("decisions")[0], /^Annwhy cut/);
  assert.equal(texts("answer")[0], "why Sincemove 25 bpagreed");
});
