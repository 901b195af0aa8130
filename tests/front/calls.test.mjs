import assert from "node:assert/strict";
import { test } from "node:test";

import { search } from "../../llmsim_lab/run/front/calls.js";
import { Reading } from "../../llmsim_lab/run/front/reading.js";

function makeReading(...records) {
  const reading = new Reading();
  reading.take(0, records);
  return reading;
}

test("a search finds texts by their lines and counts hits in any case", () => {
  const lines = ["The Rate", "rate, rate", "none"];
  const reading = makeReading({ lines, texts: [[0, 1], [2], [2, -2]] });
  assert.deepEqual([...search(reading, "rate")], [[0, 3], [2, 1]]);
  assert.deepEqual([...search(reading, "nothing")], []);
});

test("a search goes on as the log grows, and each line is searched once", () => {
  const reading = makeReading({ lines: ["a rate"], texts: [[0]] });
  let searched = 0;
  const counted = (text) => Object.assign(Object(text), {
    toLowerCase: () => { searched += 1; return text.toLowerCase(); },
  });
  search(reading, "rate");
  reading.lines.push(counted("the Rate again"));
  reading.texts.push([0, 1], [1]);
  assert.deepEqual([...search(reading, "rate")], [[0, 1], [1, 2], [2, 1]]);
  assert.equal(search(reading, "again").get(1), 1);
  search(reading, "rate");
  assert.equal(searched, 1);
});

test("ten thousand calls are searched at once", () => {
  const lines = Array.from({ length: 60000 }, (_, n) => `Inflation is ${n} percent`);
  const texts = lines.map((_, n) => [n, (n * 7) % 60000, (n * 13) % 60000]);
  const reading = makeReading({ lines, texts });
  assert.ok(search(reading, "is 77").size > 0);
});
