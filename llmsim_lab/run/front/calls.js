// The calls: a list to filter and to search, and one of them with its prompt and its reply.
import { h } from "./dom.js";
import {
  beginning, clip, fieldsIn, figure, flatten, marksIn, oneLine, plural, slots, visible,
} from "./text.js";

const ROW = 54, MARGIN = 12; // height of a row in pixels; rows that are drawn beyond those in sight
const LONG = 20000; // characters of a text that are shown at once: a browser lays out no million
const REASONS = new Set(["reasoning", "confidence"]);
const statusWords = (status) => ({ "": "no decision", lost: "made again" }[status ?? ""] ?? status);

/** How a call or a decision ended: a word, with a form and a colour of its own. */
export function Status({ word, quiet }) {
  const text = statusWords(word), kind = `status ${word || "lost"}`;
  if (quiet) return h("span", { class: kind, role: "img", "aria-label": text, title: text });
  return h("span", { class: kind }, text);
}

// --- searching ---------------------------------------------------------------------------------

const searches = new WeakMap(); // of a reading: its lines in lower case and the latest search

/** The texts that hold what is wanted (in lower case), by number, with how often they do. */
export function search(reading, wanted) {
  const { lines, texts } = reading;
  if (!searches.has(reading)) searches.set(reading, { low: [] });
  const memo = searches.get(reading);
  if (memo.wanted !== wanted) Object.assign(memo, { wanted, hits: [], read: 0, counts: new Map() });
  const { low, hits, counts } = memo;
  for (let at = low.length; at < lines.length; at += 1) low.push(lines[at].toLowerCase());
  for (let at = hits.length; at < low.length; at += 1) hits.push(countIn(low[at], wanted));
  for (; memo.read < texts.length; memo.read += 1) {
    let sum = 0;
    for (const line of texts[memo.read]) sum += hits[line];
    if (sum) counts.set(memo.read, sum);
  }
  return counts;
}

function countIn(line, wanted) {
  let count = 0;
  for (let at = line.indexOf(wanted); at >= 0; at = line.indexOf(wanted, at + wanted.length)) {
    count += 1;
  }
  return count;
}

const wantedIn = (at) => (at.q ?? "").trim().toLowerCase();

/** How often a call holds what is searched for. */
const hitsOf = (call, counts) => call.tries
  .flatMap(({ messages = [], reply, thinking, tools, detail }) => (
    [...messages.map(([, text]) => text), reply, thinking, tools, detail]))
  .reduce((sum, text) => sum + (counts.get(text) ?? 0), 0);

// --- which calls are listed --------------------------------------------------------------------

const inOrder = (one, other) => (one.n ?? Infinity) - (other.n ?? Infinity) || one.k - other.k;

/** The calls in the chosen scope: the shown run, its shown turn, or all runs. */
function callsInScope({ reading, at }) {
  const run = reading.runs.get(at.run);
  if (at.scope === "all") {
    return reading.keep("all calls", () => [...reading.calls.values()].sort(inOrder));
  }
  return reading.callsOf(run, at.scope === "turn" ? at.turn ?? reading.last(run) : undefined);
}

const NO_FILTER = { q: null, player: null, component: null, status: null, scope: null };
const FAULTY = "with failed attempts";
const statusesOf = (call) => [statusWords(call.status),
  ...(call.tries.some((attempt) => attempt.fault) ? [FAULTY] : [])];

/** The calls that are listed: `{calls, hits: Map of call -> number, total of hits}`. */
function listedCalls(store) {
  const { reading, at } = store, { player, component, status } = at;
  const all = callsInScope(store), wanted = wantedIn(at);
  return store.keep("listed", [all, wanted, player, component, status], () => {
    const counts = wanted && search(reading, wanted), hits = new Map();
    const calls = all.filter((call) => {
      if (player && call.player !== player) return false;
      if (component && call.component !== component) return false;
      if (status && !statusesOf(call).includes(status)) return false;
      if (counts) hits.set(call, hitsOf(call, counts));
      return !counts || hits.get(call) > 0;
    });
    return { calls, hits, total: calls.reduce((sum, call) => sum + (hits.get(call) ?? 0), 0) };
  });
}

