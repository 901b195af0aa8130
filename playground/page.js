// The playground's page: it keeps worlds, has Python play them in a worker, and shows the window.

import widget from "./window.js";
import { linkTo, openStore, readLink } from "./store.js";

const PING_MS = 1000, STUCK_MS = 5000, SAVE_MS = 100, MOST_PRINTED = 20_000;
const PANELS = ["head", "transport", "overview", "turn", "calls", "compare"];
const $ = (id) => document.getElementById(id);

/** The world that is open: its place in what is kept, its file's name, its code, tape and players;
 * `live` where Python has its tape, `started` the code that Python was given. */
let open = null;
let shipped = [];
let kept = new Map();
let store = null;
let worker = null;
let view = null; // what takes messages of the window
let leaveView = () => {};
let wrongLine = 0;
/** The worlds that this Python was given, and whether a link brought each. What it says of others
 * is not theirs: a world's code can say anything in Python's name. */
const opened = new Map();
let isPageWanted = false;

// --- Python, in its worker ------------------------------------------------------------------

let isReady = false, heard = 0, asked = 0;

function startPython() {
  // From a blob, since such a worker has this page's policy: a world's code can reach no server.
  const code = `import ${JSON.stringify(new URL("worker.js", document.baseURI).href)};`;
  const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  worker = new Worker(url, { type: "module" });
  worker.onmessage = ({ data }) => take(data);
  worker.onerror = ({ message }) => HANDLERS.broken(message ?? "a file of this page is missing");
  isReady = false;
  asked = 0;
  opened.clear();
  startUp("Python is starting: up to 17 MB the first time, then some seconds of work …");
}

/** Show how far the start is; nothing once it is over. */
function startUp(words) {
  $("start-up").textContent = words;
  $("start-up").hidden = !words;
}

const send = (message) => worker.postMessage(message);

const HANDLERS = {
  ready: () => { isReady = true; startUp(""); $("start").disabled = false; },
  pong: () => { asked = 0; $("stuck").hidden = true; },
  broken: (words) => startUp(`Python could not be started: ${words}`),
  window: (message) => view?.(message),
  world: showWorld,
  wrong: showWrong,
  tape: (path, { bytes }) => keepTape(path, bytes),
  page: (path, { bytes }) => {
    if (isPageWanted) download(bytes, `${open.name}.html`, "text/html");
    isPageWanted = false;
  },
  says: say,
  printed: print,
};

function take(message) {
  heard = performance.now();
  for (const [kind, value] of Object.entries(message)) HANDLERS[kind]?.(value, message);
}

setInterval(() => {
  if (!isReady) return;
  const now = performance.now();
  if (!asked) {
    asked = now;
    send({ do: "ping" });
  } else if (now - asked > STUCK_MS && now - heard > STUCK_MS) {
    $("stuck").hidden = false;
  }
}, PING_MS);

function stopPython() {
  worker.terminate();
  $("stuck").hidden = true;
  $("window").inert = true;
  view = null;
  open.live = false;
  startPython();
  offerStart();
  hint("Python was stopped. All whole turns are kept.");
}

// --- the world -------------------------------------------------------------------------------

const isShipped = () => shipped.some(({ name, code }) => name === open.name && code === open.code);

/** Show a world's code; nothing of it runs before `play`. */
function choose(world) {
  open = { tape: null, players: null, ...world, live: false };
  $("code").value = open.code;
  $("choice").value = open.place;
  $("forget").hidden = !kept.has(open.place);
  $("seats").replaceChildren();
  leaveView();
  $("window").replaceChildren();
  $("tape").hidden = true;
  view = null;
  clearWrong();
  number();
  say("");
  offerStart();
}

/** Say what the button does: show what is kept, or begin a run. */
function offerStart() {
  $("start").textContent = open.tape && !open.live ? "Show the runs" : "Start a run";
  $("start").disabled = !isReady;
  const isOld = open.started !== undefined && open.started !== open.code;
  hint(isOld ? "The code was changed: a new run plays it." : "");
}

const hint = (words) => { $("start-hint").textContent = words; };

