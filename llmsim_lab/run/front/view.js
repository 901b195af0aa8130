// What is shown of a reading: head, controls, the overview and a turn. Text stays text.

import { CallDetail, Calls, callsKey, Passage, Status } from "./calls.js";
import { Charts, answerIn, look, openTurn, runLabel, Swatch, turnName } from "./chart.js";
import { Compare } from "./compare.js";
import { h } from "./dom.js";
import { groupBy } from "./reading.js";
import { change, clip, figure, oneLine, plural, visible } from "./text.js";

const VIEWS = { overview: "Overview", turn: "Turn", calls: "Calls", compare: "Compare" };
const MOST_PILLS = 4, MOST_RUNS = 60, MOST_FACTS = 12, FEW_PLAYERS = 10, LONG_VALUE = 44;
const TYPED_IN = "input:not([type=range], [type=checkbox]), textarea, select";
const ICONS = {
  step: "M3 3l6 5-6 5zM11 3h2v10h-2z", play: "M4 2.5l9 5.5-9 5.5z", stop: "M3.5 3.5h9v9h-9z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  fork: "M5 2v5.2C5 9.5 7 10 9 10h2.2L9.4 8.2l1.1-1.1 3.5 3.6-3.5 3.5-1.1-1.1 1.8-1.6H9C6 11.5 "
    + "3.5 10.4 3.5 7.2V2z",
};

const Icon = ({ name }) => h("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" },
  h("path", { d: ICONS[name] }));
const words = (name) => visible(name).replaceAll("_", " ");

/** A part that is drawn only while it is open; `content` is a function. */
function Fold({ store, id, title }, [content]) {
  const open = store.ui[`open ${id}`] ?? false;
  return h("details", { open, ontoggle: (event) => {
    if (event.target.open !== open) store.show({ [`open ${id}`]: event.target.open });
  } }, h("summary", null, title), open && content());
}

// --- where we are ------------------------------------------------------------------------------

export function App({ store }) {
  const { reading, panels } = store;
  if (!reading.runs.size) return h("div", { class: "app wait", role: "status" }, liveWords(store) || "Reading …");
  const views = viewsOf(store);
  settle(store, views);
  const { view } = store.at, now = here(store), part = (name) => panels.includes(name);
  const View = { overview: Overview, turn: Turn, calls: Calls, compare: Compare }[view];
  return h("div", { class: "app" },
    part("head") && h(Head, { store, ...now }),
    store.commands && part("transport") && h(Transport, { store, ...now }),
    h(Live, { store, ...now }),
    store.ask && h(Ask, { key: `ask ${store.ask.id}`, store }),
    store.form && h(Change, { key: "change", store, form: store.form }),
    h(Tabs, { store, views, ...now }),
    store.ui.help && h(Help, { store }),
    View && h(store.commands ? "div" : "main", { class: "view", key: view },
      h("h2", { class: "hidden" }, VIEWS[view]), h(View, { store, ...now })));
}

function viewsOf({ panels, reading }) {
  const pairs = reading.runs.size > 1 || reading.calls.size > 1;
  return Object.keys(VIEWS).filter((name) => panels.includes(name) && (name !== "compare" || pairs));
}

/** Fill in what an address, or a host, left open: the run and the view. */
function settle(store, views) {
  const { reading, at } = store;
  const run = reading.runs.has(at.run) ? at.run : reading.runs.keys().next().value;
  const asked = at.call != null ? "calls" : at.a != null ? "compare" : at.turn != null ? "turn" : "";
  const view = [at.view, asked, views[0]].find((name) => views.includes(name));
  store.at = { ...at, run, view };
}

/** The run, its turns and the one that is shown; without one in the address, the latest. */
function here({ reading, at }) {
  const run = reading.runs.get(at.run), first = reading.first(run), last = reading.last(run);
  const n = Math.max(first, Math.min(at.turn ?? last, last));
  return { run, first, last, n, turn: reading.turn(run, n) };
}

/** Show a turn; the latest is followed while a run is played. */
const toTurn = (store, n, last) => store.go({ turn: n >= last && store.commands ? null : n });

// --- keys --------------------------------------------------------------------------------------

