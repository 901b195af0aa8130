// Two runs, or two calls, side by side: only what differs stands out.
import {
  callWords, Choice, neighbours, NoCalls, Passage, Segments, soft, Table,
} from "./calls.js";
import { Charts, limited, plain, runLabel, Swatch } from "./chart.js";
import { h } from "./dom.js";
import { groupBy, pathsApart } from "./reading.js";
import { clip, diff, fieldsIn, flatten, inWords } from "./text.js";

const KEEP = 2, MOST_ROWS = 400, MOST_CALLS = 400, MOST_APART = 200;

export function Compare({ store }) {
  const { reading, at } = store;
  const hasRuns = reading.runs.size > 1;
  const isOfRuns = hasRuns && at.of !== "calls";
  const choose = (of) => () => store.go({ of, a: null, b: null });
  const items = [["Runs", isOfRuns, choose("runs")], ["Calls", !isOfRuns, choose("calls")]];
  const kinds = hasRuns && reading.calls.size > 1
    && h(Segments, { label: "What to compare", items });
  return h("section", { class: "compare", "aria-label": "Compare" },
    h(isOfRuns ? RunPair : CallPair, { store, kinds }));
}

function Pickers({ store, kinds, options, pair, swatches }) {
  const picker = (name, label, side) => h("div", { class: "row mid compare-pick" },
    swatches?.[side],
    h(Choice, {
      label, options, value: pair[side],
      pick: (value) => store.go({ a: pair[0], b: pair[1], [name]: Number(value) }),
    }));
  return h("div", { class: "row mid compare-pair" },
    kinds, picker("a", "Left", 0), picker("b", "Right", 1));
}

const CompareSection = ({ title }, content) => h("section", { "aria-label": title },
  h("h3", null, title), content);

function RunPair({ store, kinds }) {
  const { reading, at } = store;
  const all = [...reading.runs.values()];
  const current = reading.runs.get(at.run);
  const beside = reading.runs.get(current.parent) ?? all.find((run) => run !== current);
  const [early, late] = beside.id < current.id ? [beside, current] : [current, beside];
  const runs = [reading.runs.get(at.a) ?? early, reading.runs.get(at.b) ?? late];
  const options = store.keep("runOptions", [reading.size], () => all.map((run) => (
    [run.id, clip(`Run ${run.id} · ${runLabel(reading, run)}`, 90)])));
  const swatches = runs.map((run) => h(Swatch, { run }));
  const names = runs.map((run) => `Run ${run.id}`);
  const props = { store, runs, names };
  return [
    h(Pickers, { store, kinds, options, swatches, pair: runs.map((run) => run.id) }),
    runs[0] !== runs[1] && h(Charts, { store, runs, turn: at.turn ?? reading.last(runs[1]) }),
    ...store.keep("runPair", [...runs, reading.size, store.ui.shown], () => (
      [Changes, Definitions, Templates, DecisionsApart].map((part) => h(part, props)))),
  ];
}

const manifestOf = (store, run) => JSON.parse(store.reading.text(run.manifest) || "{}");

/** What was changed on the way to each of two runs, where they do not have it in common. */
function Changes({ store, runs, names }) {
  const { reading } = store;
  const rows = runs.map((run, side) => [run.id, names[side], changesOnTheWay(reading, run, runs)]);
  return rows.some(([, , words]) => words.length > 0) && h(CompareSection, { title: "Changes" },
    h(Table, { kind: "compare-changes", rows: rows.map(([key, name, words]) => (
      [key, name, words.length > 0 ? words.map((text) => h("p", null, text)) : "none"])) }));
}

/** The forks that led to a run and not to the other one, oldest first, each with its changes. */
function changesOnTheWay(reading, run, runs) {
  const other = runs.find((it) => it !== run) ?? run;
  const [line, otherLine] = [run, other].map((it) => reading.lineOf(it));
  // A run that branched off before the turn of an ancestor's change does not have that change.
  const has = (ids, id) => ids.get(id) >= (reading.runs.get(id).fork ?? 0);
  const own = [...line.keys()].reverse().filter((id) => has(line, id) && !has(otherLine, id));
  const forks = own.map((id) => reading.runs.get(id)).filter((it) => reading.runs.has(it.parent));
  return forks.map((fork) => {
    const label = clip(runLabel(reading, fork), 300);
    return fork.changes.length > 0 ? `${label}, from run ${fork.parent}` : label;
  });
}