// --- the view ----------------------------------------------------------------------------------

/** Filters, the list, and the chosen call beside it (narrow: in its place). */
export function Calls({ store }) {
  const { reading, at } = store, listed = listedCalls(store);
  const named = reading.calls.get(at.call), call = named ?? listed.calls[0];
  const back = () => { store.go({ call: null }); store.ui.list?.el.focus(); };
  return h("section", { class: `calls${named ? " open" : ""}`, "aria-label": "Calls" },
    h(CallFilters, { store, listed }),
    !call ? h(NoCalls, { store }) : h("div", { class: "calls-split" },
      h(CallList, { store, ...listed, chosen: call }),
      h("div", { class: "calls-detail" },
        h("button", { class: "plain calls-back", onclick: back }, "← All calls"),
        h(CallDetail, { store, call }))));
}

export function NoCalls({ store }) {
  if (!callsInScope(store).length) return h("p", { class: "calls-none" }, "No calls to a model.");
  return h("p", { class: "calls-none" }, "No call matches these filters. ",
    h("button", { class: "plain", onclick: () => store.go(NO_FILTER) }, "Show all"));
}

function CallFilters({ store, listed }) {
  const { at, ui, reading } = store, all = callsInScope(store);
  const valuesOf = (each) => [...new Set(all.flatMap(each))].filter(Boolean).sort();
  const choices = store.keep("callChoices", [all], () => [
    ["player", "All players", valuesOf((call) => call.player)],
    ["component", "All components", valuesOf((call) => call.component)],
    ["status", "All statuses", valuesOf(statusesOf)],
  ].filter(([, , values]) => values.length > 1));
  const narrow = (next) => {
    if (ui.list) ui.list.el.scrollTop = 0;
    store.go({ call: null, ...next });
  };
  const choice = (name, label, options) => h("select", {
    "aria-label": label, value: at[name] ?? "", key: name,
    onchange: (event) => narrow({ [name]: event.target.value || null }),
  }, options.map(([value, text]) => h("option", { value, key: value }, text)));
  const scopes = [["", "This run"], ["turn", "This turn"], ["all", "All runs"]];
  const of = listed.calls.length === all.length ? "" : `${figure(listed.calls.length)} of `;
  return h("div", { class: "calls-filters" },
    h("input", {
      type: "search", placeholder: "Search prompts and replies", value: at.q ?? "",
      "aria-label": "Search prompts and replies", ref: (el) => { ui.search = el; },
      oninput: (event) => narrow({ q: event.target.value || null }),
    }),
    choices.map(([name, label, values]) => choice(name, label,
      [["", label], ...values.map((value) => [value, clip(oneLine(value), 40)])])),
    choice("scope", "Which calls", reading.runs.size > 1 ? scopes : scopes.slice(0, 2)),
    h("span", { class: "soft calls-count", role: "status" }, of, plural(all.length, "call"),
      listed.total > 0 && ` · ${plural(listed.total, "hit")}`));
}

