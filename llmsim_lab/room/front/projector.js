// The wall: how to join, how many have answered, and at the end what all of them did together.

import { h } from "../../run/front/dom.js";
import { facts } from "../../run/front/text.js";
import { BigChart } from "./big_chart.js";
import { Line, mountWithKey, QrCode } from "./common.js";
import { say } from "./words.js";

const WIDE = 1000, EDGE = 48; // pixels: two charts stand beside each other; the page's margins

export async function mount(el) {
  const store = await mountWithKey(el, Projector, "projector");
  addEventListener("resize", store.changed);
}

function Projector({ store }) {
  const { view, fault } = store;
  if (!view) return h("main", null, h(Line, { store }), fault && h("p", null, fault));
  document.title = view.title;
  const draw = { lobby: Lobby, open: Play, over: Play }[view.phase];
  return h("main", { class: view.phase }, h(Line, { store }), h(draw, { store, view }));
}

const address = (base) => base.replace(/^https?:\/\//, "");

function Invitation({ store: { links } }) {
  if (!links?.ok) return null;
  const { qr, base, code } = links;
  return h("section", { class: "invitation", "aria-label": say("scan") },
    h(QrCode, qr),
    h("div", null,
      h("p", { class: "soft" }, say("scan")), h("p", { class: "address" }, address(base)),
      h("p", { class: "soft" }, say("type_code")), h("p", { class: "code" }, code)));
}

function Lobby({ store, view }) {
  const { title, joined, seats, round } = view;
  return [
    h("h1", null, facts(title, round > 1 && say("round", { n: round }))),
    h(Invitation, { store }),
    h("p", { class: "count", role: "status" }, say("joined", { n: joined, seats })),
  ];
}

function Play({ store, view }) {
  const { phase, turn, planned, held, charts } = view;
  if (phase === "over") return [h("h1", null, say("over")), h(ChartWall, { charts, planned })];
  const answered = say("answered", { n: view.answered, asked: view.asked });
  return [
    h("div", { class: charts.length > 0 ? "row top" : "alone" },
      h("h1", null, say("turn", { turn, planned })),
      h("p", { class: "count", role: "status" }, held ? say("held") : answered)),
    h(Bar, view),
    charts.length > 0 && h(ChartWall, { charts, planned }),
    h(Invitation, { store }),
  ];
}

const Bar = ({ answered, asked }) => h("div", { class: "bar", "aria-hidden": "true" },
  h("i", { style: `width: ${asked ? (100 * answered) / asked : 0}%` }));

/** One chart as large as the wall, or two beside each other. */
function ChartWall({ charts, planned }) {
  const across = innerWidth >= WIDE && charts.length > 1 ? 2 : 1;
  const wide = Math.floor((Math.min(innerWidth, 1800) - EDGE * (across + 1)) / across);
  const high = Math.max(260, Math.min(innerHeight * 0.62, wide * 0.85, 700));
  return h("section", { class: `wall across${across}` }, charts.map(({ name, lines }) => (
    h(BigChart, { key: name, name, lines, wide, high, planned }))));
}
