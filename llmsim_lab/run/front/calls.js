// The calls: a list to filter and to search, and one of them with its prompt and its reply.
// Before them, the parts that this and the other views are made of.
import { limited, plain } from "./chart.js";
import { h } from "./dom.js";
import { Fold } from "./fold.js";
import { groupBy } from "./reading.js";
import {
  beginning, clip, facts, fieldsIn, figure, flatten, inWords, labelled, marksIn, plural, sayValue,
  slots,
} from "./text.js";

const ROW = 54, MARGIN = 12; // height of a row in pixels; rows that are drawn beyond those in sight
const LONG = 20000; // characters of a text that are shown at once: a browser lays out no million

export const soft = (...words) => h("p", { class: "soft" }, words);

export const note = (text) => h("p", { class: "note" }, text);

/** One of `options`, pairs of a value and its words; `pick` is given the value as a text. */
export const Choice = ({ label, value, options, pick }) => h("select", {
  "aria-label": label, value: String(value ?? ""), onchange: (event) => pick(event.target.value),
}, options.map(([it, words]) => h("option", { key: it, value: String(it) }, words)));

/** Buttons of which one is pressed; each item is its words, if it is pressed, and what it does. */
export const Segments = ({ label, items }) => h("div",
  { class: "row seg", role: "group", "aria-label": label },
  items.map(([words, pressed, onclick], index) => h("button",
    { key: index, type: "button", "aria-pressed": pressed, onclick }, words)));

/** A table of rows `[key, ...cells]`; the cell at `named` names its row. */
export function Table({ kind, heads, rows, named = 0 }) {
  const cell = (content, at) => (
    at === named ? h("th", { scope: "row" }, content) : h("td", null, content));
  return h("table", { class: kind },
    heads && h("thead", null, h("tr", null, heads.map((name) => (
      h(name ? "th" : "td", { scope: name ? "col" : null }, name))))),
    h("tbody", null, rows.map(([key, ...cells]) => h("tr", { key }, cells.map(cell)))));
}

/** A part that can be scrolled, by keys too. */
export const Box = ({ kind, label }, content) => h("div",
  { class: kind, tabindex: "0", role: "group", "aria-label": label }, content);

/** A text, or pieces (some in a `tag`), with slots and hits marked; of a long one the start. */
export function Passage({ store, id, text, pieces = [{ text }], wanted = "", mono, most = LONG }) {
  const size = pieces.reduce((sum, piece) => sum + piece.text.length, 0);
  // No button for a few words more.
  const fits = size <= 1.25 * most;
  const [count, more] = fits ? [size] : limited(store, id, size, most, "more character");
  return h("div", { class: mono ? "text mono" : "text" },
    marksIn(more ? beginning(pieces, count) : pieces, wanted).map((piece) => {
      const parts = piece.parts.map((part) => (part.hit ? h(Hit, part) : part.text));
      if (piece.tag) return h(piece.tag, null, parts);
      return piece.name === undefined ? parts : h(Slot, { store, piece }, parts);
    }),
    more && [" … ", more]);
}

function Slot({ store, piece }, parts) {
  const isLit = store.ui.slot === piece.index;
  const kinds = ["slot", piece.text.length > 200 && "long", isLit && "lit"];
  const show = () => store.show({ slot: piece.index });
  return h("mark", {
    class: kinds.filter(Boolean).join(" "), tabindex: "0", "aria-describedby": "call-slot",
    onpointerenter: show, onfocus: show,
  }, parts);
}

/** What was searched for; the first one is scrolled into sight. */
function Hit({ text }) {
  const ref = (el) => {
    const box = el.closest(".call-box");
    if (!box || box.querySelector(".hit") !== el) return;
    box.scrollTop += el.getBoundingClientRect().top - box.getBoundingClientRect().top - 80;
  };
  return h("mark", { class: "hit", ref }, text);
}

const statusWords = (status) => ({ "": "no decision", lost: "made again" }[status ?? ""] ?? status);