/** Have Python open the world; `anew` for a new run where its tape has some. */
async function play(anew) {
  clearWrong();
  hint("");
  await claim();
  const { place, name, code, tape, live } = open;
  const players = anew ? chosenPlayers() : open.players;
  const write = tape && !live ? { [`${place}/${place}.tape`]: tape } : {};
  open.started = code;
  giveTo(place);
  send({ do: "open", write, place, name, codes: { [name]: code }, players, anew });
  save();
}

/** Note that Python gets a world; code that a link brought has a Python without other worlds. */
function giveTo(place) {
  const isAlone = open.linked || [...opened.values()].some((linked) => linked);
  if (isAlone && opened.size && !opened.has(place)) {
    worker.terminate();
    startPython();
  }
  opened.set(place, Boolean(open.linked));
}

/** Who answers, as worlds take it; null where it is not known yet who is asked. */
function chosenPlayers() {
  if (!$("seats").childElementCount) return null;
  const people = [...$("seats").querySelectorAll("input:checked")].map(({ value }) => value);
  return { "*": $("others").value, ...Object.fromEntries(people.map((name) => [name, "person"])) };
}

const claimed = new Set();

/** Make the open world this tab's; where another tab has it, go on with a copy of it. */
async function claim() {
  if (!navigator.locks || claimed.has(open.place)) return;
  const isFree = await new Promise((resolve) => {
    navigator.locks.request(`playground ${open.place}`, { ifAvailable: true }, (lock) => {
      resolve(Boolean(lock));
      return lock && new Promise(() => {}); // until the tab is closed
    });
  });
  if (isFree) {
    claimed.add(open.place);
    return;
  }
  const old = open.place;
  open = { ...open, place: freePlace(old), live: false };
  claimed.add(open.place);
  listWorlds();
  say(`${old} is open in another tab; here it is kept as ${open.place}.`);
}

function showWorld(world) {
  if (world.place !== open.place || !opened.has(open.place)) return;
  open.live = true;
  open.players = world.players;
  if (world.name !== open.name) showCode(world.name);
  $("others").querySelector("[value=rule]").hidden = !world.hasRule;
  $("others").value = world.players?.["*"] ?? "random";
  const labels = (world.seats ?? []).map((seat) => {
    const label = document.createElement("label"), box = document.createElement("input");
    box.type = "checkbox";
    box.value = seat;
    box.checked = world.players?.[seat] === "person";
    box.onchange = () => hint("Start a run to play so.");
    label.append(box, ` You play ${seat}`);
    return label;
  });
  $("seats").replaceChildren(...labels);
  showWindow(world.first);
  $("tape").hidden = false;
  hint("");
  offerStart();
  save();
}

/** Show the code that a tape named; none where its world is not here. */
function showCode(name) {
  open.code = open.codes?.[name] ?? "";
  open.name = name ?? open.name;
  open.started = open.code;
  $("code").value = open.code;
  number();
  if (!name) say("The tape's world is not here, so that it cannot be played on: open its .py too.");
}

/** Draw the window anew: a host for it as a notebook is one, with the worker for a kernel. */
function showWindow(first) {
  const heardBy = [];
  const model = {
    get: (name) => ({ first, panels: PANELS })[name],
    send,
    on: (event, hear) => { if (event === "msg:custom") heardBy.push(hear); },
  };
  const place = document.createElement("div"), { initialize, render } = widget();
  view = (message) => { for (const hear of heardBy) hear(message, []); };
  leaveView();
  $("window").replaceChildren(place);
  $("window").inert = false;
  initialize({ model });
  leaveView = render({ el: place });
}

// --- what is wrong, and in which line ----------------------------------------------------------

function showWrong({ line, text }) {
  wrongLine = line;
  $("wrong").textContent = line ? `Line ${line}: ${text}` : text;
  $("wrong").hidden = false;
  number();
  if (!line) return;
  $("code-part").open = true;
  const lines = $("code").value.split("\n");
  const start = lines.slice(0, line - 1).join("\n").length + (line > 1);
  $("code").setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
  const height = $("code").scrollHeight / Math.max(lines.length, 1);
  $("code").scrollTop = Math.max(0, (line - 5) * height);
}

function clearWrong() {
  wrongLine = 0;
  $("wrong").hidden = true;
}

