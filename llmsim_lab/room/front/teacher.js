// The teacher's page: who sits where, who is waited for and since when, and what starts and stops.

import { h } from "../../run/front/dom.js";
import { facts, plural } from "../../run/front/text.js";
import { BigChart } from "./big_chart.js";
import { post } from "./connection.js";
import { Line, mountWithKey, QrCode } from "./common.js";
import { duration } from "./words.js";

const CHART = { wide: 620, high: 320 }; // pixels, at most
const LONG_S = 60; // a wait that is pointed out

export async function mount(el) {
  await mountWithKey(el, Teacher, "teacher");
}

async function act(store, message) {
  const answer = await post("do", message);
  store.set({ fault: answer.ok ? "" : answer.fault ?? "The server does not answer." });
}

function Button({ store, act: message, kind }, words) {
  return h("button", { type: "button", class: kind, onclick: () => act(store, message) }, words);
}

function Teacher({ store }) {
  const { view, fault } = store;
  if (!view) return h("main", null, h(Line, { store }), fault && h("p", { role: "alert" }, fault));
  const { title, phase, rows, lobby } = view;
  document.title = facts(headline(view), title);
  return h("main", null,
    h("header", null,
      h("p", { class: "soft" }, facts(title, view.round > 1 && `round ${view.round}`)),
      h("h1", null, headline(view)),
      h("p", { class: "hidden", role: "status" }, headline(view)),
      h("p", null, numbers(view))),
    h(Line, { store }),
    h(Controls, { store, view }),
    fault && h("p", { class: "fault", role: "alert" }, fault),
    view.fault && h("p", { class: "fault", role: "alert" }, view.fault),
    phase === "lobby" && h(Links, { store }),
    lobby.length > 0 && h(Guests, { people: lobby, phase }),
    rows.length > 0 && h("section", { class: "groups", "aria-label": "Groups" },
      rows.map((group) => h(Group, { key: group.key, store, group, phase }))),
    phase !== "lobby" && view.charts.length > 0 && h(ClassCharts, { view }),
    phase !== "lobby" && h(Links, { store }),
    phase === "over" && h(Files));
}

function headline({ phase, playing, held, turn, planned, groups, groups_over: over }) {
  if (phase === "over") return "Over";
  if (phase === "lobby") return playing ? "Ready to start" : "Waiting for the notebook";
  const where = groups > 1 ? `Turn ${turn} of ${planned}, ${over} of ${groups} groups done`
    : `Turn ${turn} of ${planned}`;
  return held ? `${where}: held` : where;
}

function numbers({ phase, joined, online, seats, waiting }) {
  const here = `${joined} joined, ${online} online, ${plural(seats, "seat")}`;
  return phase === "open" ? `${here}; ${plural(waiting, "answer")} pending` : here;
}

const chartWords = (shown) => (shown ? "Hide the charts" : "Show the charts on the projector");

function Controls({ store, view }) {
  const { phase, held, gate, playing, shown } = view, { ending } = store.ui;
  const button = (words, message, kind) => h(Button,
    { key: words, store, act: message, kind }, words);
  if (phase === "lobby") {
    return h("div", { class: "row" }, playing ? [
      button("Start", { do: "start" }, "primary"),
      button("Start, turn by turn", { do: "start", stepwise: true }),
    ] : h("p", { class: "soft" }, "Run the cell with ", h("code", null, "await room.play()"),
      "; then Start appears here."));
  }
  if (phase === "over") {
    return h("div", { class: "row" },
      button("Another round, new groups", { do: "another_round" }),
      button(chartWords(shown), { do: "show", on: !shown }));
  }
  return h("div", { class: "row" },
    held && button("Next turn", { do: "next_turn" }, "primary"),
    gate == null ? button("Pause", { do: "pause" }, "primary")
      : button("Continue without stops", { do: "resume" }),
    gate != null && !held && h("p", { key: "gate", class: "soft" }, `Stops after turn ${gate}.`),
    button(chartWords(shown), { do: "show", on: !shown }),
    ending ? [
      h("span", { key: "ask" }, "End for everybody?"),
      button("Yes, end", { do: "end" }, "danger"),
      h("button", { key: "no", type: "button", onclick: () => store.show({ ending: false }) },
        "No"),
    ] : h("button", { key: "end", type: "button", onclick: () => store.show({ ending: true }) },
      "End …"));
}

