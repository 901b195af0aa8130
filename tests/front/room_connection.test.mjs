import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { follow, post } from "../../llmsim_lab/room/front/connection.js";

const listeners = new Map();
const hear = (name, act) => listeners.set(name, act);
globalThis.addEventListener = hear;
globalThis.document = { hidden: false, addEventListener: hear };

const lines = []; // each EventSource that was opened
globalThis.EventSource = class {
  constructor(address) {
    Object.assign(this, { address, closed: false, listeners: {} });
    lines.push(this);
  }
  addEventListener(name, act) { this.listeners[name] = act; }
  close() { this.closed = true; }
};

let answers; // of the server to fetch, in a row; the last one for ever
const asked = [];
globalThis.fetch = async (address, options) => {
  asked.push(address);
  const [status, body] = answers.length > 1 ? answers.shift() : answers[0];
  if (status === 0) throw new TypeError("no server");
  return { ok: status === 200, status, json: async () => body, options };
};

/** Let what waits for an answer go on. */
const settle = async () => { for (let at = 0; at < 10; at += 1) await Promise.resolve(); };

function begin() {
  const seen = [];
  follow({
    show: (view) => seen.push(view), lose: (lost) => seen.push(lost ? "lost" : "there"),
    leave: () => seen.push("left"), move: () => seen.push("moved"),
  });
  return { seen, line: lines.at(-1) };
}

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
  lines.length = asked.length = 0;
  answers = [[200, { step: "lobby" }]];
  document.hidden = false;
});

test("each view that the server sends is shown; a ping is none", () => {
  const { seen, line } = begin();
  line.onmessage({ data: '{"step":"ask"}' });
  line.listeners.ping();
  assert.deepEqual(seen, ["there", { step: "ask" }]);
});

test("a line that is cut is opened again by and by, until the server is back", async () => {
  answers = [[0], [0], [200, { step: "wait" }]];
  const { seen, line } = begin();
  line.onerror();
  await settle();
  assert.deepEqual(seen, ["lost"]);
  assert.ok(line.closed);
  for (let tries = 0; tries < 2; tries += 1) {
    mock.timers.tick(8_000);
    lines.at(-1).onerror();
    await settle();
  }
  assert.deepEqual(seen, ["lost", "lost", "there", { step: "wait" }]);
  mock.timers.tick(1_000);
  assert.deepEqual([lines.length, lines.at(-1).closed], [4, false]);
});

test("a server that does not know us is not asked for ever", async () => {
  answers = [[401, {}]];
  const { seen, line } = begin();
  line.onerror();
  await settle();
  mock.timers.tick(60_000);
  assert.deepEqual([seen, lines.length], [["left"], 1]);
});

test("a hidden tab has no line, and a phone that wakes up opens its own", () => {
  const { line } = begin();
  document.hidden = true;
  listeners.get("visibilitychange")();
  assert.ok(line.closed);
  mock.timers.tick(60_000);
  assert.equal(lines.length, 1);
  document.hidden = false;
  listeners.get("visibilitychange")();
  assert.equal(lines.length, 2);
});

test("behind a proxy that holds the stream back, the view is asked for", async () => {
  const { seen, line } = begin();
  for (let looks = 0; looks < 2; looks += 1) mock.timers.tick(3_000);
  await settle();
  assert.deepEqual(seen, ["there", { step: "lobby" }]);
  assert.equal(line.closed, false);
});

test("a line that a sleeping router forgot is opened anew", () => {
  const { line } = begin();
  line.onmessage({ data: "{}" });
  mock.timers.tick(45_000);
  line.listeners.ping();
  mock.timers.tick(45_000);
  assert.equal(lines.length, 1);
  mock.timers.tick(6_000);
  assert.deepEqual([lines.length, line.closed], [2, true]);
});

test("a line that other tabs took is not taken back by itself", () => {
  const { seen, line } = begin();
  line.listeners.moved();
  mock.timers.tick(60_000);
  assert.deepEqual([seen, lines.length, line.closed], [["moved"], 1, true]);
});

test("an answer says if it was taken, and that nobody answered", async () => {
  answers = [[200, {}], [409, { error: "closed", fault: "Too late." }], [0]];
  assert.deepEqual(await post("do", {}), { ok: true, status: 200 });
  assert.deepEqual(await post("do", {}),
    { ok: false, status: 409, error: "closed", fault: "Too late." });
  assert.deepEqual(await post("do", {}), { ok: false, status: 0 });
});
