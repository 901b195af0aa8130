import assert from "node:assert/strict";
import { test } from "node:test";

import { makeWindow, run, turn } from "./view_kit.mjs";
import { tiesIn } from "../../llmsim_lab/run/front/network.js";

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
    turn(1, n, [0.5 + 0.25 * n, 0.25 * n, 1, n > 0, false], { tables: TABLES }))),
];
const captions = ({ texts }) => texts("panel").map((text) => text.split(/[\d.]/)[0]);

test("a dict is one chart with named lines, yes and no are rows, ties a network beside", () => {
  const window = makeWindow(rumour(3));
  assert.deepEqual(captions(window),
    ["Believers", "beliefmean", "ties", "voteyes"]);
  assert.match(window.text(), /stronger colour: more belief/);
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
  assert.deepEqual(texts("facts"), ["Statevaluechangebelievers 0.75+0.25"]);
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

/** A turn's state, of a run with so many columns of one value in each turn. */
const stateOf = (columns, rows, more) => makeWindow([
  ...(more?.records ?? []), run(1, { columns, ...more }),
  ...rows.map((row, n) => turn(1, n, row, more?.turns))], { at: { view: "turn" } });
const cells = ({ texts }, name, place = 0) => texts(name)[place];
const unfold = ({ find }, words) => {
  const fold = find((node) => node.localName === "details" && node.textContent.startsWith(words));
  fold.fire("toggle", { target: { open: true } });
};

test("figures say how they changed; a long text is folded, and nothing is left out", () => {
  const window = stateOf(["price", "motto", "short"],
    [[4, "x".repeat(45), "y"], [3.5, "x".repeat(45), "x".repeat(44)]]);
  const figures = `Statevaluechangeprice 3.50−0.50short ${"x".repeat(44)}`;
  assert.deepEqual(window.texts("facts"), [figures]);
  assert.doesNotMatch(window.text(), /x{45}/);
  unfold(window, "1 text");
  assert.match(window.text(), /motto.*x{45}/);
});

test("what has a label comes first, and beside it what never changes is folded", () => {
  const series = [{ column: "pot", label: "Pot", unit: "coins" }];
  const columns = ["rule", "round", "pot"];
  const rows = [[1, 7, 0], [2, 7, 3], [2, 8, 5]];
  const window = stateOf(columns, rows, { series });
  assert.deepEqual(window.texts("facts"), ["StatevaluechangePot coins5+2round 8+1"]);
  unfold(window, "1 more");
  assert.equal(cells(window, "facts", 1), "Statevaluechangerule 2"); // 1 before the first turn only
  // After one turn nothing is known to be constant.
  assert.match(cells(stateOf(columns, rows.slice(0, 2), { series }), "facts"), /rule 2/);
  assert.match(cells(stateOf(columns, rows), "facts"), /rule 2/); // nor beside others without label
});

test("twelve figures are shown, of more the first dozen, or as many as have labels", () => {
  const columns = Array.from({ length: 13 }, (_, n) => `v${n}`);
  const row = columns.map((_, n) => n);
  const rows = (window) => window.find((node) => node.localName === "tbody").childNodes.length;
  assert.equal(rows(stateOf(columns.slice(0, 12), [row.slice(0, 12), row.slice(0, 12)])), 12);
  const more = stateOf(columns, [row, row]);
  assert.equal(rows(more), 12);
  unfold(more, "1 more");
  const series = columns.slice(0, 2).map((column) => ({ column, label: "L", unit: "" }));
  const changing = row.map((value) => value + 1);
  assert.equal(rows(stateOf(columns, [row, row, changing], { series })), 2);
});

/** A state with dicts of so many keys each, by field. */
const dictsOf = (fields, more) => {
  const columns = Object.entries(fields).flatMap(([field, keys]) => (
    keys.map((key) => `${field}.${key}`)));
  const dicts = Object.keys(fields).map((field) => `${field}.*`);
  return stateOf(columns, [0, 1].map((n) => columns.map((_, at) => at + n)), { dicts, ...more });
};
const keys = (count) => [..."abcdefghijklm"].slice(0, count);

test("dicts that share more than half of their keys are one table", () => {
  const tables = (one, other) => dictsOf({ one, other }).texts("players").length;
  assert.equal(tables(["a", "b", "c"], ["b", "c", "d"]), 1);
  assert.equal(tables(["a", "b"], ["b", "c"]), 2); // half is not enough
  assert.equal(tables(["a", "b", "c", "d"], ["d"]), 1); // of the shorter one
});

test("a table by player has twelve rows and a button; many fields of few players are rows", () => {
  const twelve = dictsOf({ coins: keys(12) });
  assert.doesNotMatch(twelve.text(), /more row/);
  const { texts, text, button } = dictsOf({ coins: keys(13) });
  assert.match(texts("players")[0], /^coinsa1\+1b2\+1.*l12\+1$/);
  button("1 more row").fire("click");
  assert.match(texts("players")[0], /l12\+1m13\+1$/);
  assert.doesNotMatch(text(), /more row/);
  const fields = (count) => Object.fromEntries(keys(count).map((key) => [key, ["Ann", "Bob"]]));
  assert.match(cells(dictsOf(fields(5)), "players"), /^abcdeAnn/);
  assert.match(cells(dictsOf(fields(6)), "players"), /^AnnBoba1\+12\+1b3\+1/);
  const many = Object.fromEntries(keys(6).map((key) => [key, keys(6)]));
  assert.match(cells(dictsOf(many), "players"), /^abcdefa1\+1/); // too many to lie across
});

test("a dict of long texts has a table of its own, and a list one line", () => {
  const lines = [...[{ Ann: "x".repeat(45) }, { Bob: "no" }].map((line) => JSON.stringify(line)),
    ...[{ Ann: "a" }, { Bob: ["c", "d"] }].map((line) => JSON.stringify(line)), "1", '["x"]'];
  const { texts } = stateOf([], [[], []], {
    records: [{ lines, texts: [[0, 1], [2, 1], [4, 1]] }],
    turns: { tables: { speech: 0, word: 1, log: 2 } } });
  assert.equal(texts("players").length, 2);
  assert.match(texts("players")[1], /^wordAnnaBobc, d$/);
  assert.deepEqual(texts("list"), ["log 1, x"]);
});