export function onKey(store, event, target) {
  if (!store.reading.runs.size || !target.closest) return;
  const { at, ui } = store, { first, last, n } = here(store), views = viewsOf(store);
  if (at.view === "calls" && callsKey(store, event, target)) return event.preventDefault();
  const key = event.key === " " ? "Space" : event.key;
  if (key === "Escape" && (ui.help || store.form)) {
    ui.help = false;
    return store.set({ form: null });
  }
  if (target.closest(TYPED_IN) || (["Space", "Enter"].includes(key) && target.closest("button, summary, [tabindex]"))) return;
  const play = (turns) => store.commands?.({ do: "play", run: at.run, turns });
  const acts = {
    ArrowLeft: () => toTurn(store, Math.max(n - 1, first), last),
    ArrowRight: () => toTurn(store, n + 1 > last ? last : n + 1, last),
    "/": () => {
      if (!views.includes("calls")) return;
      store.go({ view: "calls" });
      store.draw();
      ui.search?.focus();
    },
    "?": () => store.show({ help: !ui.help }),
    ...(store.commands && {
      Space: () => (store.live.busy ? store.commands({ do: "pause" }) : play(turnsToPlay(store))),
      Enter: () => !store.live.busy && play(1),
    }),
    ...Object.fromEntries(views.map((view, index) => [index + 1, () => store.go({ view })])),
  };
  if (!Object.hasOwn(acts, key)) return;
  acts[key]();
  event.preventDefault();
}

function Help({ store }) {
  const keys = [["← →", "the turn before, the next turn"], ["1 … 4", "another view"],
    ["/", "search the calls"], ["j k ↓ ↑", "in the list of calls: next, previous"],
    ["Enter", "in the list: to the call"], ["Esc", "back to the list; close a form"],
    ...(store.commands ? [["Space", "play, pause"], ["Enter", "play one turn"]] : [])];
  return h("section", { class: "card", "aria-label": "Keys" },
    h("dl", { class: "keys" }, keys.map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)])));
}

// --- head --------------------------------------------------------------------------------------

function Head({ store, run, n }) {
  const { reading, title } = store, name = title ?? run.name;
  const facts = [name !== run.name && reading.runs.size === 1 && run.name, run.model,
    run.started?.slice(0, 10)].filter(Boolean);
  return h("header", null,
    h("div", { class: "title" },
      h(store.commands ? "h2" : "h1", { dir: "auto" }, visible(name)),
      h("span", { class: "soft", dir: "auto" }, facts.map(oneLine).join(" · ")),
      h("span", { class: "when" }, turnName(reading, run, n))),
    reading.runs.size > 1 && h(Runs, { store, run }));
}

/** The runs: a few as a row, more as a tree that is folded away. */
function Runs({ store, run }) {
  const { reading, ui } = store, rows = reading.tree();
  if (reading.runs.size <= MOST_PILLS) {
    return h("div", { class: "runs", role: "group", "aria-label": "Runs" }, rows.map((row) => (
      row.runs ?? [row.run]).map((it) => h(Pill, { key: it.id, store, it, chosen: it === run }))));
  }
  return h("div", { class: "runs" },
    h(Pill, { store, it: run, chosen: true, run }),
    h("button", { class: "plain", "aria-expanded": Boolean(ui.tree),
      onclick: () => store.show({ tree: !ui.tree }) }, ui.tree ? "Hide the runs" : `All ${reading.runs.size} runs`),
    ui.tree && h(Tree, { store, run, rows }));
}

function Pill({ store, it, chosen }) {
  return h("button", { class: `run ${look(it)}`, "aria-pressed": chosen, dir: "auto",
    onclick: () => store.go({ run: it.id, call: null }) },
  h(Swatch, { run: it }), clip(runName(store.reading, it), 70));
}

const runName = (reading, run) => (run.fork != null && reading.runs.has(run.parent)
  ? `from turn ${run.fork}: ${runLabel(reading, run)}` : runLabel(reading, run));

