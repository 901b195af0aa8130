// A form for values that a schema describes: one column of label, control and a line of help. Only
// what was typed is sent; Python reads it by the fields' schemas.
import { h } from "./dom.js";
import { Fold } from "./fold.js";
import { figure } from "./text.js";

const FEW_CHOICES = 5, SHORT_CHOICE = 40; // as buttons, each in so many characters
const LONG_FIELD = 60, LONG_HELP = 110; // characters
const MANY_FIELDS = 10; // from which on they can be searched
const MOST_MEMBERS = 12; // of a group that is not folded
const ENGLISH = { // which another language replaces
  reasons: "Add reasons (optional)", yes: "yes", no: "no", find: "Find a field",
};

const typedSince = new WeakMap(); // faults -> the places of fields that were typed in since

export const textOf = (value) => (value == null ? "" : String(value));

/** The places in a form of what differs from the values that it began with. */
export const changedIn = (fields, typed) => (
  Object.keys(typed).filter((index) => typed[index] !== textOf(fields[index].value)));

/** What was changed, nested by the places of its fields. */
export function valuesIn(fields, typed) {
  const make = () => Object.create(null), values = make(); // in which any name is only a name
  for (const index of changedIn(fields, typed)) {
    const { place } = fields[index];
    const inner = place.slice(0, -1).reduce((at, name) => (at[name] ??= make()), values);
    inner[place.at(-1)] = typed[index];
  }
  return values;
}

/**
 * Fields, `typed` by their index, and a button that sends what was changed.
 *
 * `asks`: these are questions, not settings, so that few answers are shown side by side.
 * `store` has `changed()`, called after each key, and `ui` and `show()` for what is folded out.
 * `faults` has what is wrong by the field's place, its names joined by dots.
 */
export function Form({
  store, label, kind, asks, fields, typed, faults, words, submit, send, cancel, more, ref,
}, above) {
  const onsubmit = (event) => { event.preventDefault(); send(valuesIn(fields, typed)); };
  return h("form", { class: "card", "aria-label": label, novalidate: true, onsubmit, ref }, above,
    h(Fields, { key: kind, store, kind, asks, fields, typed, faults,
      words: { ...ENGLISH, ...words } }),
    h("div", { class: "row" }, h("button", { class: "primary", type: "submit" }, submit),
      cancel && h("button", { type: "button", onclick: cancel }, "Cancel"), more));
}

function Fields({ store, kind = "", asks, fields, typed, faults = {}, words }) {
  const wanted = (store.ui.field ?? "").toLowerCase();
  const changed = typedSince.get(faults) ?? new Set();
  typedSince.set(faults, changed);
  const faultOf = ({ place }) => {
    const name = place.join(".");
    // Its own alone: every object has a `constructor`, and a field may be called so.
    return !changed.has(name) && Object.hasOwn(faults, name) && faults[name];
  };
  const draw = ({ field, index }, name = field.label) => {
    const isRepeated = field.help === fields[index - 1]?.help; // one help for fields of a kind
    const type = (text) => {
      typed[index] = text;
      changed.add(field.place.join(".")); // what was wrong is told of an answer, not of a new one
      store.changed();
    };
    const id = `${kind}-${index}`.replace(/\W/g, "-"), help = isRepeated ? "" : field.help;
    const { schema, value } = field;
    const input = h(Field, { key: index, id, name, help, schema, value, typed: typed[index], type,
      fault: faultOf(field), asks, words });
    if (!schema.long) return input;
    return h("div", { key: index },
      h(Fold, { store, id: `field ${index}`, title: name }, () => input));
  };
  const shown = fields.map((field, index) => ({ field, index })).filter(({ field }) => (
    `${field.label} ${field.help ?? ""}`.toLowerCase().includes(wanted)));
  // Of a question what may be left empty is the reasons; settings are all shown.
  const mayBeEmpty = ({ field }) => asks && field.schema.optional;
  const needed = shown.filter((it) => !mayBeEmpty(it));
  const optional = shown.filter(mayBeEmpty);
  const isWrong = optional.some(({ field }) => faultOf(field)); // then it is open
  return h("div", { class: "fields" },
    fields.length >= MANY_FIELDS && h("input", { key: "find", type: "search",
      placeholder: words.find, "aria-label": words.find, value: store.ui.field ?? "",
      oninput: ({ target }) => store.show({ field: target.value }) }),
    groupsOf(needed).map((group) => drawGroup(store, group, draw, wanted)),
    optional.length > 0 && h("div", { key: "open" },
      h(Fold, { store, id: isWrong ? "wrong" : "optional", wanted: isWrong, title: words.reasons },
        () => h("div", { class: "fields" }, optional.map((it) => draw(it))))));
}

/** Neighbours whose labels begin alike, "Economy · shock scale" or "cash.Ann". */
function groupsOf(shown) {
  const groups = [];
  for (const member of shown) {
    const title = /^(.*?)(?: · |\.)[^·.]*$/.exec(member.field.label)?.[1] ?? "";
    if (groups.at(-1)?.title !== title) groups.push({ title, members: [] });
    groups.at(-1).members.push(member);
  }
  return groups;
}

