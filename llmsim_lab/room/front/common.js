// What the three pages share: a store that draws its view, the theme, the server's clock.

import { h, patch } from "../../run/front/dom.js";
import { ask, follow, post } from "./connection.js";
import { say } from "./words.js";

const TICK_MS = 1_000;

/** A store that draws `View` into an element whenever something changes. */
export function makeStore(el, View) {
  let due = 0;
  const store = { ui: {}, view: null, lost: false, moved: false, fault: "", ahead_s: 0 };
  store.draw = () => {
    due = 0;
    patch(el, h(View, { store }));
  };
  store.changed = () => { due ||= requestAnimationFrame(store.draw); };
  store.set = (next) => { Object.assign(store, next); store.changed(); };
  store.show = (next) => { Object.assign(store.ui, next); store.changed(); };
  /** Seconds from a time of the server's clock until now; a phone's own clock may be wrong. */
  store.since = (time) => Date.now() / 1000 + store.ahead_s - time;
  el.classList.add("root");
  followTheme(el);
  // A hidden page is not drawn by the browser, but its title must change.
  setInterval(() => (document.hidden ? store.draw() : store.changed()), TICK_MS);
  return store;
}

function followTheme(el) {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const look = () => { el.dataset.dark = scheme.matches; };
  scheme.addEventListener("change", look);
  look();
}

/** Keep a store's view that of the server; `leave` is called where the server does not know us,
 * `seen` after each view. */
export function keepUp(store, leave, seen = () => {}) {
  store.reopen = follow({
    show: (view) => {
      // Another process of the server: what this page knows may be of another version.
      if (store.view && store.view.epoch !== view.epoch) location.reload();
      store.set({ view, moved: false, ahead_s: view.at - Date.now() / 1000 });
      seen();
    },
    lose: (lost) => store.set({ lost }),
    leave,
    move: () => store.set({ moved: true }),
  });
}

/** The page of somebody with a key, which stands after the # of their link. */
export async function mountWithKey(el, View, kind) {
  const store = makeStore(el, View), key = location.hash.slice(1);
  if (key) await enterWith(store, key);
  // A key that was for one use has left a cookie: without either the server does not know us.
  const leave = () => store.set({ fault: "This link is not valid any more. Run room.open() in the "
    + `notebook again, and open the ${kind}'s link that it shows.` });
  // Not with each view: the QR code is seven times the rest.
  const fetchLinks = async () => store.links?.ok || store.set({ links: await ask("links") });
  keepUp(store, leave, fetchLinks);
  return store;
}

async function enterWith(store, key) {
  let answer = await post("join", { key });
  while (answer.status === 0) {
    store.set({ lost: true });
    await new Promise((done) => { setTimeout(done, TICK_MS); });
    answer = await post("join", { key });
  }
  store.set({ lost: false });
  if (answer.ok) history.replaceState(null, "", location.pathname); // a wall shows the address
}

/** That the line is cut, or taken by another tab. */
export const Line = ({ store }) => [
  store.lost && h("p", { class: "line", role: "status" }, say("lost")),
  store.moved && h("p", { class: "line", role: "status" }, say("moved"), " ",
    h("button", { type: "button", onclick: store.reopen }, say("here_again"))),
];

/** A QR code from the path that the server made of it. */
export const QrCode = ({ path, size }) => h("svg",
  { class: "qr", viewBox: `-2 -2 ${size + 4} ${size + 4}`, role: "img", "aria-label": "QR code" },
  h("path", { d: path }));
