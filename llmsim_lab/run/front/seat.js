// A person's seat: the quarter, the form, the path so far, and how it ended.
import { Segments, soft, Table } from "./calls.js";
import { Charts, plain, Swatch, turnName } from "./chart.js";
import { h } from "./dom.js";
import { Fold } from "./fold.js";
import { change, facts, figure } from "./text.js";
import { addView, Ask, liveWords, Told } from "./view.js";

const SCORE_PARTS = ["loss", "inflation", "output gap", "rate changes", "term alone"];

function Seat({ store, run, last }) {
  const { reading, ui, live, commands } = store, now = reading.partsOf("seat").get("now");
  if (!now) return soft("Reading …");
  const { people, asks, waiting, columns = [], news = [], advice = {}, over, score } = now;
  const who = ui.who ?? asks[0]?.seat ?? people[0], passing = now.stepping && !waiting.length;
  const isKept = passing && ui.asked?.seat === who && ui.asked.turn >= last;
  const ask = asks.find((it) => it.seat === who) ?? (isKept && ui.asked);
  ui.asked = ask; // a form that is answered stays until the turn is played, and keeps the focus
  // The quarter that the form is about: beside the next one, a click on it would be lost.
  const at = ask ? Math.min(ask.turn - 1, last) : last;
  const economic = columns.length > 0, runs = score ? pathsOf(store, run, score) : [run];
  const items = columns.map((name) => run.series.find((it) => it.column === name));
  const button = (words, message) => plain(words, () => commands(message), { key: words });
  const seats = people.map((name) => [
    [name, asks.some((it) => it.seat === name) && live.busy && h("small", null, " is asked")],
    name === who, () => store.show({ who: name })]);
  const isKernelLate = store.slow || store.gone; // the answer is on its way
  const says = waiting.length && !isKernelLate ? `Turn ${last + 1} waits for ${waiting.join(", ")}.`
    : isKernelLate || live.busy || now.stepping || over ? liveWords(store, run)
      : `Turn ${last} of ${run.planned}.${asks.length ? "" : " Step starts the next."}`;
  const more = [
    economic && ask && button("Ask the rule", { do: "advise", who }),
    economic && last > 0 && !score && button(over ? "Score" : "Score so far", { do: "score" }),
    live.busy && button("Stop", { do: "stop" })];
  return h("section", { class: "seat", "aria-label": "Seat" },
    h("div", { class: "row" }, h("h3", null, facts(run.name, people.length === 1 && who)),
      h("span", { class: "says fine", role: "status" }, says),
      h("span", { class: "when" }, turnName(reading, run, at))),
    people.length > 1 && h(Segments, { label: "Whose seat", items: seats }),
    score && h(Score, { store, score }),
    !economic && last > 0 && h(Told, { told: now.told?.[who] ?? {}, last }),
    !over && news.length > 0 && h("ul", { class: "effects", "aria-label": "Headlines" },
      news.map((it) => h("li", { key: it }, it))),
    economic && !over && h("dl", { class: "quarter" }, items.map((item) => (
      h(Indicator, { key: item.column, reading, run, item, n: at })))),
    ask ? h(Ask, { key: economic ? who : ask.draft, store, ask, folded: economic, more: [...more,
      advice[who] && h("p", { class: "advice", role: "status" }, advice[who])] })
      : h("div", { class: "row mid" }, !over && !live.busy && h("button", { class: "primary",
        onclick: () => commands({ do: "play", run: run.id, turns: 1 }) }, "Step"), more),
    economic && at > 0 && h(Charts, { store, items, turn: at, runs }));
}

function Indicator({ reading, run, item: { column, label, unit }, n }) {
  const [was, now] = [n - 1, n].map((at) => reading.valueAt(run, column, at));
  const sign = unit.startsWith("%") ? "%" : unit; // "% over four quarters" stands at the chart
  return h("div", null, h("dt", { title: unit }, label),
    h("dd", null, h("b", null, `${figure(now)} ${sign}`), h("small", null, " ", change(was, now))));
}

/** The others' paths and, drawn last and in its own colour, the people's. */
function pathsOf({ reading }, { look }, { rows, mine }) {
  const own = reading.runs.get(mine), others = rows.map(([, id]) => reading.runs.get(id))
    .filter((it) => it !== own);
  others.forEach((it, index) => { it.look = look + 1 + index; });
  return [...others, Object.assign(own, { look })];
}

/** Who did how well in the same quarters, the best first. */
function Score({ store, score: { verdict, asked, rows, mine, caption, notes } }) {
  const most = Math.max(...rows.map(([, , loss]) => loss));
  const table = rows.map(([who, id, loss, ...parts]) => [id,
    [h(Swatch, { run: store.reading.runs.get(id) }), id === mine ? h("b", null, who) : who],
    h("i", { style: `width: ${(100 * loss) / most}%` }), figure(loss), ...parts.map(figure)]);
  const method = () => [caption, ...notes].map((words) => soft(words));
  return [h("p", { class: "headline" }, verdict),
    asked > 0 && soft(`The rule was asked ${asked === 1 ? "once" : `${asked} times`}.`),
    h(Table, { kind: "score", heads: ["", "", ...SCORE_PARTS], rows: table }),
    h(Fold, { store, id: "how", title: "How the score is made" }, method)];
}

addView("seat", { draw: Seat, ofRun: true });
