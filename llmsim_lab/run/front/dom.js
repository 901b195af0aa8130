// `h` describes elements, `patch` brings a place in the page to a description. A view is a
// function of its props; a description given again (the same object) is not looked at again.
// Every text is text, never markup, and its hidden characters are written out.
import { visible } from "./text.js";

const HTML = "http://www.w3.org/1999/xhtml", SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "open"]);
const OWN = new Set(["key", "ref", "gone"]);
const known = new WeakMap(); // node -> {vnode, nodes: Map of id -> child}
const made = []; // [ref, element] to call when all is in its place

/** An element, or what a view returns; children are vnodes, text, numbers, arrays or nothing. */
export const h = (tag, props, ...kids) => ({ tag, props: props ?? {}, kids });

/** Bring the content of `place` to a vnode (or an array, or nothing). */
export function patch(place, vnode) {
  const kids = expand([vnode]); // the views run first: one that throws leaves the page as it was
  patchKids(place, kids);
  for (const [ref, el] of made.splice(0)) ref(el);
}

/** Children as a Map of id -> vnode; the id is the key, or the place in the call of `h`. */
function expand(kids, list = new Map(), path = "") {
  kids.forEach((kid, index) => {
    let vnode = kid, key = kid?.props?.key;
    while (typeof vnode?.tag === "function") {
      vnode = vnode.out ??= vnode.tag(vnode.props, vnode.kids) ?? [];
      key ??= vnode?.props?.key;
    }
    let id = key == null ? `${path}${index}` : `${path}=${key}`;
    if (Array.isArray(vnode)) return expand(vnode, list, `${id}/`);
    if (vnode == null || typeof vnode === "boolean" || vnode === "") return list;
    while (list.has(id)) id += "+"; // a key given twice
    if (typeof vnode !== "object") return list.set(id, visible(vnode));
    vnode.list ??= expand(vnode.kids);
    return list.set(id, vnode);
  });
  return list;
}

function patchKids(parent, list) {
  const was = known.get(parent)?.nodes ?? new Map(), nodes = new Map();
  for (const [id, vnode] of list) {
    const old = was.get(id);
    const node = old && known.get(old).vnode.tag === vnode.tag ? old : make(vnode, parent);
    nodes.set(id, node);
    update(node, vnode);
  }
  const kept = [...nodes.values()], keep = new Set(kept);
  for (const node of was.values()) {
    if (keep.has(node)) continue;
    leave(node);
    node.remove();
  }
  arrange(parent, kept);
  known.set(parent, { ...known.get(parent), nodes });
}

function make(vnode, parent) {
  if (vnode.tag === undefined) return document.createTextNode("");
  const space = vnode.tag === "svg" ? SVG : parent.namespaceURI ?? HTML; // none: a shadow root
  const el = document.createElementNS(space, vnode.tag);
  if (vnode.props.ref) made.push([vnode.props.ref, el]);
  return el;
}

function update(node, vnode) {
  const was = known.get(node)?.vnode;
  if (was === vnode) return;
  if (vnode.tag === undefined) node.data = vnode;
  else {
    patchKids(node, vnode.list);
    for (const name of Object.keys(was?.props ?? {})) {
      if (!(name in vnode.props)) write(node, name, null);
    }
    for (const [name, value] of Object.entries(vnode.props)) { // after the children: for <select>
      if (!was || value !== was.props[name]) write(node, name, value, !was);
    }
  }
  known.set(node, { ...known.get(node), vnode });
}

/** The one listener of all elements: it looks up the handler of the last drawing. */
function hear(event) {
  known.get(event.currentTarget)?.vnode.props[`on${event.type}`]?.(event);
}

function write(el, name, value, first = false) {
  if (OWN.has(name)) return;
  const words = /^(aria|data)-/.test(name); // there, false is a word
  if (name.startsWith("on")) el.addEventListener(name.slice(2), hear);
  else if (name === "style") el.style.cssText = value ?? "";
  else if (PROPERTIES.has(name)) {
    const typing = name === "value" && el.type !== "range" && el.getRootNode().activeElement === el;
    if (first ? value != null : !typing) el[name] = value ?? "";
  } else if (value == null || (value === false && !words)) el.removeAttribute(name);
  else el.setAttribute(name, value === true && !words ? "" : visible(value));
}

/** Put children in order; the one with the focus is never moved, so that it keeps it. */
function arrange(parent, nodes) {
  const active = parent.getRootNode().activeElement;
  const held = active ? Math.max(nodes.findIndex((node) => node.contains(active)), 0) : 0;
  if (nodes.length && nodes[held].parentNode !== parent) parent.append(nodes[held]);
  for (let i = held - 1; i >= 0; i--) {
    if (nodes[i].nextSibling !== nodes[i + 1]) parent.insertBefore(nodes[i], nodes[i + 1]);
  }
  for (let i = held + 1; i < nodes.length; i++) {
    const next = nodes[i - 1].nextSibling;
    if (next !== nodes[i]) parent.insertBefore(nodes[i], next);
  }
}

function leave(node) {
  const { vnode, nodes } = known.get(node) ?? {};
  vnode?.props?.gone?.(node);
  nodes?.forEach(leave);
}