/** Number the lines, the wrong one marked. */
function number() {
  const count = $("code").value.split("\n").length;
  const rows = Array.from({ length: count }, (_, at) => {
    const row = document.createElement("span");
    row.textContent = at + 1;
    if (at + 1 === wrongLine) row.className = "bad";
    return [row, "\n"];
  });
  $("numbers").replaceChildren(...rows.flat());
  $("numbers").scrollTop = $("code").scrollTop;
}

function print(text) {
  $("printed-part").hidden = false;
  $("printed").textContent = `${$("printed").textContent}${text}\n`.slice(-MOST_PRINTED);
  $("printed").scrollTop = $("printed").scrollHeight;
}

// --- what is kept ------------------------------------------------------------------------------

let saving = 0;
const unkept = new Map(); // worlds that are to be kept, by their places

function keepTape(path, bytes) {
  const place = path.split("/").at(-2);
  if (!opened.has(place)) return;
  if (place === open.place) {
    open.tape = bytes;
    save();
  } else if (kept.has(place)) { // a run that is played still, behind another world
    kept.get(place).tape = bytes;
    store?.put(kept.get(place));
  }
}

/** Keep the world soon: its code, its tape, who plays. One as it is shipped, unplayed, is not. */
function save() {
  if (isShipped() && !open.tape && !kept.has(open.place)) return;
  const { place, name, code, tape, players, linked } = open;
  unkept.set(place, { place, name, code, tape, players, linked, at: Date.now() });
  document.documentElement.dataset.kept = "not yet";
  saving ||= setTimeout(keep, SAVE_MS); // and not later each time: a reload may come
}

async function keep() {
  clearTimeout(saving);
  saving = 0;
  for (const [place, world] of [...unkept]) {
    try {
      await store.put(world);
    } catch {
      say("This browser keeps nothing: save the code and the tape before you leave.");
      return;
    }
    if (unkept.get(place) === world) unkept.delete(place);
    const isNew = !kept.has(place);
    kept.set(place, world);
    if (isNew) listWorlds();
  }
  if (!unkept.size) document.documentElement.dataset.kept = "yes";
}

addEventListener("pagehide", keep);
addEventListener("beforeunload", (event) => {
  if (unkept.size) event.preventDefault();
});

const isTaken = (place) => kept.has(place) || shipped.some(({ name }) => name === place);

function freePlace(name) {
  let place = name;
  for (let copy = 2; isTaken(place); copy += 1) place = `${name}-${copy}`;
  return place;
}

/** The kept world with this code, or a new one at a place of its own. */
function worldOf(name, code) {
  const same = [...kept.values()].find((world) => world.name === name && world.code === code);
  return same ?? { place: freePlace(`my-${name}`), name, code };
}

function listWorlds() {
  const option = ({ place, name, title }) => new Option(title ?? place ?? name, place ?? name);
  const group = (label, worlds) => {
    const part = document.createElement("optgroup");
    part.label = label;
    part.append(...worlds.map(option));
    return part;
  };
  const yours = [...kept.values()];
  if (open && !kept.has(open.place)) yours.push(open);
  const mine = yours.filter(({ place }) => !shipped.some(({ name }) => name === place));
  const groups = [group("Worlds", shipped.map((world) => ({ ...world, place: world.name })))];
  if (mine.length) groups.push(group("Yours", mine));
  $("choice").replaceChildren(...groups);
  if (open) {
    $("choice").value = open.place;
    $("forget").hidden = !kept.has(open.place);
  }
}

