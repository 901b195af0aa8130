// What is shown of a reading: head, controls, the overview and a turn. All text stays text.

import { CallDetail, Calls, callsKey, Passage, Status } from "./calls.js";
import { Charts, look, nameOf, openTurn, playersOf, runLabel, Swatch, turnName } from "./chart.js";
import { Compare } from "./compare.js";
import { h } from "./dom.js";
import { change, clip, figure, oneLine, plural, visible } from "./text.js";

const VIEWS = { overview: Overview, turn: Turn, calls: Calls, compare: Compare };
const TYPED_IN = "input:not([type=range]), textarea, select";
const FEW_RUNS = 4, FEW_ROWS = 8, MOST_RUNS = 60; // as a line, as an open tree, at once
const FEW_FACTS = 12, FEW_PLAYERS = 10, FEW_BRIEF = 6, SHORT_VALUE = 44, LONG_FIELD = 60;
const ICONS = {
  Step: "M3 3l6 5-6 5zM11 3h2v10h-2z",
  Play: "M4 2.5l9 5.5-9 5.5z",
  Pause: "M4 3h3v10H4zM9 3h3v10H9z",
  Stop: "M3.5 3.5h9v9h-9z",
};

const words = (name) => visible(name).replaceAll("_", " ");
const titled = (word) => word[0].toUpperCase() + word.slice(1);
const note = (text) => h("p", { class: "note", dir: "auto" }, visible(text));
const soft = (text) => h("p", { class: "soft" }, text);
const plain = (text, onclick, props) => h("button",
  { class: "plain", type: "button", onclick, ...props }, text);

/** A part that is drawn only while it is open; `content` is a function. */
function Fold({ store, id, title }, [content]) {
  const name = `open ${id}`, open = store.ui[name] ?? false;
  const ontoggle = ({ target }) => target.open !== open && store.show({ [name]: target.open });
  return h("details", { open, ontoggle }, h("summary", null, title), open && content());
}

// --- the frame ---------------------------------------------------------------------------------

export function App({ store }) {
  const { reading, panels, commands, ask, form, ui } = store, has = (name) => panels.includes(name);
  if (!reading.runs.size) {
    return h("p", { class: "wait", role: "status" }, liveWords(store) || "Reading …");
  }
  const views = viewsOf(store);
  settle(store, views);
  const { view } = store.at, now = { store, ...here(store) };
  return [
    has("head") && h(Head, now),
    commands && has("transport") && h(Transport, now),
    commands && h(Live, now),
    ask && has("transport") && h(Ask, { key: `ask ${ask.id}`, store }),
    form?.parts.length > 0 && h(Change, { store, form }),
    h(Tabs, { views, ...now }),
    ui.help && h(Help, { store }),
    view && h(commands ? "div" : "main", { class: "view", key: view },
      h("h2", { class: "hidden" }, titled(view)), h(VIEWS[view], now)),
  ];
}

function viewsOf({ panels, reading }) {
  const pairs = reading.runs.size > 1 || reading.calls.size > 1;
  return Object.keys(VIEWS).filter((it) => panels.includes(it) && (it !== "compare" || pairs));
}

/** Fill in what an address, or a host, left open: the run and the view. */
function settle(store, views) {
  const { reading, at } = store;
  const run = reading.runs.has(at.run) ? at.run : reading.runs.keys().next().value;
  const meant = at.call != null ? "calls" : at.a != null ? "compare" : at.turn != null && "turn";
  store.at = { ...at, run, view: [at.view, meant, views[0]].find((it) => views.includes(it)) };
}

/** The run, its turns and the one that is shown: without one in the address, the latest. */
function here({ reading, at }) {
  const run = reading.runs.get(at.run), first = reading.first(run), last = reading.last(run);
  const n = Math.max(first, Math.min(at.turn ?? last, last));
  return { run, first, last, n, turn: reading.turn(run, n) };
}

/** Show a turn; the latest is followed while a run is played. */
const toTurn = (store, n, last) => store.go({ turn: n >= last && store.commands ? null : n });

