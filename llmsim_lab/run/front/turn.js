// A turn: its state, what happened, who decided what, and a prompt with its reply.

import { CallDetail, Choice, note, Passage, soft, Status } from "./calls.js";
import { limited, nameOf, openTurn, plain, playersOf } from "./chart.js";
import { h } from "./dom.js";
import { Fold } from "./fold.js";
import { Network, networksOf } from "./network.js";
import { State } from "./state.js";
import {
  clip, facts, fieldsIn, figure, labelled, sayValue, storyOf, titled,
} from "./text.js";

const FEW_PLAYERS = 10, FEW_BRIEF = 6, FEW_ANSWERS = 6, LONG_STORY = 300, SHORT_DATA = 60;
const SHORT_TEXT = 24, SHORT_VALUE = 44;

export function Turn({ store, run, n, turn }) {
  if (!turn) return soft("No turn has been played yet.");
  const { reading, at, ui } = store;
  const calls = reading.callsOf(run, n);
  const call = chosenCall(turn, calls, reading.calls.get(at.call));
  const options = calls.map((it) => [it.k, clip(facts(
    it.player, it.component, it.replicate && `sample ${it.replicate}`), 60)]);
  return [
    turn.done.map(note),
    h("div", { class: "both" },
      h("section", { "aria-label": "State" },
        h(State, { store, run, n, turn }),
        h(Story, { store, run, n, turn })),
      turn.decisions.length > 0 && h(Decisions, { store, run, n, turn })),
    call && h("section", {
      class: "turn-call", "aria-label": "Prompt and reply",
      ref: (el) => { ui.callPlace = el; },
    },
    calls.length > 1 && h("div", { class: "row" },
      h("h3", null, "Prompt and reply of"),
      h(Choice, { label: "Call", value: call.k, options,
        pick: (value) => store.go({ call: Number(value) }) })),
    h(CallDetail, { store, call })),
  ];
}

/** What happened in a turn, in sentences. */
export function Story({ store, run, n, turn }) {
  const story = store.keep("story", [turn], () => (
    storyOf(turn.words.map((number) => store.reading.text(number)))));
  if (story.length === 0) return null;
  const passage = (text, index) => h(Passage, {
    key: index, store, most: text.includes('{"') ? SHORT_DATA : LONG_STORY,
    id: `story ${run.id} ${n} ${index}`, text: titled(text) });
  return h("div", { class: "happened" }, h("h3", null, "What happened"),
    h("div", { class: "story" }, story.map(passage)));
}

/** The call that was asked for, if it is of this turn; else the like of it, or the first. */
function chosenCall(turn, calls, named) {
  const isOurs = named && turn.decisions.some((made) => made.calls?.includes(named.k));
  if (isOurs || calls.includes(named)) return named;
  const alike = calls.find((call) => (
    call.player === named?.player && call.component === named?.component));
  return alike ?? calls[0];
}

/** The networks of a run's state as panels beside its charts, functions of a width. */
export function networkPanels({ store, run, n }) {
  const named = new Map(run.charts.map((item) => [item.column, item.label]));
  const names = [...networksOf(store.reading, run).keys()];
  return names.filter((name) => !run.limited || named.has(name)).map((name) => (wide) => (
    h(Network, { key: `network ${name}`, store, run, name, turn: n, wide,
      label: named.get(name) ?? labelled(name).label })));
}

/** The decisions of a turn by player; in brief, beside the charts, only each player's own. */
export function Decisions({ store, run, n, turn, brief }) {
  const players = playersOf(turn);
  const [count, more] = brief
    ? limited(store, "brief", players.length, FEW_BRIEF, "more player")
    : limited(store, "players", players.length, FEW_PLAYERS, "more player");
  const shared = sharedReason(store.reading, players);
  const decision = (made, index, all) => h(Decision, {
    key: index, store, made, brief, first: all[0], shared,
    id: `${run.id} ${n} ${made.player} ${index}` });
  const title = brief ? `Decisions of turn ${n}` : "Decisions";
  return h("section", { "aria-label": "Decisions", class: brief && "brief" },
    h("h3", null, n === 0 ? "At the start" : title,
      brief && plain("All of the turn", () => openTurn(store, run, n))),
    brief && turn.done.map(note),
    !players.length && soft("No decisions."),
    shared && soft(`Each: ${shared}`),
    h("ul", { class: "decisions" }, players.slice(0, count).map((all) => (
      h("li", { key: all[0].player }, all.slice(0, brief ? 1 : all.length).map(decision))))),
    more);
}