/** How a call or a decision ended, where that is not ok: a word, with a form of its own. */
export function Status({ word, quiet }) {
  if (word === "ok") return null;
  const text = statusWords(word);
  const kind = `status ${word || "lost"}`;
  if (quiet) return h("span", { class: kind, role: "img", "aria-label": text, title: text });
  return h("span", { class: kind }, text);
}

const searches = new WeakMap(); // of a reading: its lines in lower case and the latest search

/** The texts that hold what is wanted (in lower case), by number, with how often they do. */
export function search(reading, wanted) {
  const { lines, texts } = reading;
  const memo = searches.get(reading) ?? { low: [] };
  searches.set(reading, memo);
  if (memo.wanted !== wanted) Object.assign(memo, { wanted, hits: [], read: 0, counts: new Map() });
  const { low, hits, counts } = memo;
  for (let at = low.length; at < lines.length; at += 1) low.push(lines[at].toLowerCase());
  for (let at = hits.length; at < low.length; at += 1) hits.push(low[at].split(wanted).length - 1);
  for (; memo.read < texts.length; memo.read += 1) {
    const sum = texts[memo.read].reduce((all, line) => all + hits[line], 0);
    if (sum) counts.set(memo.read, sum);
  }
  return counts;
}

const wantedIn = (at) => (at.q ?? "").trim().toLowerCase();

/** How often a call holds what is searched for. */
function hitsOf(call, counts) {
  const texts = call.tries.flatMap(({ messages = [], reply, thinking, tools, detail }) => (
    [...messages.map(([, text]) => text), reply, thinking, tools, detail]));
  return texts.reduce((sum, text) => sum + (counts.get(text) ?? 0), 0);
}

/** The calls in the chosen scope: the shown run, its shown turn, or all runs. */
function callsInScope({ reading, at }) {
  if (at.scope === "all") return reading.allCalls();
  const run = reading.runs.get(at.run);
  const turn = at.scope === "turn" ? at.turn ?? reading.last(run) : null;
  return reading.callsOf(run, turn);
}

/** By what the list can be narrowed: its name in the address, its words, its values in a call. */
const FILTERS = [
  ["player", "All players", (call) => [call.player]],
  ["component", "All components", (call) => [call.component]],
  ["status", "All statuses", ({ status, tries }) => [
    statusWords(status), tries.some((attempt) => attempt.fault) && "with failed attempts"]],
];
const SCOPES = [["", "This run"], ["turn", "This turn"], ["all", "All runs"]];
const NO_FILTER = { q: null, player: null, component: null, status: null, scope: null };

/** The calls that are listed: `{calls, hits: Map of call -> number, total of hits}`. */
function listedCalls(store) {
  const { at } = store;
  const all = callsInScope(store);
  const wanted = wantedIn(at);
  const chosen = FILTERS.map(([name]) => at[name]);
  return store.keep("listed", [all, wanted, ...chosen], () => {
    const isChosen = (call) => (
      FILTERS.every(([name, , valuesOf]) => !at[name] || valuesOf(call).includes(at[name])));
    const filtered = all.filter(isChosen);
    const hits = new Map();
    if (!wanted) return { calls: filtered, hits, total: 0 };
    const counts = search(store.reading, wanted);
    for (const call of filtered) hits.set(call, hitsOf(call, counts));
    const calls = filtered.filter((call) => hits.get(call) > 0);
    return { calls, hits, total: calls.reduce((sum, call) => sum + hits.get(call), 0) };
  });
}

/** Filters, the list, and the chosen call beside it (narrow: in its place). */
export function Calls({ store }) {
  const { reading, at } = store;
  const listed = listedCalls(store);
  const named = reading.calls.get(at.call);
  const call = named ?? listed.calls[0];
  const back = () => {
    store.go({ call: null });
    store.ui.list?.el.focus();
  };
  return h("section", { class: `calls${named ? " open" : ""}`, "aria-label": "Calls" },
    h(CallFilters, { store, listed }),
    !call ? h(NoCalls, { store }) : h("div", { class: "calls-split" },
      h(CallList, { store, ...listed, chosen: call }),
      h("div", { class: "calls-detail" },
        h("button", { class: "plain calls-back", onclick: back }, "← All calls"),
        h(CallDetail, { store, call }))));
}