function download(bytes, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function say(words) {
  $("says").textContent = words;
}

// --- what is clicked ---------------------------------------------------------------------------

$("code").oninput = () => {
  open.code = $("code").value;
  if (shipped.some(({ name }) => name === open.place) && !isShipped()) { // which stays as it is
    open = { ...open, place: freePlace(`my-${open.name}`), tape: null, live: false };
    listWorlds();
  }
  history.replaceState(null, "", location.pathname + location.search); // a link had other code
  clearWrong();
  number();
  offerStart();
  save();
};
$("code").onscroll = () => { $("numbers").scrollTop = $("code").scrollTop; };
$("code").onkeydown = (event) => { // Tab indents; Escape first, and it goes to the next control
  if (event.key === "Escape") $("code").dataset.leaves = "yes";
  else if (event.key === "Tab" && !event.shiftKey && !$("code").dataset.leaves) {
    event.preventDefault();
    document.execCommand("insertText", false, "    "); // which can be undone
  } else delete $("code").dataset.leaves;
};
$("choice").onchange = () => {
  const place = $("choice").value;
  history.replaceState(null, "", location.pathname + location.search);
  const world = shipped.find(({ name }) => name === place);
  choose(kept.get(place) ?? { place, name: place, code: world.code });
  if (isReady && isShipped()) play(false);
};
$("others").onchange = () => hint("Start a run to play so.");
$("start").onclick = () => play(!open.tape || open.live);
$("stop").onclick = stopPython;
$("save-code").onclick = () => download(open.code, `${open.name}.py`, "text/x-python");
$("save-tape").onclick = () => download(open.tape, `${open.place}.tape`, "application/x-ndjson");
$("page").onclick = () => { isPageWanted = true; send({ do: "page" }); };
$("replay").onclick = () => send({ do: "replay" });
$("forget").onclick = async () => {
  if (!confirm(`Delete ${open.place}, its code and its tape, from this browser?`)) return;
  unkept.delete(open.place);
  await store?.forget(open.place);
  kept.delete(open.place);
  history.replaceState(null, "", location.pathname + location.search);
  const { name, code } = shipped.find((world) => world.name === open.name) ?? shipped[0];
  choose({ place: name, name, code });
  listWorlds();
};
$("link").onclick = async () => {
  const end = isShipped() ? `world=${open.name}` : await linkTo(open.name, open.code);
  history.replaceState(null, "", `#${end}`);
  const size = `${location.href.length.toLocaleString("en")} characters`;
  try {
    await navigator.clipboard.writeText(location.href);
    say(`The link is copied (${size}). It has the code; whoever opens it has to press Start.`);
  } catch {
    say(`The link is in the address bar (${size}).`);
  }
};
$("open").onchange = async () => {
  const files = [...$("open").files];
  $("open").value = "";
  const named = (ending) => files.find(({ name }) => name.endsWith(ending));
  const code = named(".py"), tape = named(".tape");
  if (!code && !tape) {
    say("A tape ends in .tape, a world in .py; unpack a .tape.gz first.");
    return;
  }
  const stem = (file) => file.name.replace(/\.\w+$/, "").replace(/\W/g, "_");
  const codes = Object.fromEntries(shipped.map(({ name, code: text }) => [name, text]));
  for (const world of [...kept.values(), open]) codes[world.name] = world.code;
  const name = code ? stem(code) : open.name;
  const text = code ? await code.text() : open.code;
  const bytes = tape && new Uint8Array(await tape.arrayBuffer());
  choose(tape ? { place: freePlace(stem(tape)), name, code: text, tape: bytes, codes }
    : worldOf(name, text));
  listWorlds();
  if (!code) openTape(); // its world may be one that is here; a file of code waits for the button
  save();
};

/** Open a tape that came alone, with the world that it names if that is here. */
function openTape() {
  const { place, tape, codes } = open;
  giveTo(place);
  send({ do: "open", place, codes, write: { [`${place}/${place}.tape`]: tape } });
}

// --- the start -----------------------------------------------------------------------------------

async function start() {
  const worlds = await fetch("worlds.json");
  shipped = await worlds.json();
  store = await openStore();
  kept = new Map((await store?.all() ?? []).map((world) => [world.place, world]));
  let world = null;
  try {
    world = await readLink(location.hash);
  } catch (error) {
    say(`The link cannot be read: ${error.message}.`);
  }
  const asShipped = ({ name, code }) => kept.get(name) ?? { place: name, name, code };
  const isLink = world?.code !== undefined;
  if (isLink) world = worldOf(world.name, world.code);
  else if (world) {
    const known = shipped.find(({ name }) => name === world.name);
    if (!known) say(`There is no world ${world.name} here.`);
    world = known && asShipped(known);
  }
  world ??= [...kept.values()].sort((one, other) => other.at - one.at)[0];
  world ??= asShipped(shipped[0]);
  document.querySelector("main").hidden = false;
  startPython();
  choose(world);
  listWorlds();
  const isNew = isLink && !kept.has(world.place);
  open.linked ||= isNew;
  if (isNew) hint("A link brought this code. Nothing of it has run: read it first.");
  else if (isShipped()) play(false); // the worker keeps it until Python is there
}

start().catch((error) => startUp(`The page could not be started: ${error.message}`));
