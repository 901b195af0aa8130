// A conversation with the assistant: bubbles, the tools that were used, yes and no.
import { Passage, soft } from "./calls.js";
import { plain } from "./chart.js";
import { h } from "./dom.js";
import { Fold } from "./fold.js";
import { addView } from "./view.js";

function Chat({ store }) {
  const { reading, live, ui, commands } = store, parts = reading.partsOf("chat");
  const { user, count = 0, inbox, pending } = parts.get("now") ?? {}, busy = Boolean(live.busy);
  const said = Array.from({ length: count }, (_, at) => [at + 1, parts.get(at + 1)]);
  const onsubmit = (event) => { event.preventDefault(); sendMessage(store); };
  return h("section", { class: "chat", "aria-label": `Conversation of ${user}` },
    h("div", { class: "talk", role: "log", tabindex: "0", "aria-label": "Conversation" },
      !count && !inbox && soft("No messages yet."),
      said.map(([n, one]) => h(Exchange, { key: n, store, n, ...one })),
      inbox && [h(Bubble, { key: "inbox", store, id: "inbox", mine: true, text: inbox }),
        busy ? h("p", { class: "soft", role: "status" }, "The assistant is working …")
          : h("p", { class: "row" }, soft("Not answered."),
            plain("Send it again", () => sendMessage(store, inbox)))]),
    pending && !busy && h(Pending, { store, ...pending }),
    h("form", { class: "row mid write", onsubmit },
    h("textarea", { rows: 2, "aria-label": "Message", ref: (el) => { ui.box = el; },
      placeholder: "Enter sends, Shift+Enter starts a new line" }),
    busy ? h("button", { type: "button", onclick: () => commands({ do: "stop" }) }, "Stop")
      : h("button", { class: "primary", type: "submit" }, "Send")),
    h("div", { class: "row end" }, h("small", null, `as ${user}`)));
}

function sendMessage(store, text = store.ui.box.value) {
  if (!text.trim() || store.live.busy) return;
  store.ui.box.value = "";
  store.ui.box.focus();
  store.commands({ do: "send", text });
}

const Bubble = ({ store, id, mine, text }) => h("div", { class: `bubble${mine ? " mine" : ""}`,
  ref: ({ parentNode }) => { parentNode.scrollTop = parentNode.scrollHeight; } },
  h("span", { class: "hidden" }, mine ? "You:" : "Assistant:"), h(Passage, { store, id, text }));

const Exchange = ({ store, n, message, answer, tools }) => [
  h(Bubble, { store, id: `said ${n}`, mine: true, text: message }),
  h(Bubble, { store, id: `answer ${n}`, text: answer }),
  tools.map(([title, told], at) => h(Fold, { key: at, store, id: `tool ${n} ${at}`, title },
    () => told.map(([name, text]) => [h("h4", null, name),
      h(Passage, { store, id: `tool ${n} ${at} ${name}`, text, mono: true })])))];

/** What waits for a yes, and whose it is. */
function Pending({ store, id, what, who }) {
  const say = (yes) => { store.ui.box.focus(); store.commands({ do: "confirm", id, yes }); };
  return h("div", { class: "card row mid", role: "group", "aria-label": "Confirmation" },
    h("p", null, h("b", null, `Shall I ${what}?`), " ",
      h("small", null, `Only ${who} can say yes.`)),
    h("button", { class: "primary", onclick: () => say(true) }, `Yes, ${what}`),
    h("button", { onclick: () => say(false) }, "No"));
}

/** Enter sends what is written; with Shift it starts a new line. */
function onChatKey(store, { key, shiftKey }, target) {
  if (target !== store.ui.box || key !== "Enter" || shiftKey) return false;
  sendMessage(store);
  return true;
}

addView("chat", { draw: Chat, ofRun: true, onKey: onChatKey });
