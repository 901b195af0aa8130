// What is shown of a reading: head, controls, the overview and a turn.

import {
  Box, Calls, callsKey, note, Passage, Segments,
} from "./calls.js";
import { Charts, plain, toTurn } from "./chart.js";
import { Compare } from "./compare.js";
import { h } from "./dom.js";
import { Fold } from "./fold.js";
import { changedIn, Form, textOf } from "./form.js";
import { Head, Runs } from "./runs.js";
import { Start } from "./state.js";
import { clip, facts, figure, labelled, plural, sayValue, titled } from "./text.js";
import { Decisions, networkPanels, Story, Turn } from "./turn.js";

const VIEWS = {
  overview: { draw: Overview, ofRun: true }, turn: { draw: Turn, ofRun: true },
  calls: { draw: Calls, ofRun: true, onKey: callsKey }, compare: { draw: Compare, ofRun: true },
};
const TYPED_IN = "input:not([type=range]), form input, textarea, select";
const FEW_WAITING = 3, MOST_WRITING = 6, LONG_TELLING = 300, MOST_TURNS = 100000;
const ICONS = { Step: "M3 3l6 5-6 5zM11 3h2v10h-2z", Play: "M4 2.5l9 5.5-9 5.5z",
  Pause: "M4 3h3v10H4zM9 3h3v10H9z", Stop: "M3.5 3.5h9v9h-9z",
  Fork: "M3 1h2v7.2L10 5V2l5 4.5-5 4V7.4L5 10.6V15H3z" };

const play = ({ commands }, run, turns) => commands({ do: "play", run, turns });
const canPlay = ({ commands, panels }, run) => (
  commands && run && panels.includes("transport") && run.plays !== false);

/** Add a view: `draw` is given `{store, run, first, last, n, turn}` and shows `partsOf(name)`, what
 * Python's `put(name, key, value)` sent; with `ofRun` it is below a run's head and controls, and
 * with `says` it shows the status itself. */
export const addView = (name, view) => { VIEWS[name] = view; };

export function App({ store }) {
  const { panels, commands, ask, told, form } = store;
  const views = viewsOf(store);
  if (!views.length) {
    return h("p", { class: "wait soft", role: "status" }, liveWords(store) || "Reading …");
  }
  const now = { store, ...settle(store, views) };
  const { view } = store.at;
  const { draw, ofRun } = VIEWS[view];
  const has = (name) => ofRun && panels.includes(name);
  const tabsFirst = views.some((name) => !VIEWS[name].ofRun); // their place stays in all views
  const hasTabs = views.length > 1 || has("transport") || (tabsFirst && !VIEWS[view].says);
  const tabs = hasTabs && h(Tabs, { key: "tabs", views, ...now });
  return [
    tabsFirst && tabs,
    has("head") && h(Head, now),
    commands && has("transport") && h(Transport, now),
    commands && h(Live, now),
    has("transport") && now.run && h(News, { told: told?.[now.run.id] ?? {}, turn: now.last }),
    ask && has("transport") && h(Ask, { key: `ask ${ask.id}`, store, ask }),
    ofRun && form?.parts.length > 0 && h(Change, { key: `${form.run} ${form.turn}`, store, form }),
    !tabsFirst && tabs,
    store.ui.help && h(Help, now),
    view && h(commands ? "div" : "main", { class: "view", key: view },
      h("h2", { class: "hidden" }, titled(view)), h(draw, now)),
  ];
}

/** The views that can be chosen: those that a host wants and that have something to show. */
function viewsOf({ panels, reading }) {
  const hasPairs = reading.runs.size > 1 || reading.calls.size > 1;
  return panels.filter((name) => {
    if (!VIEWS[name] || (name === "compare" && !hasPairs)) return false;
    return VIEWS[name].ofRun ? reading.runs.size > 0 : reading.parts.has(name);
  });
}

/** Fill in what an address or a host left open; the run, its turns and the one that is shown. */
function settle(store, views) {
  const { reading, at } = store;
  const run = reading.runs.get(at.run) ?? [...reading.runs.values()][0];
  const view = [at.view, viewMeant(at), views[0]].find((name) => views.includes(name));
  store.at = { ...at, run: run?.id, view };
  if (!run) return {};
  const first = reading.first(run);
  const last = reading.last(run);
  const n = Math.max(first, Math.min(at.turn ?? last, last)); // without one, the latest
  return { run, first, last, n, turn: reading.turn(run, n) };
}

/** The view that an address without one means, by what it names. */
function viewMeant(at) {
  if (at.call != null) return "calls";
  if (at.a != null) return "compare";
  return at.turn != null && "turn";
}

