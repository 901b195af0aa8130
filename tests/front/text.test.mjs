import assert from "node:assert/strict";
import { test } from "node:test";

import {
  beginning, change, clip, decimals, diff, fieldsIn, figure, flatten, inWords, marksIn, plural,
  slots, visible,
} from "../../llmsim_lab/run/front/text.js";

const whole = (pieces) => pieces.map((piece) => piece.text).join("");
const side = (rows, name) => (
  rows.filter((row) => row[name]).map((row) => whole(row[name])).join("\n"));
const changed = (pieces) => pieces.filter((piece) => piece.changed).map((piece) => piece.text);

test("hidden characters are written out, ends of lines are not", () => {
  assert.equal(visible("a\u202eb\u0007\u200bc\tz\r\nd"), "a⟨U+202E⟩b␇⟨U+200B⟩c\tz\nd");
  assert.equal(visible("\ud800 👩‍🚀"), "⟨U+D800⟩ 👩‍🚀");
});

test("figures have a true minus, thousands and two decimals", () => {
  assert.deepEqual([3, -1234, 0.5, -0.004, 2e7 + 0.5, -0].map(figure),
    ["3", "−1,234", "0.50", "−0.00400", "2.00e+7", "0"]);
  assert.deepEqual([null, true, "x", [1, "a"], { a: 1 }].map(figure),
    ["", "true", "x", "1, a", '{"a":1}']);
});

test("a number is rounded as Python rounds it, so that window and tables say the same", () => {
  assert.deepEqual([4.625, 2.125, -4.625, 9.375, 2.675, 2.665, 1e7 + 0.125].map(decimals),
    ["4.62", "2.12", "−4.62", "9.38", "2.67", "2.67", "10,000,000.12"]);
});

test("a change has a sign, and is nothing where nothing changed", () => {
  assert.deepEqual([change(2, 3), change(2.5, 1.5), change(0.3, 0.1 + 0.2), change(1, "x")],
    ["+1", "−1.00", "", ""]);
});

test("a text is clipped and counted whole", () => {
  assert.equal(clip("ab👍cd", 4), "ab…");
  assert.equal(clip("abcd", 4), "abcd");
  assert.equal(plural(1, "call") + plural(2000, "call"), "1 call2,000 calls");
});

test("the fields of a reply are read, whatever stands around them", () => {
  assert.deepEqual(fieldsIn('Sure: {"rate": 1} done'), { rate: 1 });
  assert.equal(fieldsIn("no {fields} here"), null);
  assert.equal(fieldsIn("[1]"), null);
});

test("a nested value is told by its paths, numbers as numbers", () => {
  const value = { rate: 5.25, party: { "on alert": true, list: [1, "a"] }, rows: [{ x: null }] };
  assert.deepEqual([...flatten(value)], [["rate", 5.25], ["party · on alert", "true"],
    ["party · list", "1, a"], ["rows · 0 · x", "null"]]);
});

test("fields are told in words, an action or a text alone for itself", () => {
  const words = (fields) => inWords([...flatten(fields)]);
  assert.equal(words({ action: "raise", new_rate: 5.25, is_valid: false, accepted: true }),
    "raise · new rate 5.25 · is not valid · accepted");
  assert.equal(words({ vote: "yes" }), "yes");
  assert.equal(words({ coins: { Ann: 3 }, note: null, why: "" }), "coins · Ann 3");
});

test("the beginning of a text cuts no piece in the middle of a letter", () => {
  const pieces = [{ text: "ab" }, { text: "c👍d", name: "slot" }, { text: "e" }];
  assert.deepEqual(beginning(pieces, 4), [{ text: "ab" }, { text: "c", name: "slot" }]);
  assert.deepEqual(beginning(pieces, 9), pieces);
});

test("hits are marked in any case, and nothing of a search is a pattern", () => {
  const marks = (text, wanted) => marksIn([{ text }], wanted)[0].parts;
  const hits = (...given) => marks(...given).filter((it) => it.hit).map((it) => it.text);
  assert.deepEqual(hits("Rate, RATE.", "rate"), ["Rate", "RATE"]);
  assert.deepEqual(marks("a+b aab", "a+b").map((it) => it.text), ["a+b", " aab"]);
  assert.deepEqual(hits("aaa", "a"), ["a", "a", "a"]);
  assert.deepEqual(hits("İi i", "i").length, 2);
  assert.deepEqual(marks("aa", ""), [{ text: "aa", hit: false }]);
});

test("slots are cut out by their places, and a hit may lie over a border", () => {
  const form = [[0, "who", "nation.name", 2], [1, "other", "", null], [0, "rate", "state.rate", 1]];
  const pieces = slots("I am Hawk at 5 percent", form, [5, 4, 0, 3, 13, 1], 0);
  assert.deepEqual(pieces.map((it) => [it.text, it.name]),
    [["I am ", undefined], ["Hawk", "who"], [" at ", undefined], ["5", "rate"],
      [" percent", undefined]]);
  const parts = marksIn(pieces, "am hawk at 5").flatMap((it) => it.parts).filter((it) => it.hit);
  assert.equal(whole(parts), "am Hawk at 5");
});

test("a difference shows changed words and keeps both texts", () => {
  const one = "system\nThe rate is 5.25 percent.\nend";
  const other = "system\nThe rate was 5.50 percent.\nend\nnew";
  const rows = diff(one, other);
  assert.equal(side(rows, "a"), one);
  assert.equal(side(rows, "b"), other);
  assert.deepEqual(rows.map((row) => Boolean(row.same)), [true, false, true, false]);
  assert.deepEqual([changed(rows[1].a), changed(rows[1].b)], [["is 5.25"], ["was 5.50"]]);
});

test("a difference keeps both texts whatever they are", () => {
  let seed = 1;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  const text = () => Array.from({ length: random(9) }, () => "ab \n"[random(4)]).join("");
  for (let round = 0; round < 3000; round += 1) {
    const [one, other] = [text(), text()], rows = diff(one, other);
    assert.equal(side(rows, "a"), one);
    assert.equal(side(rows, "b"), other);
  }
});

test("long texts with nothing in common are compared line by line", () => {
  const lines = (word) => Array.from({ length: 20000 }, (_, n) => `${word} ${n}`).join("\n");
  assert.equal(diff(lines("one"), lines("other")).length, 20000); // all pairs would take hours
});
