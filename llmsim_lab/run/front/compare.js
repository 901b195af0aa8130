// Two runs, or two calls, side by side: only what differs stands out.
import { callWords, limited, neighbours, NoCalls, Passage } from "./calls.js";
import { Charts, runLabel, Swatch } from "./chart.js";
import { h } from "./dom.js";
import { clip, diff, fieldsIn, figure, flatten, visible } from "./text.js";

const KEEP = 2, MOST_ROWS = 400, MOST_CALLS = 400, MOST_APART = 200;

export function Compare({ store }) {
  const { reading, at } = store, several = reading.runs.size > 1;
  const ofRuns = several && at.of !== "calls";
  const choice = (of, name) => h("button", {
    "aria-pressed": ofRuns === (of === "runs"), onclick: () => store.go({ of, a: null, b: null }),
  }, name);
  return h("section", { class: "compare", "aria-label": "Compare" },
    h(ofRuns ? RunPair : CallPair, {
      store, kinds: several && reading.calls.size > 1 && h("span", { class: "seg", role: "group",
        "aria-label": "What to compare" }, choice("runs", "Runs"), choice("calls", "Calls")),
    }));
}

/** The row of controls: what is compared, and with what. */
function Pickers({ store, kinds, options, pair, swatches }) {
  const pick = (name, label, chosen) => h("select", {
    "aria-label": label, value: String(chosen), key: name,
    onchange: (event) => store.go({ a: pair[0], b: pair[1], [name]: Number(event.target.value) }),
  }, options);
  return h("div", { class: "compare-pick" }, kinds,
    swatches?.[0], pick("a", "Left", pair[0]), swatches?.[1], pick("b", "Right", pair[1]),
    h("button", { onclick: () => store.go({ a: pair[1], b: pair[0] }) }, "Swap"));
}

const CompareSection = ({ title }, content) => h("section", { "aria-label": title },
  h("h3", null, title), content);
const Same = () => h("p", { class: "soft" }, "The same.");

// --- two runs ----------------------------------------------------------------------------------

const runWords = (reading, run) => clip(`Run ${run.id} · ${runLabel(reading, run)}`, 90);

function RunPair({ store, kinds }) {
  const { reading, at } = store, runs = [...reading.runs.values()];
  const current = reading.runs.get(at.run);
  const beside = reading.runs.get(current.parent) ?? runs.find((run) => run !== current);
  const [early, late] = beside.id < current.id ? [beside, current] : [current, beside];
  const first = reading.runs.get(at.a) ?? early, second = reading.runs.get(at.b) ?? late;
  const names = [first, second].map((run) => `Run ${run.id}`);
  const options = store.keep("runOptions", [reading.size], () => runs.map((run) => (
    h("option", { value: String(run.id), key: run.id }, runWords(reading, run)))));
  const keys = [first, second, reading.size, store.ui.shown];
  return [
    h(Pickers, {
      store, kinds, options, pair: [first.id, second.id],
      swatches: [first, second].map((run) => h(Swatch, { run })),
    }),
    first !== second && h(Charts, {
      store, runs: [first, second], turn: at.turn ?? reading.last(second),
    }),
    ...store.keep("runPair", keys, () => [
      h(Definitions, { store, runs: [first, second], names }),
      h(Templates, { store, runs: [first, second], names }),
      h(DecisionsApart, { store, runs: [first, second], names }),
    ]),
  ];
}

const manifestOf = (store, run) => JSON.parse(store.reading.text(run.manifest) || "{}");

/** What defines two runs, where it differs. */
function Definitions({ store, runs, names }) {
  const [one, other] = runs.map((run) => (
    flatten({ ...manifestOf(store, run), prompts: undefined })));
  const paths = [...new Set([...one.keys(), ...other.keys()])];
  const apart = paths.filter((path) => one.get(path) !== other.get(path));
  const row = (path) => h("tr", { key: path },
    h("th", { scope: "row" }, visible(path)),
    [one, other].map((values, side) => h("td", null, h(Passage, {
      store, id: `${path}.${side}`, text: String(values.get(path) ?? "—"), most: 300,
    }))));
  return h(CompareSection, { title: "What defines them" },
    apart.length === 0 ? h(Same) : h("table", { class: "compare-facts" },
      columnHeads(["what", ...names]),
      h("tbody", null, apart.map(row))));
}

