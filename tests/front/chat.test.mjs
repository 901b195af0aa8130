import assert from "node:assert/strict";
import { test } from "node:test";

import { makeWindow, run, turn } from "./view_kit.mjs";
import "../../llmsim_lab/run/front/chat.js";

const part = (key, value) => ({ part: { kind: "chat", key, value } });

/** A conversation of Ann's; `write` types into its box. */
function makeChat(now, { said = [], live } = {}) {
  const window = makeWindow([run(1), turn(1, 0, []), part("now", { user: "ann", ...now }),
    ...said.map((one, at) => part(at + 1, { tools: [], ...one }))], { panels: ["chat"], live });
  const box = () => window.find((it) => it.localName === "textarea");
  const form = () => window.find((it) => it.localName === "form");
  return { ...window, form, write: (text) => { box().value = text; },
    press: (key, more) => window.press(key, box(), more) };
}

test("what is written is sent by the button and by Enter, once and not empty", () => {
  const { text, form, write, press, sent } = makeChat({ count: 0 });
  assert.match(text(), /No messages yet\./);
  write("Hello");
  form().fire("submit");
  write("Again");
  press("Enter", { shiftKey: true });
  press("Enter");
  form().fire("submit"); // the box is empty by now
  assert.deepEqual(sent, [{ do: "send", text: "Hello" }, { do: "send", text: "Again" }]);
});

test("messages, answers and a message that is not answered yet are shown", () => {
  const said = [{ message: "Add milk", answer: "Done.", tools: [["add_task: done", []]] }];
  const { text, texts, button, sent } = makeChat({ count: 1, inbox: "And tea" }, { said });
  assert.deepEqual(texts("bubble"), ["You:Add milk", "Assistant:Done.", "You:And tea"]);
  assert.match(text(), /add_task: done.*Not answered\./);
  assert.doesNotMatch(text(), /No messages yet/);
  button("Send it again").fire("click");
  assert.deepEqual(sent, [{ do: "send", text: "And tea" }]);
  const busy = makeChat({ count: 1, inbox: "And tea" }, { said, live: { busy: true } });
  assert.match(busy.text(), /The assistant is working …/);
  busy.write("More");
  busy.press("Enter");
  busy.button("Stop").fire("click");
  assert.deepEqual(busy.sent, [{ do: "stop" }]);
});

test("what waits for a yes says whose it is, and is answered by a button", () => {
  const pending = { id: "7", what: "delete task 1", who: "ann" };
  const { text, button, sent } = makeChat({ count: 0, pending });
  assert.match(text(), /Shall I delete task 1\? Only ann can say yes\./);
  button("Yes, delete task 1").fire("click");
  button("No").fire("click");
  assert.deepEqual(sent.map((it) => [it.do, it.id, it.yes]),
    [["confirm", "7", true], ["confirm", "7", false]]);
});
