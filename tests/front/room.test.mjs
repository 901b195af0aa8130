import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

import { makePlace } from "./dom_kit.mjs";
import { BigChart, keepApart } from "../../llmsim_lab/room/front/big_chart.js";
import { blocksOf, Prose } from "../../llmsim_lab/room/front/prose.js";
import { duration, say } from "../../llmsim_lab/room/front/words.js";
import { h, patch } from "../../llmsim_lab/run/front/dom.js";

const FRONT = new URL("../../llmsim_lab/room/front/", import.meta.url);
globalThis.WORDS = JSON.parse(readFileSync(new URL("words.json", FRONT)));

const drawn = (view, props) => {
  const place = makePlace();
  patch(place, h(view, props));
  return place;
};
const all = (node) => [node, ...node.childNodes.flatMap(all)];
const named = (node, name) => all(node).filter((it) => it.localName === name);

test("each sentence that a page says stands in words.json, and each of those is said", () => {
  const sources = readdirSync(FRONT).filter((name) => name.endsWith(".js"))
    .map((name) => readFileSync(new URL(name, FRONT), "utf8")).join("\n");
  const said = new Set([...sources.matchAll(/say\("(\w+)"/g)].map(([, name]) => name));
  for (const name of ["class", "theory", "name", "code", "label"]) {
    said.add(name); // by a variable
  }
  const known = Object.keys(WORDS).filter((name) => !/^(lang|title|error_.*)$|_one$/.test(name));
  assert.deepEqual([...said].sort(), known.sort());
});

test("a sentence counts as its language does", () => {
  assert.equal(say("here", { n: 12, seats: 24 }), "12 of 24 are here.");
  assert.equal(say("here", { n: 1, seats: 24 }), WORDS.here_one);
  const english = WORDS;
  globalThis.WORDS = { lang: "pl", waits: "{n} osób", waits_few: "{n} osoby" };
  assert.deepEqual([2, 5].map((n) => say("waits", { n })), ["2 osoby", "5 osób"]);
  globalThis.WORDS = english;
});

test("a wait is in seconds, then in minutes", () => {
  assert.deepEqual([-3, 12.4, 185].map(duration), ["0 s", "12 s", "3:05"]);
});

test("lines that an editor wrapped flow, and those that an author ended stay", () => {
  const [flowing] = blocksOf("Ann and Bob have 20 coins. They decide\nhow many they give.");
  assert.deepEqual(flowing.lines, ["Ann and Bob have 20 coins. They decide how many they give."]);
  const [facts] = blocksOf("Inflation: 3.2\nOutput gap: -1\nYou may change the rate.");
  assert.deepEqual(facts.lines, ["Inflation: 3.2", "Output gap: -1", "You may change the rate."]);
  assert.deepEqual(blocksOf("It rains.\nStay in.")[0].lines, ["It rains.", "Stay in."]);
  assert.equal(blocksOf("One.\n\nTwo.").length, 2);
});

test("lists, headings and tables are what they look like; a single row is a sentence", () => {
  const text = "# Rules\n- give\n  much\n- keep\n\nturn | paid\n1 | 3.5\nthe last | 12\n\na | b";
  assert.deepEqual(blocksOf(text), [
    { kind: "heading", words: "Rules" },
    { kind: "list", items: ["give much", "keep"] },
    { kind: "table", rows: [["turn", "paid"], ["1", "3.5"], ["the last", "12"]] },
    { kind: "text", lines: ["a | b"] },
  ]);
  const table = drawn(Prose, { text });
  assert.deepEqual(named(table, "td").map((it) => it.attributes.class), ["number", "number"]);
  assert.equal(named(table, "th").at(-1).attributes.scope, "row");
});

test("what people write is never markup, and hidden characters are written out", () => {
  const place = drawn(Prose, { text: "<img src=x onerror=alert(1)> \u202eevil" });
  assert.equal(named(place, "img").length, 0);
  assert.equal(place.textContent, "<img src=x onerror=alert(1)> ⟨U+202E⟩evil");
});

test("names of lines lie apart, near to their lines, and above the axis", () => {
  assert.deepEqual(keepApart([10, 12, 90], 20, 100), [10, 30, 90]);
  assert.deepEqual(keepApart([95, 99], 20, 100), [80, 100]);
});

test("a chart names its lines, begins at nothing, and shows the theory to the last turn", () => {
  const lines = [
    { label: "factor=1.8", kind: "arm", values: [[1, 10], [2, 12]] },
    { label: "", kind: "theory", values: [[1, 0], [2, 0]] },
  ];
  const place = drawn(BigChart, { name: "given", lines, wide: 900, high: 400, planned: 10 });
  assert.equal(named(place, "svg")[0].attributes["aria-label"],
    "given: factor=1.8 12, turn 2; theory 0, turn 10");
  const texts = named(place, "text").map((it) => it.textContent);
  for (const text of ["0", "10", "factor=1.8", "theory"]) assert.ok(texts.includes(text), text);
  const narrow = drawn(BigChart, { name: "given", lines, wide: 330, high: 300, planned: 10 });
  assert.equal(named(narrow, "figcaption")[0].textContent, "givenfactor=1.8theory");
});