const columnHeads = (names) => h("thead", null, h("tr", null, names.map((name) => (
  h(name ? "th" : "td", { scope: name ? "col" : null }, name)))));

/** Templates of prompts that differ; those that differ in the same way are shown once. */
function Templates({ store, runs, names }) {
  const [one, other] = runs.map((run) => manifestOf(store, run).prompts ?? {}), groups = new Map();
  for (const place of new Set([...Object.keys(one), ...Object.keys(other)])) {
    const texts = [one[place]?.text ?? "", other[place]?.text ?? ""], id = JSON.stringify(texts);
    if (texts[0] === texts[1]) continue;
    groups.set(id, { texts, places: [...groups.get(id)?.places ?? [], place] });
  }
  if (!groups.size) return null;
  const part = ({ texts, places }) => [
    h("h4", null, visible(places.join(", "))),
    h(Difference, { store, id: places[0], texts, names }),
  ];
  return h(CompareSection, { title: "Prompt templates" }, [...groups.values()].map(part));
}

/** Decisions of the same place (turn, player, component) that two runs took differently. */
function DecisionsApart({ store, runs, names }) {
  const { reading } = store, [one, other] = runs.map((run) => decisionsByPlace(reading, run));
  const last = Math.min(...runs.map((run) => reading.last(run)));
  const apart = [...new Set([...one.keys(), ...other.keys()])]
    .map((place) => [one.get(place), other.get(place)])
    .filter((pair) => (pair[0] ?? pair[1]).n <= last && pair[0]?.decision !== pair[1]?.decision)
    .map((pair) => ({ pair, words: wordsApart(reading, pair) }))
    .filter(({ words }) => words[0] !== words[1])
    .sort((a, b) => (a.pair[0] ?? a.pair[1]).n - (b.pair[0] ?? b.pair[1]).n);
  const [count, more] = limited(store, "apart", apart.length, MOST_APART, "more decision");
  const title = runs.every((run) => reading.last(run) === last) ? "Decisions that differ"
    : `Decisions that differ, up to turn ${last}`;
  return h(CompareSection, { title },
    apart.length === 0 ? h("p", { class: "soft" }, "None.") : h("table", { class: "compare-apart" },
      columnHeads(["turn", "player", ...names, ""]),
      h("tbody", null, apart.slice(0, count).map((row) => h(DecisionRow, { store, ...row })))),
    more);
}

function decisionsByPlace(reading, run) {
  const places = new Map();
  for (const [n, turn] of reading.turns(run)) {
    for (const decision of turn.decisions) {
      let place = JSON.stringify([n, decision.player, decision.component]);
      while (places.has(place)) place += "+";
      places.set(place, { n, decision });
    }
  }
  return places;
}

/** How two decisions differ in words: what was answered, what became of it, or the reasons. */
function wordsApart(reading, pair) {
  const whys = pair.map((side) => (side ? reading.text(side.decision.why) : "—"));
  for (const part of ["answer", "became"]) {
    const sides = pair.map((side) => new Map([...flatten(side?.decision[part] ?? {})]
      .filter(([, value]) => value !== "null" && value !== ""))), [a, b] = sides;
    const paths = [...new Set([...a.keys(), ...b.keys()])]
      .filter((path) => a.get(path) !== b.get(path));
    const words = sides.map((fields) => paths.filter((path) => fields.has(path))
      .map((path) => fieldWords(path, fields.get(path))).join(" · "));
    if (paths.length) return words.map((text, side) => text || whys[side]);
  }
  return whys;
}

/** "accepted", "not accepted", "new rate 5.25", "Taiwan · readiness 90". */
function fieldWords(path, value) {
  const name = path.replaceAll("_", " ").split(" · ").slice(-2).join(" · ");
  if (value === "true" || value === "false") return value === "true" ? name : `not ${name}`;
  return `${name} ${figure(value)}`;
}

function DecisionRow({ store, pair, words }) {
  const { n, decision } = pair[1] ?? pair[0];
  const [a, b] = pair.map((side) => side?.decision.calls.at(-1));
  const link = a != null && b != null && a !== b && h("button", {
    class: "plain", onclick: () => store.go({ view: "compare", of: "calls", a, b }),
  }, "compare");
  return h("tr", null,
    h("td", { class: "n" }, n),
    h("th", { scope: "row", dir: "auto" }, visible(decision.player || decision.component),
      decision.player && h("small", null, ` ${visible(decision.component)}`)),
    words.map((text) => h("td", { dir: "auto" }, visible(clip(text, 300)))),
    h("td", null, link));
}

