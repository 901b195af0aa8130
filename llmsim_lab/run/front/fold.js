// A part that is drawn only while it is open.
import { h } from "./dom.js";

/** Keep under an id how much of something is shown. */
export const unfold = (store, id, value) => (
  store.show({ shown: { ...store.ui.shown, [id]: value } }));

/** `content` is a function, called while the part is open; `wanted`: it is open at first. */
export function Fold({ store, id, title, wanted = false }, [content]) {
  const open = store.ui.shown?.[`fold ${id}`] ?? wanted;
  const ontoggle = ({ target }) => target.open !== open && unfold(store, `fold ${id}`, target.open);
  return h("details", { open, ontoggle }, h("summary", null, title), open && content());
}