export function NoCalls({ store }) {
  if (!callsInScope(store).length) return soft("No calls to a model.");
  return soft("No call matches these filters. ", plain("Show all", () => store.go(NO_FILTER)));
}

function CallFilters({ store, listed }) {
  const { at, ui, reading } = store;
  const all = callsInScope(store);
  const filters = store.keep("filters", [all], () => filtersOf(all));
  const narrow = (next) => {
    if (ui.list) ui.list.el.scrollTop = 0;
    store.go({ call: null, ...next });
  };
  const scopes = reading.runs.size > 1 ? SCOPES : SCOPES.slice(0, 2);
  const isAll = listed.calls.length === all.length;
  return h("div", { class: "row mid calls-filters" },
    h("input", {
      type: "search", placeholder: "Search prompts and replies", value: at.q ?? "",
      "aria-label": "Search prompts and replies",
      ref: (el) => { ui.search = el; },
      oninput: (event) => narrow({ q: event.target.value || null }),
    }),
    [...filters, ["scope", "Which calls", scopes]].map(([name, label, options]) => h(Choice, {
      key: name, label, options, value: at[name],
      pick: (value) => narrow({ [name]: value || null }),
    })),
    h("span", { class: "fine calls-count", role: "status" },
      !isAll && `${figure(listed.calls.length)} of `,
      plural(all.length, "call"),
      listed.total > 0 && ` · ${plural(listed.total, "hit")}`));
}

/** The filters that leave a choice among some calls: name, label and options. */
function filtersOf(calls) {
  return FILTERS.map(([name, label, valuesOf]) => {
    const values = [...new Set(calls.flatMap(valuesOf))].filter(Boolean).sort();
    return [name, label, [["", label], ...values.map((value) => [value, clip(value, 40)])]];
  }).filter(([, , options]) => options.length > 2);
}

/** The list, of which only the rows in sight are drawn. */
function CallList({ store, calls, hits, chosen }) {
  const list = (store.ui.list ??= { top: 0 });
  Object.assign(list, { calls, chosen, height: list.el?.clientHeight || 800 });
  const top = Math.min(list.top, Math.max(0, calls.length * ROW - list.height));
  const first = Math.max(0, Math.floor(top / ROW) - MARGIN);
  const rows = calls.slice(first, first + Math.ceil(list.height / ROW) + 2 * MARGIN);
  const onscroll = ({ target }) => {
    list.top = target.scrollTop;
    store.changed();
  };
  const ref = (el) => {
    list.el = el;
    const place = calls.indexOf(chosen) * ROW;
    const isAway = place < list.top || place - list.top > list.height;
    if (store.at.call != null && isAway) list.top = Math.max(0, place - list.height / 2);
    el.scrollTop = list.top; // as it was when the view was left
  };
  return h("div", {
    class: "call-list", role: "listbox", tabindex: "0", "aria-label": "Calls",
    "aria-activedescendant": rows.includes(chosen) ? `call${chosen.k}` : null,
    onscroll, ref,
  },
  h("div", { role: "presentation", style: `height: ${calls.length * ROW}px` },
    rows.map((call, index) => h(CallRow, {
      key: call.k, store, call, place: first + index, all: calls.length,
      chosen: call === chosen, hits: hits.get(call),
    }))));
}