/** A reason that several players gave in the same words, as rules do. */
function sharedReason(reading, players) {
  const reasons = new Set(players.map(([made]) => reading.text(made.reasoning)));
  return players.length > 2 && reasons.size === 1 ? [...reasons][0] : "";
}

/** What a player decided, or, after it, what else a part of the world made of that. */
function Decision({ store, made, brief, first, shared, id }) {
  const { reading } = store;
  const call = reading.calls.get(made.calls?.at(-1));
  const isFirst = made === first;
  const reasoning = reading.text(made.reasoning);
  const shownBefore = isFirst ? {} : { ...first.answer, ...first.became };
  const news = (fields) => Object.entries(fields ?? {}).filter(([name, value]) => (
    value != null && JSON.stringify(value) !== JSON.stringify(shownBefore[name])));
  const answer = news(made.answer);
  const became = news(made.became);
  const short = answer.filter((field) => isShort(field));
  const long = answer.filter((field) => !isShort(field));
  const passage = (name, text) => h(Passage, { store, id: `${id} ${name}`, text });
  const outcome = [...short.slice(FEW_ANSWERS), ...became];
  const isNew = reasoning !== shared && !answer.some(([, value]) => value === reasoning);
  return h("div", { class: isFirst ? null : "then" },
    h("div", { class: "row" },
      isFirst ? h("b", null, nameOf(made)) : h("span", null, made.component),
      h(Status, { word: made.status }),
      h(Cut, { store, call }),
      call && made.confidence != null
        && h("span", { class: "sure" }, h(Pair, { name: "confidence", value: made.confidence })),
      short.length > 0
        && h("span", { class: "row answer" }, short.slice(0, FEW_ANSWERS).map(pairOf)),
      call && plain("prompt", () => showCall(store, call.k),
        { "aria-label": `Prompt of ${nameOf(made)}, ${made.component}` })),
    long.slice(0, brief ? 1 : long.length).map(([name, value]) => h(LongField, {
      key: name, store, id, name, value, passage, isAlone: name === "action" || answer.length === 1,
    })),
    reasoning && isNew && h("div", { class: "why fine" }, passage("why", reasoning)),
    outcome.length > 0 && h("p", { class: "row fine became" }, outcome.map(pairOf)));
}

function LongField({ store, id, name, value, passage, isAlone }) {
  const { label } = labelled(name);
  if (typeof value === "string") {
    return h("div", { class: "said" }, !isAlone && h("small", null, label), passage(name, value));
  }
  return h(Fold, { store, id: `${id} ${name}`, title: label }, () => (
    passage(name, JSON.stringify(value, null, 1))));
}

/** Which fields of a reply were cut at their limits, beside how it ended. */
export function Cut({ store, call }) {
  if (!call) return null;
  const fields = store.keep(`cut ${call.k}`, [call], () => cutFields(store.reading, call));
  if (!fields.length) return null;
  return h("span", { class: "status repaired", title: "cut at its limit of length" },
    `${fields.map((name) => labelled(name).label).join(", ")} cut`);
}

/** As the tape has them; older tapes say only the limits and the reply. */
function cutFields(reading, call) {
  const tried = call.tries.at(-1) ?? {};
  if (tried.cut_fields) return tried.cut_fields;
  if (tried.cut) return ["reply"];
  const { schema } = JSON.parse(reading.text(tried.settings) || "{}");
  const texts = Object.entries(fieldsIn(reading.text(tried.reply)) ?? {});
  return texts.filter(([name, value]) => (
    typeof value === "string" && value.length === schema?.properties?.[name]?.maxLength))
    .map(([name]) => name);
}

const isShort = ([name, value]) => name !== "action"
  && figure(value).length <= (typeof value === "string" ? SHORT_TEXT : SHORT_VALUE);

const pairOf = ([name, value]) => h(Pair, { key: name, name, value });

/** A field and its value; of a truth value only which it is: "accepted", "not accepted". */
function Pair({ name, value }) {
  const { label, unit } = labelled(name);
  if (typeof value === "boolean") {
    const isOrHas = label.replace(/^(is |has )?/, "$1not ");
    return h("span", null, h("b", null, value ? label : isOrHas));
  }
  const isUnit = unit && typeof value === "number";
  return h("span", null, h("small", null, isUnit || !unit ? label : name.replaceAll("_", " ")), " ",
    h("b", null, clip(sayValue(value), 200)), isUnit && h("small", null, ` ${unit}`));
}

function showCall(store, call) {
  store.go({ call, view: "turn" });
  store.draw();
  store.ui.callPlace?.scrollIntoView({ block: "nearest", behavior: "smooth" });
}