export function onKey(store, event, target) {
  const { reading, at, ui, commands, live } = store;
  if (!reading.runs.size || !target.closest) return;
  if (at.view === "calls" && callsKey(store, event, target)) return event.preventDefault();
  const views = viewsOf(store), { first, last, n } = here(store), { key } = event;
  const pressed = [" ", "Enter"].includes(key) && target.closest("button, summary, [tabindex='0']");
  if (key !== "Escape" && (pressed || target.closest(TYPED_IN))) return;
  const play = (turns) => commands({ do: "play", run: at.run, turns });
  const close = () => {
    ui.help = false;
    store.set({ form: null });
  };
  const search = () => {
    store.go({ view: "calls" });
    store.draw();
    ui.search?.focus();
  };
  const act = {
    ArrowLeft: () => toTurn(store, Math.max(n - 1, first), last),
    ArrowRight: () => toTurn(store, Math.min(n + 1, last), last),
    "?": () => store.show({ help: !ui.help }),
    "/": views.includes("calls") && search,
    Escape: (ui.help || store.form) && close,
    " ": commands && (() => (live.busy ? commands({ do: "pause" }) : play(turnsToPlay(store)))),
    Enter: commands && !live.busy && (() => play(1)),
  }[key] ?? (views[key - 1] && (() => store.go({ view: views[key - 1] })));
  if (!act) return;
  act();
  event.preventDefault();
}

function Help({ store }) {
  const keys = [["← →", "the turn before, the next turn"], ["1 … 4", "another view"],
    ["/", "search the calls"], ["j k ↓ ↑", "in the list of calls: next, previous"],
    ["Enter", "in the list: to the call"], ["Esc", "back to the list; close a form"],
    ...(store.commands ? [["Space", "play, pause"], ["Enter", "play one turn"]] : [])];
  return h("section", { class: "card", "aria-label": "Keys" }, h("dl", { class: "keys" },
    keys.map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)])));
}

// --- head --------------------------------------------------------------------------------------

function Head({ store, run, n }) {
  const { reading, title } = store, name = title || run.name, one = reading.runs.size === 1;
  const facts = [one && name !== run.name && run.name, run.model, run.started?.slice(0, 10)];
  return h("header", null,
    h("div", { class: "title" },
      h(store.commands ? "h2" : "h1", { dir: "auto" }, visible(name)),
      h("span", { class: "soft", dir: "auto" }, facts.filter(Boolean).map(oneLine).join(" · ")),
      h("span", { class: "when" }, turnName(reading, run, n))),
    !one && h(Runs, { store, run }));
}

/** The runs: a few in a line, more as a tree that can be folded away. */
function Runs({ store, run }) {
  const { reading, ui, at, panels } = store, rows = reading.tree();
  const few = reading.runs.size <= FEW_RUNS, short = rows.length <= FEW_ROWS;
  const wanted = at.view === "overview" && (short || !panels.includes("transport"));
  const open = !few && (ui.tree ?? wanted);
  const pills = few ? rows.flatMap((row) => row.runs ?? row.run) : [run];
  return h("div", { class: "runs", role: "group", "aria-label": "Runs" },
    pills.map((it) => h("button", {
      key: it.id, class: `run ${look(it)}`, "aria-pressed": it === run, dir: "auto",
      onclick: () => store.go({ run: it.id, call: null }),
    }, h(Swatch, { run: it }), clip(runName(reading, it), 70))),
    !few && plain(open ? "Hide the runs" : `All ${plural(reading.runs.size, "run")}`,
      () => store.show({ tree: !open }), { "aria-expanded": open }),
    open && h(Tree, { store, run, rows }));
}

function runName(reading, run) {
  const fork = run.fork != null && reading.runs.has(run.parent);
  return (fork ? `fork at ${run.fork} · ` : "") + runLabel(reading, run);
}