function CallRow({ store, call, place, all, chosen, hits }) {
  const { reading, at } = store;
  const fault = call.tries.at(-1)?.fault;
  const where = facts(at.scope === "all" && `run ${call.run}`,
    call.n != null && `turn ${call.n}`, call.replicate && `sample ${call.replicate}`);
  const answer = store.keep(`answer ${call.k}`, [call], () => answerOf(reading, call));
  return h("div", {
    class: "call-row", role: "option", id: `call${call.k}`, style: `top: ${place * ROW}px`,
    "aria-selected": chosen, "aria-posinset": place + 1, "aria-setsize": all,
    onclick: () => store.go({ call: call.k }),
  },
  h("div", null,
    h("b", null, clip(call.player || call.component, 40)),
    call.player && h("small", null, clip(call.component, 24)),
    h("small", { class: "call-when" }, where),
    h(Status, { word: call.status, quiet: !call.status })),
  h("div", null,
    h("span", { class: "call-said fine" }, fault && `${fault}: `, answer),
    h("small", { class: "call-time" }, hits > 0 ? plural(hits, "hit") : timeOf(call))));
}

const inSeconds = (seconds) => `${Number(seconds.toPrecision(3))} s`;

/** How long a call took with all its tries; nothing of one that took none, as a script's. */
function timeOf({ tries }) {
  const seconds = tries.reduce((sum, tried) => sum + (tried.seconds ?? 0), 0);
  return seconds > 0 && inSeconds(seconds);
}

/** What a call answered, in a line: its reply's fields but for the reasons, or the reply. */
function answerOf(reading, call) {
  const { reply, tools, detail } = call.tries.at(-1) ?? {};
  const text = reading.text(reply);
  const answer = { ...fieldsIn(text), reasoning: null, confidence: null };
  return clip(inWords([...flatten(answer)]) || text || reading.text(tools ?? detail), 160);
}

/** Choose the call so many rows further on. */
function moveInList(store, by) {
  const { list } = store.ui;
  const { el, calls, height } = list;
  if (!calls.length) return;
  const was = calls.indexOf(list.chosen);
  const next = Math.max(0, Math.min(calls.length - 1, was < 0 ? 0 : was + by));
  const top = next * ROW;
  el.scrollTop = Math.min(top, Math.max(el.scrollTop, top + ROW - height));
  list.chosen = calls[next]; // the next key may come before the next drawing
  store.go({ call: calls[next].k });
}

/** A key in this view; true if it is one of ours. `target` is the innermost element it goes to. */
export function callsKey(store, event, target) {
  const { list, search: field } = store.ui;
  const { key } = event;
  if (!list?.el) return false;
  const isTyping = target.closest("input, select, textarea");
  const isInList = target === list.el;
  const isInField = target === field;
  const isInPrompt = key.startsWith("Arrow") && target.closest(".call"); // which scrolls by it
  if (isInPrompt || (isTyping && !isInField)) return false;
  const by = stepOf(key, list, isTyping, isInList);
  if (by !== undefined && !event.shiftKey) {
    if (isInField) list.el.focus();
    moveInList(store, by);
  } else if (key === "Enter" && (isInList || isInField) && list.chosen) {
    store.go({ call: list.chosen.k });
    (isInList ? list.el.parentNode.querySelector(".call") : list.el)?.focus();
  } else if (key === "Escape" && isInField && field.value) {
    field.value = "";
    store.go({ q: null });
  } else if (key === "Escape" && !isInList) {
    store.go({ call: null });
    list.el.focus();
  } else return false;
  return true;
}

/** How many rows on a key goes. */
function stepOf(key, list, isTyping, isInList) {
  const page = Math.max(1, Math.floor(list.height / ROW) - 1);
  const steps = { ArrowDown: isTyping ? 0 : 1, ArrowUp: isTyping ? 0 : -1 };
  if (!isTyping) Object.assign(steps, { j: 1, k: -1 });
  if (isInList) {
    const all = list.calls.length;
    Object.assign(steps, { PageDown: page, PageUp: -page, Home: -all, End: all });
  }
  return steps[key];
}