function drawGroup(store, { title, members }, draw, wanted) {
  const drawMember = (member) => {
    const name = member.field.label.split(" · ").at(-1);
    return draw(member, name[0].toUpperCase() + name.slice(1));
  };
  if (members.length > MOST_MEMBERS && title && !wanted) {
    const heading = `${title} · ${members.length} fields`;
    return h("div", { key: title }, h(Fold, { store, id: `group ${title}`, title: heading }, () => (
      h("div", { class: "fields" }, members.map((it) => draw(it))))));
  }
  const isHeading = members[0].field.label.startsWith(`${title} · `);
  if (!isHeading || members.length === 1) return members.map((it) => draw(it));
  return h("fieldset", { key: title }, h("legend", null, title), members.map(drawMember));
}

function Field({ id, name, help, schema, value, typed, type, fault, asks, words }) {
  const was = textOf(value), text = typed ?? was;
  const part = schema.anyOf?.find((it) => it.type !== "null") ?? schema;
  const about = [fault && `${id}-fault`, help && `${id}-help`].filter(Boolean).join(" ");
  const props = { "aria-invalid": fault ? "true" : null, "aria-describedby": about || null };
  const control = controlOf({ name, part, value, text, type, asks, words, id, props });
  const kind = ["field", text !== was && "changed", control.kind].filter(Boolean).join(" ");
  const drawn = control.kind === "options"
    ? h("fieldset", { class: "answers", ...props }, h("legend", null, name), control.drawn)
    : h("label", null, h("span", null, name, control.beside), control.drawn);
  return h("div", { class: kind }, drawn,
    fault && h("small", { class: "fault-at", id: `${id}-fault` }, sentenceOf(name, fault)),
    help && h(FieldHelp, { id: `${id}-help`, help }));
}

/** "Amount is missing": what is wrong with a field is told without its name. */
const sentenceOf = (name, fault) => (/^\p{Ll}/u.test(fault) ? `${name} ${fault}.` : fault);

/** The control for a value: `{kind, drawn, beside}`; `kind` is a class, `beside` the label. */
function controlOf({ name, part, value, text, type, asks, words, id, props }) {
  const choices = part.type === "boolean" ? [true, false] : part.enum;
  const isNumeric = ["integer", "number"].includes(part.type);
  const typing = { ...props, value: text, oninput: ({ target }) => type(target.value) };
  if (choices && isNumericRange(choices) && value != null) {
    return sliderOf({ name, choices, says: part.says, text, type, props });
  }
  const say = (it) => {
    if (it === null) return "—";
    if (typeof it === "boolean") return it ? words.yes : words.no;
    return String(it);
  };
  const isShort = (it) => say(it).length <= SHORT_CHOICE;
  if (asks && value == null && choices?.length <= FEW_CHOICES && choices.every(isShort)) {
    return { kind: "options", drawn: choices.map((it) => h("label", { key: textOf(it) },
      h("input", { type: "radio", name: id, value: textOf(it), checked: text === textOf(it),
        onchange: ({ target }) => type(target.value) }), say(it))) };
  }
  if (choices) {
    const options = [...(value == null ? [null] : []), ...choices];
    return { drawn: h("select", typing, options.map((it) => (
      h("option", { value: textOf(it) }, say(it))))) };
  }
  if (part.long || textOf(value).length > LONG_FIELD || part.maxLength > 2 * LONG_FIELD) {
    return { kind: "long", drawn: h("textarea", { ...typing, rows: part.long ? 12 : 3 }) };
  }
  // As text: a field of numbers would hide "1,000", which Python asks back.
  if (!isNumeric) return { drawn: h("input", { ...typing, type: "text" }) };
  const keys = part.type === "integer" ? "numeric" : "decimal";
  const hasMinus = !((part.minimum ?? part.exclusiveMinimum) >= 0); // a phone's keys have none
  return { drawn: h("input", { ...typing, type: "text", class: "number",
    inputmode: hasMinus ? null : keys }) };
}

const isNumericRange = (choices) => (
  choices.length > FEW_CHOICES && choices.every(Number.isFinite));

/** One of many numbers, on a slider. */
function sliderOf({ name, choices, says, text, type, props }) {
  const at = choices.findIndex((it) => textOf(it) === text), value = figure(choices[at]);
  const end = (it) => h("small", null, figure(it));
  return { kind: "choices long", beside: h("b", null, value), drawn: h("span", { class: "slide" },
    end(choices[0]),
    h("input", { ...props, type: "range", min: 0, max: choices.length - 1, value: at,
      "aria-label": name, "aria-valuetext": says?.[at] ?? value,
      oninput: ({ target }) => type(textOf(choices[target.value])) }),
    end(choices.at(-1))) };
}

/** A line of help; the rest of a long one folds out. */
function FieldHelp({ id, help }) {
  const end = help.length > LONG_HELP ? help.search(/[.;] /) + 1 : 0;
  if (end === 0) return h("small", { id }, help);
  const start = help.slice(0, end).replace(/;$/, "");
  return h("details", { class: "help", id }, h("summary", null, start),
    h("small", null, help.slice(end + 1)));
}