function Tree({ store, run, rows }) {
  const { reading, ui } = store, wanted = (ui.treeSearch ?? "").toLowerCase();
  const open = rows.flatMap((row) => (row.runs && (ui[`seeds ${row.run.id}`] || wanted)
    ? [row, ...row.runs.map((it) => ({ run: it, depth: row.depth + 1, seed: true }))] : [row]));
  const fits = ({ run: it, runs }) => !wanted || (!runs && `${it.id} ${runName(reading, it)}`.toLowerCase().includes(wanted));
  const found = open.filter(fits), most = ui.mostRuns ?? MOST_RUNS;
  return h("div", { class: "tree" },
    rows.length > 12 && h("input", { type: "search", placeholder: "Find a run", "aria-label": "Find a run",
      oninput: (event) => store.show({ treeSearch: event.target.value }) }),
    h("ul", null, found.slice(0, most).map((row) => h("li", { key: row.runs ? `g${row.run.id}` : row.run.id,
      style: `--depth: ${row.depth}` }, h(row.runs ? Seeds : RunRow, { store, row, run })))),
    found.length > most && h("button", { class: "plain", onclick: () => store.show({ mostRuns: 10 * most }) },
      `${plural(found.length - most, "more run")}`));
}

/** Runs that differ only in their seed, as one line. */
function Seeds({ store, row, run }) {
  const name = `seeds ${row.run.id}`, its = row.runs, bad = its.filter((it) => it.outcome && it.outcome !== "done");
  return h("button", { class: "tree-row", "aria-expanded": Boolean(store.ui[name]),
    onclick: () => store.show({ [name]: !store.ui[name] }) },
  h(Swatch, { run: row.run }), h("span", { class: "what", dir: "auto" }, h("b", null, plural(its.length, "seed")),
    ` ${runName(store.reading, row.run)}`),
  its.includes(run) && h("small", null, `run ${run.id} is shown`),
  bad.length > 0 && h("small", null, `${bad.length} not finished`));
}

function RunRow({ store, row: { run: it, seed }, run }) {
  const { reading } = store, counts = reading.statuses(it);
  return h("button", { class: "tree-row", "aria-current": it === run ? "true" : null,
    onclick: () => store.go({ run: it.id, call: null }) },
  h(Swatch, { run: it }), h("span", { class: "what", dir: "auto" },
    seed ? `seed ${it.seed}` : clip(runName(reading, it), 160)),
  [...counts].filter(([status]) => status && status !== "ok").map(([status, count]) => h("small", { key: status },
    h(Status, { word: status }), ` ${count}`)),
  it.outcome && it.outcome !== "done" && h("small", { dir: "auto" }, clip(oneLine(it.outcome), 60)),
  h("small", { class: "n" }, `run ${it.id}`),
  h("small", { class: "n" }, it.own.size ? `to turn ${reading.last(it)}` : "no turn yet"));
}

// --- controls ----------------------------------------------------------------------------------

const turnsToPlay = (store) => store.ui.turns ?? 4;

function Transport({ store, run, first, last, n }) {
  const { commands, live, form } = store, busy = Boolean(live.busy);
  const play = (turns) => commands({ do: "play", run: run.id, turns });
  return h("div", { class: "bar" },
    h("div", { class: "buttons" },
      h("button", { class: "primary", disabled: busy, onclick: () => play(1) }, h(Icon, { name: "step" }), "Step"),
      busy ? h("button", { key: "pause", onclick: () => commands({ do: "pause" }) }, h(Icon, { name: "pause" }), "Pause")
        : h("button", { key: "play", onclick: () => play(turnsToPlay(store)) }, h(Icon, { name: "play" }), "Play"),
      h("label", { class: "turns" }, h("input", { type: "number", min: 1, max: 100000, value: 4, "aria-label": "Turns to play",
        oninput: (event) => { store.ui.turns = Math.max(1, Math.round(event.target.valueAsNumber) || 1); } }), " turns"),
      h("button", { disabled: !busy, onclick: () => commands({ do: "stop" }) }, h(Icon, { name: "stop" }), "Stop")),
    h(Slider, { store, first, last, n }),
    h("button", { disabled: busy, "aria-expanded": Boolean(form), onclick: () => (form ? store.set({ form: null })
      : commands({ do: "form", run: run.id, turn: n })) }, h(Icon, { name: "fork" }), "Fork or change …"));
}

function Slider({ store, first, last, n }) {
  return h("div", { class: "slide" }, h("span", { class: "n" }, first),
    h("input", { type: "range", min: first, max: last, "aria-label": "Turn", disabled: first === last, value: n,
      oninput: (event) => toTurn(store, Number(event.target.value), last) }),
    h("span", { class: "n" }, last));
}