/** A call: what was asked, with its slots marked, beside what was answered. */
export function CallDetail({ store, call }) {
  const { ui, at, reading } = store;
  const wanted = at.view === "calls" ? wantedIn(at) : "";
  const number = ui.attempt?.call === call ? ui.attempt.number : call.tries.length - 1;
  const keys = [call, number, at.view, wanted, ui.slot, ui.shown, reading.size];
  return store.keep("callDetail", keys, () => {
    const tried = call.tries[number] ?? {};
    const id = `${call.k}.${number}`;
    const settings = { ...JSON.parse(reading.text(tried.settings) || "{}"), seed: tried.seed };
    const props = { store, call, tried, wanted, id, settings };
    const attempts = call.tries.map((attempt, index) => [
      `${index + 1} · ${attempt.fault ?? "accepted"}`, index === number,
      () => store.show({ attempt: { call, number: index } })]);
    return h("article", {
      class: "call", key: `${id}.${wanted}`, tabindex: "-1",
      "aria-label": `Call of ${call.player || call.component}`,
    },
    h(CallHead, props),
    attempts.length > 1 && h(Segments, { label: "Attempts", items: attempts }),
    h("div", { class: "call-both" }, h(Prompt, props), h(Reply, props)),
    h(Fold, { store, id: `settings ${id}`, title: "Settings of the request" }, () => (
      h(Box, { kind: "text mono call-settings", label: "Settings" },
        JSON.stringify(settings, null, 1)))));
  });
}

function CallHead({ store, call, tried, settings }) {
  const { reading, at, panels } = store;
  const near = panels.includes("compare") ? neighbours(store, call) : [];
  const isLinked = at.view !== "turn" && panels.includes("turn") && call.n != null;
  const toTurn = () => store.go({ view: "turn", run: call.run, turn: call.n });
  const compare = ([other, name]) => plain(name,
    () => store.go({ view: "compare", of: "calls", a: other.k, b: call.k }), { key: name });
  return h("header", { class: "call-head" },
    h("div", { class: "row" },
      h("h3", null, call.player || call.component),
      call.player && h("span", { class: "soft" }, call.component),
      h(Status, { word: call.status }),
      near.length > 0 && h("span", { class: "row fine call-near" },
        "Compare with", near.map(compare))),
    h("p", { class: "fine" },
      call.n != null && [isLinked ? plain(`turn ${call.n}`, toTurn) : `turn ${call.n}`, " · "],
      facts(
        reading.runs.size > 1 && `run ${call.run}`,
        call.replicate && `sample ${call.replicate}`,
        settings.model,
        tried.read != null && `prompt ${plural(tried.read, "token")}${readAnew(tried)}`,
        tried.written != null && `${figure(tried.written)} written`,
        tried.cut && "cut at its length limit",
        tried.cut_fields && `${tried.cut_fields.join(", ")} cut at the limit of texts`,
        inSeconds(tried.seconds ?? 0))));
}

/** How many of a prompt's tokens a server read that did not have them from earlier prompts. */
function readAnew({ anew, counted }) {
  if (anew == null) return "";
  return `, ${counted ? "" : "about "}${figure(anew)} of them read anew`;
}

/** Calls to compare with this one, each with a name: of the same player and component. */
export function neighbours(store, { k, run, n, player, component }) {
  const { reading } = store;
  return store.keep("neighbours", [k, reading.size], () => {
    const alike = reading.allCalls().filter((call) => (
      call.k !== k && call.player === player && call.component === component));
    const ofRun = alike.filter((call) => call.run === run);
    const ofOthers = alike.filter((call) => call.run !== run && call.n === n);
    const byRun = [...groupBy(ofOthers, (call) => call.run).values()];
    const near = [
      ofRun.findLast((call) => call.n === n && call.k < k),
      ofRun.findLast((call) => call.n < n),
      ofRun.find((call) => call.n > n),
      ...byRun.slice(0, 3).map((calls) => calls.at(-1)),
    ];
    const nameOfCall = (call) => {
      if (call.run !== run) return `run ${call.run}`;
      return call.n === n ? "the one before" : `turn ${call.n}`;
    };
    return near.filter(Boolean).map((call) => [call, nameOfCall(call)]);
  });
}