function Tree({ store, run, rows }) {
  const { reading, ui } = store, wanted = (ui.treeSearch ?? "").toLowerCase();
  const all = rows.flatMap((row) => (row.runs && (wanted || ui[`seeds ${row.run.id}`])
    ? [row, ...row.runs.map((it) => ({ run: it, depth: row.depth + 1, seed: true }))] : [row]));
  const fits = (row) => !wanted || (!row.runs
    && `run ${row.run.id} ${runName(reading, row.run)}`.toLowerCase().includes(wanted));
  const found = all.filter(fits), most = ui.mostRuns ?? MOST_RUNS;
  const toChosen = (el) => { el.scrollTop = el.querySelector("[aria-current]")?.offsetTop - 60; };
  return h("div", { class: "tree", ref: toChosen },
    rows.length > 2 * FEW_ROWS && h("input", {
      type: "search", placeholder: "Find a run", "aria-label": "Find a run",
      oninput: (event) => store.show({ treeSearch: event.target.value }),
    }),
    h("ul", null, found.slice(0, most).map((row) => h("li", {
      key: `${row.run.id}${row.runs ? " seeds" : ""}`, style: `--depth: ${row.depth}`,
    }, h(TreeRow, { store, row, run })))),
    found.length > most && plain(plural(found.length - most, "more run"),
      () => store.show({ mostRuns: 10 * most })));
}

/** A run, or runs that differ only in their seed, which a click folds out. */
function TreeRow({ store, row: { run: it, runs, seed }, run }) {
  const { reading } = store, fold = `seeds ${it.id}`, open = Boolean(store.ui[fold]);
  const name = clip(runName(reading, it), 160), small = (text) => h("small", { dir: "auto" }, text);
  const bad = [...reading.statuses(it)].filter(([word]) => word && word !== "ok");
  const facts = runs ? runs.includes(run) && small(`run ${run.id} is shown`) : [
    bad.map(([word, count]) => h("small", { key: word }, h(Status, { word }), ` ${count}`)),
    it.outcome && it.outcome !== "done" && small(clip(oneLine(it.outcome), 60)),
    [`run ${it.id}`, it.own.size ? `to turn ${reading.last(it)}` : "no turn yet"].map(small),
  ];
  return h("button", {
    class: "tree-row", "aria-expanded": runs ? open : null,
    "aria-current": !runs && it === run ? "true" : null,
    onclick: () => (runs ? store.show({ [fold]: !open }) : store.go({ run: it.id, call: null })),
  },
  h(Swatch, { run: it }),
  h("span", { class: "what", dir: "auto" }, runs && h("b", null, plural(runs.length, "seed"), " "),
    seed ? `seed ${it.seed}` : name),
  facts);
}

// --- controls ----------------------------------------------------------------------------------

const turnsToPlay = (store) => store.ui.turns ?? 4;

function Transport({ store, run, first, last, n }) {
  const { commands, live, form, ui, gone } = store, busy = Boolean(live.busy);
  const button = (name, message, props) => h("button", {
    key: name, disabled: gone || (name === "Stop" ? !busy : busy && name === "Step"),
    onclick: () => commands(message()), ...props,
  }, h("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" },
    h("path", { d: ICONS[name] })), name);
  const play = (turns) => ({ do: "play", run: run.id, turns });
  const count = (event) => { ui.turns = Math.max(1, Math.round(event.target.valueAsNumber) || 1); };
  const openForm = () => (form ? store.set({ form: null })
    : commands({ do: "form", run: run.id, turn: n }));
  return h("div", { class: "bar" },
    h("div", { class: "buttons" },
      button("Step", () => play(1), { class: "primary" }),
      busy ? button("Pause", () => ({ do: "pause" }))
        : button("Play", () => play(turnsToPlay(store))),
      h("label", { class: "turns" }, h("input", {
        type: "number", min: 1, max: 100000, value: turnsToPlay(store), oninput: count,
        "aria-label": "Turns to play",
      }), " turns"),
      button("Stop", () => ({ do: "stop" }))),
    h(Slider, { store, first, last, n }),
    h("button", { disabled: busy || gone, "aria-expanded": Boolean(form), onclick: openForm },
      "Fork or change …"));
}

function Slider({ store, first, last, n }) {
  return h("div", { class: "slide" }, h("span", { class: "n" }, first),
    h("input", {
      type: "range", "aria-label": "Turn", min: first, max: last, value: n,
      disabled: first === last, oninput: ({ target }) => toTurn(store, Number(target.value), last),
    }), h("span", { class: "n" }, last));
}

