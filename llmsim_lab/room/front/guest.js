// The participant's page: joining, the question, who is waited for, one's own result.

import { h } from "../../run/front/dom.js";
import { Form } from "../../run/front/form.js";
import { facts, figure, labelled } from "../../run/front/text.js";
import { ask, post } from "./connection.js";
import { keepUp, Line, makeStore } from "./common.js";
import { Prose } from "./prose.js";
import { duration, say } from "./words.js";

const AGAIN_MS = 2_000; // until an answer that reached nobody is sent once more
const MOST_NAMES = 6; // of those who are waited for
const LAST_S = 10; // of the clock, which are said aloud

const STEPS = {
  lobby: { headline: ({ name }) => say("lobby", { name }), draw: Lobby },
  full: { headline: () => say("full") },
  opening: { headline: () => say("opening") },
  ask: { headline: ({ ask: { turn }, planned }) => say("turn", { turn, planned }), draw: Question },
  wait: { headline: ({ turn, planned }) => nextTurn(turn, planned), draw: Wait },
  held: { headline: () => say("held"), draw: Result },
  filled: { headline: () => say("filled"), draw: Filled },
  closing: { headline: () => say("closing"), draw: Question },
  done: { headline: () => say("done"), draw: Done },
};

const nextTurn = (turn, planned) => say("turn", { turn: Math.min(turn + 1, planned), planned });

export async function mount(el) {
  const store = makeStore(el, Guest), { changed } = store;
  // At each key, not with the next frame, before which the page may be gone.
  store.changed = () => {
    keepTyped(store);
    changed();
  };
  // The answer to "about" tells if this browser has joined; without one the line is tried again.
  store.enter = async () => {
    const about = await ask("about");
    if (!about.ok) {
      store.set({ lost: true });
      setTimeout(store.enter, AGAIN_MS);
    } else if (about.joined) {
      store.set({ about, lost: false });
      if (store.reopen) store.reopen();
      else keepUp(store, store.enter);
    } else store.set({ about, view: null, lost: false });
  };
  await store.enter();
}

function Guest({ store }) {
  const { view, about } = store;
  if (!view) {
    return h("main", null, h(Line, { store }), about && !about.joined && h(Join, { store, about }));
  }
  const { headline, draw } = STEPS[view.step], words = headline(view);
  const waits = view.ask != null;
  document.title = facts(waits && "●", words, about?.title);
  return h("main", { class: view.step },
    h(Top, { store, view }),
    h(Line, { store }),
    // At each new step it is read aloud, and brought into sight.
    h("h1", { key: `${view.step} ${view.ask?.id}`, tabindex: "-1", ref: arrive }, words),
    draw && h(draw, { key: view.step, store, view }));
}

