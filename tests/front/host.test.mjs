import assert from "node:assert/strict";
import { test } from "node:test";

import { makePlace } from "./dom_kit.mjs";
import { ALL, run, turn } from "./view_kit.mjs";
import widget from "../../llmsim_lab/run/front/host.js";

const nothing = () => {}, listens = { addEventListener: nothing, removeEventListener: nothing };
Object.assign(document, {
  createElement: makePlace, documentElement: makePlace(), body: makePlace(),
});
Object.assign(globalThis, {
  CSS: "", ...listens, matchMedia: () => listens, getComputedStyle: () => ({ backgroundColor: "" }),
  CSSStyleSheet: class { replaceSync() {} },
  MutationObserver: class { observe() {} },
  requestAnimationFrame: (act) => { setTimeout(act); return 1; },
});

/** A widget in a page: `say` is what its kernel does, `fault` what its view shows of faults. */
function makeWidget() {
  const { initialize, render } = widget(), heard = {}, root = { append: nothing };
  const traits = { panels: ALL }, el = { classList: { add: nothing }, dataset: {} };
  initialize({ model: {
    get: (name) => traits[name], send: nothing, on: (name, act) => { heard[name] = act; },
  } });
  el.appendChild = (inner) => Object.assign(inner, { attachShadow: () => root });
  root.append = (place) => { root.place = place; };
  render({ el });
  const all = (node) => [node, ...node.childNodes.flatMap(all)];
  return {
    say: async (message) => {
      heard["msg:custom"](message, []);
      // Rounds of the event loop, which a busy machine makes longer and not fewer.
      for (let round = 0; round < 10; round += 1) {
        await new Promise((done) => { setTimeout(done, 1); });
      }
    },
    fault: () => all(root.place).find((it) => it.attributes?.class === "fault")?.textContent,
  };
}

test("a fault of an answer goes when its question is answered elsewhere, others stay", async () => {
  const { say, fault } = makeWidget(), ask = { id: 1, who: "Bern", turn: 1, fields: [] };
  await say({ at: 0, records: [run(1), turn(1, 0, [])] });
  await say({ ask: { ...ask, text: "" } });
  await say({ fault: "not sent", of: "answer" });
  await say({ ask: { ...ask, text: "again" } });
  assert.equal(fault(), "Not sent");
  await say({ ask: null });
  assert.equal(fault(), undefined);
  await say({ fault: "no such turn", of: "form" });
  await say({ ask: { ...ask, id: 2, text: "" } });
  assert.equal(fault(), "No such turn");
});
