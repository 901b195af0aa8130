// A reading of runs: a log of records that only grows, and what the views ask of it. No DOM here.
import { flatten } from "./text.js";

const FOLD_FROM = 3; // runs that differ only in their seed
const SEED = /^(llm )?seed\b/i;
/** Columns that count calls or say where a turn is, beside the world's own. */
const COUNTS = new Set(["turn", "period", "calls", "ok", "repaired", "fallback", "failed",
  "tokens", "seconds", "interventions"]);

export class Reading {
  size = 0;
  runs = new Map();
  calls = new Map();
  lines = [];
  texts = [];
  forms = [];
  parts = new Map(); // of further views: kind -> Map of key -> value
  kept = new Map(); // answers, until the log grows
  ofRuns = new Map(); // answers, until more is known of a run than its turns

  /** Take the records from a place in the log on; false if some before it are missing. */
  take(at, records) {
    if (at > this.size) return false;
    for (const record of records.slice(this.size - at)) this.add(record);
    return true;
  }

  add({ lines = [], texts = [], forms = [], run, turn, calls = [], part }) {
    this.size += 1;
    this.kept.clear();
    for (const line of lines) this.lines.push(line);
    for (const steps of texts) { // from each line's number to the next one's
      let line = 0;
      this.texts.push(steps.map((step) => (line += step)));
    }
    for (const form of forms) this.forms.push(form);
    if (run) this.addRun(run);
    if (turn) this.runs.get(turn.run)?.own.set(turn.n, turn);
    for (const call of calls) this.calls.set(call.k, call);
    if (part) this.partsOf(part.kind).set(part.key, part.value);
  }

  /** What a further view is made of, by keys; the kind is the view's name. */
  partsOf(kind) { return this.keep(kind, () => new Map(), this.parts); }
  part(kind, key) { return this.parts.get(kind)?.get(key); }

  addRun(run) {
    this.ofRuns.clear();
    const known = this.runs.get(run.id) ?? {
      name: "", model: "", parent: null, fork: null, changes: [], notes: [], columns: [],
      series: [], charts: [], dicts: [], own: new Map(), look: this.runs.size,
    };
    Object.assign(known, run);
    known.place = new Map(known.columns.map((name, index) => [name, index]));
    this.runs.set(run.id, known);
  }

  /** Keep what `build` returns until the log grows, or for as long as another map does. */
  keep(name, build, kept = this.kept) {
    if (!kept.has(name)) kept.set(name, build());
    return kept.get(name);
  }

  text(number) {
    return number == null ? "" : this.texts[number].map((line) => this.lines[line]).join("\n");
  }

  /** Which turns led to a run's latest: of each run, the last that it played for this one. */
  lineOf(run) {
    return this.keep(`line ${run.id}`, () => {
      const line = new Map([[run.id, Infinity]]);
      let last = Infinity;
      for (let at = run; at.fork != null; ) {
        last = Math.min(last, at.fork);
        at = this.runs.get(at.parent);
        if (!at || line.has(at.id)) break;
        line.set(at.id, last);
      }
      return line;
    });
  }

  /** All turns of a run in their order, with those that its ancestors played for it. */
  turns(run) {
    return this.keep(`turns ${run.id}`, () => {
      const all = [...this.lineOf(run)].reverse().flatMap(([id, last]) => (
        [...this.runs.get(id).own].filter(([n]) => n <= last)));
      return new Map([...new Map(all)].sort(([a], [b]) => a - b)); // the run's own come last
    });
  }

  turn(run, n) { return this.turns(run).get(n); }
  valueAt(run, column, n) { return this.value(this.turn(run, n), column); }
  first(run) { return this.turns(run).keys().next().value ?? 0; }
  last(run) { return this.keep(`last ${run.id}`, () => Math.max(0, ...this.turns(run).keys())); }

  /** A column's value in a turn; each run has its own order of columns. */
  value(turn, column) { return turn?.row[this.runs.get(turn.run).place.get(column)] ?? null; }

  /** A column as points [turn, number or null]; yes and no are 1 and 0. */
  points(run, column) {
    return this.keep(`points ${run.id} ${column}`, () => [...this.turns(run)].map(([n, turn]) => {
      const value = this.value(turn, column);
      const isDrawn = typeof value === "number" || typeof value === "boolean";
      return [n, isDrawn ? Number(value) : null];
    }));
  }

  /** Its points from where it left its parent's: from that value to its own, where they differ. */
  ownPoints(run, column) {
    const points = this.points(run, column), parent = this.runs.get(run.parent);
    if (run.fork == null || !parent) return points;
    return [...this.points(parent, column).filter(([n]) => n === run.fork),
      ...points.filter(([n]) => n >= run.fork)];
  }

  /** The columns of a run's turns, those that its ancestors played included. */
  columns(run) {
    return this.keep(`columns ${run.id}`, () => new Set([...this.lineOf(run).keys()].reverse()
      .flatMap((id) => this.runs.get(id).columns)));
  }

  /** The charts of a run that have something to draw, in the order that Python gave them. */
  charted(run) {
    return this.keep(`charted ${run.id}`, () => {
      const valuesOf = (item) => this.linesOf(run, item).map(({ column }) => (
        new Set(this.points(run, column).map(([, value]) => value).filter((it) => it != null))));
      const hasPoints = (item) => valuesOf(item).some((values) => values.size > 0);
      const isFlat = (item) => valuesOf(item).every((values) => values.size < 2);
      const charts = run.charts.filter(hasPoints);
      // What never changes comes last, where the class has not said what comes first.
      const isKept = run.limited || this.turns(run).size < 3;
      const flat = new Set(isKept ? [] : charts.filter(isFlat));
      const sorted = [...charts.filter((item) => !flat.has(item)), ...flat];
      return sorted.map((item) => (
        { ...item, yesNo: this.isYesNo(run, item), isFlat: flat.has(item) }));
    });
  }