export function onKey(store, event, target) {
  const { key } = event;
  const views = viewsOf(store);
  const now = settle(store, views);
  const { onKey: ownKey } = VIEWS[store.at.view] ?? {};
  if (!views.length || !target.closest) return;
  if (ownKey?.(store, event, target)) {
    event.preventDefault();
    return;
  }
  const isPressed = [" ", "Enter"].includes(key)
    && target.closest("button, summary, [tabindex='0']");
  if (key !== "Escape" && (isPressed || target.closest(TYPED_IN))) return;
  const act = actOf(store, key, views, now);
  if (!act) return;
  act();
  event.preventDefault();
}

/** What a key does where no view has it for itself. */
function actOf(store, key, views, { run, first, last, n }) {
  const { ui, commands, live } = store;
  const { ofRun } = VIEWS[store.at.view] ?? {};
  const isPlayable = ofRun && canPlay(store, run);
  const toSearch = () => {
    store.go({ view: "calls" });
    store.draw();
    ui.search?.focus();
  };
  const close = () => {
    ui.help = false;
    store.set({ form: null });
  };
  const playOrPause = () => (
    live.busy ? commands({ do: "pause" }) : play(store, run.id, ui.turns));
  const acts = {
    ArrowLeft: ofRun && (() => toTurn(store, run, Math.max(n - 1, first))),
    ArrowRight: ofRun && (() => toTurn(store, run, Math.min(n + 1, last))),
    "?": () => store.show({ help: !ui.help }),
    "/": views.includes("calls") && toSearch,
    Escape: (ui.help || store.form) && close,
    " ": isPlayable && playOrPause,
    Enter: isPlayable && !live.busy && (() => play(store, run.id, 1)),
  };
  if (key in acts) return acts[key];
  return views[key - 1] && (() => store.go({ view: views[key - 1] }));
}

function Help({ store, run }) {
  const hasList = store.panels.includes("calls");
  const isPlayable = canPlay(store, run);
  const keys = [
    ["← →", "the turn before, the next turn", run],
    ["1 … 9", "another view", true],
    ["/", "search the calls", hasList],
    ["j k ↓ ↑", "in the list of calls: next, previous", hasList],
    ["Enter", "in the list: to the call", hasList],
    ["Esc", "back to the list; close a form", true],
    ["Space", "play, pause", isPlayable],
    ["Enter", "play one turn", isPlayable],
  ];
  return h("section", { class: "card", "aria-label": "Keys" },
    h("dl", { class: "keys" }, keys.map(([key, words, isOurs]) => isOurs && [
      h("dt", null, h("kbd", null, key)), h("dd", null, words)])));
}

/** A button that can be used or not; one that is disabled would lose the focus. */
export const Button = ({ store: { gone }, off, act, kind, title }, words) => h("button", {
  class: kind, title, "aria-disabled": Boolean(gone || off),
  onclick: () => gone || off || act() }, words);

const Icon = ({ name, kind = "icon" }) => h("svg",
  { class: kind, viewBox: "0 0 16 16", "aria-hidden": "true" }, h("path", { d: ICONS[name] }));

/** Words that are read out, and shown where there is room for them. */
const Word = (_, words) => h("span", { class: "word" }, words);

function Transport({ store, run, n, ...turns }) {
  const { commands, live, form, ui, gone } = store;
  const isBusy = Boolean(live.busy);
  const isFixed = gone || run.plays === false;
  const button = (name, off, act, kind) => h(Button, { store, off, act, kind, title: name },
    h(Icon, { name }), h(Word, null, name));
  const count = ({ target: field }) => {
    const wanted = Math.round(field.value) || 1;
    ui.turns = Math.min(Math.max(1, wanted), MOST_TURNS);
    field.value = ui.turns;
  };
  const toggle = () => {
    if (isBusy || isFixed) return;
    if (form) store.set({ form: null });
    else commands({ do: "form", run: run.id, turn: n });
  };
  return h("div", { class: "row mid bar" },
    h("div", { class: "row mid buttons" },
      button("Step", isBusy || isFixed, () => play(store, run.id, 1), "primary"),
      isBusy ? button("Pause", false, () => commands({ do: "pause" }))
        : button("Play", isFixed, () => play(store, run.id, ui.turns)),
      h("label", { class: "turns soft" },
        h("input", {
          type: "number", min: 1, max: MOST_TURNS, value: ui.turns, onchange: count,
          "aria-label": "Turns to play" }),
        h(Word, null, " turns")),
      button("Stop", !isBusy, () => commands({ do: "stop" }))),
    h(Slider, { store, run, n, ...turns }),
    h("button", {
      "aria-disabled": Boolean(isBusy || isFixed), "aria-expanded": Boolean(form),
      title: "Fork or change …", onclick: toggle,
    }, h(Icon, { name: "Fork", kind: "icon fork-icon" }), h(Word, null, "Fork or change …")));
}