function Tabs({ store, views, first, last, n, run }) {
  const { reading, panels, ui, at, commands } = store, calls = reading.callsOf(run).length;
  const slider = !commands && panels.includes("transport");
  if (views.length < 2 && !panels.includes("transport")) return null;
  return h("section", { class: "tabs", "aria-label": "Controls" },
    views.length > 1 && h("nav", { "aria-label": "Views" }, views.map((view) => h("button", {
      key: view, "aria-current": view === at.view ? "page" : null,
      onclick: () => store.go({ view }),
    }, titled(view), view === "calls" && calls > 0 && h("small", null, figure(calls))))),
    slider && h(Slider, { store, first, last, n }),
    commands && h("p", { class: `says${store.gone ? " gone" : ""}`, role: "status" },
      liveWords(store)),
    plain("?", () => store.show({ help: !ui.help }),
      { "aria-label": "Keys", title: "Keys", "aria-expanded": Boolean(ui.help) }));
}

// --- while a run is played ---------------------------------------------------------------------

function liveWords({ live, slow, gone }) {
  if (gone) return "The kernel is gone: run the cell again.";
  if (slow) return "Sent; waiting for the kernel, which is busy.";
  if (!live.busy) return oneLine(live.says ?? "");
  const more = live.left > 1 ? `, then ${plural(live.left - 1, "more turn")}` : "";
  const waiting = (live.waiting ?? []).map(({ who, attempt, seconds }) => (
    `${oneLine(who)} ${attempt > 1 ? `attempt ${attempt}, ` : ""}${seconds} s`));
  return `Playing turn ${live.turn}${more}. ${clip(waiting.join(" · "), 200)}`;
}

/** What models write while a turn is played, and what went wrong. */
function Live({ store, run }) {
  const { live, commands, ui } = store, fault = store.fault || live.fault;
  const writing = (live.busy && live.waiting ? live.waiting : []).filter((it) => it.text);
  ui.wrote = live.busy && (ui.wrote || writing.length > 0); // its place stays until the end
  const again = () => commands({ do: "play", run: live.run ?? run.id, turns: 1 });
  return [
    ui.wrote && h("div", { class: "writings" }, writing.slice(0, 6).map((it, index) => (
      h("div", { key: index, class: "writing" }, h("b", { dir: "auto" }, oneLine(it.who)),
        h("p", { class: "text mono", dir: "auto" }, visible(it.text.slice(-600)),
          h("span", { class: "caret" })))))),
    fault && h("div", { class: "fault", role: "alert" },
      h("p", { class: "text", dir: "auto" }, titled(visible(fault))),
      live.fault && h("button", { onclick: again }, "Try again")),
  ];
}

// --- forms -------------------------------------------------------------------------------------

/** What was typed, nested by the places of its fields; Python reads it by their schemas. */
export function valuesIn(fields, typed) {
  const values = {};
  fields.forEach(({ place, value }, index) => {
    if ((typed[index] ?? textOf(value)) === textOf(value)) return;
    const inner = place.slice(0, -1).reduce((at, name) => (at[name] ??= {}), values);
    inner[place.at(-1)] = typed[index];
  });
  return values;
}

const textOf = (value) => (value == null ? "" : String(value));

function Fields({ store, fields, typed }) {
  const type = (index, text) => {
    typed[index] = text;
    store.changed();
  };
  return h("div", { class: "fields" }, fields.map((field, index) => {
    const told = field.help === fields[index - 1]?.help; // one help for fields of a kind
    const made = h(Field, { key: index, ...field, help: told ? "" : field.help, typed: typed[index],
      type: (text) => type(index, text) });
    return !field.schema.long ? made : h("div", { key: index, class: "long" },
      h(Fold, { store, id: `field ${index}`, title: visible(field.label) }, () => made));
  }));
}

