// Texts and numbers as people read them, and what differs between two texts. No DOM in here.

const HIDDEN = new RegExp( // first those that combine with the one before
  "[\\u{e0100}-\\u{e01ef}\\u034f\\u17b4\\u17b5\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u00ad\\u061c"
  + "\\u115f\\u1160\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0"
  + "\\ufff9-\\ufffb\\ud800-\\udfff\\u{e0000}-\\u{e007f}]", "gu");
const MOST_FIELDS = 200, DEEPEST = 8, MOST_MARKS = 1000; // of a reply, in a text

/** A text with its hidden characters written out, so that none of them takes effect. */
export const visible = (text) => String(text).replaceAll("\r\n", "\n").replace(HIDDEN, (letter) => {
  const code = letter.codePointAt(0);
  if (code < 32) return String.fromCodePoint(0x2400 + code);
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
});

/** The beginning of a text; a pair of surrogates stays whole. */
export function clip(text, most) {
  if (text.length <= most) return text;
  return `${text.slice(0, most - 1 - (text.codePointAt(most - 2) > 0xffff))}…`;
}

const [WHOLE, DECIMAL] = [0, 2].map((digits) => new Intl.NumberFormat("en-US", {
  minimumFractionDigits: digits, maximumFractionDigits: digits,
}));
const inThousands = (value, kind = WHOLE) => kind.format(value).replace("-", "−");

export const titled = (text) => text[0].toUpperCase() + text.slice(1);

export const isNumber = (value) => typeof value === "number";

/** A number rounded to two decimals as Python rounds: exact halves to the even digit. */
function toHundredths(value) {
  const isHalf = Number.isInteger(value * 8) && !Number.isInteger(value * 4);
  const digits = value.toFixed(3);
  const isEven = "02468".includes(digits.at(-2));
  return Number(isHalf && isEven ? digits.slice(0, -1) : value.toFixed(2));
}

/** A number with two decimals, or with three digits where it is small. */
export function decimals(value) {
  const size = Math.abs(value);
  if (size === 0 || size >= 0.005) return inThousands(toHundredths(value) + 0, DECIMAL);
  return value.toPrecision(3).replaceAll("-", "−");
}

export const signed = (value) => (value < 0 ? "" : "+") + decimals(value);

export const plural = (n, word) => `${inThousands(n)} ${word}${n === 1 ? "" : "s"}`;

const isPlain = (value) => value == null || typeof value !== "object";

/** A value in a line: numbers with two decimals at most, lists with commas, the rest as JSON. */
export function figure(value) {
  if (value == null) return "";
  if (typeof value === "number") {
    const size = Math.abs(value);
    if (Number.isInteger(value) && size < 1e15) return inThousands(value + 0); // not −0
    const isShort = size < 1e6 && size >= 0.005;
    if (isShort) return inThousands(toHundredths(value), DECIMAL);
    return value.toPrecision(3).replaceAll("-", "−");
  }
  if (typeof value === "string") return value;
  const plain = Array.isArray(value) && value.length > 0 && value.every(isPlain);
  if (plain) return value.map(figure).join(", ");
  return JSON.stringify(value);
}

/** A value in a cell or beside its name: yes and no in words. */
export function sayValue(value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return figure(value);
}

// By how a name ends; run/charts.py has the same.
const UNITS = { bp: "bp", pct: "%", percent: "%", eur: "€", usd: "$", gbp: "£", s: "s" };

/** A field's name in words, and the unit that it ends in: "applied" and "bp" of `applied_bp`. */
export function labelled(name) {
  const words = name.split("_");
  const unit = words.length > 1 ? UNITS[words.at(-1)] : undefined;
  const label = (unit ? words.slice(0, -1) : words).join(" ").replaceAll(".", " · ");
  return { label, unit: unit ?? "" };
}

/** A name in words with the unit that it ends in: "price (€)" of `price_eur`. */
export function nameInWords(name) {
  const { label, unit } = labelled(name);
  return unit ? `${label} (${unit})` : label;
}

const LONG_NUMBER = /(?<![\w.])-?\d+\.\d{3,}(?:e[-+]?\d+)?(?!\.?\w)/g;

/** A turn in words, its long numbers as figures. */
export const storyOf = (texts) => texts.filter(Boolean)
  .map((text) => text.replace(LONG_NUMBER, (number) => figure(Number(number))));

