// What this browser keeps: of each world its code, its tape and who plays, so that a reload loses
// nothing. Links carry a world's code behind the "#", which no server is sent.

const WORLDS = "worlds";

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

/** Open what is kept; null where the browser keeps nothing, as in some private windows. */
export async function openStore() {
  try {
    const request = indexedDB.open("llmsim-lab playground", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(WORLDS, { keyPath: "place" });
    const base = await done(request);
    const worlds = (mode) => base.transaction(WORLDS, mode).objectStore(WORLDS);
    return {
      all: () => done(worlds("readonly").getAll()),
      put: (world) => done(worlds("readwrite").put(world)),
      forget: (place) => done(worlds("readwrite").delete(place)),
    };
  } catch {
    return null;
  }
}

const through = async (bytes, stream) => new Uint8Array(
  await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());

/** Return what stands behind the "#" of a link to a world's code. */
export async function linkTo(name, code) {
  const bytes = new TextEncoder().encode(code);
  const packed = await through(bytes, new CompressionStream("deflate-raw"));
  const text = btoa(Array.from(packed, (byte) => String.fromCharCode(byte)).join(""));
  return `name=${name}&code=${text.replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "")}`;
}

const MOST_LINK = 200_000, MOST_CODE = 2_000_000;

/** Return the world in a link's end: its name, and its code if it has one; throws at a bad one. */
export async function readLink(end) {
  const parts = new URLSearchParams(end.replace(/^#/, ""));
  if (parts.has("world")) return { name: parts.get("world") };
  const name = parts.get("name"), text = parts.get("code");
  if (!text) return null;
  if (!/^[A-Za-z_]\w{0,60}$/.test(name ?? "")) throw new Error("its name is not one of a file");
  if (text.length > MOST_LINK) throw new Error("it is too long");
  const packed = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const code = await through(bytes, new DecompressionStream("deflate-raw"));
  if (code.length > MOST_CODE) throw new Error("it is too long");
  return { name, code: new TextDecoder("utf-8", { fatal: true }).decode(code) };
}