/** The list: only rows in sight are drawn, and it is drawn again only when others come in sight. */
function CallList({ store, calls, hits, chosen }) {
  const list = (store.ui.list ??= { top: 0, height: 800 });
  const blockAt = (top) => Math.floor(top / (ROW * MARGIN / 2));
  Object.assign(list, { calls, chosen });
  const block = blockAt(Math.min(list.top, Math.max(0, calls.length * ROW - list.height)));
  const first = Math.max(0, (block - 1) * MARGIN / 2);
  const last = first + Math.ceil(list.height / ROW) + 2 * MARGIN;
  const rows = calls.slice(first, last);
  const scrolled = (event) => {
    const was = blockAt(list.top);
    list.top = event.target.scrollTop;
    if (blockAt(list.top) !== was) store.changed();
  };
  const ref = (el) => {
    list.el = el;
    const top = calls.indexOf(chosen) * ROW, away = top < list.top || top > list.top + list.height;
    if (store.at.call != null && away) list.top = Math.max(0, top - list.height / 2);
    el.scrollTop = list.top; // as it was when the view was left
    list.sizes = new ResizeObserver(() => {
      list.height = el.clientHeight;
      store.changed();
    });
    list.sizes.observe(el);
  };
  return h("div", {
    class: "call-list", role: "listbox", tabindex: "0", "aria-label": "Calls", onscroll: scrolled,
    "aria-activedescendant": rows.includes(chosen) ? `call${chosen.k}` : null,
    ref, gone: () => list.sizes.disconnect(),
  }, h("div", { role: "presentation", style: `height: ${calls.length * ROW}px` },
    rows.map((call, index) => h(CallRow, {
      key: call.k, store, call, place: first + index, all: calls.length,
      chosen: call === chosen, hits: hits.get(call),
    }))));
}

function CallRow({ store, call, place, all, chosen, hits }) {
  const fault = call.tries.at(-1)?.fault, { reading, at } = store;
  const where = [at.scope === "all" && `run ${call.run}`, call.n != null && `turn ${call.n}`,
    call.replicate && `sample ${call.replicate}`].filter(Boolean).join(" · ");
  const answer = store.keep(`answer ${call.k}`, [call], () => answerOf(reading, call));
  return h("div", {
    class: "call-row", role: "option", id: `call${call.k}`, style: `top: ${place * ROW}px`,
    "aria-selected": chosen, "aria-posinset": place + 1, "aria-setsize": all,
    onclick: () => store.go({ call: call.k }),
  },
    h("div", null,
      h("b", { dir: "auto" }, clip(oneLine(call.player || call.component), 40)),
      call.player && h("small", { dir: "auto" }, clip(oneLine(call.component), 24)),
      h("small", { class: "call-when" }, where),
      h(Status, { word: call.status, quiet: !call.status || call.status === "ok" })),
    h("div", null,
      h("span", { class: "call-said", dir: "auto" }, fault && `${visible(fault)}: `, answer),
      hits > 0 && h("small", null, plural(hits, "hit"))));
}

/** What a call answered, in a line: its reply's fields but for the reasons, or the reply. */
function answerOf(reading, call) {
  const { reply, tools, detail } = call.tries.at(-1) ?? {}, text = reading.text(reply);
  const fields = Object.entries(fieldsIn(text) ?? {}).filter(([name]) => !REASONS.has(name));
  const only = fields.length === 1 && typeof fields[0][1] === "string" && fields[0][1];
  const each = [...flatten(Object.fromEntries(fields))]
    .map(([path, value]) => `${path.split(" · ").at(-1)} ${value}`);
  return clip(oneLine(only || each.join(", ") || text || reading.text(tools ?? detail)), 160);
}

/** Choose the call so many rows further on. */
function moveInList(store, by) {
  const { list } = store.ui, { el, calls, height } = list, was = calls.indexOf(list.chosen);
  const next = Math.max(0, Math.min(calls.length - 1, was < 0 ? 0 : was + by)), top = next * ROW;
  if (!calls.length) return;
  if (top < el.scrollTop) el.scrollTop = top;
  else if (top + ROW > el.scrollTop + height) el.scrollTop = top + ROW - height;
  list.chosen = calls[next]; // the next key may come before the next drawing
  store.go({ call: calls[next].k });
}

