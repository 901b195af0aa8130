// The sentences of the pages. WORDS stands before the modules: words.json, or a class's own file.

/** A sentence by its name, its places filled; with `n`, in the form that its language counts by. */
export function say(name, values = {}) {
  let sentence = WORDS[name];
  if ("n" in values) {
    const count = new Intl.PluralRules(WORDS.lang).select(values.n);
    sentence = WORDS[`${name}_${count}`] ?? sentence;
  }
  return sentence.replace(/\{(\w+)\}/g, (place, key) => values[key] ?? place);
}

/** Seconds as a person says them: "12 s", "3:05". */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}
