import assert from "node:assert/strict";
import { test } from "node:test";

import { makePlace } from "./dom_kit.mjs";
import { h, patch } from "../../llmsim_lab/run/front/dom.js";
import { Form } from "../../llmsim_lab/run/front/form.js";

const all = (node) => [node, ...node.childNodes.flatMap(all)];
const field = (name, schema, more) => (
  { place: [name], label: name, help: "", schema, value: null, ...more });

/** A form in a fake page: `named(name)` finds elements, `typed` is what was typed. */
function makeForm(fields, more) {
  const place = makePlace(), typed = {}, sent = [];
  const store = { ui: {} };
  const draw = () => patch(place, h(Form, { store, label: "Answer", kind: "1", fields, typed,
    submit: "Send", send: (values) => sent.push(values), ...more }));
  store.changed = draw;
  store.show = (next) => { Object.assign(store.ui, next); draw(); };
  draw();
  const named = (name) => all(place).filter((it) => it.localName === name);
  return { place, named, typed, sent };
}

const AMOUNT = field("amount", { type: "integer", minimum: 0 }, { help: "coins for the pot" });
const WHY = field("reasoning", { type: "string", optional: true });

test("what is wrong stands at its field, and a screen reader is told so", () => {
  const { named } = makeForm([AMOUNT, WHY], { faults: { amount: "must be at most 20" } });
  const [input] = named("input"), words = named("small").map((it) => it.textContent);
  assert.deepEqual(words, ["amount must be at most 20.", "coins for the pot"]);
  assert.equal(input.attributes["aria-invalid"], "true");
  const ids = named("small").map((it) => it.attributes.id);
  assert.equal(input.attributes["aria-describedby"], ids.join(" "));
});

test("what was wrong is not said of what is typed next", () => {
  const { named } = makeForm([AMOUNT], { faults: { amount: "must be at most 20" } });
  const [input] = named("input");
  input.value = "2";
  input.fire("input");
  assert.equal(input.attributes["aria-invalid"], undefined);
  assert.deepEqual(named("small").map((it) => it.textContent), ["coins for the pot"]);
});

test("a field that is called as what every object has is not wrong from the start", () => {
  for (const name of ["constructor", "toString", "__proto__"]) {
    assert.equal(makeForm([field(name, { type: "number" })]).named("small").length, 0);
  }
});

test("a group of many fields is folded until one looks for one of them", () => {
  const cash = Array.from({ length: 13 }, (_, at) => field(`cash.${at}`, { type: "number" }));
  const { named } = makeForm(cash);
  assert.equal(named("summary")[0].textContent, "cash · 13 fields");
  assert.equal(named("label").length, 0);
  const [search] = named("input");
  search.value = "cash.1";
  search.fire("input");
  assert.deepEqual(named("label").map((it) => it.textContent),
    ["cash.1", "cash.10", "cash.11", "cash.12"]);
});

test("a question's optional fields are folded, unless one is wrong; a setting's are not", () => {
  assert.equal(makeForm([AMOUNT, WHY], { asks: true }).named("input").length, 1);
  const faults = { reasoning: "is too long" };
  assert.equal(makeForm([AMOUNT, WHY], { asks: true, faults }).named("input").length, 2);
  assert.equal(makeForm([AMOUNT, WHY]).named("input").length, 2);
});

test("a question with few answers shows them all; a setting shows the one in force", () => {
  const accept = field("accept", { type: "boolean" });
  const { named, typed, sent } = makeForm([accept], { asks: true, words: { yes: "ja" } });
  assert.deepEqual(named("label").map((it) => it.textContent), ["ja", "no"]);
  const [yes] = named("input");
  yes.value = "true";
  yes.fire("change");
  assert.equal(typed[0], "true");
  named("form")[0].fire("submit");
  assert.deepEqual({ ...sent[0] }, { accept: "true" });
  assert.equal(makeForm([accept]).named("select").length, 1);
});

test("fields whose labels begin alike stand in a group", () => {
  const number = (label) => field(label, { type: "number" }, { label });
  const { named } = makeForm(["Seed", "Economy · shock scale", "Economy · gap noise"].map(number));
  assert.deepEqual(named("legend").map((it) => it.textContent), ["Economy"]);
  assert.deepEqual(named("label").map((it) => it.textContent),
    ["Seed", "Shock scale", "Gap noise"]);
});

test("ten fields and more can be searched, and keep what was typed", () => {
  const names = Array.from({ length: 10 }, (_, at) => `rate ${at}`);
  const { named, typed } = makeForm(names.map((name) => field(name, { type: "number" })));
  const search = () => named("input").find((it) => it.attributes.type === "search");
  typed[3] = "5";
  search().value = "Rate 3";
  search().fire("input");
  assert.deepEqual(named("label").map((it) => it.textContent), ["rate 3"]);
  assert.equal(named("input").at(-1).value, "5");
  assert.equal(makeForm([AMOUNT]).named("input").length, 1);
});

test("of a long help the first sentence is shown, the rest folds out", () => {
  const help = `how far the others follow; ${"more of it ".repeat(12)}`;
  const { named } = makeForm([field("bp", { type: "number" }, { help })]);
  assert.equal(named("summary")[0].textContent, "how far the others follow");
});
