import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { beforeEach, test } from "node:test";

import { makePlace } from "./dom_kit.mjs";
import { mount } from "../../llmsim_lab/room/front/guest.js";

const WORDS_FILE = new URL("../../llmsim_lab/room/front/words.json", import.meta.url);
globalThis.WORDS = JSON.parse(readFileSync(WORDS_FILE));

// As much of a browser as the page uses.
const kept = new Map();
const page = { scrollTo() {} };
const frames = [];
Object.assign(globalThis, {
  window: page,
  location: { hash: "#secret", search: "", reload() { page.reloaded = true; } },
  addEventListener() {},
  setInterval() {},
  requestAnimationFrame: (draw) => frames.push(draw),
  matchMedia: () => ({ matches: false, addEventListener() {} }),
  sessionStorage: {
    getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, text),
  },
  EventSource: class {
    constructor() { page.line = this; }
    addEventListener() {}
    close() {}
  },
});
Object.assign(document, { hidden: false, addEventListener() {}, querySelector: () => null });

const ABOUT = { room: "r", title: "Pot", welcome: "", labels: false, joined: true };
const QUESTION = { id: "q1", draft: "1 gift", turn: 1, text: "How much?", fault: "", faults: {},
  fields: [{ place: ["amount"], label: "Amount", help: "", schema: { type: "integer" },
    value: null }] };
const VIEW = { epoch: "e", at: Date.now() / 1000, guest: "p1", name: "Ana", seat: "Bob", round: 1,
  turn: 0, planned: 3 };
const all = (node) => [node, ...node.childNodes.flatMap(all)];
const settle = async () => {
  for (let at = 0; at < 20; at += 1) {
    await Promise.resolve();
    for (const draw of frames.splice(0)) draw();
  }
};

/** The page with a server that answers `about`, then `answers` in a row to what is posted. */
async function open(about = ABOUT, answers = []) {
  const place = Object.assign(makePlace(), { classList: { add() {} }, dataset: {} }), sent = [];
  globalThis.fetch = async (address, { body } = {}) => {
    if (body) sent.push({ address, ...JSON.parse(body) });
    const [status, words] = body ? answers.shift() : [200, about];
    return { ok: status === 200, status, json: async () => words };
  };
  await mount(place);
  await settle();
  const show = async (view) => {
    page.line.onmessage({ data: JSON.stringify({ ...VIEW, ...view }) });
    await settle();
  };
  const find = (name) => all(place).filter((it) => it.localName === name);
  const type = async (input, text) => { input.value = text; input.fire("input"); await settle(); };
  const submit = async () => { find("form")[0].fire("submit"); await settle(); };
  return { text: () => place.textContent, show, find, type, submit, sent };
}

beforeEach(() => kept.clear());

test("joining sends the name and the link's secret; a fault is said", async () => {
  const wrong = { error: "wrong_code", fault: "This is not the code on the screen." };
  const { find, type, submit, sent, text } = await open(
    { ...ABOUT, joined: false, welcome: "We keep no names." }, [[403, wrong]]);
  assert.match(text(), /We keep no names\./);
  const [name, tick] = find("input");
  await type(name, " Ana ");
  tick.checked = true;
  tick.fire("change");
  await submit();
  assert.deepEqual(sent, [{ address: "join", name: "Ana", agreed: true, secret: "secret" }]);
  assert.match(text(), /This is not the code on the screen\./);
});

test("what was typed is there after the page was loaded again, not in the next question",
  async () => {
    const first = await open();
    await first.show({ step: "ask", ask: QUESTION });
    const [input] = first.find("input");
    input.value = "7";
    input.fire("input");
    frames.length = 0; // gone before it was drawn
    const again = await open();
    await again.show({ step: "ask", ask: QUESTION });
    assert.equal(again.find("input")[0].value, "7");
    await again.show({ step: "ask", turn: 1, ask: { ...QUESTION, id: "q2", draft: "2 gift" } });
    assert.equal(again.find("input")[0].value ?? "", "");
  });

test("an answer that is not taken says why at its field, and can be sent again", async () => {
  const refused = { error: "faults", fault: "amount is 99", faults: { amount: "at most 20" } };
  const { show, type, find, submit, sent, text } = await open(ABOUT, [[409, refused], [200, {}]]);
  await show({ step: "ask", ask: QUESTION });
  await type(find("input")[0], "99");
  await submit();
  assert.match(text(), /Please look at it again\..*at most 20/);
  await type(find("input")[0], "9");
  await submit();
  assert.deepEqual(sent.map(({ values }) => values.amount), ["99", "9"]);
  await show({ step: "wait", waiting: { count: 2, seats: ["Cy", "Di"], since: VIEW.at } });
  assert.match(text(), /Sent\. Thank you\. Waiting for Cy, Di\. \d s/);
});

test("each step says where the game is, and what one is told", async () => {
  const { show, text, find } = await open();
  const told = { told: [["you_earned", 23.5]], told_turn: 1 };
  await show({ step: "lobby", here: 1, seats: 4, seat: undefined });
  assert.match(text(), /You are in, Ana\. It begins soon\.You are the first\./);
  await show({ step: "filled", turn: 1, ...told });
  assert.match(text(), /You were away.*I am back.*you earned23\.50/);
  await show({ step: "done", turn: 3, payoff: 70, code: "K3VX", again: true, ...told });
  assert.match(text(), /Your payoff70Your codeK3VX/);
  assert.deepEqual(find("a").map((it) => [it.textContent, it.attributes.href]),
    [["Download my answers", "answers"]]);
});

test("another process of the server loads the page anew", async () => {
  const { show } = await open();
  await show({ step: "held" });
  await show({ step: "held", epoch: "f" });
  assert.ok(page.reloaded);
});
