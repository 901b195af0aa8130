// As much of a document as `patch` uses: a tree of nodes, attributes, listeners and the focus.

class FakeNode {
  childNodes = [];
  parentNode = null;
  get nextSibling() {
    const all = this.parentNode?.childNodes ?? [];
    return all[all.indexOf(this) + 1] ?? null;
  }
  append(node) { this.insertBefore(node, null); }
  insertBefore(node, next) {
    if (node.contains(document.activeElement) && node.parentNode) node.moved = true;
    node.remove();
    this.childNodes.splice(next ? this.childNodes.indexOf(next) : this.childNodes.length, 0, node);
    node.parentNode = this;
  }
  remove() {
    const all = this.parentNode?.childNodes;
    all?.splice(all.indexOf(this), 1);
    this.parentNode = null;
  }
  contains(node) { return node === this || this.childNodes.some((it) => it.contains(node)); }
  getRootNode() { return document; }
  get textContent() { return this.data ?? this.childNodes.map((it) => it.textContent).join(""); }
}

class FakeElement extends FakeNode {
  attributes = {};
  style = {};
  listeners = {};
  constructor(space, name) {
    super();
    Object.assign(this, { namespaceURI: space, localName: name });
  }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  removeAttribute(name) { delete this.attributes[name]; }
  addEventListener(name, act) { (this.listeners[name] ??= new Set()).add(act); }
  fire(type, more) {
    const event = { type, target: this, currentTarget: this, preventDefault() {}, ...more };
    this.listeners[type]?.forEach((act) => act(event));
  }
  focus() { document.activeElement = this; }
  closest() { return null; }
  getBoundingClientRect() { return { left: 0, top: 0 }; }
  querySelector() { return null; }
  find(name) {
    for (const node of this.childNodes) {
      const found = node.localName === name ? node : node.find?.(name);
      if (found) return found;
    }
    return null;
  }
}

export const HTML = "http://www.w3.org/1999/xhtml";
globalThis.document = {
  activeElement: null,
  createElementNS: (space, name) => new FakeElement(space, name),
  createTextNode: (data) => Object.assign(new FakeNode(), { data }),
};
export const makePlace = () => new FakeElement(HTML, "div");
