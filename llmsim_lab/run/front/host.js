// The two hosts of the views: a page that was mailed, and a notebook's widget (anywidget).

import { h, patch } from "./dom.js";
import { Reading } from "./reading.js";
import "./prompts.js";
import "./study.js";
import { App, onKey } from "./view.js";

const SLOW_MS = 600; // after which a command without an answer is waited for in words
const ADDRESS_MS = 250;
const NUMBERS = new Set(["run", "turn", "call", "a", "b"]);
const STEPS = ["view", "run", "call", "a", "b", "of"]; // to which the browser goes back
const ENDED = new Set(["dead", "restarting", "autorestarting", "terminating"]);
const PANELS = ["head", "transport", "overview", "turn", "calls", "compare"];

/** What one view shows; `shared` is what all views of a widget know. */
export function makeStore(shared, { panels, at, commands = null }) {
  let due = 0;
  const kept = new Map(), store = { ...shared, panels, commands, ui: { turns: 4 } };
  store.at = { view: null, run: null, turn: null, call: null, ...at };
  store.draw = store.went = () => {}; // by the host
  store.changed = () => {
    due ||= requestAnimationFrame(() => { due = 0; store.draw(); });
  };
  store.set = (next, thing = store) => { Object.assign(thing, next); store.changed(); };
  store.show = (next) => store.set(next, store.ui); // what is typed, folded or pointed at
  store.go = (next) => {
    store.set(next, store.at = { ...store.at });
    store.went();
  };
  /** Keep what `build` returns while the things it depends on stay the same. */
  store.keep = (name, things, build) => {
    const known = kept.get(name);
    if (known?.things.every((it, index) => Object.is(it, things[index]))) return known.value;
    const value = build();
    kept.set(name, { things, value });
    return value;
  };
  return store;
}

const nothing = () => ({
  reading: new Reading(), live: {}, form: null, ask: null, fault: "", slow: false, gone: false,
});

async function unpack(bytes) {
  const gunzip = new DecompressionStream("gzip");
  const writer = gunzip.writable.getWriter();
  for (const written of [writer.write(bytes), writer.close()]) written.catch(() => {}); // read too
  const decoder = new TextDecoder();
  const reader = gunzip.readable.getReader();
  let text = "";
  // By hand: `new Response(stream).text()` takes three times as long for a page of 10,000 calls.
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += decoder.decode(part.value, { stream: true });
  }
  return JSON.parse(text + decoder.decode());
}

/** Draw into an element, behind a shadow root; returns what takes it away again. */
function draw(el, store) {
  const root = el.attachShadow({ mode: "open" }), place = document.createElement("div");
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(CSS);
  root.adoptedStyleSheets = [sheet];
  root.append(place);
  Object.assign(place, { className: "root", tabIndex: -1 }); // so that a click makes keys ours
  store.draw = () => {
    const held = root.activeElement;
    try {
      patch(place, h(App, { store }));
      if (held && !root.activeElement) place.focus({ preventScroll: true }); // its element is gone
    } catch (error) { // the page before it stays
      console.error(error);
      store.broken ??= place.insertAdjacentElement("beforebegin", document.createElement("p"));
      store.broken.textContent = `This view could not be drawn: ${error.message}`;
    }
  };
  store.draw();
  const forget = [followTheme(place), takeKeys(place, store)];
  return () => {
    store.draw = () => {};
    for (const act of forget) act();
    patch(place, null);
  };
}

/** Light or dark as the host is, by the colour behind us. */
function followTheme(place) {
  const look = () => {
    const [r, g, b] = getComputedStyle(place).backgroundColor.match(/[\d.]+/g) ?? [];
    if (b) place.dataset.dark = 0.3 * r + 0.59 * g + 0.11 * b < 128; // else not in the page yet
  };
  const later = () => requestAnimationFrame(look), watch = new MutationObserver(later);
  const sizes = new ResizeObserver(look); // which tells as well when we come into the page
  for (const node of [document.documentElement, document.body]) {
    watch.observe(node, { attributes: true });
  }
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", later);
  sizes.observe(place);
  look();
  return () => {
    watch.disconnect();
    sizes.disconnect();
    scheme.removeEventListener("change", later);
  };
}

