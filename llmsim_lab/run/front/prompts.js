// Variants of a prompt side by side: typed, checked, filled from a situation, asked, compared.
import { Choice, Passage, Prompt, soft } from "./calls.js";
import { h } from "./dom.js";
import { Fold } from "./fold.js";
import { Controls, Effects, outcomeOf, Results } from "./study.js";
import { diff, nameInWords } from "./text.js";
import { addView, Button } from "./view.js";

const PAUSE_MS = 250; // after a key, until what is typed is checked

const textIn = ({ reading }, place) => reading.text(reading.part("prompts", place).text);
const typedIn = (store, place) => store.ui[`variant ${place}`] ?? textIn(store, place);

function Prompts({ store }) {
  const { reading, ui, live, commands } = store;
  const { name, slots, samples, turns, fault } = reading.part("prompts", "about");
  const places = [...reading.partsOf("prompts").keys()].filter((key) => typeof key === "number");
  const turn = ui.situation ?? turns[0];
  const write = (place, at = turn) => commands({
    do: "write", place, text: typedIn(store, place), turn: at });
  const run = () => {
    places.slice(1).forEach((place) => write(place));
    commands({ do: "run", samples: ui.samples ?? samples });
  };
  const choose = (value) => {
    ui.situation = Number(value);
    places.forEach((place) => write(place, ui.situation));
  };
  return h("div", { class: "study" },
    h("div", { class: "row mid" }, h("h3", { class: "name" }, "Prompt ", name),
      h("span", { class: "soft" }, `slots ${slots.join(", ") || "none"}`)),
    fault && h("p", { class: "note" }, fault[0].toUpperCase(), fault.slice(1)),
    h("div", { class: "variants" }, places.map((place) => (
      h(Variant, { key: place, store, place, turn, write: () => write(place) })))),
    h("div", { class: "row mid" },
      h(Button, { store, off: live.running, act: () => commands({ do: "add" }) }, "Add a variant"),
      turns.length > 0 && h("label", { class: "row mid soft" }, "Preview after ", h(Choice, {
        label: "Preview after", value: turn, options: turns.map((it) => [it, `turn ${it}`]),
        pick: choose })),
      h("label", { class: "turns soft" }, "Samples ", h("input", {
        type: "number", min: 1, max: 1000, value: ui.samples ?? samples,
        onchange: ({ target }) => (ui.samples = Math.max(1, Math.round(target.value) || 1)) })),
      h(Controls, { store, off: live.running || fault, run })),
    reading.parts.has("study") && h("section", { "aria-label": "Results" },
      soft(nameInWords(outcomeOf(store))), h(Effects, { store }),
      h(Fold, { store, id: "details", title: "Outcomes and charts" }, () => (
        h("div", { class: "study" }, h(Results, { store, told: true }))))));
}

/** A variant: its text to edit, what is wrong with it, what differs, and how it is filled. */
function Variant({ store, place, turn, write }) {
  const { ui, reading } = store, typed = typedIn(store, place), base = textIn(store, 0);
  const { name, fault } = reading.part("prompts", place);
  const filled = reading.part("prompts", `filled ${place}`);
  const oninput = ({ target }) => {
    store.show({ [`variant ${place}`]: target.value });
    clearTimeout(ui[`pause ${place}`]); // of this variant: another one may wait to be checked
    ui[`pause ${place}`] = setTimeout(write, PAUSE_MS);
  };
  return h("section", { "aria-label": name },
    h("h4", null, name),
    h("textarea", { class: "mono", rows: 6, value: typed, readonly: place === 0, oninput,
      spellcheck: "false", "aria-label": `Text of ${name}`, "aria-invalid": Boolean(fault) }),
    fault && h("p", { class: "call-fault", role: "alert" }, fault),
    place > 0 && (typed === base ? soft("Same as recorded.")
      : h(Marked, { store, place, base, typed })),
    h(Fold, { store, id: `preview ${place}`, title: `As it is sent after turn ${turn}` }, () => (
      filled ? h(Prompt, { store, tried: filled, wanted: "", id: `filled ${place}` })
        : soft("The preview cannot be filled."))));
}

/** The lines that differ, as they were and as they are, with the words marked. */
function Marked({ store, place, base, typed }) {
  const line = (its, tag) => (!its?.some((it) => it.changed && it.text) ? [] : [
    ...its.map(({ text, changed }) => ({ text, tag: changed && text && tag })), { text: "\n" }]);
  const pieces = store.keep(`marked ${place}`, [base, typed], () => diff(base, typed)
    .flatMap(({ a, b, same }) => (same ? [] : [...line(a, "del"), ...line(b, "ins")])));
  return h("div", { class: "marked", role: "group", "aria-label": "What differs" },
    h(Passage, { store, id: `marked ${place}`, pieces, mono: true, most: 2000 }));
}

addView("prompts", { draw: Prompts, says: true });
