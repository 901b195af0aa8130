import assert from "node:assert/strict";
import { test } from "node:test";

import { makePlace } from "./dom_kit.mjs";
import { h, patch } from "../../llmsim_lab/run/front/dom.js";

const rows = (keys, props) => h("ul", null, keys.map((key) => h("li", { key, ...props }, key)));
const texts = (place) => place.childNodes[0].childNodes.map((it) => it.textContent).join("");

test("children with keys are moved, made and removed, and never made again", () => {
  const place = makePlace(), gone = [];
  patch(place, rows(["a", "b", "c"], { gone: (el) => gone.push(el.textContent) }));
  const [a, b, c] = place.childNodes[0].childNodes;
  patch(place, rows(["c", "d", "a"], {}));
  assert.equal(texts(place), "cda");
  assert.deepEqual([place.childNodes[0].childNodes[0], place.childNodes[0].childNodes[2]], [c, a]);
  assert.equal(b.parentNode, null);
  assert.deepEqual(gone, ["b"]);
});

test("an element with the focus is never moved", () => {
  const place = makePlace();
  patch(place, rows(["a", "b", "c", "d"]));
  const c = place.childNodes[0].childNodes[2];
  document.activeElement = c;
  for (const keys of [["d", "c", "a"], ["c", "e"], ["x", "y", "c"], ["b", "c", "x", "a"]]) {
    patch(place, rows(keys));
    assert.equal(texts(place), keys.join(""));
  }
  assert.equal(c.moved, undefined);
  document.activeElement = null;
});

test("a place without a child keeps the places of those after it", () => {
  const place = makePlace(), view = (open) => h("div", null, open && h("input"), h("input"));
  patch(place, view(false));
  const field = place.find("input");
  patch(place, view(true));
  assert.equal(place.childNodes[0].childNodes[1], field);
});

test("a field's value is written only when it changed, and never while it is typed in", () => {
  const place = makePlace(), view = (value) => h("input", { value });
  patch(place, view("one"));
  const field = place.childNodes[0];
  field.value = "typed";
  patch(place, view("one"));
  assert.equal(field.value, "typed");
  document.activeElement = field;
  patch(place, view("two"));
  assert.equal(field.value, "typed");
  document.activeElement = null;
  patch(place, view("three"));
  assert.equal(field.value, "three");
});

test("a Japanese word that is being written survives any number of drawings", () => {
  const place = makePlace();
  const view = (value, others) => h("form", null, others.map((key) => h("p", { key }, key)),
    h("label", { key: "word" }, h("input", { value, oninput: () => {} })), h("p", null, value));
  patch(place, view("", ["a"]));
  const field = place.find("input");
  document.activeElement = field;
  let value = "", writes = 0;
  Object.defineProperty(field, "value", { get: () => value, set: () => { writes += 1; } });
  for (const text of ["n", "に", "にほ", "にほん", "日本"]) {
    value = text; // by the input method, which starts anew if the field is written or moved
    for (const others of [["b", "a"], [], ["a", text]]) patch(place, view(text, others));
    assert.equal(place.find("input"), field);
    assert.equal(field.value, text);
  }
  assert.equal(writes, 0);
  assert.equal(field.moved ?? field.parentNode.moved, undefined);
  document.activeElement = null;
});

test("events go to the handler of the last drawing, once", () => {
  const place = makePlace(), heard = [];
  const view = (name) => h("button", name ? { onclick: () => heard.push(name) } : {});
  for (const name of ["first", "", "second"]) {
    patch(place, view(name));
    place.childNodes[0].fire("click");
  }
  assert.deepEqual(heard, ["first", "second"]);
});

test("SVG is in its namespace, and what is no child draws nothing", () => {
  const place = makePlace();
  patch(place, h("p", null, null, false, "", 0, h("svg", null, h("path", { d: "M0 0" }))));
  assert.equal(place.find("path").namespaceURI, "http://www.w3.org/2000/svg");
  assert.equal(place.find("p").childNodes.length, 2);
  assert.equal(place.textContent, "0");
});

test("hidden characters are written out in every text and attribute", () => {
  const place = makePlace();
  patch(place, h("p", { title: "a\u202eb" }, "c\u200bd", h("b", null, "\u0007")));
  assert.equal(place.textContent, "c⟨U+200B⟩d␇");
  assert.equal(place.find("p").attributes.title, "a⟨U+202E⟩b");
});

test("attributes: true is empty, false is none but a word for aria, null takes it away", () => {
  const place = makePlace();
  patch(place, h("button", { disabled: true, hidden: false, "aria-pressed": false, title: "t" }));
  const button = place.childNodes[0];
  assert.deepEqual(button.attributes, { disabled: "", "aria-pressed": "false", title: "t" });
  patch(place, h("button", { "aria-pressed": null }));
  assert.deepEqual(button.attributes, {});
});

test("a view that throws leaves what was drawn", () => {
  const place = makePlace(), Broken = () => { throw new Error("no"); };
  patch(place, h("p", null, "before"));
  assert.throws(() => patch(place, h("div", null, h("p", null, "after"), h(Broken))));
  assert.equal(place.textContent, "before");
});

test("a description given again is not looked at again", () => {
  const place = makePlace();
  let drawn = 0;
  const View = () => { drawn += 1; return h("p", null, "text"); };
  const kept = h(View);
  for (const key of [1, 2, 3]) patch(place, h("div", { "data-key": key }, kept));
  assert.equal(drawn, 1);
  assert.equal(place.textContent, "text");
});

test("ref is called once, when all is in its place, and gone when it is removed", () => {
  const place = makePlace(), heard = [];
  const view = () => h("div", null, h("p", {
    ref: (el) => heard.push(el.parentNode?.parentNode === place), gone: () => heard.push("gone"),
  }));
  patch(place, view());
  patch(place, view());
  patch(place, null);
  assert.deepEqual(heard, [true, "gone"]);
});
