// npx --yes eslint@9 -c tests/front/eslint.config.mjs llmsim_lab/run/front tests/front playground

import { realpathSync } from "node:fs";
import { createRequire } from "node:module";

const js = createRequire(realpathSync(process.argv[1]))("@eslint/js"); // eslint's own, by npx

const browser = ["document", "window", "location", "history", "addEventListener",
  "removeEventListener", "getComputedStyle", "matchMedia", "requestAnimationFrame", "setTimeout",
  "clearTimeout", "performance", "navigator", "CSSStyleSheet", "MutationObserver",
  "ResizeObserver", "DecompressionStream", "TextDecoder", "URLSearchParams", "atob",
  "console", "KeyboardEvent", "innerWidth", "innerHeight", "CSS", "process", "Event", "URL",
  "AbortSignal", "EventSource", "WORDS", "clearInterval", "fetch", "sessionStorage", "setInterval",
  "Worker", "Blob", "Response", "TextEncoder", "CompressionStream", "btoa", "indexedDB", "confirm",
  "Option", "postMessage"]; // the last two lines for the playground

export default [
  js.configs.recommended,
  {
    languageOptions: { globals: Object.fromEntries(browser.map((name) => [name, "readonly"])) },
    rules: { "max-len": ["error", { code: 100 }], "no-control-regex": "off" },
  },
];