/** Facts in a line, without those that are missing. */
export const facts = (...all) => all.flat().filter(Boolean).join(" · ");

/** Fields by their paths, in words: "is not valid", "applied 25 bp"; an action for itself. */
export const inWords = (leaves) => facts(leaves.map(([path, value]) => {
  const name = path.split(" · ").slice(-2).join(" · ");
  const words = name.replaceAll("_", " ");
  if (value === "true") return words;
  if (value === "false") return words.replace(/^(is |has )?/, "$1not ");
  if (value === "null" || value === "") return "";
  const isAlone = path === "action" || (leaves.length === 1 && typeof value === "string");
  if (isAlone) return value;
  const { label, unit } = labelled(name);
  if (unit && isNumber(value)) return `${label} ${figure(value)} ${unit}`;
  return `${words} ${figure(value)}`;
}));

/** By how much a number changed, with its sign; nothing where it did not. */
export function change(was, now) {
  if (typeof was !== "number" || typeof now !== "number") return "";
  const by = Math.abs(Number((now - was).toPrecision(12))), sign = now > was ? "+" : "−";
  if (by <= 1e-12 * Math.max(Math.abs(was), Math.abs(now))) return "";
  const whole = Number.isInteger(by) && !(Number.isInteger(was) && Number.isInteger(now));
  return sign + (whole ? inThousands(by, DECIMAL) : figure(by));
}

/** The fields of a reply, where it is an object that can be shown by them; else null. */
export function fieldsIn(text) {
  try {
    const read = JSON.parse(text.slice(text.indexOf("{"), text.lastIndexOf("}") + 1));
    return flatten(read).size <= MOST_FIELDS ? read : null; // or fails: nested too deeply
  } catch { return null; }
}

/** A nested value by paths: its numbers and texts as they are, the rest as texts. */
export function flatten(value, path = [], leaves = new Map()) {
  const list = Array.isArray(value) && value.every(isPlain), name = path.join(" · ");
  if (isPlain(value)) leaves.set(name, typeof value === "number" ? value : String(value));
  else if (list) leaves.set(name, value.join(", "));
  else if (path.length === DEEPEST) leaves.set(name, JSON.stringify(value));
  else for (const [key, item] of Object.entries(value)) flatten(item, [...path, key], leaves);
  return leaves;
}

