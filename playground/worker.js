// Python, in a thread of its own: the page stays usable whatever a world's code does.

import { loadPyodide } from "./pyodide/pyodide.mjs";

const FOLDER = "/worlds";
const here = (name) => new URL(name, import.meta.url).href;

// What this browser keeps of other worlds is not for a link's code to read or to write; nor is
// another worker, which would have all of this again.
for (const name of ["indexedDB", "caches", "cookieStore", "BroadcastChannel", "Worker"]) {
  for (let owner = globalThis; owner; owner = Object.getPrototypeOf(owner)) delete owner[name];
}

let playground = null;
let files = null;
const waiting = []; // what the page sent before Python was there

const START = `
from llmsim_lab.lab.playground import Playground
Playground(send, "${FOLDER}")
`;

/** What Python says: a message for the page, some of them with a file that it wrote. */
function send(text) {
  const message = JSON.parse(text);
  const path = message.tape ?? message.page;
  if (!path) {
    postMessage(message);
    return;
  }
  const bytes = files.readFile(path);
  postMessage({ ...message, bytes }, [bytes.buffer]);
}

/** Take a command: files to write, and what Python is to do. */
function take({ write, ...command }) {
  for (const [path, bytes] of Object.entries(write ?? {})) {
    const full = `${FOLDER}/${path}`;
    files.mkdirTree(full.slice(0, full.lastIndexOf("/")));
    files.writeFile(full, bytes);
  }
  playground.receive(JSON.stringify(command));
}

addEventListener("message", ({ data }) => {
  if (data.do === "ping") postMessage({ pong: true });
  else if (playground) take(data);
  else waiting.push(data);
});

async function start() {
  const print = (printed) => postMessage({ printed });
  const [python, site] = await Promise.all([
    loadPyodide({ indexURL: here("pyodide/"), stdout: print, stderr: print }),
    fetch(here("site.zip")).then((answer) => {
      if (!answer.ok) throw new Error(`site.zip: ${answer.status} ${answer.statusText}`);
      return answer.arrayBuffer();
    }),
  ]);
  python.unpackArchive(site, "zip", { extractDir: python.runPython(
    "import sysconfig; sysconfig.get_path('purelib')") });
  files = python.FS;
  playground = python.runPython(START, { globals: python.toPy({ send }) });
  postMessage({ ready: true });
  waiting.splice(0).forEach(take);
}

start().catch((error) => postMessage({ broken: String(error.message ?? error) }));
