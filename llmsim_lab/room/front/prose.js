// A text for people in blocks: headings, paragraphs, lists and tables. What its author wrapped at
// the width of an editor flows again, since a phone's lines end elsewhere.

import { h } from "../../run/front/dom.js";

const HEADING = /^#{1,4} +/;
const ITEM = /^[-*•] +/;
const FACT = /^[^:.]{1,40}: \S/; // "Inflation: 3.2", a line of its own
const SENTENCE_END = /[.:;!?)]$/;
const SHORT = 60; // characters; an editor wraps later than that

/** Blocks of a text, each with its kind: heading (`words`), text (`lines`), list (`items`) or table
 * (`rows`). */
export function blocksOf(text) {
  const blocks = [];
  for (const part of text.split(/\n[ \t]*\n/)) {
    for (const line of part.split("\n").map((it) => it.trim()).filter(Boolean)) {
      addLine(blocks, line);
    }
    blocks.push({ kind: "end" }); // so that no paragraph goes on after a blank line
  }
  return blocks.filter(({ kind }) => kind !== "end").map(asTable);
}

function addLine(blocks, line) {
  const last = blocks.at(-1);
  if (line.includes(" | ")) {
    const row = line.replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
    if (last?.kind === "table") last.rows.push(row);
    else blocks.push({ kind: "table", rows: [row] });
  } else if (HEADING.test(line)) {
    blocks.push({ kind: "heading", words: line.replace(HEADING, "") });
  } else if (ITEM.test(line)) {
    const item = line.replace(ITEM, "");
    if (last?.kind === "list") last.items.push(item);
    else blocks.push({ kind: "list", items: [item] });
  } else if (last?.kind === "list" && continues(last.items.at(-1), line)) {
    last.items.push(`${last.items.pop()} ${line}`);
  } else if (last?.kind !== "text") {
    blocks.push({ kind: "text", lines: [line] });
  } else if (continues(last.lines.at(-1), line)) {
    last.lines.push(`${last.lines.pop()} ${line}`);
  } else last.lines.push(line);
}

/** Whether a line was cut from the one before it by an editor, and not by its author. */
function continues(before, line) {
  const isFact = FACT.test(before) && before.length < SHORT;
  if (isFact && !/^\p{Ll}/u.test(line)) return false;
  if (!SENTENCE_END.test(before)) return true;
  return before.length >= SHORT || /^\p{Ll}/u.test(line);
}

/** A table with one row is a sentence with bars in it. */
function asTable(block) {
  if (block.kind !== "table" || block.rows.length > 1) return block;
  return { kind: "text", lines: [block.rows[0].join(" | ")] };
}

const isFigure = (text) => /^[-−+]?[\d.,]+ ?%?$/.test(text);

/** Rows under a first row that names them; it scrolls by itself where a phone is too narrow. */
function ProseTable({ rows: [heads, ...rows] }) {
  const kinds = heads.map((_, column) => (
    rows.every((cells) => isFigure(cells[column] ?? "")) ? "number" : null));
  const cell = (words, column) => (column === 0
    ? h("th", { scope: "row", class: kinds[0] }, words)
    : h("td", { class: kinds[column] }, words));
  const head = (words, column) => h("th", { scope: "col", class: kinds[column] }, words);
  return h("div", { class: "wide", tabindex: "0", role: "group", "aria-label": heads.join(", ") },
    h("table", null,
      h("thead", null, h("tr", null, heads.map(head))),
      h("tbody", null, rows.map((cells, at) => h("tr", { key: at }, cells.map(cell))))));
}

export const Prose = ({ text }) => h("div", { class: "prose" }, blocksOf(text).map((block) => {
  if (block.kind === "heading") return h("h2", null, block.words);
  if (block.kind === "table") return h(ProseTable, block);
  if (block.kind === "list") return h("ul", null, block.items.map((item) => h("li", null, item)));
  return h("p", null, block.lines.flatMap((line, at) => (at > 0 ? [h("br"), line] : line)));
}));
