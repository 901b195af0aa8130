// The line to the server: one's own view as it changes, and what one does.

const FIRST_WAIT_MS = 500, LONGEST_WAIT_MS = 8_000; // before another try
const LOOK_MS = 3_000; // how often the line is looked at
const BUFFERED_MS = 4_000; // a stream that is silent at first stands behind a proxy that holds it
const SILENT_MS = 45_000; // the server pings every fifteen seconds
const PATIENCE_MS = 15_000; // with one request

/** Ask the server: `{ok, status, ...what it says}`; the status is 0 where none answers. */
export async function ask(address, options = {}) {
  try {
    const reply = await fetch(address, { signal: AbortSignal.timeout(PATIENCE_MS), ...options });
    const words = await reply.json().catch(() => ({})); // a proxy's own page is not JSON
    return { ...words, ok: reply.ok, status: reply.status };
  } catch {
    return { ok: false, status: 0 };
  }
}

export const post = (address, message) => ask(address, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(message),
});

/**
 * Follow one's view: `show(view)` whenever it differs, `lose(true)` when the line is cut and
 * `lose(false)` when it is back, `leave()` where the server does not know us, `move()` when other
 * tabs of ours took the line. Returns a function that opens the line anew.
 *
 * A browser opens six lines to a host in all, so hidden tabs have none; a phone that slept opens
 * its line again. An EventSource gives up for ever after an answer that is not 200, so it is closed
 * at the first error and a new one is opened from here.
 */
export function follow({ show, lose, leave, move }) {
  let source = null, opened = 0, heard = 0, wait = FIRST_WAIT_MS, timer = 0;

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  function open() {
    close();
    if (document.hidden) return;
    source = new EventSource("events");
    opened = Date.now();
    heard = 0;
    source.onmessage = ({ data }) => {
      heard = Date.now();
      take(JSON.parse(data));
    };
    source.addEventListener("ping", () => { heard = Date.now(); });
    source.addEventListener("moved", () => { close(); move(); });
    source.onerror = () => { close(); look(); };
  }

  function take(view) {
    wait = FIRST_WAIT_MS;
    lose(false);
    show(view);
  }

  /** Ask for the view once, which tells as well if the server is there and knows us. */
  async function look() {
    const { ok, status, ...view } = await ask("now");
    if (ok) take(view);
    else if (status === 401) return leave();
    else lose(true);
    if (source || document.hidden) return;
    clearTimeout(timer);
    timer = setTimeout(open, wait * (0.5 + Math.random())); // so that a class is spread out
    wait = Math.min(2 * wait, LONGEST_WAIT_MS);
  }

  function check() {
    if (!source) return;
    const now = Date.now();
    if (now - Math.max(heard, opened) > SILENT_MS) open();
    else if (!heard && now - opened > BUFFERED_MS) look();
  }

  function reopen() {
    wait = FIRST_WAIT_MS;
    open();
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : reopen()));
  addEventListener("pageshow", ({ persisted }) => persisted && reopen()); // "back" to the page
  addEventListener("online", reopen);
  setInterval(check, LOOK_MS);
  open();
  return reopen;
}
