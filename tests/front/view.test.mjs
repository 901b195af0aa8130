import assert from "node:assert/strict";
import { test } from "node:test";

import { ALL, makeWindow, run, turn } from "./view_kit.mjs";
import { h } from "../../llmsim_lab/run/front/dom.js";
import { valuesIn } from "../../llmsim_lab/run/front/form.js";
import { addView } from "../../llmsim_lab/run/front/view.js";

const FISHING = [
  run(1, { columns: ["fish"], series: [{ column: "fish", label: "Fish", unit: "" }] }),
  turn(1, 0, [100]), turn(1, 1, [98.81]),
];
const PRESETS = [["overview"], ["head", "calls"], ["head", "overview", "compare"]];

test("Space and Enter play where there are controls, and nowhere else", () => {
  const { press, sent } = makeWindow(FISHING);
  press("Enter");
  press(" ");
  assert.deepEqual(sent, [{ do: "play", run: 1, turns: 1 }, { do: "play", run: 1, turns: 4 }]);
  for (const panels of PRESETS) {
    const preset = makeWindow(FISHING, { panels });
    for (const key of ["Enter", " ", "?"]) preset.press(key);
    assert.deepEqual(preset.sent, []);
    assert.match(preset.text(), /the next turn/);
    assert.doesNotMatch(preset.text(), /play one turn/);
    assert.equal(/search the calls/.test(preset.text()), panels.includes("calls"));
  }
});

test("a read-only run is neither played nor forked, and says so", () => {
  const records = [...FISHING, { run: { id: 1, plays: false } }];
  const { button, press, sent, text } = makeWindow(records, { live: { fault: "no model" } });
  for (const name of ["Step", "Play", "Fork or change …"]) {
    assert.equal(button(name).attributes["aria-disabled"], "true");
    button(name).fire("click");
  }
  press(" ");
  press("Enter");
  assert.deepEqual(sent, []);
  assert.match(text(), /This run is read-only\./);
  assert.equal(button("Try again"), undefined);
  assert.ok(makeWindow(FISHING, { live: { fault: "no model" } }).button("Try again"));
});

test("no more turns are asked for than are played at once", () => {
  const { find, button, sent, press } = makeWindow(FISHING);
  const field = find((it) => it.attributes["aria-label"] === "Turns to play");
  for (const [typed, turns] of [["200000", 100000], ["0", 1], ["2.6", 3]]) {
    field.value = typed;
    field.fire("change");
    assert.equal(field.value, turns);
    button("Play").fire("click");
    press(" ");
    assert.deepEqual(sent.splice(0).map((it) => it.turns), [turns, turns]);
  }
});

test("who is waited for is named whole, the others are counted", () => {
  const wait = (who) => ({ who, attempt: 1, seconds: 3, text: "" });
  const names = Array.from({ length: 100 }, (_, n) => `Agent ${n}`);
  const live = { busy: true, turn: 2, left: 3, finished: 12, waiting: names.map(wait) };
  assert.equal(makeWindow(FISHING, { live }).texts("says")[0], "Playing turn 2, then 2 more turns. "
    + "12 done · Agent 0 3 s · Agent 1 3 s · Agent 2 3 s · 97 more waiting");
  const reads = { ...wait("Ann"), doing: "reading about 870 tokens" };
  const alone = { ...live, left: 1, finished: 0, waiting: [reads] };
  assert.equal(makeWindow(FISHING, { live: alone }).texts("says")[0],
    "Playing turn 2. Ann reading about 870 tokens, 3 s");
});

test("what people are told of the latest turn stands above the next question", () => {
  const ann = { "the other chose": "D", "your payoff in all": 0 };
  const told = { 1: { Ann: ann }, 2: { Bob: { x: 1 } } };
  const { texts } = makeWindow(FISHING, { told });
  assert.deepEqual(texts("told-of").map((text) => text.replace(/turn \d+/, "turn n")),
    ["Ann after turn nthe other choseDyour payoff in all0"]);
});