function Tabs({ store, views, first, last, n, run }) {
  const { reading, panels, ui } = store, counts = { calls: reading.callsOf(run).length };
  const slider = !store.commands && panels.includes("transport");
  if (views.length < 2 && !slider) return null;
  return h("div", { class: "tabs" },
    views.length > 1 && h("nav", { "aria-label": "Views" }, views.map((view) => h("button", {
      key: view, "aria-current": view === store.at.view ? "page" : null, onclick: () => store.go({ view }),
    }, VIEWS[view], counts[view] > 0 && h("small", null, figure(counts[view]))))),
    slider && h(Slider, { store, first, last, n }),
    h("button", { class: "plain", "aria-label": "Keys", title: "Keys", "aria-expanded": Boolean(ui.help),
      onclick: () => store.show({ help: !ui.help }) }, "?"));
}

// --- while a run is played ---------------------------------------------------------------------

function liveWords({ live, slow, gone }) {
  if (gone) return "The kernel is gone: run the cell again.";
  if (slow) return "Sent; waiting for the kernel, which is busy.";
  if (!live.busy) return oneLine(live.says ?? "");
  const more = live.left > 1 ? `, ${plural(live.left - 1, "more turn")} after it` : "";
  return `Playing turn ${live.turn}${more}`;
}

function Live({ store, run }) {
  if (!store.commands) return null;
  const { live } = store, fault = store.fault || live.fault, waiting = live.busy ? live.waiting ?? [] : [];
  const who = waiting.map((it) => `${it.who} (${[it.attempt > 1 && `attempt ${it.attempt}`, `${it.seconds} s`].filter(Boolean).join(", ")})`);
  return h("div", { class: "live" },
    h("p", { role: "status" }, liveWords(store)),
    who.length > 0 && h("p", { class: "soft" }, `waiting for ${oneLine(clip(who.join(", "), 300))}`),
    waiting.filter((it) => it.text).slice(0, 6).map((it) => h("div", { key: `text ${it.who}`, class: "writing" },
      h("b", { dir: "auto" }, oneLine(it.who)),
      h("p", { class: "text mono", dir: "auto" }, visible(it.text.slice(-600)), h("span", { class: "caret" })))),
    fault && h("div", { class: "fault", role: "alert" }, h("p", { class: "text", dir: "auto" }, visible(fault)),
      live.fault && h("button", { onclick: () => store.commands({ do: "play", run: run.id, turns: 1 }) }, "Try again")));
}

// --- forms -------------------------------------------------------------------------------------

/** A schema without "or nothing": pydantic writes that as a choice. */
const plainSchema = (schema) => schema.anyOf?.find((it) => it.type !== "null") ?? schema;
const textOf = (value) => (value == null ? "" : typeof value === "object" ? JSON.stringify(value, null, 1) : String(value));

function valueIn(field, text) {
  const { type, enum: choices } = plainSchema(field.schema);
  if (choices) return choices.find((it) => String(it) === text) ?? text;
  if (text === "" && type !== "string") return null;
  if (type === "integer" || type === "number") return Number(text);
  return type === "string" || type === undefined ? text : JSON.parse(text);
}

/** What was typed as nested values; with `all`, also what was left as it is. */
export function valuesIn(fields, typed, all = false) {
  const values = {};
  fields.forEach((field, index) => {
    if (typed[index] === undefined && !all) return;
    const value = typed[index] === undefined ? field.value : valueIn(field, typed[index]);
    if (!all && JSON.stringify(value) === JSON.stringify(field.value ?? null)) return;
    const path = field.place.slice(0, -1);
    path.reduce((at, name) => (at[name] ??= {}), values)[field.place.at(-1)] = value;
  });
  return values;
}