/** What defines two runs, where it differs. */
function Definitions({ store, runs, names }) {
  const sides = runs.map((run) => flatten({ ...manifestOf(store, run), prompts: undefined }));
  const value = (path) => (values, side) => h(Passage, {
    store, id: `${path}.${side}`, text: String(values.get(path) ?? "—"), most: 300,
  });
  const rows = pathsApart(sides).map((path) => [path, path, ...sides.map(value(path))]);
  const isForked = runs.some((run) => changesOnTheWay(store.reading, run, runs).length > 0);
  if (isForked && rows.length === 0) return null; // what was changed is said above
  return h(CompareSection, { title: "Definitions" }, rows.length === 0 ? soft("The same.")
    : h(Table, { kind: "compare-facts", heads: ["what", ...names], rows }));
}

/** Templates of prompts that differ; those that differ in the same way are shown once. */
function Templates({ store, runs, names }) {
  const sides = runs.map((run) => new Map(Object.entries(manifestOf(store, run).prompts ?? {})
    .map(([place, prompt]) => [place, prompt.text])));
  const textsOf = (place) => sides.map((side) => side.get(place));
  // A run that has not asked a question yet does not have its template.
  const places = pathsApart(sides).filter((place) => sides.every((side) => side.has(place)));
  const groups = [...groupBy(places, (place) => textsOf(place).join("\0")).values()];
  return groups.length > 0 && h(CompareSection, { title: "Prompt templates" },
    groups.map((places) => [
      h("h4", null, places.join(", ")),
      h(Difference, { store, id: places[0], texts: textsOf(places[0]), names }),
    ]));
}

/** Decisions of the same player in the same turn that two runs took differently, a row each. */
function DecisionsApart({ store, runs, names }) {
  const { reading } = store;
  const last = Math.min(...runs.map((run) => reading.last(run)));
  const sides = runs.map((run) => decisionsByPlace(reading, run, last));
  const apart = [...new Set(sides.flatMap((side) => [...side.keys()]))]
    .map((place) => apartAt(reading, sides.map((side) => side.get(place))))
    .filter(({ words }) => words[0] !== words[1])
    .sort((one, other) => one.n - other.n);
  const [count, more] = limited(store, "apart", apart.length, MOST_APART, "more decision");
  const rows = apart.slice(0, count).map((item, index) => {
    const [a, b] = item.calls;
    const toCalls = () => store.go({ view: "compare", of: "calls", a, b });
    const isNewTurn = item.n !== apart[index - 1]?.n;
    return [index, isNewTurn && String(item.n), item.player,
      ...item.words.map((text) => clip(text, 300)),
      a != null && b != null && a !== b && plain("compare", toCalls)];
  });
  const isWhole = runs.every((run) => reading.last(run) === last);
  const title = isWhole ? "Decisions that differ" : `Decisions that differ, up to turn ${last}`;
  return h(CompareSection, { title },
    apart.length === 0 ? soft("None.") : h(Table, {
      kind: "compare-apart", heads: ["turn", "player", ...names, ""], named: 1, rows }),
    more);
}

/** A run's decisions by turn and player; one that no player made is by its component. */
function decisionsByPlace(reading, run, last) {
  const places = new Map();
  for (const [n, { decisions }] of reading.turns(run)) {
    if (n > last) continue;
    for (const made of decisions) {
      const player = made.player || made.component;
      const place = JSON.stringify([n, player]);
      if (!places.has(place)) places.set(place, { n, player, decisions: [] });
      places.get(place).decisions.push(made);
    }
  }
  return places;
}

/** What two runs have of a player in a turn, where it differs: in words, and two calls. */
function apartAt(reading, pair) {
  const { n, player } = pair[0] ?? pair[1];
  const sides = pair.map((place) => place?.decisions ?? []);
  const leaves = sides.map((decisions) => leavesOf(decisions));
  const own = new Set(sides.flatMap(([first]) => [...leavesOf(first ? [first] : []).keys()]));
  const paths = withoutEchoes(pathsApart(leaves), leaves, own);
  const reasons = reasonsApart(reading, sides);
  const words = leaves.map((side, index) => (
    inWords(paths.map((path) => [path, side.get(path) ?? ""])) || reasons[index]));
  const place = firstApart(reading, sides);
  const calls = sides.map((decisions) => decisions[place]?.calls.at(-1));
  return { n, player, words: paths.length > 0 ? words : reasons, calls };
}

/** All that was answered and became of it, by path; of a path that several name, the first. */
function leavesOf(decisions) {
  const leaves = new Map();
  for (const made of decisions) {
    for (const [path, value] of flatten({ ...made.answer, ...made.became, ...made.answer })) {
      if (path && !leaves.has(path)) leaves.set(path, value);
    }
  }
  return leaves;
}