/** Where a text has what is searched for, in any case: start and end of each hit, in a row. */
function edgesOfHits(text, wanted) {
  if (!wanted) return [];
  const pattern = new RegExp(wanted.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"), "giu");
  const hits = [...text.matchAll(pattern)].slice(0, MOST_MARKS);
  return hits.flatMap((hit) => [hit.index, hit.index + hit[0].length]);
}

/** Pieces of a text, each with `parts` in which hits are marked, also those over a border. */
export function marksIn(pieces, wanted) {
  const edges = edgesOfHits(pieces.map((piece) => piece.text).join(""), wanted);
  let start = 0;
  return pieces.map((piece) => {
    const end = start + piece.text.length, before = edges.filter((at) => at <= start).length;
    const cuts = [start, ...edges.filter((at) => at > start && at < end), end];
    const parts = cuts.slice(1).map((to, index) => ({
      text: piece.text.slice(cuts[index] - start, to - start), hit: (before + index) % 2 === 1,
    }));
    start = end;
    return { ...piece, parts: parts.filter((part) => part.text) };
  });
}

/** A message as pieces: plain text, and what was filled into slots (with `name`). */
export function slots(text, form, places, message) {
  const pieces = [];
  let at = 0;
  form.forEach(([where, name, source, tokens], index) => {
    const [start, length] = [places[2 * index], places[2 * index + 1]];
    if (where !== message || start < at || !length || start >= text.length) return;
    if (start > at) pieces.push({ text: text.slice(at, start) });
    pieces.push({ text: text.slice(start, start + length), name, source, tokens, index });
    at = start + length;
  });
  return at < text.length ? [...pieces, { text: text.slice(at) }] : pieces;
}

/** The first pieces of a text, of so many characters together. */
export function beginning(pieces, most) {
  let left = most;
  return pieces.flatMap((piece) => {
    const text = piece.text.slice(0, left - (piece.text.codePointAt(left - 1) > 0xffff));
    left = Math.max(0, left - piece.text.length);
    return text ? [{ ...piece, text }] : [];
  });
}

const MOST_EDITS = 1200, MOST_EFFORT = 4e6; // beyond these a passage counts as changed as a whole
const WORD = /\s+|\p{Script=Han}|\d+(?:[.,]\d+)*|[\p{L}\p{N}\p{M}_]+|[^\s\p{L}\p{N}\p{M}_]/gu;

/** Two texts as rows of lines, `{same, a, b}`: a side is pieces (`changed: true`), or null. */
export function diff(one, other) {
  const effort = { left: MOST_EFFORT }, pairs = [], next = [0, 0]; // each side's next row
  for (const [a, b] of edits(one.split("\n"), other.split("\n"), effort)) {
    if (a !== undefined && b !== undefined) next.fill(pairs.push([a, b]));
    else {
      const side = a === undefined ? 1 : 0, row = (pairs[next[side]++] ??= []);
      row[side] = a ?? b;
    }
  }
  return pairs.map(([a, b]) => (
    a === b ? { same: true, a: [{ text: a }], b: [{ text: b }] } : changedRow(a, b, effort)));
}

function changedRow(one, other, effort) {
  const whole = (text) => (text === undefined ? null : [{ text, changed: true }]);
  if (one === undefined || other === undefined) return { a: whole(one), b: whole(other) };
  const steps = edits(one.match(WORD) ?? [], other.match(WORD) ?? [], effort);
  const differs = (step) => step && (step[0] === undefined || step[1] === undefined);
  const sides = [[], []];
  let shared = 0;
  steps.forEach((step, at) => {
    const blank = !differs(step) && /^\s+$/.test(step[0]);
    // A lone blank between two changes belongs to them.
    const changed = differs(step) || (blank && differs(steps[at - 1]) && differs(steps[at + 1]));
    if (!changed && !blank) shared += step[0].length;
    step.forEach((text, side) => {
      const last = sides[side].at(-1);
      if (text === undefined) return;
      if (last && last.changed === changed) last.text += text;
      else sides[side].push({ text, changed });
    });
  });
  const alike = 4 * shared >= Math.min(one.length, other.length);
  return alike ? { a: sides[0], b: sides[1] } : { a: whole(one), b: whole(other) };
}

/** Pairs that make one list of the other: [a, a] kept, [a, undefined] gone, [undefined, b] new. */
function edits(a, b, effort) {
  let from = 0, end = 0;
  const most = Math.min(a.length, b.length);
  while (from < most && a[from] === b[from]) from += 1;
  while (end < most - from && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const kept = (items) => items.map((item) => [item, item]);
  return [
    ...kept(a.slice(0, from)),
    ...shortest(a.slice(from, a.length - end), b.slice(from, b.length - end), effort),
    ...kept(a.slice(a.length - end)),
  ];
}

/** The shortest edits, by Myers (1986); `far[k]` is how far one gets in a on the diagonal k. */
function shortest(a, b, effort) {
  const most = Math.min(a.length + b.length, MOST_EDITS), far = new Int32Array(2 * most + 3);
  const zero = most + 1, trace = [];
  for (let d = 0; d <= most && effort.left > 0; d += 1) {
    trace.push(far.slice(zero - d - 1, zero + d + 2));
    effort.left -= d + 1;
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && far[zero + k - 1] < far[zero + k + 1]);
      let at = down ? far[zero + k + 1] : far[zero + k - 1] + 1;
      while (at < a.length && at - k < b.length && a[at] === b[at - k]) at += 1;
      far[zero + k] = at;
      if (at >= a.length && at - k >= b.length) return walkBack(a, b, trace);
    }
  }
  return [...a.map((item) => [item, undefined]), ...b.map((item) => [undefined, item])];
}

function walkBack(a, b, trace) {
  const pairs = [];
  let i = a.length, j = b.length;
  for (let d = trace.length - 1; d >= 0; d -= 1) {
    const far = (k) => trace[d][k + d + 1], k = i - j;
    const down = k === -d || (k !== d && far(k - 1) < far(k + 1)), before = down ? k + 1 : k - 1;
    const from = far(before), to = from - before;
    while (i > from && j > Math.max(to, 0)) pairs.push([a[--i], b[--j]]);
    if (d > 0) pairs.push(i === from ? [undefined, b[--j]] : [a[--i], undefined]);
  }
  return pairs.reverse();
}