const Slider = ({ store, run, first, last, n }) => h("div", { class: "slide fine" },
  first,
  h("input", {
    type: "range", "aria-label": "Turn", min: first, max: last, value: n, disabled: first === last,
    oninput: ({ target }) => toTurn(store, run, Number(target.value)),
  }),
  last, run.planned > last && h(Word, null, `of ${figure(run.planned)} planned`));

function Tabs({ store, views, run, ...turns }) {
  const { reading, panels, ui, at, commands } = store;
  const { ofRun, says } = VIEWS[at.view];
  const calls = run ? reading.callsOf(run).length : 0;
  const tab = (view) => h("button", {
    key: view, "aria-current": view === at.view ? "page" : null,
    onclick: () => store.go({ view }),
  }, titled(view), view === "calls" && calls > 0 && h("small", null, figure(calls)));
  const hasSlider = !commands && ofRun && panels.includes("transport");
  const kind = views.length > 1 || hasSlider ? "row mid tabs" : "row mid tabs alone";
  return h("section", { class: kind, "aria-label": "Controls" },
    views.length > 1 && h("nav", { "aria-label": "Views" }, views.map(tab)),
    hasSlider && h(Slider, { store, run, ...turns }),
    commands && !says && h("p", { class: `says fine${store.gone ? " gone" : ""}`, role: "status" },
      liveWords(store, run)),
    plain("?", () => store.show({ help: !ui.help }),
      { "aria-label": "Keys", title: "Keys", "aria-expanded": Boolean(ui.help) }));
}

export function liveWords({ live, slow, gone, panels }, run) {
  if (gone) return "The kernel is gone: run the cell again.";
  if (slow) return "Sent; waiting for the kernel, which is busy.";
  if (!live.busy || live.turn == null) {
    const isReadOnly = run?.plays === false && panels.includes("transport");
    return live.says || (isReadOnly && "This run is read-only.");
  }
  const { waiting = [], finished } = live;
  const others = waiting.length - FEW_WAITING;
  const named = waiting.slice(0, FEW_WAITING).map(({ who, attempt, doing, seconds }) => {
    const known = [attempt > 1 && `attempt ${attempt}`, doing, `${seconds} s`];
    return `${clip(who, 60)} ${known.filter(Boolean).join(", ")}`;
  });
  const more = live.left > 1 ? `, then ${plural(live.left - 1, "more turn")}` : "";
  const words = facts(
    finished > 0 && `${figure(finished)} done`, named, others > 0 && `${others} more waiting`);
  return `Playing turn ${live.turn}${more}. ${words}`;
}

export const Fault = ({ store, text }, button) => h("div", { class: "fault", role: "alert" },
  h(Passage, { store, id: `fault ${text}`, text: titled(text), most: LONG_TELLING }), button);

/** What models write while a turn is played, and what went wrong. */
function Live({ store, run }) {
  const { live, ui } = store;
  const fault = store.fault || live.fault;
  const waiting = live.busy && live.waiting ? live.waiting : [];
  const writing = waiting.filter(({ text }) => text).slice(0, MOST_WRITING);
  ui.wrote = live.busy && (ui.wrote || writing.length > 0); // its place stays until the end
  const again = () => play(store, live.run ?? run.id, 1);
  return [
    ui.wrote && h("div", { class: "writings" }, writing.map(({ who, text }) => (
      h("div", { class: "writing" },
        h("b", null, who),
        h("p", { class: "text mono" }, text.slice(-600), h("span", { class: "caret" })))))),
    fault && h(Fault, { store, text: fault },
      live.fault && canPlay(store, run) && h("button", { onclick: again }, "Try again")),
  ];
}