function Field({ label, help, schema, value, typed, type }) {
  const part = schema.anyOf?.find((it) => it.type !== "null") ?? schema, was = textOf(value);
  const choices = part.type === "boolean" ? [true, false] : part.enum;
  const long = part.long || was.length > LONG_FIELD || part.maxLength > 2 * LONG_FIELD;
  const number = ["integer", "number"].includes(part.type), changed = (typed ?? was) !== was;
  const props = { value: typed ?? was, dir: "auto", oninput: (event) => type(event.target.value) };
  const option = (it) => h("option", { value: textOf(it) },
    it === null ? "—" : it === true ? "yes" : it === false ? "no" : visible(it));
  return h("label", { class: `field${changed ? " changed" : ""}${long ? " long" : ""}` },
    h("span", { dir: "auto" }, visible(label)),
    choices ? h("select", props, [...(value == null ? [null] : []), ...choices].map(option))
      : long ? h("textarea", { ...props, rows: part.long ? 12 : 3 })
        : h("input", { ...props, type: number ? "number" : "text", step: "any" }),
    help && h("small", { dir: "auto" }, visible(help)));
}

const sending = (act) => (event) => {
  event.preventDefault();
  act();
};

/** The form of what can be changed: a fork from a turn, or the run again from its start. */
function Change({ store, form }) {
  const { ui } = store, part = form.parts[ui.part] ?? form.parts[0], { fields } = part;
  const typed = store.keep(`typed ${part.do}`, [form], () => ({}));
  const changes = valuesIn(fields, typed), turn = part.do === "fork" ? { turn: form.turn } : {};
  const count = Object.keys(typed).filter((at) => typed[at] !== textOf(fields[at].value)).length;
  const send = () => store.commands({ do: part.do, run: form.run, ...turn, changes });
  return h("form", {
    class: "card", key: `${form.run} ${form.turn}`, "aria-label": "Fork or change",
    onsubmit: sending(send), ref: (el) => el.querySelector("input, select, textarea")?.focus(),
  },
  h("div", { class: "seg", role: "group", "aria-label": "What to change" },
    form.parts.map((it, index) => h("button", {
      type: "button", "aria-pressed": it === part, onclick: () => store.show({ part: index }),
    }, visible(it.title)))),
  h(Fields, { key: part.do, store, fields, typed }),
  h("div", { class: "row" },
    h("button", { class: "primary", type: "submit" }, part.do === "fork" ? "Fork" : "Start again",
      count > 0 && ` with ${plural(count, "change")}`),
    h("button", { type: "button", onclick: () => store.set({ form: null }) }, "Cancel")));
}

/** A person plays: what a model would have read, and a form for the answer. */
function Ask({ store }) {
  const { id, who, turn, messages, fields, fault } = store.ask;
  const name = `${oneLine(who)}, turn ${turn}`;
  const typed = store.keep("answer", [id], () => ({}));
  const send = () => store.commands({ do: "answer", id, values: valuesIn(fields, typed) });
  return h("form", { class: "card", "aria-label": name, onsubmit: sending(send) },
    h("h3", { dir: "auto" }, `${name}: your answer`),
    h("div", { class: "asked", tabindex: 0, role: "group", "aria-label": "What is asked" },
      messages.map(([role, text], index) => h("div", { key: index }, h("h4", null, visible(role)),
        h(Passage, { store, id: `ask ${id} ${index}`, text })))),
    fault && h("p", { class: "fault", role: "alert", dir: "auto" }, visible(fault)),
    h(Fields, { store, fields, typed }),
    h("button", { class: "primary", type: "submit" }, "Answer"));
}

// --- overview ----------------------------------------------------------------------------------

function Overview({ store, run, n, turn }) {
  const { panels, live, reading } = store;
  const bad = run.outcome && run.outcome !== "done" && !live.busy;
  return [
    !panels.includes("head") && reading.runs.size > 1 && h(Runs, { store, run }),
    bad && note(`This run did not finish: ${run.outcome}`),
    run.notes.map(note),
    h("div", { class: "overview" }, h(Charts, { store, run, turn: n }),
      panels.includes("turn") && turn && h(Decisions, { store, run, n, turn, brief: true })),
    run.manifest != null && h(Definition, { store, run }),
  ];
}

const statusOf = (made) => (made.status === "ok" && !made.calls?.length ? "by rule" : made.status);