const Dot = ({ online }) => h("i", { class: online ? "dot on" : "dot", role: "img",
  "aria-label": online ? "online" : "offline", title: online ? "online" : "offline" });

const nameOfPerson = ({ name, label, guest }) => facts(name || guest, label !== name && label);

function Guests({ people, phase }) {
  const title = phase === "lobby" ? "Joined" : "Without a seat";
  return h("section", { "aria-label": title },
    h("h2", null, `${title}: ${people.length}`),
    h("ul", { class: "people" }, people.map((person) => h("li", { key: person.guest },
      h(Dot, person), nameOfPerson(person)))));
}

function Group({ store, group: { name, turn, turns, over, fault, seats }, phase }) {
  const where = over ? "done" : `turn ${Math.min(turn + 1, turns)} of ${turns}`;
  return h("section", { class: "group", "aria-label": name },
    h("h2", null, name, " ", h("small", { class: "soft" }, where)),
    fault && h("p", { class: "fault" }, fault),
    h("ul", null, seats.map((seat) => h(Seat, { key: seat.seat, store, seat,
      open: phase === "open" && !over }))));
}

function Seat({ store, seat, open }) {
  const { guest, filled, since, online } = seat, waits = since != null && !filled;
  const age = waits && store.since(since), late = age > LONG_S;
  const state = filled ? "filled in" : waits && duration(age);
  const missing = filled || waits || !online; // nobody else's seat is given away by a slip
  return h("li", { class: waits ? "due" : null },
    h(Dot, { online }),
    h("b", null, seat.seat),
    h("span", { class: "who" }, guest ? nameOfPerson(seat) : "nobody"),
    h("span", { class: late ? "late" : "soft" }, state),
    open && guest && missing && h(Button, { store, kind: "small",
      act: { do: filled ? "give_back" : "fill", guest } }, filled ? "Give back" : "Fill in"));
}

const ClassCharts = ({ view: { charts, planned } }) => h("section", { class: "charts" },
  charts.map(({ name, lines }) => h(BigChart,
    { key: name, name, lines, planned, ...chartSize() })));

function chartSize() {
  const wide = Math.min(CHART.wide, innerWidth - 40);
  return { wide, high: Math.min(CHART.high, wide * 0.7) };
}

function Links({ store }) {
  const { links } = store;
  if (!links?.ok) return null;
  const { link, base, code, projector, try_out: tries = [], qr } = links;
  return h("section", { class: "links", "aria-label": "Links" },
    h(QrCode, qr),
    h("dl", null,
      h(Linked, { store, words: "For participants", href: link }),
      h("div", null, h("dt", null, "To type"), h("dd", null, base, " with the code ",
        h("b", { class: "code" }, code))),
      h(Linked, { store, words: "Projector", href: projector }),
      tries.length > 0 && h("div", null, h("dt", null, "To try it alone"), h("dd", null,
        tries.map((href, at) => [at > 0 && ", ",
          h("a", { href, target: "_blank", rel: "noopener" }, `person ${at + 1}`)])))));
}

function Linked({ store, words, href }) {
  const copied = store.ui.copied === href;
  const copy = () => navigator.clipboard.writeText(href).then(
    () => store.show({ copied: href }), () => {});
  return h("div", null, h("dt", null, words),
    h("dd", null, h("a", { href, target: "_blank", rel: "noopener" }, "open"), " ",
      navigator.clipboard && h("button", { type: "button", class: "small", onclick: copy },
        copied ? "Copied" : "Copy the link")));
}

const Files = () => h("p", { class: "row" },
  h("a", { href: "people", download: "" }, "People (CSV)"),
  h("a", { href: "otree", download: "" }, "All answers, as oTree lays them out (CSV)"));
