// A network in the state: players and their ties, each at the same place in every turn.

import { h } from "./dom.js";
import { clip, facts, plural, sayValue } from "./text.js";

const TALL = 306, WIDEST = 440, EDGE = 26; // of the drawing; room around the outermost places
const MOST_PLACED = 120; // players that ties pull together; more stand on a circle
const PULLS = 160, NAMED = 40;

/** What tells a tie from others: its two ends, in their order only where that counts. */
const keyOf = (pair, hasArrows) => JSON.stringify(hasArrows ? pair : [...pair].sort());

/** The networks in a run's state by field: dicts of lists of their own keys, or lists of pairs. */
export function networksOf(reading, run) {
  return reading.keep(`networks ${run.id}`, () => {
    const networks = new Map();
    for (const turn of reading.turns(run).values()) {
      for (const [name, lines] of reading.tables(turn)) {
        const ties = tiesIn(lines);
        if (!ties) continue;
        if (!networks.has(name)) networks.set(name, new Map());
        networks.get(name).set(turn.n, ties);
      }
    }
    const hasTies = (byTurn) => [...byTurn.values()].some(({ pairs }) => pairs.length > 0);
    return new Map([...networks].filter(([, byTurn]) => hasTies(byTurn)));
  });
}

/** Who is tied to whom: `{names, pairs, hasArrows}`, each tie once; null for what is no network. */
export function tiesIn(lines) {
  const isList = lines.every((line) => Array.isArray(line) && line.length === 2);
  const entries = lines.flatMap((line) => (typeof line === "object" ? Object.entries(line) : []));
  const isDict = !lines.some(Array.isArray) && entries.length === lines.length
    && entries.every(([, tied]) => Array.isArray(tied));
  if (!isList && !isDict) return null;
  const all = isList ? lines : entries.flatMap(([name, tied]) => (
    tied.map((other) => [name, other])));
  const names = new Set(isList ? lines.flat() : entries.map(([name]) => name));
  if (all.some((pair) => !names.has(pair[1]))) return null;
  const known = new Set(all.map((pair) => JSON.stringify(pair)));
  const hasArrows = all.some((pair) => !known.has(JSON.stringify([pair[1], pair[0]])));
  const pairs = [...new Map(all.map((pair) => [keyOf(pair, hasArrows), pair])).values()];
  return { names: [...names], pairs, hasArrows };
}

/** Where each player stands, from 0 to 1 both ways, by the ties of the turns in their order.
 * Those of the first turn with ties are placed together, and stay: who comes later finds a place
 * among them, so that nobody moves while a run is played. */
export function placesOf(turns) {
  const places = new Map();
  const firstTied = turns.find(({ pairs }) => pairs.length > 0) ?? { names: [], pairs: [] };
  for (const { names, pairs } of [firstTied, ...turns]) {
    const newcomers = names.filter((name) => !places.has(name));
    if (newcomers.length === 0) continue;
    const isFirst = places.size === 0;
    newcomers.forEach((name, index) => {
      const angle = (2 * Math.PI * index) / newcomers.length;
      const [across, down] = isFirst ? MIDDLE : amongFriends(name, pairs, places);
      const reach = isFirst ? 0.5 : 0.02; // a little apart, where several have the same friends
      places.set(name, [across + reach * Math.cos(angle), down + reach * Math.sin(angle)]);
    });
    // Groups without a tie between them would be pulled into heaps: these stay on the circle.
    const isPulled = places.size <= MOST_PLACED && (!isFirst || isConnected(names, pairs));
    if (isPulled) pullTogether(places, pairs, new Set(newcomers));
    if (isFirst) stretch(places);
    for (const place of places.values()) keepInside(place);
  }
  return places;
}

const MIDDLE = [0.5, 0.5];

/** Whether ties lead from each player to each other one. */
function isConnected(names, pairs) {
  const reached = new Set(names.slice(0, 1));
  for (const name of reached) { // which grows meanwhile
    const tied = pairs.filter((pair) => pair.includes(name)).flat();
    for (const other of tied) reached.add(other);
  }
  return reached.size === names.length;
}

/** The middle of those whom a newcomer is tied to. */
function amongFriends(name, pairs, places) {
  const friends = pairs.filter((pair) => pair.includes(name))
    .flatMap((pair) => pair.filter((other) => places.has(other)).map((other) => places.get(other)));
  if (friends.length === 0) return MIDDLE;
  return [0, 1].map((axis) => (
    friends.reduce((sum, place) => sum + place[axis], 0) / friends.length));
}

/** Fruchterman and Reingold (1991): all push each other away, ties pull, ever more gently. */
function pullTogether(places, pairs, moving) {
  const all = [...places];
  const apart = Math.sqrt(1 / all.length); // the distance that players would like
  for (let step = 0; step < PULLS; step += 1) {
    const moves = new Map(all.map(([name]) => [name, [0, 0]]));
    const push = (one, other, force) => {
      const across = places.get(one)[0] - places.get(other)[0] || 1e-3;
      const down = places.get(one)[1] - places.get(other)[1] || 1e-3;
      const distance = Math.hypot(across, down);
      const size = force(distance) / distance;
      for (const [name, sign] of [[one, 1], [other, -1]]) {
        moves.get(name)[0] += sign * across * size;
        moves.get(name)[1] += sign * down * size;
      }
    };
    all.forEach(([one], index) => {
      for (const [other] of all.slice(index + 1)) push(one, other, (d) => apart ** 2 / d);
    });
    for (const [one, other] of pairs) {
      if (one !== other) push(one, other, (d) => -(d ** 2) / apart);
    }
    const farthest = 0.05 * (1 - step / PULLS);
    for (const [name, place] of all) {
      if (!moving.has(name)) continue;
      const [across, down] = moves.get(name);
      const share = Math.min(1, farthest / (Math.hypot(across, down) || 1));
      place[0] += across * share;
      place[1] += down * share;
    }
  }
}