function Definition({ store, run }) {
  const fold = (id, title, content) => h(Fold,
    { key: id, store, id: `${id} ${run.id}`, title }, content);
  const passage = (id, text) => h(Passage, { store, id: `${id} ${run.id}`, text, mono: true });
  return h("section", { class: "definition", "aria-label": "What defines this run" },
    fold("definition", "What defines this run", () => {
      const { prompts = {}, ...rest } = JSON.parse(store.reading.text(run.manifest) || "{}");
      return [
        passage("manifest", JSON.stringify(rest, null, 1)),
        Object.entries(prompts).map(([place, prompt]) => fold(place,
          `Prompt template: ${visible(place)}`, () => passage(place, textOf(prompt.text)))),
      ];
    }));
}

// --- a turn ------------------------------------------------------------------------------------

function Turn({ store, run, n, turn }) {
  if (!turn) return soft("No turn has been played yet.");
  const { reading, at } = store, calls = reading.callsOf(run, n);
  const call = chosenCall(turn, calls, reading.calls.get(at.call));
  return [
    turn.done.map(note),
    h("div", { class: "both" },
      h("section", { "aria-label": "State" }, h(State, { store, run, n, turn }),
        turn.words.length > 0 && [h("h3", null, "What happened"), h("div", { class: "story" },
          turn.words.map((text, index) => h(Passage, {
            key: index, store, id: `story ${run.id} ${n} ${index}`,
            text: titled(reading.text(text) || " "),
          })))]),
      turn.decisions.length > 0 && h(Decisions, { store, run, n, turn })),
    call && h("section", {
      class: "turn-call", "aria-label": "Prompt and reply",
      ref: (el) => { store.ui.callPlace = el; },
    }, calls.length > 1 && h(CallPicker, { store, calls, call }), h(CallDetail, { store, call })),
  ];
}

/** The call that was asked for, if it is of this turn; else the like of it, or the first. */
function chosenCall(turn, calls, named) {
  const ours = named && turn.decisions.some((made) => made.calls?.includes(named.k));
  const alike = (it) => it.player === named?.player && it.component === named?.component;
  return ours || calls.includes(named) ? named : calls.find(alike) ?? calls[0];
}

function CallPicker({ store, calls, call }) {
  const name = (it) => [it.player, it.component, it.replicate && `replicate ${it.replicate}`]
    .filter(Boolean).map(oneLine).join(" · ");
  return h("div", { class: "row" }, h("h3", null, "Prompt and reply of"), h("select", {
    "aria-label": "Call", value: String(call.k),
    onchange: (event) => store.go({ call: Number(event.target.value) }),
  }, calls.map((it) => h("option", { key: it.k, value: String(it.k) }, clip(name(it), 60)))));
}

/** The state's values with their changes; what has no label, and long texts, are folded. */
function State({ store, run, n, turn }) {
  const { reading } = store, before = reading.turn(run, n - 1);
  const fact = ({ column, label = words(column), unit }) => ({
    column, label, unit, now: reading.value(turn, column),
    was: before ? reading.value(before, column) : null,
  });
  const named = run.series.map(fact);
  const other = reading.otherColumns(run).map((column) => fact({ column }));
  const isLong = (it) => typeof it.now === "string" && it.now.length > SHORT_VALUE;
  const facts = [...named, ...other.filter((it) => !isLong(it))]
    .filter((it) => it.now != null && it.now !== "");
  const first = Math.min(named.length || FEW_FACTS, FEW_FACTS), texts = other.filter(isLong);
  return [
    h(Facts, { facts: facts.slice(0, first) }),
    facts.length > first && h(Fold, { store, id: "facts", title: `${facts.length - first} more` },
      () => h(Facts, { facts: facts.slice(first) })),
    texts.length > 0 && h(Fold, { store, id: "texts", title: plural(texts.length, "text") },
      () => texts.map((it) => [h("h3", null, it.label),
        h(Passage, { store, id: `state ${run.id} ${n} ${it.column}`, text: it.now })])),
  ];
}

const sayValue = (value) => (typeof value !== "boolean" ? oneLine(figure(value))
  : value ? "yes" : "no");

function Facts({ facts }) {
  return h("table", { class: "facts" },
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "State"),
      ["value", "change"].map((name) => h("th", { class: "n", scope: "col" }, name)))),
    h("tbody", null, facts.map((it) => h("tr", { key: it.column },
      h("th", { scope: "row", dir: "auto" }, clip(visible(it.label), 80),
        it.unit && h("small", null, ` ${clip(visible(it.unit), 60)}`)),
      h("td", { class: "n" }, sayValue(it.now)),
      h("td", { class: "n soft" }, change(it.was, it.now))))));
}