/** Begin a step at its headline: at the top, and with the focus where its old place is gone. */
function arrive(el) {
  const { activeElement } = document;
  if (activeElement && activeElement !== document.body) return; // a field that somebody is in
  el.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

/** Which game, which seat, and the clock. */
function Top({ store, view }) {
  const until = view.ask?.until;
  return h("header", null,
    h("span", { class: "soft" }, store.about?.title),
    view.seat && h("span", { class: "soft" }, say("plays", { seat: view.seat })),
    until && h(Clock, { left: -store.since(until) }));
}

function Clock({ left }) {
  const soon = left <= LAST_S;
  return [
    h("span", { class: soon ? "clock soon" : "clock", role: "timer" },
      say("left", { time: duration(left) })),
    h("span", { class: "hidden", role: "status" }, soon && say("left", { time: `${LAST_S} s` })),
  ];
}

// --- joining -------------------------------------------------------------------------------------

function Join({ store, about }) {
  const { ui } = store, linked = new URLSearchParams(location.search).get("id");
  const secret = location.hash.slice(1); // what a QR code has; the code is for those who type
  const onsubmit = (event) => {
    event.preventDefault();
    join(store, { secret, linked });
  };
  let who = h(JoinField, { key: "name", store, name: "name", maxlength: 40 });
  if (about.labels) who = h(JoinField, { key: "label", store, name: "label" });
  if (about.labels && linked) who = h("p", null, say("joins_as", { label: linked }));
  return h("div", { class: "join" },
    h("h1", null, about.title || say("join_title")),
    about.welcome && h(Prose, { text: about.welcome }),
    h("form", { class: "card", "aria-label": say("join_title"), onsubmit },
      who,
      !secret && h(JoinField, { key: "code", store, name: "code", class: "code", maxlength: 12,
        autocapitalize: "characters", spellcheck: "false" }),
      about.welcome && h("label", { class: "tick" },
        h("input", { type: "checkbox", required: true,
          onchange: ({ target }) => store.show({ agreed: target.checked }) }),
        say("agree")),
      store.fault && h("p", { class: "fault", role: "alert" }, store.fault),
      h("button", { class: "primary", type: "submit", "aria-disabled": Boolean(ui.joining) },
        say("join"))));
}

const JoinField = ({ store, name, ...props }) => h("div", { class: "field" },
  h("label", null, h("span", null, say(name)), h("input", {
    type: "text", required: true, autocomplete: "off", value: store.ui[name],
    oninput: ({ target }) => store.show({ [name]: target.value }), ...props })));

async function join(store, { secret, linked }) {
  const { name = "", code = "", agreed = false, joining } = store.ui;
  const label = linked ?? store.ui.label?.trim();
  if (joining) return;
  store.set({ fault: "" });
  store.show({ joining: true });
  const message = { name: name.trim(), agreed };
  if (label) message.id = label;
  if (secret) message.secret = secret;
  else message.code = code.trim().toUpperCase();
  const answer = await post("join", message);
  store.show({ joining: false });
  if (answer.ok) await store.enter();
  else store.set({ fault: answer.fault ?? say("lost") });
}

// --- a question ----------------------------------------------------------------------------------

/** What was typed for a question; it outlives a reload, not the tab. */
function typedFor(store, { guest, round, ask: { draft } }) {
  const key = `${store.about?.room} ${guest} ${round} ${draft}`;
  if (store.typedKey !== key) {
    let kept = {};
    try {
      kept = JSON.parse(sessionStorage.getItem(key)) ?? {};
    } catch { /* a browser that keeps nothing */ }
    Object.assign(store, { typedKey: key, typed: kept });
  }
  return store.typed;
}

function keepTyped({ typedKey, typed }) {
  if (!typedKey) return;
  try {
    sessionStorage.setItem(typedKey, JSON.stringify(typed));
  } catch { /* a browser that keeps nothing */ }
}

function Question({ store, view }) {
  const { ask: { id, text, fields } } = view, typed = typedFor(store, view);
  const { fault, faults } = store.wrong?.id === id ? store.wrong : view.ask;
  // They say what is wrong.
  const atFields = fields.some(({ place }) => Object.hasOwn(faults ?? {}, place.join(".")));
  const message = atFields ? say("look_again") : fault;
  return [
    h(Result, { key: "result", store, view }),
    h(Prose, { key: "text", text }),
    h(Form, { key: id, store, label: STEPS[view.step].headline(view), kind: id,
      asks: true, fields, typed,
      faults,
      words: { reasons: say("reasons"), yes: say("yes"), no: say("no") },
      submit: store.sending === id ? say("sending") : say("answer"),
      send: (values) => send(store, { do: "answer", id, values }) },
    message && h("p", { class: "fault", role: "alert" }, message)),
  ];
}

/** Send an answer until the server has it, or the question is closed. */
async function send(store, message) {
  const { id } = message;
  if (store.sending === id) return;
  store.set({ sending: id, wrong: null });
  let answer = await post("do", message);
  while (answer.status === 0 && store.view?.ask?.id === id) {
    store.set({ lost: true });
    await new Promise((done) => { setTimeout(done, AGAIN_MS); });
    answer = await post("do", message);
  }
  store.set({ sending: null });
  if (answer.ok) return store.set({ lost: false, answered: id });
  if (answer.error === "closed") return; // by another tab, or by the clock: the view says so
  const { fault = say("lost"), faults = {} } = answer;
  store.set({ wrong: { id, fault, faults } });
  store.draw();
  document.querySelector("[aria-invalid=true]")?.focus();
}

/** What one is told of the latest turn. */
function Result({ view: { told = [], told_turn: turn } }) {
  const title = say("result", { turn });
  return told.length > 0 && h("section", { class: "result", "aria-label": title },
    h("h2", null, title),
    h("dl", null, told.map(([name, value]) => {
      const { label, unit } = labelled(name);
      return h("div", { key: name }, h("dt", null, label),
        h("dd", null, `${figure(value)} ${unit}`.trim()));
    })));
}

// --- the other steps -----------------------------------------------------------------------------

function Lobby({ view: { here, seats } }) {
  return h("p", { class: "soft", role: "status" }, say("here", { n: here, seats }));
}

function Wait({ store, view }) {
  const { count = 0, seats, since } = view.waiting ?? {};
  const words = count > MOST_NAMES ? say("waits", { n: count })
    : count > 0 && say("waits_for", { names: seats.join(", ") });
  return [
    h("p", { key: "words", class: "waits" },
      h("span", { role: "status" }, store.answered && say("sent"), " ", words),
      since && h("span", { class: "soft" }, " ", duration(store.since(since)))),
    h(Result, { key: "result", view }),
  ];
}

function Filled({ view }) {
  const back = () => post("do", { do: "back" });
  return [
    h("button", { class: "primary", type: "button", onclick: back }, say("back")),
    h(Result, { view }),
  ];
}

function Done({ view }) {
  const { code, payoff, again } = view;
  return [
    again && h("p", { class: "soft" }, say("again")),
    h("dl", { class: "ending" },
      payoff != null && h("div", null, h("dt", null, say("payoff")), h("dd", null, figure(payoff))),
      code && h("div", null, h("dt", null, say("own_code")), h("dd", { class: "code" }, code))),
    h(Result, { view }),
    h("p", null, h("a", { href: "answers", download: "" }, say("download"))),
  ];
}
