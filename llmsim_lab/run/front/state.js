// A turn's state: figures with their changes, tables by player, texts.

import { Box, Passage, Table } from "./calls.js";
import { limited } from "./chart.js";
import { h } from "./dom.js";
import { Fold } from "./fold.js";
import { networksOf } from "./network.js";
import { change, clip, labelled, plural, sayValue } from "./text.js";

const FEW_FACTS = 12, MOST_KEYS = 12, FEW_COLUMNS = 5, LONG_VALUE = 44;

const isLong = (value) => typeof value === "string" && value.length > LONG_VALUE;

/** The values of a state: what has a label first; what has none is folded beside it. */
export function State({ store, run, n, turn }) {
  const { reading } = store;
  const dicts = dictsOf(reading, run, turn);
  const inDicts = new Set(dicts.flatMap((dict) => [...dict.columns.values()]));
  const isAlone = (column) => !inDicts.has(column);
  const fact = (item) => factOf(reading, run, n, turn, item);
  const named = run.series.filter(({ column }) => isAlone(column));
  const isLabelled = named.some(({ column, label }) => label !== column);
  const other = reading.otherColumns(run).filter(isAlone).map((column) => ({ column }));
  const facts = [...named, ...other].map(fact).filter((it) => it.now != null && it.now !== "");
  const figures = facts.filter((it) => !isLong(it.now));
  const texts = facts.filter((it) => isLong(it.now));
  const known = new Set(named.map(({ column }) => column));
  const isFolded = ({ column }) => (
    isLabelled && !known.has(column) && isConstant(reading, run, column));
  const changing = figures.filter((it) => !isFolded(it));
  const fit = Math.min(named.length || FEW_FACTS, FEW_FACTS);
  const most = changing.length <= FEW_FACTS ? FEW_FACTS : fit;
  const first = changing.slice(0, most);
  const rest = figures.filter((it) => !first.includes(it));
  return [
    first.length > 0 && h(Facts, { facts: first }),
    h(PlayerTables, { store, run, n, turn, dicts }),
    rest.length > 0 && h(Fold, { store, id: "facts", title: `${rest.length} more` },
      () => h(Facts, { facts: rest })),
    texts.length > 0 && h(Fold, { store, id: "texts", title: plural(texts.length, "text") },
      () => texts.map((it) => [h("h3", null, it.label),
        h(Passage, { store, id: `state ${run.id} ${n} ${it.column}`, text: it.now })])),
  ];
}

/** Whether a column has had one value in all turns, and so says little of this one. */
function isConstant(reading, run, column) {
  const played = [...reading.turns(run).values()].filter((turn) => turn.n > 0);
  const values = new Set(played.map((turn) => reading.value(turn, column)));
  return played.length > 1 && values.size === 1;
}

/** A column's label, unit, value and the value before. */
function factOf(reading, run, n, turn, { column, label, unit }) {
  const named = labelled(column);
  return {
    column,
    label: label && label !== column ? label : named.label,
    unit: unit || named.unit,
    now: reading.value(turn, column),
    was: reading.valueAt(run, column, n - 1),
  };
}

export const Facts = ({ facts }) => h(Table, {
  kind: "facts",
  heads: ["State", "value", "change"],
  rows: facts.map(({ column, label, unit, was, now }) => [
    column,
    [clip(label, 80), h("small", null, ` ${unit}`)],
    h("span", { class: typeof now }, sayValue(now)),
    change(was, now),
  ]),
});

/** The dicts of numbers and of texts in a turn's state, each `{label, columns, values}`. */
function dictsOf(reading, run, turn) {
  const numbers = run.dicts.map((column) => {
    const lines = reading.linesOf(run, { column });
    const here = lines.filter((line) => reading.value(turn, line.column) != null);
    const chart = run.charts.find((item) => item.column === column);
    return {
      label: chart?.label ?? labelled(column.replace(/^.*\*\.|\.\*$/g, "")).label,
      unit: chart?.unit ?? "",
      columns: new Map(lines.map((line) => [line.name, line.column])),
      values: new Map(here.map((line) => [line.name, reading.value(turn, line.column)])),
    };
  });
  const networks = networksOf(reading, run);
  const tables = [...reading.tables(turn)].filter(([name]) => !networks.has(name));
  const texts = tables.map(([name, lines]) => (
    { label: labelled(name).label, unit: "", columns: new Map(), values: asDict(lines) }));
  return [...numbers, ...texts].filter(({ values }) => values.size > 0);
}

