"use strict";
// Everything here that comes from a tape is put on the page by text nodes only: never as HTML.
(() => {
  const byId = (id) => document.getElementById(id);
  const STATUSES = ["ok", "repaired", "fallback", "failed"];
  const COMMON = new Set(["turn", "period", "calls", ...STATUSES, "tokens", "seconds", "interventions"]);
  const VIEWS = { overview: "Overview", turns: "Turns", calls: "Calls", decisions: "Decisions", compare: "Compare", settings: "Settings" };
  const REASONS = new Set(["reasoning", "confidence"]);
  const LONG = 20000; // characters of a text that are shown at once
  const MOST_MARKS = 1000, MOST_ROWS = 600, MOST_FIELDS = 200; // in a text, of a comparison, of a reply

  // --- pieces of a page -------------------------------------------------------------------------

  const fill = (node, props, children) => {
    for (const [name, value] of Object.entries(props || {})) {
      if (value == null || value === false) continue;
      if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
      else node.setAttribute(name, value === true ? "" : value);
    }
    for (const it of children.flat(Infinity)) if (it != null && it !== false && it !== "") node.append(it); // they may be too many for one call
    return node;
  };
  const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
  const svg = (tag, props, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

  const HIDDEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\u034f\u3164\ufff9-\ufffb\u{e0000}-\u{e007f}\u{e0100}-\u{e01ef}\ud800-\udfff]/gu;
  /** A text with its hidden characters written out, so that none of them is obeyed. */
  const visible = (text) => String(text).replaceAll("\r\n", "\n").replace(HIDDEN, (letter) => {
    const code = letter.codePointAt(0);
    return code < 32 ? String.fromCodePoint(0x2400 + code) : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });

  /** A text as nodes, with what is searched for marked. */
  function marked(text, wanted) {
    const shown = visible(text);
    if (!wanted) return [shown];
    const low = shown.toLowerCase(), nodes = [];
    if (low.length !== shown.length) return [shown]; // places would not fit
    for (let at = 0; ;) {
      const next = low.indexOf(wanted, at);
      if (next < 0 || nodes.length > 2 * MOST_MARKS) return [...nodes, shown.slice(at)];
      nodes.push(shown.slice(at, next), h("mark", null, shown.slice(next, next + wanted.length)));
      at = next + wanted.length;
    }
  }

  /** A text as nodes: of a very long one the first part, and more on request, since a word of a million letters takes a browser minutes. */
  function long(text, wanted, limit = LONG) {
    if (text.length <= limit) return marked(text, wanted);
    const at = limit - (text.codePointAt(limit - 1) > 0xffff), rest = text.slice(at);
    const more = h("button", { class: "plain", on: { click: () => more.replaceWith(...long(rest, wanted, 10 * limit)) } }, ` … show ${count(rest.length)} more characters`);
    return [...marked(text.slice(0, at), wanted), more];
  }
  /** A block of text that keeps its lines. */
  const block = (text, props, wanted) => h("div", { dir: "auto", ...props, class: `text ${props?.class || ""}` }, long(text, wanted));

  const count = (value) => value.toLocaleString("en-US");
  const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;
  const isNumber = (value) => typeof value === "number";
  function figure(value) {
    if (value == null) return "";
    if (!isNumber(value)) return visible(typeof value === "string" ? value : JSON.stringify(value));
    if (Number.isInteger(value)) return count(value).replace("-", "−");
    const size = Math.abs(value);
    const text = size >= 1e6 || (size < 0.005 && size > 0) ? value.toPrecision(3) : value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
    return text.replace("-", "−");
  }
  const seconds = (value) => `${figure(Math.round(100 * value) / 100)} s`;
  const clip = (text, length) => (text.length > length ? `${text.slice(0, length - 1 - (text.codePointAt(length - 2) > 0xffff))}…` : text);
  const oneLine = (text) => visible(text).replace(/\s+/g, " ").trim();
  const status = (word, many) => h("span", { class: `status ${word || "lost"}` }, { "": "no decision", lost: "made again" }[word] ?? word, many && ` ${count(many)}`);
  const option = (value, text, chosen) => h("option", { value, selected: String(value) === String(chosen ?? "") }, text);
  const part = (title, ...content) => h("div", { class: "part" }, h("div", { class: "head" }, h("h3", null, title)), content);
  const fold = (title, ...content) => h("details", { class: "message" }, h("summary", null, title), content);
  const note = (text, kind = "") => h("p", { class: `note ${kind}`, dir: "auto" }, visible(text));
  /** A table with a scroll bar of its own where the page is too narrow for it. */
  const wide = (table, kind = "") => h("div", { class: `wide ${kind}`, tabindex: "0", role: "group", "aria-label": "Table" }, table);
  const low = (text) => text.toLowerCase();
  const ends = (values) => values.reduce(([least, most], it) => [Math.min(least, it), Math.max(most, it)], [Infinity, -Infinity]);
  const group = (items, key) => {
    const found = new Map();
    for (const item of items) if (!found.get(key(item))?.push(item)) found.set(key(item), [item]);
    return found;
  };

  // --- data -------------------------------------------------------------------------------------

  const kept = {};
  /** One of the page's blocks of data, read once. */
  const data = (name) => (kept[name] ??= (async () => {
    const node = byId(`data-${name}`), coded = atob(node.textContent), bytes = new Uint8Array(coded.length);
    node.remove();
    for (let at = 0; at < coded.length; at += 1) bytes[at] = coded.charCodeAt(at);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  })());

  let head, runs, calls, texts, decided;

  const readTexts = () => (kept.readTexts ??= (async () => {
    texts = await data("texts");
    for (const steps of texts.texts) for (let at = 1; at < steps.length; at += 1) steps[at] += steps[at - 1];
  })());
  const readDecisions = () => (kept.readDecisions ??= (async () => {
    decided = await data("decisions");
    decided.place = Object.fromEntries([...decided.columns, "call"].map((name, at) => [name, at]));
  })());
  const textOf = (number) => (number == null ? "" : texts.texts[number].map((line) => texts.lines[line]).join("\n"));
  const word = (column, at) => head.words[calls[column][at]];

  /** The numbers of all texts that hold what is searched for: each line is searched once. */
  function textsWith(wanted) {
    texts.low ??= texts.lines.map(low);
    const lines = new Uint8Array(texts.low.length), found = new Uint8Array(texts.texts.length);
    texts.low.forEach((line, at) => { if (line.includes(wanted)) lines[at] = 1; });
    texts.texts.forEach((its, at) => { if (its.some((line) => lines[line])) found[at] = 1; });
    return found;
  }

  /** What led to a run's latest turn: of each run, the last turn that it played for this one. */
  function lineOf(run) {
    if (run.line) return run.line;
    const line = new Map([[run.id, Infinity]]);
    let last = Infinity;
    for (let at = run; at.fork != null && runs.has(at.parent) && !line.has(at.parent); at = runs.get(at.parent)) {
      last = Math.min(last, at.fork);
      line.set(at.parent, last);
    }
    return (run.line = line);
  }
  const inLine = (run, id, turn) => { const last = lineOf(run).get(id); return last !== undefined && (turn == null ? id === run.id : turn <= last); };

  const order = (a, b) => (calls.turn[a] ?? 1e9) - (calls.turn[b] ?? 1e9) || calls.id[a] - calls.id[b];
  function callsOf(run) {
    return (run.calls ??= calls.id.map((_, at) => at).filter((at) => inLine(run, calls.run[at], calls.turn[at])).sort(order));
  }
  const callAt = (id) => calls.place.get(Number(id));
  function decisionsOf(run, turn) {
    const { run: r, turn: t } = decided.place;
    run.decisions ??= decided.rows.filter((row) => inLine(run, row[r], row[t])).sort((a, b) => a[t] - b[t]);
    run.byTurn ??= group(run.decisions, (row) => row[t]);
    return turn == null ? run.decisions : run.byTurn.get(turn) || [];
  }
  const field = (row, name) => row[decided.place[name]];
  const storyOf = (run, turn) => [...lineOf(run)].filter(([, last]) => turn <= last).map(([id]) => decided.stories[id]?.[turn]).find(Boolean) || [];

  /** A reply's fields, where it is an object that can be shown by them. */
  function fieldsIn(text) {
    const from = text.indexOf("{"), to = text.lastIndexOf("}");
    if (from < 0 || to < from) return null;
    try {
      const read = JSON.parse(text.slice(from, to + 1));
      JSON.stringify(read, null, 1); // which fails on what is nested too deeply to be shown
      return read && typeof read === "object" && !Array.isArray(read) && Object.keys(read).length <= MOST_FIELDS ? read : null;
    } catch { return null; }
  }
  const said = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  function answerOf(at) {
    const text = textOf(calls.reply[at]), fields = fieldsIn(text), tools = textOf(calls.tools[at]);
    if (!fields) return text || tools || word("fault", at);
    const own = Object.entries(fields).filter(([name]) => !REASONS.has(name));
    return own.length ? own.map(([name, it]) => (own.length === 1 && typeof it === "string" ? it : `${name} ${said(it)}`)).join(", ") : said(fields.reasoning ?? text);
  }

  function series(run) {
    const named = run.series.filter((it) => run.rows[it.column]);
    const known = new Set(named.map((it) => it.column));
    const rest = Object.keys(run.rows).filter((name) => !known.has(name) && !COMMON.has(name) && run.rows[name].some(isNumber));
    return { named, rest: rest.map((column) => ({ column, label: column, unit: "" })) };
  }
  const textColumns = (run) => Object.keys(run.rows).filter((name) => !COMMON.has(name) && run.rows[name].some((it) => typeof it === "string"));
  const placeOf = (run, turn) => (run.places ??= new Map(run.at.map((it, at) => [it, at]))).get(turn);
  const cell = (run, column, turn) => run.rows[column]?.[placeOf(run, turn)];
  const turnName = (run, turn) => {
    const period = cell(run, "period", turn);
    return `${turn === 0 ? "Start" : `Turn ${turn}`}${period ? ` · ${visible(period)}` : ""}`;
  };
  const runName = (run) => `Run ${run.id} · ${clip(oneLine(run.name), 40)}`;
  const look = (run) => `k${runs.index.get(run.id) % 6} dash${Math.floor(runs.index.get(run.id) / 6) % 4}`;
  const swatch = (run) => svg("svg", { class: "swatch", viewBox: "0 0 22 12", "aria-hidden": "true" },
    svg("path", { class: `curve main ${look(run)}`, d: "M1 6H21" }));

  // --- where one is -----------------------------------------------------------------------------

  let state = {};
  const NUMBERS = ["run", "turn", "call", "a", "b"];
  function parse() {
    const read = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    for (const name of NUMBERS) if (name in read) read[name] = /^\d+$/.test(read[name]) ? Number(read[name]) : undefined;
    if (!runs.has(read.run)) read.run = calls.id.length && callAt(read.call) != null ? undefined : head.start;
    if (read.run === undefined) read.run = runs.has(head.start) && inLine(runs.get(head.start), calls.run[callAt(read.call)], calls.turn[callAt(read.call)]) ? head.start : calls.run[callAt(read.call)];
    if (!Object.hasOwn(VIEWS, read.view)) read.view = read.call != null ? "calls" : read.a != null ? "compare" : read.turn != null ? "turns" : "overview";
    return read;
  }
  const hash = (next) => {
    const told = Object.entries(next).filter(([name, value]) => value != null && value !== "" && name !== "view");
    const first = next.view && next.view !== "overview" ? [["view", next.view]] : [];
    return `#${new URLSearchParams([...first, ...told])}`;
  };
  const link = (next) => hash({ run: state.run, ...next });
  /** Go somewhere: what is not named is left behind, but for the run. */
  const go = (next) => { location.hash = link(next); };
  /** Change where one is without a step in the browser's history. */
  function change(next) {
    history.replaceState(null, "", hash({ ...state, ...next }));
    state = parse();
    frame();
  }

  // --- the frame --------------------------------------------------------------------------------

  let main, nav, picker, shown, view;

  function build() {
    const total = runs.size === 1 ? "" : `${plural(runs.size, "run")} · `;
    const models = [...new Set([...runs.values()].map((run) => run.model).filter(Boolean))];
    const dates = [...runs.values()].map((run) => run.started.slice(0, 10)).filter(Boolean).sort();
    picker = h("select", { "aria-label": "Run", on: { change: () => go({ view: state.view === "compare" ? "overview" : state.view, run: picker.value }) } },
      [...runs.values()].map((run) => option(run.id, runName(run))));
    nav = h("nav", { "aria-label": "Views" });
    main = h("main", { tabindex: "-1" });
    byId("page").replaceChildren(
      h("header", { class: "top" },
        h("div", { class: "bar" },
          h("div", null, h("h1", { dir: "auto", title: visible(head.title) }, visible(head.title)),
            h("p", { class: "soft small" }, total, plural(calls.id.length, "call"), models.length ? ` · ${clip(oneLine(models.join(", ")), 80)}` : "", dates[0] ? ` · ${dates[0]}` : "")),
          runs.size > 1 && h("label", null, picker)),
        nav),
      main,
      h("footer", { class: "foot" }, "Written by llmsim-lab. This file holds everything it shows and loads nothing."));
    const top = byId("page").firstChild;
    new ResizeObserver(() => document.documentElement.style.setProperty("--above", `${top.offsetHeight + 100}px`)).observe(top);
  }

  function frame() {
    const run = runs.get(state.run);
    picker.value = state.run;
    if (picker.parentNode) picker.parentNode.hidden = state.view === "compare";
    const counts = { turns: run.turns, calls: callsOf(run).length };
    nav.replaceChildren(
      ...Object.entries(VIEWS).filter(([name]) => name !== "compare" || calls.id.length > 1 || runs.size > 1).map(([name, title]) =>
        h("a", { href: link({ view: name }), "aria-current": name === state.view ? "page" : null }, title, counts[name] != null && h("span", null, count(counts[name])))),
      h("button", { class: "plain small", on: { click: help } }, "Keys"));
  }

  async function render() {
    const before = state;
    state = parse();
    frame();
    if (view?.update && before.view === state.view && before.run === state.run && view.fits(before)) return view.update();
    const mine = (shown = {});
    const wait = setTimeout(() => main.replaceChildren(h("p", { class: "wait", role: "status" }, "Reading …")), 120);
    view = null;
    if (state.view !== "overview") await readTexts();
    if (["turns", "decisions", "compare"].includes(state.view)) await readDecisions();
    clearTimeout(wait);
    if (shown !== mine) return undefined; // one went elsewhere meanwhile
    document.title = `${VIEWS[state.view]} · ${visible(head.title)}`;
    main.replaceChildren();
    view = VIEW[state.view](runs.get(state.run)) || {};
    view.fits ??= () => true;
    if (before.view) window.scrollTo(0, 0);
    return undefined;
  }

  function help() {
    const keys = [["/", "search the calls"], ["j  k  ↓  ↑", "next, previous"], ["Enter", "open what is chosen"], ["1 … 6", "another view"], ["c", "compare this call with another"], ["Esc", "back to the list; empty the search"], ["← →", "in a chart: from turn to turn"]];
    const box = h("dialog", { "aria-label": "Keys", on: { close: () => box.remove() } }, h("h2", null, "Keys"),
      h("dl", null, keys.map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)])),
      h("button", { on: { click: () => box.close() } }, "Close"));
    document.body.append(box);
    box.showModal();
  }

  // --- overview: the tree and the charts --------------------------------------------------------

  function statusCounts(run) {
    const found = group(callsOf(run).filter((at) => calls.run[at] === run.id), (at) => word("status", at));
    return h("span", { class: "counts" }, [...STATUSES, "lost", ""].map((it) => found.has(it) && status(it, found.get(it).length)));
  }

  function tree() {
    const item = (run) => {
      const first = run.fork == null ? 1 : run.fork + 1;
      const how = run.fork != null ? `fork of run ${run.parent} at turn ${run.fork}` : run.parent != null ? `${run.verb} of run ${run.parent}` : run.verb;
      const turns = run.turns < first ? "no turn yet" : run.turns === first ? `turn ${first}` : `turns ${first} to ${run.turns}`;
      return h("a", { href: link({ run: run.id }), "aria-current": run.id === state.run ? "true" : null },
        swatch(run), h("span", { class: "what", dir: "auto" }, h("b", null, run.id), run.changes.length && run.parent != null ? oneLine(run.changes.join("; ")) : oneLine(run.name)),
        h("span", { class: "right" }, oneLine(run.outcome || "open")),
        h("span", { class: "line2" }, h("span", null, how), h("span", null, turns), statusCounts(run)),
        run.parent == null && run.changes.length > 0 && h("span", { class: "line3", dir: "auto" }, oneLine(run.changes.join("; "))));
    };
    const top = h("ul", { class: "tree card" }), lists = new Map();
    for (const run of runs.values()) { // parents come before their forks
      const below = h("ul", { hidden: true }), into = lists.get(run.parent) || top;
      lists.set(run.id, below);
      into.hidden = false;
      into.append(h("li", null, item(run), below));
    }
    return top;
  }

  let everyColumn = false;
  function overview(run) {
    const { named, rest } = series(run), several = runs.size > 1 && runs.size <= 12;
    const columns = everyColumn || !named.length ? [...named, ...rest] : named;
    const more = named.length > 0 && rest.length > 0 && h("button", { class: "plain small", on: { click: () => { everyColumn = !everyColumn; render(); view = null; render(); } } },
      everyColumn ? "Fewer columns" : `All ${named.length + rest.length} columns`);
    const bad = run.outcome && run.outcome !== "done";
    main.append(
      bad ? note(`Run ${run.id}: ${run.outcome}`, "bad") : "",
      run.note ? note(run.note) : "",
      h("section", { "aria-label": "Runs" }, h("div", { class: "head" }, h("h2", null, runs.size > 1 ? `${runs.size} runs` : "The run"),
        h("span", { class: "soft small" }, runs.size > 1 ? "forks stand below what they came from, with what they changed" : oneLine(run.kind)),
        runs.size > 1 && h("a", { class: "right small", href: link({ view: "compare", a: beside(run)[0].id, b: beside(run)[1].id, of: "runs" }) }, "Compare two runs")), tree()));
    if (columns.length && run.at.length > 1) {
      const shownRuns = several ? [...runs.values()] : lineRuns(run);
      main.append(h("section", { "aria-label": "Charts" }, h("div", { class: "head" }, h("h2", null, "Turn by turn"),
        h("span", { class: "soft small" }, runs.size > 1 ? `run ${run.id} is drawn strong; ` : "", "click for a turn, drag to zoom"), h("span", { class: "right" }, more)), charts(run, shownRuns, columns.slice(0, 60))));
    }
    const all = main.querySelector(".tree"), foot = (it) => it.getBoundingClientRect().bottom;
    all.scrollTop = foot(all.querySelector("[aria-current]")) - foot(all) + 8; // the run that is chosen, in sight
    return {};
  }
  const lineRuns = (run) => [...lineOf(run).keys()].reverse().map((id) => runs.get(id));

  // --- charts -----------------------------------------------------------------------------------

  function ticks(from, to, most, whole) {
    const raw = Math.max((to - from) / most || 1, whole ? 1 : 0), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((it) => it * power).find((it) => it >= raw && !(whole && it % 1)), found = [];
    for (let at = Math.ceil(from / step) * step; at <= to + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
    return { found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (step / power === 2.5 ? 1 : 0)) };
  }

  /** Small charts of one x axis: a cursor and a zoom that all share. */
  function charts(run, shownRuns, columns) {
    const box = h("div", { class: "charts" }), drawn = [];
    const turns = shownRuns.flatMap((it) => it.at), whole = ends(turns);
    let zoom = whole, cursor = null;
    const reset = h("button", { class: "small", hidden: true, on: { click: () => zoomTo(whole) } }, "Whole run");
    const zoomTo = (next) => { zoom = next; reset.hidden = zoom === whole; drawn.forEach((it) => it.draw()); };
    const point = (turn, where) => { cursor = turn; drawn.forEach((it) => it.cross(turn, it === where)); };
    for (const column of columns) {
      const made = chart(run, shownRuns, column, { zoom: () => zoom, cursor: () => cursor, point, zoomTo, whole });
      drawn.push(made);
      box.append(made.node);
    }
    const sizes = new ResizeObserver(() => drawn.forEach((it) => it.draw()));
    sizes.observe(box);
    return [reset, box];
  }

  function chart(run, shownRuns, item, shared) {
    const H = 190, L = 44, R = 10, T = 12, B = 24;
    const lines = shownRuns.filter((it) => it.rows[item.column]).map((it) => {
      // A fork begins where it left its parent, so that one sees it branch off.
      const from = it.fork != null && shownRuns.length > 1 && runs.has(it.parent) && shownRuns.includes(runs.get(it.parent)) ? it.fork : -Infinity;
      return { run: it, points: it.at.map((turn, at) => [turn, it.rows[item.column][at]]).filter(([turn]) => turn >= from) };
    }).sort((a, b) => (a.run === run) - (b.run === run));
    const own = lines.find((it) => it.run === run);
    const values = own ? own.points.map(([, value]) => value).filter(isNumber) : [];
    const told = values.length ? `run ${run.id} from ${figure(values[0])} to ${figure(values.at(-1))}` : "no values";
    const readout = h("output", null);
    const picture = svg("svg", { role: "img", tabindex: "0", "aria-label": `${visible(item.label)}${item.unit ? `, ${visible(item.unit)}` : ""}, turns ${shared.whole[0]} to ${shared.whole[1]}: ${told}` });
    const tip = h("div", { class: "tip", hidden: true });
    const node = h("figure", { class: "card chart" }, h("h3", null, h("bdi", null, visible(item.label)), h("span", null, visible(item.unit || "")), readout), picture, tip);
    let x, y, over, drag = null, width = 0;
    const valueAt = (it, turn) => it.points.find(([at]) => at === turn)?.[1];

    function draw() {
      width = picture.clientWidth || 400;
      const [from, to] = shared.zoom(), inside = (turn) => turn >= from && turn <= to;
      const seen = lines.flatMap((it) => it.points.filter(([turn, value]) => inside(turn) && isNumber(value)).map(([, value]) => value));
      let [least, most] = ends(seen);
      if (!seen.length) [least, most] = [0, 1];
      const pad = (most - least) * 0.08 || Math.abs(most) * 0.1 || 1;
      [least, most] = [least - pad, most + pad];
      x = (turn) => L + ((turn - from) / (to - from || 1)) * (width - L - R);
      y = (value) => T + ((most - value) / (most - least)) * (H - T - B);
      const up = ticks(least, most, 4, seen.every(Number.isInteger)), across = ticks(from, to, Math.max(2, Math.floor(width / 70)));
      const parts = up.found.map((at) => [svg("line", { class: "grid", x1: L, x2: width - R, y1: y(at), y2: y(at) }),
        svg("text", { x: L - 7, y: y(at) + 4, "text-anchor": "end" }, at.toLocaleString("en-US", { minimumFractionDigits: up.digits, maximumFractionDigits: up.digits }).replace("-", "−"))]);
      parts.push(across.found.filter(Number.isInteger).map((at) => svg("text", { x: x(at), y: H - 6, "text-anchor": "middle" }, at)));
      for (const bound of [item.low, item.high]) if (isNumber(bound) && bound >= least && bound <= most) parts.push(svg("line", { class: "bound", x1: L, x2: width - R, y1: y(bound), y2: y(bound) }));
      for (const it of lines) {
        let path = "", pen = "M";
        for (const [turn, value] of it.points) {
          if (!isNumber(value) || turn < from || turn > to) { pen = "M"; continue; }
          path += `${pen}${x(turn).toFixed(1)} ${y(value).toFixed(1)}`;
          pen = "L";
        }
        const strong = it.run === run ? "main" : shownRuns.length > 8 ? "dim" : "";
        parts.push(svg("path", { class: `curve ${strong} ${look(it.run)}`, d: path }));
        if (it.run === run) it.points.filter(([turn]) => inside(turn) && cell(run, "interventions", turn)).forEach(([turn]) =>
          parts.push(svg("path", { class: "outside", d: `M${x(turn)} ${H - B - 7}l4 7h-8z` }, svg("title", null, visible(cell(run, "interventions", turn))))));
      }
      over = svg("g");
      picture.setAttribute("viewBox", `0 0 ${width} ${H}`);
      picture.replaceChildren(...parts.flat(2), over);
      cross(shared.cursor(), false);
    }

    function cross(turn, mine) {
      over.replaceChildren();
      tip.hidden = true;
      readout.textContent = figure(turn == null ? values.at(-1) : own && valueAt(own, turn));
      if (turn == null || turn < shared.zoom()[0] || turn > shared.zoom()[1]) return;
      const there = lines.map((it) => [it, valueAt(it, turn)]).filter(([, value]) => isNumber(value)).reverse();
      over.append(svg("line", { class: "cross", x1: x(turn), x2: x(turn), y1: T, y2: H - B }),
        ...there.map(([it, value]) => svg("circle", { class: `dot ${look(it.run)}`, cx: x(turn), cy: y(value), r: it.run === run ? 4.5 : 3.5 })));
      if (!mine) return;
      const done = cell(run, "interventions", turn);
      tip.replaceChildren(h("div", null, h("strong", null, turnName(run, turn))),
        ...there.slice(0, 9).map(([it, value]) => h("div", null, swatch(it.run), h("span", null, `run ${it.run.id}`), h("b", null, figure(value)))),
        ...(done ? [h("div", { class: "soft" }, clip(oneLine(done), 120))] : []));
      tip.hidden = false;
      const [outer, inner] = [node, picture].map((it) => it.getBoundingClientRect());
      const left = inner.left - outer.left + x(turn), right = left > node.clientWidth * 0.55;
      tip.style.left = right ? "" : `${left + 12}px`;
      tip.style.right = right ? `${node.clientWidth - left + 12}px` : "";
      tip.style.top = `${inner.top - outer.top + 14}px`;
    }

    const turnUnder = (event) => {
      const [from, to] = shared.zoom(), at = event.clientX - picture.getBoundingClientRect().left;
      return Math.max(from, Math.min(to, Math.round(from + ((at - L) / (width - L - R)) * (to - from))));
    };
    const listen = (name, act) => picture.addEventListener(name, act);
    listen("pointermove", (event) => {
      const turn = turnUnder(event);
      shared.point(turn, made);
      if (drag == null || event.pointerType === "touch") return;
      over.append(svg("rect", { class: "zoombox", x: Math.min(x(drag), x(turn)), width: Math.abs(x(drag) - x(turn)), y: T, height: H - T - B }));
    });
    listen("pointerleave", () => { drag = null; shared.point(null); });
    listen("pointerdown", (event) => { drag = turnUnder(event); });
    listen("pointerup", (event) => {
      const from = drag, to = turnUnder(event);
      drag = null;
      if (from == null) return;
      if (from === to) go({ view: "turns", turn: to });
      else if (event.pointerType !== "touch") shared.zoomTo([Math.min(from, to), Math.max(from, to)]);
    });
    listen("dblclick", () => shared.zoomTo(shared.whole));
    listen("keydown", (event) => {
      const [from, to] = shared.zoom(), now = shared.cursor() ?? from - 1;
      const next = { ArrowRight: Math.min(to, now + 1), ArrowLeft: Math.max(from, now - 1), Home: from, End: to }[event.key];
      if (next != null) shared.point(next, made);
      else if (event.key === "Enter" && now >= from) go({ view: "turns", turn: now });
      else if (event.key === "Escape") shared.zoomTo(shared.whole);
      else return;
      event.preventDefault();
    });
    listen("blur", () => shared.point(null));
    const made = { node, draw, cross };
    return made;
  }

  // --- lists: only the rows that are looked at are on the page ----------------------------------

  function list({ label, height, items, row, choose, props, kind = "listbox", part = "option", container }) {
    const inner = h("div", { role: kind === "grid" ? "rowgroup" : "none" });
    const node = container || h("div", { class: "card list", role: kind, tabindex: "0", "aria-label": label, ...props });
    const name = `row-${label.replace(/\W/g, "")}`;
    let chosen = -1, above = 0;
    node.append(inner);
    function draw() {
      inner.style.height = `${items.length * height}px`;
      const first = Math.max(0, Math.floor((node.scrollTop - above) / height) - 6), last = Math.min(items.length, Math.ceil((node.scrollTop + node.clientHeight) / height) + 6);
      inner.replaceChildren(...items.slice(first, last).map((item, at) => {
        const place = first + at, made = row(item, place);
        fill(made, { role: part, id: `${name}-${place}`, "aria-selected": String(place === chosen), "aria-posinset": kind === "grid" ? null : place + 1, "aria-setsize": kind === "grid" ? null : items.length, "aria-rowindex": kind === "grid" ? place + 2 : null }, []);
        made.style.top = `${place * height}px`;
        made.style.height = `${height}px`;
        made.addEventListener("click", () => pick(place));
        return made;
      }));
      if (chosen >= 0) node.setAttribute("aria-activedescendant", `${name}-${chosen}`);
    }
    function reveal() {
      const top = chosen * height + above, bottom = top + height;
      if (top - above < node.scrollTop) node.scrollTop = top - above;
      else if (bottom > node.scrollTop + node.clientHeight) node.scrollTop = bottom - node.clientHeight;
    }
    function set(place) { chosen = place; if (place >= 0) reveal(); draw(); }
    function pick(place, open = true) {
      if (place < 0 || place >= items.length) return;
      set(place);
      choose(items[place], open);
    }
    let asked = 0;
    node.addEventListener("scroll", () => { asked ||= requestAnimationFrame(() => { asked = 0; draw(); }); }, { passive: true });
    new ResizeObserver(draw).observe(node);
    return {
      node, set, pick, draw,
      show(next) { items = next; chosen = -1; node.scrollTop = 0; draw(); },
      get items() { return items; },
      set above(value) { above = value; },
      move(by) { pick(Math.max(0, Math.min(items.length - 1, chosen < 0 ? (by > 0 ? 0 : items.length - 1) : chosen + by)), false); },
      open() { pick(chosen < 0 ? 0 : chosen); },
    };
  }

  // --- turns ------------------------------------------------------------------------------------

  function turnsView(run) {
    const { named, rest } = series(run), main3 = [...named, ...rest].slice(0, 3);
    const textual = textColumns(run);
    const detail = h("section", { class: "card detail", "aria-label": "Turn", tabindex: "-1" });
    const turns = list({
      label: "Turns", height: main3.length || textual.length ? 54 : 38, items: run.at,
      row: (turn) => h("div", { class: "row" },
        h("div", { class: "one" }, h("b", null, turnName(run, turn)), cell(run, "interventions", turn) && h("span", { class: "soft", title: "something was done from outside" }, "▲"),
          h("span", { class: "right counts" }, STATUSES.slice(1).filter((it) => cell(run, it, turn)).map((it) => status(it)))),
        h("div", { class: "two values" }, main3.map((it) => h("span", null, h("bdi", null, visible(it.label)), h("b", null, figure(cell(run, it.column, turn))))),
          !main3.length && h("bdi", null, clip(oneLine(textual.map((name) => cell(run, name, turn)).filter(Boolean).join(" · ")), 160)))),
      choose: (turn) => go({ view: "turns", turn }),
    });
    const split = h("div", { class: "split" }, turns.node, detail);
    if (run.note) main.append(note(run.note));
    main.append(split);
    function update() {
      const turn = run.at.includes(state.turn) ? state.turn : innerWidth > 860 ? run.at[Math.min(1, run.at.length - 1)] : null;
      split.classList.toggle("open", turn != null && state.turn != null);
      turns.set(run.at.indexOf(turn));
      if (turn != null) detail.replaceChildren(...turnDetail(run, turn, [...named, ...rest]));
      detail.scrollTop = 0;
    }
    update();
    return { update, list: turns, detail, back: () => go({ view: "turns" }) };
  }

  function turnDetail(run, turn, columns) {
    const place = run.at.indexOf(turn), before = run.at[place - 1];
    const done = cell(run, "interventions", turn), story = storyOf(run, turn).filter((line) => !line.startsWith("it led to:"));
    const textual = textColumns(run).filter((name) => cell(run, name, turn));
    const facts = columns.map((it) => [it, cell(run, it.column, turn)]).filter(([, value]) => value != null);
    const played = [...lineOf(run)].reverse().find(([, last]) => turn <= last)?.[0];
    const own = decisionsOf(run, turn), spent = cell(run, "seconds", turn);
    const changed = ([it, value]) => {
      const was = cell(run, it.column, before);
      if (!isNumber(was) || !isNumber(value) || was === value) return "";
      const by = Math.abs(Number((value - was).toPrecision(12)));
      return `${value > was ? "+" : "−"}${Number.isInteger(value) && Number.isInteger(was) || !Number.isInteger(by) ? figure(by) : by.toFixed(2)}`;
    };
    return [
      h("button", { class: "back", on: { click: () => view.back() } }, "← Turns"),
      h("h2", null, turnName(run, turn)),
      h("div", { class: "facts" }, played !== run.id && turn > 0 && h("span", null, `played by run ${played}`), isNumber(spent) && turn > 0 && h("span", null, seconds(spent)),
        cell(run, "calls", turn) ? h("a", { href: link({ view: "calls", turn }) }, plural(cell(run, "calls", turn), "call")) : "", isNumber(cell(run, "tokens", turn)) && cell(run, "tokens", turn) > 0 && h("span", null, `${count(cell(run, "tokens", turn))} tokens`)),
      done ? h("div", { class: "story fromoutside" }, h("div", { class: "soft small" }, "From outside"), h("div", { dir: "auto" }, visible(done))) : "",
      story.length ? part("What happened", h("div", { class: "story" }, story.map((line) => block(line)))) : "",
      own.length ? part("Decisions", own.map(decision)) : "",
      facts.length || textual.length ? part(turn === 0 ? "Where it starts" : "Where it led",
        wide(h("table", null, h("tbody", null,
          facts.map((fact) => h("tr", null, h("td", null, h("bdi", null, visible(fact[0].label)), fact[0].unit ? h("span", { class: "soft" }, ` ${visible(fact[0].unit)}`) : ""), h("td", { class: "n" }, figure(fact[1])), h("td", { class: "n soft" }, changed(fact)))),
          textual.map((name) => h("tr", null, h("td", null, visible(name)), h("td", { colspan: "2", dir: "auto" }, block(cell(run, name, turn))))))))) : "",
    ];
  }

  const HIDE = new Set(["run", "seed", "period", "turn", "player", "component", "reasoning", "confidence", "status", "interventions", "attempts", "prompt_tokens", "reply_tokens", "tokens", "seconds", "model", "call"]);
  const ownFields = (row) => decided.columns.filter((name) => !HIDE.has(name) && field(row, name) != null).map((name) => [name, field(row, name)]);
  function decision(row) {
    const own = ownFields(row), why = field(row, "reasoning"), sure = field(row, "confidence"), call = field(row, "call");
    return h("div", { class: "decision" },
      h("div", { class: "one head" }, h("h3", { dir: "auto" }, visible(field(row, "player") || field(row, "component"))), h("span", { class: "soft small" }, visible(field(row, "component"))), status(field(row, "status")),
        isNumber(sure) && h("span", { class: "soft small" }, `confidence ${figure(sure)}`),
        call != null ? h("a", { class: "right small", href: link({ view: "calls", call }) }, `Call ${call} →`) : h("span", { class: "right soft small" }, "without a model")),
      own.length ? h("div", { class: "said" }, own.map(([name, value]) => h("span", { dir: "auto" }, h("span", { class: "soft" }, visible(name)), clip(figure(value), 400)))) : "",
      why ? block(why, { class: "why" }) : "");
  }

  // --- calls ------------------------------------------------------------------------------------

  /** What narrows a list: a search, lists of values, and how many are left; what is chosen goes to `apply`. */
  function filters(what, label, lists, apply) {
    let wait;
    const later = () => { clearTimeout(wait); wait = setTimeout(() => apply({ q: search.value }), 120); };
    const search = h("input", { type: "search", placeholder: `${label}   /`, "aria-label": label, value: state.q || "", on: { input: later } });
    const select = ([name, title, values, all = title]) => h("select", { "aria-label": title, on: { change: (event) => apply({ [name]: event.target.value }) } },
      option("", all, state[name]), values.map((it) => (Array.isArray(it) ? option(...it, state[name]) : option(it, clip(oneLine(it), 40), state[name]))));
    const found = h("span", { class: "soft small", role: "status" });
    main.append(h("div", { class: "filters" }, search, lists.filter(Boolean).map(select), found));
    return { search, tell: (kept, all) => { found.textContent = kept === all ? plural(all, what) : `${count(kept)} of ${plural(all, what)}`; } };
  }

  function callsView(run) {
    const every = () => (state.all ? calls.id.map((_, at) => at).sort(order) : callsOf(run));
    const values = (column) => [...new Set(every().map((at) => word(column, at)))].filter(Boolean).sort();
    const turns = [...new Set(every().map((at) => calls.turn[at]))].filter((it) => it != null).sort((a, b) => a - b);
    const bar = filters("call", "Search prompts and replies", [["player", "All players", values("player")], ["component", "All components", values("component")],
      ["status", "All statuses", [...STATUSES.filter((it) => values("status").includes(it)), ["faults", "with a fault"]]], ["turn", "All turns", turns.map((it) => [it, `Turn ${it}`])],
      runs.size > 1 && ["all", "Which runs", [["1", "All runs"]], "This run"]], filter);
    const detail = h("section", { class: "card detail", "aria-label": "Call", tabindex: "-1" });
    const answers = new Map();
    const rows = list({
      label: "Calls", height: 56, items: [],
      row: (at) => {
        if (!answers.has(at)) answers.set(at, clip(oneLine(answerOf(at)), 160));
        const who = word("player", at) || word("component", at);
        return h("div", { class: "row" },
          h("div", { class: "one" }, h("b", { dir: "auto" }, clip(oneLine(who), 40)), word("player", at) && h("span", { class: "soft" }, clip(oneLine(word("component", at)), 24)),
            h("span", { class: "right soft" }, state.all ? `run ${calls.run[at]} · ` : "", calls.turn[at] == null ? "" : `turn ${calls.turn[at]}`), word("status", at) === "ok" ? h("span", { class: "status ok quiet", role: "img", "aria-label": "ok", title: "ok" }) : (word("status", at) || word("fault", at)) && status(word("status", at))),
          h("div", { class: "two", dir: "auto" }, word("fault", at) ? `${word("fault", at)}: ` : "", answers.get(at)));
      },
      choose: (at, open) => { change({ call: calls.id[at] }); showDetail(); if (open && innerWidth <= 860) detail.focus(); },
    });
    const split = h("div", { class: "split" }, rows.node, detail);
    main.append(split);

    function filter(next) {
      const again = "all" in next;
      change({ ...next, call: undefined });
      if (again) { view = null; main.replaceChildren(); view = callsView(run); view.fits ??= () => true; } else apply();
    }
    function apply() {
      const wanted = low(state.q || "").trim(), hits = wanted ? textsWith(wanted) : null;
      const has = (at) => [...calls.messages[at].map((it) => it[1]), calls.reply[at], calls.thinking[at], calls.detail[at], calls.tools[at]].some((it) => it != null && hits[it]);
      const kept = every().filter((at) => (!state.player || word("player", at) === state.player) && (!state.component || word("component", at) === state.component)
        && (!state.status || (state.status === "faults" ? word("fault", at) : word("status", at) === state.status)) && (state.turn == null || calls.turn[at] === state.turn) && (!hits || has(at)));
      rows.show(kept);
      bar.tell(kept.length, every().length);
      showDetail();
    }
    function showDetail() {
      const named = state.call != null ? callAt(state.call) : undefined;
      const at = named ?? (innerWidth > 860 ? rows.items[0] : undefined);
      split.classList.toggle("open", named != null);
      rows.set(rows.items.indexOf(at));
      detail.replaceChildren(...(at == null ? [h("p", { class: "empty" }, rows.items.length ? "Choose a call." : "No call is like that.")] : callDetail(run, at, low(state.q || "").trim())));
      detail.scrollTop = 0;
      detail.querySelector("mark")?.scrollIntoView({ block: "center" });
    }
    apply();
    return { update: showDetail, fits: (before) => ["q", "player", "component", "status", "turn", "all"].every((name) => before[name] === state[name]), list: rows, detail, search: bar.search, back: () => { change({ call: undefined }); split.classList.remove("open"); rows.node.focus(); } };
  }

  const whose = (at) => clip([word("player", at), word("component", at)].filter(Boolean).map(oneLine).join(", "), 50);
  /** Other calls that one would want to see beside this one. */
  function neighbours(at) {
    const like = (other) => other !== at && word("player", other) === word("player", at) && word("component", other) === word("component", at);
    const same = callsOf(runs.get(state.run)).filter(like), turn = calls.turn[at], found = [];
    const before = same.filter((it) => calls.turn[it] === turn && calls.attempt[it] < calls.attempt[at]).at(-1);
    if (before != null) found.push([before, `attempt ${calls.attempt[before]}`]);
    const earlier = same.filter((it) => calls.turn[it] < turn).at(-1), later = same.find((it) => calls.turn[it] > turn);
    if (earlier != null) found.push([earlier, `turn ${calls.turn[earlier]}`]);
    if (later != null) found.push([later, `turn ${calls.turn[later]}`]);
    for (const run of [...runs.values()].slice(0, 12)) {
      const there = calls.place.size < 20000 && calls.id.findIndex((_, it) => calls.run[it] === run.id && run.id !== calls.run[at] && calls.turn[it] === turn && like(it));
      if (there >= 0 && there !== false) found.push([there, `run ${run.id}`]);
    }
    return found.slice(0, 6);
  }

  let bySlot = false;
  function callDetail(run, at, wanted) {
    const id = calls.id[at], settings = JSON.parse(textOf(calls.settings[at])), reply = textOf(calls.reply[at]), detail = textOf(calls.detail[at]);
    const form = texts.slots[id], near = neighbours(at), fact = (name, value) => value != null && value !== "" && h("span", null, `${name} `, h("b", null, value));
    return [
      h("button", { class: "back", on: { click: () => view.back() } }, "← Calls"),
      h("div", { class: "head" }, h("h2", { dir: "auto" }, visible(word("player", at) || word("component", at))), (word("status", at) || word("fault", at)) && status(word("status", at)), h("span", { class: "right soft small" }, `call ${id}`)),
      h("div", { class: "facts" }, fact("run", calls.run[at]), calls.turn[at] != null && h("a", { href: link({ view: "turns", turn: calls.turn[at] }) }, turnName(runs.get(calls.run[at]), calls.turn[at])), word("player", at) && h("span", { dir: "auto" }, visible(word("component", at))),
        calls.attempt[at] > 1 && fact("attempt", calls.attempt[at]), h("span", { dir: "auto" }, visible(settings.model ?? "")), fact("read", calls.read[at] != null && plural(calls.read[at], "token") || null), fact("written", calls.written[at] != null && plural(calls.written[at], "token") || null), calls.cut[at] && h("span", null, "cut at its length"), h("span", null, seconds(calls.seconds[at]))),
      near.length ? h("div", { class: "chips" }, h("span", { class: "soft" }, "Compare with"), near.map(([other, name]) => h("a", { class: "chip", href: link({ view: "compare", a: calls.id[other], b: id }) }, name))) : "",
      part("Reply", replyParts(at, reply, detail, wanted)),
      prompt(at, form, wanted),
      h("details", { class: "fold" }, h("summary", null, "Settings of the request"), block(JSON.stringify({ ...settings, seed: calls.seed[at] ?? undefined, replicate: calls.replicate[at] || undefined }, null, 1), { class: "mono" })),
    ];
  }

  function replyParts(at, reply, detail, wanted) {
    const fault = word("fault", at), fields = fieldsIn(reply), tools = textOf(calls.tools[at]), thinking = textOf(calls.thinking[at]);
    const parts = [];
    if (fault) parts.push(h("div", { class: "note bad" }, h("b", null, visible(fault)), detail ? block(detail, null, wanted) : ""));
    if (thinking) parts.push(fold(`Thinking · ${count(thinking.length)} characters`, block(thinking, null, wanted)));
    if (fields) {
      const { reasoning, ...own } = fields;
      parts.push(h("dl", { class: "answer" }, reasoning !== undefined && h("dd", { class: "reason" }, block(said(reasoning), null, wanted)),
        Object.entries(own).map(([name, value]) => [h("dt", { dir: "auto" }, marked(name, wanted)), h("dd", null, isNumber(value) ? figure(value) : value && typeof value === "object" ? block(JSON.stringify(value, null, 1), { class: "mono" }, wanted) : block(said(value), null, wanted))])),
        h("details", { class: "fold" }, h("summary", null, "As it was written"), block(reply, { class: "mono" }, wanted)));
    } else if (reply) parts.push(block(reply, { class: "answer-text" }, wanted));
    if (tools) parts.push(block(tools, { class: "mono" }, wanted));
    if (!reply && !tools && !fault) parts.push(h("p", { class: "soft" }, calls.reply[at] == null ? "There was no reply." : "The reply is empty."));
    return parts;
  }

  function prompt(at, form, wanted) {
    const messages = calls.messages[at].map(([role, text]) => ({ role: head.words[role], text: textOf(text) }));
    const known = Array.isArray(form), shape = known ? texts.forms[form[0]] : [], names = [...new Set(shape.map((it) => it[1]))];
    const spans = shape.map(([message, name, source, tokens], n) => ({ message, name, source, tokens, start: form[1 + 2 * n], end: form[1 + 2 * n] + form[2 + 2 * n], look: `k${names.indexOf(name) % 6}` }));
    const body = h("div"), mode = (slots, title) => h("button", { "aria-pressed": String(bySlot === slots), on: { click: (event) => { bySlot = slots; for (const it of event.target.parentNode.children) it.setAttribute("aria-pressed", String(it === event.target)); draw(); } } }, title);
    const light = (name, on) => body.querySelectorAll(".slot").forEach((it) => it.classList.toggle("lit", on && it.dataset.slot === name));
    function pieces({ text }, number) {
      const its = spans.filter((span) => span.message === number && span.end > span.start);
      if (!its.length) return block(text, { class: "mono" }, wanted);
      const node = h("div", { class: "text mono", dir: "auto" });
      let from = 0;
      for (const span of its) {
        node.append(...long(text.slice(from, span.start), wanted));
        const part = h("span", { class: `slot ${span.look}${span.end - span.start > 240 ? " long" : ""}`, title: visible(span.source ? `${span.name}: ${span.source}` : span.name) }, long(text.slice(span.start, span.end), wanted));
        part.dataset.slot = span.name;
        node.append(part);
        from = span.end;
      }
      node.append(...long(text.slice(from), wanted));
      return node;
    }
    function draw() {
      if (bySlot && spans.length) {
        body.replaceChildren(h("div", { class: "slots" }, spans.map((span) => h("div", { class: span.look }, h("div", { class: "small" }, h("b", null, visible(span.name)), span.source ? h("span", { class: "soft" }, ` · ${visible(span.source)}`) : "", span.tokens != null ? h("span", { class: "soft" }, ` · ${count(span.tokens)} tokens`) : ""),
          span.end > span.start ? block(messages[span.message].text.slice(span.start, span.end), { class: "mono" }, wanted) : h("div", { class: "soft small" }, "empty")))));
        return;
      }
      body.replaceChildren(
        names.length ? h("div", { class: "chips" }, h("span", { class: "soft" }, "Filled in"), names.map((name) => h("button", { class: `chip k${names.indexOf(name) % 6}`, on: { mouseenter: () => light(name, true), mouseleave: () => light(name, false), focus: () => light(name, true), blur: () => light(name, false), click: () => [...body.querySelectorAll(".slot")].find((it) => it.dataset.slot === name)?.scrollIntoView({ block: "center" }) } }, h("i"), visible(name)))) : "",
        ...messages.map((message, number) => h("details", { class: "message", open: true }, h("summary", null, visible(message.role), ` · ${count(message.text.length)} characters`), pieces(message, number))));
    }
    draw();
    return h("div", { class: "part" }, h("div", { class: "head" }, h("h3", null, "Prompt"), spans.length > 0 && h("span", { class: "right seg" }, mode(false, "Text"), mode(true, "By slot")), form && !known ? h("span", { class: "soft small" }, visible(form)) : ""), body);
  }

  // --- decisions --------------------------------------------------------------------------------

  function decisionsView(run) {
    const all = decisionsOf(run);
    const columns = decided.columns.filter((name) => !["run", "seed", "interventions", "model", "attempts", "prompt_tokens", "reply_tokens"].includes(name) && all.some((row) => field(row, name) != null && field(row, name) !== ""));
    if (!all.length) { main.append(h("p", { class: "empty" }, "Nothing was decided in this run.")); return {}; }
    const numeric = new Set(columns.filter((name) => all.every((row) => field(row, name) == null || isNumber(field(row, name)))));
    const width = (name) => {
      const longest = Math.max(name.length + 2, ...all.slice(0, 200).map((row) => figure(field(row, name)).length));
      return name === "status" ? 92 : Math.round(Math.min(name === "reasoning" ? 420 : numeric.has(name) ? 130 : 260, Math.max(44, longest * 7.4)));
    };
    const template = columns.map((name) => `${width(name)}px`).join(" ");
    let sorted = null;
    const values = (name) => [...new Set(all.map((row) => field(row, name)))].filter(Boolean).sort();
    const bar = filters("decision", "Search decisions", ["player", "component", "status"].map((name) => values(name).length > 1 && [name, `All ${name === "status" ? "statuses" : `${name}s`}`, values(name)]), (next) => { change(next); apply(); });
    const line = (tag, made, props) => { const node = h("div", { class: "cells", ...props }, columns.map((name) => made(name))); node.style.gridTemplateColumns = template; return node; };
    const heads = h("div", { class: "heads", role: "rowgroup" });
    const sheet = h("div", { class: "card sheet", role: "grid", tabindex: "0", "aria-label": "Decisions", "aria-rowcount": all.length + 1, "aria-colcount": columns.length }, heads);
    const rows = list({
      label: "Decisions", height: 36, items: all, kind: "grid", part: "row", container: sheet,
      row: (row) => { const node = line("div", (name) => h("span", { role: "gridcell", class: numeric.has(name) ? "n" : "", dir: numeric.has(name) ? null : "auto", title: figure(field(row, name)).length > 24 ? clip(figure(field(row, name)), 500) : null }, name === "status" ? status(field(row, name)) : clip(oneLine(figure(field(row, name))), 300))); node.classList.add("row"); return node; },
      choose: (row, open) => open && go(field(row, "call") != null ? { view: "calls", call: field(row, "call") } : { view: "turns", turn: field(row, "turn") }),
    });
    sheet.lastChild.classList.add("body");
    rows.above = 36;
    function drawHeads() {
      heads.replaceChildren(line("div", (name) => h("span", { role: "columnheader", class: numeric.has(name) ? "n" : "", "aria-sort": sorted?.name === name ? (sorted.up ? "ascending" : "descending") : null },
        h("button", { class: numeric.has(name) ? "n" : "", title: visible(name), on: { click: () => { sorted = sorted?.name === name ? (sorted.up ? { name, up: false } : null) : { name, up: true }; drawHeads(); apply(); } } }, visible(name), sorted?.name === name ? (sorted.up ? " ↑" : " ↓") : "")), { role: "row" }));
    }
    function apply() {
      const wanted = low(state.q || "").trim();
      const kept = all.filter((row) => ["player", "component", "status"].every((name) => !state[name] || field(row, name) === state[name]) && (!wanted || row.some((it) => typeof it === "string" && low(it).includes(wanted))));
      if (sorted) { const way = sorted.up ? 1 : -1, at = decided.place[sorted.name]; kept.sort((a, b) => (a[at] == null) - (b[at] == null) || (a[at] > b[at] ? way : a[at] < b[at] ? -way : 0)); }
      rows.show(kept);
      bar.tell(kept.length, all.length);
    }
    main.append(sheet);
    drawHeads();
    apply();
    return { list: rows, search: bar.search };
  }

  // --- comparison -------------------------------------------------------------------------------

  /** What to take away and to put in to make one sequence of another, by Myers (1986). */
  function edits(a, b) {
    let from = 0, end = 0;
    while (from < a.length && from < b.length && a[from] === b[from]) from += 1;
    while (end < a.length - from && end < b.length - from && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
    const equal = (its) => its.map((it) => ["=", it, it]);
    return [...equal(a.slice(0, from)), ...middle(a.slice(from, a.length - end), b.slice(from, b.length - end)), ...equal(a.slice(a.length - end))];
  }
  const MOST_EFFORT = 2e6; // of a comparison: what differs more is shown as changed as a whole
  let effort = 0;
  function middle(x, y) {
    const n = x.length, m = y.length, most = Math.min(n + m, 1200), trace = [];
    let far = new Map([[1, 0]]);
    for (let d = 0; d <= most && effort > 0; d += 1) {
      effort -= d;
      trace.push(new Map(far));
      for (let k = -d; k <= d; k += 2) {
        let at = k === -d || (k !== d && far.get(k - 1) < far.get(k + 1)) ? far.get(k + 1) : far.get(k - 1) + 1;
        while (at < n && at - k < m && x[at] === y[at - k]) at += 1;
        far.set(k, at);
        if (at >= n && at - k >= m) return back(trace, x, y);
      }
    }
    return [...x.map((it) => ["-", it, null]), ...y.map((it) => ["+", null, it])];
  }
  function back(trace, x, y) {
    const found = [];
    let i = x.length, j = y.length;
    for (let d = trace.length - 1; d >= 0; d -= 1) {
      const far = trace[d], k = i - j, before = k === -d || (k !== d && far.get(k - 1) < far.get(k + 1)) ? k + 1 : k - 1;
      const from = far.get(before), to = from - before;
      while (i > from && j > to && i > 0 && j > 0) { found.push(["=", x[i - 1], y[j - 1]]); i -= 1; j -= 1; }
      if (d > 0) { if (i === from) { found.push(["+", null, y[j - 1]]); j -= 1; } else { found.push(["-", x[i - 1], null]); i -= 1; } }
    }
    return found.reverse();
  }
  const words = (text) => text.match(/\s+|\p{Script=Han}|\d+(?:[.,]\d+)*|[\p{L}\p{N}\p{M}_]+|[^\s\p{L}\p{N}_]/gu) || [];

  /** Two texts side by side: equal lines together, in changed ones the changed words. */
  function diff(one, other, names) {
    const box = h("div", { class: "diff mono" }, h("div", { class: "side a" }, names[0]), h("div", { class: "side b" }, names[1]));
    if (one === other) return h("p", { class: "soft" }, "They are the same.");
    effort = MOST_EFFORT;
    const rows = [];
    let gone = [], come = [];
    const flush = () => {
      for (let at = 0; at < Math.max(gone.length, come.length); at += 1) rows.push([gone[at], come[at]]);
      gone = []; come = [];
    };
    for (const [kind, a, b] of edits(one.split("\n"), other.split("\n"))) {
      if (kind === "-") gone.push(a);
      else if (kind === "+") come.push(b);
      else { flush(); rows.push([a, b, true]); }
    }
    flush();
    const side = (text, kind, content) => h("div", { class: `text ${kind}`, dir: "auto" }, content ?? long(text));
    /** The first rows; the others on request. */
    const some = (its, first, what) => {
      const rest = its.slice(first), open = () => { effort = MOST_EFFORT; more.replaceWith(...some(rest, MOST_ROWS, what)); };
      const more = rest.length > 0 && h("div", { class: "skip" }, h("button", { class: "plain small", on: { click: open } }, plural(rest.length, what)));
      return [...its.slice(0, first).flatMap(put), ...(more ? [more] : [])];
    };
    const put = (row) => {
      if (row.folded) return some(row.folded, 0, "equal line");
      const [a, b, same] = row;
      if (same) return [side(a, "same a"), side(b, "same b")];
      if (a === undefined) return [h("div", { class: "a none" }), side(b, "b", h("ins", null, long(b)))];
      if (b === undefined) return [side(a, "a", h("del", null, long(a))), h("div", { class: "b none" })];
      const left = [], right = [];
      const tied = group2(edits(words(a), words(b)));
      for (const [kind, from, to] of tied) {
        if (kind === "=") { left.push(long(from)); right.push(long(to)); continue; }
        if (from) left.push(h("del", null, long(from)));
        if (to) right.push(h("ins", null, long(to)));
      }
      return [side(a, "a", left), side(b, "b", right)];
    };
    const units = []; // rows, and runs of equal ones that are folded away
    for (let at = 0; at < rows.length;) {
      const start = at, keep = 2;
      while (at < rows.length && rows[at][2]) at += 1;
      const from = start ? start + keep : 0, to = at === rows.length ? at : at - keep;
      if (at === start) units.push(rows[at++]);
      else if (at - start > 2 * keep + 2) units.push(...rows.slice(start, from), { folded: rows.slice(from, to) }, ...rows.slice(to, at));
      else units.push(...rows.slice(start, at));
    }
    box.append(...some(units, MOST_ROWS, "more row"));
    return box;
  }
  /** Join neighbouring edits of one kind; a lone blank between two changes belongs to them. */
  function group2(list) {
    const found = [];
    list.forEach(([kind, a, b], at) => {
      const last = found.at(-1), blank = kind === "=" && /^\s+$/.test(a) && list[at - 1]?.[0] !== "=" && at > 0 && list[at + 1] && list[at + 1][0] !== "=";
      if (kind === "=" && !blank) { if (last?.[0] === "=") { last[1] += a; last[2] += b; } else found.push(["=", a, b]); } else if (last && last[0] !== "=") { last[1] += a ?? ""; last[2] += b ?? ""; } else found.push(["~", a ?? "", b ?? ""]);
    });
    return found;
  }

  function compareView(run) {
    const ofRuns = state.of === "runs" && runs.size > 1;
    const kinds = calls.id.length > 1 && runs.size > 1 && h("span", { class: "seg" }, [["", "Calls"], ["runs", "Runs"]].map(([of, title]) => h("button", { "aria-pressed": String((state.of || "") === of), on: { click: () => go({ view: "compare", of }) } }, title)));
    main.append(h("div", { class: "head" }, h("h2", null, ofRuns ? "Two runs side by side" : "Two calls side by side"), h("span", { class: "right" }, kinds)));
    if (ofRuns) compareRuns(run); else compareCalls(run);
    return { fits: () => false, update() {} };
  }

  function pickers(options, a, b) {
    const one = (name, title, chosen) => h("label", null, title, h("select", { on: { change: (event) => go({ view: "compare", of: state.of, a, b, [name]: event.target.value }) } }, options.map(([value, text]) => option(value, text, chosen))));
    main.append(h("div", { class: "pick" }, one("a", "Left", a), one("b", "Right", b)));
  }
  const section = (title, ...content) => main.append(h("section", { "aria-label": title }, h("div", { class: "head" }, h("h2", null, title)), content));

  function compareCalls(run) {
    const ids = callsOf(run);
    const first = callAt(state.a) ?? ids[0], second = callAt(state.b) ?? neighbours(first)[0]?.[0] ?? ids[1] ?? first;
    if (first == null) { main.append(h("p", { class: "empty" }, "This run made no call.")); return; }
    const text = (at) => `Call ${calls.id[at]} · run ${calls.run[at]}${calls.turn[at] != null ? ` · turn ${calls.turn[at]}` : ""} · ${whose(at)}${calls.attempt[at] > 1 ? ` · attempt ${calls.attempt[at]}` : ""}`;
    // A list of thousands would take long to open: those of the two players.
    const near = new Set([first, second, ...ids.filter((at) => [first, second].some((it) => word("player", it) === word("player", at))).slice(0, 400)]);
    pickers([...near].sort(order).map((at) => [calls.id[at], text(at)]), calls.id[first], calls.id[second]);
    const names = [text(first), text(second)].map((it) => clip(it, 60));
    const both = (make) => diff(make(first), make(second), names);
    const whole = (at) => { const reply = textOf(calls.reply[at]), fields = fieldsIn(reply); return [fields ? Object.entries(fields).map(([name, value]) => `${name}: ${said(value)}`).join("\n") : reply, textOf(calls.tools[at]), word("fault", at)].filter(Boolean).join("\n"); };
    section("Replies", both(whole));
    section("Prompts", both((at) => calls.messages[at].map(([role, number]) => `[${head.words[role]}]\n${textOf(number)}`).join("\n\n")));
    section("Settings", both((at) => JSON.stringify({ ...JSON.parse(textOf(calls.settings[at])), seed: calls.seed[at] ?? undefined }, null, 1)));
  }

  function flat(value) {
    const found = Object.create(null), todo = [["", value]]; // where "constructor" is a name like others
    while (todo.length) {
      const [name, item] = todo.pop();
      if (item && typeof item === "object" && Object.keys(item).length) for (const [key, its] of Object.entries(item).reverse()) todo.push([name ? `${name}.${key}` : key, its]);
      else found[name] = typeof item === "string" ? item : JSON.stringify(item);
    }
    return found;
  }
  const manifest = (run) => JSON.parse(textOf(run.manifest));

  /** A run and the one it came from, or any other, the earlier first. */
  function beside(run) {
    return [runs.get(run.parent) ?? [...runs.values()].find((it) => it !== run) ?? run, run].sort((a, b) => a.id - b.id);
  }

  function compareRuns(run) {
    const one = runs.get(state.a) ?? beside(run)[0], other = runs.get(state.b) ?? beside(run).find((it) => it !== one) ?? run;
    pickers([...runs.values()].map((it) => [it.id, `${runName(it)}${it.changes.length ? ` · ${clip(oneLine(it.changes.join("; ")), 60)}` : ""}`]), one.id, other.id);
    const names = [`Run ${one.id}`, `Run ${other.id}`], [{ prompts: p1 = {}, ...m1 }, { prompts: p2 = {}, ...m2 }] = [manifest(one), manifest(other)];
    const f1 = flat(m1), f2 = flat(m2), changed = [...new Set([...Object.keys(f1), ...Object.keys(f2)])].filter((name) => f1[name] !== f2[name]);
    const columns = series(one).named.length ? series(one).named : series(one).rest;
    const legend = h("div", { class: "legend" }, [one, other].map((it) => h("div", null, swatch(it), h("span", { dir: "auto" }, h("b", null, runName(it)), it.changes.length ? h("span", { class: "soft" }, ` · ${oneLine(it.changes.join("; "))}`) : ""))));
    if (columns.length) section("Turn by turn", legend, charts(other, [...new Set([...lineRuns(one), ...lineRuns(other)])], columns.filter((it) => other.rows[it.column]).slice(0, 24)));
    section("What defines them", changed.length ? wide(table(["", ...names], changed.map((name) => [visible(name), block(f1[name] ?? "—"), block(f2[name] ?? "—")])), "card") : h("p", { class: "soft" }, "Configuration, model and versions are the same."));
    const places = [...new Set([...Object.keys(p1), ...Object.keys(p2)])], seen = group(places.filter((at) => p1[at]?.text !== p2[at]?.text), (at) => JSON.stringify([p1[at]?.text, p2[at]?.text]));
    if (seen.size) section("Prompt templates", [...seen.values()].map((its) => [h("h3", null, its.map(visible).join(", ")), diff(p1[its[0]]?.text ?? "", p2[its[0]]?.text ?? "", names), h("div", { class: "gap" })]));
    section("Decisions that differ", decisionsApart(one, other, names));
  }
  function decisionsApart(one, other, names) {
    const key = (run) => {
      const times = new Map();
      return new Map(decisionsOf(run).map((row) => {
        const place = JSON.stringify([field(row, "turn"), field(row, "player"), field(row, "component")]), nth = times.get(place) || 0;
        times.set(place, nth + 1);
        return [`${place}${nth}`, row];
      }));
    };
    const [left, right] = [key(one), key(other)], shown = [];
    const words2 = (row) => (row ? ownFields(row).map(([name, value]) => `${name} ${figure(value)}`).join(" · ") || clip(field(row, "reasoning") || "", 200) : "—");
    for (const place of new Set([...left.keys(), ...right.keys()])) {
      const [a, b] = [left.get(place), right.get(place)], row = a ?? b;
      if (a && b && (field(a, "call") === field(b, "call") && field(a, "call") != null || words2(a) === words2(b))) continue;
      const ids = [a, b].map((it) => it && field(it, "call"));
      shown.push([field(row, "turn"), visible(field(row, "player") || field(row, "component")), block(clip(words2(a), 400)), block(clip(words2(b), 400)), ids[0] != null && ids[1] != null ? h("a", { href: link({ view: "compare", a: ids[0], b: ids[1] }) }, "calls") : ""]);
    }
    shown.sort((a, b) => a[0] - b[0]);
    if (!shown.length) return h("p", { class: "soft" }, "None.");
    return [wide(table(["turn", "who", ...names, ""], shown.slice(0, 300)), "card"), shown.length > 300 ? h("p", { class: "soft" }, `and ${count(shown.length - 300)} more`) : ""];
  }
  const table = (heads, rows) => h("table", null, h("thead", null, h("tr", null, heads.map((it) => h(it === "" ? "td" : "th", null, it)))), h("tbody", null, rows.map((row) => h("tr", null, row.map((it) => h("td", { class: isNumber(it) ? "n" : null, dir: isNumber(it) ? null : "auto" }, it))))));

  // --- settings ---------------------------------------------------------------------------------

  function settingsView(run) {
    const { prompts = {}, ...rest } = manifest(run), whole = Object.entries(rest), nested = ([, it]) => it && typeof it === "object" && Object.keys(it).length > 0;
    const plain = Object.fromEntries(whole.filter((it) => !nested(it)));
    const blocks = [["run", { name: run.name, verb: run.verb, ...(run.started ? { started: run.started } : {}), outcome: run.outcome, ...plain }], ...whole.filter(nested)].map(([title, its]) => [title, Object.entries(flat(its))]);
    if (run.note) main.append(note(run.note));
    section(`What defines run ${run.id}`, h("div", { class: "blocks" }, blocks.map(([title, rows]) => h("div", { class: "card" }, h("h3", null, visible(title)),
      h("table", null, h("tbody", null, rows.map(([name, value]) => h("tr", null, h("th", { scope: "row", dir: "auto" }, visible(name).split(/(?<=[._])/).map((part) => [part, h("wbr")])), h("td", { class: value === "null" ? "soft" : null }, block(value, { class: /^[0-9a-f]{16,}\+?$/.test(value) ? "mono" : "" }))))))))));
    const texts2 = group(Object.keys(prompts), (place) => String(prompts[place]?.text));
    if (texts2.size) section("Prompt templates", [...texts2].map(([text, places]) => h("details", { class: "message", open: texts2.size < 3 }, h("summary", null, `${visible(prompts[places[0]]?.name ?? "")} · ${places.map(visible).join(", ")}`), block(text, { class: "mono" }))));
    section("As JSON", fold("The manifest as it is on the tape", block(textOf(run.manifest), { class: "mono" })));
    return {};
  }

  const VIEW = { overview, turns: turnsView, calls: callsView, decisions: decisionsView, compare: compareView, settings: settingsView };

  // --- keys -------------------------------------------------------------------------------------

  addEventListener("keydown", async (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog")) return;
    const typing = event.target.closest("input, select, textarea"), { key } = event;
    const names = Object.keys(VIEWS);
    if (key === "Escape") {
      if (typing && event.target.value && event.target.type === "search") { event.target.value = ""; event.target.dispatchEvent(new Event("input")); } else if (typing) view?.list?.node.focus();
      else if (view?.back && state.call != null) view.back();
      return;
    }
    if (typing) {
      if (event.target.type === "search" && (key === "Enter" || key === "ArrowDown")) { event.preventDefault(); view?.list?.node.focus(); if (key === "ArrowDown") view?.list?.move(1); }
      return;
    }
    const inChart = event.target.closest("svg"), control = event.target.closest("a, button, summary");
    const act = {
      "/": () => { if (view?.search) view.search.focus(); else { go({ view: "calls" }); setTimeout(() => view?.search?.focus(), 150); } },
      j: () => view?.list?.move(1), k: () => view?.list?.move(-1),
      ArrowDown: !inChart && view?.list && (() => view.list.move(1)), ArrowUp: !inChart && view?.list && (() => view.list.move(-1)),
      PageDown: event.target === view?.list?.node && (() => view.list.move(10)), PageUp: event.target === view?.list?.node && (() => view.list.move(-10)),
      Home: event.target === view?.list?.node && (() => view.list.pick(0, false)), End: event.target === view?.list?.node && (() => view.list.pick(view.list.items.length - 1, false)),
      Enter: !control && !inChart && view?.list && (() => { view.list.open(); view?.detail?.focus(); }),
      c: state.view === "calls" && (() => { const at = callAt(state.call) ?? view.list.items[0], near = at != null && neighbours(at)[0]; if (near) go({ view: "compare", a: calls.id[near[0]], b: calls.id[at] }); }),
      "?": help,
    }[key] || (/^[1-6]$/.test(key) && (() => go({ view: names[key - 1] })));
    if (!act || (control && key.startsWith("Arrow") && !view?.list)) return;
    event.preventDefault();
    act();
  });

  // --- start ------------------------------------------------------------------------------------

  (async () => {
    try {
      head = await data("head");
      runs = new Map(head.runs.map((run) => [run.id, run]));
      runs.index = new Map(head.runs.map((run, at) => [run.id, at]));
      calls = { id: [], run: [], turn: [], ...head.calls };
      calls.place = new Map(calls.id.map((id, at) => [id, at]));
      build();
      addEventListener("hashchange", render);
      await render();
      document.documentElement.dataset.ready = "yes";
      setTimeout(() => { readTexts(); readDecisions(); }, 50); // so that the next view is there at once
    } catch (error) {
      byId("page").replaceChildren(h("main", null, h("h1", null, "This page cannot be shown"), h("p", null, `${error}. It needs a browser of 2023 or later.`)));
      throw error;
    }
  })();
})();