/** A key in this view; true if it is one of ours. `target` is the innermost element it goes to. */
export function callsKey(store, event, target) {
  const { list, search: field } = store.ui, { key } = event;
  if (!list?.el) return false;
  const typing = target.closest("input, select, textarea"), inList = target === list.el;
  const page = Math.max(1, Math.floor(list.height / ROW) - 1), far = list.calls.length;
  const by = { ArrowDown: typing ? 0 : 1, ArrowUp: typing ? 0 : -1, ...(!typing && { j: 1, k: -1 }),
    ...(inList && { PageDown: page, PageUp: -page, Home: -far, End: far }) }[key];
  const scrolls = key.startsWith("Arrow") && target.closest(".call"); // the prompt, by its own keys
  if (scrolls || (typing && typing !== field)) return false;
  if (by !== undefined && !event.shiftKey) {
    if (target === field) list.el.focus();
    moveInList(store, by);
  } else if (key === "Enter" && (inList || target === field) && list.chosen) {
    store.go({ call: list.chosen.k });
    (inList ? list.el.parentNode.querySelector(".call") : list.el)?.focus();
  } else if (key === "Escape" && target === field && field.value) {
    field.value = "";
    store.go({ q: null });
  } else if (key === "Escape" && !inList) {
    store.go({ call: null });
    list.el.focus();
  } else return false;
  return true;
}

// --- one call ----------------------------------------------------------------------------------

/** A call: what was asked, with its slots marked, beside what was answered. */
export function CallDetail({ store, call }) {
  const { ui, at } = store, wanted = at.view === "calls" ? wantedIn(at) : "";
  const number = ui.attempt?.call === call ? ui.attempt.number : call.tries.length - 1;
  const keys = [call, number, at.view, wanted, ui.slot, ui.shown, store.reading.size];
  return store.keep("callDetail", keys, () => {
    const props = { store, call, tried: call.tries[number] ?? {}, wanted, number };
    return h("article", {
      class: "call", key: `${call.k}.${number}.${wanted}`, tabindex: "-1",
      "aria-label": `Call of ${visible(call.player || call.component)}`,
    },
      h(CallHead, props), call.tries.length > 1 && h(Attempts, props),
      h("div", { class: "call-both" }, h(Prompt, props), h(Reply, props)),
      h(Settings, props));
  });
}

function CallHead({ store, call, tried }) {
  const { reading, at, panels } = store;
  const settings = JSON.parse(reading.text(tried.settings) || "{}");
  const near = panels.includes("compare") ? neighbours(store, call) : [];
  const toTurn = () => store.go({ view: "turn", run: call.run, turn: call.n });
  const onTurn = at.view === "turn" || !panels.includes("turn") || call.n == null;
  const facts = [
    reading.runs.size > 1 && `run ${call.run}`,
    call.n != null && (onTurn ? `turn ${call.n}`
      : h("button", { class: "plain", onclick: toTurn }, `turn ${call.n}`)),
    call.replicate && `sample ${call.replicate}`,
    h("span", { dir: "auto" }, visible(settings.model ?? "")),
    tried.read != null && `${plural(tried.read, "token")} read`,
    tried.written != null && `${figure(tried.written)} written`,
    tried.cut && "cut at its length limit",
    `${Number((tried.seconds ?? 0).toPrecision(3))} s`,
  ].filter(Boolean);
  return h("header", { class: "call-head" },
    h("div", null,
      h("h3", { dir: "auto" }, visible(call.player || call.component)),
      call.player && h("span", { class: "soft", dir: "auto" }, visible(call.component)),
      h(Status, { word: call.status }),
      near.length > 0 && h("span", { class: "call-near" }, h("small", null, "Compare with"),
        near.map(([other, name]) => h("button", {
          class: "plain", key: name,
          onclick: () => store.go({ view: "compare", of: "calls", a: other.k, b: call.k }),
        }, name)))),
    h("p", { class: "call-facts" }, facts.map((fact) => h("span", null, fact))));
}