export const callWords = (reading, call) => clip(facts(
  `Call ${call.k}`, reading.runs.size > 1 && `run ${call.run}`, call.n != null && `turn ${call.n}`,
  call.player, call.component), 90);

export function Prompt({ store, tried, wanted, id }) {
  const { reading, ui } = store;
  const isKnown = Array.isArray(tried.slots);
  const [form, ...places] = isKnown ? tried.slots : [];
  const spans = isKnown ? reading.forms[form] : [];
  const message = ([role, text], index) => h("div", { class: "call-message", key: index },
    h("h4", null, role),
    h(Passage, {
      store, id: `${id}.${index}`, wanted, mono: true,
      pieces: slots(reading.text(text), spans, places, index),
    }));
  return h("div", { class: "call-side" },
    h(Box, { kind: "call-box call-prompt", label: "Prompt" }, tried.messages?.map(message)),
    spans.length > 0 && h("p", { class: "call-source fine", id: "call-slot" },
      sourceWords(spans, spans[ui.slot])),
    !isKnown && tried.slots && h("p", { class: "call-source fine" }, tried.slots));
}

/** Where the text in a slot comes from, or how many there are. */
function sourceWords(spans, chosen) {
  if (!chosen) {
    return `${plural(spans.length, "slot")} filled in. Point at marked text to see its source.`;
  }
  const [, name, source, tokens] = chosen;
  return [h("b", null, name), ` ${source}`, tokens != null && ` · ${plural(tokens, "token")}`];
}

function Reply({ store, tried, wanted, id }) {
  const read = (text) => store.reading.text(text);
  const reply = read(tried.reply);
  const fields = fieldsIn(reply);
  const tools = read(tried.tools);
  const isEmpty = !reply && !tools && !tried.fault;
  const passage = (text, name, mono) => h(Passage, { store, id: id + name, text, wanted, mono });
  const fold = (title, name, text, mono) => h(Fold, {
    key: name, store, id: id + name, title,
    wanted: !mono && wanted !== "" && text.toLowerCase().includes(wanted),
  }, () => passage(text, name, mono));
  return h("div", { class: "call-side" },
    h(Box, { kind: "call-box call-reply", label: "Reply" },
      !(tools && !reply) && h("h4", null, "reply"),
      tried.fault && h("div", { class: "call-fault" },
        h("b", null, tried.fault),
        tried.detail != null && passage(read(tried.detail), "detail")),
      fields ? h(ReplyFields, { fields, passage }) : reply && passage(reply, "reply"),
      tools && [h("h4", null, "tool calls"), passage(tools, "tools", true)],
      isEmpty && soft(tried.reply == null ? "No reply yet." : "The reply is empty."),
      tried.thinking != null && fold("Thinking", "thinking", read(tried.thinking)),
      fields && fold("Raw reply", "raw", reply, true)));
}

/** A reply by its fields: the reasoning as prose, then the others, nested ones as a table. */
function ReplyFields({ fields, passage }) {
  const { reasoning, ...others } = fields;
  const content = (leaf, id, unit) => (typeof leaf === "number"
    ? [h("b", null, `${leaf}`.replace("-", "−")), unit && ` ${unit}`] : passage(leaf, id));
  const field = (name, unit, value) => {
    const leaves = flatten(value);
    const rows = [...leaves].map(([path, leaf]) => (
      [path, path, content(leaf, `.${name}.${path}`, unit)]));
    return h("dd", null, leaves.has("") ? rows[0][2] : h(Table, { rows }));
  };
  return [
    reasoning !== undefined && h("div", { class: "call-why" },
      passage([...flatten(reasoning).values()].join("\n"), "why")),
    h("dl", null, Object.entries(others).map(([name, value]) => {
      const { label, unit } = labelled(name);
      const said = typeof value === "boolean" ? sayValue(value) : value;
      return [h("dt", { class: "fine" }, label), field(name, unit, said)];
    })),
  ];
}