/** Take keys before JupyterLab: it does not see our fields in the shadow root, and cuts cells. */
function takeKeys(place, store) {
  const guest = Boolean(store.commands); // else a page, which is all ours
  const hear = (event) => {
    const path = event.composedPath(), ours = path.includes(place);
    const free = !guest && [document.body, document.documentElement].includes(path[0]);
    if (!(ours || free) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (guest && event.key !== "Tab") event.stopImmediatePropagation();
    if (!event.isComposing && !event.defaultPrevented) onKey(store, event, path[0]);
  };
  addEventListener("keydown", hear, guest);
  return () => removeEventListener("keydown", hear, guest);
}

export async function mountPage(el) {
  let ready = "yes"; // then a page's print view is hidden
  try {
    const { title, start, records } = await pageData();
    const shared = { ...nothing(), title };
    shared.reading.take(0, records);
    const panels = [...shared.reading.parts.keys(), ...PANELS]; // further views first
    const store = makeStore(shared, { panels, at: { run: start } });
    followAddress(store, start);
    draw(el, store);
  } catch (error) {
    console.error(error);
    ready = "failed";
    const old = typeof DecompressionStream === "undefined" || !("adoptedStyleSheets" in document);
    el.append(old ? "This page needs a newer browser: Chrome or Edge 111, Firefox 121, Safari 16.4."
      : `This page could not be drawn: ${error.message}`);
  }
  document.documentElement.dataset.ready = ready;
}

async function pageData() {
  const node = document.getElementById("reading"), coded = atob(node.textContent);
  node.remove();
  const bytes = new Uint8Array(coded.length);
  for (let at = 0; at < coded.length; at += 1) bytes[at] = coded.charCodeAt(at);
  return unpack(bytes);
}

/** Keep a page's address and what it shows the same, so that links and "back" work. */
function followAddress(store, start) {
  let written = store.at, timer = 0;
  const write = () => {
    const told = Object.entries(store.at).filter(([, value]) => value != null && value !== "");
    const address = `#${new URLSearchParams(told)}`;
    const step = STEPS.some((name) => store.at[name] != written[name]); // null or undefined
    written = store.at;
    if (address === location.hash) return;
    try {
      history[step ? "pushState" : "replaceState"](null, "", address);
    } catch { /* a frame without an address of its own */ }
  };
  const read = () => {
    const told = [...new URLSearchParams(location.hash.slice(1))].map(([name, text]) => (
      [name, !NUMBERS.has(name) ? text : /^-?\d+$/.test(text) ? Number(text) : null]));
    const at = { view: null, turn: null, call: null, ...Object.fromEntries(told) };
    at.run ??= store.reading.calls.get(at.call)?.run;
    if (!store.reading.runs.has(at.run)) at.run = start;
    written = at;
    store.set({ at });
  };
  store.went = () => { clearTimeout(timer); timer = setTimeout(write, ADDRESS_MS); };
  addEventListener("popstate", read);
  addEventListener("hashchange", read);
  read();
}

// A factory: `initialize` and `render` are given different proxies of the model. What is known is
// shared by all views of it in this page.
export default function widget() {
  const shared = nothing(), stores = new Set();
  let first = {}, panels = [], send = () => {}, timer = 0;

  const tell = (next) => {
    Object.assign(shared, next);
    for (const store of stores) store.set(next);
  };

  function command(message) {
    clearTimeout(timer);
    timer = setTimeout(() => tell({ slow: true }), SLOW_MS);
    tell({ fault: "" });
    send(message);
  }

  const since = (at = shared.reading.size) => send({ do: "since", at });
  const lost = () => tell({ gone: true, live: {} }); // an answer takes it back

  /** Take a message: records, a run to show, or what else is new: live, form, ask or fault. */
  function take({ at, records, show, ...news }) {
    clearTimeout(timer);
    const answered = news.ask !== undefined && news.ask?.id !== shared.ask?.id;
    if (answered && shared.of === "answer") news.fault = ""; // of a question that is gone
    if (records && !shared.reading.take(at, records)) since();
    if (show) {
      first = { ...first, turn: null, ...show };
      news.form = null;
      for (const store of stores) store.at = { ...store.at, turn: null, ...show };
    }
    tell({ slow: false, gone: false, ...news });
  }

  function initialize({ model }) {
    send = (message) => {
      try {
        model.send(message);
      } catch { // the kernel's end of the line is closed
        lost();
      }
    };
    first = model.get("first") ?? {};
    panels = model.get("panels") ?? [];
    let queue = Promise.resolve(); // in order, though some are unpacked first
    const hear = (message, buffers) => {
      queue = queue.then(async () => take(message.packed ? await unpack(buffers[0]) : message));
    };
    const status = (_, now) => ENDED.has(now) && lost();
    const signal = model.widget_manager?.kernel?.statusChanged;
    model.on("msg:custom", hear);
    model.on("comm_live_update", () => { lost(); since(); });
    signal?.connect(status);
    since(0);
    return () => signal?.disconnect(status);
  }

  function render({ el }) {
    const store = makeStore({ ...shared, form: null }, { panels, at: first, commands: command });
    el.classList.add("llmsim-live");
    el.dataset.lmSuppressShortcuts = "true"; // JupyterLab's own keys
    stores.add(store);
    const leave = draw(el.appendChild(document.createElement("div")), store);
    return () => {
      stores.delete(store);
      leave();
    };
  }

  return { initialize, render };
}