function Fields({ store, fields, typed }) {
  return h("div", { class: "fields" }, fields.map((field, index) => {
    const schema = plainSchema(field.schema ?? {}), was = textOf(field.value);
    const props = { value: typed[index] ?? was, oninput: (event) => {
      typed[index] = event.target.value;
      store.changed();
    } };
    const changed = typed[index] !== undefined && typed[index] !== was;
    const number = ["integer", "number"].includes(schema.type), choices = schema.type === "boolean" ? [true, false] : schema.enum;
    const long = schema.type === "object" || schema.type === "array" || was.length > 60 || was.includes("\n") || (schema.maxLength ?? 0) > 120;
    const control = choices ? h("select", props, field.value == null && h("option", { value: "" }, "—"),
      choices.map((it) => h("option", { value: String(it) }, it === true ? "yes" : it === false ? "no" : visible(it))))
      : long ? h("textarea", { rows: 3, dir: "auto", ...props })
        : h("input", { type: number ? "number" : "text", step: schema.type === "integer" ? 1 : "any",
          min: schema.minimum, max: schema.maximum, dir: "auto", ...props });
    return h("label", { key: index, class: `field${changed ? " changed" : ""}${long ? " long" : ""}` },
      h("span", { dir: "auto" }, visible(field.label)), control, field.help && h("small", { dir: "auto" }, visible(field.help)));
  }));
}

/** Send a form's values; what cannot be read as its type is said in place. */
function send(store, event, values, message) {
  event.preventDefault();
  try {
    store.commands(message(values()));
  } catch (error) {
    store.set({ fault: `This cannot be read: ${error.message}` });
  }
}

/** The form of what can be changed: a fork from a turn, or the run again from its start. */
function Change({ store, form }) {
  const part = form.parts[Math.min(store.ui.part ?? 0, form.parts.length - 1)];
  const typed = store.keep(`typed ${part.do}`, [form], () => ({}));
  const changed = Object.keys(typed).filter((index) => typed[index] !== textOf(part.fields[index].value)).length;
  const message = (changes) => ({ do: part.do, run: form.run, ...(part.do === "fork" && { turn: form.turn }), changes });
  return h("form", { class: "card", "aria-label": visible(part.title), ref: (el) => el.querySelector("input, select, textarea")?.focus(),
    onsubmit: (event) => send(store, event, () => valuesIn(part.fields, typed), message) },
  form.parts.length > 1 ? h("div", { class: "seg", role: "group", "aria-label": "What to change" }, form.parts.map((it, index) => h("button", {
    key: index, type: "button", "aria-pressed": it === part, onclick: () => store.show({ part: index }) }, visible(it.title))))
    : h("h3", null, visible(part.title)),
  h(Fields, { key: part.do, store, fields: part.fields, typed }),
  h("div", { class: "row" },
    h("button", { class: "primary", type: "submit" }, `${part.do === "fork" ? "Fork" : "Start again"}${changed ? ` with ${plural(changed, "change")}` : ""}`),
    h("button", { type: "button", onclick: () => store.set({ form: null }) }, "Cancel")));
}

/** A person plays: what a model would have read, and a form for the answer. */
function Ask({ store }) {
  const { ask } = store, typed = store.keep("answer", [ask.id], () => ({}));
  return h("form", { class: "card ask", "aria-label": `${oneLine(ask.who)}, turn ${ask.turn}`,
    onsubmit: (event) => send(store, event, () => valuesIn(ask.fields, typed, true), (values) => ({ do: "answer", id: ask.id, values })) },
  h("h3", { dir: "auto" }, `${oneLine(ask.who)}, turn ${ask.turn}: your answer`),
  h("div", { class: "asked", tabindex: 0, role: "group", "aria-label": "What is asked" }, ask.messages.map(([role, text], index) => h("div", { key: index },
    h("h4", null, visible(role)), h(Passage, { store, id: `ask ${ask.id} ${index}`, text })))),
  ask.fault && h("p", { class: "fault", role: "alert" }, visible(ask.fault)),
  h(Fields, { store, fields: ask.fields, typed }),
  h("button", { class: "primary", type: "submit" }, "Answer"));
}

// --- overview ----------------------------------------------------------------------------------

function Overview({ store, run, n, turn }) {
  const bad = run.outcome && run.outcome !== "done" && !store.live.busy && `This run did not finish: ${run.outcome}`;
  return [
    [bad, ...run.notes].filter(Boolean).map((text) => h("p", { class: "note", dir: "auto" }, visible(text))),
    h("div", { class: "overview" },
      h(Charts, { store, run, turn: n }),
      store.panels.includes("turn") && turn && h(Brief, { store, run, n, turn })),
    h(Definition, { store, run }),
  ];
}