test("a long fault is cut, and shown whole on a click", () => {
  const fault = `no reply. ${"x".repeat(2000)}`, { texts, button } = makeWindow(FISHING, { fault });
  assert.ok(texts("fault")[0].length < 400);
  assert.match(texts("fault")[0], /^No reply\./);
  button("1,710 more characters").fire("click");
  assert.ok(texts("fault")[0].includes("x".repeat(2000)));
  assert.deepEqual(makeWindow(FISHING, { fault: "No model." }).texts("fault"), ["No model."]);
});

test("a rule's answer is shown where its turn is told in brief and at length", () => {
  const made = { player: "Ayr", component: "player", status: "ok", reasoning: null, calls: [],
    answer: { catch: 7, a: 1, b: 2, c: 3, d: 4, e: 5, f: 6 }, became: { sold: 3 } };
  const records = [...FISHING, turn(1, 2, [90], { decisions: [made] })];
  for (const view of ["overview", "turn"]) {
    const { texts } = makeWindow(records, { at: { view } });
    assert.match(texts("decisions")[0], /^Ayrcatch 7/); // a status only where it is not ok
    assert.match(texts("answer")[0], /^catch 7/);
    assert.equal(texts("became")[0], "f 6sold 3"); // of many answers, those for which is no room
  }
});

test("all charts can be had, and how many there are is said", () => {
  const columns = Array.from({ length: 100 }, (_, n) => `v${n}`);
  const { find, texts, text } = makeWindow([run(1, { columns }), turn(1, 0, columns.map(() => 1)),
    turn(1, 1, columns.map(() => 2))]);
  const more = () => find((it) => it.localName === "button" && /more chart/.test(it.textContent));
  assert.equal(texts("panel").length, 6);
  for (const [words, shown] of [["94 more charts", 60], ["40 more charts", 100]]) {
    assert.equal(more().textContent, words);
    more().fire("click");
    assert.equal(texts("panel").length, shown);
  }
  assert.doesNotMatch(text(), /more chart/);
});

test("values of a state are folded only where they are many", () => {
  const other = Array.from({ length: 12 }, (_, n) => `c${n}`), values = other.map(() => 1);
  const of = (columns, row) => makeWindow([
    run(1, { columns: ["fish", ...columns], series: [{ column: "fish", label: "Fish" }] }),
    turn(1, 0, [1, ...row]),
  ], { at: { view: "turn" } });
  const { text } = of(["news", "ban", "rain"], ["A storm is near.", true, 2]);
  assert.match(text(), /news A storm is near\./);
  assert.match(text(), /ban yes/);
  assert.doesNotMatch(text(), /\d more/);
  assert.match(of(other, values).text(), /12 more/);
});

test("what happened is told with short figures, and folded where it is long", () => {
  const lines = ["Ayr caught 2.123456 tons", "x".repeat(900)];
  const records = [...FISHING, { lines, texts: [[0], [1]] }];
  const { texts } = makeWindow([...records, turn(1, 2, [98.8], { words: [0, 1] })],
    { at: { view: "turn" } });
  assert.match(texts("story")[0], /^Ayr caught 2\.12 tonsXx{299} … 600 more characters$/);
  const { text } = makeWindow([...records, turn(1, 2, [98.8], { words: [] })],
    { at: { view: "turn" } });
  assert.doesNotMatch(text(), /What happened/);
});

test("a run alone in a tree is said to be alone", () => {
  const tree = { panels: ["head", "overview", "compare"] }, alone = /One run, no forks\./;
  assert.match(makeWindow(FISHING, tree).text(), alone);
  assert.doesNotMatch(makeWindow([...FISHING, run(2, { parent: 1, fork: 1 })], tree).text(), alone);
  assert.doesNotMatch(makeWindow(FISHING, { panels: ALL }).text(), alone);
});