/** A field's lines as a dict; of a list, one without names. */
function asDict(lines) {
  const isList = lines.some((line) => typeof line !== "object" || Array.isArray(line));
  if (isList) return new Map([["", lines.map(sayValue).join(", ")]]);
  return new Map(lines.flatMap(Object.entries));
}

/** Dicts with the same keys beside each other: a row for each player. */
function PlayerTables({ store, run, n, dicts }) {
  return tablesOf(dicts).map((table, index) => {
    const keys = [...new Set(table.flatMap(({ values }) => [...values.keys()]))];
    if (keys.length === 1 && keys[0] === "") return h(List, { key: index, dict: table[0] });
    const [count, more] = limited(store, `keys ${index}`, keys.length, MOST_KEYS, "more row");
    const shown = keys.slice(0, count);
    const cell = (dict, key) => h(Cell, { value: dict.values.get(key),
      was: store.reading.valueAt(run, dict.columns.get(key), n - 1) });
    const isAcross = table.length > FEW_COLUMNS && keys.length <= FEW_COLUMNS; // players
    const heads = isAcross ? shown : table.map(headOf);
    const rows = isAcross
      ? table.map((dict) => [dict.label, headOf(dict), ...shown.map((key) => cell(dict, key))])
      : shown.map((key) => [key, clip(key, 60), ...table.map((dict) => cell(dict, key))]);
    const label = table.map((dict) => dict.label).join(", ");
    return h(Box, { key: index, kind: "by-player", label },
      h(Table, { kind: isAcross ? "players across" : "players", heads: ["", ...heads], rows }),
      more);
  });
}

const headOf = ({ label, unit }) => [clip(label, 40), unit && ` ${unit}`];

const List = ({ dict: { label, values } }) => h("p", { class: "list" },
  h("small", null, label), " ", clip(values.get(""), 400));

function Cell({ value, was }) {
  if (Array.isArray(value)) return clip(value.join(", "), 300);
  if (typeof value !== "number") return clip(sayValue(value), 300);
  return h("span", { class: "figure" }, h("span", { class: "number" }, sayValue(value)),
    h("small", null, change(was, value)));
}

/** Dicts that share most of their keys are one table; long texts are a table each. */
function tablesOf(dicts) {
  const tables = [];
  for (const dict of dicts) {
    const keys = [...dict.values.keys()];
    const isWide = [...dict.values.values()].some(isLong);
    const alike = !isWide && tables.find(([first]) => {
      const shared = keys.filter((key) => first.values.has(key)).length;
      const isFirstWide = [...first.values.values()].some(isLong);
      return !isFirstWide && 2 * shared > Math.min(keys.length, first.values.size);
    });
    if (alike) alike.push(dict);
    else tables.push([dict]);
  }
  return tables;
}

/** What a run starts from, before its first turn: values in place of charts of one point. */
export function Start({ store, run, n, turn }, beside) {
  const { reading } = store;
  const alone = reading.charted(run).filter(({ column }) => !column.includes("*"));
  const dicts = dictsOf(reading, run, turn);
  return h("section", { class: "start", "aria-label": "At the start" },
    alone.length > 0 && h("dl", { class: "quarter" }, alone.map((item) => h("div",
      { key: item.column },
      h("dt", null, item.label, h("small", null, ` ${item.unit}`)),
      h("dd", null, h("b", null, sayValue(reading.value(turn, item.column))))))),
    h(PlayerTables, { store, run, n, turn, dicts }),
    beside);
}