/** Fill the drawing, from edge to edge. */
function stretch(places) {
  for (const axis of [0, 1]) {
    const all = [...places.values()].map((place) => place[axis]);
    const low = Math.min(...all);
    const span = Math.max(...all) - low || 1;
    for (const place of places.values()) place[axis] = (place[axis] - low) / span;
  }
}

function keepInside(place) {
  for (const axis of [0, 1]) place[axis] = Math.min(1, Math.max(0, place[axis]));
}

/** The network of a turn: ties that are new in it are marked, and a number for each is a shade. */
export function Network({ store, run, name, label, turn, wide: room }) {
  const { reading } = store;
  const wide = Math.min(room, WIDEST);
  const byTurn = networksOf(reading, run).get(name);
  const places = reading.keep(`places ${run.id} ${name}`, () => placesOf([...byTurn.values()]));
  const { names, pairs, hasArrows } = byTurn.get(turn) ?? { names: [], pairs: [] };
  const key = (pair) => keyOf(pair, hasArrows);
  const before = new Set((byTurn.get(turn - 1)?.pairs ?? pairs).map(key));
  const isNew = (pair) => !before.has(key(pair));
  const shade = shadeOf(reading, run, names, turn);
  const at = (player) => {
    const [across, down] = places.get(player);
    return [EDGE + across * (wide - 2 * EDGE), EDGE / 2 + down * (TALL - 2 * EDGE)];
  };
  const isNamed = names.length <= NAMED;
  const size = isNamed ? 7 : 4;
  const counts = `${plural(names.length, "player")} · ${plural(pairs.length, "tie")}`;
  const legend = facts(shade?.legend, pairs.some(isNew) && "blue line: new");
  return h("figure", { class: "panel network" },
    h("figcaption", null,
      h("b", null, label),
      h("span", { class: "now" }, h("small", null, counts))),
    h("svg", { width: wide, height: TALL, role: "img", "aria-label": `${label}: ${counts}` },
      pairs.map((pair) => h(Tie, {
        key: key(pair), from: at(pair[0]), to: at(pair[1]), size, hasArrows, isNew: isNew(pair),
      })),
      names.map((player) => h(Player, {
        key: player, player, at: at(player), size, isNamed, shade,
        ties: pairs.filter((pair) => pair.includes(player)).length,
      }))),
    legend && h("small", null, legend));
}

function Tie({ from, to, size, hasArrows, isNew }) {
  const [x, y] = to;
  const length = Math.hypot(x - from[0], y - from[1]) || 1;
  const across = (x - from[0]) / length;
  const down = (y - from[1]) / length;
  const start = [from[0] + across * size, from[1] + down * size]; // a pale circle hides no line
  const end = [x - across * size, y - down * size];
  const corner = (side) => [
    end[0] - 7 * across - 3.5 * side * down, end[1] - 7 * down + 3.5 * side * across];
  return h("g", { class: isNew ? "tie new" : "tie" },
    h("line", { x1: start[0], y1: start[1], x2: end[0], y2: end[1] }),
    hasArrows && h("path", { d: `M${end}L${corner(1)}L${corner(-1)}Z` }));
}

function Player({ player, at: [x, y], size, isNamed, shade, ties }) {
  const value = shade && `${shade.label} ${sayValue(shade.of(player))}`;
  return h("g", { class: "player" },
    h("title", null, facts(player, value, plural(ties, "tie"))),
    h("circle", { cx: x, cy: y, r: size, "fill-opacity": shade ? shade.share(player) : 0.5 }),
    isNamed && h("text", { x, y: y + 19, "text-anchor": "middle" }, clip(player, 12)));
}

/** The first chart with a number for each player, as shades from its least to its most. */
function shadeOf(reading, run, names, turn) {
  for (const item of reading.charted(run).filter(({ column }) => column.includes("*"))) {
    const columns = new Map(reading.linesOf(run, item).map((line) => [line.name, line.column]));
    if (!names.length || !names.every((name) => columns.has(name))) continue;
    const all = [...columns.values()].flatMap((column) => (
      reading.points(run, column).map(([, value]) => value)))
      .filter((value) => value != null);
    const low = Math.min(...all);
    const span = Math.max(...all) - low || 1;
    const of = (name) => reading.valueAt(run, columns.get(name), turn);
    const share = (name) => 0.08 + 0.92 * ((Number(of(name) ?? low) - low) / span);
    const legend = item.yesNo ? `filled: ${item.label}` : `stronger colour: more ${item.label}`;
    return { label: item.label, legend, of, share };
  }
  return null;
}
