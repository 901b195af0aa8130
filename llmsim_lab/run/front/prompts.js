// Variants of a prompt side by side: typed, checked, filled from a situation, asked, compared.
import { Choice, Fold, Passage, Prompt, soft } from "./calls.js";
import { h } from "./dom.js";
import { Results, Sentences } from "./study.js";
import { diff, facts } from "./text.js";
import { addView } from "./view.js";

const PAUSE_MS = 250; // after a key, until what is typed is checked

const promptPart = (store, key) => store.reading.partsOf("prompts").get(key);
const typedIn = ({ ui, reading }, place) => (
  ui[`variant ${place}`] ?? reading.text(reading.partsOf("prompts").get(place).text));

function Prompts({ store }) {
  const { name, slots, samples, turns, model } = promptPart(store, "about"), { ui, live } = store;
  const { commands, gone, reading } = store, asked = reading.parts.has("study");
  const places = [...reading.partsOf("prompts").keys()].filter((key) => typeof key === "number");
  const turn = ui.situation ?? turns[0];
  const write = (place, at = turn) => commands({
    do: "write", place, text: typedIn(store, place), turn: at });
  const button = (words, off, act, kind) => h("button", {
    class: kind, "aria-disabled": gone || off, onclick: () => gone || off || act() }, words);
  return h("div", { class: "study" },
    h("div", { class: "row mid" }, h("h3", { class: "name" }, "Prompt ", name),
      h("span", { class: "soft" }, facts(model, `slots ${slots.join(", ") || "none"}`))),
    !model && h("p", { class: "note" }, "This recorded run has no model to ask. Attach one: ",
      h("code", null, "PromptComparer(run, ..., llm_client=connect(\"auto\"))")),
    h("div", { class: "variants" }, places.map((place) => (
      h(Variant, { key: place, store, place, turn, write, known: promptPart(store, place) })))),
    h("div", { class: "row mid" },
      button("Add a variant", live.running, () => commands({ do: "add" })),
      turns.length > 0 && h("label", { class: "row mid soft" }, "Preview at ", h(Choice, {
        label: "Preview at turn", value: turn, options: turns.map((it) => [it, `turn ${it}`]),
        pick: (it) => {
          store.show({ situation: Number(it) });
          for (const place of places) write(place, Number(it));
        } })),
      h("label", { class: "turns soft" }, "Samples ", h("input", {
        type: "number", min: 1, max: 1000, value: ui.samples ?? samples,
        onchange: ({ target }) => (ui.samples = Math.max(1, Math.round(target.value) || 1)) })),
      h("div", { class: "row mid buttons" },
        button("Run", live.running || !model, () => {
          for (const place of places.slice(1)) write(place);
          commands({ do: "run", samples: ui.samples ?? samples });
        }, "primary"),
        button("Stop", !live.running, () => commands({ do: "halt" })))),
    asked && h("section", { "aria-label": "Results" }, h(Sentences, { store }),
      h(Fold, { store, id: "details", title: "Outcomes and charts" }, () => (
        h("div", { class: "study" }, h(Results, { store }))))));
}

/** A variant: its text to edit, what is wrong with it, what differs, and how it is filled. */
function Variant({ store, place, turn, write, known: { name, fault } }) {
  const { ui, reading } = store, typed = typedIn(store, place);
  const base = reading.text(promptPart(store, 0).text);
  const filled = promptPart(store, `filled ${place}`), fixed = place === 0;
  const oninput = ({ target }) => {
    store.show({ [`variant ${place}`]: target.value });
    clearTimeout(ui.pause);
    ui.pause = setTimeout(() => write(place), PAUSE_MS);
  };
  const preview = (open) => {
    if (open && filled?.turn !== turn) write(place);
  };
  return h("section", { "aria-label": name },
    h("h4", null, name),
    h("textarea", { class: "mono", rows: rowsOf(typed), value: typed, readonly: fixed,
      spellcheck: "false", "aria-label": `Text of ${name}`,
      "aria-invalid": fault ? "true" : null, oninput }),
    fault && h("p", { class: "call-fault", role: "alert" }, fault),
    !fixed && (typed === base ? soft("The same as it was.")
      : h(Marked, { store, place, base, typed })),
    h(Fold, { store, id: `preview ${place}`, title: `As it is sent after turn ${turn}`,
      opened: preview }, () => (filled
      ? h(Prompt, { store, tried: filled, wanted: "", id: `filled ${place}` })
      : soft(fault ? "It cannot be filled." : "It is being filled."))));
}

/** So many lines of a field as a text needs. */
function rowsOf(text) {
  const lines = text.split("\n").map((line) => Math.ceil((line.length + 1) / 44));
  return Math.max(6, Math.min(18, lines.reduce((sum, it) => sum + it, 1)));
}

/** The lines that differ, as they were and as they are, with the words marked. */
function Marked({ store, place, base, typed }) {
  const rows = store.keep(`marked ${place}`, [base, typed], () => (
    diff(base, typed).filter((row) => !row.same)));
  const mark = (tag) => ({ text, changed }) => ({ text, tag: changed && text && tag });
  const line = (pieces, tag) => (pieces?.some((it) => it.changed && it.text)
    ? [...pieces.map(mark(tag)), { text: "\n" }] : []);
  const pieces = rows.flatMap(({ a, b }) => [...line(a, "del"), ...line(b, "ins")]);
  return h("div", { class: "marked", role: "group", "aria-label": "What differs" },
    h(Passage, { store, id: `marked ${place}`, pieces, mono: true, most: 2000 }));
}

addView("prompts", { draw: Prompts });