test("truth values are chosen by yes and no", () => {
  const field = { place: ["set", "ban"], label: "Ban", help: "", schema: { type: "boolean" } };
  const form = { run: 1, turn: 1,
    parts: [{ do: "fork", title: "From turn 1 on", fields: [{ ...field, value: false }] }] };
  const { find } = makeWindow(FISHING, { form });
  const options = find((it) => it.localName === "select").childNodes;
  assert.deepEqual(options.map((it) => [it.textContent, it.value]),
    [["yes", "true"], ["no", "false"]]);
});

test("any name can be a place of what was changed", () => {
  const field = (...place) => ({ place, value: 1 });
  const fields = [field("set", "__proto__"), field("__proto__", "a"), field("set", "same")];
  assert.equal(JSON.stringify(valuesIn(fields, { 0: "5", 1: "6", 2: "1" })),
    '{"set":{"__proto__":"5"},"__proto__":{"a":"6"}}');
});

test("a further view is shown once there is something of it, with or without a run", () => {
  addView("notes", { draw: ({ store }) => h("p", { class: "notes" }, store.reading.partsOf("notes")
    .get("first")) });
  const part = (value) => ({ part: { kind: "notes", key: "first", value } });
  const panels = ["notes", ...ALL];
  const alone = makeWindow([part("old"), part("new")], { panels });
  assert.deepEqual(alone.texts("notes"), ["new"]);
  alone.press("Enter");
  assert.deepEqual(alone.sent, []); // there is nothing to play
  const { texts, button, press, sent } = makeWindow([...FISHING, part("new")], { panels });
  assert.equal(button("Step"), undefined);
  press("2");
  assert.deepEqual(texts("notes"), []);
  press("Enter");
  assert.equal(sent.length, 1);
  assert.equal(makeWindow(FISHING, { panels }).button("Notes"), undefined);
});

test("what was read anew is said of the run and beside a call's tokens", () => {
  const call = (k, more) => ({ k, run: 1, n: 1, player: "Ann", component: "player", status: "ok",
    tries: [{ messages: [], read: 1250, anew: 281, written: 9, ...more }] });
  const records = [...FISHING, { run: { id: 1, read: "78 % were read anew; 31 % would do" } },
    { calls: [call(1, { counted: true, cut_fields: ["reasoning"] }), call(2, {})] }];
  const { store, text } = makeWindow(records);
  store.ui.shown = { "fold read": true };
  assert.match(text(), /31 % would do.*remembers every prompt/s);
  const facts = (k) => makeWindow(records, { at: { view: "calls", call: k } }).text();
  assert.match(facts(1), /prompt 1,250 tokens, 281 of them read anew · 9 written · reasoning cut/);
  assert.match(facts(2), /prompt 1,250 tokens, about 281 of them read anew · 9 written · 0 s/);
});

test("runs that differ only in their seed are one row of the tree, which a click unfolds", () => {
  const seeds = Array.from({ length: 6 }, (_, n) => run(n + 2, {
    parent: 1, verb: "rerun", seed: n, changes: [`seed ${n}`] }));
  const { nodes, find, store } = makeWindow([...FISHING, ...seeds,
    ...seeds.map((it) => turn(it.run.id, 0, []))]);
  const rows = () => nodes((it) => it.localName === "li" && it.find("button"));
  const words = (of) => of.map((it) => it.textContent.replace(/run \d.*/, ""));
  assert.equal(rows().length, 2);
  assert.match(words(rows())[1], /^6 seeds rerun of /);
  find((it) => it.attributes.class === "tree-row" && /6 seeds/.test(it.textContent)).fire("click");
  assert.equal(rows().length, 8);
  assert.deepEqual(words(rows()).slice(2, 4), ["seed 0", "seed 1"]);
  const depths = rows().map((it) => it.style.cssText.at(-1));
  assert.deepEqual(depths, ["0", "1", "2", "2", "2", "2", "2", "2"]);
  find((it) => it.attributes.class === "tree-row" && /^seed 1/.test(it.textContent)).fire("click");
  assert.equal(store.at.run, 3);
});