/** The decisions of a turn by player; in brief, beside the charts, only each player's own. */
function Decisions({ store, run, n, turn, brief }) {
  const players = playersOf(turn), most = brief ? FEW_BRIEF : store.ui.mostPlayers ?? FEW_PLAYERS;
  const id = (made, index) => `${run.id} ${n} ${made.player} ${index}`;
  const more = () => (brief ? openTurn(store, run, n) : store.show({ mostPlayers: 10 * most }));
  return h("section", { "aria-label": "Decisions", class: brief ? "brief" : null },
    h("h3", null, n === 0 ? "At the start" : brief ? `Decisions of turn ${n}` : "Decisions",
      brief && plain("All of the turn", () => openTurn(store, run, n))),
    brief && turn.done.map(note),
    !players.length && soft("Nothing was decided."),
    h("ul", { class: "decisions" }, players.slice(0, most).map((its) => (
      h("li", { key: its[0].player }, its.slice(0, brief ? 1 : its.length).map((made, index) => (
        h(Decision, { key: index, store, made, own: its[0], id: id(made, index) }))))))),
    players.length > most && plain(plural(players.length - most, "more player"), more));
}

/** What a player decided, or, after it, what else a part of the world made of that. */
function Decision({ store, made, own, id }) {
  const call = made.calls?.at(-1), first = made === own, why = store.reading.text(made.why);
  const told = first ? {} : { ...own.answer, ...own.became };
  const isNew = ([name, value]) => value != null
    && JSON.stringify(value) !== JSON.stringify(told[name]);
  const answer = Object.entries(made.answer ?? {}).filter(isNew);
  const became = Object.entries(made.became ?? {}).filter(isNew);
  const short = answer.filter(isShort), long = answer.filter((it) => !isShort(it));
  const alone = (name) => name === "action" || answer.length === 1;
  const outcome = call == null ? [...short, ...became] : became; // a rule's answer is its outcome
  return h("div", { class: first ? null : "then" },
    h("div", { class: "row" },
      h(first ? "b" : "span", { dir: "auto" }, first ? nameOf(made) : oneLine(made.component)),
      h(Status, { word: statusOf(made) }),
      made.sure != null && call != null && h(Confidence, { sure: made.sure }),
      call != null && h("span", { class: "answer" }, short.slice(0, 6).map(pair)),
      call != null && plain("prompt", () => showCall(store, call),
        { "aria-label": `Prompt of ${nameOf(made)}, ${oneLine(made.component)}` })),
    long.map(([name, value]) => h(LongAnswer, {
      key: name, store, id: `${id} ${name}`, name, value, alone: alone(name),
    })),
    why && !answer.some(([, value]) => value === why)
      && h("div", { class: "why" }, h(Passage, { store, id: `why ${id}`, text: why })),
    outcome.length > 0 && h("p", { class: "became" }, outcome.map(pair)));
}

const isShort = ([name, value]) => name !== "action"
  && figure(value).length <= (typeof value === "string" ? 24 : SHORT_VALUE);
const pair = ([name, value]) => h("span", { key: name }, h("small", null, words(name)), " ",
  h("b", { dir: "auto" }, clip(sayValue(value), 200)));

function Confidence({ sure }) {
  const text = `confidence ${figure(sure)}`;
  return h("span", { class: "sure", role: "img", "aria-label": text, title: text },
    h("i", { style: `--part: ${sure}` }), figure(sure));
}

function LongAnswer({ store, id, name, value, alone }) {
  const passage = (text) => h(Passage, { store, id, text });
  if (typeof value !== "string") {
    return h(Fold, { store, id, title: words(name) },
      () => passage(JSON.stringify(value, null, 1)));
  }
  return h("div", { class: "said" }, !alone && h("small", null, words(name)), passage(value));
}

function showCall(store, call) {
  store.go({ call, view: "turn" });
  store.draw();
  store.ui.callPlace?.scrollIntoView({ block: "nearest", behavior: "smooth" });
}
