// A slider of turns; and the keys and the focus of the widget that it is in.
const MOVES = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 };
const TYPED_IN = "input:not([type=range]):not([type=checkbox]), textarea, select, [contenteditable=true]";
const PRESSED = "button, summary, a, [type=checkbox]";
function render({ model, el }) {
  const slider = Object.assign(document.createElement("input"), { type: "range", ariaLabel: "Turn slider" });
  slider.style.cssText = "width:100%;margin:8px 0;accent-color:var(--jp-brand-color1,#0072b2)";
  const show = () => ["min", "max", "value"].forEach((name) => (slider[name] = model.get(name)));
  const go = (turn) => {
    model.set("value", Math.min(Math.max(turn, model.get("min")), model.get("max")));
    model.save_changes();
  };
  model.on("change:min change:max change:value", show);
  slider.addEventListener("input", () => go(Number(slider.value)));
  el.append(slider);
  show();
  const whole = () => el.closest(".llmsim-live"); // found late: it is not on the page yet
  const stop = new AbortController();
  const listen = (name, act) => window.addEventListener(name, act, { capture: true, signal: stop.signal });
  listen("pointerdown", () => whole() && (whole().tabIndex = -1));
  listen("keydown", (event) => {
    const { key, target } = event;
    const other = event.ctrlKey || event.altKey || event.metaKey || event.shiftKey;
    if (other || !whole()?.contains(target) || target.closest(TYPED_IN)) return;
    if (key in MOVES) go(model.get("value") + MOVES[key]);
    else if ((key !== " " && key !== "Enter") || target.closest(PRESSED)) return;
    else if (!event.repeat) model.send(key === " " ? "play" : "step");
    event.preventDefault(); // and before the page's own shortcuts
    event.stopImmediatePropagation();
  });
  let waiting = null; // a button that had the focus until it was disabled
  const keep = new MutationObserver(() => {
    const [at, root] = [document.activeElement, whole()];
    const left = at?.disabled && root?.contains(at);
    if (left) Object.assign(root, { tabIndex: -1 }).focus({ preventScroll: true });
    else if (waiting && !waiting.disabled && at === root) waiting.focus({ preventScroll: true });
    if (left || !waiting?.disabled) waiting = left ? at : null;
  });
  keep.observe(document.body, { subtree: true, attributeFilter: ["disabled"] });
  return () => (stop.abort(), keep.disconnect());
}
export default { render };
