import assert from "node:assert/strict";
import { test } from "node:test";

import { makeWindow, run, turn } from "./view_kit.mjs";
import { placesOf } from "../../llmsim_lab/run/front/network.js";

const isOf = (name) => (node) => node.attributes.class?.split(" ").includes(name);
const near = (one, other) => assert.ok(Math.abs(one - other) < 0.01, `${one} is not ${other}`);
const numbers = (node, ...names) => names.map((name) => Number(node.attributes[name]));
const inTexts = (lines) => ({ lines, texts: lines.map((_, at) => [at]) });

/** A run whose state has the field `knows` in each turn, and a number for each of some players. */
function club(fields, { values = {}, label = "wealth", ...more } = {}) {
  const columns = Object.keys(values).map((name) => `wealth.${name}`);
  const charts = columns.length ? [{ column: "wealth.*", label, unit: "" }] : [];
  const texts = fields.map((field) => (
    field.map((line) => JSON.stringify(line)).join("\n")));
  return makeWindow([
    inTexts(texts),
    run(1, { columns, charts, dicts: columns.length ? ["wealth.*"] : [], ...more }),
    ...fields.map((_, n) => turn(1, n, Object.values(values), { tables: { knows: n } })),
  ]);
}
const byName = (ties) => Object.entries(ties).map(([name, tied]) => ({ [name]: tied }));
const PATH = byName({ Ann: ["Bob"], Bob: ["Ann", "Cy"], Cy: ["Bob", "Di"], Di: ["Cy"] });
const RING = byName({
  Ann: ["Bob", "Di"], Bob: ["Ann", "Cy"], Cy: ["Bob", "Di"], Di: ["Cy", "Ann"] });
const WEALTH = { Ann: 1, Bob: 2, Cy: 3, Di: 5 };

/** Where the players' circles are. */
const centres = ({ nodes }) => new Map(nodes(isOf("player")).map((player) => (
  [player.find("title").textContent.split(" · ")[0], numbers(player.find("circle"), "cx", "cy")])));

test("a tie joins its two players, and one that is new in the turn is marked", () => {
  const window = club([PATH, PATH, RING], { values: WEALTH });
  const ties = window.nodes(isOf("tie"));
  assert.equal(ties.length, 4);
  const at = centres(window);
  const ends = ties.map((tie) => {
    const [x1, y1, x2, y2] = numbers(tie.find("line"), "x1", "y1", "x2", "y2");
    const away = (place, x, y) => Math.hypot(place[0] - x, place[1] - y);
    const playerAt = (x, y) => [...at].find(([, place]) => away(place, x, y) < 8)?.[0];
    return [playerAt(x1, y1), playerAt(x2, y2)].sort().join("-");
  });
  assert.deepEqual(ends.toSorted(), ["Ann-Bob", "Ann-Di", "Bob-Cy", "Cy-Di"]);
  assert.deepEqual(ends.filter((_, place) => isOf("new")(ties[place])), ["Ann-Di"]);
  assert.equal(window.nodes((node) => node.localName === "path" && isOf("tie")(node.parentNode))
    .length, 0); // no arrows where all ties are mutual
  assert.match(window.texts("network")[0],
    /^knows4 players · 4 ties.*stronger colour: more wealth · blue line: new$/);
});

test("in the first turn no tie is new", () => {
  const window = club([RING, RING], { values: WEALTH });
  assert.equal(window.nodes(isOf("new")).length, 0);
  assert.doesNotMatch(window.texts("network")[0], /blue line/);
});

test("a player's shade is its number from the least to the most, and its name stands below", () => {
  const window = club([PATH, PATH], { values: WEALTH });
  const players = window.nodes(isOf("player"));
  const shades = players.map((player) => numbers(player.find("circle"), "fill-opacity")[0]);
  for (const [place, shade] of [0.08, 0.31, 0.54, 1].entries()) near(shades[place], shade);
  assert.deepEqual(players.map((player) => player.find("title").textContent),
    ["Ann · wealth 1 · 1 tie", "Bob · wealth 2 · 2 ties", "Cy · wealth 3 · 2 ties",
      "Di · wealth 5 · 1 tie"]);
  for (const player of players) {
    const [x, y, r] = numbers(player.find("circle"), "cx", "cy", "r");
    assert.equal(r, 7);
    assert.deepEqual(numbers(player.find("text"), "x", "y"), [x, y + 19]);
    assert.ok(player.find("title").textContent.startsWith(player.find("text").textContent));
  }
});

test("without a number for every player there are no shades; yes and no are filled or not", () => {
  const plain = club([PATH, PATH], { values: { Ann: 1, Bob: 2, Cy: 3 } });
  assert.ok(plain.nodes(isOf("player")).every((player) => (
    numbers(player.find("circle"), "fill-opacity")[0] === 0.5)));
  const votes = { Ann: true, Bob: false, Cy: true, Di: true };
  const voted = club([PATH, PATH], { values: votes, label: "vote" });
  assert.match(voted.texts("network")[0], /filled: vote/);
});