/** Paths without those by which a later part of the world repeats, under another name, what is
 * the player's own. */
function withoutEchoes(paths, sides, own) {
  const valuesAt = (path) => JSON.stringify(sides.map((side) => side.get(path) ?? null));
  const ownValues = new Set(paths.filter((path) => own.has(path)).map(valuesAt));
  return paths.filter((path) => own.has(path) || !ownValues.has(valuesAt(path)));
}

/** The place of the first decision that two runs answered, or gave reasons for, differently. */
function firstApart(reading, [one, other]) {
  const words = (made) => made && JSON.stringify([
    made.answer, made.became, reading.text(made.reasoning)]);
  const place = one.findIndex((made, index) => words(made) !== words(other[index]));
  return Math.max(0, place);
}

function reasonsApart(reading, sides) {
  const place = firstApart(reading, sides);
  return sides.map((decisions) => (
    decisions[place] ? reading.text(decisions[place].reasoning) : "—"));
}

function CallPair({ store, kinds }) {
  const { reading, at } = store;
  const all = reading.callsOf(reading.runs.get(at.run));
  const first = reading.calls.get(at.a) ?? reading.calls.get(at.call) ?? all[0];
  if (!first) return h(NoCalls, { store });
  const second = reading.calls.get(at.b) ?? neighbours(store, first)[0]?.[0] ?? all[1] ?? first;
  const calls = [first, second];
  const options = store.keep("callOptions", [first, second, all], () => {
    const players = calls.map((call) => call.player);
    const near = all.filter((call) => players.includes(call.player)).slice(0, MOST_CALLS);
    const listed = [...new Set([...calls, ...near])].sort((one, other) => one.k - other.k);
    return listed.map((call) => [call.k, callWords(reading, call)]);
  });
  const names = calls.map((call) => callWords(reading, call));
  const part = (title, text) => {
    const texts = calls.map((call) => text(reading, call.tries.at(-1) ?? {}));
    return h(CompareSection, { title }, h(Difference, { store, id: title, texts, names }));
  };
  return [
    h(Pickers, { store, kinds, options, pair: [first.k, second.k] }),
    ...store.keep("callPair", [first, second, reading.size, store.ui.shown], () => [
      part("Replies", replyText), part("Prompts", promptText), part("Settings", settingsText),
    ]),
  ];
}

/** A reply by its fields, or as it came, and what went wrong. */
function replyText(reading, { reply, tools, fault }) {
  const text = reading.text(reply);
  const leaves = [...flatten(fieldsIn(text) ?? {})];
  const fields = leaves.map((leaf) => leaf.join(": ")).join("\n");
  return [fields || text, reading.text(tools), fault].filter(Boolean).join("\n");
}

const promptText = (reading, { messages = [] }) => messages
  .map(([role, text]) => `[${role}]\n${reading.text(text)}`).join("\n\n");

const settingsText = (reading, { settings, seed }) => (
  JSON.stringify({ ...JSON.parse(reading.text(settings) || "{}"), seed }, null, 1));

/** Two texts side by side by lines; equal ones are folded, in changed ones the words are marked. */
function Difference({ store, id, texts, names }) {
  if (texts[0] === texts[1]) return soft("The same.");
  const units = store.keep(`difference ${id}`, texts, () => foldEqual(diff(...texts)));
  const [count, more] = limited(store, id, units.length, MOST_ROWS, "more row");
  const side = (unit, name, tag, key) => {
    const pieces = unit[name]?.map(({ text, changed }) => ({ text, tag: changed && text && tag }));
    const kinds = [name, unit.same && "same soft", !pieces && "none"];
    return h("div", { class: kinds.filter(Boolean).join(" ") },
      pieces && h(Passage, { store, id: `${id}.${key}.${name}`, mono: true, pieces }));
  };
  const row = (unit, key) => [side(unit, "a", "del", key), side(unit, "b", "ins", key)];
  const skip = (button) => button && h("div", { class: "diff-skip fine" }, button);
  return h("div", { class: "diff" },
    names.map((name, at) => h("div", { class: `diff-name fine ${"ab"[at]}` }, name)),
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
  const isNear = (at) => (
    rows.slice(Math.max(0, at - KEEP), at + KEEP + 1).some((row) => !row.same));
  rows.forEach((row, at) => {
    const { folded } = units.at(-1) ?? {};
    if (isNear(at)) units.push(row);
    else if (folded) folded.push(row);
    else units.push({ folded: [row] });
  });
  return units.flatMap((unit) => (unit.folded?.length <= 2 ? unit.folded : unit));
}