  /** The lines of a chart: `belief.*` has one for each key of a dict. */
  linesOf(run, { column, label }) {
    if (!column.includes("*")) return [{ name: label, column }];
    return this.keep(`lines ${run.id} ${column}`, () => {
      const [start, end] = splitAtStar(column);
      const matches = [...this.columns(run)].filter((name) => (
        name.startsWith(start) && name.endsWith(end) && name.length > start.length + end.length));
      return matches.map((name) => (
        { name: name.slice(start.length, name.length - end.length), column: name }));
    });
  }

  /** Whether a chart is of truth values. */
  isYesNo(run, item) {
    const turns = [...this.turns(run).values()];
    return this.linesOf(run, item).some(({ column }) => (
      turns.some((turn) => typeof this.value(turn, column) === "boolean")));
  }

  /** Columns of a turn that are the world's own: not of calls, and not charted by name. */
  otherColumns(run) {
    const known = new Set([...run.series.map((item) => item.column), ...COUNTS]);
    return [...this.columns(run)].filter((column) => !known.has(column));
  }

  /** A turn's lists, and its dicts of texts and lists, by field: items, or `{key: value}` each. */
  tables(turn) {
    return this.keep(`tables ${turn.run} ${turn.n}`, () => new Map(
      Object.entries(turn.tables ?? {}).map(([name, number]) => (
        [name, this.text(number).split("\n").map((line) => JSON.parse(line))]))));
  }

  /** The calls of a run, or of one of its turns, those of its ancestors included. */
  callsOf(run, n) {
    const byTurn = this.keep(`calls ${run.id}`, () => {
      const last = this.lineOf(run), all = this.allCalls().filter((call) => (
        call.n == null ? call.run === run.id : call.n <= last.get(call.run)));
      return { all, turns: groupBy(all, (call) => call.n) };
    });
    return n == null ? byTurn.all : byTurn.turns.get(n) ?? [];
  }

  allCalls() {
    return this.keep("calls", () => [...this.calls.values()].sort((a, b) => (
      (a.n ?? Infinity) - (b.n ?? Infinity) || a.k - b.k)));
  }

  /** A run's own calls by how they ended. */
  statuses(run) {
    const byRun = this.keep("calls by run", () => groupBy(this.allCalls(), (call) => call.run));
    return groupBy(byRun.get(run.id) ?? [], (call) => call.status);
  }

  children() {
    return this.keep("children", () => groupBy([...this.runs.values()], (run) => (
      this.runs.has(run.parent) ? run.parent : null)), this.ofRuns);
  }

  /** Runs in the order of the tree: `{run, depth}`, or `{runs, depth}` for a group of seeds. */
  tree() {
    const below = (parent, depth) => {
      const groups = groupBy(this.children().get(parent) ?? [], (run) => this.likeness(run));
      return [...groups.values()].flatMap((runs) => (runs.length >= FOLD_FROM
        ? [{ runs, run: runs[0], changes: this.unseeded(runs[0]), depth }]
        : runs.flatMap((run) => [{ run, depth }, ...below(run.id, depth + 1)])));
    };
    return this.keep("tree", () => below(null, 0), this.ofRuns);
  }

  /** The same for runs that differ only in their seed and have no forks. */
  likeness(run) {
    if (this.children().has(run.id)) return run.id;
    return JSON.stringify([run.fork, run.verb, run.model, run.name, this.unseeded(run)]);
  }

  unseeded(run) { return this.changes(run).filter((words) => !SEED.test(words)); }

  /** What a run changed, in words; of one without a parent, where it is not as its class has it
   * and other such runs are otherwise. */
  changes(run) {
    if (run.changes.length > 0 || this.runs.has(run.parent)) return run.changes;
    return this.keep("roots", () => this.changesOfRoots(), this.ofRuns).get(run.id);
  }

  changesOfRoots() {
    const roots = this.children().get(null);
    const configs = roots.map((root) => (
      flatten({ ...JSON.parse(this.text(root.manifest) || "{}").config, name: "" })));
    const paths = pathsApart(configs);
    return new Map(roots.map((root, at) => {
      const defaults = flatten(JSON.parse(this.text(root.defaults) || "{}"));
      const changed = paths.filter((path) => (
        configs[at].has(path) && configs[at].get(path) !== defaults.get(path)));
      const words = changed.map((path) => (
        `${path.replaceAll(" · ", " ")} = ${configs[at].get(path)}`));
      return [root.id, words.filter((text) => text !== root.name)];
    }));
  }

  /** Runs to chart with one: all, if they are few; else its line and its siblings. */
  relatives(run, most = 12) {
    return this.keep(`relatives ${run.id} ${most}`, () => {
      if (this.runs.size <= most) return [...this.runs.values()];
      const line = [...this.lineOf(run).keys()].map((id) => this.runs.get(id));
      const parents = run.fork == null ? [run.id] : [run.parent, run.id];
      const near = parents.flatMap((id) => this.children().get(id) ?? []);
      return [...new Set([...line, ...near])].slice(0, Math.max(most, line.length));
    });
  }
}

/** What stands before and after the star in the name of a chart of many lines. */
const splitAtStar = (column) => {
  const place = column.indexOf("*");
  return [column.slice(0, place), column.slice(place + 1)];
};

/** The names whose values are not the same in all of some maps. */
export const pathsApart = (maps) => [...new Set(maps.flatMap((it) => [...it.keys()]))]
  .filter((path) => maps.some((it) => it.get(path) !== maps[0].get(path)));

export function groupBy(things, key) {
  const groups = new Map();
  for (const thing of things) {
    const name = key(thing);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(thing);
  }
  return groups;
}