test("the point of an arrow touches the circle that it points at", () => {
  const window = club([[["Ann", "Bob"], ["Bob", "Cy"], ["Ann", "Cy"]],
    [["Ann", "Bob"], ["Bob", "Cy"], ["Ann", "Cy"]]]);
  const at = [...centres(window).values()];
  for (const tie of window.nodes(isOf("tie"))) {
    const [x1, y1, x, y] = numbers(tie.find("line"), "x1", "y1", "x2", "y2");
    near(Math.min(...at.map((centre) => Math.hypot(centre[0] - x, centre[1] - y))), 7);
    const [tip, ...corners] = tie.find("path").attributes.d.match(/-?[\d.]+,-?[\d.]+/g)
      .map((pair) => pair.split(",").map(Number));
    const far = ([a, b], [c, d]) => Math.hypot(a - c, b - d);
    near(far(tip, [x, y]), 0);
    for (const corner of corners) near(far(corner, tip), Math.hypot(7, 3.5));
    near(far(...corners), 7);
    assert.ok(far(corners[0], [x1, y1]) < far(tip, [x1, y1])); // behind the tip
  }
});

test("all players are inside the drawing, and fill it both ways", () => {
  const window = club([RING, RING]);
  const svg = window.nodes((node) => node.localName === "svg"
    && isOf("network")(node.parentNode))[0];
  const [wide, tall] = numbers(svg, "width", "height");
  const all = [...centres(window).values()];
  for (const [axis, [low, high]] of [[26, wide - 26], [13, tall - 39]].entries()) {
    near(Math.min(...all.map((place) => place[axis])), low);
    near(Math.max(...all.map((place) => place[axis])), high);
  }
});

test("forty players have names, more are smaller and have none", () => {
  const ring = (count) => Array.from({ length: count }, (_, n) => [`p${n}`, `p${(n + 1) % count}`]);
  const drawn = (count) => {
    const players = club([ring(count), ring(count)]).nodes(isOf("player"));
    return [players.length, numbers(players[0].find("circle"), "r")[0], players[0].find("text")
      != null];
  };
  assert.deepEqual(drawn(40), [40, 7, true]);
  assert.deepEqual(drawn(41), [41, 4, false]);
});

test("lists that never name anybody are no network", () => {
  const empty = byName({ Ann: [], Bob: [] });
  assert.equal(club([empty, empty]).nodes(isOf("network")).length, 0);
});

test("a hub stands amid its spokes, and those of 121 players and more on a circle", () => {
  const spokes = ["a", "b", "c", "d", "e"];
  const places = placesOf([{
    names: ["hub", ...spokes], pairs: spokes.map((name) => ["hub", name]) }]);
  const far = (one, other) => Math.hypot(
    ...[0, 1].map((axis) => places.get(one)[axis] - places.get(other)[axis]));
  const fromHub = spokes.map((name) => far("hub", name));
  assert.ok(Math.max(...fromHub) < Math.min(...spokes.map((name, place) => (
    far(name, spokes[(place + 2) % 5])))));
  const many = Array.from({ length: 121 }, (_, n) => `p${n}`);
  const star = (names) => [{ names, pairs: names.map((name) => [names[0], name]) }];
  for (const [x, y] of placesOf(star(many)).values()) near(Math.hypot(x - 0.5, y - 0.5), 0.5);
  const fewer = placesOf(star(many.slice(1)));
  assert.ok([...fewer.values()].some(([x, y]) => Math.hypot(x - 0.5, y - 0.5) < 0.3));
});

test("players are apart, friends nearer, and nobody moves when somebody comes", () => {
  const names = Array.from({ length: 9 }, (_, n) => `p${n}`);
  const pairs = names.map((name, n) => [name, names[(n + 1) % 9]]);
  const places = placesOf([{ names, pairs }]);
  const far = (a, b, all = places) => (
    Math.hypot(...[0, 1].map((at) => all.get(a)[at] - all.get(b)[at])));
  assert.ok(far("p0", "p1") > 0.1 && far("p0", "p1") < far("p0", "p4"));
  const later = { names: [...names.slice(1), "new"], pairs: [["new", "p1"], ["new", "p2"]] };
  const after = placesOf([{ names, pairs }, later]);
  for (const name of names) assert.deepEqual(after.get(name), places.get(name));
  assert.ok(far("new", "p1", after) > 0.05 && far("new", "p1", after) < far("new", "p5", after));
  assert.ok([...after.values()].flat().every((at) => at >= 0 && at <= 1));
});

test("players in groups without a tie between them are on a circle, not in heaps", () => {
  const names = ["a", "b", "c", "d"];
  const places = placesOf([{ names, pairs: [["a", "b"], ["c", "d"]] }]);
  for (const [x, y] of places.values()) near(Math.hypot(x - 0.5, y - 0.5), 0.5);
});