// --- two calls ---------------------------------------------------------------------------------

function CallPair({ store, kinds }) {
  const { reading, at } = store, all = reading.callsOf(reading.runs.get(at.run));
  const first = reading.calls.get(at.a) ?? reading.calls.get(at.call) ?? all[0];
  if (!first) return h(NoCalls, { store });
  const second = reading.calls.get(at.b) ?? neighbours(store, first)[0]?.[0] ?? all[1] ?? first;
  const options = store.keep("callOptions", [first, second, all], () => {
    const players = new Set([first.player, second.player]);
    const near = all.filter((call) => players.has(call.player)).slice(0, MOST_CALLS);
    return [...new Set([first, second, ...near])].sort((a, b) => a.k - b.k).map((call) => (
      h("option", { value: String(call.k), key: call.k }, callWords(reading, call))));
  });
  const calls = [first, second], names = calls.map((call) => callWords(reading, call));
  const part = (title, text) => h(CompareSection, { title },
    h(Difference, { store, id: title, texts: calls.map((call) => text(reading, call)), names }));
  return [
    h(Pickers, { store, kinds, options, pair: [first.k, second.k] }),
    ...store.keep("callPair", [first, second, reading.size, store.ui.shown], () => [
      part("Replies", replyText), part("Prompts", promptText), part("Settings", settingsText),
    ]),
  ];
}

const lastTry = (call) => call.tries.at(-1) ?? {};

function replyText(reading, call) {
  const { reply, tools, fault } = lastTry(call), text = reading.text(reply);
  const fields = fieldsIn(text), lines = [...flatten(fields ?? {})].map((leaf) => leaf.join(": "));
  return [lines.join("\n") || text, reading.text(tools), fault].filter(Boolean).join("\n");
}

const promptText = (reading, call) => (lastTry(call).messages ?? [])
  .map(([role, text]) => `[${role}]\n${reading.text(text)}`).join("\n\n");

function settingsText(reading, call) {
  const { settings, seed } = lastTry(call);
  return JSON.stringify({ ...JSON.parse(reading.text(settings) || "{}"), seed }, null, 1);
}

// --- two texts ---------------------------------------------------------------------------------

/** Two texts side by side by lines; equal ones are folded, in changed ones the words are marked. */
function Difference({ store, id, texts, names }) {
  if (texts[0] === texts[1]) return h(Same);
  const units = store.keep(`difference ${id}`, texts, () => foldEqual(diff(...texts)));
  const [count, more] = limited(store, id, units.length, MOST_ROWS, "more row");
  const side = (pieces, { same }, name, tag, key) => (!pieces
    ? h("div", { class: `${name} none` })
    : h("div", { class: same ? `${name} same` : name }, h(Passage, {
      store, id: `${id}.${key}.${name}`, mono: true,
      pieces: pieces.map(({ text, changed }) => ({ text, tag: changed && text && tag })),
    })));
  const row = (unit, key) => [
    side(unit.a, unit, "a", "del", key), side(unit.b, unit, "b", "ins", key),
  ];
  const skip = (button) => button && h("div", { class: "diff-skip" }, button);
  return h("div", { class: "diff" },
    names.map((name, at) => h("div", { class: `diff-name ${"ab"[at]}` }, visible(name))),
    units.slice(0, count).map((unit, index) => {
      if (!unit.folded) return row(unit, index);
      const [open, show] = limited(store, `${id}.${index}`, unit.folded.length, 0, "equal line");
      return open ? unit.folded.map((equal, at) => row(equal, `${index}.${at}`)) : skip(show);
    }),
    skip(more));
}

/** Rows, with long passages of equal ones as `{folded: rows}`. */
function foldEqual(rows) {
  const units = [];
  for (let at = 0; at < rows.length;) {
    const start = at;
    while (at < rows.length && rows[at].same) at += 1;
    const from = start ? start + KEEP : 0, to = at === rows.length ? at : at - KEEP;
    if (at === start) units.push(rows[at++]);
    else if (to - from <= 2) units.push(...rows.slice(start, at));
    else {
      const folded = rows.slice(from, to);
      units.push(...rows.slice(start, from), { folded }, ...rows.slice(to, at));
    }
  }
  return units;
}