/** Calls to compare with this one, each with a name: of the same player and component. */
export function neighbours(store, { k, run, n, player, component }) {
  const { reading } = store;
  return store.keep("neighbours", [k, reading.size], () => {
    const like = [...reading.calls.values()].filter((call) => call.k !== k
      && call.player === player && call.component === component).sort(inOrder);
    const own = like.filter((call) => call.run === run);
    const near = [own.findLast((call) => call.n === n && call.k < k),
      own.findLast((call) => call.n < n), own.find((call) => call.n > n)].filter(Boolean);
    const beside = new Map(like.filter((call) => call.run !== run && call.n === n)
      .map((call) => [call.run, call]));
    return [
      ...near.map((call) => [call, call.n === n ? "the one before" : `turn ${call.n}`]),
      ...[...beside.values()].slice(0, 3).map((call) => [call, `run ${call.run}`]),
    ];
  });
}

/** A call in a line. */
export const callWords = (reading, call) => clip([
  `Call ${call.k}`, reading.runs.size > 1 && `run ${call.run}`, call.n != null && `turn ${call.n}`,
  oneLine([call.player, call.component].filter(Boolean).join(", ")),
].filter(Boolean).join(" · "), 90);

function Attempts({ store, call, number }) {
  return h("div", { class: "call-tries", role: "group", "aria-label": "Attempts" },
    h("small", null, plural(call.tries.length, "attempt")),
    call.tries.map((attempt, index) => h("button", {
      key: index, "aria-pressed": index === number,
      onclick: () => store.show({ attempt: { call, number: index } }),
    }, `${index + 1} · ${visible(attempt.fault ?? "accepted")}`)));
}

function Prompt({ store, call, tried, wanted, number }) {
  const { reading, ui } = store, known = Array.isArray(tried.slots);
  const [form, ...places] = known ? tried.slots : [], spans = known ? reading.forms[form] : [];
  return h("div", { class: "call-side" },
    h("div", { class: "call-box call-prompt", tabindex: "0", role: "group",
      "aria-label": "Prompt" },
      tried.messages?.map(([role, text], index) => h("div", { class: "call-message", key: index },
        h("h4", null, visible(role)),
        h(Passage, {
          store, id: `${call.k}.${number}.${index}`, wanted, mono: true,
          pieces: slots(reading.text(text), spans, places, index),
        })))),
    spans.length > 0 && h(SlotSource, { spans, chosen: spans[ui.slot] }),
    !known && tried.slots && h("p", { class: "call-source soft" }, visible(tried.slots)));
}

/** Where the slot under the pointer comes from. */
const SlotSource = ({ spans, chosen }) => h("p", { class: "call-source", id: "call-slot" }, chosen
  ? [h("b", null, visible(chosen[1])), ` ${visible(chosen[2])}`,
    chosen[3] != null && ` · ${plural(chosen[3], "token")}`]
  : `${plural(spans.length, "slot")} filled in. Point at marked text to see its source.`);

/** How many of `all` things are shown, at first `most`, and a button for more. */
export function limited(store, id, all, most, word) {
  const { shown } = store.ui, count = shown?.[id] ?? most;
  const more = () => store.show({ shown: { ...shown, [id]: 10 * count || Infinity } });
  return [count, all > count
    && h("button", { class: "plain", key: "more", onclick: more }, plural(all - count, word))];
}

/**
 * A text that keeps its lines, or its pieces, with slots and hits marked; a piece may name a `tag`.
 * Of a very long text the beginning, and more on request.
 */
export function Passage({ store, id, text, pieces = [{ text }], wanted = "", mono, most = LONG }) {
  const size = pieces.reduce((sum, piece) => sum + piece.text.length, 0);
  const [count, more] = limited(store, id, size, most, "more character");
  return h("div", { class: mono ? "text mono" : "text", dir: "auto" },
    marksIn(more ? beginning(pieces, count) : pieces, wanted).map((piece) => {
      const parts = piece.parts.map((part) => (part.hit ? h(Hit, part) : visible(part.text)));
      if (piece.tag) return h(piece.tag, null, parts);
      return piece.name === undefined ? parts : h(Slot, { store, piece }, parts);
    }),
    more && [" … ", more]);
}