/** The decisions of the turn that is shown, a line or two each. */
function Brief({ store, run, n, turn }) {
  const { reading } = store, players = [...groupBy(turn.decisions, (it) => it.player).values()];
  return h("section", { class: "brief", "aria-label": "Decisions of the turn" },
    h("h3", null, n === 0 ? "At the start" : `Decisions of turn ${n}`,
      h("button", { class: "plain", onclick: () => openTurn(store, n) }, "All of the turn")),
    turn.done.map((text) => h("p", { class: "note", dir: "auto" }, visible(text))),
    !players.length && h("p", { class: "soft" }, n === 0 ? "Nothing was decided before the first turn." : "Nothing was decided in this turn."),
    h("ul", { class: "decisions" }, players.slice(0, 6).map(([own]) => h("li", { key: own.player },
      h("div", { class: "row" }, h("b", { dir: "auto" }, clip(oneLine(own.player || own.component), 40)), h(Status, { word: statusOf(own) })),
      h("p", { dir: "auto" }, clip(answerIn(own), 120)),
      h("p", { class: "why", dir: "auto" }, clip(oneLine(reading.text(own.why)), 200))))),
    players.length > 6 && h("p", { class: "soft" }, `${plural(players.length - 6, "more player")} in the turn`));
}

const statusOf = (made) => (made.calls?.length ? made.status : made.status === "ok" ? "by rule" : made.status);

function Definition({ store, run }) {
  return h("section", { class: "definition", "aria-label": "What defines this run" },
    h(Fold, { store, id: "definition", title: "What defines this run" }, () => {
      const { prompts = {}, ...rest } = JSON.parse(store.reading.text(run.manifest) || "{}");
      return [
        h(Passage, { store, id: `manifest ${run.id}`, text: JSON.stringify(rest, null, 1), mono: true }),
        Object.entries(prompts).map(([place, prompt]) => h(Fold, { key: place, store, id: `prompt ${place}`, title: `Prompt template: ${visible(place)}` },
          () => h(Passage, { store, id: `prompt ${place} ${run.id}`, text: prompt?.text ?? textOf(prompt), mono: true }))),
      ];
    }));
}

// --- a turn ------------------------------------------------------------------------------------

function Turn({ store, run, n, turn }) {
  if (!turn) return h("p", { class: "soft" }, "No turn has been played yet.");
  const { reading, at } = store, calls = reading.callsOf(run, n), named = reading.calls.get(at.call);
  const call = calls.find((it) => it === named) ?? calls.find((it) => it.player === named?.player) ?? calls[0];
  const story = turn.words.map((text) => reading.text(text));
  return [
    turn.done.map((text) => h("p", { class: "note", dir: "auto" }, visible(text))),
    h("div", { class: "both" },
      h("section", { "aria-label": "State" }, h(State, { store, run, n, turn }),
        story.length > 0 && [h("h3", null, "What happened"), h("div", { class: "story" }, story.map((text, index) => (
          h(Passage, { key: index, store, id: `story ${run.id} ${n} ${index}`, text }))))]),
      turn.decisions.length > 0 && h(Decisions, { store, run, n, turn })),
    call && h("section", { class: "turn-call", "aria-label": "Prompt and reply" },
      calls.length > 1 && h(CallPicker, { store, calls, call }), h(CallDetail, { store, call })),
  ];
}

function CallPicker({ store, calls, call }) {
  return h("div", { class: "row" }, h("h3", null, "Prompt and reply"),
    h("select", { "aria-label": "Call", value: String(call.k), onchange: (event) => store.go({ call: Number(event.target.value) }) },
      calls.map((it) => h("option", { key: it.k, value: String(it.k) },
        clip([oneLine(it.player), oneLine(it.component), it.replicate && `replicate ${it.replicate}`].filter(Boolean).join(" · "), 60)))));
}

