// A slider of turns; and the keys and the focus of the widget that it is in.
const STEP = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 };
const TYPED_IN = "input:not([type=range]):not([type=checkbox]), textarea, select, [contenteditable=true]";
const PRESSED = "button, summary, a, [type=checkbox], [role=tab]";

export default {
  render({ model, el }) {
    const stop = new AbortController();
    const slider = document.createElement("input");
    slider.type = "range";
    slider.setAttribute("aria-label", "Turn slider");
    slider.style.cssText = "width:100%;margin:8px 0;accent-color:var(--jp-brand-color1,#0072b2)";
    const show = () => {
      for (const name of ["min", "max", "value"]) slider[name] = model.get(name);
    };
    const go = (turn) => {
      model.set("value", Math.min(Math.max(turn, model.get("min")), model.get("max")));
      model.save_changes();
    };
    show();
    model.on("change:min change:max change:value", show);
    slider.addEventListener("input", () => go(Number(slider.value)));
    el.append(slider);

    // Only the widget's own part of the page, found late: it is not on the page yet.
    const whole = () => el.closest(".llmsim-live");
    const listen = (name, act) => window.addEventListener(name, act, { capture: true, signal: stop.signal });
    listen("pointerdown", () => whole() && (whole().tabIndex = -1));
    listen("keydown", (event) => {
      const { key, target } = event;
      const other = event.ctrlKey || event.altKey || event.metaKey || event.shiftKey;
      if (other || !whole()?.contains(target) || target.closest(TYPED_IN)) return;
      if (key in STEP) go(model.get("value") + STEP[key]);
      else if ((key !== " " && key !== "Enter") || target.closest(PRESSED)) return;
      else if (!event.repeat) model.send(key === " " ? "play" : "step");
      event.preventDefault(); // and before the page's own shortcuts
      event.stopImmediatePropagation();
    });

    // A button that is disabled while work is under way gives the focus away, and gets it back.
    let waiting = null;
    const keep = new MutationObserver(() => {
      const [at, root] = [document.activeElement, whole()];
      if (at?.disabled && root?.contains(at)) {
        waiting = at;
        Object.assign(root, { tabIndex: -1 }).focus({ preventScroll: true });
      } else if (waiting && !waiting.disabled) {
        if (at === root) waiting.focus({ preventScroll: true });
        waiting = null;
      }
    });
    keep.observe(document.body, { subtree: true, attributeFilter: ["disabled"] });
    return () => (stop.abort(), keep.disconnect());
  },
};