function Slot({ store, piece }, parts) {
  const show = () => store.show({ slot: piece.index });
  const long = piece.text.length > 200 ? " long" : "", pointed = store.ui.slot === piece.index;
  return h("mark", {
    class: `slot${long}${pointed ? " lit" : ""}`, tabindex: "0",
    "aria-describedby": "call-slot", onpointerenter: show, onfocus: show,
  }, parts);
}

/** What was searched for; the first one is scrolled into sight. */
function Hit({ text }) {
  const ref = (el) => {
    const box = el.closest(".call-box");
    if (!box || box.querySelector(".hit") !== el) return;
    box.scrollTop += el.getBoundingClientRect().top - box.getBoundingClientRect().top - 80;
  };
  return h("mark", { class: "hit", ref }, visible(text));
}

function Reply({ store, call, tried, wanted, number }) {
  const { reading } = store, read = (text) => reading.text(text), reply = read(tried.reply);
  const fields = fieldsIn(reply), tools = read(tried.tools), id = `${call.k}.${number}`;
  const passage = (text, name, mono) => h(Passage, { store, id: id + name, text, wanted, mono });
  const fold = (title, name, text, mono) => h("details", { key: name, open: hasHit(text, name) },
    h("summary", null, title), passage(text, name, mono));
  const hasHit = (text, name) => wanted !== "" && name !== "raw"
    && text.toLowerCase().includes(wanted);
  return h("div", { class: "call-side" },
    h("div", { class: "call-box call-reply", tabindex: "0", role: "group", "aria-label": "Reply" },
      h("h4", null, "reply"),
      tried.fault && h("div", { class: "call-fault" }, h("b", null, visible(tried.fault)),
        tried.detail != null && passage(read(tried.detail), "detail")),
      fields ? h(ReplyFields, { fields, passage }) : reply && passage(reply, "reply"),
      tools && [h("h4", null, "tool calls"), passage(tools, "tools", true)],
      !reply && !tools && !tried.fault
        && h("p", { class: "soft" }, tried.reply == null ? "No reply yet." : "The reply is empty."),
      tried.thinking != null && fold("Thinking", "thinking", read(tried.thinking)),
      fields && fold("As it was written", "raw", reply, true)));
}

/** A reply by its fields: the reasoning as prose, then the others, nested ones as a table. */
function ReplyFields({ fields, passage }) {
  const { reasoning, ...own } = fields;
  const classOf = (leaf) => (typeof leaf === "number" ? "n" : null);
  const content = (leaf, id) => (
    typeof leaf === "number" ? String(leaf).replace("-", "−") : passage(leaf, id));
  const field = (name, value) => {
    const leaves = flatten(value), only = leaves.get("");
    if (leaves.has("")) return h("dd", { class: classOf(only) }, content(only, `.${name}`));
    return h("dd", { class: "nested" }, h("table", null, h("tbody", null,
      [...leaves].map(([path, leaf]) => h("tr", { key: path },
        h("th", { scope: "row" }, visible(path)),
        h("td", { class: classOf(leaf) }, content(leaf, `.${name}.${path}`)))))));
  };
  return [
    reasoning !== undefined && h("div", { class: "call-why" },
      passage([...flatten(reasoning).values()].join("\n"), "why")),
    h("dl", null, Object.entries(own).map(([name, value]) => [
      h("dt", { dir: "auto" }, visible(name)), field(name, value),
    ])),
  ];
}

function Settings({ store, tried }) {
  const settings = JSON.parse(store.reading.text(tried.settings) || "{}");
  const text = JSON.stringify({ ...settings, seed: tried.seed }, null, 1);
  return h("details", { class: "call-settings" }, h("summary", null, "Settings of the request"),
    h("div", { class: "text mono", tabindex: "0", role: "group", "aria-label": "Settings" },
      visible(text)));
}