/** The form of what can be changed: a fork from a turn, or the run again from its start. */
function Change({ store, form }) {
  const { run, turn, parts } = form;
  const part = parts[store.ui.part] ?? parts[0];
  const isFork = part.do === "fork";
  const { fields } = part;
  const typed = store.keep(`typed ${part.do}`, [form], () => ({}));
  const count = changedIn(fields, typed).length;
  const items = parts.map((it, index) => (
    [it.title, it === part, () => store.show({ part: index })]));
  return h(Form, {
    store, label: "Fork or change", kind: part.do, fields, typed,
    submit: [isFork ? "Fork" : "Start again", count > 0 && ` with ${plural(count, "change")}`],
    send: (changes) => store.commands({ do: part.do, run, ...(isFork && { turn }), changes }),
    cancel: () => store.set({ form: null }),
    ref: (el) => el.querySelector("input, select, textarea")?.focus(),
  }, h(Segments, { label: "What to change", items }));
}

/** What the people in a run are told of its latest turn. */
function News({ told, turn }) {
  return Object.entries(told).map(([name, lines]) => h("section",
    { key: `told ${name}`, class: "told-of", "aria-label": `${name} is told` },
    h("h4", null, `${name} after turn ${turn}`), h(Told, { told: lines, last: turn })));
}

/** What the world tells a player of the latest turn. */
export function Told({ told, last }) {
  const lines = Object.entries(told);
  return lines.length > 0 && h("dl", { class: "quarter", "aria-label": `Turn ${last}` },
    lines.map(([name, value]) => {
      const { label, unit } = labelled(name);
      return h("div", { key: name }, h("dt", null, label),
        h("dd", null, h("b", null, sayValue(value)), unit && h("small", null, ` ${unit}`)));
    }));
}

/** A person plays: the situation that a model would have read, and a form for the answer. */
export function Ask({ store, ask, folded, more }) {
  const { id, draft = id, who, text, fields, fault, faults } = ask;
  const label = `${who}, turn ${ask.turn}`;
  const typed = store.keep(`answer ${who}`, [draft], () => ({})); // kept where it is asked again
  const send = (values) => store.commands({ do: "answer", id, values });
  const at = fields.findIndex(({ schema }) => schema.says), { schema, value } = fields[at] ?? {};
  const says = schema?.says[schema.enum.map(textOf).indexOf(typed[at] ?? textOf(value))];
  const situation = h(Box, { kind: "asked", label: "Your situation" },
    h(Passage, { store, id: `ask ${id}`, text }));
  return [
    h(Form, { store, label, kind: folded ? who : draft, asks: true, fields, typed, faults,
      submit: says ?? "Answer", send, more },
    !folded && [h("h3", null, `${label}: your answer`), h("h4", null, "Your situation"), situation],
    fault && h(Fault, { store, text: fault })),
    folded && h(Fold, { store, id: "asked", title: "Your situation" },
      () => situation)];
}

const WOULD_DO = "What would do: for a server that remembers every prompt of this run. "
  + "For less, put what is the same for all first.";

function Overview({ store, run, n, turn }) {
  const { panels, live, reading } = store;
  const isBad = run.outcome && run.outcome !== "done" && !live.busy;
  const isStart = reading.relatives(run).every((line) => (
    reading.last(line) === reading.first(line)));
  const beside = networkPanels({ store, run, n });
  const hasCharts = beside.length > 0 || reading.charted(run).length > 0;
  return [
    !panels.includes("head") && reading.runs.size > 1 && h(Runs, { store, run }),
    isBad && note(`This run did not finish: ${run.outcome}`),
    run.notes.map(note),
    isStart && turn && h(Start, { store, run, n, turn },
      beside.length > 0 && h(Charts, { store, run, turn: n, items: [], beside })),
    h("div", { class: "overview" },
      !isStart && hasCharts && h(Charts, { store, run, turn: n, beside }),
      !isStart && !hasCharts && turn && h(Story, { store, run, n, turn }),
      panels.includes("turn") && turn?.decisions.length > 0
        && h(Decisions, { store, run, n, turn, brief: true })),
    run.read && h("div", { class: "read" }, h(Fold, { store, id: "read", title: run.read },
      () => h("p", { class: "fine" }, WOULD_DO))),
    run.manifest != null && h(Definition, { store, run }),
  ];
}

function Definition({ store, run }) {
  const { prompts = {}, ...rest } = JSON.parse(store.reading.text(run.manifest) || "{}");
  const fold = (title, id, content) => h(Fold,
    { key: id, store, id: `${id} ${run.id}`, title }, content);
  const passage = (id, text) => h(Passage, { store, id: `${id} ${run.id}`, text, mono: true });
  return h("div", { class: "definition" }, fold("Definition of this run", "definition", () => [
    passage("manifest", JSON.stringify(rest, null, 1)),
    Object.entries(prompts).map(([place, { text }]) => (
      fold(`Prompt template: ${place}`, place, () => passage(place, textOf(text))))),
  ]));
}