function State({ store, run, n, turn }) {
  const { reading } = store, before = reading.turn(run, n - 1);
  const fact = ({ column, label, unit }) => ({ label: label ?? words(column), unit, column,
    now: reading.value(turn, column), was: before ? reading.value(before, column) : null });
  const named = run.series.map(fact), rest = reading.otherColumns(run).map((column) => fact({ column }));
  const isText = (it) => typeof it.now === "string" && it.now.length > LONG_VALUE;
  const facts = [...named, ...rest.filter((it) => !isText(it))].filter((it) => it.now != null && it.now !== "");
  const most = Math.min(named.length || MOST_FACTS, MOST_FACTS);
  const texts = rest.filter(isText);
  return [
    h(Facts, { facts: facts.slice(0, most) }),
    facts.length > most && h(Fold, { store, id: "facts", title: `${facts.length - most} more` }, () => h(Facts, { facts: facts.slice(most) })),
    texts.length > 0 && h(Fold, { store, id: "texts", title: plural(texts.length, "text") }, () => texts.map((it) => [
      h("h4", null, it.label), h(Passage, { store, id: `state ${run.id} ${n} ${it.column}`, text: it.now })])),
  ];
}

function Facts({ facts }) {
  return h("table", { class: "facts" },
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "State"), h("th", { class: "n", scope: "col" }, "value"),
      h("th", { class: "n", scope: "col" }, "change"))),
    h("tbody", null, facts.map((it) => h("tr", { key: it.column },
      h("th", { scope: "row", dir: "auto" }, visible(it.label), it.unit && h("small", null, ` ${visible(it.unit)}`)),
      h("td", { class: "n" }, typeof it.now === "boolean" ? (it.now ? "yes" : "no") : figure(it.now)),
      h("td", { class: "n soft" }, change(it.was, it.now))))));
}

function Decisions({ store, run, n, turn }) {
  const players = [...groupBy(turn.decisions, (it) => it.player).values()], most = store.ui.mostDecisions ?? FEW_PLAYERS;
  return h("section", { "aria-label": "Decisions" },
    h("h3", null, "Decisions"),
    h("ul", { class: "decisions" }, players.slice(0, most).map((its) => h("li", { key: its[0].player },
      its.map((made, index) => h(Decision, { key: index, store, made, then: index > 0, id: `${run.id} ${n} ${made.player} ${index}` }))))),
    players.length > most && h("button", { class: "plain", onclick: () => store.show({ mostDecisions: 10 * most }) },
      plural(players.length - most, "more player")));
}

/** What one player, or a part of the world, decided; `then`: what was made of it after. */
function Decision({ store, made, then, id }) {
  const { reading } = store, answer = Object.entries(made.answer ?? {}), why = reading.text(made.why);
  const isShort = ([, value]) => figure(value).length <= LONG_VALUE;
  const pair = ([name, value]) => h("span", { key: name }, h("small", null, words(name)), " ", h("b", { dir: "auto" }, clip(sayValue(value), 200)));
  const call = made.calls?.at(-1);
  return h("div", { class: then ? "then" : null },
    h("div", { class: "row" },
      h(then ? "span" : "b", { dir: "auto", class: then ? "soft" : null }, oneLine(then ? made.component : made.player || made.component)),
      h(Status, { word: statusOf(made) }),
      made.sure != null && call != null && h("span", { class: "sure", title: `confidence ${figure(made.sure)}` },
        h("meter", { min: 0, max: 1, value: made.sure, "aria-label": "Confidence" }), h("small", null, figure(made.sure))),
      h("span", { class: "answer" }, answer.filter(isShort).slice(0, 6).map(pair)),
      call != null && h("button", { class: "plain", "aria-label": `Prompt of ${oneLine(made.player || made.component)}`, "aria-pressed": store.at.call === call,
        onclick: () => showCall(store, call) }, "prompt")),
    answer.filter((it) => !isShort(it)).map(([name, value]) => h("div", { key: name, class: "said" }, h("small", null, words(name)),
      h(Passage, { store, id: `${id} ${name}`, text: clip(textOf(value), 2000) }))),
    why && h("div", { class: "why" }, h(Passage, { store, id: `why ${id}`, text: clip(why, 2000) })),
    Object.keys(made.became ?? {}).length > 0 && h("p", { class: "became" }, Object.entries(made.became).map(pair)));
}

const sayValue = (value) => (value === true ? "yes" : value === false ? "no" : oneLine(figure(value)));

function showCall(store, call) {
  store.go({ call });
  store.draw();
  store.ui.callPlace?.scrollIntoView({ block: "nearest", behavior: "smooth" });
}
